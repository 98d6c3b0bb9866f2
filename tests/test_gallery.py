"""The gallery shows every figure, and its pages are those of its script."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from heedful.paper.figures.registry import FIGURES

ROOT = Path(__file__).parent.parent
MOST_BYTES = 6_000_000


@pytest.fixture
def gallery(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "images"))
    import gallery

    yield gallery
    sys.modules.pop("gallery")


def test_gallery_shows_every_figure(gallery: ModuleType) -> None:
    assert {name for name, entry in gallery.entries().items() if entry.command is None} == set(FIGURES)
    for suffix in gallery.SUFFIXES.values():
        text = (ROOT / "docs" / f"gallery{suffix}.md").read_text("utf-8")
        assert set(re.findall(r"^heedful paper figures -o figures --only (\w+)$", text, flags=re.MULTILINE)) == set(
            FIGURES
        )


@pytest.mark.parametrize("language", ["en", "zh"])
def test_gallery_pages_are_generated(gallery: ModuleType, language: str) -> None:
    page = ROOT / "docs" / f"gallery{gallery.SUFFIXES[language]}.md"
    assert page.read_text("utf-8") == gallery.page(language), "run python docs/images/gallery.py --pages"


def test_images_of_gallery(gallery: ModuleType) -> None:
    """All exist in both languages, light and dark; there are no others; their total size is limited."""
    used = {
        gallery.file_of(name, language, theme)
        for name in gallery.entries()
        for language in gallery.SUFFIXES
        for theme in ("light", "dark")
    }
    files = {path.name: path for path in gallery.FOLDER.iterdir()}
    assert set(files) == used | {"decoding.gif", "decoding.zh-CN.gif"}
    assert sum(path.stat().st_size for path in files.values()) <= MOST_BYTES
    for name, path in files.items():
        if name.endswith(".svg"):
            ElementTree.parse(path)


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md", "docs/gallery.md", "docs/gallery.zh-CN.md"])
def test_pictures_exist(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    pictures = re.findall(r'srcset="([^"]+)">\s*<img src="([^"]+)"', text)
    assert len(pictures) == text.count("<picture>") >= 2
    for dark, light in pictures:
        assert "-dark" in dark and dark.replace("-dark", "").split(".")[0] == light.split(".")[0]
        for path in (dark, light):
            assert ((ROOT / page).parent / path).is_file(), path
            assert (".zh-CN." in path) == (".zh-CN." in page)
