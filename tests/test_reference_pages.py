"""The reference pages match the code: every key with its default, every public signature, every file."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import heedful
from heedful.config import choose_preset
from heedful.decoding.translation import Translation
from heedful.model_dir import files
from heedful.model_dir.save_load import RECORD_KEYS

ROOT = Path(__file__).parent.parent
CONFIGURATION, PYTHON, MODEL_DIRECTORY = (
    (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("configuration", "python", "model-directory")
)


@pytest.mark.parametrize(
    ("script", "page"),
    [
        ("configuration_page.py", "configuration.md"),
        ("configuration_page.py zh", "configuration.zh-CN.md"),
        ("paper_results_page.py", "paper/results.md"),
        ("paper_results_page.py zh", "paper/results.zh-CN.md"),
    ],
)
def test_generated_pages_are_current(script: str, page: str) -> None:
    command = [sys.executable, *f"{ROOT}/.ci/{script}".split(" ")]
    printed = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout
    written = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert printed == written, f"run: python .ci/{script} > docs/{page}"


@pytest.mark.parametrize(
    ("script", "page"),
    [
        ("bundled_model_page", "docs/bundled-model.md"),
        ("bundled_model_page", "docs/bundled-model.zh-CN.md"),
        ("bundled_model_page", "heedful/bundled/en-de-zh/README.md"),
        ("bundled_model_page", "docs/bundled-model-en-zh.md"),
        ("bundled_model_page", "docs/bundled-model-en-zh.zh-CN.md"),
        ("bundled_model_page", "heedful/bundled/en-zh/README.md"),
        ("classical_page", "docs/classical-zh.md"),
        ("classical_page", "docs/classical-zh.zh-CN.md"),
    ],
)
def test_result_sections_are_current(script: str, page: str) -> None:
    command = [sys.executable, str(ROOT / ".ci" / f"{script}.py"), page]
    printed = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout
    assert printed == (ROOT / page).read_text(encoding="utf-8"), f"run: python .ci/{script}.py"


def test_configuration_page_states_preset_thresholds() -> None:
    bounds = [int(number.replace(",", "")) for number in re.findall(r"below\s(\d+,000)", CONFIGURATION)]
    assert bounds == [20_000, 100_000, 500_000]
    chosen = [choose_preset(bound - 1, on_gpu=True) for bound in bounds]
    assert [*chosen, choose_preset(bounds[-1], on_gpu=True)] == ["tiny", "small", "iwslt", "base"]
    assert choose_preset(bounds[-1], on_gpu=False) == "small"


def written(name: str, function: object) -> str:
    """A signature as the page writes it: names and defaults, no types."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    parameters = [given.replace(annotation=inspect.Parameter.empty) for given in signature.parameters.values()]
    named = [given for given in parameters if given.name != "self"]
    return f"{name}{signature.replace(parameters=named, return_annotation=inspect.Signature.empty)}"


@pytest.mark.parametrize(
    "signature",
    [
        written("train", heedful.train),
        written("score", heedful.score),
        written("Transformer", heedful.Transformer.__init__),
        *(written(f"Translator.{name}", getattr(heedful.Translator, name)) for name in ("load", "translate")),
        written("Translator.translate_lines", heedful.Translator.translate_lines),
        written("Translator.translate_document", heedful.Translator.translate_document),
    ],
)
def test_python_page_has_signatures(signature: str) -> None:
    assert f"## `{signature}`" in PYTHON


def test_python_page_has_public_names_and_fields() -> None:
    for name in heedful.__all__:
        assert f"`heedful.{name}`" in PYTHON, name
    table = PYTHON.split("## `Translation`")[1].split("## ")[0]
    assert set(re.findall(r"`(\w+)`", table)) >= set(Translation.__dataclass_fields__)


def test_python_page_code_runs() -> None:
    for code in re.findall(r"^```python\n(.*?)^```", PYTHON, flags=re.DOTALL | re.MULTILINE):
        exec(code, {})


def test_model_directory_page_has_files_and_keys() -> None:
    for name in (*files.KNOWN, files.CHECKSUMS, files.SAVING, files.SAVED, *RECORD_KEYS, files.FORMAT):
        assert re.search(rf"`{re.escape(name)}/?`", MODEL_DIRECTORY), name
    assert f"an integer, currently {files.FORMAT_VERSION}" in MODEL_DIRECTORY
