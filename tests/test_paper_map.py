"""The paper-to-code map: every name exists, every link leads to the file of its name, every section is listed."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

MAP = Path(__file__).parents[1] / "docs" / "paper-map.md"
ENTRY = re.compile(r"\[`(?P<module>heedful[\w.]*):(?P<name>[\w.]+)`\]\((?P<link>[^)]+)\)")
TEXT = MAP.read_text(encoding="utf-8")
ENTRIES = [(found["module"], found["name"], found["link"]) for found in ENTRY.finditer(TEXT)]
LINES = [
    line for line in TEXT.splitlines() if line.startswith("| ") and "|---" not in line and "in the code" not in line
]

SECTIONS = [
    *("3.1", "3.2.1", "3.2.2", "3.2.3", "3.3", "3.4", "3.5", "5.1", "5.2", "5.3", "5.4", "6.1"),
    *("Equation 1", "Equation 2", "Equation 3", "Figure 1", "Figure 2"),
    *("Table 3 (A)", "Table 3 (B)", "Table 3 (C)", "Table 3 (D)", "Table 3 (E)"),
]


@pytest.mark.parametrize(("module", "name", "link"), sorted(set(ENTRIES)))
def test_paper_map_names_exist(module: str, name: str, link: str) -> None:
    thing = import_module(module)
    for part in name.split("."):
        assert hasattr(thing, part), f"{module}:{name} does not exist"
        thing = getattr(thing, part)
    assert (MAP.parent / link).resolve() == Path(str(import_module(module).__file__)).resolve()


@pytest.mark.parametrize("section", SECTIONS)
def test_paper_map_covers_sections(section: str) -> None:
    assert any(re.search(rf"\b{re.escape(section)}(?!\d)", line.split("|")[1]) for line in LINES)


def test_paper_map_rows_have_entries() -> None:
    assert len(LINES) > 30
    assert [line for line in LINES if not ENTRY.search(line)] == []


def test_paper_map_names_are_links() -> None:
    assert len(re.findall(r"`heedful[\w.]*:", TEXT)) == len(ENTRIES)
