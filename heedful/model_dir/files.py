"""The files of a model directory: replaced atomically, located and verified, whatever they contain.

How a save replaces the old model, so that at every moment one of the two is complete:

1. Everything is written into `.saving/` inside the directory, and flushed to the disk.
2. `.saving/` is renamed to `.saved/`. This rename is the save: before it the directory holds the old model, after
   it the new one.
3. The files move from `.saved/` to their places, `checksums.json` last, and `.saved/` is removed.

A reader that finds `.saved/checksums.json` in a real folder, not behind a link, uses it, and reads each file from
`.saved/` or, if it has moved already, from its place. A process killed in step 1 therefore leaves the old model, and in
step 3 the new one; the next save cleans up. Renaming whole directories would move the user's other files, and a new
name for each save would lose the fixed ones.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from heedful.atomic_files import fsync_path, rename_durably
from heedful.directory_lock import lock_directory
from heedful.errors import ConfigError, ModelDirectoryError

T = TypeVar("T")
UNREADABLE = (AttributeError, ArithmeticError, LookupError, RecursionError, RuntimeError, TypeError, ValueError)
"""Exceptions that unexpected data may cause; they are reported as an unreadable model."""

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD = re.compile(r"model-(\d{5})-of-(\d{5})\.safetensors")
MAX_SHARDS = 99_999

FORMAT = "heedful-model"
FORMAT_VERSION, NEWEST_VERSION = 1, 2
"""Version 1: float weights in one file. Version 2: also int8 weights (`compact`) and weights in shards."""
CONFIG, CARD, CHECKSUMS = "config.json", "README.md", "checksums.json"
TOKENIZER = ("tokenizer.json", "tokenizer.model", "source.model", "target.model")
SHORTLIST = "shortlist.safetensors"
KNOWN = (CONFIG, WEIGHTS, INDEX, CARD, *TOKENIZER, SHORTLIST)
REQUIRED = (CONFIG, TOKENIZER[0])
SAVING, SAVED = ".saving", ".saved"
MAX_BYTES = {CONFIG: 4_000_000, CARD: 16_000_000, INDEX: 16_000_000, CHECKSUMS: 1_000_000, TOKENIZER[0]: 1_000_000}
MAX_BYTES |= dict.fromkeys(TOKENIZER[1:], 256_000_000)
"""Largest size of each file; a larger one is refused before it is read."""
DEFAULT_REMEDY = "copy the whole directory again, or save the model again"


def remedy_for(name: str) -> str:
    """How to repair a model whose file of this name is damaged or missing."""
    return "make it again with `heedful shortlist`" if name == SHORTLIST else DEFAULT_REMEDY


def is_known(name: str) -> bool:
    """Whether the format has a file of this name."""
    return name in KNOWN or is_weights(name)


@dataclass(frozen=True)
class FileEntry:
    """Size and checksum of a file in `checksums.json`."""

    size: int
    sha256: str


@dataclass(frozen=True)
class ModelFiles:
    """The files of one complete save, with their current paths and checksums."""

    directory: Path
    paths: Mapping[str, Path]
    entries: Mapping[str, FileEntry]
    version: int = FORMAT_VERSION
    unexpected: tuple[str, ...] = ()

    @property
    def weights(self) -> tuple[str, ...]:
        """The files that hold the weights, in order."""
        return tuple(sorted(name for name in self.entries if is_weights(name)))

    @property
    def weights_checksum(self) -> str:
        """The checksums of the files of weights."""
        return " ".join(self.entries[name].sha256 for name in self.weights)

    def check_unexpected(self) -> None:
        """Refuse files that have a name of the format but are not part of the save."""
        for name in self.unexpected:
            raise ModelDirectoryError(
                f"{self.directory / name} is not part of this model: {CHECKSUMS} does not list it; remove it."
            )

    def check(self, names: Iterable[str]) -> None:
        """Compare size and checksum of the named files with `checksums.json`."""
        for name in names:
            self.check_size(name)
            found = sha256(self.paths[name])
            if found != self.entries[name].sha256:
                raise ModelDirectoryError(
                    f"{self.directory / name}: the contents are not what was saved (SHA-256 {found[:12]}… instead of "
                    f"{self.entries[name].sha256[:12]}…); {remedy_for(name)}."
                )

    def check_size(self, name: str) -> None:
        """Check that the file exists, is a regular file, and has the expected size."""
        try:
            status = os.lstat(self.paths[name])
        except FileNotFoundError:
            raise ModelDirectoryError(
                f"{self.directory / name}: this file of the model is missing; {remedy_for(name)}."
            ) from None
        if not stat.S_ISREG(status.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a file"
            raise ModelDirectoryError(f"{self.directory / name} is {kind}; put the file itself in its place.")
        if status.st_size > MAX_BYTES.get(name, status.st_size):
            raise ModelDirectoryError(
                f"{self.directory / name} has {status.st_size:,} bytes; at most {MAX_BYTES[name]:,} are allowed."
            )
        if status.st_size != self.entries[name].size:
            raise ModelDirectoryError(
                f"{self.directory / name} has {status.st_size:,} bytes instead of {self.entries[name].size:,}; "
                f"{remedy_for(name)}."
            )

    def read_json(self, name: str) -> Any:
        """The contents of a JSON file, after checking it."""
        self.check([name])
        return parse_json(self.directory / name, self.paths[name].read_bytes())


def read_consistent(directory: str | Path, read: Callable[[ModelFiles], T]) -> T:
    """`read` the files of one save; if another save replaced them meanwhile, read again."""
    place = Path(directory)
    for _ in range(10):
        with refuse_unreadable(directory):
            files = locate(place)
            try:
                files.check_unexpected()
                result = read(files)
            except (ModelDirectoryError, OSError, *UNREADABLE):
                if locate(place) == files:
                    raise
            else:
                if locate(place) == files:
                    return result
    raise ModelDirectoryError(f"{directory}: another process keeps saving the model; try again in a moment.")


@contextmanager
def refuse_unreadable(directory: str | Path) -> Iterator[None]:
    """Turn every error that the contents of a model directory cause into one `ModelDirectoryError`."""
    try:
        yield
    except OSError as error:
        raise ModelDirectoryError(f"{directory}: cannot read the model: {error}.") from error
    except MemoryError:
        raise ModelDirectoryError(f"{directory}: there is not enough memory to read the model.") from None
    except UNREADABLE as error:
        if type(error).__name__ == "OutOfMemoryError":  # of a GPU; the model itself is valid
            raise
        raise ModelDirectoryError(
            f"{directory} cannot be read as a model ({type(error).__name__}: {error})."
        ) from error


def locate(directory: Path) -> ModelFiles:
    """Find the files of the newest complete save."""
    refuse_linked_folder(directory / SAVED)
    try:
        text, moving = read_regular(directory / SAVED / CHECKSUMS, MAX_BYTES[CHECKSUMS]), True
        waiting = os.listdir(directory / SAVED)
    except (FileNotFoundError, NotADirectoryError):
        text, moving, waiting = _read_checksums(directory), False, []
    entries, version = _parse_checksums(directory / CHECKSUMS, text)
    paths = {name: directory / SAVED / name if name in waiting else directory / name for name in entries}
    unexpected = [
        name for name in sorted(os.listdir(directory)) if not moving and is_known(name) and name not in entries
    ]
    return ModelFiles(directory, paths, entries, version, tuple(unexpected))


def prepare_directory(directory: str | Path) -> Path:
    """Create the directory, and check that a save would overwrite nothing but a model."""
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelDirectoryError(f"{directory}: cannot make this directory: {error.strerror}.") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise ModelDirectoryError(f"{directory}: no permission to write into this directory.")
    if (directory / CHECKSUMS).exists() or (directory / SAVED / CHECKSUMS).exists() or _is_ours(directory / CONFIG):
        return directory
    taken = [name for name in sorted(os.listdir(directory)) if is_known(name) or name == CHECKSUMS]
    if taken:
        raise ModelDirectoryError(
            f"{directory} holds {', '.join(taken)} which are not part of a model and would be replaced; "
            f"choose another directory."
        )
    return directory


def replace_files(directory: str | Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a new folder, then replace the old model's files by its files atomically."""
    directory = prepare_directory(directory)
    with lock_directory(directory):
        _replace_files(directory, write)


def _replace_files(directory: Path, write: Callable[[Path], None]) -> None:
    import shutil

    staging, saved = directory / SAVING, directory / SAVED
    for folder in (staging, saved):
        refuse_linked_folder(folder)
    try:
        _install_saved(directory)
        if staging.exists():
            shutil.rmtree(staging)
        staging.mkdir()
        write(staging)
        _write_checksums(staging)
        rename_durably(staging, saved)
        _install_saved(directory)
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise ModelDirectoryError(
            f"{directory}: cannot save the model: {error}. What was saved there before is intact."
        ) from error


def _write_checksums(staging: Path) -> None:
    """Write `checksums.json` for the files of a finished folder, and flush everything to the disk."""
    names = sorted(os.listdir(staging))
    unknown = [name for name in names if not is_known(name)]
    if unknown:
        raise ValueError(f"a model directory has no place for {', '.join(unknown)}")
    version = parse_json(staging / CONFIG, (staging / CONFIG).read_bytes())["format_version"]
    entries = {name: {"size": (staging / name).stat().st_size, "sha256": sha256(staging / name)} for name in names}
    (staging / CHECKSUMS).write_text(to_json({"format_version": version, "files": entries}), encoding="utf-8")
    for name in (*names, CHECKSUMS):
        fsync_path(staging / name)
    fsync_path(staging)


def _install_saved(directory: Path) -> None:
    """Move the files of a committed save to their places (step 3); may be repeated after a crash."""
    import shutil

    saved = directory / SAVED
    refuse_linked_folder(saved)
    if not saved.exists():
        return
    if (saved / CHECKSUMS).exists():
        text = read_regular(saved / CHECKSUMS, MAX_BYTES[CHECKSUMS])
        entries, _ = _parse_checksums(saved / CHECKSUMS, text)
        for name in entries:
            if (saved / name).exists():
                os.replace(saved / name, directory / name)
        for name in os.listdir(directory):
            if is_known(name) and name not in entries:
                os.unlink(directory / name)
        fsync_path(directory)
        rename_durably(saved / CHECKSUMS, directory / CHECKSUMS)
    shutil.rmtree(saved)


def _read_checksums(directory: Path) -> bytes:
    """The contents of `checksums.json`, or an error that describes the directory if it is not a model directory."""
    path = directory / CHECKSUMS
    if os.path.lexists(path):
        return read_regular(path, MAX_BYTES[CHECKSUMS])
    if not os.path.lexists(directory):
        raise ModelDirectoryError(f"{directory}: there is no such directory; `heedful train -o {directory}` makes one.")
    if not directory.is_dir():
        raise ModelDirectoryError(
            f"{directory} is not a directory; give the model directory that `heedful train` wrote."
        )
    names = sorted(os.listdir(directory))
    if _is_ours(directory / CONFIG) or (TOKENIZER[0] in names and any(map(is_weights, names))):
        raise ModelDirectoryError(f"{path}: this file of the model is missing; {DEFAULT_REMEDY}.")
    if not names:
        raise ModelDirectoryError(f"{directory} is empty; give the model directory that `heedful train` wrote.")
    if SAVING in names or "training" in names:
        raise ModelDirectoryError(
            f"{directory} holds an unfinished training run and no model yet; resume it with `heedful train --resume`."
        )
    shown = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
    raise ModelDirectoryError(f"{directory} is not a model directory (it has no {CHECKSUMS}; found {shown}).")


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The bytes of a regular file; links, pipes, devices and files that are too large are refused."""
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise ModelDirectoryError(f"{path} is a symbolic link; put the file itself in its place.")
    if not stat.S_ISREG(status.st_mode):
        raise ModelDirectoryError(f"{path} is not a file; {DEFAULT_REMEDY}.")
    if status.st_size > most_bytes:
        raise ModelDirectoryError(f"{path} has {status.st_size:,} bytes; at most {most_bytes:,} are allowed.")
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
        return file.read(most_bytes + 1)


def refuse_linked_folder(path: Path) -> None:
    """Refuse a linked folder: through it a save would move another model's files."""
    if path.is_symlink():
        raise ModelDirectoryError(f"{path} is a symbolic link; remove it: a model's own folders are never links.")


def _parse_checksums(path: Path, text: bytes) -> tuple[dict[str, FileEntry], int]:
    plain = parse_json(path, text)
    if not isinstance(plain, dict):
        raise ModelDirectoryError(f"{path} is damaged: not a list of checksums; {DEFAULT_REMEDY}.")
    check_version(path, plain)
    listed = plain.get("files")
    if set(plain) != {"format_version", "files"} or not isinstance(listed, dict):
        raise ModelDirectoryError(f"{path} is damaged: not a list of checksums; {DEFAULT_REMEDY}.")
    entries = {}
    for name, entry in listed.items():
        if not is_known(name):
            raise ModelDirectoryError(f"{path} names a file that no model directory has: {name!r}; {DEFAULT_REMEDY}.")
        if not isinstance(entry, dict) or set(entry) != {"size", "sha256"}:
            raise ModelDirectoryError(f"{path} is damaged at {name!r}; {DEFAULT_REMEDY}.")
        if type(entry["size"]) is not int or not isinstance(entry["sha256"], str):
            raise ModelDirectoryError(f"{path} is damaged at {name!r}; {DEFAULT_REMEDY}.")
        entries[name] = FileEntry(**entry)
    lacking = [name for name in REQUIRED if name not in entries]
    if lacking:
        raise ModelDirectoryError(f"{path} does not name {', '.join(lacking)}; {DEFAULT_REMEDY}.")
    check_complete(entries, str(path))
    return entries, plain["format_version"]


def check_version(path: Path, plain: Mapping[str, Any]) -> None:
    """Refuse files of a newer heedful, and versions that are not numbers."""
    version = plain.get("format_version")
    if type(version) is not int or version < 1:
        raise ModelDirectoryError(f"{path} is damaged: format_version is {version!r}; {DEFAULT_REMEDY}.")
    if version > NEWEST_VERSION:
        raise ModelDirectoryError(
            f"{path}: this model was written by a newer heedful (format {version}, this one reads up to "
            f"{NEWEST_VERSION}); upgrade heedful."
        )


def parse_json(path: Path, text: bytes) -> Any:
    """Parse JSON; `path` is for the message."""
    try:
        return json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelDirectoryError(f"{path} is damaged: not valid JSON ({error}); {DEFAULT_REMEDY}.") from None


def to_json(plain: Any) -> str:
    """Indented JSON."""
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_ours(path: Path) -> bool:
    try:
        plain = json.loads(read_regular(path, MAX_BYTES[CONFIG]))
    except (OSError, ValueError, RecursionError, ModelDirectoryError):
        return False
    return isinstance(plain, dict) and plain.get("format") == FORMAT


# ---- shards: one file of weights, or several with an index as Hugging Face writes it


def is_weights(name: str) -> bool:
    """Whether a file of this name holds weights."""
    return name == WEIGHTS or SHARD.fullmatch(name) is not None


def shard_names(count: int) -> list[str]:
    """The names of `count` files of weights; a single one is no shard."""
    if count > MAX_SHARDS:
        raise ConfigError(
            f"the weights would make {count:,} files; ask for larger shards (at most {MAX_SHARDS:,} files)."
        )
    return [WEIGHTS] if count == 1 else [f"model-{n:05d}-of-{count:05d}.safetensors" for n in range(1, count + 1)]


def shard_bytes(megabytes: float | None) -> int | None:
    """A size in MB as bytes; None: all weights go into one file."""
    return None if megabytes is None or math.isinf(megabytes) else max(1, int(megabytes * 1e6))


def split_into_shards(sizes: Mapping[str, int], limit: int | None) -> list[list[str]]:
    """Names of tensors for each file, in order; each file within the limit unless one tensor alone is larger."""
    files: list[list[str]] = [[]]
    filled = 0
    for name, size in sizes.items():
        if limit is not None and files[-1] and filled + size > limit:
            files.append([])
            filled = 0
        files[-1].append(name)
        filled += size
    return files


def shard_index(files: Mapping[str, Sequence[str]], sizes: Mapping[str, int]) -> dict[str, Any]:
    """The index of shards: the size of all tensors together, and which file holds which tensor."""
    places = {tensor: name for name, tensors in files.items() for tensor in tensors}
    return {"metadata": {"total_size": sum(sizes.values())}, "weight_map": dict(sorted(places.items()))}


def check_complete(names: Iterable[str], where: str) -> tuple[str, ...]:
    """The files of weights among `names`, in order: the only one, or all shards of one set and their index."""
    listed = set(names)
    found = sorted(name for name in listed if is_weights(name))
    if not found:
        raise ModelDirectoryError(f"{where} does not name {WEIGHTS}, nor shards of it.")
    if found != shard_names(len(found)) or (INDEX in listed) != (found[0] != WEIGHTS):
        raise ModelDirectoryError(
            f"{where} names {', '.join(found[:3])}, which are not all files of one set of weights with their index; "
            f"copy the whole directory again, or save the model again."
        )
    return tuple(found)
