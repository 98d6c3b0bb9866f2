"""How well wrong numbers in translations are detected, and how much a second search improves them.

    python benchmarks/robustness/number_checks.py data > table.md    (a folder with newstest/, tatoeba-en-de/ and so on)

First table: references, of which few should be flagged, and references in which one digit was changed at random, of
which most should be. Second table: translations of FLORES by the bundled model without and with the checks.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

import sacrebleu

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from heedful.decoding.translator import Translator
from heedful.paper.text_tables import markdown_table
from heedful.text.translation_checks import is_repetition_loop, numbers_differ

PAIRS = (
    ("newstest/flores200-devtest", "en", "de"), ("newstest/flores200-devtest", "en", "zh"),
    ("newstest/newstest2014.en-de", "en", "de"), ("newstest/newstest2017.zh-en", "zh", "en"),
    ("tatoeba-en-de/test", "en", "de"), ("tatoeba-en-zh/test", "en", "zh"), ("msdocs-en-de/test", "en", "de"),
    ("msdocs-en-zh/test", "en", "zh"), ("dynamics-en-de/test", "en", "de"), ("dynamics-en-zh/test", "en", "zh"),
)  # fmt: skip
DIRECTIONS = (("en", "de"), ("en", "zh"), ("zh", "en"), ("de", "en"))
LINES = 400


def read(folder: Path, name: str, language: str) -> list[str]:
    """The lines of a text."""
    return (folder / f"{name}.{language}").read_text(encoding="utf-8").split("\n")[:-1]


def with_another_digit(text: str, rng: random.Random) -> str | None:
    """The text with one digit changed; None if it has none."""
    positions = [position for position, character in enumerate(text) if character in "0123456789"]
    if not positions:
        return None
    position = rng.choice(positions)
    return (
        text[:position]
        + rng.choice([digit for digit in "0123456789" if digit != text[position]])
        + text[position + 1 :]
    )


def references(folder: Path, name: str, source: str, target: str) -> list[str]:
    """Share of flagged references, share of flagged changed ones, and microseconds per line."""
    rng, pair = random.Random(1), (source, target)
    lines = list(zip(read(folder, name, source), read(folder, name, target), strict=True))
    began = time.perf_counter()
    flagged = [numbers_differ(*line, languages=pair) for line in lines]
    each = (time.perf_counter() - began) / len(lines)
    correct = [line for line, is_flagged in zip(lines, flagged, strict=True) if not is_flagged]
    changed = [(text, other) for text, translation in correct if (other := with_another_digit(translation, rng))]
    found = sum(numbers_differ(*line, languages=pair) for line in changed)
    return [
        f"{name} {source}-{target}", f"{len(lines):,}", f"{sum(flagged) / len(lines):.2%}", f"{len(changed):,}",
        f"{found / max(1, len(changed)):.1%}", f"{each * 1e6:.0f}",
    ]  # fmt: skip


def translations(translator: Translator, folder: Path, source: str, target: str) -> list[str]:
    """The effect of the checks: flagged and corrected sentences, and BLEU."""
    name = "newstest/flores200-devtest"
    texts, wanted = (read(folder, name, language)[:LINES] for language in (source, target))
    languages: dict[str, Any] = {"source_language": source, "target_language": target}
    before, after = (translator.translate(texts, **languages, checks=checks) for checks in (False, True))
    flagged = [
        numbers_differ(text, one.text, languages=(source, target)) or is_repetition_loop(text, one.text)
        for text, one in zip(texts, before, strict=True)
    ]
    left = sum(bool(one.warnings) for one in after)
    bleu = [
        sacrebleu.corpus_bleu([one.text for one in side], [wanted], tokenize="zh" if target == "zh" else "13a").score
        for side in (before, after)
    ]
    others = sum(one.text != other.text for one, other in zip(before, after, strict=True))
    return [
        f"{source}-{target}", f"{LINES}", f"{sum(flagged)}", f"{sum(flagged) - left}", f"{others}",
        *(f"{score:.2f}" for score in bleu),
    ]  # fmt: skip


def main() -> None:
    """Print the tables."""
    folder = Path(sys.argv[1])
    heading = ["references", "lines", "flagged", "with a changed digit", "of these flagged", "µs each"]
    print(markdown_table(heading, [references(folder, *pair) for pair in PAIRS]), end="\n\n")
    translator = Translator.load(engine="native")
    heading = ["FLORES", "lines", "flagged", "mended", "texts changed", "BLEU without checks", "BLEU with checks"]
    print(markdown_table(heading, [translations(translator, folder, *pair) for pair in DIRECTIONS]))


if __name__ == "__main__":
    main()
