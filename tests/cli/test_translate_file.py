"""`translate -i FILE -o FILE` and `merge`: killed and resumed runs, sharded runs, refused arguments."""

from __future__ import annotations

import gzip
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from heedful.decoding.files.chunked_files import locked
from tests.cli.program import COMMAND, ENVIRONMENT, Inside

GREEDY = ["--engine", "torch", "--method", "greedy", "--device", "cpu", "--max-length", 8]
CHILDREN = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Distinct lines of digits, two of them unusual."""
    path = tmp_path / "text.aa"
    lines = [" ".join(str(number * 7919 % 10**6)) for number in range(1, 300)]
    lines[150:152] = ["", "4\u20285 x"]
    path.write_text("\n".join(lines))
    return path


def command(model: Path, text: Path, output: Path, *flags: object) -> list[str]:
    named = ["-m", model, "-i", text, "-o", output, "--chunk-lines", 4, *GREEDY, *flags]
    return [*COMMAND, "translate", *map(str, named)]


def lines_of(record: Path) -> int:
    """The number of lines in the progress record, which is always complete."""
    try:
        return int(json.loads(record.read_bytes())["lines"])
    except FileNotFoundError:
        return 0


@contextmanager
def running(arguments: list[str], until: Callable[[], bool]) -> Iterator[subprocess.Popen[bytes]]:
    """Start the program and wait for a condition."""
    program = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
    try:
        end = time.monotonic() + 60
        while not until():
            assert program.poll() is None and time.monotonic() < end, program.communicate()
            time.sleep(0.005)
        yield program
    finally:
        program.kill()
        program.communicate()


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("flags", "kills"),
    [(["--json", "--workers", 1], 2), (["--shard", "2/3", "--workers", 1], 1)],
    ids=["json", "shard"],
)
def test_repeatedly_killed_run_has_same_output(
    inside: Inside, model: Path, text: Path, tmp_path: Path, flags: list[object], kills: int
) -> None:
    ending = ".part-0002-of-0003" if "--shard" in flags else ""
    output, record = tmp_path / f"out{ending}", tmp_path / f"out{ending}.manifest.json"
    seen = 0
    for _ in range(kills):
        enough = seen + 8
        with running(
            command(model, text, tmp_path / "out", *flags), lambda least=enough: lines_of(record) > least
        ) as program:
            program.send_signal(signal.SIGKILL)
            program.wait()
        assert not output.exists()
        seen = lines_of(record)
    assert 8 * kills < seen < (96 if ending else 299)
    ended = inside("translate", "-m", model, "-i", text, "-o", "out", *GREEDY, *flags)  # resumes with chunks of 4 lines
    assert ended.code == 0 and f"resuming after {seen:,} lines" in ended.error and ended.out == ""
    assert inside(*command(model, text, tmp_path / "whole", *flags)[3:]).code == 0
    assert output.read_bytes() == (tmp_path / f"whole{ending}").read_bytes()
    assert output.read_bytes().count(b"\n") == (100 if ending else 299)
    assert not list(tmp_path.glob("*.partial")) and record.exists() == bool(ending)


@pytest.mark.skipif(not CHILDREN.exists(), reason="needs /proc with children")
def test_dead_workers_are_named_and_cleaned_up(inside: Inside, model: Path, text: Path, tmp_path: Path) -> None:
    output, record = tmp_path / "out", tmp_path / "out.manifest.json"
    arguments = command(model, text, output, "--workers", 2)
    children: list[int] = []

    def started(program: int) -> bool:
        lists = [path.read_text().split() for path in Path(f"/proc/{program}/task").glob("*/children")]
        children[:] = sorted(int(child) for listed in lists for child in listed)
        return len(children) == 2

    with running(arguments, lambda: lines_of(record) >= 8) as program:
        assert started(program.pid)
        os.kill(children[1], signal.SIGKILL)
        _, said = program.communicate(timeout=60)
        assert program.returncode == 2 and b"Traceback" not in said
        for words in (b"worker 2 of 2 (cpu)", b"SIGKILL", b"out.partial", b"run the same command to resume"):
            assert words in said
    with running(arguments, lambda: True) as program:
        wait_until(lambda: started(program.pid))
        program.kill()
        program.wait()
        wait_until(lambda: not any(map(alive, children)))
    assert inside("translate", "-m", model, "-i", text, "-o", "out", *GREEDY, "--workers", 1).code == 0
    inside(*command(model, text, tmp_path / "whole", "--workers", 1)[3:])
    assert output.read_bytes() == (tmp_path / "whole").read_bytes()


def test_small_file_prints_no_progress(inside: Inside, model: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"1 2 3\n\n4 5")
    ended = inside("translate", "-m", model, "-i", "in", "-o", "out")
    assert (ended.code, ended.out, ended.error) == (0, "", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]
    assert (tmp_path / "out").read_text() == inside("translate", "-m", model, given=b"1 2 3\n\n4 5").out
    (tmp_path / "in").write_bytes(b"")
    assert inside("translate", "-m", model, "-i", "in", "-o", "out").code == 0
    assert (tmp_path / "out").read_bytes() == b""


def test_shards_merged_are_the_whole(inside: Inside, model: Path, text: Path, tmp_path: Path) -> None:
    flags = ["-m", model, *GREEDY, "--chunk-lines", 20, "--json"]
    (tmp_path / "in.gz").write_bytes(gzip.compress(text.read_bytes()))
    inside("translate", *flags, "-i", text, "-o", "whole")
    for index in (3, 1):
        inside("translate", *flags, "-i", "in.gz", "-o", "out", "--shard", f"{index}/3")
    inside("merge", "out").refused("2/3 is missing", "--shard")
    inside("translate", *flags, "-i", text, "-o", "out", "--shard", "2/3", "--beam-size", 2)
    inside("merge", "out").refused("2/3 is of another run", "decoding.beam_size 2, not 4")
    inside("translate", *flags, "-i", text, "-o", "out", "--shard", "2/3").refused("decoding.beam_size", "--overwrite")
    assert inside("translate", *flags, "-i", text, "-o", "out", "--shard", "2/3", "--overwrite").code == 0
    again = inside("translate", *flags, "-i", text, "-o", "out", "--shard", "2/3")
    assert again.code == 0 and "already complete" in again.error
    merged = inside("merge", "out", "-i", text)
    assert merged.code == 0 and merged.out == "" and "299 lines" in merged.error
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    inside("merge", "out", "-i", "whole").refused("whole", "not the text")
    (tmp_path / "cut.partial").write_text("1 2\n")
    inside("translate", *flags, "-i", "cut.partial", "-o", "cut").refused("cut.partial", "input")
    inside("merge", "nothing").refused("nothing", "--shard")


def test_printed_rm_command_matches_only_shards(inside: Inside, model: Path, text: Path, tmp_path: Path) -> None:
    output = tmp_path / "* of mine"
    assert inside("translate", "-m", model, "-i", text, "-o", output, *GREEDY, "--shard", "1/1").code == 0
    message = inside("merge", output).error
    subprocess.run(message[message.index("rm ") :], shell=True, check=True)
    assert sorted(tmp_path.iterdir()) == [output, text]


def test_pipe_does_not_overwrite_resumable_output(inside: Inside, model: Path, tmp_path: Path) -> None:
    text, flags = tmp_path / "in", ["translate", "-m", model, *GREEDY, "-o", "out"]
    text.write_bytes(b"1 2\n3 4\n\xff\n")
    inside(*flags, "-i", text, "--chunk-lines", 1).refused("in:3")
    done = (tmp_path / "out.partial").read_bytes()
    inside(*flags, given=b"5 6\n" * 9).refused("out.partial", "original command")
    assert (tmp_path / "out.partial").read_bytes() == done and done.count(b"\n") == 2
    for path in tmp_path.glob("out*"):
        path.unlink()
    with locked(tmp_path / "out.partial") as file:
        file.write(b"of another run\n")
        inside(*flags, given=b"5 6\n").refused("another run is writing it")
        assert (tmp_path / "out.partial").read_bytes() == b"of another run\n"


def test_changed_settings_are_named(inside: Inside, model: Path, text: Path, tmp_path: Path) -> None:
    good = text.read_bytes().split(b"\n")
    text.write_bytes(b"\n".join([*good[:240], b"\xff", *good[241:]]))
    flags = ["-m", model, "-i", text, *GREEDY, "--chunk-lines", 100]
    inside("translate", *flags, "-o", "out").refused("text.aa:241", "UTF-8", "out.partial", "to resume")
    partial = (tmp_path / "out.partial").read_bytes()
    assert partial.count(b"\n") == 240 and lines_of(tmp_path / "out.manifest.json") == 200
    inside("translate", *flags, "-o", "out", "--json").refused("json False, not True", "--overwrite")
    inside("translate", *flags, "-o", "out", "--max-length", 3).refused("decoding.max_length 8, not 3")
    inside("translate", *flags[:-1], 7, "-o", "out").refused("chunk_lines 100, not 7")
    text.write_bytes(b"\n".join([b"9 9", *good[1:]]))
    inside("translate", *flags, "-o", "out").refused("text.aa", "first 200 lines", "--overwrite")
    text.write_bytes(b"\n".join(good))
    ended = inside("translate", *flags, "-o", "out", "--decoding.tokens_per_batch", 999)  # only affects memory
    assert ended.code == 0 and "resuming after 200 lines" in ended.error
    assert inside("translate", *flags, "-o", "whole").code == 0
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert (tmp_path / "out").read_bytes().startswith(partial)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--shard", "1/2", "1 2"], ["--shard", "-i FILE and -o FILE"]),
        (["--workers", 2], ["--workers", "-i FILE and -o FILE"]),
        (["-i", "-", "-o", "out", "--overwrite"], ["--overwrite", "pipe"]),
        (["-i", "in", "--chunk-lines", 5], ["--chunk-lines"]),
        (["-i", "in", "-o", "/dev/null", "--shard", "1/2"], ["--shard", "device"]),
        (["-i", "in", "-o", "out", "--shard", "3/2"], ["--shard 3/2", "3/16"]),
        (["-i", "in", "-o", "out", "--chunk-lines", 0], ["--chunk-lines"]),
        (["-i", "in", "-o", "out", "--workers", -1], ["--workers -1"]),
        (["-i", "in", "-o", "out", "--engine", "native", "--device", "cuda"], ["native runs on CPUs, not on 'cuda'"]),
        (["-i", "missing", "-o", "out"], ["missing", "no such file"]),
        (["-i", ".", "-o", "out"], [".", "directory"]),
        (["-i", "in", "-o", "no/out"], ["no directory no"]),
    ],
)
def test_invalid_flag_values(
    inside: Inside, model: Path, tmp_path: Path, flags: list[object], words: list[str]
) -> None:
    (tmp_path / "in").write_text("1 2\n")
    inside("translate", "-m", model, *flags).refused(*words)
    assert not list(tmp_path.glob("out*"))


def test_full_disk_loses_no_output(inside: Inside, model: Path, text: Path, tmp_path: Path) -> None:
    """A limit on file sizes simulates a full disk."""
    arguments = command(model, text, tmp_path / "out", "--workers", 1, "--json")[3:]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        ended = inside(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    ended.refused("large", "out.partial; run the same command to resume")
    assert 0 < lines_of(tmp_path / "out.manifest.json") < 299
    assert inside(*arguments).code == 0
    assert (tmp_path / "out").read_bytes().count(b"\n") == 299


def test_text_error_names_line(inside: Inside, model: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("1 2 3 4\n" * 9 + "1\n" + "1 2 3 4\n")
    flags = ["-i", "in", "-o", "out", "--chunk-lines", 4, "--prefix", "1 2 3", "--decoding.max_extra_length", 0]
    message = inside("translate", "-m", model, *flags).refused("in:10 has a target prefix", "8 lines", "out.partial")
    assert "after that line is changed, the same command resumes" in message
    (tmp_path / "in").write_text("1 2 3 4\n" * 9 + "1 2 3\n1 2 3\n")
    assert inside("translate", "-m", model, *flags).code == 0
    assert (tmp_path / "out").read_text().count("\n") == 11


def test_error_in_first_chunk_leaves_no_partial_output(inside: Inside, model: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("1 2 3 4\n1\n")
    flags = ["translate", "-m", model, "-i", "in", "-o", "out", "--prefix", "1 2 3", "--decoding.max_extra_length"]
    assert "kept" not in inside(*flags, 0).refused("in:2 has a target prefix", "max_extra_length")
    assert inside(*flags, 9).code == 0  # the remedy in the message works


def test_progress_shows_rate_and_time_left(
    inside: Inside, model: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.cli.translate_file.SECONDS_BETWEEN_LINES", 0.0)
    said = inside("translate", "-m", model, "-i", text, "-o", "out", *GREEDY, "--chunk-lines", 100).error.splitlines()
    assert len(said) == 4 and said[0].startswith("3") and "  100 lines  " in said[0]
    assert said[2].startswith("100%  299 lines") and " lines/s" in said[2] and said[2].endswith("0:00 left")
    assert said[3].startswith("out: 299 lines; ")


@pytest.mark.gpu
def test_two_workers_share_a_gpu(inside: Inside, model: Path, text: Path, tmp_path: Path) -> None:
    flags = ["--method", "greedy", "--device", "cuda", "--chunk-lines", 50]
    for workers in (1, 2):
        ended = inside("translate", "-m", model, "-i", text, "-o", f"out{workers}", "--workers", workers, *flags)
        assert ended.code == 0, ended.error
    assert (tmp_path / "out1").read_bytes() == (tmp_path / "out2").read_bytes()
