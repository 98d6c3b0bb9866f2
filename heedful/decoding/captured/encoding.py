"""Sentences enter: packed one after another, read by the encoder, their memory put into their slots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from heedful.decoding.captured.choice import admit
from heedful.decoding.captured.recording import Replayed
from heedful.decoding.captured.slots import Slots, make_rows
from heedful.decoding.captured.step import encode, remember
from heedful.decoding.captured.weights import Weights
from heedful.decoding.engines.interface import Job
from heedful.model.kernels.decoding_sizes import QUERIES

SIZES = (64, 256, 1024, 4096, 16_384)
"""Tokens that are read together: as few of these as hold them."""


class Reader:
    """The encoder for one number of tokens, recorded."""

    def __init__(self, weights: Weights, slots: Slots, size: int, *, start: int) -> None:
        """Read up to `size` tokens at a time; every translation begins with the token `start`."""
        self.slots, self.size, device = slots, size, weights.output.device
        self.num_sentences = min(slots.room.slots, size)
        num_tiles = size // QUERIES + self.num_sentences
        widths = [size, size, size, 3 * num_tiles, self.num_sentences, 4 * self.num_sentences]
        self.nothing = np.zeros(sum(widths), dtype=np.int32)
        self.sections = np.split(np.arange(len(self.nothing)), np.cumsum(widths)[:-1])
        self.nothing[self.sections[2]] = self.nothing[self.sections[4]] = -1
        self.staged = torch.from_numpy(self.nothing.copy()).to(device)
        tokens, positions, places, tiles, numbers, settings = self.staged.split(widths)
        rows = make_rows(weights, size)

        def work() -> None:
            encode(weights, rows, tokens, positions, tiles.view(-1, 3))
            remember(weights, rows, places, slots)
            admit(slots, numbers, settings, start=start)

        self.replayed = Replayed(work, device)

    def read(self, jobs: Sequence[Job], numbers: Sequence[int], *, min_length: int) -> None:
        """Let these jobs begin in the slots of these numbers."""
        packed, room = self.nothing.copy(), self.slots.room
        tokens, positions, places, tiles, slots, settings = (packed[section] for section in self.sections)
        begin = num_tiles = 0
        table = tiles.reshape(-1, 3)
        for index, (job, number) in enumerate(zip(jobs, numbers, strict=True)):
            length = len(job.source)
            here = slice(begin, begin + length)
            tokens[here], positions[here] = job.source, np.arange(length)
            places[here] = number * room.source + np.arange(length)
            for first in range(0, length, QUERIES):
                table[num_tiles] = begin, length, first
                num_tiles += 1
            slots[index] = number
            settings[4 * index : 4 * index + 4] = job.max_length, min_length, length, len(job.prefix)
            begin += length
        whole = torch.from_numpy(np.concatenate([tokens, positions, places, table.ravel(), slots, settings]))
        self.staged.copy_(whole.pin_memory() if self.staged.is_cuda else whole, non_blocking=True)
        self._force(jobs, numbers)
        self.replayed()

    def _force(self, jobs: Sequence[Job], numbers: Sequence[int]) -> None:
        for job, number in zip(jobs, numbers, strict=True):
            if job.prefix:
                prefix = torch.tensor(job.prefix, dtype=torch.int32)
                self.slots.forced[number, : len(prefix)] = prefix.to(self.slots.forced.device)


def tensor_of(numbers: Sequence[int], device: torch.device) -> Tensor:
    """Numbers on the device, sent without waiting."""
    made = torch.tensor(numbers)
    return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made
