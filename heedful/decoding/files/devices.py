"""Where a file is translated: how many processes, on which devices, with how many threads each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.errors import ConfigError
from heedful.text.text_files import is_compressed

CORES_FOR_NATIVE = 8
"""Cores that one process of the native engine keeps busy: with more it would wait for what is serial around it."""
BYTES_PER_LINE = 64
"""Of a usual text; a shorter file than one portion for each worker needs fewer workers."""
COMPRESSION = 4


@dataclass(frozen=True)
class Place:
    """What one worker has."""

    device: str
    """As `Translator.load` takes it."""
    num_threads: int | None = None
    """None: as many as the engine takes by itself."""
    cores: tuple[int, ...] = ()
    """The only cores it may use; empty: all of this process."""
    visible_gpu: str | None = None
    """The only GPU that its process is to see, as CUDA_VISIBLE_DEVICES names it."""

    @property
    def kind(self) -> str:
        """cpu, cuda or mps."""
        return self.device.partition(":")[0]

    def __str__(self) -> str:
        return self.device if self.visible_gpu is None else f"{self.device} {self.visible_gpu}"


def choose_places(engine: str, device: str, *, wanted: int, most: int, model: str) -> list[Place]:
    """One place for each worker; one that is alone works in this process. `wanted`: 0 leaves the number to us.

    On GPUs a worker each. On CPUs torch and CTranslate2 are quickest as many processes of one thread, as far as memory
    goes; the native engine has threads of its own. `most`: workers beyond this would have nothing to do.
    """
    if wanted < 0:
        raise ConfigError(f"--workers {wanted}: give a number from 1, or 0 for as many as are of use.")
    kind = device_kind(engine, device)
    if kind == "cuda":
        gpus = visible_gpus(engine, device)
        number = wanted or min(len(gpus), most)
        if number == 1:
            return [Place(device if device != "auto" else "cuda")]
        return [Place("cuda", visible_gpu=gpus[index % len(gpus)]) for index in range(number)]
    if kind != "cpu":
        return [Place(kind)] * (wanted or 1)
    cores = usable_cores()
    number = wanted or max(1, min(most, _processes_of_use(engine, len(cores), model)))
    share = max(1, len(cores) // number)
    if number == 1:
        return [Place("cpu")]
    if engine == "native":
        starts = [index * share % len(cores) for index in range(number)]
        return [Place("cpu", share, tuple(cores[start : start + share])) for start in starts]
    return [Place("cpu", share)] * number


def most_of_use(path: str, portion_lines: int) -> int:
    """About how many portions a file has, by its size: more workers would have nothing to do."""
    size = os.path.getsize(path) * (COMPRESSION if is_compressed(path) else 1)
    return max(1, size // (portion_lines * BYTES_PER_LINE))


def device_kind(engine: str, device: str) -> str:
    """The kind of device that a name stands for with this engine: cpu, cuda or mps."""
    if engine == "native":
        from heedful.decoding.engines.native_engine import refuse_device

        refuse_device(device)
    if engine == "native" or device == "cpu":
        return "cpu"
    if engine == "ctranslate2":
        from heedful.decoding.engines.ctranslate2_engine import ctranslate2_device, import_ctranslate2

        return ctranslate2_device(import_ctranslate2(), device)[0]
    from heedful.build_model import resolve_device

    return str(resolve_device(device).type)


def visible_gpus(engine: str, device: str) -> list[str]:
    """Names, for CUDA_VISIBLE_DEVICES, of all GPUs that may be used, or of the one that `device` names."""
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if engine == "ctranslate2":
        from heedful.decoding.engines.ctranslate2_engine import import_ctranslate2

        count: Any = import_ctranslate2().get_cuda_device_count()
    else:
        import torch

        count = torch.cuda.device_count()
    gpus = named[:count] if len(named) >= count else [str(index) for index in range(count)]
    _, _, number = device.partition(":")
    if number and int(number) >= len(gpus):
        raise ConfigError(f"device: {device!r} is not available on this machine; use auto or cpu.")
    return [gpus[int(number)]] if number else gpus


def usable_cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _processes_of_use(engine: str, num_cores: int, model: str) -> int:
    if engine == "native":
        return -(-num_cores // CORES_FOR_NATIVE)
    weights = sum(path.stat().st_size for path in Path(model).glob("model.*"))
    needed = 4 * weights + (1 << 30)  # a process with its libraries, and room to work
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 1 << 33
    return min(num_cores, max(1, memory // needed))
