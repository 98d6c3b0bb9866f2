"""The scripts that generate or select the training text of the model for English and Chinese."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from random import Random

import pytest

from tests.recipes.recipe_scripts import RECIPE, compress, made, run, save, script

ROOT = RECIPE.parents[1]
MASK = re.compile(r"\{\d\}")


def table(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


# ---- lists -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("terms", 3),
        ("terms_sentences", 2),
        ("everyday", 2),
        ("masks", 3),
        ("places", 3),
        ("regions", 5),
    ],
)
def test_lists_have_no_empty_cells_or_duplicates(name: str, columns: int) -> None:
    rows = table(RECIPE / f"{name}.tsv")
    assert {len(row) for row in rows} == {columns}
    assert all(cell and cell == cell.strip() for row in rows for cell in row)
    assert len({tuple(row) for row in rows}) == len(rows)


def test_lists_contain_no_test_sentences() -> None:
    rows = table(ROOT / "benchmarks/quality/bundled_model_first_sentences.tsv")
    assert [len(row) for row in rows] == [3] * 200 and {row[0] for row in rows} == {"everyday", "machine learning"}
    assert all(re.search(r"[\u4e00-\u9fff]", chinese) and re.search(r"[a-z]", english) for _, chinese, english in rows)
    tested = {re.sub(r"\W", "", text.lower()) for _, *texts in rows for text in texts}
    assert len(tested) == 400
    names = ("terms_sentences", "everyday", "masks")
    listed = {
        re.sub(r"\W", "", cell.lower()) for name in names for row in table(RECIPE / f"{name}.tsv") for cell in row
    }
    assert not tested & listed


def test_generated_pairs_contain_no_test_sentences(tmp_path: Path) -> None:
    done = run("synthetic_domain", tmp_path)
    assert done.returncode == 0, done.stderr
    files = made(tmp_path)
    assert {name: len(lines) for name, lines in files.items() if name.endswith(".en")} == {
        "domain.en": 894,
        "places.en": len(files["places.zh"]),
        "regions-german.en": len(files["regions-german.de"]),
        "terms.en": len(files["terms.zh"]),
        "terms-german.en": len(files["terms-german.de"]),
    }
    tested = {
        text for _, *texts in table(ROOT / "benchmarks/quality/bundled_model_first_sentences.tsv") for text in texts
    }
    assert not any(line in tested or "{" in line for lines in files.values() for line in lines)
    terms = set(zip(files["terms.en"], files["terms.zh"], strict=True))
    assert {
        ("dot product", "点积"),
        ("Dot product", "点积"),
        ("residual", "残差"),
        ("attention mechanism", "注意力机制"),
    } <= terms
    again = tmp_path / "again"
    run("synthetic_domain", again, hash_seed=7)
    assert made(again) == {name: lines for name, lines in files.items() if name != "again"}


# ---- masks -----------------------------------------------------------------------------------------------------------


def test_masks_follow_source_order() -> None:
    masks = script("synthetic_masks")
    source, target = "In 1998 Angela moved from Boston to Berlin.", "Angela zog 1998 von Boston nach Berlin."
    seen = set()
    for seed in range(60):
        found = masks.masked(Random(seed), source, target)
        assert found is not None
        numbers = MASK.findall(found[0])
        assert numbers == [f"{{{n}}}" for n in range(len(numbers))], "numbered from the left of the source"
        assert sorted(MASK.findall(found[1])) == sorted(numbers), "each is in the target once"
        seen.add(len(numbers))
        if numbers != MASK.findall(found[1]):
            seen.add(-1)
    assert seen >= {-1, 1, 2, 3, 4}, "one to four masks, some crossing"


def test_masks_do_not_overlap() -> None:
    masks = script("synthetic_masks")
    assert all(masks.masked(Random(seed), "214 million years", "2.14亿年") is None for seed in range(9))
    assert masks.masked(Random(1), "{name} has 3", "{name} hat 3") is None
    for seed in range(40):  # 0 and 1 are shared, and so are the digits of masks
        found = masks.masked(Random(seed), "Set 1 to 0 in Foo", "Foo: 0 statt 1")
        assert found is None or sorted(MASK.findall(found[0])) == sorted(MASK.findall(found[1]))


def test_masks_are_equal_in_all_languages() -> None:
    for row in table(RECIPE / "masks.tsv"):
        assert len({tuple(sorted(MASK.findall(cell))) for cell in row}) == 1, row
        assert len(set(MASK.findall(row[0]))) == len(MASK.findall(row[0]))


def test_masked_pairs_in_both_directions(tmp_path: Path) -> None:
    save(tmp_path, {"a.en": ["Tom met Anna.", "No names here."], "a.zh": ["Tom遇见了Anna。", "这里没有名字。"]})
    compress(tmp_path)
    done = run("synthetic_masks", tmp_path / "m", "en-zh", "5", f"{tmp_path / 'a.en'}={tmp_path / 'a.zh'}")
    assert done.returncode == 0, done.stderr
    files = {name: lines for name, lines in made_text(tmp_path).items() if name.startswith("m.")}
    assert sorted(files) == ["m.en-zh.en", "m.en-zh.zh", "m.zh-en.en", "m.zh-en.zh"]
    assert len({len(lines) for lines in files.values()}) == 1
    for name in ("m.en-zh.en", "m.zh-en.zh"):
        assert all(MASK.findall(line) == [f"{{{n}}}" for n in range(len(MASK.findall(line)))] for line in files[name])
    assert "遇见了" in files["m.en-zh.zh"][-1] and "{0}" in files["m.en-zh.zh"][-1]
    save(tmp_path, {"b.en": ["one", "two 2"], "b.zh": ["一"]})
    done = run("synthetic_masks", tmp_path / "m", "en-zh", "5", f"{tmp_path / 'b.en'}={tmp_path / 'b.zh'}")
    assert done.returncode == 1 and "Traceback" not in done.stderr and "equally many lines" in done.stderr


def made_text(folder: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text("utf-8").splitlines() for path in folder.iterdir() if path.suffix != ".xz"}


# ---- what is chosen --------------------------------------------------------------------------------------------------


def line_of(source: str, *texts: str) -> str:
    return json.dumps({"source": source, "n_best": [{"text": text} for text in texts]}, ensure_ascii=False)


def test_round_trip_selects_best_translation(tmp_path: Path) -> None:
    sources = ["The old house is empty.", "Nobody came to the party."]
    save(
        tmp_path,
        {
            "made.json": [
                line_of(sources[0], "旧车是空的。", "老房子是空的。"),
                line_of(sources[1], "天气很好。", "天气很好。"),
            ],
            "made.zh": ["旧车是空的。", "老房子是空的。", "天气很好。"],
            "made.en": ["The old car is empty.", "The old house is empty.", "The weather is fine."],
        },
    )
    done = run("select_translations", "flatten", tmp_path / "made.json", tmp_path / "flat.zh")
    assert done.returncode == 0, done.stderr
    assert made(tmp_path)["flat.zh"] == made(tmp_path)["made.zh"], "each translation once"
    done = run(
        "select_translations", "round", *(tmp_path / f"made.{end}" for end in ("json", "zh", "en")), tmp_path / "kept"
    )
    assert done.returncode == 0, done.stderr
    assert (made(tmp_path)["kept.en"], made(tmp_path)["kept.zh"]) == ([sources[0]], ["老房子是空的。"])


def test_unsound_teacher_translations_are_dropped(tmp_path: Path) -> None:
    pairs = [
        ("他有35本书。", "He has 35 books.", True),
        ("他有35本书。", "He has 53 books.", False),
        ("这座城市有800万人口。", "The city has eight million people.", True),
        ("我去学校。", "I go to 学校.", False),
        ("我去学校。", "", False),
        ("我去学校。", "I go, I go, I go, I go, I go, I go, I go, I go, I go.", False),
        ("我觉得“自由”很重要。", "I think “freedom” is important.", True),
    ]
    save(tmp_path, {"in.zh": [one for one, *_ in pairs], "made.en": [made_ for _, made_, _ in pairs]})
    done = run("select_translations", "sound", tmp_path / "in.zh", tmp_path / "made.en", tmp_path / "kept")
    assert done.returncode == 0, done.stderr
    expected = [(one, text.replace("“", '"').replace("”", '"')) for one, text, good in pairs if good]
    assert list(zip(made(tmp_path)["kept.zh"], made(tmp_path)["kept.en"], strict=True)) == expected


def test_most_frequent_word_translation_is_kept(tmp_path: Path) -> None:
    save(
        tmp_path,
        {
            "w.zh": ["汽车", "轿车", "柏林", "点积"],
            "w.kind": ["n", "n", "ns", "n"],
            "w.en": ["Car", "A car.", "Berlin.", "A little bit of everything in the world"],
        },
    )
    names = [tmp_path / f"w.{end}" for end in ("zh", "kind", "en")]
    assert run("select_translations", "words", *names, tmp_path / "k").returncode == 0
    files = made(tmp_path)
    assert list(zip(files["k.zh"], files["k.en"], strict=True)) == [
        ("汽车", "car"),
        ("轿车", "a car"),
        ("柏林", "Berlin"),
    ]
    assert files["k-back.zh"][0] == "汽车" and "点积" not in files["k-back.zh"]


def test_translation_closest_to_reference_is_kept(tmp_path: Path) -> None:
    save(
        tmp_path,
        {"m.json": [line_of("我很累。", "I am very tired.", "I'm tired.")], "ref.en": ["I'm very tired, you know."]},
    )
    done = run(
        "select_translations", "nearest", tmp_path / "m.json", tmp_path / "ref.en", tmp_path / "k.zh", tmp_path / "k.en"
    )
    assert done.returncode == 0, done.stderr
    assert made(tmp_path)["k.zh"] == ["我很累。"] and made(tmp_path)["k.en"] == ["I'm tired."]


def test_invalid_command_is_refused() -> None:
    for name, arguments in (
        ("select_translations", ["nearest", "x"]),
        ("select_translations", []),
        ("synthetic_masks", ["x"]),
    ):
        done = run(name, *arguments)
        assert done.returncode == 1 and "Traceback" not in done.stderr and "say" in done.stderr
    done = subprocess.run(["bash", str(RECIPE / "en_zh.sh")], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "give DATA TEACHER MODEL" in done.stderr


def test_recipe_names_only_generated_text() -> None:
    recipe = (RECIPE / "en_zh.yaml").read_text(encoding="utf-8")
    steps = (RECIPE / "en_zh.sh").read_text(encoding="utf-8").replace("{1,2,3}", "1 replaced-2 replaced-3")
    steps = steps.replace("{1,3}", "1 round-3") + "".join(
        (RECIPE / f"{name}.py").read_text("utf-8")
        for name in (
            "synthetic_domain",
            "training_text",
            "synthetic_numbers",
            "synthetic_figures",
            "synthetic_names",
            "select_translations",
        )
    )
    for name in set(re.findall(r"text/([\w-]+)\.", recipe)):
        assert name in steps or name.removesuffix("-back") in steps or name.partition("-")[2] in steps, name
