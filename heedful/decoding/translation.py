"""`Translation`, the result of translating one text, and how the results of its segments are combined into it.

A long text is translated in portions of its segments, because working memory per character is some hundred bytes and
the attention matrix grows with the square of the length.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol, TypeVar, runtime_checkable

from heedful.decoding.span_masking import restore_spans
from heedful.decoding.text_splitting import Segment, is_visible, join_text, space_between
from heedful.decoding.tokenizer_cache import TokenizerCache
from heedful.search_types import AttentionWeights, DecodeRequest, DecodeResult, Hypothesis

LONG_TEXT = 20_000
"""Texts with more characters are translated in portions of about this size."""
LINE_BREAK_ESCAPES = {"\u2028": "\\u2028", "\u2029": "\\u2029", "\u0085": "\\u0085"}
"""Characters that some readers treat as line ends, and their JSON escapes."""


NUMBERS_DIFFER, REPETITION, UNTRANSLATED = "numbers_differ", "repetition", "untranslated"
TOO_LONG, TERM_MISSING = "too_long", "term_missing"
WARNINGS = {
    NUMBERS_DIFFER: "the translation has other numbers than the text",
    REPETITION: "the translation repeats itself",
    UNTRANSLATED: "the translation was empty, so the text was copied",
    TOO_LONG: "the text is too long for the model, so it was copied; decoding.split=long splits it",
    TERM_MISSING: "the translation lacks a term of the glossary",
}
"""Descriptions of the warning codes."""


@dataclass(frozen=True)
class Alternative:
    """One entry of an n-best list."""

    text: str
    tokens: list[str]
    log_prob: float
    score: float


@dataclass(frozen=True)
class Translation:
    """The translation of one text."""

    text: str
    """The best translation."""
    tokens: list[str]
    """Its subwords as generated, without the end token; protected spans appear as masks."""
    log_prob: float
    """Log-probability of the tokens including end tokens, summed over all sentences of the text."""
    score: float
    """`log_prob` after the length penalty, summed over all sentences of the text."""
    n_best: list[Alternative]
    """The `num_best` best translations, best first; the first is this translation."""
    source_tokens: list[str]
    """Subwords of the source, without tag and end token."""
    finished: bool = True
    """False if some sentence was cut off at the maximum length."""
    num_sentences: int = 1
    """Number of pieces in which the text was translated; 0 if it is empty or was copied."""
    alignment: list[tuple[int, int]] | None = None
    """With `align`: pairs (index in source_tokens, index in tokens), one for each target token."""
    word_alignment: list[tuple[tuple[int, int], tuple[int, int]]] | None = None
    """With `align`: pairs of aligned words, each as character spans in the source and in `text`."""
    attention: AttentionWeights | None = field(default=None, compare=False)
    """With `align`: the attention weights behind the alignment, a row per target token and a column per source token.

    None for texts of more than 20,000 characters, whose weights would need too much memory."""
    source_language: str | None = field(default=None, compare=False)
    """Language of the source: given, detected, or the only one of the model. None: unknown."""
    target_language: str | None = field(default=None, compare=False)
    """Language of the translation. None: unknown."""
    language_confidence: float | None = field(default=None, compare=False)
    """Confidence of the detected source language, from 0 to 1; None if it was not detected."""
    remark: str | None = field(default=None, compare=False)
    """A remark about the languages: the text seems to be in the target language already, or in another language."""
    warnings: list[str] = field(default_factory=list, compare=False)
    """Problems that a second search could not fix: keys of `WARNINGS`."""

    def __str__(self) -> str:
        """The text."""
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """The fields that are not None, as plain data for JSON."""
        plain = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        if self.alignment is not None:
            plain["alignment"] = [list(pair) for pair in self.alignment]
        if self.word_alignment is not None:
            plain["word_alignment"] = [[list(source), list(target)] for source, target in self.word_alignment]
        if self.attention is not None:
            plain["attention"] = self.attention.tolist()
        return plain

    def to_json(self, source: str) -> str:
        """The translation of `source` as JSON on one line, with the alignment also in Pharaoh notation."""
        plain: dict[str, Any] = {"source": source, **self.to_dict()}
        plain.pop("attention", None)
        if self.alignment is not None:
            plain["pharaoh"] = " ".join(f"{source}-{target}" for source, target in self.alignment)
        line = json.dumps(plain, ensure_ascii=False)
        for character, escape in LINE_BREAK_ESCAPES.items():
            line = line.replace(character, escape)
        return line


def empty_translation(*, align: bool = False) -> Translation:
    """The translation of an empty text."""
    return Translation(
        text="",
        tokens=[],
        log_prob=0.0,
        score=0.0,
        n_best=[Alternative(text="", tokens=[], log_prob=0.0, score=0.0)],
        source_tokens=[],
        num_sentences=0,
        alignment=[] if align else None,
        word_alignment=[] if align else None,
        attention=AttentionWeights([], 0) if align else None,
    )


@runtime_checkable
class HasScore(Protocol):
    """A hypothesis or an alternative."""

    @property
    def score(self) -> float:
        """Higher is better."""
        ...


Scored = TypeVar("Scored", bound=HasScore)


class SegmentMerger:
    """Builds a `Translation` from the results of a text's segments."""

    def __init__(self, cache: TokenizerCache, checked: Set[str], num_best: int, *, align: bool) -> None:
        """`checked`: source sentences for which an empty translation is replaced by the source."""
        self.cache, self.tokenizer, self.checked = cache, cache.tokenizer, checked
        self.num_best, self.align = num_best, align
        self.num_tags = 1 if self.tokenizer.tags else 0

    def merge(
        self, segments: Sequence[Segment], requests: Sequence[DecodeRequest], results: Sequence[DecodeResult]
    ) -> Translation:
        """The translation of a text from the result of each segment."""
        if not segments:
            return empty_translation(align=self.align)
        combinations = best_combinations([result.hypotheses for result in results], self.num_best)
        n_best = [self._alternative(segments, combination) for combination in combinations]
        best = n_best[0]
        weights = [result.attention for result in results if result.attention is not None]
        attention = AttentionWeights.block_diagonal(weights) if self.align else None
        return Translation(
            text=best.text,
            tokens=best.tokens,
            log_prob=best.log_prob,
            score=best.score,
            n_best=n_best,
            source_tokens=[
                piece
                for request in requests
                for piece in self.tokenizer.source_pieces(request.source[self.num_tags : -1])
            ],
            finished=all(hypothesis.finished for hypothesis in combinations[0]),
            num_sentences=sum(not segment.copied for segment in segments),
            alignment=[(s, t) for t, s in enumerate(attention.largest_columns())] if attention is not None else None,
            attention=attention,
        )

    def _alternative(self, segments: Sequence[Segment], hypotheses: Sequence[Hypothesis]) -> Alternative:
        ids = [hypothesis.tokens[:-1] for hypothesis in hypotheses]
        texts = [
            restore_spans(segment, self._text(segment.text, tokens))
            for segment, tokens in zip(segments, ids, strict=True)
        ]
        return Alternative(
            text=join_text(segments, texts),
            tokens=[piece for tokens in ids for piece in self.tokenizer.pieces(tokens)],
            log_prob=sum(hypothesis.log_prob for hypothesis in hypotheses),
            score=sum(hypothesis.score for hypothesis in hypotheses),
        )

    def _text(self, source: str, ids: Sequence[int]) -> str:
        """The text of a sentence's translation; tabs are kept only if the source has one."""
        text = self.cache.decode(ids)
        if source in self.checked and not is_visible(text):
            return source
        return text if "\t" in source else text.replace("\t", " ")


def best_combinations(choices: Sequence[list[Scored]], count: int) -> list[list[Scored]]:
    """The `count` best ways to pick one item from each list, by the sum of scores."""
    combinations: list[tuple[float, list[Scored]]] = [(0.0, [])]
    for items in choices:
        longer = [(score + item.score, [*chosen, item]) for score, chosen in combinations for item in items]
        combinations = sorted(longer, key=lambda combination: -combination[0])[:count]
    return [chosen for _, chosen in combinations]


def split_portions(segments: Sequence[Segment]) -> list[list[Segment]]:
    """The segments of a text in portions of about `LONG_TEXT` characters."""
    portions: list[list[Segment]] = [[]]
    size = 0
    for segment in segments:
        if size + len(segment.text) > LONG_TEXT and portions[-1]:
            portions.append([])
            size = 0
        portions[-1].append(segment)
        size += len(segment.text)
    return portions


def portion_source(portion: Sequence[Segment]) -> str:
    """The source text of a portion."""
    return "".join(segment.before + restore_spans(segment, segment.text) for segment in portion)


def portion_prefixes(portions: Sequence[Sequence[Segment]], prefix: str | None) -> list[str | None]:
    """The target prefix of each portion: the first one with something to translate gets it."""
    first = next((index for index, portion in enumerate(portions) if not all(segment.copied for segment in portion)), 0)
    return [prefix if index == first else None for index in range(len(portions))]


def merge_portions(
    portions: Sequence[Sequence[Segment]], translations: Sequence[Translation], sources: Sequence[str], num_best: int
) -> Translation:
    """Combine the translations of all portions; `sources` are their source texts."""
    combinations = best_combinations([translation.n_best for translation in translations], num_best)
    n_best = [_merge_alternatives(portions, picked) for picked in combinations]
    has_alignment = translations[0].alignment is not None
    return replace(
        translations[0],
        text=n_best[0].text,
        tokens=n_best[0].tokens,
        log_prob=n_best[0].log_prob,
        score=n_best[0].score,
        n_best=n_best,
        source_tokens=[token for translation in translations for token in translation.source_tokens],
        finished=all(translation.finished for translation in translations),
        num_sentences=sum(translation.num_sentences for translation in translations),
        alignment=_merge_alignments(translations) if has_alignment else None,
        word_alignment=list(_merge_word_alignments(portions, translations, sources)) if has_alignment else None,
        attention=None,
        warnings=list(dict.fromkeys(code for translation in translations for code in translation.warnings)),
    )


def _merge_alternatives(portions: Sequence[Sequence[Segment]], picked: Sequence[Alternative]) -> Alternative:
    text = ""
    for space, part in _with_spaces(portions, [alternative.text for alternative in picked]):
        text += space + part
    return Alternative(
        text=text,
        tokens=[token for alternative in picked for token in alternative.tokens],
        log_prob=sum(alternative.log_prob for alternative in picked),
        score=sum(alternative.score for alternative in picked),
    )


def _with_spaces(portions: Sequence[Sequence[Segment]], texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The translated text of each portion with the white space that goes before it."""
    yield "", texts[0]
    for (left, right), (target_left, text) in zip(pairwise(portions), pairwise(texts), strict=True):
        text = text[len(right[0].before) :]
        yield space_between(left[-1], right[0], target_left, text), text


def _merge_alignments(translations: Sequence[Translation]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    source = target = 0
    for translation in translations:
        merged += [(s + source, t + target) for s, t in translation.alignment or ()]
        source, target = source + len(translation.source_tokens), target + len(translation.tokens)
    return merged


def _merge_word_alignments(
    portions: Sequence[Sequence[Segment]], translations: Sequence[Translation], sources: Sequence[str]
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    source = target = 0
    parts = _with_spaces(portions, [translation.text for translation in translations])
    for translation, text, (space, part) in zip(translations, sources, parts, strict=True):
        start = target + len(space) - (len(translation.text) - len(part))
        for (a, b), (c, d) in translation.word_alignment or ():
            yield (a + source, b + source), (c + start, d + start)
        source, target = source + len(text), target + len(space) + len(part)
