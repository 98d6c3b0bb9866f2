"""Pairs with masks in place of text that a translation keeps unchanged, so that the model learns to copy them.

    python3 synthetic_masks.py OUT en-de 20000 FILE.en=FILE.de …     # at most 20,000 pairs of each file

`heedful translate` protects URLs, placeholders, tags and the like: the model sees {0}, {1}, … in their place. Here
names, numbers and words that stand once on both sides of a pair are replaced by masks, numbered by their order in the
source; sometimes a shared word is wrapped in two masks, as tags wrap it; and masks.tsv has sentences with
masks in the places of URLs, files, tags and names. Each pair is written for both directions, since the numbers follow
the source: OUT.en-de.{en,de} and OUT.de-en.{en,de}. Files are plain or .xz.
"""

import lzma
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

SHARED = re.compile(
    r"https?://\S+?(?=[\s，。、）)]|$)|[\w.+-]+@[\w-]+\.\w+|[A-Z][A-Za-z]{2,}"
    r"|\d+(?:\.\d+)*|[a-z_]+\(\)|[\w-]+\.[a-z]{2,4}\b|%\w\b"
)
COUNTS = (1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4)


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file, plain or .xz."""
    packed = path.with_name(path.name + ".xz")
    with lzma.open(packed, "rt", encoding="utf-8") if packed.is_file() else path.open(encoding="utf-8") as file:
        for line in file:
            yield line.rstrip("\n")


def masked(rng: Random, source: str, target: str) -> tuple[str, str] | None:
    """The pair with some shared spans masked, numbered by the source; None where there are none."""
    spans = [match.span() for match in SHARED.finditer(source)]
    rng.shuffle(spans)
    num_masks, chosen = COUNTS[int(rng.random() * len(COUNTS))], list[tuple[int, int, bool]]()
    for start, end in spans:
        text = source[start:end]
        if sum(2 if wraps else 1 for *_, wraps in chosen) >= num_masks or "{" in source + target:
            break
        alone = re.compile(rf"(?<![A-Za-z0-9.,]){re.escape(text)}(?![A-Za-z0-9]|[.,]\d)")
        if all(side.count(text) == 1 and alone.search(side) for side in (source, target)):
            chosen.append((start, end, rng.random() < 0.12))
    if not chosen:
        return None
    masks: dict[str, str] = {}
    number = 0
    for start, end, wraps in sorted(chosen):
        text = source[start:end]
        masks[text] = f"{{{number}}}{text}{{{number + 1}}}" if wraps else f"{{{number}}}"
        number += 2 if wraps else 1
    spans_of = re.compile("|".join(map(re.escape, sorted(masks, key=len, reverse=True))))

    def put(side: str) -> str:
        return spans_of.sub(lambda match: masks[match[0]], side)

    result = put(source), put(target)
    wanted_masks = [f"{{{one}}}" for one in range(number)]
    return result if all(side.count(mask) == 1 for side in result for mask in wanted_masks) else None


def renumbered(source: str, target: str) -> tuple[str, str]:
    """The masks numbered by their order in the source."""
    order = {mask: f"{{{number}}}" for number, mask in enumerate(re.findall(r"\{\d\}", source))}

    def put(text: str) -> str:
        return re.sub(r"\{\d\}", lambda match: order[match[0]], text)

    return put(source), put(target)


def pairs(rng: Random, languages: tuple[str, str], files: list[str], max_pairs: int) -> Iterator[tuple[str, str]]:
    """All pairs of one direction."""
    columns = {"en": 0, "de": 1, "zh": 2}
    templates = Path(__file__).with_name("masks.tsv").read_text(encoding="utf-8").splitlines()
    for template in (line.split("\t") for line in templates):
        yield renumbered(template[columns[languages[0]]], template[columns[languages[1]]])
    for names in files:
        one, other = names.split("=")
        source, target = (one, other) if one.endswith(languages[0]) else (other, one)
        found = (
            masked(rng, *pair)
            for pair in zip(lines_of(Path(source)), lines_of(Path(target)), strict=True)
            if max(map(len, pair)) < 300
        )
        yield from islice((pair for pair in found if pair), max_pairs)


def main(arguments: list[str]) -> None:
    """Write both directions."""
    if len(arguments) < 3 or arguments[1] not in ("en-de", "en-zh") or not arguments[2].isdigit():
        sys.exit("synthetic_masks.py: say OUT, en-de or en-zh, a number of pairs, and files as FILE.en=FILE.de.")
    out, direction, max_pairs, *files = arguments
    one, other = direction.split("-")
    for languages in ((one, other), (other, one)):
        try:
            found = list(pairs(Random(7), languages, files, int(max_pairs)))
        except (OSError, ValueError) as error:
            sys.exit(f"synthetic_masks.py: {error}. Name pairs of files with equally many lines.")
        sys.stderr.write(f"{'-'.join(languages)}: {len(found)} pairs\n")
        for side, language in enumerate(languages):
            text = "".join(pair[side] + "\n" for pair in found)
            Path(f"{out}.{'-'.join(languages)}.{language}").write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
