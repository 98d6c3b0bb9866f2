"""The figures about attention: scaling of the scores, masks, and the attention weights of a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from heedful.decoding.forced_decoding import force_decode
from heedful.decoding.translator import Translator
from heedful.errors import DecodingError
from heedful.model.attention import MultiHeadAttention, Scoring, causal_mask, segment_mask
from heedful.model.transformer import Transformer
from heedful.model_dir import LoadedModel, load_model
from heedful.paper.plot_style import in_language, new_figure
from heedful.tensor_types import Bool, Float, Int

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
NUM_QUERIES, NUM_KEYS = 256, 32

SCALING_WORDS = {
    "scaled_dot": ("q·k / √d_k", "q·k / √d_k（缩放）"),
    "dot": ("q·k", "q·k（不缩放）"),
    "deviation": ("standard deviation of the scores", "分数的标准差"),
    "entropy": ("entropy of the weights (nats)", "注意力权重的熵（nat）"),
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
    """Statistics of the softmax of the scores at one width, averaged over the queries."""

    d_k: int
    deviation: float
    entropy: float
    largest: float
    gradient: float
    """Frobenius norm of ∂weights/∂scores = diag(w) - w wᵀ."""


def saturation(scoring: str, *, d_k: int, seed: int = 1) -> Saturation:
    """Score random queries and keys of unit variance with the model's scoring, and measure the softmax."""
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


def draw_scaling(language: str) -> Figure:
    """Draw standard deviation of the scores, entropy, largest weight and gradient against d_k (section 3.2.1)."""
    words = in_language(SCALING_WORDS, language)
    figure = new_figure(13, 3.8)
    panels = figure.subplots(1, 4)
    for scoring in ("scaled_dot", "dot"):
        measured = [saturation(scoring, d_k=d_k) for d_k in WIDTHS]
        for panel, name in zip(panels, ("deviation", "entropy", "largest", "gradient"), strict=True):
            panel.plot(
                WIDTHS, [getattr(item, name) for item in measured], marker="o", markersize=4, label=words[scoring]
            )
            panel.set(title=words[name], xlabel=words["width"])
            panel.set_xscale("log", base=2)
            panel.grid(visible=True, alpha=0.25)
    panels[0].set_yscale("log", base=2)
    panels[3].set_ylim(bottom=0)
    panels[0].legend(frameon=False)
    figure.suptitle(words["title"].format(q=NUM_QUERIES, k=NUM_KEYS))
    return figure


SOURCE_SEGMENTS = (1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 0)
TARGET_SEGMENTS = (1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 0)

MASK_WORDS = {
    "causal": ("decoder, one sentence: causal mask", "解码器，单句：因果掩码"),
    "encoder": ("encoder, three sentences in a row", "编码器，一行三句"),
    "decoder": ("decoder: causal and segments", "解码器：因果 + 分段"),
    "cross": ("cross-attention: segments", "交叉注意力：分段"),
    "query": ("query (numbers: sentence; 0 = padding)", "查询（数字为句子编号；0 为填充）"),
    "key": ("key", "键"),
    "title": ("Dark: may attend", "深色：可以关注"),
}


def attention_masks() -> dict[str, Bool[Tensor, "Q K"]]:
    """The four masks of the figure, computed with the model's functions."""
    source, target = torch.tensor([SOURCE_SEGMENTS]), torch.tensor([TARGET_SEGMENTS])
    causal = causal_mask(target.shape[1], torch.device("cpu"))
    output = {
        "causal": causal,
        "encoder": segment_mask(source, source),
        "decoder": segment_mask(target, target) & causal,
        "cross": segment_mask(target, source),
    }
    return {name: mask[0, 0] for name, mask in output.items()}


def draw_masks(language: str) -> Figure:
    """Draw four masks side by side: the causal mask, and those of sentence pairs packed in a row (section 3.2.3)."""
    words = in_language(MASK_WORDS, language)
    figure = new_figure(15, 4.4)
    labels = {
        "causal": (range(1, len(TARGET_SEGMENTS) + 1), range(1, len(TARGET_SEGMENTS) + 1)),
        "encoder": (SOURCE_SEGMENTS, SOURCE_SEGMENTS),
        "decoder": (TARGET_SEGMENTS, TARGET_SEGMENTS),
        "cross": (TARGET_SEGMENTS, SOURCE_SEGMENTS),
    }
    for panel, (name, mask) in zip(figure.subplots(1, 4), attention_masks().items(), strict=True):
        panel.pcolormesh(mask.numpy(), cmap="Blues", vmin=0, vmax=1.3, edgecolors="white", linewidth=1)
        panel.invert_yaxis()
        panel.set_aspect("equal")
        queries, keys = labels[name]
        panel.set_yticks([index + 0.5 for index in range(mask.shape[0])], [str(item) for item in queries])
        panel.set_xticks([index + 0.5 for index in range(mask.shape[1])], [str(item) for item in keys])
        panel.tick_params(length=0)
        panel.set(title=words[name], xlabel=words["key"])
    figure.axes[0].set_ylabel(words["query"])
    figure.suptitle(words["title"])
    return figure


MOST_HEADS = 4

ATTENTION_WORDS = {
    "cross": ("cross-attention, layer {layer}, head {head}", "交叉注意力，第 {layer} 层第 {head} 头"),
    "encoder": ("encoder, layer {layer}, head {head}", "编码器，第 {layer} 层第 {head} 头"),
    "source": ("source", "源句"),
    "target": ("translation", "译文"),
    "title": ("{source}  →  {target}", "{source}  →  {target}"),
}


@dataclass(frozen=True)
class AttentionExample:
    """A sentence, its translation, and the attention weights of every head."""

    source: str
    translation: str
    source_pieces: list[str]
    target_pieces: list[str]
    cross: Float[Tensor, "T L H S"]
    encoder: Float[Tensor, "L H S S"] | None
    """None if the encoder has no attention."""


def translate_with_attention(
    directory: str | Path, sentence: str, *, target_language: str | None = None
) -> AttentionExample:
    """Translate the sentence, then decode the translation with teacher forcing and record the attention weights."""
    loaded = load_model(directory)
    translation = Translator(loaded.model, loaded.tokenizer, loaded.config.decoding).translate(
        [sentence], target_language=target_language, split="never", protect=False
    )[0]
    if not translation.tokens:
        raise DecodingError(f"the translation of {sentence!r} is empty; choose another --sentence.")
    ids = torch.tensor([loaded.tokenizer.encode_source(sentence, target_language)])
    target = loaded.tokenizer.encode_target(translation.text)
    [forced] = force_decode(
        loaded.model, ids, torch.ones_like(ids, dtype=torch.bool), [target], bos_id=loaded.tokenizer.bos_id,
        need_weights=True,
    )  # fmt: skip
    assert forced.attention is not None
    return AttentionExample(
        source=sentence,
        translation=translation.text,
        source_pieces=loaded.tokenizer.source_pieces(ids[0].tolist()),
        target_pieces=loaded.tokenizer.pieces(target),
        cross=forced.attention,
        encoder=_encoder_weights(loaded, ids),
    )


@torch.inference_mode()
def _encoder_weights(loaded: LoadedModel, ids: Int[Tensor, "1 S"]) -> Float[Tensor, "L H S S"] | None:
    if not isinstance(loaded.model, Transformer):
        return None
    recorded: list[Tensor] = []

    def record(module: MultiHeadAttention, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
        recorded.append(module.forward(*inputs, **{**named, "need_weights": True})[1][0])  # type: ignore[index]

    hooks = [
        module.register_forward_hook(record, with_kwargs=True)
        for module in loaded.model.encoder.modules()
        if isinstance(module, MultiHeadAttention)
    ]
    loaded.model.encode(ids, torch.ones_like(ids, dtype=torch.bool))
    for hook in hooks:
        hook.remove()
    return torch.stack(recorded)


def chosen_heads(example: AttentionExample, layer: int | None, heads: Sequence[int]) -> tuple[int, list[int]]:
    """The layer and heads to show, counted from 1; by default the first heads of the second to last layer."""
    num_layers, num_heads = example.cross.shape[1:3]
    layer = max(num_layers - 1, 1) if layer is None else layer
    if not 1 <= layer <= num_layers:
        raise DecodingError(f"--layer: this decoder has layers 1 to {num_layers}, not {layer}.")
    for head in heads:
        if not 1 <= head <= num_heads:
            raise DecodingError(f"--head: this model has heads 1 to {num_heads}, not {head}.")
    return layer, list(heads) or list(range(1, min(MOST_HEADS, num_heads) + 1))


def draw_attention(
    language: str, example: AttentionExample, layer: int | None = None, heads: Sequence[int] = ()
) -> Figure:
    """Draw the cross-attention of the chosen heads, and the self-attention of the first of them in the encoder."""
    words = in_language(ATTENTION_WORDS, language)
    layer, heads = chosen_heads(example, layer, heads)
    count = len(heads) + (example.encoder is not None)
    tall, wide = len(example.target_pieces), len(example.source_pieces)
    figure = new_figure(max(4.2, 0.42 * wide + 1.6) * min(count, 3), (0.36 * max(tall, wide) + 2.0) * -(-count // 3))
    panels = iter(figure.subplots(-(-count // 3), min(count, 3), squeeze=False).flatten())
    for head in heads:
        title = words["cross"].format(layer=layer, head=head)
        _weights(
            next(panels),
            example.cross[:, layer - 1, head - 1],
            example.target_pieces,
            example.source_pieces,
            title,
        )
    if example.encoder is not None:
        level = min(layer, example.encoder.shape[0])
        title = words["encoder"].format(layer=level, head=heads[0])
        own = example.source_pieces
        _weights(next(panels), example.encoder[level - 1, heads[0] - 1], own, own, title)
    for empty in panels:
        empty.axis("off")
    figure.suptitle(words["title"].format(source=example.source, target=example.translation).replace("$", r"\$"))
    return figure


def _weights(panel: Axes, weights: Tensor, rows: Sequence[str], columns: Sequence[str], title: str) -> None:
    panel.imshow(weights.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    panel.set_xticks(range(len(columns)), [piece.replace("$", r"\$") for piece in columns], rotation=60, ha="right")
    panel.set_yticks(range(len(rows)), [piece.replace("$", r"\$") for piece in rows])
    panel.set_title(title)
