"""Joining: parts of a corpus that were prepared apart, on several machines or at once, become one prepared directory.

The parts share a tokenizer (`tokenizer.path`), a row width, and what the model is validated and tested on. Their pairs
are laid end to end, so that the result is, byte for byte, what preparing all corpora at once gives. Only a pair that
stands in two parts is not noticed: every part drops its own duplicates.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from heedful.data.prepare import (
    MANIFEST,
    SHARED,
    Prepared,
    Progress,
    measure_lengths,
    new_store,
    read_manifest,
    write_manifest,
)
from heedful.data.store import PairStore, StoreWriter
from heedful.errors import ConfigError

PAIRS_AT_ONCE = 1 << 18


def join(parts: Sequence[str | Path], directory: str | Path, *, progress: Progress | None = None) -> Prepared:
    """Join prepared directories, in the order given."""
    folder, tell = Path(directory), progress or (lambda stage, done, total: None)
    opened = [Prepared.open(part) for part in parts]
    require_alike(opened)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    first = opened[0]
    for name in SHARED:
        (folder / name).unlink(missing_ok=True)
        if (first.directory / name).exists():
            shutil.copyfile(first.directory / name, folder / name)
    shutil.rmtree(folder / "valid", ignore_errors=True)
    shutil.copytree(first.directory / "valid", folder / "valid")
    weights = [weight for part in opened for weight in part.train.corpus_weights]
    with new_store(folder / "train", first.tokenizer, corpus_weights=weights) as writer:
        total, num_corpora = sum(len(part.train) for part in opened), 0
        for part in opened:
            for done in _append(writer, part.train, first_corpus=num_corpora):
                tell("joining", done, total)
            num_corpora += len(part.train.corpus_weights)
    manifest = {
        "fingerprint": joined_fingerprint(parts),
        "row_width": first.row_width,
        "report": joined_report([part.report for part in opened]),
        "lengths": measure_lengths(PairStore.open(folder / "train"), first.row_width),
    }
    write_manifest(folder, manifest)
    return Prepared.open(folder)


def require_alike(parts: Sequence[Prepared]) -> None:
    """Raise `ConfigError` for parts that cannot be one corpus."""
    first = parts[0]
    for part in parts[1:]:
        if part.row_width != first.row_width:
            raise ConfigError(
                f"{part.directory} has rows of {part.row_width} tokens and {first.directory} of {first.row_width}: "
                f"prepare them with the same data.row_width."
            )
        for name in SHARED:
            if _content(part.directory / name) == _content(first.directory / name):
                continue
            key = f"data.{Path(name).stem}" if name.endswith(".jsonl") else "tokenizer.path"
            raise ConfigError(
                f"{part.directory / name} differs from that of {first.directory}: "
                f"prepare all parts with the same {key}."
            )


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _append(writer: StoreWriter, store: PairStore, *, first_corpus: int) -> Iterator[int]:
    """Append all pairs of a store, in pieces of one corpus; gives how many each has."""
    start = 0
    while start < len(store):
        piece = store.corpora[start : start + PAIRS_AT_ONCE]
        same = piece == piece[0]
        stop = start + (len(piece) if same.all() else int(same.argmin()))
        sides = []
        for side in (store.source, store.target):
            offsets = side.offsets[start : stop + 1]
            sides += [side.ids[offsets[0] : offsets[-1]], offsets[1:] - offsets[:-1]]
        writer.add_flat(*sides, corpus_index=first_corpus + int(piece[0]))
        yield stop - start
        start = stop


def joined_fingerprint(parts: Sequence[str | Path]) -> str:
    """Changes when any of the parts, or their order, does."""
    marks = [(read_manifest(Path(part)) or {}).get("fingerprint") for part in parts]
    return hashlib.sha256(json.dumps(["joined", *marks]).encode()).hexdigest()


def joined_report(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What was found in all parts: their training corpora, and once what they share."""
    train = [corpus for report in reports for corpus in report["corpora"] if corpus["role"] == "train"]
    shared = [corpus for corpus in reports[0]["corpora"] if corpus["role"] != "train"]
    num_long = sum(report["longer_than_a_row"]["train"] for report in reports)
    counted = {
        name: dict(sum((Counter(report[name]) for report in reports), Counter()))
        for name in ("overlap", "shared_sources")
    }
    return {
        **reports[0],
        **counted,
        "corpora": [*train, *shared],
        "num_pairs": sum(report["num_pairs"] for report in reports),
        "warnings": list(dict.fromkeys(warning for report in reports for warning in report["warnings"])),
        "longer_than_a_row": {**reports[0]["longer_than_a_row"], "train": num_long},
    }
