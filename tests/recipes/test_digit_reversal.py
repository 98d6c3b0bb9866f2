"""The example of the page's view over time: its checksums, its size, and how many held-out strings it reverses."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from heedful.config import DecodingConfig
from heedful.interop.web import BUILT, model_files
from heedful.model_dir.registry import default_model
from heedful.native import available
from heedful.native.engine import NativeEngine
from heedful.search_types import SpecialTokens
from heedful.training.kept_checkpoints import KeptCheckpoints

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes" / "digit-reversal"
EXAMPLE = BUILT / "examples" / "digit-reversal"
MODEL = json.loads((EXAMPLE / "model.json").read_text("utf-8"))
CHECKPOINTS = json.loads((EXAMPLE / "checkpoints" / "checkpoints.json").read_text("utf-8"))


def recipe() -> Any:
    spec = importlib.util.spec_from_file_location("digit_reversal", RECIPE / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_files_are_those_that_are_listed_and_small() -> None:
    listed = {name: (entry["bytes"], entry["sha256"]) for name, entry in MODEL["files"].items()}
    listed |= {f"checkpoints/{one['weights']}": (one["bytes"], one["sha256"]) for one in CHECKPOINTS["checkpoints"]}
    paths = {path.relative_to(EXAMPLE).as_posix(): path for path in EXAMPLE.rglob("*") if path.is_file()}
    assert paths.keys() == {*listed, "model.json", "checkpoints/checkpoints.json"}
    for name, (size, digest) in listed.items():
        contents = paths[name].read_bytes()
        assert (len(contents), hashlib.sha256(contents).hexdigest()) == (size, digest), name
    assert sum(path.stat().st_size for path in paths.values()) <= 400_000
    last = CHECKPOINTS["checkpoints"][-1]
    assert last["sha256"] == MODEL["files"][MODEL["weights"]]["sha256"]


def test_description_has_the_current_form() -> None:
    content = model_files(default_model())["model.json"].content
    assert isinstance(content, bytes)
    current = json.loads(content)
    assert MODEL.keys() == current.keys(), "run python recipes/digit-reversal/make.py again"
    for part in ("special", "decoding", "model"):
        assert MODEL[part].keys() == current[part].keys(), part


def test_steps_and_losses_are_those_of_a_whole_run(tmp_path: Path) -> None:
    kept = KeptCheckpoints(tmp_path, len(CHECKPOINTS["checkpoints"]))
    for step in range(400):
        if kept.is_due(step):
            kept.add(step, None)
    kept.add(400, None)
    assert [one["step"] for one in CHECKPOINTS["checkpoints"]] == kept.steps
    losses = [one["valid_loss"] for one in CHECKPOINTS["checkpoints"][1:]]
    assert losses == sorted(losses, reverse=True)
    valid = {point["step"]: point["valid_loss"] for point in CHECKPOINTS["curve"] if "valid_loss" in point}
    assert valid[400] == losses[-1]


@pytest.mark.skipif(not available(), reason=available().reason)
def test_table_of_the_recipe_is_right() -> None:
    """Every checkpoint translates all held-out strings; the last reverses nearly all, the first none."""
    make = recipe()
    sources = make.make_sources()
    assert not {*sources["train"], *sources["valid"]} & {*sources["test"]}
    test = sources["test"]
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(EXAMPLE / MODEL["tokenizers"][0]))
    special = MODEL["special"]
    tokens = SpecialTokens(special["bos_id"], special["eos_id"], pad_id=0, forbidden=tuple(special["forbidden"]))
    ids = [[*tokenizer.encode(line), special["eos_id"]] for line in test]
    config = DecodingConfig(method="greedy")
    counts = {}
    for one in CHECKPOINTS["checkpoints"]:
        engine = NativeEngine(EXAMPLE / "checkpoints" / one["weights"])
        limits = [len(line) - 1 + MODEL["decoding"]["max_extra_length"] for line in ids]
        found = engine.translate_ids(ids, config, tokens, max_lengths=limits)
        texts = [tokenizer.decode(best.tokens) for [best] in found]
        counts[one["step"]] = sum(text == make.reverse(line) for text, line in zip(texts, test, strict=True))
    assert counts[0] == 0
    assert counts[400] >= 980
    for name in ("README.md", "README.zh-CN.md"):
        rows = re.findall(r"^\| (\d+) \| (\d+) \|$", (RECIPE / name).read_text("utf-8"), re.MULTILINE)
        assert {int(step): int(count) for step, count in rows} == counts
