"""Gradients on a CPU, one thread a core: each computes some sentence pairs alone, and the gradients are summed up.

torch's own way is to divide every operation among the cores, which wait for each other some thousand times an update.
Here they wait once. Who computes what, and the order of the sums, follow from the batch and the number of threads.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor, wait

import torch
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.fused.train_cpu import SentenceGroup, add_gradient, group_by_length
from heedful.model.transformer import Transformer

TOKENS_PER_GROUP = 2048
"""About as many tokens, of both sides together, are computed at once: their activations stay near a core."""
MOST_WORKERS = 8
"""Each worker has gradients of its own; with more cores each gets several."""


class CpuDataParallel:
    """Adds the gradient of a batch to the parameters of `model`."""

    def __init__(self, model: Transformer, *, smoothing: float) -> None:
        self.smoothing, self.num_threads = smoothing, torch.get_num_threads()
        self.num_workers = max(n for n in range(1, MOST_WORKERS + 1) if self.num_threads % n == 0)
        self.models = [model, *(_sharing(model) for _ in range(self.num_workers - 1))]
        self.kept = [[torch.zeros_like(parameter) for parameter in one.parameters()] for one in self.models]
        self.pool = ThreadPoolExecutor(self.num_workers, thread_name_prefix="core")

    @property
    def has_hooks(self) -> bool:
        """Whether somebody hooked into the model: who wants to see modules called and gradients made gets to see it."""
        model = self.models[0]
        hooked = any(one._forward_hooks or one._forward_pre_hooks or one._backward_hooks for one in model.modules())
        return hooked or any(parameter._backward_hooks for parameter in model.parameters())

    def __call__(self, batch: Batch, scale: float) -> Tensor:
        """The sum of losses; the gradient of `scale` times it is added to what the parameters have."""
        num_tokens = int((batch.source_segments > 0).sum()) + batch.num_tokens
        rounds = max(1, round(num_tokens / (TOKENS_PER_GROUP * self.num_workers)))
        groups = group_by_length(batch, rounds * self.num_workers)
        seeds: list[int] = torch.randint(2**62, (len(groups),)).tolist()
        self._make_room()
        each = self.num_workers  # groups are sorted by length: every worker gets short and long ones
        work = [
            self.pool.submit(self._compute, model, groups[number::each], seeds[number::each], scale)
            for number, model in enumerate(self.models)
        ]
        wait(work)  # all of them, even if one fails
        torch.set_num_threads(self.num_threads)  # the workers' number would be that of threads to come
        total = torch.stack([one.result() for one in work]).sum()
        for gradients in self.kept[1:]:
            for parameter, gradient in zip(self.models[0].parameters(), gradients, strict=True):
                parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        return total

    def _compute(self, model: Transformer, groups: list[SentenceGroup], seeds: list[int], scale: float) -> Tensor:
        torch.set_num_threads(self.num_threads // self.num_workers)  # of this thread alone
        total = torch.zeros((), dtype=model.source_embedding.weight.dtype)
        for group, seed in zip(groups, seeds, strict=True):
            total += add_gradient(model, group, scale, smoothing=self.smoothing, seed=seed)
        return total

    def _make_room(self) -> None:
        """The first worker adds to the gradients that are there; the others begin at zero."""
        first = list(self.models[0].parameters())
        for number, (model, gradients) in enumerate(zip(self.models, self.kept, strict=True)):
            for parameter, own, gradient in zip(model.parameters(), first, gradients, strict=True):
                if number or parameter.grad is None:
                    parameter.grad = gradient.zero_()
                parameter.data = own.data


def _sharing(model: Transformer) -> Transformer:
    """The same model with gradients of its own."""
    same = {id(parameter): nn.Parameter(parameter.detach()) for parameter in model.parameters()}
    return copy.deepcopy(model, memo=dict(same))
