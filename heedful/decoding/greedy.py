"""Greedy search, and the decoding loop that it shares with sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from heedful.config import DecodingConfig
from heedful.decoding.constraints import Constraint, SpecialTokens, allowed_log_probs, make_constraints
from heedful.model.seq2seq import Seq2Seq
from heedful.search_types import Hypothesis, length_penalty
from heedful.tensor_types import Bool, Float, Int

ChooseTokens = Callable[[Tensor, int, Tensor], Tensor]
"""(log-probabilities (R, V), step, indices of the active sentences (b,)) -> next token of each row (R,)."""


@torch.inference_mode()
def decode_loop(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_mask: Bool[Tensor, "B S"],
    config: DecodingConfig,
    special: SpecialTokens,
    *,
    max_lengths: Sequence[int],
    prefix: Sequence[Sequence[int]] | None,
    forbidden: Sequence[Sequence[int]] | None,
    constraint: Constraint | None,
    num_rows: int,
    choose: ChooseTokens,
) -> list[list[Hypothesis]]:
    """Extend `num_rows` independent hypotheses per sentence, one token per step, until all have ended.

    A sentence leaves the batch when its hypotheses have ended. With `config.batch_invariant` all stay until the last
    has ended, so that tensor shapes do not depend on the other sentences.
    """
    device, num_sentences, num_steps = source.device, source.shape[0], max(max_lengths) + 1
    constraints = make_constraints(
        config,
        special,
        max_lengths=max_lengths,
        prefix=prefix,
        forbidden=forbidden,
        constraint=constraint,
        device=device,
    )
    state = model.start(model.encode(source, source_mask), num_beams=num_rows, max_length=num_steps)

    tokens = torch.full((num_sentences, num_rows, num_steps), special.eos_id, device=device)
    token_log_probs = torch.zeros(num_sentences, num_rows, num_steps, device=device)
    ended = torch.zeros(num_sentences, num_rows, dtype=torch.bool, device=device)
    active = torch.arange(num_sentences, device=device)
    newest = torch.full((num_sentences * num_rows,), special.bos_id, device=device)
    for step in range(num_steps):
        output = model.step(newest, state)
        history = tokens[active, :, :step].flatten(0, 1)
        log_probs = allowed_log_probs(output.logits, history, constraints)
        newest = choose(log_probs, step, active)
        tokens[active, :, step] = newest.view(-1, num_rows)
        token_log_probs[active, :, step] = log_probs.gather(1, newest[:, None]).view(-1, num_rows)
        ended[active] |= (newest == special.eos_id).view(-1, num_rows)

        remaining = (~ended[active].all(dim=1)).nonzero()[:, 0]
        if len(remaining) == 0:
            break
        if not config.batch_invariant and len(remaining) < len(active):
            state.select(remaining)
            constraints, active = constraints.select(remaining), active[remaining]
            newest = newest.view(-1, num_rows)[remaining].flatten()

    return [
        [read_hypothesis(*row, limit, config, special) for row in zip(ids, values, strict=True)]
        for ids, values, limit in zip(tokens.tolist(), token_log_probs.tolist(), max_lengths, strict=True)
    ]


def read_hypothesis(
    tokens: list[int], token_log_probs: list[float], limit: int, config: DecodingConfig, special: SpecialTokens
) -> Hypothesis:
    """The hypothesis in one row: all tokens up to and including the first end token."""
    length = tokens.index(special.eos_id) + 1
    log_prob = sum(token_log_probs[:length])
    return Hypothesis(
        tokens=tokens[:length],
        token_log_probs=token_log_probs[:length],
        log_prob=log_prob,
        score=log_prob / length_penalty(float(length), config),
        finished=length <= limit,
    )


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
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """One hypothesis per sentence; ties go to the lowest token id."""
    return decode_loop(
        model,
        source,
        source_mask,
        config,
        special,
        max_lengths=max_lengths,
        prefix=prefix,
        forbidden=forbidden,
        constraint=constraint,
        num_rows=1,
        choose=choose_most_likely,
    )


def choose_most_likely(log_probs: Float[Tensor, "R V"], step: int, sentences: Int[Tensor, " b"]) -> Int[Tensor, " R"]:
    """The most likely token of each row."""
    return log_probs.argmax(dim=1)
