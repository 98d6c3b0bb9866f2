"""Parameters by JSON, form and query string; what is wrong with a request has a status and a body of its interface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tests.serving.running_server import Answer, RunningServer, running_server

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}
MAX_CHARACTERS, MAX_TEXTS, MAX_BODY = 500, 5, 10_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    limits = {"max_characters": MAX_CHARACTERS, "max_texts": MAX_TEXTS, "max_body_bytes": MAX_BODY, "max_fields": 20}
    folder = tmp_path_factory.mktemp("server")
    with running_server(folder, "-m", "en-de-zh", workers=1, threads=1, **limits) as running:
        yield running


class Interface:
    """How one interface translates a text, and where its errors have their message."""

    def __init__(self, path: str, text: str, error: str, others: dict[str, Any]) -> None:
        self.path, self.text, self.error, self.others = path, text, error, others

    def body(self, text: Any, **others: Any) -> dict[str, Any]:
        return {**self.others, self.text: text, **others}

    def message(self, answer: Answer) -> str:
        """The message of an error response, which must have the shape of the interface."""
        assert 400 <= answer.status < 500, (answer.status, answer.body)
        found: Any = answer.json()
        for name in self.error.split("."):
            found = found[name]
        assert isinstance(found, str) and found
        return found


LIBRETRANSLATE = Interface("/translate", "q", "error", {"source": "en", "target": "de"})
DEEPL = Interface("/v2/translate", "text", "message", {"target_lang": "DE"})
DEEPLX = Interface("/translate", "text", "message", {"target_lang": "DE"})
OWN = Interface("/api/v1/translate", "text", "error.message", {"target": "de"})
LISTS = pytest.mark.parametrize("interface", [LIBRETRANSLATE, DEEPL, OWN])
ALL = pytest.mark.parametrize("interface", [LIBRETRANSLATE, DEEPL, DEEPLX, OWN])


@ALL
def test_json_form_and_query_are_the_same(server: RunningServer, interface: Interface) -> None:
    body = interface.body("Good morning.")
    encoded = urlencode(body).encode()
    answers = [
        server.request("POST", interface.path, body),
        server.request("POST", interface.path, encoded, FORM),
        server.request("POST", f"{interface.path}?{urlencode(body)}"),
        server.request("POST", f"{interface.path}?{urlencode(interface.others)}", {interface.text: "Good morning."}),
        server.request("POST", interface.path, *multipart(body)),
        server.request("POST", interface.path, json.dumps(body).encode("utf-16"), JSON | charset("utf-16")),
    ]
    assert [answer.status for answer in answers] == [200] * len(answers), [answer.body for answer in answers]
    assert len({json.dumps({**answer.json(), "id": 0}) for answer in answers}) == 1


def charset(name: str) -> dict[str, str]:
    return {"Content-Type": f"application/json; charset={name}"}


def multipart(fields: dict[str, str]) -> tuple[bytes, dict[str, str]]:
    parts = [f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{v}\r\n' for name, v in fields.items()]
    return ("".join(parts) + "--b--\r\n").encode(), {"Content-Type": "multipart/form-data; boundary=b"}


def test_body_wins_over_query(server: RunningServer) -> None:
    answer = server.request("POST", "/translate?target=xx&source=en", {"q": "Good morning.", "target": "de"})
    assert answer.status == 200


def test_get_with_a_form_body(server: RunningServer) -> None:
    """The official client of DeepL asks for languages like this, and another one with an empty form."""
    targets = server.request("GET", "/v2/languages", b"type=target", FORM).json()
    assert {"EN-US", "DE", "ZH"} <= {language["language"] for language in targets}
    assert server.request("GET", "/languages", b"", FORM).status == 200


def test_line_ends_of_forms(server: RunningServer) -> None:
    """Forms write line ends as CRLF; they count as one character, and are LF in the translation."""
    text = "Good morning.\r\n" * (MAX_CHARACTERS // 14)
    answer = server.request("POST", "/translate", urlencode(LIBRETRANSLATE.body(text)).encode(), FORM)
    assert answer.status == 200
    assert answer.json()["translatedText"].count("\n") == text.count("\n")
    assert "\r" not in answer.json()["translatedText"]
    assert "\r\n" in server.request("POST", "/translate", LIBRETRANSLATE.body("One.\r\nTwo.")).json()["translatedText"]


@ALL
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (5, "a number"),
        (True, "true or false"),
        ({"a": 1}, "an object"),
        (["a", 5], "a number|a list"),
        ([["a"]], "a list"),
        (None, "missing"),
        ("half \ud83d of a pair", "surrogate"),
        ("x" * (MAX_CHARACTERS + 1), "characters"),
    ],
)
def test_texts_of_wrong_types(server: RunningServer, interface: Interface, text: Any, problem: str) -> None:
    message = interface.message(server.request("POST", interface.path, interface.body(text)))
    assert any(part in message for part in problem.split("|")), message


@LISTS
def test_number_of_texts(server: RunningServer, interface: Interface) -> None:
    assert server.request("POST", interface.path, interface.body(["a"] * MAX_TEXTS)).status == 200
    answer = server.request("POST", interface.path, interface.body(["a"] * (MAX_TEXTS + 1)))
    assert f"limit of {MAX_TEXTS}" in interface.message(answer)


@ALL
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"{", "not valid JSON at line 1, column 2"),
        (b"[1]", "must be an object"),
        (b'{"a": NaN}', "not valid JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[" * 9000, "nested too deeply"),
        (b'{"a":' * 1500 + b"1" + b"}" * 1500, "nested too deeply|missing"),
        (b"\xff\xfe", "not valid UTF-8"),
    ],
)
def test_broken_json(server: RunningServer, interface: Interface, body: bytes, problem: str) -> None:
    path = f"{interface.path}?{urlencode(interface.others)}" if interface is not DEEPLX else "/translate?text=a"
    answer = server.request("POST", path, body, JSON)
    message = Interface("", "", "error", {}).message(answer) if interface is DEEPLX else interface.message(answer)
    assert any(part in message for part in problem.split("|")), message


@ALL
@pytest.mark.parametrize(
    ("headers", "body", "status", "problem"),
    [
        ({"Content-Type": "text/plain"}, b"text", 415, "type of the body"),
        ({"Content-Type": "application/json; charset=klingon"}, b"{}", 400, "charset"),
        ({"Content-Type": "application/json; charset=punycode"}, b"{}", 400, "charset"),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, b"{}", 415, "compressed"),
        (FORM, b"a=%ff", 400, "not valid UTF-8"),
        (FORM, b"&".join([b"a=1"] * 21), 400, "20 fields"),
        (JSON, b'{"q": "' + b"x" * MAX_BODY + b'"}', 413, "10,000 bytes"),
        ({"Content-Type": "multipart/form-data"}, b"x", 400, "multipart"),
        ({"Content-Type": "multipart/form-data; boundary=b"}, b"--b\r\nx\r\n\r\n", 400, "multipart"),
    ],
)
def test_bodies_that_are_refused(
    server: RunningServer, interface: Interface, headers: dict[str, str], body: bytes, status: int, problem: str
) -> None:
    answer = server.request("POST", interface.path, body, headers)
    assert answer.status == status
    shape = LIBRETRANSLATE if interface is DEEPLX else interface
    assert problem in shape.message(answer)


NUMBERS = ["x", "1.5", "-1", "6", str(2**31), str(2**63), "9" * 4000, "NaN", "", 1.5, -1, 6, 2**63, True, [1], {}, "１"]


@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize("path", ["/translate", "/api/v1/translate", "/v1/chat/completions"])
def test_counts(server: RunningServer, path: str, value: Any) -> None:
    """Alternatives are bounded before any work; an empty field is the default."""
    body = {
        "/translate": LIBRETRANSLATE.body("Hello.", alternatives=value),
        "/api/v1/translate": OWN.body("Hello.", alternatives=value),
        "/v1/chat/completions": {"model": "en-de", "messages": [{"role": "user", "content": "Hi."}], "n": value},
    }[path]
    answer = server.request("POST", path, body)
    is_allowed = value in ("", "１") or (path.startswith("/v1") and value in (6, "6") and value is not True)
    assert answer.status == (200 if is_allowed else 400), (value, answer.body)


def test_json_sent_as_a_form_is_explained(server: RunningServer) -> None:
    """curl -d '{…}' without a header."""
    answer = server.request("POST", "/translate", json.dumps(LIBRETRANSLATE.body("Hi.")).encode(), FORM)
    assert "Content-Type: application/json" in LIBRETRANSLATE.message(answer)


def test_long_query_string(server: RunningServer) -> None:
    """A text of the maximum length in the query string, with three bytes for each character."""
    query = urlencode(LIBRETRANSLATE.body("我" * MAX_CHARACTERS, source="zh", target="en"), quote_via=quote)
    assert server.request("POST", f"/translate?{query}").status == 200


@pytest.mark.parametrize("path", ["/download_file/x", "/download_file/..%2f..%2fetc%2fpasswd", "/v2/document/x/result"])
def test_unknown_files(server: RunningServer, path: str) -> None:
    method = "POST" if path.startswith("/v2") else "GET"
    assert server.request(method, path, b"document_key=%2e%2e", FORM).status == 404


def test_no_text_of_clients_in_log_or_metrics(server: RunningServer) -> None:
    secret = "Xylophonquark"
    server.request("POST", "/translate", LIBRETRANSLATE.body(secret))
    server.request("POST", f"/translate?q={secret}&api_key={secret}&source={secret}&target=de")
    server.request("POST", f"/{secret}", b"{", JSON)
    server.request("GET", f"/download_file/{secret}")
    server.request("GET", "/v2/usage", headers={"Authorization": f"DeepL-Auth-Key {secret}"})
    server.request("POST", "/v1/chat/completions", {"model": secret, "messages": secret})
    assert secret not in server.log()
    assert secret not in server.get("/metrics").body.decode()
