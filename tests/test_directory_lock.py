"""Two processes never write into one directory at once, and the second learns who the first one is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heedful.directory_lock import lock_directory
from heedful.errors import ConfigError

pytest.importorskip("fcntl")
ROOT = Path(__file__).parent.parent
HOLD = "import sys, time\nfrom heedful.directory_lock import lock_directory\n"
HOLD += "with lock_directory(sys.argv[1]):\n    print('held', flush=True)\n    time.sleep(60)\n"


def holder(directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_another_process_is_refused_and_named(tmp_path: Path) -> None:
    with holder(tmp_path / "model") as process:
        try:
            with pytest.raises(ConfigError, match=f"number {process.pid} on"), lock_directory(tmp_path / "model"):
                pass
        finally:
            process.send_signal(signal.SIGKILL)  # which ends the lock too
    with lock_directory(tmp_path / "model"):
        pass
    assert not (tmp_path / "model").exists()


def test_one_process_may_lock_again(tmp_path: Path) -> None:
    with lock_directory(tmp_path / "model"):
        with lock_directory(tmp_path / "model"):
            (tmp_path / "model/file").touch()
        assert (tmp_path / "model/.lock").exists()
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["file"]


@pytest.mark.slow
def test_two_trainings_never_share_a_directory(tmp_path: Path) -> None:
    data = tmp_path / "digits"
    data.write_text("".join(f"{n} {n + 7} {n + 3}\n" for n in range(3000)), encoding="utf-8")
    other = tmp_path / "others"
    other.write_text("".join(f"{n + 3} {n + 7} {n}\n" for n in range(3000)), encoding="utf-8")
    command = [sys.executable, "-m", "heedful", "train", "--source", str(data), "--target", str(other)]
    command += ["-o", str(tmp_path / "model"), "--preset", "tiny", "--minutes", "2", "--model.d_model=16"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        while not (tmp_path / "model/.lock").exists():
            assert first.poll() is None
            time.sleep(0.05)
        second = subprocess.run(
            [*command, "--overwrite"], capture_output=True, text=True, env=environment, timeout=60, check=False
        )
        assert second.returncode == 2 and f"number {first.pid} on" in second.stderr
        assert "Traceback" not in second.stderr
        assert first.poll() is None
    finally:
        first.kill()
        first.wait()
