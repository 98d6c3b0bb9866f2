"""`beam_tree` translates a text and returns every continuation that the beam search considered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from heedful.errors import ConfigError
from heedful.inspection.trace import native_engine, source_ids_of, translator_of
from heedful.native.bindings import TreeNode
from heedful.search_types import Hypothesis
from heedful.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from heedful.decoding.translator import Translator

STATES: tuple[Literal["kept", "finished", "pruned"], ...] = ("kept", "finished", "pruned")


@dataclass(frozen=True)
class BeamNode:
    """A token that may continue a hypothesis."""

    parent: int | None
    """The node that it continues; None: the start of the sentence."""
    step: int
    """The number of tokens before it."""
    token: int
    piece: str
    log_prob: float
    """Of the token, given those before it."""
    total: float
    """The sum of the log-probabilities up to this token."""
    state: Literal["kept", "finished", "pruned"]
    """kept: the hypothesis stayed in the beam. finished: its end token was among the best `beam_size` continuations.
    pruned: it was dropped."""
    score: float | None
    """Of a finished hypothesis: `total` divided by the length penalty of its `step + 1` tokens."""


@dataclass(frozen=True)
class BeamTree:
    """The best `2 * beam_size` continuations of each step; at each step the best is first, parents before children."""

    source_ids: list[int]
    source_tokens: list[str]
    nodes: list[BeamNode]
    best: list[int]
    """The nodes of the end tokens of the best hypotheses, best first."""
    hypotheses: list[Hypothesis]
    """The same hypotheses; their tokens are on the path to their node."""
    texts: list[str]
    """The translations that they say."""
    beam_size: int
    length_penalty: str
    length_penalty_alpha: float


def beam_tree(
    model: str | Path | Translator | None,
    source: str,
    *,
    target_language: str | None = None,
    target_prefix: str | None = None,
    beam_size: int | None = None,
    num_best: int | None = None,
) -> BeamTree:
    """Translate `source` and return the tree of the search.

    `model`: a directory, an installed model's name, a `Translator`, or None for the default model. `beam_size` and
    `num_best`: by default those of the model. Requires the native engine.
    """
    translator = translator_of(model, source, target_language)
    tokenizer, special, config = translator.tokenizer, translator.special, translator.config
    engine = native_engine(translator)
    if engine is None:
        raise ConfigError("the tree of a search needs the native engine, which does not support this model.")
    best_of = num_best or config.num_best
    beam = beam_size or max(best_of, config.beam_size if config.method == "beam" else 1)
    config = replace(config, method="beam", beam_size=beam, num_best=best_of)
    source_ids = source_ids_of(translator, source, target_language)
    hypotheses, found = engine.beam_tree_ids(
        source_ids,
        config,
        special,
        max_length=translator.max_target_length(source_ids, config),
        prefix=tokenizer.encode_prefix(target_prefix) if target_prefix else (),
    )
    ranked = {node.rank: index for index, node in enumerate(found) if node.rank >= 0}
    return BeamTree(
        source_ids=source_ids,
        source_tokens=tokenizer.source_pieces(source_ids),
        nodes=[read_node(node, tokenizer) for node in found],
        best=[ranked[rank] for rank in sorted(ranked)],
        hypotheses=hypotheses,
        texts=[tokenizer.decode(one.tokens) for one in hypotheses],
        beam_size=config.beam_size,
        length_penalty=config.length_penalty,
        length_penalty_alpha=config.length_penalty_alpha,
    )


def read_node(node: TreeNode, tokenizer: Tokenizer) -> BeamNode:
    """Convert the structure of the C interface."""
    state = STATES[node.state]
    return BeamNode(
        parent=node.parent if node.parent >= 0 else None,
        step=node.step,
        token=node.token,
        piece=tokenizer.pieces([node.token])[0],
        log_prob=node.log_prob,
        total=node.total,
        state=state,
        score=node.score if state == "finished" else None,
    )
