"""Select machine translations for the last training of the bundled model.

    python3 select_translations.py flatten MADE.json OUT.zh                  # each of the n-best translations once
    python3 select_translations.py round MADE.json OUT.zh OUT.en KEPT        # the one that best translates back
    python3 select_translations.py nearest MADE.json REFERENCE KEPT.x KEPT.y # the one nearest to the reference
    python3 select_translations.py sound SOURCE.zh MADE.en KEPT              # the teacher's, if it looks sound
    python3 select_translations.py words WORDS.zh KINDS MADE.en KEPT         # a dictionary
    python3 select_translations.py plain IN OUT                              # plain quotation marks and dashes

KEPT stands for two files, KEPT.zh and KEPT.en. `round` keeps a sentence if its best back-translation shares at least
a third of its word n-grams (one to four words) with the original.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from inspect import signature
from pathlib import Path
from typing import Any

LEAST_SHARED = 0.33
AT_ONCE = 2_000


def training_text() -> Any:
    """The functions of training_text.py."""
    spec = importlib.util.spec_from_file_location("training_text", Path(__file__).with_name("training_text.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["training_text"] = module
    spec.loader.exec_module(module)
    return module


TEXT = training_text()


def read(path: str) -> list[str]:
    """The lines of a file, plain or .xz."""
    return list(TEXT.lines(Path(path)))


def write(path: str, lines: Iterator[str] | list[str]) -> None:
    """Write lines."""
    TEXT.write(Path(path), lines)


def alternatives(line: str) -> tuple[str, list[str]]:
    """A source and its translations."""
    plain = json.loads(line)
    return plain["source"], list(dict.fromkeys(one["text"] for one in plain["n_best"] if one["text"]))


def flatten(made: str, out: str) -> None:
    """Each translation once."""
    write(out, list(dict.fromkeys(text for line in read(made) for text in alternatives(line)[1])))


def nearness(text: str, reference: str) -> float:
    """The share of common word n-grams."""
    runs, wanted = TEXT.runs_of_words(text.lower()), TEXT.runs_of_words(reference.lower())
    return float((runs & wanted).total() / max(runs.total(), wanted.total(), 1))


def best_round(task: list[tuple[str, list[tuple[str, str]]]]) -> list[tuple[str, str, float]]:
    """For each sentence the Chinese translation whose back-translation is nearest to it."""
    found = []
    for english, ways in task:
        scored = [(nearness(back, english), chinese) for chinese, back in ways]
        if scored:
            value, chinese = max(scored, key=lambda one: one[0])
            found.append((english, chinese, value))
    return found


def in_processes(work: Any, items: list[Any]) -> Iterator[Any]:
    """The results of `work` on portions of the items, in order, on all cores."""
    with ProcessPoolExecutor() as pool:
        for part in pool.map(work, [items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE)]):
            yield from part


def round_trip(made: str, chinese: str, english: str, kept: str) -> None:
    """Write the pairs that pass the round trip."""
    back = dict(zip(read(chinese), read(english), strict=True))
    items = []
    for line in read(made):
        source, ways = alternatives(line)
        items.append((source, [(way, back[way]) for way in ways if way in back and TEXT.variety(way, 4) > 0.8]))
    found = list(in_processes(best_round, items))
    counted = Counter(int(value * 10) for *_, value in found)
    sys.stderr.write(f"{kept}: tenths of runs shared {sorted(counted.items())}\n")
    good = [(english, chinese) for english, chinese, value in found if value >= LEAST_SHARED]
    write(f"{kept}.en", [english for english, _ in good])
    write(f"{kept}.zh", [chinese for _, chinese in good])


def nearest_of(task: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The translations nearest to the reference."""
    found = []
    for line, reference in task:
        source, ways = alternatives(line)
        if ways:
            best = max(ways, key=lambda way: nearness(way, reference))
            if TEXT.variety(best, 8) >= min(0.85, TEXT.variety(source, 8)):
                found.append((source, best))
    return found


def nearest(made: str, reference: str, source: str, target: str) -> None:
    """Write sources and the translations nearest to the reference."""
    found = list(in_processes(nearest_of, list(zip(read(made), read(reference), strict=True))))
    write(source, [one for one, _ in found])
    write(target, [TEXT.plain(one) if target.endswith(".en") else one for _, one in found])


def is_sound(chinese: str, english: str) -> bool:
    """Whether a translation has no loops, no foreign text, a usual length, and the numbers of the Chinese."""
    numbers = re.findall(r"\d+(?![\d,.]*\s*[十百千万亿])", chinese.replace(",", ""))
    figures = english.replace(",", "")
    return (
        bool(english)
        and not re.search(r"[\u4e00-\u9fff⁇\ufffd]", english)
        and TEXT.variety(english, 10) >= 0.85
        and not re.search(r"(.{4,}?)\1\1", english)
        and 0.3 <= (len(english) + 12) / (3.2 * len(chinese) + 12) <= 2.2
        and all(number in figures for number in numbers)
    )


def sound(source: str, made: str, kept: str) -> None:
    """Write the pairs that look sound."""
    pairs = [(one, TEXT.plain(other)) for one, other in zip(read(source), read(made), strict=True)]
    good = [pair for pair in pairs if is_sound(*pair)]
    sys.stderr.write(f"{kept}: {len(good)} of {len(pairs)}\n")
    write(f"{kept}.zh", [one for one, _ in good])
    write(f"{kept}.en", [other for _, other in good])


def words(source: str, kinds: str, made: str, kept: str) -> None:
    """Word pairs into English; into Chinese the most frequent word for each English one (KEPT-back)."""
    pairs = []
    for chinese, kind, english in zip(read(source), read(kinds), read(made), strict=True):
        text = english.strip().rstrip(".!").strip()
        if not re.fullmatch(r"[A-Za-z][A-Za-z' \-]{1,40}", text) or len(text.split()) > 1 + len(chinese):
            continue
        keeps = (kind.startswith("n") and kind in ("ns", "nt", "nz")) or text.isupper()
        pairs.append((chinese, text if keeps else text[:1].lower() + text[1:]))
    first: dict[str, str] = {}
    for chinese, english in pairs:
        first.setdefault(english.lower().removeprefix("the "), chinese)
    back = [(chinese, english) for chinese, english in pairs if first[english.lower().removeprefix("the ")] == chinese]
    for name, found in ((kept, pairs), (f"{kept}-back", back)):
        sys.stderr.write(f"{name}: {len(found)} words\n")
        write(f"{name}.zh", [one for one, _ in found])
        write(f"{name}.en", [other for _, other in found])


def plain(source: str, out: str) -> None:
    """Write the lines with plain quotation marks and dashes."""
    write(out, [TEXT.plain(line) for line in read(source)])


def main(arguments: list[str]) -> None:
    """Run the command line."""
    commands: dict[str, Callable[..., None]] = {
        "flatten": flatten,
        "round": round_trip,
        "nearest": nearest,
        "sound": sound,
        "words": words,
        "plain": plain,
    }
    name, *given = arguments or [""]
    if name not in commands or len(given) != len(signature(commands[name]).parameters):
        sys.exit(f"select_translations.py: say what its first lines show, not {' '.join(arguments)!r}.\n{__doc__}")
    commands[name](*given)


if __name__ == "__main__":
    main(sys.argv[1:])
