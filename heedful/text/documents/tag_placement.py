"""Place the tags of a text in its translation by word alignment.

Each translated word votes by the source words it is aligned to. A pair of tags encloses the run of words with the most
votes for it minus votes against it, so that a single wrong link does not move it. A point (a line break, an image) is
placed where the fewest words end up on the wrong side. Nesting is preserved, and no tag is lost or duplicated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from heedful.text.documents.document import Mark, MarkedText
from heedful.text.protected_spans import find_spans

Span = tuple[int, int]
Link = tuple[Span, Span]
"""A source word and the target word aligned to it, as character spans."""

_WORDS = re.compile(
    r"[\u2e80-\u2fff\u3040-\ua4cf\uf900-\ufaff\U00016fe0-\U0003ffff]|[^\W_\u2e80-\ua4cf]+(?:['’\-][^\W_]+)*|[^\s]"
)
_EDGES = re.compile(r"\W")
SMALL_WORDS = frozenset(
    """
    a an the this that these those my your his her its our their of to in into on at by for from with as and or
    der die das den dem des ein eine einen einem einer eines mein meine meinen meinem meiner sein seine seinen seinem
    seiner ihr ihre ihren ihrem ihrer unser unsere im am zum zur vom beim ins ans an auf zu von mit bei für aus um und
    oder 的 了 在 和
    """.split()
)
"""Articles, prepositions and conjunctions, which alignments often link to the adjacent noun."""
_UNLINKED_COST = 0.05
"""Vote of an unaligned word against being inside a pair."""


@dataclass(frozen=True)
class _Word:
    start: int
    end: int
    sources: tuple[Span, ...]
    is_punctuation: bool
    is_small: bool

    @property
    def weight(self) -> float:
        """Weight of its links: punctuation and small words are often aligned to an adjacent word."""
        return 0.3 if self.is_punctuation or self.is_small else 1.0

    def share_in(self, mark: Mark) -> float:
        """The share of its source words that are inside a tag."""
        return sum(mark.start < end and start < mark.end for start, end in self.sources) / len(self.sources)


def place_tags(content: MarkedText, translation: str, links: Sequence[Link] | None) -> MarkedText:
    """The translation with all tags of the source; `links` is the word alignment, if known."""
    if not content.marks:
        return MarkedText(translation)
    if translation == content.text:
        return content
    return _TagPlacement(content, translation, links or ()).result()


def _protected_words(source: str, translation: str) -> list[_Word]:
    """Protected spans of the translation: one word each, aligned to the same span of the source."""
    spans: dict[str, list[Span]] = {}
    for span in find_spans(source):
        spans.setdefault(source[span.start : span.end], []).append((span.start, span.end))
    words = []
    for span in find_spans(translation):
        source_spans = spans.get(translation[span.start : span.end])
        if source_spans:
            words.append(_Word(span.start, span.end, (source_spans.pop(0),), is_punctuation=False, is_small=False))
    return words


class _TagPlacement:
    def __init__(self, content: MarkedText, translation: str, links: Sequence[Link]) -> None:
        self.content, self.text = content, translation
        kept = _protected_words(content.text, translation)
        taken = [word.sources[0] for word in kept]
        links = [link for link in links if not any(s < link[0][1] and link[0][0] < e for s, e in taken)]
        self.words = sorted(
            [
                *kept,
                *(
                    _Word(
                        match.start(),
                        match.end(),
                        tuple(source for source, (start, end) in links if start < match.end() and match.start() < end),
                        bool(_EDGES.fullmatch(match.group())),
                        match.group().lower() in SMALL_WORDS,
                    )
                    for match in _WORDS.finditer(translation)
                    if not any(word.start < match.end() and match.start() < word.end for word in kept)
                ),
            ],
            key=lambda word: word.start,
        )
        self.spans: list[Span | None] = [None] * len(content.marks)

    def result(self) -> MarkedText:
        """Place outer tags first; inside a tag kept text, then pairs (longest first), then points."""
        marks = self.content.marks
        order = {"kept": 0, "pair": 1, "point": 2}
        levels: dict[int, int] = {-1: 0}
        for number, mark in enumerate(marks):
            levels[number] = levels[mark.parent] + 1
        numbers = range(len(marks))
        for number in sorted(
            numbers, key=lambda n: (levels[n], order[marks[n].kind], marks[n].start - marks[n].end, n)
        ):
            mark = marks[number]
            if mark.kind == "kept":
                self.spans[number] = self._kept(mark)
            elif mark.kind == "pair":
                self.spans[number] = self._pair(number, mark)
            else:
                self.spans[number] = self._point(number, mark)
        found = [span for span in self.spans if span is not None]
        assert len(found) == len(marks)
        moved = [replace(mark, start=span[0], end=span[1]) for mark, span in zip(marks, found, strict=True)]
        return MarkedText(self.text, tuple(moved))

    def _free(self, parent: int) -> list[Span]:
        """The parts of a tag that no inner tag encloses yet."""
        start, end = (0, len(self.text)) if parent < 0 else (self.spans[parent] or (0, 0))
        free = []
        taken = sorted(
            span
            for mark, span in zip(self.content.marks, self.spans, strict=True)
            if span is not None and mark.parent == parent and span[0] < span[1]
        )
        for first, last in taken:
            free.append((start, first))
            start = last
        return [*free, (start, end)]

    def _kept(self, mark: Mark) -> Span:
        """The position of kept characters in the translation."""
        wanted = self.content.text[mark.start : mark.end]
        free = self._free(mark.parent)
        for searched in (wanted, wanted.strip("`")):
            offsets = []
            position = self.text.find(searched) if searched else -1
            while position >= 0:
                if any(start <= position and position + len(searched) <= end for start, end in free):
                    offsets.append(position)
                position = self.text.find(searched, position + 1)
            if offsets:
                return offsets[0], offsets[0] + len(searched)
        return self._best(mark, free) or self._between(self._middle(mark), free)

    def _pair(self, number: int, mark: Mark) -> Span:
        free = self._free(mark.parent)
        outer = self.content.marks[mark.parent] if mark.parent >= 0 else Mark(0, len(self.content.text), "")
        if len(free) == 1 and self._visible(outer) == self._visible(mark):
            return free[0]
        if self._visible(mark) == (0, 0):
            return self._point(number, mark)
        return self._best(mark, free) or self._guess(mark, free)

    def _visible(self, mark: Mark) -> Span:
        """The span of a tag in the source without surrounding whitespace; (0, 0) if empty."""
        inner = self.content.text[mark.start : mark.end]
        if not inner.strip():
            return 0, 0
        start = mark.start + len(inner) - len(inner.lstrip())
        return start, start + len(inner.strip())

    def _best(self, mark: Mark, free: Sequence[Span]) -> Span | None:
        """The run of free words with the most votes for the tag minus votes against it."""
        best: tuple[float, Span] | None = None
        for start, end in free:
            words = [word for word in self.words if start <= word.start and word.end <= end]
            total, first = 0.0, 0
            for index, word in enumerate(words):
                if total <= 0:
                    total, first = 0.0, index
                total += self._vote(word, mark)
                if total > 0 and (best is None or total > best[0] + 1e-9):
                    best = total, (words[first].start, word.end)
        if best is None:  # a compound aligned to words inside and outside
            inside = [w for w in self.words if w.sources and any(s <= w.start and w.end <= e for s, e in free)]
            nearest = max(inside, key=lambda word: word.share_in(mark), default=None)
            if nearest is None or not nearest.share_in(mark):
                return None
            return nearest.start, nearest.end
        return self._trim(best[1], mark)

    def _vote(self, word: _Word, mark: Mark) -> float:
        if not word.sources:
            return -_UNLINKED_COST
        return (2 * word.share_in(mark) - 1) * word.weight

    def _trim(self, span: Span, mark: Mark) -> Span:
        """Remove punctuation and small words from the ends unless the source has them there."""
        words = [word for word in self.words if span[0] <= word.start and word.end <= span[1]]
        source = [word.lower() for word in _WORDS.findall(self.content.text, mark.start, mark.end)]
        may_trim = SMALL_WORDS.isdisjoint(source)

        def is_extra(word: _Word, source_word: str) -> bool:
            if word.is_punctuation:
                return not _EDGES.fullmatch(source_word)
            return may_trim and word.is_small

        while len(words) > 1 and is_extra(words[0], source[0]):
            words = words[1:]
        while len(words) > 1 and is_extra(words[-1], source[-1]):
            words = words[:-1]
        return words[0].start, words[-1].end

    def _middle(self, mark: Mark) -> float:
        """The relative position of a tag in the source."""
        return (mark.start + mark.end) / 2 / max(1, len(self.content.text))

    def _guess(self, mark: Mark, free: Sequence[Span]) -> Span:
        """Without alignment: the free word at the same relative position, or between words if none is free."""
        offset = self._middle(mark) * len(self.text)
        words = [w for w in self.words if any(s <= w.start and w.end <= e for s, e in free) and not w.is_punctuation]
        words = [word for word in words if not word.sources] or words
        if not words:
            return self._between(self._middle(mark), free)
        nearest = min(words, key=lambda word: abs((word.start + word.end) / 2 - offset))
        return nearest.start, nearest.end

    def _between(self, share: float, free: Sequence[Span]) -> Span:
        """The nearest free word boundary."""
        offset = min(self._boundaries(free), key=lambda one: abs(one - share * len(self.text)))
        return offset, offset

    def _boundaries(self, free: Sequence[Span]) -> list[int]:
        found = [offset for span in free for offset in span]
        found += [p for w in self.words for p in (w.start, w.end) if any(s <= p <= e for s, e in free)]
        return sorted(set(found))

    def _point(self, number: int, mark: Mark) -> Span:
        """The word boundary with the fewest words on the wrong side."""
        free = self._free(mark.parent)
        lowest = max(
            (span[0] for n, span in enumerate(self.spans) if span is not None and self._is_earlier_point(n, number)),
            default=0,
        )
        best: tuple[float, float, int] | None = None
        for offset in self._boundaries(free):
            if offset < lowest:
                continue
            wrong = sum(self._is_wrong(word, offset, mark.start) for word in self.words)
            rank = wrong, self._adjacency_rank(offset, mark), offset
            best = rank if best is None or rank < best else best
        offset = best[2] if best is not None else free[-1][1]
        return offset, offset

    def _is_earlier_point(self, earlier: int, number: int) -> bool:
        """Whether both are points in the same tag, the first before the second."""
        one, other = self.content.marks[earlier], self.content.marks[number]
        return earlier < number and one.parent == other.parent and one.kind == "point"

    def _is_wrong(self, word: _Word, offset: int, source_offset: int) -> float:
        if not word.sources:
            return 0.0
        before = sum(end <= source_offset for _, end in word.sources) / len(word.sources)
        wrong = 1 - before if word.end <= offset else before
        return wrong * (0.3 if word.is_punctuation else 1.0)

    def _adjacency_rank(self, offset: int, mark: Mark) -> float:
        """Rank of equally good offsets: next to the words aligned to the adjacent source words, else by position."""
        for word in self.words:
            if word.end == offset and any(end <= mark.start <= end + 1 for _, end in word.sources):
                return 0.0
            if word.start == offset and any(start - 1 <= mark.start <= start for start, _ in word.sources):
                return 0.1
        share = mark.start / max(1, len(self.content.text))
        return 1 + abs(offset - share * len(self.text)) / max(1, len(self.text))
