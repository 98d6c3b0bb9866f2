"""What the fast forward pass is made of: each operation has a plain form for CPUs and a kernel of our own for GPUs.

They are operations of torch (`torch.library`), so that its compiler takes them as they are; each knows its gradient.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_32_BITS = 0xFFFFFFFF


def kept_by_dropout(shape: torch.Size, seeds: Tensor, call: int, dropout: float) -> Tensor:
    """Which numbers dropout keeps: a hash of seed and place (the finaliser of MurmurHash3), as the kernels have it."""
    place = torch.arange(shape.numel(), device=seeds.device)
    mixed = ((place * 0x9E3779B1) & _32_BITS) ^ (seeds[call] & _32_BITS)
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & _32_BITS
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & _32_BITS
    return ((mixed ^ (mixed >> 16)) >= int(dropout * 2**32)).view(shape)


# ---------------------------------------------------------------------- residual sum, dropout, LayerNorm


@torch.library.custom_op(
    "heedful::add_norm",
    mutates_args=(),
    schema="(Tensor x, Tensor h, Tensor bias, Tensor weight, Tensor shift, Tensor seeds, int call, "
    "float dropout, float epsilon)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def add_norm(
    x: Tensor,
    h: Tensor,
    bias: Tensor,
    weight: Tensor,
    shift: Tensor,
    seeds: Tensor,
    call: int,
    dropout: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """s = x + dropout(h + bias) and LayerNorm(s); then mean and scale of each token, which only the gradient needs."""
    if x.is_cuda:
        from heedful.model.kernels import add_norm as kernel

        return kernel.forward(x, h, bias, weight, shift, seeds, call, dropout, epsilon)
    added = h + bias
    if dropout:
        added = torch.where(kept_by_dropout(h.shape, seeds, call, dropout), added / (1 - dropout), 0.0)
    total = x + added
    flat = total.flatten(0, -2)
    mean, scale = flat.mean(dim=-1), torch.rsqrt(flat.var(dim=-1, unbiased=False) + epsilon)
    return total, F.layer_norm(total, total.shape[-1:], weight, shift, epsilon), mean, scale


@add_norm.register_fake
def _(
    x: Tensor,
    h: Tensor,
    bias: Tensor,
    weight: Tensor,
    shift: Tensor,
    seeds: Tensor,
    call: int,
    dropout: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    row = x.new_empty(x.numel() // x.shape[-1], dtype=torch.promote_types(x.dtype, torch.float32))
    return torch.empty_like(x), torch.empty_like(x), row, torch.empty_like(row)


@torch.library.custom_op(
    "heedful::add_norm_backward",
    mutates_args=(),
    schema="(Tensor total, Tensor weight, Tensor seeds, Tensor mean, Tensor scale, Tensor? d_total, "
    "Tensor d_output, int call, float dropout)"
    " -> (Tensor, Tensor, Tensor)",
)
def add_norm_backward(
    total: Tensor,
    weight: Tensor,
    seeds: Tensor,
    mean: Tensor,
    scale: Tensor,
    d_total: Tensor | None,
    d_output: Tensor,
    call: int,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x and h, and those of bias, weight and shift as three rows."""
    if total.is_cuda:
        from heedful.model.kernels import add_norm as kernel

        return kernel.backward(total, weight, seeds, (mean, scale), d_total, d_output, call=call, dropout=dropout)
    normal = ((total.flatten(0, -2) - mean[:, None]) * scale[:, None]).view_as(total)
    scaled = d_output * weight
    along, level = (scaled * normal).mean(dim=-1, keepdim=True), scaled.mean(dim=-1, keepdim=True)
    d_x = (scaled - level - normal * along) * scale.view(*total.shape[:-1], 1)
    if d_total is not None:
        d_x = d_x + d_total
    d_h = d_x.clone()
    if dropout:
        d_h = torch.where(kept_by_dropout(total.shape, seeds, call, dropout), d_x / (1 - dropout), 0.0)
    rows = tuple(range(total.dim() - 1))
    return d_x, d_h, torch.stack((d_h.sum(rows), (d_output * normal).sum(rows), d_output.sum(rows)))


@add_norm_backward.register_fake
def _(
    total: Tensor,
    weight: Tensor,
    seeds: Tensor,
    mean: Tensor,
    scale: Tensor,
    d_total: Tensor | None,
    d_output: Tensor,
    call: int,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    sums = total.new_empty(3, total.shape[-1], dtype=mean.dtype)
    return torch.empty_like(total), torch.empty_like(total), sums


def _keep_sum(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    _, _, _, weight, _, seeds, ctx.call, ctx.dropout, _ = inputs
    total, _, mean, scale = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(total, weight, seeds, mean, scale)


def _norm_gradient(ctx: Any, d_total: Tensor | None, d_output: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    total, weight, seeds, mean, scale = ctx.saved_tensors
    if d_output is None:
        d_output = torch.zeros_like(total)
    d_total = None if d_total is None else d_total.contiguous()
    d_x, d_h, sums = add_norm_backward(
        total, weight, seeds, mean, scale, d_total, d_output.contiguous(), ctx.call, ctx.dropout
    )
    d_bias, d_weight, d_shift = sums.to(weight.dtype)
    return d_x, d_h, d_bias, d_weight, d_shift, None, None, None, None


add_norm.register_autograd(_norm_gradient, setup_context=_keep_sum)


# ---------------------------------------------------------------------- attention


@torch.library.custom_op(
    "heedful::row_attention",
    mutates_args=(),
    schema="(Tensor query, Tensor sides, Tensor mask, float scale) -> (Tensor, Tensor)",
)
def row_attention(query: Tensor, sides: Tensor, mask: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attention of (B, Q, n, H, Dh) to (B, K, n, H, Dh): the last two of a token's n vectors are its key and value.

    The query is the first. In self-attention both arguments are one tensor with n = 3. Gives (B, Q, H, Dh), and the
    logarithm of each query's sum of weights, which only the gradient needs.
    """
    q, k, v = _heads_first(query, sides)
    output = query.new_empty(query.shape[0], query.shape[1], *query.shape[3:])
    if query.is_cuda:
        from heedful.model.kernels import row_attention as kernel

        return output, kernel.forward(q, k, v, mask, output.transpose(1, 2), scale)
    scores = (q @ k.transpose(-2, -1) * scale).masked_fill(~mask, float("-inf"))
    logarithms = torch.logsumexp(scores, dim=-1)
    output.copy_((_weights(scores, logarithms) @ v).transpose(1, 2))
    return output, logarithms


@row_attention.register_fake
def _(query: Tensor, sides: Tensor, mask: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    rows, length, _, heads, width = query.shape
    kept = query.new_empty(rows, heads, length, dtype=torch.promote_types(query.dtype, torch.float32))
    return query.new_empty(rows, length, heads, width), kept


@torch.library.custom_op(
    "heedful::row_attention_backward",
    mutates_args=(),
    schema="(Tensor query, Tensor sides, Tensor mask, Tensor output, Tensor logarithms, Tensor "
    "d_output, float scale)"
    " -> (Tensor, Tensor)",
)
def row_attention_backward(
    query: Tensor, sides: Tensor, mask: Tensor, output: Tensor, logarithms: Tensor, d_output: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Gradients of both arguments; of self-attention the first has the whole, and the second is empty."""
    q, k, v = _heads_first(query, sides)
    is_self = query.shape[2] == 3
    d_query, d_sides = torch.empty_like(query), query.new_empty(0) if is_self else torch.empty_like(sides)
    d_q, d_k, d_v = _heads_first(d_query, d_query if is_self else d_sides)
    if query.is_cuda:
        from heedful.model.kernels import row_attention as kernel

        kept = (output.transpose(1, 2), logarithms)
        kernel.backward((q, k, v), mask, kept, d_output.transpose(1, 2), (d_q, d_k, d_v), scale)
        return d_query, d_sides
    weights = _weights((q @ k.transpose(-2, -1) * scale).masked_fill(~mask, float("-inf")), logarithms)
    gradient = d_output.transpose(1, 2)
    inner = (gradient * output.transpose(1, 2)).sum(dim=-1, keepdim=True)
    d_scores = weights * (gradient @ v.transpose(-2, -1) - inner) * scale
    d_v.copy_(weights.transpose(-2, -1) @ gradient)
    d_q.copy_(d_scores @ k)
    d_k.copy_(d_scores.transpose(-2, -1) @ q)
    return d_query, d_sides


@row_attention_backward.register_fake
def _(
    query: Tensor, sides: Tensor, mask: Tensor, output: Tensor, logarithms: Tensor, d_output: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(query), query.new_empty(0) if query.shape[2] == 3 else torch.empty_like(sides)


def _heads_first(query: Tensor, sides: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return query[:, :, 0].transpose(1, 2), sides[:, :, -2].transpose(1, 2), sides[:, :, -1].transpose(1, 2)


def _weights(scores: Tensor, logarithms: Tensor) -> Tensor:
    """Softmax; a query without any key has zeros."""
    return torch.exp(scores - logarithms.masked_fill(torch.isneginf(logarithms), 0.0)[..., None])


def _keep_attention(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, sides, mask, ctx.scale = inputs
    ctx.save_for_backward(query, sides, mask, *output)


def _attention_gradient(ctx: Any, d_output: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    query, sides, mask, output, logarithms = ctx.saved_tensors
    d_query, d_sides = row_attention_backward(query, sides, mask, output, logarithms, d_output.contiguous(), ctx.scale)
    return d_query, None if query.shape[2] == 3 else d_sides, None, None


row_attention.register_autograd(_attention_gradient, setup_context=_keep_attention)


# ---------------------------------------------------------------------- loss


@torch.library.custom_op(
    "heedful::scaled_loss",
    mutates_args=(),
    schema="(Tensor logits, Tensor labels, Tensor counted, Tensor scale, float smoothing) -> (Tensor, Tensor, Tensor)",
)
def scaled_loss(
    logits: Tensor, labels: Tensor, counted: Tensor, scale: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Label-smoothed loss summed over the tokens that count, times `scale`; the plain sum; and the gradient.

    The gradient is made with the loss, so what is done to the loss afterwards is not in it: call `backward` on it.
    """
    if logits.is_cuda:
        from heedful.model.kernels import cross_entropy as kernel

        losses, gradient = kernel.forward(logits, labels, counted, scale, smoothing)
        loss_sum = losses.sum()
        return loss_sum * scale, loss_sum, gradient
    log_probs = torch.log_softmax(logits, dim=-1)
    right = F.one_hot(labels.clamp(min=0), logits.shape[-1]).to(logits.dtype)
    wanted = ((1 - smoothing) * right + smoothing / logits.shape[-1]) * counted[:, None]
    loss_sum = -(wanted * log_probs).sum()
    return loss_sum * scale, loss_sum, (log_probs.exp() * counted[:, None] - wanted) * scale


@scaled_loss.register_fake
def _(
    logits: Tensor, labels: Tensor, counted: Tensor, scale: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    number = logits.new_empty((), dtype=torch.promote_types(logits.dtype, torch.float32))
    return number, torch.empty_like(number), torch.empty_like(logits)


def _keep_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[2])


def _loss_gradient(ctx: Any, *_: Any) -> tuple[Tensor | None, ...]:
    return ctx.saved_tensors[0], None, None, None, None


scaled_loss.register_autograd(_loss_gradient, setup_context=_keep_gradient)
