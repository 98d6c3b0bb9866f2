"""CUDA graph search: what it supports, and the schedulers that run it."""

from __future__ import annotations

import importlib.util
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import nullcontext
from threading import Lock
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from heedful.backend_support import unsupported_options
from heedful.config import DecodingConfig
from heedful.decoding.cuda_graph.packed_weights import iter_tensors, pack_weights
from heedful.decoding.cuda_graph.scheduler import TOKEN_BUCKETS, Scheduler
from heedful.decoding.cuda_graph.search_state import Capacity, estimate_bytes
from heedful.decoding.engines import ConstraintFactory, DecodeRequest
from heedful.model.transformer import Transformer
from heedful.search_types import Hypothesis, SpecialTokens

SLOT_COUNTS = (1, 8, 16, 32, 64, 128, 256, 512, 1024)
MAX_BEAMS = 8
MIN_CAPACITY = 64
MAX_SCHEDULERS = 4
"""Schedulers kept in memory; each has its own buffers."""
MEMORY_FRACTION = 0.5
"""Fraction of the free memory that one scheduler may use."""
model_reasons: WeakKeyDictionary[Transformer, tuple[tuple[torch.dtype, torch.device], str | None]] = WeakKeyDictionary()
"""Cached result of `find_unsupported` for each model, with the dtype and device that it applies to."""


def unsupported_reason(
    model: object,
    requests: Sequence[DecodeRequest],
    config: DecodingConfig,
    *,
    constraint_factory: ConstraintFactory | None,
    special: SpecialTokens,
) -> str | None:
    """Why CUDA graph search does not support this, or None if it does."""
    if type(model) is not Transformer:
        return f"{type(model).__name__}, only Transformer"
    if reason := unsupported_model_reason(model):
        return reason
    if config.method == "sampling":
        return "decoding.method=sampling"
    if constraint_factory is not None:
        return "a token constraint"
    if any(request.forbidden for request in requests):
        return "tokens forbidden in individual sentences"
    if config.no_repeat_ngram_size:
        return "decoding.no_repeat_ngram_size"
    if config.method == "beam" and config.beam_size > MAX_BEAMS:
        return f"decoding.beam_size above {MAX_BEAMS}"
    forbidden = len({special.pad_id, special.bos_id, special.eos_id, *special.forbidden})
    if model.config.target_vocab_size - forbidden < 2 * config.beam_size:
        return "a vocabulary smaller than the candidates of a step"
    if any(max(len(request.source), request.max_length + 1) > model.max_length for request in requests):
        return "sentences longer than model.max_length"
    return None


def unsupported_model_reason(model: Transformer) -> str | None:
    """Which option of the model is not supported. Cached, because it is checked before every search."""
    parameter = next(model.parameters())
    kind = (parameter.dtype, parameter.device)
    if model_reasons.get(model, (None, None))[0] != kind:
        model_reasons[model] = kind, find_unsupported(model, parameter)
    return model_reasons[model][1]


def find_unsupported(model: Transformer, parameter: Tensor) -> str | None:
    """Like `unsupported_model_reason`, without the cache."""
    config = model.config
    if unsupported := unsupported_options("cuda_graph_search", config):
        return " and ".join(unsupported)
    if {one.dtype for one in model.parameters()} not in ({torch.float32}, {torch.bfloat16}):
        return "weights that are neither all float32 nor all bfloat16"
    if config.max_length > TOKEN_BUCKETS[-1]:
        return f"model.max_length above {TOKEN_BUCKETS[-1]}"
    if parameter.is_cuda and importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if parameter.is_cuda and torch.cuda.get_device_capability(parameter.device) < (8, 0):
        return "a GPU older than Ampere"
    return None


class CudaGraphSearch:
    """The schedulers of one model. One search runs at a time; other threads wait for it.

    It keeps copies of some weights, and before each search follows the model: tensors that were replaced, and changes
    in place that torch counts (an optimizer's, `copy_`, `load_state_dict`). What torch does not count, such as kernels
    of our own, a replayed CUDA graph or a write through `.data`, it cannot see: after that make a new one, as every
    new `Translator` does. Training, whose fast step changes weights so, makes one at each validation.
    """

    def __init__(self, model: Transformer, special: SpecialTokens) -> None:
        self.model, self.special, self.parameters = model, special, list(model.parameters())
        self.weights, self.versions = pack_weights(model), weight_versions(self.parameters)
        self.schedulers: OrderedDict[Capacity, Scheduler] = OrderedDict()
        self.max_slots = SLOT_COUNTS[-1]
        self.lock = Lock()

    @torch.inference_mode()
    def search(self, requests: Sequence[DecodeRequest], config: DecodingConfig) -> list[list[Hypothesis]]:
        """The best hypotheses of every request, independent of the other requests."""
        found: list[list[Hypothesis]] = [[] for _ in requests]
        device = self.weights.output.device
        with self.lock, torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            self._refresh()
            for members in group_by_capacity(requests):
                chosen = [requests[index] for index in members]
                for index, hypotheses in zip(members, self._run(chosen, config), strict=True):
                    found[index] = hypotheses
        return found

    def _run(self, requests: Sequence[DecodeRequest], config: DecodingConfig) -> list[list[Hypothesis]]:
        """Search with one scheduler; retry with fewer slots if memory runs out."""
        while True:
            try:
                return self._get_scheduler(requests, config).run(requests, config)
            except torch.OutOfMemoryError:
                slots = self._choose_capacity(requests, config).slots
                if slots == 1:
                    raise
                self.max_slots = SLOT_COUNTS[SLOT_COUNTS.index(slots) - 1]
            self.schedulers.clear()
            torch.cuda.empty_cache()

    def _refresh(self) -> None:
        """Follow the model's weights where they were changed since; recordings read the same tensors as before."""
        if (versions := weight_versions(self.parameters)) == self.versions:
            return
        fresh = pack_weights(self.model)
        if versions[1::2] != self.versions[1::2]:  # other tensors than before
            self.weights = fresh
            self.schedulers.clear()
        for old, new in zip(iter_tensors(self.weights), iter_tensors(fresh), strict=True):
            if old.data_ptr() != new.data_ptr():
                old.copy_(new)
        self.versions = versions

    def _get_scheduler(self, requests: Sequence[DecodeRequest], config: DecodingConfig) -> Scheduler:
        capacity = self._choose_capacity(requests, config)
        if capacity not in self.schedulers:
            while len(self.schedulers) >= MAX_SCHEDULERS:
                self.schedulers.popitem(last=False)
            self.schedulers[capacity] = Scheduler(self.weights, capacity, self.special)
        self.schedulers.move_to_end(capacity)
        return self.schedulers[capacity]

    def _choose_capacity(self, requests: Sequence[DecodeRequest], config: DecodingConfig) -> Capacity:
        """A scheduler's size: as many slots as there are requests, as far as tokens_per_batch and the memory allow."""
        beams = config.beam_size if config.method == "beam" else 1
        mean = sum(len(request.source) for request in requests) / len(requests)
        allowed = max(1, int(config.tokens_per_batch / (max(mean, 16) * beams)))
        fitting = [count for count in SLOT_COUNTS if count <= min(allowed, self.max_slots)]
        count = next((count for count in fitting if count >= len(requests)), fitting[-1])
        target, source = target_capacity(requests[0]), source_capacity(requests[0])
        while True:
            capacity = Capacity(count, beams, target, source, config.num_best)
            if count == 1 or estimate_bytes(self.weights, capacity) <= self._memory():
                return capacity
            count = SLOT_COUNTS[SLOT_COUNTS.index(count) - 1]

    def _memory(self) -> float:
        device = self.weights.output.device
        return MEMORY_FRACTION * torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else float("inf")


def group_by_capacity(requests: Sequence[DecodeRequest]) -> list[list[int]]:
    """Indices of requests that share a scheduler, longest first."""
    groups: dict[tuple[int, int], list[int]] = {}
    lengths = [len(request.source) for request in requests]
    for index in sorted(range(len(requests)), key=lengths.__getitem__, reverse=True):  # of equals the first first
        groups.setdefault((source_capacity(requests[index]), target_capacity(requests[index])), []).append(index)
    return list(groups.values())


def source_capacity(request: DecodeRequest) -> int:
    """Capacity for the request's source: a power of two."""
    return max(MIN_CAPACITY, 1 << (len(request.source) - 1).bit_length())


def target_capacity(request: DecodeRequest) -> int:
    """Capacity for the request's translation, its end and one more: a power of two."""
    return max(MIN_CAPACITY, 1 << (request.max_length + 1).bit_length())


def weight_versions(parameters: Sequence[Tensor]) -> tuple[int, ...]:
    """Numbers that change when the weights do: of each tensor how often it was changed, and where it is."""
    return tuple(number for one in parameters for number in (0 if one.is_inference() else one._version, one.data_ptr()))
