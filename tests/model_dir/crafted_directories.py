"""Malicious or damaged model directories with correct checksums, and a program that loads them.

Run as a program: `python crafted_directories.py ENGINE REFERENCE FOLDER…`. It prints one JSON line for each folder:
"refused" with the message, "same" if the model translates as the reference does, or "different".
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from heedful.model_dir.files import sha256

TEXTS = ["sentence 3 about word3 and thing2", "word6", "thing1 about sentence 9"]
HUGE = [-1, 0, 1.5, 1 << 20, 10**8, 10**9, 1 << 31, 1 << 32, 1 << 63, 10**30, None, True, "7", [], {}, float("1e308")]


def craft(reference: Path, place: Path) -> list[Path]:
    """Copies of a model directory, each with one defect (or, in a few, a harmless change)."""
    folders = []
    for number, change in enumerate(changes(reference)):
        folder = place / f"{number:03d}"
        shutil.copytree(reference, folder)
        sealed = change(folder)
        if sealed is not False:
            seal(folder)
        folders.append(folder)
    return folders


def seal(folder: Path) -> None:
    """Update `checksums.json` to match the files."""
    path = folder / "checksums.json"
    plain = json.loads(path.read_text("utf-8"))
    for name, entry in plain["files"].items():
        if (folder / name).is_file() and (folder / name).stat().st_size < 1 << 30:
            entry.update(size=(folder / name).stat().st_size, sha256=sha256(folder / name))
    path.write_text(json.dumps(plain), "utf-8")


def changes(reference: Path) -> Iterator[Callable[[Path], Any]]:
    """All changes, one function each; after one that returns False, checksums are not updated."""
    yield from _config_changes()
    yield from _details_changes()
    yield from _header_changes(reference)
    yield from _file_changes()
    yield from _tokenizer_changes()


def _config_changes() -> Iterator[Callable[[Path], Any]]:
    model = "d_model d_ff num_heads head_dim num_encoder_layers num_decoder_layers source_vocab_size max_length".split()
    decoding = (
        "beam_size num_best max_length min_length no_repeat_ngram_size max_extra_length tokens_per_batch top_k".split()
    )
    for section, names in (("model", model), ("decoding", decoding)):
        for name in names:
            for value in HUGE[:1] + HUGE[3:9] if section == "decoding" else HUGE[:9]:
                yield lambda folder, s=section, n=name, v=value: edit_config(folder, lambda c: c[s].__setitem__(n, v))
    for value in HUGE:
        yield lambda folder, v=value: edit_config(folder, lambda c: c.__setitem__("model", v))
    yield lambda folder: edit_config(folder, lambda c: c["model"].__setitem__("norm_epsilon", 1e308))
    yield lambda folder: edit_config(folder, lambda c: c["decoding"].__setitem__("length_penalty_alpha", 1e308))


def _details_changes() -> Iterator[Callable[[Path], Any]]:
    for key in ("training", "data", "lengths", "scores", "num_parameters"):
        for value in ("text", 7, [7], {"a": [1]}, [[1, 2, 3]]):
            yield lambda folder, k=key, v=value: edit_record(folder, lambda r: r["details"].__setitem__(k, v))
    for value in ([["a"]], "abc", {"x": 1}, 5):
        yield lambda folder, v=value: edit_record(
            folder, lambda r: r["details"].__setitem__("training", {"started_from_directions": v})
        )
    yield lambda folder: edit_record(folder, lambda r: r["details"].__setitem__("lengths", {"source_p99": "many"}))
    yield lambda folder: edit_record(folder, lambda r: r["details"].__setitem__("data", {"corpora": ["x"]}))


def _header_changes(reference: Path) -> Iterator[Callable[[Path], Any]]:
    some = "encoder.layers.0.self_attention.query.bias"
    matrix = "encoder.layers.0.feed_forward.inner.weight"
    for offsets in ([-8192, -4096], [0.0, 4.0], [None, None], [0, 1 << 60], [8, 4], [0], [], "ab", {"a": 1}):
        yield lambda folder, o=offsets: edit_header(folder, lambda h: h[some].__setitem__("data_offsets", o))
    yield lambda folder: edit_header(folder, lambda h: h[some].update(data_offsets=h[matrix]["data_offsets"]))
    for shape in ([1 << 40, 1 << 40], [-1], [1.5], ["4"], [1] * 80, [], None, "ab", [0]):
        yield lambda folder, s=shape: edit_header(folder, lambda h: h[some].__setitem__("shape", s))
    for dtype in ("I32", "U8", "BF16", "F8_E4M3", "", None, 7, "I8"):
        yield lambda folder, d=dtype: edit_header(folder, lambda h: h[some].__setitem__("dtype", d))
        yield lambda folder, d=dtype: edit_header(folder, lambda h: h[matrix].__setitem__("dtype", d))
    yield lambda folder: edit_header(folder, lambda h: h.pop(some))
    yield lambda folder: edit_header(folder, lambda h: h.__setitem__("odd", h[some]))
    yield lambda folder: edit_header(folder, lambda h: h.__setitem__("../odd", h.pop(some)))
    yield lambda folder: edit_header(folder, lambda h: h.__setitem__("__metadata__", {"format": "pt", "x": "y"}))
    yield lambda folder: write_header(folder, b"[" * 100_000)
    yield lambda folder: write_header(folder, b" " * 90_000_000)
    yield lambda folder: write_header(folder, b'{"a": ' * 50_000)
    yield lambda folder: write_header(folder, b"{}")
    yield lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 100)
    yield lambda folder: (folder / "model.safetensors").write_bytes(b"")
    yield lambda folder: os.truncate(folder / "model.safetensors", (reference / "model.safetensors").stat().st_size - 4)


def _file_changes() -> Iterator[Callable[[Path], Any]]:
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer.model", "checksums.json"):
        yield lambda folder, n=name: replaced(folder / n, lambda path: os.mkfifo(path))
        yield lambda folder, n=name: replaced(folder / n, lambda path: path.symlink_to("/dev/zero"))
        yield lambda folder, n=name: replaced(folder / n, lambda path: path.mkdir())
        yield lambda folder, n=name: replaced(folder / n, lambda path: None)
        yield lambda folder, n=name: bool(os.truncate(folder / n, 20 << 30))
    for name in ("config.json", "tokenizer.json"):
        for contents in (b"", b"null", b"[]", b"{" * 100_000, b'{"a": ' * 100_000, b"\xff\xfe", b"1e999", b"7"):
            yield lambda folder, n=name, c=contents: (folder / n).write_bytes(c) and None
    yield lambda folder: saved_folder(folder, lambda path: os.mkfifo(path))
    yield lambda folder: saved_folder(folder, lambda path: path.symlink_to("/dev/zero"))
    yield lambda folder: saved_folder(folder, lambda path: (path.touch(), os.truncate(path, 3 << 30)))
    yield lambda folder: bool((folder / ".saved").symlink_to(folder.parent))
    for name in ("native-int8.bin", "native-float32.bin"):
        yield lambda folder, n=name: os.mkfifo(folder / n)
        yield lambda folder, n=name: (folder / n).write_bytes(b"HEEDFULN" + bytes(5000)) and None
    yield lambda folder: edit_checksums(folder, lambda c: c["files"].__setitem__("../x", {"size": 1, "sha256": "0"}))
    yield lambda folder: edit_checksums(folder, lambda c: c["files"].__setitem__("config.json", None))
    yield lambda folder: edit_checksums(folder, lambda c: c.__setitem__("format_version", 10**30))
    yield lambda folder: edit_checksums(folder, lambda c: c["files"]["config.json"].__setitem__("size", -1))


def _tokenizer_changes() -> Iterator[Callable[[Path], Any]]:
    for contents in (b"", b"\0" * 1000, b"\x0a" + b"\xff" * 50, b"{}"):
        yield lambda folder, c=contents: (folder / "tokenizer.model").write_bytes(c)
    for part in (0.1, 0.5, 0.9, 0.99):
        yield lambda folder, p=part: os.truncate(
            folder / "tokenizer.model", int((folder / "tokenizer.model").stat().st_size * p)
        )


def edit_record(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change `config.json`."""
    path = folder / "config.json"
    record = json.loads(path.read_text("utf-8"))
    change(record)
    path.write_text(json.dumps(record), "utf-8")


def edit_config(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the model configuration in `config.json`."""
    edit_record(folder, lambda record: change(record["config"]))


def edit_checksums(folder: Path, change: Callable[[dict[str, Any]], Any]) -> bool:
    """Change the list of checksums itself."""
    path = folder / "checksums.json"
    plain = json.loads(path.read_text("utf-8"))
    change(plain)
    path.write_text(json.dumps(plain), "utf-8")
    return False


def edit_header(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the header of the weights."""
    contents = (folder / "model.safetensors").read_bytes()
    header = json.loads(contents[8 : 8 + int.from_bytes(contents[:8], "little")])
    changed = copy.deepcopy(header)
    change(changed)
    write_header(folder, json.dumps(changed).encode())


def write_header(folder: Path, text: bytes) -> None:
    """Replace the header of the weights."""
    path = folder / "model.safetensors"
    contents = path.read_bytes()
    body = contents[8 + int.from_bytes(contents[:8], "little") :]
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def replaced(path: Path, make: Callable[[Path], Any]) -> bool:
    """Replace a file by something else."""
    path.unlink()
    make(path)
    return False


def saved_folder(folder: Path, make: Callable[[Path], Any]) -> bool:
    """Add a `.saved` folder with an invalid checksum list."""
    (folder / ".saved").mkdir()
    make(folder / ".saved/checksums.json")
    return False


def main(engine: str, reference: str, *folders: str) -> None:
    """Load each folder and print the result."""
    import resource

    from heedful.decoding.translator import Translator
    from heedful.errors import HeedfulError

    def translate(path: str) -> list[Any]:
        made = Translator.load(path, engine=engine).translate(TEXTS, beam_size=2, max_length=12)
        return [[one.text, one.log_prob] for one in made]

    expected = translate(reference)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for folder in folders:
        message, begin = "", time.process_time()
        try:
            outcome = "same" if translate(folder) == expected else "different"
        except HeedfulError as error:
            outcome, message = "refused", str(error)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
        result = {"folder": folder, "outcome": outcome, "message": message, "grown_mb": grown}
        print(json.dumps({**result, "seconds": time.process_time() - begin}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
