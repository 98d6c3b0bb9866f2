"""Shards of a file: which lines each translates, and how finished shards are merged."""

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
from heedful.decoding.files.line_chunks import Sizes, read_portions
from heedful.decoding.files.resumable_output import (
    Record,
    differences,
    load_record,
    locked,
    partial_of,
    record_of,
    write_all,
)
from heedful.errors import ConfigError, CorpusError, DecodingError, HeedfulError


@dataclass(frozen=True)
class Shard:
    """The i-th of n parts, i from 1."""

    index: int = 1
    count: int = 1
    is_whole: bool = False
    """Whether nothing was divided: the output itself is written, and nothing need be merged."""

    def has(self, portion: int) -> bool:
        """Whether the portion of this number, from 0, is its own."""
        return portion % self.count == self.index - 1

    def file(self, output: Path) -> Path:
        """Where it is written."""
        if self.is_whole:
            return output
        return output.with_name(f"{output.name}.part-{self.index:04d}-of-{self.count:04d}")

    def num_lines(self, total: int, sizes: Sizes) -> int:
        """How many of `total` lines are its own."""
        return sum(count for number, _, count in sizes.portions(total) if self.has(number))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


WHOLE = Shard(is_whole=True)


def parse_shard(text: str | None) -> Shard:
    """The shard that "3/16" names; None: the whole."""
    if text is None:
        return WHOLE
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise ConfigError(f"--shard {text}: give it as i/n with i from 1 to n, such as 3/16.")
    return Shard(int(found[1]), int(found[2]))


def find_shards(output: Path) -> dict[int, list[Shard]]:
    """Shards of an output that lie beside it, finished or not, by how many they were to be."""
    pattern = re.compile(re.escape(output.name) + r"\.part-(\d{4,})-of-(\d{4,})(\.partial|\.record\.json)?")
    names = [pattern.fullmatch(path.name) for path in sorted(output.parent.iterdir())]
    found: dict[int, list[Shard]] = {}
    for shard in dict.fromkeys(Shard(int(name[1]), int(name[2])) for name in names if name):
        found.setdefault(shard.count, []).append(shard)
    return found


MOST_NAMED = 8  # shards in one message


def merge_shards(output: Path, *, input_file: str | None, tell: Callable[[int, int], None]) -> int:
    """Write the whole output out of its shards and return its number of lines; `tell` hears of lines done and all.

    With `input_file` the shards are also compared with the text as it is now.
    """
    count = number_of_shards(output)
    shards = [Shard(index, count) for index in range(1, count + 1)]
    record = check_shards(output, shards)
    if input_file is not None:
        check_input(input_file, record)
    whole = output.with_name(f"{output.name}.merging")
    with locked(whole) as file:
        file.truncate(0)
        try:
            for lines, done in interleaved(output, shards, record):
                write_all(file, b"".join(lines))
                tell(done, record.input_lines)
            os.fsync(file.fileno())
            rename_durably(whole, output)
        except BaseException:
            whole.unlink(missing_ok=True)
            raise
    return record.input_lines


def number_of_shards(output: Path) -> int:
    """How many shards the output was divided into, by their names."""
    found = find_shards(output)
    if not found:
        example = Shard(1, 16).file(output).name
        raise DecodingError(f"{output}: there are no shards of it, such as {example}; make them with --shard.")
    if len(found) > 1:
        counts = " and ".join(map(str, sorted(found)))
        raise DecodingError(f"{output}: there are shards of {counts}; take away those that do not belong to it.")
    return next(iter(found))


def check_shards(output: Path, shards: Iterable[Shard]) -> Record:
    """A record that holds for all shards; an error names each that is missing, unfinished, damaged or another's."""
    records: dict[Shard, Record] = {}
    wrong: list[str] = []
    for shard in shards:
        try:
            records[shard] = finished_record(output, shard)
        except HeedfulError as error:
            wrong.append(str(error))
    foreign = foreign_shards(records)
    wrong += [f"{shard} is of another run ({found})" for shard, found in foreign.items()]
    if wrong:
        more = [f"and {len(wrong) - MOST_NAMED} more"] if len(wrong) > MOST_NAMED else []
        raise DecodingError(
            f"{output}: not all shards can be merged. {'; '.join(wrong[:MOST_NAMED] + more)}. "
            f"Run these again: heedful translate … --shard i/n, with --overwrite for those that are there."
        )
    return next(iter(records.values()))


def finished_record(output: Path, shard: Shard) -> Record:
    """The record of a finished shard whose file is as long as it should be."""
    path = shard.file(output)
    record = load_record(record_of(path))
    if record is not None and not record.finished:
        raise DecodingError(f"{shard} is not finished ({record.lines:,} lines)")
    if record is None and path.exists():
        raise DecodingError(f"{shard} has no {record_of(path).name}")
    if record is None or not path.exists():
        raise DecodingError(f"{shard} is {'not finished' if partial_of(path).exists() else 'missing'}")
    if record.made.shard != str(shard):
        raise DecodingError(f"{shard} is {record.made.shard} under another name")
    size = path.stat().st_size
    lines = shard.num_lines(record.input_lines, record.made.sizes)
    if size != record.bytes:
        raise DecodingError(f"{shard} has {size:,} bytes instead of {record.bytes:,}")
    if record.lines != lines:
        raise DecodingError(f"{shard} has {record.lines:,} lines instead of {lines:,}")
    return record


def foreign_shards(records: Mapping[Shard, Record]) -> dict[Shard, str]:
    """Shards that were not made as most of them were, and how they differ."""
    if not records:
        return {}
    made = {shard: replace(record.made, shard="") for shard, record in records.items()}
    texts = {shard: (record.input_lines, record.input_digest) for shard, record in records.items()}
    keys = {shard: (json.dumps(asdict(made[shard]), sort_keys=True), texts[shard]) for shard in records}
    usual = Counter(keys.values()).most_common(1)[0][0]
    pattern = next(shard for shard in records if keys[shard] == usual)
    found: dict[Shard, str] = {}
    for shard in records:
        if keys[shard] != usual:
            found[shard] = differences(made[shard], made[pattern]) or "another text"
    return found


def check_input(path: str, record: Record) -> None:
    """The text must be the one that was translated."""
    last = None
    for last in read_portions(path, record.made.sizes):
        if last.damage:
            raise last.damage
    if (last.digest if last else "") != record.input_digest:
        raise CorpusError(f"{path}: this is not the text that the shards are translations of; translate it anew.")


def interleaved(output: Path, shards: list[Shard], record: Record) -> Iterable[tuple[list[bytes], int]]:
    """The lines of all shards in the order of the text, portion by portion, and how many lines they make so far."""
    places = dict.fromkeys(shards, 0)
    for number, start, expected in record.made.sizes.portions(record.input_lines):
        shard = shards[number % len(shards)]
        with shard.file(output).open("rb") as file:
            file.seek(places[shard])
            lines = list(islice(file, expected))
            places[shard] += sum(map(len, lines))
        if len(lines) != expected or not lines[-1].endswith(b"\n"):
            raise DecodingError(f"{shard.file(output)} has fewer lines than its record tells of; translate it anew.")
        yield lines, start + expected
    for shard in shards:
        if places[shard] != shard.file(output).stat().st_size:
            raise DecodingError(f"{shard.file(output)} has more lines than its record tells of; translate it anew.")
