"""Positional encoding (section 3.5): the table as a heat map, and the dot product of two positions by distance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.model.positions import sinusoidal_encoding
from heedful.paper.plot_style import PAGE_WIDTH, heat_colours, in_language, new_figure
from heedful.tensor_types import Float

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTH, WIDTH, FARTHEST = 100, 128, 100

POSITION_WORDS = {
    "table": ("Positional encoding, d_model = 128", "位置编码，d_model = 128"),
    "feature": ("feature", "特征维"),
    "value": ("value", "数值"),
    "position": ("position", "位置"),
    "products": ("Dot product of two positions", "两个位置编码的点积"),
    "distance": ("distance between the positions", "两位置之间的距离"),
    "product": ("PE(p) · PE(p + distance) / PE(p) · PE(p)", "PE(p) · PE(p + 距离) / PE(p) · PE(p)"),
    "width": ("d_model = {d}", "d_model = {d}"),
}


def encodings(length: int, d_model: int) -> Float[Tensor, "T D"]:
    """The encodings of the first positions."""
    return sinusoidal_encoding(torch.arange(length)[None], d_model)[0]


def products_by_distance(d_model: int, farthest: int, *, start: int = 0) -> Float[Tensor, " T"]:
    """PE(start) · PE(start + distance) for each distance, relative to PE(start) · PE(start); independent of `start`."""
    table = encodings(start + farthest + 1, d_model).double()
    return table[start:] @ table[start] / (table[start] @ table[start])


def draw_positions(language: str) -> Figure:
    """Draw the heat map above and the dot products below."""
    words = in_language(POSITION_WORDS, language)
    figure = new_figure(PAGE_WIDTH, 7.6)
    left, right = figure.subplots(2, 1)
    image = left.imshow(
        encodings(LENGTH, WIDTH).numpy(), aspect="auto", cmap=heat_colours(signed=True), vmin=-1, vmax=1
    )
    left.set(title=words["table"], xlabel=words["feature"], ylabel=words["position"])
    bar = figure.colorbar(image, ax=left)
    bar.set_label(words["value"])
    bar.outline.set_visible(False)
    distances = range(-FARTHEST, FARTHEST + 1)
    for d_model in (64, 128, 512):
        far = products_by_distance(d_model, FARTHEST).tolist()
        right.plot(distances, [*reversed(far[1:]), *far], label=words["width"].format(d=d_model))
    right.set(title=words["products"], xlabel=words["distance"], ylabel=words["product"])
    right.legend(frameon=False)
    right.grid(visible=True, alpha=0.25)
    return figure
