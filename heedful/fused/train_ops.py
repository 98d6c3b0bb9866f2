"""The operations of the fused forward pass, each with a torch implementation for CPUs and a Triton kernel for GPUs.

Autograd computes the gradients of activations; those of weights are added to `Gradients` outside it, so that several
weights share one matrix product, the rows of an embedding are summed once for all lookups, and the sums over all tokens
that biases and norms need are completed together at the end. A bias is added by the operation after the matrix product
where that saves a pass over memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

_32_BITS = 0xFFFFFFFF


class DropoutSeed(NamedTuple):
    """The dropout of one operation: the seeds of this pass, the index of its seed, and the probability."""

    seeds: Tensor
    call: int
    dropout: float


class QueryKeyValue(NamedTuple):
    """Queries, keys and values, each (B, H, length, Dh), or their gradients."""

    query: Tensor
    key: Tensor
    value: Tensor


class Segments(NamedTuple):
    """The sentence pair of each token, on the query side and the key side, and whether attention is causal."""

    query_segments: Tensor
    key_segments: Tensor
    causal: bool


def dropout_mask(shape: torch.Size, dropout_seed: DropoutSeed) -> Tensor:
    """Which elements dropout keeps: a hash of seed and index (the finaliser of MurmurHash3), as in the kernels."""
    place = torch.arange(shape.numel(), device=dropout_seed.seeds.device)
    mixed = ((place * 0x9E3779B1) & _32_BITS) ^ (dropout_seed.seeds[dropout_seed.call] & _32_BITS)
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & _32_BITS
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & _32_BITS
    return ((mixed ^ (mixed >> 16)) >= int(dropout_seed.dropout * 2**32)).view(shape)


def apply_dropout(x: Tensor, dropout_seed: DropoutSeed) -> Tensor:
    """Dropout in torch."""
    if not dropout_seed.dropout:
        return x
    return torch.where(dropout_mask(x.shape, dropout_seed), x / (1 - dropout_seed.dropout), 0.0)


# ---------------------------------------------------------------------- embedding


def embed(
    table: Tensor,
    encodings: Tensor | None,
    tokens: Tensor,
    positions: Tensor,
    dropout_seed: DropoutSeed,
    factor: float,
    gradients: Gradients,
) -> Tensor:
    """dropout(table[token] · factor + encodings[position]), with a gradient for the table only: (B, T, D)."""
    result: Tensor = _Embed.apply(table, encodings, tokens, positions, dropout_seed, factor, gradients)  # type: ignore[no-untyped-call]
    return result


class _Embed(Function):
    @staticmethod
    def forward(
        ctx: Any,
        table: Tensor,
        encodings: Tensor | None,
        tokens: Tensor,
        positions: Tensor,
        dropout_seed: DropoutSeed,
        factor: float,
        gradients: Gradients,
    ) -> Tensor:
        ctx.dropout_seed, ctx.factor, ctx.table, ctx.gradients = dropout_seed, factor, table, gradients
        ctx.save_for_backward(tokens)
        if table.is_cuda:
            from heedful.fused.kernels import train_layers

            return train_layers.embedding_forward(
                table, encodings, tokens.contiguous(), positions.contiguous(), *dropout_seed, factor
            )
        x = table[tokens] * factor
        return apply_dropout(x if encodings is None else x + encodings[positions], dropout_seed)

    @staticmethod
    def backward(ctx: Any, d_output: Tensor) -> tuple[None, ...]:
        (tokens,) = ctx.saved_tensors
        dropout_seed: DropoutSeed = ctx.dropout_seed
        if d_output.is_cuda:
            from heedful.fused.kernels import train_layers

            d_rows = train_layers.embedding_backward(d_output.contiguous(), *dropout_seed, ctx.factor)
        else:
            d_rows = apply_dropout(d_output * ctx.factor, dropout_seed)
        ctx.gradients.add_rows(ctx.table, tokens, d_rows)
        return None, None, None, None, None, None, None


# ---------------------------------------------------------------------- residual sum, dropout, LayerNorm


def add_norm(
    x: Tensor,
    h: Tensor,
    bias: Tensor,
    weight: Tensor,
    shift: Tensor,
    dropout_seed: DropoutSeed,
    epsilon: float,
    gradients: Gradients,
) -> tuple[Tensor, Tensor]:
    """s = x + dropout(h + bias), and LayerNorm(s) with this weight and shift."""
    total, output = _AddNorm.apply(x, h, bias, weight, shift, dropout_seed, epsilon, gradients)  # type: ignore[no-untyped-call]
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
        dropout_seed: DropoutSeed,
        epsilon: float,
        gradients: Gradients,
    ) -> tuple[Tensor, Tensor]:
        if x.is_cuda:
            from heedful.fused.kernels import train_layers

            total, output, mean, scale = train_layers.add_norm_forward(
                x, h, bias, weight, shift, *dropout_seed, epsilon
            )
        else:
            total = x + apply_dropout(h + bias, dropout_seed)
            mean = total.mean(dim=-1, keepdim=True)
            scale = torch.rsqrt(total.var(dim=-1, unbiased=False, keepdim=True) + epsilon)
            output = F.layer_norm(total, total.shape[-1:], weight, shift, epsilon)
        ctx.dropout_seed, ctx.gradients, ctx.owners = dropout_seed, gradients, (bias, weight, shift)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(total, weight, mean, scale)
        return total, output

    @staticmethod
    def backward(ctx: Any, d_total: Tensor | None, d_output: Tensor | None) -> tuple[Tensor | None, ...]:
        total, weight, mean, scale = ctx.saved_tensors
        d_output = torch.zeros_like(total) if d_output is None else d_output.contiguous()
        d_total = None if d_total is None else d_total.contiguous()
        if total.is_cuda:
            from heedful.fused.kernels import train_layers

            seeds, call, dropout = ctx.dropout_seed
            statistics, partial = (
                (mean, scale),
                ctx.gradients.partial_sums(ctx.owners, train_layers.num_add_norm_programs(total)),
            )
            d_x, d_h = train_layers.add_norm_backward(
                total, weight, seeds, statistics, d_total, d_output, partial, call=call, dropout=dropout
            )
        else:
            normal = (total - mean) * scale
            scaled = d_output * weight
            along, level = (scaled * normal).mean(dim=-1, keepdim=True), scaled.mean(dim=-1, keepdim=True)
            d_x = (scaled - level - normal * along) * scale
            d_x = d_x.clone() if d_total is None else d_x + d_total
            d_h = apply_dropout(d_x, ctx.dropout_seed).clone()
            by_token = torch.stack((d_h, d_output * normal, d_output), dim=-2).flatten(0, -3)
            ctx.gradients.partial_sums(ctx.owners, 1).copy_(by_token.sum(dim=0).flatten())
        return d_x, d_h, None, None, None, None, None, None


# ---------------------------------------------------------------------- matrix products


def linear(x: Tensor, weights: Sequence[Tensor], gradients: Gradients) -> Tensor:
    """x Wᵀ, where W is the concatenation of some matrices."""
    return linear_branch(x, weights, gradients)[1]


def linear_branch(
    x: Tensor, weights: Sequence[Tensor], gradients: Gradients, biases: Sequence[Tensor] = ()
) -> tuple[Tensor, Tensor]:
    """x itself, for the residual sum, and x Wᵀ + b; the next operation computes the gradients of b.

    The matrix product of the backward pass adds the gradients of both, in place. The consumer of the first result
    must therefore return a gradient that is not used elsewhere, as `add_norm` does.
    """
    passed_on, y = _LinearBranch.apply(x, weights, gradients, biases)  # type: ignore[no-untyped-call]
    return passed_on, y


class _LinearBranch(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, owners: Sequence[Tensor], gradients: Gradients, biases: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        weight = concatenate(owners)
        ctx.gradients, ctx.owners = gradients, owners
        ctx.save_for_backward(x, weight)
        return x.view_as(x), affine(x, weight, biases)

    @staticmethod
    def backward(ctx: Any, d_passed_on: Tensor | None, d_y: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        ctx.gradients.add_product(ctx.owners, d_y, x)
        return _input_gradient(d_passed_on, d_y, weight), None, None, None


def affine(x: Tensor, weight: Tensor, biases: Sequence[Tensor]) -> Tensor:
    """x Wᵀ + b, where b is the concatenation of some vectors, or absent."""
    if not biases:
        return x @ weight.t()
    return torch.addmm(concatenate(biases), x.flatten(0, -2), weight.t()).view(*x.shape[:-1], -1)


def feed_forward(x: Tensor, inner: Tensor, bias: Tensor, outer: Tensor, gradients: Gradients) -> tuple[Tensor, Tensor]:
    """x itself, as `linear_branch`, and max(0, x Wᵀ + b) times the outer matrix: equation 2 without its last bias."""
    passed_on, y = _FeedForward.apply(x, inner, bias, outer, gradients)  # type: ignore[no-untyped-call]
    return passed_on, y


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
    def backward(ctx: Any, d_passed_on: Tensor | None, d_y: Tensor) -> tuple[Tensor | None, ...]:
        x, hidden = ctx.saved_tensors
        inner, bias, outer = ctx.owners
        d_flat = d_y.flatten(0, -2).contiguous()
        ctx.gradients.add_product([outer], d_flat, hidden)
        if hidden.is_cuda:
            from heedful.fused.kernels import train_layers

            partial = ctx.gradients.partial_sums([bias], train_layers.num_row_blocks(hidden))
            d_hidden = train_layers.feed_forward_backward(d_flat, outer, hidden, partial)
        else:
            d_hidden = (d_flat @ outer) * (hidden > 0)
            ctx.gradients.partial_sums([bias], 1).copy_(d_hidden.sum(dim=0))
        ctx.gradients.add_product([inner], d_hidden, x)
        return _input_gradient(d_passed_on, d_hidden.view(*d_y.shape[:-1], -1), inner), None, None, None, None


def _input_gradient(d_passed_on: Tensor | None, d_y: Tensor, weight: Tensor) -> Tensor:
    """The gradient of the input of `linear_branch`: d_passed_on + d_y W, in place of the first."""
    if d_passed_on is None:
        return d_y @ weight
    d_x = d_passed_on.contiguous()
    d_x.flatten(0, -2).addmm_(d_y.flatten(0, -2), weight)
    return d_x


def column_sums(x: Tensor, owner: Tensor, gradients: Gradients) -> None:
    """Add the sum over the rows of (rows, columns) as the gradient of a vector."""
    if x.is_cuda:
        from heedful.fused.kernels import train_layers

        train_layers.column_sums(x, gradients.partial_sums([owner], train_layers.num_column_sum_programs(len(x))))
    else:
        gradients.partial_sums([owner], 1).copy_(x.sum(dim=0))


# ---------------------------------------------------------------------- loss


def scaled_loss(
    logits: Tensor, labels: Tensor, token_mask: Tensor, scale: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Label-smoothed loss summed over the tokens of the mask, times `scale`; and the plain sum, without a gradient.

    The gradient is computed together with the loss and ignores the incoming one: call `backward` on the result itself.
    """
    scaled, loss_sum = _ScaledLoss.apply(logits, labels, token_mask, scale, smoothing)  # type: ignore[no-untyped-call]
    return scaled, loss_sum


class _ScaledLoss(Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, token_mask: Tensor, scale: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        if logits.is_cuda:
            from heedful.fused.kernels import cross_entropy

            losses, gradient = cross_entropy.forward(logits, labels, token_mask, scale, smoothing)
            loss_sum = losses.sum()
        else:
            log_probs = torch.log_softmax(logits, dim=-1)
            one_hot = F.one_hot(labels.clamp(min=0), logits.shape[-1]).to(logits.dtype)
            target_probs = ((1 - smoothing) * one_hot + smoothing / logits.shape[-1]) * token_mask[:, None]
            loss_sum, gradient = (
                -(target_probs * log_probs).sum(),
                (log_probs.exp() * token_mask[:, None] - target_probs) * scale,
            )
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(loss_sum)
        return loss_sum * scale, loss_sum

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.saved_tensors[0], None, None, None, None


class _Sums:
    """Partial sums of one shape. From the second pass on they share a tensor, and one kernel completes all."""

    def __init__(self) -> None:
        self.stacks: list[Tensor] = []
        self.owners: list[Sequence[Tensor]] = []
        self.capacity, self.last_count = 0, 1

    def allocate(self, owners: Sequence[Tensor], shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        """A buffer for the partial sums of these weights."""
        if len(self.owners) == self.capacity:
            more = 1 if self.stacks else self.last_count
            self.stacks.append(torch.empty(more, *shape, device=owners[0].device, dtype=dtype))
            self.capacity += more
        self.owners.append(owners)
        return self.stacks[-1][len(self.owners) - 1 - self.capacity]

    def finished(self) -> list[tuple[Sequence[Tensor], Tensor]]:
        """The sums of all weights that have a buffer."""
        if not self.owners:
            return []
        self.last_count = len(self.owners)
        sums = torch.cat([sum_partials(stack, self.owners[0][0].dtype) for stack in self.stacks])
        return list(zip(self.owners, sums[: len(self.owners)], strict=True))

    def clear(self) -> None:
        """Drop all buffers."""
        self.stacks, self.owners, self.capacity = [], [], 0


class Gradients:
    """Collects gradients of weights during `backward`; `flush` then adds them to the weights' `grad`."""

    def __init__(self) -> None:
        self.collected: dict[int, tuple[Tensor, Tensor]] = {}
        self.lookups: dict[int, tuple[Tensor, list[Tensor], list[Tensor]]] = {}
        self.passed_through: list[tuple[Tensor, Tensor, Tensor]] = []
        self.sums: dict[tuple[int, int], _Sums] = {}
        self.shared_zeros: dict[tuple[torch.Size, torch.dtype, torch.device], Tensor] = {}
        self.buffers: dict[int, Tensor] = {}
        """The preferred gradient buffer of a weight, by its `id`."""

    def add(self, owners: Sequence[Tensor], gradient: Tensor) -> None:
        """Add the gradient of some weights that are concatenated into one matrix or vector."""
        for owner, part in zip(owners, gradient.split([owner.shape[0] for owner in owners]), strict=True):
            before = self.collected.get(id(owner))
            new = part.view_as(owner)
            self.collected[id(owner)] = (owner, new if before is None else before[1] + new)

    def add_product(self, owners: Sequence[Tensor], d_y: Tensor, x: Tensor) -> None:
        """Add d_yᵀ x, the gradient of the concatenated matrices in y = x Wᵀ."""
        d_y, x = d_y.flatten(0, -2), x.flatten(0, -2)
        buffers = [
            self.buffers[id(owner)] for owner in owners if id(owner) in self.buffers and id(owner) not in self.collected
        ]
        whole = as_one_tensor(buffers) if len(buffers) == len(owners) else None
        self.add(owners, torch.mm(d_y.t(), x) if whole is None else torch.mm(d_y.t(), x, out=whole))

    def set_buffers(self, owners: Sequence[Tensor], buffers: Sequence[Tensor]) -> None:
        """Write gradients of these weights into these tensors where that saves a copy."""
        self.buffers = {id(owner): buffer for owner, buffer in zip(owners, buffers, strict=True)}

    def add_rows(self, table: Tensor, tokens: Tensor, gradient: Tensor) -> None:
        """Add the gradient (…, D) of the rows that tokens (…) looked up in a table."""
        _, all_tokens, parts = self.lookups.setdefault(id(table), (table, [], []))
        all_tokens.append(tokens.flatten())
        parts.append(gradient.flatten(0, -2))

    def partial_sums(self, owners: Sequence[Tensor], programs: int) -> Tensor:
        """A buffer for partial sums of the gradient of some concatenated vectors: (programs, width)."""
        shape = programs, sum(owner.numel() for owner in owners)
        dtype = torch.float32 if owners[0].is_cuda else owners[0].dtype
        return self.sums.setdefault(shape, _Sums()).allocate(owners, shape, dtype)

    def zeros_like(self, like: Tensor) -> Tensor:
        """A gradient of zeros; where it is only copied from, one tensor is shared by all of a shape."""
        if id(like) not in self.buffers:
            return torch.zeros_like(like)  # clipping by a non-finite norm would change the zeros
        key = like.shape, like.dtype, like.device
        if key not in self.shared_zeros:
            self.shared_zeros[key] = torch.zeros_like(like)
        return self.shared_zeros[key]

    def add_through(self, owner: Tensor, bias: Tensor, weight: Tensor) -> None:
        """Add the gradient of a vector that is multiplied by `weight` where `bias` is added to every row."""
        self.passed_through.append((owner, bias, weight))

    def flush(self) -> None:
        """Add everything to the weights' `grad`."""
        for sums in self.sums.values():
            for owners, gradient in sums.finished():
                self.add(owners, gradient)
        if self.passed_through:
            vectors, biases, weights = zip(*self.passed_through, strict=True)
            rows = torch.stack([self.collected[id(bias)][1] for bias in biases])
            through = rows[:, None] @ torch.stack([weight.detach() for weight in weights])
            for vector, gradient in zip(vectors, through.squeeze(1), strict=True):
                self.add([vector], gradient)
        for table, tokens, parts in self.lookups.values():
            self._add_rows(table, tokens, parts)
        for owner, gradient in self.collected.values():
            owner.grad = gradient if owner.grad is None else owner.grad + gradient
        self.clear()

    def _add_rows(self, table: Tensor, tokens: Sequence[Tensor], parts: Sequence[Tensor]) -> None:
        """Sum the rows looked up in a table; on a GPU onto its gradient so far, if any."""
        if not table.is_cuda:
            rows, indices = torch.cat(list(parts)), torch.cat(list(tokens))
            self.add([table], torch.ops.aten.embedding_dense_backward(rows, indices, table.shape[0], -1, False))
            return
        from heedful.fused.kernels import train_layers

        if id(table) not in self.collected:
            self.collected[id(table)] = table, torch.zeros_like(table)
        train_layers.embedding_add_rows(self.collected[id(table)][1], tokens, parts)

    def clear(self) -> None:
        """Drop everything, also after an interrupted backward pass."""
        self.collected.clear()
        self.lookups.clear()
        self.passed_through.clear()
        for sums in self.sums.values():
            sums.clear()


def concatenate(weights: Sequence[Tensor]) -> Tensor:
    """The concatenation of matrices or vectors; without a copy if they are adjacent in memory."""
    whole = as_one_tensor(weights)
    return torch.cat([one.detach() for one in weights]) if whole is None else whole


def as_one_tensor(tensors: Sequence[Tensor]) -> Tensor | None:
    """Tensors that are adjacent in memory as one view; None if they are not."""
    first = tensors[0].detach()
    if len(tensors) == 1:
        return first
    memory, end = first.untyped_storage().data_ptr(), first.data_ptr()
    for tensor in tensors:
        is_next = tensor.data_ptr() == end and tensor.untyped_storage().data_ptr() == memory
        if not is_next or not tensor.is_contiguous():
            return None
        end += tensor.numel() * tensor.element_size()
    shape = (sum(tensor.shape[0] for tensor in tensors), *first.shape[1:])
    return first.as_strided(shape, first.stride())


def sum_partials(partial: Tensor, dtype: torch.dtype) -> Tensor:
    """Sum over the second of three dimensions, in this type."""
    if partial.is_cuda:
        from heedful.fused.kernels import train_layers

        return train_layers.sum_partials(partial, dtype)
    return partial.sum(dim=1).to(dtype)
