"""What the Transformer's decoder remembers between steps: keys and values, so that no token is computed twice.

They are given back by whole `STEADY`s of tokens, the last of which may be still to come: zeros that a mask hides.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.model.batch_invariance import steady
from heedful.tensor_types import Bool, Float, Int


class LayerCache:
    """Self-attention keys and values of one layer, with room for M tokens a row, zeros at first."""

    def __init__(self, keys: Float[Tensor, "R H M Dk"], values: Float[Tensor, "R H M Dh"]) -> None:
        self.keys, self.values, self.length = keys, values, 0

    def append(
        self, keys: Float[Tensor, "R H 1 Dk"], values: Float[Tensor, "R H 1 Dh"]
    ) -> tuple[Float[Tensor, "R H K Dk"], Float[Tensor, "R H K Dh"]]:
        """Add the newest token and give back all so far, and zeros up to a multiple of `STEADY`."""
        self.keys[:, :, self.length] = keys[:, :, 0]
        self.values[:, :, self.length] = values[:, :, 0]
        self.length += 1
        shown = steady(self.length)
        return self.keys[:, :, :shown], self.values[:, :, :shown]

    def reorder(self, rows: Int[Tensor, " R"]) -> None:
        """Row r continues what row rows[r] was; only the filled part moves."""
        self.keys[:, :, : self.length] = self.keys[rows, :, : self.length]
        self.values[:, :, : self.length] = self.values[rows, :, : self.length]

    def select(self, rows: Int[Tensor, " R"]) -> None:
        """Keep only these rows."""
        self.keys, self.values = self.keys[rows], self.values[rows]


@dataclass
class TransformerState:
    """The decoder state of the Transformer; see `seq2seq.DecoderState`."""

    layers: list[LayerCache]
    memory: list[tuple[Float[Tensor, "B H S Dk"], Float[Tensor, "B H S Dh"]]]
    memory_mask: Bool[Tensor, "B S"]
    num_beams: int
    length: int = 0

    @property
    def num_rows(self) -> int:
        """Rows in the state: sentences times beams."""
        return self.memory_mask.shape[0] * self.num_beams

    def reorder(self, rows: Int[Tensor, " R"]) -> None:
        """Let row r continue what row rows[r] was; the memory stays, for no row leaves its sentence."""
        for layer in self.layers:
            layer.reorder(rows)

    def select(self, sentences: Int[Tensor, " B"]) -> None:
        """Keep only these sentences."""
        beams = torch.arange(self.num_beams, device=sentences.device)
        rows = (sentences[:, None] * self.num_beams + beams).flatten()
        for layer in self.layers:
            layer.select(rows)
        self.memory = [(keys[sentences], values[sentences]) for keys, values in self.memory]
        self.memory_mask = self.memory_mask[sentences]
