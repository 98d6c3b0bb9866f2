"""From corpora to a prepared directory: preflight, tokenizer, ids on disk. What `train` does first, `prepare` alone.

prepared.json          what was asked for, what was found, the width of rows, checksums of all files; written last
tokenizer.json, …      the tokenizer
train/  valid/         ids, memory-mapped; with the order `blocks` also the rows they make
valid.jsonl test.jsonl the same sentences as text, to translate and score
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from heedful.config import DataConfig, TokenizerConfig
from heedful.config_loading import to_mapping
from heedful.data.mmap_io import check_checksums, with_checksums
from heedful.data.store import PairStore, StoreWriter
from heedful.directory_lock import lock_directory
from heedful.errors import ConfigError, CorpusError, ModelDirectoryError
from heedful.text.chunk_workers import Workers
from heedful.text.corpus import corpus_files, direction
from heedful.text.encode_chunks import Encoded, Encoding, flat_ids, longest_side
from heedful.text.preflight import Preflight, TrainingPair, preflight, workers_for
from heedful.text.tokenizer import Tokenizer, learn_tokenizer, sampled_places

if TYPE_CHECKING:
    from heedful.data.prepacked import ArrangedRows

FORMAT_VERSION = 2
MANIFEST = "prepared.json"
SHARED = ("tokenizer.json", "tokenizer.model", "source.model", "target.model", "valid.jsonl", "test.jsonl")
"""Files beside the stores; parts of one corpus that were prepared apart have them alike, or none has."""
PAIRS_PER_SAMPLE = 10_000
WIDTHS = (128, 256, 512, 1024)
SHARE_TOO_LONG = 0.01

MOST_PAIRS_SHUFFLED = 1 << 24
"""Above this many (about 2 GB, half a minute of packing an epoch) the order is `blocks` unless asked otherwise."""

Order = Literal["pairs", "blocks"]

Progress = Callable[[str, int, int | None], None]
"""Told the name of the stage, how many pairs more are done, and of how many (if that is known)."""
Settled = Callable[[Tokenizer, int], None]
"""Told the tokenizer and the width of a row as soon as they are known, before the corpora are tokenised."""


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

    def arrange(self, tell: Progress) -> ArrangedRows:
        """The rows that the order `blocks` shuffles; they are made unless they stand beside the pairs already."""
        from heedful.data.prepacked import arrange  # needs torch, which preparing else does without

        total, folder = len(self.train), self.directory / "train"
        try:
            return arrange(folder, self.train, self.row_width, tell=lambda done: tell("arranging rows", done, total))
        except CorpusError as error:
            raise CorpusError(
                f"{error} These rows are for data.shuffle=blocks; data.shuffle=pairs needs none."
            ) from None

    def arranged(self) -> ArrangedRows:
        """The rows that `arrange` has made."""
        from heedful.data.prepacked import ArrangedRows

        return ArrangedRows.open(self.directory / "train", self.train, self.row_width)


def prepare(
    data: DataConfig,
    tokenizer_config: TokenizerConfig,
    directory: str | Path,
    *,
    seed: int,
    found: Preflight | None = None,
    progress: Progress | None = None,
    settled: Settled | None = None,
) -> Prepared:
    """Prepare the corpora; `found` is their preflight, if made already. A finished directory is used as it is."""
    folder, tell = Path(directory), progress or (lambda stage, done, total: None)
    mark = fingerprint(data, tokenizer_config, seed)
    with lock_directory(folder):
        if not is_prepared(folder, mark):
            _prepare_anew(data, tokenizer_config, folder, seed=seed, found=found, tell=tell, settled=settled, mark=mark)
        prepared = Prepared.open(folder)
        if chosen_order(data.shuffle, len(prepared.train)) == "blocks":
            prepared.arrange(tell)
    return prepared


def _prepare_anew(
    data: DataConfig,
    tokenizer_config: TokenizerConfig,
    folder: Path,
    *,
    seed: int,
    found: Preflight | None,
    tell: Progress,
    settled: Settled | None,
    mark: str,
) -> None:
    if found is None:
        found = preflight(data, seed=seed, progress=lambda lines: tell("looking over the corpora", lines, None))
    if not found.valid_pairs:
        raise ConfigError(
            "there are no pairs to validate on: give a valid corpus (data.valid, --valid-source and --valid-target), "
            "or let some be held out (data.num_valid_pairs above 0, and more than a handful of training pairs)."
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    tokenizer, sample = _obtain_tokenizer(found, tokenizer_config, seed, tell)
    tokenizer.save(folder)
    width = data.row_width or choose_width(tokenizer, sample)
    if settled is not None:
        settled(tokenizer, width)
    num_long = write_training_store(folder, tokenizer, found, width=width, tell=tell)
    num_long_valid = write_store(folder / "valid", tokenizer, found.valid_pairs, width=width)
    _write_pairs(folder / "valid.jsonl", found.valid_pairs)
    _write_pairs(folder / "test.jsonl", found.test_pairs)
    report = {**found.report.to_dict(), "longer_than_a_row": {"train": num_long, "valid": num_long_valid}}
    lengths = measure_lengths(PairStore.open(folder / "train"), width)
    manifest = {"fingerprint": mark, "row_width": width, "report": report, "lengths": lengths}
    write_manifest(folder, manifest)


def chosen_order(order: Order | None, num_pairs: int) -> Order:
    """The order of the epochs, where none was asked for: one that goes with the size of the corpora."""
    return order or ("blocks" if num_pairs > MOST_PAIRS_SHUFFLED else "pairs")


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
    harmless = ("num_workers", "shuffle")  # they change no id
    settings = {name: value for name, value in to_mapping(data).items() if name not in harmless}
    plain = [FORMAT_VERSION, settings, to_mapping(tokenizer), seed, stamps]
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
    check_checksums(directory / MANIFEST, manifest)
    return manifest


def choose_width(tokenizer: Tokenizer, sample: Sequence[TrainingPair]) -> int:
    """The narrowest row that holds all but one in a hundred pairs."""
    longest = longest_side(tokenizer, sample)
    for width in WIDTHS:
        if (longest > width).sum() <= SHARE_TOO_LONG * len(longest):
            return width
    return WIDTHS[-1]


def write_store(directory: Path, tokenizer: Tokenizer, pairs: Sequence[TrainingPair], *, width: int) -> int:
    """Tokenise pairs into a store; returns how many were left out because a row cannot hold them."""
    with new_store(directory, tokenizer) as writer:
        encoded = flat_ids(tokenizer, pairs, width)
        writer.add_flat(*encoded[:4], corpus_index=0)
        _require_pairs(writer, width)
    return int(encoded.num_long[0])


def write_training_store(folder: Path, tokenizer: Tokenizer, found: Preflight, *, width: int, tell: Progress) -> int:
    """Tokenise the kept pairs into `train/`, in several processes; returns how many a row cannot hold.

    What each process makes of its chunk is appended in the order of the corpora: their number changes no byte.
    """
    num_long, stage = 0, "tokenising"
    tell(stage, 0, found.num_pairs)
    weights = evened_weights(found)
    store = new_store(folder / "train", tokenizer, corpus_weights=weights)
    with store as writer, Workers(workers_for(found.data)) as workers:
        for index, corpus in enumerate(found.data.train):
            work = Encoding(corpus=corpus, tokenizer=str(folder), width=width, languages=found.languages(index))
            chunks = ((len(chunk), chunk) for chunk in found.kept_chunks(index) if len(chunk))
            for num_lines, arrays in workers.in_order(work, chunks):
                encoded = Encoded(*arrays)
                writer.add_flat(*encoded[:4], corpus_index=index)
                num_long += int(encoded.num_long[0])
                tell(stage, num_lines * len(work.languages), found.num_pairs)
        _require_pairs(writer, width)
    return num_long


def evened_weights(found: Preflight) -> list[float]:
    """The weights of the corpora, raised for languages with less text as `data.temperature` asks."""
    corpora = found.data.train
    kept = [corpus.num_kept for corpus in found.report.corpora if corpus.role == "train"]
    languages = [frozenset(filter(None, direction(corpus, found.data))) for corpus in corpora]
    text: dict[frozenset[str], float] = {}
    for corpus, number, pair in zip(corpora, kept, languages, strict=True):
        text[pair] = text.get(pair, 0.0) + corpus.weight * number
    power = 1 - 1 / found.data.temperature
    most = max(text.values())
    return [
        corpus.weight * (most / text[pair]) ** power if text[pair] else corpus.weight
        for corpus, pair in zip(corpora, languages, strict=True)
    ]


def new_store(directory: Path, tokenizer: Tokenizer, corpus_weights: Sequence[float] | None = None) -> StoreWriter:
    """A writer of a store in place of what may stand there."""
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
    markers = sorted({corpus.source_tag for corpus in found.data.train if corpus.source_tag})
    even = np.arange(0, found.num_pairs, max(1, found.num_pairs // PAIRS_PER_SAMPLE))
    if config.path is not None:
        return _given_tokenizer(config.path, found.tags, markers), list(found.chosen(even))
    places = sampled_places(found.num_pairs, config, seed=seed)
    wanted = np.union1d(places, even)
    pairs: list[TrainingPair] = []
    tell("learning the subwords", 0, len(wanted))
    for pair in found.chosen(wanted):
        pairs.append(pair)
        if len(pairs) % PAIRS_PER_SAMPLE == 0:
            tell("learning the subwords", PAIRS_PER_SAMPLE, len(wanted))
    sample = [pairs[at] for at in np.searchsorted(wanted, places).tolist()]
    texts = [(pair.source, pair.target) for pair in sample]
    tokenizer = learn_tokenizer(texts, config, num_pairs=found.num_pairs, tags=found.tags, markers=markers)
    return tokenizer, [pairs[at] for at in np.searchsorted(wanted, even).tolist()]


def _given_tokenizer(path: str, tags: Sequence[str], markers: Sequence[str]) -> Tokenizer:
    tokenizer = Tokenizer.load(path)
    for wanted, known, what in ((tags, tokenizer.tags, "tag for"), (markers, tokenizer.markers, "marker")):
        if set(wanted) - set(known):
            missing = ", ".join(sorted(set(wanted) - set(known)))
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise ConfigError(
                f"tokenizer.path (or training.init_from): the tokenizer in {path} has no {what} {missing} ({has}) "
                f"that these corpora need; leave such corpora out, or train a new tokenizer and model."
            )
    if len(tokenizer.tags) > 1 and not tags:  # a source without its tag would be nothing that the model knows
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
    """Finish a prepared directory; rows that are made later beside the pairs have a manifest of their own."""
    stores = [path for side in ("train", "valid") for path in (directory / side).iterdir()]
    names = [path.relative_to(directory).as_posix() for path in stores if not path.name.startswith("rows.")]
    names += [name for name in SHARED if (directory / name).exists()]
    sealed = with_checksums(directory, {"format_version": FORMAT_VERSION, **manifest}, names)
    temporary = directory / f"{MANIFEST}.incomplete"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(sealed, file, indent=2, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(directory / MANIFEST)
