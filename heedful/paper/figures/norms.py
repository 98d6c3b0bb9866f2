"""The figures about normalization: the axes of LayerNorm and BatchNorm, both on a padded batch, and in training."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from heedful.build_model import build_model
from heedful.config import TrainingConfig
from heedful.data.packing import Batch
from heedful.model.norms import BatchNorm, LayerNorm
from heedful.paper.plot_style import PAGE_WIDTH, Canvas, Place, heat_colours, in_language, new_figure, theme
from heedful.paper.synthetic_tasks import SyntheticTraining, draw_digits, make_batch, single_thread, small_config
from heedful.tensor_types import Bool, Float
from heedful.training.loss import smoothed_cross_entropy
from heedful.training.optimizer import Schedule
from heedful.training.step import TrainingStep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LENGTHS = (12, 9, 7, 5, 3, 2)
WIDTH, PADDING_VALUE, FEATURE = 16, 4.0, 0

NORM_WORDS = {
    "input": ("Input, padding = {padding:g}", "输入，填充值 = {padding:g}"),
    "layer": ("LayerNorm", "LayerNorm"),
    "batch": ("BatchNorm, padding excluded", "BatchNorm（不计填充）"),
    "batch_padded": ("BatchNorm, padding included", "BatchNorm（计入填充）"),
    "over_layer": ("over the {width} features of each token", "对每个词元的 {width} 个特征归一化"),
    "over_batch": ("over the real tokens of all sentences", "对所有句子的真实词元归一化"),
    "over_batch_padded": ("over all positions, padding too", "对所有位置归一化，含填充"),
    "shown": (
        "A padded batch of {sentences} sentences, {tokens} positions and {width} features; the maps show feature 1",
        "一个填充后的批次：{sentences} 句，{tokens} 个位置，{width} 个特征；色图显示第 1 个特征",
    ),
    "value": ("value", "数值"),
    "sentence": ("sentence", "句子"),
    "token": ("token (grey: padding)", "词元（灰色为填充）"),
    "padding": ("Real tokens change with the padding", "真实词元随填充值的变化"),
    "held": ("padding value", "填充值"),
    "change": ("largest change", "最大变化"),
    "others": ("Sentence 1 changes with the others", "更换同批句子后句 1 的变化"),
    "gradient": ("Gradient of the loss of sentence 1 at every sentence", "句 1 的损失对各句的梯度"),
    "norm": ("gradient norm", "梯度范数"),
}


def padded_batch(padding: float = PADDING_VALUE, *, others_seed: int = 2) -> tuple[Tensor, Tensor]:
    """Sentences of different lengths: values (B, T, D) and mask of real tokens (B, T); the first is always the same."""
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    scale = torch.linspace(0.5, 2.0, WIDTH)
    first = torch.randn(1, max(LENGTHS), WIDTH, generator=torch.Generator().manual_seed(1))
    others = torch.randn(len(LENGTHS) - 1, max(LENGTHS), WIDTH, generator=torch.Generator().manual_seed(others_seed))
    x = torch.cat((first, others)) * scale + 0.5
    return x.masked_fill(~mask[..., None], padding), mask


def normalised(kind: str, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
    """The batch after one of the three norms, in training mode."""
    if kind == "layer":
        return LayerNorm(WIDTH, eps=1e-5).train()(x)
    norm = BatchNorm(WIDTH, eps=1e-5, bias=True).train()
    return norm(x, torch.ones_like(mask) if kind == "batch_padded" else mask)


def change_by_padding(kind: str, padding: float) -> float:
    """The largest change of a real token when the padding value is `padding` instead of 0."""
    (x, mask), (other, _) = padded_batch(0.0), padded_batch(padding)
    return (normalised(kind, x, mask) - normalised(kind, other, mask))[mask].abs().max().item()


def change_by_other_sentences(kind: str) -> float:
    """The largest change of the first sentence when the other sentences in the batch are replaced."""
    (x, mask), (other, _) = padded_batch(), padded_batch(others_seed=3)
    return (normalised(kind, x, mask) - normalised(kind, other, mask))[0].abs().max().item()


def gradient_by_sentence(kind: str) -> list[float]:
    """The norm of the gradient at every sentence, for a loss on the first sentence only."""
    x, mask = padded_batch()
    x.requires_grad_()
    target = torch.randn(max(LENGTHS), WIDTH, generator=torch.Generator().manual_seed(4))
    ((normalised(kind, x, mask)[0] - target)[mask[0]].square().mean()).backward()
    assert x.grad is not None
    return x.grad.flatten(1).norm(dim=1).tolist()


KINDS = ("layer", "batch", "batch_padded")


def draw_norms(language: str) -> Figure:
    """Draw the normalized values above, the effects of padding and of other sentences below."""
    words = in_language(NORM_WORDS, language)
    figure = new_figure(PAGE_WIDTH, 9.6)
    sizes = {"sentences": len(LENGTHS), "tokens": max(LENGTHS), "width": WIDTH}
    figure.suptitle(words["shown"].format(**sizes), fontsize=10)
    grid = figure.add_gridspec(4, 2, height_ratios=(1, 1, 1.35, 1.25))
    x, mask = padded_batch()
    heat_maps = {"input": x, **{kind: normalised(kind, x, mask).detach() for kind in KINDS}}
    panels = [figure.add_subplot(grid[index // 2, index % 2]) for index in range(4)]
    for panel, (name, values) in zip(panels, heat_maps.items(), strict=True):
        title = words[name].format(padding=PADDING_VALUE)
        over = words[f"over_{name}"].format(width=WIDTH) if name != "input" else ""
        image = _heat_map(panel, values[..., FEATURE], mask, words, f"{title}\n{over}" if over else title)
    figure.colorbar(image, ax=panels, label=words["value"], shrink=0.7, aspect=30)
    _padding_panel(figure.add_subplot(grid[2, 0]), words)
    _others_panel(figure.add_subplot(grid[2, 1]), words)
    _gradient_panel(figure.add_subplot(grid[3, :]), words)
    return figure


def _heat_map(panel: Axes, values: Tensor, mask: Tensor, words: dict[str, str], title: str) -> Any:
    masked = values.masked_fill(~mask, float("nan")).numpy()
    panel.set_facecolor(theme().faint)
    colours = heat_colours(signed=True)
    image = panel.pcolormesh(masked, cmap=colours, vmin=-3, vmax=3, edgecolors=theme().background, linewidth=0.5)
    panel.invert_yaxis()
    panel.set_yticks([index + 0.5 for index in range(len(LENGTHS))], [str(index + 1) for index in range(len(LENGTHS))])
    panel.set_xticks([])
    panel.tick_params(length=0)
    panel.set_title(title, fontsize=10)
    panel.set(xlabel=words["token"], ylabel=words["sentence"])
    return image


def _padding_panel(panel: Axes, words: dict[str, str]) -> None:
    """Change of the real tokens by padding value; the two norms that ignore padding lie on each other at zero."""
    paddings = [value / 2 for value in range(-16, 17)]
    for kind, style, width in zip(KINDS, ("-", "--", "-"), (4.0, 1.8, 1.8), strict=True):
        changes = [change_by_padding(kind, value) for value in paddings]
        panel.plot(paddings, changes, style, linewidth=width, label=words[kind])
    panel.set(xlabel=words["held"], ylabel=words["change"])
    panel.set_title(words["padding"], fontsize=10)
    panel.set_ylim(top=1.75 * panel.get_ylim()[1])  # space for the legend above the curve
    panel.legend(frameon=False, loc="upper center", fontsize=9)


def _others_panel(panel: Axes, words: dict[str, str]) -> None:
    changes = [change_by_other_sentences(kind) for kind in KINDS]
    bars = panel.bar(range(len(KINDS)), changes, color=list(theme().colours[: len(KINDS)]), width=0.6)
    panel.bar_label(bars, fmt="%.2f")
    panel.margins(y=0.12)
    names = [words[kind].replace(", ", ",\n").replace("（", "\n（").replace("padding ", "padding\n") for kind in KINDS]
    panel.set_xticks(range(len(KINDS)), names, fontsize=9)
    panel.set_ylabel(words["change"])
    panel.set_title(words["others"], fontsize=10)


def _gradient_panel(panel: Axes, words: dict[str, str]) -> None:
    for index, kind in enumerate(KINDS):
        places = [number + 1 + 0.27 * (index - 1) for number in range(len(LENGTHS))]
        panel.bar(places, gradient_by_sentence(kind), width=0.25, label=words[kind])
    panel.set_yscale("symlog", linthresh=1e-3)
    panel.set(xlabel=words["sentence"], ylabel=words["norm"], ylim=(0, 3))
    panel.set_title(words["gradient"], fontsize=10)
    panel.legend(frameon=False, fontsize=9)


NORMS = ("layer", "rms", "batch")
STEPS, NUM_POINTS, SEED = 500, 25, 1
PAIRS_PER_BATCH, VALID_BATCHES = 12, 8
D_MODEL = 64
TASK = SyntheticTraining(task="sort", min_length=2, max_length=20, length_spread=3, pairs_per_batch=PAIRS_PER_BATCH)

NORM_TRAINING_WORDS = {
    "layer": ("LayerNorm", "LayerNorm"),
    "rms": ("RMSNorm", "RMSNorm"),
    "batch": ("BatchNorm", "BatchNorm"),
    "train": ("Training loss", "训练损失"),
    "valid": (
        "Valid loss: training mode (dashed), evaluation mode (solid)",
        "验证损失：虚线为训练模式，实线为评估模式",
    ),
    "gap": ("Evaluation minus training mode", "评估模式减训练模式"),
    "zero": ("LayerNorm and RMSNorm: 0", "LayerNorm 与 RMSNorm：0"),
    "step": ("step", "步"),
    "loss": ("loss per token (nats)", "每个词元的损失（nat）"),
    "difference": ("difference (nats)", "差（nat）"),
    "what": (
        "Sorting digits, {steps} steps, same data and seed. In training mode the statistics of\n"
        "BatchNorm leak later tokens: only the solid lines of valid loss are a fair comparison.",
        "数字排序任务，{steps} 步，数据与随机种子相同。训练模式下 BatchNorm 的统计量\n"
        "会泄露后面的词元：验证损失中只有实线可以公平比较。",
    ),
}

Progress = Callable[[str, int, int | None], None]


@dataclass
class Curves:
    """The losses of one norm at some steps."""

    steps: list[int] = field(default_factory=list)
    train: list[float] = field(default_factory=list)
    """Mean since the previous point."""
    valid_training_mode: list[float] = field(default_factory=list)
    """With the statistics of each batch."""
    valid: list[float] = field(default_factory=list)
    """In evaluation mode, as for inference."""


def sorting_batch(generator: random.Random) -> Batch:
    """Digits and the same digits sorted, one pair per row, of similar lengths, padded to the longest."""
    return make_batch(TASK.task, draw_digits(generator, TASK))


@torch.no_grad()
def valid_loss(model: nn.Module, batches: list[Batch], *, training_mode: bool) -> float:
    """Mean loss per token in either mode; running statistics are not changed."""
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


def train_norm(
    norm: str, *, steps: int, device: torch.device, seed: int = SEED, report: Progress | None = None
) -> Curves:
    """Train the small model with one norm; data and initial weights depend only on the seed.

    The task is to sort digits. A batch holds sentences of similar length, as in section 5.1, one per row and padded.
    Without dropout, training and evaluation mode differ only by BatchNorm, which then uses its running statistics. In
    training mode its statistics cover whole targets and leak later tokens: only evaluation mode is a fair comparison.
    """
    torch.manual_seed(seed)
    model = build_model(small_config(norm=norm)).to(device)
    config = TrainingConfig(
        steps=steps, warmup_steps=max(1, steps // 6), learning_rate=2e-3, schedule="cosine", label_smoothing=0.0,
        clip_norm=1.0, compile=False, precision="fp32",
    )  # fmt: skip
    step, schedule = TrainingStep(model, config, device), Schedule(config, D_MODEL)
    held_out, rng = random.Random(-1 - seed), random.Random(seed)
    valid = [sorting_batch(held_out).to(device) for _ in range(VALID_BATCHES)]
    every, curves = max(1, steps // NUM_POINTS), Curves()
    loss_sum = torch.zeros((), device=device)
    num_tokens = 0
    for number in range(1, steps + 1):
        batch = sorting_batch(rng)
        loss_sum += step(batch, batch.num_tokens, schedule.rate(number, (number - 1) / steps)).loss_sum
        num_tokens += batch.num_tokens
        if report is not None:
            report(f"norm_training: {NORM_TRAINING_WORDS[norm][0]}, {steps} steps", 1, steps)
        if number % every == 0 or number == steps:
            curves.steps.append(number)
            curves.train.append(loss_sum.item() / num_tokens)
            curves.valid_training_mode.append(valid_loss(model, valid, training_mode=True))
            curves.valid.append(valid_loss(model, valid, training_mode=False))
            loss_sum.zero_()
            num_tokens = 0
    return curves


def train_all(
    *, steps: int, device: torch.device, seed: int = SEED, report: Progress | None = None
) -> dict[str, Curves]:
    """Train the model with every norm."""
    with single_thread(device):
        return {norm: train_norm(norm, steps=steps, device=device, seed=seed, report=report) for norm in NORMS}


def norm_training_results(curves: dict[str, Curves], *, device: torch.device, seed: int = SEED) -> dict[str, Any]:
    """The numbers of the figure and their setup as plain data."""
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


STYLES = {"layer": {"linewidth": 4.0, "alpha": 0.6}, "rms": {"linewidth": 1.6}, "batch": {"linewidth": 1.6}}
"""LayerNorm is the widest line, so that it shows below the others where they coincide."""


def draw_norm_training(language: str, curves: dict[str, Curves]) -> Figure:
    """Draw training loss, the gap between the modes, and valid loss in both modes."""
    words = in_language(NORM_TRAINING_WORDS, language)
    figure = new_figure(PAGE_WIDTH, 6.6)
    figure.suptitle(words["what"].format(steps=curves[NORMS[0]].steps[-1]), fontsize=10)
    grid = figure.add_gridspec(2, 2)
    train, gap, valid = (figure.add_subplot(place) for place in (grid[0, 0], grid[0, 1], grid[1, :]))
    for index, (norm, one) in enumerate(curves.items()):
        style: dict[str, Any] = {"color": f"C{index}", **STYLES[norm]}
        difference = [own - other for own, other in zip(one.valid, one.valid_training_mode, strict=True)]
        train.plot(one.steps, one.train, label=words[norm], **style)
        valid.plot(one.steps, one.valid, label=words[norm], **style)
        valid.plot(one.steps, one.valid_training_mode, "--", color=f"C{index}", linewidth=1.2)
        gap.plot(one.steps, difference, label=words[norm], **style)
    train.set(ylabel=words["loss"])
    valid.set(ylabel=words["loss"])
    gap.set(ylabel=words["difference"])
    gap.annotate(
        words["zero"],
        (0.98, 0),
        xycoords=("axes fraction", "data"),
        xytext=(0, 5),
        textcoords="offset points",
        ha="right",
        fontsize=9,
    )
    top = 1.05 * max(one.train[0] for one in curves.values())
    for panel, title in ((train, "train"), (gap, "gap"), (valid, "valid")):
        panel.set_title(words[title], fontsize=10)
        panel.set_xlabel(words["step"])
        panel.grid(visible=True, alpha=0.25)
        if panel is not gap:
            panel.set_ylim(0, top)
    valid.legend(frameon=False, loc="upper right")
    return figure


# ---- which values share a mean and a variance, as a cube of sentences, positions and features

CUBE_LENGTHS = (3, 5, 4)
"""Of the sentences, the nearest first; the shorter ones are padded to the longest."""
CUBE_FEATURES = 4
CUBE_CELLS = {"layer": (0, 1, 0), "batch": (0, 1, 0), "batch_padded": (0, 1, 0)}
"""By norm: the value whose mean and variance are shown, by sentence, position and feature (0 is uppermost)."""

NORM_AXES_WORDS = {
    "layer": ("LayerNorm", "LayerNorm"),
    "batch": ("BatchNorm without padding", "BatchNorm，不计填充"),
    "batch_padded": ("BatchNorm with padding", "BatchNorm，计入填充"),
    "layer_note": ("one token, all features", "一个词元，全部特征"),
    "batch_note": ("one feature, all real tokens", "一个特征，全部真实词元"),
    "batch_padded_note": ("one feature, padding too", "一个特征，连同填充"),
    "count": ("mean of {n} values", "{n} 个值的均值"),
    "batch_axis": ("sentence", "句子"),
    "position_axis": ("position", "位置"),
    "feature_axis": ("feature", "特征"),
    "shared": ("same mean and variance as the marked value", "与标记的值共用均值和方差"),
    "real": ("other values", "其他值"),
    "padding": ("padding", "填充"),
    "title": ("Which axis is normalised?", "沿哪个轴归一化？"),
}


def shared_statistics(kind: str) -> Bool[Tensor, "B T D"]:
    """The inputs whose change reaches the normalised value at `CUBE_CELLS[kind]`, found with autograd."""
    mask = real_tokens()
    x = torch.randn(len(CUBE_LENGTHS), max(CUBE_LENGTHS), CUBE_FEATURES, generator=torch.Generator().manual_seed(1))
    x = x.double().requires_grad_()
    if kind == "layer":
        output = LayerNorm(CUBE_FEATURES, eps=1e-5).double().train()(x)
    else:
        norm = BatchNorm(CUBE_FEATURES, eps=1e-5, bias=True).double().train()
        output = norm(x, torch.ones_like(mask) if kind == "batch_padded" else mask)
    (gradient,) = torch.autograd.grad(output[CUBE_CELLS[kind]], x)
    return gradient.abs() > 1e-12


def real_tokens() -> Bool[Tensor, "B T"]:
    """Which positions are not padding."""
    return torch.arange(max(CUBE_LENGTHS)) < torch.tensor(CUBE_LENGTHS)[:, None]


CUBE_SIDE, CUBE_DEPTH = 21.0, (10.0, 8.0)
"""Size of a cell in points, and the offset from one sentence to the next."""
CUBE_WIDTH, CUBE_HEIGHT = 500.0, 254.0


def draw_norm_axes(language: str) -> Figure:
    """Draw the three cubes side by side."""
    words = in_language(NORM_AXES_WORDS, language)
    canvas = Canvas(CUBE_WIDTH, CUBE_HEIGHT)
    canvas.text((CUBE_WIDTH / 2, CUBE_HEIGHT - 15), words["title"], size=11.5)
    for index, kind in enumerate(("layer", "batch", "batch_padded")):
        left = 26 + index * 162
        shared = shared_statistics(kind)
        middle = left + max(CUBE_LENGTHS) * CUBE_SIDE / 2 + 8
        canvas.text((middle, CUBE_HEIGHT - 42), words[kind], size=10.5)
        canvas.text((middle, CUBE_HEIGHT - 58), words[f"{kind}_note"], size=8.5, colour=theme().muted)
        _cube(canvas, (left, 74), shared, CUBE_CELLS[kind])
        canvas.text((middle - 8, 62), words["position_axis"] + " →", size=8.5)
        half_height = CUBE_FEATURES * CUBE_SIDE / 2
        canvas.text((left - 10, 74 + half_height), "← " + words["feature_axis"], size=8.5, rotation=90)
        right = left + max(CUBE_LENGTHS) * CUBE_SIDE
        slope = (right + 1.5 * CUBE_DEPTH[0] + 8, 74 + 1.5 * CUBE_DEPTH[1] - 8)
        canvas.text(slope, words["batch_axis"] + " →", size=8, rotation=39)
        canvas.text((middle, 44), words["count"].format(n=int(shared.sum())), size=9.5, colour=theme().colours[0])
    _legend(canvas, words)
    return canvas.figure


def _cube(canvas: Canvas, corner: Place, shared: Bool[Tensor, "B T D"], cell: tuple[int, int, int]) -> None:
    """The front (first sentence), the top (first feature) and the right side (last position) of the cube."""
    real = real_tokens()
    num_sentences, length, num_features = shared.shape

    def place(sentence: float, position: float, feature: float) -> Place:
        """The point at these distances from the corner that is first in every axis, which is at the upper left."""
        across = corner[0] + position * CUBE_SIDE + sentence * CUBE_DEPTH[0]
        return across, corner[1] + (num_features - feature) * CUBE_SIDE + sentence * CUBE_DEPTH[1]

    def face(index: tuple[int, int, int], *corners: tuple[float, float, float]) -> None:
        sentence, position, _ = index
        colours = theme()
        fill = colours.colours[0] if shared[index] else colours.heat[1] if real[sentence, position] else colours.blank
        points = [place(*one) for one in corners]
        shape = canvas.polygon(*points, fill=fill)
        if not real[sentence, position]:
            shape.set(hatch="////", linewidth=0.7)
        if index == cell:
            middle = [sum(axis) / 4 for axis in zip(*points, strict=True)]
            canvas.panel.plot(*middle, "o", color=colours.background, markersize=4.5, zorder=5)

    for t in range(length):
        for d in range(num_features):
            face((0, t, d), (0, t, d), (0, t + 1, d), (0, t + 1, d + 1), (0, t, d + 1))
        for b in range(num_sentences):
            face((b, t, 0), (b, t, 0), (b, t + 1, 0), (b + 1, t + 1, 0), (b + 1, t, 0))
    for b in range(num_sentences):
        for d in range(num_features):
            face((b, length - 1, d), (b, length, d), (b + 1, length, d), (b + 1, length, d + 1), (b, length, d + 1))


def _legend(canvas: Canvas, words: dict[str, str]) -> None:
    colours = theme()
    entries = (("shared", colours.colours[0]), ("real", colours.heat[1]), ("padding", colours.blank))
    across = 20.0
    for name, fill in entries:
        corners = (across, 12), (across + 12, 12), (across + 12, 24), (across, 24)
        shape = canvas.polygon(*corners, fill=fill)
        if name == "padding":
            shape.set(hatch="////")
        text = canvas.text((across + 17, 18), words[name], size=9, ha="left")
        across += 17 + canvas.width_of(text) + 20
