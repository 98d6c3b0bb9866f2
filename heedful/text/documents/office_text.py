"""Paragraphs of office documents: their runs become one text with marks, and its translation becomes runs again.

A reader makes nodes of a paragraph: words with their format, objects such as images and notes, and wrappers such as
hyperlinks. Tabs, and line breaks after sentences, separate texts. The format that most characters of a text have
needs no mark; words in other formats are marked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, cast

from heedful.text.documents.document import Document, Kind, Mark, MarkedText, Nested, Part, Prose, as_code
from heedful.text.documents.markup import MAX_TOKENS, SENTENCE_END

Escape = Callable[[str], str]
"""Writes characters in a format's XML."""
MIN_BLANK = 3
"""From this number of spaces, spaces in a run of their own are a blank to fill in, and separate texts."""
_INVALID = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")


@dataclass(frozen=True)
class Run:
    """How words are written: the tags around them."""

    format: str
    """Equal for runs that look equal."""
    opening: str
    closing: str
    text_opening: str = ""
    text_closing: str = ""
    """The tags around characters inside the run."""


@dataclass(frozen=True)
class Words:
    """Characters in one format."""

    text: str
    run: Run


@dataclass(frozen=True)
class Object:
    """Anything that is no text; it is copied, with the texts in it translated."""

    content: Document
    run: Run | None = None
    """The run that it is in."""
    shown: str = ""
    """What a reader sees in the sentence, such as the number of a page; it is not translated."""
    role: str = ""
    """`separator` or `break`; all others are parts of a sentence, such as `code`."""


@dataclass(frozen=True)
class Wrapper:
    """An element around runs, such as a hyperlink."""

    opening: str
    closing: str
    nodes: tuple[Node, ...]


Node = Words | Object | Wrapper
Token = tuple[Run | None, bool, str]
"""What is written in a run, or beside runs, and whether it is text."""


@dataclass(frozen=True)
class Paragraph:
    """The contents of a paragraph: texts, and what is between them."""

    start: int
    end: int
    items: Sequence[str | Prose | Nested]

    @property
    def texts(self) -> list[MarkedText]:
        """The texts of all items."""
        return [text for item in self.items if not isinstance(item, str) for text in item.texts]

    def write(self, source: str, translations: Iterator[MarkedText], language: str | None) -> str:
        """The items with their texts translated; `source` if nothing has changed."""
        written, is_changed = [], False
        for item in self.items:
            if isinstance(item, str):
                written.append(item)
                continue
            unchanged = item.document.source if isinstance(item, Nested) else item.compose(item.content)
            written.append(item.write(unchanged, translations, language))
            is_changed |= written[-1] != unchanged
        return "".join(written) if is_changed else source


def paragraph(start: int, end: int, nodes: Sequence[Node], escape: Escape) -> Paragraph | None:
    """The paragraph with these nodes; None if it has nothing to translate."""
    items: list[str | Prose | Nested] = []
    for item in _items(nodes, escape):
        if not isinstance(item, list):
            items.append(item)
            continue
        first, last = 0, len(item)
        while first < last and _is_edge(item[first]):
            first += 1
        while first < last and _is_edge(item[last - 1]):
            last -= 1
        for node in item[:first]:
            items += _copied(cast(Object, node))
        if first < last:
            text = _Text(item[first:last], escape)
            items.append(Prose(0, 0, text.content, text.compose))
        for node in item[last:]:
            items += _copied(cast(Object, node))
    found = Paragraph(start, end, items)
    return found if found.texts else None


def shifted(part: Part, by: int) -> Part:
    """A part at another position of the source."""
    return cast(Part, replace(cast(Any, part), start=part.start + by, end=part.end + by))


def has_words(nodes: Sequence[Node]) -> bool:
    """Whether there are words in these nodes or their wrappers."""
    return any(has_words(n.nodes) if isinstance(n, Wrapper) else isinstance(n, Words) for n in nodes)


def joined_code(nodes: Sequence[Node]) -> list[Node]:
    """The nodes with adjacent code in one format as one object."""
    found: list[Node] = []
    for node in nodes:
        last = found[-1] if found else None
        if isinstance(node, Object) and isinstance(last, Object) and _is_same_code(node, last):
            content = Document(last.content.source + node.content.source)
            found[-1] = replace(last, content=content, shown=last.shown + node.shown)
        else:
            found.append(node)
    return found


def _is_same_code(one: Object, other: Object) -> bool:
    formats = [node.run.format if node.run is not None else None for node in (one, other)]
    return one.role == other.role == "code" and formats[0] == formats[1]


def escape_xml(text: str) -> str:
    """Characters in XML; those that XML does not have are left out."""
    return _INVALID.sub("", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def attribute_prose(start: int, end: int, value: str) -> Prose:
    """The value of an attribute, from its first quote to its last."""
    return Prose(start, end, MarkedText(value), lambda m: f'"{escape_xml(m.text).replace(chr(34), "&quot;")}"')


def _items(nodes: Sequence[Node], escape: Escape) -> Iterator[str | Nested | list[Node]]:
    """The nodes of each text, and what is between the texts."""
    text: list[Node] = []
    before = ""
    nodes = [_as_object(node, escape) for node in nodes]
    for number, node in enumerate(nodes):
        if _separates(node) or (_is_break(node) and (_is_double(nodes, number) or SENTENCE_END.search(before))):
            yield text
            text, before = [], ""
            if isinstance(node, Wrapper):
                yield node.opening
                yield from _items(node.nodes, escape)
                yield node.closing
            else:
                yield from _copied(cast(Object, node))
            continue
        if len(text) >= MAX_TOKENS:
            yield text
            text = []
        text.append(node)
        before = node.text if isinstance(node, Words) else before
    yield text


def _as_object(node: Node, escape: Escape) -> Node:
    """A blank to fill in, which is made of spaces, as an object."""
    if not isinstance(node, Words) or node.text.strip(" ") or len(node.text) < MIN_BLANK:
        return node
    run = node.run
    return Object(Document(run.text_opening + escape(node.text) + run.text_closing), run, role="separator")


def _separates(node: Node) -> bool:
    if isinstance(node, Wrapper):
        return len(node.nodes) > MAX_TOKENS or any(_separates(inner) for inner in node.nodes)
    return isinstance(node, Object) and node.role == "separator"


def _is_break(node: Node) -> bool:
    return isinstance(node, Object) and node.role == "break"


def _is_double(nodes: Sequence[Node], number: int) -> bool:
    return any(_is_break(node) for node in [*nodes[max(0, number - 1) : number], *nodes[number + 1 : number + 2]])


def _is_edge(node: Node) -> bool:
    """Whether a node at the end of a text need not be part of it."""
    return isinstance(node, Object) and not node.shown


def _copied(node: Object) -> Iterator[str | Nested]:
    """An object outside of texts, in its run."""
    if node.run is not None:
        yield node.run.opening
    yield Nested(0, 0, node.content)
    if node.run is not None:
        yield node.run.closing


class _Text:
    """One text of a paragraph."""

    def __init__(self, nodes: Sequence[Node], escape: Escape) -> None:
        self.escape = escape
        self.text = ""
        self.marks: list[Mark] = []
        self.runs: list[Run | None] = []
        """For each mark the run of the words in it, or of the object."""
        self.breaks: set[int] = set()
        """The marks that are line breaks; for the translator they are spaces."""
        self.base = _usual_run(nodes)
        self._read(nodes, -1, self.base)

    @property
    def content(self) -> MarkedText:
        return MarkedText(self.text, tuple(self.marks))

    def _read(self, nodes: Sequence[Node], parent: int, base: Run | None) -> None:
        position = 0
        while position < len(nodes):
            node = nodes[position]
            position += 1
            if isinstance(node, Object):
                follows = nodes[position] if position < len(nodes) else None
                self._object(node, parent, follows)
            elif isinstance(node, Wrapper):
                self._pair(node.nodes, parent, _usual_run(node.nodes), (node.opening, node.closing))
            elif base is not None and node.run.format != base.format and node.text.strip(" "):
                last = _end_of_format(nodes, position, node.run.format)
                self._pair([node, *nodes[position:last]], parent, node.run, ("", ""))
                position = last
            else:
                is_after_object = bool(self.marks) and self.marks[-1].kind == "point" and self.text.endswith(" ")
                self.text += node.text.lstrip(" ") if is_after_object else node.text

    def _pair(self, nodes: Sequence[Node], parent: int, run: Run | None, tags: tuple[str, str]) -> None:
        number, start = len(self.marks), len(self.text)
        self.marks.append(Mark(start, start, tags[0], tags[1], parent=parent))
        self.runs.append(run)
        self._read(nodes, number, run)
        self.marks[number] = replace(self.marks[number], end=len(self.text))

    def _object(self, node: Object, parent: int, follows: Node | None) -> None:
        shown = as_code(node.shown)
        start = len(self.text)
        self.text += shown
        kind: Kind = "kept" if shown else "point"
        before = after = ""
        if not shown:
            start = max(len(self.text.rstrip(" ")), self.marks[parent].start if parent >= 0 else 0)
            before = " " * (start < len(self.text))
            after = " " * (isinstance(follows, Words) and follows.text.startswith(" "))
        if node.role == "break":
            before, after = "", " "
            self.breaks.add(len(self.marks))
            self.text += " " * (not self.text.endswith(" "))
        self.marks.append(
            Mark(start, start + len(shown), node.content, kind=kind, parent=parent, before=before, after=after)
        )
        self.runs.append(node.run)

    def compose(self, marked: MarkedText) -> str:
        """The runs of a text."""
        tokens: list[Token] = []
        children: dict[int, list[int]] = {}
        for number, mark in enumerate(marked.marks):
            children.setdefault(mark.parent, []).append(number)

        def inside(parent: int, start: int, end: int, run: Run | None) -> None:
            position = start
            for number in sorted(
                children.get(parent, ()), key=lambda n: (marked.marks[n].start, marked.marks[n].end, n)
            ):
                mark = marked.marks[number]
                first = max(position, _point_offset(marked.text, mark, position, end))
                tokens.append((run, True, marked.text[position:first]))
                opening = mark.opening.source if isinstance(mark.opening, Document) else mark.opening
                if mark.kind == "pair":
                    tokens.append((None, False, opening))
                    inside(number, mark.start, mark.end, self.runs[number])
                    tokens.append((None, False, mark.closing))
                    position = max(first, mark.end)
                else:
                    is_free = mark.before and mark.after and 0 < first < len(marked.text)
                    tokens.append((run, True, " " if is_free and not marked.text[first - 1].isspace() else ""))
                    tokens.append((self.runs[number], False, opening))
                    position = max(first, mark.end)
                    if number in self.breaks:
                        position += len(marked.text[position:end]) - len(marked.text[position:end].lstrip(" "))
                    tokens.append((run, True, " " if is_free and not marked.text[position].isspace() else ""))
            tokens.append((run, True, marked.text[position:end]))

        inside(-1, 0, len(marked.text), self.base)
        return "".join(self._runs(_with_plain_spaces([token for token in tokens if token[2]])))

    def _runs(self, tokens: Sequence[Token]) -> Iterator[str]:
        """Each run once, with all adjacent texts and objects that are in it."""
        for run, in_run in groupby(tokens, key=lambda token: token[0]):
            yield run.opening if run is not None else ""
            for is_text, group in groupby(in_run, key=lambda token: token[1]):
                content = "".join(token[2] for token in group)
                if is_text and run is not None:
                    yield run.text_opening + self.escape(content) + run.text_closing
                else:
                    yield self.escape(content) if is_text else content
            yield run.closing if run is not None else ""


def _with_plain_spaces(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with the spaces between two runs in the one with less format, so that no space is underlined."""
    found = list(tokens)
    for number, (one, other) in enumerate(pairwise(tokens)):
        if one[0] is None or other[0] is None or not (one[1] and other[1]):
            continue
        left, right = found[number][2], other[2]
        both = left + right
        if len(other[0].format) < len(one[0].format):
            cut = len(left.rstrip(" "))
        elif len(one[0].format) < len(other[0].format):
            cut = len(both) - len(right.lstrip(" "))
        else:
            continue
        found[number] = one[0], True, both[:cut]
        found[number + 1] = other[0], True, both[cut:]
    return [token for token in found if token[2]]


def _point_offset(text: str, mark: Mark, start: int, end: int) -> int:
    """Where an object is written: after the word before it, or before the word after it, as in the source."""
    if mark.kind != "point" or mark.before == mark.after:
        return mark.start
    if mark.after:
        return max(start, len(text[: mark.start].rstrip(" ")))
    follows = text[mark.start : end]
    return mark.start + len(follows) - len(follows.lstrip(" "))


def _end_of_format(nodes: Sequence[Node], start: int, format: str) -> int:
    """The index after the last of the adjacent words in a format, with objects between them."""
    last = start
    for number in range(start, len(nodes)):
        node = nodes[number]
        if isinstance(node, Wrapper) or (isinstance(node, Words) and node.run.format != format):
            break
        last = number + 1 if isinstance(node, Words) else last
    return last


def _usual_run(nodes: Sequence[Node]) -> Run | None:
    """The run with the format of most characters; that of a wrapper's words if there are no others."""
    runs: dict[str, Run] = {}
    counts: Counter[str] = Counter()
    for node in nodes:
        if isinstance(node, Words):
            runs.setdefault(node.run.format, node.run)
            counts[node.run.format] += len(node.text.strip())
    if runs:
        return runs[max(counts, key=lambda format: counts[format])]
    return next((found for node in nodes if isinstance(node, Wrapper) and (found := _usual_run(node.nodes))), None)
