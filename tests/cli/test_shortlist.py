"""`shortlist`: building from sentence pairs, translating with it, damaged files, and engines without support."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from heedful.errors import ModelDirectoryError
from heedful.model_dir import load_model, save_model
from heedful.model_dir.files import SHORTLIST
from heedful.model_dir.shortlist import Shortlist, parse_shortlist, read_shortlist, save_shortlist, write_shortlist
from heedful.native import available
from heedful.text.tokenizer import Tokenizer
from tests.cli.program import Corpus, Inside

native = pytest.mark.skipif(not available(), reason=available().reason)


@pytest.fixture
def copy(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "copy", ignore=shutil.ignore_patterns("training", "native*")))


@native
def test_shortlist_keeps_translations(inside: Inside, copy: Path, corpus: Corpus) -> None:
    files = ["-s", corpus.test_source, "-t", corpus.test_target]
    before = bleu(inside("evaluate", "-m", copy, *files, "--engine", "native", "--json").out)
    ended = inside("shortlist", "--force", "-m", copy, *corpus.flags)
    assert ended.code == 0 and ended.out == "" and "tokens are candidates" in ended.error
    assert f"warning: {num_lines(corpus)} sentence pairs" in ended.error and "too few" in ended.error
    found = read_shortlist(copy)
    assert found is not None and found.settings == {"per_token": 100, "frequent": 1000, "pairs": num_lines(corpus)}
    after = bleu(inside("evaluate", "-m", copy, *files, "--engine", "native", "--json").out)
    assert after == pytest.approx(before, abs=1.0)  # every digit keeps its translation
    assert "with its shortlist" in inside("evaluate", "-m", copy, *files, "--engine", "native").error
    assert "shortlist" not in inside("evaluate", "-m", copy, *files, "--engine", "native", "--no-shortlist").error
    assert json.loads(inside("evaluate", "-m", copy, *files, "--engine", "native", "--json").out)["shortlist"] is True
    assert inside("info", copy, "--verify").code == 0
    assert "shortlist.safetensors" in json.loads(inside("info", copy, "--json").out)["files"]


def bleu(printed: str) -> float:
    return float(next(one["value"] for one in json.loads(printed)["scores"] if one["name"] == "BLEU"))


def num_lines(corpus: Corpus) -> int:
    return len(corpus.source.read_text().splitlines())


@native
def test_shortlist_restricts_output_unless_disabled(inside: Inside, copy: Path) -> None:
    freely = inside("translate", "-m", copy, "1 2 3").out
    tokenizer = Tokenizer.load(copy)
    nine = tokenizer.encode_target("9 9")
    count = load_model(copy).config.model.source_vocab_size
    empty = np.zeros(0, dtype=np.int32)
    save_shortlist(copy, Shortlist(np.zeros(count + 1, dtype=np.int64), empty, np.array(nine, dtype=np.int32)))
    bound = inside("translate", "-m", copy, "1 2 3").out
    assert bound != freely and not set(bound) & set("12345678")
    assert inside("translate", "-m", copy, "--shortlist", "1 2 3").out == bound
    assert inside("translate", "-m", copy, "--no-shortlist", "1 2 3").out == freely
    assert inside("translate", "-m", copy, "--decoding.shortlist=false", "1 2 3").out == freely
    assert inside("translate", "-m", copy, "--engine", "torch", "1 2 3").out == freely
    inside("translate", "-m", copy, "--engine", "torch", "--shortlist", "1 2 3").refused("shortlist", "engine native")


@native
def test_contradictory_flags_are_one_line(inside: Inside, copy: Path, corpus: Corpus, tmp_path: Path) -> None:
    inside("translate", "-m", copy, "--shortlist", "1 2").refused("no shortlist", "heedful shortlist")
    inside("shortlist", "-m", copy).refused("--source and --target")
    inside("shortlist", "-m", copy, "-s", corpus.source).refused("--source", "--target")
    inside("shortlist", "-m", copy, "-s", "nothing.aa", "-t", corpus.target).refused("nothing.aa")
    inside("shortlist", "-m", tmp_path / "nowhere", *corpus.flags).refused("nowhere")
    (tmp_path / "e.aa").write_text("\n\n")
    (tmp_path / "e.bb").write_text("\n\n")
    inside("shortlist", "-m", copy, "-s", tmp_path / "e.aa", "-t", tmp_path / "e.bb").refused("no sentence pairs")
    inside("shortlist", "-m", copy, *corpus.flags).refused(f"{num_lines(corpus)} sentence pairs", "10,000", "--force")
    assert read_shortlist(copy) is None


def test_damaged_or_foreign_shortlist_is_refused(inside: Inside, copy: Path, corpus: Corpus) -> None:
    assert inside("shortlist", "--force", "-m", copy, *corpus.flags, "-q").error == ""
    path = copy / SHORTLIST
    intact = path.read_bytes()
    path.write_bytes(intact[:-1] + bytes([intact[-1] ^ 1]))
    inside("translate", "-m", copy, "1 2").refused(SHORTLIST, "not what was saved")
    path.write_bytes(intact[:-8])
    inside("translate", "-m", copy, "1 2").refused(SHORTLIST, "bytes instead of")
    path.unlink()
    inside("translate", "-m", copy, "1 2").refused(SHORTLIST, "missing", "make it again with `heedful shortlist`")
    again = inside("shortlist", "--force", "-m", copy, *corpus.flags)
    assert again.code == 0 and "existing shortlist is damaged and is replaced" in again.error, again.error
    assert inside("translate", "-m", copy, "1 2").code == 0
    weights = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    inside("shortlist", "--force", "-m", copy, *corpus.flags, "-q").refused("model.safetensors", "not what was saved")
    (copy / "model.safetensors").write_bytes(weights)
    loaded = load_model(copy)
    save_model(copy, weights=loaded.model, config=loaded.config, tokenizer=loaded.tokenizer)
    assert not path.exists() and read_shortlist(copy) is None  # saving a model removes the shortlist of another
    path.write_bytes(intact)
    inside("translate", "-m", copy, "1 2").refused(SHORTLIST, "not part of this model")


def test_invalid_shortlist_contents_are_refused(tmp_path: Path) -> None:
    good = {"starts": np.array([0, 1, 2]), "targets": np.array([4, 5]), "always": np.array([3])}
    place = tmp_path / SHORTLIST
    write_shortlist(place, Shortlist(**good))
    assert parse_shortlist(place, place, (2, 6)).of(1).tolist() == [5]
    wrong: dict[str, dict[str, object]] = {
        "another vocabulary": {"starts": np.array([0, 2])},
        "not contiguous": {"starts": np.array([0, 3, 2])},
        "not in the vocabulary": {"targets": np.array([4, 6])},
        "token is not": {"always": np.array([-1])},
        "another type": {"always": np.array([[3]])},
    }
    for words, change in wrong.items():
        write_shortlist(place, Shortlist(**{**good, **change}))  # type: ignore[arg-type]
        with pytest.raises(ModelDirectoryError, match=words):
            parse_shortlist(place, place, (2, 6))
    for text in (b"", b"PK", b"\x08" + bytes(7) + b"[1,2,3]x", b"\xff" * 30):
        place.write_bytes(text)
        with pytest.raises(ModelDirectoryError, match=SHORTLIST):
            parse_shortlist(place, place, (2, 6))


def test_shortlist_becomes_ctranslate2_vocabulary_map(
    inside: Inside, copy: Path, corpus: Corpus, tmp_path: Path
) -> None:
    pytest.importorskip("ctranslate2", reason="needs the package ctranslate2: pip install 'heedful[dev]'")
    ctranslate2 = ["translate", "--engine", "ctranslate2", "--method", "greedy"]
    inside(*ctranslate2, "-m", copy, "--shortlist", "1 2").refused("no shortlist")
    freely = inside(*ctranslate2, "-m", copy, "1 2 3", "4 5").out
    tokenizer = Tokenizer.load(copy)
    nine, count = tokenizer.encode_target("9 9"), load_model(copy).config.model.source_vocab_size
    lists = [np.array(nine if tokenizer.encode_source("4")[0] == i else [], dtype=np.int32) for i in range(count)]
    starts = np.append(0, np.cumsum([len(one) for one in lists])).astype(np.int64)
    save_shortlist(copy, Shortlist(starts, np.concatenate(lists), np.array(nine[-1:], dtype=np.int32)))
    assert inside("export", "--to", "ctranslate2", "-m", copy, "-o", tmp_path / "exported").code == 0
    first = (tmp_path / "exported" / "vmap.txt").read_text(encoding="utf-8").splitlines()[0]
    assert first == "\t</s>"
    for place in (copy, tmp_path / "exported"):
        assert inside(*ctranslate2, "-m", place, "1 2 3", "4 5").out == freely
        bound = inside(*ctranslate2, "-m", place, "--shortlist", "4 5").out
        assert set(bound) <= set("9 \n") and bound != freely.split("\n")[1]
