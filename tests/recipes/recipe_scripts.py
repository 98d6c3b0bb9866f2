"""Import or run the scripts of recipes/bundled-model in tests."""

from __future__ import annotations

import importlib.util
import lzma
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "bundled-model"
sys.path.insert(0, str(RECIPE))  # the modules that the scripts share


def script(name: str) -> ModuleType:
    """Load a script as a module; its folder is not an importable package."""
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), RECIPE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str, *arguments: str | Path, hash_seed: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(RECIPE / f"{name}.py"), *map(str, arguments)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", check=False)


def save(folder: Path, texts: dict[str, list[str]]) -> None:
    for name, lines in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def compress(folder: Path) -> None:
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        path.with_name(f"{path.name}.xz").write_bytes(lzma.compress(path.read_bytes()))
        path.unlink()


def made(folder: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text("utf-8").splitlines() for path in folder.iterdir()}


def error_message(done: subprocess.CompletedProcess[str]) -> str:
    """The error message, one line, of a command that exited with code 2."""
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.count("\n") == 1 and done.stderr.endswith("\n")
    return done.stderr
