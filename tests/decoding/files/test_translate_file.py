"""Translating whole files: fixed chunk boundaries, shards, and outputs that can be resumed after any interruption."""

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

from heedful.decoding.files import chunked_files as output_module
from heedful.decoding.files import translate_file as workers_module
from heedful.decoding.files.chunked_files import (
    ChunkSizes,
    Manifest,
    RunSettings,
    differences,
    load_manifest,
    locked,
    manifest_path,
    open_output,
    partial_path,
    read_chunks,
)
from heedful.decoding.files.job import TranslationJob
from heedful.decoding.files.shards import WHOLE, Shard, find_shards, merge_shards, parse_shard
from heedful.decoding.files.translate_file import (
    RunProgress,
    WorkerDevice,
    assign_devices,
    choose_chunk_sizes,
    max_useful_workers,
    translate_file,
    usable_core_ids,
    visible_gpus,
)
from heedful.decoding.translation import Translation, empty_translation
from heedful.errors import ConfigError, CorpusError, DecodingError, HeedfulError


@dataclass(frozen=True)
class UppercaseJob(TranslationJob):
    """A job without a model. The output contains each text's index in its chunk, so that other chunk sizes show."""

    def load(self, device: str) -> Callable[[Sequence[str]], list[Translation]]:
        def translate(texts: Sequence[str]) -> list[Translation]:
            return [
                Translation(**{**vars(empty_translation()), "text": f"{text.upper()} {index}/{len(texts)}"})
                for index, text in enumerate(texts, start=1)
            ]

        return translate


class RecordingListener:
    """Records the progress reports of a run."""

    def __init__(self) -> None:
        self.resumed: list[Manifest] = []
        self.started: list[RunProgress] = []
        self.progress: list[RunProgress] = []

    def on_resume(self, manifest: Manifest) -> None:
        self.resumed.append(manifest)

    def on_start(self, step: RunProgress) -> None:
        self.started.append(step)

    def on_chunk_written(self, step: RunProgress) -> None:
        self.progress.append(step)


def translate_uppercase(
    text: Path,
    output: Path,
    *,
    shard: Shard | None = None,
    size: int = 3,
    first: int | None = None,
    overwrite: bool = False,
    **identity: Any,
) -> RecordingListener:
    """Run `translate_file` without a model."""
    listener, part = RecordingListener(), shard or WHOLE
    settings = RunSettings({"model": {"weights": "1"}, **identity}, size, str(part), first)
    path = part.path(output)
    devices = [WorkerDevice("cpu")]
    translate_file(
        UppercaseJob("m"), str(text), path, settings, devices, shard=part, overwrite=overwrite, listener=listener
    )
    return listener


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.en"
    path.write_text("".join(f"line {number}\n" for number in range(1, 24)))
    return path


# ---- chunks --------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([b"a", b"bb \r", b"", "\u2028\x85".encode(), b"\r"])), st.booleans(), st.integers(1, 4))
def test_chunks_contain_every_line_once(tmp_path_factory: Any, lines: list[bytes], ended: bool, size: int) -> None:
    data = b"".join(line + b"\n" for line in lines)
    data = data if ended else data.removesuffix(b"\n")
    folder = tmp_path_factory.mktemp("chunks")
    found = []
    for name, write in (("a", lambda b: b), ("a.gz", gzip.compress), ("a.xz", lzma.compress)):
        (folder / name).write_bytes(write(data))
        chunks = list(read_chunks(str(folder / name), ChunkSizes(size)))
        found.append([(p.number, p.first_line, p.lines, p.digest) for p in chunks])
        assert b"".join(line for p in chunks for line in p.lines) == data
        assert all(len(p.lines) == size for p in chunks[:-1]) and all(p.lines for p in chunks)
        assert [p.first_line for p in chunks] == [1 + size * n for n in range(len(chunks))]
        expected = data.split(b"\n")[: None if data and not data.endswith(b"\n") else -1]
        texts = [text for p in chunks for text in p.texts(name)[0]]
        assert texts == [line.removesuffix(b"\r").decode() for line in expected]
        if chunks:
            assert chunks[-1].digest == hashlib.sha256(data).hexdigest()
            assert chunks[-1].position == (folder / name).stat().st_size
    assert found[0] == found[1] == found[2]


@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 4), st.integers(1, 9))
def test_growing_chunks_and_shards_contain_every_line_once(total: int, most: int, first: int, count: int) -> None:
    sizes = ChunkSizes(most, first=first)
    chunks = list(sizes.chunks(total))
    lines = [line for _, before, number in chunks for line in range(before, before + number)]
    assert lines == list(range(total))
    assert [size for _, _, size in chunks[:-1]] == [min(most, first * 2**number) for number, _, _ in chunks[:-1]]
    assert sum(Shard(index, count).num_lines(total, sizes) for index in range(1, count + 1)) == total
    assert sizes[10**9] == most


def test_growing_chunks_match_chunk_sizes(text: Path) -> None:
    sizes = ChunkSizes(8, first=2)
    chunks = list(read_chunks(str(text), sizes))
    found = [(p.number, p.first_line - 1, len(p.lines)) for p in chunks]
    assert found == list(sizes.chunks(23)) == [(0, 0, 2), (1, 2, 4), (2, 6, 8), (3, 14, 8), (4, 22, 1)]
    assert b"".join(line for p in chunks for line in p.lines) == text.read_bytes()


def test_first_chunk_is_small_and_resuming_keeps_chunk_sizes(tmp_path: Path) -> None:
    output = tmp_path / "out"
    sizes = choose_chunk_sizes(output, None, "cpu", overwrite=False)
    assert sizes[0] <= 32 and sizes.maximum <= 512
    assert choose_chunk_sizes(output, 7, "cpu", overwrite=False) == ChunkSizes(7)
    # a manifest without a first chunk size
    plain = {"format": "heedful-translation", "format_version": 1, "settings": {"identity": {}, "chunk_lines": 1024}}
    manifest_path(output).write_text(json.dumps(plain))
    assert choose_chunk_sizes(output, None, "cpu", overwrite=False) == ChunkSizes(1024)
    assert choose_chunk_sizes(output, None, "cpu", overwrite=True) == sizes


def test_byte_order_mark_is_removed_and_undecodable_line_is_numbered(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfa\nb\nc\nd\n\xff\ne\n")
    first, second = read_chunks(str(tmp_path / "a"), ChunkSizes(3))
    assert first.texts("a") == (["a", "b", "c"], None)
    texts, error = second.texts("a")
    assert texts == ["d"] and str(error).startswith("a:5: ")


def test_damaged_file_yields_lines_before_the_damage(tmp_path: Path) -> None:
    data = b"".join(os.urandom(400).hex().encode() + b"\n" for _ in range(3000))
    (tmp_path / "a.gz").write_bytes(gzip.compress(data)[:-10000])
    chunks = list(read_chunks(str(tmp_path / "a.gz"), ChunkSizes(100)))
    assert len(chunks) > 2 and chunks[-1].read_error and not any(p.read_error for p in chunks[:-1])
    assert data.startswith(b"".join(line for p in chunks for line in p.lines))


# ---- shards ----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 60), st.integers(1, 7), st.integers(1, 9))
def test_each_line_belongs_to_one_shard(total: int, size: int, count: int) -> None:
    shards = [Shard(index, count) for index in range(1, count + 1)]
    owners = [[shard.index for shard in shards if shard.contains(line // size)] for line in range(total)]
    assert all(len(found) == 1 for found in owners)
    assert [shard.num_lines(total, ChunkSizes(size)) for shard in shards] == [
        owners.count([shard.index]) for shard in shards
    ]


@pytest.mark.parametrize("wrong", ["0/4", "5/4", "3", "a/b", "1/0", "-1/4", "1/2/3", ""])
def test_parse_shard(wrong: str) -> None:
    assert parse_shard("3/16") == Shard(3, 16) and parse_shard(None) == WHOLE
    with pytest.raises(ConfigError, match="--shard"):
        parse_shard(wrong)


@pytest.mark.parametrize("first", [None, 1, 2])
@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_merged_shards_equal_unsharded_output(text: Path, tmp_path: Path, count: int, first: int | None) -> None:
    whole, output = tmp_path / "whole", tmp_path / "out"
    translate_uppercase(text, whole, first=first)
    for index in range(count, 0, -1):
        translate_uppercase(text, output, shard=Shard(index, count), first=first)
    assert merge_shards(output, input_file=str(text), progress=lambda done, total: None) == 23
    assert output.read_bytes() == whole.read_bytes()
    assert find_shards(output) == {count: [Shard(index, count) for index in range(1, count + 1)]}
    text.write_text(text.read_text().replace("line 22", "line 0"))
    with pytest.raises(CorpusError, match=r"text\.en"):
        merge_shards(output, input_file=str(text), progress=lambda done, total: None)


def merge_error(output: Path) -> str:
    with pytest.raises(DecodingError) as refused:
        merge_shards(output, input_file=None, progress=lambda done, total: None)
    assert not output.exists() and not output.with_name("out.merging").exists()
    return str(refused.value)


def test_merge_lists_every_bad_shard(text: Path, tmp_path: Path) -> None:
    output, count = tmp_path / "out", 6
    assert "no shards" in merge_error(output)
    for index in (1, 2, 4):
        translate_uppercase(text, output, shard=Shard(index, count))
    translate_uppercase(text, output, shard=Shard(5, count), beams=9)
    bad = tmp_path / "bad"
    bad.write_bytes(text.read_bytes().replace(b"line 18", b"\xff"))
    with pytest.raises(CorpusError):
        translate_uppercase(bad, output, shard=Shard(6, count))
    Shard(2, count).path(output).write_bytes(b"short\n")
    said = merge_error(output)
    for words in ("2/6 has 6 bytes", "3/6 is missing", "5/6 is of another run (beams 9", "6/6 is not finished"):
        assert words in said
    assert "1/6" not in said and "4/6" not in said
    manifest_path(Shard(1, count).path(output)).write_text("{}")
    assert "part-0001-of-0006.manifest.json" in merge_error(output)


def test_merge_detects_changed_text_and_changed_lines(text: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    for index in (1, 2, 3):
        translate_uppercase(text, output, shard=Shard(index, 3))
    second = Shard(2, 3).path(output)
    good = second.read_bytes()
    second.write_bytes(good.replace(b"\n", b" ", 1))
    assert "fewer lines" in merge_error(output)
    second.write_bytes(b"\n" + good[1:])
    assert "lines" in merge_error(output)
    text.write_text(text.read_text() + "one more\n")
    translate_uppercase(text, output, shard=Shard(2, 3), overwrite=True)
    assert "2/3 is of another run (another text)" in merge_error(output)
    translate_uppercase(text, output, shard=Shard(1, 4))
    assert "3 and 4" in merge_error(output)


# ---- kills -----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process was killed."""


@pytest.fixture
def kill_at_operation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int | None], None]]:
    """Simulate a kill at the n-th write, sync, rename or removal from now on; None disables it."""
    countdown: list[int] = []

    def wrap(owner: Any, name: str, *, halfway: bool = False) -> None:
        original = getattr(owner, name)

        def operation(*arguments: Any, **named: Any) -> Any:
            if countdown:
                countdown[0] -= 1
                if countdown[0] < 0:
                    if halfway:  # a partial write
                        arguments[0].file.write(arguments[1][: len(arguments[1]) // 2])
                    raise Killed
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, operation)

    wrap(output_module.ResumableOutput, "append", halfway=True)
    wrap(os, "fsync")
    wrap(os, "replace")
    wrap(Path, "unlink")

    def kill_at(number: int | None) -> None:
        countdown[:] = [] if number is None else [number]

    yield kill_at


@pytest.mark.parametrize("first", [None, 1])
@pytest.mark.parametrize("shard", [WHOLE, Shard(2, 3)])
def test_output_is_identical_after_a_kill_at_any_point(
    text: Path, tmp_path: Path, kill_at_operation: Callable[[int | None], None], shard: Shard, first: int | None
) -> None:
    whole, output = shard.path(tmp_path / "whole"), shard.path(tmp_path / "out")
    translate_uppercase(text, tmp_path / "whole", shard=shard, first=first)
    moments, survived = 0, False
    while not survived:
        for path in tmp_path.glob("out*"):
            path.unlink()
        for again in range(3):  # killed at that operation, then a little later, then earlier
            kill_at_operation(moments + 2 * (again == 1))
            try:
                translate_uppercase(text, tmp_path / "out", shard=shard, first=first)
                survived = survived or again == 0
            except (Killed, FileNotFoundError):
                assert not output.exists() or output.read_bytes() == whole.read_bytes()
        kill_at_operation(None)
        translate_uppercase(text, tmp_path / "out", shard=shard, first=first)
        assert output.read_bytes() == whole.read_bytes()
        assert not partial_path(output).exists()
        assert manifest_path(output).exists() == (shard != WHOLE)
        moments += 1
    assert moments > 8


def test_resuming_translates_only_the_rest(text: Path, tmp_path: Path) -> None:
    output, good = tmp_path / "out", text.read_bytes()
    text.write_bytes(good.replace(b"line 11", b"\xff"))
    with pytest.raises(CorpusError, match=r"text\.en:11: ") as stopped:
        translate_uppercase(text, output)
    assert "run the same command to resume" in " ".join(stopped.value.__notes__)
    assert partial_path(output).read_bytes().count(b"\n") == 10 and not output.exists()
    text.write_bytes(good)
    listener = translate_uppercase(text, output)
    assert [manifest.lines for manifest in listener.resumed] == [9] and [step.lines for step in listener.started] == [9]
    assert [step.lines for step in listener.progress] == [12, 15, 18, 21, 23]
    assert listener.progress[-1].position == len(good)
    translate_uppercase(text, tmp_path / "whole")
    assert output.read_bytes() == (tmp_path / "whole").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "text.en", "whole"]


def interrupt_after_nine_lines(text: Path, output: Path, shard: Shard | None = None) -> None:
    good = text.read_bytes()
    text.write_bytes(good.replace(b"line 11", b"\xff"))
    with pytest.raises(CorpusError):
        translate_uppercase(text, output, shard=shard)
    text.write_bytes(good)


def test_changed_text_or_settings_are_refused_without_overwrite(text: Path, tmp_path: Path) -> None:
    output, good = tmp_path / "out", text.read_bytes()
    interrupt_after_nine_lines(text, output)
    kept = partial_path(output).read_bytes()[: len(first_lines(output, 9))]
    with pytest.raises(DecodingError, match=r"beams none, not 4; .*--overwrite"):
        translate_uppercase(text, output, beams=4)
    with pytest.raises(DecodingError, match="chunk_lines 3, not 4"):
        translate_uppercase(text, output, size=4)
    for changed in (good.replace(b"line 2\n", b"line zwei\n"), good[:20]):
        text.write_bytes(changed)
        with pytest.raises(CorpusError, match=r"first 9 lines .*--overwrite"):
            translate_uppercase(text, output)
    assert partial_path(output).read_bytes() == kept
    text.write_bytes(good.replace(b"line 20", b"line zwanzig") + b"and more")  # not translated yet
    assert translate_uppercase(text, output).resumed
    assert output.read_text().splitlines()[-1] == "AND MORE 3/3" and "ZWANZIG" in output.read_text()
    interrupt_after_nine_lines(text, output)
    assert not translate_uppercase(text, output, beams=4, overwrite=True).resumed
    assert not manifest_path(output).exists()


def first_lines(output: Path, number: int) -> bytes:
    return b"".join(partial_path(output).read_bytes().splitlines(keepends=True)[:number])


def test_manifest_that_does_not_match_the_output_is_refused(text: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    interrupt_after_nine_lines(text, output)
    partial_path(output).write_bytes(b"short")
    with pytest.raises(DecodingError, match=r"out\.partial has 5 bytes, .*--overwrite"):
        translate_uppercase(text, output)
    partial_path(output).unlink()
    with pytest.raises(DecodingError, match="has 0 bytes"):
        translate_uppercase(text, output)
    manifest_path(output).write_text("not a manifest")
    with pytest.raises(DecodingError, match=r"out\.manifest\.json .*--overwrite"):
        translate_uppercase(text, output)
    assert not translate_uppercase(text, output, overwrite=True).resumed


def test_finished_shard_is_not_translated_again(text: Path, tmp_path: Path) -> None:
    output, shard = tmp_path / "out", Shard(2, 3)
    translate_uppercase(text, output, shard=shard)
    before = shard.path(output).stat().st_mtime_ns
    listener = translate_uppercase(text, output, shard=shard)
    assert [manifest.finished for manifest in listener.resumed] == [True] and not listener.progress
    assert shard.path(output).stat().st_mtime_ns == before
    assert not partial_path(shard.path(output)).exists()
    text.write_text(text.read_text() + "one more\n")
    with pytest.raises(CorpusError, match="has changed"):
        translate_uppercase(text, output, shard=shard)
    assert translate_uppercase(text, output, shard=shard, overwrite=True).progress


def test_finished_shards_of_an_empty_file_detect_added_lines(tmp_path: Path) -> None:
    empty, shard = tmp_path / "empty", Shard(1, 2)
    empty.touch()
    translate_uppercase(empty, tmp_path / "out", shard=shard)
    assert translate_uppercase(empty, tmp_path / "out", shard=shard).resumed[0].finished
    empty.write_text("a line\n")
    with pytest.raises(CorpusError, match="the text has changed"):
        translate_uppercase(empty, tmp_path / "out", shard=shard)


def test_renamed_shard_is_not_merged(text: Path, tmp_path: Path) -> None:
    output, shards = tmp_path / "out", [Shard(1, 2), Shard(2, 2)]
    for shard in shards:
        translate_uppercase(text, output, shard=shard, size=4)
    first, second = (shard.path(output) for shard in shards)
    first.write_bytes(second.read_bytes())
    manifest_path(first).write_bytes(manifest_path(second).read_bytes())
    with pytest.raises(DecodingError, match="1/2 is 2/2 under another name"):
        merge_shards(output, input_file=None, progress=lambda done, total: None)


def test_no_more_workers_than_chunks(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    class Worker(workers_module._TranslationWorker):
        def translate(self, texts: Sequence[str]) -> tuple[bytes, list[tuple[int, str]]]:
            started.append(self.name)
            return "".join(f"{text}\n" for text in texts).encode(), []

    monkeypatch.setattr(workers_module, "_TranslationWorker", Worker)
    for size, num_chunks in ((10, 3), (1, 23)):
        started.clear()
        with workers_module.WorkerPool(TranslationJob("m"), [WorkerDevice("cpu")] * 5, str(text)) as workers:
            lines = b"".join(done.lines for done in workers.translate_chunks(read_chunks(str(text), ChunkSizes(size))))
        assert lines == text.read_bytes()
        assert len(started) == num_chunks
        assert set(started) <= {f"worker {number} of 5 (cpu)" for number in range(1, 6)}


def test_existing_output_is_replaced_only_when_the_new_one_is_complete(text: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("old")
    interrupt_after_nine_lines(text, output)
    assert output.read_text() == "old"
    translate_uppercase(text, output)
    assert output.read_text().count("\n") == 23


def test_second_run_cannot_write_a_locked_output(tmp_path: Path) -> None:
    path, settings = tmp_path / "out", RunSettings({}, 3)
    with open_output(path, settings, overwrite=False, keep_manifest=False) as out:
        out.append(b"one\n")
        with (
            pytest.raises(DecodingError, match="another run"),
            open_output(path, settings, overwrite=True, keep_manifest=False),
        ):
            pass
        out.finish(None)
    assert path.read_bytes() == b"one\n"
    with locked(partial_path(path)) as file:
        assert os.fstat(file.fileno()).st_size == 0


@pytest.mark.parametrize(("data", "lines"), [(b"", 0), (b"a", 1), (b"a\nb\nc\n", 3), (b"a\nb\nc", 3), (b"\n", 1)])
def test_empty_files_and_missing_final_newlines(tmp_path: Path, data: bytes, lines: int) -> None:
    (tmp_path / "in").write_bytes(data)
    translate_uppercase(tmp_path / "in", tmp_path / "out")
    assert (tmp_path / "out").read_bytes().count(b"\n") == lines
    for index in (1, 2):
        translate_uppercase(tmp_path / "in", tmp_path / "cut", shard=Shard(index, 2))
    assert merge_shards(tmp_path / "cut", input_file=str(tmp_path / "in"), progress=lambda done, total: None) == lines
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "out").read_bytes()


def test_damage_in_another_shard_stops_this_one(tmp_path: Path) -> None:
    data = b"".join(os.urandom(400).hex().encode() + b"\n" for _ in range(3000))
    (tmp_path / "a.gz").write_bytes(gzip.compress(data)[:-10000])
    number = list(read_chunks(str(tmp_path / "a.gz"), ChunkSizes(100)))[-1].number
    for index in (number % 2 + 1, (number + 1) % 2 + 1):
        with pytest.raises(CorpusError, match="cannot be read"):
            translate_uppercase(tmp_path / "a.gz", tmp_path / "out", shard=Shard(index, 2), size=100)
        assert not Shard(index, 2).path(tmp_path / "out").exists()


# ---- manifests and devices -------------------------------------------------------------------------------------------


def test_manifest_round_trip(tmp_path: Path) -> None:
    manifest = Manifest(
        RunSettings({"model": {"a.b": "1"}, "alpha": 0.6, "prefix": None}, 7, "2/3"), 4, 28, "ff", 14, 99
    )
    manifest.save(tmp_path / "r")
    assert load_manifest(tmp_path / "r") == manifest and load_manifest(tmp_path / "none") is None
    assert [path.name for path in tmp_path.iterdir()] == ["r"]
    assert json.loads((tmp_path / "r").read_text())["format_version"] == 1


def test_differences_are_described() -> None:
    old = RunSettings({"model": {"model.safetensors": "1"}, "decoding": {"beam_size": 4}, "prefix": None}, 8)
    assert differences(old, old) == ""
    new = RunSettings({"model": {"model.safetensors": "2"}, "decoding": {"beam_size": 5}, "prefix": "a"}, 8)
    found = differences(old, new)
    assert "another model.safetensors of the model" in found
    assert "decoding.beam_size 4, not 5" in found and "prefix none, not a" in found and "chunk" not in found


def test_assign_devices_on_cpu_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("heedful.decoding.files.translate_file.usable_core_ids", lambda: list(range(20)))
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 1 << 20, "SC_PHYS_PAGES": 12 << 10}[name])

    def devices(engine: str, num_workers: int = 0, max_workers: int = 99) -> list[WorkerDevice]:
        return assign_devices(engine, "cpu", num_workers=num_workers, max_workers=max_workers, model=str(tmp_path))

    assert devices("torch") == [WorkerDevice("cpu", 1)] * 12  # limited by memory
    assert devices("torch", max_workers=1) == [WorkerDevice("cpu")] == devices("native", max_workers=1)
    assert devices("torch", num_workers=2) == [WorkerDevice("cpu", 10)] * 2
    native = devices("native")
    assert len(native) == 3 and [len(device.cores) for device in native] == [6, 6, 6]
    assert len({core for device in native for core in device.cores}) == 18
    assert all(device.cores for device in devices("native", num_workers=50))
    with pytest.raises(ConfigError, match="--workers -1"):
        devices("torch", num_workers=-1)


def test_assign_devices_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def devices(device: str, num_workers: int = 0, max_workers: int = 99) -> list[WorkerDevice]:
        return assign_devices("torch", device, num_workers=num_workers, max_workers=max_workers, model="m")

    assert devices("auto") == devices("cuda") == [WorkerDevice("cuda", visible_gpu=name) for name in "012"]
    assert devices("auto", max_workers=1) == [WorkerDevice("cuda")]
    assert devices("cuda:1") == [WorkerDevice("cuda:1")]
    assert devices("cuda:1", num_workers=2) == [WorkerDevice("cuda", visible_gpu="1")] * 2
    assert [device.visible_gpu for device in devices("auto", num_workers=4)] == ["0", "1", "2", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a, 5,7")
    assert visible_gpus("torch", "cuda") == ["GPU-a", "5", "7"] and str(devices("auto")[1]) == "cuda 5"
    with pytest.raises(ConfigError, match="'cuda:3' is not available"):
        visible_gpus("torch", "cuda:3")


def test_max_useful_workers(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 64 * 1024 * 5)
    assert max_useful_workers(str(tmp_path / "a"), 1024) == 5 and max_useful_workers(str(tmp_path / "a"), 10**9) == 1
    assert usable_core_ids()


def test_errors_are_user_errors() -> None:
    assert issubclass(DecodingError, HeedfulError) and issubclass(CorpusError, HeedfulError)


def test_output_is_synced_before_the_manifest(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    synced, saved = os.fsync, Manifest.save
    with monkeypatch.context() as patched:
        patched.setattr(output_module.os, "fsync", lambda number: (events.append("fsync"), synced(number)))
        patched.setattr(Manifest, "save", lambda manifest, path: (events.append("manifest"), saved(manifest, path)))
        translate_uppercase(text, tmp_path / "out")
    saves = [index for index, event in enumerate(events) if event == "manifest"]
    assert len(saves) > 3 and all(events[index - 1] == "fsync" for index in saves)
