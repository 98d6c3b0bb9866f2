"""Labelled bracket F1 of predicted trees against gold trees, as the scorer evalb counts it.

A bracket is (label, first word, word after the last). As with evalb's COLLINS.prm: punctuation is removed first, tags
and the root wrapper are not brackets, PRT equals ADVP, and equal brackets (NP in NP over the same words) are matched
one to one. Three things differ from evalb. The gold tags alone determine which words are punctuation. ROOT and S1 are
wrappers like TOP, and of alternatives (ADVP|PRT) the first counts. A sentence without a tree, or with other words than
the gold tree, is not skipped: its gold brackets count as missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from heedful.errors import CorpusError
from heedful.evaluation.parse_trees import TRACE, WRAPPERS, Span, Tree, escape

PUNCTUATION = frozenset({",", ":", "``", "''", ".", TRACE})
"""Tags of the words that are removed before brackets are counted."""
EQUAL_LABELS = {"PRT": "ADVP"}
SHORT = 40
"""Most words of a short sentence."""


@dataclass(frozen=True)
class SentenceCounts:
    """The counts of one sentence."""

    num_words: int
    num_gold: int
    num_predicted: int = 0
    num_matched: int = 0
    num_crossing: int = 0
    """Predicted brackets that overlap some gold bracket without one being inside the other."""
    failure: str | None = None
    """Why there is nothing to match: "no tree", "other words"; None when there is."""

    @property
    def is_exact(self) -> bool:
        """Whether both trees have the same brackets."""
        return self.failure is None and self.num_matched == self.num_gold == self.num_predicted


@dataclass(frozen=True)
class BracketScore:
    """Agreement over many sentences; shares in per cent."""

    f1: float
    precision: float
    recall: float
    exact: float
    """Share of sentences whose brackets are all right."""
    crossing: float
    """Crossing brackets a sentence, of those that have a tree."""
    no_crossing: float
    """Share of sentences without any of them, of those that have a tree."""
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


def same_sentences(
    gold: Sequence[Tree | None], predicted: Sequence[Tree | None]
) -> tuple[list[int], list[Tree], list[Tree | None]]:
    """Of the lines of two files those with a gold tree: their numbers among the predicted ones, and both sides.

    An empty line of gold is no sentence; the predicted side may have an empty line there, or none at all.
    """
    if len(gold) != len(predicted):
        found = [tree for tree in gold if tree is not None]
        return list(range(1, len(predicted) + 1)), found, list(predicted)
    for line, (tree, guess) in enumerate(zip(gold, predicted, strict=True), start=1):
        if tree is None and guess is not None:
            raise CorpusError(f"line {line}: a predicted tree where the gold file has an empty line.")
    kept = [line for line, tree in enumerate(gold) if tree is not None]
    return [line + 1 for line in kept], [tree for tree in gold if tree is not None], [predicted[line] for line in kept]


def score_trees(gold: Sequence[Tree], predicted: Sequence[Tree | None]) -> list[SentenceCounts]:
    """The counts of every sentence; tree n of one side belongs to tree n of the other."""
    if len(gold) != len(predicted):
        raise CorpusError(
            f"{len(gold):,} gold trees but {len(predicted):,} predicted ones; line n of one file must be the same "
            f"sentence as line n of the other, with an empty line where there is no tree."
        )
    if not gold:
        raise CorpusError("there is nothing to score: no gold tree was given.")
    return [count_brackets(*pair) for pair in zip(gold, predicted, strict=True)]


def count_brackets(gold: Tree, predicted: Tree | None) -> SentenceCounts:
    """The counts of one sentence."""
    wanted = brackets(gold, gold.tags)
    if predicted is None or [escape(word) for word in predicted.words] != [escape(word) for word in gold.words]:
        failure = "no tree" if predicted is None else "other words"
        return SentenceCounts(len(gold.words), len(wanted), failure=failure)
    found = brackets(predicted, gold.tags)
    return SentenceCounts(
        num_words=len(gold.words),
        num_gold=len(wanted),
        num_predicted=len(found),
        num_matched=(Counter(wanted) & Counter(found)).total(),
        num_crossing=sum(any(crosses(one, other) for other in wanted) for one in found),
    )


def brackets(tree: Tree, tags: Sequence[str]) -> list[Span]:
    """The brackets to compare, over the words that are not punctuation."""
    before = [0]
    for tag in tags:
        before.append(before[-1] + (tag not in PUNCTUATION))
    moved = (Span(EQUAL_LABELS.get(label, label), before[start], before[end]) for label, start, end in tree.spans)
    return [span for span in moved if span.start < span.end and span.label not in WRAPPERS]


def crosses(one: Span, other: Span) -> bool:
    """Whether two brackets overlap and neither holds the other."""
    return one.start < other.start < one.end < other.end or other.start < one.start < other.end < one.end


def summarise(counts: Iterable[SentenceCounts], *, max_words: int | None = None) -> BracketScore:
    """The score of all sentences, or of those with at most `max_words` words; 0 for no sentences."""
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
