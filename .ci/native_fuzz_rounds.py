"""The rounds of `.ci/native_fuzz.py`: random models, inputs, weight files and shortlists for the native engine.

python .ci/native_fuzz_rounds.py SECONDS SEED
"""

from __future__ import annotations

import struct
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from heedful.config import DecodingConfig, ModelConfig
from heedful.errors import HeedfulError
from heedful.model_dir.shortlist import INVALID_FILE, Shortlist, parse_plain_shortlist, parse_shortlist, write_shortlist
from heedful.native.bindings import Intervention
from heedful.native.convert import convert, shape_of
from heedful.native.engine import NativeEngine
from heedful.native.weight_file import write_weight_file
from heedful.search_types import Hypothesis, PhrasePlacement, RequiredPhrase, SpecialTokens

HEAD, ENTRY = struct.Struct("<8sIIQQQ24x"), struct.Struct("<64sIIIIQQ")
ENTRIES_AT, WORD = 192, 1 << 64


def fuzz(*, seconds: float, seed: int) -> None:
    """Run rounds until the time limit, at least one."""
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
    """A small model with random options supported by the engine."""
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
    """A state dict with random tensors, generated on access."""

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
    """A native weight file with random weights."""
    tensors = convert(config, RandomWeights(config, random), precision="int8" if int8 else "float32")
    write_weight_file(path, fingerprint=bytes(32), shape=shape_of(config, int8=int8), tensors=tensors)


def random_request(random: np.random.Generator, config: ModelConfig) -> tuple[Any, ...]:
    """Random sentences, limits, prefixes and search settings."""
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
    """Check that all kernels, thread counts and batchings give the same bits; return the number of runs."""
    sources, limits, prefixes, search = random_request(random, config)
    has_bytes = config.target_vocab_size >= 260 and random.random() < 0.5
    byte_ids = tuple(range(4, 260)) if has_bytes else ()
    special = SpecialTokens(bos_id=2, eos_id=3, pad_id=0, forbidden=(1,), byte_ids=byte_ids)
    closed = [random.integers(4, config.target_vocab_size, random.integers(0, 4)).tolist() for _ in sources]
    phrases = [random_phrases(random, config, len(source)) for source in sources]
    placement = random_placement(random, config)
    expected = None
    shortlist = random_shortlist(random, config) if random.random() < 0.7 else None
    layer, head = int(random.integers(config.num_decoder_layers)), int(random.integers(-1, config.num_heads))
    shown: Any = {"layer": layer, "head": None if head < 0 else head}
    changes, pick = random_interventions(random, config), int(random.integers(len(sources)))
    for name in names:
        engine = NativeEngine(path, num_threads=int(random.integers(1, 4)), kernels=name)
        if shortlist is not None:
            engine.use_shortlist(shortlist)
        found = engine.translate_ids(sources, search, special, max_lengths=limits, prefix=prefixes, forbidden=closed)
        alone = engine.translate_ids(
            [sources[pick]],
            search,
            special,
            max_lengths=[limits[pick]],
            prefix=[prefixes[pick]],
            forbidden=[closed[pick]],
        )
        constrained = engine.translate_ids(
            sources, search, special, max_lengths=limits, prefix=prefixes, phrases=phrases, placement=placement
        )
        is_free = shortlist is None and placement.word_flags is None and not byte_ids  # so that no phrase is impossible
        check_phrases(constrained[pick], phrases[pick], limits[pick] if is_free else None)
        inputs = [[2, *one[0].tokens[:-1]] for one in found]
        weights = engine.align_ids(sources, inputs, **shown)
        trace = engine.trace_ids(sources[pick], inputs[pick], special, max_length=limits[pick], interventions=changes)
        tree = engine.beam_tree_ids(
            sources[pick], search, special, max_length=limits[pick], prefix=prefixes[pick], forbidden=closed[pick]
        )
        assert tree[0] == found[pick], f"{name}: the search that records its tree finds others ({config}, {search})"
        outputs = (
            found,
            constrained,
            [bytes(node) for node in tree[1]],
            [row.tobytes() for one in weights for row in one],
            engine.logits(sources[0], [2]).tobytes(),
            (trace[0], {name: one.data.tobytes() for name, one in trace[1].items()}),
        )
        engine.close()
        assert alone[0] == found[pick], f"{name}: sentence {pick} depends on the others ({config}, {search})"
        assert expected is None or outputs == expected, f"{name} computes other bits ({config}, {search})"
        expected = outputs
    return len(names)


def random_phrases(random: np.random.Generator, config: ModelConfig, source_length: int) -> list[RequiredPhrase]:
    """Required phrases of a sentence; some are equal, overlap or contain each other."""
    few = min(config.target_vocab_size, 4 + int(random.choice([2, 1000])))

    def phrase() -> RequiredPhrase:
        alternatives = [random.integers(4, few, random.integers(1, 4)).tolist() for _ in range(random.integers(1, 4))]
        first, end = sorted(random.integers(0, source_length + 1, 2).tolist())
        return RequiredPhrase(tuple(map(tuple, alternatives)), (first, end), ((4, 5),) if random.random() < 0.2 else ())

    return [phrase() for _ in range(random.integers(0, int(random.choice([2, 3, 64])) + 1))]


def random_placement(random: np.random.Generator, config: ModelConfig) -> PhrasePlacement:
    """Any attention and weight, with word flags or without."""
    head = int(random.integers(-1, config.num_heads))
    return PhrasePlacement(
        layer=int(random.integers(config.num_decoder_layers)),
        head=None if head < 0 else head,
        offset=int(random.integers(2)),
        weight=float(random.choice([0.0, 3.0])),
        word_flags=random.integers(0, 4, config.target_vocab_size).astype(np.uint8).tobytes()
        if random.random() < 0.5
        else None,
    )


def check_phrases(hypotheses: list[Hypothesis], phrases: list[RequiredPhrase], limit: int | None) -> None:
    """Every phrase that does not count as missing is in the translation, and none is missing before the limit."""
    for one in hypotheses:
        tokens = one.tokens[:-1]
        for number, phrase in enumerate(phrases):
            forms = (*phrase.alternatives, *phrase.at_beginning)
            is_there = any(tuple(tokens[at : at + len(ids)]) == ids for ids in forms for at in range(len(tokens)))
            assert is_there or number in one.missing, f"phrase {number} of {phrases} is not in {tokens}"
        assert not one.missing or limit is None or len(tokens) == limit, (
            f"{tokens} ends without {one.missing} of {phrases}"
        )


def random_interventions(random: np.random.Generator, config: ModelConfig) -> list[Intervention]:
    """Changes to a traced pass, all of them valid."""
    changes = []
    for _ in range(int(random.integers(0, 5))):
        stack = int(random.integers(2))
        layers = config.num_decoder_layers if stack else config.num_encoder_layers
        sublayer, layer = int(random.choice([0, 1, 2] if stack else [0, 2])), int(random.integers(layers))
        head, query, key = (int(random.integers(size)) for size in (config.num_heads, 12, 12))
        kind, value = int(random.integers(1, 6)), float(random.random())
        whole = kind != 3 and random.random() < 0.3  # all sublayers, layers and heads
        place = (-1, -1, -1) if whole else (sublayer, layer, head)
        changes.append(
            Intervention(kind, stack, *place, min(query, config.max_length - 1), min(key, config.max_length - 1), value)
        )
    return changes


def random_shortlist(random: np.random.Generator, config: ModelConfig) -> Shortlist:
    """Lists of any length, including empty ones."""
    lengths = random.integers(0, 1 + int(random.choice([0, 3, 60])), config.source_vocab_size)
    ids = [random.integers(0, config.target_vocab_size, count).astype(np.int32) for count in (lengths.sum(), 5)]
    return Shortlist(np.append(0, np.cumsum(lengths)).astype(np.int64), *ids)


def survives_shortlist(weights: Path, path: Path, random: np.random.Generator) -> bool:
    """Whether an altered shortlist was accepted, from a file or from memory."""
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
                    lists = parse_plain_shortlist(path.read_bytes())
                except INVALID_FILE:
                    return False
                engine.use_shortlist(lists)
        else:
            given = random_shortlist(random, sizes)
            array = getattr(given, str(random.choice(["starts", "targets", "always"])))
            if len(array):
                wrong = int(random.choice([-1, 0, 1, 2**31 - 1, -(2**31), 65536]))
                if random.random() < 0.5:
                    array[int(random.integers(len(array)))] = wrong
                else:  # many in the middle
                    array[1:-1][random.random(max(0, len(array) - 2)) < 0.3] = wrong
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
    """Damage a file at random, mostly with matching checksums."""
    data = bytearray(intact)
    how = random.integers(10)
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
    elif how >= 6:
        alter_list(data, random)
    return with_checksums(bytes(data)) if random.random() < 0.9 and len(data) >= 192 else bytes(data)


def alter_list(data: bytearray, random: np.random.Generator) -> None:
    """Change one entry of the tensor list so that the rest of the file stays consistent.

    Each of these is what one check of the reader is for: without it, memory behind the file is read.
    """
    count = HEAD.unpack(data[:64])[2]
    places = [ENTRIES_AT + ENTRY.size * number for number in range(count)]
    at = int(random.choice(places))
    if random.random() < 0.5:  # the largest, of which most would lie behind the file
        at = max(places, key=lambda place: ENTRY.unpack(data[place : place + ENTRY.size])[-1])
    name, kind, rows, columns, spare, offset, num_bytes = ENTRY.unpack(data[at : at + ENTRY.size])
    width, aligned_end = 1 if kind == 1 else 4, len(data) // 64 * 64
    match int(random.integers(8)):
        case 0:  # begins inside and ends behind the file
            offset = aligned_end - 64 * int(random.integers(0, 4))
        case 1:  # begins behind the file, near or far away
            offset = aligned_end + 64 * [1, 1 << 10, 1 << 20, 1 << 40, (1 << 57) - 1][int(random.integers(5))]
        case 2:  # as many rows as before, in fewer bytes, at the end of the file
            num_bytes = int(random.choice([0, min(64, num_bytes)]))
            offset = aligned_end - num_bytes // 64 * 64
        case 3:  # another shape, whose size is right
            rows = max(1, rows // 2)
            num_bytes, offset = width * rows * columns, (aligned_end - width * rows * columns) // 64 * 64
        case 4:  # a product of rows and columns beyond 32 bits, or the sum of place and size beyond 64
            rows, columns = int(random.choice([rows, 1 << 31])), int(random.choice([columns, 1 << 31]))
            num_bytes = [num_bytes, (width * rows * columns) % (1 << 32), WORD - 64][int(random.integers(3))]
        case 5:  # not where a tensor may begin
            offset += int(random.integers(1, 64))
        case 6:  # more tensors than exist, in a list that extends past the end of the file
            more = int(random.choice([1, len(data) // ENTRY.size, 99_999, 100_000, (1 << 32) - 1]))
            data[12:16] = struct.pack("<I", more)
            data[ENTRIES_AT : ENTRIES_AT + 8] = b"unknown\0"
            end = ENTRIES_AT + ENTRY.size * count
            data[end:] = bytes(len(data) - end)  # which reads as a list of empty tensors
        case _:  # of another type
            kind = int(random.integers(0, 5))
            num_bytes = (1 if kind == 1 else 4) * rows * columns
    data[at : at + ENTRY.size] = ENTRY.pack(name, kind, rows, columns, spare, offset % WORD, num_bytes % WORD)


def with_checksums(data: bytes) -> bytes:
    """Update the checksums, so that the checks after them are reached."""
    data = data[: len(data) // 64 * 64]
    words = np.frombuffer(data[64:], dtype=np.uint64)
    weighted = int((words * np.arange(1, len(words) + 1, dtype=np.uint64)).sum(dtype=np.uint64))
    magic, version, count, _, _, _ = HEAD.unpack(data[:64])
    return HEAD.pack(magic, version, count, len(data), int(words.sum(dtype=np.uint64)), weighted) + data[64:]


def survives(path: Path, random: np.random.Generator) -> bool:
    """Whether an altered file was accepted; it may only be refused with an error of this project."""
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
        engine.beam_tree_ids([0], DecodingConfig(beam_size=3), special, max_length=min(3, shape.max_length - 1))
        engine.align_ids([[0, 1]], [[2, 3]], layer=0)
        engine.trace_ids([0, 1], [2, 3], special, max_length=min(4, shape.max_length - 1))
        refuses_tokens(engine, special)
    except HeedfulError:
        return False
    finally:
        engine.close()
    return True


def refuses_tokens(engine: NativeEngine, special: SpecialTokens) -> None:
    """Token ids far outside the vocabulary are refused; otherwise they would read outside the weights."""
    for token in (-(2**31), 2**31 - 1):
        try:
            engine.translate_ids([[token]], DecodingConfig(), special, max_lengths=[1])
        except HeedfulError:
            continue
        raise AssertionError(f"token {token} was accepted")


if __name__ == "__main__":
    fuzz(seconds=float(sys.argv[1]), seed=int(sys.argv[2]))
