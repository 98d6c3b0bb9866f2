"""Build what `heedful/web/` holds: engine.wasm, the native engine compiled to WebAssembly.

    python web/build.py            write heedful/web/
    python web/build.py FOLDER     write another folder

The compiler is Zig's Clang, from the package `ziglang`. The result has the same bytes on every machine.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "heedful" / "native" / "src"
EXPORTS = (
    "malloc", "free", "heedful_interface_version", "heedful_open_memory", "heedful_close", "heedful_translate",
    "heedful_trace", "heedful_trace_target", "heedful_trace_count", "heedful_trace_tensor", "heedful_trace_free",
)  # fmt: skip
FLAGS = [
    *"-target wasm32-wasi -mexec-model=reactor -std=c++17 -O3 -flto -msimd128".split(),
    *"-fno-exceptions -fno-rtti -fno-math-errno -ffp-contract=off -Wno-psabi -s".split(),
    *"-Wl,-z,stack-size=1048576 -Wl,--max-memory=2147483648".split(),
    *(f"-Wl,--export={name}" for name in EXPORTS),
]


def build_engine(target: Path) -> None:
    """Compile the native engine, with its portable kernels, to `target`."""
    sources = sorted(
        path.name for path in SOURCES.glob("*.cpp") if path.stem == "kernels_portable" or "kernels_" not in path.stem
    )
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "engine.wasm")
        command = [sys.executable, "-m", "ziglang", "c++", *FLAGS, *sources, "-o", str(output)]
        done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"web/build.py: the compiler failed:\n{done.stderr}")
        target.write_bytes(output.read_bytes())


def main() -> None:
    """Build everything."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "heedful" / "web"
    target.mkdir(parents=True, exist_ok=True)
    build_engine(target / "engine.wasm")


if __name__ == "__main__":
    main()
