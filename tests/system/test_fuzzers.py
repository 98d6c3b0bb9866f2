"""The fuzzers of `.ci` run, and detect the defects that they look for."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from heedful.native import available

pytestmark = pytest.mark.skipif(not available(), reason=available().reason)
SCRIPTS = Path(__file__).parents[2] / ".ci"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str, *arguments: object) -> str:
    command = [sys.executable, str(SCRIPTS / f"{name}.py"), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)
    assert done.returncode == 0 and "nothing found" in done.stdout, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_random_lines_and_files() -> None:
    assert run("unicode_fuzz", "--lines", 1000).startswith("1,000 lines, 100 of them with the bundled model")
    assert " 0 refused" not in run("native_fuzz_rounds", 0, 1)


@pytest.mark.parametrize(
    ("line", "text", "problem"),
    [
        ("Good morning. ❤️", "Guten Morgen. \ufffd️", "U+FFFD appeared"),
        ("Good morning.", "Guten\x07 Morgen.", "a control character appeared"),
        ("Good morning.", "Guten\u2028 Morgen.", "a control character appeared"),
        ("Good morning.", "\u200d", "visible characters became an empty line"),
        ("\u200d", "", None),
        ("\ufffd\x07", "\x07\ufffd", None),
        ("Good morning.", "Guten Morgen.", None),
    ],
)
def test_fuzzer_detects_faulty_translations(line: str, text: str, problem: str | None) -> None:
    assert script("unicode_fuzz").compare(line, text) == problem


def test_random_lines_cover_special_characters() -> None:
    fuzzer = script("unicode_fuzz")
    lines = fuzzer.random_lines(5000, seed=1)
    assert lines == fuzzer.random_lines(5000, seed=1) != fuzzer.random_lines(5000, seed=2)
    text = "".join(lines)
    assert "\n" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
    for character in "\0\r\u0301\u200d\u200f\u202e\ufe0f\ufffd\U0001f600\U000e0061":
        assert character in text, hex(ord(character))
    assert any(character > "\U00020000" for character in text)
    assert max(map(len, lines)) > 300 and "" in lines
    for line in fuzzer.NOT_UTF8:
        with pytest.raises(UnicodeDecodeError):
            line.decode()
