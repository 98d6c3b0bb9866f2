"""Where heads look, for one sentence and a trained model: cross-attention, and one head of the encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from heedful.decoding.forced_decoding import force
from heedful.decoding.translator import Translator
from heedful.errors import DecodingError
from heedful.model.attention import MultiHeadAttention
from heedful.model.transformer import Transformer
from heedful.model_dir import LoadedModel, load_model
from heedful.paper.plot_style import in_language, new_figure
from heedful.tensor_types import Float, Int

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_HEADS = 4

WORDS = {
    "cross": ("cross-attention, layer {layer}, head {head}", "交叉注意力，第 {layer} 层第 {head} 头"),
    "encoder": ("encoder, layer {layer}, head {head}", "编码器，第 {layer} 层第 {head} 头"),
    "source": ("source", "源句"),
    "target": ("translation", "译文"),
    "title": ("{source}  →  {target}", "{source}  →  {target}"),
}


@dataclass(frozen=True)
class Looks:
    """A sentence, its translation, and where each head looked."""

    source: str
    translation: str
    source_pieces: list[str]
    target_pieces: list[str]
    cross: Float[Tensor, "T L H S"]
    encoder: Float[Tensor, "L H S S"] | None
    """None for a model whose encoder has no attention."""


def look(directory: str | Path, sentence: str, *, target_language: str | None = None) -> Looks:
    """Translate the sentence, then feed the model its translation and note every weight."""
    loaded = load_model(directory)
    translation = Translator(loaded.model, loaded.tokenizer, loaded.config.decoding).translate(
        [sentence], target_language=target_language, split="never", protect=False
    )[0]
    if not translation.tokens:
        raise DecodingError(f"the model has no translation for {sentence!r}; give another --sentence.")
    ids = torch.tensor([loaded.tokenizer.encode_source(sentence, target_language)])
    target = loaded.tokenizer.encode_target(translation.text)
    [forced] = force(
        loaded.model, ids, torch.ones_like(ids, dtype=torch.bool), [target], bos_id=loaded.tokenizer.bos_id,
        need_weights=True,
    )  # fmt: skip
    assert forced.attention is not None
    return Looks(
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
    noted: list[Tensor] = []

    def note(module: MultiHeadAttention, given: tuple[Any, ...], named: dict[str, Any], made: Any) -> None:
        noted.append(module.forward(*given, **{**named, "need_weights": True})[1][0])  # type: ignore[index]

    hooks = [
        module.register_forward_hook(note, with_kwargs=True)
        for module in loaded.model.encoder.modules()
        if isinstance(module, MultiHeadAttention)
    ]
    loaded.model.encode(ids, torch.ones_like(ids, dtype=torch.bool))
    for hook in hooks:
        hook.remove()
    return torch.stack(noted)


def chosen_heads(looks: Looks, layer: int | None, heads: Sequence[int]) -> tuple[int, list[int]]:
    """The layer and heads to show, counted from 1; by default the first heads of the last layer but one."""
    num_layers, num_heads = looks.cross.shape[1:3]
    layer = max(num_layers - 1, 1) if layer is None else layer
    if not 1 <= layer <= num_layers:
        raise DecodingError(f"--layer: this decoder has layers 1 to {num_layers}, not {layer}.")
    for head in heads:
        if not 1 <= head <= num_heads:
            raise DecodingError(f"--head: this model has heads 1 to {num_heads}, not {head}.")
    return layer, list(heads) or list(range(1, min(MOST_HEADS, num_heads) + 1))


def draw(language: str, looks: Looks, layer: int | None = None, heads: Sequence[int] = ()) -> Figure:
    """The cross-attention of the chosen heads, and the first of them in the encoder."""
    words = in_language(WORDS, language)
    layer, heads = chosen_heads(looks, layer, heads)
    count = len(heads) + (looks.encoder is not None)
    tall, wide = len(looks.target_pieces), len(looks.source_pieces)
    figure = new_figure(max(4.2, 0.42 * wide + 1.6) * min(count, 3), (0.36 * max(tall, wide) + 2.0) * -(-count // 3))
    panels = iter(figure.subplots(-(-count // 3), min(count, 3), squeeze=False).flatten())
    for head in heads:
        title = words["cross"].format(layer=layer, head=head)
        _weights(next(panels), looks.cross[:, layer - 1, head - 1], looks.target_pieces, looks.source_pieces, title)
    if looks.encoder is not None:
        level = min(layer, looks.encoder.shape[0])
        title = words["encoder"].format(layer=level, head=heads[0])
        own = looks.source_pieces
        _weights(next(panels), looks.encoder[level - 1, heads[0] - 1], own, own, title)
    for empty in panels:
        empty.axis("off")
    figure.suptitle(words["title"].format(source=looks.source, target=looks.translation).replace("$", r"\$"))
    return figure


def _weights(panel: Axes, weights: Tensor, rows: Sequence[str], columns: Sequence[str], title: str) -> None:
    panel.imshow(weights.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    panel.set_xticks(range(len(columns)), [piece.replace("$", r"\$") for piece in columns], rotation=60, ha="right")
    panel.set_yticks(range(len(rows)), [piece.replace("$", r"\$") for piece in rows])
    panel.set_title(title)
