"""What the interfaces of LibreTranslate, DeepL and DeepLX answer, beyond what their clients ask for."""

from __future__ import annotations

import http.client
import io
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import docx
import pytest

from heedful.serving.document_jobs import MAX_UPLOADS
from tests.serving.running_server import SENTENCES, RunningServer, running_server

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server"), "-m", "en-de-zh", workers=1, threads=1) as running:
        yield running


def upload(path: str, name: str, data: bytes, **fields: str) -> tuple[str, str, bytes, dict[str, str]]:
    """A request with a file."""
    head = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
    parts = [f'\r\n--b\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}' for key, value in fields.items()]
    return (
        "POST",
        path,
        head + data + "".join(parts).encode() + b"\r\n--b--\r\n",
        {"Content-Type": "multipart/form-data; boundary=b"},
    )


def libretranslate(server: RunningServer, q: Any, **others: Any) -> Any:
    answer = server.request("POST", "/translate", {"q": q, "source": "en", "target": "de", **others})
    assert answer.status == 200, answer.body
    return answer.json()


def test_libretranslate_shapes(server: RunningServer) -> None:
    """A list gives lists; detection only for auto; alternatives only if they were asked for."""
    assert set(libretranslate(server, "Good morning.")) == {"translatedText"}
    one = libretranslate(server, "Der Hund schläft im Garten.", source="auto", target="en", alternatives=2)
    assert set(one) == {"translatedText", "detectedLanguage", "alternatives"}
    assert one["detectedLanguage"]["language"] == "de" and 0 < one["detectedLanguage"]["confidence"] <= 100
    assert len({one["translatedText"], *one["alternatives"]}) == 1 + len(one["alternatives"]) <= 3
    many = libretranslate(server, SENTENCES[:3], source="auto", alternatives=1)
    assert [len(values) for values in many.values()] == [3, 3, 3]
    assert libretranslate(server, [SENTENCES[0]])["translatedText"] == [
        libretranslate(server, SENTENCES[0])["translatedText"]
    ]
    assert libretranslate(server, [])["translatedText"] == []


@pytest.mark.parametrize("text", ["", " \n ", "😀🎉", "12345", "https://example.org/a?b=c"])
def test_texts_without_words_are_unchanged(server: RunningServer, text: str) -> None:
    assert libretranslate(server, text)["translatedText"] == text
    detected = libretranslate(server, text, source="auto")
    assert detected["translatedText"] == text
    assert detected["detectedLanguage"] == {"confidence": 0, "language": "en"}


@pytest.mark.parametrize("code", ["zh", "zh-Hans", "ZH-HANS", "zh-CN", "Chinese"])
def test_codes_of_chinese(server: RunningServer, code: str) -> None:
    assert re.search("[\u4e00-\u9fff]", libretranslate(server, "Good morning.", target=code)["translatedText"])


def test_target_of_the_same_language(server: RunningServer) -> None:
    assert libretranslate(server, "Good morning.", target="en")["translatedText"] == "Good morning."


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"source": None}, "source"),
        ({"target": None}, "target"),
        ({"target": "auto"}, "'auto' is not supported"),
        ({"target": "zt"}, "traditional"),
        ({"source": "de", "target": "zh"}, "no model translates de into zh"),
        ({"format": "pdf"}, "format"),
        ({"q": None}, "missing"),
    ],
)
def test_libretranslate_refuses(server: RunningServer, change: dict[str, Any], problem: str) -> None:
    answer = server.request("POST", "/translate", {"q": "Hi.", "source": "en", "target": "de"} | change)
    assert answer.status == 400
    assert problem in answer.json()["error"]


def test_libretranslate_languages(server: RunningServer) -> None:
    """The codes that LibreTranslate shows, and those of the model, for clients that compare with this list."""
    listed = {language["code"]: language for language in server.get("/languages").json()}
    assert {"en", "de", "zh", "zh-Hans"} == set(listed)
    assert {"de", "zh", "zh-Hans"} <= set(listed["en"]["targets"])
    assert listed["de"]["name"] == "German"
    assert server.request("POST", "/languages", b"", FORM).json() == server.get("/languages").json()
    chinese = server.get("/languages", headers={"Accept-Language": "zh-CN,zh;q=0.9"}).json()
    assert {"英语", "德语", "中文"} == {language["name"] for language in chinese}


def test_detect(server: RunningServer) -> None:
    found = server.request("POST", "/detect", {"q": "我们明天去北京。"}).json()
    assert found[0]["language"] == "zh-Hans" and found[0]["confidence"] > 50
    assert server.request("POST", "/detect", {"q": "123"}).json() == [{"confidence": 0, "language": "en"}]


def test_other_calls_of_libretranslate(server: RunningServer) -> None:
    settings = server.get("/frontend/settings").json()
    assert settings["charLimit"] == 5000 and settings["keyRequired"] is False and settings["suggestions"] is False
    assert {".txt", ".html"} <= set(settings["supportedFilesFormat"])
    assert server.get("/health").json() == {"status": "ok"}
    suggestion = {"q": "a", "s": "b", "source": "en", "target": "de"}
    assert server.request("POST", "/suggest", suggestion).status == 403


def test_html_as_mastodon_sends_it(server: RunningServer) -> None:
    html = '<p>The <a href="https://a.b/c" class="mention">@<span>cat</span></a> sleeps.<br>It is raining again.</p>'
    answer = libretranslate(server, [html, "<p></p>"], source="auto", format="html")
    first, second = answer["translatedText"]
    assert tags(first) == tags(html) and "https://a.b/c" in first and second == "<p></p>"
    assert answer["detectedLanguage"][0]["language"] == "en" and answer["detectedLanguage"][0]["confidence"] > 0


def tags(markup: str) -> Counter[str]:
    return Counter(re.findall(r"<[^<>]*>", markup))


def test_files(server: RunningServer) -> None:
    answer = server.request(
        *upload("/translate_file", "Über.html", b"<p>Good <b>morning</b>.</p>", source="en", target="de")
    )
    url = urlsplit(answer.json()["translatedFileUrl"])
    assert url.netloc == f"127.0.0.1:{server.port}"
    written = server.get(url.path)
    assert written.status == 200 and tags(written.body.decode()) == tags("<p><b></b></p>")
    assert "attachment" in written.headers["content-disposition"]
    for path in (url.path[:-9], url.path.replace("download_file/", "download_file/0")):
        assert server.get(path).status == 404
    refused = server.request(*upload("/translate_file", "a.json", b"{", source="en", target="de"))
    assert refused.status == 400 and "error" in refused.json()
    assert server.request(*upload("/translate_file", "a.txt", b"\xff\xfe\xff", source="en", target="de")).status == 400
    assert server.request("POST", "/translate_file", b"source=en&target=de", FORM).status == 400


def deepl(server: RunningServer, *texts: str, **others: Any) -> list[str]:
    answer = server.request("POST", "/v2/translate", {"text": texts, "target_lang": "DE", **others})
    assert answer.status == 200, answer.body
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-trace-id"])
    return [translation["text"] for translation in answer.json()["translations"]]


def test_unknown_parameters_are_tolerated(server: RunningServer) -> None:
    plain = deepl(server, "Good morning.")
    extras: dict[str, Any] = {
        "context": "x", "preserve_formatting": True, "formality": "prefer_less", "show_billed_characters": "1",
        "tag_handling_version": "v2", "outline_detection": 0, "model_type": "quality_optimized", "new": [1],
    }  # fmt: skip
    assert deepl(server, "Good morning.", **extras) == plain


@pytest.mark.parametrize("code", ["DE", "de", "de-DE", "DE_AT"])
def test_codes_in_any_form(server: RunningServer, code: str) -> None:
    assert deepl(server, "Good morning.", target_lang=code, source_lang="en-GB") == deepl(server, "Good morning.")


def test_split_sentences(server: RunningServer) -> None:
    """nonewlines joins lines; otherwise lines are kept."""
    assert "\n" in deepl(server, "The cat\nsleeps.")[0]
    assert deepl(server, "The cat\nsleeps.", split_sentences="nonewlines") == deepl(server, "The cat sleeps.")
    assert deepl(server, "The cat sleeps.", split_sentences="0") == deepl(server, "The cat sleeps.")


def test_tag_parameters(server: RunningServer) -> None:
    source = "<d><t>Good morning.</t>The <b>black</b> cat<s/>sleeps. <k>It is  raining</k></d>"
    names = {"splitting_tags": "s,d", "ignore_tags": ["k"], "non_splitting_tags": ["b"]}
    (written,) = deepl(server, source, tag_handling="xml", **names)
    assert tags(written) == tags(source) and "<k>It is  raining</k>" in written
    (html,) = deepl(server, '<p class="x">Good <i>morning</i></p>', tag_handling="html")
    assert html.startswith('<p class="x">') and tags(html) == tags('<p class="x"><i></i></p>')


def test_random_trees_through_the_model(server: RunningServer) -> None:
    """Every tag comes back, and ignored elements unchanged, from the real model."""
    draws = random.Random(1)
    sources = [tree(draws, 3) for _ in range(60)]
    for start in range(0, 60, 20):
        part = sources[start : start + 20]
        for source, written in zip(part, deepl(server, *part, tag_handling="xml", ignore_tags=["x"]), strict=True):
            assert tags(written) == tags(source), source
            assert Counter(re.findall("<x>.*?</x>", written)) == Counter(re.findall("<x>.*?</x>", source)), source


def tree(draws: random.Random, depth: int) -> str:
    pieces = []
    for _ in range(draws.randint(1, 4)):
        kind = draws.random()
        words = draws.choice(SENTENCES).split()
        if kind < 0.4 or not depth:
            pieces.append(" ".join(words[: draws.randint(1, 6)]).replace("&", "&amp;"))
        elif kind < 0.5:
            pieces.append(draws.choice(["<br/>", "<!-- note -->", "<x>%s {0}</x>", "&unknown;"]))
        else:
            name = draws.choice(["a", "b", "p"])
            pieces.append(f"<{name}>{tree(draws, depth - 1)}</{name}>")
    return " ".join(pieces)


def test_documents(server: RunningServer) -> None:
    """The states of a document; its result can be downloaded once, with its key."""
    page = b"<html><body>" + b"<p>The train from Hamburg was two hours late.</p>" * 50 + b"</body></html>"
    sent = server.request(*upload("/v2/document", "page.html", page, target_lang="DE", source_lang="EN")).json()
    path, key = f"/v2/document/{sent['document_id']}", f"document_key={sent['document_key']}".encode()
    assert server.request("POST", path, b"document_key=wrong", FORM).status == 404
    assert server.request("POST", path, b"", FORM).status == 400
    while (state := server.request("POST", path, key, FORM).json())["status"] == "translating":
        assert state["seconds_remaining"] > 0
    assert state["status"] == "done" and state["billed_characters"] == len(page)
    result = server.request("POST", f"{path}/result", key, FORM)
    assert tags(result.body.decode()) == tags(page.decode())
    assert server.request("POST", f"{path}/result", key, FORM).status == 404


def test_documents_that_cannot_be_read(server: RunningServer) -> None:
    sent = server.request(*upload("/v2/document", "a.json", b'{"a": ', target_lang="DE")).json()
    key = {"document_key": sent["document_key"]}
    state = server.request("POST", f"/v2/document/{sent['document_id']}", key).json()
    assert state["status"] == "error" and "line 1" in state["error_message"]
    assert server.request("POST", f"/v2/document/{sent['document_id']}/result", key).status == 400
    for name in ("a.pdf", "a.html.invalid"):
        refused = server.request(*upload("/v2/document", name, b"%PDF", target_lang="DE"))
        assert refused.status == 400 and "file extension" in refused.json()["message"]
    pdf = upload("/v2/document", "a.html", b"<p>Hi.</p>", target_lang="DE", output_format="pdf")
    assert "output_format" in server.request(*pdf).json()["message"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"entries": ""}, "entries"),
        ({"entries": "cat"}, "entry 1 must have two terms"),
        ({"entries": "cat\tKatze\ncat\tKater"}, "twice"),
        ({"entries": "cat\t"}, "empty|two terms"),
        ({"entries": "a b\tc\na  b\td"}, "keep one of them"),
        ({"entries": "c\u0001at\tKatze"}, "control"),
        ({"entries": 'cat,"Katze', "entries_format": "csv"}, "CSV"),
        ({"entries": "\n".join(f"w{n}\tv{n}" for n in range(10_001))}, "10,000"),
        ({"name": " "}, "name"),
        ({"source_lang": None}, "source_lang"),
        ({"source_lang": "de", "target_lang": "zh"}, "no model"),
    ],
)
def test_glossaries_that_are_refused(server: RunningServer, change: dict[str, Any], problem: str) -> None:
    body = {"name": "n", "source_lang": "en", "target_lang": "de", "entries": "cat\tKatze"} | change
    answer = server.request("POST", "/v2/glossaries", body)
    assert answer.status == 400
    assert any(part in answer.json()["message"] for part in problem.split("|")), answer.body
    assert server.request("GET", "/v2/glossaries").json() == {"glossaries": []}


def test_glossary_of_other_languages(server: RunningServer) -> None:
    body = {"name": "n", "source_lang": "en", "target_lang": "de", "entries": "cat,Katze\n", "entries_format": "csv"}
    id = server.request("POST", "/v2/glossaries", body).json()["glossary_id"]
    assert server.request("GET", f"/v2/glossaries/{id}/entries").body == b"cat\tKatze\n"
    for change in ({"source_lang": "EN", "target_lang": "ZH"}, {"target_lang": "DE"}):
        answer = server.request("POST", "/v2/translate", {"text": ["a"], "glossary_id": id, **change})
        assert answer.status == 400
    assert server.request("DELETE", f"/v2/glossaries/{id}").status == 204
    missing = {"text": ["a"], "glossary_id": id, "source_lang": "EN", "target_lang": "DE"}
    assert server.request("POST", "/v2/translate", missing).status == 404


def test_deeplx(server: RunningServer) -> None:
    answer = server.request(
        "POST", "/translate?token=any", {"text": "Good morning.", "source_lang": "auto", "target_lang": "zh"}
    )
    body = answer.json()
    assert body["code"] == 200 and body["source_lang"] == "EN" and body["target_lang"] == "ZH"
    assert body["data"] == libretranslate(server, "Good morning.", target="zh", alternatives=3)["translatedText"]
    assert body["alternatives"] and body["data"] not in body["alternatives"]
    refused = server.request("POST", "/translate", {"text": "Hi.", "target_lang": "xx"})
    assert refused.status == refused.json()["code"] == 400 and "'xx'" in refused.json()["message"]


def test_too_many_uploads(server: RunningServer) -> None:
    """Documents that arrive slowly are bounded, and leave room when their clients go away."""
    waiting = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=30) for _ in range(MAX_UPLOADS)]
    for connection in waiting:
        connection.putrequest("POST", "/v2/document")
        connection.putheader("Content-Type", "multipart/form-data; boundary=b")
        connection.putheader("Content-Length", "1000")
        connection.endheaders()
    document = upload("/v2/document", "a.txt", b"Hi.", target_lang="DE")
    server.wait_until(lambda: server.request(*document).status == 429)
    for connection in waiting:
        connection.close()
    server.wait_until(lambda: server.request(*document).status == 200)


def test_office_documents(server: RunningServer) -> None:
    """A Word file through both interfaces comes back as one, with its bold word."""
    document = docx.Document()
    paragraph = document.add_paragraph("The train from ")
    paragraph.add_run("Hamburg").bold = True
    paragraph.add_run(" was two hours late.")
    file = io.BytesIO()
    document.save(file)
    sent = server.request(*upload("/v2/document", "a.docx", file.getvalue(), target_lang="DE")).json()
    key, path = {"document_key": sent["document_key"]}, f"/v2/document/{sent['document_id']}"
    state = server.request("POST", path, key).json()
    assert state["status"] == "done" and state["billed_characters"] == len("The train from Hamburg was two hours late.")
    found = [server.request("POST", f"{path}/result", key).body]
    answer = server.request(*upload("/translate_file", "a.docx", file.getvalue(), source="en", target="de"))
    found.append(server.get(urlsplit(answer.json()["translatedFileUrl"]).path).body)
    for data in found:
        (written,) = docx.Document(io.BytesIO(data)).paragraphs
        assert "Zug" in written.text and "Hamburg" in [run.text.strip() for run in written.runs if run.bold]


TERMS = {"cat": "Kater", "train": "Eisenbahn", "contract": "Kontrakt"}


def test_terms_of_a_glossary_stand_in_the_translation(server: RunningServer) -> None:
    """In texts, in texts with tags and in documents; other texts do not change."""
    entries = "".join(f"{source}\t{target}\n" for source, target in TERMS.items())
    body = {"name": "n", "source_lang": "en", "target_lang": "de", "entries": entries}
    id = server.request("POST", "/v2/glossaries", body).json()["glossary_id"]
    others: dict[str, Any] = {"source_lang": "EN", "glossary_id": id}
    texts = ["The black cat sleeps.", SENTENCES[6], "Please send the contract back to us before Friday.", SENTENCES[0]]
    cat, train, contract, garden = deepl(server, *texts, **others)
    assert "Kater" in cat and "Eisenbahn" in train and "Kontrakt" in contract
    assert [garden] == deepl(server, SENTENCES[0])
    (marked,) = deepl(server, "The <b>black</b> cat sleeps.", tag_handling="xml", **others)
    assert "Kater" in marked and tags(marked) == tags("<b></b>")
    sent = server.request(*upload("/v2/document", "a.txt", texts[0].encode(), target_lang="DE", **others)).json()
    key = {"document_key": sent["document_key"]}
    path = f"/v2/document/{sent['document_id']}"
    assert server.request("POST", path, key).json()["status"] == "done"
    assert server.request("POST", f"{path}/result", key).body.decode() == cat
    own = server.translate(texts[0], glossary=TERMS, source="en").json()
    assert own["text"] == cat
    assert server.request("DELETE", f"/v2/glossaries/{id}").status == 204


def test_terms_are_bounded(server: RunningServer) -> None:
    """Each term makes a sentence slower: a text has a limit, and of one sentence only some are required."""
    glossary = {
        word: f"Wort{number}" for number, word in enumerate("one two three four five six seven eight nine".split())
    }
    answer = server.translate(" ".join([*glossary] * 6), glossary=glossary, source="en")
    assert answer.status == 400 and "54 terms of the glossary" in answer.json()["error"]["message"]
    dense = server.translate(f"I know {', '.join(glossary)}.", glossary=glossary, source="en").json()
    assert "term_missing" in dense["warnings"]


@pytest.mark.parametrize("glossary", [[], "x", {"a": 1}, {}, {"\ud83d": "x"}, {" ": "x"}, {"a": "x\n"}])
def test_glossaries_of_the_own_interface_that_are_refused(server: RunningServer, glossary: Any) -> None:
    answer = server.translate("A cat.", glossary=glossary)
    assert answer.status == 400 and "glossary" in answer.json()["error"]["message"]
