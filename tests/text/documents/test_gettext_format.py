"""gettext: empty and fuzzy entries are translated, and everything else is preserved byte for byte."""

from __future__ import annotations

from dataclasses import replace

import polib
import pytest

from heedful.errors import DocumentError
from heedful.text.documents.document import MarkedText
from heedful.text.documents.gettext_format import Catalogue
from tests.text.documents.documents import capitals, copied, texts_of, translated

FILE = r"""# Translations of a program.
# Somebody <somebody@example.org>, 2026.
msgid ""
msgstr ""
"Project-Id-Version: program 1.0\n"
"Language: \n"
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#. A note by the programmer
#: source.c:12 source.c:99
#, c-format
msgid "Opened %s files"
msgstr ""

# A note by the translator
#: source.c:14
msgid "Already there"
msgstr   "Schon da"

#, fuzzy
#| msgid "Save a file"
msgid "Save the file"
msgstr "Speichere eine Datei"

msgctxt "menu"
msgid "One file"
msgid_plural "Many files"
msgstr[0] ""
msgstr[1] ""

msgid ""
"A long text with a \"quotation\"\n"
"and a second line\n"
msgstr ""

#, python-brace-format
msgid "Click <b>here</b>, {name}"
msgstr ""

#~ msgid "Old text"
#~ msgstr "Alter Text"
"""


def entries(source: str) -> dict[str, polib.POEntry]:
    return {entry.msgid: entry for entry in polib.pofile(source) if not entry.obsolete}


def test_translatable_entries() -> None:
    seen: list[str] = []

    def look(text: MarkedText) -> MarkedText:
        seen.append(text.text)
        return text

    translated(FILE, "po", look)
    assert seen == [
        "Opened %s files",
        "Save the file",
        "One file",
        "Many files",
        'A long text with a "quotation"\nand a second line',
        "Click here, {name}",
    ]
    seen.clear()
    translated(FILE, "po", look, catalogue=Catalogue(retranslate=True))
    assert "Already there" in seen


def test_only_entries_change() -> None:
    for source in (FILE, FILE.replace("\n", "\r\n")):
        found = translated(source, "po", capitals, "de")
        filled = entries(found.replace("\r\n", "\n"))
        assert filled["Save the file"].msgstr == "SAVE THE FILE" and "fuzzy" in filled["Save the file"].flags
        assert filled["One file"].msgstr_plural == {0: "ONE FILE", 1: "MANY FILES"}
        assert filled["One file"].msgctxt == "menu"
        assert filled["Opened %s files"].flags == ["fuzzy", "c-format"]
        long = filled['A long text with a "quotation"\nand a second line\n']
        assert long.msgstr == 'A LONG TEXT WITH A "QUOTATION"\nAND A SECOND LINE\n'
        assert filled["Click <b>here</b>, {name}"].msgstr == "CLICK <b>HERE</b>, {NAME}"
        assert filled["Already there"].flags == []
        newline = "\r\n" if "\r\n" in source else "\n"
        for kept in (
            '# A note by the translator\n#: source.c:14\nmsgid "Already there"\nmsgstr   "Schon da"\n\n',
            "#. A note by the programmer\n#: source.c:12 source.c:99\n",
            '#~ msgid "Old text"\n#~ msgstr "Alter Text"\n',
            '"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n',
            "# Translations of a program.\n# Somebody <somebody@example.org>, 2026.\n",
        ):
            assert kept.replace("\n", newline) in found, kept
        assert "#|" not in found  # the text of which the old translation is


def test_complete_catalogue_is_unchanged() -> None:
    done = translated(FILE, "po", capitals, "de", Catalogue(mark_fuzzy=False))
    assert "fuzzy" not in done
    assert texts_of(done, "po") == []
    assert translated(done, "po", copied, "de") == done


@pytest.mark.parametrize(("language", "count"), [("de", 2), ("zh", 1), ("zh_TW", 1), ("pl", 3), ("xx", 2)])
def test_plural_forms_of_target_language(language: str, count: int) -> None:
    found = translated(FILE, "po", capitals, language)
    entry = entries(found)["One file"]
    assert len(entry.msgstr_plural) == count
    assert entry.msgstr_plural[count - 1] == "MANY FILES"
    assert polib.pofile(found).metadata["Language"] == language
    assert f"nplurals={count};" in polib.pofile(found).metadata["Plural-Forms"]


def test_template_and_other_encoding() -> None:
    template = FILE.replace("charset=UTF-8", "charset=CHARSET").replace('"Language: \\n"\n', "")
    found = translated(template, "po", capitals, "de")
    assert polib.pofile(found).metadata["Language"] == "de"
    assert polib.pofile(found).metadata["Content-Type"] == "text/plain; charset=UTF-8"
    latin = FILE.replace("charset=UTF-8", "charset=ISO-8859-1").replace("Schon da", "Schön da").encode("latin-1")
    found = translated(latin, "po", lambda text: replace(text, text="中文"), "zh")
    assert entries(found)["Already there"].msgstr == "Schön da" and "charset=UTF-8" in found


def test_error_names_the_line() -> None:
    with pytest.raises(DocumentError, match="unescaped double quote") as raised:
        translated('msgid ""\nmsgstr ""\n\nmsgid "a "b" c"\nmsgstr ""\n', "po", copied)
    assert raised.value.line == 4
