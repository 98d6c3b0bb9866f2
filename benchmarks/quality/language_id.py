"""Accuracy of language identification among English, German and Chinese: lines, and one to three words.

    python benchmarks/quality/language_id.py data > table.md        (a folder with newstest/, tatoeba-en-de/ and so on)

Words are split at spaces, at every fifth position of the same lines; words without letters are skipped.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from heedful.paper.text_tables import markdown_table
from heedful.text.corpus import Direction
from heedful.text.language_id import script_of
from heedful.text.language_routing import Directions

BUNDLED_MODEL = Directions(
    tuple(Direction(*pair) for pair in ("en de".split(), "de en".split(), "en zh".split())), ("de", "zh")
)
TEXTS = (
    "newstest/newstest2014.en-de",
    "newstest/flores200-devtest",
    "newstest/newstest2017.zh-en",
    "tatoeba-en-de/test",
    "tatoeba-en-zh/test",
    "msdocs-en-de/test",
    "msdocs-en-zh/test",
    "docs-en-de/test",
    "docs-en-zh/test",
)
FOREIGN = ("multi30k/test2016", "fr")
"""A language that the model does not support: detecting any other language is correct."""
STRIDE = 5


def words_of(lines: list[str], count: int) -> Iterator[str]:
    """Consecutive words at every fifth position."""
    for line in lines:
        words = line.split()
        for start in range(0, len(words) - count + 1, STRIDE):
            yield " ".join(words[start : start + count])


def measure(texts: list[str], language: str) -> tuple[str, str, str, str]:
    """Number of texts, accuracy, number detected as foreign, and microseconds per text."""
    texts = [text for text in texts if script_of(text)[0]]
    began = time.perf_counter()
    found = [BUNDLED_MODEL.detect(text) for text in texts]
    each = (time.perf_counter() - began) / max(1, len(texts))
    foreign = sum(one[2] is not None for one in found)
    known = foreign if language == FOREIGN[1] else sum(one[0] == language for one in found)
    right = known / max(1, len(texts))
    return f"{len(texts):,}", f"{right:.2%}", str(foreign), f"{each * 1e6:.0f}"


def main() -> None:
    """Print the table."""
    rows = []
    for name in TEXTS:
        for language in ("en", "de", "zh"):
            path = Path(sys.argv[1]) / f"{name}.{language}"
            if not path.exists():
                continue
            lines = path.read_text(encoding="utf-8").splitlines()
            rows.append([name, language, "lines", *measure(lines, language)])
            for count in (1, 2, 3) if language != "zh" else ():
                rows.append([name, language, f"{count} words", *measure(list(words_of(lines, count)), language)])
    lines = (Path(sys.argv[1]) / ".".join(FOREIGN)).read_text(encoding="utf-8").splitlines()
    rows.append([*FOREIGN, "lines", *measure(lines, FOREIGN[1])])
    print(
        markdown_table(
            ["text", "language", "unit", "number", "right", "identified as another language", "µs each"], rows
        )
    )


if __name__ == "__main__":
    main()
