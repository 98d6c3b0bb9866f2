"""The learning rate schedule (equation 3) and label smoothing (section 5.4)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from heedful.config import TrainingConfig
from heedful.paper.plot_style import PAGE_WIDTH, in_language, new_figure
from heedful.training.loss import smoothed_cross_entropy
from heedful.training.optimizer import Schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETTINGS = ((512, 4000), (512, 8000), (256, 4000), (1024, 4000))
NUM_TOKENS = 10

FORMULA = (
    r"$\mathrm{lrate} = d_\mathrm{model}^{-0.5} \cdot "
    r"\min(\mathrm{step}^{-0.5},\ \mathrm{step} \cdot \mathrm{warmup}^{-1.5})$"
)
SETTING = r"$d_\mathrm{{model}} = {d},\ \mathrm{{warmup}} = {w}$"

SCHEDULE_WORDS = {
    "step": ("step", "步"),
    "rate": ("learning rate", "学习率"),
}
SMOOTHING_WORDS = {
    "targets": (
        "Target distribution over {v} tokens; token 3 is correct",
        "{v} 个词元上的目标分布；正确的是 3 号词元",
    ),
    "token": ("token", "词元"),
    "probability": ("target probability", "目标概率"),
    "losses": ("Loss against confidence; dots: minimum", "损失随置信度的变化；圆点为最小值"),
    "confidence": ("probability of the correct token", "正确词元的概率"),
    "loss": ("loss (nats)", "损失（nat）"),
}
SMOOTHINGS = (0.0, 0.1, 0.3)


def learning_rates(d_model: int, warmup_steps: int, steps: list[int]) -> list[float]:
    """The paper's learning rate at these steps, computed by the training schedule."""
    schedule = Schedule(TrainingConfig(schedule="paper", warmup_steps=warmup_steps), d_model)
    return [schedule.rate(step, 0.0) for step in steps]


def draw_schedule(language: str) -> Figure:
    """Draw the learning rate for several widths and warm-ups."""
    words = in_language(SCHEDULE_WORDS, language)
    figure = new_figure(PAGE_WIDTH, 4.2)
    panel = figure.subplots()
    steps = list(range(1, 40_001, 50))
    for d_model, warmup in SETTINGS:
        panel.plot(steps, learning_rates(d_model, warmup, steps), label=SETTING.format(d=d_model, w=warmup))
    panel.set(title=FORMULA, xlabel=words["step"], ylabel=words["rate"])
    panel.ticklabel_format(axis="y", style="sci", scilimits=(-3, -3))
    panel.legend(frameon=False)
    panel.grid(visible=True, alpha=0.25)
    return figure


def loss_at(confidence: float, smoothing: float, *, num_tokens: int = NUM_TOKENS) -> float:
    """The training loss if the correct token has this probability and the others share the rest equally."""
    others = (1 - confidence) / (num_tokens - 1)
    logits = torch.full((1, 1, num_tokens), math.log(others), dtype=torch.float64)
    logits[..., 0] = math.log(confidence)
    label, segments = torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1, dtype=torch.long)
    return smoothed_cross_entropy(logits, label, segments, smoothing=smoothing).loss_sum.item()


def target_distribution(smoothing: float, *, num_tokens: int = NUM_TOKENS, correct: int = 2) -> list[float]:
    """The target distribution of the loss, from its gradient at equal logits: p - gradient."""
    logits = torch.zeros(1, 1, num_tokens, dtype=torch.float64, requires_grad=True)
    label, segments = torch.full((1, 1), correct), torch.ones(1, 1, dtype=torch.long)
    smoothed_cross_entropy(logits, label, segments, smoothing=smoothing).loss_sum.backward()
    assert logits.grad is not None
    return (torch.softmax(logits.detach(), dim=-1) - logits.grad).flatten().tolist()


def draw_smoothing(language: str) -> Figure:
    """Draw the target distributions above and the loss against confidence below."""
    words = in_language(SMOOTHING_WORDS, language)
    figure = new_figure(PAGE_WIDTH, 6.4)
    left, correct = figure.subplots(2, 1)
    grid = [(index + 0.5) / 1000 for index in range(1000)]
    for index, smoothing in enumerate(SMOOTHINGS):
        places = [number + 1 + 0.27 * (index - 1) for number in range(NUM_TOKENS)]
        left.bar(places, target_distribution(smoothing), width=0.25, label=f"ε = {smoothing}")
        losses = [loss_at(confidence, smoothing) for confidence in grid]
        correct.plot(grid, losses, label=f"ε = {smoothing}")
        lowest = min(range(len(grid)), key=losses.__getitem__)
        correct.plot(grid[lowest], losses[lowest], "o", color=f"C{index}")
    left.set(title=words["targets"].format(v=NUM_TOKENS), xlabel=words["token"], ylabel=words["probability"])
    left.set_xticks(range(1, NUM_TOKENS + 1))
    correct.set(title=words["losses"], xlabel=words["confidence"], ylabel=words["loss"], ylim=(0, 6))
    for panel in (left, correct):
        panel.legend(frameon=False)
        panel.grid(visible=True, alpha=0.25)
    return figure
