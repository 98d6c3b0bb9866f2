"""Spans that must not change, on their way through a model: masked in the source, put back into the translation.

    "Visit https://a.de now."  →  "Visit {0} now."  →  "Besuchen Sie {0} jetzt."  →  "Besuchen Sie https://a.de jetzt."

A text is read as lines and cells (what stands between tabs). A cell without letters outside its spans is copied. Spans
at an end of a sentence that are no part of it (emoji, tags, a URL after a full stop) are copied too, beside its
translation; the others are masked by `{0}`, `{1}` … in their order. `{0}` in a text is itself a placeholder, hence a
span, so a masked sentence has no other `{0}`.

A translation is accepted if it has every mask once, and no closing tag before its opening one. Of a beam search that is
the best such hypothesis; if there is none, the sentence is translated with masks of another form, `<0>`; if that fails
too, the text between the spans is translated piece by piece and the spans stay where they are. So every span is in the
result, whatever the model does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from heedful.config import DecodingConfig
from heedful.decoding.engines import Job, Outcome
from heedful.decoding.text_splitting import LINES, VISIBLE, Segment, SplitRule, split_line
from heedful.decoding.tokenizer_cache import Spelling
from heedful.search_types import Hypothesis
from heedful.text.protected_spans import find_spans, has_prose, split_blocks

Search = Callable[[Sequence[Job], DecodingConfig], dict[Job, Outcome]]
MakeJob = Callable[[int, Segment, str | None], Job | None]
"""(number of the text from 0, segment, what its translation begins with) -> the job that translates it.

None: the model cannot take the segment."""

COPIED_JOB = Job((), (), "", 0)
COPIED = Outcome([Hypothesis([], [], 0.0, 0.0)], None)
"""What stands for the translation of a segment that is copied: no tokens, no cost."""

_CELL_ENDS = re.compile(r"([\t\v\f\x1c-\x1f\x85\u2028\u2029]+)")
_BESIDE = {"emoji", "tag", "time code"}
"""Kinds of spans that are no part of a sentence when they stand at its start or end."""
_FIRST = re.compile(r"\{(\d+)\}((?:\s*[:：])?)(\s*)")
_LAST = re.compile(r"(\s*)\{(\d+)\}$")
_ENDS_SENTENCE = re.compile(r"[.!?:。！？：…][\"'”’)）」]*\s*$")
_TAG = re.compile(r"<(/?)([A-Za-z_][\w:.-]*)")
_WORD = re.compile(r"\w")
_LATIN_WORD = re.compile(r"[A-Za-z0-9_\u00c0-\u024f]")


class Form(NamedTuple):
    """How masks are written, and how they are read in a translation, where a wide bracket or a space is let pass."""

    written: str
    read: re.Pattern[str]


FORMS = (
    Form("{%d}", re.compile(r"[{｛]\s?(\d{1,4})\s?[}｝]")),
    Form("<%d>", re.compile(r"[<＜〈]\s?(\d{1,4})\s?[>＞〉]")),
)


@dataclass(frozen=True)
class Cell:
    """What stands between two tabs or line ends: text to translate with its spans masked, or text to copy."""

    before: str
    text: str
    spans: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    copied: bool = False


def cells_of(text: str) -> list[Cell]:
    """The cells of a text in order, with all white space, that after the last as an empty cell of its own."""
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
    """The segments of a text. `keep_start`: spans at the start of the first sentence are masked: a prefix is there."""
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


def restored(segment: Segment, translation: str) -> str:
    """The translation of a segment with its spans in the place of their masks; of one that is copied, itself."""
    if segment.copied:
        return segment.text
    if not segment.spans:
        return translation
    pattern = FORMS[segment.form].read
    around = {
        int(m.group(1)): (segment.text[: m.start()], segment.text[m.end() :]) for m in pattern.finditer(segment.text)
    }
    text, end = "", 0
    for match in pattern.finditer(translation):
        number = int(match.group(1))
        span, (before, after) = segment.spans[number], around[number]
        text += translation[end : match.start()]
        if _clings(text[-1:], span) and not _WORD.match(before[-1:]):
            text += " "
        following = translation[match.end() : match.end() + 1]
        is_apart = _LATIN_WORD.match(span[-1:]) and _WORD.match(following) and not _WORD.match(after[:1])
        text += span + (" " if is_apart else "")
        end = match.end()
    return text + translation[end:]


def left_untranslated(segment: Segment) -> Segment:
    """A segment that the model cannot take, as one that is copied."""
    return replace(segment, text=restored(segment, segment.text), spans=(), form=0, copied=True, too_long=True)


def keeps_spans(segment: Segment, translation: str) -> bool:
    """Whether a translation has each mask of its segment once, words beside them, and its tags in a possible order."""
    pattern = FORMS[segment.form].read
    numbers = [int(match.group(1)) for match in pattern.finditer(translation)]
    if sorted(numbers) != list(range(len(segment.spans))) or not has_prose(pattern.sub("", translation)):
        return False
    return all(numbers.index(opening) < numbers.index(closing) for opening, closing in _pairs(segment.spans))


def masked_prefix(prefix: str | None, segment: Segment) -> str | None:
    """What a translation must begin with, with the spans of its segment masked."""
    for number, span in enumerate(segment.spans):
        prefix = prefix and prefix.replace(span, FORMS[segment.form].written % number, 1)
    return prefix


def keep_spans(
    segments: list[list[Segment]],
    jobs: list[list[Job]],
    prefixes: Sequence[str | None],
    *,
    config: DecodingConfig,
    align: bool,
    spelling: Spelling,
    search: Search,
    make_job: MakeJob,
) -> dict[Job, Outcome]:
    """Translate all masked segments so that no span is lost, and replace those that can only be done in pieces.

    The lists of each text are changed: masks get another form, a segment may become several.
    """
    outcomes: dict[Job, Outcome] = {}
    for form in range(len(FORMS)):
        asked: dict[Job, Segment] = {}
        for line, index in _masked(segments):
            if jobs[line][index] in outcomes:
                continue
            if form:
                part = remasked(segments[line][index], form)
                job = make_job(line, part, prefixes[line] if _is_first(segments[line], index) else None)
                if job is None:  # these masks have more tokens
                    continue
                segments[line][index], jobs[line][index] = part, job
            asked[jobs[line][index]] = segments[line][index]
        found = search(list(asked), replace(config, num_best=config.beam_size) if config.method == "beam" else config)
        outcomes.update(
            (job, kept) for job, part in asked.items() if (kept := _kept(part, found[job], spelling, config))
        )
    for line, index in reversed(list(_masked(segments))):
        if jobs[line][index] not in outcomes:
            first = prefixes[line] if _is_first(segments[line], index) else None
            made = [with_job(line, piece, start, make_job) for piece, start in pieces_of(segments[line][index], first)]
            segments[line][index : index + 1] = [piece for piece, _ in made]
            jobs[line][index : index + 1] = [job for _, job in made]
    if align:
        outcomes.update(
            _aligned({job: found for job, found in outcomes.items() if found.attention is None}, search, config)
        )
    late = [job for line in jobs for job in line if job not in outcomes and job is not COPIED_JOB]
    return {**outcomes, **search(list(dict.fromkeys(late)), config)}


def with_job(line: int, segment: Segment, prefix: str | None, make_job: MakeJob) -> tuple[Segment, Job]:
    """A segment with its job; one that the model cannot take as a segment that is copied."""
    if segment.copied:
        return segment, COPIED_JOB
    job = make_job(line, segment, prefix)
    return (left_untranslated(segment), COPIED_JOB) if job is None else (segment, job)


def remasked(segment: Segment, form: int) -> Segment:
    """A masked segment with masks of another form."""
    written = FORMS[form].written
    text = FORMS[segment.form].read.sub(lambda match: written % int(match.group(1)), segment.text)
    return replace(segment, text=text, form=form)


def pieces_of(segment: Segment, prefix: str | None) -> list[tuple[Segment, str | None]]:
    """A masked segment as its spans, copied, and the text between them, each with what its translation begins with.

    A prefix with spans is divided at them; one that has them in another order is copied before the rest.
    """
    read = FORMS[segment.form].read
    parts = read.split(segment.text)  # text, number, text, number … text
    starts = read.split(masked_prefix(prefix, segment) or "")
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
        masked += between + FORMS[0].written % number
        outside += between
        end = span.end
    if not has_prose(outside + text[end:]):
        return Cell(before, text, copied=True)
    originals = tuple(text[span.start : span.end] for span in spans)
    return Cell(before, masked + text[end:], originals, tuple(span.kind for span in spans))


def _segments_of(before: str, text: str, cell: Cell, *, keep_start: bool) -> list[Segment]:
    """A sentence of a cell: the spans beside it, copied, and what is between them, its masks counted from 0."""
    if not cell.spans:
        return [Segment(before, text)]
    head: list[Segment] = []
    tail: list[Segment] = []
    while not keep_start and (match := _FIRST.match(text)) and (match[2] or cell.kinds[int(match[1])] in _BESIDE):
        head.append(Segment(before, cell.spans[int(match[1])] + match[2], copied=True))
        before, text = match[3], text[match.end() :]
    while (match := _LAST.search(text)) and _is_beside(text[: match.start()], cell.kinds[int(match[2])]):
        tail.insert(0, Segment(match[1], cell.spans[int(match[2])], copied=True))
        text = text[: match.start()]
    if not text:
        return head + tail
    read = FORMS[0].read
    numbers = [int(match[1]) for match in read.finditer(text)]
    spans = tuple(cell.spans[number] for number in numbers)
    if not has_prose(read.sub("", text)):
        text = read.sub(lambda match: cell.spans[int(match[1])], text)
        return [*head, Segment(before, text, copied=True), *tail]
    text = read.sub(lambda match: FORMS[0].written % (int(match[1]) - numbers[0]), text)
    return [*head, Segment(before, text, spans=spans), *tail]


def _is_beside(text: str, kind: str) -> bool:
    """Whether a span after this text is no part of its sentence."""
    if kind in _BESIDE:
        return True
    return bool(_ENDS_SENTENCE.search(text)) and kind != "placeholder"


def _kept(segment: Segment, outcome: Outcome, spelling: Spelling, config: DecodingConfig) -> Outcome | None:
    """The hypotheses that keep all spans, as many as are wanted; None if there is none."""
    kept = [found for found in outcome.hypotheses if keeps_spans(segment, spelling.text(found.tokens[:-1]))]
    if not kept:
        return None
    return Outcome(kept[: config.num_best], outcome.attention if kept[0] is outcome.hypotheses[0] else None)


def _aligned(outcomes: dict[Job, Outcome], search: Search, config: DecodingConfig) -> dict[Job, Outcome]:
    """The outcomes with the attention of their first hypothesis, which was not the best: it is forced once more."""
    forced = {}
    for job, outcome in outcomes.items():
        tokens = outcome.hypotheses[0].tokens[:-1]
        forced[job] = job._replace(prefix=tuple(tokens), max_length=len(tokens))
    found = search(list(dict.fromkeys(forced.values())), replace(config, num_best=1))
    return {job: outcome._replace(attention=found[forced[job]].attention) for job, outcome in outcomes.items()}


def _masked(segments: Sequence[Sequence[Segment]]) -> Iterator[tuple[int, int]]:
    return ((line, index) for line, parts in enumerate(segments) for index, part in enumerate(parts) if part.spans)


def _pairs(spans: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The numbers of tags that open and close the same element."""
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


def _is_first(parts: Sequence[Segment], index: int) -> bool:
    return all(part.copied for part in parts[:index])


def _clings(before: str, span: str) -> bool:
    """Whether a span would run into the character before it, and be something else."""
    if span[:1] in "#@":
        return bool(_WORD.match(before))
    return bool(_LATIN_WORD.match(before) and _LATIN_WORD.match(span))
