"""The objective of a masked language model: hide some tokens of a batch, and predict only these."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.data.packing import Batch
from heedful.data.permutation import combined_key

SHARE = 0.15
"""Share of the tokens that are predicted."""
MASKED, RANDOM = 0.8, 0.1
"""Of these, the shares that the mask token and a random token replace; the others stay as they are."""
VALIDATION = 1 << 40
"""In place of the epoch: validation hides the same tokens every time."""


@dataclass(frozen=True)
class Masking:
    """Which tokens are hidden, as a function of the seed and the row's position in the training, and nothing else."""

    seed: int
    mask_id: int
    eos_id: int
    ordinary_ids: tuple[int, ...]
    """Ids that a random token may have: no special token."""

    def apply(self, batch: Batch, epoch: int, step: int, *, first_row: int = 0, stride: int = 1) -> Batch:
        """The batch with hidden tokens in `source`, and target segments only where a token is to be predicted.

        The rows are rows `first_row`, `first_row + stride`, … of the step. Every row that has tokens has at least one
        to predict.
        """
        tokens = batch.target_output.numpy()
        hidden, chosen = tokens.copy(), np.zeros(tokens.shape, dtype=np.bool_)
        is_candidate = (batch.target_segments.numpy() > 0) & (tokens != self.eos_id)
        for row in range(len(tokens)):
            positions = np.flatnonzero(is_candidate[row])
            if positions.size:
                key = combined_key(self.seed, epoch, step, first_row + stride * row)
                self._hide(hidden[row], chosen[row], positions, np.random.Generator(np.random.Philox(key=key)))
        return replace(
            batch,
            source=torch.from_numpy(hidden),
            source_segments=batch.target_segments,
            source_positions=batch.target_positions,
            target_segments=batch.target_segments * torch.from_numpy(chosen),
        )

    def _hide(
        self,
        hidden: NDArray[np.int64],
        chosen: NDArray[np.bool_],
        positions: NDArray[np.intp],
        random: np.random.Generator,
    ) -> None:
        """Hide tokens of one row in place; `positions` are those that may be hidden."""
        draws, kinds = random.random(positions.size), random.random(positions.size)
        is_chosen = draws < max(SHARE, float(draws.min()) + 1e-12)
        positions, kinds = positions[is_chosen], kinds[is_chosen]
        others = np.array(self.ordinary_ids)[random.integers(len(self.ordinary_ids), size=positions.size)]
        chosen[positions] = True
        replaced = np.where(kinds < MASKED, self.mask_id, np.where(kinds < MASKED + RANDOM, others, hidden[positions]))
        hidden[positions] = replaced
