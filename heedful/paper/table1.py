"""Table 1 of the paper, measured: the cost of each layer type, its sequential operations and its path length."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from heedful.errors import ConfigError
from heedful.model_card import versions
from heedful.paper.experiment_io import RESULTS, open_output, processor, write_json
from heedful.paper.layer_costs import (
    LAYERS,
    MeasuredLayer,
    SelfAttention,
    build_layer,
    counted_flops,
    dependent_operations,
    gradient_reach,
    layers_to_span,
    peak_bytes,
    product_flops,
)
from heedful.paper.plot_style import in_language, new_figure, save, styled
from heedful.paper.profiling import MAX_EXPONENT_SPREAD, MIN_CPU_SHARE, Clock, Timing, is_busy, spread, time_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMAT = "heedful table 1"
FORMAT_VERSION = 1
COUNTED_STEPS = 64  # the counter needs milliseconds per recurrent step
SMALL_WIDTH = 16  # reach and sequential operations do not depend on the width


@dataclass(frozen=True)
class Theory:
    """A row of the paper's table, and its exponents of n and d."""

    complexity: str
    sequential: str
    path: str
    flops: tuple[int, int]
    operations: int
    span: int


THEORY = {
    "self_attention": Theory("n²·d", "1", "1", (2, 1), 0, 0),
    "restricted": Theory("r·n·d", "1", "n/r", (1, 1), 0, 1),
    "recurrent": Theory("n·d²", "n", "n", (1, 2), 1, 1),
    "convolutional": Theory("k·n·d²", "1", "n/k (dilated: log_k n)", (1, 2), 0, 1),
}


@dataclass(frozen=True)
class Sweep:
    """The lengths and widths to measure, and the time to spend on each."""

    lengths: tuple[int, ...]
    widths: tuple[int, ...]
    window: int = 16
    kernel_size: int = 3
    attention: str = "fused"
    seconds_each: float = 0.1
    """Least time of one repeat of a measurement."""
    num_repeats: int = 3
    """Passes over all points; times that differ between them are not reliable."""

    def __post_init__(self) -> None:
        for name in ("lengths", "widths"):
            values = getattr(self, name)
            if len(values) < 2 or any(value < 2 for value in values) or list(values) != sorted(set(values)):
                raise ConfigError(f"--{name} takes two or more increasing integers of at least 2, such as 16,64,256.")
        if self.window < 3 or self.kernel_size < 3:
            raise ConfigError("--window and --kernel-size must be at least 3, so that information can travel.")
        if self.attention not in ("fused", "explicit"):
            raise ConfigError(f"--attention is fused or explicit, not {self.attention!r}.")


@dataclass(frozen=True)
class Point:
    """The measurements of one layer type at one length and width."""

    layer: str
    n: int
    d: int
    seconds: float
    seconds_mixing: float
    flops: int
    flops_mixing: int
    memory_bytes: int
    reach: int
    layers: int
    operations: int
    path: int
    """Sequential operations between the first input and the last output: layers times operations per layer."""
    seconds_repeats: tuple[float, ...] = ()
    """`seconds` is the smallest of these."""
    seconds_mixing_repeats: tuple[float, ...] = ()
    cpu_share: float | None = None
    """CPU time divided by wall time; None on a GPU."""


def default_sweep(device: torch.device, *, quick: bool) -> Sweep:
    """The paper's range on a GPU, a smaller one on a CPU; with `quick`, a few seconds."""
    if quick:
        return Sweep((16, 32, 64, 128, 256), (32, 64, 128), seconds_each=0.01)
    if device.type == "cuda":
        return Sweep((16, 32, 64, 128, 256, 512, 1024, 2048, 4096), (64, 128, 256, 512, 1024))
    return Sweep((16, 32, 64, 128, 256, 512, 1024, 2048), (64, 128, 256, 512), seconds_each=0.05)


def measure(
    sweep: Sweep,
    device: torch.device,
    *,
    report: Callable[[str], None] = lambda text: None,
    clock: Clock | None = None,
) -> list[Point]:
    """Measure every layer type at every length and width; times in several passes over all of them."""
    timings: dict[tuple[str, int, int], list[tuple[Timing, Timing]]] = {}
    for repeat in range(sweep.num_repeats):
        for kind in LAYERS:
            report(f"time {repeat + 1}/{sweep.num_repeats}: {kind}")
            for n in sweep.lengths:
                for d in sweep.widths:
                    timings.setdefault((kind, n, d), []).append(_time_layer(kind, n, d, sweep, device, clock))
    points = []
    for kind in LAYERS:
        for n in sweep.lengths:
            report(f"{kind}: n = {n}")
            shape = _path_length(kind, n, sweep)
            for d in sweep.widths:
                times: dict[str, Any] = _times(timings[kind, n, d], device)
                cost = {**times, **_layer_cost(kind, n, d, sweep, device), **shape}
                points.append(Point(kind, n, d, **cost))
    return points


def _build(kind: str, n: int, d: int, sweep: Sweep, device: torch.device) -> tuple[MeasuredLayer, torch.Tensor]:
    """A layer and an input for it."""
    layer = build_layer(
        kind, d_model=d, window=sweep.window, kernel_size=sweep.kernel_size, device=device, attention=sweep.attention
    )
    return layer, torch.randn(1, n, d, device=device)


def _time_layer(
    kind: str, n: int, d: int, sweep: Sweep, device: torch.device, clock: Clock | None
) -> tuple[Timing, Timing]:
    """The times of the whole layer and of its mixing."""
    layer, x = _build(kind, n, d, sweep, device)
    with torch.inference_mode():
        parts = layer.project(x)
    whole = time_runs(lambda: layer(x), device, min_seconds=sweep.seconds_each, clock=clock)
    return whole, time_runs(lambda: layer.mix(*parts), device, min_seconds=sweep.seconds_each, clock=clock)


def _times(repeats: Sequence[tuple[Timing, Timing]], device: torch.device) -> dict[str, Any]:
    """The fields of `Point` that hold times; the smallest repeat is the least disturbed."""
    whole, mixing = (tuple(timing.seconds for timing in part) for part in zip(*repeats, strict=True))
    shares = [timing.cpu_share for both in repeats for timing in both]
    share = sum(shares) / len(shares)
    return {
        "seconds": min(whole),
        "seconds_mixing": min(mixing),
        "seconds_repeats": whole,
        "seconds_mixing_repeats": mixing,
        "cpu_share": share if device.type == "cpu" else None,
    }


def _layer_cost(kind: str, n: int, d: int, sweep: Sweep, device: torch.device) -> dict[str, Any]:
    """Operations and memory."""
    layer, x = _build(kind, n, d, sweep, device)
    sizes = {"d_model": d, "window": sweep.window, "kernel_size": sweep.kernel_size}
    mixing, whole = count_products(kind, length=n, **sizes)
    return {"flops": whole, "flops_mixing": mixing, "memory_bytes": peak_bytes(lambda: layer(x), device)}


def count_products(kind: str, *, length: int, d_model: int, window: int, kernel_size: int) -> tuple[int, int]:
    """Operations of the mixing and of the whole layer by torch's counter; long recurrences by the equivalent formula.

    Attention and convolutions are counted on the meta device, where nothing is computed and no kernel is fused.
    """
    sizes = {"d_model": d_model, "window": window, "kernel_size": kernel_size}
    formula = product_flops(kind, length=length, **sizes)
    if kind == "recurrent" and length > COUNTED_STEPS:
        return formula, formula
    device = torch.device("cpu" if kind == "recurrent" else "meta")
    layer = build_layer(kind, device=device, attention="explicit", **sizes)
    x = torch.zeros(1, length, d_model, device=device)
    whole = counted_flops(lambda: layer(x))
    return whole - counted_flops(lambda: layer.project(x)) - _finishing_flops(layer, length, d_model), whole


def _finishing_flops(layer: MeasuredLayer, length: int, d_model: int) -> int:
    if not isinstance(layer, SelfAttention):
        return 0
    heads = layer.attention.num_heads
    mixed = torch.zeros(1, heads, length, d_model // heads, device="meta")
    return counted_flops(lambda: layer.finish(mixed))


def _path_length(kind: str, n: int, sweep: Sweep) -> dict[str, int]:
    layer = build_layer(
        kind,
        d_model=SMALL_WIDTH,
        window=sweep.window,
        kernel_size=sweep.kernel_size,
        device=torch.device("cpu"),
    )
    operations = dependent_operations(layer, length=n, d_model=SMALL_WIDTH)
    reach = gradient_reach(layer, length=n, d_model=SMALL_WIDTH)
    layers = layers_to_span(reach, n)
    return {"reach": reach, "layers": layers, "operations": operations, "path": layers * operations}


def fit(points: Sequence[Point], quantity: str, repeat: int | None = None) -> tuple[float, float]:
    """Exponents of n and d: a least-squares plane through the logarithms over the upper half of the lengths.

    Short sequences are left out because their time is dominated by the overhead of starting operations. `repeat`: fit
    one repeat of a time instead of the smallest.
    """
    lengths = sorted({point.n for point in points})
    chosen = [point for point in points if point.n >= lengths[len(lengths) // 2 - (len(lengths) == 2)]]
    rows = torch.tensor([[1.0, math.log(point.n), math.log(point.d)] for point in chosen], dtype=torch.float64)
    values = torch.tensor([math.log(_value(point, quantity, repeat)) for point in chosen], dtype=torch.float64)
    solution = torch.linalg.lstsq(rows, values[:, None], driver="gelsd").solution[:, 0].tolist()
    return solution[1], solution[2]


def _value(point: Point, quantity: str, repeat: int | None) -> float:
    value: float = getattr(point, quantity) if repeat is None else getattr(point, f"{quantity}_repeats")[repeat]
    return value


QUANTITIES = ("flops_mixing", "flops", "seconds_mixing", "seconds", "memory_bytes", "operations", "layers", "path")
TIMES = ("seconds_mixing", "seconds")
Exponents = dict[str, dict[str, tuple[float, float] | None]]


def exponents(points: Sequence[Point]) -> Exponents:
    """The fitted exponents of n and d of each quantity for each layer type; None for times whose repeats disagree."""
    found: Exponents = {}
    for kind in dict.fromkeys(point.layer for point in points):
        own = [point for point in points if point.layer == kind]
        found[kind] = {
            name: fit(own, name) if name not in TIMES or exponent_spread(own, name) <= MAX_EXPONENT_SPREAD else None
            for name in QUANTITIES
        }
    return found


def exponent_spread(points: Sequence[Point], quantity: str) -> float:
    """The largest difference of a fitted exponent of a time between repeats; 0 without repeats."""
    num_repeats = min(len(point.seconds_repeats) for point in points)
    fitted = [fit(points, quantity, repeat) for repeat in range(num_repeats)]
    return max(spread([one[axis] for one in fitted]) for axis in (0, 1)) if fitted else 0.0


def timing_summary(points: Sequence[Point]) -> dict[str, Any]:
    """How reliable the times are: CPU time by wall time (None on a GPU), and the layers whose repeats disagree."""
    shares = [point.cpu_share for point in points if point.cpu_share is not None]
    fitted = exponents(points)
    return {
        "cpu_share": sum(shares) / len(shares) if shares else None,
        "min_cpu_share": MIN_CPU_SHARE,
        "max_exponent_spread": MAX_EXPONENT_SPREAD,
        "unreliable": [kind for kind in fitted if any(fitted[kind][name] is None for name in TIMES)],
    }


def timing_warnings(measured: Mapping[str, Any], language: str) -> list[str]:
    """Warnings about times that other programs disturbed."""
    words = in_language(WORDS, language)
    timing = measured.get("timing")
    if timing is None:  # results of an earlier version
        return []
    found = []
    if is_busy(timing["cpu_share"]):
        found.append(words["busy"].format(share=f"{timing['cpu_share']:.0%}"))
    if timing["unreliable"]:
        names = words["comma"].join(words[kind] for kind in timing["unreliable"])
        found.append(words["disagree"].format(names=names, bound=timing["max_exponent_spread"]))
    return found


def results(points: Sequence[Point], sweep: Sweep, device: torch.device, command: str) -> dict[str, Any]:
    """All measurements and their setup as plain data."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "complete": True,
        "date": time.strftime("%Y-%m-%d"),
        "command": command,
        "device": {"type": device.type, "name": name, "threads": torch.get_num_threads()},
        "versions": versions(),
        "sweep": asdict(sweep),
        "theory": {kind: asdict(row) for kind, row in THEORY.items()},
        "exponents": exponents(points),
        "timing": timing_summary(points),
        "points": [asdict(point) for point in points],
    }


WORDS = {
    "self_attention": ("self-attention", "自注意力"),
    "restricted": ("restricted self-attention", "受限自注意力"),
    "recurrent": ("recurrent (GRU)", "循环层（GRU）"),
    "convolutional": ("convolutional", "卷积层"),
    "flops_mixing": ("operations of the mixing (FLOPs)", "位置间交互部分的运算量（FLOPs）"),
    "seconds": ("forward time of the layer (s)", "整层前向时间（秒）"),
    "seconds_mixing": ("forward time of the mixing (s)", "位置间交互部分的前向时间（秒）"),
    "memory_bytes": ("memory of the forward pass (bytes)", "前向计算所需内存（字节）"),
    "operations": ("sequential operations in one layer", "单层内须依次进行的运算数"),
    "path": ("sequential operations, first input to last output", "从首个输入到末个输出须依次进行的运算数"),
    "length": ("length n", "序列长度 n"),
    "width": ("width d", "宽度 d"),
    "busy": (
        "The machine is busy: the timed work had a processor for {share} of the time. The exponents of time are not "
        "reliable; repeat the command on an idle machine.",
        "机器繁忙：计时期间进程只有 {share} 的时间得到处理器。时间的指数不可靠，请在空闲的机器上重新运行。",
    ),
    "disagree": (
        "Repeats of the time of {names} differ: their fitted exponents by more than {bound}. They are shown as –.",
        "{names}的几次计时不一致：拟合的指数相差超过 {bound}，以 – 表示。",
    ),
    "comma": (", ", "、"),
    "title": (
        "Table 1, measured; dotted: theoretical slope; left four panels: d = {d}, right two: n = {n}",
        "表 1 的实测；虚线为理论斜率；左侧四图 d = {d}，右侧两图 n = {n}",
    ),
}


def run_table1(
    output: Path,
    *,
    sweep: Sweep,
    device: torch.device,
    command: str,
    language: str = "en",
    overwrite: bool = False,
    report: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure and write `results.json`, `table1.png` and `table1.svg`; returns the results."""
    with styled(texts(language)):  # report missing fonts and an unusable output before measuring
        open_output(output, FORMAT, "measured Table 1", resume=False, overwrite=overwrite, can_resume=False)
        points = measure(sweep, device, report=report)
        measured = results(points, sweep, device, command)
        write_json(output / RESULTS, measured)
        save(draw(points, language, timing_warnings(measured, language)), output, "table1")
    return measured


def texts(language: str) -> list[str]:
    """All texts of the plot."""
    return list(in_language(WORDS, language).values())


def draw(points: Sequence[Point], language: str, warnings: Sequence[str] = ()) -> Figure:
    """Six panels: four quantities against length, two against width; warnings stand below the title."""
    words = in_language(WORDS, language)
    lengths, widths = sorted({point.n for point in points}), sorted({point.d for point in points})
    width, length = widths[-1], lengths[-1]
    figure = new_figure(15, 8.5)
    axes = figure.subplots(2, 3)
    at_width = [point for point in points if point.d == width]
    at_length = [point for point in points if point.n == length]
    panels: tuple[tuple[Axes, Sequence[Point], str, str], ...] = (
        (axes[0][0], at_width, "n", "flops_mixing"),
        (axes[0][1], at_width, "n", "seconds"),
        (axes[1][0], at_width, "n", "memory_bytes"),
        (axes[1][1], at_width, "n", "path"),
        (axes[0][2], at_length, "d", "flops_mixing"),
        (axes[1][2], at_length, "d", "seconds_mixing"),
    )
    for panel, chosen, against, quantity in panels:
        _curves(panel, chosen, against, quantity, words)
        panel.set_title(words[quantity])
        panel.set_xlabel(words["length" if against == "n" else "width"])
    axes[0][0].legend(frameon=False)
    figure.suptitle("\n".join([words["title"].format(d=width, n=length), *warnings]))
    return figure


def _curves(panel: Axes, points: Sequence[Point], against: str, quantity: str, words: dict[str, str]) -> None:
    for index, (kind, theory) in enumerate(THEORY.items()):
        of_layer = [point for point in points if point.layer == kind]
        xs = [getattr(point, against) for point in of_layer]
        values = [getattr(point, quantity) for point in of_layer]
        shown = {"marker": "o^sD"[index], "markersize": 10 - 2 * index, "markerfacecolor": "none"}
        panel.plot(xs, values, color=f"C{index}", label=words[kind], linewidth=3 - 0.6 * index, **shown)  # type: ignore[arg-type]
        slopes = {"flops_mixing": theory.flops, "seconds_mixing": theory.flops, "path": (theory.span, 0)}
        if quantity in slopes:  # through the last point, where constants matter least
            slope = slopes[quantity][0 if against == "n" else 1]
            ends = [xs[0], xs[-1]]
            line = [values[-1] * (x / xs[-1]) ** slope for x in ends]
            panel.plot(ends, line, linestyle=":", color=f"C{index}", linewidth=1.2)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    ticks = sorted({getattr(point, against) for point in points})
    panel.set_xticks(ticks, [str(tick) for tick in ticks], minor=False)
    panel.grid(visible=True, alpha=0.25)
