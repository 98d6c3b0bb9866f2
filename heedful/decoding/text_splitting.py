"""Splitting a text into segments to translate one by one, and joining their translations.

No character is lost. Lines stay separate; long lines are split into sentences; sentences that are still too long are
cut, at the end of a clause or word if possible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from heedful.text.sentence_splitter import split_long, split_sentences

CHARACTERS_PER_TOKEN = 64
"""Assumed maximum number of characters per token."""
ALWAYS_TOKENIZED = 20_000
"""Texts up to this many characters are always tokenized, which takes about 50 bytes of memory per character."""

LINES = re.compile(r"[^\r\n]+|[\r\n]+")
# Scripts without spaces between sentences: Han, kana, bopomofo, Yi, and full-width forms.
_UNSPACED = re.compile(r"[\u2e80-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00016fe0-\U0003ffff]")

# Visible characters: no white space, no joiners, separators or direction marks.
VISIBLE = re.compile(r"[^\s\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe00-\ufe0f\ufeff]")

_QUOTES = "\"'“”‘’«»‹›„‚"


@dataclass(frozen=True)
class Segment:
    """A piece of text to translate, and the white space before it."""

    before: str
    text: str
    spans: tuple[str, ...] = ()
    """The spans that the masks in `text` replace; see `heedful.decoding.span_masking`."""
    mask_format: int = 0
    """Index of the notation of the masks in `span_masking.MASK_FORMATS`."""
    copied: bool = False
    """Copied to the translation unchanged."""
    too_long: bool = False
    """Copied because it exceeds the model's maximum length."""


@dataclass(frozen=True)
class SplitRule:
    """When to split. Lengths are in tokens, including tag and end token."""

    split: Literal["long", "always", "never"]
    typical_length: int
    """Longer lines are split into sentences."""
    max_length: int
    """Longer sentences are cut."""
    num_tokens: Callable[[str], int]
    """Returns the number of tokens of a text."""

    def fits(self, text: str, limit: int) -> bool:
        """Whether a text, without surrounding white space, has at most `limit` tokens."""
        text = text.strip()
        return not certainly_longer(text, limit) and self.num_tokens(text) <= limit


def certainly_longer(text: str, limit: int) -> bool:
    """Whether a text has so many characters that it must have more than `limit` tokens; does not tokenize."""
    return len(text) > max(CHARACTERS_PER_TOKEN * limit, ALWAYS_TOKENIZED)


def is_visible(text: str) -> bool:
    """Whether a text has a visible character."""
    return VISIBLE.search(text) is not None


def split_text(text: str, rule: SplitRule) -> list[Segment]:
    """The segments of a text, in order; none if it is empty. White space is kept, except at both ends."""
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


def visible_lines(text: str) -> list[str]:
    """The lines of a text that are not blank, stripped."""
    return [line for part in LINES.findall(text) if (line := part.strip())]


def split_line(line: str, rule: SplitRule) -> list[str]:
    """Split a line into pieces that concatenate to it exactly."""
    if rule.split == "never" or not line.strip():
        return [line]
    if rule.split == "long" and rule.fits(line, rule.typical_length):
        return [line]

    def fits(text: str) -> bool:
        return rule.fits(text, rule.max_length)

    return [
        piece
        for sentence in split_sentences(line)
        for piece in ([sentence] if fits(sentence) else split_long(sentence, fits))
    ]


def join_text(segments: Sequence[Segment], translations: Sequence[str]) -> str:
    """Join translations with the white space of the source.

    If only one of the languages puts a space between sentences, the target language decides: "好。行。" becomes
    "Good. Fine.", and vice versa.
    """
    text = ""
    for index, translation in enumerate(translations):
        if index > 0:
            text += space_between(segments[index - 1], segments[index], text, translation)
        else:
            text += segments[index].before
        text += translation
    return text


def space_between(left: Segment, segment: Segment, target_left: str, target_right: str) -> str:
    """The white space between the translations of two neighbouring segments."""
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
    """Whether the source's white space between two segments is kept: next to tags, and at the end of a text."""
    return not right.text or (left.copied and left.text.endswith(">")) or (right.copied and right.text.startswith("</"))


def _meets_unspaced(left: str, right: str) -> bool:
    """Whether a script without spaces is on one side, ignoring quotation marks that all scripts share."""
    last, first = left.rstrip(_QUOTES)[-1:], right.lstrip(_QUOTES)[:1]
    return bool(_UNSPACED.match(last) or _UNSPACED.match(first))
