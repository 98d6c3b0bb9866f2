"""Language names and codes: `DE`, `de_AT`, `deu`, `German`, `Deutsch` and `德语` all mean the code `de` of a model.

A model's own codes are always accepted as they are. An unknown name is returned unchanged, so that the model rejects it
and lists its codes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache

from heedful.errors import DecodingError

NAMES = """
ar ara      Arabic, العربية, Arabisch, 阿拉伯语
bg bul      Bulgarian, български, Bulgarisch, 保加利亚语
bn ben      Bengali, বাংলা, Bengalisch, 孟加拉语
ca cat      Catalan, català, Katalanisch, 加泰罗尼亚语
cs ces cze  Czech, čeština, Tschechisch, 捷克语
da dan      Danish, dansk, Dänisch, 丹麦语
de deu ger  German, Deutsch, 德语, 德文, 德語
el ell gre  Greek, ελληνικά, Griechisch, 希腊语
en eng      English, Englisch, 英语, 英文, 英語
es spa      Spanish, español, castellano, Spanisch, 西班牙语
et est      Estonian, eesti, Estnisch, 爱沙尼亚语
eu eus baq  Basque, euskara, Baskisch, 巴斯克语
fa fas per  Persian, Farsi, فارسی, Persisch, 波斯语
fi fin      Finnish, suomi, Finnisch, 芬兰语
fr fra fre  French, français, Französisch, 法语, 法文
he heb      Hebrew, עברית, Hebräisch, 希伯来语
hi hin      Hindi, हिन्दी, 印地语
hr hrv      Croatian, hrvatski, Kroatisch, 克罗地亚语
hu hun      Hungarian, magyar, Ungarisch, 匈牙利语
id ind      Indonesian, Bahasa Indonesia, Indonesisch, 印尼语, 印度尼西亚语
is isl ice  Icelandic, íslenska, Isländisch, 冰岛语
it ita      Italian, italiano, Italienisch, 意大利语
ja jpn      Japanese, 日本語, Japanisch, 日语, 日文
ko kor      Korean, 한국어, Koreanisch, 韩语, 朝鲜语
la lat      Latin, Latein, 拉丁语
lt lit      Lithuanian, lietuvių, Litauisch, 立陶宛语
lv lav      Latvian, latviešu, Lettisch, 拉脱维亚语
lzh         Classical Chinese, Literary Chinese, 文言, 文言文, 古文
ms msa may  Malay, Bahasa Melayu, Malaiisch, 马来语
nb nob      Bokmål, Norwegian Bokmål
nl nld dut  Dutch, Nederlands, Niederländisch, 荷兰语
nn nno      Nynorsk, Norwegian Nynorsk
no nor      Norwegian, norsk, Norwegisch, 挪威语
pl pol      Polish, polski, Polnisch, 波兰语
pt por      Portuguese, português, Portugiesisch, 葡萄牙语
ro ron rum  Romanian, română, Rumänisch, 罗马尼亚语
ru rus      Russian, русский, Russisch, 俄语, 俄文
sk slk slo  Slovak, slovenčina, Slowakisch, 斯洛伐克语
sl slv      Slovenian, Slovene, slovenščina, Slowenisch, 斯洛文尼亚语
sr srp      Serbian, српски, srpski, Serbisch, 塞尔维亚语
sv swe      Swedish, svenska, Schwedisch, 瑞典语
th tha      Thai, ไทย, Thailändisch, 泰语
tr tur      Turkish, Türkçe, Türkisch, 土耳其语
uk ukr      Ukrainian, українська, Ukrainisch, 乌克兰语
vi vie      Vietnamese, Tiếng Việt, Vietnamesisch, 越南语
yue         Cantonese, Kantonesisch, 粤语, 廣東話
zh zho chi cmn  Chinese, Mandarin, Chinesisch, 中文, 汉语, 漢語, 华语, 普通话, 国语
zh-Hans     Simplified Chinese, Chinese (Simplified), 简体, 简体中文, 简体字
zh-Hant     Traditional Chinese, Chinese (Traditional), 繁体, 繁體, 繁体中文, 繁體中文, 正體中文
"""
"""For each language its usual code, other codes, and after two spaces names in English, itself, German and Chinese."""
SCRIPT_OF_REGION = {"cn": "hans", "sg": "hans", "tw": "hant", "hk": "hant", "mo": "hant"}
"""The script of written Chinese in each region: simplified (hans) or traditional (hant)."""
_SCRIPTS = {"hans", "hant", *SCRIPT_OF_REGION}


def language_code(given: str, known: Sequence[str]) -> str:
    """The one of the `known` codes that a code or name means; `given` itself if none matches, or several do."""
    if given in known:
        return given
    wanted = _parse(given)
    matches = [code for code in known if _parse(code) == wanted] or [code for code in known if _matches(wanted, code)]
    if len(matches) > 1 and wanted == ("zh", ""):
        matches = [code for code in matches if _parse(code)[1] == "hans"]
    return matches[0] if len(matches) == 1 else given


def target_code(given: str, known: Sequence[str]) -> str:
    """`language_code` for a target; `DecodingError` for traditional Chinese if the model has only "zh"."""
    code = language_code(given, known)
    if code != given and _parse(given) == ("zh", "hant") and _parse(code) == ("zh", ""):
        raise DecodingError(
            f"{given!r} is Chinese in traditional characters, but this model has only {code!r}, which may be written "
            f"in simplified ones; ask for {code!r} and convert the characters if needed."
        )
    return code


def is_language(given: str) -> bool:
    """Whether a text is the code or a name of a known language."""
    return _parse(given)[0] in _codes_by_name().values()


def english_and_chinese_name(code: str) -> dict[str, str]:
    """The names of a language in English and Chinese, under "en" and "zh"; empty if it is not known.

    A language without a Chinese name in `NAMES` has its English one.
    """
    for line in NAMES.strip().splitlines():
        codes, listed = line.split("  ", 1)
        if code in codes.split():
            names = [name.strip() for name in listed.split(",")]
            after_german = max(index for index, name in enumerate(names) if name.isascii() or "LATIN" in _script(name))
            return {
                "en": names[0],
                "zh": next((one for one in names[after_german:] if "CJK" in _script(one)), names[0]),
            }
    return {}


def _script(name: str) -> str:
    """The Unicode name of the first letter, which begins with its script."""
    return unicodedata.name(name[0])


def _matches(wanted: tuple[str, str], code: str) -> bool:
    """Whether a code is for the same language, in the same script where both name one."""
    language, script = _parse(code)
    return language == wanted[0] and (not script or not wanted[1] or script == wanted[1])


@cache
def _parse(given: str) -> tuple[str, str]:
    """The usual code of a language given by code or name, and for Chinese the script (or "")."""
    normalized = unicodedata.normalize("NFC", given).strip().casefold()
    code = _codes_by_name().get(normalized, normalized).replace("_", "-").casefold()
    language, *subtags = code.split("-")
    language = _codes_by_name().get(language, language)
    if language == "zh":
        return language, next((SCRIPT_OF_REGION.get(subtag, subtag) for subtag in subtags if subtag in _SCRIPTS), "")
    return language, ""


@cache
def _codes_by_name() -> dict[str, str]:
    """The usual code for every code and name."""
    usual_codes: dict[str, str] = {}
    for line in NAMES.strip().splitlines():
        codes, names = line.split("  ", 1)
        usual, *others = codes.split()
        usual_codes |= {name.strip().casefold(): usual for name in (usual, *others, *names.split(","))}
    return usual_codes
