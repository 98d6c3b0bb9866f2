"""Training text of the later stages, derived from the corpora and the translations of the teachers.

    python3 training_text.py corpora data text            # before teacher 2 is trained
    python3 training_text.py chinese data distilled text  # filter the Chinese of teacher 1
    python3 training_text.py german distilled text        # filter the German and English of teacher 2
    python3 training_text.py forms data text              # capitals, missing final punctuation
    python3 training_text.py chinese_forms data text      # those of Chinese only
    python3 training_text.py own data distilled text      # select translations of stage 3
    python3 training_text.py late data distilled text     # select translations of teacher 3

    parliament.en      the English of Europarl with plain punctuation: "…" for ‘…’, ' for ’, - for –
    capitals.{en,de}   everyday sentences in capitals
    everyday.{en,zh}   everyday English and the first teacher's Chinese
    speeches.{zh,en}   the same for Europarl's English, used only into English
    en-de.*, de-en.*   translations of teacher 2

    shouted.{en,de}, shouted-chinese.{en,zh}   more sentences in capitals
    bare.{en,de}, bare-chinese.{en,zh}         everyday sentences without final punctuation
    own.{de,en}                   of four translations of stage 3, the one closest to the reference
    home.{en,zh}, halls.{zh,en}   its Chinese of everyday sentences and speeches, used into English
    late.{en,de}, fresh.{en,de}   translations of teacher 3: Europarl, and English of the Chinese corpora
    late-everyday.{en,de}         of its four translations of an everyday line, the one closest to the reference

Corpora are plain or .xz. The same input gives the same bytes.
"""

from __future__ import annotations

import json
import lzma
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from inspect import signature
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import NoReturn

MOST_CAPITALS = 20_000
LEAST_VARIETY = 0.85
LATIN_WORD = re.compile(r"[A-Za-zÀ-ÿ]{2,}")
NUMBER = re.compile(r"\d+")
LARGE_NUMBER = re.compile(r"(thousand|million|billion|trillion)s?\b")
THREE_TIMES = re.compile(r"(.{2,}?)\1\1")
WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")
MARK_AT_THE_END = re.compile(r"[.!?。！？]$")
LONGEST_SHOUTED = 140
LINES_AT_ONCE = 2_000

Pair = tuple[str, str]


def stop(message: str) -> NoReturn:
    """Exit with an error of the user."""
    sys.stderr.write(f"training_text.py: {message}\n")
    sys.exit(2)


def lines(path: Path) -> Iterator[str]:
    """The lines of a file, which may be compressed; that it is there is certain at once."""
    for place in (path, path.with_name(path.name + ".xz")):
        if place.is_file():
            return lines_of(place)
    stop(
        f"{path}: there is no such file, nor one with .xz behind its name. "
        "Put the corpora there, or run the step that writes it; recipes/bundled-model/run.sh lists all steps."
    )


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file, split as the program splits them: at line feeds alone."""
    opened = lzma.open if path.suffix == ".xz" else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line.rstrip("\n")
    except (UnicodeDecodeError, lzma.LZMAError, EOFError) as error:
        stop(f"{path}: damaged, cut off, or no UTF-8 text ({error}). Copy, download or make it again.")


def pairs_of(source: Path, target: Path) -> Iterator[Pair]:
    """Pairs of a line and its translation."""
    sides = lines(source), lines(target)
    for one, other in zip_longest(*sides):
        if one is None or other is None:
            stop(f"{source} and {target} have not the same number of lines. Copy, download or make them again.")
        yield one, other


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
    everyday = pairs_of(data / "tatoeba-en-de/train.en", data / "tatoeba-en-de/train.de")
    shouted = (
        (english.upper(), german.upper()) for number, (english, german) in enumerate(everyday) if number % 8 == 0
    )
    write_pairs(out, "capitals", ("en", "de"), (pair for _, pair in zip(range(MOST_CAPITALS), shouted, strict=False)))


def chinese(data: Path, distilled: Path, out: Path) -> None:
    """What is sound of the first teacher's Chinese, everyday sentences and speeches apart."""
    everyday = set(lines(data / "tatoeba-en-de/train.en"))
    pairs = pairs_of(distilled / "more-zh.en", distilled / "more-zh.zh")
    sound = [pair for pair in pairs if is_sound_chinese(*pair)]
    write_pairs(out, "everyday", ("en", "zh"), (pair for pair in sound if pair[0] in everyday))
    speeches = ((chinese, plain(english)) for english, chinese in sound if english not in everyday)
    write_pairs(out, "speeches", ("zh", "en"), speeches)


def runs_of_words(text: str) -> Counter[tuple[str, ...]]:
    """Count the runs of one to four words or marks."""
    words = WORD_OR_MARK.findall(text)
    return Counter(
        tuple(words[start : start + length]) for length in range(1, 5) for start in range(len(words) - length + 1)
    )


def nearest(made: str, reference: str) -> Pair:
    """The source and the translation, of one JSON line, that shares most n-grams with the reference.

    Ties go to the translation with the better model score.
    """
    record, wanted = json.loads(made), runs_of_words(reference)

    def nearness(text: str) -> float:
        runs = runs_of_words(text)
        return (runs & wanted).total() / max(runs.total(), wanted.total(), 1)

    return record["source"], max((one["text"] for one in record["n_best"]), key=nearness)


def nearest_of(lines: list[Pair]) -> list[Pair]:
    """The same for many lines, those that are sound."""
    return [pair for pair in (nearest(*line) for line in lines) if is_sound(*pair)]


def nearest_in(made: Iterable[Pair]) -> Iterator[Pair]:
    """The same, on all cores."""
    rest = iter(made)
    portions = iter(lambda: list(islice(rest, LINES_AT_ONCE)), [])
    with ProcessPoolExecutor() as pool:
        yield from chain.from_iterable(pool.map(nearest_of, portions))


def german(distilled: Path, out: Path) -> None:
    """What is sound of the second teacher's translations."""
    for source, target in (("en", "de"), ("de", "en")):
        name, pairs = f"{source}-{target}", list[Pair]()
        for part in range(1, 4):
            pairs += pairs_of(distilled / f"{name}-{part}.{source}", distilled / f"{name}-{part}.{target}")
        write_pairs(out, name, (source, target), (pair for pair in pairs if is_sound(*pair)))


def some(data: Path, corpus: str, languages: Pair, *, first: int, every: int) -> Iterator[Pair]:
    """Every n-th pair of a corpus."""
    sides = (data / corpus / f"train.{language}" for language in languages)
    return islice(pairs_of(*sides), first, None, every)


def bare(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """The pairs that end in a mark on both sides, without it."""
    ended = (pair for pair in pairs if all(map(MARK_AT_THE_END.search, pair)))
    return ((one[:-1].rstrip(), other[:-1].rstrip()) for one, other in ended)


def forms(data: Path, out: Path) -> None:
    """Sentences in capitals, and everyday sentences without a mark at their end."""

    def short(pairs: Iterable[Pair]) -> Iterator[Pair]:
        return (pair for pair in pairs if max(map(len, pair)) <= LONGEST_SHOUTED)

    speeches = short(some(data, "europarl-en-de", ("en", "de"), first=3, every=20))
    everyday = chain.from_iterable(
        some(data, "tatoeba-en-de", ("en", "de"), first=first, every=8) for first in (1, 3, 5)
    )
    shouted = chain(everyday, ((plain(english), german) for english, german in speeches))
    write_pairs(out, "shouted", ("en", "de"), ((english.upper(), german.upper()) for english, german in shouted))
    write_pairs(out, "bare", ("en", "de"), bare(some(data, "tatoeba-en-de", ("en", "de"), first=2, every=8)))
    chinese_forms(data, out)


def chinese_forms(data: Path, out: Path) -> None:
    """The Chinese part of `forms`."""
    captions = some(data, "3am-en-zh", ("en", "zh"), first=0, every=4)
    sayings = chain(some(data, "tatoeba-en-zh", ("en", "zh"), first=0, every=2), captions)
    write_pairs(out, "shouted-chinese", ("en", "zh"), ((english.upper(), chinese) for english, chinese in sayings))
    write_pairs(out, "bare-chinese", ("en", "zh"), bare(some(data, "tatoeba-en-zh", ("en", "zh"), first=1, every=4)))


def with_references(name: Path, source: str, corpus: Iterator[Pair]) -> Iterator[Pair]:
    """Pairs of a model's JSON line and the reference of the same source in the corpus."""
    translated = pairs_of(name.with_suffix(f".{source}"), name.with_suffix(".json"))
    for number, (line, made) in enumerate(translated, start=1):
        same, reference = next(corpus, ("", ""))
        if line != same:
            stop(f"{name}.{source}, line {number}: the corpus has another there. Run distill.sh for it again.")
        if not (made.startswith("{") and made.endswith("}")):
            stop(f"{name}.json, line {number}: cut off or damaged. Remove the file and run distill.sh again.")
        yield made, reference


def own(data: Path, distilled: Path, out: Path) -> None:
    """What is sound and nearest to a person's words of what the third model wrote."""
    speeches = data / "europarl-en-de/train.de", out / "parliament.en"
    everyday = data / "tatoeba-en-de/train.de", data / "tatoeba-en-de/train.en"
    made = (
        with_references(distilled / "own-1", "de", islice(pairs_of(*speeches), 300_000, 450_000)),
        with_references(distilled / "own-2", "de", islice(pairs_of(*speeches), 450_000, 600_000)),
        with_references(distilled / "own-3", "de", pairs_of(*everyday)),
    )
    write_pairs(out, "own", ("de", "en"), nearest_in(chain.from_iterable(made)))
    for part, name in ((4, "home"), (5, "halls")):
        pairs = pairs_of(distilled / f"own-{part}.en", distilled / f"own-{part}.zh")
        write_pairs(out, name, ("en", "zh"), (pair for pair in pairs if is_sound_chinese(*pair)))


def late(data: Path, distilled: Path, out: Path) -> None:
    """What is sound, and of everyday sentences nearest to a person's words, of what the last teacher wrote."""
    for name, parts in (("late", (1, 2, 3)), ("fresh", (5,))):
        made = (pairs_of(distilled / f"late-{part}.en", distilled / f"late-{part}.de") for part in parts)
        write_pairs(out, name, ("en", "de"), (pair for pair in chain.from_iterable(made) if is_sound(*pair)))
    everyday = pairs_of(data / "tatoeba-en-de/train.en", data / "tatoeba-en-de/train.de")
    chosen = nearest_in(with_references(distilled / "late-4", "en", everyday))
    write_pairs(out, "late-everyday", ("en", "de"), chosen)


def main(arguments: list[str]) -> None:
    """Run the command line."""
    commands: dict[str, Callable[..., None]] = {
        command.__name__: command for command in (corpora, chinese, german, forms, chinese_forms, own, late)
    }
    if arguments in (["-h"], ["--help"]):
        sys.stdout.write(__doc__)
        return
    folders = {name: list(signature(command).parameters) for name, command in commands.items()}
    name, *given = arguments or [""]
    if name not in commands or len(given) != len(folders[name]):
        ways = (f"{name} {' '.join(names).upper()}" for name, names in folders.items())
        stop(f"say {' or '.join(ways)}, not {' '.join(arguments)!r}.")
    try:
        commands[name](*map(Path, given))
    except OSError as error:
        stop(f"{error.filename or given[-1]}: {error.strerror}. Mend that, then run the same again.")


if __name__ == "__main__":
    main(sys.argv[1:])
