"""How often the terms of a glossary stand in translations, in the place of the usual ones, and what that costs.

    python -m benchmarks.quality.glossary --source test.en --reference test.de --from en --to de
    python -m benchmarks.quality.glossary --source test.en --reference test.de --from en --to de --weights 0 1 2 4 8

Two glossaries are made from the word alignments of a test set, with up to two terms a sentence:

reference   each term is translated as in the reference. This is what a glossary is for.
arbitrary   each term is translated as some other word of the references, which stands in the reference in place of the
            right one. No model would choose it, so this is the hardest case.

present     the term stands in the translation, as a whole word
in place    the term is present, and the word of the translation without glossary is not
BLEU        of the translations without and with the glossary; of the arbitrary terms, with a reference that has them
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import sacrebleu

from heedful import Translator
from heedful.decoding.engines.native_engine import NativeDecodingEngine
from heedful.decoding.translation import Translation
from heedful.text.glossary import is_inside_word, is_word_character

MIN_LETTERS = 5
MAX_TERMS = 2
"""Of one sentence."""


class Term(NamedTuple):
    """A word of a source, its place in the reference, and the translation that is asked for."""

    source: str
    place: tuple[int, int]
    target: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--from", dest="source_language", required=True)
    parser.add_argument("--to", dest="target_language", required=True)
    parser.add_argument("--model", help="directory or name; by default the bundled models")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--weights", type=float, nargs="*", help="placement weights to compare, besides the default")
    given = parser.parse_args()
    pairs = read_pairs(given.source, given.reference, given.sentences)
    translator = Translator.load(given.model, engine="auto", device="cpu").translator_for(
        given.source_language, given.target_language
    )
    languages: dict[str, Any] = {"source_language": given.source_language, "target_language": given.target_language}
    plain, seconds = translate(translator, [pair[0] for pair in pairs], [()] * len(pairs), languages)
    reference = reference_terms(translator, pairs, languages)
    sys.stdout.write(f"{len(pairs)} sentences, without a glossary {len(pairs) / seconds:.0f} sentences/s\n\n")
    header = "| terms | weight | number | present before | present | in place | BLEU before | BLEU | sentences/s |"
    sys.stdout.write(f"{header}\n|---|---|---|---|---|---|---|---|---|\n")
    engine = translator.engine.native  # type: ignore[attr-defined]
    assert isinstance(engine, NativeDecodingEngine)
    default = engine.placement
    for name, terms in (("reference", reference), ("arbitrary", arbitrary_terms(reference))):
        references = [with_terms(pair[1], row) for pair, row in zip(pairs, terms, strict=True)]
        for weight in given.weights or [default.weight]:
            engine.placement = replace(default, weight=weight)
            found, seconds = translate(translator, [pair[0] for pair in pairs], terms, languages)
            number = sum(map(len, terms))
            cells = [
                name,
                f"{weight:g}",
                f"{number}",
                f"{count_present(plain, terms) / number:.1%}",
                f"{count_present(found, terms) / number:.1%}",
                f"{count_in_place(plain, found, terms, pairs) / number:.1%}",
                f"{bleu(plain, [pair[1] for pair in pairs], given.target_language):.1f}",
                f"{bleu(found, references, given.target_language):.1f}",
                f"{len(pairs) / seconds:.0f}",
            ]
            sys.stdout.write(f"| {' | '.join(cells)} |\n")
            sys.stdout.flush()


def read_pairs(source: Path, reference: Path, count: int) -> list[tuple[str, str]]:
    """The first sentences of a test set that are neither very short nor very long."""
    lines = zip(source.read_text("utf-8").split("\n"), reference.read_text("utf-8").split("\n"), strict=True)
    return [(one, other) for one, other in lines if 20 <= len(one) <= 250 and other][:count]


def translate(
    translator: Translator, texts: Sequence[str], terms: Sequence[Sequence[Term]], languages: dict[str, Any]
) -> tuple[list[Translation], float]:
    """Translate each text with its own terms, one by one; and the seconds that this takes."""
    start = time.perf_counter()
    found = []
    for text, row in zip(texts, terms, strict=True):
        glossary = [(term.source, term.target) for term in row]
        found += translator.translate([text], glossary=glossary, align=True, **languages)
    return found, time.perf_counter() - start


def reference_terms(
    translator: Translator, pairs: Sequence[tuple[str, str]], languages: dict[str, Any]
) -> list[list[Term]]:
    """Words that are aligned with one word of the reference only, and this word with no other."""
    rng = random.Random(1)
    found = []
    for source, reference in pairs:
        [forced] = translator.translate(
            [source], target_prefix=[reference], align=True, split="never", checks=False, protect=False, **languages
        )
        links = forced.word_alignment or []
        terms = [
            Term(source[slice(*one)], other, reference[slice(*other)])
            for one, other in links
            if sum(one == first for first, _ in links) == 1 and sum(other == second for _, second in links) == 1
            if other[1] <= len(reference) and forced.text.startswith(reference)
        ]
        terms = [term for term in terms if is_term(term, source)]
        found.append(sorted(rng.sample(terms, min(MAX_TERMS, len(terms))), key=lambda term: term.place))
    return found


def is_term(term: Term, source: str) -> bool:
    """Whether a word is long enough, consists of letters and is in the sentence once."""
    if not (term.source.isalpha() and term.target.isalpha()) or source.lower().count(term.source.lower()) > 1:
        return False
    long_enough = [
        len(word) >= (MIN_LETTERS if is_word_character(word[0]) else 2) for word in (term.source, term.target)
    ]
    return all(long_enough)


def arbitrary_terms(terms: Sequence[Sequence[Term]]) -> list[list[Term]]:
    """The same terms with the translations of others, of the same kind: in upper or lower case."""
    rng = random.Random(2)
    targets = [term.target for row in terms for term in row]
    found = []
    for row in terms:
        here = {term.target for term in row}
        others = []
        for term in row:
            alike = [one for one in targets if one not in here and one[0].isupper() == term.target[0].isupper()]
            others.append(term._replace(target=rng.choice(alike)))
            here.add(others[-1].target)
        found.append(others)
    return found


def with_terms(reference: str, terms: Sequence[Term]) -> str:
    """A reference with the translations that are asked for."""
    for term in reversed(terms):
        reference = reference[: term.place[0]] + term.target + reference[term.place[1] :]
    return reference


def occurs(word: str, text: str) -> bool:
    """Whether a word stands in a text, at the beginning also with a capital."""
    return any(
        not is_inside_word(text, match.start()) and not is_inside_word(text, match.end())
        for form in (word, word[0].upper() + word[1:])
        for match in re.finditer(re.escape(form), text)
        if form == word or match.start() == 0
    )


def count_present(translations: Sequence[Translation], terms: Sequence[Sequence[Term]]) -> int:
    """How many terms stand in their translations."""
    return sum(occurs(term.target, one.text) for one, row in zip(translations, terms, strict=True) for term in row)


def count_in_place(
    plain: Sequence[Translation],
    found: Sequence[Translation],
    terms: Sequence[Sequence[Term]],
    pairs: Sequence[tuple[str, str]],
) -> int:
    """How many terms stand in their translations in place of the word without glossary."""
    count = 0
    for before, after, row, (source, _) in zip(plain, found, terms, pairs, strict=True):
        for term in row:
            start = source.index(term.source)
            usual = {
                before.text[slice(*other)]
                for (first, end), other in before.word_alignment or ()
                if first < start + len(term.source) and start < end and len(before.text[slice(*other)]) > 1
            }
            wanted = {one.target for one in row}
            gone = not any(occurs(word, after.text) for word in usual if word not in wanted)
            count += occurs(term.target, after.text) and (gone or term.target in usual)
    return count


def bleu(translations: Sequence[Translation], references: Sequence[str], language: str) -> float:
    """Corpus BLEU."""
    options: dict[str, Any] = {"tokenize": "zh"} if language == "zh" else {}
    return float(sacrebleu.corpus_bleu([one.text for one in translations], [list(references)], **options).score)


if __name__ == "__main__":
    main()
