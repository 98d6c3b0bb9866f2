"""Gradients on a CPU, one thread a core: each computes some sentence pairs alone, and the gradients are summed up.

torch's own way is to divide every operation among the cores, which wait for each other some thousand times an update.
Here they wait once. Who computes what, and the order of the sums, follow from the batch and the number of threads.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.model.fast.on_cpu import add_gradient
from heedful.model.fast.sentences import Group, groups_of
from heedful.model.transformer import Transformer

TOKENS_PER_GROUP = 1024
"""About as many tokens, of both sides together, are computed at once: little enough to stay in a core's cache."""


class OnCores:
    """Adds the gradient of a batch to the parameters of `model`."""

    def __init__(self, model: Transformer, *, smoothing: float) -> None:
        self.num_workers = torch.get_num_threads()
        self.smoothing = smoothing
        self.models = [model, *(_sharing(model) for _ in range(self.num_workers - 1))]
        self.kept = [[torch.zeros_like(parameter) for parameter in one.parameters()] for one in self.models]
        self.pool = ThreadPoolExecutor(self.num_workers, initializer=torch.set_num_threads, initargs=(1,))

    def __call__(self, batch: Batch, scale: float) -> Tensor:
        """The sum of losses; the gradient of `scale` times it is added to what the parameters have."""
        num_tokens = int((batch.source_segments > 0).sum()) + batch.num_tokens
        rounds = max(1, round(num_tokens / (TOKENS_PER_GROUP * self.num_workers)))
        groups = groups_of(batch, rounds * self.num_workers)
        seeds: list[int] = torch.randint(2**62, (len(groups),)).tolist()
        self._make_room()
        work = [
            self.pool.submit(
                self._compute, model, groups[number :: self.num_workers], seeds[number :: self.num_workers], scale
            )
            for number, model in enumerate(self.models)
        ]
        total = torch.stack([one.result() for one in work]).sum()
        parameters = [one.grad for one in self.models[0].parameters()]
        for gradients in self.kept[1:]:
            torch._foreach_add_(parameters, gradients)
        return total

    def _compute(self, model: Transformer, groups: list[Group], seeds: list[int], scale: float) -> Tensor:
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
