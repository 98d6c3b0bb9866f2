"""What a run remembers of its validations: the best one, the patience left, and the model that was published last."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Best:
    """The best validation so far, how many have passed since, and the numbers of the model that was published last."""

    value: float = math.inf
    step: int = 0
    since: int = 0
    published_loss: float | None = None
    published_bleu: float | None = None
    published_score_name: str = "BLEU"
    """What the number in `published_bleu` is."""
    published: float = math.inf
    """Their `value`."""
    published_step: int | None = None
    """After how many updates it stood."""
    start: float | None = None
    """The value of the model that the run went on from; None if it began from nothing."""

    @property
    def is_start(self) -> bool:
        """Whether the published model is the one that the run went on from, as it was."""
        return self.start is not None and self.published_step == 0
