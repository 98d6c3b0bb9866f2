"""Node, the packages in web/node_modules, and what esbuild makes of the TypeScript."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

WEB = Path(__file__).parents[2] / "web"
BUILT = WEB.parent / "heedful" / "web"
ESBUILD = WEB / "node_modules" / ".bin" / "esbuild"

needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not ESBUILD.exists(), reason="needs Node.js and `npm ci` in web/"
)


def bundle(script: Path, target: Path) -> Path:
    """Compile a TypeScript file for Node."""
    command = [str(ESBUILD), str(script), "--bundle", "--platform=node", "--format=esm", f"--outfile={target}"]
    subprocess.run(command, check=True, capture_output=True)
    return target


def run_node(script: Path, request: Any) -> Any:
    """Run a bundled script with JSON on its standard input, and parse its output."""
    done = subprocess.run(["node", str(script)], input=json.dumps(request), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
