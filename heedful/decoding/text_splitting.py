"""A text as the segments that are translated one by one, and their translations as one text again.

No character is dropped on the way: lines are kept apart, lines that are too long are split into sentences, sentences
that are too long even so are cut, at the end of a clause or word where there is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from heedful.text.sentence_splitter import split_long, split_sentences

CHARACTERS_PER_TOKEN = 64
"""Tokens are assumed to stand for no more characters than this."""
ALWAYS_TOKENIZED = 20_000
"""Texts up to this length are always tokenized; that takes about 50 bytes of memory for each character."""

LINES = re.compile(r"[^\r\n]+|[\r\n]+")
# Scripts that put no space between sentences: Han, kana, bopomofo, Yi, and full-width forms.
_UNSPACED = re.compile(r"[\u2e80-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00016fe0-\U0003ffff]")

# What can be seen: no white space, and none of the marks that only join, part or order what stands around them.
VISIBLE = re.compile(r"[^\s\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe00-\ufe0f\ufeff]")

_QUOTES = "\"'“”‘’«»‹›„‚"


@dataclass(frozen=True)
class Segment:
    """A stretch of text to translate, and the white space that stood before it."""

    before: str
    text: str
    spans: tuple[str, ...] = ()
    """What the masks in `text` stand for; see `heedful.decoding.span_masking`."""
    form: int = 0
    """How the masks are written."""
    copied: bool = False
    """Not translated: it is in the translation as it is."""
    too_long: bool = False
    """Copied because the model cannot take it."""


@dataclass(frozen=True)
class SplitRule:
    """When to split. Lengths are in tokens as the model sees them."""

    split: Literal["long", "always", "never"]
    usual_length: int
    """Longer lines are split into sentences."""
    longest: int
    """Longer sentences are cut."""
    num_tokens: Callable[[str], int]
    """Counts the tokens of a text."""

    def fits(self, text: str, limit: int) -> bool:
        """Whether a text has at most `limit` tokens; white space around it does not count."""
        text = text.strip()
        return not surely_longer(text, limit) and self.num_tokens(text) <= limit


def surely_longer(text: str, limit: int) -> bool:
    """Whether a text has so many characters that it has more than `limit` tokens, without counting them."""
    return len(text) > max(CHARACTERS_PER_TOKEN * limit, ALWAYS_TOKENIZED)


def is_visible(text: str) -> bool:
    """Whether anything of a text can be seen."""
    return VISIBLE.search(text) is not None


def split_text(text: str, rule: SplitRule) -> list[Segment]:
    """The segments of a text, in order; none if it is empty. White space is kept, except at its two ends."""
    segments: list[Segment] = []
    gap = ""
    for chunk in (piece for line in LINES.findall(text) for piece in split_line(line, rule)):
        inside = chunk.strip()
        if not is_visible(inside):
            gap += chunk
            continue
        start = chunk.index(inside)
        segments.append(Segment(before=gap + chunk[:start] if segments else "", text=inside))
        gap = chunk[start + len(inside) :]
    return segments


def lines_of(text: str) -> list[str]:
    """The lines of a text that are not blank, without the white space around them."""
    return [line for part in LINES.findall(text) if (line := part.strip())]


def split_line(line: str, rule: SplitRule) -> list[str]:
    """A line in pieces that make it up exactly."""
    if rule.split == "never" or not line.strip():
        return [line]
    if rule.split == "long" and rule.fits(line, rule.usual_length):
        return [line]

    def fits(text: str) -> bool:
        return rule.fits(text, rule.longest)

    return [
        piece
        for sentence in split_sentences(line)
        for piece in ([sentence] if fits(sentence) else split_long(sentence, fits))
    ]


def join_text(segments: Sequence[Segment], translations: Sequence[str]) -> str:
    """The translations with the white space of the source between them.

    Where one language puts a space between sentences and the other does not, the target's habit decides: "好。行。"
    becomes "Good. Fine.", and the other way round.
    """
    text = ""
    for index, translation in enumerate(translations):
        if index > 0:
            text += between(segments[index - 1], segments[index], text, translation)
        else:
            text += segments[index].before
        text += translation
    return text


def between(left: Segment, segment: Segment, target_left: str, target_right: str) -> str:
    """What is between the translations of two neighbouring segments."""
    if _is_attached(left, segment):
        return segment.before
    source_unspaced = _meets_unspaced(left.text, segment.text)
    target_unspaced = _meets_unspaced(target_left, target_right)
    if source_unspaced and not target_unspaced and not segment.before:
        return " "
    if target_unspaced and not source_unspaced and segment.before == " ":
        return ""
    return segment.before


def _is_attached(left: Segment, right: Segment) -> bool:
    """Whether the white space between two segments is as the source has it: beside tags, and at the end of a text."""
    return not right.text or (left.copied and left.text.endswith(">")) or (right.copied and right.text.startswith("</"))


def _meets_unspaced(left: str, right: str) -> bool:
    """Whether a script without spaces stands on one side, be it behind quotation marks that all scripts share."""
    last, first = left.rstrip(_QUOTES)[-1:], right.lstrip(_QUOTES)[:1]
    return bool(_UNSPACED.match(last) or _UNSPACED.match(first))
