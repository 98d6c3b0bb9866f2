"""The style of all figures: matplotlib settings, fonts for both languages, PNG and SVG output."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASE_FONT = "DejaVu Sans"  # comes with matplotlib; has Latin, Greek and mathematical signs
CJK_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN"),
    *("WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "PingFang SC", "PingFang HK", "Hiragino Sans GB", "STHeiti"),
    *("Microsoft YaHei", "SimHei", "Heiti TC", "Arial Unicode MS", "Droid Sans Fallback"),
)
REMEDY = "install one, on Debian or Ubuntu: apt-get install fonts-noto-cjk (or fonts-wqy-microhei)"


def choose_font(available: Iterable[str]) -> str | None:
    """The first available font of `CJK_FONTS`, or None."""
    available_names = set(available)
    return next((name for name in CJK_FONTS if name in available_names), None)


def font_families(texts: Iterable[str]) -> list[str]:
    """The font families that cover these texts, in order of preference; an error if characters are missing."""
    from matplotlib import font_manager

    found = choose_font(installed_fonts())
    families = [BASE_FONT] if found is None else [BASE_FONT, found]
    covered: set[int] = set()
    for name in families:
        path = font_manager.findfont(font_manager.FontProperties(family=name), fallback_to_default=False)
        covered.update(font_manager.get_font(path).get_charmap())
    missing = missing_characters(texts, covered)
    if missing:
        characters = repr("".join(missing[:8]))
        if found is None:
            raise ConfigError(f"no Chinese font is installed, so {characters} cannot be drawn; {REMEDY}.")
        raise ConfigError(f"the fonts {' and '.join(families)} have no glyphs for {characters}; remove them.")
    return families


def missing_characters(texts: Iterable[str], covered: Iterable[int] | Mapping[int, int]) -> list[str]:
    """The characters of the texts that are not covered; white space needs no glyph."""
    available_names = set(covered)
    characters = dict.fromkeys(character for text in texts for character in text)
    return [character for character in characters if ord(character) not in available_names and not character.isspace()]


def installed_fonts() -> list[str]:
    """Names of the fonts that matplotlib knows; without a Chinese one, newly installed fonts are added first."""
    from matplotlib import font_manager

    manager = font_manager.fontManager
    if choose_font(entry.name for entry in manager.ttflist) is None:
        known = {entry.fname for entry in manager.ttflist}
        for path in font_manager.findSystemFonts():
            if path not in known:
                with contextlib.suppress(OSError, RuntimeError, ValueError):  # not a usable font file
                    manager.addfont(path)
    return [entry.name for entry in manager.ttflist]


LANGUAGES = ("en", "zh")
COLOURS = ("#2563a8", "#d9730d", "#2f8f5b", "#a8325e", "#6b5aa8", "#7a6a53")

Words = Mapping[str, tuple[str, str]]
"""The texts of a figure: name to English and Chinese text."""


def in_language(words: Words, language: str) -> dict[str, str]:
    """The texts of a figure in one language."""
    if language not in LANGUAGES:
        raise ConfigError(f"--lang is one of {', '.join(LANGUAGES)}, not {language!r}.")
    return {name: texts[LANGUAGES.index(language)] for name, texts in words.items()}


@contextmanager
def styled(texts: Iterable[str]) -> Iterator[None]:
    """Context for drawing and saving: the common style and fonts that cover the texts; missing glyphs are an error."""
    if find_spec("matplotlib") is None:
        raise ConfigError("figures need matplotlib: pip install 'heedful[plots]'.")
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
    """An empty figure; the size is in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def make_output_directory(directory: Path) -> None:
    """Create the output directory, or raise `ConfigError` if it is a file."""
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory}: the output must be a directory, and this is a file.")
    directory.mkdir(parents=True, exist_ok=True)


def save(figure: Figure, directory: Path, name: str) -> list[Path]:
    """Write `name.png` and `name.svg`, reproducibly."""
    make_output_directory(directory)
    paths = [directory / f"{name}.{ending}" for ending in ("png", "svg")]
    figure.savefig(paths[0], dpi=150, metadata={"Software": "heedful"})
    figure.savefig(paths[1], metadata={"Date": None})
    return paths
