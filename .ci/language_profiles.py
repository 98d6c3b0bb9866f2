"""Makes heedful/text/language_profiles.txt, by which languages of one script are told apart, from parallel corpora.

    python .ci/language_profiles.py data        (a folder with tatoeba-en-de/train.en.xz and the others named below)

For each language two tables are counted on a mixture of everyday sentences, speeches and manuals, lower-cased: for
each frequent run of three letters of `  word ` the probability of the third after the first two; and the share among
all words of those words whose letters alone would mislead or leave doubts, most frequent first. A number is kept as
one printable character, its cost -ln p in steps of a quarter. A run that is missing for a language costs UNSEEN there.
"""

from __future__ import annotations

import itertools
import lzma
import math
import re
import sys
from collections import Counter
from pathlib import Path

CORPORA = {"tatoeba": 120_000, "europarl": 40_000, "msdocs": 20_000, "docs": 10_000}
LANGUAGES = ("en", "de")
NUM_WORDS, NUM_RUNS = 1900, 2600
STEPS, FIRST, LAST = 4, 48, 125
UNSEEN, ENOUGH = 7.5, 5.0
TARGET = Path(__file__).parent.parent / "heedful" / "text" / "language_profiles.txt"


def words_of(language: str, data: Path) -> Counter[str]:
    """How often each word occurs in the first sentences of the corpora."""
    counts: Counter[str] = Counter()
    for corpus, most in CORPORA.items():
        with lzma.open(data / f"{corpus}-en-de" / f"train.{language}.xz", "rt", encoding="utf-8") as file:
            for line in itertools.islice(file, most):
                counts.update(re.findall(r"[^\W\d_]+", line.lower()))
    return counts


def runs_of(words: Counter[str]) -> dict[str, float]:
    """The probability of a letter after two others, for the most frequent runs of three."""
    runs: Counter[str] = Counter()
    for word, count in words.items():
        padded = f"  {word} "
        for i in range(len(padded) - 2):
            runs[padded[i : i + 3]] += count
    before: Counter[str] = Counter()
    for run, count in runs.items():
        before[run[:2]] += count
    return {run: count / before[run[:2]] for run, count in runs.most_common(NUM_RUNS)}


def doubtful_words(counted: list[Counter[str]], runs: list[dict[str, float]]) -> list[dict[str, float]]:
    """The share of each word that is needed, in every language: letters leave the more doubt, the more it is used."""
    totals = [counts.total() for counts in counted]
    gain: dict[str, float] = {}
    for word in set().union(*(dict(counts.most_common(20_000)) for counts in counted)):
        shares = [(counts[word] + 0.3) / total for counts, total in zip(counted, totals, strict=True)]
        own = max(range(len(shares)), key=lambda n: shares[n])
        padded = f"  {word} "
        costs = [
            sum(
                UNSEEN if padded[i : i + 3] not in table else -math.log(table[padded[i : i + 3]])
                for i in range(len(word) + 1)
            )
            for table in runs
        ]
        margin = min(cost for n, cost in enumerate(costs) if n != own) - costs[own]
        true = min(math.log(shares[own] / share) for n, share in enumerate(shares) if n != own)
        gain[word] = shares[own] * max(0.0, min(true, ENOUGH) - margin)
    chosen = sorted(gain, key=lambda word: -gain[word])[:NUM_WORDS]
    return [
        {word: (counts[word] + 0.3) / total for word in chosen} for counts, total in zip(counted, totals, strict=True)
    ]


def character(probability: float | None) -> str:
    """A cost as one character; a blank where there is none."""
    if probability is None:
        return "~"
    return chr(min(LAST, FIRST + round(-math.log(probability) * STEPS)))


def main() -> None:
    """Count, and write the file."""
    counted = {language: words_of(language, Path(sys.argv[1])) for language in LANGUAGES}
    lines = [f"languages {' '.join(LANGUAGES)}"]
    runs = [runs_of(counts) for counts in counted.values()]
    tables = {"words": doubtful_words(list(counted.values()), runs), "runs": runs}
    for name, of_languages in tables.items():
        lines.append(name)
        for key in sorted(set().union(*of_languages)):
            lines.append(f"{key.replace(' ', '_')}\t{''.join(character(table.get(key)) for table in of_languages)}")
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write(f"{TARGET}: {TARGET.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
