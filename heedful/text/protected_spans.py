"""Spans that a translation copies byte for byte: URLs, addresses, paths, placeholders, tags, code, emoji, hashes.

`find_spans` returns them in order, without overlap; adjacent spans are merged. Spans are recognised by form. What may
also be ordinary text is not a span: "and/or", "3/4", "e.g.", "C++", "10:30", "#1", "a < b" and "50% sale". Chinese text
has no spaces around spans, so only adjacent Latin letters and digits can belong to one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

_LATIN = r"A-Za-z\u00c0-\u024f"
_WORD = rf"{_LATIN}0-9_"
_HAN = r"\u3400-\u9fff\u3040-\u30ff"
_WIDE = r"\u2e80-\u9fff\ua000-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff"
_QUOTES = "“”„‘’‚«»‹›"
_IN_URL = rf"(?:[^\s<>\"'`|\\^{{}}\u200b{_QUOTES}{_WIDE}]|\{{[\w.-]+\}})"
_HAN_IN_URL = rf"(?:(?<=[/=_])[{_HAN}]+(?:[/=&?#_.-][\w=&%?#.-]*)*)?"  # …/wiki/北京
_TOP_DOMAINS = (
    "com|org|net|edu|gov|info|biz|io|dev|app|ai|eu|de|at|ch|cn|hk|tw|jp|kr|uk|us|fr|nl|it|es|pl|se|dk|ru|in|au|ca|test|"
    "example|local"
)
_FILE_ENDINGS = (
    r"7z|avi|bak|bash|bat|bib|bmp|bz2|cc|cfg|class|cmd|conf|cpp|css?|csv|dart|db|deb|dll|dmg|docx?|env|epub|exe|gif|go|gz|"
    r"hpp|html?|ico|in[ci]|ipynb|iso|jar|java|jpe?g|js|jsonl?|jsx|kt|lock|log|lua|md|mjs|mk[dv]|mov|mp[34]|odt|ogg|onnx|"
    r"parquet|patch|pdf|php|pickle|pl|png|po|pptx?|properties|proto|ps1|py[cx]?|rar|rb|rpm|rs|rst|rtf|safetensors|sass|scss|"
    r"sh|so|sql|sqlite3?|srt|svg|swift|tar|tar\.gz|tex|tgz|tiff?|toml|tsv|tsx?|ttf|txt|vtt|vue|wasm|wav|webm|webp|whl|woff2?|"
    r"xlsx?|xml|xz|ya?ml|zip|zsh|zst"
)
_ROOTS = (
    "Applications|Library|System|Users|Volumes|api|bin|boot|data|dev|etc|home|lib|lib64|media|mnt|opt|proc|root|run|sbin|"
    "srv|sys|tmp|usr|var"
)
_BARE_ATTRIBUTES = (
    "allowfullscreen|async|autofocus|autoplay|checked|controls|default|defer|disabled|hidden|loop|multiple|muted|novalidate|"
    "open|readonly|required|reversed|selected"
)
_ATTRIBUTE = rf"\s+(?:(?:{_BARE_ATTRIBUTES})|[\w:@.-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s<>\"']+))"
_CONVERSION = r"(?:hh?|ll?|[zjtL])?[sdiufFxXeEgGcr@]"
_PICTURE = (
    r"[\u231a-\u23ff\u2600-\u27bf\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe\u2934\u2935\u2b05-\u2b55\U0001f000-\U0001f1e5"
    r"\U0001f200-\U0001f3fa\U0001f400-\U0001faff]"
)
_SKIN, _TAIL = r"[\U0001f3fb-\U0001f3ff]", r"[\ufe0e\ufe0f\u20e3\U000e0020-\U000e007f]"
_EMOJI = (
    rf"(?:[\U0001f1e6-\U0001f1ff]{{1,2}}|[0-9#*]\ufe0f?\u20e3|(?:{_PICTURE}|{_SKIN}){_TAIL}*{_SKIN}?{_TAIL}*"
    r"|[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u24c2\u3030\u303d\u3297\u3299][\ufe0e\ufe0f])"
)
_IN_WINDOWS_PATH = rf"[^\\/:*?\"<>|\s{_QUOTES}，。；：！？、（）]"
_CLOCK = r"\d{1,3}:\d\d:\d\d(?:[.,:;]\d{1,3})?"
_CUE = r"[\d:.,]+[ \t]*-->[ \t]*[\d:.,]+"
_BASE64_LINE = 48
_OPENING = {")": "(", "]": "["}


class Span(NamedTuple):
    """The protected text `text[start:end]`."""

    start: int
    end: int
    kind: str
    """Such as "URL"; for merged spans, that of the first."""


class _Rule(NamedTuple):
    kind: str
    trigger: str
    """A fast regular expression that matches every text with such a span."""
    pattern: re.Pattern[str]
    end: Callable[[str, int, int], int] | None = None
    """Given a match, where the span ends; its start if the match is not a span."""


def _any(*patterns: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    return re.compile("|".join(patterns), flags)


def _end_of_url(text: str, start: int, end: int) -> int:
    """Excludes trailing punctuation, and closing brackets that are not opened inside the URL."""
    while end > start:
        last = text[end - 1]
        opening = _OPENING.get(last)
        if last not in ".,;:!?…*~" and not (opening and text.count(last, start, end) > text.count(opening, start, end)):
            break
        end -= 1
    return end


def _end_of_base64(text: str, start: int, end: int) -> int:
    """Accepts complete groups with padding, or a long mixture of upper case, lower case and digits."""
    token = text[start:end]
    mixed = any(map(str.isdigit, token)) and any(map(str.isupper, token)) and any(map(str.islower, token))
    if token.endswith("="):
        is_encoded = len(token) % 4 == 0 and (mixed or len(token) > 8)
    elif len(token) >= _BASE64_LINE:
        is_encoded = token not in (token.lower(), token.upper())
    else:
        changes = sum(_class_of(a) != _class_of(b) for a, b in pairwise(token))
        is_encoded = mixed and changes > 0.3 * len(token)
    return end if is_encoded else start


def _class_of(character: str) -> int:
    return 0 if character.isdigit() else 1 if character.isupper() else 2 if character.islower() else 3


def _end_of_hash(text: str, start: int, end: int) -> int:
    """Accepts only a mixture of letters and digits."""
    token = text[start:end]
    return end if any(map(str.isdigit, token)) and any(map(str.isalpha, token)) else start


_PATHS = _any(
    rf"(?<![{_WORD}/.~:<])(?:~|\.{{1,2}})?/(?:[{_WORD}.@+%$*-]+/)+[{_WORD}.@+%$*-]*",  # /usr/lib, ./docs/, ~/a/b
    rf"(?<![{_WORD}/.~:<])(?:~|\.{{1,2}})/[{_WORD}.@+%-]+",  # ./run, ../a, ~/notes
    rf"(?<![{_WORD}/.~:<])/(?:{_ROOTS})(?![{_WORD}/])",
    rf"(?<![{_WORD}/.~:<])/[{_WORD}-]+\.[A-Za-z0-9]{{1,5}}(?![{_WORD}/])",
    rf"(?<![{_WORD}/.])(?:@?[{_WORD}.-]*[{_WORD}-]/)+[{_WORD}-]+(?:\.[{_WORD}-]+)*\.(?:[a-z][a-z0-9]{{1,4}}|[chrd])"
    rf"(?![{_WORD}/])",  # src/main.py
    rf"(?<![{_WORD}/.])@[a-z0-9-]+/[a-z0-9.-]*[a-z0-9]",  # @scope/package
    rf"(?<![{_WORD}])[A-Za-z]:\\(?:(?:Program Files(?: \(x86\))?|Documents and Settings|{_IN_WINDOWS_PATH}+)\\)*"
    rf"{_IN_WINDOWS_PATH}*",
    r"\\\\[A-Za-z0-9_.-]+(?:\\[A-Za-z0-9_.$-]+)+",
    rf"(?<![{_WORD}\\])%?[{_WORD}.]{{2,}}%?(?:\\[{_WORD}.$-]+)+\\?",
    rf"(?<![{_WORD}.-])(?:[{_WORD}-]+(?:\.[{_WORD}-]+)*\.(?:{_FILE_ENDINGS})|[{_WORD}-]{{2,}}\.[chd])"
    rf"(?![{_WORD}-]|\.[{_WORD}])",
)

_RULES = (
    _Rule("code", "[`~]", _any(r"^[ \t>]*(?:`{3,}[^`\n]*|~{3,}[^~\n]*)$", flags=re.MULTILINE)),
    _Rule("time code", ">", _any(rf"^[ \t]*{_CUE}[^\n]*$", flags=re.MULTILINE)),
    _Rule("code", "`", _any(r"(?<!`)(``+)(?!`)(?:(?!'').)+?(?<!`)\1(?!`)|(?<!`)`(?![`\s])[^`\n]*(?<!\s)`(?!`)")),
    _Rule(
        "tag",
        "<",
        _any(r"<(script|style|pre|code|kbd|samp)\b[^<>]*>.*?</\1\s*>", flags=re.IGNORECASE | re.DOTALL),
    ),
    _Rule("tag", "<", _any(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<![A-Za-z][^<>]*>|<\?[^<>]*\?>|<%.*?%>", flags=re.DOTALL)),
    _Rule("tag", "<", _any(rf"</?[A-Za-z_][\w:.-]*(?:{_ATTRIBUTE})*\s*/?>")),
    _Rule(
        "URL",
        ":",
        _any(
            rf"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{{1,15}}://{_IN_URL}+{_HAN_IN_URL}",
            rf"(?<![{_WORD}/])(?:mailto|tel|sms|urn|data|magnet|doi|geo|xmpp):(?=[{_WORD}+/]){_IN_URL}+",
            rf"(?<![{_WORD}@])git@[A-Za-z0-9.-]+:{_IN_URL}+",
        ),
        _end_of_url,
    ),
    _Rule("e-mail", "@", _any(rf"[{_WORD}.%+'-]*[{_WORD}%+-]@(?:[{_LATIN}0-9-]+\.)+[A-Za-z]{{2,}}")),
    _Rule(
        "URL",
        rf"[{_WORD}]\.[{_WORD}]|localhost:",
        _any(
            rf"(?<![{_WORD}@./-])www\.{_IN_URL}+{_HAN_IN_URL}",
            rf"(?<![{_WORD}@./\\-])(?:[{_LATIN}0-9](?:[{_LATIN}0-9-]*[{_LATIN}0-9])?\.)+(?:{_TOP_DOMAINS})"
            rf"(?![{_WORD}@-]|\.[{_WORD}])(?::\d+)?(?:[/?#]{_IN_URL}*)?",
            rf"(?<![{_WORD}@./\\-])localhost:\d+(?:/{_IN_URL}*)?",
        ),
        _end_of_url,
    ),
    _Rule(
        "placeholder",
        r"\{",
        _any(
            r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal|number|date|time)\b"
            r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}",  # of ICU messages
            r"\{\{\{?[^{}\n]{1,80}\}\}\}?|[$#]\{[^{}\n]{1,80}\}|\{%[^{}\n]{1,80}%\}|\{ ?[^{}\s]{0,64} ?\}",
        ),
    ),
    _Rule(
        "placeholder",
        "%",
        _any(
            rf"%\([\w. -]+\)[#0+-]*\d*(?:\.\d+)?{_CONVERSION}",
            rf"%\d+\$[#0+-]*\d*(?:\.\d+)?{_CONVERSION}",
            rf"(?<![{_WORD}%])%[A-Z][A-Z0-9_]+%(?:\\[{_WORD}.$-]+)*",
            rf"(?<![0-9%])%[#0+-]?\d*(?:\.\d+|\.\*)?{_CONVERSION}"
            rf"(?:(?![{_LATIN}])|(?=(?:px|x|[KMG]i?B|ms|s|h)\b|x%))",
            rf"%%|(?<![{_WORD}%])%[1-9]\d?(?![\d%]|[.,]\d|\s%)|(?<![{_WORD}%])%[nL]\d?(?![{_WORD}%])",
        ),
    ),
    _Rule("placeholder", r"\$", _any(rf"(?<![{_WORD}$])\$[A-Za-z_][A-Za-z0-9_]*(?:\$|(?<=\w\w)(?![{_WORD}]))")),
    _Rule("entity", "&", _any(r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});")),
    _Rule("path", rf"[/\\]|[{_WORD}]\.[{_WORD}]", _PATHS, _end_of_url),
    _Rule(
        "time code",
        ":",
        _any(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?",
            rf"(?<![{_WORD}:.]){_CLOCK}(?:[ \t]*-->[ \t]*{_CLOCK})?(?![{_WORD}:])",
            r"\[\d{1,3}:\d\d[.:]\d{2,3}\]",
        ),
    ),
    _Rule(
        "address",
        r"\d\.\d|[0-9A-Fa-f][:-][0-9A-Fa-f]|::",
        _any(
            rf"(?<![{_WORD}.])\d{{1,3}}(?:\.\d{{1,3}}){{3}}(?:/\d{{1,2}}|:\d{{2,5}})?(?![{_WORD}]|\.\d)",
            rf"(?<![{_WORD}:-])(?:[0-9A-Fa-f]{{2}}[:-]){{5}}[0-9A-Fa-f]{{2}}(?![{_WORD}:-])",
            rf"(?<![{_WORD}:])(?:[0-9a-fA-F]{{1,4}}:){{2,7}}(?::?[0-9a-fA-F]{{1,4}})+(?:/\d+)?(?![{_WORD}:])",
        ),
    ),
    _Rule(
        "hash", "-[0-9a-fA-F]{4}-", _any(rf"(?<![{_WORD}-])[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4,12}}){{4}}(?![{_WORD}-])")
    ),
    _Rule("hash", "sha|md5", _any(rf"(?<![{_WORD}])(?:sha(?:1|224|256|384|512)|md5)[:-][0-9A-Za-z+/]{{16,}}={{0,2}}")),
    _Rule(
        "hash",
        rf"\d[{_WORD}]{{6}}|0x|[{_WORD}]{{6}}\d|[a-f]\d|\d[a-f]",
        _any(rf"(?<![{_WORD}#])(?:0x[0-9a-fA-F]{{2,}}|[0-9a-f]{{7,}}|[0-9A-F]{{16,}})(?![{_WORD}])"),
        _end_of_hash,
    ),
    _Rule("hash", "eyJ", _any(r"(?<![A-Za-z0-9_.-])eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?")),
    _Rule(
        "hash",
        "=|[A-Za-z0-9+/]{20}",
        _any(r"(?<![A-Za-z0-9+/=])(?:[A-Za-z0-9+/]{5,}={1,2}|[A-Za-z0-9+/]{20,})(?![A-Za-z0-9+/=])"),
        _end_of_base64,
    ),
    _Rule(
        "hashtag",
        "#",
        _any(
            rf"(?<![{_WORD}&#/])#(?:[0-9A-Fa-f]{{6}}(?![{_WORD}])|\d*[{_LATIN}][{_WORD}]*#?|[\w]{{1,30}}#"
            rf"|[{_HAN}][{_HAN}\w]{{0,11}}(?!\w))"
        ),
        lambda text, start, end: start if text[start + 1 : end].isdigit() else end,
    ),
    _Rule(
        "mention",
        "@",
        _any(
            rf"(?<![{_WORD}@.])@[{_LATIN}_][{_WORD}]*(?:\.[{_WORD}]+|-[a-z0-9_]+)*",
            rf"(?<![{_WORD}@.])@[{_HAN}\w]{{1,12}}(?=[\s,，。:：!！?？”’）)]|$)",
        ),
    ),
    _Rule("emoji", ":", _any(rf"(?<![{_WORD}:]):[a-z][a-z0-9_+-]+:(?![{_WORD}:])")),
    _Rule("emoji", r"[^\x00-\u00a8\u00af-\u2038\u3400-\u9fff\uff00-\uffff]", _any(rf"{_EMOJI}(?:\u200d{_EMOJI})*")),
    _Rule(
        "name",
        r"_|\(\)",
        _any(
            rf"(?<![{_WORD}])[A-Za-z_][A-Za-z0-9]*(?:_+[A-Za-z0-9]+)+(?:\(\))?(?![{_WORD}])",  # max_length
            rf"(?<![{_WORD}.])[A-Za-z_][A-Za-z0-9_.]*\(\)",  # print()
        ),
    ),
)

_BLOCK = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[^\n`]*\n(?:.*?\n)?[ \t]*(?P=fence)[`~]*[ \t]*$"
    r"|<(?P<tag>script|style|pre)\b[^<>]*>.*?</(?P=tag)\s*>|<!--.*?-->",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)


def find_spans(text: str) -> list[Span]:
    """The protected spans of a text, in order. Where several rules match, the first one wins."""
    free = [(0, len(text))]
    spans: list[Span] = []
    for rule in _RULES:
        if not re.search(rule.trigger, text):
            continue
        matches = [span for start, end in free for span in _matches(rule, text, start, end)]
        if matches:
            spans = sorted([*spans, *matches])
            free = _gaps(spans, len(text))
    return _merge_adjacent(spans)


def has_prose(text: str) -> bool:
    """Whether a text (without its spans) has a letter, and so something to translate."""
    return any(map(str.isalpha, text))


def remove_spans(text: str) -> str:
    """A text with each span replaced by a space, for language identification."""
    pieces, end = [], 0
    for span in find_spans(text):
        pieces.append(text[end : span.start])
        end = span.end
    return " ".join([*pieces, text[end:]]) if pieces else text


def split_blocks(text: str) -> list[tuple[str, bool]]:
    """Split a text at protected blocks of several lines (fenced code, comments, scripts).

    Returns all pieces in order, each with whether it is such a block.
    """
    pieces: list[tuple[str, bool]] = []
    end = 0
    if "\n" in text and ("`" in text or "~" in text or "<" in text):
        for match in _BLOCK.finditer(text):
            if "\n" in match.group():
                pieces += [(text[end : match.start()], False), (match.group(), True)]
                end = match.end()
    return [piece for piece in [*pieces, (text[end:], False)] if piece[0]]


def _matches(rule: _Rule, text: str, start: int, end: int) -> Iterator[Span]:
    for match in rule.pattern.finditer(text, start, end):
        last = rule.end(text, match.start(), match.end()) if rule.end else match.end()
        if last > match.start():
            yield Span(match.start(), last, rule.kind)


def _gaps(spans: list[Span], length: int) -> list[tuple[int, int]]:
    starts = [0, *(span.end for span in spans)]
    ends = [*(span.start for span in spans), length]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


def _merge_adjacent(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in spans:
        if merged and merged[-1].end == span.start:
            merged[-1] = merged[-1]._replace(end=span.end)
        else:
            merged.append(span)
    return merged
