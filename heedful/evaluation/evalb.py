"""Constituency trees: reading, normalisation, writing, and their labelled bracket F1 as computed by evalb.

A bracket is (label, first word, word after the last). As with evalb's COLLINS.prm: punctuation is removed first, tags
and the root wrapper are not brackets, PRT equals ADVP, and equal brackets (NP in NP over the same words) are matched
one to one. There are three differences from evalb: only the gold tags determine which words are punctuation; ROOT and
S1 are wrappers like TOP, and of alternatives (ADVP|PRT) the first counts; and a sentence without a predicted tree, or
with other words, is not skipped: all its gold brackets count as missed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

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
    """A bracket that is not closed yet; `place` is its index in the list of spans."""

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
        """Record that another bracket starts inside this one."""
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


PUNCTUATION = frozenset({",", ":", "``", "''", ".", TRACE})
"""Tags of the words that are removed before brackets are counted."""
EQUAL_LABELS = {"PRT": "ADVP"}
MAX_SHORT_WORDS = 40
"""Maximum length of a short sentence."""


@dataclass(frozen=True)
class SentenceCounts:
    """Bracket counts of one sentence."""

    num_words: int
    num_gold: int
    num_predicted: int = 0
    num_matched: int = 0
    num_crossing: int = 0
    """Predicted brackets that cross a gold bracket."""
    failure: str | None = None
    """Why the sentence cannot be compared: "no tree" or "other words"; None if it can."""

    @property
    def is_exact(self) -> bool:
        """Whether both trees have the same brackets."""
        return self.failure is None and self.num_matched == self.num_gold == self.num_predicted


@dataclass(frozen=True)
class BracketScore:
    """Scores over many sentences, in per cent."""

    f1: float
    precision: float
    recall: float
    exact: float
    """Sentences with exactly the gold brackets."""
    crossing: float
    """Mean number of crossing brackets in sentences that can be compared."""
    no_crossing: float
    """Sentences without crossing brackets, among those that can be compared."""
    num_sentences: int
    num_failed: int
    """Sentences without a tree or with other words."""
    num_gold: int
    num_predicted: int
    num_matched: int

    def __str__(self) -> str:
        return f"F1 = {self.f1:.2f} (precision {self.precision:.2f}, recall {self.recall:.2f})"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


def align_sentences(
    gold: Sequence[Tree | None], predicted: Sequence[Tree | None]
) -> tuple[list[int], list[Tree], list[Tree | None]]:
    """The line numbers (of `predicted`), gold trees and predicted trees of the lines with a gold tree.

    An empty gold line is not a sentence; the predictions may have an empty line for it, or no line.
    """
    if len(gold) != len(predicted):
        gold_trees = [tree for tree in gold if tree is not None]
        return list(range(1, len(predicted) + 1)), gold_trees, list(predicted)
    for line, (tree, prediction) in enumerate(zip(gold, predicted, strict=True), start=1):
        if tree is None and prediction is not None:
            raise CorpusError(f"line {line}: a predicted tree where the gold file has an empty line.")
    kept = [line for line, tree in enumerate(gold) if tree is not None]
    return [line + 1 for line in kept], [tree for tree in gold if tree is not None], [predicted[line] for line in kept]


def score_trees(gold: Sequence[Tree], predicted: Sequence[Tree | None]) -> list[SentenceCounts]:
    """The counts of every sentence; tree n of `predicted` is for tree n of `gold`."""
    if len(gold) != len(predicted):
        raise CorpusError(
            f"{len(gold):,} gold trees but {len(predicted):,} predicted ones; line n of one file must be the same "
            f"sentence as line n of the other, with an empty line where there is no tree."
        )
    if not gold:
        raise CorpusError("there are no gold trees to score against.")
    return [count_brackets(*pair) for pair in zip(gold, predicted, strict=True)]


def count_brackets(gold: Tree, predicted: Tree | None) -> SentenceCounts:
    """The counts of one sentence."""
    gold_brackets = brackets(gold, gold.tags)
    if predicted is None or [escape(word) for word in predicted.words] != [escape(word) for word in gold.words]:
        failure = "no tree" if predicted is None else "other words"
        return SentenceCounts(len(gold.words), len(gold_brackets), failure=failure)
    predicted_brackets = brackets(predicted, gold.tags)
    return SentenceCounts(
        num_words=len(gold.words),
        num_gold=len(gold_brackets),
        num_predicted=len(predicted_brackets),
        num_matched=(Counter(gold_brackets) & Counter(predicted_brackets)).total(),
        num_crossing=sum(any(crosses(one, other) for other in gold_brackets) for one in predicted_brackets),
    )


def brackets(tree: Tree, tags: Sequence[str]) -> list[Span]:
    """The brackets to compare, over the words that are not punctuation."""
    before = [0]
    for tag in tags:
        before.append(before[-1] + (tag not in PUNCTUATION))
    moved = (Span(EQUAL_LABELS.get(label, label), before[start], before[end]) for label, start, end in tree.spans)
    return [span for span in moved if span.start < span.end and span.label not in WRAPPERS]


def crosses(one: Span, other: Span) -> bool:
    """Whether two brackets overlap and neither contains the other."""
    return one.start < other.start < one.end < other.end or other.start < one.start < other.end < one.end


def aggregate(counts: Iterable[SentenceCounts], *, max_words: int | None = None) -> BracketScore:
    """The score over all sentences, or those of at most `max_words` words; 0 without sentences."""
    chosen = [one for one in counts if max_words is None or one.num_words <= max_words]
    matched, gold, predicted = (
        sum(getattr(one, name) for one in chosen) for name in ("num_matched", "num_gold", "num_predicted")
    )
    compared = [one for one in chosen if one.failure is None]
    return BracketScore(
        f1=_share(2 * matched, gold + predicted),
        precision=_share(matched, predicted),
        recall=_share(matched, gold),
        exact=_share(sum(one.is_exact for one in chosen), len(chosen)),
        crossing=_share(sum(one.num_crossing for one in compared), len(compared)) / 100,
        no_crossing=_share(sum(not one.num_crossing for one in compared), len(compared)),
        num_sentences=len(chosen),
        num_failed=len(chosen) - len(compared),
        num_gold=gold,
        num_predicted=predicted,
        num_matched=matched,
    )


def _share(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
