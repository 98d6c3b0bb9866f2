"""The native engine under the sanitizers of addresses and of undefined behaviour: random models, inputs and files.

    python .ci/native_fuzz.py                         the short form of CI
    python .ci/native_fuzz.py --seconds 600 --whole   before a release

The engine is compiled anew with both sanitizers. Then, from a fixed seed, models of every option are translated with
random inputs, with a shortlist or without, which must give the same bits with all kernels, alone and together; and
their files and shortlists are altered, with right checksums and with wrong ones, which must be refused or computed,
never crash. With --whole the tests of the engine run under the same sanitizers too, and its threads under that of
races. The first finding ends it with an exit code other than 0.
"""

from __future__ import annotations

import argparse
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ("-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
HEAD = struct.Struct("<8sIIQQQ24x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="how long to go on, the compiling not counted")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--whole", action="store_true", help="also the engine's tests, and a search for races")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.inside:
        fuzz(seconds=chosen.seconds, seed=chosen.seed)
        return
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
    runtimes = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = os.environ | {
        "LD_PRELOAD": " ".join(runtimes),
        "PYTHONPATH": str(folder),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",  # Python's own leaks are many
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, str(Path(__file__).resolve()), "--inside", f"--seconds={seconds}", f"--seed={seed}"]
    found = subprocess.run(command, env=environment, check=False).returncode
    if found or not whole:
        return found
    shutil.copytree(ROOT / "tests", folder / "tests")
    shutil.copy(ROOT / "pyproject.toml", folder)
    left_out = "not without_torch"  # it starts a program of its own
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/native", "-k", left_out]
    return subprocess.run(tests, env=environment, cwd=folder, check=False).returncode


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


def fuzz(*, seconds: float, seed: int) -> None:
    """Models, inputs and files until the time is over; at least one round."""
    from heedful.native.bindings import kernel_names

    random = np.random.default_rng(seed)
    end = time.monotonic() + seconds
    counts = {"models": 0, "searches": 0, "files": 0, "shortlists": 0, "refused": 0}
    with tempfile.TemporaryDirectory() as folder:
        while counts["models"] == 0 or time.monotonic() < end:
            path = Path(folder, "weights.bin")
            config = random_config(random)
            write_random(path, config, random, int8=bool(random.random() < 0.8))
            counts["models"] += 1
            counts["searches"] += compare_kernels(path, config, random, kernel_names())
            intact = path.read_bytes()
            for _ in range(12):
                path.write_bytes(altered(intact, random))
                counts["files"] += 1
                counts["refused"] += not survives(path, random)
            path.write_bytes(intact)
            for _ in range(6):
                counts["shortlists"] += 1
                counts["refused"] += not survives_shortlist(path, Path(folder, "shortlist"), random)
    sys.stdout.write(", ".join(f"{count:,} {name}" for name, count in counts.items()) + ": nothing found\n")


def random_config(random: np.random.Generator) -> ModelConfig:
    """A small model of any option that the engine takes."""
    heads, head_dim = int(random.integers(1, 5)), 2 * int(random.integers(1, 20))
    size = int(random.integers(5, 700))
    return ModelConfig(
        source_vocab_size=size,
        target_vocab_size=size,
        d_model=heads * head_dim,
        d_ff=int(random.integers(1, 200)),
        num_heads=heads,
        num_encoder_layers=int(random.integers(1, 3)),
        num_decoder_layers=int(random.integers(1, 4)),
        max_length=int(random.integers(4, 60)),
        norm=str(random.choice(["layer", "rms"])),
        norm_placement=str(random.choice(["pre", "post"])),
        positions=str(random.choice(["sinusoidal", "learned", "rotary"])),
        activation=str(random.choice(["relu", "gelu", "swiglu"])),
        tying=str(random.choice(["three_way", "target", "none"])),
    )


class RandomWeights(dict):  # type: ignore[type-arg]
    """A state dict whose tensors are drawn when they are asked for."""

    def __init__(self, config: ModelConfig, random: np.random.Generator) -> None:
        self.config, self.random = config, random

    def __contains__(self, name: object) -> bool:
        config, text = self.config, str(name)
        if text.endswith(("gate.weight", "gate.bias")):
            return config.activation == "swiglu"
        return not (text.endswith("norm.bias") and config.norm == "rms")

    def __missing__(self, name: str) -> np.ndarray:
        c, inner = self.config, self.config.num_heads * self.config.attention_head_dim
        kind = name.split(".")[-2] if "." in name else name
        shapes = {
            "source_embedding": (c.source_vocab_size, c.d_model),
            "target_embedding": (c.target_vocab_size, c.d_model),
            "embedding": (c.max_length, c.d_model),
            **dict.fromkeys(("query", "key", "value"), (inner, c.d_model)),
            **dict.fromkeys(("inner", "gate"), (c.d_ff, c.d_model)),
        }
        if name == "output.weight":
            shape = shapes["target_embedding"]
        elif kind == "output":
            shape = (c.d_model, c.d_ff if "feed_forward" in name else inner)
        else:
            shape = shapes.get(kind, (c.d_model, 0))
        if name.endswith("bias") or kind.endswith("norm"):
            shape = shape[:1]
        self[name] = (self.random.normal(size=shape) * 0.3).astype(np.float32)
        return self[name]


def write_random(path: Path, config: ModelConfig, random: np.random.Generator, *, int8: bool) -> None:
    """The engine's file of a model with random weights."""
    tensors = convert(config, RandomWeights(config, random), precision="int8" if int8 else "float32")
    write_weight_file(path, fingerprint=bytes(32), shape=shape_of(config, int8=int8), tensors=tensors)


def random_request(random: np.random.Generator, config: ModelConfig) -> tuple[Any, ...]:
    """Sentences, limits, prefixes and a way to search."""
    count, size = int(random.integers(1, 40)), config.source_vocab_size
    sources = [random.integers(0, size, random.integers(1, config.max_length + 1)).tolist() for _ in range(count)]
    limits = [int(random.integers(0, min(config.max_length, 12))) for _ in sources]
    prefixes = [random.integers(0, size, random.integers(0, limit + 1)).tolist() for limit in limits]
    beam = int(random.integers(1, 6))
    method = str(random.choice(["greedy", "beam"]))
    search = DecodingConfig(
        method=method,
        beam_size=beam,
        num_best=1 if method == "greedy" else int(random.integers(1, beam + 1)),
        length_penalty=str(random.choice(["paper", "average", "none"])),
        min_length=int(random.integers(0, 4)),
        no_repeat_ngram_size=int(random.integers(0, 3)),
        tokens_per_batch=int(random.integers(60, 4000)),
    )
    return sources, limits, prefixes, search


def compare_kernels(path: Path, config: ModelConfig, random: np.random.Generator, names: list[str]) -> int:
    """The same bits from all kernels, with any number of threads, alone and together."""
    sources, limits, prefixes, search = random_request(random, config)
    has_bytes = config.target_vocab_size >= 260 and random.random() < 0.5
    byte_ids = tuple(range(4, 260)) if has_bytes else ()
    special = SpecialTokens(bos_id=2, eos_id=3, pad_id=0, forbidden=(1,), byte_ids=byte_ids)
    closed = [random.integers(4, config.target_vocab_size, random.integers(0, 4)).tolist() for _ in sources]
    expected = None
    shortlist = random_shortlist(random, config) if random.random() < 0.7 else None
    layer, head = int(random.integers(config.num_decoder_layers)), int(random.integers(-1, config.num_heads))
    shown: Any = {"layer": layer, "head": None if head < 0 else head}
    for name in names:
        engine = NativeEngine(path, num_threads=int(random.integers(1, 4)), kernels=name)
        if shortlist is not None:
            engine.use_shortlist(shortlist)
        found = engine.translate_ids(sources, search, special, max_lengths=limits, prefix=prefixes, forbidden=closed)
        pick = int(random.integers(len(sources)))
        alone = engine.translate_ids(
            [sources[pick]],
            search,
            special,
            max_lengths=[limits[pick]],
            prefix=[prefixes[pick]],
            forbidden=[closed[pick]],
        )
        inputs = [[2, *one[0].tokens[:-1]] for one in found]
        weights = engine.align_ids(sources, inputs, **shown)
        told = (found, [one.tobytes() for one in weights], engine.logits(sources[0], [2]).tobytes())
        engine.close()
        assert alone[0] == found[pick], f"{name}: sentence {pick} depends on the others ({config}, {search})"
        assert expected is None or told == expected, f"{name} computes other bits ({config}, {search})"
        expected = told
    return len(names)


def random_shortlist(random: np.random.Generator, config: ModelConfig) -> Shortlist:
    """Lists of any lengths, none included."""
    lengths = random.integers(0, 1 + int(random.choice([0, 3, 60])), config.source_vocab_size)
    ids = [random.integers(0, config.target_vocab_size, count).astype(np.int32) for count in (lengths.sum(), 5)]
    return Shortlist(np.append(0, np.cumsum(lengths)).astype(np.int64), *ids)


def survives_shortlist(weights: Path, path: Path, random: np.random.Generator) -> bool:
    """Whether an altered shortlist could be used, read from its file or given as it is."""
    engine = NativeEngine(weights, num_threads=1)
    shape, special = engine.shape, SpecialTokens(bos_id=2, eos_id=3, pad_id=0, forbidden=(1,))
    sizes = SimpleNamespace(source_vocab_size=shape.source_vocab_size, target_vocab_size=shape.target_vocab_size)
    write_shortlist(path, random_shortlist(random, sizes))
    data = bytearray(path.read_bytes())
    try:
        if random.random() < 0.5:
            for _ in range(int(random.integers(1, 5))):
                data[int(random.integers(len(data)))] = int(random.integers(256))
            path.write_bytes(data[: int(random.integers(len(data) // 2, len(data) + 1))])
            if random.random() < 0.5:
                engine.use_shortlist(parse_shortlist(path, path, (shape.source_vocab_size, shape.target_vocab_size)))
            else:
                try:
                    lists = parse_lists(path.read_bytes())
                except INVALID_FILE:
                    return False
                engine.use_shortlist(lists)
        else:
            given = random_shortlist(random, sizes)
            array = getattr(given, str(random.choice(["starts", "targets", "always"])))
            if len(array):
                array[int(random.integers(len(array)))] = int(random.choice([-1, 0, 1, 2**31 - 1, -(2**31), 65536]))
            engine.use_shortlist(given)
        sources = [random.integers(0, shape.source_vocab_size, min(3, shape.max_length)).tolist() for _ in range(3)]
        limit = min(3, shape.max_length - 1)
        engine.translate_ids(sources, DecodingConfig(beam_size=2), special, max_lengths=[limit] * 3)
    except HeedfulError:
        return False
    finally:
        engine.close()
    return True


def altered(intact: bytes, random: np.random.Generator) -> bytes:
    """A file that was damaged in one of several ways, mostly with checksums that say it was not."""
    data = bytearray(intact)
    how = random.integers(6)
    front = 64 + 32 + 96 + 96 * 12
    for _ in range(int(random.integers(1, 9))):
        place = int(random.integers(0, len(data) if how == 0 else min(front, len(data))))
        if how <= 2:
            data[place] = int(random.integers(256))
        elif how == 3:
            place -= place % 4
            data[place : place + 4] = struct.pack("<i", int(random.choice([-1, 0, 1, 2**31 - 1, -(2**31), 65536])))
    if how == 4:
        data = data[: int(random.integers(0, len(data)))]
    elif how == 5:
        data[len(data) // 2 :] = random.bytes(len(data) - len(data) // 2)
    return with_checksums(bytes(data)) if random.random() < 0.9 and len(data) >= 192 else bytes(data)


def with_checksums(data: bytes) -> bytes:
    """The same with sums that fit, so that what comes behind them is reached."""
    data = data[: len(data) // 64 * 64]
    words = np.frombuffer(data[64:], dtype=np.uint64)
    weighted = int((words * np.arange(1, len(words) + 1, dtype=np.uint64)).sum(dtype=np.uint64))
    magic, version, count, _, _, _ = HEAD.unpack(data[:64])
    return HEAD.pack(magic, version, count, len(data), int(words.sum(dtype=np.uint64)), weighted) + data[64:]


def survives(path: Path, random: np.random.Generator) -> bool:
    """Whether an altered file could be used; it is refused by an error of ours and nothing else."""
    try:
        engine = NativeEngine(path, num_threads=int(random.integers(1, 3)))
    except HeedfulError:
        return False
    shape = engine.shape
    special = SpecialTokens(bos_id=2, eos_id=3, pad_id=0, forbidden=(1,))
    sources = [
        random.integers(-1, shape.source_vocab_size + 1, random.integers(0, min(shape.max_length, 20) + 2)).tolist()
        for _ in range(3)
    ]
    try:
        engine.translate_ids(sources, DecodingConfig(beam_size=3), special, max_lengths=[3] * len(sources))
        engine.translate_ids([[0]], DecodingConfig(beam_size=2), special, max_lengths=[min(3, shape.max_length - 1)])
        engine.align_ids([[0, 1]], [[2, 3]], layer=0)
    except HeedfulError:
        return False
    finally:
        engine.close()
    return True


if __name__ == "__main__":
    if "--inside" in sys.argv:
        from types import SimpleNamespace
        from typing import Any

        from heedful.config import DecodingConfig, ModelConfig
        from heedful.errors import HeedfulError
        from heedful.model_dir.shortlist import INVALID_FILE, Shortlist, parse_lists, parse_shortlist, write_shortlist
        from heedful.native.convert import convert, shape_of
        from heedful.native.engine import NativeEngine
        from heedful.native.weight_file import write_weight_file
        from heedful.search_types import SpecialTokens
    main()
