"""The operations of a decoding step, and the passes through encoder and decoder that a CUDA graph records.

Each operation writes into given tensors: by a kernel on GPUs, in plain torch elsewhere. The plain forms define what the
kernels compute; they are slow, and tests compare the kernels with them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.decoding.cuda_graph.packed_weights import Layer, Linear, Norm, PackedWeights, Shape, Stack
from heedful.decoding.cuda_graph.search_state import (
    Activations,
    BeamHistory,
    ChunkTopK,
    CrossAttentionCache,
    SearchState,
    choose,
    has_kernels,
)
from heedful.fused.kernels.sizes import QUERIES, chunk_size


def embed(
    table: Tensor, places: Tensor | None, tokens: Tensor, positions: Tensor, streams: tuple[Tensor, Tensor], *,
    factor: float, beams: int,
) -> None:  # fmt: skip
    """Both streams = table[token] · factor + places[position], where the beams of a sentence share a position."""
    stream, output = streams
    if has_kernels(table):
        from heedful.fused.kernels import decode_layers

        decode_layers.embed(table, places, tokens, positions, stream, output, factor=factor, beams=beams)
        return
    x = table[tokens].float() * factor
    if places is not None:
        x = x + places[positions.repeat_interleave(beams)].float()
    stream.copy_(x)
    output.copy_(x)


def product(
    x: Tensor, linear: Linear, output: Tensor, *, activation: str | None = None, places: Tensor | None = None
) -> None:
    """output = activation(x Wᵀ + bias). Where `output` has three dimensions, sums without bias for `join` to add up.

    `places`: in which row of the output each row goes, -1 for nowhere.
    """
    bias = linear.bias if output.dim() == 2 else None
    if has_kernels(x):
        from heedful.fused.kernels import decode_layers

        decode_layers.product(x, linear.weight, bias, output, activation=activation, places=places)
        return
    y = F.linear(x.float(), linear.weight.float(), bias.float() if bias is not None else None)
    if activation == "relu":
        y = F.relu(y)
    elif activation == "gelu":
        y = F.gelu(y)
    elif activation == "swiglu":
        inner, gate = y.chunk(2, dim=1)
        y = F.silu(gate) * inner
    elif activation is not None:
        raise ValueError(f"unknown activation {activation!r}")
    if output.dim() == 3:
        output.zero_()
        output[0].copy_(y)
    elif places is not None:
        output[places[places >= 0].long()] = y[places >= 0].type_as(output)
    else:
        output.copy_(y)


def join(streams: tuple[Tensor, Tensor], parts: Tensor | None, bias: Tensor | None, norm: Norm, *, after: bool) -> None:
    """s = stream + Σ parts + bias; the output is norm(s), and the stream goes on as that (`after`) or as s."""
    stream, output = streams
    if has_kernels(stream):
        from heedful.fused.kernels import decode_layers

        decode_layers.add_norm(
            stream, parts, bias, output,
            norm=norm.kind, weight=norm.weight, shift=norm.shift, epsilon=norm.epsilon, after=after,
        )  # fmt: skip
        return
    s = stream.clone()
    if parts is not None:
        s = s + parts.sum(dim=0)
    if bias is not None:
        s = s + bias.float()
    y, width = s, (s.shape[1],)
    weight = norm.weight.float() if norm.weight is not None else None
    if norm.kind == "layer":
        y = F.layer_norm(s, width, weight, norm.shift.float() if norm.shift is not None else None, norm.epsilon)
    elif norm.kind == "rms":
        y = F.rms_norm(s, width, weight, norm.epsilon)
    stream.copy_(y if after else s)
    output.copy_(y)


def rotate(x: Tensor, positions: Tensor, turns: tuple[Tensor, Tensor] | None) -> Tensor:
    """Vectors (T, H, Dk), rotate by the angles of their positions (T,)."""
    if turns is None:
        return x.float()
    cosine, sine = turns[0][positions][:, None], turns[1][positions][:, None]
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1).flatten(-2)


def attend(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Queries (Q, H, Dk) over keys and values (K, H, ·): (Q, H · Dh)."""
    weights = torch.softmax(torch.einsum("qhd,khd->hqk", query.float(), keys.float()) * scale, dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, values.float()).flatten(1)


def attend_past(
    joined: Tensor, cache: Tensor, past: BeamHistory, turns: tuple[Tensor, Tensor] | None, output: Tensor, shape: Shape
) -> None:
    """Put each row's newest key and value into the cache (rows, capacity, kept), then attend to its history."""
    beams = joined.shape[0] // past.steps.shape[0]
    if has_kernels(joined):
        from heedful.fused.kernels import decode_layers

        decode_layers.attend_past(
            joined, cache, past.ancestry, past.steps, past.done, turns, output,
            num_heads=shape.num_heads, key_dim=shape.key_dim, beams=beams, scale=shape.scale,
        )  # fmt: skip
        return
    keys_width, heads = shape.num_heads * shape.key_dim, shape.num_heads
    for row in range(joined.shape[0]):
        slot = row // beams
        if past.done[slot]:
            continue
        step = int(past.steps[slot])
        here = torch.tensor([step])
        query, key, value = joined[row][None].split([keys_width, keys_width, heads * shape.value_dim], dim=1)
        query, key = (rotate(side.unflatten(1, (heads, -1)), here, turns) for side in (query, key))
        cache[row, step, :keys_width], cache[row, step, keys_width:] = key.flatten(), value[0]
        writers = torch.full((step + 1,), row)
        if beams > 1:
            writers[:step] = slot * beams + past.ancestry[row, :step]
        seen = cache[writers, torch.arange(step + 1)]
        keys, values = seen[:, :keys_width].unflatten(1, (heads, -1)), seen[:, keys_width:].unflatten(1, (heads, -1))
        output[row] = attend(query, keys, values, shape.scale)[0]


def attend_memory(queries: Tensor, memory: CrossAttentionCache, output: Tensor, *, offset: int, shape: Shape) -> None:
    """Let the beams of each sentence attend to its memory, whose keys and values of a layer begin at `offset`."""
    beams = queries.shape[0] // memory.values.shape[0]
    if has_kernels(queries):
        from heedful.fused.kernels import decode_layers

        decode_layers.attend_memory(
            queries, memory.values, memory.limits, memory.done, output,
            offset=offset, num_heads=shape.num_heads, key_dim=shape.key_dim, beams=beams, scale=shape.scale,
        )  # fmt: skip
        return
    for slot in range(memory.values.shape[0]):
        if memory.done[slot]:
            continue
        rows = slice(slot * beams, (slot + 1) * beams)
        seen = memory.values[slot, : int(memory.limits[slot, 2]), offset : offset + shape.kept]
        keys, values = seen.split([shape.num_heads * shape.key_dim, shape.num_heads * shape.value_dim], dim=1)
        query, keys, values = (side.unflatten(1, (shape.num_heads, -1)) for side in (queries[rows], keys, values))
        output[rows] = attend(query, keys, values, shape.scale).type_as(output)


def attend_source(
    joined: Tensor, tiles: Tensor, turns: tuple[Tensor, Tensor] | None, output: Tensor, shape: Shape
) -> None:
    """Attention of packed sentences, each inside itself. A tile: where its sentence begins, its length, first query."""
    if has_kernels(joined):
        from heedful.fused.kernels import decode_layers

        decode_layers.attend_source(
            joined, tiles, turns, output, num_heads=shape.num_heads, key_dim=shape.key_dim, scale=shape.scale
        )
        return
    keys_width = shape.num_heads * shape.key_dim
    for begin, length, first in tiles.view(-1, 3).tolist():
        places = torch.arange(length)
        sides = joined[begin : begin + length].split([keys_width, keys_width, shape.num_heads * shape.value_dim], dim=1)
        query, key, value = (side.unflatten(1, (shape.num_heads, -1)) for side in sides)
        query, key = rotate(query, places, turns), rotate(key, places, turns)
        chosen = slice(first, min(first + QUERIES, length))
        if length:
            output[begin + chosen.start : begin + chosen.stop] = attend(query[chosen], key, value, shape.scale).type_as(
                output
            )


def chunk_best(logits: Tensor, follows: Tensor, states: Tensor, chunks: ChunkTopK) -> None:
    """Look through the logits once. Tokens that may not follow a row's state count in the sum and are no candidates."""
    if has_kernels(logits):
        from heedful.fused.kernels import decode_topk

        decode_topk.chunk_best(logits, follows, states, *chunks)
        return
    size = chunk_size(logits.shape[1])
    for number, (part, may) in enumerate(zip(logits.split(size, dim=1), follows.split(size, dim=1), strict=True)):
        chunks.largest[:, number] = part.amax(dim=1)
        chunks.total[:, number] = (part - part.amax(dim=1, keepdim=True)).exp().sum(dim=1)
        candidates = F.pad(part.masked_fill(may[states] < 0, -torch.inf), (0, size - part.shape[1]), value=-torch.inf)
        best, places = candidates.sort(dim=1, descending=True, stable=True)
        count = chunks.logits.shape[2]
        chunks.logits[:, number], chunks.tokens[:, number] = best[:, :count], places[:, :count] + number * size


def decode_step(weights: PackedWeights, slots: SearchState, rows: Activations, *, end: int) -> None:
    """Feed the newest token of every row, and choose the next."""
    shape, stack, beams = weights.shape, weights.decoder, slots.capacity.beams
    embed(stack.table, stack.places, slots.newest, slots.steps, (rows.stream, rows.x), factor=shape.factor, beams=beams)
    begin(weights, stack, rows)
    for number, layer in enumerate(stack.layers):
        product(rows.x, layer.joined, rows.joined)
        attend_past(rows.joined, slots.caches[number], slots.past, weights.turns, rows.attended, shape)
        leave(weights, rows, rows.attended, layer.self_output, layer.norms[0])
        assert layer.memory_query is not None
        assert layer.memory_output is not None
        product(rows.x, layer.memory_query, rows.queries)
        attend_memory(rows.queries, slots.sources, rows.attended, offset=number * shape.kept, shape=shape)
        leave(weights, rows, rows.attended, layer.memory_output, layer.norms[1])
        feed_forward(weights, layer, rows)
    finish(stack, rows)
    product(rows.x, Linear(weights.output, None), slots.logits)
    chunk_best(slots.logits, slots.follows, slots.states, slots.chunks)
    choose(slots, end=end)


def encode(weights: PackedWeights, rows: Activations, tokens: Tensor, positions: Tensor, tiles: Tensor) -> None:
    """The encoder over packed sentences; their memory is left in `rows.x`."""
    shape, stack = weights.shape, weights.encoder
    embed(stack.table, stack.places, tokens, positions, (rows.stream, rows.x), factor=shape.factor, beams=1)
    begin(weights, stack, rows)
    for layer in stack.layers:
        product(rows.x, layer.joined, rows.joined)
        attend_source(rows.joined, tiles, weights.turns, rows.attended, shape)
        leave(weights, rows, rows.attended, layer.self_output, layer.norms[0])
        feed_forward(weights, layer, rows)
    finish(stack, rows)


def fill_cross_cache(weights: PackedWeights, rows: Activations, places: Tensor, slots: SearchState) -> None:
    """Write keys and values of the memory, for all decoder layers, into the slots of the sentences."""
    product(rows.x, weights.memory, slots.memory.view(-1, slots.memory.shape[2]), places=places)


def begin(weights: PackedWeights, stack: Stack, rows: Activations) -> None:
    """The norm before the first sublayer, where norms come before."""
    if stack.first is not None:
        join((rows.stream, rows.x), None, None, stack.first, after=weights.shape.after)


def leave(weights: PackedWeights, rows: Activations, x: Tensor, linear: Linear, norm: Norm) -> None:
    """A sublayer's last product, its residual sum, and the norm that follows."""
    parts = rows.parts_of(x.shape[1])
    product(x, linear, parts)
    join((rows.stream, rows.x), parts, linear.bias, norm, after=weights.shape.after)


def feed_forward(weights: PackedWeights, layer: Layer, rows: Activations) -> None:
    """The feed-forward sublayer."""
    product(rows.x, layer.inner, rows.inner, activation=weights.shape.activation)
    leave(weights, rows, rows.inner, layer.outer, layer.norms[-1])


def finish(stack: Stack, rows: Activations) -> None:
    """The norm of the whole stack's output, where norms come after."""
    if stack.last is not None:
        join((rows.stream, rows.x), None, None, stack.last, after=True)
