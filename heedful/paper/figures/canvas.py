"""A canvas for diagrams: boxes, arrows and texts at places measured in points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from heedful.paper.plot_style import theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
