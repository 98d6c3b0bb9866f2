"""Chinese sentences with some of their words replaced by others of the same kind, for a teacher to translate.

    python3 recipes/bundled-model/replace_words.py DICTIONARY 300000 OUT.zh SENTENCES.zh…

The corpora use few of the words that encyclopedias and news use. Replacing a noun, a verb, a place or a
person by another shows the model such a word in a grammatical context; the translation comes from the teacher, which
knows the word. DICTIONARY is jieba's dict.txt: a word, its frequency and its part of speech on each line.
"""

from __future__ import annotations

import math
import re
import sys
from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from random import Random

KINDS = {
    "n": "noun", "nz": "noun", "l": "idiom", "i": "idiom", "v": "verb", "vn": "verbal noun", "a": "adjective",
    "ns": "place", "nt": "organization", "nr": "person", "nrt": "person", "nrfg": "person",
}  # fmt: skip
SHARE = {"noun": 1.0, "verb": 0.4, "verbal noun": 0.8, "adjective": 0.6, "idiom": 0.8}
"""How often a word of a kind is replaced once it is drawn; names always are."""
LONGEST_WORD, SHORTEST, LONGEST = 7, 6, 60
FLATTENING = 0.55
"""A word is drawn with its frequency to this power, so that rare words are seen too."""
CHINESE = re.compile(r"[\u4e00-\u9fff·]+")


class Dictionary:
    """Words with their logarithmic frequencies and kinds."""

    def __init__(self, path: Path) -> None:
        self.costs: dict[str, float] = {}
        self.kinds: dict[str, str] = {}
        words: dict[str, tuple[list[str], list[float]]] = {}
        rows = [line.split(" ") for line in path.read_text(encoding="utf-8").splitlines()]
        total = math.log(sum(int(count) for _, count, _ in rows))
        for word, count, tag in rows:
            if len(word) > LONGEST_WORD or not CHINESE.fullmatch(word) or count == "0":
                continue
            self.costs[word] = total - math.log(int(count))
            kind = KINDS.get(tag)
            if kind and len(word) > 1:
                self.kinds[word] = kind
                known, weights = words.setdefault(kind, ([], []))
                known.append(word)
                weights.append(int(count) ** FLATTENING)
        self.words = {kind: (known, list(accumulate(weights))) for kind, (known, weights) in words.items()}

    def cut(self, text: str) -> list[str]:
        """The most probable segmentation into words, by word frequencies."""
        best: list[tuple[float, int]] = [(0.0, 0)]
        for end in range(1, len(text) + 1):
            best.append(
                min(
                    (best[start][0] + self.costs.get(text[start:end], 20.0 if end - start == 1 else math.inf), start)
                    for start in range(max(0, end - LONGEST_WORD), end)
                )
            )
        words, end = [], len(text)
        while end:
            start = best[end][1]
            words.append(text[start:end])
            end = start
        return words[::-1]

    def other(self, rng: Random, kind: str) -> str:
        """A word of this kind."""
        known, weights = self.words[kind]
        return known[bisect(weights, rng.random() * weights[-1])]


def replaced(rng: Random, dictionary: Dictionary, sentence: str) -> str | None:
    """The sentence with one to three words replaced; None if it has none that can be."""
    words = dictionary.cut(sentence)
    places = [place for place, word in enumerate(words) if word in dictionary.kinds]
    rng.shuffle(places)
    most, count = 1 + int(rng.random() * 3), 0
    for place in places:
        kind = dictionary.kinds[words[place]]
        if count < most and rng.random() < SHARE.get(kind, 1.0):
            words[place] = dictionary.other(rng, kind)
            count += 1
    return "".join(words) if count else None


def sentences(paths: list[Path]) -> Iterator[str]:
    """The sentences of all files that are neither too short nor too long."""
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            if SHORTEST <= len(line) <= LONGEST:
                yield line


def main(arguments: list[str]) -> None:
    """Write the requested number of sentences, or all if there are fewer."""
    if len(arguments) < 4 or not arguments[1].isdigit():
        sys.exit("replace_words.py: give DICTIONARY, a number of sentences, OUT.zh and files of sentences.")
    path, wanted, out, *files = arguments
    rng, dictionary = Random(11), Dictionary(Path(path))
    known = list(dict.fromkeys(sentences([Path(file) for file in files])))
    if not known:
        sys.exit(f"replace_words.py: no sentence of {SHORTEST} to {LONGEST} characters in {' '.join(files)}.")
    found: dict[str, None] = {}
    for _ in range(math.ceil(int(wanted) / len(known))):
        rng.shuffle(known)
        for sentence in known[: int(wanted) - len(found)]:
            text = replaced(rng, dictionary, sentence)
            if text:
                found.setdefault(text)
    Path(out).write_text("".join(f"{text}\n" for text in found), encoding="utf-8", newline="\n")
    sys.stderr.write(f"{len(found)} sentences in {out}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
