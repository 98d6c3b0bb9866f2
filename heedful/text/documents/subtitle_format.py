"""Subtitles, SubRip (.srt) and WebVTT (.vtt): numbers, time codes and styles are preserved.

The lines of a subtitle are joined into one text, and its translation is broken into the same number of lines of similar
width. Lines of different speakers, which start with a dash, are separate texts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from heedful.errors import DocumentError
from heedful.text.documents.document import Document, Mark, MarkedText, Part, Prose, compose
from heedful.text.documents.markup import match_tags

MAX_TAGS = 400
"""A subtitle with more tags is copied."""
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n|\Z)")
_NUMBER = re.compile(r"\s*\d+\s*\Z")
_TAG = re.compile(r"</?(?P<name>[a-zA-Z]+)[^<>]*>|<\d[^<>]*>|\{\\[^{}]*\}")
_SPEAKER = re.compile(r"\s*(?:[-–—‐]\s*(?=\S)|>>+\s*)")
_ONLY_NOTES = re.compile(r"[\s♪♫#*]*\Z")
_BREAK_AFTER = re.compile(r"[\s,.;:!?，。；：！？、…—-]")


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    name: str = ""


@dataclass(frozen=True)
class _Syntax:
    """The differences between the two formats."""

    time: re.Pattern[str]
    example: str
    has_number: bool
    """A number precedes each time code, and a subtitle may contain empty lines; otherwise they end it."""


_SUBRIP = _Syntax(
    re.compile(r"\s*-?\d+:\d{1,2}:\d{1,2}[,.]\d{1,3}\s*-->\s*-?\d+:\d{1,2}:\d{1,2}[,.]\d{1,3}"),
    "00:00:01,000 --> 00:00:02,500",
    has_number=True,
)
_WEBVTT = _Syntax(
    re.compile(r"\s*(?:\d+:)?\d{2}:\d{2}\.\d{3}\s*-->\s*(?:\d+:)?\d{2}:\d{2}\.\d{3}"),
    "00:01.000 --> 00:02.500",
    has_number=False,
)


def read_srt(source: str) -> Document:
    """Read the subtitles of a SubRip file."""
    return Document(source, list(_subtitles(source, _SUBRIP)))


def read_vtt(source: str) -> Document:
    """Read the subtitles of a WebVTT file; notes, styles and regions are copied."""
    if source.strip() and not source.startswith("WEBVTT"):
        raise DocumentError("a WebVTT file must start with WEBVTT", 1)
    return Document(source, list(_subtitles(source, _WEBVTT)))


def _subtitles(source: str, syntax: _Syntax) -> Iterator[Part]:
    lines = [match for match in _LINE.finditer(source) if match.group()]
    times = [number for number, line in enumerate(lines) if syntax.time.match(line.group())]
    for number, line in enumerate(lines):
        is_time = "-->" in line.group() and (not syntax.has_number or _NUMBER.match(lines[max(0, number - 1)].group()))
        if is_time and not syntax.time.match(line.group()):
            raise DocumentError(f"{line.group().strip()!r} is not a time code such as {syntax.example}", number + 1)
    if not times and source.strip() and syntax.has_number:
        raise DocumentError(f"no time code such as {syntax.example} found; this is not a SubRip file", 1)
    for time, following in zip(times, [*times[1:], len(lines)], strict=False):
        last = following
        if not syntax.has_number:
            last = next((n for n in range(time + 1, following) if not lines[n].group().strip()), following)
        elif following < len(lines) and _NUMBER.match(lines[last - 1].group()):
            last -= 1
        yield from _subtitle(source, lines[time + 1 : last])


def _subtitle(source: str, lines: Sequence[re.Match[str]]) -> Iterator[Part]:
    """The texts of one subtitle: one for all lines, or one for each speaker."""
    groups: list[list[re.Match[str]]] = []
    for line in lines:
        if not line.group().strip():
            continue
        if not groups or _SPEAKER.match(_TAG.sub("", line.group())):
            groups.append([])
        groups[-1].append(line)
    for group in groups:
        start = group[0].start()
        stretch = source[start : group[-1].end()]
        speaker = _SPEAKER.match(stretch)
        start += speaker.end() if speaker else 0
        stretch = source[start : group[-1].end()]
        start += len(stretch) - len(stretch.lstrip())
        yield from _text(source, start, group[-1].start() + len(group[-1].group().rstrip()), len(group))


def _text(source: str, start: int, end: int, num_lines: int) -> Iterator[Part]:
    tokens = _tokens(source[start:end])
    partner = match_tags(tokens)
    first, last = 0, len(tokens)
    while first < last:  # tags around the whole text are not part of it
        at_start, at_end = tokens[first], tokens[last - 1]
        if at_start.kind == "point" or (at_start.kind != "text" and first not in partner):
            start += len(at_start.text)
            first += 1
        elif at_end.kind == "point" or (at_end.kind != "text" and last - 1 not in partner):
            end -= len(at_end.text)
            last -= 1
        elif partner.get(first) == last - 1:
            start, end = start + len(at_start.text), end - len(at_end.text)
            first, last = first + 1, last - 1
        else:
            break
    raw = source[start:end]
    newline = "\r\n" if "\r\n" in raw else "\r" if "\r" in raw else "\n"
    content = _marked(tokens[first:last])
    if content.text and len(content.marks) <= MAX_TAGS and not _ONLY_NOTES.match(content.text):

        def write(marked: MarkedText) -> str:
            return newline.join(break_lines(marked, num_lines))

        yield Prose(start, end, content, write)


def _tokens(raw: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    for match in _TAG.finditer(raw):
        if match.start() > position:
            tokens.append(_Token("text", raw[position : match.start()]))
        name = match["name"]
        kind = "point" if not name else "end" if match.group().startswith("</") else "start"
        tokens.append(_Token(kind, match.group(), (name or "").lower()))
        position = match.end()
    return [*tokens, _Token("text", raw[position:])] if position < len(raw) else tokens


def _marked(tokens: Sequence[_Token]) -> MarkedText:
    """The lines joined into one text."""
    partner = match_tags(tokens)
    text, marks, open_marks = "", list[Mark](), list[int]()
    for index, token in enumerate(tokens):
        parent = open_marks[-1] if open_marks else -1
        if token.kind == "text":
            text += re.sub(r"\s+", " ", token.text if text and not text.endswith(" ") else token.text.lstrip())
        elif token.kind == "start" and index in partner:
            marks.append(Mark(len(text), -1, token.text, parent=parent))
            open_marks.append(len(marks) - 1)
        elif token.kind == "end" and index in partner:
            number = open_marks.pop()
            marks[number] = replace(marks[number], end=len(text), closing=token.text)
        else:
            after = " " if text.endswith(" ") else ""
            marks.append(Mark(len(text), len(text), token.text, kind="point", parent=parent, before=after))
    return MarkedText(
        text.rstrip(),
        tuple(replace(m, start=min(m.start, len(text.rstrip())), end=min(m.end, len(text.rstrip()))) for m in marks),
    )


def break_lines(marked: MarkedText, num_lines: int) -> list[str]:
    """Break a text into at most `num_lines` lines of similar width."""
    text = marked.text
    offsets = [
        offset
        for offset in range(1, len(text))
        if text[offset - 1] == " " or _is_break_between_wide_characters(text, offset)
    ]
    cuts: list[int] = []
    for line in range(1, num_lines):
        wanted = _width(text) * line / num_lines
        left = [offset for offset in offsets if offset > (cuts[-1] if cuts else 0)]
        if left:
            cuts.append(min(left, key=lambda offset: abs(_width(text[:offset]) - wanted) - _bonus(text, offset)))
    marks = list(marked.marks)
    for cut in cuts:
        inside = [n for n, m in enumerate(marked.marks) if m.kind == "pair" and m.start < cut < m.end]
        marks.append(Mark(cut, cut, "\n", kind="point", parent=inside[-1] if inside else -1))
    written = compose(MarkedText(text, tuple(marks)), lambda one: one)
    return [line.strip() for line in written.split("\n")]


def _is_break_between_wide_characters(text: str, offset: int) -> bool:
    """Whether a line may end between two wide characters: not before punctuation nor after an opening bracket."""
    before, after = text[offset - 1], text[offset]
    if unicodedata.category(after) in ("Po", "Pe", "Pf") or unicodedata.category(before) in ("Ps", "Pi"):
        return False
    return _is_wide(before) and _is_wide(after)


def _bonus(text: str, offset: int) -> float:
    """How much a line that ends with a sentence or clause may deviate in width."""
    return 0.14 * _width(text) if _BREAK_AFTER.match(text[:offset].rstrip()[-1:]) else 0.0


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"


def _width(text: str) -> int:
    return sum(2 if _is_wide(character) else 1 for character in text)
