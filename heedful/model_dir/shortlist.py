"""The lexical shortlist of a model: the target candidates of each source token. Part of the model directory.

The candidates of a sentence are those of its tokens, and the tokens that are always allowed. Computing logits of a few
thousand candidates instead of the whole vocabulary saves much of the work of translating a single sentence.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from heedful.errors import ModelDirectoryError
from heedful.model_dir import files as model_files
from heedful.model_dir.files import CARD, SHORTLIST, ModelFiles
from heedful.model_dir.save_load import read_record
from heedful.model_dir.weights import read_weights

if TYPE_CHECKING:
    import numpy as np

ID_DTYPES = ("int32", "uint16")
DTYPES: dict[str, tuple[str, ...]] = {"starts": ("int64",), "targets": ID_DTYPES, "always": ID_DTYPES}
LANGUAGES, METADATA = "languages", "__metadata__"
MASK_DTYPES = ("uint8", "uint16", "uint32", "uint64")
REMEDY = model_files.remedy_for(SHORTLIST)
_ID_LETTERS = {"I32": "i", "U16": "H"}
TYPE_CODES = {"starts": {"I64": "q"}, "targets": _ID_LETTERS, "always": _ID_LETTERS}
"""The allowed types of each list in the file, with the type codes of Python arrays."""

INVALID_FILE = (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError)
"""Exceptions raised when an invalid file is read."""


class PlainShortlist(NamedTuple):
    """A shortlist as Python arrays for the native engine, which does not import numpy to start faster."""

    starts: array[int]
    targets: array[int]
    """Two or four bytes per token."""
    always: array[int]


@dataclass(frozen=True)
class Shortlist:
    """The candidates of source token i are `targets[starts[i]:starts[i + 1]]`, and those that are `always` allowed."""

    starts: np.ndarray
    targets: np.ndarray
    always: np.ndarray
    settings: Mapping[str, int] = field(default_factory=dict)
    """Settings it was learned with."""
    languages: np.ndarray | None = None
    """With target tags: for each of `targets` a bit mask of its languages, bit n for the n-th tag."""

    @property
    def num_sources(self) -> int:
        """Number of source tokens."""
        return len(self.starts) - 1

    def of(self, token: int) -> np.ndarray:
        """The candidates of one source token."""
        return self.targets[self.starts[token] : self.starts[token + 1]]

    def lists(self) -> PlainShortlist:
        """The shortlist as Python arrays."""
        import numpy as np

        starts = array("q", np.asarray(self.starts, np.int64).tobytes())
        ids = [array("i", np.asarray(tokens, np.int32).tobytes()) for tokens in (self.targets, self.always)]
        return PlainShortlist(starts, *ids)

    def candidates(self, source: Sequence[int]) -> np.ndarray:
        """All candidates for the translation of these tokens, sorted."""
        import numpy as np

        return np.unique(np.concatenate([self.always, *(self.of(token) for token in source)]))


def read_shortlist(directory: str | Path) -> Shortlist | None:
    """The verified shortlist of a model directory; None if it has none."""

    def read(files: ModelFiles) -> Shortlist | None:
        if SHORTLIST not in files.entries:
            return None
        files.check([SHORTLIST])
        return _parse_checked(files)

    return model_files.read_consistent(directory, read)


def _parse_checked(files: ModelFiles) -> Shortlist:
    config = read_record(files)[0].model
    sizes = (config.source_vocab_size, config.target_vocab_size)
    return parse_shortlist(files.paths[SHORTLIST], files.directory / SHORTLIST, sizes)


def read_plain_shortlist(directory: str | Path) -> PlainShortlist | None:
    """The shortlist of a model directory as Python arrays; the caller must check all bounds."""

    def read(files: ModelFiles) -> PlainShortlist | None:
        if SHORTLIST not in files.entries:
            return None
        files.check([SHORTLIST])
        try:
            return parse_plain_shortlist(files.paths[SHORTLIST].read_bytes())
        except INVALID_FILE:  # raises a specific error
            return _parse_checked(files).lists()

    return model_files.read_consistent(directory, read)


def parse_plain_shortlist(contents: bytes) -> PlainShortlist:
    """Parse the file of a shortlist; any exception means that it is invalid."""
    begin = 8 + int.from_bytes(contents[:8], "little")
    header, numbers = json.loads(contents[8:begin]), memoryview(contents)[begin:]
    if header.keys() - {*TYPE_CODES, LANGUAGES, METADATA}:
        raise ValueError("unknown tensors")
    languages = header.get(LANGUAGES)
    if languages and (languages["shape"] != header["targets"]["shape"] or not languages["dtype"].startswith("U")):
        raise ValueError("languages do not match the targets")
    found = {}
    for name, letters in TYPE_CODES.items():
        start, end = header[name]["data_offsets"]
        found[name] = array(letters[header[name]["dtype"]], bytes(numbers[start:end]))
        if not 0 <= start <= end <= len(numbers) or header[name]["shape"] != [len(found[name])]:
            raise ValueError(f"{name} is incomplete")
    return PlainShortlist(found["starts"], found["targets"], array("i", found["always"]))


def parse_shortlist(path: Path, shown_as: Path, vocab_sizes: tuple[int, int]) -> Shortlist:
    """Read a shortlist and check all bounds; `shown_as` is the path in messages."""
    import numpy as np

    try:
        arrays = read_weights(path, shown_as)
        settings = read_settings(path)
    except INVALID_FILE:
        raise ModelDirectoryError(f"{shown_as} is damaged: it cannot be read; {REMEDY}.") from None
    known = {**DTYPES, LANGUAGES: MASK_DTYPES}
    for name in {**DTYPES, **arrays}:
        if name not in arrays or name not in known or not _is_list(arrays[name], known[name]):
            raise ModelDirectoryError(f"{shown_as} is damaged: {name} is missing or has another type; {REMEDY}.")
    targets, always = (arrays[name].astype(np.int32) for name in ("targets", "always"))
    found = Shortlist(arrays["starts"], targets, always, settings, arrays.get(LANGUAGES))
    if found.languages is not None and len(found.languages) != len(targets):
        raise ModelDirectoryError(f"{shown_as} is damaged: the languages do not match the targets; {REMEDY}.")
    num_sources, num_targets = vocab_sizes
    if found.num_sources != num_sources:
        raise ModelDirectoryError(f"{shown_as} is for another vocabulary; {REMEDY}.")
    if found.starts[0] != 0 or found.starts[-1] != len(found.targets) or (np.diff(found.starts) < 0).any():
        raise ModelDirectoryError(f"{shown_as} is damaged: its lists are not contiguous; {REMEDY}.")
    for tokens in (found.targets, found.always):
        if len(tokens) and not 0 <= tokens.min() <= tokens.max() < num_targets:
            raise ModelDirectoryError(f"{shown_as} is damaged: a token is not in the vocabulary; {REMEDY}.")
    return found


def _is_list(array: np.ndarray, kinds: Sequence[str]) -> bool:
    return array.ndim == 1 and array.dtype.name in kinds


def read_settings(path: Path) -> dict[str, int]:
    """The settings of a shortlist, from the header of its file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {str(name): int(value) for name, value in header.get(METADATA, {}).items()}


def save_shortlist(directory: str | Path, shortlist: Shortlist) -> None:
    """Add a shortlist to a model directory, or replace it; other files are unchanged."""
    import shutil

    def write(folder: Path) -> None:
        files = model_files.locate(Path(directory))  # after an interrupted save has been completed
        files.check_unexpected()
        files.check(
            name for name in files.entries if name not in (CARD, SHORTLIST)
        )  # a damaged file must not get a new checksum
        for name in files.entries:
            if name != SHORTLIST:
                shutil.copy2(files.paths[name], folder / name)
        write_shortlist(folder / SHORTLIST, shortlist)
        shutil.copymode(folder / model_files.CONFIG, folder / SHORTLIST)

    model_files.replace_files(directory, write)


def write_shortlist(path: Path, shortlist: Shortlist) -> None:
    """Write the file of a shortlist."""
    import numpy as np
    from safetensors.numpy import save_file

    arrays = {"starts": shortlist.starts.astype(np.int64)}
    for name in ("targets", "always"):
        ids: np.ndarray = getattr(shortlist, name)
        is_small = not len(ids) or (ids.min() >= 0 and ids.max() < 1 << 16)
        arrays[name] = np.ascontiguousarray(ids, dtype=np.uint16 if is_small else np.int32)
    if shortlist.languages is not None:
        arrays[LANGUAGES] = np.ascontiguousarray(shortlist.languages)
    save_file(arrays, path, metadata={name: str(value) for name, value in shortlist.settings.items()})
