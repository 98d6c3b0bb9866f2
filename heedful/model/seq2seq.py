"""The interface between a model and the search: the `Seq2Seq` protocol and its three types.

`encode` reads the sources once, `start` creates a decoder state for them, each `step` feeds one token per row and
returns the logits of the next. A state has `num_beams` rows for every sentence: row r belongs to sentence r //
num_beams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from heedful.tensor_types import Bool, Float, Int


@dataclass(frozen=True)
class Memory:
    """The encoder's output and which of its positions are real (True = may attend)."""

    values: Float[Tensor, "B S D"]
    mask: Bool[Tensor, "B S"]


@dataclass(frozen=True)
class StepOutput:
    """Logits of the next token, and the cross-attention weights if they were requested."""

    logits: Float[Tensor, "R V"]
    attention: Float[Tensor, "R L H S"] | None


@runtime_checkable
class DecoderState(Protocol):
    """What a model keeps between two steps; it is stored outside the model."""

    @property
    def num_rows(self) -> int:
        """Rows in the state: sentences times beams."""
        ...

    def reorder(self, rows: Int[Tensor, " R"]) -> None:
        """Replace row r by the previous row rows[r]; both belong to the same sentence."""
        ...

    def select(self, sentences: Int[Tensor, " B"]) -> None:
        """Keep only these sentences (with all their rows), in this order; finished ones are removed."""
        ...


@runtime_checkable
class Seq2Seq(Protocol):
    """A sequence-to-sequence model of any architecture."""

    @property
    def max_length(self) -> int:
        """Longest source or target, in tokens, that the model accepts."""
        ...

    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]) -> Memory:
        """Read the sources; the mask is True on real tokens."""
        ...

    def start(self, memory: Memory, *, num_beams: int, max_length: int) -> DecoderState:
        """Create a state for up to max_length target tokens per row."""
        ...

    def step(self, tokens: Int[Tensor, " R"], state: DecoderState, *, need_weights: bool = False) -> StepOutput:
        """Feed one token per row (first the start token), update the state, return the logits of the next token."""
        ...
