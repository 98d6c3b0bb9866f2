"""Sentences enter: packed one after another, read by the encoder, their memory put into their slots."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from heedful.decoding.cuda_graph.decoder_step import encode, fill_cross_cache
from heedful.decoding.cuda_graph.graph import GraphedCallable
from heedful.decoding.cuda_graph.packed_weights import PackedWeights
from heedful.decoding.cuda_graph.search_state import SearchState, make_activations
from heedful.decoding.cuda_graph.topk import admit
from heedful.decoding.engines.interface import Job
from heedful.fused.kernels.decode_constants import QUERIES

TOKEN_BUCKETS = (64, 256, 1024, 4096, 16_384)
"""Tokens that are read together: as few of these as hold them."""

PADDING_VALUES = (0, 0, -1, 0, -1, 0)
"""What the sections that are staged hold where there is no token, sentence or tile."""


class SlotEncoder:
    """The encoder for one number of tokens, recorded."""

    def __init__(self, weights: PackedWeights, slots: SearchState, size: int, *, start: int) -> None:
        """Read up to `size` tokens at a time; every translation begins with the token `start`."""
        self.slots, self.size, device = slots, size, weights.output.device
        self.num_sentences = min(slots.room.slots, size)
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

    def read(self, jobs: Sequence[Job], numbers: Sequence[int], *, min_length: int) -> None:
        """Let these jobs begin in the slots of these numbers."""
        if self.sent is not None:
            self.sent.synchronize()  # what was sent before may still be on its way
        packed, room = self.sending.numpy(), self.slots.room
        packed[:] = self.nothing
        lengths = np.array([len(job.source) for job in jobs])
        begins, total = np.cumsum(lengths) - lengths, int(lengths.sum())
        positions = np.arange(total) - np.repeat(begins, lengths)
        parts = -(-lengths // QUERIES)
        firsts = (np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)) * QUERIES
        tiles = np.stack([np.repeat(begins, parts), np.repeat(lengths, parts), firsts], axis=1)
        limits = [(job.max_length, min_length, len(job.source), len(job.prefix)) for job in jobs]
        filled = (
            np.fromiter(chain.from_iterable(job.source for job in jobs), np.int32, total),
            positions,
            np.repeat(np.array(numbers) * room.source, lengths) + positions,
            tiles.ravel(),
            np.array(numbers),
            np.array(limits).ravel(),
        )
        for begin, values in zip(self.begins, filled, strict=True):
            packed[begin : begin + len(values)] = values
        self.staged.copy_(self.sending, non_blocking=True)
        if self.sent is not None:
            self.sent.record()
        self._force(jobs, numbers)
        self.replayed()

    def _force(self, jobs: Sequence[Job], numbers: Sequence[int]) -> None:
        for job, number in zip(jobs, numbers, strict=True):
            if job.prefix:
                prefix = torch.tensor(job.prefix, dtype=torch.int32)
                self.slots.forced[number, : len(prefix)] = prefix.to(self.slots.forced.device)


def to_device(numbers: Sequence[int] | Sequence[float], device: torch.device) -> Tensor:
    """Numbers on the device, sent without waiting."""
    made = torch.tensor(numbers)
    return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made
