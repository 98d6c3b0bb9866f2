"""The key-value cache of the decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.model.batch_invariance import align
from heedful.tensor_types import Bool, Float, Int


class KeysValues(NamedTuple):
    """Projected keys and values of one attention."""

    keys: Float[Tensor, "B H K Dk"]
    values: Float[Tensor, "B H K Dh"]


class LayerCache:
    """Self-attention keys and values of one layer, allocated for M tokens per row and initially zero."""

    def __init__(self, keys: Float[Tensor, "R H M Dk"], values: Float[Tensor, "R H M Dh"]) -> None:
        self.keys, self.values, self.length = keys, values, 0

    def append(self, keys: Float[Tensor, "R H 1 Dk"], values: Float[Tensor, "R H 1 Dh"]) -> KeysValues:
        """Add the newest token and return all so far, followed by zeros up to an aligned length."""
        self.keys[:, :, self.length] = keys[:, :, 0]
        self.values[:, :, self.length] = values[:, :, 0]
        self.length += 1
        aligned = align(self.length)
        return KeysValues(self.keys[:, :, :aligned], self.values[:, :, :aligned])

    def reorder(self, rows: Int[Tensor, " R"]) -> None:
        """Replace row r by the previous row rows[r]; only the filled part is copied."""
        self.keys[:, :, : self.length] = self.keys[rows, :, : self.length]
        self.values[:, :, : self.length] = self.values[rows, :, : self.length]

    def select(self, rows: Int[Tensor, " R"]) -> None:
        """Keep only these rows."""
        self.keys, self.values = self.keys[rows], self.values[rows]


@dataclass
class TransformerState:
    """The decoder state of the Transformer; see `seq2seq.DecoderState`."""

    layers: list[LayerCache]
    memory: list[KeysValues]
    memory_mask: Bool[Tensor, "B S"]
    num_beams: int
    length: int = 0

    @classmethod
    def allocate(
        cls, memory: Sequence[KeysValues], memory_mask: Bool[Tensor, "B S"], *, num_beams: int, max_length: int
    ) -> TransformerState:
        """An empty state over the keys and values of the memory for each layer."""
        num_rows = memory_mask.shape[0] * num_beams

        def zeros(like: Tensor) -> Tensor:
            return like.new_zeros(num_rows, like.shape[1], align(max_length), like.shape[3])

        # Each head's keys are read at every step, so they are made contiguous once.
        memory = [KeysValues(keys.contiguous(), values.contiguous()) for keys, values in memory]
        caches = [LayerCache(zeros(keys), zeros(values)) for keys, values in memory]
        return cls(caches, list(memory), memory_mask, num_beams)

    @property
    def num_rows(self) -> int:
        """Rows in the state: sentences times beams."""
        return self.memory_mask.shape[0] * self.num_beams

    @property
    def mask(self) -> Bool[Tensor, "1 1 1 K"]:
        """Which cached positions the next token may attend to: itself and those before, not the zeros after them."""
        positions = torch.arange(align(self.length + 1), device=self.memory_mask.device)
        return (positions <= self.length)[None, None, None]

    def reorder(self, rows: Int[Tensor, " R"]) -> None:
        """Replace row r by the previous row rows[r] of the same sentence; the memory does not change."""
        for layer in self.layers:
            layer.reorder(rows)

    def select(self, sentences: Int[Tensor, " B"]) -> None:
        """Keep only these sentences."""
        beams = torch.arange(self.num_beams, device=sentences.device)
        rows = (sentences[:, None] * self.num_beams + beams).flatten()
        for layer in self.layers:
            layer.select(rows)
        self.memory = [KeysValues(keys[sentences], values[sentences]) for keys, values in self.memory]
        self.memory_mask = self.memory_mask[sentences]
