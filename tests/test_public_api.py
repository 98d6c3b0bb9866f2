"""The public names: few, lazily imported, typed and documented."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import heedful

ROOT = Path(__file__).parent.parent
CALLABLES = [name for name in heedful.__all__ if name != "__version__"]


def test_public_names() -> None:
    assert heedful.__all__ == [
        "Config",
        "HeedfulError",
        "ModelConfig",
        "Score",
        "TextGenerator",
        "Transformer",
        "Translation",
        "Translator",
        "__version__",
        "score",
        "see",
        "train",
    ]
    assert set(heedful.__all__) <= set(dir(heedful))


@pytest.mark.parametrize("name", CALLABLES)
def test_public_names_are_documented_and_defined_in_their_module(name: str) -> None:
    thing = getattr(heedful, name)
    assert callable(thing)
    assert thing.__name__ == name
    assert inspect.getdoc(thing)
    assert getattr(sys.modules[thing.__module__], name) is thing
    assert getattr(heedful, name) is thing


@pytest.mark.parametrize("name", ["score", "see", "train"])
def test_public_functions_are_fully_annotated(name: str) -> None:
    signature = inspect.signature(getattr(heedful, name))
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(parameter.annotation is not inspect.Parameter.empty for parameter in signature.parameters.values())


@pytest.mark.parametrize("method", ["load", "translate"])
def test_translator_methods_are_documented(method: str) -> None:
    assert inspect.getdoc(getattr(heedful.Translator, method))


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'transformer'"):
        _ = heedful.transformer
    with pytest.raises(ImportError):
        exec("from heedful import Transfomer")


def test_star_import_gives_all_public_names() -> None:
    names: dict[str, object] = {}
    exec("from heedful import *", names)
    assert set(heedful.__all__) <= set(names)


def test_public_names_are_imported_lazily() -> None:
    check = "print('torch' in sys.modules)"
    program = f"import sys, heedful; heedful.Config; {check}; heedful.Transformer; {check}"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_version_has_one_source() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", heedful.__version__)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "heedful.__version__"}
    assert f"## {heedful.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_package_is_marked_as_typed() -> None:
    assert (ROOT / "heedful" / "py.typed").exists()
