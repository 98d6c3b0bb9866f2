"""Label-smoothed cross-entropy (section 5.4) as a sum and a count, which add up exactly over ranks and microbatches."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.tensor_types import Float, Int

IGNORE_INDEX = -100


class LossSum(NamedTuple):
    """The loss summed over the real target tokens, and their number."""

    loss_sum: Tensor
    num_tokens: Tensor


def smoothed_cross_entropy(
    logits: Float[Tensor, "B T V"],
    target_output: Int[Tensor, "B T"],
    target_segments: Int[Tensor, "B T"],
    *,
    smoothing: float,
) -> LossSum:
    """-Σ q(v) log p(v) with q = 1 - ε on the right token plus ε/V on every token; padding (segment 0) is ignored.

    With smoothing 0 this is the negative log-likelihood, whose mean is the logarithm of the perplexity.
    """
    real = target_segments > 0
    labels = target_output.masked_fill(~real, IGNORE_INDEX)
    loss_sum = F.cross_entropy(
        logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, 1),
        labels.flatten(),
        ignore_index=IGNORE_INDEX,
        label_smoothing=smoothing,
        reduction="sum",
    )
    return LossSum(loss_sum, real.sum())


def symmetric_kl(
    logits: Float[Tensor, "B T V"], other_logits: Float[Tensor, "B T V"], target_segments: Int[Tensor, "B T"]
) -> Tensor:
    """½ KL(p‖q) + ½ KL(q‖p), summed over the real target tokens.

    R-Drop (Wu et al., 2021) adds this divergence of two forward passes with different dropout to the loss. It is newer
    than the paper and helps most with little data.
    """
    log_p, log_q = torch.log_softmax(logits.float(), dim=-1), torch.log_softmax(other_logits.float(), dim=-1)
    divergence = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=-1)
    return 0.5 * divergence.masked_fill(target_segments == 0, 0.0).sum()


def reinforce(
    logits: Float[Tensor, "B T V"],
    target_output: Int[Tensor, "B T"],
    target_segments: Int[Tensor, "B T"],
    log_prob: Float[Tensor, "B T"],
) -> Tensor:
    """A term with the value 0 whose gradient is REINFORCE's for hard attention (Williams, 1992).

    `log_prob` is that of the sampled positions. The reward is the log-likelihood of the target token at the same place;
    its mean over the microbatch is the baseline. The effect of a choice on later tokens is ignored: there is none in
    the last layer of a Transformer's decoder and in Luong's decoder.
    """
    real = target_segments > 0
    nll = F.cross_entropy(logits.detach().float().flatten(0, 1), target_output.flatten(), reduction="none")
    nll = nll.view_as(log_prob)
    baseline = nll.masked_fill(~real, 0.0).sum() / real.sum().clamp(min=1)
    term = ((nll - baseline) * log_prob).masked_fill(~real, 0.0).sum()
    return term - term.detach()
