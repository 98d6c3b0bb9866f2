"""Markdown: prose is translated, and the result is parsed as the same blocks and tags."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from heedful.text.documents.document import MarkedText
from heedful.text.documents.markdown_format import make_parser, read_markdown
from tests.text.documents.documents import capitals, copied, shuffled, texts_of, translated, turned_round

ROOT = Path(__file__).parents[3]

PAGE = """\
---
title: Not touched
---

# A *short* title #

Plain text that is wrapped
over two lines, with `code here` and **bold words**.

1. First [link text](https://example.org "Title") item
2. Second ![a picture](a.png) item
   goes on

- [ ] task to do
- [x] task done

> Quoted words
> in two lines

> [!NOTE]
> Mind the gap.

| Left side | Right \\| side |
|:----------|-----------:|
| `x` | some **words** |
| | |

Line one.\\
Line two@@
goes on

```python
print("not touched")
```

    indented code

See [the guide][g], [g], [g][] and <https://example.org>. A note[^1].

<div class="box">Some <b>HTML</b> here</div>

Under lined
===========

***

Text with <kbd>Ctrl</kbd> and an <em>inline</em> tag, 2 \\* 3, a&nbsp;b and ~~gone~~.

[g]: https://example.org/guide "Guide title"
[^1]: What the note
    says.
""".replace("@", " ")


def test_copying_translator_changes_no_byte() -> None:
    for page in (PAGE, PAGE.replace("\n", "\r\n"), PAGE.replace("\n", "\r"), PAGE.rstrip("\n")):
        assert translated(page, "markdown", copied) == page
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        page = path.read_bytes()
        assert translated(page, "markdown", copied).encode() == page, path


def test_translatable_texts() -> None:
    assert texts_of(PAGE, "markdown") == [
        "A short title",
        "Plain text that is wrapped over two lines, with `code here` and bold words.",
        "First link text item",
        "a picture",
        "Second item goes on",
        "task to do",
        "task done",
        "Quoted words in two lines",
        "Mind the gap.",
        "Left side",
        "Right | side",
        "some words",
        "Line one.",
        "Line two goes on",
        "See the guide, g, g and https://example.org. A note.",
        "Some HTML here",
        "Under lined",
        "Text with `Ctrl` and an inline tag, 2 * 3, a\u00a0b and gone.",
        "What the note says.",
    ]


def test_only_prose_changes() -> None:
    found = translated(PAGE, "markdown", capitals)
    for kept in (
        "---\ntitle: Not touched\n---\n\n# A *SHORT* TITLE #\n",
        "\nPLAIN TEXT THAT IS WRAPPED OVER TWO LINES, WITH\n`code here` AND **BOLD WORDS**.\n",
        '1. FIRST [LINK TEXT](https://example.org "Title") ITEM\n2. SECOND ![A PICTURE](a.png) ITEM\n   GOES ON\n',
        "- [ ] TASK TO DO\n- [x] TASK DONE\n",
        "> QUOTED WORDS IN TWO\n> LINES\n",
        "> [!NOTE]\n> MIND THE GAP.\n",
        "| LEFT SIDE | RIGHT \\| SIDE |\n|:----------|-----------:|\n| `x` | SOME **WORDS** |\n| | |\n",
        "LINE ONE.\\\nLINE TWO  \nGOES ON\n",
        '```python\nprint("not touched")\n```\n\n    indented code\n',
        "SEE [THE GUIDE][g], [G][g], [G][g] AND <https://example.org>. A NOTE[^1].\n",
        '<div class="box">SOME <b>HTML</b> HERE</div>\n',
        "UNDER LINED\n===========\n\n***\n",
        "TEXT WITH <kbd>Ctrl</kbd> AND AN <em>INLINE</em> TAG, 2 * 3, A\u00a0B AND ~~GONE~~.",
        '[g]: https://example.org/guide "Guide title"\n[^1]: WHAT THE NOTE SAYS.\n',
    ):
        assert kept in found, kept


def test_tags_follow_their_words() -> None:
    assert translated("alpha **beta _gamma_** [delta](x)\n", "markdown", turned_round) == (
        "[DELTA](x) **_GAMMA_ BETA** ALPHA\n"
    )


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("A title", "1. Titel", "1\\. Titel"),  # not a list
        ("A title", "- Titel", "\\- Titel"),
        ("A title", "# Titel", "\\# Titel"),
        ("A title", "Titel *mit* Stern", "Titel \\*mit\\* Stern"),
        ("A title", "5 * 3 und snake_case", "5 * 3 und snake_case"),
        ("A title", "Titel [x](y)", "Titel \\[x\\](y)"),
        ("| A title |\n|---|\n", "ein | Titel", "| ein \\| Titel |\n|---|\n"),
        ("A `code` word", "Ein `code` Wort", "Ein `code` Wort"),
    ],
)
def test_written_markdown_reads_as_the_translation(source: str, translation: str, expected: str) -> None:
    def change(text: MarkedText) -> MarkedText:
        from heedful.text.documents.tag_placement import place_tags

        return place_tags(text, translation, [])

    found = translated(source, "markdown", change)
    assert found == expected
    assert [text.text for text in read_markdown(found).texts] == [translation]


def structure(page: str) -> list[tuple[str, str]]:
    """The blocks of a page."""
    return [(token.type, token.markup) for token in make_parser().parse(page, {})]


def kinds(texts: Sequence[MarkedText]) -> list[list[str]]:
    return [sorted(str(mark.kind) + str(mark.parent >= 0) for mark in text.marks) for text in texts]


@pytest.mark.parametrize("path", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=lambda path: path.name)
def test_real_pages_keep_blocks_and_tags(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    found = translated(page, "markdown", capitals)
    assert structure(found) == structure(page)
    before, after = read_markdown(page).texts, read_markdown(found).texts
    assert [" ".join(text.text.upper().split()) for text in after] == [
        " ".join(text.text.upper().split()) for text in before
    ]
    assert kinds(after) == kinds(before)
    moved = translated(page, "markdown", shuffled(random.Random(1)))
    assert structure(moved) == structure(page)
