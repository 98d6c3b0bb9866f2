"""LayerNorm as in the paper, RMSNorm, and BatchNorm, which needs to know which tokens are padding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.tensor_types import Bool, Float


class LayerNorm(nn.LayerNorm):
    """(x - mean) / √(variance + ε) · weight + bias, over the features of each token."""


class RMSNorm(nn.RMSNorm):
    """x / √(mean of x² + ε) · weight, over the features of each token (Zhang and Sennrich, 2019)."""


class BatchNorm(nn.Module):
    """Normalise each feature over all real tokens of the batch; by running statistics in evaluation mode.

    Padding is left out of the statistics. BatchNorm suits text badly: a token's value depends on the rest of its batch,
    and training and inference compute different functions. In a decoder the statistics also leak information about
    later tokens past the causal mask, so its training loss is too low.
    """

    def __init__(self, d_model: int, *, eps: float, bias: bool, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None
        self.running_mean: Tensor
        self.running_variance: Tensor
        self.register_buffer("running_mean", torch.zeros(d_model))
        self.register_buffer("running_variance", torch.ones(d_model))

    def forward(self, x: Float[Tensor, "B T D"], token_mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        if self.training:
            mean, variance = self._batch_statistics(x.float(), token_mask)
        else:
            mean, variance = self.running_mean, self.running_variance
        normalised = (x.float() - mean) * torch.rsqrt(variance + self.eps) * self.weight
        return (normalised if self.bias is None else normalised + self.bias).type_as(x)

    def _batch_statistics(
        self, x: Float[Tensor, "B T D"], token_mask: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
        real = token_mask[..., None].float()
        count = real.sum().clamp(min=1)
        mean = (x * real).sum(dim=(0, 1)) / count
        variance = ((x - mean).square() * real).sum(dim=(0, 1)) / count
        with torch.no_grad():  # keep non-finite numbers out of the running statistics
            unbiased = variance * (count / (count - 1).clamp(min=1))
            usable = torch.isfinite(mean).all() & torch.isfinite(variance).all() & (real.sum() > 0)
            self.running_mean.lerp_(torch.where(usable, mean, self.running_mean), self.momentum)
            self.running_variance.lerp_(torch.where(usable, unbiased, self.running_variance), self.momentum)
        return mean, variance


Norm = LayerNorm | RMSNorm | BatchNorm


def normalise(norm: Norm, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "#B #H #T K"]) -> Float[Tensor, "B T D"]:
    """norm(x). `mask` is that of self-attention: BatchNorm counts the tokens that may attend to something."""
    if isinstance(norm, BatchNorm):
        return norm(x, mask.any(dim=-1).any(dim=1).expand(x.shape[:2]))
    return norm(x)


def build_norm(config: ModelConfig) -> Norm:
    """The norm that the configuration names."""
    if config.norm == "batch":
        return BatchNorm(config.d_model, eps=config.norm_epsilon, bias=config.bias)
    if config.norm == "rms":
        return RMSNorm(config.d_model, eps=config.norm_epsilon)
    return LayerNorm(config.d_model, eps=config.norm_epsilon, bias=config.bias)
