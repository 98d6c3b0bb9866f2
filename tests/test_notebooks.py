"""The notebooks of the examples run, print what they show, and are the same in both languages."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))


def cells_of(name: str, kind: str) -> list[Any]:
    notebook = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def test_notebooks_are_found() -> None:
    assert NOTEBOOKS == ["attention.ipynb", "attention.zh-CN.ipynb"]


def test_notebooks_run_and_print_what_they_show() -> None:
    space: dict[str, Any] = {"__name__": "notebook"}
    options = torch._tensor_str.PRINT_OPTS
    saved = {name: getattr(options, name) for name in ("precision", "sci_mode")}
    try:
        with torch.random.fork_rng(devices=[]):
            for cell in cells_of("attention.ipynb", "code"):
                stream = io.StringIO()
                with contextlib.redirect_stdout(stream):
                    exec(compile("".join(cell["source"]), "attention.ipynb", "exec"), space)
                assert stream.getvalue() == "".join(line for out in cell["outputs"] for line in out["text"])
    finally:
        torch.set_printoptions(**saved)


@pytest.mark.parametrize("part", ["source", "outputs"])
def test_notebooks_have_the_same_code(part: str) -> None:
    english, chinese = ([cell[part] for cell in cells_of(name, "code")] for name in NOTEBOOKS)
    assert english == chinese
    assert len(cells_of(NOTEBOOKS[0], "markdown")) == len(cells_of(NOTEBOOKS[1], "markdown"))
