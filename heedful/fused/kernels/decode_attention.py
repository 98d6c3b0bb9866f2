"""Attention of decoding: a row over its past, the beams of a sentence over its memory, a source over itself.

Each iterates over a sentence's own keys from the first, in blocks of one size, so that its sums depend neither on the
other sentences in the batch nor on the capacity of the buffer.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from heedful.fused.kernels.decode_constants import PRECISION, QUERIES

PAST, PAST_WARPS = 32, 1
"""Earlier tokens in a block."""
MEMORY, MEMORY_WARPS = 32, 1
"""Source tokens in a block."""
PADDED_BEAMS = 16
"""Least number of rows for tensor cores; those without a beam are empty."""
KEYS, SOURCE_WARPS = 32, 4


@triton.jit
def _rotated(base, feature, there, position, cosines, sines, WIDTH: tl.constexpr, ROTARY: tl.constexpr):
    """The vectors at `base`, rotated by the angles of their positions; base and position broadcast over features."""
    x = tl.load(base + feature, mask=there, other=0.0).to(tl.float32)
    if ROTARY:
        partner = tl.load(base + (feature ^ 1), mask=there, other=0.0).to(tl.float32)
        angle = position * (WIDTH // 2) + feature // 2
        cosine, sine = tl.load(cosines + angle, mask=there, other=0.0), tl.load(sines + angle, mask=there, other=0.0)
        x = x * cosine + tl.where(feature % 2 == 0, -partner, partner) * sine
    return x


@triton.jit
def _attend_past(
    qkv, cache, ancestry, steps, done, cosines, sines, output, capacity, num_heads, scale,
    BEAMS: tl.constexpr, ROTARY: tl.constexpr, BLOCK: tl.constexpr,
    KEY: tl.constexpr, VALUE: tl.constexpr, PADDED_KEY: tl.constexpr, PADDED_VALUE: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    slot = row // BEAMS
    idle, step = tl.load(done + slot) != 0, tl.load(steps + slot)
    d, e = tl.arange(0, PADDED_KEY), tl.arange(0, PADDED_VALUE)
    d_there, e_there = d < KEY, e < VALUE
    kind = cache.dtype.element_ty
    here = qkv + row.to(tl.int64) * num_heads * (2 * KEY + VALUE)
    q = _rotated(here + head * KEY, d, d_there, step, cosines, sines, KEY, ROTARY).to(kind).to(tl.float32) * scale
    k = _rotated(here + (num_heads + head) * KEY, d, d_there, step, cosines, sines, KEY, ROTARY).to(kind)
    v = tl.load(here + 2 * num_heads * KEY + head * VALUE + e, mask=e_there, other=0.0)
    if idle:  # this late, so that all loads are issued together
        return
    width = num_heads * (KEY + VALUE)
    of_keys, of_values = head * KEY, num_heads * KEY + head * VALUE
    own = cache + (row.to(tl.int64) * capacity + step) * width
    tl.store(own + of_keys + d, k, mask=d_there)
    tl.store(own + of_values + e, v.to(kind), mask=e_there)
    largest = tl.sum(q * k.to(tl.float32), axis=0)  # its own token first, then those before it from the start
    total = 1.0
    o = v.to(tl.float32)
    for first in range(0, step, BLOCK):
        position = first + tl.arange(0, BLOCK)
        there = position < step
        writer = row + tl.zeros((BLOCK,), dtype=tl.int32)
        if BEAMS > 1:
            writer = slot * BEAMS + tl.load(ancestry + row * capacity + position, mask=there, other=0)
        at = cache + (writer.to(tl.int64) * capacity + position) * width
        keys = tl.load(at[:, None] + of_keys + d[None, :], mask=there[:, None] & d_there[None, :], other=0.0)
        values = tl.load(at[:, None] + of_values + e[None, :], mask=there[:, None] & e_there[None, :], other=0.0)
        scores = tl.where(there, tl.sum(q[None, :] * keys.to(tl.float32), axis=1), float("-inf"))
        new = tl.maximum(largest, tl.max(scores, axis=0))
        weights, shrink = tl.exp(scores - new), tl.exp(largest - new)
        total = total * shrink + tl.sum(weights, axis=0)
        o = o * shrink + tl.sum(weights[:, None] * values.to(tl.float32), axis=0)
        largest = new
    tl.store(output + (row * num_heads + head) * VALUE + e, (o / total).to(output.dtype.element_ty), mask=e_there)


@triton.jit
def _attend_memory(
    queries, memory, limits, done, output, offset, memory_width, capacity, num_heads, scale,
    BEAMS: tl.constexpr, PADDED_BEAMS: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
    KEY: tl.constexpr, VALUE: tl.constexpr, PADDED_KEY: tl.constexpr, PADDED_VALUE: tl.constexpr,
):  # fmt: skip
    slot, head = tl.program_id(0), tl.program_id(1)
    idle, length = tl.load(done + slot) != 0, tl.load(limits + slot * 4 + 2)
    beam, d, e = tl.arange(0, PADDED_BEAMS), tl.arange(0, PADDED_KEY), tl.arange(0, PADDED_VALUE)
    row = slot * BEAMS + beam
    q_at = queries + (row * num_heads + head)[:, None] * KEY + d[None, :]
    q = tl.load(q_at, mask=(beam < BEAMS)[:, None] & (d < KEY)[None, :], other=0.0)
    if idle:
        return
    largest = tl.full((PADDED_BEAMS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((PADDED_BEAMS,), dtype=tl.float32)
    o = tl.zeros((PADDED_BEAMS, PADDED_VALUE), dtype=tl.float32)
    of_keys, of_values = offset + head * KEY, offset + num_heads * KEY + head * VALUE
    for first in range(0, length, BLOCK):
        position = first + tl.arange(0, BLOCK)
        there = position < length
        at = memory + (slot.to(tl.int64) * capacity + position)[:, None] * memory_width
        keys = tl.load(at + of_keys + d[None, :], mask=there[:, None] & (d < KEY)[None, :], other=0.0)
        values = tl.load(at + of_values + e[None, :], mask=there[:, None] & (e < VALUE)[None, :], other=0.0)
        scores = tl.dot(q, tl.trans(keys), input_precision=PRECISION) * scale
        scores = tl.where(there[None, :], scores, float("-inf"))
        new = tl.maximum(largest, tl.max(scores, axis=1))
        weights, shrink = tl.exp(scores - new[:, None]), tl.exp(largest - new)
        total = total * shrink + tl.sum(weights, axis=1)
        o = tl.dot(weights.to(values.dtype), values, o * shrink[:, None], input_precision=PRECISION)
        largest = new
    o_at = output + (row * num_heads + head)[:, None] * VALUE + e[None, :]
    o_there = (beam < BEAMS)[:, None] & (e < VALUE)[None, :]
    tl.store(o_at, (o / total[:, None]).to(output.dtype.element_ty), mask=o_there)


@triton.jit
def _attend_source(
    qkv, tiles, cosines, sines, output, num_heads, scale,
    ROTARY: tl.constexpr, PRECISION: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    KEY: tl.constexpr, VALUE: tl.constexpr, PADDED_KEY: tl.constexpr, PADDED_VALUE: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0) * 3, tl.program_id(1)
    begin, length, first = tl.load(tiles + tile), tl.load(tiles + tile + 1), tl.load(tiles + tile + 2)
    if length == 0:
        return
    d, e = tl.arange(0, PADDED_KEY)[None, :], tl.arange(0, PADDED_VALUE)[None, :]
    width = num_heads * (2 * KEY + VALUE)
    kind = qkv.dtype.element_ty
    place = (first + tl.arange(0, QUERIES))[:, None]
    q_at = qkv + (begin + place).to(tl.int64) * width + head * KEY
    q = _rotated(q_at, d, (place < length) & (d < KEY), place, cosines, sines, KEY, ROTARY).to(kind)
    largest = tl.full((QUERIES,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((QUERIES,), dtype=tl.float32)
    o = tl.zeros((QUERIES, PADDED_VALUE), dtype=tl.float32)
    for start in range(0, length, KEYS):
        other = (start + tl.arange(0, KEYS))[:, None]
        at = qkv + (begin + other).to(tl.int64) * width
        k_at = at + (num_heads + head) * KEY
        keys = _rotated(k_at, d, (other < length) & (d < KEY), other, cosines, sines, KEY, ROTARY).to(kind)
        values = tl.load(
            at + 2 * num_heads * KEY + head * VALUE + e, mask=(other < length) & (e < VALUE), other=0.0
        )  # fmt: skip
        scores = tl.dot(q, tl.trans(keys), input_precision=PRECISION) * scale
        scores = tl.where((start + tl.arange(0, KEYS))[None, :] < length, scores, float("-inf"))
        new = tl.maximum(largest, tl.max(scores, axis=1))
        weights, shrink = tl.exp(scores - new[:, None]), tl.exp(largest - new)
        total = total * shrink + tl.sum(weights, axis=1)
        o = o * shrink[:, None] + tl.dot(weights.to(kind), values, input_precision=PRECISION)
        largest = new
    o_at = output + (begin + place).to(tl.int64) * (num_heads * VALUE) + head * VALUE + e
    tl.store(o_at, (o / total[:, None]).to(output.dtype.element_ty), mask=(place < length) & (e < VALUE))


def attend_past(
    qkv: Tensor, cache: Tensor, ancestry: Tensor, steps: Tensor, done: Tensor,
    rotations: tuple[Tensor, Tensor] | None, output: Tensor, *, num_heads: int, key_dim: int, beams: int, scale: float,
) -> None:  # fmt: skip
    """Put each row's newest key and value into the cache, then attend to all tokens that it descends from."""
    value_dim = output.shape[1] // num_heads
    cosines, sines = rotations or (output, output)
    _attend_past[(qkv.shape[0], num_heads)](
        qkv, cache, ancestry, steps, done, cosines, sines, output, cache.shape[1], num_heads, scale,
        BEAMS=beams, ROTARY=rotations is not None, BLOCK=PAST, KEY=key_dim, VALUE=value_dim,
        PADDED_KEY=triton.next_power_of_2(key_dim), PADDED_VALUE=triton.next_power_of_2(value_dim),
        num_warps=PAST_WARPS,
    )  # fmt: skip


def attend_memory(
    queries: Tensor, memory: Tensor, limits: Tensor, done: Tensor, output: Tensor,
    *, offset: int, num_heads: int, key_dim: int, beams: int, scale: float,
) -> None:  # fmt: skip
    """Let the beams of each sentence attend to its memory, whose keys and values of a layer begin at `offset`."""
    value_dim = output.shape[1] // num_heads
    _attend_memory[(memory.shape[0], num_heads)](
        queries, memory, limits, done, output, offset, memory.shape[2], memory.shape[1], num_heads, scale,
        BEAMS=beams, PADDED_BEAMS=PADDED_BEAMS, BLOCK=MEMORY, PRECISION=PRECISION, KEY=key_dim, VALUE=value_dim,
        PADDED_KEY=max(triton.next_power_of_2(key_dim), 16), PADDED_VALUE=max(triton.next_power_of_2(value_dim), 16),
        num_warps=MEMORY_WARPS,
    )  # fmt: skip


def attend_source(
    qkv: Tensor, tiles: Tensor, rotations: tuple[Tensor, Tensor] | None, output: Tensor,
    *, num_heads: int, key_dim: int, scale: float,
) -> None:  # fmt: skip
    """Attention of packed sentences, each inside itself. A tile: where its sentence begins, its length, first query."""
    value_dim = output.shape[1] // num_heads
    cosines, sines = rotations or (output, output)
    _attend_source[(tiles.shape[0], num_heads)](
        qkv, tiles, cosines, sines, output, num_heads, scale,
        ROTARY=rotations is not None, PRECISION=PRECISION, QUERIES=QUERIES, KEYS=KEYS, KEY=key_dim, VALUE=value_dim,
        PADDED_KEY=max(triton.next_power_of_2(key_dim), 16), PADDED_VALUE=max(triton.next_power_of_2(value_dim), 16),
        num_warps=SOURCE_WARPS,
    )  # fmt: skip
