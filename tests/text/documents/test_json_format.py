"""JSON: string values are translated; keys, numbers, order and layout are preserved."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import DocumentError
from tests.text.documents.documents import capitals, copied, texts_of, translated, turned_round

FILE = """{
    "title" :  "Welcome, {name}!",
    "count": 1.50, "big": 1e400, "on": true, "off": false, "none": null,
    "nested": {"Key words": ["First thing", "Second thing", 3, ""]},
    "url": "https://example.org/some/path", "id": "some_internal_id", "colour": "#ff00aa",
    "escaped": "Caf\\u00e9 \\"here\\"\\nnext line",
    "html": "Click <a href=\\"/x\\">this link</a> <b>now</b>",
    "plural": "You have {n, plural, =0 {no mail} one {# letter} other {# letters}} today",
    "@title": {"description": "About the title"},
    "same": "one", "same": "two"
}
"""


def test_copying_translator_changes_no_byte() -> None:
    for source in (FILE, FILE.replace("\n", "\r\n"), FILE.rstrip(), '"just text"', "[]", " 12 "):
        assert translated(source, "json", copied) == source


def test_translatable_texts() -> None:
    assert texts_of(FILE, "json") == [
        "Welcome, {name}!",
        "First thing",
        "Second thing",
        'Café "here"\nnext line',
        "Click this link now",
        "You have",
        "no mail",
        "# letter",
        "# letters",
        "today",
        "one",
        "two",
    ]


def test_only_values_change() -> None:
    found = translated(FILE, "json", capitals)
    expected = FILE
    for before, after in (
        ("Welcome, {name}!", "WELCOME, {NAME}!"),
        ("First thing", "FIRST THING"),
        ("Second thing", "SECOND THING"),
        ('Caf\\u00e9 \\"here\\"\\nnext line', 'CAF\\u00c9 \\"HERE\\"\\nNEXT LINE'),
        ('Click <a href=\\"/x\\">this link</a> <b>now</b>', 'CLICK <a href=\\"/x\\">THIS LINK</a> <b>NOW</b>'),
        ("You have {n", "YOU HAVE {n"),
        ("{no mail} one {# letter} other {# letters}} today", "{NO MAIL} one {# LETTER} other {# LETTERS}} TODAY"),
        ('"one", "same": "two"', '"ONE", "same": "TWO"'),
    ):
        assert before in expected
        expected = expected.replace(before, after)
    assert found == expected


def test_tags_follow_their_words() -> None:
    found = json.loads(translated('{"a": "alpha <b>beta</b> gamma"}', "json", turned_round))
    assert found == {"a": "GAMMA <b>BETA</b> ALPHA"}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(values, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_any_json_keeps_its_structure(value: Any, indent: Any, ascii_only: bool) -> None:
    source = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert translated(source, "json", copied) == source
    found = json.loads(translated(source, "json", turned_round))
    assert shape(found) == shape(value)


def shape(value: Any) -> Any:
    """Everything but the strings."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return str if isinstance(value, str) else value


@pytest.mark.parametrize(("source", "line"), [('{"a": 1,\n "b" 2}', 2), ("", 1), ('{"a": "b"}\n{"c": "d"}', 2)])
def test_error_names_the_line(source: str, line: int) -> None:
    with pytest.raises(DocumentError, match="not valid JSON") as raised:
        translated(source, "json", copied)
    assert raised.value.line == line
