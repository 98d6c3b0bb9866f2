"""Figure 2 of the paper with the shapes of a model, and the splitting of its heads with their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from heedful.build_model import num_parameters
from heedful.config import ModelConfig
from heedful.errors import ConfigError
from heedful.model.attention import MultiHeadAttention, attend_explicit
from heedful.model.transformer import Transformer
from heedful.model_dir import LoadedModel
from heedful.paper.figures.architecture import BATCH, SOURCE, TARGET
from heedful.paper.plot_style import Canvas, heat_colours, in_language, theme
from heedful.tensor_types import Float

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MULTI_HEAD_WORDS = {
    "one": ("Scaled dot-product attention", "缩放点积注意力"),
    "all": ("Multi-head attention", "多头注意力"),
    "matmul": ("MatMul", "矩阵乘法"),
    "scale": ("Scale", "缩放"),
    "mask": ("Mask", "掩码"),
    "softmax": ("Softmax over the keys", "对键做 softmax"),
    "linear": ("Linear", "线性层"),
    "concat": ("Concatenate", "拼接"),
    "attention": ("Scaled dot-product attention", "缩放点积注意力"),
    "heads": ("{h} heads", "{h} 个头"),
    "parameters": ("all four linear layers: {n} parameters", "四个线性层共 {n} 个参数"),
    "axes_one": ("batch × heads × queries × keys or features", "批次 × 头 × 查询 × 键或特征"),
    "axes_all": ("batch × positions × features", "批次 × 位置 × 特征"),
    "title": (
        "Cross-attention, d_model {d}: {t} target tokens as queries, {s} source tokens as keys",
        "交叉注意力，d_model {d}：{t} 个目标词元作查询，{s} 个源句词元作键",
    ),
}


def attention_shapes(
    config: ModelConfig, *, batch: int = BATCH, queries: int = TARGET, keys: int = SOURCE
) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of one attention of this model, from a run in which nothing is computed."""
    with torch.device("meta"):
        attention = MultiHeadAttention(config)
        x, memory = torch.zeros(batch, queries, config.d_model), torch.zeros(batch, keys, config.d_model)
        mask = torch.ones(batch, 1, queries, keys, dtype=torch.bool)
        query, (key, value) = attention.queries(x), attention.keys_values(memory)
        attended = attend_explicit(query, key, value, mask, scoring=attention.scoring, dropout=0.0)
        assert attended.weights is not None
        concatenated = attended.values.transpose(1, 2).flatten(2)
        tensors = {
            "x": x,
            "memory": memory,
            "query": query,
            "key": key,
            "value": value,
            "scores": attention.scoring(query, key),
            "weights": attended.weights,
            "values": attended.values,
            "concatenated": concatenated,
            "output": attention.output(concatenated),
        }
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def shown(shape: tuple[int, ...]) -> str:
    """A shape as text."""
    return " × ".join(map(str, shape))


WIDTH, HEIGHT = 490.0, 474.0
LEFT, MIDDLE = 14.0, 250.0
BOX, TALL = 168.0, 38.0


def draw_multi_head(language: str, config: ModelConfig) -> Figure:
    """Draw the attention of one head on the left, and of all heads on the right, with data flowing upwards."""
    words = in_language(MULTI_HEAD_WORDS, language)
    shapes = attention_shapes(config)
    canvas = Canvas(WIDTH, HEIGHT)
    title = words["title"].format(d=config.d_model, t=TARGET, s=SOURCE)
    canvas.text((WIDTH / 2, HEIGHT - 16), title, size=11)
    canvas.line((MIDDLE - 10, 14), (MIDDLE - 10, HEIGHT - 40), colour=theme().faint)
    _draw_one_head(canvas, shapes, config, words)
    _draw_all_heads(canvas, shapes, config, words)
    return canvas.figure


def _draw_one_head(
    canvas: Canvas, shapes: dict[str, tuple[int, ...]], config: ModelConfig, words: dict[str, str]
) -> None:
    canvas.text((LEFT + 106, HEIGHT - 46), words["one"], size=11, weight="bold" if words["one"].isascii() else "normal")
    canvas.text((LEFT + 106, HEIGHT - 63), words["axes_one"], size=8.5, colour=theme().muted)
    fills = theme().fills
    steps = [
        ("matmul", r"$Q K^T$", shapes["scores"], fills["attention"]),
        ("scale", rf"$\div\sqrt{{{config.attention_key_dim}}}$", shapes["scores"], fills["norm"]),
        ("mask", r"$+\,M$", shapes["scores"], fills["embedding"]),
        ("softmax", "", shapes["weights"], fills["softmax"]),
        ("matmul", r"$A V$", shapes["values"], fills["attention"]),
    ]
    bottom, gap = 96.0, 20.0
    inputs = {"query": LEFT + 29, "key": LEFT + 105, "value": LEFT + 190}
    for name, letter in (("query", "Q"), ("key", "K"), ("value", "V")):
        canvas.text((inputs[name], 58), letter, size=12)
        lines = shown(shapes[name]).split(" × ")
        canvas.text((inputs[name], 40), f"{' × '.join(lines[:2])} ×", size=8.5, colour=theme().muted)
        canvas.text((inputs[name], 28), " × ".join(lines[2:]), size=8.5, colour=theme().muted)
    for name in ("query", "key"):
        canvas.arrow((inputs[name], 68), (inputs[name], bottom))
    for index, (name, formula, shape, fill) in enumerate(steps):
        place = (LEFT, bottom + index * (TALL + gap))
        canvas.box(place, (BOX, TALL), [("", 10), (shown(shape), 8.5)], fill=fill)
        high = place[1] + TALL - 12
        if formula:
            canvas.text((LEFT + BOX / 2 - 6, high), words[name], ha="right")
            canvas.text((LEFT + BOX / 2 + 6, high), formula, ha="left")
        else:
            canvas.text((LEFT + BOX / 2, high), words[name])
        if index:
            canvas.arrow((LEFT + BOX / 2, place[1] - gap), (LEFT + BOX / 2, place[1]))
    last = bottom + 4 * (TALL + gap)
    canvas.arrow((inputs["value"], 68), (inputs["value"], last + TALL / 2), (LEFT + BOX, last + TALL / 2))
    canvas.arrow((LEFT + BOX / 2, last + TALL), (LEFT + BOX / 2, last + TALL + 18))


def _draw_all_heads(
    canvas: Canvas, shapes: dict[str, tuple[int, ...]], config: ModelConfig, words: dict[str, str]
) -> None:
    centre = MIDDLE + 118
    canvas.text((centre, HEIGHT - 46), words["all"], size=11, weight="bold" if words["all"].isascii() else "normal")
    canvas.text((centre, HEIGHT - 63), words["axes_all"], size=8.5, colour=theme().muted)
    with torch.device("meta"):
        attention = MultiHeadAttention(config)
    wide, fills = 68.0, theme().fills
    columns = [("query", "Q", "x", 0.0), ("key", "K", "memory", 78.0), ("value", "V", "memory", 156.0)]
    for name, letter, given, across in columns:
        left = MIDDLE + across
        canvas.text((left + wide / 2, 58), letter, size=12)
        canvas.text((left + wide / 2, 40), shown(shapes[given][:2]) + " ×", size=8.5, colour=theme().muted)
        canvas.text((left + wide / 2, 28), str(shapes[given][2]), size=8.5, colour=theme().muted)
        canvas.arrow((left + wide / 2, 68), (left + wide / 2, 96))
        module = getattr(attention, name)
        inner = f"{module.in_features} → {module.out_features}"
        lines = [(words["linear"], 10.0), ("", 10.0), (inner, 8.5)]
        canvas.box((left, 96), (wide, 52), lines, fill=fills["forward"])
        canvas.text((left + wide / 2, 122), f"$W_{letter}$")
        canvas.arrow((left + wide / 2, 148), (left + wide / 2, 200))
        head = f"{shapes[name][1]} × {shapes[name][3]}"
        canvas.text((left + wide / 2, 172), head, size=8.5, colour=theme().muted, backgroundcolor=theme().background)
    lines = [(words["attention"], 10.0), (shown(shapes["values"]), 8.5)]
    canvas.box((MIDDLE, 200), (224, 46), lines, fill=fills["attention"], copies=3)
    canvas.text((MIDDLE + 224, 268), words["heads"].format(h=config.num_heads), ha="right", size=10)
    canvas.arrow((centre - 6, 254), (centre - 6, 284))
    lines = [(words["concat"], 10.0), (shown(shapes["concatenated"]), 8.5)]
    canvas.box((MIDDLE + 28, 284), (BOX, TALL), lines, fill=fills["norm"])
    canvas.arrow((centre - 6, 284 + TALL), (centre - 6, 342))
    canvas.box(
        (MIDDLE + 28, 328 + 14), (BOX, TALL), [("", 10.0), (shown(shapes["output"]), 8.5)], fill=fills["forward"]
    )
    canvas.text((centre - 10, 342 + TALL - 12), words["linear"], ha="right")
    canvas.text((centre - 2, 342 + TALL - 12), "$W_O$", ha="left")
    count = words["parameters"].format(n=f"{num_parameters(attention):,}")
    canvas.arrow((centre - 6, 342 + TALL), (centre - 6, 342 + TALL + 14))
    canvas.text((centre, 10), count, size=8.5, colour=theme().muted)


HEAD_SPLIT_WORDS = {
    "projected": ("Queries of all heads", "所有头的查询"),
    "split": ("Split into {h} heads of {w} features", "拆成 {h} 个头，每头 {w} 个特征"),
    "weights": ("Weights of each head", "每个头的权重"),
    "heads": ("Weighted sums of the values", "值的加权和"),
    "concatenated": ("Heads side by side again", "重新并排的各头"),
    "output": ("Output: one linear layer mixes the heads", "输出：由一个线性层混合各头"),
    "value": ("value (the limit is that of the row)", "数值（上下限见各行）"),
    "colours": ("colours ±{limit}", "颜色 ±{limit}"),
    "weight": ("weight", "权重"),
    "title": (
        "{source}\nencoder, layer 1; rows: the {t} tokens of the sentence",
        "{source}\n编码器第 1 层；各行为句子的 {t} 个词元",
    ),
}


@dataclass(frozen=True)
class HeadSplit:
    """The tensors of one multi-head self-attention, in order."""

    sentence: str
    projected: Float[Tensor, "T inner"]
    """Q = X W_Q of all heads."""
    split: Float[Tensor, "H T Dk"]
    weights: Float[Tensor, "H T T"]
    heads: Float[Tensor, "H T Dh"]
    concatenated: Float[Tensor, "T inner"]
    output: Float[Tensor, "T D"]


@torch.inference_mode()
def split_heads(loaded: LoadedModel, sentence: str, target_language: str | None) -> HeadSplit:
    """Run the first self-attention of the encoder on the sentence, step by step."""
    model = loaded.model
    if not isinstance(model, Transformer):
        raise ConfigError("the figure head_split shows a Transformer; choose other figures with --only.")
    source = torch.tensor([loaded.tokenizer.encode_source(sentence, target_language)])
    given: list[tuple[Tensor, dict[str, Any]]] = []

    def record(module: MultiHeadAttention, inputs: tuple[Tensor], named: dict[str, Any]) -> None:
        given.append((inputs[0], named))

    attention: MultiHeadAttention = model.encoder.layers[0].self_attention  # type: ignore[assignment]
    hook = attention.register_forward_pre_hook(record, with_kwargs=True)
    try:
        model.encode(source, torch.ones_like(source, dtype=torch.bool))
    finally:
        hook.remove()
    [(x, named)] = given
    query, (key, value) = attention.queries(x, named["positions"]), attention.keys_values(x, named["positions"])
    attended = attend_explicit(
        query, key, value, named["mask"], scoring=attention.scoring, dropout=0.0, weigh=attention.weigh(x)
    )
    assert attended.weights is not None
    concatenated = attended.values.transpose(1, 2).flatten(2)
    return HeadSplit(
        sentence=sentence,
        projected=attention.query(x)[0],
        split=query[0],
        weights=attended.weights[0],
        heads=attended.values[0],
        concatenated=concatenated[0],
        output=attention.output(concatenated)[0],
    )


FORMULAS = {
    "projected": "$Q = X W_Q$",
    "split": "$Q_i$",
    "weights": r"$A_i = \mathrm{softmax}(Q_i K_i^T / \sqrt{d_k})$",
    "heads": "$A_i V_i$",
    "concatenated": r"$C = \mathrm{Concat}(A_1 V_1, A_2 V_2, \ldots)$",
    "output": "$C\\, W_O$",
}
"""What is drawn, from top to bottom."""
PAGE, MARGIN, GAP, TITLE = 518.0, 12.0, 7.0, 30.0


def draw_head_split(language: str, tensors: HeadSplit) -> Figure:
    """Draw projection, split, weights, weighted sums, concatenation and output from top to bottom."""
    words = in_language(HEAD_SPLIT_WORDS, language)
    num_heads, length, width = tensors.split.shape
    tall = max(46.0, 5.5 * length)
    canvas = Canvas(PAGE, 6 * (tall + TITLE) + 114)
    title = words["title"].format(source=tensors.sentence.replace("$", r"\$"), t=length)
    canvas.text((PAGE / 2, canvas.height - 22), title, size=11)
    images: dict[str, Any] = {}
    for row, (name, formula) in enumerate(FORMULAS.items()):
        values = getattr(tensors, name).float()
        bottom = canvas.height - 36 - (row + 1) * (tall + TITLE)
        limit = float(f"{values.abs().quantile(0.98).item():.1g}")
        limits = (heat_colours(), 0.0, 1.0) if name == "weights" else (heat_colours(signed=True), -limit, limit)
        images[name] = _matrices(canvas, bottom, tall, values, limits)
        if name != "output":  # whose features belong to no head
            _head_lines(canvas, bottom - 3, num_heads, split=values.dim() == 3)
        what = words[name].format(h=num_heads, w=width)
        what += (": " if language == "en" else "：") + shown(tuple(values.shape))
        if name != "weights":
            what += (", " if language == "en" else "，") + words["colours"].format(limit=f"{limit:g}")
        canvas.text((MARGIN, bottom + tall + 10), what, ha="left")
        canvas.text((PAGE - MARGIN, bottom + tall + 10), formula, ha="right")
    half = PAGE / 2 - 2 * MARGIN
    for name, left in (("projected", MARGIN + 6), ("weights", PAGE / 2 + MARGIN)):
        bar = canvas.figure.colorbar(images[name], cax=canvas.axes((left, 40), (half, 8)), orientation="horizontal")
        bar.set_label(words["weight" if name == "weights" else "value"])
        if name != "weights":
            low, high = images[name].get_clim()
            bar.set_ticks([low, 0.0, high], labels=["−", "0", "+"])
        bar.outline.set_visible(False)
    return canvas.figure


def _matrices(canvas: Canvas, bottom: float, tall: float, values: Tensor, limits: tuple[Any, float, float]) -> Any:
    """One matrix, or one for each head."""
    matrices = values if values.dim() == 3 else values[None]
    wide = (PAGE - 2 * MARGIN - (len(matrices) - 1) * GAP) / len(matrices)
    for index, matrix in enumerate(matrices):
        panel = canvas.axes((MARGIN + index * (wide + GAP), bottom), (wide, tall))
        image = panel.imshow(matrix.numpy(), aspect="auto", interpolation="nearest", cmap=limits[0])
        image.set_clim(*limits[1:])
        panel.axis("off")
    return image


def _head_lines(canvas: Canvas, height: float, num_heads: int, *, split: bool) -> None:
    """A line in the colour of each head below its columns."""
    gap = GAP if split else 0.0
    wide = (PAGE - 2 * MARGIN - (num_heads - 1) * gap) / num_heads
    for head in range(num_heads):
        left = MARGIN + head * (wide + gap)
        colour = theme().colours[head % len(theme().colours)]
        canvas.line((left + 1.5, height), (left + wide - 1.5, height), colour=colour, width=3)
