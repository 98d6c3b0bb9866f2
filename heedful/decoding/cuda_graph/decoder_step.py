"""One pass through each stack, written as the operations that a CUDA graph records."""

from __future__ import annotations

from torch import Tensor

from heedful.decoding.cuda_graph import decode_ops as op
from heedful.decoding.cuda_graph.packed_weights import Layer, Linear, Norm, PackedWeights, Stack
from heedful.decoding.cuda_graph.search_state import Activations, SearchState
from heedful.decoding.cuda_graph.topk import choose


def decode_step(weights: PackedWeights, slots: SearchState, rows: Activations, *, end: int) -> None:
    """Feed the newest token of every row, and choose the next."""
    shape, stack, beams = weights.shape, weights.decoder, slots.room.beams
    op.embed(
        stack.table, stack.places, slots.newest, slots.steps, (rows.stream, rows.x), factor=shape.factor, beams=beams
    )
    begin(weights, stack, rows)
    for number, layer in enumerate(stack.layers):
        op.product(rows.x, layer.joined, rows.joined)
        op.attend_past(rows.joined, slots.caches[number], slots.past, weights.turns, rows.attended, shape)
        leave(weights, rows, rows.attended, layer.self_output, layer.norms[0])
        assert layer.memory_query is not None
        assert layer.memory_output is not None
        op.product(rows.x, layer.memory_query, rows.queries)
        op.attend_memory(rows.queries, slots.sources, rows.attended, offset=number * shape.kept, shape=shape)
        leave(weights, rows, rows.attended, layer.memory_output, layer.norms[1])
        feed_forward(weights, layer, rows)
    finish(stack, rows)
    op.product(rows.x, Linear(weights.output, None), slots.logits)
    op.chunk_best(slots.logits, slots.follows, slots.states, slots.chunks)
    choose(slots, end=end)


def encode(weights: PackedWeights, rows: Activations, tokens: Tensor, positions: Tensor, tiles: Tensor) -> None:
    """The encoder over packed sentences; their memory is left in `rows.x`."""
    shape, stack = weights.shape, weights.encoder
    op.embed(stack.table, stack.places, tokens, positions, (rows.stream, rows.x), factor=shape.factor, beams=1)
    begin(weights, stack, rows)
    for layer in stack.layers:
        op.product(rows.x, layer.joined, rows.joined)
        op.attend_source(rows.joined, tiles, weights.turns, rows.attended, shape)
        leave(weights, rows, rows.attended, layer.self_output, layer.norms[0])
        feed_forward(weights, layer, rows)
    finish(stack, rows)


def fill_cross_cache(weights: PackedWeights, rows: Activations, places: Tensor, slots: SearchState) -> None:
    """Put keys and values of the memory, for all decoder layers, where the sentences' slots have room for them."""
    op.product(rows.x, weights.memory, slots.memory.view(-1, slots.memory.shape[2]), places=places)


def begin(weights: PackedWeights, stack: Stack, rows: Activations) -> None:
    """The norm before the first sublayer, where norms come before."""
    if stack.first is not None:
        op.join((rows.stream, rows.x), None, None, stack.first, after=weights.shape.after)


def leave(weights: PackedWeights, rows: Activations, x: Tensor, linear: Linear, norm: Norm) -> None:
    """A sublayer's last product, its residual sum, and the norm that follows."""
    parts = rows.parts_of(x.shape[1])
    op.product(x, linear, parts)
    op.join((rows.stream, rows.x), parts, linear.bias, norm, after=weights.shape.after)


def feed_forward(weights: PackedWeights, layer: Layer, rows: Activations) -> None:
    """The feed-forward sublayer."""
    op.product(rows.x, layer.inner, rows.inner, activation=weights.shape.activation)
    leave(weights, rows, rows.inner, layer.outer, layer.norms[-1])


def finish(stack: Stack, rows: Activations) -> None:
    """The norm of the whole stack's output, where norms come after."""
    if stack.last is not None:
        op.join((rows.stream, rows.x), None, None, stack.last, after=True)
