"""What both rivals share: tables of embeddings, rows taken apart into sentences, and a memory that beams share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from heedful.baselines.embeddings import Tables
from heedful.baselines.unpacking import Sentences, unpack_pair
from heedful.config import ModelConfig
from heedful.model.seq2seq import Memory
from heedful.tensor_types import Bool, Float, Int


@dataclass
class RivalState(ABC):
    """The part of a decoder state that does not change from step to step: the memory and its keys."""

    memory: Memory
    keys: Float[Tensor, "B S D"]
    num_beams: int

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """Rows in the state: sentences times beams."""

    @abstractmethod
    def reorder(self, rows: Int[Tensor, " R"]) -> None:
        """Let row r continue what row rows[r] was."""

    def select(self, sentences: Int[Tensor, " B"]) -> None:
        """Keep only these sentences."""
        beams = torch.arange(self.num_beams, device=sentences.device)
        self.reorder((sentences[:, None] * self.num_beams + beams).flatten())
        self.memory = Memory(self.memory.values[sentences], self.memory.mask[sentences])
        self.keys = self.keys[sentences]


class Rival(nn.Module, ABC):
    """A model that reads sentences, not rows; its subclasses implement `Seq2Seq`."""

    compiles = False
    """Sentences leave their rows, so shapes change from batch to batch: nothing to compile once."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.tables = Tables(config)

    @property
    def max_length(self) -> int:
        """Longest source or target, in tokens, that the model accepts."""
        return self.config.max_length

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target_input: Int[Tensor, "B T"],
        source_segments: Int[Tensor, "B S"] | None = None,
        target_segments: Int[Tensor, "B T"] | None = None,
        source_positions: Int[Tensor, "B S"] | None = None,
        target_positions: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits of every next target token; rows are taken apart into sentences first."""
        sources, targets = unpack_pair(
            source, target_input, source_segments, target_segments, source_positions, target_positions
        )
        x = self.read(targets, self.encode(sources.tokens, sources.mask))
        return self.tables.logits(targets.to_rows(x))

    @abstractmethod
    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]) -> Memory:
        """Read the sources; the mask is True on real tokens."""

    @abstractmethod
    def read(self, targets: Sentences, memory: Memory) -> Float[Tensor, "M L D"]:
        """Read whole targets from their beginnings; give what the logits are made of."""
