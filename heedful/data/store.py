"""Tokenised pairs on disk: written once as a stream, read through memory maps, so that corpora may exceed memory.

A store is a directory. `source.ids` holds the ids of all source sentences one after the other, and sentence i is
`ids[offsets[i]:offsets[i + 1]]`; the target likewise. `corpora` holds the corpus each pair came from. `store.json` says
how large all of these are; it is written last, so a directory without it was never finished. Nothing is loaded when a
store is opened: beside the ids, a pair takes 18 bytes of disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.data.mmap_io import REMEDY, PartialFile, cannot_write, map_numbers, sync_directory
from heedful.errors import CorpusError
from heedful.text.tokenizer import id_type

FORMAT_VERSION = 1
OFFSET_TYPE = np.dtype("<i8")
CORPUS_TYPE = np.dtype("<u2")
MANIFEST = "store.json"


class _SideWriter:
    """Appends the sentences of one side; the files keep the name `.partial` until `finish`."""

    def __init__(self, directory: Path, side: str, vocab_size: int) -> None:
        self.side, self.vocab_size = side, vocab_size
        self.num_tokens = self.longest = 0
        self.ids = PartialFile(directory / f"{side}.ids")
        self.offsets = PartialFile(directory / f"{side}.offsets")
        self.digest = hashlib.sha256()
        self._write_offsets(np.zeros(1, dtype=OFFSET_TYPE))

    def check(self, flat: NDArray[Any], lengths: NDArray[Any]) -> None:
        """Raise ValueError for empty sentences and for ids that cannot be in the vocabulary."""
        if lengths.sum() != flat.size:
            raise ValueError(f"{self.side}: {flat.size} ids, but the lengths add up to {lengths.sum()}.")
        if lengths.size and lengths.min() <= 0:
            raise ValueError(f"{self.side} sentence {int(lengths.argmin())} of this call has no ids, not even an end.")
        if flat.size and not 0 <= flat.min() <= flat.max() < self.vocab_size:
            raise ValueError(f"{self.side} ids must lie in [0, {self.vocab_size}), not {flat.min()} to {flat.max()}.")

    def append(self, flat: NDArray[Any], lengths: NDArray[Any]) -> None:
        """Write what passed `check`."""
        self.ids.write(flat.astype(id_type(self.vocab_size), copy=False))
        self._write_offsets((self.num_tokens + np.cumsum(lengths)).astype(OFFSET_TYPE))
        self.num_tokens += flat.size
        self.longest = max(self.longest, int(lengths.max(initial=0)))

    def _write_offsets(self, offsets: NDArray[np.int64]) -> None:
        self.digest.update(offsets.data)
        self.offsets.write(offsets)

    def manifest(self) -> dict[str, Any]:
        """What `store.json` says of this side."""
        return {
            "vocab_size": self.vocab_size,
            "dtype": id_type(self.vocab_size).name,
            "num_tokens": self.num_tokens,
            "longest": self.longest,
            "offsets_sha256": self.digest.hexdigest(),
        }


class StoreWriter:
    """Writes a store in batches of pairs, with memory for one batch; as a context manager closes, or aborts on error.

    `corpus_weights` (one for each corpus, else all 1.0) are kept for `BatchStream`: how often an epoch shows a pair.
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
            (self.directory / MANIFEST).unlink(missing_ok=True)  # an older store must not pass for this one
        except OSError as error:
            raise cannot_write(self.directory, error) from None
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
        """Append pairs: the ids of both sides as the tokenizer gives them, and the corpus that each came from."""
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
        """Append pairs of one corpus: the ids of all sentences of a side end to end, and how many each has."""
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
        known = 1 << 16 if self.corpus_weights is None else len(self.corpus_weights)
        if corpora.size and not 0 <= corpora.min() <= corpora.max() < known:
            raise ValueError(f"corpus indices must lie in [0, {known}), not {corpora.min()} to {corpora.max()}.")
        self._source.check(*source)
        self._target.check(*target)
        self._source.append(*source)
        self._target.append(*target)
        self._corpora.write(corpora.astype(CORPUS_TYPE))
        self.num_pairs += corpora.size
        self.num_corpora = max(self.num_corpora, int(corpora.max(initial=-1)) + 1)

    def close(self) -> None:
        """Finish the store: every file reaches the disk under its name, and `store.json` last of all."""
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
            file.finish()
        last = PartialFile(self.directory / MANIFEST)
        last.write((json.dumps(manifest, indent=2) + "\n").encode())
        last.finish()
        sync_directory(self.directory)
        self._open = False

    def abort(self) -> None:
        """Leave nothing that could be taken for a store."""
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
    """Of the offsets, where the store says it; those of old do not."""

    @cached_property
    def offsets_sha256(self) -> str:
        """Changes when any sentence is longer, shorter or elsewhere."""
        return self.recorded_sha256 or hashlib.sha256(self.offsets.data).hexdigest()

    @property
    def num_tokens(self) -> int:
        """Tokens of all sentences together."""
        return int(self.ids.size)

    def lengths(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of tokens of the given sentences."""
        return np.asarray(self.offsets[pairs + 1] - self.offsets[pairs])

    def sentence(self, pair: int) -> list[int]:
        """The ids of one sentence."""
        ids: list[int] = self.ids[self.offsets[pair] : self.offsets[pair + 1]].tolist()
        return ids


@dataclass(frozen=True)
class PairStore:
    """A finished store, memory-mapped: only what is asked for is read from the disk."""

    source: Side
    target: Side
    corpora: NDArray[np.uint16]
    """For each pair, the number of the corpus it came from."""
    corpus_weights: tuple[float, ...]

    def __len__(self) -> int:
        return int(self.corpora.size)

    @property
    def lengths_mark(self) -> str:
        """Changes when a sentence of either side is longer, shorter or elsewhere."""
        return f"{self.source.offsets_sha256} {self.target.offsets_sha256}"

    def pair(self, index: int) -> tuple[list[int], list[int]]:
        """The ids of one pair, as they were added."""
        return self.source.sentence(index), self.target.sentence(index)

    @staticmethod
    def open(directory: str | Path) -> PairStore:
        """Map a store's files, or raise `CorpusError` when the directory is not a finished, whole store."""
        directory = Path(directory)
        manifest = _read_manifest(directory / MANIFEST)
        try:
            num_pairs = int(manifest["num_pairs"])
            weights = tuple(float(weight) for weight in manifest["corpus_weights"])
            source = _open_side(directory, "source", manifest["source"], num_pairs)
            target = _open_side(directory, "target", manifest["target"], num_pairs)
        except (KeyError, TypeError, ValueError) as error:
            raise CorpusError(f"{directory / MANIFEST}: a field is missing or damaged ({error!r}); {REMEDY}.") from None
        corpora = map_numbers(directory / "corpora", CORPUS_TYPE, num_pairs)
        return PairStore(source=source, target=target, corpora=corpora, corpus_weights=weights)


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise CorpusError(f"{path}: not there, so this is no finished store of tokenised pairs; {REMEDY}.")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path}: cannot be read ({error}); {REMEDY}.") from None
    version = manifest.get("format_version") if isinstance(manifest, dict) else None
    if version != FORMAT_VERSION:
        raise CorpusError(f"{path}: format version {version} is not {FORMAT_VERSION}, the one known here; {REMEDY}.")
    return dict(manifest)


def _open_side(directory: Path, side: str, manifest: dict[str, Any], num_pairs: int) -> Side:
    vocab_size, num_tokens = int(manifest["vocab_size"]), int(manifest["num_tokens"])
    if manifest["dtype"] != id_type(vocab_size).name:
        raise ValueError(f"{side}.dtype")
    offsets = map_numbers(directory / f"{side}.offsets", OFFSET_TYPE, num_pairs + 1)
    ids = map_numbers(directory / f"{side}.ids", id_type(vocab_size), num_tokens)
    if offsets[0] != 0 or offsets[-1] != num_tokens:
        raise CorpusError(f"{directory / f'{side}.offsets'}: does not belong to {side}.ids; {REMEDY}.")
    return Side(ids, offsets, vocab_size, int(manifest["longest"]), manifest.get("offsets_sha256"))
