"""Looks at whole corpora for what no single line shows: sides that look swapped, a wrong language, lines out of step.

All of it is judged on a few thousand pairs of each corpus and ends in warnings, never in an error.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from heedful.text.corpus import Direction, SentencePair

_ENOUGH = 50  # pairs below which nothing is said
SCRIPTS = {
    "CJK": ("zh", "lzh", "yue", "wuu", "cmn"),
    "CJK HIRAGANA KATAKANA": ("ja",),
    "HANGUL": ("ko",),
    "CYRILLIC": ("ru", "uk", "be", "bg", "mk", "kk", "ky", "mn", "tg"),
    "GREEK": ("el",),
    "ARABIC": ("ar", "fa", "ur", "ps", "ug"),
    "HEBREW": ("he", "yi"),
    "DEVANAGARI": ("hi", "mr", "ne", "sa"),
    "THAI": ("th",),
    "GEORGIAN": ("ka",),
    "ARMENIAN": ("hy",),
    "BENGALI": ("bn", "as"),
    "TAMIL": ("ta",),
    "TELUGU": ("te",),
    "LATIN": tuple("en de fr es it pt nl sv da no nb nn fi is pl cs sk hu ro hr sl et lv lt tr vi id ms ca eu".split()),
}
SCRIPTS_OF = {language: script.split() for script, languages in SCRIPTS.items() for language in languages}
FREQUENT_WORDS = {
    language: frozenset(words.split())
    for language, words in {
        "en": "the of and to a is that it you was for are with he she they this have not be what do",
        "de": "der die das und ist nicht ich sie es ein eine zu den mit auf für sich dem von hat wie du des je",
        "fr": "le la les de des et est que je il elle un une pas dans vous pour qui ne du ce au",
        "es": "el los las de y es que en un una no por con para lo se su está como más",
        "it": "il di che è la un una non per sono gli con del ho come più mi si ha della",
        "pt": "o os de que e é um uma não para com do da em você ele por mais se ao",
        "nl": "de het een en van is dat ik niet je zijn op te hij met voor maar heb wat",
    }.items()
}
TELLING_WORDS = {
    language: frozenset(words.split())
    for language, words in {
        "fr": "bonjour bonsoir beaucoup aujourd très avec où ça être nous sont cette",
        "es": "gracias buenas días cómo qué dónde está señor pero también",
        "it": "grazie buongiorno buonasera perché così anche molto questo",
        "pt": "olá obrigado obrigada você não são muito também",
        "nl": "goedemorgen bedankt alsjeblieft gaat wij deze",
    }.items()
}
"""Words that hardly stand in a sentence of English or German, unlike *ciao*: one is worth two frequent ones."""


class EvenSample:
    """At most a few thousand pairs, spread evenly over a stream of any length."""

    def __init__(self, limit: int = 2000) -> None:
        self._limit = limit
        self._stride = 1
        self._count = 0
        self.pairs: list[SentencePair] = []

    def add(self, pair: SentencePair) -> None:
        """Offer the next pair of the stream."""
        for _ in self.places(1):
            self.pairs.append(pair)

    def candidates(self, count: int) -> slice:
        """Which of the next `count` pairs may be among `places`; fewer are, if the sample gets full."""
        return slice(-self._count % self._stride, count, self._stride)

    def places(self, count: int) -> Iterator[int]:
        """Of the next `count` pairs of the stream, the places of those to put into `pairs`, each before the next."""
        place = -self._count % self._stride
        while place < count:
            yield place
            place += self._stride
            if len(self.pairs) == 2 * self._limit:
                self.pairs = self.pairs[::2]
                self._stride *= 2
                place = -(-(self._count + place) // self._stride) * self._stride - self._count
        self._count += count


class Profile:
    """What the two sides of a corpus look like: character trigrams, words, and lengths of a sample."""

    def __init__(self, name: str, languages: Direction, pairs: Sequence[SentencePair]) -> None:
        self.name = name
        self.languages = languages
        self.pairs = [SentencePair(source[:300], target[:300]) for source, target in pairs]
        self.lengths = [(len(source), len(target)) for source, target in pairs]

    @cached_property
    def trigrams(self) -> tuple[Counter[str], Counter[str]]:
        """Counts of character trigrams of source and target."""
        return _trigrams(pair.source for pair in self.pairs), _trigrams(pair.target for pair in self.pairs)

    def texts(self) -> tuple[str, str]:
        """All sampled text of source and target."""
        return " ".join(pair.source for pair in self.pairs), " ".join(pair.target for pair in self.pairs)


def suspicions(profiles: Sequence[Profile]) -> list[str]:
    """Everything odd about these corpora, in words."""
    ready = [profile for profile in profiles if len(profile.pairs) >= _ENOUGH]
    found: list[str] = []
    for index, profile in enumerate(ready):
        wrong = _wrong_languages(profile)
        found += wrong + _out_of_step(profile)
        reference = next((other for other in ready[:index] if _comparable(other, profile)), None)
        if not wrong and reference is not None and _swapped(reference, profile):
            found.append(
                f"{profile.name}: source and target look swapped: its source resembles the target of {reference.name}, "
                f"and its target that one's source. Exchange the two files if so."
            )
    return found


def _trigrams(texts: Iterable[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        padded = f" {text.lower()} "
        counts.update(padded[i : i + 3] for i in range(len(padded) - 2))
    return counts


def cosine(first: Counter[str], second: Counter[str]) -> float:
    """Cosine of the angle between two vectors of counts: 1 for the same proportions, 0 for nothing in common."""
    product = sum(count * second[key] for key, count in first.items() if key in second)
    norms = sum(c * c for c in first.values()) ** 0.5 * sum(c * c for c in second.values()) ** 0.5
    return product / norms if norms else 0.0


def _comparable(first: Profile, second: Profile) -> bool:
    return first.languages in (second.languages, second.languages[::-1])


def _swapped(reference: Profile, profile: Profile) -> bool:
    """Whether the sides agree clearly better with the other corpus's sides when exchanged."""
    source, target = profile.trigrams
    if reference.languages != profile.languages:
        source, target = target, source
    straight = cosine(reference.trigrams[0], source) + cosine(reference.trigrams[1], target)
    crossed = cosine(reference.trigrams[0], target) + cosine(reference.trigrams[1], source)
    return crossed > straight + 0.1


def _wrong_languages(profile: Profile) -> list[str]:
    codes = [(code or "").lower().replace("_", "-").split("-")[0] for code in profile.languages]
    texts = profile.texts()
    misfits = [not _in_script(text, code) for text, code in zip(texts, codes, strict=True)]
    exchanged = _in_script(texts[0], codes[1]) and _in_script(texts[1], codes[0]) and all(codes)
    if (all(misfits) and exchanged) or (not any(misfits) and _words_swapped(texts, codes)):
        return [
            f"{profile.name}: source and target look swapped: the source reads like {profile.languages.target}, "
            f"the target like {profile.languages.source}. Exchange the files or the language codes."
        ]
    sides = zip(("source", "target"), profile.languages, misfits, strict=True)
    return [
        f"{profile.name}: the {side} is hardly in the script of {code!r}." for side, code, misfit in sides if misfit
    ]


def _in_script(text: str, code: str) -> bool:
    """Whether at least a fifth of the letters are in a script of the language (true for languages not known here)."""
    scripts = SCRIPTS_OF.get(code)
    letters = Counter(character for character in text if character.isalpha())
    if scripts is None or letters.total() < 100:
        return True
    fitting = sum(n for letter, n in letters.items() if unicodedata.name(letter, "").split(" ")[0] in scripts)
    return 5 * fitting >= letters.total()


def _words_swapped(texts: tuple[str, str], codes: list[str]) -> bool:
    """Whether each side has far more frequent words of the other side's language than of its own."""
    if codes[0] == codes[1] or any(code not in FREQUENT_WORDS for code in codes):
        return False
    own, other = 0, 0
    for text, code, other_code in zip(texts, codes, codes[::-1], strict=True):
        words = Counter(re.findall(r"\w+", text.lower()))
        own_count = sum(words[word] for word in FREQUENT_WORDS[code])
        other_count = sum(words[word] for word in FREQUENT_WORDS[other_code])
        if own_count >= other_count:
            return False
        own, other = own + own_count, other + other_count
    return other > 2 * own + 20


def _out_of_step(profile: Profile) -> list[str]:
    """Long sentences have long translations; where lengths have nothing to do with each other, lines do not match."""
    if len(profile.lengths) < 4 * _ENOUGH:
        return []
    import numpy as np

    logs = np.log(np.asarray(profile.lengths, dtype=np.float64) + 1)
    if logs.std(axis=0).min() < 0.05:
        return []
    correlation = float(np.corrcoef(logs.T)[0, 1])
    if correlation >= 0.15:
        return []
    return [
        f"{profile.name}: lengths of source and target hardly agree (correlation {correlation:.2f}): "
        f"the lines may not be translations of each other. Look at a few."
    ]
