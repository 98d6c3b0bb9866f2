"""The figures about attention: scaling of the scores, and the attention weights of a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from heedful.decoding.search import force_decode
from heedful.decoding.translator import Translator
from heedful.errors import DecodingError
from heedful.model.attention import MultiHeadAttention, Scoring, causal_mask
from heedful.model.transformer import Transformer
from heedful.model_dir import LoadedModel, load_model
from heedful.model_dir.save_load import AlignmentSource, recorded_source
from heedful.paper.plot_style import PAGE_WIDTH, heat_colours, in_language, new_figure, theme
from heedful.tensor_types import Float, Int
from heedful.text.language_routing import Directions
from heedful.text.tokenizer import Tokenizer

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
    figure = new_figure(PAGE_WIDTH, 6.2)
    panels = figure.subplots(2, 2).flatten()
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
    panels[0].set_xlabel("")
    panels[1].set_xlabel("")
    figure.suptitle(words["title"].format(q=NUM_QUERIES, k=NUM_KEYS))
    return figure


NUM_CANDIDATES = 4

ATTENTION_WORDS = {
    "cross": ("Cross-attention of the decoder", "解码器的交叉注意力"),
    "decoder": ("Self-attention of the decoder", "解码器的自注意力"),
    "encoder": ("Self-attention of the encoder", "编码器的自注意力"),
    "head": ("layer {layer}, head {head}", "第 {layer} 层，第 {head} 个头"),
    "recorded": ("the head recorded for word alignment", "模型记录的词对齐所用的头"),
    "last_best": (
        "of the heads of the last layer, the largest mutual attention",
        "最后一层的头中相互注意力最大者",
    ),
    "best": ("of {n} heads, the largest mutual attention", "{n} 个头中相互注意力最大者"),
    "sharpest": ("of {n} heads, the sharpest on other tokens", "{n} 个头中对其他词元最集中者"),
    "chosen": ("chosen by --layer and --head", "由 --layer 和 --head 指定"),
    "input": ("query: decoder input", "查询：解码器的输入"),
    "source": ("key: source token", "键：源句词元"),
    "source_query": ("query: source token", "查询：源句词元"),
    "earlier": ("key: decoder input", "键：解码器的输入"),
    "predicts": ("token predicted", "预测出的词元"),
    "weight": ("attention weight (each row sums to 1)", "注意力权重（每行之和为 1）"),
    "masked": ("grey: masked", "灰色：被掩码遮住"),
    "title": ("{source}\n→ {target}", "{source}\n→ {target}"),
}


@dataclass(frozen=True)
class AttentionExample:
    """A sentence, its translation, and the attention weights of every head when the decoder reads the translation."""

    source: str
    translation: str
    source_pieces: list[str]
    input_pieces: list[str]
    """What the decoder reads: the start token, then the translation."""
    target_pieces: list[str]
    """What it predicts at each input: the translation, then the end token."""
    cross: Float[Tensor, "T L H S"]
    encoder: Float[Tensor, "L H S S"] | None
    """None if the encoder has no attention."""
    decoder: Float[Tensor, "L H T T"] | None
    """None if the decoder has no self-attention."""
    probabilities: Float[Tensor, "T V"]
    """Of every next token."""
    candidates: list[list[tuple[str, float]]]
    """The most likely tokens at each step, with their probabilities."""
    recorded: AlignmentSource | None
    """The head that word alignments are read from, if the model directory names one."""


@dataclass(frozen=True)
class Head:
    """One head, counted from 1, and the key of the text that says why it is shown."""

    layer: int
    head: int
    reason: str


def load_for_figures(
    directory: str | Path, sentence: str, target_language: str | None
) -> tuple[LoadedModel, str | None]:
    """The model, and the language to translate the sentence into: the given one, or the only one for its language."""
    loaded = load_model(directory)
    directions = Directions.of(loaded.config.data, loaded.tokenizer.tags, loaded.details)
    try:
        return loaded, directions.choose(sentence, target=target_language).target
    except DecodingError as error:
        raise DecodingError(f"{sentence!r} {error}" if " --to" not in str(error) else str(error)) from None


def translate_with_attention(
    loaded: LoadedModel, sentence: str, *, target_language: str | None = None, method: str | None = None
) -> AttentionExample:
    """Translate the sentence, then read the translation with teacher forcing and record all attention weights.

    `method`: the search, such as "greedy"; None: that of the model's configuration.
    """
    settings: dict[str, Any] = {} if method is None else {"method": method}
    translation = Translator(loaded.model, loaded.tokenizer, loaded.config.decoding).translate(
        [sentence], target_language=target_language, split="never", protect=False, **settings
    )[0]
    if not translation.tokens:
        raise DecodingError(f"the translation of {sentence!r} is empty; choose another --sentence.")
    tokenizer = loaded.tokenizer
    source = torch.tensor([tokenizer.encode_source(sentence, target_language)])
    ids = {piece: number for number, piece in enumerate(tokenizer.pieces(range(tokenizer.target_vocab_size)))}
    target = [*(ids[piece] for piece in translation.tokens), tokenizer.eos_id]
    cross, encoder, decoder, probabilities = _record(loaded, source, target)
    num_layers, num_heads = cross.shape[1:3]
    return AttentionExample(
        source=sentence,
        translation=translation.text,
        source_pieces=tokenizer.source_pieces(source[0].tolist()),
        input_pieces=tokenizer.pieces([tokenizer.bos_id, *target[:-1]]),
        target_pieces=tokenizer.pieces(target),
        cross=cross,
        encoder=encoder,
        decoder=decoder,
        probabilities=probabilities,
        candidates=_candidates(tokenizer, probabilities),
        recorded=recorded_source(loaded.details, num_layers=num_layers, num_heads=num_heads),
    )


def _candidates(tokenizer: Tokenizer, probabilities: Float[Tensor, "T V"]) -> list[list[tuple[str, float]]]:
    most = probabilities.topk(NUM_CANDIDATES)
    return [
        list(zip(tokenizer.pieces(ids), values, strict=True))
        for ids, values in zip(most.indices.tolist(), most.values.tolist(), strict=True)
    ]


@torch.inference_mode()
def _record(
    loaded: LoadedModel, source: Int[Tensor, "1 S"], target: list[int]
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """Weights of cross-attention and of the self-attention of encoder and decoder, and the probabilities."""
    model, bos_id = loaded.model, loaded.tokenizer.bos_id
    if not isinstance(model, Transformer):
        mask = torch.ones_like(source, dtype=torch.bool)
        [forced] = force_decode(model, source, mask, [target], bos_id=bos_id, need_weights=True)
        assert forced.attention is not None
        probabilities = torch.zeros(len(target), loaded.config.model.target_vocab_size)
        probabilities[range(len(target)), target] = torch.tensor(forced.token_log_probs).exp()
        return forced.attention, None, None, probabilities
    recorded: dict[str, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}

    def recorder(kind: str) -> Any:
        def record(module: MultiHeadAttention, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
            recorded[kind].append(module.forward(*inputs, **{**named, "need_weights": True})[1][0])  # type: ignore[index]

        return record

    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):
            kind = "cross" if name.endswith("cross_attention") else name.partition(".")[0]
            hooks.append(module.register_forward_hook(recorder(kind), with_kwargs=True))
    try:
        logits = model(source, torch.tensor([[bos_id, *target[:-1]]]))[0]
    finally:
        for hook in hooks:
            hook.remove()
    encoder, decoder, cross = (torch.stack(recorded[kind]) for kind in ("encoder", "decoder", "cross"))
    return cross.permute(2, 0, 1, 3), encoder, decoder, torch.softmax(logits.float(), dim=-1)


def mutual_attention(weights: Float[Tensor, "Q K"]) -> float:
    """How well a head pairs queries with keys: the weight, over all queries, between those that prefer each other.

    A query and a key prefer each other if each has its largest weight at the other.
    """
    best_keys, best_queries = weights.argmax(dim=1), weights.argmax(dim=0)
    queries = torch.arange(len(weights))
    is_mutual = best_queries[best_keys] == queries
    return (weights[queries, best_keys] * is_mutual).sum().item() / len(weights)


def attention_to_others(weights: Float[Tensor, "Q K"]) -> float:
    """How much a head attends to other words: the mean largest weight on neither the token itself nor the first."""
    others = weights.clone().fill_diagonal_(0.0)
    others[:, 0] = 0.0
    return others.max(dim=1).values.mean().item()


def cross_heads(example: AttentionExample, layer: int | None = None, heads: Sequence[int] = ()) -> list[Head]:
    """The heads of the cross-attention to show.

    By default the one recorded for word alignment, else the one of the largest mutual attention; and the one of the
    largest mutual attention in the last layer, which usually attends to the word to be predicted.
    """
    num_layers, num_heads = example.cross.shape[1:3]
    if layer is not None and not 1 <= layer <= num_layers:
        raise DecodingError(f"--layer: this decoder has layers 1 to {num_layers}, not {layer}.")
    for head in heads:
        if not 1 <= head <= num_heads:
            raise DecodingError(f"--head: this model has heads 1 to {num_heads}, not {head}.")
    if layer is not None and heads:
        return [Head(layer, head, "chosen") for head in heads]
    measured = {
        (level, head): mutual_attention(example.cross[:, level - 1, head - 1])
        for level in range(1, num_layers + 1)
        for head in range(1, num_heads + 1)
        if layer in (None, level) and (not heads or head in heads)
    }
    best = Head(*max(measured, key=measured.__getitem__), "best")
    if layer is not None or heads:
        return [best]
    if example.recorded is not None and example.recorded.head is not None:
        best = Head(example.recorded.layer + 1, example.recorded.head + 1, "recorded")
    in_last = {place: value for place, value in measured.items() if place[0] == num_layers}
    last = Head(*max(in_last, key=in_last.__getitem__), "last_best")
    return [best] if (last.layer, last.head) == (best.layer, best.head) else [best, last]


def self_head(weights: Float[Tensor, "L H Q Q"]) -> Head:
    """The head of a self-attention that attends most to other words."""
    sharpness = {
        (layer, head): attention_to_others(weights[layer - 1, head - 1])
        for layer in range(1, weights.shape[0] + 1)
        for head in range(1, weights.shape[1] + 1)
    }
    return Head(*max(sharpness, key=sharpness.__getitem__), "sharpest")


def attention_texts(example: AttentionExample) -> list[str]:
    """The texts of an example, for the choice of fonts."""
    return [example.source, example.translation, *example.source_pieces, *example.target_pieces, *example.input_pieces]


def draw_attention(
    language: str, example: AttentionExample, layer: int | None = None, heads: Sequence[int] = ()
) -> Figure:
    """Draw the cross-attention of the chosen heads, and below it the self-attention of decoder and encoder."""
    words = in_language(ATTENTION_WORDS, language)
    cross = cross_heads(example, layer, heads)
    below = [kind for kind in ("decoder", "encoder") if getattr(example, kind) is not None]
    inputs, sources = len(example.input_pieces), len(example.source_pieces)
    rows = [0.3 * inputs + 1.9] * len(cross) + ([0.3 * max(inputs, sources) + 1.9] if below else [])
    width = max(PAGE_WIDTH, 0.18 * (2 * max(inputs, sources) if below else sources) + 2.0)
    figure = new_figure(width, sum(rows) + 1.0)
    grid = figure.add_gridspec(len(rows), 2, height_ratios=rows)
    panels: list[Axes] = []
    image: Any = None
    for index, head in enumerate(cross):
        panel = figure.add_subplot(grid[index, :])
        image = _weights(
            panel, example.cross[:, head.layer - 1, head.head - 1], example.input_pieces, example.source_pieces
        )
        _name(panel, words, "cross", head, num_heads=example.cross.shape[1] * example.cross.shape[2])
        panel.set(xlabel=words["source"], ylabel=words["input"])
        predicted = panel.secondary_yaxis("right")
        predicted.set_yticks(range(inputs), [plain(piece) for piece in example.target_pieces])
        predicted.set_ylabel(words["predicts"])
        predicted.tick_params(length=0)
        predicted.spines["right"].set_visible(False)
        panels.append(panel)
    for index, kind in enumerate(below):
        weights = getattr(example, kind)
        head = self_head(weights)
        panel = figure.add_subplot(grid[-1, index])
        pieces = example.input_pieces if kind == "decoder" else example.source_pieces
        _weights(panel, weights[head.layer - 1, head.head - 1], pieces, pieces, causal=kind == "decoder")
        _name(panel, words, kind, head, num_heads=weights.shape[0] * weights.shape[1])
        names = ("earlier", "input") if kind == "decoder" else ("source", "source_query")
        panel.set(xlabel=words[names[0]], ylabel=words[names[1]])
        panels.append(panel)
    bar = figure.colorbar(image, ax=panels, location="bottom", fraction=0.03, aspect=40, pad=0.02)
    label = words["weight"] + (f"; {words['masked']}" if language == "en" else f"；{words['masked']}")
    bar.set_label(label if "decoder" in below else words["weight"])
    bar.outline.set_visible(False)
    figure.suptitle(plain(words["title"].format(source=example.source, target=example.translation)))
    return figure


def _name(panel: Axes, words: dict[str, str], kind: str, head: Head, *, num_heads: int) -> None:
    panel.set_title(words[kind], loc="left", fontsize=11)
    detail = f"{words['head'].format(layer=head.layer, head=head.head)}\n{words[head.reason].format(n=num_heads)}"
    panel.text(0, 1.02, detail, transform=panel.transAxes, fontsize=8.5, color=theme().muted, va="bottom")
    panel.set_title(words[kind], loc="left", fontsize=11, pad=30)


def _weights(panel: Axes, weights: Tensor, rows: Sequence[str], columns: Sequence[str], *, causal: bool = False) -> Any:
    """A heat map of weights from 0 to 1; positions that the causal mask hides are grey."""
    hidden = (
        ~causal_mask(len(rows), torch.device("cpu"))[0, 0] if causal else torch.zeros_like(weights, dtype=torch.bool)
    )
    panel.set_facecolor(theme().blank)
    shown = weights.float().masked_fill(hidden, float("nan")).numpy()
    image = panel.imshow(shown, cmap=heat_colours(), vmin=0, vmax=1, aspect="auto")
    for position in range(1, len(rows)):
        panel.axhline(position - 0.5, color=theme().background, linewidth=0.8)
    for position in range(1, len(columns)):
        panel.axvline(position - 0.5, color=theme().background, linewidth=0.8)
    panel.set_xticks(
        range(len(columns)), [plain(piece) for piece in columns], rotation=55, ha="right", rotation_mode="anchor"
    )
    panel.set_yticks(range(len(rows)), [plain(piece) for piece in rows])
    panel.tick_params(length=0)
    for side in panel.spines.values():
        side.set_visible(False)
    return image


def plain(text: str) -> str:
    """The text without the subwords' mark of a space, and safe from matplotlib's formulas."""
    return (text.replace("\u2581", "") or "\u2581").replace("$", r"\$")
