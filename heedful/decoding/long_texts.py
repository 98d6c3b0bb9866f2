"""A text of any length in bounded memory: translated in portions of its segments, which are joined again.

What is computed for a text takes some hundred bytes a character, and its attention grows with the square of its length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from heedful.decoding.span_masking import restored
from heedful.decoding.text_splitting import Segment, between
from heedful.decoding.translation import Alternative, Translation

LONG = 20_000
"""Texts with more characters than this are translated in portions, each of about so many characters."""


def portions_of(segments: Sequence[Segment]) -> list[list[Segment]]:
    """The segments of a text in portions: a single one unless the text is long."""
    portions: list[list[Segment]] = [[]]
    size = 0
    for segment in segments:
        if size + len(segment.text) > LONG and portions[-1]:
            portions.append([])
            size = 0
        portions[-1].append(segment)
        size += len(segment.text)
    return portions


def source_of(portion: Sequence[Segment]) -> str:
    """The stretch of the text that a portion is made of."""
    return "".join(segment.before + restored(segment, segment.text) for segment in portion)


def prefixes_of(portions: Sequence[Sequence[Segment]], prefix: str | None) -> list[str | None]:
    """What the translation of each portion begins with: the first one that is translated has the prefix."""
    first = next((number for number, one in enumerate(portions) if not all(part.copied for part in one)), 0)
    return [prefix if number == first else None for number in range(len(portions))]


def joined(
    portions: Sequence[Sequence[Segment]], translations: Sequence[Translation], sources: Sequence[str], num_best: int
) -> Translation:
    """One translation of those of the portions, which come with the stretches of the source that they are made of."""
    combinations: list[tuple[float, list[Alternative]]] = [(0.0, [])]
    for one in translations:
        longer = [(score + a.score, [*picked, a]) for score, picked in combinations for a in one.n_best]
        combinations = sorted(longer, key=lambda combination: -combination[0])[:num_best]
    n_best = [_joined_alternative(portions, picked) for _, picked in combinations]
    has_alignment = translations[0].alignment is not None
    return replace(
        translations[0],
        text=n_best[0].text,
        tokens=n_best[0].tokens,
        log_prob=n_best[0].log_prob,
        score=n_best[0].score,
        n_best=n_best,
        source_tokens=[token for one in translations for token in one.source_tokens],
        finished=all(one.finished for one in translations),
        sentences=sum(one.sentences for one in translations),
        alignment=_shifted_alignment(translations) if has_alignment else None,
        word_alignment=list(_shifted_words(portions, translations, sources)) if has_alignment else None,
        attention=None,
        warnings=list(dict.fromkeys(code for one in translations for code in one.warnings)),
    )


def _joined_alternative(portions: Sequence[Sequence[Segment]], picked: Sequence[Alternative]) -> Alternative:
    text = ""
    for gap, part in _with_gaps(portions, [one.text for one in picked]):
        text += gap + part
    return Alternative(
        text=text,
        tokens=[token for one in picked for token in one.tokens],
        log_prob=sum(one.log_prob for one in picked),
        score=sum(one.score for one in picked),
    )


def _with_gaps(portions: Sequence[Sequence[Segment]], texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The texts of the portions, each with what is between it and the text before."""
    yield "", texts[0]
    for (left, right), (target_left, text) in zip(pairwise(portions), pairwise(texts), strict=True):
        text = text[len(right[0].before) :]
        yield between(left[-1], right[0], target_left, text), text


def _shifted_alignment(translations: Sequence[Translation]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    source = target = 0
    for one in translations:
        found += [(s + source, t + target) for s, t in one.alignment or ()]
        source, target = source + len(one.source_tokens), target + len(one.tokens)
    return found


def _shifted_words(
    portions: Sequence[Sequence[Segment]], translations: Sequence[Translation], sources: Sequence[str]
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    source = target = 0
    gaps = _with_gaps(portions, [one.text for one in translations])
    for one, text, (gap, part) in zip(translations, sources, gaps, strict=True):
        start = target + len(gap) - (len(one.text) - len(part))
        for (a, b), (c, d) in one.word_alignment or ():
            yield (a + source, b + source), (c + start, d + start)
        source, target = source + len(text), target + len(gap) + len(part)
