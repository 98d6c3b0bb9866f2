"""The public names: few, lazy, typed and documented."""

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


def test_these_are_the_public_names() -> None:
    assert heedful.__all__ == [
        "Config",
        "HeedfulError",
        "ModelConfig",
        "Score",
        "Transformer",
        "Translation",
        "Translator",
        "__version__",
        "score",
        "train",
    ]
    assert set(heedful.__all__) <= set(dir(heedful))


@pytest.mark.parametrize("name", CALLABLES)
def test_each_name_is_there_documented_and_found_at_home(name: str) -> None:
    thing = getattr(heedful, name)
    assert callable(thing)
    assert thing.__name__ == name
    assert inspect.getdoc(thing)
    assert getattr(sys.modules[thing.__module__], name) is thing
    assert getattr(heedful, name) is thing


@pytest.mark.parametrize("name", ["score", "train"])
def test_public_functions_are_fully_annotated(name: str) -> None:
    signature = inspect.signature(getattr(heedful, name))
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(given.annotation is not inspect.Parameter.empty for given in signature.parameters.values())


@pytest.mark.parametrize("method", ["load", "translate"])
def test_the_translator_has_what_the_readme_promises(method: str) -> None:
    assert inspect.getdoc(getattr(heedful.Translator, method))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'transformer'"):
        _ = heedful.transformer
    with pytest.raises(ImportError):
        exec("from heedful import Transfomer")


def test_a_star_import_gives_all_of_them() -> None:
    names: dict[str, object] = {}
    exec("from heedful import *", names)
    assert set(heedful.__all__) <= set(names)


def test_a_first_use_imports_only_its_own_home() -> None:
    told = "print('torch' in sys.modules)"
    program = f"import sys, heedful; heedful.Config; {told}; heedful.Transformer; {told}"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_the_version_has_one_source() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", heedful.__version__)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "heedful.__version__"}
    assert f"## {heedful.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "heedful" / "py.typed").exists()
