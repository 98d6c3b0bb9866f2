"""Into which language a text goes, when a model knows several: asked for, or what its own language leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from heedful.config import DataConfig
from heedful.errors import DecodingError
from heedful.text.corpus import Direction, direction
from heedful.text.detection import can_detect, detect_language, plain_code, script_of, strangers_to
from heedful.text.languages import SCRIPTS_OF

PREFERRED = "en"
"""The target of a text that could go into several languages, this one among them."""
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

    def targets_of(self, source: str | None) -> tuple[str, ...]:
        """The languages that a text in this one may go into: learned, else learned before, else all other tags."""
        for pairs in (self.learned, self.before):
            learned = [pair.target for pair in pairs if source is not None and pair.source == source]
            if targets := tuple(dict.fromkeys(tag for tag in learned if tag in self.tags)):
                return targets
        return tuple(tag for tag in self.tags if tag != source)

    def is_open(self, source: str | None) -> bool:
        """Whether somebody must say into which language a text in this one goes."""
        targets = self.targets_of(source)
        return len(targets) != 1 and preferred(targets) is None

    def require_target(self, target: str | None, what: str) -> None:
        """A `DecodingError` if a model with several targets is not told one; `what` it would be told."""
        if target is None and len(self.tags) > 1:
            raise DecodingError(f"this model translates into {', '.join(self.tags)}; name {what} (--to).")

    def choose(self, text: str, *, source: str | None = None, target: str | Mapping[str, str] | None = None) -> Choice:
        """The languages of one text. `target`: the language asked for, or one for each source language.

        Raises `DecodingError` when nothing says into which language the text goes; what it says follows "text 3".
        """
        if len(self.tags) < 2:
            return self._only(source, target)
        if source is not None and source not in self.languages:
            raise DecodingError(f"is said to be in {source!r}, but this model {self._has()}.")
        found, confidence, foreign = self.detect(text) if source is None else (source, None, None)
        wanted = target.get(found or "") if isinstance(target, Mapping) else target
        if wanted is not None:
            self._check_tag(wanted)
            return Choice(found, wanted, confidence, self._remark(found, wanted, foreign))
        if foreign is not None:
            raise DecodingError(
                f"looks like {foreign}, and this model {self._has()}; name its language (--from, source_language) or "
                f"the one to translate into (--to, target_language)."
            )
        targets = self.targets_of(found)
        if found is None and is_wordless(text, self.languages):
            targets = targets[:1] if preferred(targets) is None else targets
        if preferred(targets) or len(targets) == 1:
            return Choice(found, preferred(targets) or targets[0], confidence)
        told = f"is in {found!r} and may go into {', '.join(targets)}" if found else f"may go into {', '.join(targets)}"
        other = ", or its true language (--from, source_language)" if source is None and found else ""
        raise DecodingError(f"{told}; no target language was given. Name one of them (--to, target_language){other}.")

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
