"""Data parallelism over the cores of a CPU: each thread computes the gradient of some sentence pairs.

torch would divide every operation among the cores, which then synchronise about a thousand times an update; here they
synchronise once. The division of work and the order of sums depend only on the batch and the number of threads.
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
"""About as many source and target tokens are computed at a time, so that activations fit in a core's cache."""
MAX_WORKERS = 8
"""Each worker has its own gradients; with more cores each worker uses several."""


class CpuDataParallel:
    """Adds the gradient of a batch to the parameters of `model`."""

    def __init__(self, model: Transformer, *, smoothing: float) -> None:
        self.smoothing = smoothing
        self.num_threads = torch.get_num_threads()
        self.num_workers = max(n for n in range(1, MAX_WORKERS + 1) if self.num_threads % n == 0)
        self.replicas = [model, *(_replicate(model) for _ in range(self.num_workers - 1))]
        self.gradients = [
            [torch.zeros_like(parameter) for parameter in replica.parameters()] for replica in self.replicas
        ]
        self.pool = ThreadPoolExecutor(self.num_workers, thread_name_prefix="core")

    @property
    def has_hooks(self) -> bool:
        """Whether hooks are registered on the model or its parameters; then the reference path must run."""
        model = self.replicas[0]
        hooked = any(
            module._forward_hooks or module._forward_pre_hooks or module._backward_hooks for module in model.modules()
        )
        return hooked or any(parameter._backward_hooks for parameter in model.parameters())

    def __call__(self, batch: Batch, scale: float) -> Tensor:
        """The sum of losses; the gradient of `scale` times it is added to the gradients of the parameters."""
        num_tokens = int((batch.source_segments > 0).sum()) + batch.num_tokens
        groups_per_worker = max(1, round(num_tokens / (TOKENS_PER_GROUP * self.num_workers)))
        groups = group_by_length(batch, groups_per_worker * self.num_workers)
        seeds: list[int] = torch.randint(2**62, (len(groups),)).tolist()
        self._prepare_gradients()
        stride = self.num_workers  # groups are sorted by length: every worker gets short and long ones
        futures = [
            self.pool.submit(self._compute, replica, groups[index::stride], seeds[index::stride], scale)
            for index, replica in enumerate(self.replicas)
        ]
        wait(futures)  # all of them, even if one fails
        torch.set_num_threads(self.num_threads)  # new threads would inherit the number that the workers have set
        total = torch.stack([future.result() for future in futures]).sum()
        for gradients in self.gradients[1:]:
            for parameter, gradient in zip(self.replicas[0].parameters(), gradients, strict=True):
                parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        return total

    def _compute(self, replica: Transformer, groups: list[SentenceGroup], seeds: list[int], scale: float) -> Tensor:
        torch.set_num_threads(self.num_threads // self.num_workers)  # for this thread only
        total = torch.zeros((), dtype=replica.source_embedding.weight.dtype)
        for group, seed in zip(groups, seeds, strict=True):
            total += add_gradient(replica, group, scale, smoothing=self.smoothing, seed=seed)
        return total

    def _prepare_gradients(self) -> None:
        """The first worker adds to existing gradients, the others start from zero; all use the same weights."""
        parameters = list(self.replicas[0].parameters())
        for index, (replica, gradients) in enumerate(zip(self.replicas, self.gradients, strict=True)):
            for parameter, original, gradient in zip(replica.parameters(), parameters, gradients, strict=True):
                if index or parameter.grad is None:
                    parameter.grad = gradient.zero_()
                parameter.data = original.data


def _replicate(model: Transformer) -> Transformer:
    """A copy of the model that shares its weights but has its own gradients."""
    shared = {id(parameter): nn.Parameter(parameter.detach()) for parameter in model.parameters()}
    return copy.deepcopy(model, memo=dict(shared))
