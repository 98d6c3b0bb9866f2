"""Models without weights: logits are a fixed function of the source and the previous tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heedful.config import DecodingConfig
from heedful.decoding.constraints import SpecialTokens
from heedful.model.seq2seq import Memory, StepOutput
from heedful.search_types import length_penalty

PAD, EOS, BOS = 0, 1, 2
SPECIAL = SpecialTokens(bos_id=BOS, eos_id=EOS, pad_id=PAD)
NextLogProbs = Callable[[tuple[int, ...]], np.ndarray]


@dataclass
class TableState:
    """Stores the source of every sentence and the tokens of every row."""

    sources: list[tuple[int, ...]]
    width: int
    prefixes: list[tuple[int, ...]]
    num_beams: int
    max_length: int

    @property
    def num_rows(self) -> int:
        return len(self.prefixes)

    def reorder(self, rows: Tensor) -> None:
        assert (rows // self.num_beams == torch.arange(len(rows)) // self.num_beams).all(), "a row changed its sentence"
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]

    def select(self, sentences: Tensor) -> None:
        kept = sentences.tolist()
        self.sources = [self.sources[b] for b in kept]
        self.prefixes = [self.prefixes[b * self.num_beams + n] for b in kept for n in range(self.num_beams)]


class TableModel:
    """Logits drawn once for every (source, prefix)."""

    max_length = 1000

    def __init__(self, *, vocab_size: int = 6, seed: int = 1, scale: float = 1.5) -> None:
        self.vocab_size, self.seed, self.scale = vocab_size, seed, scale
        self.table: dict[tuple[tuple[int, ...], tuple[int, ...]], np.ndarray] = {}
        self.largest_batch = 0

    def logits(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        random = np.random.default_rng([self.seed, *source, 1_000_003, *prefix])
        return random.normal(scale=self.scale, size=self.vocab_size)

    def look_up(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        if (source, prefix) not in self.table:
            self.table[source, prefix] = self.logits(source, prefix).astype(np.float32)
        return self.table[source, prefix]

    def log_probs(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        logits = self.look_up(source, prefix).astype(np.float64)
        return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()

    def encode(self, source: Tensor, source_mask: Tensor) -> Memory:
        self.largest_batch = max(self.largest_batch, len(source))
        return Memory(source[:, :, None].double(), source_mask)

    def start(self, memory: Memory, *, num_beams: int, max_length: int) -> TableState:
        sources = [
            tuple(values[mask, 0].long().tolist()) for values, mask in zip(memory.values, memory.mask, strict=True)
        ]
        width = memory.mask.shape[1]
        return TableState(sources, width, [()] * len(sources) * num_beams, num_beams, max_length)

    def step(self, tokens: Tensor, state: TableState, *, need_weights: bool = False) -> StepOutput:
        assert len(tokens) == state.num_rows == len(state.sources) * state.num_beams
        state.prefixes = [(*prefix, token) for prefix, token in zip(state.prefixes, tokens.tolist(), strict=True)]
        assert len(state.prefixes[0]) <= state.max_length, "more steps than max_length"
        rows = [
            (state.sources[row // state.num_beams], prefix[1:])  # without the start token
            for row, prefix in enumerate(state.prefixes)
        ]
        logits = torch.tensor(np.array([self.look_up(*row) for row in rows]))
        attention = torch.stack([self.attention(*row, state.width) for row in rows]) if need_weights else None
        return StepOutput(logits, attention)

    def attention(self, source: tuple[int, ...], prefix: tuple[int, ...], width: int) -> Tensor:
        weights = torch.zeros(2, 3, width)
        weights[..., min(len(prefix), len(source) - 1)] = 1.0
        return weights


class CopyModel(TableModel):
    """Copies its source, with a little noise; the first `skip` source tokens (a tag) are omitted."""

    def __init__(self, *, vocab_size: int, skip: int = 0, scale: float = 0.5) -> None:
        super().__init__(vocab_size=vocab_size, scale=scale)
        self.skip = skip

    def logits(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        logits = super().logits(source[: len(prefix) + self.skip + 1], prefix)
        logits[source[min(len(prefix) + self.skip, len(source) - 1)]] += 20.0
        return logits

    def attention(self, source: tuple[int, ...], prefix: tuple[int, ...], width: int) -> Tensor:
        return super().attention(source, (0,) * self.skip + prefix, width)


def batch_of(sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Padded sources and their mask."""
    width = max(map(len, sources))
    source = torch.tensor([[*ids, *[PAD] * (width - len(ids))] for ids in sources])
    return source, torch.arange(width) < torch.tensor([[len(ids)] for ids in sources])


def naive_beam(
    next_log_probs: NextLogProbs, config: DecodingConfig, max_length: int, forbidden: Sequence[int] = (PAD, BOS)
) -> list[tuple[tuple[int, ...], float, float]]:
    """Reference beam search for one sentence, without a cache or early stopping."""
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    finished = []
    for step in range(max_length + 1):
        candidates = []
        for place, (prefix, log_prob) in enumerate(live):
            for token, value in enumerate(next_log_probs(prefix)):
                if token not in forbidden and (token == EOS or step < max_length):
                    candidates.append((-(log_prob + value), place, token, (*prefix, token)))
        candidates.sort()
        best = [(tokens, -negative) for negative, _, _, tokens in candidates[: 2 * config.beam_size]]
        finished += [found for found in best[: config.beam_size] if found[0][-1] == EOS]
        live = [found for found in best if found[0][-1] != EOS][: config.beam_size]
        if config.beam_size == 1 and finished:
            break
    scored = [(tokens, value, value / length_penalty(float(len(tokens)), config)) for tokens, value in finished]
    return sorted(scored, key=lambda found: -found[2])[: config.num_best]


def exhaustive(
    next_log_probs: NextLogProbs, config: DecodingConfig, max_length: int, ordinary: Sequence[int]
) -> list[tuple[tuple[int, ...], float, float]]:
    """All possible sequences, best first."""
    found = []
    for length in range(config.min_length, max_length + 1):
        for words in itertools.product(ordinary, repeat=length):
            tokens = (*words, EOS)
            log_prob = sum(float(next_log_probs(tokens[:place])[token]) for place, token in enumerate(tokens))
            found.append((tokens, log_prob, log_prob / length_penalty(float(len(tokens)), config)))
    return sorted(found, key=lambda one: -one[2])
