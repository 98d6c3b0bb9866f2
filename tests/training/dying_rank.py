"""`heedful train` under torchrun; rank 1 is killed after five steps of its first start.

python -m torch.distributed.run --nproc-per-node=2 --max-restarts=1 tests/training/dying_rank.py train …
"""

from __future__ import annotations

import os
import signal
from typing import Any

from heedful.cli import main
from heedful.training.loop import TrainingLoop

DEATH = 5
advance = TrainingLoop._advance


def advance_or_die(loop: TrainingLoop, *arguments: Any) -> None:
    """End the process as kill -9 does."""
    advance(loop, *arguments)
    is_first_start = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    if loop.progress.steps == DEATH and loop.world.rank == 1 and is_first_start:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    TrainingLoop._advance = advance_or_die  # type: ignore[method-assign]
    main()
