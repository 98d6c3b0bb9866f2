"""The Chinese-to-English teacher of the bundled model: OPUS-MT zh-en, as Argos Translate packages it, run by Heedful.

    python3 opus_mt.py import PACKAGE.argosmodel TEACHER TEXT.zh…   # keep the pieces that TEXT needs
    python3 opus_mt.py translate TEACHER IN.zh OUT.en… [--num-best 4] [--device cuda]

The package is a CTranslate2 model (int8) and a SentencePiece model. `import` drops the rows of the vocabulary that
neither the text nor English needs, and writes one .npz file next to the SentencePiece model. `translate` builds a
Heedful Transformer from it: Marian's swish is SwiGLU with a constant second factor, its position table becomes a
learned one, and the bias of its output layer is folded into the output matrix (`with_bias`). With --num-best lines of
OUT are JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

TYPES = (np.float32, np.int8, np.int16, np.int32, np.float16)
END, UNKNOWN = 0, 1
LONGEST, MOST_PLACES = 200, 256
ENGLISH = re.compile("[▁\\x20-\\x7e\u00a0-\u024f“”‘’–—…€™]*")


def read_ctranslate2(blob: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of a `model.bin` by name, and further names for some of them."""
    position = 0

    def number(kind: str) -> int:
        nonlocal position
        (value,) = struct.unpack_from("<" + kind, blob, position)
        position += struct.calcsize("<" + kind)
        return int(value)

    def text() -> str:
        nonlocal position
        length = number("H")
        position += length
        return blob[position - length : position - 1].decode()

    number("I"), text(), number("I")
    arrays: dict[str, np.ndarray] = {}
    for _ in range(number("I")):
        name = text()
        shape = [number("I") for _ in range(number("B"))]
        kind, size = TYPES[number("B")], number("I")
        arrays[name] = np.frombuffer(blob, kind, size // np.dtype(kind).itemsize, position).reshape(shape)
        position += size
    return arrays, {text(): text() for _ in range(number("I"))}


def pieces_of(model: Path, lines: list[str]) -> list[list[str]]:
    """The pieces of all lines, on all cores."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    found: list[list[str]] = processor.encode(lines, out_type=str, num_threads=os.cpu_count() or 1)
    return found


def import_teacher(package: Path, out: Path, texts: list[Path]) -> None:
    """Write the teacher with the pieces that the texts and English need."""
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(package) as archive:
        inside = {Path(name).name: name for name in archive.namelist() if "stanza" not in name}
        blob = archive.read(inside["model.bin"])
        pieces: list[str] = json.loads(archive.read(inside["shared_vocabulary.json"]))
        (out / "sentencepiece.model").write_bytes(archive.read(inside["sentencepiece.model"]))
    lines = [line for path in texts for line in path.read_text(encoding="utf-8").split("\n")]
    needed = {piece for line in pieces_of(out / "sentencepiece.model", lines) for piece in line}
    kept = [i for i, piece in enumerate(pieces) if i <= UNKNOWN or piece in needed or ENGLISH.fullmatch(piece)]
    arrays, _ = read_ctranslate2(blob)
    written = dict(arrays)
    for name in ("decoder/embeddings/weight", "decoder/embeddings/weight_scale", "decoder/projection/bias"):
        if name in arrays:
            written[name] = arrays[name][kept]
    written["decoder/position_encodings/encodings"] = arrays["decoder/position_encodings/encodings"][:MOST_PLACES]
    english = [ENGLISH.fullmatch(pieces[i]) is not None for i in kept]
    written["english"] = np.array(english)
    np.savez(out / "weights.npz", **{name.replace("/", "|"): values for name, values in written.items()})
    (out / "pieces.json").write_text(json.dumps([pieces[i] for i in kept], ensure_ascii=False), encoding="utf-8")
    sys.stderr.write(f"{len(kept)} of {len(pieces)} pieces, {sum(english)} of them English.\n")


def with_bias(weight: np.ndarray, bias: np.ndarray, gain: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """A matrix W' for which W' x = W x + b, whatever x = gain · z + shift the last norm gives.

    z has mean zero, so the sum of x / gain is that of shift / gain, always: u = 1 / (gain · sum) has u · x = 1.
    """
    direction = 1 / gain.astype(np.float64)
    direction /= (shift / gain.astype(np.float64)).sum()
    return (weight + bias[:, None] * direction).astype(np.float32)


def layers_of(stored: dict[str, np.ndarray], stack: str) -> int:
    """Number of layers of a stack."""
    return sum(name.startswith(f"{stack}/layer_") and name.endswith("/ffn/linear_0/weight") for name in stored)


def heedful_weights(stored: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights under the names of a Heedful Transformer."""

    def real(name: str) -> np.ndarray:
        values = stored[name]
        scale = stored.get(f"{name}_scale")
        return values.astype(np.float32) if scale is None else values.astype(np.float32) / scale[:, None]

    weights: dict[str, np.ndarray] = {}

    def linear(ours: list[str], theirs: str) -> None:
        for part, kind in (("weight", "weight"), ("bias", "bias")):
            for name, values in zip(ours, np.split(real(f"{theirs}/{kind}"), len(ours)), strict=True):
                weights[f"{name}.{part}"] = values

    def norm(ours: str, theirs: str) -> None:
        weights[f"{ours}.weight"], weights[f"{ours}.bias"] = real(f"{theirs}/gamma"), real(f"{theirs}/beta")

    for stack in ("encoder", "decoder"):
        for layer in range(layers_of(stored, stack)):
            ours, theirs = f"{stack}.layers.{layer}", f"{stack}/layer_{layer}"
            attention = f"{ours}.self_attention"
            linear([f"{attention}.{part}" for part in ("query", "key", "value")], f"{theirs}/self_attention/linear_0")
            linear([f"{attention}.output"], f"{theirs}/self_attention/linear_1")
            norm(f"{attention}_norm", f"{theirs}/self_attention/layer_norm")
            if stack == "decoder":
                attention = f"{ours}.cross_attention"
                linear([f"{attention}.query"], f"{theirs}/attention/linear_0")
                linear([f"{attention}.{part}" for part in ("key", "value")], f"{theirs}/attention/linear_1")
                linear([f"{attention}.output"], f"{theirs}/attention/linear_2")
                norm(f"{attention}_norm", f"{theirs}/attention/layer_norm")
            linear([f"{ours}.feed_forward.gate"], f"{theirs}/ffn/linear_0")
            weights[f"{ours}.feed_forward.inner.weight"] = np.zeros_like(weights[f"{ours}.feed_forward.gate.weight"])
            weights[f"{ours}.feed_forward.inner.bias"] = np.ones_like(weights[f"{ours}.feed_forward.gate.bias"])
            linear([f"{ours}.feed_forward.output"], f"{theirs}/ffn/linear_1")
            norm(f"{ours}.feed_forward_norm", f"{theirs}/ffn/layer_norm")
    table = real("decoder/embeddings/weight")
    last = f"decoder/layer_{layers_of(stored, 'decoder') - 1}/ffn/layer_norm"
    output = with_bias(table, real("decoder/projection/bias"), real(f"{last}/gamma"), real(f"{last}/beta"))
    nothing = np.zeros((1, table.shape[1]), dtype=np.float32)  # decoding starts from a zero embedding
    weights["source_embedding.weight"] = weights["target_embedding.weight"] = np.concatenate([table, nothing])
    weights["output.weight"] = np.concatenate([output, nothing])
    places = real("decoder/position_encodings/encodings")
    weights["source_positions.embedding.weight"] = weights["target_positions.embedding.weight"] = places
    return weights


def load_teacher(folder: Path, device: str) -> tuple[Any, Any, list[str]]:
    """The model, its special tokens, and its pieces."""
    import torch

    from heedful.build_model import build_model
    from heedful.config import ModelConfig
    from heedful.search_types import SpecialTokens

    with np.load(folder / "weights.npz") as file:
        stored = {name.replace("|", "/"): file[name] for name in file.files}
    pieces: list[str] = json.loads((folder / "pieces.json").read_text(encoding="utf-8"))
    count = len(pieces) + 1
    config = ModelConfig(
        source_vocab_size=count, target_vocab_size=count, tying="none", norm_placement="post", final_norm=False,
        d_model=stored["decoder/embeddings/weight"].shape[1], d_ff=len(stored["encoder/layer_0/ffn/linear_0/weight"]),
        num_heads=int(stored["encoder/num_heads"]), activation="swiglu", positions="learned", max_length=MOST_PLACES,
        num_encoder_layers=layers_of(stored, "encoder"), num_decoder_layers=layers_of(stored, "decoder"),
    )  # fmt: skip
    model: Any = build_model(config)
    weights = {name: torch.from_numpy(np.ascontiguousarray(one)) for name, one in heedful_weights(stored).items()}
    model.load_state_dict(weights)
    model = model.to(device, torch.bfloat16 if device != "cpu" else torch.float32).eval()
    foreign = np.flatnonzero(~stored["english"]).tolist()
    forbidden = tuple(number for number in foreign if number != END)
    return model, SpecialTokens(bos_id=count - 1, eos_id=END, pad_id=count - 1, forbidden=(UNKNOWN, *forbidden)), pieces


def joined(pieces: list[str]) -> str:
    """The text of some pieces, without the spaces that this teacher puts around apostrophes."""
    text = "".join(pieces).replace("▁", " ").strip()
    text = re.sub(r"(?<=\w) ' (?=(s|t|re|ve|ll|d|m)\b)", "'", text)
    text = re.sub(r"(?<=\w)' (?=(s|t|re|ve|ll|d|m)\b)", "'", text)
    return re.sub(r"\s+", " ", text)


def translate(folder: Path, files: list[Path], *, num_best: int, beams: int, device: str) -> None:
    """Translate files, given as input, output, input, output, …"""
    from heedful.decoding.cuda_graph.search import CudaGraphSearch

    model, special, pieces = load_teacher(folder, device)
    search = CudaGraphSearch(model, special)
    for source, out in zip(files[::2], files[1::2], strict=True):
        translate_file(search, pieces, folder, source, out, num_best=num_best, beams=beams)


def translate_file(
    search: Any, pieces: list[str], folder: Path, source: Path, out: Path, *, num_best: int, beams: int
) -> None:
    """Translate the distinct lines of a file, longest first."""
    from heedful.config import DecodingConfig
    from heedful.search_types import DecodeRequest

    lines = source.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    number_of = {piece: number for number, piece in enumerate(pieces)}
    requests = []
    for text, cut in zip(lines, pieces_of(folder / "sentencepiece.model", lines), strict=True):
        ids = [number_of.get(piece, UNKNOWN) for piece in cut][: LONGEST - 1]
        requests.append(DecodeRequest((*ids, END), (), text, min(MOST_PLACES - 2, 2 * len(ids) + 10)))
    config = DecodingConfig(
        method="beam" if beams > 1 else "greedy", beam_size=max(beams, 1), num_best=num_best,
        length_penalty="average", length_penalty_alpha=1.0, tokens_per_batch=262_144,
    )  # fmt: skip
    unique = list(dict.fromkeys(requests))
    found = dict(zip(unique, search.search(unique, config), strict=True))
    unfinished = out.with_name(out.name + ".new")
    with unfinished.open("w", encoding="utf-8", newline="\n") as file:
        for request in requests:
            texts = [joined([pieces[token] for token in one.tokens if token != END]) for one in found[request]]
            if num_best > 1:
                plain = {"source": request.text, "n_best": [{"text": text} for text in texts]}
                file.write(json.dumps(plain, ensure_ascii=False) + "\n")
            else:
                file.write(texts[0] + "\n")
    unfinished.replace(out)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    importing = commands.add_parser("import")
    importing.add_argument("package", type=Path)
    importing.add_argument("teacher", type=Path)
    importing.add_argument("text", type=Path, nargs="+")
    translating = commands.add_parser("translate")
    translating.add_argument("teacher", type=Path)
    translating.add_argument("files", type=Path, nargs="+", metavar="IN OUT")
    translating.add_argument("--num-best", type=int, default=1)
    translating.add_argument("--beams", type=int, default=4)
    translating.add_argument("--device", default="cuda")
    given = parser.parse_args()
    if given.command == "import":
        import_teacher(given.package, given.teacher, given.text)
    else:
        translate(given.teacher, given.files, num_best=given.num_best, beams=given.beams, device=given.device)


if __name__ == "__main__":
    main()
