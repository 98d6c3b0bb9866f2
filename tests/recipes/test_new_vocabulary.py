"""A model with a new vocabulary: what it keeps of the old one."""

from __future__ import annotations

from pathlib import Path

import torch

from heedful.model_dir.save_load import load_model, read_directions
from tests.recipes.recipe_scripts import RECIPE, run, script

BUNDLED = RECIPE.parents[1] / "heedful/bundled/en-de-zh"
VOCABULARY = RECIPE.parents[1] / "heedful/bundled/en-zh/tokenizer.model"


def test_pieces_are_cut_into_the_longest_known_ones() -> None:
    known = {
        piece: number for number, piece in enumerate(["▁a", "ab", "abc", "注", *(f"<0x{n:02X}>" for n in range(256))])
    }
    parts_of = script("new_vocabulary").parts_of
    assert parts_of("▁a", known) == [0]
    assert parts_of("abcab", known) == [2, 1]
    assert parts_of("注意", known) == [3, *(4 + byte for byte in "意".encode())]


def test_embeddings_are_kept_or_means(tmp_path: Path) -> None:
    done = run("new_vocabulary", "replace", BUNDLED, VOCABULARY, tmp_path / "start")
    assert done.returncode == 0 and "24000 pieces" in done.stderr
    old, new = load_model(BUNDLED), load_model(tmp_path / "start")
    assert (
        new.tokenizer.tags == ("en", "zh")
        and (tmp_path / "start/tokenizer.model").read_bytes() == VOCABULARY.read_bytes()
    )
    assert {(one.source, one.target) for one in read_directions(tmp_path / "start").known} == {
        ("en", "zh"),
        ("zh", "en"),
    }
    pieces = [script("new_vocabulary").pieces_of(path) for path in (BUNDLED / "tokenizer.model", VOCABULARY)]
    known = {piece: number for number, piece in enumerate(pieces[0])}
    tables = [one.model.state_dict()["source_embedding.weight"].float() for one in (old, new)]
    for number in range(0, 24_000, 997):
        parts = script("new_vocabulary").parts_of(pieces[1][number], known)
        torch.testing.assert_close(tables[1][number], tables[0][parts].mean(dim=0))
    for name, values in old.model.state_dict().items():
        if "embedding" not in name and name != "output.weight":
            torch.testing.assert_close(new.model.state_dict()[name], values)


def test_learned_vocabulary_has_the_tags(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(
        "hello world\n你好世界\n" * 50 + "".join(f"line {n} 第{n}行\n" for n in range(300)), "utf-8"
    )
    done = run(
        "new_vocabulary", "learn", tmp_path / "v.model", tmp_path / "text", "--languages", "en,zh", "--size", "330"
    )
    assert done.returncode == 0, done.stderr
    assert {"<2en>", "<2zh>", "你"} <= set(script("new_vocabulary").pieces_of(tmp_path / "v.model"))
