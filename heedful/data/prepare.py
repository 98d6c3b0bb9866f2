"""Prepared directories: from corpora to token ids on disk. The first stage of `train`, and all of `prepare`.

prepared.json          settings, report, row width, and checksums of all files; written last
tokenizer.json, …      the tokenizer
train/  valid/         token ids, memory-mapped; with `data.shuffle=blocks` also packed rows
valid.jsonl test.jsonl the same sentences as text, to translate and score

`merge_prepared` merges parts of a corpus that were prepared separately. The parts share a tokenizer (`tokenizer.path`),
a row width, and the validation and test sets. The result is byte for byte what preparing all corpora at once gives,
except that duplicates across parts are kept: each part drops only its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from heedful.atomic_files import replace_file
from heedful.config import DataConfig, TokenizerConfig
from heedful.config_loading import to_mapping
from heedful.data.store import PairStore, StoreWriter, add_checksums, verify_checksums
from heedful.directory_lock import lock_directory
from heedful.errors import ConfigError, CorpusError, ModelDirectoryError
from heedful.text.corpus import corpus_files, direction
from heedful.text.corpus_chunks import Encoded, EncodeLines, Workers, flat_ids, longest_side
from heedful.text.preflight import Preflight, TrainingPair, preflight, workers_for
from heedful.text.tokenizer import MASK, Tokenizer, sample_indices, train_tokenizer_on_sample

if TYPE_CHECKING:
    from heedful.data.packing import PrepackedRows

FORMAT_VERSION = 2
MANIFEST = "prepared.json"
SHARED_FILES = ("tokenizer.json", "tokenizer.model", "source.model", "target.model", "valid.jsonl", "test.jsonl")
"""Files outside the stores; they are equal, or equally missing, in parts that can be merged."""
PAIRS_PER_SAMPLE = 10_000
WIDTHS = (128, 256, 512, 1024)
MAX_SHARE_TOO_LONG = 0.01

MAX_PAIRS_TO_SHUFFLE = 1 << 24
"""Above this many pairs (about 2 GB, half a minute of packing per epoch) the default of `data.shuffle` is "blocks"."""
PAIRS_PER_MERGE_STEP = 1 << 18

Shuffle = Literal["pairs", "blocks"]

Progress = Callable[[str, int, int | None], None]
"""Called with the name of the stage, the pairs done since the last call, and the total, if known."""
TokenizerReady = Callable[[Tokenizer, int], None]
"""Called with the tokenizer and the row width as soon as they are known, before the corpora are tokenised."""


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
        """Open a directory that `prepare` wrote."""
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

    def prepack(self, progress: Progress) -> PrepackedRows:
        """Pack the training pairs into the rows that `data.shuffle=blocks` shuffles, unless they exist."""
        from heedful.data.packing import prepack  # imports torch, which the rest of preparing does not need

        total, folder = len(self.train), self.directory / "train"
        try:
            return prepack(
                folder, self.train, self.row_width, progress=lambda done: progress("packing rows", done, total)
            )
        except CorpusError as error:
            raise CorpusError(
                f"{error} These rows are for data.shuffle=blocks; data.shuffle=pairs does not need them."
            ) from None

    def open_prepacked(self) -> PrepackedRows:
        """The rows that `prepack` wrote."""
        from heedful.data.packing import PrepackedRows

        return PrepackedRows.open(self.directory / "train", self.train, self.row_width)


def prepare(
    data: DataConfig,
    tokenizer_config: TokenizerConfig,
    directory: str | Path,
    *,
    seed: int,
    checked: Preflight | None = None,
    progress: Progress | None = None,
    on_tokenizer: TokenizerReady | None = None,
) -> Prepared:
    """Prepare the corpora. A directory prepared from the same files and settings is reused.

    `checked` is the preflight of these corpora, if it has run already.
    """
    folder, progress = Path(directory), progress or (lambda stage, done, total: None)
    fingerprint = prepared_fingerprint(data, tokenizer_config, seed)
    with lock_directory(folder):
        if not is_prepared(folder, fingerprint):
            if checked is None:
                checked = preflight(
                    data, seed=seed, progress=lambda lines: progress("scanning the corpora", lines, None)
                )
            if not checked.valid_pairs:
                raise ConfigError(
                    "there are no pairs to validate on: give a validation corpus (data.valid, --valid-source and "
                    "--valid-target), or hold some out (data.num_valid_pairs above 0, and more training pairs)."
                )
            folder.mkdir(parents=True, exist_ok=True)
            (folder / MANIFEST).unlink(missing_ok=True)
            contents = _write_contents(
                folder, checked, tokenizer_config, seed=seed, progress=progress, on_tokenizer=on_tokenizer
            )
            write_manifest(folder, {"fingerprint": fingerprint, **contents})
        prepared = Prepared.open(folder)
        if resolve_shuffle(data.shuffle, len(prepared.train)) == "blocks":
            prepared.prepack(progress)
    return prepared


def _write_contents(
    folder: Path,
    checked: Preflight,
    tokenizer_config: TokenizerConfig,
    *,
    seed: int,
    progress: Progress,
    on_tokenizer: TokenizerReady | None,
) -> dict[str, Any]:
    """Write tokenizer, stores and sentences; returns the values for the manifest."""
    tokenizer, sample = _make_tokenizer(checked, tokenizer_config, seed, progress)
    tokenizer.save(folder)
    width = checked.data.row_width or choose_width(tokenizer, sample)
    if on_tokenizer is not None:
        on_tokenizer(tokenizer, width)
    num_long = write_training_store(folder, tokenizer, checked, width=width, progress=progress)
    num_long_valid = write_store(folder / "valid", tokenizer, checked.valid_pairs, width=width)
    _write_pairs(folder / "valid.jsonl", checked.valid_pairs)
    _write_pairs(folder / "test.jsonl", checked.test_pairs)
    report = {**checked.report.to_dict(), "longer_than_a_row": {"train": num_long, "valid": num_long_valid}}
    lengths = measure_lengths(PairStore.open(folder / "train"), width)
    return {"row_width": width, "report": report, "lengths": lengths}


def resolve_shuffle(shuffle: Shuffle | None, num_pairs: int) -> Shuffle:
    """`data.shuffle`, or by default the order that suits the size of the corpora."""
    return shuffle or ("blocks" if num_pairs > MAX_PAIRS_TO_SHUFFLE else "pairs")


def is_prepared(directory: Path, fingerprint: str) -> bool:
    """Whether the directory is complete, undamaged and made from the same files and settings."""
    try:
        manifest = read_manifest(directory)
        if manifest is None or manifest.get("fingerprint") != fingerprint:
            return False
        Prepared.open(directory)
    except (CorpusError, ModelDirectoryError):
        return False
    return True


def prepared_fingerprint(data: DataConfig, tokenizer: TokenizerConfig, seed: int) -> str:
    """A hash of the settings and of the size and time of the files of the corpora and of a given tokenizer."""
    files = [path for corpus in (*data.train, *data.valid, *data.test) for path in corpus_files(corpus)]
    files += sorted(map(str, Path(tokenizer.path).glob("*.model"))) if tokenizer.path is not None else []
    stamps = []
    for path in files:
        try:
            status = os.stat(path)
        except OSError as error:
            raise CorpusError(f"{path}: cannot read this corpus: {error.strerror}.") from None
        stamps.append([path, status.st_size, status.st_mtime_ns])
    unrelated = ("num_workers", "shuffle")  # do not affect the ids
    settings = {name: value for name, value in to_mapping(data).items() if name not in unrelated}
    plain = [FORMAT_VERSION, settings, to_mapping(tokenizer), seed, stamps]
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """The manifest of a prepared directory, or None if it is incomplete."""
    try:
        manifest = json.loads((directory / MANIFEST).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CorpusError(f"{directory / MANIFEST}: damaged ({error}); run `heedful prepare` again.") from None
    if not isinstance(manifest, dict) or manifest.get("format_version") != FORMAT_VERSION:
        raise CorpusError(
            f"{directory / MANIFEST}: written by another version of heedful; run `heedful prepare` again."
        )
    for name, kind in {"fingerprint": str, "row_width": int, "report": dict, "lengths": dict}.items():
        if not isinstance(manifest.get(name), kind):
            raise CorpusError(f"{directory / MANIFEST}: damaged at {name!r}; run `heedful prepare` again.")
    verify_checksums(directory / MANIFEST, manifest)
    return manifest


def choose_width(tokenizer: Tokenizer, sample: Sequence[TrainingPair]) -> int:
    """The narrowest row that fits at least 99 % of the pairs."""
    longest = longest_side(tokenizer, sample)
    for width in WIDTHS:
        if (longest > width).sum() <= MAX_SHARE_TOO_LONG * len(longest):
            return width
    return WIDTHS[-1]


def write_store(directory: Path, tokenizer: Tokenizer, pairs: Sequence[TrainingPair], *, width: int) -> int:
    """Tokenise pairs into a store; returns how many were dropped as longer than a row."""
    with new_store(directory, tokenizer) as writer:
        encoded = flat_ids(tokenizer, pairs, width)
        writer.add_flat(*encoded[:4], corpus_index=0)
        _require_pairs(writer, width)
    return int(encoded.num_long[0])


def write_training_store(
    folder: Path, tokenizer: Tokenizer, checked: Preflight, *, width: int, progress: Progress
) -> int:
    """Tokenise the training pairs into `train/`; returns how many were dropped as longer than a row.

    Results of the worker processes are appended in corpus order, so the bytes do not depend on the number of workers.
    """
    num_long, stage = 0, "tokenising"
    progress(stage, 0, checked.num_pairs)
    weights = temperature_weights(checked)
    store = new_store(folder / "train", tokenizer, corpus_weights=weights)
    with store as writer, Workers(workers_for(checked.data)) as workers:
        for index, corpus in enumerate(checked.data.train):
            work = EncodeLines(corpus=corpus, tokenizer=str(folder), width=width, languages=checked.languages(index))
            chunks = ((len(chunk), chunk) for chunk in checked.kept_chunks(index) if len(chunk))
            for num_lines, arrays in workers.map_in_order(work, chunks):
                encoded = Encoded(*arrays)
                writer.add_flat(*encoded[:4], corpus_index=index)
                num_long += int(encoded.num_long[0])
                progress(stage, num_lines * len(work.languages), checked.num_pairs)
        _require_pairs(writer, width)
    return num_long


def temperature_weights(checked: Preflight) -> list[float]:
    """The weights of the corpora; a `data.temperature` above 1 raises those of language pairs with less text."""
    corpora = checked.data.train
    num_kept = [corpus.num_kept for corpus in checked.report.corpora if corpus.role == "train"]
    language_pairs = [frozenset(filter(None, direction(corpus, checked.data))) for corpus in corpora]
    sizes: dict[frozenset[str], float] = {}
    for corpus, num_pairs, languages in zip(corpora, num_kept, language_pairs, strict=True):
        sizes[languages] = sizes.get(languages, 0.0) + corpus.weight * num_pairs
    power = 1 - 1 / checked.data.temperature
    largest = max(sizes.values())
    return [
        corpus.weight * (largest / sizes[languages]) ** power if sizes[languages] else corpus.weight
        for corpus, languages in zip(corpora, language_pairs, strict=True)
    ]


def new_store(directory: Path, tokenizer: Tokenizer, corpus_weights: Sequence[float] | None = None) -> StoreWriter:
    """A writer of a store that replaces an existing one."""
    shutil.rmtree(directory, ignore_errors=True)
    sizes = (tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    return StoreWriter(directory, *sizes, corpus_weights=corpus_weights)


def _require_pairs(writer: StoreWriter, width: int) -> None:
    if not writer.num_pairs:
        raise CorpusError(
            f"no pair fits in a row of {width} tokens; set data.row_width to more, or check that the corpora "
            f"have one sentence a line."
        )


def measure_lengths(store: PairStore, width: int) -> dict[str, float]:
    """Mean and 99th percentile lengths in tokens; the translator splits texts longer than nearly all training text."""
    sample = np.linspace(0, len(store) - 1, num=min(len(store), 100_000)).astype(np.int64)
    source, target = store.source.lengths(sample), store.target.lengths(sample)
    return {
        "row_width": width,
        "source_mean": round(float(source.mean()), 2),
        "target_mean": round(float(target.mean()), 2),
        "source_p99": float(np.percentile(source, 99)),
        "target_p99": float(np.percentile(target, 99)),
    }


def _make_tokenizer(
    checked: Preflight, config: TokenizerConfig, seed: int, progress: Progress
) -> tuple[Tokenizer, list[TrainingPair]]:
    """Train or load the tokenizer; returns it with an evenly spaced sample of the pairs."""
    source_tags = sorted({corpus.source_tag for corpus in checked.data.train if corpus.source_tag})
    has_mask = any(corpus.text for corpus in checked.data.train)  # for a masked language model; else it is not used
    even = np.arange(0, checked.num_pairs, max(1, checked.num_pairs // PAIRS_PER_SAMPLE))
    if config.path is not None:
        return _load_tokenizer(config.path, checked.tags, source_tags), list(checked.select_pairs(even))
    sampled = sample_indices(checked.num_pairs, config, seed=seed)
    selected = np.union1d(sampled, even)
    pairs: list[TrainingPair] = []
    progress("training the tokenizer", 0, len(selected))
    for pair in checked.select_pairs(selected):
        pairs.append(pair)
        if len(pairs) % PAIRS_PER_SAMPLE == 0:
            progress("training the tokenizer", PAIRS_PER_SAMPLE, len(selected))
    sample = [pairs[index] for index in np.searchsorted(selected, sampled).tolist()]
    tokenizer = train_tokenizer_on_sample(
        [(pair.source, pair.target) for pair in sample],
        config,
        num_pairs=checked.num_pairs,
        tags=checked.tags,
        source_tags=[*source_tags, MASK] if has_mask else source_tags,
    )
    return tokenizer, [pairs[index] for index in np.searchsorted(selected, even).tolist()]


def _load_tokenizer(path: str, tags: Sequence[str], source_tags: Sequence[str]) -> Tokenizer:
    """A trained tokenizer, which must have every tag that the corpora need."""
    tokenizer = Tokenizer.load(path)
    for needed, known, what in ((tags, tokenizer.tags, "tag for"), (source_tags, tokenizer.source_tags, "source tag")):
        if set(needed) - set(known):
            missing = ", ".join(sorted(set(needed) - set(known)))
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise ConfigError(
                f"tokenizer.path (or training.init_from): the tokenizer in {path} has no {what} {missing} ({has}) "
                f"that these corpora need; leave such corpora out, or train a new tokenizer and model."
            )
    if len(tokenizer.tags) > 1 and not tags:  # the model has never seen a source without its tag
        raise ConfigError(
            f"tokenizer.path: the tokenizer in {path} puts a tag for the target language ({', '.join(tokenizer.tags)}) "
            f"before each source; set data.target_tags=true and a target_language for each corpus."
        )
    return tokenizer


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


def write_manifest(directory: Path, manifest: dict[str, Any]) -> None:
    """Complete a prepared directory. Prepacked rows have their own manifest."""
    stores = [path for side in ("train", "valid") for path in (directory / side).iterdir()]
    names = [path.relative_to(directory).as_posix() for path in stores if not path.name.startswith("rows.")]
    names += [name for name in SHARED_FILES if (directory / name).exists()]
    manifest = add_checksums(directory, {"format_version": FORMAT_VERSION, **manifest}, names)
    replace_file(directory / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False))


# ---- merging prepared directories ------------------------------------------------------------------------------------


def merge_prepared(parts: Sequence[str | Path], directory: str | Path, *, progress: Progress | None = None) -> Prepared:
    """Merge prepared directories, in the order given, into one."""
    opened = [Prepared.open(part) for part in parts]
    _require_compatible(opened)
    with lock_directory(directory):
        return _merge(opened, parts, Path(directory), progress or (lambda stage, done, total: None))


def _merge(opened: Sequence[Prepared], parts: Sequence[str | Path], folder: Path, progress: Progress) -> Prepared:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    first = opened[0]
    for name in SHARED_FILES:
        (folder / name).unlink(missing_ok=True)
        if (first.directory / name).exists():
            shutil.copyfile(first.directory / name, folder / name)
    shutil.rmtree(folder / "valid", ignore_errors=True)
    shutil.copytree(first.directory / "valid", folder / "valid")
    weights = [weight for part in opened for weight in part.train.corpus_weights]
    with new_store(folder / "train", first.tokenizer, corpus_weights=weights) as writer:
        total, num_corpora = sum(len(part.train) for part in opened), 0
        for part in opened:
            for done in _append_store(writer, part.train, first_corpus=num_corpora):
                progress("merging", done, total)
            num_corpora += len(part.train.corpus_weights)
    manifest = {
        "fingerprint": merged_fingerprint(parts),
        "row_width": first.row_width,
        "report": _merge_reports([part.report for part in opened]),
        "lengths": measure_lengths(PairStore.open(folder / "train"), first.row_width),
    }
    write_manifest(folder, manifest)
    return Prepared.open(folder)


def _require_compatible(parts: Sequence[Prepared]) -> None:
    """Raise `ConfigError` for parts that cannot be merged."""
    first = parts[0]
    for part in parts[1:]:
        if part.row_width != first.row_width:
            raise ConfigError(
                f"{part.directory} has rows of {part.row_width} tokens and {first.directory} of {first.row_width}: "
                f"prepare them with the same data.row_width."
            )
        for name in SHARED_FILES:
            if _content(part.directory / name) == _content(first.directory / name):
                continue
            key = f"data.{Path(name).stem}" if name.endswith(".jsonl") else "tokenizer.path"
            raise ConfigError(
                f"{part.directory / name} differs from that of {first.directory}: "
                f"prepare all parts with the same {key}."
            )


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _append_store(writer: StoreWriter, store: PairStore, *, first_corpus: int) -> Iterator[int]:
    """Append all pairs of a store in pieces of one corpus; yields the number of pairs in each."""
    start = 0
    while start < len(store):
        piece = store.corpora[start : start + PAIRS_PER_MERGE_STEP]
        same = piece == piece[0]
        stop = start + (len(piece) if same.all() else int(same.argmin()))
        sides = []
        for side in (store.source, store.target):
            offsets = side.offsets[start : stop + 1]
            sides += [side.ids[offsets[0] : offsets[-1]], offsets[1:] - offsets[:-1]]
        writer.add_flat(*sides, corpus_index=first_corpus + int(piece[0]))
        yield stop - start
        start = stop


def merged_fingerprint(parts: Sequence[str | Path]) -> str:
    """A hash of the fingerprints of the parts, in order."""
    fingerprints = [(read_manifest(Path(part)) or {}).get("fingerprint") for part in parts]
    return hashlib.sha256(json.dumps(["joined", *fingerprints]).encode()).hexdigest()


def _merge_reports(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One report of all parts: the training corpora of each, and the shared validation and test corpora once."""
    train = [corpus for report in reports for corpus in report["corpora"] if corpus["role"] == "train"]
    shared = [corpus for corpus in reports[0]["corpora"] if corpus["role"] != "train"]
    num_long = sum(report["longer_than_a_row"]["train"] for report in reports)
    overlaps = {
        name: dict(sum((Counter(report[name]) for report in reports), Counter()))
        for name in ("overlap", "shared_sources")
    }
    return {
        **reports[0],
        **overlaps,
        "corpora": [*train, *shared],
        "num_pairs": sum(report["num_pairs"] for report in reports),
        "warnings": list(dict.fromkeys(warning for report in reports for warning in report["warnings"])),
        "longer_than_a_row": {**reports[0]["longer_than_a_row"], "train": num_long},
    }
