"""The captured search as an engine uses it: whether it fits, which sessions it needs, and what they find."""

from __future__ import annotations

import importlib.util
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import nullcontext
from threading import Lock
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from heedful.config import DecodingConfig
from heedful.decoding.cuda_graph.encode_slots import SIZES
from heedful.decoding.cuda_graph.packed_weights import collect, tensors_of
from heedful.decoding.cuda_graph.scheduler import Session
from heedful.decoding.cuda_graph.search_state import Room, bytes_of
from heedful.decoding.engines.interface import Job, MakeRule
from heedful.model.transformer import Transformer
from heedful.search_types import Hypothesis, SpecialTokens

SLOTS = (1, 8, 16, 32, 64, 128, 256, 512, 1024)
MOST_BEAMS = 8
SHORTEST_ROOM = 64
SESSIONS = 4
"""Sessions that are kept: each holds memory of its own."""
SHARE = 0.5
"""Of the free memory that one session may take."""
known: WeakKeyDictionary[Transformer, tuple[tuple[torch.dtype, torch.device], str | None]] = WeakKeyDictionary()
"""Obstacles in models, as they were when last looked for: with weights of this type, on this device."""


def obstacle(
    model: object,
    jobs: Sequence[Job],
    config: DecodingConfig,
    *,
    make_rule: MakeRule | None,
    special: SpecialTokens,
) -> str | None:
    """Why the captured search cannot do this, or None if it can."""
    if type(model) is not Transformer:
        return f"{type(model).__name__} is no Transformer of ours"
    if reason := obstacle_in_model(model):
        return reason
    if config.method == "sampling":
        return "decoding.method=sampling"
    if make_rule is not None:
        return "a rule of the caller's"
    if any(job.forbidden for job in jobs):
        return "tokens that single sentences may not have"
    if config.no_repeat_ngram_size:
        return "decoding.no_repeat_ngram_size"
    if config.method == "beam" and config.beam_size > MOST_BEAMS:
        return f"decoding.beam_size above {MOST_BEAMS}"
    forbidden = len({special.pad_id, special.bos_id, special.eos_id, *special.forbidden})
    if model.config.target_vocab_size - forbidden < 2 * config.beam_size:
        return "a vocabulary smaller than the candidates of a step"
    if any(max(len(job.source), job.max_length + 1) > model.max_length for job in jobs):
        return "sentences longer than model.max_length"
    return None


def obstacle_in_model(model: Transformer) -> str | None:
    """What of the model has no kernel. Asked before every search, so that the answer is kept."""
    parameter = next(model.parameters())
    kind = (parameter.dtype, parameter.device)
    if known.get(model, (None, None))[0] != kind:
        known[model] = kind, look_through(model, parameter)
    return known[model][1]


def look_through(model: Transformer, parameter: Tensor) -> str | None:
    """The same, found out."""
    config = model.config
    if config.norm == "batch":
        return "model.norm=batch"
    if config.attention_scoring == "additive":
        return "model.attention_scoring=additive"
    if {one.dtype for one in model.parameters()} not in ({torch.float32}, {torch.bfloat16}):
        return "weights that are neither all float32 nor all bfloat16"
    if config.max_length > SIZES[-1]:
        return f"model.max_length above {SIZES[-1]}"
    if parameter.is_cuda and importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if parameter.is_cuda and torch.cuda.get_device_capability(parameter.device) < (8, 0):
        return "a GPU older than Ampere"
    return None


class CudaGraphSearch:
    """The sessions of one model. One search runs at a time; other threads wait for it.

    It keeps copies of some weights, and before each search follows the model: tensors that were replaced, and changes
    in place that torch counts (an optimizer's, `copy_`, `load_state_dict`). What torch does not count, such as kernels
    of our own, a replayed CUDA graph or a write through `.data`, it cannot see: after that make a new one, as every
    new `Translator` does. Training, whose fast step changes weights so, makes one at each validation.
    """

    def __init__(self, model: Transformer, special: SpecialTokens) -> None:
        self.model, self.special, self.parameters = model, special, list(model.parameters())
        self.weights, self.versions = collect(model), versions_of(self.parameters)
        self.sessions: OrderedDict[Room, Session] = OrderedDict()
        self.most_slots = SLOTS[-1]
        self.lock = Lock()

    @torch.inference_mode()
    def search(self, jobs: Sequence[Job], config: DecodingConfig) -> list[list[Hypothesis]]:
        """The best hypotheses of every job, whatever else is among the jobs."""
        found: list[list[Hypothesis]] = [[] for _ in jobs]
        device = self.weights.output.device
        with self.lock, torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            self._refresh()
            for members in by_room(jobs):
                chosen = [jobs[index] for index in members]
                for index, hypotheses in zip(members, self._run(chosen, config), strict=True):
                    found[index] = hypotheses
        return found

    def _run(self, jobs: Sequence[Job], config: DecodingConfig) -> list[list[Hypothesis]]:
        """Search in one session; with fewer slots where the memory is not enough."""
        while True:
            try:
                return self._session(jobs, config).run(jobs, config)
            except torch.OutOfMemoryError:
                slots = self._room(jobs, config).slots
                if slots == 1:
                    raise
                self.most_slots = SLOTS[SLOTS.index(slots) - 1]
            self.sessions.clear()
            torch.cuda.empty_cache()

    def _refresh(self) -> None:
        """Follow the model's weights where they were changed since; recordings read the same tensors as before."""
        if (versions := versions_of(self.parameters)) == self.versions:
            return
        fresh = collect(self.model)
        if versions[1::2] != self.versions[1::2]:  # other tensors than before
            self.weights = fresh
            self.sessions.clear()
        for old, new in zip(tensors_of(self.weights), tensors_of(fresh), strict=True):
            if old.data_ptr() != new.data_ptr():
                old.copy_(new)
        self.versions = versions

    def _session(self, jobs: Sequence[Job], config: DecodingConfig) -> Session:
        room = self._room(jobs, config)
        if room not in self.sessions:
            while len(self.sessions) >= SESSIONS:
                self.sessions.popitem(last=False)
            self.sessions[room] = Session(self.weights, room, self.special)
        self.sessions.move_to_end(room)
        return self.sessions[room]

    def _room(self, jobs: Sequence[Job], config: DecodingConfig) -> Room:
        """A session's size: as many slots as there are jobs, as far as tokens_per_batch and the memory allow."""
        beams = config.beam_size if config.method == "beam" else 1
        mean = sum(len(job.source) for job in jobs) / len(jobs)
        allowed = max(1, int(config.tokens_per_batch / (max(mean, 16) * beams)))
        fitting = [count for count in SLOTS if count <= min(allowed, self.most_slots)]
        count = next((count for count in fitting if count >= len(jobs)), fitting[-1])
        target, source = target_room(jobs[0]), source_room(jobs[0])
        while True:
            room = Room(count, beams, target, source, config.num_best)
            if count == 1 or bytes_of(self.weights, room) <= self._memory():
                return room
            count = SLOTS[SLOTS.index(count) - 1]

    def _memory(self) -> float:
        device = self.weights.output.device
        return SHARE * torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else float("inf")


def by_room(jobs: Sequence[Job]) -> list[list[int]]:
    """Indices of jobs that one session holds, the longest first."""
    rooms: dict[tuple[int, int], list[int]] = {}
    lengths = [len(job.source) for job in jobs]
    for index in sorted(range(len(jobs)), key=lengths.__getitem__, reverse=True):  # of equals the first first
        rooms.setdefault((source_room(jobs[index]), target_room(jobs[index])), []).append(index)
    return list(rooms.values())


def source_room(job: Job) -> int:
    """Room for the job's source: a power of two."""
    return max(SHORTEST_ROOM, 1 << (len(job.source) - 1).bit_length())


def target_room(job: Job) -> int:
    """Room for the job's translation, its end and one more: a power of two."""
    return max(SHORTEST_ROOM, 1 << (job.max_length + 1).bit_length())


def versions_of(parameters: Sequence[Tensor]) -> tuple[int, ...]:
    """Numbers that change when the weights do: of each tensor how often it was changed, and where it is."""
    return tuple(number for one in parameters for number in (0 if one.is_inference() else one._version, one.data_ptr()))
