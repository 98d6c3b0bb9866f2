"""XML and HTML with elements of any names: no tag is lost or invented, and ignored elements keep every byte."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Literal
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.text.documents.markup import MarkupOptions
from heedful.text.documents.xml_format import read_markup
from tests.text.documents.documents import Change, capitals, copied, shuffled, turned_round

OPTIONS = MarkupOptions(ignore_tags=frozenset({"x", "keep"}), splitting_tags=frozenset({"par"}))
TAG = re.compile(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|</?[^<>]*>", re.DOTALL)
IGNORED = re.compile(r"<(x|keep)\b[^>]*>.*?</\1>", re.DOTALL)


def translated(source: str, change: Change, format: Literal["html", "xml"] = "xml", **options: frozenset[str]) -> str:
    document = read_markup(source, format, MarkupOptions(**options) if options else OPTIONS)
    return document.write(iter([change(text) for text in document.texts]), None)


def texts_of(source: str, format: Literal["html", "xml"] = "xml", options: MarkupOptions = OPTIONS) -> list[str]:
    return [text.text for text in read_markup(source, format, options).texts]


def test_elements_beside_text_are_part_of_it() -> None:
    assert texts_of("<doc><title>One</title><p>Two <b>three <i>four</i></b>.</p></doc>") == ["One", "Two three four."]
    assert texts_of("Two <b>three</b>") == ["Two three"]
    assert texts_of("<p><b>Two</b> <i>three</i></p>") == ["Two", "three"]


def test_splitting_and_non_splitting_tags() -> None:
    assert texts_of("One<par/>two <par>three</par>") == ["One", "two", "three"]
    inside = MarkupOptions(non_splitting_tags=frozenset({"b"}))
    assert texts_of("<p><b>Two</b> <b>three</b></p>", options=inside) == ["Two three"]
    assert texts_of("<p><b>Two</b> <b>three</b></p>", options=MarkupOptions(detects_outline=False)) == ["Two three"]


def test_entities_and_characters() -> None:
    assert texts_of("A &lt; B &amp; C &#228; &#x20ac;") == ["A < B & C ä €"]
    assert translated("one &nbsp; two &unknown; three &#0; four", capitals) == (
        "ONE &nbsp; TWO &unknown; THREE &amp;#0; FOUR"
    )
    assert translated("one < two > three & four", capitals) == "ONE &lt; TWO &gt; THREE &amp; FOUR"


def test_ignored_elements_keep_every_byte() -> None:
    kept = "<x id=\"1\">  %(name)s &amp; <q a='b'>&unknown;</q><!-- c --> </x>"
    assert kept in translated(f"Save {kept} in the folder.", turned_round)
    assert translated(f"<doc>{kept}</doc>", turned_round) == f"<doc>{kept}</doc>"
    html = '<div class="x">Some <b>words</b></div>'
    assert html in translated(f"<p>Text</p>{html}", capitals, "html", ignore_tags=frozenset({"div"}))
    assert "<kbd>" in translated("Press <kbd>Enter</kbd> now", capitals, "html", ignore_tags=frozenset({"b"}))


def test_html_can_be_split_elsewhere() -> None:
    options = MarkupOptions(splitting_tags=frozenset({"b"}), non_splitting_tags=frozenset({"div"}))
    assert texts_of("one <b>two</b> three <div>four</div> five", "html", options) == ["one", "two", "three four five"]


WORDS = st.sampled_from(["word", "Haus", "我们", "and", "5 &lt; 6", "&amp;", "ä", "e.g.", "%s", "&#228;", "\n ", "x-y"])
TEXT = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
SPACE = st.sampled_from(["", " ", "\n"])
ATTRIBUTES = st.sampled_from(["", ' id="1"', " a='<' b=\"x > y\"".replace("<", "&lt;"), ' title="two words"'])
OTHERS = st.sampled_from(["<!-- a <b> comment -->", "<br/>", '<img src="a"/>', "<![CDATA[x < y]]>", "<par/>"])


def element(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda name, attributes, before, inner, after: f"<{name}{attributes}>{before}{''.join(inner)}{after}</{name}>",
        st.sampled_from(["a", "b", "i", "p", "div", "x", "keep", "par", "long.name", "ns:t"]),
        ATTRIBUTES,
        SPACE,
        st.lists(children, max_size=4),
        SPACE,
    )


TREES = st.lists(st.recursive(st.one_of(TEXT, OTHERS), element, max_leaves=15), max_size=5).map(" ".join)


@settings(max_examples=500)
@given(TREES, st.randoms(use_true_random=False))
def test_random_trees(source: str, draws: random.Random) -> None:
    """Well-formed XML stays well-formed, with the same tags, entities of markup, and ignored elements."""
    assert translated(source, copied) == source
    for change in (turned_round, shuffled(draws)):
        written = translated(source, change)
        parsed = ElementTree.fromstring(f'<root xmlns:ns="n">{written}</root>')
        before = ElementTree.fromstring(f'<root xmlns:ns="n">{source}</root>')
        assert Counter(one.tag for one in parsed.iter()) == Counter(one.tag for one in before.iter())
        assert Counter(TAG.findall(written)) == Counter(TAG.findall(source))
        assert Counter(outermost_ignored(written)) == Counter(outermost_ignored(source))


def outermost_ignored(source: str) -> list[str]:
    """The ignored elements that no other one encloses."""
    found, depth, start = [], 0, 0
    for match in re.finditer(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<(/?)(x|keep)\b[^>]*>", source, re.DOTALL):
        if match[2] is None:
            continue
        if not match[1]:
            start = match.start() if depth == 0 else start
            depth += 1
        else:
            depth -= 1
            found += [source[start : match.end()]] if depth == 0 else []
    return found


@settings(max_examples=500)
@given(st.text(alphabet="<>/ab&;x=\"' \n!-[]", max_size=40), st.sampled_from(["html", "xml"]))
def test_anything_goes_through(source: str, format: Literal["html", "xml"]) -> None:
    """What is not well-formed is no error, and loses no tag."""
    assert translated(source, copied, format) == source
    if format == "xml":
        names = re.findall(r"</?[abx]+>", source)
        assert all(translated(source, turned_round).count(name) >= names.count(name) for name in set(names))


@pytest.mark.parametrize("depth", [50, 2000])
def test_deep_trees(depth: int) -> None:
    source = "<b>" * depth + "some words" + "</b>" * depth
    assert translated(source, capitals) == source.replace("some words", "SOME WORDS")
