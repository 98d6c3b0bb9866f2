"""All figures, by name: what is drawn, and the files it leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.config import ModelConfig, nearest
from heedful.errors import ConfigError
from heedful.paper.drawing import LANGUAGES, Words, in_language, save, styled
from heedful.paper.figures import architecture, attention, masks, norms, positions, scaling, training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS: dict[str, Words] = {
    "architecture": architecture.WORDS,
    "positions": positions.WORDS,
    "masks": masks.WORDS,
    "scaling": scaling.WORDS,
    "norms": norms.WORDS,
    "schedule": training.SCHEDULE_WORDS,
    "smoothing": training.SMOOTHING_WORDS,
    "attention": attention.WORDS,
}
"""What each figure says; its keys are the names of the figures."""


def choose_figures(only: Sequence[str], *, with_model: bool) -> list[str]:
    """The figures that were asked for, or all that can be drawn: attention needs a model."""
    for name in only:
        if name not in WORDS:
            raise ConfigError(f"there is no figure {name!r}{nearest(name, WORDS)}; choose from {', '.join(WORDS)}.")
    if "attention" in only and not with_model:
        raise ConfigError(
            "the figure of attention needs a trained model and a text: --model DIRECTORY --sentence TEXT."
        )
    return list(only) or [name for name in WORDS if name != "attention" or with_model]


def draw_figures(
    output: Path,
    *,
    language: str = "en",
    only: Sequence[str] = (),
    config: ModelConfig | None = None,
    looks: attention.Looks | None = None,
    layer: int | None = None,
    heads: Sequence[int] = (),
) -> list[Path]:
    """Draw figures into a folder, PNG and SVG; return the files. `looks` is what `attention.look` gives."""
    if language not in LANGUAGES:
        raise ConfigError(f"--lang is one of {', '.join(LANGUAGES)}, not {language!r}.")
    names = choose_figures(only, with_model=looks is not None)
    drawers: dict[str, Callable[[], Figure]] = {
        "architecture": lambda: architecture.draw(language, config or ModelConfig()),
        "positions": lambda: positions.draw(language),
        "masks": lambda: masks.draw(language),
        "scaling": lambda: scaling.draw(language),
        "norms": lambda: norms.draw(language),
        "schedule": lambda: training.draw_schedule(language),
        "smoothing": lambda: training.draw_smoothing(language),
    }
    if looks is not None:
        drawers["attention"] = lambda: attention.draw(language, looks, layer, heads)
    said = [text for name in names for text in in_language(WORDS[name], language).values()]
    if looks is not None:
        said += [looks.source, looks.translation, *looks.source_pieces, *looks.target_pieces]
    written = []
    with styled(said):
        for name in names:
            written += save(drawers[name](), output, name)
    return written
