"""Beam and greedy search as CUDA graphs, with continuous batching over a fixed number of slots.

Finished sentences leave their slots and waiting ones take them. The host launches step after step and reads flags that
are one step old, so that the device always has work. Each sentence is computed independently, so its translation does
not depend on the other slots.
"""

from __future__ import annotations

import importlib.util
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import chain
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from heedful.backend_support import unsupported_options
from heedful.config import DecodingConfig
from heedful.decoding.cuda_graph.decoder_step import decode_step, encode, fill_cross_cache
from heedful.decoding.cuda_graph.packed_weights import PackedWeights, iter_tensors, pack_weights
from heedful.decoding.cuda_graph.search_state import (
    Capacity,
    SearchState,
    admit,
    estimate_bytes,
    make_activations,
    make_search_state,
)
from heedful.decoding.utf8_automaton import COMPLETE, NEEDED, NEXT
from heedful.errors import DecodingError
from heedful.fused.kernels.sizes import NEAR_LIMIT, QUERIES
from heedful.model.transformer import Transformer
from heedful.search_types import ConstraintFactory, DecodeRequest, Hypothesis, SpecialTokens, length_penalty

SLOT_COUNTS = (1, 8, 16, 32, 64, 128, 256, 512, 1024)
MAX_BEAMS = 8
MIN_CAPACITY = 64
MAX_SCHEDULERS = 4
"""Schedulers kept in memory; each has its own buffers."""
MEMORY_FRACTION = 0.5
"""Fraction of the free memory that one scheduler may use."""
TOKEN_BUCKETS = (64, 256, 1024, 4096, 16_384)
"""Sizes of encoder batches in tokens; the smallest sufficient one is used."""
PADDING_VALUES = (0, 0, -1, 0, -1, 0)
"""Padding value of each section of the staging buffer."""
ADMISSION_DIVISOR = 8
"""Waiting sentences are admitted when one slot in ADMISSION_DIVISOR is free; encoding a few at a time costs more."""
model_reasons: WeakKeyDictionary[Transformer, tuple[tuple[torch.dtype, torch.device], str | None]] = WeakKeyDictionary()
"""Cached result of `find_unsupported` for each model, with the dtype and device that it applies to."""


class GraphedCallable:
    """A function without arguments, captured as a CUDA graph on GPUs.

    It must not wait for the device or allocate, and must change nothing when no slot is in use.
    """

    def __init__(self, work: Callable[[], None], device: torch.device) -> None:
        """Run `work` once so that its kernels are compiled, then capture it. No slot may be in use."""
        self.work, self.graph = work, None
        if device.type != "cuda":
            return
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            work()
        torch.cuda.synchronize(device)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
            work()

    def __call__(self) -> None:
        """Replay the graph."""
        if self.graph is not None:
            self.graph.replay()
        else:
            self.work()


class AsyncFlags:
    """Flags set by the device, read by the host some steps later without blocking the device."""

    def __init__(self, flags: torch.Tensor, depth: int = 4) -> None:
        self.flags, self.on_device = flags, flags.is_cuda
        self.seen = torch.zeros_like(flags, device="cpu", pin_memory=self.on_device)
        self.events = [torch.cuda.Event() for _ in range(depth)] if self.on_device else []

    def send(self, number: int) -> None:
        """Start copying the flags as of step `number`."""
        self.seen.copy_(self.flags, non_blocking=True)
        if self.on_device:
            self.events[number % len(self.events)].record()

    def after(self, number: int) -> torch.Tensor:
        """The flags as of step `number` or later."""
        if self.on_device:
            self.events[number % len(self.events)].synchronize()
        return self.seen


class SlotEncoder:
    """The encoder as a CUDA graph for one batch size."""

    def __init__(self, weights: PackedWeights, slots: SearchState, size: int, *, start: int) -> None:
        """Encode up to `size` tokens at a time; every translation begins with the token `start`."""
        self.slots, self.size, device = slots, size, weights.output.device
        self.num_sentences = min(slots.capacity.slots, size)
        num_tiles = size // QUERIES + self.num_sentences
        widths = [size, size, size, 3 * num_tiles, self.num_sentences, 4 * self.num_sentences]
        self.offsets = np.cumsum([0, *widths[:-1]])
        fills = zip(widths, PADDING_VALUES, strict=True)
        self.padding = np.concatenate([np.full(width, fill) for width, fill in fills])
        self.padding = self.padding.astype(np.int32)
        self.staging = torch.from_numpy(self.padding.copy()).to(device)
        self.pinned = torch.empty_like(self.staging, device="cpu", pin_memory=device.type == "cuda")
        self.copied = torch.cuda.Event() if device.type == "cuda" else None
        tokens, positions, cache_rows, tiles, numbers, settings = self.staging.split(widths)
        rows = make_activations(weights, size)

        def work() -> None:
            encode(weights, rows, tokens, positions, tiles.view(-1, 3))
            fill_cross_cache(weights, rows, cache_rows, slots)
            admit(slots, numbers, settings, start=start)

        self.graph = GraphedCallable(work, device)

    def encode(self, requests: Sequence[DecodeRequest], numbers: Sequence[int], *, min_length: int) -> None:
        """Encode these requests and start them in these slots."""
        if self.copied is not None:
            self.copied.synchronize()  # the previous copy may still be in progress
        packed, capacity = self.pinned.numpy(), self.slots.capacity
        packed[:] = self.padding
        lengths = np.array([len(request.source) for request in requests])
        begins, total = np.cumsum(lengths) - lengths, int(lengths.sum())
        positions = np.arange(total) - np.repeat(begins, lengths)
        parts = -(-lengths // QUERIES)
        firsts = (np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)) * QUERIES
        tiles = np.stack([np.repeat(begins, parts), np.repeat(lengths, parts), firsts], axis=1)
        limits = [(request.max_length, min_length, len(request.source), len(request.prefix)) for request in requests]
        filled = (
            np.fromiter(chain.from_iterable(request.source for request in requests), np.int32, total),
            positions,
            np.repeat(np.array(numbers) * capacity.source, lengths) + positions,
            tiles.ravel(),
            np.array(numbers),
            np.array(limits).ravel(),
        )
        for begin, values in zip(self.offsets, filled, strict=True):
            packed[begin : begin + len(values)] = values
        self.staging.copy_(self.pinned, non_blocking=True)
        if self.copied is not None:
            self.copied.record()
        self._write_prefixes(requests, numbers)
        self.graph()

    def _write_prefixes(self, requests: Sequence[DecodeRequest], numbers: Sequence[int]) -> None:
        for request, number in zip(requests, numbers, strict=True):
            if request.prefix:
                prefix = torch.tensor(request.prefix, dtype=torch.int32)
                self.slots.forced[number, : len(prefix)] = prefix.to(self.slots.forced.device)


def to_device(numbers: Sequence[int] | Sequence[float], device: torch.device) -> Tensor:
    """Copy numbers to the device asynchronously."""
    made = torch.tensor(numbers)
    return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made


class Scheduler:
    """Continuous batching: the search state, the step graph, and encoder graphs for several batch sizes."""

    def __init__(self, weights: PackedWeights, capacity: Capacity, special: SpecialTokens) -> None:
        self.weights, self.capacity, self.special = weights, capacity, special
        self.slots = slots = make_search_state(weights, capacity, make_transitions(weights, special))
        self.device, rows = weights.output.device, make_activations(weights, capacity.rows)
        self.flags = AsyncFlags(slots.done)
        self.step = GraphedCallable(lambda: decode_step(weights, slots, rows, end=special.eos_id), self.device)
        self.encoders: dict[int, SlotEncoder] = {}
        self.launched = 0

    def run(self, requests: Sequence[DecodeRequest], config: DecodingConfig) -> list[list[Hypothesis]]:
        """The best hypotheses of every request."""
        penalties = [length_penalty(float(max(length, 1)), config) for length in range(self.capacity.target + 1)]
        self.slots.penalties.copy_(to_device(penalties, self.device))
        results: list[list[Hypothesis]] = [[] for _ in requests]
        waiting = deque(range(len(requests)))
        request_of = np.full(self.capacity.slots, -1)
        begun, steps = np.zeros(self.capacity.slots, dtype=np.int64), np.zeros(self.capacity.slots, dtype=np.int64)
        while waiting or (request_of >= 0).any():
            free = np.flatnonzero(request_of < 0)
            if waiting and len(free):
                chosen = [waiting.popleft() for _ in range(min(len(waiting), len(free)))]
                numbers = free[: len(chosen)]
                self._admit([requests[index] for index in chosen], numbers.tolist(), config)
                request_of[numbers], begun[numbers] = chosen, self.launched
                steps[numbers] = [requests[index].max_length + 1 for index in chosen]
            finished = self._run_steps(request_of >= 0, begun, steps, wait_for_all=not waiting)
            done_steps = int((self.launched - begun[finished]).max())
            lists = self._read_finished(finished, done_steps)
            for index, found in zip(request_of[finished].tolist(), lists, strict=True):
                limit = requests[index].max_length
                results[index] = [make_hypothesis(*row, penalties=penalties, limit=limit) for row in found]
            request_of[finished] = -1
        return results

    def _admit(self, requests: list[DecodeRequest], numbers: list[int], config: DecodingConfig) -> None:
        """Start requests in slots, as many at a time as the largest encoder batch holds."""
        first = 0
        while first < len(requests):
            count, tokens = 0, 0
            while first + count < len(requests) and tokens + len(requests[first + count].source) <= TOKEN_BUCKETS[-1]:
                tokens += len(requests[first + count].source)
                count += 1
            size = next(size for size in TOKEN_BUCKETS if tokens <= size)
            if size not in self.encoders:
                self.encoders[size] = SlotEncoder(self.weights, self.slots, size, start=self.special.bos_id)
            last = first + count
            self.encoders[size].encode(requests[first:last], numbers[first:last], min_length=config.min_length)
            first = last

    def _run_steps(self, active: np.ndarray, begun: np.ndarray, steps: np.ndarray, *, wait_for_all: bool) -> np.ndarray:
        """Step until enough sentences are done, or all if none is waiting; return the finished slots."""
        num_active, threshold = int(active.sum()), max(1, self.capacity.slots // ADMISSION_DIVISOR)
        enough = num_active if wait_for_all else min(num_active, threshold)
        last = int((begun + steps)[active].max())
        while True:
            seen = self.launched
            if self.launched < last:
                self.step()
                self.launched += 1
                self.flags.send(self.launched)
            done = None
            if seen > begun[active].min():
                done = active & (begun < seen) & (self.flags.after(seen).numpy() != 0)
            if done is not None and done.sum() >= enough:
                return np.flatnonzero(done)
            if seen == last:
                raise DecodingError("the search did not finish; report this, with the model's configuration.")

    def _read_finished(self, numbers: np.ndarray, done_steps: int) -> list[list[tuple[list[int], list[float]]]]:
        """(tokens, token log-probabilities) of the n-best lists of these finished slots."""
        rows = self.slots.record[:, : self.capacity.record_width_after(done_steps)]
        if len(numbers) < self.capacity.slots:
            rows = rows.index_select(0, to_device(numbers.tolist(), self.device))
        lists = backtrace(rows.cpu().numpy(), self.capacity, self.special.eos_id)
        if not all(lists):
            raise DecodingError("the model's log-probabilities are not numbers (NaN): its weights are damaged.")
        return lists


def backtrace(record: np.ndarray, capacity: Capacity, end: int) -> list[list[tuple[list[int], list[float]]]]:
    """Reconstruct the hypotheses of each sentence from its record by following parents from the end."""
    finished = record[:, : 4 * capacity.num_best].reshape(-1, capacity.num_best, 4)
    scores, end_log_probs = (np.ascontiguousarray(finished[:, :, part]).view(np.float32) for part in (0, 3))
    sentence, rank = np.nonzero(scores > -np.inf)
    steps = record[:, 4 * capacity.num_best :].reshape(len(record), -1, 3)
    lengths, beam = finished[sentence, rank, 1], finished[sentence, rank, 2]
    longest = int(lengths.max(initial=1))
    tokens = np.full((longest, len(sentence)), end, dtype=np.int32)
    bits = np.zeros((longest, len(sentence)), dtype=np.int32)
    for position in range(longest - 2, -1, -1):
        inside = lengths - 2 >= position
        token, parent, bits[position] = steps[sentence, position * capacity.beams + beam].T
        tokens[position] = np.where(inside, token, end)
        beam = np.where(inside, parent, beam)
    log_probs = np.ascontiguousarray(bits.T).view(np.float32)
    log_probs[np.arange(len(sentence)), lengths - 1] = end_log_probs[sentence, rank]
    lists: list[list[tuple[list[int], list[float]]]] = [[] for _ in record]
    rows = zip(sentence.tolist(), lengths.tolist(), tokens.T.tolist(), log_probs.tolist(), strict=True)
    for number, length, ids, numbers in rows:
        lists[number].append((ids[:length], numbers[:length]))
    return lists


def make_hypothesis(
    tokens: list[int], token_log_probs: list[float], *, penalties: Sequence[float], limit: int
) -> Hypothesis:
    """A hypothesis from its tokens; `penalties` by length."""
    log_prob = sum(token_log_probs)
    score = log_prob / penalties[len(tokens)]
    return Hypothesis(tokens, token_log_probs, log_prob, score, finished=len(tokens) <= limit)


def make_transitions(weights: PackedWeights, special: SpecialTokens) -> Tensor:
    """`SearchState.transitions`: the next state for each state and token; -1 for the end and forbidden tokens."""
    transitions = torch.full((len(NEEDED) + NEAR_LIMIT, weights.shape.vocabulary), -1, dtype=torch.int8)
    transitions[COMPLETE] = COMPLETE
    if special.byte_ids:
        transitions[: len(NEEDED), list(special.byte_ids)] = torch.tensor(NEXT, dtype=torch.int8)
    transitions[COMPLETE, [special.pad_id, special.bos_id, special.eos_id, *special.forbidden]] = -1
    needed = torch.tensor(NEEDED)[transitions[COMPLETE].long().clamp(min=COMPLETE)]
    for remaining in range(NEAR_LIMIT):
        transitions[len(NEEDED) + remaining] = transitions[COMPLETE].masked_fill(needed > remaining, -1)
    return transitions.to(weights.output.device)


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

    It keeps copies of some weights and updates them before each search if the model's tensors were replaced, or changed
    in place with a new version counter (by an optimizer, `copy_` or `load_state_dict`). It does not detect changes that
    torch does not count: by custom kernels, a replayed CUDA graph, or a write through `.data`. Create a new instance
    after those, as every new `Translator` does; training changes weights this way, and creates one at each validation.
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
        """Copy changed weights into the tensors that the captured graphs read."""
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
        """One slot per request, within the limits of tokens_per_batch and available memory."""
        beams = config.beam_size if config.method == "beam" else 1
        mean = sum(len(request.source) for request in requests) / len(requests)
        allowed = max(1, int(config.tokens_per_batch / (max(mean, 16) * beams)))
        fitting = [count for count in SLOT_COUNTS if count <= min(allowed, self.max_slots)]
        count = next((count for count in fitting if count >= len(requests)), fitting[-1])
        target, source = target_capacity(requests[0]), source_capacity(requests[0])
        while True:
            capacity = Capacity(count, beams, target, source, config.num_best)
            if count == 1 or estimate_bytes(self.weights, capacity) <= self._available_memory():
                return capacity
            count = SLOT_COUNTS[SLOT_COUNTS.index(count) - 1]

    def _available_memory(self) -> float:
        device = self.weights.output.device
        return MEMORY_FRACTION * torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else float("inf")


def group_by_capacity(requests: Sequence[DecodeRequest]) -> list[list[int]]:
    """Indices of requests that share a scheduler, longest first."""
    groups: dict[tuple[int, int], list[int]] = {}
    lengths = [len(request.source) for request in requests]
    for index in sorted(range(len(requests)), key=lengths.__getitem__, reverse=True):
        groups.setdefault((source_capacity(requests[index]), target_capacity(requests[index])), []).append(index)
    return list(groups.values())


def source_capacity(request: DecodeRequest) -> int:
    """Capacity for the request's source: a power of two."""
    return max(MIN_CAPACITY, 1 << (len(request.source) - 1).bit_length())


def target_capacity(request: DecodeRequest) -> int:
    """Capacity for the request's translation, its end token and one more: a power of two."""
    return max(MIN_CAPACITY, 1 << (request.max_length + 1).bit_length())


def weight_versions(parameters: Sequence[Tensor]) -> tuple[int, ...]:
    """Version counter and address of each tensor; these numbers change when the weights do."""
    return tuple(number for one in parameters for number in (0 if one.is_inference() else one._version, one.data_ptr()))
