"""A whole file through a model: find the place to go on, translate portion by portion, give the output its name."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from heedful.decoding.bulk.output import open_output, record_of
from heedful.decoding.bulk.places import Place
from heedful.decoding.bulk.portions import Portion, read_portions
from heedful.decoding.bulk.record import Made, Record, load_record
from heedful.decoding.bulk.shards import Shard
from heedful.decoding.bulk.task import Task
from heedful.decoding.bulk.workers import Workers
from heedful.errors import CorpusError

PORTION_LINES = {"cuda": 8192}
"""Lines that are translated together on a kind of device: sorted by length they fill its batches."""
USUAL_PORTION_LINES = 1024


@dataclass(frozen=True)
class Step:
    """How far a run is."""

    lines: int
    """Lines of the output, those of earlier runs included."""
    position: int
    """Bytes of the input, as it lies on the disk, that are behind."""


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


def portion_lines_of(output: Path, wanted: int | None, kind: str, *, overwrite: bool) -> int:
    """Lines of a portion: what is wanted, else what an unfinished output was begun with, else what suits the device."""
    begun = None if overwrite or wanted is not None else load_record(record_of(output))
    return wanted or (begun.made.portion_lines if begun else PORTION_LINES.get(kind, USUAL_PORTION_LINES))


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
        passage = Passage(input_file, made.portion_lines, shard, out.record)
        if out.record.input_portions:
            listener.goes_on(out.record)
        portions = passage.own_portions(listener)
        if out.record.finished:
            deque(portions, maxlen=0)  # nothing comes: the text is only compared with that of then
        else:
            with Workers(task, places, input_file) as workers:
                for done in workers.in_order(portions):
                    out.append(done.lines)
                    if done.trouble:
                        raise done.trouble
                    out.commit(done.portion)
                    listener.wrote(Step(out.record.lines, done.portion.position))
        out.finish(passage.last)
    return out.record


class Passage:
    """The way through an input: past what is behind, then the portions of one shard, to the end."""

    def __init__(self, path: str, portion_lines: int, shard: Shard, record: Record) -> None:
        self.path, self.portion_lines, self.shard, self.record = path, portion_lines, shard, record
        self.last: Portion | None = None
        """The last portion that was read, whosoever it is."""

    def own_portions(self, listener: Listener) -> Iterator[Portion]:
        """The portions still to translate; one that is not our own only where nothing comes after it."""
        behind = self.record.input_portions
        for portion in read_portions(self.path, self.portion_lines):
            self.last = portion
            if portion.number < behind:
                self._check(portion)
                if portion.number == behind - 1:
                    listener.begins(Step(self.record.lines, portion.position))
            elif self.record.finished:
                raise self._changed()
            elif self.shard.has(portion.number):
                yield portion
            elif portion.damage:
                yield replace(portion, lines=[])
        if behind and (self.last is None or self.last.number < behind - 1):
            raise self._changed()

    def _check(self, portion: Portion) -> None:
        """The text behind must be that of the record."""
        if portion.damage:
            raise portion.damage
        if portion.number == self.record.input_portions - 1 and portion.digest != self.record.input_digest:
            raise self._changed()

    def _changed(self) -> CorpusError:
        return CorpusError(
            f"{self.path}: the text has changed since its first {self.record.input_lines:,} lines were translated; "
            f"bring the old text back, or add --overwrite to begin anew."
        )
