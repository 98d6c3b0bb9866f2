"""Compile the engine with the system's C++ compiler; run by `pip install`, or manually: python -m heedful.native.

This file does not import heedful, so that `setup.py` can load it alone. It imports other modules only when compiling,
because translating imports this file too.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

SOURCES = Path(__file__).parent.resolve() / "src"
NAME = "_engine"
FLAGS = [
    *"-std=c++17 -O3 -fPIC -fvisibility=hidden -fno-math-errno -ffp-contract=off -pthread".split(),
    *"-Wall -Wextra -Wno-psabi".split(),
]
"""-ffp-contract=off: no fused multiply-add, which only some processors support."""
KERNEL_FLAGS = {
    "kernels_avx2.cpp": "-mavx2".split(),
    "kernels_avxvnni.cpp": "-mavx2 -mavxvnni".split(),
    "kernels_avx512.cpp": "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni".split(),
    "kernels_amx.cpp": "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni".split(),
}
"""Only kernel files use optional instructions; the engine selects kernels at run time."""


def find_compiler() -> str | None:
    """The compiler in CXX, or the first of c++, g++ and clang++ on the PATH."""
    import shutil

    named = os.environ.get("CXX")
    candidates = [named] if named else ["c++", "g++", "clang++"]
    return next((found for name in candidates if (found := shutil.which(name))), None)


def source_files() -> list[Path]:
    """The C++ files for this processor architecture."""
    import platform

    on_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return [path for path in sorted(SOURCES.glob("*.cpp")) if on_x86 or path.name not in KERNEL_FLAGS]


def compile_engine(target: Path, *, extra_flags: tuple[str, ...] = (), strict: bool = False) -> str | None:
    """Compile the library to `target` and replace it atomically; returns an error message, or None.

    Kernels that an older compiler does not support are left out with a warning, unless `strict`.
    """
    import shutil
    import tempfile
    from concurrent.futures import ThreadPoolExecutor

    compiler = find_compiler()
    if os.name == "nt":
        return "the native engine needs a Unix system"
    if compiler is None:
        return "there is no C++ compiler; install g++ or clang, or name one in CXX"
    with tempfile.TemporaryDirectory() as folder:

        def compile_one(path: Path) -> str | None:
            flags = [*FLAGS, *KERNEL_FLAGS.get(path.name, []), *without, *extra_flags]
            return _run([compiler, *flags, "-c", str(path), "-o", str(Path(folder, path.stem + ".o"))])

        without: list[str] = []
        kernels = [path for path in source_files() if path.name in KERNEL_FLAGS]
        others = [path for path in source_files() if path.name not in KERNEL_FLAGS]
        with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
            found = dict(zip(kernels, workers.map(compile_one, kernels), strict=True))
            failed = {path: error for path, error in found.items() if error}
            if strict and failed:
                return next(iter(failed.values()))
            for path, error in failed.items():
                sys.stderr.write(f"heedful: {path.stem} left out: {error}\n")
            without += [f"-DWITHOUT_{path.stem.upper()}" for path in failed]
            problem = next(filter(None, workers.map(compile_one, others)), None)
        objects = sorted(map(str, Path(folder).glob("*.o")))
        library = Path(folder, "engine.so")
        problem = problem or _run([compiler, "-shared", "-pthread", *extra_flags, *objects, "-o", str(library)])
        if problem is None:
            temporary = target.with_name(f".{target.name}.{os.getpid()}")
            shutil.copy(library, temporary)
            os.replace(temporary, target)
        return problem


def in_place() -> Path:
    """The path of the library in a checkout."""
    return Path(__file__).parent / f"{NAME}.so"


def _run(command: list[str]) -> str | None:
    import subprocess

    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
    return f"{Path(command[0]).name} failed: {lines[0] if lines else f'exit code {done.returncode}'}"
