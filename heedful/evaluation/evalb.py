"""Labelled bracket F1 of predicted parse trees, as computed by evalb.

A bracket is (label, first word, word after the last). As with evalb's COLLINS.prm: punctuation is removed first, tags
and the root wrapper are not brackets, PRT equals ADVP, and equal brackets (NP in NP over the same words) are matched
one to one. There are three differences from evalb: only the gold tags determine which words are punctuation; ROOT and
S1 are wrappers like TOP, and of alternatives (ADVP|PRT) the first counts; and a sentence without a predicted tree, or
with other words, is not skipped: all its gold brackets count as missed.
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
