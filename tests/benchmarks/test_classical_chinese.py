"""The benchmark from classical to modern Chinese, and the pages generated from its results."""

from __future__ import annotations

import importlib
import json
import lzma
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from heedful.config import Config, DataConfig
from heedful.evaluation.score import score
from heedful.native import available
from tests.untrained_models import save_untrained

ROOT = Path(__file__).parents[2]
LINES = {
    "lzh": ["未几，复围寿州，七日走。", "公亟应，必得其地。", "旱，蝗。", "丁内艰，服除，知小溪县，久之乃还其乡里。"],
    "zh": ["不久又包围了寿州，七天后逃走。", "您赶快响应，一定能得到他的地盘。", "旱灾，蝗灾。", "服丧期满后为知县。"],
}
DETAILS = {
    "num_parameters": 1234,
    "data": {"num_pairs": 200_000},
    "training": {"steps": 4321, "epochs": 12.5, "tokens": 98_700_000, "valid_loss": 2.345, "device": "a GPU"},
}
native_only = pytest.mark.skipif(not available(), reason=available().reason)
Results = dict[str, Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model and a corpus of four lines."""
    folder = tmp_path_factory.mktemp("classical")
    config = Config(name="Classical to modern Chinese", data=DataConfig(source_language="lzh", target_language="zh"))
    lines = [line for text in LINES.values() for line in text] * 20
    save_untrained(folder / "model", lines, config, vocab_size=360, details=DETAILS)
    for language, text in LINES.items():
        for part in ("train", "valid", "test"):
            path = folder / "data" / "classical-modern" / f"{part}.{language}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(text) + "\n", encoding="utf-8")
    plain = folder / "data" / "classical-modern" / "train.lzh"
    Path(f"{plain}.xz").write_bytes(lzma.compress(plain.read_bytes() + "客不亦乐乎。".encode()))
    plain.unlink()
    return folder


@pytest.fixture
def measure(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the benchmark with the given flags and return its results."""

    def run(*flags: str) -> Results:
        monkeypatch.setenv("OUT", str(tmp_path))
        command = ["classical.py", str(place / "model"), str(place / "data"), "--write", "2026-01-01", "--rounds", "1"]
        monkeypatch.setattr(sys, "argv", [*command, *flags])
        importlib.import_module("benchmarks.quality.classical_chinese").main()
        return json.loads((tmp_path / "classical_2026-01-01_cpu.json").read_text(encoding="utf-8"))

    return run


@native_only
def test_one_command_measures_everything(measure: Any, place: Path, tmp_path: Path) -> None:
    found = measure()
    assert set(found["scores"]) == {
        f"{name} lzh-zh, {precision}, {search}"
        for name in ("test", "valid")
        for precision in ("int8", "float32")
        for search in ("beam 4", "greedy")
    }
    for one in found["scores"].values():
        assert "tok:zh" in one["scores"][0]["signature"] and one["scores"][1]["name"] == "chrF2"
        assert one["engine"] == f"native {one['precision']}" and one["num_sentences"] == 4
    copied = score(LINES["lzh"], LINES["zh"], metrics=("bleu",), target_language="zh")[0]
    assert found["copied"]["found"]["test"][0] == copied.to_dict()
    groups = [(one["at_most"], one["num_sentences"]) for one in found["lengths"]["found"]]
    assert groups == [(10, 2), (20, 2)], "empty groups are omitted"
    assert [one["precision"] for one in found["speed"]["found"]] == ["int8", "int8", "float32", "float32"]
    assert found["model"]["training"]["valid_loss"] == 2.345 and found["model"]["num_pairs"] == 200_000
    for path in tmp_path.glob("classical_2026-01-01_cpu.*"):
        text = path.read_text(encoding="utf-8")
        assert str(place) not in text and str(tmp_path) not in text and str(ROOT) not in text


@native_only
def test_results_of_changed_text_are_dropped(measure: Any, place: Path, tmp_path: Path) -> None:
    path = tmp_path / "classical_2026-01-01_cpu.json"
    marked = measure("--parts", "copied", "lengths")
    value = marked["copied"]["found"]["test"][0]["value"]
    marked["copied"]["found"]["test"][0]["value"] = marked["lengths"]["found"][0]["scores"][0]["value"] = 77.7
    path.write_text(json.dumps(marked), encoding="utf-8")
    again = measure("--parts", "copied", "lengths")
    assert (
        again["copied"]["found"] == marked["copied"]["found"]
        and again["lengths"]["found"] == marked["lengths"]["found"]
    )
    assert measure("--parts", "lengths", "--lines", "2")["lengths"]["found"] != marked["lengths"]["found"]
    path.write_text(json.dumps(marked), encoding="utf-8")
    reference = place / "data" / "classical-modern" / "test.zh"
    before = reference.read_text(encoding="utf-8")
    reference.write_text(before.replace("蝗灾", "虫灾"), encoding="utf-8")
    try:
        assert measure("--parts", "copied")["copied"]["found"]["test"][0]["value"] not in (77.7, value)
    finally:
        reference.write_text(before, encoding="utf-8")


# ---- the samples -----------------------------------------------------------------------------------------------------


@native_only
def test_selection_of_twenty_samples(measure: Any) -> None:
    found = measure("--parts", "samples")["samples"]["found"]
    assert [one["line"] for one in found["lines"]] == [1, 2, 3, 4], "all lines if there are fewer than ten"
    assert [one["reference"] for one in found["lines"]] == LINES["zh"]
    assert len(found["famous"]) == 10 and len({one["work"][1] for one in found["famous"]}) == 10
    assert all(one["translation"] is not None and one["author"][0] for one in found["famous"])
    assert found["clauses"] == {"不亦乐乎": 1}


def test_rule_selects_middle_of_each_tenth() -> None:
    classical = importlib.import_module("benchmarks.quality.classical_chinese")
    assert classical.middles(2588) == [129, 388, 647, 905, 1164, 1423, 1682, 1941, 2199, 2458]
    assert classical.middles(10) == list(range(10))


def test_famous_sentence_in_corpus_is_refused(place: Path, tmp_path: Path) -> None:
    """Editions with other punctuation are detected too."""
    folder = tmp_path / "classical-modern"
    folder.mkdir()
    for part in ("train", "valid", "test"):
        (folder / f"{part}.lzh").write_text(
            "子曰：师者所以传道、受业、解惑也！人非生而知之者孰能无惑。\n", encoding="utf-8"
        )
    with pytest.raises(SystemExit, match=r"师者，所以传道受业解惑也.* is in the corpus"):
        importlib.import_module("benchmarks.quality.classical_chinese").known_clauses(tmp_path)


# ---- the pages -------------------------------------------------------------------------------------------------------


def page_script(monkeypatch: pytest.MonkeyPatch, folder: Path, figures: tuple[Path, Results] | None) -> dict[str, Any]:
    """The page generator, applied to copies of the pages with these results."""
    monkeypatch.setattr(sys, "argv", ["classical_page.py"])
    page = runpy.run_path(str(ROOT / ".ci" / "classical_page.py"))
    scope = page["filled"].__globals__
    written = {lang: folder / path.name for lang, path in scope["PAGES"].items()}
    for lang, path in written.items():
        path.write_bytes(scope["PAGES"][lang].read_bytes())
    scope.update(PAGES=written, newest_figures=lambda _: figures)
    return page


@native_only
def test_pages_are_generated_from_results(measure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = measure()
    page = page_script(monkeypatch, tmp_path, (Path("classical_2026-01-01_cpu.json"), results))
    page["main"]()
    first = [path.read_bytes() for path in page["filled"].__globals__["PAGES"].values()]
    page["main"]()
    assert [path.read_bytes() for path in page["filled"].__globals__["PAGES"].values()] == first
    english, chinese = (text.decode() for text in first)
    bleu = results["scores"]["test lzh-zh, int8, beam 4"]["scores"][0]
    within = f"{bleu['value']:.1f} ({bleu['interval']['low']:.1f}–{bleu['interval']['high']:.1f})"
    for text in (english, chinese):
        assert within in text and "| 1,234 |" in text and "4,321" in text and "| 2.345 |" in text
        assert all(one["source"] in text for one in results["samples"]["found"]["famous"])
        assert not re.findall(r"made: \w+ -->\n<!-- end", text), "an empty section"
    assert "| test | 4 | source, copied |" in english and "| 测试集 | 4 | 原文照抄 |" in chinese
    assert "不亦乐乎 (1)" in english and "“不亦乐乎”（1 次）" in chinese


def test_pages_without_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_script(monkeypatch, tmp_path, None)
    for lang in ("en", "zh"):
        made = dict(re.findall(r"<!-- made: (\w+) -->\n(.*?)<!-- end -->", page["filled"](lang), flags=re.DOTALL))
        assert made.pop("use").startswith("```bash\nheedful translate -m classical-zh ")
        assert set(made) == {"facts", "scores", "lengths", "speed", "lines", "famous"}
        assert not any(made.values())
