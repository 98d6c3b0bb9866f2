"""Why the dot product is divided by √d_k (section 3.2.1): or the softmax saturates and its gradient vanishes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from heedful.model.attention import Scoring
from heedful.paper.plot_style import in_language, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
NUM_QUERIES, NUM_KEYS = 256, 32

WORDS = {
    "scaled_dot": ("q·k / √d_k", "q·k / √d_k(缩放)"),
    "dot": ("q·k", "q·k(不缩放)"),
    "deviation": ("standard deviation of the scores", "分数的标准差"),
    "entropy": ("entropy of the weights (nats)", "注意力权重的熵(纳特)"),
    "largest": ("largest weight", "最大权重"),
    "gradient": ("norm of the softmax's gradient", "softmax 梯度的范数"),
    "width": ("d_k", "d_k"),
    "title": (
        "Random queries and keys of unit variance: {q} queries, {k} keys each",
        "单位方差的随机查询与键：{q} 个查询，各 {k} 个键",
    ),
}


@dataclass(frozen=True)
class Saturation:
    """What softmax makes of the scores at one width, averaged over the queries."""

    d_k: int
    deviation: float
    entropy: float
    largest: float
    gradient: float
    """Frobenius norm of ∂weights/∂scores = diag(w) - w wᵀ."""


def saturation(scoring: str, *, d_k: int, seed: int = 1) -> Saturation:
    """Score random unit-variance queries and keys with the model's own scoring, and look at the softmax."""
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(1, NUM_QUERIES, 1, d_k, generator=generator)
    key = torch.randn(1, NUM_QUERIES, NUM_KEYS, d_k, generator=generator)
    scores = Scoring(scoring, 1, d_k)(query, key)[0, :, 0].double()
    weights = torch.softmax(scores, dim=-1)
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
    return Saturation(
        d_k=d_k,
        deviation=scores.std().item(),
        entropy=torch.special.entr(weights).sum(dim=-1).mean().item(),
        largest=weights.max(dim=-1).values.mean().item(),
        gradient=torch.linalg.matrix_norm(jacobian).mean().item(),
    )


def draw(language: str) -> Figure:
    """Scores, entropy, largest weight and gradient against d_k."""
    words = in_language(WORDS, language)
    figure = new_figure(13, 3.8)
    panels = figure.subplots(1, 4)
    for scoring in ("scaled_dot", "dot"):
        found = [saturation(scoring, d_k=d_k) for d_k in WIDTHS]
        for panel, name in zip(panels, ("deviation", "entropy", "largest", "gradient"), strict=True):
            panel.plot(WIDTHS, [getattr(one, name) for one in found], marker="o", markersize=4, label=words[scoring])
            panel.set(title=words[name], xlabel=words["width"])
            panel.set_xscale("log", base=2)
            panel.grid(visible=True, alpha=0.25)
    panels[0].set_yscale("log", base=2)
    panels[3].set_ylim(bottom=0)
    panels[0].legend(frameon=False)
    figure.suptitle(words["title"].format(q=NUM_QUERIES, k=NUM_KEYS))
    return figure
