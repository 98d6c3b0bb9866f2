"""Table 2 as the paper prints it: BLEU on newstest2014 and training cost, English to German and to French."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """A row: tokenised BLEU as printed and training FLOPs, for both pairs; None where the paper has none."""

    system: str
    bleu_german: str | None = None
    bleu_french: str | None = None
    flops_german: float | None = None
    flops_french: float | None = None


ROWS = (
    Published("ByteNet", "23.75"),
    Published("Deep-Att + PosUnk", None, "39.2", None, 1.0e20),
    Published("GNMT + RL", "24.6", "39.92", 2.3e19, 1.4e20),
    Published("ConvS2S", "25.16", "40.46", 9.6e18, 1.5e20),
    Published("MoE", "26.03", "40.56", 2.0e19, 1.2e20),
    Published("Deep-Att + PosUnk ensemble", None, "40.4", None, 8.0e20),
    Published("GNMT + RL ensemble", "26.30", "41.16", 1.8e20, 1.1e21),
    Published("ConvS2S ensemble", "26.36", "41.29", 7.7e19, 1.2e21),
    Published("Transformer (base)", "27.3", "38.1", 3.3e18, 3.3e18),
    Published("Transformer (big)", "28.4", "41.8", 2.3e19, 2.3e19),
)
"""The paper prints one cost for each Transformer, for both pairs together."""

SUSTAINED_FLOPS_PER_SECOND = 9.5e12
"""What the paper assumes of one P100: its costs are this times eight GPUs times the seconds of training."""
NUM_GPUS = 8
HOURS = {"base": 12.0, "big": 3.5 * 24}
"""How long the paper trained (section 5.2)."""


def estimated_flops(recipe: str) -> float:
    """The paper's estimate of a training's cost (footnote 5): time, GPUs and what one of them can sustain."""
    return HOURS[recipe] * 3600 * NUM_GPUS * SUSTAINED_FLOPS_PER_SECOND
