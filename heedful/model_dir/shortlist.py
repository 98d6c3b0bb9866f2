"""A model's lexical shortlist: which target tokens each source token may become. Part of the model directory.

A sentence's candidates are those of its own tokens and those that are always allowed. Choosing among a few thousand
candidates instead of the whole vocabulary is much of the work saved when one sentence is translated at a time.
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
from heedful.model_dir.files import CARD, SHORTLIST, Files
from heedful.model_dir.save_load import read_record
from heedful.model_dir.weights import read_weights

if TYPE_CHECKING:
    import numpy as np

IDS = ("int32", "uint16")
KINDS: dict[str, tuple[str, ...]] = {"starts": ("int64",), "targets": IDS, "always": IDS}
LANGUAGES, METADATA = "languages", "__metadata__"
MASKS = ("uint8", "uint16", "uint32", "uint64")
REMEDY = model_files.remedy_for(SHORTLIST)
_ID_LETTERS = {"I32": "i", "U16": "H"}
LETTERS = {"starts": {"I64": "q"}, "targets": _ID_LETTERS, "always": _ID_LETTERS}
"""For each list the types that it may have in its file, and those of Python's own arrays."""

INVALID_FILE = (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError)
"""Exceptions of reading an invalid file."""


class Lists(NamedTuple):
    """The numbers of a shortlist alone, as the native engine takes them: no numpy, whose import would take longer."""

    starts: array[int]
    targets: array[int]
    """Of two bytes each, or of four."""
    always: array[int]


@dataclass(frozen=True)
class Shortlist:
    """What each source token may become: `targets[starts[i]:starts[i + 1]]`, and what is `always` allowed."""

    starts: np.ndarray
    targets: np.ndarray
    always: np.ndarray
    settings: Mapping[str, int] = field(default_factory=dict)
    """How it was made."""
    languages: np.ndarray | None = None
    """In a model with target tags: for each of `targets` the languages it was learned for, bit n for the n-th tag."""

    @property
    def num_sources(self) -> int:
        """Number of source tokens that it is for."""
        return len(self.starts) - 1

    def of(self, token: int) -> np.ndarray:
        """The target tokens of one source token."""
        return self.targets[self.starts[token] : self.starts[token + 1]]

    def lists(self) -> Lists:
        """The numbers alone."""
        import numpy as np

        starts = array("q", np.asarray(self.starts, np.int64).tobytes())
        ids = [array("i", np.asarray(tokens, np.int32).tobytes()) for tokens in (self.targets, self.always)]
        return Lists(starts, *ids)

    def candidates(self, source: Sequence[int]) -> np.ndarray:
        """All target tokens that a translation of these tokens may contain, sorted."""
        import numpy as np

        return np.unique(np.concatenate([self.always, *(self.of(token) for token in source)]))


def read_shortlist(directory: str | Path) -> Shortlist | None:
    """The shortlist of a model directory, verified; None where it has none."""

    def read(files: Files) -> Shortlist | None:
        if SHORTLIST not in files.entries:
            return None
        files.check([SHORTLIST])
        return _parse_checked(files)

    return model_files.read_consistent(directory, read)


def _parse_checked(files: Files) -> Shortlist:
    config = read_record(files)[0].model
    sizes = (config.source_vocab_size, config.target_vocab_size)
    return parse_shortlist(files.paths[SHORTLIST], files.directory / SHORTLIST, sizes)


def read_lists(directory: str | Path) -> Lists | None:
    """The numbers of a model directory's shortlist, as they were saved; the caller must check every bound."""

    def read(files: Files) -> Lists | None:
        if SHORTLIST not in files.entries:
            return None
        files.check([SHORTLIST])
        try:
            return parse_lists(files.paths[SHORTLIST].read_bytes())
        except INVALID_FILE:  # the other reader raises a specific error
            return _parse_checked(files).lists()

    return model_files.read_consistent(directory, read)


def parse_lists(contents: bytes) -> Lists:
    """The numbers in the file of a shortlist; any error means that it is none."""
    begin = 8 + int.from_bytes(contents[:8], "little")
    header, numbers = json.loads(contents[8:begin]), memoryview(contents)[begin:]
    if header.keys() - {*LETTERS, LANGUAGES, METADATA}:
        raise ValueError("it holds something else")
    languages = header.get(LANGUAGES)
    if languages and (languages["shape"] != header["targets"]["shape"] or not languages["dtype"].startswith("U")):
        raise ValueError("not every target has its languages")
    found = {}
    for name, letters in LETTERS.items():
        start, end = header[name]["data_offsets"]
        found[name] = array(letters[header[name]["dtype"]], bytes(numbers[start:end]))
        if not 0 <= start <= end <= len(numbers) or header[name]["shape"] != [len(found[name])]:
            raise ValueError(f"{name} is not whole")
    return Lists(found["starts"], found["targets"], array("i", found["always"]))


def parse_shortlist(path: Path, shown_as: Path, vocab_sizes: tuple[int, int]) -> Shortlist:
    """A shortlist from its file, with every bound checked; `shown_as` is for the messages."""
    import numpy as np

    try:
        arrays = read_weights(path, shown_as)
        settings = read_settings(path)
    except INVALID_FILE:
        raise ModelDirectoryError(f"{shown_as} is damaged: it cannot be read; {REMEDY}.") from None
    known = {**KINDS, LANGUAGES: MASKS}
    for name in {**KINDS, **arrays}:
        if name not in arrays or name not in known or not _is_list(arrays[name], known[name]):
            raise ModelDirectoryError(f"{shown_as} is damaged: {name} is missing or of another kind; {REMEDY}.")
    targets, always = (arrays[name].astype(np.int32) for name in ("targets", "always"))
    found = Shortlist(arrays["starts"], targets, always, settings, arrays.get(LANGUAGES))
    if found.languages is not None and len(found.languages) != len(targets):
        raise ModelDirectoryError(f"{shown_as} is damaged: not every target has its languages; {REMEDY}.")
    num_sources, num_targets = vocab_sizes
    if found.num_sources != num_sources:
        raise ModelDirectoryError(f"{shown_as} is for another vocabulary; {REMEDY}.")
    if found.starts[0] != 0 or found.starts[-1] != len(found.targets) or (np.diff(found.starts) < 0).any():
        raise ModelDirectoryError(f"{shown_as} is damaged: its lists are not one after another; {REMEDY}.")
    for tokens in (found.targets, found.always):
        if len(tokens) and not 0 <= tokens.min() <= tokens.max() < num_targets:
            raise ModelDirectoryError(f"{shown_as} is damaged: a token is not in the vocabulary; {REMEDY}.")
    return found


def _is_list(array: np.ndarray, kinds: Sequence[str]) -> bool:
    return array.ndim == 1 and array.dtype.name in kinds


def read_settings(path: Path) -> dict[str, int]:
    """How a shortlist was made, from the header of its file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {str(name): int(value) for name, value in header.get(METADATA, {}).items()}


def save_shortlist(directory: str | Path, shortlist: Shortlist) -> None:
    """Put a shortlist into a model directory, in the place of any that was there; the rest stays as it is."""
    import shutil

    def write(folder: Path) -> None:
        files = model_files.locate(Path(directory))  # now: an interrupted save has just been finished
        files.check_unexpected()
        files.check(name for name in files.entries if name not in (CARD, SHORTLIST))  # damage gets no new checksum
        for name in files.entries:
            if name != SHORTLIST:
                shutil.copy2(files.paths[name], folder / name)
        write_shortlist(folder / SHORTLIST, shortlist)
        shutil.copymode(folder / model_files.CONFIG, folder / SHORTLIST)

    model_files.replace_files(directory, write)


def write_shortlist(path: Path, shortlist: Shortlist) -> None:
    """The file of a shortlist."""
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
