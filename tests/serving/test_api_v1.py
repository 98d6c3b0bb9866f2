"""The server's own interface, operations, metrics and log."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heedful.decoding.text_splitting import join_text, split_text
from heedful.decoding.translator import Translator
from heedful.serving.service import STREAM_RULE
from tests.serving.running_server import Connection, RunningServer, running_server

DOCUMENT = "It is raining. We stay at home.\n\nThe children read a book. Their mother writes a letter!\n" * 12


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server"), workers=1, log_format="json") as server:
        yield server


def test_one_text_or_a_list(server: RunningServer) -> None:
    one = server.translate("It is raining.", source="en").json()
    both = server.translate(["It is raining.", "Good morning."], source="en").json()
    assert both["translations"][0] == one
    assert one.keys() == {"text", "source", "target", "score", "log_prob"}
    assert (one["source"], one["target"]) == ("en", "de")
    assert one["log_prob"] < one["score"] < 0
    assert server.translate([], source="en").json() == {"translations": []}
    assert server.translate("", source="en").json()["text"] == ""


def test_alternatives_alignment_and_prefix(server: RunningServer) -> None:
    text = "The house is small."
    found = server.translate(text, source="en", alternatives=3, align=True).json()
    texts = [found["text"], *(one["text"] for one in found["alternatives"])]
    assert 2 <= len(set(texts)) == len(texts) <= 4
    scores = [found["score"], *(one["score"] for one in found["alternatives"])]
    assert scores == sorted(scores, reverse=True)
    words = {text[a:b]: found["text"][c:d] for (a, b), (c, d) in found["alignment"]}
    assert words["house"] == "Haus"
    forced = server.translate(text, source="en", prefix="Das kleine").json()
    assert forced["text"].startswith("Das kleine")


def test_languages_are_detected_and_named_by_any_code(server: RunningServer) -> None:
    found = server.translate("今天天气很好。", target="English").json()
    assert found["detected"]["language"] == "zh"
    assert found["detected"]["confidence"] > 0.9
    assert (
        server.translate("Guten Morgen!", target="en-US", source="German").json()
        == server.translate("Guten Morgen!", target="en", source="de").json()
    )
    unchanged = server.translate("Das ist schon Deutsch.", target="de").json()
    assert unchanged["text"] == "Das ist schon Deutsch."
    answer = server.request("POST", "/api/v1/detect", {"text": ["Guten Morgen, wie geht es dir?", "123"]})
    guesses = [one["languages"] for one in answer.json()["detections"]]
    assert guesses[0][0]["language"] == "de"
    assert guesses[1] == []


def test_languages_and_models(server: RunningServer) -> None:
    listed = server.get("/api/v1/languages").json()["languages"]
    targets = {one["code"]: set(one["targets"]) for one in listed}
    assert targets == {"en": {"de", "zh"}, "de": {"en"}, "zh": {"en"}}
    chinese = server.get("/api/v1/languages", headers={"Accept-Language": "zh-CN,zh;q=0.9"}).json()["languages"]
    assert [one["name"] for one in chinese if one["code"] == "de"] == ["德语"]
    models = server.get("/api/v1/models").json()["models"]
    assert "en-de-zh" in [one["name"] for one in models]


def test_html_keeps_its_tags(server: RunningServer) -> None:
    text = '<p>The <b>house</b> is <a href="/x?a=1&amp;b=2">small</a>.</p><script>let x = "a house"</script>'
    found = server.translate(text, source="en", format="html").json()["text"]
    for kept in ("<p>", "<b>Haus</b>", '<a href="/x?a=1&amp;b=2">', "</a>", '<script>let x = "a house"</script>'):
        assert kept in found


def events(port: int, body: Any) -> Iterator[tuple[float, str, Any]]:
    """When each server-sent event came, its name and its data."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/api/v1/stream", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    try:
        assert response.status == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        name = ""
        while line := response.readline().decode():
            if line.startswith("event: "):
                name = line[7:].strip()
            elif line.startswith("data: "):
                yield time.monotonic(), name, json.loads(line[6:])
    finally:
        response.close()
        connection.close()


def test_a_document_is_streamed_sentence_by_sentence(server: RunningServer) -> None:
    received = list(events(server.port, {"text": DOCUMENT, "source": "en", "target": "zh"}))
    assert [name for _, name, _ in received] == ["sentence"] * 48 + ["done"]
    assert received[-1][2] == {"sentences": 48}
    assert received[0][0] < received[-1][0]
    segments = split_text(DOCUMENT, STREAM_RULE)
    alone = Translator.load().translate(
        [segment.text for segment in segments], source_language="en", target_language="zh"
    )
    assert "".join(data["text"] for _, _, data in received[:-1]) == join_text(segments, [one.text for one in alone])
    assert [data["log_prob"] for _, _, data in received[:-1]] == [one.log_prob for one in alone]


def test_a_stream_of_a_client_that_goes_away_ends(server: RunningServer) -> None:
    stream = events(server.port, {"text": DOCUMENT * 20, "source": "en", "target": "de"})
    next(stream)
    stream.close()
    server.wait_until(lambda: server.metric("open_requests") == 1 and server.metric("queue_texts") == 0)


def test_a_stream_that_cannot_begin_has_a_status(server: RunningServer) -> None:
    assert server.request("POST", "/api/v1/stream", {"text": "a", "target": "xx"}).status == 400
    assert server.request("POST", "/api/v1/stream", {"text": "a" * 100_001, "target": "de"}).status == 400
    assert [event[1:] for event in events(server.port, {"text": "", "target": "de"})] == [("done", {"sentences": 0})]


def test_unknown_paths_and_methods_are_answered_in_json(server: RunningServer) -> None:
    for method, path, status in (("GET", "/nowhere", 404), ("GET", "/api/v1/translate", 405)):
        answer = server.request(method, path)
        assert answer.status == status
        assert "error" in answer.json()


def test_neither_log_nor_metrics_contain_text_keys_or_addresses(server: RunningServer) -> None:
    secret, key = "Geheimnis", "ein-schluessel"
    server.translate(secret, target="en", api_key=key)
    server.request(
        "POST", f"/{secret}?{secret}={secret}", {"text": secret}, headers={"X-Api-Key": key, "User-Agent": secret}
    )
    server.request(secret.upper(), "/api/v1/translate", {"text": secret})
    server.request("POST", "/api/v1/translate", {"text": secret, "target": secret})
    everything = server.log() + server.get("/metrics").body.decode()
    for hidden in (secret, secret.upper(), key, "127.0.0.1"):
        assert hidden not in everything
    lines = [json.loads(line) for line in server.log().splitlines()]
    assert {"time", "event", "method", "route", "status", "seconds"} == lines[-1].keys()
    assert {line["route"] for line in lines} <= {
        "/api/v1/" + name for name in ("translate", "stream", "detect", "languages", "models")
    } | {"other"}


def test_metrics_count_what_was_done(server: RunningServer) -> None:
    labels = '{route="/api/v1/translate",method="POST",status="200"}'
    before = {name: server.metric(name) for name in ("texts_total", "characters_total", "target_tokens_total")}
    requests = server.metric("requests_total", labels)
    server.translate(["It is raining.", "Good morning."], source="en")
    assert server.metric("requests_total", labels) == requests + 1
    assert server.metric("texts_total") == before["texts_total"] + 2
    assert server.metric("characters_total") == before["characters_total"] + 27
    assert server.metric("target_tokens_total") > before["target_tokens_total"]
    text = server.get("/metrics").body.decode()
    for line in text.splitlines():
        assert line.startswith("#") or len(line.rsplit(" ", 1)) == 2
    assert text.count("# TYPE heedful_request_seconds histogram") == 1


def test_overload_is_answered_429_and_accepted_texts_are_translated(tmp_path: Path) -> None:
    settings = {"workers": 1, "max_queued_texts": 8, "max_queued_texts_per_client": 8, "request_seconds": 60}

    async def run(port: int) -> list[Any]:
        async def send(number: int) -> Any:
            connection = Connection(port)
            body = {"text": f"The train number {number} is late again. " * 20, "source": "en", "target": "de"}
            answer = await connection.post("/api/v1/translate", body)
            await connection.closed()
            return answer

        return await asyncio.gather(*map(send, range(60)))

    with running_server(tmp_path, **settings) as server:
        answers = asyncio.run(run(server.port))
        refused = [answer for answer in answers if answer.status == 429]
        assert {answer.status for answer in answers} == {200, 429}
        assert len(refused) >= 30
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        assert server.metric("texts_refused_total") == len(refused)
        assert server.translate("It is raining.", source="en").status == 200


def test_requests_end_at_their_deadline(tmp_path: Path) -> None:
    with running_server(tmp_path, workers=1, request_seconds=0.2, batch_tokens=16, max_body_bytes=1_000_000) as server:
        texts = [f"The train number {number} is late again. " * 60 for number in range(50)]
        assert server.translate(texts, source="en").status in (429, 503)
        server.wait_until(lambda: server.metric("queue_texts") == 0)
        server.wait_until(lambda: server.translate("It is raining.", source="en").status == 200)


def test_one_sentence_does_not_wait_for_a_client_with_thousands(tmp_path: Path) -> None:
    """Two API keys are two clients: one fills the queue, the other sends single sentences."""
    from heedful.serving.keys import KeyStore

    store = KeyStore(tmp_path / "keys.sqlite", create=True)
    keys = [store.add(name) for name in ("many", "single")]
    store.close()
    settings = {"workers": 1, "request_seconds": 300, "keys": tmp_path / "keys.sqlite", "log_requests": False}

    async def run(server: RunningServer) -> None:
        parameters = {"source": "en", "target": "de", "beam_size": 1}
        texts = [f"The train number {number} from Hamburg is late." for number in range(50)]
        connections = [Connection(server.port) for _ in range(13)]
        body = {**parameters, "text": texts, "api_key": keys[0]}
        many = [asyncio.create_task(one.post("/api/v1/translate", body)) for one in connections[1:]]
        while await asyncio.to_thread(server.metric, "queue_texts") < 400:
            await asyncio.sleep(0.01)
        for _ in range(3):
            single = {**parameters, "text": "It is raining.", "api_key": keys[1]}
            assert (await connections[0].post("/api/v1/translate", single)).status == 200
        assert await asyncio.to_thread(server.metric, "queue_texts") > 100
        assert {answer.status for answer in await asyncio.gather(*many)} == {200}
        for connection in connections:
            await connection.closed()

    with running_server(tmp_path, **settings) as server:
        asyncio.run(run(server))
