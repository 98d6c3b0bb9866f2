"""How the tests run: shapes are checked, few threads, fixed seeds, compiled code in a separate process.

jaxtyping's import hook checks every shape written in a signature of `heedful.model`, `heedful.fused` and
`heedful.decoding`. torch.compile cannot trace through that hook, so all tests marked `compile` run in one child process
without it (HEEDFUL_SHAPE_CHECKS=0). `pytest` runs all tests and reports each under its own name.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy
import pytest
from hypothesis import settings

_cache = tempfile.TemporaryDirectory(prefix="heedful-tests-")  # for this process and its children instead of the user's
os.environ["XDG_CACHE_HOME"] = _cache.name

SHAPE_CHECKS = os.environ.get("HEEDFUL_SHAPE_CHECKS", "1") != "0" and all(map(find_spec, ("jaxtyping", "beartype")))
OUTCOMES_FILE = "HEEDFUL_TEST_OUTCOMES"  # set for the child process: its file of reports, one JSON line each

if SHAPE_CHECKS:
    import jaxtyping

    assert not any(name.startswith(("heedful.model", "heedful.fused", "heedful.decoding")) for name in sys.modules)
    jaxtyping.install_import_hook(["heedful.model", "heedful.fused", "heedful.decoding"], "beartype.beartype")

settings.register_profile("heedful", deadline=None, derandomize=True, max_examples=50, print_blob=True)
settings.load_profile("heedful")

compiled_outcomes: dict[str, list[dict[str, str]]] = {}


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """Seed all random number generators before every test."""
    random.seed(1)
    numpy.random.seed(1)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that need a GPU if there is none."""
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Report the outcome of a test marked `compile` from the child process."""
    if not SHAPE_CHECKS or not pyfuncitem.get_closest_marker("compile"):
        return None
    if not compiled_outcomes:
        selected = [item.nodeid for item in pyfuncitem.session.items if item.get_closest_marker("compile")]
        compiled_outcomes.update(run_without_shape_checks(selected, pyfuncitem.config.rootpath))
    reports = compiled_outcomes.get(pyfuncitem.nodeid, [])
    for report in reports:
        if report["outcome"] == "failed":
            pytest.fail(f"in the process without shape checks:\n{report['details']}", pytrace=False)
        if report["outcome"] == "skipped":
            pytest.skip(report["details"])
    assert any(report["when"] == "call" for report in reports), "the child process did not run this test"
    return True


def run_without_shape_checks(nodeids: list[str], root: Path) -> dict[str, list[dict[str, str]]]:
    """Run these tests in one child process and return its reports by test."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        outcomes_file = Path(folder) / "outcomes.jsonl"
        environment = {**os.environ, "HEEDFUL_SHAPE_CHECKS": "0", OUTCOMES_FILE: str(outcomes_file)}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *nodeids]
        child = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        outcomes: dict[str, list[dict[str, str]]] = {}
        if not outcomes_file.exists():
            pytest.fail(f"the process without shape checks did not start:\n{child.stdout}{child.stderr}", pytrace=False)
        for line in outcomes_file.read_text(encoding="utf-8").splitlines():
            report = json.loads(line)
            outcomes.setdefault(report["nodeid"], []).append(report)
    return outcomes


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In the child process: write each report to the file that the parent reads."""
    path = os.environ.get(OUTCOMES_FILE)
    if path is None:
        return
    details: Any = report.longrepr
    if isinstance(details, tuple):  # of a skip: file, line, reason
        details = details[2].removeprefix("Skipped: ")
    line = {"nodeid": report.nodeid, "when": report.when, "outcome": report.outcome, "details": str(details or "")}
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
