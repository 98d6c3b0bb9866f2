"""Continuous batching over a fixed number of slots: finished sentences leave, waiting ones enter.

The host launches step after step and reads flags that are one step old, so that the device always has work. Each
sentence is computed by itself, so its translation does not depend on the other slots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from heedful.config import DecodingConfig
from heedful.decoding.cuda_graph.decoder_step import decode_step, encode, fill_cross_cache
from heedful.decoding.cuda_graph.packed_weights import PackedWeights
from heedful.decoding.cuda_graph.search_state import Capacity, SearchState, admit, make_activations, make_search_state
from heedful.decoding.engines import DecodeRequest
from heedful.decoding.utf8_automaton import COMPLETE, NEEDED, NEXT
from heedful.errors import DecodingError
from heedful.fused.kernels.sizes import NEAR_LIMIT, QUERIES
from heedful.search_types import Hypothesis, SpecialTokens, length_penalty


class GraphedCallable:
    """`work()`, which neither waits for the device nor allocates, nor does anything when there is nothing to do."""

    def __init__(self, work: Callable[[], None], device: torch.device) -> None:
        """Record the work, first done once so that its kernels are compiled: let there be nothing to do just now."""
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


TOKEN_BUCKETS = (64, 256, 1024, 4096, 16_384)
"""Sizes of encoder batches in tokens; the smallest sufficient one is used."""

PADDING_VALUES = (0, 0, -1, 0, -1, 0)
"""Padding of each staged section."""


class SlotEncoder:
    """The encoder as a CUDA graph for one batch size."""

    def __init__(self, weights: PackedWeights, slots: SearchState, size: int, *, start: int) -> None:
        """Read up to `size` tokens at a time; every translation begins with the token `start`."""
        self.slots, self.size, device = slots, size, weights.output.device
        self.num_sentences = min(slots.capacity.slots, size)
        num_tiles = size // QUERIES + self.num_sentences
        widths = [size, size, size, 3 * num_tiles, self.num_sentences, 4 * self.num_sentences]
        self.begins = np.cumsum([0, *widths[:-1]])
        padding = zip(widths, PADDING_VALUES, strict=True)
        self.nothing = np.concatenate([np.full(width, fill) for width, fill in padding])
        self.nothing = self.nothing.astype(np.int32)
        self.staged = torch.from_numpy(self.nothing.copy()).to(device)
        self.sending = torch.empty_like(self.staged, device="cpu", pin_memory=device.type == "cuda")
        self.sent = torch.cuda.Event() if device.type == "cuda" else None
        tokens, positions, places, tiles, numbers, settings = self.staged.split(widths)
        rows = make_activations(weights, size)

        def work() -> None:
            encode(weights, rows, tokens, positions, tiles.view(-1, 3))
            fill_cross_cache(weights, rows, places, slots)
            admit(slots, numbers, settings, start=start)

        self.replayed = GraphedCallable(work, device)

    def read(self, requests: Sequence[DecodeRequest], numbers: Sequence[int], *, min_length: int) -> None:
        """Encode these requests and start them in these slots."""
        if self.sent is not None:
            self.sent.synchronize()  # what was sent before may still be on its way
        packed, capacity = self.sending.numpy(), self.slots.capacity
        packed[:] = self.nothing
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
        for begin, values in zip(self.begins, filled, strict=True):
            packed[begin : begin + len(values)] = values
        self.staged.copy_(self.sending, non_blocking=True)
        if self.sent is not None:
            self.sent.record()
        self._force(requests, numbers)
        self.replayed()

    def _force(self, requests: Sequence[DecodeRequest], numbers: Sequence[int]) -> None:
        for request, number in zip(requests, numbers, strict=True):
            if request.prefix:
                prefix = torch.tensor(request.prefix, dtype=torch.int32)
                self.slots.forced[number, : len(prefix)] = prefix.to(self.slots.forced.device)


def to_device(numbers: Sequence[int] | Sequence[float], device: torch.device) -> Tensor:
    """Copy numbers to the device asynchronously."""
    made = torch.tensor(numbers)
    return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made


FREED = 8
"""Waiting sentences are admitted when 1 / FREED of the slots are free; encoding a few at a time costs more."""


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
            leaving = self._run_steps(request_of >= 0, begun, steps, whole=not waiting)
            done_steps = int((self.launched - begun[leaving]).max())
            for index, found in zip(request_of[leaving].tolist(), self._harvest(leaving, done_steps), strict=True):
                limit = requests[index].max_length
                results[index] = [hypothesis(*row, penalties=penalties, limit=limit) for row in found]
            request_of[leaving] = -1
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
            self.encoders[size].read(requests[first:last], numbers[first:last], min_length=config.min_length)
            first = last

    def _run_steps(self, taken: np.ndarray, begun: np.ndarray, steps: np.ndarray, *, whole: bool) -> np.ndarray:
        """Step until enough sentences are done, or all if none is waiting; return the finished slots."""
        enough = int(taken.sum()) if whole else min(int(taken.sum()), max(1, self.capacity.slots // FREED))
        last = int((begun + steps)[taken].max())
        while True:
            seen = self.launched
            if self.launched < last:
                self.step()
                self.launched += 1
                self.flags.send(self.launched)
            done = taken & (begun < seen) & (self.flags.after(seen).numpy() != 0) if seen > begun[taken].min() else None
            if done is not None and done.sum() >= enough:
                return np.flatnonzero(done)
            if seen == last:
                raise DecodingError("the search did not come to its end; report this, with the model's configuration.")

    def _harvest(self, numbers: np.ndarray, done_steps: int) -> list[list[tuple[list[int], list[float]]]]:
        """(tokens, token log-probabilities) of the n-best lists of these finished slots."""
        rows = self.slots.record[:, : self.capacity.words_after(done_steps)]
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
    sentence, place = np.nonzero(scores > -np.inf)
    past = record[:, 4 * capacity.num_best :].reshape(len(record), -1, 3)
    lengths, beam = finished[sentence, place, 1], finished[sentence, place, 2]
    longest = int(lengths.max(initial=1))
    tokens = np.full((longest, len(sentence)), end, dtype=np.int32)
    bits = np.zeros((longest, len(sentence)), dtype=np.int32)
    for position in range(longest - 2, -1, -1):
        inside = lengths - 2 >= position
        token, parent, bits[position] = past[sentence, position * capacity.beams + beam].T
        tokens[position] = np.where(inside, token, end)
        beam = np.where(inside, parent, beam)
    log_probs = np.ascontiguousarray(bits.T).view(np.float32)
    log_probs[np.arange(len(sentence)), lengths - 1] = end_log_probs[sentence, place]
    lists: list[list[tuple[list[int], list[float]]]] = [[] for _ in record]
    rows = zip(sentence.tolist(), lengths.tolist(), tokens.T.tolist(), log_probs.tolist(), strict=True)
    for number, length, ids, numbers in rows:
        lists[number].append((ids[:length], numbers[:length]))
    return lists


def hypothesis(
    tokens: list[int], token_log_probs: list[float], *, penalties: Sequence[float], limit: int
) -> Hypothesis:
    """A hypothesis from its tokens; `penalties` by length."""
    log_prob = sum(token_log_probs)
    score = log_prob / penalties[len(tokens)]
    return Hypothesis(tokens, token_log_probs, log_prob, score, finished=len(tokens) <= limit)


def make_transitions(weights: PackedWeights, special: SpecialTokens) -> Tensor:
    """`SearchState.follows`: in each state the state after every token, -1 for those that may not come, as the end."""
    follows = torch.full((len(NEEDED) + NEAR_LIMIT, weights.shape.vocabulary), -1, dtype=torch.int8)
    follows[COMPLETE] = COMPLETE
    if special.byte_ids:
        follows[: len(NEEDED), list(special.byte_ids)] = torch.tensor(NEXT, dtype=torch.int8)
    follows[COMPLETE, [special.pad_id, special.bos_id, special.eos_id, *special.forbidden]] = -1
    needed = torch.tensor(NEEDED)[follows[COMPLETE].long().clamp(min=COMPLETE)]
    for remaining in range(NEAR_LIMIT):
        follows[len(NEEDED) + remaining] = follows[COMPLETE].masked_fill(needed > remaining, -1)
    return follows.to(weights.output.device)
