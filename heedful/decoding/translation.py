"""`Translation`, the result of translating one text, and `Alternative`, one entry of its n-best list."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from heedful.search_types import AttentionWeights

BREAKS_IN_JSON = {"\u2028": "\\u2028", "\u2029": "\\u2029", "\u0085": "\\u0085"}
"""Characters that some readers take for the end of a line; JSON has another spelling for them."""


NUMBERS_DIFFER, REPETITION, UNTRANSLATED = "numbers_differ", "repetition", "untranslated"
TOO_LONG = "too_long"
WARNINGS = {
    NUMBERS_DIFFER: "the translation has other numbers than the text",
    REPETITION: "the translation repeats itself",
    UNTRANSLATED: "the translation was empty, so that the text was copied",
    TOO_LONG: "the model cannot take text of this length, so that it was copied; decoding.split=long divides it",
}
"""What the codes among a translation's warnings mean."""


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
    """Its subwords, without the end token, as the model wrote them: spans that must not change are masks here."""
    log_prob: float
    """Log-probability of the tokens, end tokens included; over all sentences of a text that was split."""
    score: float
    """`log_prob` after the length penalty; a sum over the sentences of a text that was split."""
    n_best: list[Alternative]
    """The best translations, best first; the first of them is this translation."""
    source_tokens: list[str]
    """Subwords of the source, without tag and end token."""
    finished: bool = True
    """False when some sentence ran into the maximum length and was ended there."""
    sentences: int = 1
    """In how many pieces the text was translated; 0 where nothing was: it is empty, or was copied."""
    alignment: list[tuple[int, int]] | None = None
    """When asked for: pairs (index in source_tokens, index in tokens), one a target token."""
    word_alignment: list[tuple[tuple[int, int], tuple[int, int]]] | None = None
    """When asked for: pairs of words that belong together, each the span of its characters in source and text."""
    attention: AttentionWeights | None = field(default=None, compare=False)
    """When asked for: the weights behind the alignment, one row per target token, one column per source token.

    None for a text of more than 20,000 characters, whose weights would fill the memory."""
    source_language: str | None = field(default=None, compare=False)
    """Language of the source, as it was told or detected, or as the model has only one; None: not known."""
    target_language: str | None = field(default=None, compare=False)
    """Language of the translation; None: not known."""
    language_confidence: float | None = field(default=None, compare=False)
    """How sure the source language is, from 0 to 1; only if it was detected."""
    remark: str | None = field(default=None, compare=False)
    """What is odd about the languages: the text looks as if it were in the target language already, or in another."""
    warnings: list[str] = field(default_factory=list, compare=False)
    """What a check of the translation found and a second search could not mend: keys of `WARNINGS`."""

    def __str__(self) -> str:
        """The text, so that a translation can be printed."""
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; what was not asked for is left out."""
        plain = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        if self.alignment is not None:
            plain["alignment"] = [list(pair) for pair in self.alignment]
        if self.word_alignment is not None:
            plain["word_alignment"] = [[list(source), list(target)] for source, target in self.word_alignment]
        if self.attention is not None:
            plain["attention"] = self.attention.tolist()
        return plain

    def to_json(self, source: str) -> str:
        """Everything about the translation of `source` on one line; the alignment also in Pharaoh's notation."""
        plain: dict[str, Any] = {"source": source, **self.to_dict()}
        plain.pop("attention", None)
        if self.alignment is not None:
            plain["pharaoh"] = " ".join(f"{source}-{target}" for source, target in self.alignment)
        line = json.dumps(plain, ensure_ascii=False)
        for character, spelled in BREAKS_IN_JSON.items():
            line = line.replace(character, spelled)
        return line


def empty_translation(*, align: bool = False) -> Translation:
    """The translation of nothing: certain and empty."""
    return Translation(
        text="",
        tokens=[],
        log_prob=0.0,
        score=0.0,
        n_best=[Alternative(text="", tokens=[], log_prob=0.0, score=0.0)],
        source_tokens=[],
        sentences=0,
        alignment=[] if align else None,
        word_alignment=[] if align else None,
        attention=AttentionWeights([], 0) if align else None,
    )
