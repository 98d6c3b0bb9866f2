"""What "auto" stands for: native on CPUs, torch on GPUs and for whatever native cannot do."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from heedful.backend_support import supports
from heedful.config import DecodingConfig
from heedful.decoding.engines import Engine, Job, MakeRule, Outcome
from heedful.decoding.engines.native_engine import Native, load_native
from heedful.model_dir import files as model_files
from heedful.model_dir.save_load import ModelArrays, read_record
from heedful.native import available

GPU_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvmap", "/dev/dxg", "/dev/kfd")
"""Where Linux shows the drivers of GPUs that torch can use."""


class Auto:
    """The native engine, and torch from the first time that something is asked which only torch can do."""

    def __init__(self, native: Native, load_torch: Callable[[], Engine]) -> None:
        self.native, self.max_length = native, native.max_length
        self._load_torch = load_torch
        self._torch: Engine | None = None
        self._loading = threading.Lock()

    def engine_for(self, config: DecodingConfig, make_rule: MakeRule | None) -> Engine:
        """Who searches in this way."""
        if config.method != "sampling" and make_rule is None:
            return self.native
        with self._loading:
            self._torch = self._torch or self._load_torch()
            return self._torch

    def decode(
        self, jobs: Sequence[Job], config: DecodingConfig, *, align: bool, make_rule: MakeRule | None
    ) -> dict[Job, Outcome]:
        """Search for all jobs with the engine that can."""
        return self.engine_for(config, make_rule).decode(jobs, config, align=align, make_rule=make_rule)


def load_auto(
    path: str | Path, *, device: str, quantization: str | None, load_torch: Callable[[str], Engine]
) -> tuple[Auto, ModelArrays] | None:
    """Native with torch behind it; None where the model or the device is torch's alone.

    `load_torch(device)` makes torch's engine for the same model.
    """
    if not is_native(path, device=device, quantization=quantization):
        return None
    native, arrays = load_native(path, device="cpu", quantization=quantization)
    return Auto(native, lambda: load_torch("cpu")), arrays


def is_native(path: str | Path, *, device: str, quantization: str | None) -> bool:
    """Whether "auto" is native for this model, on this device, but for searches that only torch can do."""
    return bool(available()) and suits_native(path, device=device, quantization=quantization)


def suits_native(path: str | Path, *, device: str, quantization: str | None) -> bool:
    """The same, if the engine has been compiled."""
    if device not in ("auto", "cpu") or (device == "auto" and has_gpu()):
        return False
    if quantization == "float32":  # with AVX-512 native is no slower, with AVX2 several times: torch is good on both
        return False
    return supports("native_engine", model_files.read_consistent(path, read_record)[0].model)


def has_gpu() -> bool:
    """Whether torch finds a GPU; it is imported, which takes a second or more, only where there may be one."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1")
    shown = [path for path in GPU_FILES if Path(path).exists()]
    if sys.platform == "linux" and (not shown or (hidden and "/dev/kfd" not in shown)):
        return False
    from heedful.build_model import resolve_device

    found: Any = resolve_device("auto")
    return bool(found.type != "cpu")
