"""Which language a text is in: by its script, and among languages of one script by its words and runs of letters.

    detect_language("Guten Morgen", among=("en", "de", "zh")) == ("de", 0.99…)

A text costs each language the sum over its words of -ln p, where p mixes the word's share among all words with a model
of its letters, each after the two before it; the cheaper language wins. The tables are in `language_profiles.txt`, and
`.ci/language_profiles.py` says how they were counted. Nothing is drawn, learned or fetched: equal texts, equal answers.
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
"""Words that hardly occur in English or German sentences, unlike *ciao*: each counts as two frequent words."""

PROFILES = Path(__file__).with_name("language_profiles.txt")
STEPS, FIRST, MISSING = 4, 48, "~"
"""A cost is a character: so many steps of a quarter above the first."""
UNSEEN = 7.5
"""Cost of a run of letters that a language's table does not hold."""
OF_LETTERS = 0.3
"""How far a word is believed to be a new one, made of letters, rather than one of the frequent."""
MOST_OF_A_WORD = 6.0
"""No single word, be it a name, speaks more than this against a language."""
LEAST_FREQUENT, MOST_BETWEEN = 2, 5
"""Frequent words that a language without a table must show, and most words of the text to one of them."""
MOST_CHARACTERS = 300  # a longer text shows its language in its beginning
HAN_WEIGHT = 4.0
"""Letters of another script that one Chinese character outweighs: Chinese texts are full of Latin names."""
LEAST_KANA = 0.1
"""Share of kana among kana and Chinese characters from which a text is Japanese."""

CLEAR = 0.999
"""How sure a language in Latin letters must be to be clear: short names and titles often reach 0.99."""
CLEAR_SHARE = 0.8
"""Share of letters in one script that makes a language clear where the script decides."""

_WORD, _LETTER = re.compile(r"[^\W\d_]+"), re.compile("[A-Za-z]")
_IN_LISTS = {
    word: tuple(language for language, words in FREQUENT_WORDS.items() if word in words)
    for word in frozenset().union(*FREQUENT_WORDS.values())
}
"""The languages in whose lists a frequent word stands."""


def detect_language(text: str, among: Sequence[str] | None = None) -> tuple[str | None, float]:
    """The language of a text and how sure that is, from 0 to 1; `among`: the codes to choose from, else all known.

    (None, 0.0) for a text without letters, and for one in a script of none of these languages.
    """
    first = _WORD.search(text)
    beginning = text[first.start() : first.start() + MOST_CHARACTERS] if first else ""
    script, share = script_of(beginning)
    fitting = _fitting(tuple(among) if among is not None else tuple(SCRIPTS_OF), script)
    if script is None or not fitting:
        return None, 0.0
    if len(fitting) == 1:
        return next(iter(fitting)), share
    if script != "LATIN":
        return next(iter(fitting)), share / len(fitting)
    plain, sure = _among_latin(_WORD.findall(beginning.lower()), tuple(dict.fromkeys(fitting.values())))
    return next(code for code in fitting if fitting[code] == plain), sure * share


def is_clear(text: str, confidence: float | None, least_words: int) -> bool:
    """Whether a text shows its language clearly; `confidence` as detected, None for a language that is not chosen from.

    In Latin letters that takes some words; names, titles and signatures are often in another language than the text.
    """
    script = script_of(text[:MOST_CHARACTERS])[0]
    if script is None:
        return False
    if script != "LATIN":
        return confidence is None or confidence >= CLEAR_SHARE
    return (confidence is None or confidence >= CLEAR) and len(_WORD.findall(text[:MOST_CHARACTERS])) >= least_words


@lru_cache(maxsize=1000)
def can_detect(languages: tuple[str, ...]) -> bool:
    """Whether these languages can be told apart: each by its script, or of one script all by tables or word lists."""
    plain = [plain_code(code) for code in languages]
    if len(set(plain)) < len(plain) or any(code not in SCRIPTS_OF for code in plain):
        return False
    by_key = Counter(key for code in plain for key in _keys_of(code))
    known = {*_profiles().languages, *FREQUENT_WORDS}
    return all(by_key[key] == 1 or (key == "LATIN" and code in known) for code in plain for key in _keys_of(code))


def strangers_to(languages: Sequence[str]) -> tuple[str, ...]:
    """Languages in Latin script, beside these, that a text could be told to be in; none if one of these lacks tables.

    (What has a list of words alone is found less surely, and would lose against languages with tables.)
    """
    own = {plain_code(code) for code in languages}
    latin = {code for code in own if "LATIN" in _keys_of(code)}
    if not latin <= set(_profiles().languages):
        return ()
    return tuple(code for code in FREQUENT_WORDS if code not in own)


def script_of(text: str) -> tuple[str | None, float]:
    """The script that a text is in, as `SCRIPTS` names it, and the share of its letters; None without any letter."""
    if text.isascii():
        return ("LATIN", 1.0) if _LETTER.search(text) else (None, 0.0)
    counts: Counter[str] = Counter()
    for character, count in Counter(text).items():
        if script := _script(character):
            counts[script] += count
    kana, han = counts.pop("HIRAGANA", 0) + counts.pop("KATAKANA", 0), counts["CJK"]
    if kana and kana >= LEAST_KANA * (kana + han):
        counts[_JAPANESE] = kana + han
        del counts["CJK"]
    if not counts:
        return None, 0.0
    weights = {key: n * (HAN_WEIGHT if key in ("CJK", _JAPANESE) else 1.0) for key, n in counts.items()}
    script = max(weights, key=lambda key: weights[key])
    return script, weights[script] / sum(weights.values())


_JAPANESE = "CJK HIRAGANA KATAKANA"


@lru_cache(maxsize=20_000)
def _script(character: str) -> str | None:
    """The script of a letter; None for anything else, and for letters of scripts that are not listed."""
    if not character.isalpha():
        return None
    first = unicodedata.name(character, "OTHER").split(" ")[0]
    return {"FULLWIDTH": "LATIN", "IDEOGRAPHIC": "CJK"}.get(first, first)


@lru_cache(maxsize=1000)
def _fitting(codes: tuple[str, ...], script: str | None) -> dict[str, str]:
    """The codes of languages that are written in a script, and what they are without a region."""
    return {code: plain_code(code) for code in codes if script in _keys_of(plain_code(code))}


def _keys_of(language: str) -> tuple[str, ...]:
    """The scripts of a language, as `script_of` names them."""
    return tuple(key for key, languages in SCRIPTS.items() if language in languages)


def plain_code(code: str) -> str:
    """A language code without its region or script: "zh" of "zh-Hans"."""
    return code.lower().replace("_", "-").split("-")[0]


def _among_latin(words: Sequence[str], languages: tuple[str, ...]) -> tuple[str, float]:
    """The likeliest language of these words, by the tables, unless frequent words of one without a table say more."""
    profiled = [language for language in languages if language in _profiles().languages]
    listed = [language for language in languages if language in FREQUENT_WORDS and language not in profiled]
    counts = Counter(language for word in words for language in _IN_LISTS.get(word, ()))
    telling = {language: sum(word in DISTINCTIVE_WORDS.get(language, ()) for word in words) for language in listed}
    hits = {language: counts[language] + 2 * telling[language] for language in listed}
    best, sure = _by_tables(words, profiled) if profiled else (languages[0], 1 / len(languages))
    if not any(hits.values()):
        return best, sure
    other = max(hits, key=lambda language: hits[language])
    own = counts[best] if profiled else 0
    if profiled and (hits[other] < LEAST_FREQUENT or hits[other] <= 2 * own or len(words) > MOST_BETWEEN * hits[other]):
        return best, sure
    return other, hits[other] / (sum(hits.values()) + own)


def _by_tables(words: Sequence[str], languages: Sequence[str]) -> tuple[str, float]:
    of_words = [_costs(word) for word in words]
    places = {language: _profiles().languages.index(language) for language in languages}
    costs = {language: sum(cost[place] for cost in of_words) for language, place in places.items()}
    best = min(costs, key=lambda language: costs[language])
    return best, 1 / sum(math.exp(max(costs[best] - cost, -700.0)) for cost in costs.values())


@lru_cache(maxsize=50_000)
def _costs(word: str) -> tuple[float, ...]:
    """What a word costs each language of the tables."""
    profiles = _profiles()
    padded = f"  {word[:40]} "
    unseen = MISSING * len(profiles.languages)
    runs = [_numbers(profiles.runs.get(padded[i : i + 3], unseen), UNSEEN) for i in range(len(padded) - 2)]
    costs = [sum(run[n] for run in runs) for n in range(len(profiles.languages))]
    if whole := profiles.words.get(word):
        costs = [
            -math.log(OF_LETTERS * math.exp(-letters) + (1 - OF_LETTERS) * math.exp(-share))
            for letters, share in zip(costs, _numbers(whole, math.inf), strict=True)
        ]
    most = MOST_OF_A_WORD if word.isascii() else 2 * MOST_OF_A_WORD  # a letter such as ü says more than a name
    return tuple(min(cost - min(costs), most) for cost in costs)


@dataclass(frozen=True)
class _Profiles:
    languages: tuple[str, ...]
    words: Mapping[str, str]
    """For each word what it costs each language, as the file spells it."""
    runs: Mapping[str, str]


@cache
def _numbers(costs: str, missing: float) -> tuple[float, ...]:
    """Costs as the tables spell them; `missing` is what a word or run costs that a language has not."""
    return tuple(missing if letter == MISSING else (ord(letter) - FIRST) / STEPS for letter in costs)


@cache
def _profiles() -> _Profiles:
    """The tables of `language_profiles.txt`; their numbers are read when they are asked for, which few ever are."""
    lines = PROFILES.read_text(encoding="utf-8").splitlines()
    tables: dict[str, dict[str, str]] = {"words": {}, "runs": {}}
    table = tables["words"]
    for line in lines[1:]:
        key, _, costs = line.partition("\t")
        if costs:
            table[key.replace("_", " ")] = costs
        else:
            table = tables[key]
    return _Profiles(tuple(lines[0].split()[1:]), tables["words"], tables["runs"])
