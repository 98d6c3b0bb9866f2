"""Test sets and training corpora of the bundled model: where they are, and whether their checksums match the recipe.

    python benchmarks/quality/bundled_model_sets.py data          # compare the files, plain or .xz, with the list
    python benchmarks/quality/bundled_model_sets.py data --write  # update the list

The list is recipes/bundled-model/corpora.sha256.

Checksums are of the text, so that a compressed file has that of the plain one; `sha256sum -c` understands the list.
The teachers' translations are in distilled/ next to the corpora, and the text derived from both in text/ (see
recipes/bundled-model/run.sh). These files may be missing: a comparison reports them, and --write keeps their listed
checksums. A missing corpus is an error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common.corpus_files import TestSet, candidate_paths, found, lines_of, text_sha256
from heedful.errors import HeedfulError

ROOT = Path(__file__).resolve().parents[2]
CHECKSUMS = ROOT / "recipes/bundled-model/corpora.sha256"
STEPS = ("stage1", "stage2", "teacher2", "stage3", "teacher3", "stage4")
RECIPES = [ROOT / "recipes/bundled-model" / f"{name}.yaml" for name in STEPS]
LEARNED = (("en", "de"), ("de", "en"), ("en", "zh"), ("zh", "en"))
UNSEEN = (("de", "zh"), ("zh", "de"))


def both(name: str, path: str, languages: str) -> list[TestSet]:
    """A language pair in both directions."""
    one, other = languages.split("-")
    return [TestSet(name, path, one, other), TestSet(name, path, other, one)]


SETS = [
    *both("newstest2014", "newstest/newstest2014.en-de", "en-de"),
    *(TestSet("flores200-devtest", "newstest/flores200-devtest", *pair) for pair in (*LEARNED, *UNSEEN)),
    TestSet("newstest2017", "newstest/newstest2017.zh-en", "zh", "en"),
    *both("tatoeba", "tatoeba-en-de/test", "en-de"),
    *both("tatoeba", "tatoeba-en-zh/test", "en-zh"),
    *both("msdocs", "msdocs-en-de/test", "en-de"),
    *both("msdocs", "msdocs-en-zh/test", "en-zh"),
    *both("multi30k-test2016", "multi30k/test2016", "en-de"),
]


def chosen_sets(patterns: Sequence[str]) -> list[TestSet]:
    """The sets whose key starts with or matches one of the patterns; all without patterns."""
    for pattern in patterns:
        if not any(matches(one, pattern) for one in SETS):
            sys.exit(f"--sets: {pattern!r} is none of {', '.join(one.key for one in SETS)}")
    return [one for one in SETS if not patterns or any(matches(one, pattern) for pattern in patterns)]


def matches(one: TestSet, pattern: str) -> bool:
    return one.key.startswith(pattern) or fnmatch(one.key, pattern)


def seen_in_training(data: Path) -> dict[str, dict[str, int]]:
    """For every file of a test set: its lines, and how many of them are also lines of the training texts.

    Such a line has a different translation there: only identical pairs of valid and test are removed before training.
    Derived texts are counted if they exist; the corpora must exist.
    """
    tests = {name: lines_of(data, name) for one in SETS for name in one.files}
    wanted: dict[str, set[str]] = {}
    for name, lines in tests.items():
        wanted.setdefault(name.rpartition(".")[2], set()).update(lines)
    seen: dict[str, set[str]] = {language: set() for language in wanted}
    for name in named_files(("train",)):
        language = name.rpartition(".")[2]
        if language in wanted and not is_left_out(data, name):
            seen[language].update(line for line in lines_of(*place_of(data, name)) if line in wanted[language])
    return {
        name: {"lines": len(lines), "seen": sum(line in seen[name.rpartition(".")[2]] for line in lines)}
        for name, lines in tests.items()
    }


def named_files(parts: Sequence[str] = ("train", "valid", "test")) -> list[str]:
    """Every file named in the recipes, in the order of the steps."""
    texts = [yaml.safe_load(recipe.read_text(encoding="utf-8"))["data"] for recipe in RECIPES]
    corpora = [corpus for text in texts for part in parts for corpus in text.get(part, ())]
    return list(
        dict.fromkeys(corpus[side] for corpus in corpora for side in ("source", "target", "path") if side in corpus)
    )


def stated() -> Iterator[tuple[str, str]]:
    """Checksum and name of every listed file."""
    for line in CHECKSUMS.read_text(encoding="utf-8").splitlines():
        checksum, _, name = line.partition("  ")
        yield checksum, name


def place_of(data: Path, name: str) -> tuple[Path, str]:
    """Folder and name of a file; data/ in the recipes may be another folder, with the other folders next to it."""
    folder, _, file = name.partition("/")
    return (data if folder == "data" else data.parent / folder), file


def is_left_out(data: Path, name: str) -> bool:
    """Whether this is a derived file that does not exist yet; corpora must exist."""
    folder, file = place_of(data, name)
    return folder != data and not any(path.exists() for path in candidate_paths(folder, file))


def checksum_lines(data: Path) -> Iterator[str]:
    """The updated list; missing derived files keep their listed checksum."""
    known = {name: checksum for checksum, name in stated()} if CHECKSUMS.exists() else {}
    for name in named_files():
        kept = known.get(name) if is_left_out(data, name) else None
        yield f"{kept or text_sha256(found(*place_of(data, name)))}  {name}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of the corpora")
    parser.add_argument("--write", action="store_true", help="write the list instead of comparing with it")
    arguments = parser.parse_args()
    if arguments.write:
        CHECKSUMS.write_text("".join(checksum_lines(arguments.data)), encoding="utf-8")
        return
    others = 0
    for checksum, name in stated():
        if is_left_out(arguments.data, name):
            print(f"{name}: missing; recipes/bundled-model/run.sh generates it", flush=True)
            continue
        same = text_sha256(found(*place_of(arguments.data, name))) == checksum
        others += not same
        print(f"{name}: {'the same' if same else 'DIFFERENT'}", flush=True)
    if others:
        sys.exit(f"{others} files differ from those of the recipe")


if __name__ == "__main__":
    try:
        main()
    except HeedfulError as error:
        sys.exit(str(error))
