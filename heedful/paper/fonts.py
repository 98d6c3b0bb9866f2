"""Fonts for the figures: Chinese labels need a font that has the characters, never empty boxes in their place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from heedful.errors import ConfigError

BASE_FONT = "DejaVu Sans"  # comes with matplotlib; has Latin, Greek and mathematical signs
CJK_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN"),
    *("WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "PingFang SC", "PingFang HK", "Hiragino Sans GB", "STHeiti"),
    *("Microsoft YaHei", "SimHei", "Heiti TC", "Arial Unicode MS", "Droid Sans Fallback"),
)
REMEDY = "install one, on Debian or Ubuntu: apt-get install fonts-noto-cjk (or fonts-wqy-microhei)"


def choose_font(available: Iterable[str]) -> str | None:
    """The first font of `CJK_FONTS` that is there, or None."""
    there = set(available)
    return next((name for name in CJK_FONTS if name in there), None)


def font_families(texts: Iterable[str]) -> list[str]:
    """The fonts that together can show these texts, in the order of preference; an error where there are none."""
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
            raise ConfigError(f"no font for Chinese is installed, and {characters} cannot be drawn; {REMEDY}.")
        raise ConfigError(f"the fonts of the figures, {' and '.join(families)}, lack {characters}; leave these out.")
    return families


def missing_characters(texts: Iterable[str], covered: Iterable[int] | Mapping[int, int]) -> list[str]:
    """The characters of the texts that no covered code point draws; spaces and line ends need no glyph."""
    there = set(covered)
    characters = dict.fromkeys(character for text in texts for character in text)
    return [one for one in characters if ord(one) not in there and not one.isspace()]


def installed_fonts() -> list[str]:
    """Names of the fonts that matplotlib knows; where none is for Chinese, it is shown those installed since."""
    from matplotlib import font_manager

    manager = font_manager.fontManager
    if choose_font(entry.name for entry in manager.ttflist) is None:
        known = {entry.fname for entry in manager.ttflist}
        for path in font_manager.findSystemFonts():
            if path not in known:
                with contextlib.suppress(OSError, RuntimeError, ValueError):  # a file that is no usable font
                    manager.addfont(path)
    return [entry.name for entry in manager.ttflist]
