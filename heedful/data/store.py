"""Tokenised pairs on disk: written once as a stream and memory-mapped, so that corpora may be larger than memory.

A store is a directory. `source.ids` holds the ids of all source sentences one after the other, and sentence i is
`ids[offsets[i]:offsets[i + 1]]`; the target likewise. `corpora` holds the corpus each pair came from. `store.json`
holds the sizes; it is written last, so a directory without it is incomplete. Opening a store loads nothing into memory.
In addition to the ids, a pair takes 18 bytes on disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.atomic_files import AtomicFile
from heedful.errors import CorpusError, remedy_for
from heedful.text.tokenizer import id_type

FORMAT_VERSION = 1
OFFSET_TYPE = np.dtype("<i8")
CORPUS_TYPE = np.dtype("<u2")
MANIFEST = "store.json"
REMEDY = "run `heedful prepare` again"


class _SideWriter:
    """Appends the sentences of one side; the files end in `.partial` until `finish`."""

    def __init__(self, directory: Path, side: str, vocab_size: int) -> None:
        self.side, self.vocab_size = side, vocab_size
        self.num_tokens = self.longest = 0
        self.ids = PartialFile(directory / f"{side}.ids")
        self.offsets = PartialFile(directory / f"{side}.offsets")
        self.digest = hashlib.sha256()
        self._write_offsets(np.zeros(1, dtype=OFFSET_TYPE))

    def check(self, flat: NDArray[Any], lengths: NDArray[Any]) -> None:
        """Raise ValueError for empty sentences and for ids outside the vocabulary."""
        if lengths.sum() != flat.size:
            raise ValueError(f"{self.side}: {flat.size} ids, but the lengths add up to {lengths.sum()}.")
        if lengths.size and lengths.min() <= 0:
            raise ValueError(
                f"{self.side} sentence {int(lengths.argmin())} of this call has no ids, not even the end token."
            )
        if flat.size and not 0 <= flat.min() <= flat.max() < self.vocab_size:
            raise ValueError(f"{self.side} ids must lie in [0, {self.vocab_size}), not {flat.min()} to {flat.max()}.")

    def append(self, flat: NDArray[Any], lengths: NDArray[Any]) -> None:
        """Write sentences that passed `check`."""
        self.ids.write(flat.astype(id_type(self.vocab_size), copy=False))
        self._write_offsets((self.num_tokens + np.cumsum(lengths)).astype(OFFSET_TYPE))
        self.num_tokens += flat.size
        self.longest = max(self.longest, int(lengths.max(initial=0)))

    def _write_offsets(self, offsets: NDArray[np.int64]) -> None:
        self.digest.update(offsets.data)
        self.offsets.write(offsets)

    def manifest(self) -> dict[str, Any]:
        """The entry of this side in `store.json`."""
        return {
            "vocab_size": self.vocab_size,
            "dtype": id_type(self.vocab_size).name,
            "num_tokens": self.num_tokens,
            "longest": self.longest,
            "offsets_sha256": self.digest.hexdigest(),
        }


class StoreWriter:
    """Writes a store batch by batch, holding one batch in memory. As a context manager it closes, or aborts on error.

    `corpus_weights` (one for each corpus, by default all 1.0) are for `BatchStream`: how often a pair appears per
    epoch.
    """

    def __init__(
        self,
        directory: str | Path,
        source_vocab_size: int,
        target_vocab_size: int,
        *,
        corpus_weights: Sequence[float] | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.corpus_weights = None if corpus_weights is None else [float(weight) for weight in corpus_weights]
        self.num_pairs = self.num_corpora = 0
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            (self.directory / MANIFEST).unlink(missing_ok=True)  # so that an older store is not taken for this one
        except OSError as error:
            raise write_error(self.directory, error) from None
        self._source = _SideWriter(self.directory, "source", source_vocab_size)
        self._target = _SideWriter(self.directory, "target", target_vocab_size)
        self._corpora = PartialFile(self.directory / "corpora")
        self._open = True

    @property
    def _files(self) -> tuple[PartialFile, ...]:
        return self._source.ids, self._source.offsets, self._target.ids, self._target.offsets, self._corpora

    def add(
        self,
        source_ids: Sequence[Sequence[int]],
        target_ids: Sequence[Sequence[int]],
        corpus_indices: Sequence[int],
    ) -> None:
        """Append pairs: the ids of both sides as the tokenizer returns them, and the corpus each pair came from."""
        if not len(source_ids) == len(target_ids) == len(corpus_indices):
            raise ValueError(f"{len(source_ids)} sources, {len(target_ids)} targets, {len(corpus_indices)} corpora.")
        corpora = np.asarray(corpus_indices, dtype=np.int64)
        self._add(_flat(source_ids), _flat(target_ids), corpora)

    def add_flat(
        self,
        source: NDArray[Any],
        source_lengths: NDArray[np.int64],
        target: NDArray[Any],
        target_lengths: NDArray[np.int64],
        *,
        corpus_index: int,
    ) -> None:
        """Append pairs of one corpus: the concatenated ids of each side, and the length of each sentence."""
        if source_lengths.size != target_lengths.size:
            raise ValueError(f"{source_lengths.size} sources, {target_lengths.size} targets.")
        corpora = np.full(source_lengths.size, corpus_index)
        self._add((source, source_lengths), (target, target_lengths), corpora)

    def _add(
        self,
        source: tuple[NDArray[Any], NDArray[np.int64]],
        target: tuple[NDArray[Any], NDArray[np.int64]],
        corpora: NDArray[np.int64],
    ) -> None:
        num_corpora = 1 << 16 if self.corpus_weights is None else len(self.corpus_weights)
        if corpora.size and not 0 <= corpora.min() <= corpora.max() < num_corpora:
            raise ValueError(f"corpus indices must lie in [0, {num_corpora}), not {corpora.min()} to {corpora.max()}.")
        self._source.check(*source)
        self._target.check(*target)
        self._source.append(*source)
        self._target.append(*target)
        self._corpora.write(corpora.astype(CORPUS_TYPE))
        self.num_pairs += corpora.size
        self.num_corpora = max(self.num_corpora, int(corpora.max(initial=-1)) + 1)

    def close(self) -> None:
        """Finish the store: sync every file to disk under its final name, `store.json` last."""
        if not self._open:
            return
        weights = [1.0] * self.num_corpora if self.corpus_weights is None else self.corpus_weights
        manifest = {
            "format_version": FORMAT_VERSION,
            "num_pairs": self.num_pairs,
            "corpus_weights": weights,
            "source": self._source.manifest(),
            "target": self._target.manifest(),
        }
        for file in self._files:
            file.commit()
        write_manifest(self.directory / MANIFEST, manifest)
        self._open = False

    def abort(self) -> None:
        """Remove the files written so far."""
        if self._open:
            for file in self._files:
                file.discard()
            self._open = False

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def _flat(sentences: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    lengths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
    return np.fromiter(chain.from_iterable(sentences), dtype=np.int64, count=int(lengths.sum())), lengths


@dataclass(frozen=True)
class Side:
    """All sentences of one side: sentence i is `ids[offsets[i]:offsets[i + 1]]`."""

    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    vocab_size: int
    longest: int
    """Tokens of the longest sentence."""
    recorded_sha256: str | None = None
    """SHA-256 of the offsets; None in stores written before it was recorded."""

    @cached_property
    def offsets_sha256(self) -> str:
        """A hash of the lengths of all sentences."""
        return self.recorded_sha256 or hashlib.sha256(self.offsets.data).hexdigest()

    @property
    def num_tokens(self) -> int:
        """The total number of tokens."""
        return int(self.ids.size)

    def lengths(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of tokens of each given sentence."""
        return np.asarray(self.offsets[pairs + 1] - self.offsets[pairs])

    def sentence(self, pair: int) -> list[int]:
        """The ids of one sentence."""
        ids: list[int] = self.ids[self.offsets[pair] : self.offsets[pair + 1]].tolist()
        return ids


@dataclass(frozen=True)
class PairStore:
    """A finished store, memory-mapped: only what is accessed is read from disk."""

    source: Side
    target: Side
    corpora: NDArray[np.uint16]
    """The corpus index of each pair."""
    corpus_weights: tuple[float, ...]

    def __len__(self) -> int:
        return int(self.corpora.size)

    @property
    def lengths_fingerprint(self) -> str:
        """A hash of the lengths of all sentences of both sides."""
        return f"{self.source.offsets_sha256} {self.target.offsets_sha256}"

    def pair(self, index: int) -> tuple[list[int], list[int]]:
        """The ids of one pair, as they were added."""
        return self.source.sentence(index), self.target.sentence(index)

    def corpus_run_starts(self, step: int = 1 << 20) -> NDArray[np.int64]:
        """The first pair of each run of pairs from one corpus; read in pieces, to keep memory flat."""
        parts = [np.zeros(min(len(self), 1), dtype=np.int64)]
        for start in range(1, len(self), step):
            piece = self.corpora[start - 1 : start + step]
            parts.append(start + np.flatnonzero(piece[1:] != piece[:-1]))
        return np.concatenate(parts)

    @staticmethod
    def open(directory: str | Path) -> PairStore:
        """Map the files of a store; `CorpusError` if the directory is not a complete store."""
        directory = Path(directory)
        manifest = _read_manifest(directory / MANIFEST)
        try:
            num_pairs = int(manifest["num_pairs"])
            weights = tuple(float(weight) for weight in manifest["corpus_weights"])
            source = _open_side(directory, "source", manifest["source"], num_pairs)
            target = _open_side(directory, "target", manifest["target"], num_pairs)
        except (KeyError, TypeError, ValueError) as error:
            raise CorpusError(f"{directory / MANIFEST}: a field is missing or damaged ({error!r}); {REMEDY}.") from None
        corpora = map_array(directory / "corpora", CORPUS_TYPE, num_pairs)
        return PairStore(source=source, target=target, corpora=corpora, corpus_weights=weights)


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise CorpusError(f"{path}: not found, so this is not a complete store of tokenised pairs; {REMEDY}.")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path}: cannot be read ({error}); {REMEDY}.") from None
    version = manifest.get("format_version") if isinstance(manifest, dict) else None
    if version != FORMAT_VERSION:
        raise CorpusError(f"{path}: format version {version} is not supported, only {FORMAT_VERSION}; {REMEDY}.")
    return dict(manifest)


def _open_side(directory: Path, side: str, manifest: dict[str, Any], num_pairs: int) -> Side:
    vocab_size, num_tokens = int(manifest["vocab_size"]), int(manifest["num_tokens"])
    if manifest["dtype"] != id_type(vocab_size).name:
        raise ValueError(f"{side}.dtype")
    offsets = map_array(directory / f"{side}.offsets", OFFSET_TYPE, num_pairs + 1)
    ids = map_array(directory / f"{side}.ids", id_type(vocab_size), num_tokens)
    if offsets[0] != 0 or offsets[-1] != num_tokens:
        raise CorpusError(f"{directory / f'{side}.offsets'}: does not match {side}.ids; {REMEDY}.")
    return Side(ids, offsets, vocab_size, int(manifest["longest"]), manifest.get("offsets_sha256"))


# ---- files -----------------------------------------------------------------------------------------------------------


class PartialFile(AtomicFile):
    """A file of numbers that takes its final name only when it is complete and on the disk."""

    def __init__(self, path: Path) -> None:
        try:
            super().__init__(path, path.with_name(path.name + ".partial"))
        except OSError as error:
            raise write_error(path, error) from None

    def write(self, values: NDArray[Any] | bytes) -> None:
        """Append."""
        try:
            self.file.write(values if isinstance(values, bytes) else values.tobytes())
        except OSError as error:
            raise write_error(self.path, error) from None

    def commit(self) -> None:
        """Flush to the disk and take the final name."""
        try:
            super().commit()
        except OSError as error:
            raise write_error(self.path, error) from None


def write_error(path: Path, error: OSError) -> CorpusError:
    """The error for a file or directory that cannot be written."""
    reason = error.strerror or error
    remedy = remedy_for(error, "free some space or choose another directory")
    return CorpusError(f"{path}: cannot write: {reason}; {remedy}.")


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Write a manifest and sync it and its directory to disk."""
    file = PartialFile(path)
    file.write((json.dumps(manifest, indent=2) + "\n").encode())
    file.commit()


def map_array(path: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Map a file of exactly `count` numbers."""
    try:
        size = path.stat().st_size
        if size != count * dtype.itemsize:
            raise CorpusError(f"{path}: {size:,} bytes, expected {count * dtype.itemsize:,}; {REMEDY}.")
        # A plain array over the map: indexing np.memmap itself is slower than reading.
        return np.asarray(np.memmap(path, dtype=dtype, mode="r")) if count else np.zeros(0, dtype=dtype)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror or error}); {REMEDY}.") from None


_verified: set[tuple[str, str, int, int, int]] = set()
"""Files whose checksums this process has verified, by path, checksum, inode, size and modification time."""


def add_checksums(folder: Path, manifest: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The manifest with the SHA-256 of files in its folder, and of its own contents."""
    files = {name: _sha256(folder / name) for name in sorted(names)}
    return {**manifest, "files": files, "sha256": _sha256_of_values({**manifest, "files": files})}


def verify_checksums(path: Path, manifest: Mapping[str, Any]) -> None:
    """Raise `CorpusError` unless a manifest and the files it lists are unchanged."""
    contents = {name: value for name, value in manifest.items() if name != "sha256"}
    files = manifest.get("files")
    if not isinstance(files, dict) or manifest.get("sha256") != _sha256_of_values(contents):
        raise CorpusError(f"{path}: the contents have changed since they were written (SHA-256); {REMEDY}.")
    for name, expected in files.items():
        file = path.parent / name
        try:
            status = file.stat()
            seen = (str(file.absolute()), expected, status.st_ino, status.st_size, status.st_mtime_ns)
            if seen not in _verified and _sha256(file) != expected:
                raise CorpusError(f"{file}: the contents have changed since they were written (SHA-256); {REMEDY}.")
        except OSError as error:
            raise CorpusError(f"{file}: cannot be read ({error.strerror or error}); {REMEDY}.") from None
        _verified.add(seen)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sha256_of_values(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
