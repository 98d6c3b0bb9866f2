"""Language routing: the source and target language of each text, for models that translate into several languages.

The target is the language that the caller requests, or else the only one that the model offers for the source language,
which is given or detected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from heedful.config import DataConfig
from heedful.errors import DecodingError
from heedful.text.corpus import Direction, direction
from heedful.text.language_id import (
    SCRIPTS_BY_LANGUAGE,
    can_detect,
    detect_language,
    is_clear,
    other_detectable_languages,
    primary_subtag,
    script_of,
)
from heedful.text.language_names import language_code, target_code

PREFERRED_TARGET = "en"
"""The default target if a text could be translated into several languages, this one among them."""
MIN_WORDS_ALONE = 2
"""Words from which the detected language of a single text is clear."""
MIN_WORDS_IN_CONTEXT = 5
"""Words from which the detected language of a text overrides that of the surrounding lines."""
MAX_BYTES_OF_EVIDENCE = 100
"""Longer lines do not count more."""
INITIAL_DIRECTIONS_KEY = "started_from_directions"
"""The entry of `details["training"]` with the directions of the model that training started from."""


class Choice(NamedTuple):
    """The languages that a text is translated from and into; None where unknown."""

    source: str | None = None
    target: str | None = None
    confidence: float | None = None
    """From 0 to 1; None unless the source was detected."""
    remark: str | None = None
    """A warning about this choice."""


@dataclass(frozen=True)
class Directions:
    """The translation directions of a model and its target-language tags."""

    trained: tuple[Direction, ...] = ()
    tags: tuple[str, ...] = ()
    initial: tuple[Direction, ...] = ()
    """The directions of the model that training started from: still known, though not trained further."""

    @classmethod
    def of(cls, data: DataConfig, tags: Sequence[str], details: Mapping[str, Any]) -> Directions:
        """The directions of a model that was trained on `data`; `details` are from its model directory."""
        return cls(trained_directions(data, details), tuple(tags), initial_directions(details))

    @classmethod
    def joined(cls, several: Sequence[Directions]) -> Directions:
        """The directions and tags of several models together."""
        if len(several) == 1:
            return several[0]
        tags = dict.fromkeys(tag for one in reversed(several) for tag in one.tags)
        return cls(tuple(dict.fromkeys(pair for one in reversed(several) for pair in one.known)), tuple(tags))

    @cached_property
    def known(self) -> tuple[Direction, ...]:
        """The trained and the initial directions."""
        return tuple(dict.fromkeys((*self.trained, *self.initial)))

    @cached_property
    def are_natural_languages(self) -> bool:
        """Whether every direction is from one known natural language into another, judging by the codes."""
        codes = [(primary_subtag(pair.source or ""), primary_subtag(pair.target or "")) for pair in self.known]
        return all(source != target and {source, target} <= SCRIPTS_BY_LANGUAGE.keys() for source, target in codes)

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """Every language that a text may be in."""
        return tuple(dict.fromkeys(code for code in (*(pair.source for pair in self.known), *self.tags) if code))

    @cached_property
    def target_codes(self) -> tuple[str, ...]:
        """Every language that can be requested."""
        return self.tags or tuple(dict.fromkeys(pair.target for pair in self.known if pair.target))

    def source_code(self, given: str | None) -> str | None:
        """The model's code for a source language given by any code or name."""
        return None if given is None else language_code(given, self.languages)

    def target_code(self, given: str | Mapping[str, str] | None) -> str | Mapping[str, str] | None:
        """The model's code for a target language given by any code or name, or for one target for each source."""
        known = self.target_codes
        if isinstance(given, Mapping):
            return {language_code(source, self.languages): target_code(code, known) for source, code in given.items()}
        return None if given is None else target_code(given, known)

    def targets_for(self, source: str | None) -> tuple[str, ...]:
        """The targets for a source language: the trained ones, else the initial ones, else all other tags."""
        for pairs in (self.trained, self.initial):
            targets = [pair.target for pair in pairs if source is not None and pair.source == source]
            if tagged := tuple(dict.fromkeys(target for target in targets if target in self.tags)):
                return tagged
        return tuple(tag for tag in self.tags if tag != source)

    def is_ambiguous(self, source: str | None) -> bool:
        """Whether the target for this source language must be given."""
        return self.default_target(source) is None

    def require_target(self, target: str | None, what: str) -> None:
        """Raise `DecodingError` if a model with several targets is given none; `what` is what to name."""
        if target is None and len(self.tags) > 1:
            raise DecodingError(f"this model translates into {', '.join(self.tags)}; name {what} (--to).")

    def choose(
        self,
        text: str,
        *,
        source: str | None = None,
        target: str | Mapping[str, str] | None = None,
        likely_language: str | None = None,
    ) -> Choice:
        """The languages of one text. `target`: the requested language, or one for each source language.

        `likely_language`: the language of the surrounding lines, assumed for a text that does not clearly show another.
        Raises `DecodingError` if the target is ambiguous; the message continues a sentence such as "text 3 …".
        """
        if len(self.tags) < 2:
            return self._choose_only_target(source, target)
        if source is not None and source not in self.languages:
            raise DecodingError(f"has the source language {source!r}, but this model {self._known_languages()}.")
        detected, confidence, foreign = self.detect(text) if source is None else (source, None, None)
        context_target = None if likely_language is None else self.default_target(likely_language)
        doubtful = None
        is_contradicted = detected != likely_language and (context_target is not None or target is not None)
        if is_contradicted and self._follows_context(text, confidence, likely_language, source):
            doubtful, detected, confidence, foreign = detected or foreign, likely_language, None, None
        wanted = target.get(detected or "") if isinstance(target, Mapping) else target
        if wanted is not None:
            self._require_tag(wanted)
            is_sure = source is not None or is_clear(text, confidence, MIN_WORDS_ALONE)
            return Choice(detected, wanted, confidence, self._remark(detected, wanted, foreign) if is_sure else None)
        if foreign is not None and context_target is None:
            raise DecodingError(
                f"looks like {foreign}, but this model {self._known_languages()}; name its language (--from, "
                f"source_language) or the one to translate into (--to, target_language)."
            )
        default = self.default_target(detected, text) if foreign is None else None
        default = context_target if context_target and detected is None and foreign is None else default
        if default is not None:
            remark = self._remark_on_context(doubtful, default, likely_language)
            return Choice(detected, default, confidence, remark)
        if context_target is not None:
            return Choice(detected, context_target, confidence, self._remark(detected, context_target, foreign))
        targets = ", ".join(self.targets_for(detected))
        problem = f"is in {detected!r} and can be translated" if detected else "can be translated"
        correction = ", or correct its language (--from, source_language)" if source is None and detected else ""
        raise DecodingError(
            f"{problem} into {targets}; no target language was given. Name one of them (--to, target_language)"
            f"{correction}."
        )

    def _follows_context(
        self, text: str, confidence: float | None, likely_language: str | None, source: str | None
    ) -> bool:
        """Whether a text is assumed to be in the language of the surrounding lines."""
        if likely_language is None or source is not None or is_wordless(text, self.languages):
            return False
        return not is_clear(text, confidence, MIN_WORDS_IN_CONTEXT)

    def default_target(self, source: str | None, text: str | None = None) -> str | None:
        """The target for a source language if none is given; None if ambiguous. Text without words has any target."""
        targets = self.targets_for(source)
        is_any = source is None and text is not None and is_wordless(text, self.languages)
        return preferred_target(targets) or (targets[0] if len(targets) == 1 or (targets and is_any) else None)

    def _remark_on_context(self, detected: str | None, target: str, likely_language: str | None) -> str | None:
        """The remark on a text that looks like another language than the assumed one."""
        is_known = detected in self.languages
        if detected in (None, likely_language) or (is_known and self.default_target(detected) == target):
            return None
        return f"may be in {detected!r}, but this is uncertain; it is taken as {likely_language!r} like the rest"

    def is_doubtful(self, text: str) -> bool:
        """Whether the language of a text is so unclear that the surrounding lines should decide."""
        return not is_clear(text, self.detect(text)[1], MIN_WORDS_IN_CONTEXT)

    def needs_context(self, source: str | None, target: str | Mapping[str, str] | None) -> bool:
        """Whether the surrounding lines matter: neither language is given, and languages can be detected."""
        return len(self.tags) > 1 and source is None and not isinstance(target, str) and can_detect(self.languages)

    def detect(self, text: str) -> tuple[str | None, float | None, str | None]:
        """The detected language if the model has it, the confidence, and else the foreign language it looks like."""
        if not can_detect(self.languages):
            return None, None, None
        language, confidence = detect_language(text, (*self.languages, *self._foreign_languages))
        if language is None and script_of(text)[0]:
            return None, None, detect_language(text)[0] or "another language"
        if language is None or language in self._foreign_languages:
            return None, None, language
        return language, confidence, None

    @cached_property
    def _foreign_languages(self) -> tuple[str, ...]:
        """Languages that can be distinguished from the model's own."""
        return () if not can_detect(self.languages) else other_detectable_languages(self.languages)

    def _choose_only_target(self, source: str | None, target: str | Mapping[str, str] | None) -> Choice:
        """The choice of a model with one target; the languages given must agree with it."""
        sources = {pair.source for pair in self.known if pair.source}
        if source is not None and sources and source not in sources:
            raise DecodingError(
                f"has the source language {source!r}, but this model translates from {', '.join(sorted(sources))}."
            )
        only = self.tags[0] if self.tags else next((pair.target for pair in self.trained if pair.target), None)
        wanted = target.get(source or "") if isinstance(target, Mapping) else target
        if self.tags and wanted is not None:
            self._require_tag(wanted)
        return Choice(source or (sources.pop() if len(sources) == 1 else None), wanted or only)

    def _require_tag(self, target: str) -> None:
        if target not in self.tags:
            raise DecodingError(
                f"cannot be translated into {target!r}: this model translates into {', '.join(self.tags)}. Name one of "
                f"them."
            )

    def _remark(self, source: str | None, target: str, foreign: str | None) -> str | None:
        """What is unusual about the languages of a text."""
        if foreign is not None:
            return f"looks like {foreign}, which this model was not trained on"
        if source == target:
            return f"seems to be in {target!r} already"
        targets = [pair.target for pair in self.known if pair.source == source]
        if source is None or not any(targets) or target in targets:
            return None
        pivot = next((code for code in targets if Direction(code, target) in self.known), None)
        detour = f" (but {source} → {pivot} → {target})" if pivot else ""
        return f"is in {source!r}, and this model was not trained on {source} → {target}{detour}"

    def _known_languages(self) -> str:
        return f"knows {', '.join(self.languages)}"


class LanguageEvidence:
    """The language of most of a text's lines, assumed for lines that do not show their own."""

    def __init__(self, directions: Directions) -> None:
        self.directions = directions
        self._weights: Counter[str] = Counter()

    def read(self, lines: Iterable[str]) -> None:
        """Count lines, weighted by length and confidence."""
        for line in lines:
            detected, confidence, foreign = self.directions.detect(line)
            if language := detected or foreign:
                size = len(line[:MAX_BYTES_OF_EVIDENCE].encode("utf-8", errors="replace"))
                self._weights[language] += round(min(size, MAX_BYTES_OF_EVIDENCE) * (confidence or 1.0))

    @property
    def language(self) -> str | None:
        """The language of the largest weight; None without lines, or if the model does not have it."""
        best = max(self._weights, key=lambda language: (self._weights[language], language), default=None)
        return best if best in self.directions.languages else None


def trained_directions(data: DataConfig, details: Mapping[str, Any]) -> tuple[Direction, ...]:
    """The directions of the training corpora; of a prepared corpus, those in the report in `details`."""
    corpora: list[tuple[Direction, bool]] = [(direction(corpus, data), corpus.both_directions) for corpus in data.train]
    if not corpora:
        for corpus in (details.get("data") or {}).get("corpora", ()):
            if corpus.get("role") == "train":
                source, target = corpus.get("source_language"), corpus.get("target_language")
                pair = Direction(source or data.source_language, target or data.target_language)
                corpora.append((pair, bool(corpus.get("both_directions"))))
    pairs = [Direction(*one) for pair, both in corpora for one in ((pair, pair[::-1]) if both else (pair,))]
    return tuple(dict.fromkeys(pairs)) or (Direction(data.source_language, data.target_language),)


def initial_directions(details: Mapping[str, Any]) -> tuple[Direction, ...]:
    """The directions of the model that training started from; empty for training from scratch."""
    return tuple(Direction(*pair) for pair in (details.get("training") or {}).get(INITIAL_DIRECTIONS_KEY, ()))


def format_initial_directions(trained: Sequence[Direction], details: Mapping[str, Any]) -> str:
    """The initial directions that were not trained further, such as " (before: de → en)"; empty if there are none."""
    others = [f"{pair.source} → {pair.target}" for pair in initial_directions(details) if pair not in trained]
    return f" (before: {', '.join(others)})" if others else ""


def preferred_target(targets: Sequence[str]) -> str | None:
    """English, with any region, if it is among the targets."""
    return next((code for code in targets if primary_subtag(code) == PREFERRED_TARGET), None)


def is_wordless(text: str, languages: Sequence[str]) -> bool:
    """Whether a text is empty, or has no letters although the languages are detected by letters."""
    return not text.strip() or (can_detect(tuple(languages)) and script_of(text)[0] is None)
