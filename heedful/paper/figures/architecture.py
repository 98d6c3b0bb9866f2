"""Figure 1 with real shapes: every part of the model, the shape of its output, and its number of parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from heedful.build_model import num_parameters
from heedful.config import ModelConfig
from heedful.errors import ConfigError
from heedful.model.transformer import Transformer
from heedful.paper.plot_style import in_language, new_figure, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BATCH, SOURCE, TARGET = 32, 20, 24

WIDTHS = r"$d_\mathrm{{model}} = {d},\ d_\mathrm{{ff}} = {f},\ h = {h}$"

ARCHITECTURE_WORDS = {
    "source": ("source ids", "源句词元 id"),
    "target": ("target ids, shifted right", "目标句词元 id（右移一位）"),
    "embedding": ("Embedding × √d_model", "词嵌入 × √d_model"),
    "positions": ("+ positional encoding", "+ 位置编码"),
    "self_attention": ("Multi-head self-attention", "多头自注意力"),
    "masked_attention": ("Masked multi-head self-attention", "带掩码的多头自注意力"),
    "cross_attention": ("Multi-head cross-attention", "多头交叉注意力"),
    "feed_forward": ("Feed-forward", "前馈网络"),
    "norm": ("Add & norm", "残差相加与归一化"),
    "norm_first": ("Norm", "归一化"),
    "final_norm": ("Final norm", "末层归一化"),
    "output": ("Linear to the vocabulary", "线性映射到词表"),
    "softmax": ("Softmax", "Softmax"),
    "parameters": ("{count} parameters", "{count} 个参数"),
    "shared": ("tied to the source embedding", "与源端词嵌入共享"),
    "shared_target": ("tied to the target embedding", "与目标端词嵌入共享"),
    "none": ("no parameters", "无参数"),
    "stack": ("{n} × layer: {count} each", "{n} × 层：每层 {count}"),
    "total": ("{total} parameters", "共 {total} 个参数"),
    "sizes": ("batch {b}, source length {s}, target length {t}", "批次 {b}，源句长 {s}，目标句长 {t}"),
    "boxes": ("in each box: output shape · parameters", "每个框内：输出形状 · 参数量"),
    "memory": ("K, V", "K、V"),
    "query": ("Q", "Q"),
}


@dataclass(frozen=True)
class Box:
    """One box of the figure; `shared` is the key of the text that says what its parameters are shared with."""

    name: str
    shape: tuple[int, ...]
    num_parameters: int
    layered: bool = False
    shared: str | None = None


@dataclass(frozen=True)
class Stacks:
    """The boxes of encoder and decoder from bottom to top, and the total number of parameters."""

    encoder: list[Box]
    decoder: list[Box]
    total: int


def trace(config: ModelConfig, *, batch: int = BATCH, source: int = SOURCE, target: int = TARGET) -> Stacks:
    """Run a model on the meta device, where nothing is computed, and record every output shape."""
    if config.architecture != "transformer":
        raise ConfigError(
            f"the figure architecture shows a Transformer, and this is a {config.architecture} model; "
            f"choose other figures with --only."
        )
    with torch.device("meta"):
        model = Transformer(config)
        shapes: dict[str, tuple[int, ...]] = {}
        for name, module in model.named_modules():
            module.register_forward_hook(_shape_recorder(shapes, name))
        logits = model(torch.zeros(batch, source, dtype=torch.long), torch.zeros(batch, target, dtype=torch.long))

    parts = dict(model.named_modules())

    def box(name: str, path: str, *, layered: bool = True) -> Box:
        return Box(name, shapes[path], num_parameters(parts[path]), layered)

    def sublayers(stack: str, names: dict[str, str]) -> list[Box]:
        boxes = []
        for module, name in names.items():
            own = box(name, f"{stack}.layers.0.{module}")
            norm = box("norm_first" if config.norm_placement == "pre" else "norm", f"{stack}.layers.0.{module}_norm")
            boxes += [norm, own] if config.norm_placement == "pre" else [own, norm]
        return boxes + ([box("final_norm", f"{stack}.norm", layered=False)] if config.has_final_norm else [])

    first = {"self_attention": "self_attention", "feed_forward": "feed_forward"}
    second = {
        "self_attention": "masked_attention",
        "cross_attention": "cross_attention",
        "feed_forward": "feed_forward",
    }
    encoder = [*_inputs(model, "source", (batch, source, config.d_model)), *sublayers("encoder", first)]
    decoder = [*_inputs(model, "target", (batch, target, config.d_model)), *sublayers("decoder", second)]
    tied = {"three_way": "shared", "target": "shared_target", "none": None}[config.tying]
    num_learned = num_parameters(model.output) if model.output is not None else 0
    decoder += [
        Box("output", tuple(logits.shape), num_learned, shared=tied),
        Box("softmax", tuple(logits.shape), 0),
    ]
    return Stacks(encoder, decoder, num_parameters(model))


def _shape_recorder(shapes: dict[str, tuple[int, ...]], name: str) -> Any:
    def record(module: nn.Module, inputs: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) else output
        shapes[name] = tuple(first.shape)

    return record


def _inputs(model: Transformer, side: str, shape: tuple[int, ...]) -> list[Box]:
    table: nn.Module | None = getattr(model, f"{side}_embedding")
    num_learned: nn.Module | None = getattr(model, f"{side}_positions")
    boxes = [
        Box(side, shape[:2], 0),
        Box("embedding", shape, num_parameters(table) if table else 0, shared=None if table else "shared"),
    ]
    if model.config.positions != "rotary":
        boxes.append(Box("positions", shape, num_parameters(num_learned) if num_learned else 0))
    return boxes


def draw_architecture(language: str, config: ModelConfig) -> Figure:
    """Draw the encoder on the left and the decoder on the right, with data flowing upwards."""
    words = in_language(ARCHITECTURE_WORDS, language)
    stacks = trace(config)
    figure = new_figure(9.6, 12.4)
    panel = figure.subplots()
    layers = (config.num_encoder_layers, config.num_decoder_layers)
    tops = [
        _column(panel, 0.0, stacks.encoder, layers[0], words, config.d_ff),
        _column(panel, 6.2, stacks.decoder, layers[1], words, config.d_ff),
    ]
    cross, top, highest = tops[1]["cross_attention"], tops[0]["top"], max(tops[1]["top"], tops[0]["top"])
    points = [(2.2, top), (2.2, top + 0.6), (5.45, top + 0.6), (5.45, cross), (6.2, cross)]
    panel.plot([x for x, _ in points[:-1]], [y for _, y in points[:-1]], color=theme().text, linewidth=1.2)
    _arrow(panel, points[-1], points[-2])
    panel.text(5.36, cross, words["memory"], ha="right", va="center", fontsize=10)
    panel.text(6.2 + BOX_WIDTH / 2 - 0.14, cross - HEIGHT / 2 - GAP / 2, words["query"], ha="right", va="center")
    facts = {"total": f"{stacks.total:,}", "d": config.d_model, "f": config.d_ff, "h": config.num_heads}
    sizes = words["sizes"].format(b=BATCH, s=SOURCE, t=TARGET)
    lines = [words["total"].format(**facts), WIDTHS.format(**facts), sizes, words["boxes"]]
    for index, line in enumerate(lines):
        panel.text(-0.4, highest - 0.45 * index, line, ha="left", va="top", fontsize=12 if index == 0 else 10.5)
    panel.set(xlim=(-1.1, 11.6), ylim=(-0.1, highest + 0.2))
    panel.axis("off")
    return figure


HEIGHT, GAP, BOX_WIDTH = 0.78, 0.42, 4.4
FRAME_SPACE = 0.3
"""Additional space below and above the frame of the layers."""


def _arrow(panel: Axes, end: tuple[float, float], start: tuple[float, float], *, muted: bool = False) -> None:
    colour = theme().muted if muted else theme().text
    arrow = {"arrowstyle": "->", "lw": 1.0 if muted else 1.2, "color": colour, "shrinkA": 0, "shrinkB": 0}
    panel.annotate("", xy=end, xytext=start, arrowprops=arrow)


def _column(
    panel: Axes, left: float, boxes: list[Box], num_layers: int, words: dict[str, str], d_ff: int
) -> dict[str, float]:
    """Draw one stack; returns the height of the middle of each box, and of the top of the last."""
    layered = [index for index, box in enumerate(boxes) if box.layered]
    bottoms = [
        index * (HEIGHT + GAP) + FRAME_SPACE * ((index >= layered[0]) + (index > layered[-1]))
        for index in range(len(boxes))
    ]
    middle = left + BOX_WIDTH / 2
    for index, (box, bottom) in enumerate(zip(boxes, bottoms, strict=True)):
        _box(panel, left, bottom, box, words, d_ff)
        if index:
            below = bottoms[index - 1] + HEIGHT + (0.02 if index > 1 else -0.12)
            _arrow(panel, (middle, bottom - 0.02), (middle, below))
    for first in layered[::2]:  # pairs of sublayer and norm
        _residual(panel, left, bottoms[first], norm_first=boxes[first].name == "norm_first")
    _frame(panel, left, bottoms[layered[0]] - 0.3, bottoms[layered[-1]] + HEIGHT + 0.3)
    count = sum(box.num_parameters for box in boxes if box.layered)
    height = (bottoms[layered[0]] + bottoms[layered[-1]] + HEIGHT) / 2
    place = left - 0.72 if left == 0 else left + BOX_WIDTH + 0.66
    text = words["stack"].format(n=num_layers, count=f"{count:,}")
    panel.text(place, height, text, rotation=90, ha="center", va="center", fontsize=10)
    heights = {box.name: bottom + HEIGHT / 2 for box, bottom in zip(boxes, bottoms, strict=True)}
    return {**heights, "top": bottoms[-1] + HEIGHT}


def _box(panel: Axes, left: float, bottom: float, box: Box, words: dict[str, str], d_ff: int) -> None:
    from matplotlib.patches import FancyBboxPatch

    is_input = box.name in ("source", "target")
    if not is_input:
        shape = FancyBboxPatch((left, bottom), BOX_WIDTH, HEIGHT, boxstyle="round,pad=0.02,rounding_size=0.1")
        shape.set(facecolor=_fill(box.name), edgecolor=theme().muted, zorder=2)
        panel.add_patch(shape)
    dimensions = " × ".join(map(str, box.shape))
    if box.name == "feed_forward":
        dimensions += f" → {d_ff} → {box.shape[-1]}"
    second = dimensions if is_input else f"{dimensions}  ·  {_parameters(box, words)}"
    middle = left + BOX_WIDTH / 2
    panel.text(middle, bottom + 0.54, words[box.name], ha="center", va="center", fontsize=10.5)
    panel.text(middle, bottom + 0.22, second, ha="center", va="center", fontsize=8.2)


def _residual(panel: Axes, left: float, bottom: float, *, norm_first: bool) -> None:
    """The residual connection around a sublayer: into its norm (post), or to the sum above (pre)."""
    middle, side = left + BOX_WIDTH / 2, left + BOX_WIDTH + 0.2
    start, upper = bottom - (0.1 if norm_first else 0.3), bottom + HEIGHT + GAP
    if norm_first:
        end = (middle, upper + HEIGHT + 0.18)
        panel.text(
            *end,
            "+",
            ha="center",
            va="center",
            fontsize=8,
            bbox={"boxstyle": "circle,pad=0.1", "fc": theme().background, "ec": theme().muted},
        )
        end = (middle + 0.12, end[1])
    else:
        end = (left + BOX_WIDTH + 0.02, upper + HEIGHT / 2)
    panel.plot([middle, side, side], [start, start, end[1]], color=theme().muted, linewidth=1)
    _arrow(panel, end, (side, end[1]), muted=True)


def _frame(panel: Axes, left: float, bottom: float, top: float) -> None:
    from matplotlib.patches import FancyBboxPatch

    frame = FancyBboxPatch((left - 0.4, bottom - 0.06), BOX_WIDTH + 0.8, top - bottom + 0.04)
    frame.set(fill=False, edgecolor=theme().muted, linestyle="--")
    frame.set_boxstyle("round,pad=0.02,rounding_size=0.2")
    panel.add_patch(frame)


def _parameters(box: Box, words: dict[str, str]) -> str:
    if box.shared is not None:
        return words[box.shared]
    return words["parameters"].format(count=f"{box.num_parameters:,}") if box.num_parameters else words["none"]


def _fill(name: str) -> str:
    kinds = {"embedding": "embedding", "positions": "embedding", "output": "output", "softmax": "softmax"}
    kinds |= {"feed_forward": "forward", "norm": "norm", "norm_first": "norm", "final_norm": "norm"}
    return theme().fills[kinds.get(name, "attention")]
