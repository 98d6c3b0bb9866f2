"""Table 1 of the paper, measured: what layers cost, what must wait, and how far information has to travel."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from heedful.errors import ConfigError
from heedful.model_card import versions
from heedful.paper.experiment_io import processor
from heedful.paper.layer_costs import (
    counted_flops,
    dependent_operations,
    gradient_reach,
    layers_to_span,
    median_seconds,
    peak_bytes,
)
from heedful.paper.layer_variants import LAYERS, MeasuredLayer, SelfAttention, build_layer, product_flops

FORMAT = "heedful table 1"
FORMAT_VERSION = 1
COUNTED_STEPS = 64  # the counter takes milliseconds for each step of a recurrence
SMALL_WIDTH = 16  # reach and chains do not depend on the width


@dataclass(frozen=True)
class Theory:
    """A row of the paper's table, and the exponents of n and d that it stands for."""

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
    """What is measured, and how long each time is measured."""

    lengths: tuple[int, ...]
    widths: tuple[int, ...]
    window: int = 16
    kernel_size: int = 3
    attention: str = "fused"
    seconds_each: float = 0.2

    def __post_init__(self) -> None:
        for name in ("lengths", "widths"):
            values = getattr(self, name)
            if len(values) < 2 or any(value < 2 for value in values) or list(values) != sorted(set(values)):
                raise ConfigError(f"--{name} takes two or more whole numbers from 2 on, growing, such as 16,64,256.")
        if self.window < 3 or self.kernel_size < 3:
            raise ConfigError("--window and --kernel-size must be at least 3, or nothing reaches the last position.")
        if self.attention not in ("fused", "explicit"):
            raise ConfigError(f"--attention is fused or explicit, not {self.attention!r}.")


@dataclass(frozen=True)
class Point:
    """One kind of layer at one length and width."""

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
    """Dependent operations between the first input and the last output: layers times operations in each."""


def default_sweep(device: torch.device, *, quick: bool) -> Sweep:
    """The paper's range on a GPU, a part of it on a CPU; quick: a few seconds."""
    if quick:
        return Sweep((16, 32, 64, 128, 256), (32, 64, 128), seconds_each=0.02)
    if device.type == "cuda":
        return Sweep((16, 32, 64, 128, 256, 512, 1024, 2048, 4096), (64, 128, 256, 512, 1024))
    return Sweep((16, 32, 64, 128, 256, 512, 1024, 2048), (64, 128, 256, 512), seconds_each=0.1)


def measure(sweep: Sweep, device: torch.device, *, tell: Callable[[str], None] = lambda text: None) -> list[Point]:
    """Measure every kind of layer at every length and width."""
    points = []
    for kind in LAYERS:
        for n in sweep.lengths:
            tell(f"{kind}: n = {n}")
            shape = _path_of(kind, n, sweep)
            for d in sweep.widths:
                points.append(Point(kind, n, d, **_cost_of(kind, n, d, sweep, device), **shape))
    return points


def _cost_of(kind: str, n: int, d: int, sweep: Sweep, device: torch.device) -> dict[str, Any]:
    sizes = {"d_model": d, "window": sweep.window, "kernel_size": sweep.kernel_size}
    layer = build_layer(kind, device=device, attention=sweep.attention, **sizes)
    x = torch.randn(1, n, d, device=device)
    with torch.inference_mode():
        parts = layer.project(x)
    mixing, whole = count_products(kind, length=n, **sizes)
    return {
        "seconds": median_seconds(lambda: layer(x), device, enough=sweep.seconds_each),
        "seconds_mixing": median_seconds(lambda: layer.mix(*parts), device, enough=sweep.seconds_each),
        "flops": whole,
        "flops_mixing": mixing,
        "memory_bytes": peak_bytes(lambda: layer(x), device),
    }


def count_products(kind: str, *, length: int, d_model: int, window: int, kernel_size: int) -> tuple[int, int]:
    """Operations of the mixing and of the whole layer by torch's counter; long recurrences by the formula it confirms.

    Attention and convolutions are counted on the meta device: nothing is computed, no fused kernel hides its products.
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


def _path_of(kind: str, n: int, sweep: Sweep) -> dict[str, int]:
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


def fit(points: Sequence[Point], quantity: str) -> tuple[float, float]:
    """Exponents of n and d: the plane through log quantity that fits best over the upper half of the lengths.

    Short sequences are left out because there the time is that of starting operations, not of doing them.
    """
    lengths = sorted({point.n for point in points})
    chosen = [point for point in points if point.n >= lengths[len(lengths) // 2 - (len(lengths) == 2)]]
    rows = torch.tensor([[1.0, math.log(point.n), math.log(point.d)] for point in chosen], dtype=torch.float64)
    values = torch.tensor([math.log(getattr(point, quantity)) for point in chosen], dtype=torch.float64)
    solution = torch.linalg.lstsq(rows, values[:, None], driver="gelsd").solution[:, 0].tolist()
    return solution[1], solution[2]


QUANTITIES = ("flops_mixing", "flops", "seconds_mixing", "seconds", "memory_bytes", "operations", "layers", "path")


def exponents(points: Sequence[Point]) -> dict[str, dict[str, tuple[float, float]]]:
    """For each kind of layer and each quantity the fitted exponents of n and d."""
    return {
        kind: {name: fit([point for point in points if point.layer == kind], name) for name in QUANTITIES}
        for kind in dict.fromkeys(point.layer for point in points)
    }


def results(points: Sequence[Point], sweep: Sweep, device: torch.device, command: str) -> dict[str, Any]:
    """All that was measured, and with what, as plain data."""
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
        "points": [asdict(point) for point in points],
    }
