"""LayerNorm as in the paper, and the two it is compared with. All share one call: `norm(x, token_mask)`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.tensor_types import Bool, Float


class LayerNorm(nn.LayerNorm):
    """(x - mean) / √(variance + ε) · weight + bias, over the features of each token alone."""

    def forward(self, x: Float[Tensor, "B T D"], token_mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T D"]:  # type: ignore[override]
        return super().forward(x)


class RMSNorm(nn.RMSNorm):
    """x / √(mean of x² + ε) · weight, over the features of each token alone (Zhang and Sennrich, 2019)."""

    def forward(self, x: Float[Tensor, "B T D"], token_mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T D"]:  # type: ignore[override]
        return super().forward(x)


class BatchNorm(nn.Module):
    """Each feature normalised over all real tokens of the batch; by running statistics when not training.

    Padding takes no part in the statistics. This is what makes BatchNorm awkward for text: a token's value depends on
    what else is in its batch, and training and inference compute different functions. In a decoder the batch's
    statistics also carry something of later tokens past the causal mask, so losses in training mode flatter it.
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
        with torch.no_grad():  # numbers that are not finite must not get into the running statistics
            unbiased = variance * (count / (count - 1).clamp(min=1))
            usable = torch.isfinite(mean).all() & torch.isfinite(variance).all() & (real.sum() > 0)
            self.running_mean.lerp_(torch.where(usable, mean, self.running_mean), self.momentum)
            self.running_variance.lerp_(torch.where(usable, unbiased, self.running_variance), self.momentum)
        return mean, variance


Norm = LayerNorm | RMSNorm | BatchNorm


def build_norm(config: ModelConfig) -> Norm:
    """The norm that the configuration names."""
    if config.norm == "batch":
        return BatchNorm(config.d_model, eps=config.norm_epsilon, bias=config.bias)
    if config.norm == "rms":
        return RMSNorm(config.d_model, eps=config.norm_epsilon)
    return LayerNorm(config.d_model, eps=config.norm_epsilon, bias=config.bias)
