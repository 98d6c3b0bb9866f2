"""The page on study notes: every item has an answer, every name exists, and the Python code runs."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

from heedful.cli import make_app
from heedful.cli.overrides import Verb
from heedful.paper.figures.registry import WORDS

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("study-notes.md", "study-notes.zh-CN.md")
NUM_ITEMS, NUM_MISTAKES = 45, 18
NAME = re.compile(r"\[`(?P<module>heedful[\w.]*):(?P<name>[\w.]+)`\]\((?P<link>[^)]+)\)")
FILE = re.compile(r"\[`(?P<path>(?:tests|examples|heedful)/[\w/.-]+)`\]\((?P<link>[^)]+)\)")
COMMAND = re.compile(r"`(heedful [^`]+)`")

both_pages = pytest.mark.parametrize("page", PAGES)


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def rows_of(page: str) -> list[list[str]]:
    """The numbered rows: number, item, code, commands, and where to look."""
    lines = [line for line in text_of(page).splitlines() if re.match(r"\| \d+ \| ", line)]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert all(len(row) == 5 for row in rows)
    return rows


def find_attribute(module: str, name: str) -> Any:
    """An attribute of a module, or of a class in it; fields of dataclasses without defaults count."""
    thing: Any = import_module(module)
    for part in name.split("."):
        if not hasattr(thing, part) and part in getattr(thing, "__dataclass_fields__", {}):
            return thing.__dataclass_fields__[part]
        assert hasattr(thing, part), f"{module}:{name} does not exist"
        thing = getattr(thing, part)
    return thing


def parse(command: str) -> Any:
    """Print the help of a `heedful` command and parse its options and values; nothing is run."""
    group: Any = typer.main.get_command(make_app())
    verb, *words = shlex.split(command)[1:]
    while verb in group.commands and hasattr(group.commands[verb], "commands"):
        group = group.commands[verb]
        verb, *words = words
    assert verb in group.commands, f"{command}: no verb {verb}"
    parser = group.commands[verb]
    assert isinstance(parser, Verb)
    context = parser.make_context(verb, words, resilient_parsing=not words)  # a verb alone may lack what it requires
    parser.get_help(context)
    return context


# ---- the table -------------------------------------------------------------------------------------------------------


@both_pages
def test_every_item_has_an_answer(page: str) -> None:
    rows = rows_of(page)
    assert [int(row[0]) for row in rows] == list(range(1, NUM_ITEMS + 1))
    assert len({row[1] for row in rows}) == NUM_ITEMS
    for row in rows:
        assert row[1] and row[4], row
        assert NAME.search(row[2]) or FILE.search(row[2]), row


def test_pages_name_the_same_code_and_commands() -> None:
    english, chinese = map(rows_of, PAGES)
    assert [row[2:4] for row in english] == [row[2:4] for row in chinese]


@both_pages
def test_named_code_exists(page: str) -> None:
    for _, item, code, _, _ in rows_of(page):
        entries = code.split("<br>")
        assert all(NAME.fullmatch(entry) or FILE.fullmatch(entry) for entry in entries), item
        for entry in NAME.finditer(code):
            find_attribute(entry["module"], entry["name"])
            assert (DOCS / entry["link"]).resolve() == Path(str(import_module(entry["module"]).__file__)).resolve()
        for entry in FILE.finditer(code):
            assert (DOCS / entry["link"]).resolve() == DOCS.parent / entry["path"]
            assert (DOCS / entry["link"]).is_file(), entry["path"]


@pytest.mark.parametrize("command", sorted({c for row in rows_of(PAGES[0]) for c in COMMAND.findall(row[3])}))
def test_commands_of_study_notes_parse(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    context = parse(command)
    assert "Usage: " in capsys.readouterr().out
    if command.startswith("heedful paper figures"):
        assert context.params["only"], "name the figure"
        assert set(context.params["only"]) <= set(WORDS)


@both_pages
def test_command_column_holds_commands_only(page: str) -> None:
    for row in rows_of(page):
        assert not re.sub(r"<br>| ", "", COMMAND.sub("", row[3])), row


@both_pages
def test_figures_exist_and_are_drawn_by_a_command(page: str) -> None:
    """Names in the last column that are no links are figures; a command of the row draws them."""
    for _, item, _, commands, seen in rows_of(page):
        for name in re.findall(r"`(\w+)`", re.sub(r"\[[^\]]*\]\([^)]*\)", "", seen)):
            assert name in WORDS, f"{item}: no figure {name}"
            assert f"--only {name}" in commands, f"{item}: no command draws {name}"


# ---- questions and mistakes ------------------------------------------------------------------------------------------


def python_blocks() -> list[tuple[str, str]]:
    """The Python of the English page by heading; the Chinese page has the same (tests/test_docs.py)."""
    found = []
    for section in re.split(r"^### ", text_of(PAGES[0]), flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        found += [(heading, block) for block in re.findall(r"^```python\n(.*?)^```", body, re.DOTALL | re.MULTILINE)]
    return found


@pytest.mark.parametrize(("heading", "code"), python_blocks(), ids=[heading for heading, _ in python_blocks()])
def test_python_of_mistakes_runs(heading: str, code: str) -> None:
    assert re.search(r"^\s*assert ", code, re.MULTILINE), f"{heading}: nothing is checked"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        exec(compile(code, heading, "exec"), {"__name__": "study_notes"})


def test_every_mistake_has_a_check() -> None:
    numbered = re.findall(r"^### (\d+\. .*)$", text_of(PAGES[0]), re.MULTILINE)
    assert len(numbered) == NUM_MISTAKES
    assert [heading for heading, _ in python_blocks() if heading[0].isdigit()] == numbered
