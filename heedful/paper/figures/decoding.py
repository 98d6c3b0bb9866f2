"""The decoding loop as an animation: tokens appear, the causal mask opens, and cross-attention moves."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from heedful.errors import ConfigError
from heedful.paper.figures.attention import AttentionExample, Head, cross_heads, plain, self_head
from heedful.paper.plot_style import Canvas, heat_colours, in_language, make_output_directory, theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

PHASES = ("read", "attend", "predict")
"""Of one step of the loop; each is a frame."""
SECONDS = {"start": 1.2, "read": 0.7, "attend": 0.9, "predict": 1.1, "end": 3.5}
GIF_WIDTH, NUM_COLOURS = 720, 64
FADE = 0.12
"""Seconds in which something appears in the SVG."""

DECODING_WORDS = {
    "start": ("The encoder has read the source.", "编码器已读完源句。"),
    "read": ("1. Read the last token: one row of the causal mask opens.", "1. 读入上一个词元：因果掩码打开一行。"),
    "attend": ("2. Cross-attention: attend to the source.", "2. 交叉注意力：关注源句。"),
    "predict": ("3. Softmax over the vocabulary: take the likeliest token.", "3. 对词表做 softmax：取概率最大的词元。"),
    "end": ("The end token stops the loop.", "遇到结束词元，循环停止。"),
    "own": ("self-attention", "自注意力"),
    "cross": ("cross-attention", "交叉注意力"),
    "head": ("layer {layer}, head {head}", "第 {layer} 层，第 {head} 个头"),
    "input": ("input", "输入"),
    "output": ("output", "输出"),
    "masked": ("masked", "被掩码遮住"),
    "weight": ("weight 0 to 1", "权重 0 到 1"),
    "candidates": ("likeliest next tokens", "概率最大的后续词元"),
    "so_far": ("translation so far", "当前译文"),
    "title": ("Greedy decoding, one token at a time", "贪心解码：逐个词元"),
}


@dataclass
class Animation:
    """A canvas whose parts are visible from one frame to another."""

    canvas: Canvas
    description: str
    seconds: list[float]
    """The duration of each frame."""
    parts: list[tuple[Any, int, int]] = field(default_factory=list)
    """Artist, first frame, and the frame after the last."""

    def show(self, part: Any, first: int, end: int | None = None) -> None:
        """Make a part visible in the frames from `first` to before `end`, or to the last."""
        end = len(self.seconds) if end is None else end
        part.set_gid(f"part{len(self.parts)}")
        self.parts.append((part, first, end))

    def frame(self, number: int) -> Figure:
        """The figure as it is in one frame."""
        for part, first, end in self.parts:
            part.set_visible(first <= number < end)
        return self.canvas.figure

    def images(self, width: int) -> list[Image]:
        """Every frame as an image of this width in pixels."""
        from PIL import Image

        dpi = 72 * width / self.canvas.width
        images = []
        for number in range(len(self.seconds)):
            buffer = io.BytesIO()
            self.frame(number).savefig(buffer, dpi=dpi, format="png")
            images.append(Image.open(buffer).convert("RGB"))
        return images

    def save(self, directory: Path, name: str) -> list[Path]:
        """Write the animation as GIF and SVG, and the last frame as PNG, reproducibly."""
        make_output_directory(directory)
        gif, svg, png = (directory / f"{name}.{ending}" for ending in ("gif", "svg", "png"))
        images = self.images(GIF_WIDTH)
        first, *others = with_few_colours(images)
        durations = [round(1000 * seconds) for seconds in self.seconds]
        first.save(gif, save_all=True, append_images=others, duration=durations, loop=0, optimize=False)
        svg.write_text(self.svg(), encoding="utf-8")
        self.frame(len(self.seconds) - 1).savefig(png, dpi=150, metadata={"Software": "heedful"})
        return [png, svg, gif]

    def svg(self) -> str:
        """The animation as SVG with CSS; where animations are not wanted, it shows the last frame."""
        for part, _, _ in self.parts:
            part.set_visible(True)
        buffer = io.StringIO()
        self.canvas.figure.savefig(buffer, format="svg", metadata={"Date": None})
        drawn = buffer.getvalue()
        for index, (_, first, end) in enumerate(self.parts):
            drawn = drawn.replace(f'<g id="part{index}">', f'<g class="f{first}-{end}">', 1)
        start = re.search(r"<svg [^>]*>", drawn)
        assert start is not None
        label = f' role="img" aria-label="{escape(self.description)}">'
        return drawn[: start.end() - 1] + label + self._style() + drawn[start.end() :]

    def _style(self) -> str:
        total = sum(self.seconds)
        times = [sum(self.seconds[:number]) for number in range(len(self.seconds) + 1)]

        def percent(seconds: float) -> str:
            return f"{100 * min(max(seconds, 0.0), total) / total:.2f}%"

        rules, moving = [], []
        for first, end in sorted({(first, end) for _, first, end in self.parts}):
            name, is_last = f"f{first}-{end}", end == len(self.seconds)
            rules.append(f".{name}{{opacity:{int(is_last)}}}")
            stops = [f"0%,{percent(times[first])}{{opacity:0}}", f"{percent(times[first] + FADE)}"]
            stops[-1] += ",100%{opacity:1}" if is_last else f",{percent(times[end])}{{opacity:1}}"
            if not is_last:
                stops.append(f"{percent(times[end] + FADE)},100%{{opacity:0}}")
            moving.append(
                f"@keyframes {name}{{{''.join(stops)}}}.{name}{{animation:{name} {total:g}s linear infinite}}"
            )
        moved = "".join(moving)
        return f"<style>{''.join(rules)}@media (prefers-reduced-motion:no-preference){{{moved}}}</style>"


def with_few_colours(images: Sequence[Image]) -> list[Image]:
    """The images with one palette, in which the colours that are most frequent in all of them are exact."""
    import numpy as np
    from PIL import Image

    pixels = [np.asarray(image).astype(np.int64) @ (65536, 256, 1) for image in images]
    colours, counts = np.unique(np.concatenate([one.ravel() for one in pixels]), return_counts=True)
    most = colours[np.argsort(-counts, kind="stable")[:NUM_COLOURS]]

    def channels(codes: Any) -> Any:
        return np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=-1)

    distances = np.square(channels(colours)[:, None] - channels(most)[None]).sum(axis=-1)
    nearest = distances.argmin(axis=-1).astype(np.uint8)
    reduced = []
    for one in pixels:
        image = Image.fromarray(nearest[np.searchsorted(colours, one)])
        image.putpalette(channels(most).astype(np.uint8).tobytes())
        reduced.append(image)
    return reduced


WIDTH, MARGIN, ROW, HEADER, FOOTER = 500.0, 12.0, 21.0, 104.0, 134.0
SMALLEST_CELL = 13.0
"""Width of a column in points; long sentences make the canvas wider."""


@dataclass(frozen=True)
class Layout:
    """Where the two matrices are: left edges and widths of a column, and the top of the first row."""

    own: float
    input: float
    cross: float
    output: float
    cell: float
    top: float


def draw_decoding(language: str, example: AttentionExample) -> Animation:
    """Draw both matrices with a row for each step, and below them the likeliest tokens and the translation so far."""
    if example.decoder is None:
        raise ConfigError("the figure decoding shows a Transformer; choose other figures with --only.")
    words = in_language(DECODING_WORDS, language)
    steps, sources = len(example.input_pieces), len(example.source_pieces)
    width = max(WIDTH, 2 * MARGIN + 124 + SMALLEST_CELL * (steps + sources))
    canvas = Canvas(width, HEADER + steps * ROW + FOOTER)
    seconds = [SECONDS["start"], *[SECONDS[phase] for _ in range(steps) for phase in PHASES], SECONDS["end"]]
    description = f"{words['title']}: {example.source} → {example.translation}"
    animation = Animation(canvas, description, seconds)
    cell = (width - 2 * MARGIN - 124) / (steps + sources)
    own = MARGIN + steps * cell
    layout = Layout(MARGIN, own + 29, own + 58, own + 58 + sources * cell + 33, cell, canvas.height - HEADER)
    heads = cross_heads(example)[-1], self_head(example.decoder)
    canvas.text((width / 2, canvas.height - 14), words["title"], size=11.5)
    _captions(animation, words)
    _headings(canvas, layout, example, heads, words)
    _self_attention(animation, layout, example.decoder[heads[1].layer - 1, heads[1].head - 1])
    _cross_attention(animation, layout, example.cross[:, heads[0].layer - 1, heads[0].head - 1])
    _tokens(animation, layout, example)
    _candidates(animation, example, words)
    _translation(animation, example, words)
    return animation


def frames_of(step: int) -> tuple[int, int, int, int]:
    """The frames in which a step reads, attends and predicts, and the frame after them."""
    first = 1 + len(PHASES) * step
    return first, first + 1, first + 2, first + 3


def _captions(animation: Animation, words: dict[str, str]) -> None:
    last = len(animation.seconds) - 1
    place = (animation.canvas.width / 2, animation.canvas.height - 33)
    for number in range(last + 1):
        name = "start" if number == 0 else "end" if number == last else PHASES[(number - 1) % len(PHASES)]
        text = animation.canvas.text(place, words[name], size=9.5, colour=theme().colours[1])
        animation.show(text, number, number + 1)


def _headings(
    canvas: Canvas, layout: Layout, example: AttentionExample, heads: tuple[Head, Head], words: dict[str, str]
) -> None:
    """The names of the columns, of both matrices below them, and of the colours."""
    for index, piece in enumerate(example.source_pieces):
        _column_name(canvas, layout, layout.cross, index, piece)
    bottom = layout.top - len(example.input_pieces) * ROW
    steps, sources = len(example.input_pieces), len(example.source_pieces)
    for name, left, columns, head in (("cross", layout.cross, sources, heads[0]), ("own", layout.own, steps, heads[1])):
        middle = left + columns * layout.cell / 2
        canvas.text((middle, bottom - 11), words[name], size=9.5)
        detail = words["head"].format(layer=head.layer, head=head.head)
        canvas.text((middle, bottom - 23), detail, size=8.5, colour=theme().muted)
    for name, across in (("input", layout.input), ("output", layout.output)):
        canvas.text((across, bottom - 11), words[name], size=9.5)
    across = canvas.width / 2 - 90
    for fill in (theme().blank, *(heat_colours()(index / 4) for index in range(5))):
        canvas.polygon((across, 8), (across + 11, 8), (across + 11, 19), (across, 19), fill=fill)
        if fill == theme().blank:
            name = canvas.text((across + 16, 13.5), words["masked"], size=8.5, ha="left")
            across += 32 + canvas.width_of(name)
        else:
            across += 11
    canvas.text((across + 6, 13.5), words["weight"], size=8.5, ha="left")


def _column_name(canvas: Canvas, layout: Layout, left: float, index: int, piece: str) -> Any:
    place = (left + (index + 0.62) * layout.cell, layout.top + 4)
    return canvas.text(place, plain(piece), size=9.5, rotation=55, ha="left", va="bottom", rotation_mode="anchor")


def _cell(canvas: Canvas, layout: Layout, left: float, row: int, column: int, fill: Any) -> Any:
    across, high = left + column * layout.cell, layout.top - row * ROW
    corners = (across, high), (across + layout.cell, high), (across + layout.cell, high - ROW), (across, high - ROW)
    return canvas.polygon(*corners, fill=fill, width=1.0)


def _self_attention(animation: Animation, layout: Layout, weights: Tensor) -> None:
    """All masked at first; each step opens the cells up to its own token."""
    for row, line in enumerate(weights.tolist()):
        for column, weight in enumerate(line):
            _cell(animation.canvas, layout, layout.own, row, column, theme().blank).set_zorder(1)
            if column <= row:
                part = _cell(animation.canvas, layout, layout.own, row, column, heat_colours()(weight))
                animation.show(part, frames_of(row)[0])


def _cross_attention(animation: Animation, layout: Layout, weights: Tensor) -> None:
    """A row of weights for each step, and a frame around the current row of both matrices."""
    canvas, sources = animation.canvas, weights.shape[1]
    for row, line in enumerate(weights.tolist()):
        for column, weight in enumerate(line):
            _cell(canvas, layout, layout.cross, row, column, theme().heat[0]).set_zorder(1)
            part = _cell(canvas, layout, layout.cross, row, column, heat_colours()(weight))
            animation.show(part, frames_of(row)[1])
        high, right = layout.top - row * ROW, layout.cross + sources * layout.cell
        corners = (layout.own, high), (right, high), (right, high - ROW), (layout.own, high - ROW)
        frame = canvas.polygon(*corners, fill="none", edge=theme().colours[1], width=1.6, zorder=3.5)
        animation.show(frame, frames_of(row)[0], frames_of(row)[3])


def _tokens(animation: Animation, layout: Layout, example: AttentionExample) -> None:
    """Each step's input, and the token it predicts; both in colour while they are new."""
    for row in range(len(example.input_pieces)):
        read, _, predict, end = frames_of(row)
        height = layout.top - (row + 0.5) * ROW
        for piece, across, first in (
            (example.input_pieces[row], layout.input, read),
            (example.target_pieces[row], layout.output, predict),
        ):
            text = plain(piece)
            size = 9.5
            drawn = animation.canvas.text((across, height), text, size=size, colour=theme().colours[1])
            if (width := animation.canvas.width_of(drawn)) > 56:
                size *= 56 / width
                drawn.set_fontsize(size)
            animation.show(drawn, first, end)
            animation.show(animation.canvas.text((across, height), text, size=size), end)
        key = _column_name(animation.canvas, layout, layout.own, row, example.input_pieces[row])
        animation.show(key, read)


def _candidates(animation: Animation, example: AttentionExample, words: dict[str, str]) -> None:
    """The probabilities of the likeliest tokens as bars, while the step predicts."""
    canvas, left, widest = animation.canvas, MARGIN, 92.0
    canvas.text((left, 94), words["candidates"], size=9.5, ha="left", colour=theme().muted)
    for step, candidates in enumerate(example.candidates):
        _, _, predict, end = frames_of(step)
        end = len(animation.seconds) if step == len(example.candidates) - 1 else end
        for place, (piece, probability) in enumerate(candidates):
            height = 77 - 14 * place
            colour = theme().colours[1] if place == 0 else theme().muted
            animation.show(canvas.text((left + 62, height), plain(piece), size=9, ha="right"), predict, end)
            bar = left + 68, left + 68 + max(widest * probability, 0.8)
            corners = (bar[0], height - 4.5), (bar[1], height - 4.5), (bar[1], height + 4.5), (bar[0], height + 4.5)
            animation.show(canvas.polygon(*corners, fill=colour), predict, end)
            share = canvas.text(
                (bar[1] + 4, height),
                f"{100 * probability:.0f}%" if probability >= 0.01 else "< 1%",
                size=8.5,
                ha="left",
            )
            animation.show(share, predict, end)


def _translation(animation: Animation, example: AttentionExample, words: dict[str, str]) -> None:
    """The source, and below it the translation, to which each step adds a token."""
    canvas, left = animation.canvas, 258.0
    canvas.text((left, 94), words["so_far"], size=9.5, ha="left", colour=theme().muted)
    size = _fitting(canvas, [example.source, example.translation], canvas.width - MARGIN - left)
    canvas.text((left, 48), example.source, size=size, ha="left", colour=theme().muted)
    beginning, text = "", example.translation
    for step, piece in enumerate(example.target_pieces[:-1]):
        whole = "".join(example.target_pieces[: step + 1]).replace("\u2581", " ").strip()
        beginning = whole if text.startswith(whole) else text[: len(beginning) + len(piece)]
        _, _, predict, end = frames_of(step)
        end = end + 2 if step < len(example.target_pieces) - 2 else len(animation.seconds)
        animation.show(canvas.text((left, 72), beginning, size=size, ha="left"), predict, end)


def _fitting(canvas: Canvas, texts: Sequence[str], room: float) -> float:
    """The font size, at most 12, at which the texts fit."""
    widest = 1.0
    for text in texts:
        drawn = canvas.text((0, 0), text, size=12)
        widest = max(widest, canvas.width_of(drawn))
        drawn.remove()
    return min(12.0, 12.0 * room / widest)
