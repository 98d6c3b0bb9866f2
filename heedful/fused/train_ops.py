"""What the fast forward pass is made of: each operation has a plain form for CPUs and a kernel of our own for GPUs.

Each knows its gradient: that of what flows goes through autograd, those of weights are given to `gradients`. Biases are
added by the operation after the matrix product where that saves a pass over memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from heedful.fused.grad_buffers import Gradients, joined

_32_BITS = 0xFFFFFFFF


class Chance(NamedTuple):
    """What an operation draws its dropout from: the seeds of this pass, the number of its own, the share dropped."""

    seeds: Tensor
    call: int
    dropout: float


def kept_by_dropout(shape: torch.Size, chance: Chance) -> Tensor:
    """Which numbers dropout keeps: a hash of seed and place (the finaliser of MurmurHash3), as the kernels have it."""
    place = torch.arange(shape.numel(), device=chance.seeds.device)
    mixed = ((place * 0x9E3779B1) & _32_BITS) ^ (chance.seeds[chance.call] & _32_BITS)
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & _32_BITS
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & _32_BITS
    return ((mixed ^ (mixed >> 16)) >= int(chance.dropout * 2**32)).view(shape)


def dropped_out(x: Tensor, chance: Chance) -> Tensor:
    """Dropout in its plain form."""
    if not chance.dropout:
        return x
    return torch.where(kept_by_dropout(x.shape, chance), x / (1 - chance.dropout), 0.0)


# ---------------------------------------------------------------------- embedding


def embed(
    table: Tensor,
    places: Tensor | None,
    tokens: Tensor,
    positions: Tensor,
    chance: Chance,
    factor: float,
    gradients: Gradients,
) -> Tensor:
    """dropout(table[token] · factor + places[position]), with a gradient for the table alone: (B, T, D)."""
    result: Tensor = _Embed.apply(table, places, tokens, positions, chance, factor, gradients)  # type: ignore[no-untyped-call]
    return result


class _Embed(Function):
    @staticmethod
    def forward(
        ctx: Any,
        table: Tensor,
        places: Tensor | None,
        tokens: Tensor,
        positions: Tensor,
        chance: Chance,
        factor: float,
        gradients: Gradients,
    ) -> Tensor:
        ctx.chance, ctx.factor, ctx.table, ctx.gradients = chance, factor, table, gradients
        ctx.save_for_backward(tokens)
        if table.is_cuda:
            from heedful.fused.kernels import embedding as kernel

            return kernel.forward(table, places, tokens.contiguous(), positions.contiguous(), *chance, factor)
        x = table[tokens] * factor
        return dropped_out(x if places is None else x + places[positions], chance)

    @staticmethod
    def backward(ctx: Any, d_output: Tensor) -> tuple[None, ...]:
        (tokens,) = ctx.saved_tensors
        chance: Chance = ctx.chance
        if d_output.is_cuda:
            from heedful.fused.kernels import embedding as kernel

            d_drawn = kernel.backward(d_output.contiguous(), *chance, ctx.factor)
        else:
            d_drawn = dropped_out(d_output * ctx.factor, chance)
        ctx.gradients.give_rows(ctx.table, tokens, d_drawn)
        return None, None, None, None, None, None, None


# ---------------------------------------------------------------------- residual sum, dropout, LayerNorm


def add_norm(
    x: Tensor,
    h: Tensor,
    bias: Tensor,
    weight: Tensor,
    shift: Tensor,
    chance: Chance,
    epsilon: float,
    gradients: Gradients,
) -> tuple[Tensor, Tensor]:
    """s = x + dropout(h + bias), and LayerNorm(s) with this weight and shift."""
    total, output = _AddNorm.apply(x, h, bias, weight, shift, chance, epsilon, gradients)  # type: ignore[no-untyped-call]
    return total, output


class _AddNorm(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        h: Tensor,
        bias: Tensor,
        weight: Tensor,
        shift: Tensor,
        chance: Chance,
        epsilon: float,
        gradients: Gradients,
    ) -> tuple[Tensor, Tensor]:
        if x.is_cuda:
            from heedful.fused.kernels import add_norm as kernel

            total, output, mean, scale = kernel.forward(x, h, bias, weight, shift, *chance, epsilon)
        else:
            total = x + dropped_out(h + bias, chance)
            mean = total.mean(dim=-1, keepdim=True)
            scale = torch.rsqrt(total.var(dim=-1, unbiased=False, keepdim=True) + epsilon)
            output = F.layer_norm(total, total.shape[-1:], weight, shift, epsilon)
        ctx.chance, ctx.gradients, ctx.owners = chance, gradients, (bias, weight, shift)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(total, weight, mean, scale)
        return total, output

    @staticmethod
    def backward(ctx: Any, d_total: Tensor | None, d_output: Tensor | None) -> tuple[Tensor | None, ...]:
        total, weight, mean, scale = ctx.saved_tensors
        d_output = torch.zeros_like(total) if d_output is None else d_output.contiguous()
        d_total = None if d_total is None else d_total.contiguous()
        if total.is_cuda:
            from heedful.fused.kernels import add_norm as kernel

            seeds, call, dropout = ctx.chance
            statistics, partial = (mean, scale), ctx.gradients.partial(ctx.owners, kernel.programs(total))
            d_x, d_h = kernel.backward(
                total, weight, seeds, statistics, d_total, d_output, partial, call=call, dropout=dropout
            )
        else:
            normal = (total - mean) * scale
            scaled = d_output * weight
            along, level = (scaled * normal).mean(dim=-1, keepdim=True), scaled.mean(dim=-1, keepdim=True)
            d_x = (scaled - level - normal * along) * scale
            d_x = d_x.clone() if d_total is None else d_x + d_total
            d_h = dropped_out(d_x, ctx.chance).clone()
            by_token = torch.stack((d_h, d_output * normal, d_output), dim=-2).flatten(0, -3)
            ctx.gradients.partial(ctx.owners, 1).copy_(by_token.sum(dim=0).flatten())
        return d_x, d_h, None, None, None, None, None, None


# ---------------------------------------------------------------------- matrix products


def product(x: Tensor, weights: Sequence[Tensor], gradients: Gradients) -> Tensor:
    """x Wᵀ, where W is made of some matrices behind each other."""
    return branch(x, weights, gradients)[1]


def branch(
    x: Tensor, weights: Sequence[Tensor], gradients: Gradients, biases: Sequence[Tensor] = ()
) -> tuple[Tensor, Tensor]:
    """x once more, for the residual sum, and x Wᵀ + b, where the gradients of b are left to what comes next.

    The gradients of both meet inside the matrix product of the backward pass instead of in a sum of their own. So what
    is done with the first result must give a gradient that nobody else holds: `add_norm` does.
    """
    same, y = _Branch.apply(x, weights, gradients, biases)  # type: ignore[no-untyped-call]
    return same, y


class _Branch(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, owners: Sequence[Tensor], gradients: Gradients, biases: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        weight = joined(owners)
        ctx.gradients, ctx.owners = gradients, owners
        ctx.save_for_backward(x, weight)
        return x.view_as(x), with_bias(x, weight, biases)

    @staticmethod
    def backward(ctx: Any, d_same: Tensor | None, d_y: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        ctx.gradients.give_product(ctx.owners, d_y, x)
        return _met(d_same, d_y, weight), None, None, None


def with_bias(x: Tensor, weight: Tensor, biases: Sequence[Tensor]) -> Tensor:
    """x Wᵀ + b, where b is made of some vectors behind each other, or not there."""
    if not biases:
        return x @ weight.t()
    return torch.addmm(joined(biases), x.flatten(0, -2), weight.t()).view(*x.shape[:-1], -1)


def feed_forward(x: Tensor, inner: Tensor, bias: Tensor, outer: Tensor, gradients: Gradients) -> tuple[Tensor, Tensor]:
    """x once more, as by `branch`, and max(0, x Wᵀ + b) times the outer matrix: equation 2 without its last bias."""
    same, y = _FeedForward.apply(x, inner, bias, outer, gradients)  # type: ignore[no-untyped-call]
    return same, y


class _FeedForward(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, inner: Tensor, bias: Tensor, outer: Tensor, gradients: Gradients
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.gradients, ctx.owners = gradients, (inner, bias, outer)
        hidden = torch._addmm_activation(bias, x.flatten(0, -2), inner.t())
        ctx.save_for_backward(x, hidden)
        return x.view_as(x), (hidden @ outer.t()).view_as(x)

    @staticmethod
    def backward(ctx: Any, d_same: Tensor | None, d_y: Tensor) -> tuple[Tensor | None, ...]:
        x, hidden = ctx.saved_tensors
        inner, bias, outer = ctx.owners
        d_flat = d_y.flatten(0, -2).contiguous()
        ctx.gradients.give_product([outer], d_flat, hidden)
        if hidden.is_cuda:
            from heedful.fused.kernels import feed_forward as kernel

            partial = ctx.gradients.partial([bias], kernel.programs(hidden))
            d_hidden = kernel.backward(d_flat, outer, hidden, partial)
        else:
            d_hidden = (d_flat @ outer) * (hidden > 0)
            ctx.gradients.partial([bias], 1).copy_(d_hidden.sum(dim=0))
        ctx.gradients.give_product([inner], d_hidden, x)
        return _met(d_same, d_hidden.view(*d_y.shape[:-1], -1), inner), None, None, None, None


def _met(d_same: Tensor | None, d_y: Tensor, weight: Tensor) -> Tensor:
    """The gradient of a branch's input: d_same + d_y W, written over the first."""
    if d_same is None:
        return d_y @ weight
    d_x = d_same.contiguous()
    d_x.flatten(0, -2).addmm_(d_y.flatten(0, -2), weight)
    return d_x


def column_sums(x: Tensor, owner: Tensor, gradients: Gradients) -> None:
    """Give a vector the sum over the rows of (rows, columns) as its gradient."""
    if x.is_cuda:
        from heedful.fused.kernels import row_reduce as kernel

        kernel.column_sums(x, gradients.partial([owner], kernel.programs(len(x))))
    else:
        gradients.partial([owner], 1).copy_(x.sum(dim=0))


# ---------------------------------------------------------------------- loss


def scaled_loss(
    logits: Tensor, labels: Tensor, counted: Tensor, scale: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Label-smoothed loss summed over the tokens that count, times `scale`; and the plain sum, without a gradient.

    The gradient is made with the loss, so what is done to the loss afterwards is not in it: call `backward` on it.
    """
    scaled, loss_sum = _ScaledLoss.apply(logits, labels, counted, scale, smoothing)  # type: ignore[no-untyped-call]
    return scaled, loss_sum


class _ScaledLoss(Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, counted: Tensor, scale: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        if logits.is_cuda:
            from heedful.fused.kernels import cross_entropy as kernel

            losses, gradient = kernel.forward(logits, labels, counted, scale, smoothing)
            loss_sum = losses.sum()
        else:
            log_probs = torch.log_softmax(logits, dim=-1)
            right = F.one_hot(labels.clamp(min=0), logits.shape[-1]).to(logits.dtype)
            wanted = ((1 - smoothing) * right + smoothing / logits.shape[-1]) * counted[:, None]
            loss_sum, gradient = -(wanted * log_probs).sum(), (log_probs.exp() * counted[:, None] - wanted) * scale
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(loss_sum)
        return loss_sum * scale, loss_sum

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.saved_tensors[0], None, None, None, None
