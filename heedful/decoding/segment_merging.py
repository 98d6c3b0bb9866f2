"""Combine the translations of segments into the translation of a text, and those of portions into a long text's.

A long text is translated in portions of its segments, because working memory per character is some hundred bytes and
the attention matrix grows with the square of the length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from itertools import pairwise
from typing import Protocol, TypeVar, runtime_checkable

from heedful.decoding.engines import DecodeRequest, DecodeResult
from heedful.decoding.span_masking import restore_spans
from heedful.decoding.text_splitting import Segment, is_visible, join_text, space_between
from heedful.decoding.tokenizer_cache import TokenizerCache
from heedful.decoding.translation import Alternative, Translation, empty_translation
from heedful.search_types import AttentionWeights, Hypothesis

LONG_TEXT = 20_000
"""Texts with more characters are translated in portions of about this size."""


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
