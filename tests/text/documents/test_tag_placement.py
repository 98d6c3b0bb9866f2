"""Tag placement with correct, wrong and missing word alignments."""

from __future__ import annotations

import pytest

from heedful.text.documents.document import Mark, MarkedText, compose
from heedful.text.documents.tag_placement import Link, place_tags


def linked(source: str, target: str, pairs: str) -> list[Link]:
    """Links such as "red-rotes car-Auto" as pairs of spans."""
    links: list[Link] = []
    for pair in pairs.split():
        left, right = pair.split("-")
        start, other = source.index(left), target.index(right)
        links.append(((start, start + len(left)), (other, other + len(right))))
    return links


def marked(source: str, *words: str) -> MarkedText:
    """Marks around words, nested in the previous mark if it contains them."""
    marks: list[Mark] = []
    for number, word in enumerate(words):
        start, end = source.index(word), source.index(word) + len(word)
        holds = [n for n, mark in enumerate(marks) if mark.start <= start and end <= mark.end]
        marks.append(Mark(start, end, f"<{number}>", f"</{number}>", parent=holds[-1] if holds else -1))
    return MarkedText(source, tuple(marks))


ENGLISH = "I bought a red car yesterday."
GERMAN = "Gestern habe ich ein rotes Auto gekauft."
LINKS = "I-ich bought-gekauft a-ein red-rotes car-Auto yesterday-Gestern .-."


@pytest.mark.parametrize(
    ("words", "links", "expected"),
    [
        (["red car"], LINKS, "Gestern habe ich ein <0>rotes Auto</0> gekauft."),
        (["red car", "car"], LINKS, "Gestern habe ich ein <0>rotes <1>Auto</1></0> gekauft."),
        (["red", "car"], LINKS, "Gestern habe ich ein <0>rotes</0> <1>Auto</1> gekauft."),
        (["yesterday"], LINKS, "<0>Gestern</0> habe ich ein rotes Auto gekauft."),
        ([ENGLISH], LINKS, "<0>Gestern habe ich ein rotes Auto gekauft.</0>"),
        ([ENGLISH[:-1]], LINKS, "<0>Gestern habe ich ein rotes Auto gekauft</0>."),
        (["a red car"], LINKS + " car-Gestern", "Gestern habe ich <0>ein rotes Auto</0> gekauft."),  # one wrong link
        (["bought a red car"], "a-ein car-Auto", "Gestern habe ich <0>ein rotes Auto</0> gekauft."),  # links missing
    ],
)
def test_pairs_enclose_aligned_words(words: list[str], links: str, expected: str) -> None:
    content = marked(ENGLISH, *words)
    found = place_tags(content, GERMAN, linked(ENGLISH, GERMAN, links))
    assert compose(found, str) == expected


def test_compound_of_words_inside_and_outside() -> None:
    source, target = "the price of bread rises", "der Brotpreis steigt"
    links = linked(source, target, "the-der price-Brotpreis of-Brotpreis bread-Brotpreis rises-steigt")
    assert compose(place_tags(marked(source, "bread"), target, links), str) == "der <0>Brotpreis</0> steigt"


def test_no_tag_is_lost_without_alignment() -> None:
    content = marked(ENGLISH, "red car", "car", "yesterday")
    found = compose(place_tags(content, GERMAN, None), str)
    assert all(tag in found for tag in ("<0>", "</0>", "<1>", "</1>", "<2>", "</2>"))
    assert found.index("<0>") < found.index("<1>") < found.index("</1>") < found.index("</0>")
    assert compose(place_tags(content, "", None), str).count("<") == 6


def test_words_without_spaces() -> None:
    source, target = "I bought a red car yesterday.", "我昨天买了一辆红车。"
    links = linked(source, target, "I-我 bought-买了 a-一辆 red-红 car-车 yesterday-昨天")
    assert compose(place_tags(marked(source, "red car", "yesterday"), target, links), str) == (
        "我<1>昨天</1>买了一辆<0>红车</0>。"
    )


def test_points_stay_between_the_same_words() -> None:
    source, target = "Press the button now", "Drücke jetzt den Knopf"
    links = linked(source, target, "Press-Drücke the-den button-Knopf now-jetzt")
    point = Mark(9, 9, "<br>", kind="point", before=" ", after="\n")
    assert compose(place_tags(MarkedText(source, (point,)), target, links), str) == "Drücke jetzt den <br>\nKnopf"
    two = (point, Mark(9, 9, "<img>", kind="point"))
    assert compose(place_tags(MarkedText(source, two), target, links), str) == "Drücke jetzt den <br>\n<img>Knopf"


def test_kept_text_replaces_its_placeholder() -> None:
    source = "Run `a < b` first."
    kept = MarkedText(source, (Mark(4, 11, "<code>a &lt; b</code>", kind="kept"),))
    for target in ("Zuerst `a < b` ausführen.", "Zuerst a < b ausführen."):
        assert compose(place_tags(kept, target, []), str) == "Zuerst <code>a &lt; b</code> ausführen."
    lost = compose(place_tags(kept, "Zuerst ausführen.", linked(source, "Zuerst ausführen.", "first-Zuerst")), str)
    assert lost.count("<code>a &lt; b</code>") == 1 and "Zuerst" in lost and "ausführen" in lost


@pytest.mark.parametrize("links", [[], [((9, 13), (9, 13)), ((14, 21), (27, 30))]])
def test_tag_around_protected_span_encloses_the_whole_span(links: list[Link]) -> None:
    """Only parts of it are aligned."""
    source = "Write to info@example.com."
    content = MarkedText(source, (Mark(9, 25, "<a>", "</a>"),))
    placed = place_tags(content, "Bitte an info@example.com schreiben.", links)
    assert [(mark.start, mark.end) for mark in placed.marks] == [(9, 25)]
