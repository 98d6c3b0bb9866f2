"""Protected spans: what is a span, where it ends, and what is ordinary text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.text.protected_spans import find_spans, remove_spans, split_blocks

KINDS = {
    "URL": r"""https://example.com/a?b=c&d=e#f http://localhost:3000/
        https://de.wikipedia.org/wiki/K%C3%B6ln_(Stadt) https://zh.wikipedia.org/wiki/北京 www.example.org/x example.com
        docs.python.org/3/library ftp://x.y/z mailto:a@b.de
        localhost:8080 https://x.de/{id}/edit git@github.com:a/b.git""",
    "e-mail": "info@beispiel.de müller+x@mail.example.co.uk",
    "path": r"""/etc/hosts /usr/local/bin/python3 ./run.sh ../src ~/notes.txt C:\Users\Anna\file.txt \\server\share\x
        src/main.py config.yaml README.md @angular/core archive.tar.gz /tmp""",
    "placeholder": r"""{name} {0} {} {{name}} ${x} #{x} %s %d %1$s %(name)s %.2f %(count)d %@ %1 %PATH% $HOME
        {n:.2f}""",
    "tag": "<b> </b> <br/> </div> <username> <xs:element> <!--x-->",
    "entity": "&amp; &nbsp; &#8364; &#x20AC;",
    "code": "`x` `f(a)` ``a`b``",
    "emoji": "❤️ 👍🏽 👨‍👩‍👧 🇩🇪 ☕ 1️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 😀 ✅ 👩🏽‍💻 :smile:",
    "hashtag": "#hashtag #Größe #北京# #2fast #ff8800",
    "mention": "@anna @anna.b @a_b",
    "hash": """aGVsbG8gd29ybGQ= SGVsbG8sIFdvcmxkIQ== d41d8cd98f00b204e9800998ecf8427e 3f2a9bc 0xFF
        550e8400-e29b-41d4-a716-446655440000 sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4 eyJhbGciOi.eyJzdWIi.abc""",
    "time code": "00:01:02.500 00:00:01,000 2024-11-18T10:00:00Z [00:12.34]",
    "address": "192.168.0.1 192.168.0.0/24 10.0.0.1:8080 2001:db8::1",
    "name": "max_length print()",
}
ORDINARY = """and/or|3/4|e.g.|C++|10:30|#1|a < b|50% sale|50% der|50%的|100%|a<b and c>d|he/she/they|TCP/IP|km/h|$3.50
AT&T|z.B. das|d.h.|U.S.A.|2023/24|I/O|24/7|C#|F#|COVID-19-Impfnachweis-Verordnung|Donaudampfschifffahrtsgesellschaft
``quoted'' and ``more''|Ende.Das ist|Mr. O'Brien|a->b|1 < 2 > 0|(s)he|him/her.|U.S./China|e.g./i.e.|p.m./a.m.|5:3
deadbeef|1234567|18.11.2026|3 apples @ $2|B2B|@ 5 pm|AC/DC|the `old' and the `new' rules
他说：“好。”|第1/2页|No. 1|state-of-the-art
50 % sparen|v2.13.0|R&D|A & B; C""".replace("\n", "|").split("|")


def spans_of(text):
    return [text[start:end] for start, end, _ in find_spans(text)]


@pytest.mark.parametrize(("kind", "span"), [(kind, span) for kind, spans in KINDS.items() for span in spans.split()])
@pytest.mark.parametrize("around", ["Bitte {} öffnen.", "打开{}。", "({})", "“{}” and", "{}, {}!", "{}"])
def test_span_is_found_in_any_context(kind, span, around):
    text = around.replace("{}", span)
    assert spans_of(text) == [span] * around.count("{}")
    assert find_spans(text)[0].kind == kind


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_has_no_spans(text):
    assert spans_of(text) == []
    assert remove_spans(text) == text


def test_spans_with_spaces_and_adjacent_spans():
    assert spans_of("Go <a href=\"x\" class='y z'>there</a> & <br /><hr>!") == [
        "<a href=\"x\" class='y z'>",
        "</a>",
        "<br /><hr>",
    ]
    assert spans_of("Use `pip install x` in C:\\Program Files\\App\\a.exe now") == [
        "`pip install x`",
        "C:\\Program Files\\App\\a.exe",
    ]
    assert spans_of("{{ user.name }} {count, plural, one {# file} other {# files}}") == [
        "{{ user.name }}",
        "{count, plural, one {# file} other {# files}}",
    ]
    assert spans_of("00:00:01,000 --> 00:00:04,000 align:start") == ["00:00:01,000 --> 00:00:04,000 align:start"]
    assert spans_of("```bash") == ["```bash"]
    assert spans_of("🇩🇪🎉") == ["🇩🇪🎉"]


def test_trailing_punctuation_is_not_part_of_a_span():
    assert spans_of("See https://a.de/b, https://a.de/c; or (https://a.de/d).") == [
        f"https://a.de/{name}" for name in "bcd"
    ]
    assert spans_of("请访问https://a.de/b。") == spans_of("请访问https://a.de/b了解") == ["https://a.de/b"]


def test_split_blocks():
    text = "Run this:\n```bash\nls -l\n```\nThen <!-- a\nb --> go."
    blocks = split_blocks(text)
    assert "".join(piece for piece, _ in blocks) == text
    assert [piece for piece, is_block in blocks if is_block] == ["```bash\nls -l\n```", "<!-- a\nb -->"]
    assert split_blocks("```not closed\nls") == [("```not closed\nls", False)]


@given(st.text(alphabet=st.sampled_from("ab1 .:/@#<>{}%$&`_-\\'\"=;✅️\u200d🇩🇪👍🏽好。\t\n"), max_size=60))
def test_spans_are_in_order_and_do_not_overlap(text):
    ends = [0, *(place for start, end, _ in find_spans(text) for place in (start, end))]
    assert ends == sorted(ends) and all(start < end <= len(text) for start, end, _ in find_spans(text))
