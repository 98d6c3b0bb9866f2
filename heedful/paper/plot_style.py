"""The style of all figures: themes, fonts for both languages, PNG and SVG output, and a canvas for diagrams."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
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
PAGE_WIDTH = 7.2
"""Width in inches of a figure whose 10-point text can be read on a page and on a phone."""


@dataclass(frozen=True)
class Theme:
    """The colours of a figure."""

    background: str
    text: str
    muted: str
    """Less important text, and outlines."""
    faint: str
    """Grid lines and frames."""
    blank: str
    """Cells without a value, such as padding."""
    colours: tuple[str, ...]
    """Curves, in order."""
    heat: tuple[str, ...]
    """From zero to the largest value."""
    signed: tuple[str, ...]
    """From the largest negative over zero to the largest positive value."""
    fills: Mapping[str, str]
    """Boxes, by what they stand for."""


THEMES = {
    "light": Theme(
        background="#ffffff",
        text="#1f2328",
        muted="#59636e",
        faint="#d1d9e0",
        blank="#e4e7eb",
        colours=("#2563a8", "#d9730d", "#2f8f5b", "#a8325e", "#6b5aa8", "#7a6a53"),
        heat=("#f6f8fa", "#cfe1f5", "#8db8e6", "#3f7fc4", "#164a86"),
        signed=("#a8325e", "#e3a3b8", "#f6f8fa", "#9cc0e6", "#1d5a9e"),
        fills={
            "embedding": "#f6d5d5",
            "attention": "#fbe0c0",
            "forward": "#cfe6f5",
            "norm": "#f2f3c4",
            "output": "#d9d5ee",
            "softmax": "#d3ecd6",
        },
    ),
    "dark": Theme(
        background="#0d1117",
        text="#e6edf3",
        muted="#9aa4af",
        faint="#343b44",
        blank="#262c34",
        colours=("#6cb0f5", "#f0a04b", "#5fc98e", "#ef7fa8", "#ab9bf0", "#c9b28c"),
        heat=("#161b22", "#17365a", "#1f5c9c", "#4c97e0", "#b5dbff"),
        signed=("#ff8fb3", "#8a3a58", "#161b22", "#2a5f96", "#8cc4ff"),
        fills={
            "embedding": "#5a2f35",
            "attention": "#5a3f1c",
            "forward": "#1f435c",
            "norm": "#4a4a1e",
            "output": "#3b3560",
            "softmax": "#22492c",
        },
    ),
}

_theme: ContextVar[Theme] = ContextVar("theme", default=THEMES["light"])


def theme() -> Theme:
    """The theme of the figure that is drawn: that of the surrounding `styled`."""
    return _theme.get()


def heat_colours(*, signed: bool = False) -> Colormap:
    """The colours of a heat map in this theme: from zero upwards or, with `signed`, in both directions."""
    from matplotlib.colors import LinearSegmentedColormap

    colours = theme().signed if signed else theme().heat
    return LinearSegmentedColormap.from_list("signed" if signed else "heat", colours)


def text_on(colour: Any) -> str:
    """Black or white, whichever is easier to read on this colour."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "#ffffff"


Words = Mapping[str, tuple[str, str]]
"""The texts of a figure: name to English and Chinese text."""


def in_language(words: Words, language: str) -> dict[str, str]:
    """The texts of a figure in one language."""
    if language not in LANGUAGES:
        raise ConfigError(f"--lang is one of {', '.join(LANGUAGES)}, not {language!r}.")
    return {name: texts[LANGUAGES.index(language)] for name, texts in words.items()}


@contextmanager
def styled(texts: Iterable[str], theme_name: str = "light") -> Iterator[None]:
    """Context for drawing and saving: theme, and fonts that cover the texts; missing glyphs are an error."""
    if theme_name not in THEMES:
        raise ConfigError(f"--theme is one of {', '.join(THEMES)}, not {theme_name!r}.")
    if find_spec("matplotlib") is None:
        raise ConfigError("figures need matplotlib: pip install 'heedful[plots]'.")
    import matplotlib

    active = _theme.set(THEMES[theme_name])
    try:
        with matplotlib.rc_context(_settings(texts)), warnings.catch_warnings():
            warnings.filterwarnings("error", message=r"Glyph .* missing from")
            yield
    except UserWarning as warning:
        raise ConfigError(f"a character of the figure cannot be drawn: {warning}") from None
    finally:
        _theme.reset(active)


def _settings(texts: Iterable[str]) -> dict[Any, Any]:
    """The settings of matplotlib for the active theme."""
    from cycler import cycler

    colours = theme()
    coloured = {
        "text.color": colours.text,
        "axes.facecolor": colours.background,
        "axes.edgecolor": colours.muted,
        "axes.labelcolor": colours.text,
        "xtick.color": colours.muted,
        "ytick.color": colours.muted,
        "xtick.labelcolor": colours.text,
        "ytick.labelcolor": colours.text,
        "grid.color": colours.muted,
        "figure.facecolor": colours.background,
        "savefig.facecolor": colours.background,
        "axes.prop_cycle": cycler(color=list(colours.colours)),
        "hatch.color": colours.muted,
    }
    return {
        **coloured,
        "font.family": font_families(texts),
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.unicode_minus": False,
        "svg.hashsalt": "heedful",
    }


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


# ---- diagrams

POINTS_PER_INCH = 72
Place = tuple[float, float]


class Canvas:
    """A figure without axes; the origin is at the lower left, and one unit is one point."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.figure: Figure = Figure(figsize=(width / POINTS_PER_INCH, height / POINTS_PER_INCH))
        self.renderer: Any = FigureCanvasAgg(self.figure).get_renderer()  # type: ignore[no-untyped-call]
        self.panel = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self.panel.set(xlim=(0, width), ylim=(0, height))
        self.panel.axis("off")
        self.width, self.height = width, height

    def text(self, place: Place, text: str, *, size: float = 10, colour: str | None = None, **how: Any) -> Any:
        """A text, centred unless `ha` and `va` say otherwise."""
        settings = {"ha": "center", "va": "center", "color": colour or theme().text, "zorder": 4, **how}
        return self.panel.text(*place, text, fontsize=size, **settings)

    def width_of(self, text: Any) -> float:
        """The width of a drawn text in points."""
        return float(text.get_window_extent(self.renderer).width) * POINTS_PER_INCH / self.figure.dpi

    def axes(self, corner: Place, size: Place) -> Axes:
        """Axes with their lower left corner at `corner`."""
        left, bottom = corner[0] / self.width, corner[1] / self.height
        return self.figure.add_axes((left, bottom, size[0] / self.width, size[1] / self.height))

    def box(
        self,
        corner: Place,
        size: Place,
        lines: Sequence[tuple[str, float]] = (),
        *,
        fill: str | None = None,
        copies: int = 1,
        zorder: float = 2,
    ) -> None:
        """A box with its lower left corner at `corner` and lines of text (text, font size); `copies` lie behind it."""
        from matplotlib.patches import FancyBboxPatch

        for copy in reversed(range(copies)):
            place = (corner[0] + 4 * copy, corner[1] + 4 * copy)
            shape = FancyBboxPatch(place, *size, boxstyle="round,pad=0,rounding_size=4")
            shape.set(
                facecolor=fill or theme().background,
                edgecolor=theme().muted,
                linewidth=0.8,
                zorder=zorder - 0.01 * copy,
            )
            self.panel.add_patch(shape)
        total = sum(1.35 * font for _, font in lines)
        top = corner[1] + size[1] / 2 + total / 2
        for text, font in lines:
            colour = theme().text if font >= 9.5 else theme().muted
            self.text((corner[0] + size[0] / 2, top - 0.675 * font), text, size=font, colour=colour)
            top -= 1.35 * font

    def arrow(self, *places: Place, colour: str | None = None, width: float = 1.1, zorder: float = 1.5) -> None:
        """A line through places with straight corners that ends in an arrowhead."""
        colour = colour or theme().muted
        xs, ys = zip(*places, strict=True)
        if len(places) > 2:
            self.panel.plot(xs[:-1], ys[:-1], color=colour, linewidth=width, zorder=zorder, solid_capstyle="butt")
        style = {"arrowstyle": "-|>,head_length=0.35,head_width=0.16", "color": colour, "linewidth": width}
        self.panel.annotate(
            "", xy=places[-1], xytext=places[-2], arrowprops={**style, "shrinkA": 0, "shrinkB": 0}, zorder=zorder
        )

    def line(self, *places: Place, colour: str | None = None, width: float = 1.0, **how: Any) -> Any:
        """A line through places."""
        xs, ys = zip(*places, strict=True)
        return self.panel.plot(xs, ys, color=colour or theme().muted, linewidth=width, **{"zorder": 1.0, **how})[0]

    def polygon(self, *corners: Place, fill: Any, edge: str | None = None, width: float = 0.7, **how: Any) -> Any:
        """A filled shape."""
        from matplotlib.patches import Polygon

        shape = Polygon(corners, closed=True, facecolor=fill, edgecolor=edge or theme().background, linewidth=width)
        shape.set(**{"zorder": 2.0, **how})
        self.panel.add_patch(shape)
        return shape
