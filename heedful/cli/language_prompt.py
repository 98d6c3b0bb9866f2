"""Languages of `heedful translate`: warnings about texts and prompts for the target language."""

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

MAX_NUMBERS_SHOWN = 5
MAX_ATTEMPTS = 3


class WarningReporter:
    """Warnings on stderr about texts and their translations.

    For texts: the first warning of each kind at once, the number of the others at the end. For translations: a summary
    at the end.
    """

    def __init__(self, unit: str = "line", *, quiet: bool = False) -> None:
        self.unit, self.quiet = unit, quiet
        self.text_counts: Counter[str] = Counter()
        self.translation_warnings: dict[str, list[int]] = {}

    def add(self, warnings: Iterable[tuple[int, str]], write: Callable[[str], None]) -> None:
        """Add warnings with the numbers of their texts; `write` prints a line."""
        from heedful.decoding.translation import WARNINGS

        for number, warning in warnings:
            if warning in WARNINGS:
                self.translation_warnings.setdefault(warning, []).append(number)
                continue
            self.text_counts[warning] += 1
            if self.text_counts[warning] == 1 and not self.quiet:
                write(f"warning: {self.unit} {number} {warning}; it is translated all the same.")

    def summarize(self, write: Callable[[str], None]) -> None:
        """Print the summary."""
        from heedful.decoding.translation import WARNINGS

        for code, numbers in self.translation_warnings.items():
            shown = ", ".join(map(str, numbers[:MAX_NUMBERS_SHOWN]))
            shown += ", …" if len(numbers) > MAX_NUMBERS_SHOWN else ""
            units = f"{self.unit}{'s' * (len(numbers) > 1)}"
            write(f'warning: {len(numbers):,} {units} ({shown}): {WARNINGS[code]}; --json shows "{code}".')
        for warning, count in self.text_counts.items():
            if count > 1 and not self.quiet:
                write(f"warning: {count - 1:,} more {self.unit}{'s' * (count > 2)} like that ({warning}).")


class LanguagePrompt:
    """Asks on the terminal for the target language of each source language, if flags and model leave a choice."""

    def __init__(self, job: TranslationJob, directions: Directions) -> None:
        self.job, self.directions = job, directions
        self.targets: dict[str, str] = {}
        """The target language that was chosen for each source language."""
        has_choice = job.target_language is None and len(directions.tags) > 1
        self.is_enabled = has_choice and sys.stdin.isatty() and sys.stderr.isatty()

    def job_for(self, texts: Sequence[str]) -> TranslationJob:
        """The job for these texts; asks once for each source language with several targets."""
        if self.is_enabled:
            known = self.job.source_language or self.job.likely_language
            for source in [known] if known else [self.directions.detect(text)[0] for text in texts]:
                if source is not None and source not in self.targets and self.directions.is_ambiguous(source):
                    self.targets[source] = ask_target_language(source, self.directions.targets_for(source))
        return replace(self.job, target_language=self.targets) if self.targets else self.job


def ask_target_language(source: str, targets: Sequence[str]) -> str:
    """Ask for one of several target languages, by code or by name."""
    from heedful.text.language_names import language_code

    for _ in range(MAX_ATTEMPTS):
        print(f"Translate {source} into which language? ({', '.join(targets)}) ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        target = language_code(answer.strip(), targets)
        if target in targets:
            return target
        if not answer:
            print(file=sys.stderr)
            break
    raise ConfigError(f"the target language is not clear; give it with --to: one of {', '.join(targets)}.")


def print_stderr(message: str) -> None:
    """Print one line on stderr."""
    print(message, file=sys.stderr)


def make_translate_function(
    job: TranslationJob, translator: Translator, warnings: WarningReporter, *, is_one_text: bool
) -> Callable[[Sequence[str]], list[Translation]]:
    """A function that translates texts, asks for target languages and reports warnings.

    `is_one_text`: the texts are lines of one text, so earlier lines help to detect the language of ambiguous ones.
    """
    from heedful.decoding.files.job import collect_remarks
    from heedful.text.language_routing import LanguageEvidence

    prompt = LanguagePrompt(job, translator.directions)
    detects = is_one_text and translator.directions.needs_context(job.source_language, job.target_language)
    evidence = LanguageEvidence(translator.directions)
    number = 1

    def translate(texts: Sequence[str]) -> list[Translation]:
        nonlocal number
        if detects and job.likely_language is None:
            evidence.read(texts)
            prompt.job = replace(job, likely_language=evidence.language)
        try:
            translations = prompt.job_for(texts).translate(translator, texts)
        except TextError as error:
            raise error.at(f"{warnings.unit} {number + error.number - 1}") from None
        warnings.add([(number + index, warning) for index, warning in collect_remarks(translations)], print_stderr)
        number += len(texts)
        return translations

    return translate


def skip_untranslatable(
    translate_texts: Callable[[Sequence[str]], list[Translation]],
) -> Callable[[Sequence[str]], list[Translation]]:
    """Wrap a translate function for interactive use: report a line that cannot be translated and return it empty."""
    from heedful.decoding.translation import empty_translation

    def translate(texts: Sequence[str]) -> list[Translation]:
        try:
            return translate_texts(texts)
        except TextError as error:
            if len(texts) > 1:
                return [translation for text in texts for translation in translate([text])]
            print_stderr(f"heedful: this line {error.problem}")
            return [empty_translation()]

    return translate
