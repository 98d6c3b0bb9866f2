"""Forced decoding: log-probabilities and cross-attention of a given translation, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.errors import DecodingError
from heedful.model.seq2seq import Seq2Seq
from heedful.model_dir.save_load import AlignmentSource, default_source
from heedful.tensor_types import Bool, Float, Int


@dataclass(frozen=True)
class ForcedDecoding:
    """The model's scores for one given translation."""

    token_log_probs: list[float]
    """Log-probability of each token given those before it."""
    attention: Float[Tensor, "T L H S"] | None
    """With `need_weights`: cross-attention of the step that predicts each token, over the source without padding."""

    @property
    def log_prob(self) -> float:
        """Log-probability of the whole translation."""
        return sum(self.token_log_probs)


@torch.inference_mode()
def force_decode(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_mask: Bool[Tensor, "B S"],
    targets: Sequence[Sequence[int]],
    *,
    bos_id: int,
    need_weights: bool = False,
) -> list[ForcedDecoding]:
    """Decode with given targets (with end token, without start token) and return the model's scores."""
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
                raise DecodingError("this model has no cross-attention; translate without alignment.")
            weights.append(output.attention.float().cpu())

    log_probs = torch.stack(token_log_probs, dim=1).tolist()
    return [
        ForcedDecoding(
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
    """One weight per step and source token: of one head, or the mean over the heads of a layer.

    `source`: which layer and head; None: the default for the number of layers.
    """
    chosen = source or default_source(attention.shape[1])
    layer = attention[:, chosen.layer]
    return layer.mean(dim=1) if chosen.head is None else layer[:, chosen.head]
