"""`Translation`, the result of translating one text, and `Alternative`, one entry of its n-best list."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from heedful.search_types import AttentionWeights

LINE_BREAK_ESCAPES = {"\u2028": "\\u2028", "\u2029": "\\u2029", "\u0085": "\\u0085"}
"""Characters that some readers treat as line ends, and their JSON escapes."""


NUMBERS_DIFFER, REPETITION, UNTRANSLATED = "numbers_differ", "repetition", "untranslated"
TOO_LONG = "too_long"
WARNINGS = {
    NUMBERS_DIFFER: "the translation has other numbers than the text",
    REPETITION: "the translation repeats itself",
    UNTRANSLATED: "the translation was empty, so the text was copied",
    TOO_LONG: "the text is too long for the model, so it was copied; decoding.split=long splits it",
}
"""Descriptions of the warning codes."""


@dataclass(frozen=True)
class Alternative:
    """One entry of an n-best list."""

    text: str
    tokens: list[str]
    log_prob: float
    score: float


@dataclass(frozen=True)
class Translation:
    """The translation of one text."""

    text: str
    """The best translation."""
    tokens: list[str]
    """Its subwords as generated, without the end token; protected spans appear as masks."""
    log_prob: float
    """Log-probability of the tokens including end tokens, summed over all sentences of the text."""
    score: float
    """`log_prob` after the length penalty, summed over all sentences of the text."""
    n_best: list[Alternative]
    """The `num_best` best translations, best first; the first is this translation."""
    source_tokens: list[str]
    """Subwords of the source, without tag and end token."""
    finished: bool = True
    """False if some sentence was cut off at the maximum length."""
    num_sentences: int = 1
    """Number of pieces in which the text was translated; 0 if it is empty or was copied."""
    alignment: list[tuple[int, int]] | None = None
    """With `align`: pairs (index in source_tokens, index in tokens), one for each target token."""
    word_alignment: list[tuple[tuple[int, int], tuple[int, int]]] | None = None
    """With `align`: pairs of aligned words, each as character spans in the source and in `text`."""
    attention: AttentionWeights | None = field(default=None, compare=False)
    """With `align`: the attention weights behind the alignment, a row per target token and a column per source token.

    None for texts of more than 20,000 characters, whose weights would need too much memory."""
    source_language: str | None = field(default=None, compare=False)
    """Language of the source: given, detected, or the only one of the model. None: unknown."""
    target_language: str | None = field(default=None, compare=False)
    """Language of the translation. None: unknown."""
    language_confidence: float | None = field(default=None, compare=False)
    """Confidence of the detected source language, from 0 to 1; None if it was not detected."""
    remark: str | None = field(default=None, compare=False)
    """A remark about the languages: the text seems to be in the target language already, or in another language."""
    warnings: list[str] = field(default_factory=list, compare=False)
    """Problems that a second search could not fix: keys of `WARNINGS`."""

    def __str__(self) -> str:
        """The text."""
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """The fields that are not None, as plain data for JSON."""
        plain = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        if self.alignment is not None:
            plain["alignment"] = [list(pair) for pair in self.alignment]
        if self.word_alignment is not None:
            plain["word_alignment"] = [[list(source), list(target)] for source, target in self.word_alignment]
        if self.attention is not None:
            plain["attention"] = self.attention.tolist()
        return plain

    def to_json(self, source: str) -> str:
        """The translation of `source` as JSON on one line, with the alignment also in Pharaoh notation."""
        plain: dict[str, Any] = {"source": source, **self.to_dict()}
        plain.pop("attention", None)
        if self.alignment is not None:
            plain["pharaoh"] = " ".join(f"{source}-{target}" for source, target in self.alignment)
        line = json.dumps(plain, ensure_ascii=False)
        for character, escape in LINE_BREAK_ESCAPES.items():
            line = line.replace(character, escape)
        return line


def empty_translation(*, align: bool = False) -> Translation:
    """The translation of an empty text."""
    return Translation(
        text="",
        tokens=[],
        log_prob=0.0,
        score=0.0,
        n_best=[Alternative(text="", tokens=[], log_prob=0.0, score=0.0)],
        source_tokens=[],
        num_sentences=0,
        alignment=[] if align else None,
        word_alignment=[] if align else None,
        attention=AttentionWeights([], 0) if align else None,
    )
