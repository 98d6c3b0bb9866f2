"""The preflight: filter and check all corpora before training, and read the pairs to train on.

The training corpora are read once to filter every line, in several processes, and again for each call of
`Preflight.pairs`. One byte per line is kept in memory and, during the first pass, eight bytes per kept pair to find
duplicates (ten at the peak: 1.1 GB for a hundred million pairs). Valid and test are kept in memory as text.

Two pairs are duplicates if a 64-bit hash of both sentences (and the target language) is equal; the first is kept. A
pair is in valid or test if both of its sentences are, as one pair; in a model of several directions, also reversed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from heedful.config import CorpusConfig, DataConfig
from heedful.errors import ConfigError, CorpusError
from heedful.text.corpus import (
    BadLine,
    Direction,
    SentencePair,
    TrainingPair,
    corpus_files,
    corpus_name,
    direction,
    read_pairs,
)
from heedful.text.corpus_chunks import Chunk, Workers, num_workers, read_chunks
from heedful.text.corpus_filter import CorpusFilter, HeldOutPair, record_verdicts
from heedful.text.line_filters import Verdict, check_text
from heedful.text.preflight_report import (
    CorpusProfile,
    EvenSample,
    PreflightReport,
    corpus_warnings,
    describe_corpus,
    format_dropped,
    plain_table,
    table,
)

__all__ = [
    "Preflight",
    "PreflightReport",
    "TrainingPair",
    "plain_table",
    "preflight",
    "table",
    "target_languages",
    "workers_for",
]


@dataclass(frozen=True)
class Preflight:
    """The result of the preflight: a report, and the pairs to use."""

    data: DataConfig
    report: PreflightReport
    tags: tuple[str, ...]
    """Target languages that get a tag; empty for a model without tags."""
    valid_pairs: list[TrainingPair]
    test_pairs: list[TrainingPair]
    _verdicts: list[npt.NDArray[np.uint8]]
    _file_stamps: list[tuple[tuple[int, int], ...]]

    @property
    def num_pairs(self) -> int:
        """The number of pairs that `pairs` yields."""
        return self.report.num_pairs

    def pairs(self) -> Iterator[TrainingPair]:
        """The kept training pairs, read again, in file order; a corpus used in both directions yields each twice."""
        return self.select_pairs(np.arange(self.num_pairs))

    def select_pairs(self, numbers: npt.NDArray[np.int64]) -> Iterator[TrainingPair]:
        """The pairs of `pairs` with the given numbers, in ascending order; parses only their lines."""
        start = 0
        for index, corpus in enumerate(self.data.train):
            languages = self.languages(index)
            for chunk in self.kept_chunks(index):
                stop = start + len(chunk) * len(languages)
                own = numbers[np.searchsorted(numbers, start) : np.searchsorted(numbers, stop)] - start
                mask = np.zeros(len(chunk), dtype=np.bool_)
                mask[own // len(languages)] = True
                lines = dict(zip(np.flatnonzero(mask).tolist(), chunk.filter(mask).pairs(corpus), strict=True))
                for number in own.tolist():
                    pair, is_reverse = lines[number // len(languages)], number % len(languages)
                    assert isinstance(pair, SentencePair)
                    source, target = pair[::-1] if is_reverse else pair
                    yield TrainingPair(source, target, index, languages[is_reverse])
                start = stop

    def languages(self, index: int) -> list[str | None]:
        """The target language for the tags of a corpus; a second one if its pairs are also used reversed."""
        languages = direction(self.data.train[index], self.data) if self.tags else Direction(None, None)
        both = self.data.train[index].both_directions
        return [languages.target, languages.source] if both else [languages.target]

    def kept_chunks(self, index: int) -> Iterator[Chunk]:
        """The kept lines of a corpus, read again."""
        corpus = self.data.train[index]
        if _file_stamps(corpus) != self._file_stamps[index]:
            raise CorpusError(f"{corpus_name(corpus)}: the file has changed since the preflight; start again.")
        for chunk in read_chunks(corpus):
            begin = chunk.first_number - 1
            yield chunk.filter(self._verdicts[index][begin : begin + len(chunk)] == Verdict.KEPT)


def preflight(
    data: DataConfig,
    *,
    seed: int = 1,
    progress: Callable[[int], None] | None = None,
    known: Collection[Direction] = (),
) -> Preflight:
    """Filter and check all corpora; `progress` is called with the number of lines read since its last call.

    `known` are the directions of the model that training starts from: valid and test may be of these too.
    """
    tags = target_languages(data, known)
    check_files(data)
    report = PreflightReport()
    profiles: list[CorpusProfile] = []
    valid = _read_evaluation_corpora(data, "valid", tags, report, profiles)
    test = _read_evaluation_corpora(data, "test", tags, report, profiles)
    corpus_filter = CorpusFilter(
        data,
        {"valid": valid, "test": test},
        seed=seed,
        has_tags=bool(tags),
        progress=progress or (lambda lines: None),
    )
    stamps = [_file_stamps(corpus) for corpus in data.train]
    with Workers(workers_for(data)) as workers:
        train_profiles = [corpus_filter.read(index, corpus, report, workers) for index, corpus in enumerate(data.train)]
    corpus_filter.drop_duplicates()
    corpus_filter.require_pairs()
    if not data.valid:
        held_out = corpus_filter.hold_out()
        valid = [_training_pair(pair, data, tags) for pair in held_out]
        report.valid_is_held_out = bool(held_out)
    corpus_filter.write_report(report, num_valid=len(valid), num_test=len(test))
    report.warnings += corpus_warnings([*train_profiles, *profiles])
    return Preflight(data, report, tags, valid, test, corpus_filter.verdicts, stamps)


def workers_for(data: DataConfig) -> int:
    """The number of processes to use for these corpora."""
    return num_workers(data.num_workers, sum(size for corpus in data.train for size, _ in _file_stamps(corpus)))


def target_languages(data: DataConfig, known: Collection[Direction] = ()) -> tuple[str, ...]:
    """The target languages that get a tag, sorted; empty for a single target language, unless `data.target_tags`.

    Valid and test corpora must be of directions that are trained or `known` to the model.
    """
    languages: set[str | None] = set()
    for corpus in data.train:
        source, target = direction(corpus, data)
        if corpus.both_directions and (source is None or target is None or source == target):
            raise ConfigError(
                f"corpus {corpus_name(corpus)}: both_directions needs two different language codes; "
                f"set source_language and target_language."
            )
        languages.add(target)
        if corpus.both_directions:
            languages.add(source)
    has_tags = data.target_tags if data.target_tags is not None else len(languages) > 1
    if not has_tags:
        return ()
    tagged: set[str | None] = set()
    for corpus in (*data.train, *data.valid, *data.test):
        forward = direction(corpus, data)
        if forward.target is None:
            raise ConfigError(f"corpus {corpus_name(corpus)}: the model has target tags; set its target_language.")
        for each in (forward, Direction(*forward[::-1])) if corpus.both_directions else (forward,):
            if each.target not in languages and not _is_known(each, known):
                raise ConfigError(f"corpus {corpus_name(corpus)}: {_unknown_direction(each, known)}.")
            tagged.add(each.target)
    return tuple(sorted(language for language in languages | tagged if language is not None))


def _is_known(wanted: Direction, known: Collection[Direction]) -> bool:
    """Whether a direction is among the known ones; without a source language, whether any has its target."""
    return any(wanted.target == each.target and wanted.source in (None, each.source) for each in known)


def _unknown_direction(wanted: Direction, known: Collection[Direction]) -> str:
    problem = f"no training corpus has the target language {wanted.target!r}"
    if not known:
        return problem
    listed = ", ".join(f"{each.source} → {each.target}" for each in known)
    missing = f"{wanted.source or 'any'} → {wanted.target}"
    return f"{problem}, and the model of training.init_from does not know {missing}; it knows {listed}"


def check_files(data: DataConfig) -> None:
    """Check that every corpus exists and is readable, before any work."""
    if not data.train:
        raise ConfigError("data.train: no corpus to train on; set source and target (two files), or path.")
    for corpus in (*data.train, *data.valid, *data.test):
        for path in corpus_files(corpus):
            if os.path.isdir(path):
                raise CorpusError(f"{path}: this is a directory; name a file in it.")
            if not os.path.exists(path):
                raise CorpusError(f"{path}: there is no such file.")
            if not os.path.isfile(path):
                raise CorpusError(f"{path}: a corpus is read more than once, so it must be a regular file, not a pipe.")
            if not os.access(path, os.R_OK):
                raise CorpusError(f"{path}: no permission to read this file.")


def _file_stamps(corpus: CorpusConfig) -> tuple[tuple[int, int], ...]:
    stats = [os.stat(path) for path in corpus_files(corpus)]
    return tuple((stat.st_size, stat.st_mtime_ns) for stat in stats)


def _read_evaluation_corpora(
    data: DataConfig,
    role: Literal["valid", "test"],
    tags: tuple[str, ...],
    report: PreflightReport,
    profiles: list[CorpusProfile],
) -> list[TrainingPair]:
    """Valid or test pairs. Valid skips unusable lines; test keeps every line, because all are scored."""
    result: list[TrainingPair] = []
    for index, corpus in enumerate(data.valid if role == "valid" else data.test):
        languages = direction(corpus, data)
        corpus_report = describe_corpus(role, corpus, languages)
        verdicts: Counter[Verdict] = Counter()
        sample = EvenSample()
        for line, pair in enumerate(read_pairs(corpus)):
            if isinstance(pair, BadLine):
                if role == "test":
                    raise CorpusError(f"{pair}: every line of a test corpus is scored, so correct this one.")
                corpus_report.first_bad_line = corpus_report.first_bad_line or str(pair)
                verdicts[Verdict.WRONG_ENCODING] += 1
                continue
            verdict = check_text(pair, data.max_characters) if role == "valid" else Verdict.KEPT
            verdicts[verdict] += 1
            if verdict == Verdict.KEPT:
                sample.add(pair)
                for is_reverse in (False, True) if corpus.both_directions else (False,):
                    sides = pair[::-1] if is_reverse else pair
                    result.append(_training_pair(HeldOutPair(*sides, index, line, is_reverse), data, tags, corpus))
        record_verdicts(corpus_report, verdicts)
        report.corpora.append(corpus_report)
        profiles.append(CorpusProfile(corpus_report.name, languages, sample.pairs))
        if corpus_report.num_kept == 0:
            raise CorpusError(
                f"{role} corpus {corpus_report.name}: no usable pair: {format_dropped(corpus_report.dropped)}."
            )
    return result


def _training_pair(
    pair: HeldOutPair, data: DataConfig, tags: tuple[str, ...], corpus: CorpusConfig | None = None
) -> TrainingPair:
    languages = direction(corpus or data.train[pair.corpus_index], data)
    language = languages.source if pair.reverse else languages.target
    return TrainingPair(pair.source, pair.target, pair.corpus_index, language if tags else None)
