"""`heedful translate`: several inputs and outputs, compressed files, `-` for stdout, texts with a leading dash."""

from __future__ import annotations

import bz2
import gzip
import lzma
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.program import COMMAND, ENVIRONMENT, Inside

READ: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".xz": lzma.decompress, ".bz2": bz2.decompress}
WRITE: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "one").write_text("1 2 3\n\n4 5\n")
    (tmp_path / "two").write_text("3 2 1\n5 4")
    return ["-i", "one", "-i", "two"]


def test_several_inputs_are_translated_one_after_another(inside: Inside, model: Path, files: list[str]) -> None:
    flags = ["translate", "-m", model]
    apart = [inside(*flags, "-i", name).out for name in ("one", "two")]
    assert inside(*flags, *files).out == "".join(apart) and apart[0].count("\n") == 3
    assert inside(*flags, *files, "-o", "-").out == "".join(apart) and not Path("-").exists()
    assert inside(*flags, *files, "-o", "both").out == ""
    assert Path("both").read_text() == "".join(apart)
    assert inside(*flags, *files, "-o", "a", "-o", "b", "--chunk-lines", 2).out == ""
    assert [Path("a").read_text(), Path("b").read_text()] == apart
    assert inside(*flags, *files, "-o", "a", "-o", "-").out == apart[1]
    assert inside(*flags, "-i", "one", "-i", "-", given=b"3 2 1\n5 4\n").out == "".join(apart)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["-o", "a", "-o", "b", "-o", "c"], ["-i is given 2 times and -o 3 times"]),
        (["-o", "a", "-o", "a"], ["the same output"]),
        (["-o", "a", "--workers", 2], ["--workers", "-i FILE and -o FILE"]),
        (["-o", "two"], ["-o two is also an input"]),
        (["1 2"], ["not both"]),
        (["-i", "missing", "-o", "a"], ["missing"]),
        (["-i", "-", "-i", "-"], ["once only"]),
        (["-o", "a.gz", "-o", "b", "--shard", "1/2"], ["-o a.gz", "merged", "uncompressed"]),
    ],
)
def test_contradictory_inputs_and_outputs_are_refused(
    inside: Inside, model: Path, files: list[str], more: list[object], words: list[str]
) -> None:
    inside("translate", "-m", model, *files, *more).refused(*words)


def test_evaluate_refuses_output_to_stdout(inside: Inside, model: Path, files: list[str]) -> None:
    inside("evaluate", "-m", model, "-s", "one", "-t", "one", "-o", "-").refused("-o -", "standard output")


@pytest.mark.parametrize("suffix", list(READ))
def test_output_is_compressed_by_file_name(inside: Inside, model: Path, files: list[str], suffix: str) -> None:
    flags = ["translate", "-m", model]
    expected = inside(*flags, "-i", "one").out.encode()
    for num_lines in (1, 1024):
        assert inside(*flags, "-i", "one", "-o", f"out{suffix}", "--chunk-lines", num_lines, "--overwrite").code == 0
        assert READ[suffix](Path(f"out{suffix}").read_bytes()) == expected
    assert inside(*flags, "-o", f"piped{suffix}", given=Path("one").read_bytes()).code == 0
    assert READ[suffix](Path(f"piped{suffix}").read_bytes()) == expected
    Path(f"in{suffix}").write_bytes(WRITE[suffix](Path("one").read_bytes()))
    assert inside(*flags, "-i", f"in{suffix}").out.encode() == expected
    Path("empty").touch()
    assert inside(*flags, "-i", "empty", "-o", f"empty{suffix}").code == 0
    assert READ[suffix](Path(f"empty{suffix}").read_bytes()) == b"" and Path(f"empty{suffix}").stat().st_size


def test_interrupted_compressed_output_is_resumed(inside: Inside, model: Path, tmp_path: Path) -> None:
    text = tmp_path / "in"
    good = [b"%d 2 3\r\n" % number for number in range(9)]
    text.write_bytes(b"".join([*good[:7], b"\xff\r\n", *good[8:]]))
    flags = ["translate", "-m", model, "-i", "in", "-o", "out.gz", "--chunk-lines", 3]
    inside(*flags).refused("in:8", "out.gz.partial")
    text.write_bytes(b"".join(good))
    assert "resuming after 6 lines" in inside(*flags).error
    found = gzip.decompress((tmp_path / "out.gz").read_bytes())
    assert inside(*flags[:-4], "-o", "plain", "--chunk-lines", 3).code == 0
    assert found == (tmp_path / "plain").read_bytes() and found.count(b"\r\n") == found.count(b"\n") == 9
    assert inside(*flags[:-4]).out.encode() == found  # streams keep CR LF too


def test_text_may_start_with_dash(inside: Inside, model: Path) -> None:
    flags = ["translate", "-m", model]
    texts = ["- 1 2", "-5", "-- 3", "--4 5", "\0 1"]
    assert inside(*flags, *texts).out == inside(*flags, "--", *texts).out
    assert inside(*flags, "--prefix", "- 1", "2 3").out == inside(*flags, "--prefix=- 1", "--", "2 3").out
    assert inside(*flags, "--", "-1", "--", "-2").out == inside(*flags, "-1", "--", "--", "-2").out
    inside(*flags, "-Zebra").refused("-Z", "put -- before a text that begins with a dash")
    inside(*flags, "--beam-sise=3", "1").refused("'--beam-size'")


@pytest.mark.parametrize("verb", [[], ["translate"], ["score"], ["paper"], ["paper", "parse"], ["models"]])
def test_help_has_a_short_flag(inside: Inside, verb: list[str]) -> None:
    ended = inside(*verb, "-h")
    assert ended.code == 0 and ended.out == inside(*verb, "--help").out and "Usage:" in ended.out
    assert verb != ["translate"] or "[TEXT]..." in ended.out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("heedful translate --engine n", {"native"}),
        ("heedful train --preset s", {"small"}),
        ("heedful translate -m en-", {"en-de-zh", "en-zh"}),
        ("heedful translate -m en-de-zh --to ", {"de", "en", "zh"}),
        ("heedful translate -m nothing --to ", set()),
    ],
)
def test_shell_completion_lists_flags_and_values(words: str, expected: set[str], tmp_path: Path) -> None:
    completion = {
        "_HEEDFUL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = subprocess.run(COMMAND, env={**ENVIRONMENT, **completion}, cwd=tmp_path, capture_output=True, check=True)
    assert set(done.stdout.decode().split()) == expected
