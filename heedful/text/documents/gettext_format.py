"""gettext catalogues (.po, .pot): entries without a translation get one, marked as fuzzy until it is reviewed.

polib parses the catalogue. Changes are made in the source, so comments, references and line breaks of all other entries
are preserved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from heedful.errors import DocumentError
from heedful.text.documents.document import Document, MarkedText, Part
from heedful.text.documents.json_format import read_message

PLURAL_FORMS = {
    "nplurals=1; plural=0;": "zh ja ko vi th id ms lo my yue wuu lzh".split(),
    "nplurals=2; plural=(n != 1);": (
        "en de nl sv da no nb nn es it pt el fi et hu bg ca eu gl tr he hi bn ta te".split()
    ),
    "nplurals=2; plural=(n > 1);": "fr fa hy tg ti wa oc".split(),
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);": (
        "ru uk be sr hr bs".split()
    ),
    "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);": ["pl"],
    "nplurals=3; plural=(n==1) ? 0 : (n>=2 && n<=4) ? 1 : 2;": ["cs", "sk"],
}
_BLANK = re.compile(r"(?:^[ \t]*(?:\r\n?|\n))+", re.MULTILINE)
_MESSAGE = re.compile(
    r'^[ \t]*(?P<keyword>msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)[ \t]*(?P<strings>"[^\r\n]*"[ \t]*'
    r'(?:(?:\r\n?|\n)[ \t]*"[^\r\n]*"[ \t]*)*)',
    re.MULTILINE,
)
_FLAGS = re.compile(r"^#,(?P<flags>[^\r\n]*)(?P<end>\r\n?|\n)", re.MULTILINE)
_PREVIOUS = re.compile(r"^#\|[^\r\n]*(?:\r\n?|\n)", re.MULTILINE)
_NPLURALS = re.compile(r"nplurals\s*=\s*(\d+)")


@dataclass(frozen=True)
class Catalogue:
    """Options for translating a catalogue."""

    retranslate: bool = False
    """Also translate entries that have a translation."""
    mark_fuzzy: bool = True
    """Mark new translations as fuzzy, that is, in need of review."""


DEFAULT_OPTIONS = Catalogue()


def read_catalogue(source: str, options: Catalogue = DEFAULT_OPTIONS) -> Document:
    """The entries to translate, and the header."""
    try:
        import polib
    except ImportError:
        raise DocumentError.missing("polib") from None
    try:
        entries = polib.pofile(source.removeprefix("\ufeff").replace("\r\n", "\n") + "\n")
    except (OSError, ValueError) as error:
        line = re.search(r"line (\d+)", str(error))
        problem = str(error).split("): ")[-1] if line else str(error)
        raise DocumentError(f"not a valid catalogue: {problem}", int(line[1]) if line else None) from None
    parts: list[Part] = []
    known = {(e.msgctxt, e.msgid): e for e in entries if not e.obsolete}
    nplurals = _NPLURALS.search(entries.metadata.get("Plural-Forms", ""))
    for start, end, block in _blocks(source):
        if block.get("msgid") is None or not any(key.startswith("msgstr") for key in block):
            continue
        identity = (block.get("msgctxt"), block["msgid"])
        if not block["msgid"] and "msgctxt" not in block:
            parts.append(_Header(start, end))
        elif entry := known.get(identity):
            if not entry.msgid or (entry.translated() and "fuzzy" not in entry.flags and not options.retranslate):
                continue
            parts.append(_Entry(start, end, entry, options, int(nplurals[1]) if nplurals else None))
    return Document(source, parts)


def _blocks(source: str) -> Iterator[tuple[int, int, dict[str, str]]]:
    """The start (with comments), end and strings of each entry."""
    start = 0
    block: dict[str, str] = {}
    end = 0
    for match in _MESSAGE.finditer(source):
        keyword = match["keyword"]
        if keyword == "msgctxt" or (keyword == "msgid" and ("msgid" in block or not block)):
            is_new = keyword == "msgctxt" or "msgid" in block
            if is_new and block:
                yield start, end, block
                block = {}
            start = _first_comment(source, end, match.start())
        block[keyword] = _unquote(match["strings"])
        end = match.end()
    if block:
        yield start, end, block


def _first_comment(source: str, end: int, start: int) -> int:
    """Where the comments of an entry start: after the last blank line or the previous entry."""
    between = source[end:start]
    offset = 0
    for match in re.finditer(r"[^\r\n]*(?:\r\n?|\n)", between):
        if not match.group().lstrip().startswith("#") or match.group().lstrip().startswith("#~"):
            offset = match.end()
    return end + offset


def _unquote(strings: str) -> str:
    import polib

    return "".join(polib.unescape(line.strip()[1:-1]) for line in re.split(r"\r\n?|\n", strings))


def _quote(text: str, newline: str) -> str:
    """A text as a string of a catalogue, with one quoted line for each line of the text."""
    import polib

    lines = text.splitlines(keepends=True)
    if len(lines) < 2:
        return f'"{polib.escape(text)}"'
    return newline.join(['""', *(f'"{polib.escape(line)}"' for line in lines)])


@dataclass(frozen=True)
class _Header:
    start: int
    end: int

    @property
    def texts(self) -> list[MarkedText]:
        return []

    def write(self, source: str, translations: Iterator[MarkedText], language: str | None) -> str:
        """The header with the target language and its plural forms."""
        msgstr = next((match for match in _MESSAGE.finditer(source) if match["keyword"] == "msgstr"), None)
        if language is None or msgstr is None:
            return source
        text = _unquote(msgstr["strings"])
        plain = language.lower().replace("_", "-").split("-")[0]
        values = {"Language": language.replace("-", "_"), "Content-Type": "text/plain; charset=UTF-8"}
        forms = next((forms for forms, codes in PLURAL_FORMS.items() if plain in codes), None)
        before = re.search(r"^Plural-Forms:[ \t]*(.*)$", text, re.MULTILINE)
        if forms and (before is None or _nplurals(before[1]) != _nplurals(forms)):
            values["Plural-Forms"] = forms
        written = text
        for name, value in values.items():
            line = re.compile(rf"^{name}:.*$", re.MULTILINE)
            if line.search(written):
                written = line.sub(lambda _, name=name, value=value: f"{name}: {value}", written)  # type: ignore[misc]
            else:
                written += f"{'' if written.endswith(chr(10)) or not written else chr(10)}{name}: {value}\n"
        if written == text:
            return source
        newline = "\r\n" if "\r\n" in source else "\n"
        start, end = msgstr.span("strings")
        return source[:start] + _quote(written, newline) + source[end:]


def _nplurals(forms: str) -> int | None:
    match = _NPLURALS.search(forms)
    return int(match[1]) if match else None


@dataclass(frozen=True)
class _Entry:
    start: int
    end: int
    entry: Any
    options: Catalogue
    nplurals: int | None
    """The number of plural forms according to the header."""
    messages: list[Document] = field(init=False)

    def __post_init__(self) -> None:
        texts = [self.entry.msgid, *([self.entry.msgid_plural] if self.entry.msgid_plural else [])]
        object.__setattr__(self, "messages", [read_message(text) for text in texts])

    @property
    def texts(self) -> list[MarkedText]:
        return [text for message in self.messages for text in message.texts]

    def write(self, source: str, translations: Iterator[MarkedText], language: str | None) -> str:
        """The entry with its translations."""
        written = [message.write(translations, language) for message in self.messages]
        newline = "\r\n" if "\r\n" in source else "\n"
        old = [match for match in _MESSAGE.finditer(source) if match["keyword"].startswith("msgstr")]
        strings = [_match_newlines(self.entry.msgid, text) for text in written]
        if self.entry.msgid_plural:
            count = self._num_forms(language)
            forms = strings[1:] if count == 1 else [strings[0], *strings[1:] * (count - 1)]
            lines = [f"msgstr[{n}] {_quote(form, newline)}" for n, form in enumerate(forms)]
        else:
            lines = [f"msgstr {_quote(strings[0], newline)}"]
        source = source[: old[0].start()] + newline.join(lines) + source[old[-1].end() :]
        return self._set_fuzzy(_PREVIOUS.sub("", source), newline)

    def _num_forms(self, language: str | None) -> int:
        plain = (language or "").lower().replace("_", "-").split("-")[0]
        forms = next((forms for forms, codes in PLURAL_FORMS.items() if plain in codes), "")
        return _nplurals(forms) or self.nplurals or max(1, len(self.entry.msgstr_plural))

    def _set_fuzzy(self, source: str, newline: str) -> str:
        """Set or remove the flag "fuzzy"."""
        match = _FLAGS.search(source)
        flags = [flag.strip() for flag in match["flags"].split(",") if flag.strip()] if match else []
        if ("fuzzy" in flags) == self.options.mark_fuzzy:
            return source
        flags = ["fuzzy", *flags] if self.options.mark_fuzzy else [flag for flag in flags if flag != "fuzzy"]
        line = f"#, {', '.join(flags)}{newline}" if flags else ""
        if match:
            return source[: match.start()] + line + source[match.end() :]
        first = next(keyword.start() for keyword in _MESSAGE.finditer(source))
        return source[:first] + line + source[first:]


def _match_newlines(text: str, translation: str) -> str:
    """A translation that starts and ends with a line break where its source does, as msgfmt requires."""
    inner = translation.strip("\n")
    return "\n" * text.startswith("\n") + inner + "\n" * text.endswith("\n")


def declared_charset(raw: bytes) -> str | None:
    """The encoding that the header declares."""
    match = re.search(rb"charset=([\w-]+)", raw[:4000])
    name = match[1].decode() if match else None
    return None if name == "CHARSET" else name
