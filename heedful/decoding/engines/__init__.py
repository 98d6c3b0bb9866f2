"""The engines that run a model, one module each, and loading a model directory with one of them.

"auto" uses native on CPUs, and torch on GPUs or if native cannot do it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.backend_support import supports
from heedful.config import DecodingConfig
from heedful.errors import ConfigError, MissingPackageError, did_you_mean
from heedful.model_dir import files as model_files
from heedful.model_dir.registry import EXPORT_RECORD
from heedful.model_dir.save_load import AlignmentSource, ModelArrays, read_record, recorded_source
from heedful.native import available
from heedful.search_types import (
    ConstraintFactory,
    DecodeRequest,
    DecodeResult,
    Engine,
    special_tokens,
)
from heedful.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from heedful.decoding.engines.native_engine import NativeDecodingEngine


ENGINES = ("auto", "torch", "native", "ctranslate2")
GPU_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvmap", "/dev/dxg", "/dev/kfd")
"""Device files of GPUs that torch can use on Linux."""


def choose_engine(name: str, *, exported: bool = False) -> str:
    """Validate an engine name. "auto" becomes "ctranslate2" for a model exported for it, and is otherwise kept."""
    if name not in ENGINES:
        raise ConfigError(
            f"engine: {name!r} is not known{did_you_mean(name, ENGINES)}; choose one of {', '.join(ENGINES)}."
        )
    return "ctranslate2" if name == "auto" and exported else name


def load_engine(path: Path, *, device: str, engine: str, quantization: str | None) -> tuple[object, Any, Any]:
    """Load a model directory: an `Engine`, or a torch model; the loaded model's metadata; and the torch device."""
    engine = choose_engine(engine, exported=(path / EXPORT_RECORD).is_file())
    if engine == "auto":
        loaded = load_auto_engine(
            path, device=device, quantization=quantization, load_torch=partial(load_torch_engine, path)
        )
        if loaded is not None:
            return *loaded, None
    if engine == "ctranslate2":
        from heedful.decoding.engines.ctranslate2_engine import load_ctranslate2

        return *load_ctranslate2(path, device=device, quantization=quantization), None
    if engine == "native":
        from heedful.decoding.engines.native_engine import load_native

        return *load_native(path, device=device, quantization=quantization), None
    return load_torch_model(path, device, quantization)


class AutoEngine:
    """The native engine, with torch loaded on first use for searches that native does not support."""

    def __init__(self, native: NativeDecodingEngine, load_torch: Callable[[], Engine]) -> None:
        self.native, self.max_length = native, native.max_length
        self._load_torch = load_torch
        self._torch: Engine | None = None
        self._loading = threading.Lock()

    def engine_for(self, config: DecodingConfig, constraint_factory: ConstraintFactory | None) -> Engine:
        """The engine used for a search with these settings."""
        if config.method != "sampling" and constraint_factory is None:
            return self.native
        with self._loading:
            self._torch = self._torch or self._load_torch()
            return self._torch

    def decode(
        self,
        requests: Sequence[DecodeRequest],
        config: DecodingConfig,
        *,
        align: bool,
        constraint_factory: ConstraintFactory | None,
    ) -> dict[DecodeRequest, DecodeResult]:
        """Decode all requests with the engine that supports the settings."""
        engine = self.engine_for(config, constraint_factory)
        return engine.decode(requests, config, align=align, constraint_factory=constraint_factory)


def load_auto_engine(
    path: str | Path, *, device: str, quantization: str | None, load_torch: Callable[[str], Engine]
) -> tuple[AutoEngine, ModelArrays] | None:
    """The native engine with torch as fallback; None if the model or the device needs torch.

    `load_torch(device)` loads the same model with torch.
    """
    if not uses_native(path, device=device, quantization=quantization):
        return None
    from heedful.decoding.engines.native_engine import load_native

    native, arrays = load_native(path, device="cpu", quantization=quantization)
    return AutoEngine(native, lambda: load_torch("cpu")), arrays


def uses_native(path: str | Path, *, device: str, quantization: str | None) -> bool:
    """Whether "auto" uses the native engine for this model and device."""
    return bool(available()) and suits_native(path, device=device, quantization=quantization)


def suits_native(path: str | Path, *, device: str, quantization: str | None) -> bool:
    """Whether "auto" would use the native engine if it is compiled."""
    if device not in ("auto", "cpu") or (device == "auto" and has_gpu()):
        return False
    if quantization == "float32":  # native float32 equals torch on AVX-512 and is several times slower on AVX2
        return False
    return supports("native_engine", model_files.read_consistent(path, read_record)[0].model)


def has_gpu() -> bool:
    """Whether torch finds a GPU. torch takes a second or more to import and is imported only if there may be one."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1")
    present = [path for path in GPU_FILES if Path(path).exists()]
    if sys.platform == "linux" and (not present or (hidden and "/dev/kfd" not in present)):
        return False
    from heedful.build_model import resolve_device

    device: Any = resolve_device("auto")
    return bool(device.type != "cpu")


def load_torch_model(path: str | Path, device: str, quantization: str | None = None) -> tuple[Any, Any, Any]:
    """A torch model on its device, its metadata, and the device."""
    if quantization not in (None, "float32", "bfloat16"):
        raise ConfigError(
            f"quantization={quantization}: the engine torch has float32 and bfloat16; use engine native or ctranslate2."
        )
    if find_spec("torch") is None and not (native := available()):
        raise MissingPackageError(f"torch is not installed, and the native engine cannot be used: {native.reason}")
    import torch

    from heedful.build_model import resolve_device
    from heedful.model_dir import load_model

    resolved = resolve_device(device)
    if quantization == "bfloat16" and resolved.type != "cuda":
        raise ConfigError(
            f"quantization=bfloat16: the engine torch supports it on GPUs, not on {resolved.type}; "
            f"use float32, or engine native, which is int8."
        )
    loaded = load_model(path, device=resolved, dtype=getattr(torch, quantization) if quantization else None)
    return loaded.model, loaded, resolved


def make_torch_engine(
    model: Any, tokenizer: Tokenizer, device: Any, alignment: AlignmentSource | None = None
) -> Engine:
    """The torch engine for a model on its device."""
    from heedful.decoding.engines.torch_engine import TorchEngine

    num_tags = 1 if tokenizer.tags else 0
    return TorchEngine(model, special_tokens(tokenizer), device=device, num_tags=num_tags, alignment=alignment)


def load_torch_engine(path: str | Path, device: str) -> Engine:
    """The torch engine for a model directory."""
    model, loaded, resolved = load_torch_model(path, device)
    return make_torch_engine(model, loaded.tokenizer, resolved, alignment_source_of(loaded))


def alignment_source_of(loaded: Any) -> AlignmentSource | None:
    """The attention that alignments are read from, if the model directory records one."""
    model = loaded.config.model
    return recorded_source(loaded.details, num_layers=model.num_decoder_layers, num_heads=model.num_heads)
