"""Where compiled code is kept from one run to the next: the user's cache directory, which outlives a reboot."""

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
"""The variables that torch.compile and Triton look at, and what the directory of each is called."""


def is_compiled(config: TrainingConfig, *, on_gpu: bool) -> bool:
    """Whether anything will be compiled for the training step: as set, or on a GPU where Triton is installed."""
    return on_gpu and find_spec("triton") is not None if config.compile is None else config.compile


def set_cache_directories() -> str | None:
    """Have what is compiled kept in `~/.cache/heedful`; what the environment says already stands.

    Compiled code is loaded and run, so the directory must be the user's own, and writable for nobody else. Where there
    is no such directory it is kept in a temporary one, for this run alone; returns a remark then.
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
        remark = f"What is compiled cannot be kept for later runs ({error}); set XDG_CACHE_HOME to another directory."
    for name in missing:
        os.environ[name] = str(home / FOLDERS[name])
    return remark


def cache_directory() -> Path:
    """`heedful` in the user's cache directory."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if os.path.isabs(given) else Path.home() / ".cache") / "heedful"


def own_directory(path: Path) -> Path:
    """The directory, made if it is not there; `OSError` unless it is this user's and only this user can write there."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    can_tell = hasattr(os, "getuid")  # Windows has other rules, and says of every directory that all may write there
    if can_tell and (found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        raise OSError(f"others can write to {path}")
    with tempfile.TemporaryFile(dir=path):
        return path
