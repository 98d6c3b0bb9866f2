"""Where a result comes from: the lines that stand under every table of the benchmarks that use it."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from heedful.card import versions
from heedful.paper.experiment import processor


def provenance(device: str = "cpu") -> str:
    """Machine, versions, and the command that is running, as a list in Markdown."""
    machine = f"{processor()}, {os.cpu_count()} cores"
    if device.startswith("cuda"):
        import torch

        machine = torch.cuda.get_device_name(device)
    packages = ", ".join(f"{name} {version}" for name, version in versions().items())
    command = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    return f"- machine: {machine}\n- versions: {packages}\n- command: `{command}`\n"
