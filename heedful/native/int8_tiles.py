"""Matrices as the kernels read them: tiles of 32 outputs, int8 with a scale for each output, or float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.model_dir.int8_weights import Int8Matrix, quantize_rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from heedful.model_dir.int8_weights import Floats

TILE = 32
"""Outputs that are computed together."""
STEP = 16
"""Inputs are padded with zeros to a multiple of this."""


def pack(weight: Floats | Int8Matrix, bias: Floats | None, *, int8: bool) -> dict[str, np.ndarray]:
    """The tensors of one linear layer, whose weight is (outputs, inputs), by the ends of their names."""
    import numpy as np

    outputs, inputs = weight.values.shape if isinstance(weight, Int8Matrix) else weight.shape
    rows, columns = padded(outputs, TILE), padded(inputs, STEP)
    whole_bias = np.zeros((1, rows), dtype=np.float32)
    if bias is not None:
        whole_bias[0, :outputs] = bias
    if not int8:
        whole = np.zeros((rows, columns), dtype=np.float32)
        whole[:outputs, :inputs] = weight.dequantize() if isinstance(weight, Int8Matrix) else weight
        tiles = whole.reshape(-1, TILE, columns).transpose(0, 2, 1)
        return {"weights": tiles.reshape(rows, columns), "bias": whole_bias}
    rounded = weight if isinstance(weight, Int8Matrix) else quantize_rows(weight)
    scales = np.zeros((1, rows), dtype=np.float32)
    scales[0, :outputs] = rounded.scales
    quantised = np.zeros((rows, columns), dtype=np.int8)
    quantised[:outputs, :inputs] = rounded.values
    return {
        "weights": pack_bytes(quantised),
        "scales": scales,
        "sums": quantised.sum(axis=1, dtype=np.int32)[None],
        "bias": whole_bias,
    }


def pack_bytes(quantised: NDArray[np.int8]) -> NDArray[np.int8]:
    """(outputs, inputs), both padded, as [tile][inputs / 4][32 outputs][4 inputs]."""
    import numpy as np

    rows, columns = quantised.shape
    tiles = quantised.reshape(rows // TILE, TILE, columns // 4, 4).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(tiles).reshape(rows, columns)


def padded(count: int, unit: int) -> int:
    """`count` rounded up to a multiple of `unit`."""
    return -(-count // unit) * unit
