"""The initial Chinese-to-English model: OPUS-MT zh-en with fewer decoder layers and a smaller vocabulary.

    python3 recipes/bundled-model/opus_student.py PACKAGE OUT --chinese TEXT.zh… --english TEXT.en…

PACKAGE is an .argosmodel, or the directory that opus_mt.py wrote for it. OUT is a model directory that `heedful train`
can start from. It keeps the encoder of the package, the decoder layers that --decoder-layers names, the most frequent
pieces of both languages and every Chinese character. The differences from the package are small or are learned in
training: Marian's swish becomes a scaled GELU, x σ(x) ≈ 1.702 · gelu(x / 1.702); the output layer has no bias; English
uses the subwords of the package with a separate SentencePiece model, since the package has none for the target.
Marian's position encoding has all sines before all cosines, so the features of the residual stream are reordered to
match the paper's.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from opus_mt import ENGLISH, heedful_weights, read_ctranslate2

GELU_SCALE = 1.702
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
CONTROL, UNKNOWN, BYTE, NORMAL = 3, 2, 6, 1
KEPT_CHARACTER = re.compile("[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef\\x20-\\x7e·—“”‘’…°±×€£¥℃]")
LONGEST = 512


def read_package(package: Path) -> tuple[dict[str, np.ndarray], list[str], bytes]:
    """The arrays, the pieces of the vocabulary and the SentencePiece model of a package, or of an imported teacher."""
    if package.is_dir():
        with np.load(package / "weights.npz") as file:
            stored = {name.replace("|", "/"): file[name] for name in file.files}
        known: list[str] = json.loads((package / "pieces.json").read_text(encoding="utf-8"))
        return stored, known, (package / "sentencepiece.model").read_bytes()
    with zipfile.ZipFile(package) as archive:
        inside = {Path(name).name: name for name in archive.namelist() if "stanza" not in name}
        arrays, _ = read_ctranslate2(archive.read(inside["model.bin"]))
        pieces: list[str] = json.loads(archive.read(inside["shared_vocabulary.json"]))
        return dict(arrays), pieces, archive.read(inside["sentencepiece.model"])


def lines_of(paths: list[Path]) -> list[str]:
    """All lines of some files."""
    return [line for path in paths for line in path.read_text(encoding="utf-8").split("\n") if line]


def counts_of(model: bytes, lines: list[str]) -> Counter[str]:
    """The frequency of each piece in the lines."""
    import sentencepiece

    processor: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
    counts: Counter[str] = Counter()
    for start in range(0, len(lines), 10_000):
        for line in processor.encode(lines[start : start + 10_000], out_type=str, num_threads=4):
            counts.update(line)
    return counts


def sentencepiece_model(base: Any, pieces: list[tuple[str, float]], *, with_bytes: bool) -> bytes:
    """A unigram model with Heedful's special pieces first, then perhaps the 256 bytes, then these pieces."""
    made = type(base)()
    made.CopyFrom(base)
    del made.pieces[:]
    for name, kind in zip(SPECIAL, (CONTROL, UNKNOWN, CONTROL, CONTROL), strict=True):
        made.pieces.add(piece=name, score=0.0, type=kind)
    if with_bytes:
        for number in range(256):
            made.pieces.add(piece=f"<0x{number:02X}>", score=0.0, type=BYTE)
    for piece, score in pieces:
        made.pieces.add(piece=piece, score=score, type=NORMAL)
    trainer = made.trainer_spec
    trainer.pad_id, trainer.unk_id, trainer.bos_id, trainer.eos_id = range(4)
    trainer.pad_piece, trainer.unk_piece, trainer.bos_piece, trainer.eos_piece = SPECIAL
    trainer.vocab_size, trainer.byte_fallback = len(made.pieces), with_bytes
    if with_bytes:  # the target: decoding restores the text unchanged
        made.normalizer_spec.name, made.normalizer_spec.precompiled_charsmap = "identity", b""
        made.normalizer_spec.remove_extra_whitespaces = False
    return bytes(made.SerializeToString())


def source_model(base: Any, known: set[str], lines: list[str], size: int) -> bytes:
    """The package's SentencePiece model with the pieces that our text and the package's own need most."""
    normal = [(one.piece, one.score) for one in base.pieces if one.type == NORMAL and one.piece in known]
    counts = counts_of(base.SerializeToString(), lines)
    total = counts.total()
    single = [one for one in normal if len(one[0]) == 1 and KEPT_CHARACTER.fullmatch(one[0])] + [
        one for one in normal if one[0] == "▁"
    ]
    kept = {piece for piece, _ in single}
    rest = sorted(
        (one for one in normal if len(one[0]) > 1),
        key=lambda one: -(math.exp(one[1]) + counts[one[0]] / total),
    )
    kept.update(piece for piece, _ in rest[: size - len(SPECIAL) - len(kept)])
    return sentencepiece_model(base, [one for one in normal if one[0] in kept], with_bytes=False)


def target_model(base: Any, pieces: list[str], lines: list[str], size: int) -> bytes:
    """A SentencePiece model of the package's English pieces, with their frequencies in English text."""
    english = [piece for piece in pieces if ENGLISH.fullmatch(piece) and piece not in SPECIAL]
    scores = {piece: -math.log(rank + 10) for rank, piece in enumerate(english)}
    characters = {piece for piece in english if len(piece) == 1}
    for wanted in (len(english), 3 * size, 3 * size // 2, size):
        number = wanted - len(SPECIAL) - 256
        model = sentencepiece_model(base, list(scores.items()), with_bytes=True)
        counts = counts_of(model, lines)
        kept = sorted(scores, key=lambda piece: (piece not in characters, -counts[piece]))[:number]
        total = sum(counts[piece] + 1 for piece in kept)
        scores = {piece: math.log((counts[piece] + 1) / total) for piece in kept}
    return sentencepiece_model(base, sorted(scores.items(), key=lambda one: -one[1]), with_bytes=True)


def fewer_layers(arrays: dict[str, np.ndarray], layers: list[int]) -> dict[str, np.ndarray]:
    """The arrays with these layers of the decoder only, numbered from 0."""
    kept = {}
    for name, values in arrays.items():
        match = re.fullmatch(r"decoder/layer_(\d+)/(.*)", name)
        if match is None:
            kept[name] = values
        elif int(match[1]) in layers:
            kept[f"decoder/layer_{layers.index(int(match[1]))}/{match[2]}"] = values
    return kept


def reordered(name: str, values: np.ndarray, order: np.ndarray) -> np.ndarray:
    """A weight with reordered features of the residual stream."""
    if "embedding" in name or name.endswith(("_norm.weight", "_norm.bias")):
        return values[..., order]
    if name.endswith(("output.weight", "output.bias")):
        return values[order]
    return values[:, order] if values.ndim == 2 else values


def student_weights(stored: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights of the student's layers and the package's table of embeddings, by Heedful's names."""
    weights = heedful_weights(stored)
    width = weights["source_embedding.weight"].shape[1]
    encoding = weights["source_positions.embedding.weight"]
    order = np.arange(width).reshape(2, -1).T.reshape(-1)
    angles = np.arange(len(encoding))[:, None] * 10_000.0 ** (-np.arange(0, width, 2) / width)
    expected = np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(len(encoding), -1)
    if np.abs(encoding[:, order] - expected).max() > 1e-2:
        sys.exit("opus_student.py: the package has another position encoding than Marian's.")
    found = {}
    for name, values in weights.items():
        if "positions" in name or "feed_forward.inner" in name or name == "output.weight":
            continue
        if "feed_forward.gate" in name:
            name, values = name.replace("gate", "inner"), values / GELU_SCALE
        elif name.endswith("feed_forward.output.weight"):
            values = values * GELU_SCALE
        found[name] = reordered(name, values, order).astype(np.float32)
    return found


def rows_of(table: np.ndarray, numbers: dict[str, int], names: list[str]) -> np.ndarray:
    """The embeddings of some pieces; the start has zeros, as Marian's decoder begins, and a byte its character's."""
    rows = np.zeros((len(names), table.shape[1]), dtype=np.float32)
    unknown = table[numbers["<unk>"]]
    for row, name in enumerate(names):
        if match := re.fullmatch("<0x(..)>", name):
            rows[row] = table[numbers.get(chr(int(match[1], 16)), numbers["<unk>"])]
        elif name not in ("<pad>", "<s>"):
            rows[row] = table[numbers[name]] if name in numbers else unknown
    return rows


def make(package: Path, out: Path, *, chinese: list[Path], english: list[Path], sizes: tuple[int, int],
         layers: list[int]) -> None:  # fmt: skip
    """Write the model directory."""
    import torch
    from sentencepiece import sentencepiece_model_pb2

    from heedful.build_model import build_model
    from heedful.config import Config, DataConfig, ModelConfig, TokenizerConfig
    from heedful.model_dir.save_load import save_model
    from heedful.text.tokenizer import Tokenizer

    arrays, pieces, model = read_package(package)
    base = sentencepiece_model_pb2.ModelProto()
    base.ParseFromString(model)
    source = source_model(base, set(pieces), lines_of(chinese), sizes[0])
    target = target_model(base, pieces, lines_of(english), sizes[1])
    tokenizer = Tokenizer(source, target, kind="unigram")
    weights = student_weights(fewer_layers(arrays, layers))
    table, numbers = weights["source_embedding.weight"], {piece: number for number, piece in enumerate(pieces)}
    weights["source_embedding.weight"] = rows_of(
        table, numbers, tokenizer.source_pieces(range(tokenizer.source_vocab_size))
    )
    weights["target_embedding.weight"] = rows_of(table, numbers, tokenizer.pieces(range(tokenizer.target_vocab_size)))
    heads = int(arrays["encoder/num_heads"])
    shape = ModelConfig(
        source_vocab_size=tokenizer.source_vocab_size, target_vocab_size=tokenizer.target_vocab_size, tying="target",
        norm_placement="post", final_norm=False, d_model=table.shape[1],
        d_ff=len(weights["encoder.layers.0.feed_forward.inner.bias"]), num_heads=heads, activation="gelu",
        num_encoder_layers=1 + max(int(name.split(".")[2]) for name in weights if name.startswith("encoder.")),
        num_decoder_layers=len(layers), max_length=LONGEST,
    )  # fmt: skip
    config = Config(
        model=shape,
        tokenizer=TokenizerConfig(kind="unigram", joint=False),
        data=DataConfig(source_language="zh", target_language="en", target_tags=False),
    )
    state = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in weights.items()}
    build_model(shape).load_state_dict(state)
    save_model(out, weights=state, config=config, tokenizer=tokenizer)
    count = sum(values.numel() for values in state.values())
    sys.stderr.write(
        f"{count:,} numbers, {tokenizer.source_vocab_size} Chinese and {tokenizer.target_vocab_size} English pieces\n"
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--chinese", type=Path, nargs="+", required=True)
    parser.add_argument("--english", type=Path, nargs="+", required=True)
    parser.add_argument("--pieces", type=int, nargs=2, default=(9_000, 6_000), metavar=("CHINESE", "ENGLISH"))
    parser.add_argument("--decoder-layers", type=int, nargs="+", default=[0, 5])
    given = parser.parse_args()
    sizes = (given.pieces[0], given.pieces[1])
    make(given.package, given.out, chinese=given.chinese, english=given.english, sizes=sizes,
         layers=given.decoder_layers)  # fmt: skip


if __name__ == "__main__":
    main()
