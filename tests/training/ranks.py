"""The program that the distributed tests start with torchrun: the small runs of `small_runs`, on all ranks.

python -m torch.distributed.run --nproc-per-node=2 tests/training/ranks.py FOLDER STORE
Every rank trains all runs in turn; rank 0 writes the results to FOLDER/of-2.json.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from heedful.data.packing import PrepackedRows
from heedful.data.shuffle import BlockShuffle
from heedful.data.store import PairStore
from heedful.training.checkpoint import load_state
from heedful.training.distributed import World, init_distributed
from heedful.training.logging import Evaluation
from heedful.training.loop import TrainingLoop
from tests.training.small_runs import MODEL, WIDTH, Publisher, Recorder, make_loop

PLAIN = replace(MODEL, dropout=0.0)
USUAL: dict[str, Any] = {"steps": 6, "validate_every": 3, "clip_norm": 0.5, "label_smoothing": 0.1}
KEPT: dict[str, Any] = {"ema_decay": 0.9, "average_last": 2, "final_weights": "average", "weight_decay": 0.1}
RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "microbatches": {"tokens_per_microbatch": 16, "r_drop": 0.5, **KEPT},
    "divided": {"sharding": "full", "tokens_per_microbatch": 16, **KEPT},
    "blocks": {},
    "muon": {"optimizer": "muon", "learning_rate": 1e-2, **KEPT},
}
RESUMED: dict[str, dict[str, Any]] = {
    "replicated": {"ema_decay": 0.9},
    "shards": {"ema_decay": 0.9, "sharding": "full"},
    "resumed blocks": {},
}
STOPS = {4: 2, 2: 4, 1: None}
"""The step at which each number of ranks stops a run, which the next number resumes."""


def outcome(loop: TrainingLoop, publisher: Publisher) -> dict[str, Any]:
    """Results that must not depend on the number of ranks."""
    recorder = loop.reporter
    assert isinstance(recorder, Recorder)
    return {
        "losses": [record.loss for record in recorder.train],
        "norms": [record.gradient_norm for record in recorder.train],
        "tokens": [record.tokens for record in recorder.train],
        "skipped": [record.skipped_steps for record in recorder.train],
        "valid": [[record.weights, record.loss, record.bleu] for record in recorder.valid],
        "kinds": publisher.kinds,
        "published": {name: tensor.double().sum().item() for name, tensor in publisher.weights.items()},
        "stopped_by": loop.stopped_by,
        "steps": loop.progress.steps,
    }


def evaluate_on(world: World) -> Any:
    """An evaluation on rank 0 only."""
    return lambda model: Evaluation(12.5, "signature", ()) if world.is_rank0 else None


def whole_run(folder: Path, store: PairStore, world: World, name: str) -> dict[str, Any]:
    """An uninterrupted run."""
    publisher = Publisher()
    settings: dict[str, Any] = {**USUAL, **RUNS[name]}
    loop = make_loop(
        folder,
        store,
        model=PLAIN,
        publisher=publisher,
        evaluate=evaluate_on(world),
        world=world,
        num_rows=5,
        **settings,
    )
    use_order(loop, folder, name)
    loop.run()
    loop.publish_final_weights()
    return outcome(loop, publisher)


def part_of_run(folder: Path, store: PairStore, world: World, name: str) -> dict[str, Any]:
    """Resume a run of another number of ranks, until the next stop."""
    publisher = Publisher()
    loop = make_loop(
        folder, store, model=PLAIN, publisher=publisher, world=world, num_rows=5, **{**USUAL, **RESUMED[name]}
    )
    use_order(loop, folder, name)
    state = load_state(folder / "states", lambda note: None, world)
    if state is not None:
        loop.restore(state)
    stop_after(loop, STOPS[world.size])
    loop.run()
    return outcome(loop, publisher)


def use_order(loop: TrainingLoop, folder: Path, name: str) -> None:
    """Use block shuffling for runs whose name ends with "blocks"."""
    if name.endswith("blocks"):
        prepacked = PrepackedRows.open(folder.parent / "store", loop.stream.store, WIDTH)
        loop.stream.rows = BlockShuffle(prepacked, seed=loop.config.seed, blocks_per_window=2)


def with_dropout(folder: Path, store: PairStore, world: World) -> dict[str, Any]:
    """Two runs with dropout: one uninterrupted, one stopped and resumed. Every rank has its own random numbers."""
    results = []
    for number, stops in enumerate([[None], [2, None]]):
        for stop in stops:
            loop = make_loop(folder / str(number), store, world=world, num_rows=5, **USUAL)
            state = load_state(folder / str(number) / "states", lambda note: None, world)
            if state is not None:
                loop.restore(state)
            stop_after(loop, stop)
            loop.run()
        assert isinstance(loop.reporter, Recorder)
        results.append([record.loss for record in loop.reporter.train][-4:])
    return {"whole": results[0], "stopped": results[1]}


def not_finite_on_one_rank(folder: Path, store: PairStore, world: World, sharding: str) -> dict[str, Any]:
    """The last rank's losses of steps 2 and 3 are not finite."""
    publisher = Publisher()
    loop = make_loop(folder, store, model=PLAIN, publisher=publisher, world=world, sharding=sharding, **USUAL)
    original, calls = loop.step._cross_entropy, [0]

    def spoiled(*arguments: Any) -> Any:
        calls[0] += 1
        bad = world.rank == world.size - 1 and calls[0] in (2, 3)
        return original(*arguments) * (math.nan if bad else 1.0)

    loop.step._cross_entropy = spoiled  # type: ignore[method-assign]
    loop.run()
    return outcome(loop, publisher)


def stopped_by_one_rank(folder: Path, store: PairStore, world: World) -> dict[str, Any]:
    """Only the last rank receives the signal."""
    publisher = Publisher()
    loop = make_loop(folder, store, model=PLAIN, publisher=publisher, world=world, **USUAL)
    if world.rank == world.size - 1:
        loop.reporter = Recorder(
            then=lambda record: os.kill(os.getpid(), signal.SIGTERM) if record.step in (2, 3) else None
        )
    loop.run()
    return outcome(loop, publisher)


def stop_after(loop: TrainingLoop, steps: int | None) -> None:
    """Stop after `steps` steps, as a signal would."""
    advance = loop._advance

    def advance_and_stop(*arguments: Any) -> None:
        advance(*arguments)
        if loop.progress.steps == steps:
            loop.stopped_by = "SIGTERM"

    loop._advance = advance_and_stop  # type: ignore[method-assign]


def main(folder: Path, store: PairStore) -> None:
    """All runs on all ranks."""
    world = init_distributed("cpu")
    with world.process_group():
        results = {name: whole_run(folder / f"{name}-{world.size}", store, world, name) for name in RUNS}
        for name in RESUMED:
            results[name] = part_of_run(folder / name, store, world, name)
        if world.size == 2:
            results["dropout"] = with_dropout(folder / "dropout", store, world)
            for sharding in ("none", "full"):
                place = folder / f"nan-{sharding}"
                results[f"nan_{sharding}"] = not_finite_on_one_rank(place, store, world, sharding)
            results["signal"] = stopped_by_one_rank(folder / "signal", store, world)
        if world.is_rank0:
            (folder / f"of-{world.size}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), PairStore.open(sys.argv[2]))
