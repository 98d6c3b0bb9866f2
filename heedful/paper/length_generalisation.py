"""Positions and length (section 3.5): train on short sequences, test on sequences up to four times longer.

Sinusoidal, learned and rotary positions: accuracy by length on copying, BLEU by length on translation, and how well a
linear probe reads the position off the residual stream after each layer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from heedful.build_model import Model, build_model
from heedful.config import CorpusConfig, DecodingConfig, ModelConfig, TokenizerConfig, TrainingConfig
from heedful.data.packing import Batch
from heedful.decoding.translator import Translator
from heedful.errors import ConfigError
from heedful.evaluation.score import score
from heedful.model.transformer import Transformer
from heedful.paper.synthetic_tasks import (
    EOS_ID,
    FIRST_DIGIT,
    PAD_ID,
    SyntheticTraining,
    accuracy,
    small_config,
    train_on_task,
)
from heedful.tensor_types import Float, Int
from heedful.text.corpus import SentencePair, read_pairs
from heedful.text.tokenizer import Tokenizer, train_tokenizer
from heedful.training.optimizer import Schedule
from heedful.training.step import TrainingStep

KINDS = ("sinusoidal", "learned", "rotary")
LONGER = 4
"""The longest test sequences have this many times the length of the longest training sequence."""
PROBE_SEQUENCES, PROBE_RIDGE = 200, 1e-3

Advance = Callable[[int], None]
"""Called with the number of updates done since the last call."""


@dataclass(frozen=True)
class CopySettings:
    """Copying digits: trained on 1 to `max_length` digits, tested on `test_lengths`."""

    max_length: int = 16
    test_lengths: tuple[int, ...] = (4, 8, 12, 16, 17, 18, 20, 24, 32, 48, 64)
    steps: int = 2000
    num_pairs: int = 100


@dataclass(frozen=True)
class TranslationSettings:
    """Translation: trained on single sentences, tested on texts of several sentences from the test corpus."""

    source: str
    target: str
    test_source: str
    test_target: str
    sentences: tuple[int, ...] = (1, 2, 3, 4, 6)
    max_length: int = 16
    """Longest source or target of a training pair, in subwords, the end token included."""
    vocab_size: int = 1500
    steps: int = 1200
    pairs_per_batch: int = 48


@dataclass
class LengthRun:
    """One trained model and its measurements."""

    task: str
    positions: str
    seed: int
    by_length: list[dict[str, Any]]
    """For each test length: length, and exact match and token accuracy, or BLEU."""
    probe: dict[str, float]
    """Accuracy of the linear probe by name of the layer."""
    cpu_seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)


# ---- copying ---------------------------------------------------------------------------------------------------------


def train_copy(
    positions: str, seed: int, settings: CopySettings, *, advance: Advance = lambda num_done: None
) -> LengthRun:
    """Train on copying short sequences of digits, test by length, and probe.

    The table of learned positions covers all test lengths; its rows beyond the training lengths are never trained.
    """
    start = time.process_time()
    longest = LONGER * settings.max_length
    if max(settings.test_lengths) > longest:
        raise ConfigError(f"test lengths must be at most {longest}: {LONGER} times the training length.")
    trained = train_on_task(
        small_config(positions=positions, max_length=longest + 6),
        SyntheticTraining("copy", settings.steps, seed, 1, settings.max_length),
        report=lambda name, num_done, total: advance(num_done),
    )
    by_length = [
        asdict(accuracy(trained.model, "copy", length, num_pairs=settings.num_pairs, seed=seed))
        for length in settings.test_lengths
    ]
    generator = random.Random(f"probe {seed}")
    sources = torch.tensor([
        [*(FIRST_DIGIT + generator.randrange(10) for _ in range(settings.max_length)), EOS_ID]
        for _ in range(2 * PROBE_SEQUENCES)
    ])  # fmt: skip
    probe = probe_positions(trained.model, sources, num_positions=settings.max_length)
    return LengthRun("copy", positions, seed, by_length, probe, round(time.process_time() - start, 1))


# ---- the linear probe ------------------------------------------------------------------------------------------------


@torch.inference_mode()
def probe_positions(model: nn.Module, sources: Int[Tensor, "B S"], *, num_positions: int) -> dict[str, float]:
    """Accuracy with which a linear classifier reads the position off the residual stream, on held-out sequences.

    The classifier is fitted by ridge regression on the first half of the sequences. Chance is 1 / num_positions.
    """
    assert isinstance(model, Transformer)
    streams = residual_streams(model, sources)
    half = len(sources) // 2
    labels = torch.arange(num_positions)
    found = {}
    for name, stream in streams.items():
        x = stream[:, :num_positions].double()
        x = torch.cat((x, x.new_ones(*x.shape[:2], 1)), dim=-1)
        train, test = x[:half].flatten(0, 1), x[half:]
        targets = torch.eye(num_positions, dtype=torch.float64).repeat(half, 1)
        gram = train.T @ train
        ridge = PROBE_RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=torch.float64)
        weights = torch.linalg.solve(gram + ridge, train.T @ targets)
        found[name] = (test @ weights).argmax(dim=-1).eq(labels).double().mean().item()
    return found


def residual_streams(model: Transformer, sources: Int[Tensor, "B S"]) -> dict[str, Float[Tensor, "B S D"]]:
    """The encoder's residual stream: the input of the first layer, and the output of each layer."""
    streams: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor | None = None) -> None:
        streams[name] = (inputs[0] if output is None else output).detach()

    layers = model.encoder.layers
    hooks = [layers[0].register_forward_pre_hook(partial(keep, "0"))]
    hooks += [layer.register_forward_hook(partial(keep, str(index))) for index, layer in enumerate(layers, 1)]
    model.encode(sources, torch.ones_like(sources, dtype=torch.bool))
    for hook in hooks:
        hook.remove()
    return streams


# ---- translation -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TranslationData:
    """Training pairs as ids, and the sentence pairs of the test corpus."""

    tokenizer: Tokenizer
    pairs: list[tuple[list[int], list[int]]]
    test: list[SentencePair]


def read_translation_data(settings: TranslationSettings) -> TranslationData:
    """Read the corpora, train the subwords, and drop training pairs that are too long."""
    train = _pairs_of(settings.source, settings.target)
    test = _pairs_of(settings.test_source, settings.test_target)
    known = {pair.source for pair in test}
    train = [pair for pair in train if pair.source not in known]
    tokenizer = train_tokenizer(
        [(pair.source, pair.target) for pair in train], TokenizerConfig(vocab_size=settings.vocab_size)
    )
    sources = tokenizer.encode_sources([pair.source for pair in train])
    targets = tokenizer.encode_targets([pair.target for pair in train])
    pairs = [
        (source, target)
        for source, target in zip(sources, targets, strict=True)
        if max(len(source), len(target)) <= settings.max_length
    ]
    if len(pairs) < settings.pairs_per_batch or len(test) < max(settings.sentences):
        raise ConfigError(
            f"{settings.source}: too few sentence pairs of at most {settings.max_length} subwords ({len(pairs)}), or "
            f"{settings.test_source}: too few ({len(test)})."
        )
    return TranslationData(tokenizer, pairs, test)


def _pairs_of(source: str, target: str) -> list[SentencePair]:
    corpus = CorpusConfig(source=source, target=target)
    return [pair for pair in read_pairs(corpus) if isinstance(pair, SentencePair)]


def translation_config(positions: str, tokenizer: Tokenizer, settings: TranslationSettings) -> ModelConfig:
    """A Transformer of two layers each side with d_model 128; accepts texts of all test lengths."""
    return small_config(
        positions=positions, d_model=128, d_ff=256, dropout=0.1,
        source_vocab_size=tokenizer.source_vocab_size, target_vocab_size=tokenizer.target_vocab_size,
        max_length=4 * LONGER * settings.max_length,
    )  # fmt: skip


def train_translation(
    positions: str,
    seed: int,
    settings: TranslationSettings,
    data: TranslationData,
    *,
    advance: Advance = lambda num_done: None,
) -> LengthRun:
    """Train on single sentences; BLEU of texts of several sentences, translated whole."""
    start = time.process_time()
    torch.manual_seed(seed)
    config = translation_config(positions, data.tokenizer, settings)
    model = build_model(config)
    _train(model, config, _batches(data.pairs, settings.pairs_per_batch, seed), settings.steps, advance)
    by_length, longest = [], max(len(source) for source, _ in data.pairs)
    translator = Translator(model, data.tokenizer, DecodingConfig(method="greedy", checks=False))
    singles: list[str] = []
    for count in settings.sentences:
        sources, references = join_sentences(data.test, count)
        lengths = [len(ids) for ids in data.tokenizer.encode_sources(sources)]
        texts = [one.text for one in translator.translate(sources, split="never", protect=False)]
        singles = singles or texts
        one_by_one = [" ".join(singles[begin : begin + count]) for begin in range(0, len(sources) * count, count)]
        by_length.append({
            "sentences": count,
            "length": sum(lengths) / len(lengths),
            "longer_than_trained": sum(length > longest for length in lengths) / len(lengths),
            "bleu": _bleu(texts, references),
            "bleu_one_by_one": _bleu(one_by_one, references),
            "target_length_ratio": sum(map(len, texts)) / sum(map(len, references)),
        })  # fmt: skip
    sources, _ = join_sentences(data.test, 2)
    ids = [one[: settings.max_length] for one in data.tokenizer.encode_sources(sources)]
    probed = torch.tensor([one for one in ids if len(one) == settings.max_length])
    probe = probe_positions(model, probed, num_positions=settings.max_length)
    details = {"longest_trained": longest, "num_pairs": len(data.pairs)}
    return LengthRun("translation", positions, seed, by_length, probe, round(time.process_time() - start, 1), details)


def join_sentences(pairs: Sequence[SentencePair], count: int) -> tuple[list[str], list[str]]:
    """Texts of `count` consecutive sentences: sources and references; a rest is left out."""
    groups = [pairs[begin : begin + count] for begin in range(0, len(pairs) - count + 1, count)]
    return (
        [" ".join(pair.source for pair in group) for group in groups],
        [" ".join(pair.target for pair in group) for group in groups],
    )


def _bleu(texts: Sequence[str], references: Sequence[str]) -> float:
    return score(texts, references, metrics=("bleu",), bootstrap=0)[0].value


def _batches(pairs: Sequence[tuple[list[int], list[int]]], size: int, seed: int) -> Iterator[Batch]:
    """Endless batches: every epoch in a new order, pairs of similar length together."""
    generator = random.Random(seed)
    while True:
        pool = list(pairs)
        generator.shuffle(pool)
        by_length = sorted(pool, key=lambda pair: (len(pair[1]), len(pair[0])))  # stable: random among equals
        batches = [by_length[begin : begin + size] for begin in range(0, len(pool) - size + 1, size)]
        generator.shuffle(batches)
        for batch in batches:
            yield _pad(batch)


def _pad(pairs: Sequence[tuple[list[int], list[int]]], *, bos_id: int = 1) -> Batch:
    def rows(sequences: Sequence[Sequence[int]]) -> Tensor:
        width = max(map(len, sequences))
        return torch.tensor([[*ids, *[PAD_ID] * (width - len(ids))] for ids in sequences])

    source, target_output = rows([source for source, _ in pairs]), rows([target for _, target in pairs])
    target_input = rows([[bos_id, *target[:-1]] for _, target in pairs])
    places = [torch.arange(x.shape[1]).expand_as(x).contiguous() for x in (source, target_output)]
    segments = [rows([[1] * len(pair[side]) for pair in pairs]) for side in range(2)]
    return Batch(source, segments[0], places[0], target_input, target_output, segments[1], places[1])


def _train(model: Model, config: ModelConfig, batches: Iterator[Batch], steps: int, advance: Advance) -> None:
    training = TrainingConfig(
        steps=steps, warmup_steps=max(1, steps // 10), learning_rate=3e-3, schedule="cosine", clip_norm=1.0,
        compile=False, precision="fp32",
    )  # fmt: skip
    update, schedule = TrainingStep(model, training, torch.device("cpu")), Schedule(training, config.d_model)
    model.train()
    for step, batch in zip(range(1, steps + 1), batches, strict=False):
        update(batch, batch.num_tokens, schedule.rate(step, (step - 1) / steps))
        advance(1)
    model.eval()
