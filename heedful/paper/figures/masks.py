"""The figures about masks: of sentence pairs packed in a row, and of a padded batch as numbers (0 and −∞)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.model.attention import causal_mask, segment_mask
from heedful.paper.plot_style import PAGE_WIDTH, heat_colours, in_language, new_figure, theme
from heedful.tensor_types import Bool, Float, Int

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCE_SEGMENTS = (1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 0)
TARGET_SEGMENTS = (1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 0)

SOURCE_TOKENS = ("we", "like", "green", "tea", "it", "rains", ".", "thank", "you", "!", "–", "–")
TARGET_TOKENS = ("<s>", "wir", "mögen", "<s>", "es", "regnet", "heute", ".", "<s>", "danke", "!", "–")
"""The tokens of the segments; the target is shifted right, and padding is a dash."""

MASK_WORDS = {
    "causal": ("decoder: causal mask of one sentence", "解码器：单句的因果掩码"),
    "encoder": ("encoder: three sentences in one row", "编码器：一行三句"),
    "decoder": ("decoder: causal and segments", "解码器：因果 + 分段"),
    "cross": ("cross-attention: segments", "交叉注意力：分段"),
    "query": ("query", "查询"),
    "key": ("key", "键"),
    "title": (
        "Coloured: may attend. Number: sentence in the row; dash: padding",
        "有色：可以关注。数字：行内的句子编号；短横：填充",
    ),
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
    figure = new_figure(PAGE_WIDTH, 7.6)
    source, target = (
        [f"{token} {segment}" if segment else token for token, segment in zip(tokens, segments, strict=True)]
        for tokens, segments in ((SOURCE_TOKENS, SOURCE_SEGMENTS), (TARGET_TOKENS, TARGET_SEGMENTS))
    )
    places = [str(place + 1) for place in range(len(TARGET_SEGMENTS))]
    labels = {
        "causal": (places, places),
        "encoder": (source, source),
        "decoder": (target, target),
        "cross": (target, source),
    }
    for panel, (name, mask) in zip(figure.subplots(2, 2).flat, attention_masks().items(), strict=True):
        panel.pcolormesh(
            mask.numpy(), cmap=heat_colours(), vmin=0, vmax=1.3, edgecolors=theme().background, linewidth=1
        )
        panel.invert_yaxis()
        panel.set_aspect("equal")
        queries, keys = labels[name]
        panel.set_yticks([index + 0.5 for index in range(mask.shape[0])], queries)
        turned = 0 if name == "causal" else 90
        panel.set_xticks([index + 0.5 for index in range(mask.shape[1])], keys, rotation=turned)
        panel.tick_params(length=0, labelsize=9)
        panel.set_xlabel(words["key"])
        panel.set_title(words[name], fontsize=10)
    for panel in figure.axes[::2]:
        panel.set_ylabel(words["query"])
    figure.suptitle(words["title"], fontsize=10)
    return figure


START, PADDING = "<s>", "<pad>"
SENTENCES = {"en": ("he reads a book", "she sleeps"), "zh": ("他 读 一本 书", "她 睡觉")}
"""Words separated by spaces, by label language."""

PADDING_MASK_WORDS = {
    "padding": ("padding mask", "填充掩码"),
    "causal": ("causal mask", "因果掩码"),
    "sum": ("sum", "和"),
    "query": ("query", "查询"),
    "key": ("key", "键"),
    "title": (
        "Masks of a decoder that reads two sentences, the second padded",
        "解码器读两个句子时的掩码，第二句有填充",
    ),
    "note": (
        "Added to the scores, −∞ gives weight 0. A row of −∞ only (a padding query) gives 0/0; the code returns 0.",
        "加到分数上，−∞ 经 softmax 后权重为 0。整行都是 −∞（填充处的查询）会得到 0/0：代码返回零。",
    ),
}


def padded_rows(language: str) -> list[list[str]]:
    """The decoder's inputs: each sentence after the start token, padded to the longest."""
    rows = [[START, *sentence.split()] for sentence in SENTENCES[language]]
    length = max(map(len, rows))
    return [row + [PADDING] * (length - len(row)) for row in rows]


def segments_of(rows: list[list[str]]) -> Int[Tensor, "B T"]:
    """1 for tokens of the sentence, 0 for padding."""
    return torch.tensor([[int(token != PADDING) for token in row] for row in rows])


def additive(mask: Bool[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The mask as a summand of the scores: 0 where a query may attend, −∞ elsewhere."""
    return torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))


def padding_masks(rows: list[list[str]]) -> dict[str, Float[Tensor, "B T T"]]:
    """Both masks, from the functions of the model, and their sum."""
    segments = segments_of(rows)
    padding = additive(segment_mask(segments, segments))[:, 0]
    causal = additive(causal_mask(segments.shape[1], segments.device))[0].expand_as(padding)
    return {"padding": padding, "causal": causal, "sum": padding + causal}


def draw_padding_mask(language: str) -> Figure:
    """Draw a row for each sentence: padding mask + causal mask = sum."""
    words = in_language(PADDING_MASK_WORDS, language)
    rows = padded_rows(language)
    masks = padding_masks(rows)
    figure = new_figure(PAGE_WIDTH, 5.3)
    panels = figure.subplots(len(rows), 3)
    for sentence, tokens in enumerate(rows):
        for panel, (name, mask) in zip(panels[sentence], masks.items(), strict=True):
            _matrix(panel, mask[sentence], tokens)
            if sentence == 0:
                panel.set_title(words[name], fontsize=10)
            else:
                panel.set_xlabel(words["key"])
        panels[sentence][0].set_ylabel(words["query"])
        for index, sign in enumerate("+="):
            panels[sentence][index].text(
                1.1, 0.5, sign, transform=panels[sentence][index].transAxes, fontsize=15, ha="center", va="center"
            )
    figure.align_ylabels(panels[:, 0])
    figure.suptitle(words["title"], fontsize=11.5)
    figure.supxlabel(words["note"], fontsize=8.5, color=theme().muted)
    return figure


def _matrix(panel: Axes, values: Float[Tensor, "T T"], tokens: list[str]) -> None:
    """The numbers of a mask; cells with −∞ are grey."""
    from matplotlib.patches import Rectangle

    colours = theme()
    panel.set(xlim=(0, len(tokens)), ylim=(len(tokens), 0), aspect="equal")
    for query, row in enumerate(values.tolist()):
        for key, value in enumerate(row):
            fill = colours.heat[1] if value == 0 else colours.blank
            panel.add_patch(Rectangle((key, query), 1, 1, facecolor=fill, edgecolor=colours.background, linewidth=1.5))
            colour = colours.text if value == 0 else colours.muted
            panel.text(key + 0.5, query + 0.52, "0" if value == 0 else "−∞", ha="center", va="center", color=colour)
    places = [index + 0.5 for index in range(len(tokens))]
    panel.set_xticks(places, tokens, rotation=40, ha="right", rotation_mode="anchor")
    panel.set_yticks(places, tokens)
    panel.tick_params(length=0, labelsize=9)
    for side in panel.spines.values():
        side.set_visible(False)
