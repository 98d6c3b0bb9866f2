"""Checks of finished translations, and a second search for those that fail: wrong numbers, or repetition loops.

The check `find_problems` is cheap. A sentence that fails is searched again with a wider beam: for numbers, without
tokens whose digits are not in the source; for repetition, with n-gram blocking and a shorter maximum length. Of all
hypotheses, the first with the fewest problems is kept; remaining problems become warnings. The outcome for a sentence
depends on nothing but the sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from heedful.config import DecodingConfig
from heedful.decoding.text_splitting import is_visible
from heedful.decoding.tokenizer_cache import TokenizerCache
from heedful.decoding.translation import NUMBERS_DIFFER, REPETITION, UNTRANSLATED
from heedful.errors import ConfigError
from heedful.search_types import DecodeRequest, DecodeResult, Engine, Hypothesis
from heedful.text.language_id import FREQUENT_WORDS, SCRIPTS_BY_LANGUAGE, primary_subtag
from heedful.text.language_routing import Choice
from heedful.text.tokenizer import Tokenizer
from heedful.text.translation_checks import ascii_digit, is_repetition_loop, numbers_differ

BEAM_SIZE = 8
NO_REPEAT_NGRAM = 3
EXTRA_LENGTH = 10
"""After a repetition loop, a translation may have twice its source's tokens plus this many."""
PERIODIC = re.compile(r"(.{1,20}?)\1\1", re.DOTALL)
"""Token ids, as characters, repeated three times in a row: a necessary condition for a loop."""


class LanguagePair(NamedTuple):
    """Language codes of a sentence and its translation."""

    source: str | None
    target: str | None


def is_checked(config: DecodingConfig, choice: Choice) -> bool:
    """Whether to check translations: as configured, else if both languages are known and different."""
    if config.checks is not None:
        return config.checks
    source, target = (primary_subtag(code or "") for code in (choice.source, choice.target))
    return source != target and all(code in SCRIPTS_BY_LANGUAGE or code in FREQUENT_WORDS for code in (source, target))


def find_problems(request: DecodeRequest, hypothesis: Hypothesis, text: str, languages: LanguagePair) -> list[str]:
    """Problems of a translation, as codes of `heedful.decoding.translation.WARNINGS`."""
    if not is_visible(text):
        return [UNTRANSLATED]
    found = [NUMBERS_DIFFER] if numbers_differ(request.text, text, languages=languages) else []
    if PERIODIC.search("".join(map(chr, hypothesis.tokens))) and is_repetition_loop(request.text, text):
        found.append(REPETITION)
    return found


class OutputChecker:
    """Finds translations with problems and searches for better ones."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer) -> None:
        self.engine, self.tokenizer = engine, tokenizer

    def retry_failed(
        self,
        results: dict[DecodeRequest, DecodeResult],
        languages: Mapping[DecodeRequest, LanguagePair],
        config: DecodingConfig,
        cache: TokenizerCache,
        *,
        align: bool,
        accepts: Callable[[DecodeRequest, str], bool],
    ) -> dict[DecodeRequest, list[str]]:
        """Replace results with problems by better ones, and return the problems that remain.

        Only translations for which `accepts` is true are considered.
        """
        problems: dict[DecodeRequest, list[str]] = {}
        for request, pair in languages.items():
            best = results[request].hypotheses[0]
            if found := find_problems(request, best, cache.decode(best.tokens[:-1]), pair):
                problems[request] = found
        for repetition in (False, True):
            failed = [
                request
                for request, codes in problems.items()
                if codes != [UNTRANSLATED] and (REPETITION in codes) == repetition
            ]
            for request, hypotheses in self._search_again(failed, problems, config, repetition=repetition).items():
                cache.decode_all(hypothesis.tokens[:-1] for hypothesis in hypotheses)
                texts = [cache.decode(hypothesis.tokens[:-1]) for hypothesis in hypotheses]
                candidates = [
                    (hypothesis, find_problems(request, hypothesis, text, languages[request]))
                    for hypothesis, text in zip(hypotheses, texts, strict=True)
                    if accepts(request, text)
                ]
                fewest = min((len(codes) for _, codes in candidates), default=len(problems[request]))
                if fewest < len(problems[request]):
                    kept = [(hypothesis, codes) for hypothesis, codes in candidates if len(codes) == fewest]
                    problems[request] = kept[0][1]
                    n_best = [hypothesis for hypothesis, _ in kept[: config.num_best]]
                    results[request] = self._make_result(request, n_best, align=align, config=config)
        return {request: codes for request, codes in problems.items() if codes}

    def _search_again(
        self,
        requests: Sequence[DecodeRequest],
        problems: Mapping[DecodeRequest, list[str]],
        config: DecodingConfig,
        *,
        repetition: bool,
    ) -> dict[DecodeRequest, list[Hypothesis]]:
        """Hypotheses of a second search, best first; none for sampling, or if the engine lacks a constraint."""
        if not requests or config.method == "sampling":
            return {}
        size = max(BEAM_SIZE, config.beam_size)
        wider = replace(config, method="beam", beam_size=size, num_best=size)
        if repetition:
            wider = replace(
                wider, no_repeat_ngram_size=min(config.no_repeat_ngram_size or NO_REPEAT_NGRAM, NO_REPEAT_NGRAM)
            )
        constrained = {request: self._constrain(request, problems[request], wider) for request in requests}
        try:
            found = self.engine.decode(list(constrained.values()), wider, align=False, constraint_factory=None)
        except ConfigError:  # CTranslate2 does not support every constraint
            return {}
        return {request: found[retried].hypotheses for request, retried in constrained.items()}

    def _constrain(self, request: DecodeRequest, problems: Sequence[str], config: DecodingConfig) -> DecodeRequest:
        """The request of the second search, with the constraints that its problems call for."""
        limit = request.max_length
        if REPETITION in problems:
            limit = max(min(limit, 2 * len(request.source) + EXTRA_LENGTH), len(request.prefix), config.min_length)
        forbidden = self._tokens_with_other_digits(request.text) if NUMBERS_DIFFER in problems else ()
        return request._replace(max_length=limit, forbidden=(*request.forbidden, *forbidden))

    def _tokens_with_other_digits(self, text: str) -> tuple[int, ...]:
        """Tokens with a run of digits that does not occur in the numbers of a text."""
        numbers = re.findall(r"\d+", re.sub(r"(?<=\d)[.,' ](?=\d)", "", digits_as_ascii(text)))
        return tuple(
            token
            for token, runs in self._digit_runs.items()
            if not all(any(run in number for number in numbers) or not run.strip("0") for run in runs)
        )

    @cached_property
    def _digit_runs(self) -> dict[int, list[str]]:
        """The runs of digits of each token that has digits."""
        size = self.tokenizer.target_vocab_size
        pieces = dict(enumerate(self.tokenizer.pieces(range(size))))
        pieces.update({token: chr(byte) for byte, token in enumerate(self.tokenizer.byte_ids)})
        for token in self.tokenizer.control_ids:
            pieces.pop(token, None)
        runs = {token: re.findall(r"\d+", digits_as_ascii(piece)) for token, piece in pieces.items()}
        return {token: found for token, found in runs.items() if found}

    def _make_result(
        self, request: DecodeRequest, hypotheses: list[Hypothesis], *, align: bool, config: DecodingConfig
    ) -> DecodeResult:
        """A result with these hypotheses; the attention of the first comes from forced decoding."""
        if not align:
            return DecodeResult(hypotheses, None)
        tokens = tuple(hypotheses[0].tokens[:-1])
        forced = request._replace(prefix=tokens, max_length=len(tokens), forbidden=(), phrases=())
        single = replace(config, beam_size=1, num_best=1)
        found = self.engine.decode([forced], single, align=True, constraint_factory=None)
        return DecodeResult(hypotheses, found[forced].attention)


def digits_as_ascii(text: str) -> str:
    """A text with all decimal digits in ASCII."""
    return text if text.isascii() else re.sub(r"\d", lambda match: ascii_digit(match[0]), text)
