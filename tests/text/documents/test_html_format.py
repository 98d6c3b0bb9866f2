"""HTML: prose is translated, everything else is preserved byte for byte, and tags follow their words."""

from __future__ import annotations

import random
import re

import pytest

from tests.text.documents.documents import capitals, copied, shuffled, texts_of, translated, turned_round

PAGE = """<!DOCTYPE html>
<html lang="en" class=no-js>
<head>
  <meta charset="utf-8"><title>Caf&eacute; &amp; bar</title>
  <meta name="description" content='The best coffee in town'><meta name="viewport" content="width=device-width">
  <style>p > b { color: red }</style>
  <script>if (a < b && c) document.write("<p>Do not touch</p>");</script>
</head>
<body>
<!-- a <b>comment</b> -->
<h1 id="top">Welcome   to our
    shop</h1>
<p>Read <a href="/guide?a=1&amp;b=2" title="The guide">the <em>whole</em> guide</a> first.</p>
<p translate="no">Acme Widgets<p>Buy <span class="x notranslate">Acme Widgets</span> now<br>
or call <img src=phone.png alt="a phone"> us.
<pre>
  keep   <b>this</b>
</pre>
<p>Type <code>a &lt; b</code> to see.</p>
<ul><li>One thing<li>Another thing</ul>
<table><tr><td>Red<td>Blue</table>
<form><label for=q>Your name</label><input id=q placeholder="Type here" value="x"><input type=submit value=Send>
<textarea aria-label="Your message">as it is</textarea><button title='Press &quot;me&quot;'>Send it</button></form>
<svg><title>no</title><text>no</text></svg>
<p>5 &lt; 6 &nbsp; and <b>bold</b>, <i lang=la>et cetera</i></p>
</body>
</html>
"""


def test_copying_translator_changes_no_byte() -> None:
    assert translated(PAGE, "html", copied) == PAGE
    windows = PAGE.replace("\n", "\r\n").encode()
    assert translated(b"\xef\xbb\xbf" + windows, "html", copied).encode() == b"\xef\xbb\xbf" + windows


def test_translatable_texts() -> None:
    assert texts_of(PAGE, "html") == [
        "Café & bar",
        "The best coffee in town",
        "Welcome to our shop",
        "The guide",
        "Read the whole guide first.",
        "a phone",
        "Buy `Acme Widgets` now or call us.",
        "Type `a < b` to see.",
        "One thing",
        "Another thing",
        "Red",
        "Blue",
        "Your name",
        "Type here",
        "Send",
        "Your message",
        'Press "me"',
        "Send it",
        "5 < 6 \u00a0 and bold, et cetera",
    ]


def test_only_prose_changes() -> None:
    found = translated(PAGE, "html", capitals, "de")
    assert '<html lang="de" class=no-js>' in found
    assert "<title>CAFÉ &amp; BAR</title>" in found
    assert '<meta name="description" content="THE BEST COFFEE IN TOWN"><meta name="viewport" content="width=' in found
    assert '<h1 id="top">WELCOME TO OUR SHOP</h1>' in found
    assert '<p>READ <a href="/guide?a=1&amp;b=2" title="THE GUIDE">THE <em>WHOLE</em> GUIDE</a> FIRST.</p>' in found
    assert (
        '<p translate="no">Acme Widgets<p>BUY <span class="x notranslate">Acme Widgets</span> NOW<br>\n'
        'OR CALL <img src=phone.png alt="A PHONE"> US.\n<pre>\n  keep   <b>this</b>\n</pre>' in found
    )
    assert "<p>TYPE <code>a &lt; b</code> TO SEE.</p>" in found
    assert '<button title="PRESS &quot;ME&quot;">SEND IT</button>' in found
    assert "<p>5 &lt; 6 &nbsp; AND <b>BOLD</b>, <i lang=la>ET CETERA</i></p>" in found
    for kept in ("<!-- a <b>comment</b> -->", 'document.write("<p>Do not touch</p>")', "p > b {", "<text>no</text>"):
        assert kept in found


def test_tags_follow_their_words() -> None:
    source = "<p>alpha <b>beta gamma</b> <i>delta</i> <a href=x><em>epsilon</em> zeta</a></p>"
    found = translated(source, "html", turned_round)
    assert found == "<p><a href=x>ZETA <em>EPSILON</em></a> <i>DELTA</i> <b>GAMMA BETA</b> ALPHA</p>"


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("<p>One.<br>Two.</p>", ["One.", "Two."]),  # a line break after a sentence
        ("<p>Rose Lane 7<br>London</p>", ["Rose Lane 7", "London"]),
        ("<p>A sentence that goes<br>on here</p>", ["A sentence that goes on here"]),
        ("<a href=x>one</a><br><a href=y>two</a><br>three<br>four<br>", ["one", "two", "three", "four"]),
        ("<p>First part<br><br>second part</p>", ["First part", "second part"]),
        ("<div>text<p>more</p>tail words</div>", ["text", "more", "tail words"]),
        ("<b>one<p>two</b> three", ["one", "two three"]),  # tags that cross
        ("Hello &unknown; world &#8364;", ["Hello &unknown; world €"]),
        ("<p>See https://example.org/a 1.2.3</p><p>12,5 %</p><p></p>", ["See https://example.org/a 1.2.3"]),
        ("<p>https://example.org/a</p><p>snake_case</p>", []),
        ("<template><p>inside it</p></template>", ["inside it"]),
        ("<p translate=no>no <b translate=yes>but this</b></p>", ["`no` but this"]),
        ("one <b never closed", ["one"]),
        ("<p>x < y and y > z", ["x < y and y > z"]),
        ("<custom-box>Some words</custom-box>", ["Some words"]),
        ("<p>one <code></code> two</p>", ["one two"]),
        ("<p>half a <script>var s = '</p>';</script> sentence</p>", ["half a sentence"]),
    ],
)
def test_fragments(source: str, texts: list[str]) -> None:
    assert texts_of(source, "html") == texts
    assert tags_of(translated(source, "html", turned_round)) == tags_of(source)


TAG = re.compile(r"<!--.*?-->|<script>.*?</script>|</?[a-z](?:[^<>\"]|\"[^\"]*\")*>", re.DOTALL)
WORDS = "the red house stands near old river and cats sleep well &amp; 3 &lt; x ü 猫 ， &nbsp;".split()
VOID = ("br", "img", "wbr")


def random_inline(draws: random.Random, depth: int) -> str:
    pieces = []
    for _ in range(draws.randint(1, 5)):
        space, kind = draws.choice([" ", "", " ", "\n  "]), draws.random()
        if depth > 3 or kind < 0.5:
            words = " ".join(draws.choice(WORDS) for _ in range(draws.randint(1, 4)))
            pieces.append(space + words + draws.choice(["", " ", ". "]))
        elif kind < 0.8:
            name = draws.choice(["b", "i", "em", "a", "span", "code", "u", "q"])
            attribute = draws.choice(["", " class=x", ' href="a>b"', ' translate="no"'])
            pieces.append(f"{space}<{name}{attribute}>{random_inline(draws, depth + 1)}</{name}>")
        else:
            empty = ["<br>", "<img src=x>", "<!-- c <b> -->", "<wbr>", "<br/>", "<script>a<b</script>"]
            pieces.append(space + draws.choice(empty))
    return "".join(pieces)


def random_tree(draws: random.Random, depth: int = 0) -> str:
    name = draws.choice(["p", "div", "li", "td", "h1", "section", "blockquote"])
    if depth > 2 or name in ("p", "h1") or draws.random() < 0.5:
        return f"<{name}>{random_inline(draws, 0)}</{name}>"
    return f"<{name}>" + "\n".join(random_tree(draws, depth + 1) for _ in range(draws.randint(1, 3))) + f"</{name}>"


def tags_of(source: str) -> list[str]:
    return sorted(TAG.findall(source))


def is_well_nested(source: str) -> bool:
    stack: list[str] = []
    for tag in TAG.findall(source):
        name = re.match(r"</?(\w*)", tag)
        assert name is not None
        if tag.startswith(("<!--", "<script>")) or name[1] in VOID:
            continue
        if not tag.startswith("</"):
            stack.append(name[1])
        elif not stack or stack.pop() != name[1]:
            return False
    return not stack


@pytest.mark.parametrize("part", range(10))
def test_random_trees_keep_every_tag_and_their_nesting(part: int) -> None:
    for seed in range(30 * part, 30 * (part + 1)):
        draws = random.Random(seed)
        source = "<html><body>" + "\n".join(random_tree(draws) for _ in range(3)) + "</body></html>"
        assert translated(source, "html", copied) == source, seed
        for change in (shuffled(draws), turned_round):
            found = translated(source, "html", change)
            assert tags_of(found) == tags_of(source), seed
            assert is_well_nested(found), seed


@pytest.mark.parametrize("part", range(4))
def test_tag_soup_keeps_every_tag(part: int) -> None:
    for seed in range(30 * part, 30 * (part + 1)):
        draws = random.Random(seed)
        pieces = re.split(r"(?<=>)|(?=<)", random_inline(draws, 0) + random_tree(draws))
        source = "".join(draws.sample(pieces, len(pieces)))
        assert translated(source, "html", copied) == source, seed
        if "<script>" not in source and "<!--" not in source and "translate" not in source and "<code" not in source:
            assert tags_of(translated(source, "html", shuffled(draws))) == tags_of(source), seed
