"""Who may attend to whom (sections 3.1 and 3.2.3). Masks are boolean, True = may attend, and combine with `&`."""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.tensor_types import Bool, Int


def causal_mask(length: int, device: torch.device) -> Bool[Tensor, "1 1 T T"]:
    """A target position attends to itself and to what came before it, never to what comes after."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


def segment_mask(query_segments: Int[Tensor, "B Q"], key_segments: Int[Tensor, "B K"]) -> Bool[Tensor, "B 1 Q K"]:
    """A token attends inside its own sentence pair only; padding (segment 0) neither attends nor is attended to."""
    same = query_segments[:, :, None] == key_segments[:, None, :]
    return (same & (key_segments > 0)[:, None, :])[:, None]
