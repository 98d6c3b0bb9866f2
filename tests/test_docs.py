"""Links, paths, names and commands in the documentation work, translated pages agree, and the examples run."""

from __future__ import annotations

import ast
import functools
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

from heedful.cli import make_app
from heedful.cli.overrides import Verb
from heedful.model import attention
from heedful.native import available

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
TRANSLATED = [
    (page.relative_to(ROOT).as_posix().replace(".zh-CN", ""), page.relative_to(ROOT).as_posix())
    for page in PAGES
    if page.name.endswith(".zh-CN.md")
]
GUIDES = [ROOT / name for pair in TRANSLATED for name in pair]


def name_of(path: object) -> str:
    return path.relative_to(ROOT).as_posix() if isinstance(path, Path) else str(path)


every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)
both_languages = pytest.mark.parametrize(("english", "chinese"), TRANSLATED)


@functools.cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks_of(page: Path) -> list[tuple[str, str]]:
    """All code blocks of a page: language and content."""
    return re.findall(r"^```(\w*)\n(.*?)^```", text_of(page), flags=re.DOTALL | re.MULTILINE)


def prose_of(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)


def hand_written(text: str) -> str:
    """Text without the sections that a script fills in, which quote the languages that a model translates."""
    return re.sub(r"^<!-- made: \w+ -->\n.*?^<!-- end -->", "", text, flags=re.DOTALL | re.MULTILINE)


def links_of(page: Path) -> list[tuple[str, str]]:
    """All links of a page to a file of this repository: text and target."""
    links = re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", prose_of(page))
    return [(text, target) for text, target in links if "://" not in target]


# ---- two languages, one content --------------------------------------------------------------------------------------


def test_translated_pages_are_found() -> None:
    assert len(TRANSLATED) >= 25


@both_languages
def test_translated_pages_show_same_code(english: str, chinese: str) -> None:
    assert blocks_of(ROOT / english) == blocks_of(ROOT / chinese)


@both_languages
def test_translated_pages_have_same_structure(english: str, chinese: str) -> None:
    for pattern in (r"^#+ ", r"^\| ", r"^- ", r"^\d+\. "):
        counts = [re.findall(pattern, prose_of(ROOT / page), flags=re.MULTILINE) for page in (english, chinese)]
        assert counts[0] == counts[1], pattern


@both_languages
def test_translated_pages_have_same_links(english: str, chinese: str) -> None:
    """Links go to the same pages and headings; headings are compared by number."""

    def neutral(page: Path, target: str) -> str:
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        heading = f"#{anchors_of(there).index(anchor)}" if anchor else ""
        return path.replace(".zh-CN", "") + heading

    targets = [
        sorted({neutral(ROOT / page, target) for _, target in links_of(ROOT / page)}) for page in (english, chinese)
    ]
    assert targets[0] == targets[1]


@both_languages
def test_chinese_pages_link_to_chinese_pages(english: str, chinese: str) -> None:
    """If a Chinese page exists; other links say that the page is in English, except to code and results."""
    page = ROOT / chinese
    for text, target, note in re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)(（英文）)?", prose_of(page)):
        path = target.partition("#")[0]
        if not path.endswith(".md") or "://" in path or text == "English":
            continue
        twin = (page.parent / path).with_suffix(".zh-CN.md")
        assert not twin.exists(), f"[{text}]({target}) exists in Chinese"
        assert not (note and path.endswith(".zh-CN.md")), f"[{text}]({target}) is not in English"


@both_languages
def test_translated_pages_have_same_identifiers(english: str, chinese: str) -> None:
    """Identifiers are not translated; numbers in prose may be written differently."""
    names = [set(re.findall(r"`([\w./-]+)`", prose_of(ROOT / page))) for page in (english, chinese)]
    assert names[0] == names[1]


@both_languages
def test_chinese_pages_are_in_chinese(english: str, chinese: str) -> None:
    prose = re.sub(r"`[^`]*`|\([^)]*\)|<[^>]*>", "", hand_written(prose_of(ROOT / chinese)))
    letters = re.findall(r"[A-Za-z]", prose)
    characters = re.findall(r"[\u4e00-\u9fff]", prose)
    assert len(characters) > len(letters)
    examples = (
        r"中文|代码导览|使用指南|文档翻译|`[^`\n]*`|(?<!\*)\*[^*\n]+\*(?!\*)"  # the names of languages, and quoted text
    )
    if english != "docs/glossary.md":  # which has a column for the Chinese terms
        assert not re.findall(r"[\u4e00-\u9fff]", re.sub(examples, "", hand_written(text_of(ROOT / english))))


# ---- links, paths and names ------------------------------------------------------------------------------------------


def anchors_of(page: Path) -> list[str]:
    """The anchors of a page's headings in rendered Markdown, in order."""
    headings = re.findall(r"^#+ (.*)$", prose_of(page), flags=re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings]


@every_page
def test_links_resolve(page: Path) -> None:
    for text, target in links_of(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"[{text}]({target})"
        assert there.is_relative_to(ROOT), f"[{text}]({target})"
        assert not anchor or anchor in anchors_of(there), f"[{text}]({target})"


def test_paths_in_backticks_exist() -> None:
    folders = "heedful|tests|docs|configs|examples|benchmarks|recipes|\\.ci"
    paths = {(page, path) for page in GUIDES for path in re.findall(rf"`((?:{folders})/[\w./-]*)`", prose_of(page))}
    assert len(paths) > 50
    for page, path in paths:
        assert (ROOT / path).exists(), f"{path} in {name_of(page)}"


def names_defined_in(path: Path) -> set[str]:
    """Functions, classes, methods and variables of a Python file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


@every_page
def test_linked_names_are_defined_in_linked_file(page: Path) -> None:
    for text, target in links_of(page):
        if not target.endswith(".py") or not (name := re.fullmatch(r"`([\w.]+)`", text)):
            continue
        if not name[1].endswith(".py") and name[1] != Path(target).stem:
            assert set(name[1].split(".")) <= names_defined_in(page.parent / target), f"{text} in {target}"


def test_tour_lists_six_files() -> None:
    rows = re.findall(r"^\| \d \| \[`(heedful/[\w/]+\.py)`\]", text_of(ROOT / "docs/tour.md"), flags=re.MULTILINE)
    assert len(rows) == len(set(rows)) == 6


def test_readmes_have_at_most_150_lines() -> None:
    for name in ("README.md", "README.zh-CN.md"):
        assert len(text_of(ROOT / name).splitlines()) <= 150, name


def test_benchmark_rows_cite_result_files() -> None:
    for name in ("README.md", "docs/benchmarks.md"):
        rows = [line for line in text_of(ROOT / name).splitlines() if line.startswith("| ") and line.endswith(") |")]
        results = [row for row in rows if "benchmarks/results/" in row]
        assert len(results) >= 6, name
        assert results == rows, name


def test_charts_match_result_files() -> None:
    run(str(ROOT / "docs" / "images" / "speed_chart.py"), "--check", folder=ROOT)


@pytest.mark.skipif(not available(), reason="the native engine is not compiled")
def test_recorded_terminals_match_program() -> None:
    run(str(ROOT / "docs" / "images" / "record_terminal.py"), "--check", folder=ROOT)


def test_configurations_and_examples_are_documented() -> None:
    shown = "".join(map(text_of, PAGES)) + "".join(text_of(path) for path in (ROOT / "configs").glob("*.yaml"))
    for path in [*(ROOT / "configs").glob("*.yaml"), *(ROOT / "examples").glob("*.py")]:
        assert path.name in shown, path.name


# ---- commands and code -----------------------------------------------------------------------------------------------


def commands_in(text: str) -> list[list[str]]:
    """The words of every `heedful …` command in shell text: continued lines joined, chains and pipes split."""
    joined = re.sub(r"(\\|&&|\|)\n\s*", r"\1 ", text).replace("\\ ", "")
    commands = []
    for line in joined.splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        start = 0
        for end in [i for i, word in enumerate(words) if word in ("&&", "||", "|", ";", ">")] + [len(words)]:
            if words[start:end][:1] == ["heedful"]:
                commands.append(words[start + 1 : end])
            start = end + 1
    return commands


def documented_commands() -> list[list[str]]:
    """Commands in shell blocks of pages, in comments of configurations, and complete ones in backticks."""
    found = []
    for page in PAGES:
        for language, block in blocks_of(page):
            found += commands_in(block) if language in ("bash", "sh") else []
        for code in re.findall(r"`(heedful [^`\n]+)`", prose_of(page)):
            found += commands_in(code) if "…" not in code and "--help" not in code else []
    for path in (ROOT / "configs").glob("*.yaml"):
        found += commands_in(
            "\n".join(re.findall(r"^#\s+(heedful .*?)(?:\s+\(.*)?$", text_of(path), flags=re.MULTILINE))
        )
    return sorted(map(list, set(map(tuple, found))))


def test_documented_commands_are_found() -> None:
    commands = documented_commands()
    assert len(commands) >= 8
    assert {command[0] for command in commands} >= {"train", "translate", "score", "evaluate", "prepare", "info"}


@pytest.mark.parametrize("command", documented_commands(), ids=" ".join)
def test_documented_commands_parse(command: list[str]) -> None:
    """Verb, flags and their values are parsed by the real program; nothing is run."""
    verb, *arguments = command
    group = typer.main.get_command(make_app())
    assert verb in group.commands, f"heedful {verb}"  # type: ignore[attr-defined]
    parser = group.commands[verb]  # type: ignore[attr-defined]
    if hasattr(parser, "commands"):  # a group of verbs, such as `paper table1`
        if not arguments:
            return
        verb, *arguments = arguments
        assert verb in parser.commands, f"heedful {command[0]} {verb}"
        parser = parser.commands[verb]
    assert isinstance(parser, Verb)
    if arguments:  # a verb alone, as in a table, needs no more
        parser.make_context(verb, list(arguments))


@every_page
def test_python_blocks_compile(page: Path) -> None:
    for language, block in blocks_of(page):
        if language == "python":
            compile(block, str(page), "exec")


def run(*command: str, folder: Path) -> str:
    """Run a Python command in a folder with the package of this checkout."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_readme_first_commands_match_ci(tmp_path: Path) -> None:
    """Shell text in the same blocks for both languages: install and translate; train and translate."""
    for readme in ("README.md", "README.zh-CN.md"):
        first = run(str(ROOT / ".ci" / "first_commands.py"), str(ROOT / readme), folder=tmp_path)
        assert first.startswith("pip install -c constraints.txt . &&")
        assert [command[0] for command in commands_in(first)] == ["translate", "train", "translate"]


@pytest.mark.slow
def test_readme_python_runs(tmp_path: Path) -> None:
    """Verbatim, on the first lines of the sample corpus; only a budget is added."""
    for side in ("en", "de"):
        lines = (ROOT / "examples" / "data" / f"tatoeba.{side}").read_text(encoding="utf-8").splitlines(keepends=True)
        (tmp_path / f"train.{side}").write_text("".join(lines[:300]), encoding="utf-8")
    [code] = [block for language, block in blocks_of(ROOT / "README.md") if language == "python"]
    assert '"output": "model"' in code
    (tmp_path / "readme.py").write_text(
        code.replace('"output": "model"', '"output": "model", "training": {"steps": 2}'), encoding="utf-8"
    )
    printed = run("readme.py", folder=tmp_path)
    assert len(printed.splitlines()) == 2
    assert (tmp_path / "model" / "model.safetensors").exists()


# ---- examples --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the `runs/` of the examples."""
    return tmp_path_factory.mktemp("examples")


def run_example(name: str, folder: Path) -> str:
    return run(str(ROOT / "examples" / name), folder=folder)


@pytest.fixture(scope="module")
def reversed_digits(workshop: Path) -> str:
    return run_example("01_reverse_digits.py", workshop)


@pytest.mark.slow
def test_example_01_reverses_digits(reversed_digits: str) -> None:
    right, rows = map(int, re.findall(r"(\d+) of (\d+) rows right", reversed_digits)[0])
    assert right >= 0.95 * rows


@pytest.mark.slow
def test_example_02_learns_dates(workshop: Path) -> None:
    printed = run_example("02_own_model.py", workshop)
    bleu = float(re.findall(r"BLEU = ([\d.]+)", printed)[0])
    assert bleu > 90
    assert "1989-07-14" in printed
    assert (workshop / "runs" / "dates" / "model" / "README.md").exists()


@pytest.mark.slow
def test_example_03_shows_reversed_attention(reversed_digits: str, workshop: Path) -> None:
    printed = run_example("03_attention_two_ways.py", workshop)
    assert "9 5 1 4 1 3" in printed
    weights = [list(map(float, row)) for row in (re.findall(r"\b[01]\.\d\d\b", line) for line in printed.splitlines())]
    matrix = [row for row in weights if len(row) == 6]
    assert len(matrix) == 6
    mirrored = sum(row[5 - index] for index, row in enumerate(matrix))
    straight = sum(row[index] for index, row in enumerate(matrix))
    assert mirrored > straight


@pytest.mark.slow
def test_example_03_runs_both_ways(
    reversed_digits: str, workshop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The compared logits come from the fused kernel, then from the explicit equation, in each attention."""
    calls: list[str] = []

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*inputs: Any, **named: Any) -> Any:
            calls.append(name)
            return function(*inputs, **named)

        return counted

    kernel = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counting("fused kernel", kernel))
    explicit = counting("explicit", attention.attend_explicit)
    monkeypatch.setattr(attention, "attend_explicit", explicit)  # called if the fused kernel cannot be used
    monkeypatch.setitem(attention.ATTENTION, "explicit", explicit)
    monkeypatch.chdir(workshop)
    runpy.run_path(str(ROOT / "examples" / "03_attention_two_ways.py"))
    assert "largest difference" in capsys.readouterr().out
    assert calls[:6] == ["fused kernel"] * 3 + ["explicit"] * 3  # encoder, decoder, cross-attention; one layer each


def test_example_00_uses_bundled_model(workshop: Path) -> None:
    printed = run_example("00_translate.py", workshop)
    assert re.search(r"Where( is|'s) the station\?  \(de", printed) and "(zh, " in printed
    assert re.search(r"^ *-\d\.\d+  Guten Morgen", printed, flags=re.MULTILINE)


def test_example_04_compares_systems(workshop: Path) -> None:
    printed = run_example("04_score_two_systems.py", workshop)
    assert printed.count("version:") == 6  # every score is printed with its signature
    assert re.search(r"beam .*[+-]\d", printed)


def test_every_example_has_a_test() -> None:
    own = Path(__file__).read_text(encoding="utf-8")
    for path in (ROOT / "examples").glob("*.py"):
        assert f'"{path.name}"' in own, path.name
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 70, path.name
