"""Subtitles: time codes, numbers, line counts and styles are preserved."""

from __future__ import annotations

import random
import re

import pytest

from heedful.errors import DocumentError
from heedful.text.documents.document import MarkedText
from heedful.text.documents.subtitle_format import break_lines
from tests.text.documents.documents import capitals, copied, shuffled, texts_of, translated, turned_round

FILE = """\
1
00:00:01,000 --> 00:00:04,000
{\\an8}<i>I never said that I would
come to the party.</i>

2
00:00:05,000 --> 00:00:06,500 X1:40 X2:600 Y1:20 Y2:50
- Where is the <b>station</b>?
- Over there!

3
0:00:07,000 --> 0:00:08,500

4
00:00:09,000 --> 00:00:10,000
♪ ♪

5
00:00:11.000 --> 00:00:12.000
A text with

an empty line and <font color="#ffff00">a colour</font>

99
00:01:00,000 --> 00:01:02,000
1984
was a good year
"""


def test_copying_translator_changes_no_byte() -> None:
    for page in (FILE, FILE.replace("\n", "\r\n"), "\n\n" + FILE.rstrip("\n"), FILE + "\n\n", ""):
        assert translated(page, "srt", copied) == page
        raw = b"\xef\xbb\xbf" + page.encode()
        assert translated(raw, "srt", copied).encode() == raw


def test_subtitles_and_speakers_are_separate_texts() -> None:
    assert texts_of(FILE, "srt") == [
        "I never said that I would come to the party.",
        "Where is the station?",
        "Over there!",
        "A text with an empty line and a colour",
        "1984 was a good year",
    ]


def test_times_numbers_and_line_counts_are_preserved() -> None:
    for page in (FILE, FILE.replace("\n", "\r\n")):
        found = translated(page, "srt", capitals)
        other = re.compile(r"(?m)^(?:\d+\r?\n(?=\d+:)|[\d:,.]+ --> .*\r?\n)")
        assert other.findall(found) == other.findall(page)
        assert found.count("\r\n") == page.count("\r\n") - page.count("\r\n\r\nan empty")
        assert "{\\an8}<i>I NEVER SAID THAT I" in found and "PARTY.</i>" in found
        assert "- WHERE IS THE <b>STATION</b>?" in found and "- OVER THERE!" in found
        assert '<font color="#ffff00">A COLOUR</font>' in found


def test_styles_follow_their_words() -> None:
    source = "1\n00:00:01,000 --> 00:00:02,000\nalpha <i>beta</i>\ngamma {\\i1}delta\n"
    found = translated(source, "srt", turned_round)
    assert found.startswith("1\n00:00:01,000 --> 00:00:02,000\n")
    assert "<i>BETA</i>" in found and found.count("{\\i1}") == 1 and found.count("\n") == 4


@pytest.mark.parametrize("seed", range(20))
def test_random_subtitles_keep_tags_and_lines(seed: int) -> None:
    draws = random.Random(seed)
    words = "I you never go home, <i>now</i> {\\b1} yes! <b>we two</b> stop".split(" ")
    blocks = []
    for number in range(1, 20):
        lines = [" ".join(draws.choice(words) for _ in range(draws.randint(2, 7))) for _ in range(draws.randint(1, 3))]
        blocks.append(f"{number}\n00:00:{number:02},000 --> 00:00:{number:02},900\n" + "\n".join(lines) + "\n")
    source = "\n".join(blocks)
    assert translated(source, "srt", copied) == source
    found = translated(source, "srt", shuffled(draws))
    tag = re.compile(r"</?[bi]>|\{[^}]*\}|^\d.*$", re.MULTILINE)
    assert sorted(tag.findall(found)) == sorted(tag.findall(source))


def test_lines_have_similar_width() -> None:
    assert break_lines(MarkedText("Ich weiß nicht, wovon du sprichst, mein Freund."), 2) == [
        "Ich weiß nicht,",
        "wovon du sprichst, mein Freund.",
    ]
    assert break_lines(MarkedText("我不知道你在说什么，我的朋友。"), 2) == ["我不知道你在说什么，", "我的朋友。"]
    assert break_lines(MarkedText("Ja."), 2) == ["Ja."]


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("Just some words\n", 1, "no time code"),
        ("1\n00:00:01,000 --> 00:00\nWords\n", 2, "is not a time code"),
        ("1\n00:00:01,000 --> 00:00:02,000\nA\n\n2\nnow --> then\nB\n", 6, "is not a time code"),
    ],
)
def test_error_names_the_line(source: str, line: int, words: str) -> None:
    with pytest.raises(DocumentError, match=words) as raised:
        translated(source, "srt", copied)
    assert raised.value.line == line


VTT = """\
WEBVTT - A title

STYLE
::cue { color: white }

NOTE this is not shown
and neither is this

intro
00:01.000 --> 00:04.000 align:start
<v Mary>I never said that <c.loud>I would
come</c></v>

00:00:05.000 --> 00:00:06.000
- One <00:00:05.500>thing
- Another thing

NOTE the end
"""


def test_webvtt_is_translated() -> None:
    for page in (VTT, VTT.replace("\n", "\r\n"), "WEBVTT\n", ""):
        assert translated(page, "vtt", copied) == page
    assert texts_of(VTT, "vtt") == ["I never said that I would come", "One thing", "Another thing"]
    found = translated(VTT, "vtt", capitals)
    assert "<v Mary>I NEVER SAID\nTHAT <c.loud>I WOULD COME</c></v>" in found
    assert "- ONE <00:00:05.500>THING\n- ANOTHER THING\n" in found and "NOTE this is not shown\nand" in found
    for broken_file, line in (("1\n00:01.000 --> 00:02.000\nA word\n", 1), ("WEBVTT\n\n1 --> 2\nA word\n", 3)):
        with pytest.raises(DocumentError) as raised:
            translated(broken_file, "vtt", copied)
        assert raised.value.line == line
