"""Language identification: by script, and for languages of the same script by words and character trigrams.

    detect_language("Guten Morgen", among=("en", "de", "zh")) == ("de", 0.99…)

The cost of a text in a language is the sum of -ln p over its words, where p interpolates the word's relative frequency
with a character trigram model. The language of the lowest cost wins. The tables of English and German are in
`language_profiles.txt`, which `.ci/language_profiles.py` writes; other languages have a list of frequent words. The
result is deterministic and needs no network.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

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
SCRIPTS_BY_LANGUAGE = {language: script.split() for script, languages in SCRIPTS.items() for language in languages}
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
DISTINCTIVE_WORDS = {
    language: frozenset(words.split())
    for language, words in {
        "fr": "bonjour bonsoir beaucoup aujourd très avec où ça être nous sont cette",
        "es": "gracias buenas días cómo qué dónde está señor pero también",
        "it": "grazie buongiorno buonasera perché così anche molto questo",
        "pt": "olá obrigado obrigada você não são muito também",
        "nl": "goedemorgen bedankt alsjeblieft gaat wij deze",
    }.items()
}
"""Words that are rare in English and German sentences, unlike "ciao"; each counts as two frequent words."""

PROFILES = Path(__file__).with_name("language_profiles.txt")
COST_SCALE, FIRST_COST, NO_COST = 4, 48, "~"
"""In the file, the cost c is the character with code `FIRST_COST` + `COST_SCALE` · c; `NO_COST` is a missing entry."""
UNSEEN_TRIGRAM_COST = 7.5
LETTER_MODEL_WEIGHT = 0.3
"""Weight of the trigram model in the interpolation; the rest is that of the word table."""
MAX_WORD_COST = 6.0
"""No single word, such as a name, counts more than this against a language."""
MIN_FREQUENT_WORDS = 2
"""Frequent words that a language without a profile needs to win against one with a profile."""
MAX_WORDS_PER_FREQUENT_WORD = 5
"""And most words of the text for each of them."""
MAX_CHARACTERS = 300
"""Only the beginning of longer texts is used."""
HAN_WEIGHT = 4.0
"""How many letters of another script a Chinese character outweighs: Chinese texts contain many Latin names."""
MIN_KANA_SHARE = 0.1
"""Share of kana among kana and Chinese characters from which a text is Japanese."""

CLEAR_CONFIDENCE = 0.999
"""Confidence from which a language in Latin script is clear: short names and titles often reach 0.99."""
CLEAR_SCRIPT_SHARE = 0.8
"""Share of letters in one script from which a language with its own script is clear."""

_WORD, _LETTER = re.compile(r"[^\W\d_]+"), re.compile("[A-Za-z]")
_LANGUAGES_OF_WORD = {
    word: tuple(language for language, words in FREQUENT_WORDS.items() if word in words)
    for word in frozenset().union(*FREQUENT_WORDS.values())
}
_JAPANESE = "CJK HIRAGANA KATAKANA"


def detect_language(text: str, among: Sequence[str] | None = None) -> tuple[str | None, float]:
    """The language of a text and a confidence from 0 to 1; `among`: the codes to choose from, by default all known.

    (None, 0.0) for a text without letters, or in a script of none of the languages.
    """
    first = _WORD.search(text)
    beginning = text[first.start() : first.start() + MAX_CHARACTERS] if first else ""
    script, share = script_of(beginning)
    candidates = _codes_in_script(tuple(among) if among is not None else tuple(SCRIPTS_BY_LANGUAGE), script)
    if script is None or not candidates:
        return None, 0.0
    if len(candidates) == 1:
        return next(iter(candidates)), share
    if script != "LATIN":
        return next(iter(candidates)), share / len(candidates)
    language, confidence = _detect_latin(_WORD.findall(beginning.lower()), tuple(dict.fromkeys(candidates.values())))
    return next(code for code in candidates if candidates[code] == language), confidence * share


def is_clear(text: str, confidence: float | None, min_words: int) -> bool:
    """Whether the language of a text is beyond doubt; `confidence` as detected, None if the language was given.

    A text in Latin script needs `min_words` words: names, titles and signatures are often in another language than
    the text around them.
    """
    script = script_of(text[:MAX_CHARACTERS])[0]
    if script is None:
        return False
    if script != "LATIN":
        return confidence is None or confidence >= CLEAR_SCRIPT_SHARE
    is_confident = confidence is None or confidence >= CLEAR_CONFIDENCE
    return is_confident and len(_WORD.findall(text[:MAX_CHARACTERS])) >= min_words


@lru_cache(maxsize=1000)
def can_detect(languages: tuple[str, ...]) -> bool:
    """Whether these languages can be distinguished: each has its own script, or a profile or word list."""
    subtags = [primary_subtag(code) for code in languages]
    if len(set(subtags)) < len(subtags) or any(code not in SCRIPTS_BY_LANGUAGE for code in subtags):
        return False
    num_languages = Counter(script for code in subtags for script in _scripts_of(code))
    described = {*_profiles().languages, *FREQUENT_WORDS}
    return all(
        num_languages[script] == 1 or (script == "LATIN" and code in described)
        for code in subtags
        for script in _scripts_of(code)
    )


def other_detectable_languages(languages: Sequence[str]) -> tuple[str, ...]:
    """Languages in Latin script that can be detected besides these; none if one of these has no profile.

    (A language with only a word list is detected less reliably, and would lose against languages with a profile.)
    """
    subtags = {primary_subtag(code) for code in languages}
    latin = {code for code in subtags if "LATIN" in _scripts_of(code)}
    if not latin <= set(_profiles().languages):
        return ()
    return tuple(code for code in FREQUENT_WORDS if code not in subtags)


def script_of(text: str) -> tuple[str | None, float]:
    """The script of a text (a key of `SCRIPTS`) and its share of the letters; (None, 0.0) without letters."""
    if text.isascii():
        return ("LATIN", 1.0) if _LETTER.search(text) else (None, 0.0)
    counts: Counter[str] = Counter()
    for character, count in Counter(text).items():
        if script := _script_of_letter(character):
            counts[script] += count
    kana, han = counts.pop("HIRAGANA", 0) + counts.pop("KATAKANA", 0), counts["CJK"]
    if kana and kana >= MIN_KANA_SHARE * (kana + han):
        counts[_JAPANESE] = kana + han
        del counts["CJK"]
    if not counts:
        return None, 0.0
    weights = {script: n * (HAN_WEIGHT if script in ("CJK", _JAPANESE) else 1.0) for script, n in counts.items()}
    script = max(weights, key=lambda key: weights[key])
    return script, weights[script] / sum(weights.values())


@lru_cache(maxsize=20_000)
def _script_of_letter(character: str) -> str | None:
    """The first word of the letter's Unicode name; None for other characters."""
    if not character.isalpha():
        return None
    first = unicodedata.name(character, "OTHER").split(" ")[0]
    return {"FULLWIDTH": "LATIN", "IDEOGRAPHIC": "CJK"}.get(first, first)


@lru_cache(maxsize=1000)
def _codes_in_script(codes: tuple[str, ...], script: str | None) -> dict[str, str]:
    """The codes of languages that use a script, with their primary subtags."""
    return {code: primary_subtag(code) for code in codes if script in _scripts_of(primary_subtag(code))}


def _scripts_of(language: str) -> tuple[str, ...]:
    """The scripts of a language: keys of `SCRIPTS`."""
    return tuple(script for script, languages in SCRIPTS.items() if language in languages)


def primary_subtag(code: str) -> str:
    """A language code without region and script: "zh" for "zh-Hans"."""
    return code.lower().replace("_", "-").split("-")[0]


def _detect_latin(words: Sequence[str], languages: tuple[str, ...]) -> tuple[str, float]:
    """The best language by profiles, unless the frequent words of one without a profile are stronger evidence."""
    profiled = [language for language in languages if language in _profiles().languages]
    listed = [language for language in languages if language in FREQUENT_WORDS and language not in profiled]
    num_frequent = Counter(language for word in words for language in _LANGUAGES_OF_WORD.get(word, ()))
    num_distinctive = {lang: sum(word in DISTINCTIVE_WORDS.get(lang, ()) for word in words) for lang in listed}
    hits = {language: num_frequent[language] + 2 * num_distinctive[language] for language in listed}
    best, confidence = _detect_by_profiles(words, profiled) if profiled else (languages[0], 1 / len(languages))
    if not any(hits.values()):
        return best, confidence
    other = max(hits, key=lambda language: hits[language])
    best_hits = num_frequent[best] if profiled else 0
    if profiled and (
        hits[other] < MIN_FREQUENT_WORDS
        or hits[other] <= 2 * best_hits
        or len(words) > MAX_WORDS_PER_FREQUENT_WORD * hits[other]
    ):
        return best, confidence
    return other, hits[other] / (sum(hits.values()) + best_hits)


def _detect_by_profiles(words: Sequence[str], languages: Sequence[str]) -> tuple[str, float]:
    """The language of the lowest cost, and its probability among these languages."""
    word_costs = [_word_costs(word) for word in words]
    columns = {language: _profiles().languages.index(language) for language in languages}
    costs = {language: sum(cost[column] for cost in word_costs) for language, column in columns.items()}
    best = min(costs, key=lambda language: costs[language])
    return best, 1 / sum(math.exp(max(costs[best] - cost, -700.0)) for cost in costs.values())


@lru_cache(maxsize=50_000)
def _word_costs(word: str) -> tuple[float, ...]:
    """The cost of a word in each language with a profile, relative to the lowest."""
    profiles = _profiles()
    padded = f"  {word[:40]} "
    unseen = NO_COST * len(profiles.languages)
    trigram_costs = [
        _parse_costs(profiles.trigrams.get(padded[i : i + 3], unseen), UNSEEN_TRIGRAM_COST)
        for i in range(len(padded) - 2)
    ]
    costs = [sum(trigram[n] for trigram in trigram_costs) for n in range(len(profiles.languages))]
    if entry := profiles.words.get(word):
        costs = [
            -math.log(LETTER_MODEL_WEIGHT * math.exp(-letter_cost) + (1 - LETTER_MODEL_WEIGHT) * math.exp(-table_cost))
            for letter_cost, table_cost in zip(costs, _parse_costs(entry, math.inf), strict=True)
        ]
    limit = MAX_WORD_COST if word.isascii() else 2 * MAX_WORD_COST  # a letter such as ü is stronger evidence
    return tuple(min(cost - min(costs), limit) for cost in costs)


@dataclass(frozen=True)
class _Profiles:
    """The tables of `language_profiles.txt`: costs as the file spells them, a character for each language."""

    languages: tuple[str, ...]
    words: Mapping[str, str]
    trigrams: Mapping[str, str]


@cache
def _parse_costs(entry: str, missing: float) -> tuple[float, ...]:
    """The costs of a table entry; `missing` for languages without one."""
    return tuple(missing if code == NO_COST else (ord(code) - FIRST_COST) / COST_SCALE for code in entry)


@cache
def _profiles() -> _Profiles:
    """The tables. Costs are parsed when needed, since a program needs few of them."""
    lines = PROFILES.read_text(encoding="utf-8").splitlines()
    tables: dict[str, dict[str, str]] = {"words": {}, "trigrams": {}}
    table = tables["words"]
    for line in lines[1:]:
        key, _, costs = line.partition("\t")
        if costs:
            table[key.replace("_", " ")] = costs
        else:
            table = tables[key]
    return _Profiles(tuple(lines[0].split()[1:]), tables["words"], tables["trigrams"])
