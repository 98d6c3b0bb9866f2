"""Who may attend to whom (section 3.2.3): the causal mask, and the segments of sentence pairs that share a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.model.masks import causal_mask, segment_mask
from heedful.paper.plot_style import in_language, new_figure
from heedful.tensor_types import Bool

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOURCE_SEGMENTS = (1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 0)
TARGET_SEGMENTS = (1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 0)

WORDS = {
    "causal": ("decoder, one sentence: causal", "解码器，单句：因果掩码"),
    "encoder": ("encoder, three sentences in a row", "编码器，一行三句"),
    "decoder": ("decoder: causal and segments", "解码器：因果 + 分段"),
    "cross": ("cross-attention: segments", "交叉注意力：分段"),
    "query": ("query (numbers: sentence; 0 = padding)", "查询(数字为句子编号；0 为填充)"),
    "key": ("key", "键"),
    "title": ("Dark: may attend", "深色：可以注意"),
}


def masks() -> dict[str, Bool[Tensor, "Q K"]]:
    """The four masks of the figure, as the model makes them."""
    source, target = torch.tensor([SOURCE_SEGMENTS]), torch.tensor([TARGET_SEGMENTS])
    causal = causal_mask(target.shape[1], torch.device("cpu"))
    made = {
        "causal": causal,
        "encoder": segment_mask(source, source),
        "decoder": segment_mask(target, target) & causal,
        "cross": segment_mask(target, source),
    }
    return {name: mask[0, 0] for name, mask in made.items()}


def draw(language: str) -> Figure:
    """Four masks side by side."""
    words = in_language(WORDS, language)
    figure = new_figure(15, 4.4)
    labels = {
        "causal": (range(1, len(TARGET_SEGMENTS) + 1), range(1, len(TARGET_SEGMENTS) + 1)),
        "encoder": (SOURCE_SEGMENTS, SOURCE_SEGMENTS),
        "decoder": (TARGET_SEGMENTS, TARGET_SEGMENTS),
        "cross": (TARGET_SEGMENTS, SOURCE_SEGMENTS),
    }
    for panel, (name, mask) in zip(figure.subplots(1, 4), masks().items(), strict=True):
        panel.pcolormesh(mask.numpy(), cmap="Blues", vmin=0, vmax=1.3, edgecolors="white", linewidth=1)
        panel.invert_yaxis()
        panel.set_aspect("equal")
        queries, keys = labels[name]
        panel.set_yticks([index + 0.5 for index in range(mask.shape[0])], [str(one) for one in queries])
        panel.set_xticks([index + 0.5 for index in range(mask.shape[1])], [str(one) for one in keys])
        panel.tick_params(length=0)
        panel.set(title=words[name], xlabel=words["key"])
    figure.axes[0].set_ylabel(words["query"])
    figure.suptitle(words["title"])
    return figure
