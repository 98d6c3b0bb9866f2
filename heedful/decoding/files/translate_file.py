"""A whole file through a model: find the place to go on, translate portion by portion, give the output its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Protocol, runtime_checkable

from heedful.decoding.files.devices import Place
from heedful.decoding.files.job import Task
from heedful.decoding.files.line_chunks import Portion, Sizes, read_portions
from heedful.decoding.files.pool import Workers
from heedful.decoding.files.resumable_output import Made, Record, load_record, open_output, record_of
from heedful.decoding.files.shards import Shard
from heedful.errors import CorpusError

PORTION_SIZES = {"cuda": Sizes(8192)}
"""Lines that are translated together on a kind of device: sorted by length they fill its batches."""
USUAL_PORTION_SIZES = Sizes(256, first=16)
"""On a CPU: more lines together are no quicker, and what is not saved yet is lost when a run is stopped."""


@dataclass(frozen=True)
class Step:
    """How far a run is."""

    lines: int
    """Lines of the output, those of earlier runs included."""
    position: int
    """Bytes of the input, as it lies on the disk, that are behind."""
    remarks: Sequence[tuple[int, str]] = ()
    """What is odd about some lines of the last portion, with their numbers in the input."""


@runtime_checkable
class Listener(Protocol):
    """Who is told how a run goes."""

    def goes_on(self, record: Record) -> None:
        """What an earlier run left is gone on with; its place in the input is still to be found."""
        ...

    def begins(self, step: Step) -> None:
        """The first lines that were not translated before have been reached."""
        ...

    def wrote(self, step: Step) -> None:
        """Another portion is on the disk."""
        ...


def portion_sizes(output: Path, wanted: int | None, kind: str, *, overwrite: bool) -> Sizes:
    """Lines of portions: all as wanted, else as an unfinished output was begun, else as it suits the device."""
    if wanted is not None:
        return Sizes(wanted)
    begun = None if overwrite else load_record(record_of(output))
    return begun.made.sizes if begun else PORTION_SIZES.get(kind, USUAL_PORTION_SIZES)


def translate_file(
    task: Task,
    input_file: str,
    output: Path,
    made: Made,
    places: Sequence[Place],
    *,
    shard: Shard,
    overwrite: bool,
    listener: Listener,
) -> Record:
    """Translate a file, or a shard of it, into `output`, or go on with what an earlier run left there."""
    with open_output(output, made, overwrite=overwrite, keep_record=not shard.is_whole) as out:
        passage = Passage(input_file, made.sizes, out.record)
        if out.record.input_portions or out.record.finished:
            listener.goes_on(out.record)
            listener.begins(Step(out.record.lines, passage.go_past()))
        if not out.record.finished:
            with out.kept(), Workers(task, places, input_file) as workers:
                for done in workers.in_order(passage.portions_of(shard)):
                    out.append(done.lines)
                    if done.trouble:
                        raise done.trouble
                    out.commit(done.portion)
                    remarks = [(done.portion.first_line + place, remark) for place, remark in done.remarks]
                    listener.wrote(Step(out.record.lines, done.portion.position, remarks))
        out.finish(passage.last)
    return out.record


class Passage:
    """The way through an input: past what is behind, then the portions of one shard, to the end."""

    def __init__(self, path: str, sizes: Sizes, record: Record) -> None:
        self.path, self.record = path, record
        self.last: Portion | None = None
        """The last portion that was read, whosoever it is."""
        self._portions = read_portions(path, sizes)

    def go_past(self) -> int:
        """Read what was translated before, and make sure that it is still the same; returns the place in the file."""
        for portion in islice(self._portions, self.record.input_portions):
            self.last = portion
            if portion.damage:
                raise portion.damage
        more = self.record.finished and next(self._portions, None) is not None
        behind, digest = (self.last.number + 1, self.last.digest) if self.last else (0, "")
        if more or behind < self.record.input_portions or digest != self.record.input_digest:
            raise self._changed()
        return self.last.position if self.last else 0

    def portions_of(self, shard: Shard) -> Iterator[Portion]:
        """The portions still to translate; one of another shard only if nothing can be read after it, without lines."""
        for portion in self._portions:
            self.last = portion
            if shard.has(portion.number):
                yield portion
            elif portion.damage:
                yield replace(portion, lines=[])

    def _changed(self) -> CorpusError:
        return CorpusError(
            f"{self.path}: the text has changed since its first {self.record.input_lines:,} lines were translated; "
            f"bring the old text back, or add --overwrite to begin anew."
        )
