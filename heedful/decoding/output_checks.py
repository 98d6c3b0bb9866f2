"""A second search for sentences whose translation has other numbers than they have, or goes round in circles.

Every translation of a language is looked at: `problems_of` is cheap and says no nearly always. A sentence that fails is
searched again with a wider beam: for numbers without digits that its own numbers have not, for repetition without
repeated n-grams and with a shorter limit. Of all hypotheses the first with the fewest problems is kept; those that it
still has become warnings. What is done with a sentence depends on nothing but itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from heedful.config import DecodingConfig
from heedful.decoding.engines import Engine, Job, Outcome
from heedful.decoding.text_splitting import is_visible
from heedful.decoding.tokenizer_cache import Spelling
from heedful.decoding.translation import NUMBERS_DIFFER, REPETITION, UNTRANSLATED
from heedful.errors import ConfigError
from heedful.search_types import Hypothesis
from heedful.text.language_id import FREQUENT_WORDS, SCRIPTS_BY_LANGUAGE, primary_subtag
from heedful.text.language_routing import Choice
from heedful.text.tokenizer import Tokenizer
from heedful.text.translation_checks import ascii_digit, is_repetition_loop, numbers_differ

BEAM_SIZE = 8
NO_REPEAT_NGRAM = 3
EXTRA_LENGTH = 10
"""Where a translation repeated itself: tokens it may be longer than twice its source."""
PERIODIC = re.compile(r"(.{1,20}?)\1\1", re.DOTALL)
"""Tokens, as characters, that come three times in a row: only then a text can have a loop."""


class Languages(NamedTuple):
    """Codes of the languages of a sentence and of its translation."""

    source: str | None
    target: str | None


def is_checked(config: DecodingConfig, choice: Choice) -> bool:
    """Whether translations are checked: as the configuration says, else from a language that is known into another."""
    if config.checks is not None:
        return config.checks
    source, target = (primary_subtag(code or "") for code in (choice.source, choice.target))
    return source != target and all(code in SCRIPTS_BY_LANGUAGE or code in FREQUENT_WORDS for code in (source, target))


def problems_of(job: Job, hypothesis: Hypothesis, text: str, languages: Languages) -> list[str]:
    """What is wrong with a translation, as codes of `heedful.decoding.translation.WARNINGS`."""
    if not is_visible(text):
        return [UNTRANSLATED]
    found = [NUMBERS_DIFFER] if numbers_differ(job.text, text, languages=languages) else []
    if PERIODIC.search("".join(map(chr, hypothesis.tokens))) and is_repetition_loop(job.text, text):
        found.append(REPETITION)
    return found


class SecondSearch:
    """Finds translations with problems, and searches for better ones."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer) -> None:
        self.engine, self.tokenizer = engine, tokenizer

    def improve(
        self,
        outcomes: dict[Job, Outcome],
        languages: Mapping[Job, Languages],
        config: DecodingConfig,
        spelling: Spelling,
        *,
        align: bool,
        accepts: Callable[[Job, str], bool],
    ) -> dict[Job, list[str]]:
        """Put better outcomes in the place of those with problems; returns the problems that are left.

        Only translations that `accepts` lets pass are put in their place.
        """
        left: dict[Job, list[str]] = {}
        for job, codes in languages.items():
            best = outcomes[job].hypotheses[0]
            if found := problems_of(job, best, spelling.text(best.tokens[:-1]), codes):
                left[job] = found
        for repetition in (False, True):
            jobs = [
                job for job, found in left.items() if found != [UNTRANSLATED] and (REPETITION in found) == repetition
            ]
            for job, hypotheses in self._search_again(jobs, left, config, repetition=repetition).items():
                spelling.write(one.tokens[:-1] for one in hypotheses)
                hypotheses = [one for one in hypotheses if accepts(job, spelling.text(one.tokens[:-1]))]
                texts = [spelling.text(one.tokens[:-1]) for one in hypotheses]
                problems = [problems_of(job, *pair, languages[job]) for pair in zip(hypotheses, texts, strict=True)]
                fewest = min(map(len, problems), default=len(left[job]))
                if fewest < len(left[job]):
                    kept = [one for one, found in zip(hypotheses, problems, strict=True) if len(found) == fewest]
                    left[job] = problems[hypotheses.index(kept[0])]
                    outcomes[job] = self._outcome(job, kept[: config.num_best], config, align=align)
        return {job: found for job, found in left.items() if found}

    def _search_again(
        self, jobs: Sequence[Job], problems: Mapping[Job, list[str]], config: DecodingConfig, *, repetition: bool
    ) -> dict[Job, list[Hypothesis]]:
        """More hypotheses for these sentences, best first; none where the search was sampling, or the engine cannot."""
        if not jobs or config.method == "sampling":
            return {}
        size = max(BEAM_SIZE, config.beam_size)
        harder = replace(config, method="beam", beam_size=size, num_best=size)
        if repetition:
            harder = replace(
                harder, no_repeat_ngram_size=min(config.no_repeat_ngram_size or NO_REPEAT_NGRAM, NO_REPEAT_NGRAM)
            )
        again = {job: self._harder_job(job, problems[job], harder) for job in jobs}
        try:
            found = self.engine.decode(list(again.values()), harder, align=False, make_rule=None)
        except ConfigError:  # CTranslate2 has not every constraint
            return {}
        return {job: found[constrained].hypotheses for job, constrained in again.items()}

    def _harder_job(self, job: Job, problems: Sequence[str], config: DecodingConfig) -> Job:
        """The job with what its second search may not do."""
        limit = job.max_length
        if REPETITION in problems:
            limit = max(min(limit, 2 * len(job.source) + EXTRA_LENGTH), len(job.prefix), config.min_length)
        forbidden = self._foreign_digits(job.text) if NUMBERS_DIFFER in problems else ()
        return job._replace(max_length=limit, forbidden=(*job.forbidden, *forbidden))

    def _foreign_digits(self, text: str) -> tuple[int, ...]:
        """The tokens with digits that stand nowhere in the numbers of a text as they stand in the token."""
        numbers = re.findall(r"\d+", re.sub(r"(?<=\d)[.,' ](?=\d)", "", digits_as_ascii(text)))
        return tuple(
            number
            for number, runs in self._digits.items()
            if not all(any(run in own for own in numbers) or not run.strip("0") for run in runs)
        )

    @cached_property
    def _digits(self) -> dict[int, list[str]]:
        """Of every token with digits, its runs of digits."""
        size = self.tokenizer.target_vocab_size
        pieces = dict(enumerate(self.tokenizer.pieces(range(size))))
        pieces.update({number: chr(byte) for byte, number in enumerate(self.tokenizer.byte_ids)})
        for number in self.tokenizer.control_ids:
            pieces.pop(number, None)
        runs = {number: re.findall(r"\d+", digits_as_ascii(piece)) for number, piece in pieces.items()}
        return {number: found for number, found in runs.items() if found}

    def _outcome(self, job: Job, hypotheses: list[Hypothesis], config: DecodingConfig, *, align: bool) -> Outcome:
        """The outcome with these hypotheses; the weights of the first come from a search that is forced to find it."""
        if not align:
            return Outcome(hypotheses, None)
        tokens = tuple(hypotheses[0].tokens[:-1])
        forced = job._replace(prefix=tokens, max_length=len(tokens), forbidden=())
        single = replace(config, beam_size=1, num_best=1)
        found = self.engine.decode([forced], single, align=True, make_rule=None)
        return Outcome(hypotheses, found[forced].attention)


def digits_as_ascii(text: str) -> str:
    """A text with all decimal digits in ASCII."""
    return text if text.isascii() else re.sub(r"\d", lambda match: ascii_digit(match[0]), text)
