"""What all figures share: matplotlib when it is there, one look, two languages, PNG and SVG."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.errors import ConfigError
from heedful.paper.fonts import font_families

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LANGUAGES = ("en", "zh")
COLOURS = ("#2563a8", "#d9730d", "#2f8f5b", "#a8325e", "#6b5aa8", "#7a6a53")

Words = Mapping[str, tuple[str, str]]
"""What a figure says: a name, and its English and Chinese text."""


def in_language(words: Words, language: str) -> dict[str, str]:
    """The words of a figure in one language."""
    if language not in LANGUAGES:
        raise ConfigError(f"--lang is one of {', '.join(LANGUAGES)}, not {language!r}.")
    return {name: texts[LANGUAGES.index(language)] for name, texts in words.items()}


@contextmanager
def styled(texts: Iterable[str]) -> Iterator[None]:
    """Draw and save inside this: one look, fonts that have the texts, and an error instead of empty boxes."""
    if find_spec("matplotlib") is None:
        raise ConfigError("drawing needs matplotlib; install it with: pip install 'heedful[plots]'.")
    import matplotlib
    from cycler import cycler

    settings: dict[Any, Any] = {
        "font.family": font_families(texts),
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": cycler(color=list(COLOURS)),
        "axes.unicode_minus": False,
        "svg.hashsalt": "heedful",
        "savefig.facecolor": "white",
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("error", message=r"Glyph .* missing from")
        try:
            yield
        except UserWarning as warning:
            raise ConfigError(f"a character of the figure cannot be drawn: {warning}") from None


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, its size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def open_folder(directory: Path) -> None:
    """Make the folder of the figures, or say that it cannot be one."""
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory}: the output must be a directory, and this is a file.")
    directory.mkdir(parents=True, exist_ok=True)


def save(figure: Figure, directory: Path, name: str) -> list[Path]:
    """Write `name.png` and `name.svg`; the same figure gives the same files."""
    open_folder(directory)
    paths = [directory / f"{name}.{ending}" for ending in ("png", "svg")]
    figure.savefig(paths[0], dpi=150, metadata={"Software": "heedful"})
    figure.savefig(paths[1], metadata={"Date": None})
    return paths
