"""Tables of sinusoidal and rotary positions, bit-identical on every machine."""

from __future__ import annotations

import math
from array import array

from heedful.native.int8_tiles import Numbers

_WIDTH = 3072
_ONE_MORE = int(
    "0460a0000000000000082c40150000620000000000000000020005a00000000200000000000015e1803f000048004004"
    "0004000000ac0000200000800000000080000018420000000124000000000100000020000f2000000020000000800000"
    "1e00012a0001080000000004000002b4001880004180200000004000003380002400018a000000000000000160002280"
    "00480100000000800000a5080290000060208000000000000d04002500000200400000000000000a1007e0001c080000",
    16,
)
_ONE_LESS = int(
    "40000008009a0189278000060000000000000005401d7484000060008a0000000001e0021801a0000200140000000000"
    "100059b20200000000000000000001f404194a40000100508800000020380014a844000020080000000100019008a190"
    "800008000080000000005b002613c8000000100000000000024002421500000a0001c0000000004000a51d3000030004"
    "000000000005201b446f0000a000000000000000e0021b9c000004002c00000000000400292254000200000000000000",
    16,
)
"""Bit i: frequency i of width 3072 is one unit in the last place above or below the correctly rounded float32.

These are the frequencies of numpy on processors with AVX-512, with which the published results were computed.
"""


def position_table(num_positions: int, width: int, *, cosine_first: bool) -> Numbers:
    """Interleaved sine and cosine of position · frequency, (positions, width)."""
    waves = frequencies(width)
    table = array("f", bytes(4 * num_positions * width))
    for position in range(num_positions):
        angles = array("f", (position * wave for wave in waves))
        start, end = position * width, (position + 1) * width
        table[start + cosine_first : end : 2] = array("f", map(math.sin, angles))
        table[start + (not cosine_first) : end : 2] = array("f", map(math.cos, angles))
    return Numbers("float32", (num_positions, width), memoryview(table).cast("B"))


def frequencies(width: int) -> array[float]:
    """1 / 10000^(2i/width) in float32: fixed bits for widths that divide 3072, else correctly rounded."""
    exponents = array("f", (2 * i / width for i in range(width // 2)))
    found = array("f", (10_000.0**-exponent for exponent in exponents))
    if _WIDTH % width:
        return found
    bits = array("i", found.tobytes())
    for i in range(len(bits)):
        bit = i * (_WIDTH // width)
        bits[i] += (_ONE_MORE >> bit & 1) - (_ONE_LESS >> bit & 1)
    return array("f", bits.tobytes())
