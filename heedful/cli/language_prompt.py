"""Languages of `heedful translate`: what is odd about a text is told, what nobody said is asked."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from heedful.errors import ConfigError, TextError

if TYPE_CHECKING:
    from heedful.decoding.files.job import TranslationJob
    from heedful.decoding.translation import Translation
    from heedful.decoding.translator import Translator
    from heedful.text.language_routing import Directions

MOST_NUMBERS = 5
TRIES = 3


class Remarks:
    """Warnings on stderr. What is odd about texts: the first of each kind at once, the number of the others at the end.

    Warnings about translations are summarised at the end.
    """

    def __init__(self, kind: str = "line", *, quiet: bool = False) -> None:
        self.kind, self.quiet = kind, quiet
        self.counts: Counter[str] = Counter()
        self.warnings: dict[str, list[int]] = {}

    def add(self, remarks: Iterable[tuple[int, str]], say: Callable[[str], None]) -> None:
        """Take in what is odd about some texts or wrong with their translations, with the numbers of the texts."""
        from heedful.decoding.translation import WARNINGS

        for number, remark in remarks:
            if remark in WARNINGS:
                self.warnings.setdefault(remark, []).append(number)
                continue
            self.counts[remark] += 1
            if self.counts[remark] == 1 and not self.quiet:
                say(f"warning: {self.kind} {number} {remark}; it is translated all the same.")

    def end(self, say: Callable[[str], None]) -> None:
        """Summarise the rest."""
        from heedful.decoding.translation import WARNINGS

        for code, numbers in self.warnings.items():
            shown = ", ".join(map(str, numbers[:MOST_NUMBERS])) + (", …" if len(numbers) > MOST_NUMBERS else "")
            kind = f"{self.kind}{'s' * (len(numbers) > 1)}"
            say(f'warning: {len(numbers):,} {kind} ({shown}): {WARNINGS[code]}; --json shows "{code}".')
        for remark, count in self.counts.items():
            if count > 1 and not self.quiet:
                say(f"warning: {count - 1:,} more {self.kind}{'s' * (count > 2)} like that ({remark}).")


class Asking:
    """Into which languages texts go, asked of the user when neither flags nor the model say it."""

    def __init__(self, task: TranslationJob, directions: Directions) -> None:
        self.task, self.directions = task, directions
        self.answers: dict[str, str] = {}
        is_free = task.target_language is None and len(directions.tags) > 1
        self.is_possible = is_free and sys.stdin.isatty() and sys.stderr.isatty()

    def task_for(self, texts: Sequence[str]) -> TranslationJob:
        """The task for these texts; each source language that leaves a choice is asked about once."""
        if self.is_possible:
            known = self.task.source_language or self.task.likely_language
            for source in [known] if known else [self.directions.detect(text)[0] for text in texts]:
                if source is not None and source not in self.answers and self.directions.is_ambiguous(source):
                    self.answers[source] = ask(source, self.directions.targets_for(source))
        return replace(self.task, target_language=self.answers) if self.answers else self.task


def ask(source: str, targets: Sequence[str]) -> str:
    """The user's choice among several target languages, by code or by name."""
    from heedful.text.language_names import language_code

    for _ in range(TRIES):
        print(f"Translate {source} into which language? ({', '.join(targets)}) ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        meant = language_code(answer.strip(), targets)
        if meant in targets:
            return meant
        if not answer:
            print(file=sys.stderr)
            break
    raise ConfigError(f"the target language is not clear; give it with --to: one of {', '.join(targets)}.")


def say(message: str) -> None:
    """One line on stderr."""
    print(message, file=sys.stderr)


def translating(
    task: TranslationJob, translator: Translator, remarks: Remarks, *, is_one_text: bool
) -> Callable[[Sequence[str]], list[Translation]]:
    """The function that translates texts, asks what must be asked, and reports what is odd.

    `is_one_text`: the texts are lines of one, so the lines before may decide the language of one that is in doubt.
    """
    from heedful.decoding.files.job import collect_remarks
    from heedful.text.language_routing import LanguageEvidence

    asking = Asking(task, translator.directions)
    is_open = is_one_text and translator.directions.needs_context(task.source_language, task.target_language)
    evidence = LanguageEvidence(translator.directions)
    number = 1

    def translate(texts: Sequence[str]) -> list[Translation]:
        nonlocal number
        if is_open and task.likely_language is None:
            evidence.read(texts)
            asking.task = replace(task, likely_language=evidence.language)
        try:
            translations = asking.task_for(texts).translate(translator, texts)
        except TextError as error:
            raise error.at(f"{remarks.kind} {number + error.number - 1}") from None
        remarks.add([(number + place, remark) for place, remark in collect_remarks(translations)], say)
        number += len(texts)
        return translations

    return translate


def forgiving(run: Callable[[Sequence[str]], list[Translation]]) -> Callable[[Sequence[str]], list[Translation]]:
    """The same for lines that somebody types: one that cannot be translated is told and stays empty, and it goes on."""
    from heedful.decoding.translation import empty_translation

    def translate(texts: Sequence[str]) -> list[Translation]:
        try:
            return run(texts)
        except TextError as error:
            if len(texts) > 1:
                return [one for text in texts for one in translate([text])]
            say(f"heedful: this line {error.problem}")
            return [empty_translation()]

    return translate
