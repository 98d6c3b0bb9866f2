"""Types that every search engine shares: hypotheses, special tokens, length penalties, batch limits, search settings.

Nothing here imports torch or numpy, so the native engine can use these too.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypedDict, TypeVar, runtime_checkable

from heedful.config import DecodingConfig

if TYPE_CHECKING:
    from heedful.text.tokenizer import Tokenizer

Length = TypeVar("Length", float, Any)  # a tensor too, but torch is not imported for its name alone

ConstraintFactory = Callable[[Sequence[str], Sequence[int], Any], Any]
"""(source sentences, maximum length of each translation, device) -> a `Constraint` on their translations."""
MIN_COUNTED_TOKENS = 16
"""Shorter sentences count as this many tokens of a batch: each row also costs logits over the whole vocabulary."""


@dataclass(frozen=True)
class Hypothesis:
    """One candidate translation of one sentence, in target ids."""

    tokens: list[int]
    """Target ids without the start token; the end token is last."""
    token_log_probs: list[float]
    """Log-probability of each token given those before it."""
    log_prob: float
    """Sum of `token_log_probs`."""
    score: float
    """`log_prob`, less the cost of misplaced required phrases, divided by the length penalty; ranks hypotheses."""
    finished: bool = True
    """False if the model did not end the translation but the maximum length did."""
    missing: tuple[int, ...] = ()
    """Indices of the required phrases that it does not contain."""


@dataclass(frozen=True)
class SpecialTokens:
    """The target ids that a search must know."""

    bos_id: int
    eos_id: int
    pad_id: int
    forbidden: tuple[int, ...] = ()
    """Further ids that no translation may contain, such as the unknown token and language tags."""
    byte_ids: tuple[int, ...] = ()
    """The ids of the 256 byte tokens; empty if the vocabulary has none."""


def special_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """The special tokens of a tokenizer. Unknown tokens, language tags, source tags and U+FFFD are forbidden."""
    tags = tokenizer.control_ids if tokenizer.joint else ()
    return SpecialTokens(
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        pad_id=tokenizer.pad_id,
        forbidden=(tokenizer.unk_id, *tags, *tokenizer.broken_ids),
        byte_ids=tokenizer.byte_ids,
    )


def length_penalty(length: Length, config: DecodingConfig) -> Length:
    """The divisor of a hypothesis's log-probability: score = log_prob / length_penalty.

    A sum of log-probabilities favours short translations; the penalty corrects for that. It never decreases with the
    length, which includes the end token.

    paper    ((5 + length) / 6)^α      Wu et al. 2016, used in section 6.1 of the paper
    average  length^α                  with α = 1 the mean log-probability per token
    none     1
    """
    if config.length_penalty == "paper":
        return ((length + 5.0) / 6.0) ** config.length_penalty_alpha
    if config.length_penalty == "average":
        return length**config.length_penalty_alpha
    return length**0.0


def rows_per_sentence(config: DecodingConfig) -> int:
    """How many hypotheses of one sentence are computed at the same time."""
    return {"beam": config.beam_size, "greedy": 1, "sampling": config.num_best}[config.method]


def longest_first(lengths: Sequence[int]) -> list[int]:
    """Indices of the sentences from longest to shortest; equally long ones keep their order."""
    return sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))


class AttentionWeights:
    """Attention of one sentence, a row per target token and a column per source token; numpy reads it as an array.

    `numpy.asarray(weights)` gives a float32 array. The class itself needs no numpy, which translating does without.
    """

    def __init__(self, rows: Sequence[array[float]], num_columns: int) -> None:
        self.rows, self.shape = list(rows), (len(rows), num_columns)

    @classmethod
    def of(cls, weights: Any) -> AttentionWeights:
        """The weights of a numpy array of float32."""
        return cls([array("f", row.tobytes()) for row in weights], weights.shape[1])

    @classmethod
    def block_diagonal(cls, blocks: Sequence[AttentionWeights]) -> AttentionWeights:
        """The weights of several sentences as those of one text: no sentence attends to another."""
        num_columns = sum(block.shape[1] for block in blocks)
        rows: list[array[float]] = []
        column = 0
        for block in blocks:
            before, after = (array("f", bytes(4 * n)) for n in (column, num_columns - column - block.shape[1]))
            rows += [before + row + after for row in block.rows]
            column += block.shape[1]
        return cls(rows, num_columns)

    def __getitem__(self, index: tuple[slice, slice]) -> AttentionWeights:
        """The part in a slice of rows and a slice of columns."""
        rows, columns = index
        return AttentionWeights([row[columns] for row in self.rows[rows]], len(range(self.shape[1])[columns]))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[array[float]]:
        return iter(self.rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:  # noqa: FBT001
        import numpy as np

        if copy is False:
            raise ValueError("attention weights are copied when numpy reads them")
        return np.array(self.tolist(), dtype=dtype or np.float32).reshape(self.shape)

    def __repr__(self) -> str:
        return f"AttentionWeights of {self.shape[0]} target by {self.shape[1]} source tokens"

    def tolist(self) -> list[list[float]]:
        """The rows as lists."""
        return [row.tolist() for row in self.rows]

    def largest_columns(self) -> list[int]:
        """For each row the column with the largest weight, the first of equal ones."""
        return [row.index(max(row)) for row in self.rows]


class RequiredPhrase(NamedTuple):
    """A phrase that a translation must contain, as one of several token sequences."""

    alternatives: tuple[tuple[int, ...], ...]
    source: tuple[int, int] = (0, 0)
    """The source tokens that it translates, as start and exclusive end; empty: unknown."""
    at_beginning: tuple[tuple[int, ...], ...] = ()
    """Further alternatives, which count only at the beginning of the translation."""


@dataclass(frozen=True)
class PhrasePlacement:
    """How the search finds the place of required phrases."""

    layer: int = 0
    """The decoder layer whose attention shows the source of a token."""
    head: int | None = None
    """None: the mean over its heads."""
    offset: int = 0
    """0: the step that predicts a token attends to its source; 1: the step that reads it does."""
    weight: float = 0.0
    """What a token outside of phrases costs, as log-probability, if it attends to sources of phrases only."""
    word_flags: bytes | None = None
    """For each target token, whether it continues a word and whether it ends inside one (`heedful.native.bindings`);
    with them, phrases are whole words."""


class DecodeRequest(NamedTuple):
    """One sentence to decode. Equal requests have equal results and are decoded once."""

    source: tuple[int, ...]
    """Source ids, including tag and end token."""
    prefix: tuple[int, ...]
    """Target ids that the translation must begin with."""
    text: str
    max_length: int
    """Maximum number of target tokens, not counting the end token."""
    forbidden: tuple[int, ...] = ()
    """Target ids forbidden in this translation, in addition to those forbidden everywhere."""
    phrases: tuple[RequiredPhrase, ...] = ()
    """Phrases that this translation must contain, in any order."""


class DecodeResult(NamedTuple):
    """The hypotheses for a request, best first, and with `align` the attention weights of the best one."""

    hypotheses: list[Hypothesis]
    attention: AttentionWeights | None


@runtime_checkable
class Engine(Protocol):
    """A loaded model that can search. Raises a `ConfigError` for settings it does not support."""

    @property
    def max_length(self) -> int:
        """Maximum source and target length in tokens."""
        ...

    def decode(
        self,
        requests: Sequence[DecodeRequest],
        config: DecodingConfig,
        *,
        align: bool,
        constraint_factory: ConstraintFactory | None,
    ) -> dict[DecodeRequest, DecodeResult]:
        """Decode all requests; the engine forms the batches."""
        ...


class SearchSettings(TypedDict, total=False):
    """Settings of one call of `Translator.translate`: the fields of `DecodingConfig`, which explains each."""

    method: Literal["beam", "greedy", "sampling"]
    beam_size: int
    length_penalty: Literal["paper", "average", "none"]
    length_penalty_alpha: float
    num_best: int
    min_length: int
    max_length: int | None
    max_extra_length: int
    no_repeat_ngram_size: int
    temperature: float
    top_k: int
    top_p: float
    seed: int
    split: Literal["long", "always", "never"]
    tokens_per_batch: int
    batch_invariant: bool
    shortlist: bool | None
    checks: bool | None
    protect: bool | None
