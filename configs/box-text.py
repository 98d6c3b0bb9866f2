"""Text for the last lessons of the model in the box, made from the corpora and from what its first teacher wrote.

    python3 configs/box-text.py corpora data text            # before the teacher goes on with German
    python3 configs/box-text.py chinese data distilled text  # of the first teacher's Chinese, what is sound
    python3 configs/box-text.py german distilled text        # of the second teacher's German and English, what is sound

    parliament.en      the English of Europarl with the marks of everyone else: "…" for ‘…’, ' for ’, - for –
    capitals.{en,de}   everyday sentences in capitals
    everyday.{en,zh}   everyday English and the first teacher's Chinese
    speeches.{zh,en}   the same for parliament's English, to be learned towards English alone
    en-de.*, de-en.*   what the second teacher makes of each line

Corpora are plain or .xz. The same input gives the same bytes.
"""

from __future__ import annotations

import lzma
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

MOST_CAPITALS = 20_000
LEAST_VARIETY = 0.85
LATIN_WORD = re.compile(r"[A-Za-zÀ-ÿ]{2,}")
NUMBER = re.compile(r"\d+")
LARGE_NUMBER = re.compile(r"(thousand|million|billion|trillion)s?\b")
THREE_TIMES = re.compile(r"(.{2,}?)\1\1")

Pair = tuple[str, str]


def lines(path: Path) -> Iterator[str]:
    """The lines of a file, which may be compressed."""
    packed = path.with_name(path.name + ".xz")
    with path.open(encoding="utf-8") if path.exists() else lzma.open(packed, "rt", encoding="utf-8") as file:
        for line in file:
            yield line.rstrip("\n")


def write(path: Path, text: Iterable[str]) -> None:
    """Write lines; the file has its name once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".new")
    with unfinished.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in text)
    unfinished.replace(path)


def write_pairs(folder: Path, name: str, languages: Pair, pairs: Iterable[Pair]) -> None:
    """Write pairs into two files of equal length, named by their languages."""
    kept = list(pairs)
    for side, language in enumerate(languages):
        write(folder / f"{name}.{language}", (pair[side] for pair in kept))


def plain(english: str) -> str:
    """English with quotation marks, apostrophes and dashes as a keyboard has them."""
    text = re.sub(r"(?<=\w)’(?=\w)", "'", english)
    text = re.sub(r"‘([^‘’]*)’", r'"\1"', text)
    return text.translate(str.maketrans("‘’“”–—", "''\"\"--"))


def variety(text: str, length: int) -> float:
    """Share of different pieces of some characters among all such pieces: low where a text goes round in circles."""
    pieces = [text[start : start + length] for start in range(len(text) - length + 1)]
    return len(set(pieces)) / len(pieces) if pieces else 1.0


def is_sound_chinese(english: str, chinese: str) -> bool:
    """No circles or broken characters, the numbers and no other Latin words of the English, about as long as usual.

    Large numbers are left out altogether: this teacher gets them wrong.
    """
    known = {word.casefold() for word in LATIN_WORD.findall(english)}
    return (
        "\ufffd" not in chinese
        and variety(chinese, 4) >= LEAST_VARIETY
        and not THREE_TIMES.search(chinese)
        and not LARGE_NUMBER.search(english)
        and set(NUMBER.findall(english)) == set(NUMBER.findall(chinese))
        and all(word.casefold() in known for word in LATIN_WORD.findall(chinese))
        and 0.2 <= (len(chinese) + 8) / (len(english) + 24) <= 0.52
    )


def is_sound(source: str, target: str) -> bool:
    """Not more circles than the source has, no broken characters, about as long as the source."""
    return (
        "\ufffd" not in target
        and variety(target, 8) >= min(LEAST_VARIETY, variety(source, 8))
        and 0.5 <= (len(target) + 20) / (len(source) + 20) <= 2
    )


def corpora(data: Path, out: Path) -> None:
    """Parliament's English with plain marks, and everyday sentences in capitals."""
    write(out / "parliament.en", map(plain, lines(data / "europarl-en-de/train.en")))
    everyday = zip(*(lines(data / f"tatoeba-en-de/train.{language}") for language in ("en", "de")), strict=True)
    shouted = (
        (english.upper(), german.upper()) for number, (english, german) in enumerate(everyday) if number % 8 == 0
    )
    write_pairs(out, "capitals", ("en", "de"), (pair for _, pair in zip(range(MOST_CAPITALS), shouted, strict=False)))


def chinese(data: Path, distilled: Path, out: Path) -> None:
    """What is sound of the first teacher's Chinese, everyday sentences and speeches apart."""
    everyday = set(lines(data / "tatoeba-en-de/train.en"))
    pairs = zip(lines(distilled / "more-zh.en"), lines(distilled / "more-zh.zh"), strict=True)
    sound = [pair for pair in pairs if is_sound_chinese(*pair)]
    write_pairs(out, "everyday", ("en", "zh"), (pair for pair in sound if pair[0] in everyday))
    speeches = ((chinese, plain(english)) for english, chinese in sound if english not in everyday)
    write_pairs(out, "speeches", ("zh", "en"), speeches)


def german(distilled: Path, out: Path) -> None:
    """What is sound of the second teacher's translations."""
    for source, target in (("en", "de"), ("de", "en")):
        name, pairs = f"{source}-{target}", list[Pair]()
        for part in range(1, 4):
            sides = (lines(distilled / f"{name}-{part}.{language}") for language in (source, target))
            pairs += zip(*sides, strict=True)
        write_pairs(out, name, (source, target), (pair for pair in pairs if is_sound(*pair)))


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"corpora": corpora, "chinese": chinese, "german": german}
    if len(sys.argv) < 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*map(Path, sys.argv[2:]))
