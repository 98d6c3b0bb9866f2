"""Whole files: portions with fixed boundaries, shards that divide them, and outputs that survive a kill anywhere."""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.decoding.files import pool as workers_module
from heedful.decoding.files import resumable_output as output_module
from heedful.decoding.files.devices import Place, choose_places, most_of_use, usable_cores, visible_gpus
from heedful.decoding.files.job import Task
from heedful.decoding.files.line_chunks import Sizes, read_portions
from heedful.decoding.files.resumable_output import (
    Made,
    Record,
    differences,
    load_record,
    locked,
    open_output,
    partial_of,
    record_of,
)
from heedful.decoding.files.shards import WHOLE, Shard, find_shards, merge_shards, parse_shard
from heedful.decoding.files.translate_file import Step, portion_sizes, translate_file
from heedful.decoding.translation import Translation, empty_translation
from heedful.errors import ConfigError, CorpusError, DecodingError, HeedfulError


@dataclass(frozen=True)
class Shouting(Task):
    """A task without a model: it tells the place of each text in its portion, so that other portions would be seen."""

    def load(self, device: str) -> Callable[[Sequence[str]], list[Translation]]:
        def translate(texts: Sequence[str]) -> list[Translation]:
            return [
                Translation(**{**vars(empty_translation()), "text": f"{text.upper()} {place}/{len(texts)}"})
                for place, text in enumerate(texts, start=1)
            ]

        return translate


class Heard:
    """What a run told."""

    def __init__(self) -> None:
        self.went_on: list[Record] = []
        self.begun: list[Step] = []
        self.steps: list[Step] = []

    def goes_on(self, record: Record) -> None:
        self.went_on.append(record)

    def begins(self, step: Step) -> None:
        self.begun.append(step)

    def wrote(self, step: Step) -> None:
        self.steps.append(step)


def shout(
    text: Path,
    output: Path,
    *,
    shard: Shard | None = None,
    size: int = 3,
    first: int | None = None,
    overwrite: bool = False,
    **identity: Any,
) -> Heard:
    """Run the whole path without a model."""
    heard, part = Heard(), shard or WHOLE
    made = Made({"model": {"weights": "1"}, **identity}, size, str(part), first)
    path = part.file(output)
    places = [Place("cpu")]
    translate_file(Shouting("m"), str(text), path, made, places, shard=part, overwrite=overwrite, listener=heard)
    return heard


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.en"
    path.write_text("".join(f"line {number}\n" for number in range(1, 24)))
    return path


# ---- portions --------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([b"a", b"bb \r", b"", "\u2028\x85".encode(), b"\r"])), st.booleans(), st.integers(1, 4))
def test_portions_hold_every_line_once(tmp_path_factory: Any, lines: list[bytes], ended: bool, size: int) -> None:
    data = b"".join(line + b"\n" for line in lines)
    data = data if ended else data.removesuffix(b"\n")
    folder = tmp_path_factory.mktemp("portions")
    found = []
    for name, write in (("a", lambda b: b), ("a.gz", gzip.compress), ("a.xz", lzma.compress)):
        (folder / name).write_bytes(write(data))
        portions = list(read_portions(str(folder / name), Sizes(size)))
        found.append([(p.number, p.first_line, p.lines, p.digest) for p in portions])
        assert b"".join(line for p in portions for line in p.lines) == data
        assert all(len(p.lines) == size for p in portions[:-1]) and all(p.lines for p in portions)
        assert [p.first_line for p in portions] == [1 + size * n for n in range(len(portions))]
        expected = data.split(b"\n")[: None if data and not data.endswith(b"\n") else -1]
        texts = [text for p in portions for text in p.texts(name)[0]]
        assert texts == [line.removesuffix(b"\r").decode() for line in expected]
        if portions:
            assert portions[-1].digest == hashlib.sha256(data).hexdigest()
            assert portions[-1].position == (folder / name).stat().st_size
    assert found[0] == found[1] == found[2]


@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 4), st.integers(1, 9))
def test_growing_portions_and_their_shards_hold_every_line_once(total: int, most: int, first: int, count: int) -> None:
    sizes = Sizes(most, first=first)
    portions = list(sizes.portions(total))
    lines = [line for _, before, number in portions for line in range(before, before + number)]
    assert lines == list(range(total))
    assert [size for _, _, size in portions[:-1]] == [min(most, first * 2**number) for number, _, _ in portions[:-1]]
    assert sum(Shard(index, count).num_lines(total, sizes) for index in range(1, count + 1)) == total
    assert sizes[10**9] == most


def test_growing_portions_are_read_as_they_are_counted(text: Path) -> None:
    sizes = Sizes(8, first=2)
    portions = list(read_portions(str(text), sizes))
    found = [(p.number, p.first_line - 1, len(p.lines)) for p in portions]
    assert found == list(sizes.portions(23)) == [(0, 0, 2), (1, 2, 4), (2, 6, 8), (3, 14, 8), (4, 22, 1)]
    assert b"".join(line for p in portions for line in p.lines) == text.read_bytes()


def test_the_first_portion_is_small_and_an_unfinished_output_keeps_its_own(tmp_path: Path) -> None:
    output = tmp_path / "out"
    sizes = portion_sizes(output, None, "cpu", overwrite=False)
    assert sizes[0] <= 32 and sizes.most <= 512
    assert portion_sizes(output, 7, "cpu", overwrite=False) == Sizes(7)
    # the record of a version whose portions were all alike
    plain = {"format": "heedful-translation", "format_version": 1, "made": {"identity": {}, "portion_lines": 1024}}
    record_of(output).write_text(json.dumps(plain))
    assert portion_sizes(output, None, "cpu", overwrite=False) == Sizes(1024)
    assert portion_sizes(output, None, "cpu", overwrite=True) == sizes


def test_a_byte_order_mark_is_no_text_and_a_bad_line_has_its_number(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfa\nb\nc\nd\n\xff\ne\n")
    first, second = read_portions(str(tmp_path / "a"), Sizes(3))
    assert first.texts("a") == (["a", "b", "c"], None)
    texts, error = second.texts("a")
    assert texts == ["d"] and str(error).startswith("a:5: ")


def test_a_damaged_file_gives_what_is_before_the_damage(tmp_path: Path) -> None:
    data = b"".join(os.urandom(400).hex().encode() + b"\n" for _ in range(3000))
    (tmp_path / "a.gz").write_bytes(gzip.compress(data)[:-10000])
    portions = list(read_portions(str(tmp_path / "a.gz"), Sizes(100)))
    assert len(portions) > 2 and portions[-1].damage and not any(p.damage for p in portions[:-1])
    assert data.startswith(b"".join(line for p in portions for line in p.lines))


# ---- shards ----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 60), st.integers(1, 7), st.integers(1, 9))
def test_shards_divide_the_lines_among_them(total: int, size: int, count: int) -> None:
    shards = [Shard(index, count) for index in range(1, count + 1)]
    owners = [[shard.index for shard in shards if shard.has(line // size)] for line in range(total)]
    assert all(len(found) == 1 for found in owners)
    assert [shard.num_lines(total, Sizes(size)) for shard in shards] == [
        owners.count([shard.index]) for shard in shards
    ]


@pytest.mark.parametrize("wrong", ["0/4", "5/4", "3", "a/b", "1/0", "-1/4", "1/2/3", ""])
def test_a_shard_is_i_of_n(wrong: str) -> None:
    assert parse_shard("3/16") == Shard(3, 16) and parse_shard(None) == WHOLE
    with pytest.raises(ConfigError, match="--shard"):
        parse_shard(wrong)


@pytest.mark.parametrize("first", [None, 1, 2])
@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_merged_shards_are_the_whole(text: Path, tmp_path: Path, count: int, first: int | None) -> None:
    whole, output = tmp_path / "whole", tmp_path / "out"
    shout(text, whole, first=first)
    for index in range(count, 0, -1):
        shout(text, output, shard=Shard(index, count), first=first)
    assert merge_shards(output, input_file=str(text), tell=lambda done, total: None) == 23
    assert output.read_bytes() == whole.read_bytes()
    assert find_shards(output) == {count: [Shard(index, count) for index in range(1, count + 1)]}
    text.write_text(text.read_text().replace("line 22", "line 0"))
    with pytest.raises(CorpusError, match=r"text\.en"):
        merge_shards(output, input_file=str(text), tell=lambda done, total: None)


def merge_refused(output: Path) -> str:
    with pytest.raises(DecodingError) as refused:
        merge_shards(output, input_file=None, tell=lambda done, total: None)
    assert not output.exists() and not output.with_name("out.merging").exists()
    return str(refused.value)


def test_a_merge_names_each_shard_that_is_not_as_it_should_be(text: Path, tmp_path: Path) -> None:
    output, count = tmp_path / "out", 6
    assert "no shards" in merge_refused(output)
    for index in (1, 2, 4):
        shout(text, output, shard=Shard(index, count))
    shout(text, output, shard=Shard(5, count), beams=9)
    bad = tmp_path / "bad"
    bad.write_bytes(text.read_bytes().replace(b"line 18", b"\xff"))
    with pytest.raises(CorpusError):
        shout(bad, output, shard=Shard(6, count))
    Shard(2, count).file(output).write_bytes(b"short\n")
    said = merge_refused(output)
    for words in ("2/6 has 6 bytes", "3/6 is missing", "5/6 is of another run (beams 9", "6/6 is not finished"):
        assert words in said
    assert "1/6" not in said and "4/6" not in said
    record_of(Shard(1, count).file(output)).write_text("{}")
    assert "part-0001-of-0006.record.json" in merge_refused(output)


def test_a_merge_sees_another_text_and_other_lines(text: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    for index in (1, 2, 3):
        shout(text, output, shard=Shard(index, 3))
    second = Shard(2, 3).file(output)
    good = second.read_bytes()
    second.write_bytes(good.replace(b"\n", b" ", 1))
    assert "fewer lines" in merge_refused(output)
    second.write_bytes(b"\n" + good[1:])
    assert "lines" in merge_refused(output)
    text.write_text(text.read_text() + "one more\n")
    shout(text, output, shard=Shard(2, 3), overwrite=True)
    assert "2/3 is of another run (another text)" in merge_refused(output)
    shout(text, output, shard=Shard(1, 4))
    assert "3 and 4" in merge_refused(output)


# ---- kills -----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def killed_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int | None], None]]:
    """Let the process die at the n-th write, flush to the disk, renaming or removal from now on; None: no more."""
    countdown: list[int] = []

    def wrap(owner: Any, name: str, *, halfway: bool = False) -> None:
        original = getattr(owner, name)

        def operation(*arguments: Any, **named: Any) -> Any:
            if countdown:
                countdown[0] -= 1
                if countdown[0] < 0:
                    if halfway:  # part of what should have been written is there
                        arguments[0].file.write(arguments[1][: len(arguments[1]) // 2])
                    raise Killed
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, operation)

    wrap(output_module.Output, "append", halfway=True)
    wrap(os, "fsync")
    wrap(os, "replace")
    wrap(Path, "unlink")

    def kill_at(number: int | None) -> None:
        countdown[:] = [] if number is None else [number]

    yield kill_at


@pytest.mark.parametrize("first", [None, 1])
@pytest.mark.parametrize("shard", [WHOLE, Shard(2, 3)])
def test_killed_at_any_moment_and_started_again_the_output_is_the_same(
    text: Path, tmp_path: Path, killed_at: Callable[[int | None], None], shard: Shard, first: int | None
) -> None:
    whole, output = shard.file(tmp_path / "whole"), shard.file(tmp_path / "out")
    shout(text, tmp_path / "whole", shard=shard, first=first)
    moments, survived = 0, False
    while not survived:
        for path in tmp_path.glob("out*"):
            path.unlink()
        for again in range(3):  # dies at that moment, then a little later, then earlier
            killed_at(moments + 2 * (again == 1))
            try:
                shout(text, tmp_path / "out", shard=shard, first=first)
                survived = survived or again == 0
            except (Killed, FileNotFoundError):
                assert not output.exists() or output.read_bytes() == whole.read_bytes()
        killed_at(None)
        shout(text, tmp_path / "out", shard=shard, first=first)
        assert output.read_bytes() == whole.read_bytes()
        assert not partial_of(output).exists()
        assert record_of(output).exists() == (shard != WHOLE)
        moments += 1
    assert moments > 8


def test_going_on_translates_only_what_is_left(text: Path, tmp_path: Path) -> None:
    output, good = tmp_path / "out", text.read_bytes()
    text.write_bytes(good.replace(b"line 11", b"\xff"))
    with pytest.raises(CorpusError, match=r"text\.en:11: ") as stopped:
        shout(text, output)
    assert "the same command goes on" in " ".join(stopped.value.__notes__)
    assert partial_of(output).read_bytes().count(b"\n") == 10 and not output.exists()
    text.write_bytes(good)
    heard = shout(text, output)
    assert [record.lines for record in heard.went_on] == [9] and [step.lines for step in heard.begun] == [9]
    assert [step.lines for step in heard.steps] == [12, 15, 18, 21, 23]
    assert heard.steps[-1].position == len(good)
    shout(text, tmp_path / "whole")
    assert output.read_bytes() == (tmp_path / "whole").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "text.en", "whole"]


def stopped_after_nine_lines(text: Path, output: Path, shard: Shard | None = None) -> None:
    good = text.read_bytes()
    text.write_bytes(good.replace(b"line 11", b"\xff"))
    with pytest.raises(CorpusError):
        shout(text, output, shard=shard)
    text.write_bytes(good)


def test_another_text_or_making_is_refused_until_told_to_begin_anew(text: Path, tmp_path: Path) -> None:
    output, good = tmp_path / "out", text.read_bytes()
    stopped_after_nine_lines(text, output)
    kept = partial_of(output).read_bytes()[: len(kept_lines(output, 9))]
    with pytest.raises(DecodingError, match=r"beams none, not 4; .*--overwrite"):
        shout(text, output, beams=4)
    with pytest.raises(DecodingError, match="portion_lines 3, not 4"):
        shout(text, output, size=4)
    for changed in (good.replace(b"line 2\n", b"line zwei\n"), good[:20]):
        text.write_bytes(changed)
        with pytest.raises(CorpusError, match=r"first 9 lines .*--overwrite"):
            shout(text, output)
    assert partial_of(output).read_bytes() == kept
    text.write_bytes(good.replace(b"line 20", b"line zwanzig") + b"and more")  # nothing of this was translated yet
    assert shout(text, output).went_on
    assert output.read_text().splitlines()[-1] == "AND MORE 3/3" and "ZWANZIG" in output.read_text()
    stopped_after_nine_lines(text, output)
    assert not shout(text, output, beams=4, overwrite=True).went_on
    assert not record_of(output).exists()


def kept_lines(output: Path, number: int) -> bytes:
    return b"".join(partial_of(output).read_bytes().splitlines(keepends=True)[:number])


def test_a_record_that_does_not_fit_its_output_is_refused(text: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    stopped_after_nine_lines(text, output)
    partial_of(output).write_bytes(b"short")
    with pytest.raises(DecodingError, match=r"out\.partial has 5 bytes .*--overwrite"):
        shout(text, output)
    partial_of(output).unlink()
    with pytest.raises(DecodingError, match="has 0 bytes"):
        shout(text, output)
    record_of(output).write_text("not a record")
    with pytest.raises(DecodingError, match=r"out\.record\.json .*--overwrite"):
        shout(text, output)
    assert not shout(text, output, overwrite=True).went_on


def test_a_finished_shard_is_not_done_again(text: Path, tmp_path: Path) -> None:
    output, shard = tmp_path / "out", Shard(2, 3)
    shout(text, output, shard=shard)
    before = shard.file(output).stat().st_mtime_ns
    heard = shout(text, output, shard=shard)
    assert [record.finished for record in heard.went_on] == [True] and not heard.steps
    assert shard.file(output).stat().st_mtime_ns == before
    assert not partial_of(shard.file(output)).exists()
    text.write_text(text.read_text() + "one more\n")
    with pytest.raises(CorpusError, match="has changed"):
        shout(text, output, shard=shard)
    assert shout(text, output, shard=shard, overwrite=True).steps


def test_lines_added_to_an_empty_file_are_seen_by_its_finished_shards(tmp_path: Path) -> None:
    empty, shard = tmp_path / "empty", Shard(1, 2)
    empty.touch()
    shout(empty, tmp_path / "out", shard=shard)
    assert shout(empty, tmp_path / "out", shard=shard).went_on[0].finished
    empty.write_text("a line\n")
    with pytest.raises(CorpusError, match="the text has changed"):
        shout(empty, tmp_path / "out", shard=shard)


def test_a_shard_under_the_name_of_another_is_not_merged(text: Path, tmp_path: Path) -> None:
    output, shards = tmp_path / "out", [Shard(1, 2), Shard(2, 2)]
    for shard in shards:
        shout(text, output, shard=shard, size=4)
    first, second = (shard.file(output) for shard in shards)
    first.write_bytes(second.read_bytes())
    record_of(first).write_bytes(record_of(second).read_bytes())
    with pytest.raises(DecodingError, match="1/2 is 2/2 under another name"):
        merge_shards(output, input_file=None, tell=lambda done, total: None)


def test_no_more_workers_are_started_than_there_are_portions(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    class Worker(workers_module._TranslationWorker):
        def translate(self, texts: Sequence[str]) -> tuple[bytes, list[tuple[int, str]]]:
            started.append(self.name)
            return "".join(f"{text}\n" for text in texts).encode(), []

    monkeypatch.setattr(workers_module, "_TranslationWorker", Worker)
    for size, num_portions in ((10, 3), (1, 23)):
        started.clear()
        with workers_module.Workers(Task("m"), [Place("cpu")] * 5, str(text)) as workers:
            lines = b"".join(done.lines for done in workers.in_order(read_portions(str(text), Sizes(size))))
        assert lines == text.read_bytes()
        assert len(started) == num_portions
        assert set(started) <= {f"worker {number} of 5 (cpu)" for number in range(1, 6)}


def test_a_finished_output_is_replaced_only_when_the_new_one_is_complete(text: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("old")
    stopped_after_nine_lines(text, output)
    assert output.read_text() == "old"
    shout(text, output)
    assert output.read_text().count("\n") == 23


def test_two_runs_do_not_write_one_output(tmp_path: Path) -> None:
    path, made = tmp_path / "out", Made({}, 3)
    with open_output(path, made, overwrite=False, keep_record=False) as out:
        out.append(b"one\n")
        with (
            pytest.raises(DecodingError, match="another run"),
            open_output(path, made, overwrite=True, keep_record=False),
        ):
            pass
        out.finish(None)
    assert path.read_bytes() == b"one\n"
    with locked(partial_of(path)) as file:
        assert os.fstat(file.fileno()).st_size == 0


@pytest.mark.parametrize(("data", "lines"), [(b"", 0), (b"a", 1), (b"a\nb\nc\n", 3), (b"a\nb\nc", 3), (b"\n", 1)])
def test_the_ends_of_a_file(tmp_path: Path, data: bytes, lines: int) -> None:
    (tmp_path / "in").write_bytes(data)
    shout(tmp_path / "in", tmp_path / "out")
    assert (tmp_path / "out").read_bytes().count(b"\n") == lines
    for index in (1, 2):
        shout(tmp_path / "in", tmp_path / "cut", shard=Shard(index, 2))
    assert merge_shards(tmp_path / "cut", input_file=str(tmp_path / "in"), tell=lambda done, total: None) == lines
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "out").read_bytes()


def test_damage_in_the_part_of_another_shard_stops_this_one_too(tmp_path: Path) -> None:
    data = b"".join(os.urandom(400).hex().encode() + b"\n" for _ in range(3000))
    (tmp_path / "a.gz").write_bytes(gzip.compress(data)[:-10000])
    number = list(read_portions(str(tmp_path / "a.gz"), Sizes(100)))[-1].number
    for index in (number % 2 + 1, (number + 1) % 2 + 1):
        with pytest.raises(CorpusError, match="cannot be read"):
            shout(tmp_path / "a.gz", tmp_path / "out", shard=Shard(index, 2), size=100)
        assert not Shard(index, 2).file(tmp_path / "out").exists()


# ---- records and places ----------------------------------------------------------------------------------------------


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = Record(Made({"model": {"a.b": "1"}, "alpha": 0.6, "prefix": None}, 7, "2/3"), 4, 28, "ff", 14, 99)
    record.save(tmp_path / "r")
    assert load_record(tmp_path / "r") == record and load_record(tmp_path / "none") is None
    assert [path.name for path in tmp_path.iterdir()] == ["r"]
    assert json.loads((tmp_path / "r").read_text())["format_version"] == 1


def test_differences_are_told_in_words() -> None:
    old = Made({"model": {"model.safetensors": "1"}, "decoding": {"beam_size": 4}, "prefix": None}, 8)
    assert differences(old, old) == ""
    new = Made({"model": {"model.safetensors": "2"}, "decoding": {"beam_size": 5}, "prefix": "a"}, 8)
    found = differences(old, new)
    assert "another model.safetensors of the model" in found
    assert "decoding.beam_size 4, not 5" in found and "prefix none, not a" in found and "portion" not in found


def test_places_of_workers_on_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("heedful.decoding.files.devices.usable_cores", lambda: list(range(20)))
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 1 << 20, "SC_PHYS_PAGES": 12 << 10}[name])

    def places(engine: str, wanted: int = 0, most: int = 99) -> list[Place]:
        return choose_places(engine, "cpu", wanted=wanted, most=most, model=str(tmp_path))

    assert places("torch") == [Place("cpu", 1)] * 12  # as many as there is memory for
    assert places("torch", most=1) == [Place("cpu")] == places("native", most=1)
    assert places("torch", wanted=2) == [Place("cpu", 10)] * 2
    native = places("native")
    assert len(native) == 3 and [len(place.cores) for place in native] == [6, 6, 6]
    assert len({core for place in native for core in place.cores}) == 18
    assert all(place.cores for place in places("native", wanted=50))
    with pytest.raises(ConfigError, match="--workers -1"):
        places("torch", wanted=-1)


def test_places_of_workers_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def places(device: str, wanted: int = 0, most: int = 99) -> list[Place]:
        return choose_places("torch", device, wanted=wanted, most=most, model="m")

    assert places("auto") == places("cuda") == [Place("cuda", visible_gpu=name) for name in "012"]
    assert places("auto", most=1) == [Place("cuda")]
    assert places("cuda:1") == [Place("cuda:1")]
    assert places("cuda:1", wanted=2) == [Place("cuda", visible_gpu="1")] * 2
    assert [place.visible_gpu for place in places("auto", wanted=4)] == ["0", "1", "2", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a, 5,7")
    assert visible_gpus("torch", "cuda") == ["GPU-a", "5", "7"] and str(places("auto")[1]) == "cuda 5"
    with pytest.raises(ConfigError, match="'cuda:3' is not available"):
        visible_gpus("torch", "cuda:3")


def test_a_short_file_needs_few_workers(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 64 * 1024 * 5)
    assert most_of_use(str(tmp_path / "a"), 1024) == 5 and most_of_use(str(tmp_path / "a"), 10**9) == 1
    assert usable_cores()


def test_errors_are_of_the_kind_that_users_can_put_right() -> None:
    assert issubclass(DecodingError, HeedfulError) and issubclass(CorpusError, HeedfulError)


def test_lines_are_on_the_disk_before_the_record_that_counts_them(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    synced, saved = os.fsync, Record.save
    with monkeypatch.context() as patched:
        patched.setattr(output_module.os, "fsync", lambda number: (events.append("fsync"), synced(number)))
        patched.setattr(Record, "save", lambda record, path: (events.append("record"), saved(record, path)))
        shout(text, tmp_path / "out")
    places = [place for place, event in enumerate(events) if event == "record"]
    assert len(places) > 3 and all(events[place - 1] == "fsync" for place in places)
