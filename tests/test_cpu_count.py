"""The number of threads by affinity, container limit and OMP_NUM_THREADS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from heedful import cpu_count as asked
from heedful.cpu_count import container_limit, usable_cores
from heedful.native import available
from tests.native.native_models import engine_of, random_model, small_config


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("max 100000", []), ("200000 100000", [2]), ("150000 100000", [2]), ("1000 100000", [1]), ("", []), ("x y", [])],
)
def test_container_limit_in_cores(limit: str, expected: list[int], tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(limit)
    assert container_limit(tmp_path / "cpu.max") == expected
    assert container_limit(tmp_path / "none") == []


def test_smallest_limit_applies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(asked, "CGROUP_LIMIT", tmp_path / "none")
    everything = usable_cores()
    assert 1 <= everything <= (os.cpu_count() or 1)
    for wished, expected in (("1", 1), ("100000", everything), ("0", 1), ("2,1", everything), ("", everything)):
        monkeypatch.setenv("OMP_NUM_THREADS", wished)
        assert usable_cores() == expected
    monkeypatch.delenv("OMP_NUM_THREADS")
    (tmp_path / "none").write_text("50000 100000")
    assert usable_cores() == 1
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert usable_cores() == 1


@pytest.mark.skipif(not available() or not hasattr(os, "fork"), reason="needs the engine and processes that fork")
def test_forked_process_computes_the_same_and_ends(tmp_path: Path) -> None:
    engine_of(random_model(small_config()), tmp_path, precision="int8").close()
    program = (
        "import os, sys, time; from heedful.native import NativeEngine\n"
        f"engine = NativeEngine({str(tmp_path / 'int8.bin')!r}, num_threads=3)\n"
        "expected = engine.logits([5, 6, 3], [2, 7]).tobytes()\n"
        "time.sleep(0.3)  # the helpers sleep\nchild = os.fork()\n"
        "assert engine.logits([5, 6, 3], [2, 7]).tobytes() == expected\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0)\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_waiting_threads_sleep_unless_variables_are_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(asked, "CGROUP_LIMIT", tmp_path / "none")
    environment: dict[str, str] = {}
    asked.configure_openmp(environment)
    assert environment["OMP_WAIT_POLICY"] == "PASSIVE" and 0 <= int(environment["GOMP_SPINCOUNT"]) <= 1000
    for name in asked.WAIT_VARIABLES:
        own = {name: "7"}
        asked.configure_openmp(own)
        assert own == {name: "7"}


def test_num_threads_follows_container_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(asked, "CGROUP_LIMIT", tmp_path / "cpu.max")
    monkeypatch.setattr(asked.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(asked.os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    for limit, expected in (("150000 100000\n", "2"), ("max 100000\n", None), ("6400000 100000\n", None)):
        (tmp_path / "cpu.max").write_text(limit)
        environment = {"OMP_WAIT_POLICY": "ACTIVE"}
        asked.configure_openmp(environment)
        assert environment.pop("OMP_NUM_THREADS", None) == expected
        assert environment == {"OMP_WAIT_POLICY": "ACTIVE"}
    (tmp_path / "cpu.max").write_text("200000 100000\n")
    own = {"OMP_NUM_THREADS": "5"}
    asked.configure_openmp(own)
    assert own["OMP_NUM_THREADS"] == "5"


def test_program_configures_openmp_before_importing_torch() -> None:
    program = (
        "import os, sys, heedful.cli as cli\n"
        "cli.run = lambda arguments: print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)\n"
        "cli.main([])"
    )
    for own, expected in (({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")):
        kept = {name: value for name, value in os.environ.items() if name not in asked.WAIT_VARIABLES}
        done = subprocess.run([sys.executable, "-c", program], env={**kept, **own}, capture_output=True, text=True)
        assert done.stdout.split() == [expected, "False"], done.stderr
