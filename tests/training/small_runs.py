"""Shared by the tests of training: a small model, random batches, a store of identical pairs, and a training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from heedful.config import ModelConfig, TrainingConfig
from heedful.data.batch_stream import BatchStream, fixed_batches
from heedful.data.packing import Batch
from heedful.data.store import PairStore, StoreWriter
from heedful.model.transformer import Transformer
from heedful.training.distributed import World
from heedful.training.logging import Evaluation, FirstStep, Sample, TrainRecord, ValidRecord
from heedful.training.loop import TrainingLoop

VOCAB, WIDTH, ROWS = 24, 16, 4
PAD, BOS, EOS = 0, 2, 3
CPU = torch.device("cpu")
ALONE = World(CPU)

MODEL = ModelConfig(
    source_vocab_size=VOCAB,
    target_vocab_size=VOCAB,
    d_model=16,
    d_ff=32,
    num_heads=2,
    num_encoder_layers=1,
    num_decoder_layers=1,
    max_length=WIDTH,
    norm_placement="pre",
    dropout=0.1,
)


def build(config: ModelConfig = MODEL, *, seed: int = 1) -> Transformer:
    """A model that depends on the seed only."""
    torch.manual_seed(seed)
    return Transformer(config)


def random_batch(num_rows: int = 6, *, width: int = 12, seed: int = 0) -> Batch:
    """Rows of two pairs and some padding, with random lengths."""
    chance = torch.Generator().manual_seed(seed)
    sides = []
    for _ in range(2):
        tokens = torch.randint(4, VOCAB, (num_rows, width), generator=chance)
        first = torch.randint(1, width // 2, (num_rows, 1), generator=chance)
        second = first + torch.randint(1, width // 2, (num_rows, 1), generator=chance)
        places = torch.arange(width).expand(num_rows, width)
        segments = (places < second).long() + ((places >= first) & (places < second)).long()
        sides.append((tokens * (segments > 0), segments, torch.where(segments == 2, places - first, places)))
    (source, source_segments, source_positions), (target, target_segments, target_positions) = sides
    shifted = torch.cat([torch.full((num_rows, 1), BOS), target[:, :-1]], dim=1)
    target_input = torch.where(target_positions == 0, BOS, shifted) * (target_segments > 0)
    return Batch(source, source_segments, source_positions, target_input, target, target_segments, target_positions)


def copying_store(directory: Path, num_pairs: int = 48, *, seed: int = 0) -> PairStore:
    """Pairs whose target is the source."""
    chance = np.random.default_rng(seed)
    sentences = [[*chance.integers(4, VOCAB, size=chance.integers(2, 9)).tolist(), EOS] for _ in range(num_pairs)]
    with StoreWriter(directory, VOCAB, VOCAB, corpus_weights=[1.0]) as writer:
        writer.add(sentences, sentences, [0] * num_pairs)
    return PairStore.open(directory)


class Recorder:
    """A reporter that stores all events and calls `then` after each training record."""

    def __init__(self, then: Callable[[TrainRecord], None] | None = None) -> None:
        self.notes: list[str] = []
        self.first_step: FirstStep | None = None
        self.train: list[TrainRecord] = []
        self.valid: list[ValidRecord] = []
        self.samples: list[tuple[Sample, ...]] = []
        self.then = then

    def note(self, message: str) -> None:
        self.notes.append(message)

    def started(self, record: FirstStep) -> None:
        self.first_step = record

    def trained(self, record: TrainRecord) -> None:
        self.train.append(record)
        if self.then is not None:
            self.then(record)

    def validated(self, record: ValidRecord, samples: tuple[Sample, ...]) -> None:
        self.valid.append(record)
        self.samples.append(samples)

    def close(self) -> None:
        pass


class Publisher:
    """Stores the last published weights and the kinds of all published weights."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.weights: dict[str, Tensor] = {}
        self.numbers: dict[str, Any] = {}

    def publish(self, weights: Mapping[str, Tensor], kind: str, numbers: dict[str, Any]) -> None:
        self.kinds.append(kind)
        self.weights = {name: tensor.clone() for name, tensor in weights.items()}
        self.numbers = numbers


def make_loop(
    directory: Path,
    store: PairStore,
    *,
    model: ModelConfig = MODEL,
    reporter: Any = None,
    publisher: Publisher | None = None,
    evaluate: Callable[[nn.Module], Evaluation | None] | None = None,
    world: World = ALONE,
    num_rows: int = ROWS,
    **training: Any,
) -> TrainingLoop:
    """A loop that trains and validates on the store; `training` are keys of `TrainingConfig`."""
    usual = {"learning_rate": 3e-3, "schedule": "constant", "warmup_steps": 1, "log_every": 1, "device": "cpu"}
    config = TrainingConfig(**{**usual, **training})
    torch.manual_seed(config.seed)
    built = Transformer(model)
    if world.size > 1 and config.sharding == "full":
        world.fully_shard(built, compile_layers=False)
    ranks = {"rank": world.rank, "world_size": world.size}
    loop = TrainingLoop(
        model=built,
        stream=BatchStream(
            store, width=WIDTH, rows_per_step=num_rows, seed=config.seed, bos_id=BOS, pad_id=PAD, **ranks
        ),
        valid_batches=lambda: fixed_batches(store, WIDTH, num_rows, BOS, PAD, **ranks),
        config=config,
        d_model=model.d_model,
        world=world,
        directory=directory,
        reporter=reporter if reporter is not None else Recorder(),
        publish=(publisher or Publisher()).publish,
        evaluate=evaluate,
    )
    if config.tokens_per_microbatch is not None:
        loop.step.rows_per_microbatch = max(1, config.tokens_per_microbatch // WIDTH)
    return loop


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two sets of tensors are bitwise equal."""
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())
