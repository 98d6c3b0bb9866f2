"""Greedy search: always the most likely next token."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from heedful.config import DecodingConfig
from heedful.decoding.constraints import Rule, SpecialTokens
from heedful.decoding.decode_loop import rollout
from heedful.model.seq2seq import Seq2Seq
from heedful.search_types import Hypothesis
from heedful.tensor_types import Bool, Float, Int


def search(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_mask: Bool[Tensor, "B S"],
    config: DecodingConfig,
    special: SpecialTokens,
    *,
    max_lengths: Sequence[int],
    prefix: Sequence[Sequence[int]] | None = None,
    forbidden: Sequence[Sequence[int]] | None = None,
    rule: Rule | None = None,
) -> list[list[Hypothesis]]:
    """One hypothesis for every sentence; of equally likely tokens the one with the lowest id."""
    return rollout(
        model,
        source,
        source_mask,
        config,
        special,
        max_lengths=max_lengths,
        prefix=prefix,
        forbidden=forbidden,
        rule=rule,
        num_rows=1,
        choose=follow_best,
    )


def follow_best(log_probs: Float[Tensor, "R V"], step: int, sentences: Int[Tensor, " b"]) -> Int[Tensor, " R"]:
    """The most likely token of each row."""
    return log_probs.argmax(dim=1)
