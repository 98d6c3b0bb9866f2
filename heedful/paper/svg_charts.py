"""Line and bar charts as inline SVG for HTML pages; colours come from the style sheet of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

WIDTH, HEIGHT = 470, 290  # close to the size on the page in pixels, so that the text has the size of the notes
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 12, 46
BAR, GAP, LABEL_WIDTH, VALUE_WIDTH = 22, 9, 156, 94


@dataclass(frozen=True)
class Line:
    """One curve: points (x, y), the index of its colour, and whether it is drawn thin and without markers."""

    label: str
    points: Sequence[tuple[float, float]]
    colour: int
    thin: bool = False


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers from `low` to `high`."""
    span = max(high - low, 1e-12)
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_label(number: float) -> str:
    """The label of an axis tick, such as 1.5M, 20k or 0.25."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.4g}{letter}"
    return f"{number:.4g}"


def without_steep_start(lines: Sequence[Line], start: float = 0.1) -> list[Line]:
    """The lines, the thin ones without early points that are higher than everything after the first tenth of the axis.

    Otherwise a first loss several times as high as the last would flatten the rest of the chart.
    """
    x_high = max((x for line in lines for x, _ in line.points), default=0.0)
    later = [y for line in lines for x, y in line.points if not line.thin or x >= start * x_high]
    top = max(later, default=0.0)
    return [replace(line, points=[(x, y) for x, y in line.points if not line.thin or y <= top]) for line in lines]


def line_chart(lines: Sequence[Line], *, x_label: str, y_label: str) -> str:
    """A line chart whose x axis starts at zero."""
    lines = without_steep_start(lines)
    points = [point for line in lines for point in line.points]
    if not points:
        return ""
    x_high = max(x for x, _ in points) or 1.0
    low, high = min(y for _, y in points), max(y for _, y in points)
    margin = 0.06 * (high - low) or 0.5
    low, high = max(0.0, low - margin), high + margin
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def across(x: float) -> float:
        return LEFT + inner_width * x / x_high

    def down(y: float) -> float:
        return TOP + inner_height * (high - y) / (high - low)

    svg = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(f"{y_label}, {x_label}")}">']
    for y in ticks(low, high):
        svg.append(f'<path class="grid" d="M{LEFT} {down(y):.1f}H{WIDTH - RIGHT}"/>')
        svg.append(f'<text x="{LEFT - 7}" y="{down(y) + 4:.1f}" text-anchor="end">{tick_label(y)}</text>')
    for x in ticks(0.0, x_high):
        svg.append(f'<text x="{across(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick_label(x)}</text>')
    svg.append(f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    svg.append(f'<text x="{LEFT + inner_width / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>')
    middle = TOP + inner_height / 2
    svg.append(
        f'<text x="14" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 14 {middle:.0f})">'
        f"{escape(y_label)}</text>"
    )
    for line in sorted(lines, key=lambda one: not one.thin):
        svg.append(_curve(line, [(across(x), down(y)) for x, y in line.points]))
    return "".join([*svg, "</svg>"])


def _curve(line: Line, points: Sequence[tuple[float, float]]) -> str:
    """A polyline; unless it is thin, with a marker and a tooltip at each point."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    kind = "faint" if line.thin else "line"
    drawn = f'<polyline class="{kind} s{line.colour}" points="{path}"/>'
    if line.thin:
        return drawn
    marks = [
        f'<circle class="mark f{line.colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{escape(line.label)}: {loss:.3f}'
        f"</title></circle>"
        for (x, y), (_, loss) in zip(points, line.points, strict=True)
    ]
    return drawn + "".join(marks)


def interval_chart(
    categories: Sequence[str],
    series: Sequence[tuple[str, Sequence[tuple[float, float, float] | None]]],
    *,
    x_label: str,
    y_label: str,
) -> str:
    """Values with intervals by category: each series has a name and (value, low, high) or None for every category.

    The points of a category stand side by side, so that their intervals do not overlap.
    """
    known = [item for _, points in series for item in points if item is not None]
    if not known:
        return ""
    high = max(top for _, _, top in known) * 1.06 or 1.0
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    slot = inner_width / len(categories)
    shift = min(9.0, 0.7 * slot / len(series))

    def down(y: float) -> float:
        return TOP + inner_height * (high - max(0.0, y)) / high

    svg = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(f"{y_label}, {x_label}")}">']
    for y in ticks(0.0, high):
        svg.append(f'<path class="grid" d="M{LEFT} {down(y):.1f}H{WIDTH - RIGHT}"/>')
        svg.append(f'<text x="{LEFT - 7}" y="{down(y) + 4:.1f}" text-anchor="end">{tick_label(y)}</text>')
    for place, name in enumerate(categories):
        x = LEFT + slot * (place + 0.5)
        svg.append(
            f'<text class="small" x="{x:.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{escape(name)}</text>'
        )
    svg.append(f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    svg.append(f'<text x="{LEFT + inner_width / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>')
    middle = TOP + inner_height / 2
    svg.append(
        f'<text x="14" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 14 {middle:.0f})">'
        f"{escape(y_label)}</text>"
    )
    for index, (label, points) in enumerate(series):
        offset = (index - (len(series) - 1) / 2) * shift
        placed = [(LEFT + slot * (place + 0.5) + offset, item) for place, item in enumerate(points) if item is not None]
        path = " ".join(f"{x:.1f},{down(value):.1f}" for x, (value, _, _) in placed)
        svg.append(f'<polyline class="faint s{index}" points="{path}"/>')
        for x, (value, low, top) in placed:
            svg.append(f'<path class="line s{index}" d="M{x:.1f} {down(low):.1f}V{down(top):.1f}"/>')
            svg.append(
                f'<circle class="mark f{index}" cx="{x:.1f}" cy="{down(value):.1f}" r="3.5"><title>{escape(label)}: '
                f"{value:.1f} ({low:.1f}–{top:.1f})</title></circle>"
            )
    return "".join([*svg, "</svg>"])


def bar_chart(values: Sequence[tuple[str, float | None, str]], *, title: str) -> str:
    """Horizontal bars: name, value (None: unknown) and the value as text."""
    height = len(values) * (BAR + GAP) + GAP
    most = max((value for _, value, _ in values if value is not None), default=0.0) or 1.0
    svg = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">']
    for index, (name, value, text) in enumerate(values):
        top = GAP + index * (BAR + GAP)
        length = (WIDTH - LABEL_WIDTH - VALUE_WIDTH) * max(0.0, value or 0.0) / most
        svg.append(f'<text x="{LABEL_WIDTH - 8}" y="{top + 16}" text-anchor="end">{escape(name)}</text>')
        svg.append(f'<rect class="f{index}" x="{LABEL_WIDTH}" y="{top}" width="{length:.1f}" height="{BAR}" rx="2"/>')
        svg.append(f'<text x="{LABEL_WIDTH + length + 8:.1f}" y="{top + 16}">{escape(text)}</text>')
    return "".join([*svg, "</svg>"])
