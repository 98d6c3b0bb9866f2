"""The bundled model's benchmark, generated model card, and data checksums."""

from __future__ import annotations

import fnmatch
import importlib
import json
import lzma
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from heedful.model_dir import files as model_files
from heedful.native import available
from tests.untrained_models import save_three_languages

ROOT = Path(__file__).parents[2]
TEXT = {
    "en": ["a bird sings", "the sun is warm"],
    "de": ["ein Vogel singt", "die Sonne ist warm"],
    "zh": ["鸟在唱歌", "阳光很暖"],
}
native_only = pytest.mark.skipif(not available(), reason=available().reason)
Results = dict[str, Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model of three languages, full and compact, and test sets of two lines."""
    folder = tmp_path_factory.mktemp("bundled")
    lines = [line for text in TEXT.values() for line in text] * 20
    save_three_languages(folder, lines, vocab_size=300, licence="CC-BY-4.0", num_parameters=1234)
    for name in ("newstest2014.en-de", "flores200-devtest"):
        for language, text in TEXT.items():
            path = folder / "data" / "newstest" / f"{name}.{language}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(text) + "\n", encoding="utf-8")
    plain = folder / "data" / "newstest" / "flores200-devtest.zh"
    Path(f"{plain}.xz").write_bytes(lzma.compress(plain.read_bytes()))
    plain.unlink()
    return folder


@pytest.fixture
def measure(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the benchmark with the given flags and return its results."""

    def run(*flags: str) -> Results:
        monkeypatch.setenv("OUT", str(tmp_path))
        command = [
            "bundled_model.py",
            str(place / "full"),
            str(place / "en-de-zh"),
            str(place / "data"),
            "--write",
            "2026-01-01",
        ]
        monkeypatch.setattr(sys, "argv", [*command, *flags])
        importlib.import_module("benchmarks.quality.bundled_model").main()
        return json.loads((tmp_path / "bundled_model_2026-01-01_cpu.json").read_text(encoding="utf-8"))

    return run


SOME = (
    "--parts",
    "size",
    "examples",
    "start",
    "scores",
    "--rounds",
    "1",
    "--sets",
    "newstest2014",
    "flores200-devtest *-zh",
)


@native_only
def test_one_command_measures_everything(measure: Any, place: Path, tmp_path: Path) -> None:
    found = measure(*SOME)
    directions = ["newstest2014 en-de", "newstest2014 de-en", "flores200-devtest en-zh", "flores200-devtest de-zh"]
    assert set(found["scores"]) == {
        f"{one}, {precision}, {search}"
        for one in directions
        for precision in ("int8", "float32")
        for search in ("beam 4", "greedy")
    }
    for one in found["scores"].values():
        tokenizer = "zh" if one["direction"].endswith("zh") else "13a"
        assert f"tok:{tokenizer}" in one["scores"][0]["signature"] and one["scores"][1]["name"] == "chrF2"
        assert one["engine"] == f"native {one['precision']}" and one["num_sentences"] == 2
    sizes = found["size"]["found"]
    assert sizes["files"]["model.safetensors"] == (place / "en-de-zh" / "model.safetensors").stat().st_size
    assert not any(name.startswith("native") for name in sizes["files"]) and sizes["zipped"] > 0
    assert {one["direction"] for one in found["examples"]["found"]} == {"en-de", "de-en", "en-zh", "zh-en"}
    assert found["start"]["found"]["first_seconds"] > 0
    for path in (tmp_path / "bundled_model_2026-01-01_cpu.json", tmp_path / "bundled_model_2026-01-01_cpu.md"):
        text = path.read_text(encoding="utf-8")
        assert str(place) not in text and str(tmp_path) not in text and str(ROOT) not in text


@native_only
def test_results_of_changed_text_are_dropped(measure: Any, place: Path, tmp_path: Path) -> None:
    flags = ("--parts", "scores", "--precisions", "int8", "--sets", "newstest2014 en-de")
    key, path = "newstest2014 en-de, int8, greedy", tmp_path / "bundled_model_2026-01-01_cpu.json"
    marked = measure(*flags)
    marked["scores"][key]["scores"][0]["value"] = 77.7
    path.write_text(json.dumps(marked), encoding="utf-8")
    assert measure(*flags)["scores"][key]["scores"][0]["value"] == 77.7
    assert measure(*flags, "--lines", "1")["scores"][key]["num_sentences"] == 1
    reference = place / "data" / "newstest" / "newstest2014.en-de.de"
    before = reference.read_text(encoding="utf-8")
    path.write_text(json.dumps(marked), encoding="utf-8")
    reference.write_text(before.replace("warm", "hot"), encoding="utf-8")
    try:
        assert measure(*flags)["scores"][key]["scores"][0]["value"] != 77.7
    finally:
        reference.write_text(before, encoding="utf-8")


@native_only
def test_results_of_same_model_from_other_machine_are_kept(measure: Any, tmp_path: Path) -> None:
    flags = ("--parts", "scores", "--sets", "newstest2014 en-de")
    there = measure(*flags, "--precisions", "float32")
    there["runs"][0]["began"] = there["runs"][0]["machine"] = "elsewhere"
    for one in there["scores"].values():
        one["run"] = "elsewhere"
    strange = "newstest2014 en-de, int8, greedy"
    there["scores"][strange] = {**there["scores"]["newstest2014 en-de, float32, greedy"], "precision": "int8"}
    (tmp_path / "there.json").write_text(json.dumps(there), encoding="utf-8")
    (tmp_path / "bundled_model_2026-01-01_cpu.json").unlink()
    both = measure(*flags, "--take", str(tmp_path / "there.json"))
    assert {key: one["run"] == "elsewhere" for key, one in both["scores"].items()} == {
        f"newstest2014 en-de, {precision}, {search}": precision == "float32"
        for precision in ("int8", "float32")
        for search in ("beam 4", "greedy")
    }
    assert [run["machine"] == "elsewhere" for run in both["runs"]] == [True, False]


def test_results_of_another_model_are_refused(place: Path) -> None:
    full = model_files.locate(place / "full")
    with pytest.raises(SystemExit, match="was not exported from the given float32 model"):
        importlib.import_module("benchmarks.quality.bundled_model").check_pair(place / "en-de-zh", "another mark")
    importlib.import_module("benchmarks.quality.bundled_model").check_pair(place / "en-de-zh", full.weights_checksum)


def test_unknown_test_set_is_refused(measure: Any) -> None:
    with pytest.raises(SystemExit, match="'newstest1914' is none of newstest2014 en-de"):
        measure("--parts", "scores", "--sets", "newstest1914")


@native_only
def test_model_card_is_generated_from_results(
    measure: Any, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = measure(*SOME)
    monkeypatch.setattr(sys, "argv", ["bundled_model_page.py"])
    page = runpy.run_path(str(ROOT / ".ci" / "bundled_model_page.py"))
    scope = page["filled"].__globals__
    written = {"en": tmp_path / "bundled-model.md", "zh": tmp_path / "bundled-model.zh-CN.md"}
    for lang, path in written.items():
        path.write_bytes(scope["PAGES"][lang].read_bytes())
    shutil.copytree(scope["PAIR"], tmp_path / "en-zh")
    scope.update(
        PAIR=tmp_path / "en-zh",
        PAIR_PAGES={},
        PAGES=written,
        BUNDLED=place / "en-de-zh",
        newest_figures=lambda _: (Path("bundled_model_2026-01-01_cpu.json"), results),
    )
    page["main"]()
    first = {path: path.read_bytes() for path in (*written.values(), place / "en-de-zh" / "README.md")}
    page["main"]()
    assert {path: path.read_bytes() for path in first} == first, "a second run changes the pages"
    english, chinese, card = (content.decode() for content in first.values())
    value = f"{results['scores']['newstest2014 en-de, int8, beam 4']['scores'][1]['value']:.1f}"
    for text in (english, chinese):
        assert "tok:zh" in text and "| 1,234 |" in text and f"| {value} |" in text
        assert all(one["source"] in text for one in results["examples"]["found"])
    assert card.startswith("---\nlanguage:\n- en") and "license: CC-BY-4.0" in card
    assert "Godot community" in card and "# 内置模型" in card and "<!--" not in card
    assert not re.findall(r"\]\((?!https:)", card), "a link that does not resolve from there"
    files = model_files.locate(place / "en-de-zh")
    files.check(files.entries)


# ---- the data, the package -------------------------------------------------------------------------------------------


def test_checksum_list_names_every_recipe_file() -> None:
    sets = importlib.import_module("benchmarks.quality.bundled_model_sets")
    listed = list(sets.stated())
    assert [name for _, name in listed] == sets.named_files()
    assert all(re.fullmatch(r"[0-9a-f]{64}", checksum) for checksum, _ in listed)


def test_checksum_list_covers_all_recipes() -> None:
    named = importlib.import_module("benchmarks.quality.bundled_model_sets").named_files()
    assert len(named) == len(set(named))
    for recipe in (ROOT / "recipes/bundled-model").glob("*[1-4].yaml"):
        own = re.findall(r"(?:source|target): ([\w./-]+)", recipe.read_text(encoding="utf-8"))
        assert set(own) <= set(named), recipe.name
        assert own or recipe.name == "teacher1.yaml", "it trains on the files of stage1.yaml"


def test_recipes_are_listed_in_training_order() -> None:
    command = ["bash", "recipes/bundled-model/run.sh", "--dry-run", "stage4"]
    commands = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    trained = re.findall(r"^heedful train recipes/bundled-model/([\w-]+)\.yaml", commands, flags=re.MULTILINE)
    trained.remove("teacher1")
    assert [
        recipe.stem for recipe in importlib.import_module("benchmarks.quality.bundled_model_sets").RECIPES
    ] == trained


@pytest.fixture
def list_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set up a corpus, two generated files and their checksum list; return the module's `main`."""
    sets = importlib.import_module("benchmarks.quality.bundled_model_sets")
    names = ["data/a.en", "distilled/a.de", "text/b.en"]
    monkeypatch.setattr(sets, "CHECKSUMS", tmp_path / "list")
    monkeypatch.setattr(sets, "named_files", lambda: names)
    for name in names:
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(f"{name}\n", encoding="utf-8")

    def run(*flags: str) -> None:
        monkeypatch.setattr(sys, "argv", ["bundled_model_sets.py", str(tmp_path / "data"), *flags])
        sets.main()

    return run


def test_derived_text_may_be_missing_but_not_changed(
    list_of: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    list_of("--write")
    (tmp_path / "text" / "b.en").unlink()
    list_of()
    assert capsys.readouterr().out.splitlines() == [
        "data/a.en: the same",
        "distilled/a.de: the same",
        "text/b.en: missing; recipes/bundled-model/run.sh generates it",
    ]
    (tmp_path / "distilled" / "a.de").write_text("another\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="1 files differ from those of the recipe"):
        list_of()
    (tmp_path / "data" / "a.en").unlink()
    with pytest.raises(SystemExit, match=r"data/a\.en: no such file"):
        list_of()


def test_rewritten_list_keeps_checksums_of_missing_text(list_of: Any, tmp_path: Path) -> None:
    made, listed = tmp_path / "text" / "b.en", tmp_path / "list"
    list_of("--write")
    before = listed.read_text("utf-8").splitlines()
    made.unlink()
    (tmp_path / "distilled" / "a.de").write_text("another\n", encoding="utf-8")
    list_of("--write")
    after = listed.read_text("utf-8").splitlines()
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False, True]
    made.write_text("made again\n", encoding="utf-8")
    list_of("--write")
    assert listed.read_text("utf-8").splitlines()[2] != before[2], "existing files are checked"


def test_unlisted_file_must_exist(list_of: Any, tmp_path: Path) -> None:
    (tmp_path / "text" / "b.en").unlink()
    with pytest.raises(SystemExit, match=r"text/b\.en: no such file"):
        list_of("--write")
    assert not (tmp_path / "list").exists()


def test_missing_corpus_does_not_change_list(list_of: Any, tmp_path: Path) -> None:
    list_of("--write")
    before = (tmp_path / "list").read_text("utf-8")
    (tmp_path / "data" / "a.en").unlink()
    with pytest.raises(SystemExit, match=r"data/a\.en: no such file"):
        list_of("--write")
    assert (tmp_path / "list").read_text("utf-8") == before


def test_checksums_of_plain_and_compressed_corpora(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = importlib.import_module("benchmarks.quality.bundled_model_sets")
    names = ["data/newstest/flores200-devtest.zh", "data/newstest/flores200-devtest.en"]
    monkeypatch.setattr(sets, "CHECKSUMS", tmp_path / "list")
    monkeypatch.setattr(sets, "named_files", lambda: names)
    for flags in (["--write"], []):
        monkeypatch.setattr(sys, "argv", ["bundled_model_sets.py", str(place / "data"), *flags])
        sets.main()
    assert capsys.readouterr().out.count("the same") == 2
    listed = (tmp_path / "list").read_text(encoding="utf-8")
    (tmp_path / "list").write_text(listed.replace(listed[:8], "00000000"), encoding="utf-8")
    with pytest.raises(SystemExit, match="1 files differ from those of the recipe"):
        sets.main()
    assert f"{names[0]}: DIFFERENT" in capsys.readouterr().out


def test_count_test_sentences_in_training_data(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sets, data = importlib.import_module("benchmarks.quality.bundled_model_sets"), tmp_path / "data"
    english, german = ("newstest/newstest2014.en-de.en", "newstest/newstest2014.en-de.de")
    for folder in (data, tmp_path / "text"):
        folder.mkdir()
    (data / "train.en").write_text("the sun is warm\nsomething else\nthe sun is warm\n", encoding="utf-8")
    (data / "train.de").write_text("es ist warm\netwas anderes\nSonne\n", encoding="utf-8")
    (data / "newstest").symlink_to(place / "data" / "newstest")
    monkeypatch.setattr(sets, "SETS", [one for one in sets.SETS if one.key == "newstest2014 en-de"])
    names = ["data/train.en", "data/train.de", "text/made.de", "distilled/made.en"]
    monkeypatch.setattr(sets, "named_files", lambda parts: names)
    assert sets.seen_in_training(data) == {english: {"lines": 2, "seen": 1}, german: {"lines": 2, "seen": 0}}
    (tmp_path / "text" / "made.de").write_text("ein Vogel singt\n", encoding="utf-8")
    assert sets.seen_in_training(data) == {english: {"lines": 2, "seen": 1}, german: {"lines": 2, "seen": 1}}
    assert capsys.readouterr().out == ""
    (data / "train.de").unlink()
    with pytest.raises(SystemExit, match=r"train\.de: no such file"):
        sets.seen_in_training(data)


def test_package_contains_only_model_files() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["heedful"]

    def is_taken(name: str) -> bool:
        return any(fnmatch.fnmatchcase(f"bundled/en-de-zh/{name}", pattern) for pattern in patterns)

    model = (*model_files.KNOWN, model_files.CHECKSUMS, "model-00001-of-00002.safetensors")
    assert all(is_taken(name) for name in model if name != model_files.SHORTLIST)
    assert not any(map(is_taken, (model_files.SHORTLIST, "native-int8.bin", "native-float32.bin")))


def test_bundled_model_has_no_shortlist() -> None:
    assert not list((ROOT / "heedful" / "bundled").glob(f"*/{model_files.SHORTLIST}"))
