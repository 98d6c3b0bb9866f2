"""Forced scoring: what the model thinks of a given translation, token by token, and where it looked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.errors import DecodingError
from heedful.model.seq2seq import Seq2Seq
from heedful.model_dir.alignment_source import AlignmentSource, default_source
from heedful.tensor_types import Bool, Float, Int


@dataclass(frozen=True)
class ForcedScore:
    """One given translation as the model sees it."""

    token_log_probs: list[float]
    """Log-probability of each token after those before it."""
    attention: Float[Tensor, "T L H S"] | None
    """When asked for: cross-attention weights of the step that predicts each token, over the real source tokens."""

    @property
    def log_prob(self) -> float:
        """Log-probability of the whole translation."""
        return sum(self.token_log_probs)


@torch.inference_mode()
def force(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_mask: Bool[Tensor, "B S"],
    targets: Sequence[Sequence[int]],
    *,
    bos_id: int,
    need_weights: bool = False,
) -> list[ForcedScore]:
    """Feed each sentence its target (with the end token, without the start token) and note what the model says."""
    device, num_steps = source.device, max(len(target) for target in targets)
    table = torch.tensor([[*target, *[bos_id] * (num_steps - len(target))] for target in targets], device=device)
    state = model.start(model.encode(source, source_mask), num_beams=1, max_length=num_steps)
    newest = torch.full((len(targets),), bos_id, device=device)
    token_log_probs, weights = [], []
    for step in range(num_steps):
        output = model.step(newest, state, need_weights=need_weights)
        newest = table[:, step]
        token_log_probs.append(torch.log_softmax(output.logits.float(), dim=-1).gather(1, newest[:, None])[:, 0])
        if need_weights:
            if output.attention is None:
                raise DecodingError("this model has no cross-attention to show; leave the alignment away.")
            weights.append(output.attention.float().cpu())

    log_probs = torch.stack(token_log_probs, dim=1).tolist()
    return [
        ForcedScore(
            token_log_probs=log_probs[b][: len(target)],
            attention=torch.stack([step[b] for step in weights[: len(target)]])[..., source_mask[b].cpu()]
            if need_weights
            else None,
        )
        for b, target in enumerate(targets)
    ]


def alignment_weights(
    attention: Float[Tensor, "T L H S"], source: AlignmentSource | None = None
) -> Float[Tensor, "T S"]:
    """One weight a step and source token: those of a head, or the mean over the heads of a layer.

    `source`: which; None: what suits most models of so many layers.
    """
    chosen = source or default_source(attention.shape[1])
    layer = attention[:, chosen.layer]
    return layer.mean(dim=1) if chosen.head is None else layer[:, chosen.head]
