"""Protected spans: masked in the source, so that the model does not change them, and restored in the translation.

    "Visit https://a.de now."  →  "Visit {0} now."  →  "Besuchen Sie {0} jetzt."  →  "Besuchen Sie https://a.de jetzt."

A text is read as lines and cells (separated by tabs). A cell without letters outside its spans is copied. Spans at
the start or end of a sentence that are not part of it (emoji, tags, a URL after a full stop) are copied too; the
others are masked by `{0}`, `{1}` … in order. A literal `{0}` in a text is a span itself, so masks are unambiguous.

A translation is accepted if it contains every mask once, with closing tags after their opening tags. Beam search takes
the best such hypothesis. If there is none, the sentence is translated with another mask format, `<0>`; if that fails
too, the text between the spans is translated piece by piece, with the spans in place. So no span is ever lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from heedful.config import DecodingConfig
from heedful.decoding.text_splitting import LINES, VISIBLE, Segment, SplitRule, split_line
from heedful.decoding.tokenizer_cache import TokenizerCache
from heedful.search_types import DecodeRequest, DecodeResult, Hypothesis
from heedful.text.glossary import Glossary, Match
from heedful.text.protected_spans import find_spans, has_prose, split_blocks

Search = Callable[[Sequence[DecodeRequest], DecodingConfig], dict[DecodeRequest, DecodeResult]]
MakeRequest = Callable[[int, Segment, str | None], DecodeRequest | None]
"""(index of the text, segment, target prefix) -> request; None if the segment exceeds the model's maximum length."""

COPIED_REQUEST = DecodeRequest((), (), "", 0)
COPIED_RESULT = DecodeResult([Hypothesis([], [], 0.0, 0.0)], None)
"""Request and result of a copied segment: no tokens, log-probability 0."""

_CELL_ENDS = re.compile(r"([\t\v\f\x1c-\x1f\x85\u2028\u2029]+)")
_NOT_PART_OF_SENTENCE = {"emoji", "tag", "time code"}
"""Kinds of spans that are not part of a sentence when they are at its start or end."""
_LEADING_MASK = re.compile(r"\{(\d+)\}((?:\s*[:：])?)(\s*)")
_TRAILING_MASK = re.compile(r"(\s*)\{(\d+)\}$")
_ENDS_SENTENCE = re.compile(r"[.!?:。！？：…][\"'”’)）」]*\s*$")
_TAG = re.compile(r"<(/?)([A-Za-z_][\w:.-]*)")
_WORD = re.compile(r"\w")
_LATIN_WORD = re.compile(r"[A-Za-z0-9_\u00c0-\u024f]")


class MaskFormat(NamedTuple):
    """A mask format: how masks are written, and a pattern that also accepts full-width brackets and spaces."""

    written: str
    read: re.Pattern[str]


MASK_FORMATS = (
    MaskFormat("{%d}", re.compile(r"[{｛]\s?(\d{1,4})\s?[}｝]")),
    MaskFormat("<%d>", re.compile(r"[<＜〈]\s?(\d{1,4})\s?[>＞〉]")),
)


@dataclass(frozen=True)
class Cell:
    """The text between two tabs or line ends: text to translate with masked spans, or text to copy."""

    before: str
    text: str
    spans: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    copied: bool = False


def split_into_cells(text: str) -> list[Cell]:
    """The cells of a text in order. White space after the last cell becomes an empty cell."""
    cells: list[Cell] = []
    gap = ""
    for piece, is_block in split_blocks(text):
        if is_block:
            cells.append(Cell(gap, piece, copied=True))
            gap = ""
            continue
        for part in (part for line in LINES.findall(piece) for part in _CELL_ENDS.split(line)):
            inside = part.strip()
            if not VISIBLE.search(inside):
                gap += part
                continue
            start = part.index(inside)
            cells.append(_masked_cell(gap + part[:start], inside))
            gap = part[start + len(inside) :]
    return [*cells, Cell(gap, "", copied=True)] if gap else cells


def split_cells(cells: Iterable[Cell], rule: SplitRule, *, keep_start: bool = False) -> list[Segment]:
    """The segments of a text. `keep_start`: also mask spans at the start of the first sentence, for a target prefix."""
    segments: list[Segment] = []
    for cell in cells:
        if cell.copied:
            segments.append(Segment(cell.before, cell.text, copied=True))
            continue
        gap = cell.before
        for piece in split_line(cell.text, rule):
            inside = piece.strip()
            if not VISIBLE.search(inside):
                gap += piece
                continue
            start = piece.index(inside)
            first = keep_start and all(segment.copied for segment in segments)
            segments += _segments_of(gap + piece[:start], inside, cell, keep_start=first)
            gap = piece[start + len(inside) :]
        if gap:
            segments.append(Segment(gap, "", copied=True))
    return segments


def restore_spans(segment: Segment, translation: str) -> str:
    """Replace the masks in a segment's translation by their spans. For a copied segment, return its text."""
    if segment.copied:
        return segment.text
    if not segment.spans:
        return translation
    pattern = MASK_FORMATS[segment.mask_format].read
    around = {
        int(m.group(1)): (segment.text[: m.start()], segment.text[m.end() :]) for m in pattern.finditer(segment.text)
    }
    text, end = "", 0
    for match in pattern.finditer(translation):
        number = int(match.group(1))
        span, (before, after) = segment.spans[number], around[number]
        text += translation[end : match.start()]
        if _needs_space(text[-1:], span) and not _WORD.match(before[-1:]):
            text += " "
        following = translation[match.end() : match.end() + 1]
        needs_space_after = _LATIN_WORD.match(span[-1:]) and _WORD.match(following) and not _WORD.match(after[:1])
        text += span + (" " if needs_space_after else "")
        end = match.end()
    return text + translation[end:]


def as_copied(segment: Segment) -> Segment:
    """A copied segment in place of one that exceeds the model's maximum length."""
    return replace(
        segment, text=restore_spans(segment, segment.text), spans=(), mask_format=0, copied=True, too_long=True
    )


def has_all_spans(segment: Segment, translation: str) -> bool:
    """Whether a translation has each mask once, words besides masks, and tags in a valid order."""
    pattern = MASK_FORMATS[segment.mask_format].read
    numbers = [int(match.group(1)) for match in pattern.finditer(translation)]
    if sorted(numbers) != list(range(len(segment.spans))) or not has_prose(pattern.sub("", translation)):
        return False
    return all(numbers.index(opening) < numbers.index(closing) for opening, closing in _tag_pairs(segment.spans))


def find_terms(glossary: Glossary, segment: Segment) -> list[Match]:
    """The terms of a segment; none is looked for in its masks."""
    masks = (
        [one.span() for one in MASK_FORMATS[segment.mask_format].read.finditer(segment.text)] if segment.spans else []
    )
    return [
        match
        for match in glossary.find(segment.text)
        if all(match.end <= start or end <= match.start for start, end in masks)
    ]


def mask_prefix(prefix: str | None, segment: Segment) -> str | None:
    """The target prefix with the spans of its segment masked."""
    for number, span in enumerate(segment.spans):
        prefix = prefix and prefix.replace(span, MASK_FORMATS[segment.mask_format].written % number, 1)
    return prefix


def translate_masked(
    segments: list[list[Segment]],
    requests: list[list[DecodeRequest]],
    prefixes: Sequence[str | None],
    *,
    config: DecodingConfig,
    align: bool,
    cache: TokenizerCache,
    search: Search,
    make_request: MakeRequest,
) -> dict[DecodeRequest, DecodeResult]:
    """Translate all masked segments without losing a span, splitting those for which every mask format fails.

    Modifies the lists of each text: masks may change their format, a segment may become several.
    """
    results: dict[DecodeRequest, DecodeResult] = {}
    for mask_format in range(len(MASK_FORMATS)):
        searched: dict[DecodeRequest, Segment] = {}
        for line, index in _masked_positions(segments):
            if requests[line][index] in results:
                continue
            if mask_format:
                part = change_mask_format(segments[line][index], mask_format)
                request = make_request(
                    line, part, prefixes[line] if _is_first_translated(segments[line], index) else None
                )
                if request is None:  # masks of this format need more tokens
                    continue
                segments[line][index], requests[line][index] = part, request
            searched[requests[line][index]] = segments[line][index]
        found = search(
            list(searched), replace(config, num_best=config.beam_size) if config.method == "beam" else config
        )
        results.update(
            (request, kept)
            for request, part in searched.items()
            if (kept := _accept(part, found[request], cache, config))
        )
    for line, index in reversed(list(_masked_positions(segments))):
        if requests[line][index] not in results:
            first = prefixes[line] if _is_first_translated(segments[line], index) else None
            pairs = [
                with_request(line, piece, start, make_request)
                for piece, start in split_at_spans(segments[line][index], first)
            ]
            segments[line][index : index + 1] = [piece for piece, _ in pairs]
            requests[line][index : index + 1] = [request for _, request in pairs]
    if align:
        results.update(
            _add_attention(
                {request: found for request, found in results.items() if found.attention is None}, search, config
            )
        )
    remaining = [
        request for line in requests for request in line if request not in results and request is not COPIED_REQUEST
    ]
    return {**results, **search(list(dict.fromkeys(remaining)), config)}


def with_request(
    line: int, segment: Segment, prefix: str | None, make_request: MakeRequest
) -> tuple[Segment, DecodeRequest]:
    """A segment with its request. A segment that exceeds the model's maximum length becomes a copied one."""
    if segment.copied:
        return segment, COPIED_REQUEST
    request = make_request(line, segment, prefix)
    return (as_copied(segment), COPIED_REQUEST) if request is None else (segment, request)


def change_mask_format(segment: Segment, mask_format: int) -> Segment:
    """A masked segment with its masks in another format."""
    written = MASK_FORMATS[mask_format].written
    text = MASK_FORMATS[segment.mask_format].read.sub(lambda match: written % int(match.group(1)), segment.text)
    return replace(segment, text=text, mask_format=mask_format)


def split_at_spans(segment: Segment, prefix: str | None) -> list[tuple[Segment, str | None]]:
    """Split a masked segment into its spans, copied, and the text between them, each with its target prefix.

    A prefix is split at its spans too; if they are in another order, the whole prefix is copied before the rest.
    """
    read = MASK_FORMATS[segment.mask_format].read
    parts = read.split(segment.text)  # text, number, text, number … text
    starts = read.split(mask_prefix(prefix, segment) or "")
    pieces: list[tuple[Segment, str | None]] = []
    before, used = segment.before, set()
    if starts[1::2] != parts[1 : len(starts) : 2]:
        pieces.append((Segment(before, prefix or "", copied=True), None))
        before, used, starts = " ", set(starts[1::2]), []
    for place, part in enumerate(parts):
        if place % 2:
            if part not in used:
                pieces.append((Segment(before, segment.spans[int(part)], copied=True), None))
                before = ""
            continue
        inside, start = part.strip(), starts[place].strip() if place < len(starts) else ""
        lead = part[: part.index(inside)]
        if has_prose(inside):
            pieces.append((Segment(before + lead, inside), start or None))
        elif inside or start:
            pieces.append((Segment(before + lead, f"{start} {inside}".strip(), copied=True), None))
        else:
            before += part
            continue
        before = part[len(lead) + len(inside) :]
    return pieces


def _masked_cell(before: str, text: str) -> Cell:
    spans = find_spans(text)
    masked, outside, end = "", "", 0
    for number, span in enumerate(spans):
        between = text[end : span.start]
        masked += between + MASK_FORMATS[0].written % number
        outside += between
        end = span.end
    if not has_prose(outside + text[end:]):
        return Cell(before, text, copied=True)
    originals = tuple(text[span.start : span.end] for span in spans)
    return Cell(before, masked + text[end:], originals, tuple(span.kind for span in spans))


def _segments_of(before: str, text: str, cell: Cell, *, keep_start: bool) -> list[Segment]:
    """The segments of a sentence: leading and trailing spans, copied, and the rest, with masks numbered from 0."""
    if not cell.spans:
        return [Segment(before, text)]
    head: list[Segment] = []
    tail: list[Segment] = []
    while (
        not keep_start
        and (match := _LEADING_MASK.match(text))
        and (match[2] or cell.kinds[int(match[1])] in _NOT_PART_OF_SENTENCE)
    ):
        head.append(Segment(before, cell.spans[int(match[1])] + match[2], copied=True))
        before, text = match[3], text[match.end() :]
    while (match := _TRAILING_MASK.search(text)) and _is_outside_sentence(
        text[: match.start()], cell.kinds[int(match[2])]
    ):
        tail.insert(0, Segment(match[1], cell.spans[int(match[2])], copied=True))
        text = text[: match.start()]
    if not text:
        return head + tail
    read = MASK_FORMATS[0].read
    numbers = [int(match[1]) for match in read.finditer(text)]
    spans = tuple(cell.spans[number] for number in numbers)
    if not has_prose(read.sub("", text)):
        text = read.sub(lambda match: cell.spans[int(match[1])], text)
        return [*head, Segment(before, text, copied=True), *tail]
    text = read.sub(lambda match: MASK_FORMATS[0].written % (int(match[1]) - numbers[0]), text)
    return [*head, Segment(before, text, spans=spans), *tail]


def _is_outside_sentence(text: str, kind: str) -> bool:
    """Whether a span after this text is outside its sentence."""
    if kind in _NOT_PART_OF_SENTENCE:
        return True
    return bool(_ENDS_SENTENCE.search(text)) and kind != "placeholder"


def _accept(
    segment: Segment, result: DecodeResult, cache: TokenizerCache, config: DecodingConfig
) -> DecodeResult | None:
    """The best `num_best` hypotheses that have all spans; None if there are none."""
    kept = [found for found in result.hypotheses if has_all_spans(segment, cache.decode(found.tokens[:-1]))]
    if not kept:
        return None
    return DecodeResult(kept[: config.num_best], result.attention if kept[0] is result.hypotheses[0] else None)


def _add_attention(
    results: dict[DecodeRequest, DecodeResult], search: Search, config: DecodingConfig
) -> dict[DecodeRequest, DecodeResult]:
    """Add the attention of hypotheses that were not the best of their search, by forced decoding."""
    forced = {}
    for request, result in results.items():
        tokens = result.hypotheses[0].tokens[:-1]
        forced[request] = request._replace(prefix=tuple(tokens), max_length=len(tokens))
    found = search(list(dict.fromkeys(forced.values())), replace(config, num_best=1))
    return {request: result._replace(attention=found[forced[request]].attention) for request, result in results.items()}


def _masked_positions(segments: Sequence[Sequence[Segment]]) -> Iterator[tuple[int, int]]:
    return ((line, index) for line, parts in enumerate(segments) for index, part in enumerate(parts) if part.spans)


def _tag_pairs(spans: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The index pairs of opening and closing tags of the same element."""
    opened: list[tuple[str, int]] = []
    for number, span in enumerate(spans):
        for closing, name in _TAG.findall(span):
            if not closing:
                opened.append((name, number))
            elif any(name == one for one, _ in opened):
                while (last := opened.pop())[0] != name:
                    pass
                if last[1] != number:
                    yield last[1], number


def _is_first_translated(parts: Sequence[Segment], index: int) -> bool:
    return all(part.copied for part in parts[:index])


def _needs_space(before: str, span: str) -> bool:
    """Whether a span needs a space before it, because it would merge with the preceding character."""
    if span[:1] in "#@":
        return bool(_WORD.match(before))
    return bool(_LATIN_WORD.match(before) and _LATIN_WORD.match(span))
