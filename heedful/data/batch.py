"""A batch of rows: the input of the model and the targets of the loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.tensor_types import Int


@dataclass(frozen=True)
class Batch:
    """Rows of packed sentence pairs. Segment numbers distinguish the pairs of a row; 0 is padding."""

    source: Int[Tensor, "B S"]
    source_segments: Int[Tensor, "B S"]
    source_positions: Int[Tensor, "B S"]
    target_input: Int[Tensor, "B T"]
    target_output: Int[Tensor, "B T"]
    target_segments: Int[Tensor, "B T"]
    target_positions: Int[Tensor, "B T"]

    @property
    def num_rows(self) -> int:
        """Rows in the batch, empty ones included."""
        return self.source.shape[0]

    @property
    def num_tokens(self) -> int:
        """Target tokens, padding excluded: the tokens the loss is computed over."""
        return int((self.target_segments > 0).sum())

    @property
    def inputs(self) -> dict[str, Tensor]:
        """The arguments of a model: `model(**batch.inputs)`."""
        return {  # spelled out, because torch.compile cannot trace vars()
            "source": self.source,
            "source_segments": self.source_segments,
            "source_positions": self.source_positions,
            "target_input": self.target_input,
            "target_segments": self.target_segments,
            "target_positions": self.target_positions,
        }

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """The same batch on another device."""
        return Batch(**{name: tensor.to(device, non_blocking=non_blocking) for name, tensor in vars(self).items()})

    def pin_memory(self) -> Batch:
        """The same batch in page-locked memory, for asynchronous copies to a GPU."""
        return Batch(**{name: tensor.pin_memory() for name, tensor in vars(self).items()})

    def rows(self, start: int, stop: int, stride: int = 1) -> Batch:
        """A microbatch: rows start to stop, or every `stride`-th of them."""
        return Batch(**{name: tensor[start:stop:stride] for name, tensor in vars(self).items()})

    def repeat_rows(self) -> Batch:
        """All rows twice: the batch followed by a copy of itself."""
        return Batch(**{name: torch.cat((tensor, tensor)) for name, tensor in vars(self).items()})
