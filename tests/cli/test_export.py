"""`export`, and `translate` and `evaluate` with an engine that reads the exported files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.native import available
from tests.cli.program import ENVIRONMENT, Corpus, Inside
from tests.cli.test_translate import ODD_LINES

pytest.importorskip("ctranslate2", reason="needs the package ctranslate2: pip install 'heedful[dev]'")


def test_engines_agree_on_unusual_texts(inside: Inside, model: Path, tmp_path: Path) -> None:
    exported = inside("export", "--to", "ctranslate2", "-m", model, "-o", tmp_path / "exported")
    assert exported.code == 0
    assert exported.out.startswith(f"{tmp_path / 'exported'}: CTranslate2 files (") and exported.out.count("\n") == 1
    assert f"heedful translate -m {tmp_path / 'exported'}" in exported.out
    inside("info", tmp_path / "exported").refused("was exported for CTranslate2", "the model that it was exported from")
    lines = "".join(f"{line}\n" for line in ODD_LINES).encode()
    expected = inside("translate", "-m", model, "--engine", "torch", "--method", "greedy", given=lines)
    assert expected.code == 0 and expected.out.count("\n") == len(ODD_LINES)
    for flags in (["-m", model, "--engine", "ctranslate2"], ["-m", tmp_path / "exported"]):
        assert inside("translate", *flags, "--method", "greedy", given=lines).out == expected.out


def test_evaluate_takes_an_engine(inside: Inside, model: Path, corpus: Corpus) -> None:
    files = ["-s", corpus.test_source, "-t", corpus.test_target]
    expected = inside("evaluate", "-m", model, *files, "--engine", "torch")
    assert expected.code == 0 and "torch engine, weights float32" in expected.error
    report = json.loads(inside("evaluate", "-m", model, *files, "--engine", "ctranslate2", "--json").out)
    assert (report["engine"], report["weights"]) == ("ctranslate2", "float32")
    assert inside("evaluate", "-m", model, *files, "--engine", "ctranslate2").out == expected.out
    assert inside("evaluate", "-m", model, *files, "--engine", "ctranslate2", "--quantization", "int8").code == 0


def test_shortlist_errors_are_one_line(inside: Inside, model: Path) -> None:
    ctranslate2 = ["translate", "-m", model, "--engine", "ctranslate2"]
    inside(*ctranslate2, "--json", "--align", "1 2").refused("ctranslate2", "alignment")
    inside(*ctranslate2, "--prefix", "1", "1 2").refused("target prefix")
    inside(*ctranslate2, "--method", "sampling", "1 2").refused("method=sampling")
    inside("translate", "-m", model, "--engine", "onnx", "1 2").refused("onnx", "torch, native, ctranslate2")
    inside("export", "--to", "ctranslate", "-m", model, "-o", "out").refused("did you mean 'ctranslate2'")


@pytest.mark.parametrize("engine", ["ctranslate2", "native", "auto"])
def test_native_translation_needs_no_torch(inside: Inside, model: Path, engine: str) -> None:
    if engine != "ctranslate2" and not available():
        pytest.skip(available().reason)
    arguments = ["translate", "-m", str(model), "--engine", engine, "1 2 3", "4 5"]
    code = f"import sys; sys.modules['torch'] = None; from heedful.cli import run; sys.exit(run({arguments!r}))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=ENVIRONMENT | extra_path(), capture_output=True, encoding="utf-8", check=True)
    assert done.stdout == inside("translate", "-m", model, "1 2 3", "4 5").out


@pytest.mark.skipif(not available(), reason=available().reason)
def test_translate_imports_no_heavy_packages(inside: Inside, model: Path) -> None:
    """Importing numpy would take a third of the command's time."""
    arguments = ["translate", "-m", str(model), "--device", "cpu", "1 2 3", "4 5"]
    expected = inside(*arguments).out
    others = ("heedful.cli.train", "heedful.cli.paper")  # verbs that are not used here
    heavy = ("torch", "numpy", "safetensors", "yaml", "rich", "sacrebleu", *others)
    code = (
        f"import sys; from heedful.cli import run; code = run({arguments!r})\n"
        f"sys.exit(code or ' '.join(name for name in {heavy!r} if name in sys.modules) or None)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=ENVIRONMENT | extra_path(), capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


def extra_path() -> dict[str, str]:
    """PYTHONPATH with this process's import path, for a new process."""
    return {"PYTHONPATH": os.pathsep.join([ENVIRONMENT["PYTHONPATH"], *(path for path in sys.path if path)])}
