"""Weights in int8: each row of a matrix as integers up to ±127 with its own scale, a quarter of the size of float32.

    w[o, i] ≈ scale[o] · q[o, i]        scale[o] = max |w[o]| / 127,   q = round(w / scale)

The native engine computes with exactly these numbers, so it loses nothing if only they are stored. In a file a matrix
`x.weight` (I8) has its scales in `x.weight_scale` (F32); all other tensors stay float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from heedful.errors import ModelDirectoryError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Stored = Mapping[str, "np.ndarray | Int8Matrix"]

T = TypeVar("T")
SCALE = "_scale"
MIN_SCALE = 1e-30  # of a row of zeros, which is divided by it
FLOAT_TABLES = ("source_positions.", "target_positions.")
"""Tables that are added and never multiplied stay float32."""
INT8_TOLERANCE = 1e-3
"""Largest distance from an integer, in units of the row's scale, at which a number counts as int8."""
MAX_DITHER = 0.4999
"""Largest change by dither, in units of the row's scale: just too small to change the rounded value."""


@dataclass(frozen=True)
class Int8Matrix:
    """A matrix of integers, (outputs, inputs), and the scale of each row."""

    values: NDArray[np.int8]
    scales: Floats

    def dequantize(self) -> Floats:
        """The matrix in float32."""
        import numpy as np

        return self.values.astype(np.float32) * self.scales[:, None]


def quantize_rows(weight: Floats) -> Int8Matrix:
    """Round to integer multiples of each row's scale."""
    import numpy as np

    scales = np.maximum(np.abs(weight).max(axis=1) / np.float32(127.0), np.float32(MIN_SCALE)).astype(np.float32)
    return Int8Matrix(np.rint(weight / scales[:, None]).astype(np.int8), scales)


def dither(weight: Floats, random: np.random.Generator) -> Floats:
    """Move each number of rows that were int8 at random within its rounding step; other rows are unchanged.

    The result rounds to the same int8. But numbers in the middle of their step are rounded back after any small change,
    so int8 would lose all of a short fine-tuning. After dither a change of a tenth of a step moves every tenth number
    to the next step: on average int8 keeps the change.
    """
    import numpy as np

    rounded = quantize_rows(weight)
    steps = weight / rounded.scales[:, None]
    was_int8 = (np.abs(steps - rounded.values) < INT8_TOLERANCE).all(axis=1) & weight.any(axis=1)
    moves = random.uniform(-MAX_DITHER, MAX_DITHER, size=weight.shape).astype(np.float32)
    stays = (np.abs(rounded.values) == 127) | ~was_int8[:, None]  # the largest number of a row sets its scale
    return np.where(stays, weight, (rounded.values + moves) * rounded.scales[:, None])


def quantize_matrices(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors of a compact file: every matrix in int8 with its scales, everything else unchanged."""
    import numpy as np

    tensors: dict[str, np.ndarray] = {}
    for name, weight in weights.items():
        if weight.ndim != 2 or weight.dtype != np.float32 or name.startswith(FLOAT_TABLES):
            tensors[name] = np.ascontiguousarray(weight)
            continue
        if not np.isfinite(weight).all():
            raise ModelDirectoryError(f"{name} holds numbers that are not finite: the model's weights are damaged.")
        rounded = quantize_rows(weight)
        tensors[name], tensors[f"{name}{SCALE}"] = rounded.values, rounded.scales
    return tensors


def pair_scales(tensors: Mapping[str, np.ndarray], where: str) -> dict[str, np.ndarray | Int8Matrix]:
    """Tensors of a file by the names of the model's weights; int8 matrices are paired with their scales."""
    scales = {name: f"{name}{SCALE}" for name, tensor in tensors.items() if tensor.dtype == "int8"}
    found: dict[str, np.ndarray | Int8Matrix] = {}
    for name, tensor in tensors.items():
        if name in scales:
            scale = tensors.get(scales[name])
            if tensor.ndim != 2 or scale is None or scale.shape != tensor.shape[:1] or scale.dtype != "float32":
                raise ModelDirectoryError(f"{where}: {name} is int8 but does not have one scale for each row.")
            found[name] = Int8Matrix(tensor, scale)
        elif name not in scales.values():
            found[name] = tensor
    return found


def dequantize_all(stored: Stored) -> dict[str, np.ndarray]:
    """All weights in float32."""
    return {name: one.dequantize() if isinstance(one, Int8Matrix) else one for name, one in stored.items()}


def without_scales(header: Mapping[str, tuple[str, T]]) -> dict[str, tuple[str, T]]:
    """A file's header without the scales: one entry for each of the model's weights."""
    scales = {f"{name}{SCALE}" for name, (dtype, _) in header.items() if dtype == "I8"}
    return {name: entry for name, entry in header.items() if name not in scales}
