"""Word alignment: which words of a translation correspond to which source words, as character spans in both texts.

The alignment of a `Translation` links subwords. Here subwords are located in the text and merged into words: in scripts
with spaces, everything up to a space or punctuation mark; in others (Chinese, Japanese, Thai), each subword.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from heedful.decoding.translation import Translation

Span = tuple[int, int]
"""Start and end index of characters; the end is exclusive."""

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_UNKNOWN = "\ufdd0"  # stands for <unk>; a noncharacter, so no text contains it
_SPACE_MARK = "\u2581"
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ua4cf\uf900-\ufaff\U00016fe0-\U0003ffff]")
_JOINERS = "'’-\u2010\u2011\u00ad\u200c\u200d"


def with_word_alignment(translation: Translation, source: str) -> Translation:
    """Add the word alignment to a translation that has a subword alignment."""
    if translation.alignment is None:
        return translation
    sides = source, translation.source_tokens, translation.text, translation.tokens
    return replace(translation, word_alignment=align_words(*sides, translation.alignment))


def align_words(
    source: str,
    source_tokens: Sequence[str],
    target: str,
    tokens: Sequence[str],
    alignment: Sequence[tuple[int, int]],
) -> list[tuple[Span, Span]]:
    """Pairs of words with linked subwords, ordered by target position, then source position.

    `alignment`: pairs (index in `source_tokens`, index in `tokens`).
    """
    source_words, target_words = words_of(source, source_tokens), words_of(target, tokens)
    links = {(word, other) for i, j in alignment for word in target_words[j] for other in source_words[i]}
    return [(other, word) for word, other in sorted(links)]


def words_of(text: str, tokens: Sequence[str]) -> list[list[Span]]:
    """For each subword, the words that it is part of: usually one, none if it is only a space."""
    places = locate(text, tokens)
    words = list(split_words(text, places))
    starts: dict[int, Span] = {character: word for word in words for character in range(*word)}
    return [list(dict.fromkeys(starts[c] for c in range(*place) if c in starts)) for place in places]


def split_words(text: str, places: Sequence[Span]) -> Iterator[Span]:
    """The words and punctuation marks of a text; in scripts without spaces, the subwords at these spans."""
    owners = dict.fromkeys(range(len(text)), -1)
    for number, place in enumerate(places):
        owners.update((character, number) for character in range(*place) if owners[character] < 0)
    kinds = [_kind(character) for character in text]
    start = 0
    while start < len(text):
        kind, end = kinds[start], start + 1
        if kind == "word":
            while end < len(text) and (
                kinds[end] == "word" or (text[end] in _JOINERS and kinds[end + 1 : end + 2] == ["word"])
            ):
                end += 1
        else:
            while end < len(text) and kinds[end] == kind and owners[end] == owners[start]:
                end += 1
        if kind:
            yield start, end
        start = end


def locate(text: str, tokens: Sequence[str]) -> list[Span]:
    """The span of each subword in a text, without spaces; byte tokens of one character share its span.

    Subwords that differ from the text (an unknown token, a restored span) get the whole range that differs.
    """
    spelled, owners = _spell(tokens)
    visible = [place for place, character in enumerate(text) if _kind(character)]
    shown = "".join(text[place] for place in visible)
    blocks = (
        [("equal", 0, len(shown), 0, len(shown))]
        if spelled == shown
        else SequenceMatcher(None, spelled, shown, autojunk=False).get_opcodes()
    )
    found: list[list[int]] = [[] for _ in tokens]
    for kind, first, last, start, end in blocks:
        for offset in range(last - first):
            places = visible[start + offset : start + offset + 1] if kind == "equal" else visible[start:end]
            for token in owners[first + offset]:
                found[token] += places
    spans, end = [], 0
    for places in found:
        spans.append((min(places), max(places) + 1) if places else (end, end))
        end = max(end, spans[-1][1])
    return spans


def _spell(tokens: Sequence[str]) -> tuple[str, list[list[int]]]:
    """The visible characters of subwords, and the subwords that each character belongs to."""
    spelled: list[str] = []
    owners: list[list[int]] = []
    pending: list[tuple[int, int]] = []  # (subword, value) of bytes of an incomplete character

    def spell_bytes() -> None:
        while pending:
            for length in range(min(4, len(pending)), 0, -1):
                raw = bytes(value for _, value in pending[:length])
                character = raw.decode(errors="replace")
                if len(character) == 1 and (length == 1 or character != "\ufffd" or raw == b"\xef\xbf\xbd"):
                    break
            if _kind(character):
                spelled.append(character)
                owners.append([token for token, _ in pending[:length]])
            del pending[:length]

    for token, piece in enumerate(tokens):
        if byte := _BYTE.fullmatch(piece):
            pending.append((token, int(byte[1], 16)))
            continue
        spell_bytes()
        for character in _UNKNOWN if piece == "<unk>" else piece.replace(_SPACE_MARK, " "):
            if _kind(character):
                spelled.append(character)
                owners.append([token])
    spell_bytes()
    return "".join(spelled), owners


def _kind(character: str) -> str:
    """ "word", "unspaced" or "mark"; empty for spaces and invisible characters."""
    category = unicodedata.category(character)
    if character.isspace() or category in ("Cc", "Cf") or "\ufe00" <= character <= "\ufe0f":
        return ""
    if category[0] not in "LMN":
        return "mark"
    return "unspaced" if _UNSPACED.match(character) else "word"
