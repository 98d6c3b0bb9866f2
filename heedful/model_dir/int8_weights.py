"""Weights of int8: each row of a matrix as whole numbers up to ±127 with a scale of its own, a quarter of float32.

    w[o, i] ≈ scale[o] · q[o, i]        scale[o] = max |w[o]| / 127,   q = round(w / scale)

These are the numbers that the native engine multiplies with, so for it nothing is lost by keeping only them. In a file
a matrix `x.weight` (I8) has its scales beside it as `x.weight_scale` (F32); all other tensors stay float32.
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
    Stored = Mapping[str, "np.ndarray | Rounded"]

T = TypeVar("T")
SCALE = "_scale"
LEAST_SCALE = 1e-30  # of a row of zeros: it must be divided by
KEPT = ("source_positions.", "target_positions.")
"""Tables that are only added, never multiplied with: they stay float32."""
ON_GRID = 1e-3
"""In steps of a row's scale: how far a number may be from a whole one and still count as rounded."""
HALF_STEP = 0.4999
"""The most that dither moves a number, in steps: just too little to change what it is rounded to."""


@dataclass(frozen=True)
class Rounded:
    """A matrix of whole numbers, (outputs, inputs), and the scale of each row."""

    values: NDArray[np.int8]
    scales: Floats

    def restored(self) -> Floats:
        """The matrix in real numbers again, as near as the rounding left it."""
        import numpy as np

        return self.values.astype(np.float32) * self.scales[:, None]


def round_rows(weight: Floats) -> Rounded:
    """The nearest whole multiples of each row's scale."""
    import numpy as np

    scales = np.maximum(np.abs(weight).max(axis=1) / np.float32(127.0), np.float32(LEAST_SCALE)).astype(np.float32)
    return Rounded(np.rint(weight / scales[:, None]).astype(np.int8), scales)


def dithered(weight: Floats, random: np.random.Generator) -> Floats:
    """Rows that were int8, each number moved at random within its rounding step; other rows unchanged.

    It rounds to the same int8 as before. But numbers in the middle of their step are rounded back after any small
    change, so that int8 loses all of a short fine-tuning. After dither a change of a tenth of a step moves every tenth
    number to the next step: on average int8 keeps the change.
    """
    import numpy as np

    rounded = round_rows(weight)
    steps = weight / rounded.scales[:, None]
    was_int8 = (np.abs(steps - rounded.values) < ON_GRID).all(axis=1) & weight.any(axis=1)
    moves = random.uniform(-HALF_STEP, HALF_STEP, size=weight.shape).astype(np.float32)
    stays = (np.abs(rounded.values) == 127) | ~was_int8[:, None]  # the largest number of a row makes its scale
    return np.where(stays, weight, (rounded.values + moves) * rounded.scales[:, None])


def round_matrices(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors of a compact file: every matrix rounded, with its scales; all else as it is."""
    import numpy as np

    tensors: dict[str, np.ndarray] = {}
    for name, weight in weights.items():
        if weight.ndim != 2 or weight.dtype != np.float32 or name.startswith(KEPT):
            tensors[name] = np.ascontiguousarray(weight)
            continue
        if not np.isfinite(weight).all():
            raise ModelDirectoryError(f"{name} holds numbers that are not finite: the model's weights are damaged.")
        rounded = round_rows(weight)
        tensors[name], tensors[f"{name}{SCALE}"] = rounded.values, rounded.scales
    return tensors


def joined(tensors: Mapping[str, np.ndarray], where: str) -> dict[str, np.ndarray | Rounded]:
    """Tensors of a file by the names of the model's weights: matrices of int8 together with their scales."""
    scales = {name: f"{name}{SCALE}" for name, tensor in tensors.items() if tensor.dtype == "int8"}
    found: dict[str, np.ndarray | Rounded] = {}
    for name, tensor in tensors.items():
        if name in scales:
            scale = tensors.get(scales[name])
            if tensor.ndim != 2 or scale is None or scale.shape != tensor.shape[:1] or scale.dtype != "float32":
                raise ModelDirectoryError(f"{where}: {name} is int8 and has not one scale for each of its rows.")
            found[name] = Rounded(tensor, scale)
        elif name not in scales.values():
            found[name] = tensor
    return found


def restored(stored: Stored) -> dict[str, np.ndarray]:
    """All weights as real numbers."""
    return {name: one.restored() if isinstance(one, Rounded) else one for name, one in stored.items()}


def without_scales(header: Mapping[str, tuple[str, T]]) -> dict[str, tuple[str, T]]:
    """A file's header by the names of the model's weights."""
    scales = {f"{name}{SCALE}" for name, (dtype, _) in header.items() if dtype == "I8"}
    return {name: entry for name, entry in header.items() if name not in scales}
