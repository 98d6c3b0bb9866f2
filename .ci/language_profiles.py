"""Write heedful/text/language_profiles.txt, the tables of the language identification, from parallel corpora.

    python .ci/language_profiles.py data        (a folder with tatoeba-en-de/train.en.xz and the others of CORPORA)

Two tables are counted for each language on a lower-cased mixture of everyday sentences, speeches and manuals: for each
frequent character trigram of `  word `, the probability of the third character after the first two; and the relative
frequency of those words that the trigrams alone would misclassify or leave in doubt, most frequent first. A number is
stored as one printable character, its cost -ln p in steps of a quarter. A missing trigram costs UNSEEN_TRIGRAM_COST.
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
"""Names, and sentences to read of each."""
LANGUAGES = ("en", "de")
NUM_WORDS, NUM_TRIGRAMS = 1900, 2600
COST_SCALE, FIRST_COST, LAST_COST, NO_COST = 4, 48, 125, "~"
UNSEEN_TRIGRAM_COST, MAX_EVIDENCE = 7.5, 5.0
TARGET = Path(__file__).parent.parent / "heedful" / "text" / "language_profiles.txt"


def count_words(language: str, data: Path) -> Counter[str]:
    """Counts of the words in the first sentences of the corpora."""
    counts: Counter[str] = Counter()
    for corpus, num_sentences in CORPORA.items():
        with lzma.open(data / f"{corpus}-en-de" / f"train.{language}.xz", "rt", encoding="utf-8") as file:
            for line in itertools.islice(file, num_sentences):
                counts.update(re.findall(r"[^\W\d_]+", line.lower()))
    return counts


def trigrams_of(word: str) -> list[str]:
    """The character trigrams of a word, with two spaces before it and one after."""
    padded = f"  {word} "
    return [padded[i : i + 3] for i in range(len(padded) - 2)]


def trigram_probabilities(words: Counter[str]) -> dict[str, float]:
    """The probability of a character after two others, for the most frequent trigrams."""
    trigrams: Counter[str] = Counter()
    for word, count in words.items():
        for trigram in trigrams_of(word):
            trigrams[trigram] += count
    prefixes: Counter[str] = Counter()
    for trigram, count in trigrams.items():
        prefixes[trigram[:2]] += count
    return {trigram: count / prefixes[trigram[:2]] for trigram, count in trigrams.most_common(NUM_TRIGRAMS)}


def doubtful_words(counted: list[Counter[str]], trigrams: list[dict[str, float]]) -> list[dict[str, float]]:
    """Relative frequencies in every language of the words for which trigrams give too little evidence."""
    totals = [counts.total() for counts in counted]
    gain: dict[str, float] = {}
    for word in set().union(*(dict(counts.most_common(20_000)) for counts in counted)):
        shares = [(counts[word] + 0.3) / total for counts, total in zip(counted, totals, strict=True)]
        own = max(range(len(shares)), key=lambda n: shares[n])
        costs = [
            sum(
                UNSEEN_TRIGRAM_COST if trigram not in table else -math.log(table[trigram])
                for trigram in trigrams_of(word)
            )
            for table in trigrams
        ]
        margin = min(cost for n, cost in enumerate(costs) if n != own) - costs[own]
        evidence = min(math.log(shares[own] / share) for n, share in enumerate(shares) if n != own)
        gain[word] = shares[own] * max(0.0, min(evidence, MAX_EVIDENCE) - margin)
    chosen = sorted(gain, key=lambda word: -gain[word])[:NUM_WORDS]
    return [
        {word: (counts[word] + 0.3) / total for word in chosen} for counts, total in zip(counted, totals, strict=True)
    ]


def encode_cost(probability: float | None) -> str:
    """The cost of a probability as one character."""
    if probability is None:
        return NO_COST
    return chr(min(LAST_COST, FIRST_COST + round(-math.log(probability) * COST_SCALE)))


def main() -> None:
    """Count the corpora and write the file."""
    counted = {language: count_words(language, Path(sys.argv[1])) for language in LANGUAGES}
    lines = [f"languages {' '.join(LANGUAGES)}"]
    trigrams = [trigram_probabilities(counts) for counts in counted.values()]
    tables = {"words": doubtful_words(list(counted.values()), trigrams), "trigrams": trigrams}
    for name, probabilities in tables.items():
        lines.append(name)
        for key in sorted(set().union(*probabilities)):
            lines.append(f"{key.replace(' ', '_')}\t{''.join(encode_cost(table.get(key)) for table in probabilities)}")
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write(f"{TARGET}: {TARGET.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
