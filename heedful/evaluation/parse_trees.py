"""Constituency trees: reading, normalisation and writing of bracketed trees.

    (S (NP (DT The) (NN cat)) (VP (VBD sat)) (. .))

A tree is stored flat: words, tags, and constituents as word spans in the order of their opening brackets (outer before
inner, left before right). Nothing is recursive, so trees may have any depth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from heedful.errors import CorpusError
from heedful.text.text_files import read_lines

TRACE = "-NONE-"
WRAPPERS = ("", "TOP", "ROOT", "S1")
"""Labels of a root node around the whole sentence."""
ROOT = "TOP"
_TOKENS = re.compile(r"[()]|[^() \t\r\n]+")
_ESCAPES = {"(": "-LRB-", ")": "-RRB-"}


class Span(NamedTuple):
    """A constituent: its label and the words `start` to `end` (exclusive)."""

    label: str
    start: int
    end: int


@dataclass(frozen=True)
class Tree:
    """A sentence and its constituents, in the order of their opening brackets; tags are not constituents."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    spans: tuple[Span, ...]

    def __str__(self) -> str:
        return write_tree(self)


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_trees(path: str | Path) -> list[Tree]:
    """The normalized trees of a (compressed) file with one tree per line; empty lines are skipped."""
    return [tree for tree in read_aligned_trees(path) if tree is not None]


def read_aligned_trees(path: str | Path) -> list[Tree | None]:
    """Like `read_trees`, with None for empty lines, so that item n is line n."""
    return [normalize_tree(read_tree(text, where), where) if text.strip() else None for text, where in _lines(path)]


def read_predicted_trees(path: str | Path) -> list[Tree | None]:
    """Like `read_trees`, with None for empty lines and empty brackets: sentences without a tree."""
    return [
        normalize_tree(read_tree(text, where), where) if text.strip(" \t()") else None
        for text, where in _lines(path)
    ]  # fmt: skip


def _lines(path: str | Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}, line {number}"
        try:
            yield line.decode(), where
        except UnicodeDecodeError as error:
            raise CorpusError(f"{where}: not UTF-8 text (byte {error.start + 1}); save the file as UTF-8.") from None


def read_tree(text: str, where: str = "tree") -> Tree:
    """Parse a bracketed tree without normalisation; `where` starts the message of errors."""
    words: list[str] = []
    tags: list[str] = []
    spans: list[Span] = []
    stack: list[_Open] = []
    for match in _TOKENS.finditer(text):
        token, column = match[0], match.start() + 1
        if token == "(":
            if not stack and words:
                raise _error(where, column, "a second tree starts here; put each tree on its own line")
            if stack:
                stack[-1].expect_children(where, column)
            stack.append(_Open(column, len(words), len(spans)))
            spans.append(Span("", len(words), len(words)))
        elif not stack:
            raise _error(where, column, f"{token!r} is outside of all brackets")
        elif token == ")":
            _close(stack.pop(), words, tags, spans, where)
        else:
            stack[-1].add(token, where, column)
    if stack:
        missing = f"{len(stack)} bracket{'s are' if len(stack) > 1 else ' is'} not closed"
        raise _error(where, stack[-1].column, f"{missing}, the innermost one opens here; a tree must be on one line")
    if not words:
        raise _error(where, 1, "there is no tree; expected for example (S (NP (NN Rain)) (VP (VBZ falls)))")
    return Tree(tuple(words), tuple(tags), tuple(spans))


@dataclass
class _Open:
    """A bracket that is not closed yet; `place` is its index in the spans."""

    column: int
    start: int
    place: int
    label: str | None = None
    word: str | None = None
    has_children: bool = False

    def add(self, text: str, where: str, column: int) -> None:
        """The first text in a bracket is its label, the second its word."""
        if self.label is None:
            self.label = text
        elif self.word is not None or self.has_children:
            raise _error(where, column, f"the word {text!r} needs its own bracket and tag, as in (NN {text})")
        else:
            self.word = text

    def expect_children(self, where: str, column: int) -> None:
        """Note that another bracket starts inside this one."""
        if self.word is not None:
            raise _error(where, column, f"a bracket follows the word {self.word!r} of the same bracket")
        self.label, self.has_children = self.label or "", True


def _close(bracket: _Open, words: list[str], tags: list[str], spans: list[Span], where: str) -> None:
    """Turn a closed bracket into a word or a constituent."""
    if bracket.word is not None:
        words.append(bracket.word)
        tags.append(bracket.label or "")
        del spans[bracket.place]  # the last one: a word has no constituents inside
    elif not bracket.has_children:
        raise _error(where, bracket.column, f"the bracket ({bracket.label or ''}) is empty")
    elif not bracket.label and bracket.place:
        raise _error(where, bracket.column, "a bracket inside the tree has no label")
    else:
        spans[bracket.place] = Span(bracket.label or "", bracket.start, len(words))


def _error(where: str, column: int, problem: str) -> CorpusError:
    return CorpusError(f"{where}, column {column}: {problem}.")


# ---- normalisation ---------------------------------------------------------------------------------------------------


def normalize_tree(tree: Tree, where: str = "tree") -> Tree:
    """Remove traces, functional tags, indices and root wrappers such as (TOP …), and add a TOP node if needed."""
    kept = [index for index, tag in enumerate(tree.tags) if tag != TRACE]
    if not kept:
        raise CorpusError(f"{where}: the tree has no words, only traces; remove the line.")
    before = [0] * (len(tree.tags) + 1)  # kept words before each index
    for index, tag in enumerate(tree.tags):
        before[index + 1] = before[index] + (tag != TRACE)
    moved = (Span(bare_label(label), before[start], before[end]) for label, start, end in tree.spans)
    spans = [span for span in moved if span.start < span.end]
    words, tags = (tuple(side[index] for index in kept) for side in (tree.words, tree.tags))
    while len(spans) > 1 and spans[0].label in WRAPPERS and spans[1][1:] == spans[0][1:]:
        del spans[0]
    if not spans or spans[0][1:] != (0, len(words)):
        spans.insert(0, Span(ROOT, 0, len(words)))
    if spans[0].label in WRAPPERS:
        spans[0] = spans[0]._replace(label=ROOT)
    return Tree(words, tags, tuple(spans))


def bare_label(label: str) -> str:
    """A label without functional tags, indices and alternatives: NP for NP-SBJ-1, NP=2 and NP|ADJP."""
    return re.split(r"[-=|]", label, maxsplit=1)[0] or label


# ---- writing ---------------------------------------------------------------------------------------------------------


def write_tree(tree: Tree) -> str:
    """The tree in brackets on one line; words that are round brackets become -LRB- or -RRB-."""
    parts: list[str] = []
    for event in events(tree):
        if isinstance(event, Span):
            parts.append(f" ({event.label}")
        elif event is None:
            parts.append(")")
        else:
            parts.append(f" ({tree.tags[event]} {escape(tree.words[event])})")
    return "".join(parts).strip()


def draw_tree(tree: Tree) -> str:
    """The tree on several lines, indented by depth, with each word after its tag."""
    lines: list[str] = []
    depth = 0
    for event in events(tree):
        if isinstance(event, Span):
            lines.append("  " * depth + event.label)
            depth += 1
        elif event is None:
            depth -= 1
        else:
            lines.append("  " * depth + f"{tree.tags[event]} {tree.words[event]}")
    return "\n".join(lines)


def events(tree: Tree) -> Iterator[Span | int | None]:
    """Traverse the tree: a span where its bracket opens, the index of each word, None where a bracket closes."""
    place, open_ends = 0, []
    for index in range(len(tree.words)):
        while place < len(tree.spans) and tree.spans[place].start == index:
            open_ends.append(tree.spans[place].end)
            yield tree.spans[place]
            place += 1
        yield index
        while open_ends and open_ends[-1] == index + 1:
            open_ends.pop()
            yield None


def escape(word: str) -> str:
    """A word as written inside brackets."""
    return re.sub(r"[()]", lambda match: _ESCAPES[match[0]], word)


def with_tags(tree: Tree, tags: Sequence[str]) -> Tree:
    """The same tree with other tags."""
    return replace(tree, tags=tuple(tags))
