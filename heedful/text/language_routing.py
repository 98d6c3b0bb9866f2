"""Into which language a text goes, when a model knows several: asked for, or what its own language leaves."""

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
    SCRIPTS_OF,
    can_detect,
    detect_language,
    is_clear,
    plain_code,
    script_of,
    strangers_to,
)
from heedful.text.language_names import language_code, target_code

PREFERRED = "en"
"""The target of a text that could go into several languages, this one among them."""
WORDS_ALONE, WORDS_AMONG_OTHERS = 2, 5
"""Least words by which the language of a text is clear: where it stands alone, and against the lines around it."""
MOST_BYTES = 100  # of a line that count as evidence: no line outweighs many
BEFORE = "started_from_directions"
"""Where the details of a model's training tell what the model it went on from had learned."""


class Choice(NamedTuple):
    """The languages that a text is translated from and into; None where the model does not tell."""

    source: str | None = None
    target: str | None = None
    confidence: float | None = None
    """How sure the source is, if it was detected."""
    remark: str | None = None
    """What the user should know about this choice."""


@dataclass(frozen=True)
class Directions:
    """The directions that a model has learned, and its tags: the languages that it can be asked for."""

    learned: tuple[Direction, ...] = ()
    tags: tuple[str, ...] = ()
    before: tuple[Direction, ...] = ()
    """What the model had learned that this one went on from: known still, if no longer shown."""

    @classmethod
    def of(cls, data: DataConfig, tags: Sequence[str], details: Mapping[str, Any]) -> Directions:
        """Those of a model that was trained on this data, with what its directory tells of it."""
        return cls(learned_directions(data, details), tuple(tags), directions_before(details))

    @cached_property
    def known(self) -> tuple[Direction, ...]:
        """All that was learned, now and before."""
        return tuple(dict.fromkeys((*self.learned, *self.before)))

    @cached_property
    def are_languages(self) -> bool:
        """Whether all that was learned goes, by its codes, from a language that is known here into another."""
        codes = [(plain_code(pair.source or ""), plain_code(pair.target or "")) for pair in self.known]
        return all(source != target and {source, target} <= SCRIPTS_OF.keys() for source, target in codes)

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """Every language that a text may be in."""
        return tuple(dict.fromkeys(code for code in (*(pair.source for pair in self.known), *self.tags) if code))

    @cached_property
    def target_codes(self) -> tuple[str, ...]:
        """Every language that the model may be asked for."""
        return self.tags or tuple(dict.fromkeys(pair.target for pair in self.known if pair.target))

    def source_code(self, given: str | None) -> str | None:
        """The model's own code of a source language, which may be given by another code or by its name."""
        return None if given is None else language_code(given, self.languages)

    def target_code(self, given: str | Mapping[str, str] | None) -> str | Mapping[str, str] | None:
        """The same of a target language, or of one for each source language."""
        known = self.target_codes
        if isinstance(given, Mapping):
            return {language_code(source, self.languages): target_code(code, known) for source, code in given.items()}
        return None if given is None else target_code(given, known)

    def targets_of(self, source: str | None) -> tuple[str, ...]:
        """The languages that a text in this one may go into: learned, else learned before, else all other tags."""
        for pairs in (self.learned, self.before):
            learned = [pair.target for pair in pairs if source is not None and pair.source == source]
            if targets := tuple(dict.fromkeys(tag for tag in learned if tag in self.tags)):
                return targets
        return tuple(tag for tag in self.tags if tag != source)

    def is_open(self, source: str | None) -> bool:
        """Whether somebody must say into which language a text in this one goes."""
        return self.only_target(source) is None

    def require_target(self, target: str | None, what: str) -> None:
        """A `DecodingError` if a model with several targets is not told one; `what` it would be told."""
        if target is None and len(self.tags) > 1:
            raise DecodingError(f"this model translates into {', '.join(self.tags)}; name {what} (--to).")

    def choose(
        self,
        text: str,
        *,
        source: str | None = None,
        target: str | Mapping[str, str] | None = None,
        likely: str | None = None,
    ) -> Choice:
        """The languages of one text. `target`: the language asked for, or one for each source language.

        `likely`: the language of the lines around it, which a text is in that does not clearly show another.
        Raises `DecodingError` when nothing says into which language the text goes; what it says follows "text 3".
        """
        if len(self.tags) < 2:
            return self._only(source, target)
        if source is not None and source not in self.languages:
            raise DecodingError(f"is said to be in {source!r}, but this model {self._has()}.")
        found, confidence, foreign = self.detect(text) if source is None else (source, None, None)
        usual = None if likely is None else self.only_target(likely)
        doubtful = None
        is_decided = found != likely and (usual is not None or target is not None)
        if is_decided and self._follows(text, confidence, likely, source):
            doubtful, found, confidence, foreign = found or foreign, likely, None, None
        wanted = target.get(found or "") if isinstance(target, Mapping) else target
        if wanted is not None:
            self._check_tag(wanted)
            is_sure = source is not None or is_clear(text, confidence, WORDS_ALONE)
            return Choice(found, wanted, confidence, self._remark(found, wanted, foreign) if is_sure else None)
        if foreign is not None and usual is None:
            raise DecodingError(
                f"looks like {foreign}, and this model {self._has()}; name its language (--from, source_language) or "
                f"the one to translate into (--to, target_language)."
            )
        only = self.only_target(found, text) if foreign is None else None
        only = usual if usual and found is None and foreign is None else only
        if only is not None:
            return Choice(found, only, confidence, self._doubt(doubtful, only, likely))
        if usual is not None:
            return Choice(found, usual, confidence, self._remark(found, usual, foreign))
        way = ", ".join(self.targets_of(found))
        way = f"is in {found!r} and may go into {way}" if found else f"may go into {way}"
        other = ", or its true language (--from, source_language)" if source is None and found else ""
        raise DecodingError(f"{way}; no target language was given. Name one of them (--to, target_language){other}.")

    def _follows(self, text: str, confidence: float | None, likely: str | None, source: str | None) -> bool:
        """Whether a text with words is taken to be in the language of the lines around it."""
        if likely is None or source is not None or is_wordless(text, self.languages):
            return False
        return not is_clear(text, confidence, WORDS_AMONG_OTHERS)

    def only_target(self, source: str | None, text: str | None = None) -> str | None:
        """Where a text in this language goes if nothing else is said; None if that is open.

        Text without words goes anywhere.
        """
        targets = self.targets_of(source)
        is_anything = source is None and text is not None and is_wordless(text, self.languages)
        return preferred(targets) or (targets[0] if len(targets) == 1 or (targets and is_anything) else None)

    def _doubt(self, looks_like: str | None, target: str, likely: str | None) -> str | None:
        """What to know about a text that was taken for another language than it looks like."""
        is_known = looks_like in self.languages
        if looks_like in (None, likely) or (is_known and self.only_target(looks_like) == target):
            return None
        return f"may be in {looks_like!r}, but does not show it clearly, and is taken to be in {likely!r} like the rest"

    def is_doubtful(self, text: str) -> bool:
        """Whether a text does not show its language so clearly that the texts around it do not matter."""
        return not is_clear(text, self.detect(text)[1], WORDS_AMONG_OTHERS)

    def needs_evidence(self, source: str | None, target: str | Mapping[str, str] | None) -> bool:
        """Whether the lines around a text may decide where it goes: nobody has said it, and languages are detected."""
        return len(self.tags) > 1 and source is None and not isinstance(target, str) and can_detect(self.languages)

    def detect(self, text: str) -> tuple[str | None, float | None, str | None]:
        """The language of a text among the model's, how sure it is, and what else it looks like if it is none."""
        if not can_detect(self.languages):
            return None, None, None
        found, confidence = detect_language(text, (*self.languages, *self._strangers))
        if found is None and script_of(text)[0]:
            return None, None, detect_language(text)[0] or "another language"
        if found is None or found in self._strangers:
            return None, None, found
        return found, confidence, None

    @cached_property
    def _strangers(self) -> tuple[str, ...]:
        """Languages that the model has not, but whose texts can be known for what they are beside its own."""
        return () if not can_detect(self.languages) else strangers_to(self.languages)

    def _only(self, source: str | None, target: str | Mapping[str, str] | None) -> Choice:
        """A model with one target has nothing to choose; what is said must agree with it."""
        sources = {pair.source for pair in self.known if pair.source}
        if source is not None and sources and source not in sources:
            raise DecodingError(
                f"is said to be in {source!r}; this model translates from {', '.join(sorted(sources))}."
            )
        known = self.tags[0] if self.tags else next((pair.target for pair in self.learned if pair.target), None)
        wanted = target.get(source or "") if isinstance(target, Mapping) else target
        if self.tags and wanted is not None:
            self._check_tag(wanted)
        return Choice(source or (sources.pop() if len(sources) == 1 else None), wanted or known)

    def _check_tag(self, target: str) -> None:
        if target not in self.tags:
            raise DecodingError(
                f"cannot go into {target!r}: this model translates into {', '.join(self.tags)}. Name one of them."
            )

    def _remark(self, source: str | None, target: str, foreign: str | None) -> str | None:
        if foreign is not None:
            return f"looks like {foreign}, which this model has not learned"
        if source == target:
            return f"looks as if it were in {target!r} already"
        learned = [pair.target for pair in self.known if pair.source == source]
        if source is None or not any(learned) or target in learned:
            return None
        between = next((code for code in learned if Direction(code, target) in self.known), None)
        way = f" (but {source} → {between} → {target})" if between else ""
        return f"is in {source!r}, and this model has not learned {source} → {target}{way}"

    def _has(self) -> str:
        return f"knows {', '.join(self.languages)}"


class LanguageEvidence:
    """The language that most of a text is in, by its lines: for those that do not show their own."""

    def __init__(self, directions: Directions) -> None:
        self.directions = directions
        self._weights: Counter[str] = Counter()

    def read(self, lines: Iterable[str]) -> None:
        """Count lines; longer and clearer ones weigh more."""
        for line in lines:
            found, confidence, foreign = self.directions.detect(line)
            if language := found or foreign:
                size = len(line[:MOST_BYTES].encode("utf-8", errors="replace"))
                self._weights[language] += round(min(size, MOST_BYTES) * (confidence or 1.0))

    @property
    def language(self) -> str | None:
        """The one with the most evidence; None if there is none, or it is none of the model's."""
        most = max(self._weights, key=lambda language: (self._weights[language], language), default=None)
        return most if most in self.directions.languages else None


def learned_directions(data: DataConfig, details: Mapping[str, Any]) -> tuple[Direction, ...]:
    """What was trained: by the corpora that are named, or by the report in `details` on those prepared before."""
    found: list[tuple[Direction, bool]] = [(direction(corpus, data), corpus.both_directions) for corpus in data.train]
    if not found:
        for corpus in (details.get("data") or {}).get("corpora", ()):
            if corpus.get("role") == "train":
                source, target = corpus.get("source_language"), corpus.get("target_language")
                pair = Direction(source or data.source_language, target or data.target_language)
                found.append((pair, bool(corpus.get("both_directions"))))
    pairs = [Direction(*one) for pair, both in found for one in ((pair, pair[::-1]) if both else (pair,))]
    return tuple(dict.fromkeys(pairs)) or (Direction(data.source_language, data.target_language),)


def directions_before(details: Mapping[str, Any]) -> tuple[Direction, ...]:
    """What the model had learned that this one went on from, if it did not begin from nothing."""
    return tuple(Direction(*pair) for pair in (details.get("training") or {}).get(BEFORE, ()))


def told_before(learned: Sequence[Direction], details: Mapping[str, Any]) -> str:
    """Such as ` (before: de → en)`, of what was learned before and not again; empty if there is nothing like that."""
    told = [f"{pair.source} → {pair.target}" for pair in directions_before(details) if pair not in learned]
    return f" (before: {', '.join(told)})" if told else ""


def preferred(targets: Sequence[str]) -> str | None:
    """English, of whatever region, if it is among the targets."""
    return next((code for code in targets if plain_code(code) == PREFERRED), None)


def is_wordless(text: str, languages: Sequence[str]) -> bool:
    """Whether a text is in no language at all: empty, or without a letter where languages are told by letters."""
    return not text.strip() or (can_detect(tuple(languages)) and script_of(text)[0] is None)
