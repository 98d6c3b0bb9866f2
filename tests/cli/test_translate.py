"""`translate`: one output line per input line, only translations on stdout, correct behaviour in pipes."""

from __future__ import annotations

import gzip
import io
import json
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import heedful
from heedful.cli.line_io import _decode
from heedful.cli.translate import write_translations
from heedful.decoding.translation import Translation, empty_translation
from heedful.native import Availability
from tests.cli.program import COMMAND, ENVIRONMENT, Corpus, Inside

ODD_LINES = [
    "1 2 3",
    "",
    "   ",
    "4\u20285\u20296",
    "7\x0b8\x0c9\x1c1\x852",
    "tab\tand\rreturn",
    "日本語。中文！",
    "e\u0301\u200f🙂\ufeff",
    "nul \0 inside",
    "1 2. " * 200,
    "3 2 1",
]


def test_arguments_are_translated_as_texts(inside: Inside, model: Path) -> None:
    ended = inside("translate", "-m", model, "1 2 3", "4 5")
    assert ended.code == 0 and "warning" not in ended.error
    lines = ended.out.split("\n")
    assert len(lines) == 3 and lines[2] == ""
    assert inside("translate", "-m", model, given=b"1 2 3\n4 5\n").out == ended.out
    assert inside("translate", "-m", model, "--", "1 2 3", "4 5").out == ended.out


def test_file_name_as_text_prints_note(inside: Inside, model: Path, tmp_path: Path) -> None:
    (tmp_path / "1").write_text("2 3\n")
    ended = inside("translate", "-m", model, "1", "2", "3 " * 500, "\0")
    assert ended.code == 0 and ended.out.count("\n") == 4
    assert "note: 1 is translated as text; use -i 1 to translate the file." in ended.error.splitlines()
    assert ended.error.count("is translated as text") == 1


def test_translation_warnings_are_summarized(inside: Inside, tmp_path: Path) -> None:
    bundled = Path(heedful.__file__).parent / "bundled" / "en-de-zh"
    languages = ("-m", bundled, "--from", "en", "--to", "zh", "--device", "cpu", "--method", "greedy")
    odd = "\u04d8\u0487\ubd2b\ucb3e\ud002Haus"  # the model translates it to nothing
    (tmp_path / "page.en").write_text(f"Hello.\n{odd}\n\n{odd}\n")
    summary = 'warning: 2 lines (2, 4): the translation was empty, so the text was copied; --json shows "untranslated".'
    stream = inside("translate", *languages, given=(tmp_path / "page.en").read_bytes())
    assert stream.out.splitlines()[1:] == [odd, "", odd]
    assert stream.error.splitlines() == [summary]
    whole = inside("translate", *languages, "-i", tmp_path / "page.en", "-o", tmp_path / "page.zh")
    assert summary in whole.error.splitlines()
    assert (tmp_path / "page.zh").read_text() == stream.out
    record = json.loads(inside("translate", *languages, "--json", odd).out)
    assert (record["text"], record["warnings"]) == (odd, ["untranslated"])
    unchecked = inside("translate", *languages, "--decoding.checks=false", odd)
    assert (unchecked.out, unchecked.error) == ("\n", "")


def test_note_without_native_engine(
    inside: Inside, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = inside("translate", "-m", model, "--engine", "torch", "1 2 3")
    missing = Availability("it was not compiled", usable=False)
    for place in ("native", "decoding.engines", "decoding.engines.native_engine"):
        monkeypatch.setattr(f"heedful.{place}.available", lambda: missing)
    ended = inside("translate", "-m", model, "--device", "cpu", "1 2 3")
    assert (ended.code, ended.out) == (0, expected.out)
    assert ended.error == "note: the torch engine is used, which is many times slower: it was not compiled.\n"
    (tmp_path / "in").write_text("1 2 3\n")
    assert "note: the torch engine is used" in inside("translate", "-m", model, "-i", "in", "-o", "out").error
    for wanted in (["--engine", "torch"], ["--method", "sampling"], ["--quantization", "float32"]):
        assert inside("translate", "-m", model, *wanted, "1 2 3").error == ""
    inside("translate", "-m", model, "--engine", "native", "1").refused("it was not compiled. Use engine torch.")


def test_one_output_line_per_input_line(inside: Inside, model: Path, tmp_path: Path) -> None:
    text = "\n".join(ODD_LINES).encode()
    (tmp_path / "in").write_bytes(text.replace(b"\n", b"\r\n"))
    ended = inside("translate", "-m", model, given=text)
    out = ended.out.encode().split(b"\n")
    assert ended.code == 0 and len(out) == len(ODD_LINES) + 1 and out[-1] == b""
    assert [not line for line in out[:3]] == [False, True, True]
    assert out[0] == out[0].strip() and b"\r" not in ended.out.encode()
    assert inside("translate", "-m", model, "-i", "in", "-o", "out").out == ""
    *lines, last = ended.out.encode().splitlines(keepends=True)  # the last line of the input has no line break
    windows = b"".join(line.replace(b"\n", b"\r\n") for line in lines) + last
    assert (tmp_path / "out").read_bytes() == windows
    inside("translate", "-m", model, "-i", "in", "-o", "out", "-o", "-").refused("1 times", "2 times")
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize(("given_text", "num_lines"), [(b"", 0), (b"\n", 1), (b"1", 1), (b"1\n", 1), (b"\n\n1\n\n", 4)])
def test_line_endings_at_end_of_text(
    inside: Inside, model: Path, tmp_path: Path, given_text: bytes, num_lines: int
) -> None:
    assert inside("translate", "-m", model, given=given_text).out.count("\n") == num_lines
    (tmp_path / "in.gz").write_bytes(gzip.compress(given_text))
    inside("translate", "-m", model, "-i", "in.gz", "-o", "out")
    assert (tmp_path / "out").read_bytes().count(b"\n") == num_lines


@given(st.lists(st.binary(max_size=6)), st.integers(1, 9))
def test_lines_do_not_depend_on_block_size(parts: list[bytes], size: int) -> None:
    data = b"\n".join(part.replace(b"\xef\xbb\xbf", b"") for part in parts)

    class Slow:
        position = 0

        def read1(self, most: int) -> bytes:
            self.position += size
            return data[self.position - size : self.position]

    expected = data.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    found: list[str] = []
    try:
        for chunk in _decode(Slow(), "here"):  # type: ignore[arg-type]
            found += chunk
        assert found == [line.removesuffix(b"\r").decode() for line in expected]
    except Exception as error:
        with pytest.raises(UnicodeDecodeError):
            expected[len(found)].removesuffix(b"\r").decode()
        assert f"here:{len(found) + 1}:" in str(error)


def test_first_lines_are_written_early() -> None:
    asked: list[int] = []
    written: list[int] = []
    file = io.BytesIO()

    def run(texts: Sequence[str]) -> list[Translation]:
        asked.append(len(texts))
        written.append(file.getvalue().count(b"\n"))
        return [empty_translation()] * len(texts)

    chunks = iter([["a"] * 1600, ["b"] * 3000])
    write_translations(chunks, run, file, lambda lines: None, as_json=False, one_line=True)
    assert asked[0] <= 16 and asked[1] <= 32 and max(asked) <= 1024 and sum(asked) == 4600
    assert written == [sum(asked[:place]) for place in range(len(asked))]


def test_translate_json_fields(inside: Inside, model: Path) -> None:
    flags = ["--json", "--num-best", 3, "--align", "--beam-size", 5]
    ended = inside("translate", "-m", model, *flags, given="1 2 3\n\n4\u20285\n".encode())
    first, empty, broken = [json.loads(line) for line in ended.out.splitlines()]
    assert first["source"] == "1 2 3" and broken["source"] == "4\u20285" and empty["source"] == ""
    assert empty["text"] == "" and empty["alignment"] == []
    assert len(first["n_best"]) == 3 and first["n_best"][0]["text"] == first["text"]
    assert first["text"] == inside("translate", "-m", model, "--beam-size", 5, "1 2 3").out.strip("\n")
    assert first["score"] >= first["n_best"][1]["score"]
    assert first["pharaoh"] == " ".join(f"{i}-{j}" for i, j in first["alignment"])
    assert len(first["alignment"]) == len(first["tokens"])


def test_translate_search_flags(inside: Inside, model: Path) -> None:
    def tokens(*flags: object) -> list[str]:
        ended = inside("translate", "-m", model, "--json", *flags, "1 2 3 4")
        assert ended.code == 0, ended.error
        return json.loads(ended.out)["tokens"]

    assert len(tokens("--max-length", 2)) <= 2
    assert len(tokens("--decoding.max_length=2", "--max-length", 9)) <= 2
    assert len(tokens("--min-length", 8, "--max-length", 9)) >= 8
    long = tokens("--min-length", 8, "--max-length", 9, "--no-repeat-ngram-size", 1)
    assert len(set(long)) == len(long) >= 8
    assert tokens("--prefix", "9 9")[:2] == ["▁9", "▁9"]
    assert tokens("--method", "greedy") == tokens("--beam-size", 1)
    sampling = ["--method", "sampling", "--temperature", 5]
    drawn = {seed: tokens(*sampling, "--seed", seed) for seed in range(4)}
    assert drawn[1] == tokens(*sampling, "--seed", 1) and len({tuple(found) for found in drawn.values()}) > 1
    assert tokens(*sampling, "--top-k", 1) == tokens("--method", "greedy") == tokens(*sampling, "--top-p", 1e-6)
    split = inside("translate", "-m", model, "--json", "--split", "always", "One two! Three four.")
    assert json.loads(split.out)["num_sentences"] == 2


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--beam-size", 0], ["decoding.beam_size"]),
        (["--method", "bean"], ["'beam'"]),
        (["--json", "--num-best", 9], ["num_best", "beam_size"]),
        (["--to", "cc"], ["'bb'", "'cc'"]),
        (["--device", "abacus"], ["abacus"]),
        (["--max-length", 2, "--prefix", "1 2 3 4"], ["prefix"]),
        (["-o", "."], ["directory"]),
        (["-o", "missing/out"], ["-o missing/out", "no directory missing"]),
    ],
)
def test_invalid_translate_flags(inside: Inside, model: Path, flags: list[object], words: list[str]) -> None:
    inside("translate", "-m", model, *flags, "1 2 3").refused(*words)


def test_invalid_utf8_stops_after_valid_lines(inside: Inside, model: Path, tmp_path: Path) -> None:
    bad = b"1 2\n\n3 4\n\xff\xfe\n5 6\n"
    ended = inside("translate", "-m", model, given=bad)
    ended.refused("standard input:4", "UTF-8")
    assert ended.out.count("\n") == 3
    (tmp_path / "in").write_bytes(bad)
    inside("translate", "-m", model, "-i", "in", "-o", "out").refused("in:4", "out.partial")
    assert (tmp_path / "out.partial").read_bytes() == ended.out.encode()
    assert not (tmp_path / "out").exists()


def test_output_must_not_be_an_input(inside: Inside, model: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("1 2\n")
    (tmp_path / "link").symlink_to("in")
    inside("translate", "-m", model, "-i", "in", "-o", "link").refused("link", "input")
    assert (tmp_path / "in").read_text() == "1 2\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_prints_one_message(inside: Inside, model: Path) -> None:
    inside("translate", "-m", model, "-o", "/dev/full", "1 2").refused("/dev/full", "space")
    with open("/dev/full", "wb") as full:
        command = [*COMMAND, "translate", "-m", str(model), "1 2"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == ["heedful: standard output: No space left on device."]


def test_closed_standard_streams(model: Path, tmp_path: Path) -> None:
    command = shlex.join([*COMMAND, "translate", "-m", str(model)])
    for closed in (f"{command} <&-", f"{command} '1 2' >&-", f"{command} -o out '1 2' <&- >&- 2>&-"):
        done = subprocess.run(closed, shell=True, capture_output=True, env=ENVIRONMENT, cwd=tmp_path, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (tmp_path / "out").read_text().count("\n") == 1


def test_pipe_output_is_flushed_per_line(model: Path) -> None:
    command = [*COMMAND, "translate", "-m", str(model)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRONMENT) as program:
        assert program.stdin and program.stdout and program.stderr
        for _ in range(3):
            program.stdin.write(b"1 2 3\n")
            program.stdin.flush()
            assert program.stdout.readline().endswith(b"\n")  # the program still waits for input
        program.stdin.close()
        assert program.stdout.read() == b"" and program.stderr.read() == b""
        assert program.wait(60) == 0


def test_closed_output_pipe_is_not_an_error(model: Path, corpus: Corpus) -> None:
    many = corpus.source.read_bytes() * 5
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*COMMAND, "translate", "-m", str(model), "--method", "greedy"], stdin=pipe, stdout=pipe, stderr=pipe,
        env=ENVIRONMENT,
    ) as program:  # fmt: skip
        assert program.stdin and program.stdout and program.stderr
        program.stdin.write(many[:200])
        program.stdin.flush()
        assert program.stdout.readline()
        program.stdout.close()
        try:
            program.stdin.write(many)
            program.stdin.close()
        except BrokenPipeError:
            pass  # the process has ended
        assert program.stderr.read() == b""
        assert program.wait(60) == 0


def test_locale_does_not_matter(model: Path) -> None:
    environment = {**ENVIRONMENT, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [*COMMAND, "translate", "-m", str(model), "--json", "--prefix", "9"]
    done = subprocess.run(command, input="日\n".encode(), capture_output=True, env=environment, check=True)
    assert json.loads(done.stdout)["source"] == "日"
    environment |= {"PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([*command, "日"], capture_output=True, env=environment, check=True)
    assert json.loads(done.stdout)["source"] == "日"
    done = subprocess.run([*command, b"\xfc"], capture_output=True, env=environment, check=False)
    assert done.returncode == 2 and b"text 1 on the command line is not UTF-8" in done.stderr


def test_protected_spans_and_white_space(inside: Inside, tmp_path: Path) -> None:
    lines = ["\tVisit https://example.com/a?id=7 now.", "</div>", "Name:\tAnna  ", "    ", "$3.50\t❤️"]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    asked = ("translate", "--from", "en", "--to", "de")
    inside(*asked, "-i", "in.txt", "-o", "out.txt")
    piped = inside(*asked, given=(tmp_path / "in.txt").read_bytes())
    found = (tmp_path / "out.txt").read_text("utf-8").splitlines()
    assert piped.out.splitlines() == found
    assert found[0].startswith("\t") and found[0].count("https://example.com/a?id=7") == 1
    assert found[1:] == lines[1:]
    records = [json.loads(line) for line in inside(*asked, "--json", "-i", "in.txt").out.splitlines()]
    assert [one["text"] for one in records] == found and [one["source"] for one in records] == lines
    raw = inside(*asked, "--no-protect", *lines[:1]).out
    assert raw == inside(*asked, "--no-protect", lines[0].strip()).out and not raw.startswith("\t")
