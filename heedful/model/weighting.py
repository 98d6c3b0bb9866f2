"""The weights of attention: soft attention (the paper's), local attention, and hard attention.

Soft attention is the softmax of the scores over all keys that the mask allows; Luong et al. (2015) call it global.
Their local attention sees a window of the source, from p_t - D to p_t + D:

- local-m (`local_monotonic`): p_t = t. The window is part of the mask (`monotonic_mask`).
- local-p (`local_predictive`): p_t = S · σ(v_p · tanh(W_p h_t)) for a source of S tokens, and the weights in the window
  are multiplied by a Gaussian around p_t with the standard deviation D/2. They then sum to less than 1.

Hard attention reads exactly one key, that with the highest score. The choice has no gradient; training replaces it:

- `straight_through`: the choice is made as in inference, and softmax's gradient is used in its place.
- `gumbel`: the same with Gumbel noise on the scores, so the choice is a sample (Jang et al., 2017; temperature 1).
- `reinforce`: the choice is a sample, and `training.loss.reinforce` raises the probability of choices that led to a
  better prediction than the average (Williams, 1992; Xu et al., 2015).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.batch_invariance import sigmoid
from heedful.tensor_types import Bool, Float, Int

Weigh = Callable[[Tensor, Tensor], Tensor]
"""(scores, mask) -> weights."""


def window_mask(
    query_positions: Int[Tensor, "#B Q"], key_positions: Int[Tensor, "#B K"], window: int
) -> Bool[Tensor, "#B 1 Q K"]:
    """A position attends to itself and to `window` positions on each side (local self-attention)."""
    distances = query_positions[:, :, None] - key_positions[:, None, :]
    return (distances.abs() <= window)[:, None]


def visible_positions(mask: Bool[Tensor, "#B #H #Q K"]) -> Int[Tensor, "#B #H #Q K"]:
    """The positions of the keys in the sentence that a query sees: 0, 1, 2, … over the keys that the mask allows."""
    return mask.cumsum(dim=-1) - 1


def monotonic_mask(
    mask: Bool[Tensor, "#B 1 #Q S"], target_positions: Int[Tensor, "#B Q"], window: int
) -> Bool[Tensor, "#B 1 Q S"]:
    """Target position t attends to source positions t - window … t + window (local-m of Luong et al., 2015).

    Beyond the end of the source the window is centred on the last source position, so it is never empty.
    """
    last = mask.sum(dim=-1, keepdim=True) - 1
    centres = torch.minimum(target_positions[:, None, :, None], last)
    return mask & ((visible_positions(mask) - centres).abs() <= window)


def self_attention_mask(
    mask: Bool[Tensor, "#B 1 #Q K"],
    query_positions: Int[Tensor, "#B Q"],
    key_positions: Int[Tensor, "#B K"],
    config: ModelConfig,
) -> Bool[Tensor, "#B 1 #Q K"]:
    """The mask of self-attention, limited to the window if it is local."""
    if config.self_attention != "local":
        return mask
    return mask & window_mask(query_positions, key_positions, config.attention_window)


def cross_attention_mask(
    mask: Bool[Tensor, "#B 1 #T S"], target_positions: Int[Tensor, "#B T"], config: ModelConfig
) -> Bool[Tensor, "#B 1 #T S"]:
    """The mask of cross-attention, limited to the window if it is local-m."""
    if config.cross_attention != "local_monotonic":
        return mask
    return monotonic_mask(mask, target_positions, config.attention_window)


def masked_softmax(scores: Float[Tensor, "B H Q K"], mask: Bool[Tensor, "#B #H #Q K"]) -> Float[Tensor, "B H Q K"]:
    """Softmax over the visible keys; zeros for a query that sees none."""
    weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    return weights.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)  # nothing to attend to: zeros instead of NaN


class PositionPredictor(nn.Module):
    """σ(v_p · tanh(W_p h_t)), the predicted position as a fraction of the source length; one for each head."""

    def __init__(self, inputs: int, num_heads: int, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, num_heads * width, bias=False)
        self.vector = nn.Parameter(torch.empty(num_heads, width))
        nn.init.xavier_uniform_(self.vector)

    def forward(self, x: Float[Tensor, "B Q D"]) -> Float[Tensor, "B H Q 1"]:
        hidden = torch.tanh(F.linear(x, self.hidden.weight.type_as(x)).float())
        summed = (hidden.unflatten(-1, tuple(self.vector.shape)) * self.vector).sum(dim=-1, keepdim=True)
        return sigmoid(summed).transpose(1, 2)


class Weighting(nn.Module):
    """The weights of one kind of attention; `kind` is a value of `model.self_attention` or `model.cross_attention`."""

    def __init__(self, kind: str, config: ModelConfig, *, num_heads: int, width: int) -> None:
        super().__init__()
        self.kind, self.config = kind, config
        self.window, self.gradient = config.attention_window, config.hard_attention_gradient
        self.predictor = PositionPredictor(config.d_model, num_heads, width) if kind == "local_predictive" else None
        self.log_prob: Tensor | None = None
        """With `reinforce`: (B, Q), the log-probability of what the last training pass sampled, summed over heads."""

    @property
    def is_softmax(self) -> bool:
        """Whether the weights are the softmax over the keys that the mask allows."""
        return self.kind not in ("local_predictive", "hard")

    def forward(
        self, scores: Float[Tensor, "B H Q K"], mask: Bool[Tensor, "#B #H #Q K"], *, x: Float[Tensor, "B Q D"]
    ) -> Float[Tensor, "B H Q K"]:
        """The weights; x is what the queries were computed from."""
        if self.predictor is not None:
            return self._around(self.predictor(x), scores, mask)
        return self._choose(scores, mask) if self.kind == "hard" else masked_softmax(scores, mask)

    def _around(
        self, share: Float[Tensor, "B H Q 1"], scores: Float[Tensor, "B H Q K"], mask: Bool[Tensor, "#B #H #Q K"]
    ) -> Float[Tensor, "B H Q K"]:
        """Softmax over the window around p_t, times exp(-(s - p_t)² / 2σ²) with σ = D/2."""
        distance = visible_positions(mask) - share * mask.sum(dim=-1, keepdim=True)
        weights = masked_softmax(scores, mask & (distance.abs() <= self.window))
        return weights * torch.exp(-2.0 * (distance / self.window).square())

    def _choose(self, scores: Float[Tensor, "B H Q K"], mask: Bool[Tensor, "#B #H #Q K"]) -> Float[Tensor, "B H Q K"]:
        """1 at the chosen key, 0 elsewhere."""
        if self.training and self.gradient != "straight_through":  # the argmax of noisy scores is a sample of softmax
            noisy = scores - torch.empty_like(scores).exponential_().clamp_min(torch.finfo(scores.dtype).tiny).log()
        else:
            noisy = scores
        chosen = noisy.masked_fill(~mask, float("-inf")).argmax(dim=-1, keepdim=True)
        sees_any = mask.any(dim=-1, keepdim=True)
        one_hot = torch.zeros_like(scores).scatter(-1, chosen, 1.0).masked_fill(~sees_any, 0.0)
        if self.gradient == "reinforce":
            if self.training:
                log_probs = torch.log_softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
                self.log_prob = log_probs.gather(-1, chosen).masked_fill(~sees_any, 0.0).sum(dim=(1, 3))
            return one_hot
        soft = masked_softmax(noisy, mask)
        return one_hot + (soft - soft.detach())
