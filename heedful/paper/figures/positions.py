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

WAVES = (0, 20, 40, 60)
"""Features whose values are drawn as single waves; even features are sines."""

PRODUCT = r"$PE_p \cdot PE_{p+k}\ /\ PE_p \cdot PE_p$"
MODEL_WIDTH = r"$d_\mathrm{{model}}$ = {d}"

POSITION_WORDS = {
    "value": ("value", "数值"),
    "waves": ("Single features are waves of the position", "每个特征维是位置的一条正弦波"),
    "wave": ("feature {i}", "第 {i} 维"),
    "table": ("Positional encoding", "位置编码"),
    "feature": ("feature (of {d})", "特征维（共 {d} 维）"),
    "position": ("position", "位置"),
    "products": ("Dot product of two positions", "两个位置编码的点积"),
    "distance": ("distance k between the positions", "两位置之间的距离 k"),
}


def encodings(length: int, d_model: int) -> Float[Tensor, "T D"]:
    """The encodings of the first positions."""
    return sinusoidal_encoding(torch.arange(length)[None], d_model)[0]


def products_by_distance(d_model: int, farthest: int, *, start: int = 0) -> Float[Tensor, " T"]:
    """PE(start) · PE(start + distance) for each distance, relative to PE(start) · PE(start); independent of `start`."""
    table = encodings(start + farthest + 1, d_model).double()
    return table[start:] @ table[start] / (table[start] @ table[start])


def draw_positions(language: str) -> Figure:
    """Draw the heat map, single features below it, and the dot products of two positions at the bottom."""
    words = in_language(POSITION_WORDS, language)
    figure = new_figure(PAGE_WIDTH, 9.4)
    table, waves, products = figure.subplots(3, 1, height_ratios=(1.3, 1, 1))
    values = encodings(LENGTH, WIDTH)
    image = table.imshow(values.numpy(), aspect="auto", cmap=heat_colours(signed=True), vmin=-1, vmax=1)
    table.set(title=words["table"], xlabel=words["feature"].format(d=WIDTH), ylabel=words["position"])
    figure.colorbar(image, ax=table, label=words["value"])
    for feature in WAVES:
        waves.plot(range(LENGTH), values[:, feature].tolist(), label=words["wave"].format(i=feature))
    waves.set(title=words["waves"], xlabel=words["position"], ylabel=words["value"], ylim=(-1.1, 1.5))
    waves.legend(frameon=False, loc="upper center", ncols=len(WAVES))
    distances = range(-FARTHEST, FARTHEST + 1)
    for d_model in (64, 128, 512):
        far = products_by_distance(d_model, FARTHEST).tolist()
        products.plot(distances, [*reversed(far[1:]), *far], label=MODEL_WIDTH.format(d=d_model))
    products.set(title=words["products"], xlabel=words["distance"], ylabel=PRODUCT)
    products.legend(frameon=False)
    for panel in (waves, products):
        panel.grid(visible=True, alpha=0.25)
    return figure
