"""The preflight: looks over all corpora before training, and streams the pairs worth training on.

The training corpora are read once to judge every line, in several processes, and again each time `Preflight.pairs`
runs. Nothing of them stays in memory but one byte a line and, while they are read, eight bytes a kept pair for finding
duplicates (ten at the peak: 1.1 GB for a hundred million pairs). Valid and test stay in memory as text.

Two pairs are duplicates if a 64-bit hash of both sentences (and the target language) agrees. Of duplicates the first
stays. A pair stands in valid or test if both of its sentences do, as one pair; where the model has several directions,
either way round.
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
from heedful.text.chunk_workers import Workers, num_workers
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
from heedful.text.corpus_filter import Judge, fill, in_words
from heedful.text.corpus_language_checks import EvenSample, Profile, suspicions
from heedful.text.line_chunks import Chunk, read_chunks
from heedful.text.line_filters import KEPT, WRONG_ENCODING, fault_of_text
from heedful.text.preflight_report import PreflightReport, describe_corpus, plain_table, table
from heedful.text.valid_split import HeldOutPair

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
    """The outcome: what was found, and the pairs worth using."""

    data: DataConfig
    report: PreflightReport
    tags: tuple[str, ...]
    """Target languages that need a tag; empty for a model without tags."""
    valid_pairs: list[TrainingPair]
    test_pairs: list[TrainingPair]
    _verdicts: list[npt.NDArray[np.uint8]]
    _stamps: list[tuple[tuple[int, int], ...]]

    @property
    def num_pairs(self) -> int:
        """How many pairs `pairs` gives."""
        return self.report.num_pairs

    def pairs(self) -> Iterator[TrainingPair]:
        """The kept training pairs, in the order of the files, read anew; a corpus used both ways gives each twice."""
        return self.select_pairs(np.arange(self.num_pairs))

    def select_pairs(self, numbers: npt.NDArray[np.int64]) -> Iterator[TrainingPair]:
        """Of all that `pairs` gives, those with the given numbers, which rise; only their lines are parsed."""
        start = 0
        for index, corpus in enumerate(self.data.train):
            ways = self.languages(index)
            for chunk in self.kept_chunks(index):
                stop = start + len(chunk) * len(ways)
                own = numbers[np.searchsorted(numbers, start) : np.searchsorted(numbers, stop)] - start
                mask = np.zeros(len(chunk), dtype=np.bool_)
                mask[own // len(ways)] = True
                lines = dict(zip(np.flatnonzero(mask).tolist(), chunk.only(mask).pairs(corpus), strict=True))
                for number in own.tolist():
                    pair, way = lines[number // len(ways)], number % len(ways)
                    assert isinstance(pair, SentencePair)
                    source, target = pair[::-1] if way else pair
                    yield TrainingPair(source, target, index, ways[way])
                start = stop

    def languages(self, index: int) -> list[str | None]:
        """The target language for the tags of a corpus's lines; a second one if they are also used turned round."""
        languages = direction(self.data.train[index], self.data) if self.tags else Direction(None, None)
        both = self.data.train[index].both_directions
        return [languages.target, languages.source] if both else [languages.target]

    def kept_chunks(self, index: int) -> Iterator[Chunk]:
        """The kept lines of a corpus, read anew."""
        corpus = self.data.train[index]
        if _stamp(corpus) != self._stamps[index]:
            raise CorpusError(f"{corpus_name(corpus)}: the file changed after it was looked over; start again.")
        for chunk in read_chunks(corpus):
            begin = chunk.first_number - 1
            yield chunk.only(self._verdicts[index][begin : begin + len(chunk)] == KEPT)


def preflight(
    data: DataConfig,
    *,
    seed: int = 1,
    progress: Callable[[int], None] | None = None,
    known: Collection[Direction] = (),
) -> Preflight:
    """Look over all corpora; `progress` is told, now and then, how many more lines were read.

    `known` are the directions of the model that training goes on from: valid and test may be of these too.
    """
    tags = target_languages(data, known)
    check_files(data)
    report = PreflightReport()
    profiles: list[Profile] = []
    valid = _read_small(data, "valid", tags, report, profiles)
    test = _read_small(data, "test", tags, report, profiles)
    judge = Judge(
        data,
        {"valid": valid, "test": test},
        seed=seed,
        has_tags=bool(tags),
        progress=progress or (lambda lines: None),
    )
    stamps = [_stamp(corpus) for corpus in data.train]
    with Workers(workers_for(data)) as workers:
        train_profiles = [judge.read(index, corpus, report, workers) for index, corpus in enumerate(data.train)]
    judge.drop_duplicates()
    judge.refuse_nothing_usable()
    if not data.valid:
        held_out = judge.hold_out()
        valid = [_training_pair(pair, data, tags) for pair in held_out]
        report.valid_is_held_out = bool(held_out)
    judge.count(report, num_valid=len(valid), num_test=len(test))
    report.warnings += suspicions([*train_profiles, *profiles])
    return Preflight(data, report, tags, valid, test, judge.verdicts, stamps)


def workers_for(data: DataConfig) -> int:
    """How many processes work on these corpora."""
    return num_workers(data.num_workers, sum(size for corpus in data.train for size, _ in _stamp(corpus)))


def target_languages(data: DataConfig, known: Collection[Direction] = ()) -> tuple[str, ...]:
    """The target languages that need a tag, sorted; none when the model has one target language (unless asked for).

    Valid and test corpora are of directions that are trained, or `known` from before.
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
    wants_tags = data.target_tags if data.target_tags is not None else len(languages) > 1
    if not wants_tags:
        return ()
    watched: set[str | None] = set()
    for corpus in (*data.train, *data.valid, *data.test):
        forward = direction(corpus, data)
        if forward.target is None:
            raise ConfigError(f"corpus {corpus_name(corpus)}: the model has target tags; set its target_language.")
        for way in (forward, Direction(*forward[::-1])) if corpus.both_directions else (forward,):
            if way.target not in languages and not _is_known(way, known):
                raise ConfigError(f"corpus {corpus_name(corpus)}: {_unknown(way, known)}.")
            watched.add(way.target)
    return tuple(sorted(language for language in languages | watched if language is not None))


def _is_known(way: Direction, known: Collection[Direction]) -> bool:
    """Whether a direction is among the known ones; of a source that nobody named, whether any has its target."""
    return any(way.target == pair.target and way.source in (None, pair.source) for pair in known)


def _unknown(way: Direction, known: Collection[Direction]) -> str:
    told = f"no training corpus has the target language {way.target!r}"
    if not known:
        return told
    has = ", ".join(f"{pair.source} → {pair.target}" for pair in known)
    return f"{told}, nor does the model of training.init_from know {way.source or 'any'} → {way.target}; it knows {has}"


def check_files(data: DataConfig) -> None:
    """See that every corpus is there and can be read, before any work."""
    if not data.train:
        raise ConfigError("data.train: no corpus to train on; give two files as source and target, or a path.")
    for corpus in (*data.train, *data.valid, *data.test):
        for path in corpus_files(corpus):
            if os.path.isdir(path):
                raise CorpusError(f"{path}: this is a directory; name a file in it.")
            if not os.path.exists(path):
                raise CorpusError(f"{path}: there is no such file.")
            if not os.path.isfile(path):
                raise CorpusError(f"{path}: a corpus is read more than once, so it must be a file, not a pipe.")
            if not os.access(path, os.R_OK):
                raise CorpusError(f"{path}: no permission to read this file.")


def _stamp(corpus: CorpusConfig) -> tuple[tuple[int, int], ...]:
    stats = [os.stat(path) for path in corpus_files(corpus)]
    return tuple((stat.st_size, stat.st_mtime_ns) for stat in stats)


def _read_small(
    data: DataConfig,
    role: Literal["valid", "test"],
    tags: tuple[str, ...],
    report: PreflightReport,
    profiles: list[Profile],
) -> list[TrainingPair]:
    """Valid or test pairs. Valid leaves out lines that say nothing; test keeps every line, because all are scored."""
    result: list[TrainingPair] = []
    for index, corpus in enumerate(data.valid if role == "valid" else data.test):
        languages = direction(corpus, data)
        described = describe_corpus(role, corpus, languages)
        verdicts: Counter[int] = Counter()
        sample = EvenSample()
        for line, pair in enumerate(read_pairs(corpus)):
            if isinstance(pair, BadLine):
                if role == "test":
                    raise CorpusError(f"{pair}: every line of a test corpus is scored, so this one must be put right.")
                described.first_bad_line = described.first_bad_line or str(pair)
                verdicts[WRONG_ENCODING] += 1
                continue
            verdict = fault_of_text(pair, data.max_characters) if role == "valid" else KEPT
            verdicts[verdict] += 1
            if verdict == KEPT:
                sample.add(pair)
                both = (False, True) if corpus.both_directions else (False,)
                turned = [HeldOutPair(*(pair[::-1] if back else pair), index, line, back) for back in both]
                result += [_training_pair(one, data, tags, corpus) for one in turned]
        fill(described, verdicts)
        report.corpora.append(described)
        profiles.append(Profile(described.name, languages, sample.pairs))
        if described.num_kept == 0:
            raise CorpusError(f"{role} corpus {described.name}: no usable pair: {in_words(described.dropped)}.")
    return result


def _training_pair(
    pair: HeldOutPair, data: DataConfig, tags: tuple[str, ...], corpus: CorpusConfig | None = None
) -> TrainingPair:
    languages = direction(corpus or data.train[pair.corpus_index], data)
    language = languages.source if pair.reverse else languages.target
    return TrainingPair(pair.source, pair.target, pair.corpus_index, language if tags else None)
