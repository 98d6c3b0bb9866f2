"""F1 on part of valid while a parser is trained, in the place of BLEU: what chooses its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from heedful.evaluation.evalb import score_trees, summarise
from heedful.paper.parsing.linearize import linearise
from heedful.paper.parsing.parser import Parser
from heedful.text.parse_trees import Tree

if TYPE_CHECKING:
    import torch
    from torch import nn

    from heedful.config import Config
    from heedful.data.prepare import Prepared
    from heedful.training.logging import Evaluation
    from heedful.validation_bleu import Look, MakeEvaluate

T = TypeVar("T")
SIGNATURE = "labelled brackets, COLLINS.prm, greedy, forced"


def evenly(items: Sequence[T], count: int | None) -> list[T]:
    """At most so many, from the first to the last at equal distances; None: all."""
    wanted = len(items) if count is None else min(count, len(items))
    return [items[number * len(items) // wanted] for number in range(wanted)]


def f1_on_valid(trees: Mapping[str, Tree]) -> MakeEvaluate:
    """What `train` asks for: makes the function that parses `training.num_bleu_sentences` of valid and scores them.

    `trees` are gold trees by the source text of their sentence, those of valid among them.
    """

    def make(config: Config, prepared: Prepared, device: torch.device) -> Look | None:
        known = [trees[pair.source] for pair in prepared.valid_pairs if pair.source in trees]
        gold = evenly(known, config.training.num_bleu_sentences)
        if not gold:
            return None
        decoding = replace(config.decoding, method="greedy", num_best=1, batch_invariant=False, shortlist=None)

        def evaluate(model: nn.Module) -> Evaluation:
            from heedful.decoding.translator import Translator
            from heedful.training.logging import Evaluation, Sample

            parser = Parser(Translator(model, prepared.tokenizer, decoding, device=device))
            guesses = parser.parse([tree.words for tree in gold], tokens_per_batch=4 * decoding.tokens_per_batch)
            score = summarise(score_trees(gold, [guess.tree for guess in guesses]))
            shown = evenly(list(zip(gold, guesses, strict=True)), config.training.num_samples)
            samples = [Sample(" ".join(tree.words), written(tree), written(guess.tree)) for tree, guess in shown]
            return Evaluation(score.f1, SIGNATURE, tuple(samples), name="F1")

        return evaluate

    return make


def written(tree: Tree | None) -> str:
    """A tree for people to read: its symbols, or nothing."""
    return " ".join(linearise(tree)) if tree else ""
