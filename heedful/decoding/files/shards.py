"""Shards of a file: which chunks each one translates, and merging finished shards."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

from heedful.atomic_files import rename_durably
from heedful.decoding.files.chunked_files import (
    ChunkSizes,
    Manifest,
    differences,
    load_manifest,
    locked,
    manifest_path,
    partial_path,
    read_chunks,
    write_all,
)
from heedful.errors import ConfigError, CorpusError, DecodingError, HeedfulError

MAX_LISTED = 8  # shards in one message


@dataclass(frozen=True)
class Shard:
    """Part `index` of `count`, from 1."""

    index: int = 1
    count: int = 1
    is_whole: bool = False
    """Whether the file is not divided: the output is written directly, without merging."""

    def contains(self, chunk: int) -> bool:
        """Whether a chunk, numbered from 0, belongs to this shard."""
        return chunk % self.count == self.index - 1

    def path(self, output: Path) -> Path:
        """The path that this shard of an output is written to."""
        if self.is_whole:
            return output
        return output.with_name(f"{output.name}.part-{self.index:04d}-of-{self.count:04d}")

    def num_lines(self, total: int, sizes: ChunkSizes) -> int:
        """How many of `total` lines belong to this shard."""
        return sum(count for number, _, count in sizes.chunks(total) if self.contains(number))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


WHOLE = Shard(is_whole=True)


def parse_shard(text: str | None) -> Shard:
    """Parse "3/16"; None means the whole file."""
    if text is None:
        return WHOLE
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise ConfigError(f"--shard {text}: write it as i/n with i from 1 to n, such as 3/16.")
    return Shard(int(match[1]), int(match[2]))


def find_shards(output: Path) -> dict[int, list[Shard]]:
    """Finished and unfinished shards in the directory of an output, grouped by shard count."""
    pattern = re.compile(re.escape(output.name) + r"\.part-(\d{4,})-of-(\d{4,})(\.partial|\.manifest\.json)?")
    names = [pattern.fullmatch(path.name) for path in sorted(output.parent.iterdir())]
    found: dict[int, list[Shard]] = {}
    for shard in dict.fromkeys(Shard(int(name[1]), int(name[2])) for name in names if name):
        found.setdefault(shard.count, []).append(shard)
    return found


def merge_shards(output: Path, *, input_file: str | None, progress: Callable[[int, int], None]) -> int:
    """Merge all shards into the output and return its number of lines. `progress` receives (lines done, total lines).

    With `input_file`, also check that the shards are translations of the file as it is now.
    """
    count = count_shards(output)
    shards = [Shard(index, count) for index in range(1, count + 1)]
    manifest = check_shards(output, shards)
    if input_file is not None:
        check_input(input_file, manifest)
    merged = output.with_name(f"{output.name}.merging")
    with locked(merged) as file:
        file.truncate(0)
        try:
            for lines, done in interleave(output, shards, manifest):
                write_all(file, b"".join(lines))
                progress(done, manifest.input_lines)
            os.fsync(file.fileno())
            rename_durably(merged, output)
        except BaseException:
            merged.unlink(missing_ok=True)
            raise
    return manifest.input_lines


def count_shards(output: Path) -> int:
    """The number of shards that the output was divided into, from their names."""
    found = find_shards(output)
    if not found:
        example = Shard(1, 16).path(output).name
        raise DecodingError(f"{output}: there are no shards of it, such as {example}; make them with --shard.")
    if len(found) > 1:
        counts = " and ".join(map(str, sorted(found)))
        raise DecodingError(f"{output}: there are shards of {counts}; delete those that do not belong to it.")
    return next(iter(found))


def check_shards(output: Path, shards: Iterable[Shard]) -> Manifest:
    """Check all shards and return one of their manifests; an error lists every shard that cannot be merged."""
    manifests: dict[Shard, Manifest] = {}
    problems: list[str] = []
    for shard in shards:
        try:
            manifests[shard] = load_finished_manifest(output, shard)
        except HeedfulError as error:
            problems.append(str(error))
    mismatched = find_mismatched_shards(manifests)
    problems += [f"{shard} is of another run ({difference})" for shard, difference in mismatched.items()]
    if problems:
        more = [f"and {len(problems) - MAX_LISTED} more"] if len(problems) > MAX_LISTED else []
        raise DecodingError(
            f"{output}: some shards cannot be merged. {'; '.join(problems[:MAX_LISTED] + more)}. "
            f"Run these again: heedful translate … --shard i/n, with --overwrite for those that exist."
        )
    return next(iter(manifests.values()))


def load_finished_manifest(output: Path, shard: Shard) -> Manifest:
    """The manifest of a finished shard, checked against the size of its file."""
    path = shard.path(output)
    manifest = load_manifest(manifest_path(path))
    if manifest is not None and not manifest.finished:
        raise DecodingError(f"{shard} is not finished ({manifest.lines:,} lines)")
    if manifest is None and path.exists():
        raise DecodingError(f"{shard} has no {manifest_path(path).name}")
    if manifest is None or not path.exists():
        raise DecodingError(f"{shard} is {'not finished' if partial_path(path).exists() else 'missing'}")
    if manifest.settings.shard != str(shard):
        raise DecodingError(f"{shard} is {manifest.settings.shard} under another name")
    size = path.stat().st_size
    lines = shard.num_lines(manifest.input_lines, manifest.settings.sizes)
    if size != manifest.bytes:
        raise DecodingError(f"{shard} has {size:,} bytes instead of {manifest.bytes:,}")
    if manifest.lines != lines:
        raise DecodingError(f"{shard} has {manifest.lines:,} lines instead of {lines:,}")
    return manifest


def find_mismatched_shards(manifests: Mapping[Shard, Manifest]) -> dict[Shard, str]:
    """Shards whose settings or input differ from those of most shards, and how they differ."""
    if not manifests:
        return {}
    settings = {shard: replace(manifest.settings, shard="") for shard, manifest in manifests.items()}
    texts = {shard: (manifest.input_lines, manifest.input_digest) for shard, manifest in manifests.items()}
    keys = {shard: (json.dumps(asdict(settings[shard]), sort_keys=True), texts[shard]) for shard in manifests}
    majority = Counter(keys.values()).most_common(1)[0][0]
    reference = next(shard for shard in manifests if keys[shard] == majority)
    found: dict[Shard, str] = {}
    for shard in manifests:
        if keys[shard] != majority:
            found[shard] = differences(settings[shard], settings[reference]) or "another text"
    return found


def check_input(path: str, manifest: Manifest) -> None:
    """Check that the input is the text that was translated."""
    last = None
    for last in read_chunks(path, manifest.settings.sizes):
        if last.read_error:
            raise last.read_error
    if (last.digest if last else "") != manifest.input_digest:
        raise CorpusError(f"{path}: this is not the text that the shards are translations of; translate it again.")


def interleave(output: Path, shards: list[Shard], manifest: Manifest) -> Iterable[tuple[list[bytes], int]]:
    """The lines of all shards in input order, chunk by chunk, each with the number of lines up to there."""
    positions = dict.fromkeys(shards, 0)
    for number, start, expected in manifest.settings.sizes.chunks(manifest.input_lines):
        shard = shards[number % len(shards)]
        with shard.path(output).open("rb") as file:
            file.seek(positions[shard])
            lines = list(islice(file, expected))
            positions[shard] += sum(map(len, lines))
        if len(lines) != expected or not lines[-1].endswith(b"\n"):
            raise DecodingError(f"{shard.path(output)} has fewer lines than its manifest records; translate it again.")
        yield lines, start + expected
    for shard in shards:
        if positions[shard] != shard.path(output).stat().st_size:
            raise DecodingError(f"{shard.path(output)} has more lines than its manifest records; translate it again.")
