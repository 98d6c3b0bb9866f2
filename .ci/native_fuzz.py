"""The native engine under the sanitizers of addresses and of undefined behaviour: random models, inputs and files.

    python .ci/native_fuzz.py                         the short form of CI
    python .ci/native_fuzz.py --seconds 600 --whole   before a release

The engine is compiled again with both sanitizers. Then, from a fixed seed, models of every option are translated with
random inputs, with a shortlist or without, which must give the same bits with all kernels, alone and together; and
their files and shortlists are altered, with right checksums and with wrong ones, which must be refused or computed,
never crash. With --whole the tests of the engine run under the same sanitizers too, and its threads under that of
races. The first finding ends it with an exit code other than 0.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ("-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="how long to go on, the compiling not counted")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--whole", action="store_true", help="also the engine's tests, and a search for races")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = run_sanitized(Path(folder), chosen.seconds, chosen.seed, whole=chosen.whole)
        sys.exit(found or (find_races(Path(folder)) if chosen.whole else 0))


def run_sanitized(folder: Path, seconds: float, seed: int, *, whole: bool) -> int:
    """Compile a copy of the package with the sanitizers and run this program over it."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "heedful", folder / "heedful", ignore=ignored)
    sys.path.insert(0, str(folder))
    from heedful.native.build import compile_engine, find_compiler, in_place

    compiler = find_compiler()
    if compiler is None:
        sys.stderr.write("there is no C++ compiler here, so nothing was looked for\n")
        return 0
    problem = compile_engine(in_place(), extra_flags=(*FLAGS, "-O1" if seconds > 60 else "-O0"), strict=True)
    if problem is not None:
        sys.stderr.write(f"cannot compile with sanitizers: {problem}\n")
        return 1
    environment = sanitizer_environment(folder)
    command = [
        sys.executable,
        str(Path(__file__).with_name("native_fuzz_rounds.py").resolve()),
        str(seconds),
        str(seed),
    ]
    found = subprocess.run(command, env=environment, check=False).returncode
    if found or not whole:
        return found
    shutil.copytree(ROOT / "tests", folder / "tests")
    shutil.copy(ROOT / "pyproject.toml", folder)
    left_out = "not does_not_import_torch"  # it starts a subprocess
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/native", "-k", left_out]
    return subprocess.run(tests, env=environment, cwd=folder, check=False).returncode


def sanitizer_environment(folder: Path) -> dict[str, str]:
    """Environment variables for a Python with the package in `folder`, whose engine was compiled with FLAGS."""
    from heedful.native.build import find_compiler

    runtimes = [
        subprocess.run(
            [str(find_compiler()), f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return os.environ | {
        "LD_PRELOAD": " ".join(runtimes),
        "PYTHONPATH": str(folder),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",  # Python's own leaks are many
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def find_races(folder: Path) -> int:
    """The threads of the engine under the sanitizer of races."""
    from heedful.native.build import SOURCES, find_compiler

    program, sources = folder / "pool", [Path(__file__).with_name("native_pool.cpp"), SOURCES / "thread_pool.cpp"]
    flags = ["-std=c++17", "-g", "-O1", "-fsanitize=thread", "-pthread", f"-I{SOURCES}"]
    command = [str(find_compiler()), *flags, *map(str, sources), "-o", str(program)]
    return (
        subprocess.run(command, check=False).returncode
        or subprocess.run([str(program)], env=os.environ | {"TSAN_OPTIONS": "halt_on_error=1"}, check=False).returncode
    )


if __name__ == "__main__":
    main()
