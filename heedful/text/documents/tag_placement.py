"""Puts the tags of a text around and between the words of its translation that translate the words in or beside them.

Each word of the translation votes by the words that it comes from. A pair of tags takes the run of words with the most
votes for it less those against it, so that one wrong link moves nothing; a point (a line break, an image) goes where it
parts the fewest words from those on their side of it. Tags stay nested as they were, and none is lost or doubled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from heedful.text.documents.document import Mark, MarkedText
from heedful.text.protected_spans import find_spans

Span = tuple[int, int]
Link = tuple[Span, Span]
"""A word of the source and the word of the translation that comes from it, as spans of characters."""

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
"""Articles, prepositions and the like, which alignments often link to the noun beside them."""
_UNLINKED = 0.05
"""What a word without links costs inside a pair: no more than needed of them."""


@dataclass(frozen=True)
class _Word:
    start: int
    end: int
    sources: tuple[Span, ...]
    is_mark: bool
    is_small: bool

    @property
    def weight(self) -> float:
        """How much its links say: punctuation and small words are often linked to a neighbour."""
        return 0.3 if self.is_mark or self.is_small else 1.0

    def share_in(self, mark: Mark) -> float:
        """How many of the words that it comes from stand in a tag, as a share of them."""
        return sum(mark.start < end and start < mark.end for start, end in self.sources) / len(self.sources)


def place(content: MarkedText, translation: str, links: Sequence[Link] | None) -> MarkedText:
    """The translation with all tags of its source."""
    if not content.marks:
        return MarkedText(translation)
    if translation == content.text:
        return content
    return _Placing(content, translation, links or ()).placed()


def _kept_words(source: str, translation: str) -> list[_Word]:
    """URLs, addresses, placeholders and the like: one word each, which comes from its own like in the source."""
    places: dict[str, list[Span]] = {}
    for span in find_spans(source):
        places.setdefault(source[span.start : span.end], []).append((span.start, span.end))
    words = []
    for span in find_spans(translation):
        own = places.get(translation[span.start : span.end])
        if own:
            words.append(_Word(span.start, span.end, (own.pop(0),), is_mark=False, is_small=False))
    return words


class _Placing:
    def __init__(self, content: MarkedText, translation: str, links: Sequence[Link]) -> None:
        self.content, self.text = content, translation
        kept = _kept_words(content.text, translation)
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

    def placed(self) -> MarkedText:
        """Outer tags first; of those inside one tag what is kept first, then pairs, the longest first, then points."""
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
        """The stretches inside a tag that no other tag in it has taken."""
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
        """The characters that were kept, where the translation has them."""
        wanted = self.content.text[mark.start : mark.end]
        free = self._free(mark.parent)
        for searched in (wanted, wanted.strip("`")):
            places = []
            position = self.text.find(searched) if searched else -1
            while position >= 0:
                if any(start <= position and position + len(searched) <= end for start, end in free):
                    places.append(position)
                position = self.text.find(searched, position + 1)
            if places:
                return places[0], places[0] + len(searched)
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
        """The stretch of the source without the white space at its ends; an empty one is (0, 0)."""
        inner = self.content.text[mark.start : mark.end]
        if not inner.strip():
            return 0, 0
        start = mark.start + len(inner) - len(inner.lstrip())
        return start, start + len(inner.strip())

    def _best(self, mark: Mark, free: Sequence[Span]) -> Span | None:
        """The run of free words with the most votes for the tag less those against it."""
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
        if best is None:  # a compound that comes from words inside and outside
            inside = [w for w in self.words if w.sources and any(s <= w.start and w.end <= e for s, e in free)]
            nearest = max(inside, key=lambda word: word.share_in(mark), default=None)
            if nearest is None or not nearest.share_in(mark):
                return None
            return nearest.start, nearest.end
        return self._without_edges(best[1], mark)

    def _vote(self, word: _Word, mark: Mark) -> float:
        if not word.sources:
            return -_UNLINKED
        return (2 * word.share_in(mark) - 1) * word.weight

    def _without_edges(self, span: Span, mark: Mark) -> Span:
        """No punctuation at an end that had none in the source, no article or the like where the source has none."""
        words = [word for word in self.words if span[0] <= word.start and word.end <= span[1]]
        source = [word.lower() for word in _WORDS.findall(self.content.text, mark.start, mark.end)]
        may_trim = SMALL_WORDS.isdisjoint(source)

        def is_extra(word: _Word, source_word: str) -> bool:
            if word.is_mark:
                return not _EDGES.fullmatch(source_word)
            return may_trim and word.is_small

        while len(words) > 1 and is_extra(words[0], source[0]):
            words = words[1:]
        while len(words) > 1 and is_extra(words[-1], source[-1]):
            words = words[:-1]
        return words[0].start, words[-1].end

    def _middle(self, mark: Mark) -> float:
        """Where a tag stands, as a share of the text."""
        return (mark.start + mark.end) / 2 / max(1, len(self.content.text))

    def _guess(self, mark: Mark, free: Sequence[Span]) -> Span:
        """Without a link: the free word at the same share of the text; without a free word, between two."""
        place = self._middle(mark) * len(self.text)
        words = [w for w in self.words if any(s <= w.start and w.end <= e for s, e in free) and not w.is_mark]
        words = [word for word in words if not word.sources] or words
        if not words:
            return self._between(self._middle(mark), free)
        nearest = min(words, key=lambda word: abs((word.start + word.end) / 2 - place))
        return nearest.start, nearest.end

    def _between(self, share: float, free: Sequence[Span]) -> Span:
        """The nearest boundary of words that is free."""
        place = min(self._boundaries(free), key=lambda one: abs(one - share * len(self.text)))
        return place, place

    def _boundaries(self, free: Sequence[Span]) -> list[int]:
        found = [place for span in free for place in span]
        found += [p for w in self.words for p in (w.start, w.end) if any(s <= p <= e for s, e in free)]
        return sorted(set(found))

    def _point(self, number: int, mark: Mark) -> Span:
        """The boundary of words with the fewest words on the wrong side of it."""
        free = self._free(mark.parent)
        lowest = max(
            (span[0] for n, span in enumerate(self.spans) if span is not None and self._same_point(n, number)),
            default=0,
        )
        best: tuple[float, float, int] | None = None
        for place in self._boundaries(free):
            if place < lowest:
                continue
            wrong = sum(self._is_wrong(word, place, mark.start) for word in self.words)
            rank = wrong, self._neighbour(place, mark), place
            best = rank if best is None or rank < best else best
        place = best[2] if best is not None else free[-1][1]
        return place, place

    def _same_point(self, earlier: int, number: int) -> bool:
        """Whether two points stand in one tag, the first of them before the second."""
        one, other = self.content.marks[earlier], self.content.marks[number]
        return earlier < number and one.parent == other.parent and one.kind == "point"

    def _is_wrong(self, word: _Word, place: int, source_place: int) -> float:
        if not word.sources:
            return 0.0
        before = sum(end <= source_place for _, end in word.sources) / len(word.sources)
        wrong = 1 - before if word.end <= place else before
        return wrong * (0.3 if word.is_mark else 1.0)

    def _neighbour(self, place: int, mark: Mark) -> float:
        """Of equally good places: after the word that comes from the one before the point, else in proportion."""
        for word in self.words:
            if word.end == place and any(end <= mark.start <= end + 1 for _, end in word.sources):
                return 0.0
            if word.start == place and any(start - 1 <= mark.start <= start for start, _ in word.sources):
                return 0.1
        share = mark.start / max(1, len(self.content.text))
        return 1 + abs(place - share * len(self.text)) / max(1, len(self.text))
