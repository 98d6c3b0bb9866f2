"""The measured Table 1 as files: all numbers, and curves on logarithmic axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from heedful.paper.experiment_io import RESULTS, open_output, write_json
from heedful.paper.plot_style import in_language, new_figure, save, styled
from heedful.paper.table1 import FORMAT, THEORY, Point, Sweep, measure, results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WORDS = {
    "self_attention": ("self-attention", "自注意力"),
    "restricted": ("restricted self-attention", "受限自注意力"),
    "recurrent": ("recurrent (GRU)", "循环层 (GRU)"),
    "convolutional": ("convolutional", "卷积层"),
    "flops_mixing": ("operations of the mixing (FLOPs)", "混合部分的运算量 (FLOPs)"),
    "seconds": ("forward time of the layer (s)", "整层前向时间 (秒)"),
    "seconds_mixing": ("forward time of the mixing (s)", "混合部分前向时间 (秒)"),
    "memory_bytes": ("memory of the forward pass (bytes)", "前向所需内存 (字节)"),
    "operations": ("dependent operations in one layer", "单层内必须依次进行的运算"),
    "path": ("dependent operations, first input to last output", "首个输入到末个输出的依次运算"),
    "length": ("length n", "序列长度 n"),
    "width": ("width d", "宽度 d"),
    "title": (
        "Table 1, measured; dotted: the theory's slope; left four panels at d = {d}, right two at n = {n}",
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
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure, and leave `results.json`, `table1.png` and `table1.svg` in the folder; return the results."""
    with styled(texts(language)):  # what cannot be drawn or written is told before the measuring, not after it
        open_output(output, FORMAT, "measured Table 1", resume=False, overwrite=overwrite, can_resume=False)
        points = measure(sweep, device, tell=tell)
        found = results(points, sweep, device, command)
        write_json(output / RESULTS, found)
        save(draw(points, language), output, "table1")
    return found


def texts(language: str) -> list[str]:
    """All that the plot says."""
    return list(in_language(WORDS, language).values())


def draw(points: Sequence[Point], language: str) -> Figure:
    """Six panels: four quantities against the length, two against the width."""
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
    figure.suptitle(words["title"].format(d=width, n=length))
    return figure


def _curves(panel: Axes, points: Sequence[Point], against: str, quantity: str, words: dict[str, str]) -> None:
    for index, (kind, theory) in enumerate(THEORY.items()):
        own = [point for point in points if point.layer == kind]
        places = [getattr(point, against) for point in own]
        values = [getattr(point, quantity) for point in own]
        shown = {"marker": "o^sD"[index], "markersize": 10 - 2 * index, "markerfacecolor": "none"}
        panel.plot(places, values, color=f"C{index}", label=words[kind], linewidth=3 - 0.6 * index, **shown)  # type: ignore[arg-type]
        slopes = {"flops_mixing": theory.flops, "seconds_mixing": theory.flops, "path": (theory.span, 0)}
        if quantity in slopes:  # through the last point, where constants weigh least
            slope = slopes[quantity][0 if against == "n" else 1]
            ends = [places[0], places[-1]]
            line = [values[-1] * (place / places[-1]) ** slope for place in ends]
            panel.plot(ends, line, linestyle=":", color=f"C{index}", linewidth=1.2)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    ticks = sorted({getattr(point, against) for point in points})
    panel.set_xticks(ticks, [str(tick) for tick in ticks], minor=False)
    panel.grid(visible=True, alpha=0.25)
