"""From corpora to a prepared directory: preflight, tokenizer, ids on disk. What `train` does first, `prepare` alone.

prepared.json          what was asked for, what was found, the width of rows; written last
tokenizer.json, …      the tokenizer
train/  valid/         ids, memory-mapped
valid.jsonl test.jsonl the same sentences as text, to translate and score
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from heedful.config import DataConfig, TokenizerConfig, to_mapping
from heedful.data.store import PairStore, StoreWriter
from heedful.errors import ConfigError, CorpusError, ModelDirectoryError
from heedful.text.cleaning import Preflight, TrainingPair, preflight
from heedful.text.corpus import corpus_files
from heedful.text.tokenizer import Tokenizer, train_tokenizer

FORMAT_VERSION = 1
MANIFEST = "prepared.json"
PAIRS_PER_CHUNK = 10_000
WIDTHS = (128, 256, 512, 1024)
SHARE_TOO_LONG = 0.01

Progress = Callable[[str, int, int | None], None]
"""Told the name of the stage, how many pairs more are done, and of how many (if that is known)."""


@dataclass(frozen=True)
class Prepared:
    """A prepared directory, opened."""

    directory: Path
    tokenizer: Tokenizer
    train: PairStore
    valid: PairStore
    valid_pairs: list[TrainingPair]
    test_pairs: list[TrainingPair]
    row_width: int
    report: dict[str, Any]
    lengths: dict[str, float]

    @classmethod
    def open(cls, directory: str | Path) -> Prepared:
        """Open what `prepare` wrote."""
        folder = Path(directory)
        manifest = read_manifest(folder)
        if manifest is None:
            raise CorpusError(f"{folder}: not a prepared directory (no {MANIFEST}); write one with `heedful prepare`.")
        return cls(
            directory=folder,
            tokenizer=Tokenizer.load(folder),
            train=PairStore.open(folder / "train"),
            valid=PairStore.open(folder / "valid"),
            valid_pairs=_read_pairs(folder / "valid.jsonl"),
            test_pairs=_read_pairs(folder / "test.jsonl"),
            row_width=manifest["row_width"],
            report=manifest["report"],
            lengths=manifest["lengths"],
        )


def prepare(
    data: DataConfig,
    tokenizer_config: TokenizerConfig,
    directory: str | Path,
    *,
    seed: int,
    found: Preflight | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Prepare the corpora; `found` is their preflight, if made already. A finished directory is used as it is."""
    folder, tell = Path(directory), progress or (lambda stage, done, total: None)
    mark = fingerprint(data, tokenizer_config, seed)
    if is_prepared(folder, mark):
        return Prepared.open(folder)
    if found is None:
        found = preflight(data, seed=seed, progress=lambda lines: tell("looking over the corpora", lines, None))
    if not found.valid_pairs:
        raise ConfigError(
            "there are no pairs to validate on: give a valid corpus (data.valid, --valid-source and --valid-target), "
            "or let some be held out (data.valid_pairs above 0, and more than a handful of training pairs)."
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    tokenizer, sample = _obtain_tokenizer(found, tokenizer_config, seed, tell)
    tokenizer.save(folder)
    width = data.row_width or choose_width(tokenizer, sample)
    weights = [corpus.weight for corpus in data.train]
    tell("tokenising", 0, found.num_pairs)
    pairs = _counted(found.pairs(), "tokenising", found.num_pairs, tell)
    num_long = write_store(folder / "train", tokenizer, pairs, width=width, corpus_weights=weights)
    num_long_valid = write_store(folder / "valid", tokenizer, found.valid_pairs, width=width)
    _write_pairs(folder / "valid.jsonl", found.valid_pairs)
    _write_pairs(folder / "test.jsonl", found.test_pairs)
    report = {**found.report.to_dict(), "longer_than_a_row": {"train": num_long, "valid": num_long_valid}}
    lengths = measure_lengths(PairStore.open(folder / "train"), width)
    manifest = {"fingerprint": mark, "row_width": width, "report": report, "lengths": lengths}
    _write_manifest(folder, {"format_version": FORMAT_VERSION, **manifest})
    return Prepared.open(folder)


def is_prepared(directory: Path, mark: str) -> bool:
    """Whether the directory was finished from the same files and settings; a damaged one was not, and is made anew."""
    try:
        manifest = read_manifest(directory)
        if manifest is None or manifest.get("fingerprint") != mark:
            return False
        Prepared.open(directory)
    except (CorpusError, ModelDirectoryError):
        return False
    return True


def fingerprint(data: DataConfig, tokenizer: TokenizerConfig, seed: int) -> str:
    """Changes when the settings, the corpora's files or a given tokenizer's (by size and time) change."""
    files = [path for corpus in (*data.train, *data.valid, *data.test) for path in corpus_files(corpus)]
    files += sorted(map(str, Path(tokenizer.path).glob("*.model"))) if tokenizer.path is not None else []
    stamps = []
    for path in files:
        try:
            status = os.stat(path)
        except OSError as error:
            raise CorpusError(f"{path}: cannot read this corpus: {error.strerror}.") from None
        stamps.append([path, status.st_size, status.st_mtime_ns])
    plain = [FORMAT_VERSION, to_mapping(data), to_mapping(tokenizer), seed, stamps]
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """The manifest of a prepared directory, or None if it was never finished."""
    try:
        manifest = json.loads((directory / MANIFEST).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CorpusError(f"{directory / MANIFEST}: damaged ({error}); run `heedful prepare` again.") from None
    if not isinstance(manifest, dict) or manifest.get("format_version") != FORMAT_VERSION:
        raise CorpusError(f"{directory / MANIFEST}: of another version of heedful; run `heedful prepare` again.")
    for name, kind in {"fingerprint": str, "row_width": int, "report": dict, "lengths": dict}.items():
        if not isinstance(manifest.get(name), kind):
            raise CorpusError(f"{directory / MANIFEST}: damaged at {name!r}; run `heedful prepare` again.")
    return manifest


def choose_width(tokenizer: Tokenizer, sample: Sequence[TrainingPair]) -> int:
    """The narrowest row that holds all but one in a hundred pairs."""
    longest = [max(len(source), len(target)) for source, target in _encode(tokenizer, sample)]
    for width in WIDTHS:
        if sum(length > width for length in longest) <= SHARE_TOO_LONG * len(longest):
            return width
    return WIDTHS[-1]


def write_store(
    directory: Path,
    tokenizer: Tokenizer,
    pairs: Iterable[TrainingPair],
    *,
    width: int,
    corpus_weights: Sequence[float] | None = None,
) -> int:
    """Tokenise pairs into a store; returns how many were left out because a row cannot hold them."""
    num_long, iterator = 0, iter(pairs)
    shutil.rmtree(directory, ignore_errors=True)
    sizes = (tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    with StoreWriter(directory, *sizes, corpus_weights=corpus_weights) as writer:
        while chunk := list(islice(iterator, PAIRS_PER_CHUNK)):
            ids = _encode(tokenizer, chunk)
            fits = [len(source) <= width and len(target) <= width for source, target in ids]
            num_long += len(fits) - sum(fits)
            kept = [(*both, pair.corpus_index) for both, pair, fit in zip(ids, chunk, fits, strict=True) if fit]
            indices = [index if corpus_weights is not None else 0 for _, _, index in kept]
            writer.add([source for source, _, _ in kept], [target for _, target, _ in kept], indices)
        if not writer.num_pairs:
            raise CorpusError(
                f"no pair fits in a row of {width} tokens; set data.row_width to more, or check that the corpora "
                f"have one sentence a line."
            )
    return num_long


def measure_lengths(store: PairStore, width: int) -> dict[str, float]:
    """Typical lengths in tokens; the translator splits texts longer than almost all that the model saw."""
    sample = np.linspace(0, len(store) - 1, num=min(len(store), 100_000)).astype(np.int64)
    source, target = store.source.lengths(sample), store.target.lengths(sample)
    return {
        "row_width": width,
        "source_mean": round(float(source.mean()), 2),
        "target_mean": round(float(target.mean()), 2),
        "source_p99": float(np.percentile(source, 99)),
        "target_p99": float(np.percentile(target, 99)),
    }


def _obtain_tokenizer(
    found: Preflight, config: TokenizerConfig, seed: int, tell: Progress
) -> tuple[Tokenizer, list[TrainingPair]]:
    """The tokenizer, and an even sample of the pairs."""
    sample: list[TrainingPair] = []
    stride = max(1, found.num_pairs // PAIRS_PER_CHUNK)

    def noted() -> Iterator[TrainingPair]:
        for index, pair in enumerate(_counted(found.pairs(), "learning the subwords", found.num_pairs, tell)):
            if index % stride == 0:
                sample.append(pair)
            yield pair

    if config.path is None:
        return train_tokenizer(
            ((pair.source, pair.target) for pair in noted()), config, tags=found.tags, seed=seed
        ), sample
    tokenizer = Tokenizer.load(config.path)
    if set(found.tags) - set(tokenizer.tags):
        missing = ", ".join(sorted(set(found.tags) - set(tokenizer.tags)))
        raise ConfigError(f"tokenizer.path: the tokenizer in {config.path} has no tag for {missing}; train a new one.")
    for _ in noted():
        pass
    return tokenizer, sample


def _encode(tokenizer: Tokenizer, pairs: Sequence[TrainingPair]) -> list[tuple[list[int], list[int]]]:
    threads = os.cpu_count() or 1
    sources: list[list[int]] = [[] for _ in pairs]
    for language in {pair.target_language for pair in pairs}:
        places = [place for place, pair in enumerate(pairs) if pair.target_language == language]
        encoded = tokenizer.encode_sources([pairs[place].source for place in places], language, num_threads=threads)
        for place, ids in zip(places, encoded, strict=True):
            sources[place] = ids
    targets = tokenizer.encode_targets([pair.target for pair in pairs], num_threads=threads)
    return list(zip(sources, targets, strict=True))


def _counted(pairs: Iterable[TrainingPair], stage: str, total: int, tell: Progress) -> Iterator[TrainingPair]:
    """The same pairs, with a word to whoever watches after every chunk."""
    for index, pair in enumerate(pairs, start=1):
        yield pair
        if index % PAIRS_PER_CHUNK == 0:
            tell(stage, PAIRS_PER_CHUNK, total)


def _write_pairs(path: Path, pairs: Iterable[TrainingPair]) -> None:
    with path.open("w", encoding="utf-8", errors="surrogatepass") as file:
        for pair in pairs:
            file.write(json.dumps(pair._asdict(), ensure_ascii=True) + "\n")


def _read_pairs(path: Path) -> list[TrainingPair]:
    try:
        lines = path.read_text("utf-8").split("\n")
        return [TrainingPair(**json.loads(line)) for line in lines if line]
    except (OSError, ValueError, TypeError) as error:
        raise CorpusError(f"{path}: damaged ({error}); run `heedful prepare` again.") from None


def _write_manifest(directory: Path, manifest: dict[str, Any]) -> None:
    temporary = directory / f"{MANIFEST}.incomplete"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(directory / MANIFEST)
