"""BatchNorm against LayerNorm and RMSNorm while they learn: one small Transformer with each, all else the same.

The task is to write digits in order of size. A batch holds sentences of like length, as the paper's do (section 5.1),
one a row and padded. There is no dropout, so a model gives another loss in evaluation than in training mode only where
its norm does: BatchNorm, which then leaves the batch's statistics for its running ones. In training mode these are of
whole targets, so a position is told something of the tokens after it: only evaluation mode is a fair comparison.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from heedful.build_model import build_model
from heedful.config import TrainingConfig
from heedful.data.batch import Batch
from heedful.paper.plot_style import in_language, new_figure
from heedful.paper.synthetic_tasks import SyntheticTraining, draw_digits, make_batch, small_config
from heedful.training.loss import smoothed_cross_entropy
from heedful.training.schedule import Schedule
from heedful.training.step import TrainingStep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NORMS = ("layer", "rms", "batch")
STEPS, LOOKS, SEED = 500, 25, 1
PAIRS_PER_BATCH, VALID_BATCHES = 12, 8
D_MODEL = 64
TASK = SyntheticTraining(task="sort", min_length=2, max_length=20, length_spread=3, pairs_per_batch=PAIRS_PER_BATCH)

WORDS = {
    "layer": ("LayerNorm", "LayerNorm"),
    "rms": ("RMSNorm", "RMSNorm"),
    "batch": ("BatchNorm", "BatchNorm"),
    "train": ("Training loss", "训练损失"),
    "valid": ("Valid: training mode (dashed), evaluation mode (solid)", "验证：虚线为训练模式，实线为评估模式"),
    "gap": ("Valid loss: evaluation mode minus training mode", "验证损失：评估模式减训练模式"),
    "step": ("step", "步"),
    "loss": ("loss of a token (nats)", "每个词元的损失(纳特)"),
    "difference": ("difference (nats)", "差(纳特)"),
    "what": (
        "Digits put in order of size, {steps} steps, the same data and seed for all\n"
        "(in training mode BatchNorm's statistics also tell of later tokens: only the solid lines compare fairly)",
        "把数字按大小排序，{steps} 步，数据与随机种子相同\n"
        "(训练模式下 BatchNorm 的统计量会泄露后面的词元：只有实线可以公平比较)",
    ),
}

Tell = Callable[[str, int, int | None], None]


@dataclass
class Curves:
    """How one norm learned: losses at some steps."""

    steps: list[int] = field(default_factory=list)
    train: list[float] = field(default_factory=list)
    """Mean since the point before."""
    valid_training_mode: list[float] = field(default_factory=list)
    """With the statistics of each batch."""
    valid: list[float] = field(default_factory=list)
    """In evaluation mode: what a user of the model would get."""


def sorting_batch(generator: random.Random) -> Batch:
    """Digits and the same digits in order, one pair a row, of similar length, padded to the longest."""
    return make_batch(TASK.task, draw_digits(generator, TASK))


@torch.no_grad()
def valid_loss(model: nn.Module, batches: list[Batch], *, training_mode: bool) -> float:
    """Mean loss of a token in either mode; running statistics stay as they were."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.train(training_mode)
    loss_sum, num_tokens = 0.0, 0
    for batch in batches:
        logits = model(**batch.inputs)
        loss = smoothed_cross_entropy(logits, batch.target_output, batch.target_segments, smoothing=0.0)
        loss_sum, num_tokens = loss_sum + loss.loss_sum.item(), num_tokens + batch.num_tokens
    for name, buffer in model.named_buffers():
        buffer.copy_(before[name])
    model.train()
    return loss_sum / num_tokens


def train_norm(norm: str, *, steps: int, device: torch.device, seed: int = SEED, tell: Tell | None = None) -> Curves:
    """Train the small model with one norm; data and initial weights depend on the seed alone."""
    torch.manual_seed(seed)
    model = build_model(small_config(norm=norm)).to(device)
    config = TrainingConfig(
        steps=steps, warmup_steps=max(1, steps // 6), learning_rate=2e-3, schedule="cosine", label_smoothing=0.0,
        clip_norm=1.0, compile=False, precision="fp32",
    )  # fmt: skip
    step, schedule = TrainingStep(model, config, device), Schedule(config, D_MODEL)
    held_out, drawn = random.Random(-1 - seed), random.Random(seed)
    valid = [sorting_batch(held_out).to(device) for _ in range(VALID_BATCHES)]
    every, curves = max(1, steps // LOOKS), Curves()
    loss_sum = torch.zeros((), device=device)
    num_tokens = 0
    for number in range(1, steps + 1):
        batch = sorting_batch(drawn)
        loss_sum += step(batch, batch.num_tokens, schedule.rate(number, (number - 1) / steps)).loss_sum
        num_tokens += batch.num_tokens
        if tell is not None:
            tell(f"norm_training: {WORDS[norm][0]}, {steps} steps", 1, steps)
        if number % every == 0 or number == steps:
            curves.steps.append(number)
            curves.train.append(loss_sum.item() / num_tokens)
            curves.valid_training_mode.append(valid_loss(model, valid, training_mode=True))
            curves.valid.append(valid_loss(model, valid, training_mode=False))
            loss_sum.zero_()
            num_tokens = 0
    return curves


def train_all(*, steps: int, device: torch.device, seed: int = SEED, tell: Tell | None = None) -> dict[str, Curves]:
    """The curves of all norms."""
    return {norm: train_norm(norm, steps=steps, device=device, seed=seed, tell=tell) for norm in NORMS}


def results(curves: dict[str, Curves], *, device: torch.device, seed: int = SEED) -> dict[str, Any]:
    """The numbers of the figure as plain data, and with what they were made."""
    from datetime import UTC, datetime

    from heedful.model_card import versions
    from heedful.paper.experiment_io import machine

    return {
        "task": "digits put in order of size",
        "steps": curves[NORMS[0]].steps[-1],
        "seed": seed,
        "pairs_per_batch": PAIRS_PER_BATCH,
        "model": {"d_model": D_MODEL, "num_encoder_layers": 2, "num_decoder_layers": 2, "norm_placement": "post"},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(device),
        "versions": versions(),
        "losses": {norm: vars(one) for norm, one in curves.items()},
    }


def draw(language: str, curves: dict[str, Curves]) -> Figure:
    """Training left, valid in both modes in the middle, the gap between these right."""
    words = in_language(WORDS, language)
    figure = new_figure(14.5, 4.6)
    figure.suptitle(words["what"].format(steps=curves[NORMS[0]].steps[-1]), fontsize=11)
    left, middle, right = figure.subplots(1, 3)
    for index, (norm, one) in enumerate(curves.items()):
        colour = {"color": f"C{index}"}
        gap = [own - other for own, other in zip(one.valid, one.valid_training_mode, strict=True)]
        left.plot(one.steps, one.train, label=words[norm], **colour)
        middle.plot(one.steps, one.valid, label=words[norm], **colour)
        middle.plot(one.steps, one.valid_training_mode, "--", linewidth=1.2, **colour)
        right.plot(one.steps, gap, label=words[norm], **colour)
    right.axhline(0, color="#999999", linewidth=0.8, zorder=0)
    left.set(title=words["train"], ylabel=words["loss"])
    middle.set(title=words["valid"], ylabel=words["loss"])
    right.set(title=words["gap"], ylabel=words["difference"])
    top = 1.05 * max(one.train[0] for one in curves.values())
    right.set_ylim(top=1.35 * right.get_ylim()[1])  # room for the legend
    for panel in (left, middle):
        panel.set_ylim(0, top)
    for panel in (left, middle, right):
        panel.set_xlabel(words["step"])
        panel.grid(visible=True, alpha=0.25)
        panel.legend(frameon=False, loc="upper right")
    return figure
