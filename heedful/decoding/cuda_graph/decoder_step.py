"""The encoder pass and the decoder step that a CUDA graph captures, and their operations.

Each operation writes into given tensors: with a Triton kernel on GPUs, in torch elsewhere. The torch versions
define what the kernels compute; they are slow, and tests compare the kernels with them.
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
    has_kernels,
    select_tokens,
)
from heedful.fused.kernels.sizes import QUERIES, chunk_size


def embed(
    table: Tensor, position_table: Tensor | None, tokens: Tensor, positions: Tensor, streams: tuple[Tensor, Tensor], *,
    factor: float, beams: int,
) -> None:  # fmt: skip
    """Both streams = table[token] · factor + position_table[position]; the beams of a sentence share a position."""
    stream, output = streams
    if has_kernels(table):
        from heedful.fused.kernels import decode_layers

        decode_layers.embed(table, position_table, tokens, positions, stream, output, factor=factor, beams=beams)
        return
    x = table[tokens].float() * factor
    if position_table is not None:
        x = x + position_table[positions.repeat_interleave(beams)].float()
    stream.copy_(x)
    output.copy_(x)


def apply_linear(
    x: Tensor, linear: Linear, output: Tensor, *, activation: str | None = None, output_rows: Tensor | None = None
) -> None:
    """output = activation(x Wᵀ + bias). If `output` has three dimensions, partial sums without bias for `add_norm`.

    `output_rows`: the row of the output for each row; -1 to drop it.
    """
    bias = linear.bias if output.dim() == 2 else None
    if has_kernels(x):
        from heedful.fused.kernels import decode_layers

        decode_layers.matmul(x, linear.weight, bias, output, activation=activation, output_rows=output_rows)
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
    elif output_rows is not None:
        output[output_rows[output_rows >= 0].long()] = y[output_rows >= 0].type_as(output)
    else:
        output.copy_(y)


def add_norm(
    streams: tuple[Tensor, Tensor], parts: Tensor | None, bias: Tensor | None, norm: Norm, *, post_norm: bool
) -> None:
    """s = stream + Σ parts + bias; output = norm(s); stream = norm(s) with post-norm, s with pre-norm."""
    stream, output = streams
    if has_kernels(stream):
        from heedful.fused.kernels import decode_layers

        decode_layers.add_norm(
            stream, parts, bias, output,
            norm=norm.kind, weight=norm.weight, shift=norm.shift, epsilon=norm.epsilon, post_norm=post_norm,
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
    stream.copy_(y if post_norm else s)
    output.copy_(y)


def rotate(x: Tensor, positions: Tensor, rotary: tuple[Tensor, Tensor] | None) -> Tensor:
    """Rotate vectors (T, H, Dk) by the angles of their positions (T,)."""
    if rotary is None:
        return x.float()
    cosine, sine = rotary[0][positions][:, None], rotary[1][positions][:, None]
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1).flatten(-2)


def attend(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Queries (Q, H, Dk) over keys and values (K, H, ·): (Q, H · Dh)."""
    weights = torch.softmax(torch.einsum("qhd,khd->hqk", query.float(), keys.float()) * scale, dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, values.float()).flatten(1)


def decoder_self_attention(
    qkv: Tensor, cache: Tensor, history: BeamHistory, rotary: tuple[Tensor, Tensor] | None, output: Tensor, shape: Shape
) -> None:
    """Write each row's newest key and value to the cache (rows, capacity, kv_width), then attend to its history."""
    beams = qkv.shape[0] // history.steps.shape[0]
    if has_kernels(qkv):
        from heedful.fused.kernels import decode_layers

        decode_layers.decoder_self_attention(
            qkv, cache, history.ancestry, history.steps, history.done, rotary, output,
            num_heads=shape.num_heads, key_dim=shape.key_dim, beams=beams, scale=shape.scale,
        )  # fmt: skip
        return
    keys_width, heads = shape.num_heads * shape.key_dim, shape.num_heads
    for row in range(qkv.shape[0]):
        slot = row // beams
        if history.done[slot]:
            continue
        step = int(history.steps[slot])
        here = torch.tensor([step])
        query, key, value = qkv[row][None].split([keys_width, keys_width, heads * shape.value_dim], dim=1)
        query, key = (rotate(side.unflatten(1, (heads, -1)), here, rotary) for side in (query, key))
        cache[row, step, :keys_width], cache[row, step, keys_width:] = key.flatten(), value[0]
        writers = torch.full((step + 1,), row)
        if beams > 1:
            writers[:step] = slot * beams + history.ancestry[row, :step]
        seen = cache[writers, torch.arange(step + 1)]
        keys, values = seen[:, :keys_width].unflatten(1, (heads, -1)), seen[:, keys_width:].unflatten(1, (heads, -1))
        output[row] = attend(query, keys, values, shape.scale)[0]


def cross_attention(queries: Tensor, cache: CrossAttentionCache, output: Tensor, *, offset: int, shape: Shape) -> None:
    """Attention of the beams to the encoder output; keys and values of this layer begin at `offset`."""
    beams = queries.shape[0] // cache.values.shape[0]
    if has_kernels(queries):
        from heedful.fused.kernels import decode_layers

        decode_layers.cross_attention(
            queries, cache.values, cache.limits, cache.done, output,
            offset=offset, num_heads=shape.num_heads, key_dim=shape.key_dim, beams=beams, scale=shape.scale,
        )  # fmt: skip
        return
    for slot in range(cache.values.shape[0]):
        if cache.done[slot]:
            continue
        rows = slice(slot * beams, (slot + 1) * beams)
        seen = cache.values[slot, : int(cache.limits[slot, 2]), offset : offset + shape.kv_width]
        keys, values = seen.split([shape.num_heads * shape.key_dim, shape.num_heads * shape.value_dim], dim=1)
        query, keys, values = (side.unflatten(1, (shape.num_heads, -1)) for side in (queries[rows], keys, values))
        output[rows] = attend(query, keys, values, shape.scale).type_as(output)


def encoder_self_attention(
    qkv: Tensor, tiles: Tensor, rotary: tuple[Tensor, Tensor] | None, output: Tensor, shape: Shape
) -> None:
    """Attention within each packed sentence. A tile is (start of the sentence, its length, first query)."""
    if has_kernels(qkv):
        from heedful.fused.kernels import decode_layers

        decode_layers.encoder_self_attention(
            qkv, tiles, rotary, output, num_heads=shape.num_heads, key_dim=shape.key_dim, scale=shape.scale
        )
        return
    keys_width = shape.num_heads * shape.key_dim
    for start, length, first_query in tiles.view(-1, 3).tolist():
        positions = torch.arange(length)
        sides = qkv[start : start + length].split([keys_width, keys_width, shape.num_heads * shape.value_dim], dim=1)
        query, key, value = (side.unflatten(1, (shape.num_heads, -1)) for side in sides)
        query, key = rotate(query, positions, rotary), rotate(key, positions, rotary)
        chosen = slice(first_query, min(first_query + QUERIES, length))
        if length:
            output[start + chosen.start : start + chosen.stop] = attend(query[chosen], key, value, shape.scale).type_as(
                output
            )


def chunk_top_k(logits: Tensor, transitions: Tensor, states: Tensor, chunks: ChunkTopK) -> None:
    """The largest logits of each chunk. Tokens not allowed in a row's state count in the sum but are not candidates."""
    if has_kernels(logits):
        from heedful.fused.kernels import decode_topk

        decode_topk.chunk_top_k(logits, transitions, states, *chunks)
        return
    size = chunk_size(logits.shape[1])
    for number, (part, after) in enumerate(zip(logits.split(size, dim=1), transitions.split(size, dim=1), strict=True)):
        chunks.largest[:, number] = part.amax(dim=1)
        chunks.total[:, number] = (part - part.amax(dim=1, keepdim=True)).exp().sum(dim=1)
        candidates = F.pad(part.masked_fill(after[states] < 0, -torch.inf), (0, size - part.shape[1]), value=-torch.inf)
        best, indices = candidates.sort(dim=1, descending=True, stable=True)
        count = chunks.logits.shape[2]
        chunks.logits[:, number], chunks.tokens[:, number] = best[:, :count], indices[:, :count] + number * size


def decode_step(weights: PackedWeights, slots: SearchState, rows: Activations, *, end: int) -> None:
    """Run the decoder on the newest token of every row, and select the next token."""
    shape, stack, beams = weights.shape, weights.decoder, slots.capacity.beams
    streams = rows.stream, rows.x
    embed(stack.table, stack.position_table, slots.newest, slots.steps, streams, factor=shape.factor, beams=beams)
    apply_first_norm(weights, stack, rows)
    for number, layer in enumerate(stack.layers):
        apply_linear(rows.x, layer.qkv, rows.qkv)
        decoder_self_attention(rows.qkv, slots.caches[number], slots.history, weights.rotary, rows.attended, shape)
        finish_sublayer(weights, rows, rows.attended, layer.self_output, layer.norms[0])
        assert layer.cross_query is not None
        assert layer.cross_output is not None
        apply_linear(rows.x, layer.cross_query, rows.queries)
        cross_attention(rows.queries, slots.cross_attention, rows.attended, offset=number * shape.kv_width, shape=shape)
        finish_sublayer(weights, rows, rows.attended, layer.cross_output, layer.norms[1])
        feed_forward(weights, layer, rows)
    apply_last_norm(stack, rows)
    apply_linear(rows.x, Linear(weights.output, None), slots.logits)
    chunk_top_k(slots.logits, slots.transitions, slots.states, slots.chunks)
    select_tokens(slots, end=end)


def encode(weights: PackedWeights, rows: Activations, tokens: Tensor, positions: Tensor, tiles: Tensor) -> None:
    """Encode packed sentences; the output is in `rows.x`."""
    shape, stack = weights.shape, weights.encoder
    embed(stack.table, stack.position_table, tokens, positions, (rows.stream, rows.x), factor=shape.factor, beams=1)
    apply_first_norm(weights, stack, rows)
    for layer in stack.layers:
        apply_linear(rows.x, layer.qkv, rows.qkv)
        encoder_self_attention(rows.qkv, tiles, weights.rotary, rows.attended, shape)
        finish_sublayer(weights, rows, rows.attended, layer.self_output, layer.norms[0])
        feed_forward(weights, layer, rows)
    apply_last_norm(stack, rows)


def fill_cross_cache(weights: PackedWeights, rows: Activations, cache_rows: Tensor, slots: SearchState) -> None:
    """Write the cross-attention keys and values of all decoder layers into the slots of the sentences."""
    cache = slots.cross_cache.view(-1, slots.cross_cache.shape[2])
    apply_linear(rows.x, weights.cross_kv, cache, output_rows=cache_rows)


def apply_first_norm(weights: PackedWeights, stack: Stack, rows: Activations) -> None:
    """The norm of the first sublayer, with pre-norm."""
    if stack.first_norm is not None:
        add_norm((rows.stream, rows.x), None, None, stack.first_norm, post_norm=weights.shape.post_norm)


def finish_sublayer(weights: PackedWeights, rows: Activations, x: Tensor, linear: Linear, norm: Norm) -> None:
    """The output projection of a sublayer, the residual sum and the next norm."""
    parts = rows.partial_sums(x.shape[1])
    apply_linear(x, linear, parts)
    add_norm((rows.stream, rows.x), parts, linear.bias, norm, post_norm=weights.shape.post_norm)


def feed_forward(weights: PackedWeights, layer: Layer, rows: Activations) -> None:
    """The feed-forward sublayer."""
    apply_linear(rows.x, layer.inner, rows.inner, activation=weights.shape.activation)
    finish_sublayer(weights, rows, rows.inner, layer.outer, layer.norms[-1])


def apply_last_norm(stack: Stack, rows: Activations) -> None:
    """The norm of the stack's output, with post-norm."""
    if stack.last_norm is not None:
        add_norm((rows.stream, rows.x), None, None, stack.last_norm, post_norm=True)
