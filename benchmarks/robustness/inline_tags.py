"""How often an inline tag surrounds the translation of the words that it surrounded in the source.

    python benchmarks/robustness/inline_tags.py [--model MODEL] > table.md

Each sentence of `inline_tags.tsv` has one tagged word or phrase and the words that may translate it. It goes through
the model as a paragraph of HTML. Translations without any of these words are skipped.
Right: all of them are inside the tag. Exact: no other word is, except articles, prepositions and the like.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from heedful.decoding.translator import Translator
from heedful.paper.text_tables import markdown_table
from heedful.text.documents.tag_placement import SMALL_WORDS

SENTENCES = Path(__file__).with_suffix(".tsv")
TAGGED = re.compile(r"<b>(.*?)</b>")


class Example(NamedTuple):
    """A sentence of HTML and the accepted translations of its tagged words."""

    direction: str
    source: str
    accepted: list[list[str]]


class Judgement(NamedTuple):
    """The result for one tag."""

    is_known: bool
    is_right: bool
    is_exact: bool


def examples() -> list[Example]:
    """All sentences."""
    found = []
    for line in SENTENCES.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            direction, source, accepted = line.split("\t")
            page = "<p>" + source.replace("[", "<b>").replace("]", "</b>") + "</p>"
            found.append(Example(direction, page, [one.split(" ") for one in accepted.split("|")]))
    return found


def judge(example: Example, translation: str) -> Judgement:
    """Whether the tag is at the correct position."""
    text = re.sub(r"<[^>]*>", "", translation).lower()
    tag = TAGGED.search(translation)
    inside = tag[1].lower() if tag else ""
    known = [words for words in example.accepted if all(word in text for word in words)]
    right = [words for words in known if all(word in inside for word in words)]
    if example.direction.endswith("zh"):
        exact = any("".join(words) == inside for words in right)
    else:
        content = [word for word in re.findall(r"[\w'-]+", inside) if word not in SMALL_WORDS]
        exact = any(len([word for word in words if word not in SMALL_WORDS]) == len(content) for words in right)
    return Judgement(bool(known), bool(right), exact)


def main() -> None:
    """Print the table, and failures on stderr."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    translator = Translator.load(parser.parse_args().model)
    rows = []
    every = examples()
    for direction in dict.fromkeys(example.direction for example in every):
        source, target = direction.split("-")
        chosen = [example for example in every if example.direction == direction]
        page = "\n".join(example.source for example in chosen)
        found = str(translator.translate_document(page, "html", target_language=target, source_language=source))
        judged = [judge(*pair) for pair in zip(chosen, found.split("\n"), strict=True)]
        for example, translation, judgement in zip(chosen, found.split("\n"), judged, strict=True):
            if not judgement.is_exact:
                kind = (
                    "wrong" if judgement.is_known and not judgement.is_right else "wide" if judgement.is_known else "?"
                )
                print(f"{kind}: {example.source} → {translation}", file=sys.stderr)
        known = sum(one.is_known for one in judged)
        right, exact = sum(one.is_right for one in judged), sum(one.is_exact for one in judged)
        rows.append(
            (f"{source} → {target}", str(len(judged)), str(known), f"{right / known:.0%}", f"{exact / known:.0%}")
        )
    print(markdown_table(("direction", "sentences", "with a known word", "right", "exact"), rows))


if __name__ == "__main__":
    main()
