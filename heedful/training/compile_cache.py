"""The directories where torch and Triton cache compiled code between runs."""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from importlib.util import find_spec
from pathlib import Path

from heedful.config import TrainingConfig

FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
"""The environment variables that torch.compile and Triton read, and the name of the folder for each."""


def is_compiled(config: TrainingConfig, *, on_gpu: bool) -> bool:
    """Whether the training step is compiled: as set, or by default on a GPU if Triton is installed."""
    return on_gpu and find_spec("triton") is not None if config.compile is None else config.compile


def set_cache_directories() -> str | None:
    """Let torch and Triton cache compiled code in `~/.cache/heedful`, which survives a reboot, unlike their defaults.

    Variables that are already set are not changed. Compiled code is loaded and executed, so the directory must belong
    to the user, and nobody else may write to it. Otherwise a temporary directory is used, and a remark is returned.
    """
    missing = [name for name in FOLDERS if name not in os.environ]
    if "TRITON_HOME" in os.environ and "TRITON_CACHE_DIR" in missing:
        missing.remove("TRITON_CACHE_DIR")
    if not missing:
        return None
    remark = None
    try:
        home = own_directory(cache_directory())
    except (OSError, RuntimeError) as error:
        home = Path(tempfile.mkdtemp(prefix="heedful-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        remark = f"Compiled code cannot be cached for later runs ({error}); set XDG_CACHE_HOME to another directory."
    for name in missing:
        os.environ[name] = str(home / FOLDERS[name])
    return remark


def cache_directory() -> Path:
    """`heedful` in the user's cache directory."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if os.path.isabs(given) else Path.home() / ".cache") / "heedful"


def own_directory(path: Path) -> Path:
    """Create the directory if needed; `OSError` unless it belongs to this user and nobody else can write to it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    has_permissions = hasattr(os, "getuid")  # on Windows every directory appears to be writable for all
    if has_permissions and (found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        raise OSError(f"other users can write to {path}")
    with tempfile.TemporaryFile(dir=path):
        return path
