"""Closing, forking and thread failures raise errors or wait, and never crash the process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from heedful.config import DecodingConfig
from heedful.errors import DecodingError
from heedful.native import NativeEngine, available
from tests.native.native_models import SPECIAL, random_model, random_sources, small_config, weight_file

pytestmark = pytest.mark.skipif(not available(), reason=available().reason)
SOURCES, LIMITS = random_sources(64, seed=3, longest=20), [38] * 64
CONFIG = DecodingConfig(min_length=30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return weight_file(random_model(small_config()), tmp_path / "a.bin", precision="int8")


def translate(engine: NativeEngine) -> list[list[list[int]]]:
    found = engine.translate_ids(SOURCES, CONFIG, SPECIAL, max_lengths=LIMITS)
    return [[one.tokens for one in hypotheses] for hypotheses in found]


@pytest.mark.parametrize(
    "use",
    [
        lambda engine: engine.speculation_counts(),
        lambda engine: engine.logits([5, 3], [2]),
        lambda engine: engine.align_ids([[5, 3]], [[2]], layer=0),
        translate,
    ],
    ids=["speculation_counts", "logits", "align_ids", "translate_ids"],
)
def test_closed_engine_raises(path: Path, use: Callable[[NativeEngine], object]) -> None:
    engine = NativeEngine(path, num_threads=2)
    engine.close()
    engine.close()
    with pytest.raises(DecodingError, match="was closed"):
        use(engine)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_close_waits_for_running_calls(path: Path, num_threads: int) -> None:
    expected = translate(NativeEngine(path, num_threads=num_threads))
    for delay in (0.0, 0.002, 0.01, 0.03):
        engine = NativeEngine(path, num_threads=num_threads)
        outcomes: list[object] = []

        def work(engine: NativeEngine = engine, outcomes: list[object] = outcomes) -> None:
            try:
                outcomes.append(translate(engine))
            except DecodingError as error:
                outcomes.append(str(error))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(delay)
        engine.close()
        for thread in threads:
            thread.join()
        assert len(outcomes) == 3
        assert all(outcome == expected or "was closed" in str(outcome) for outcome in outcomes)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_during_translation(path: Path) -> None:
    program = """
import os, sys, threading
from tests.native.native_models import SPECIAL
from heedful.config import DecodingConfig
from heedful.native import NativeEngine
engine = NativeEngine(sys.argv[1], num_threads=2)
sources, config, limits = [[5, 6, 7, 3]] * 64, DecodingConfig(min_length=30), [38] * 64
translate = lambda: engine.translate_ids(sources, config, SPECIAL, max_lengths=limits)
expected, stop = translate(), False
def work():
    while not stop:
        translate()
thread = threading.Thread(target=work)
thread.start()
codes = []
for _ in range(8):
    child = os.fork()
    if child == 0:
        os._exit(0 if translate() == expected else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop = True
thread.join()
print(codes)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(path)],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.stdout.strip() == str([0] * 8), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space")
def test_failure_to_start_threads_raises_error(path: Path) -> None:
    program = """
import resource, sys
from heedful.native import NativeEngine
from heedful.errors import HeedfulError
from heedful.native.bindings import load_library
load_library()
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (20 << 20),) * 2)
try:
    NativeEngine(sys.argv[1], num_threads=16)
except HeedfulError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "of 16 threads could be started" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="limits processes")
def test_thread_limit_raises_error(path: Path) -> None:
    """The limit does not hold for root, which becomes another user once the library is loaded."""
    program = """
import os, resource, shutil, sys, tempfile
from heedful.native import NativeEngine
from heedful.errors import HeedfulError
from heedful.native.bindings import load_library
load_library()
folder = tempfile.mkdtemp()
os.chmod(folder, 0o755)
weights = shutil.copyfile(sys.argv[1], os.path.join(folder, "weights"))
os.chmod(weights, 0o644)
NativeEngine(weights, num_threads=2).close()
if os.getuid() == 0:
    os.setresuid(54321, 54321, 54321)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
try:
    NativeEngine(weights, num_threads=4)
except HeedfulError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "of 4 threads could be started" in done.stdout
