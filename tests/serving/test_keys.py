"""API keys: what their file keeps, rates, quotas, and the statuses of each interface."""

from __future__ import annotations

import http.client
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from heedful.errors import ConfigError
from heedful.serving.access import MAX_REMEMBERED, RateLimiter
from heedful.serving.keys import KeyStore
from tests.serving.running_server import Answer, RunningServer, running_server

Send = Callable[[str | None], Answer]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[KeyStore]:
    made = KeyStore(tmp_path / "keys.sqlite", create=True)
    yield made
    made.close()


def test_secrets_are_not_in_the_file(store: KeyStore) -> None:
    secret = store.add("alice")
    found = store.find(secret)
    assert found is not None and found.name == "alice"
    written = b"".join(path.read_bytes() for path in store.path.parent.iterdir())
    assert b"alice" in written
    assert secret.encode() not in written and secret[3:].encode() not in written
    assert store.path.stat().st_mode & 0o077 == 0


def test_keys_are_long_and_different(store: KeyStore) -> None:
    secrets = {store.add(f"key {number}") for number in range(100)}
    assert len(secrets) == 100 and min(map(len, secrets)) >= 43
    assert store.find("hd-") is None and store.find("") is None and store.find("\ud800") is None


def test_revoked_keys_are_not_found(store: KeyStore) -> None:
    secret = store.add("alice")
    store.revoke("alice")
    assert store.find(secret) is None and not store.has_active()
    with pytest.raises(ConfigError, match="no active key 'alice'"):
        store.revoke("alice")
    store.add("alice")
    with pytest.raises(ConfigError, match="already"):
        store.add("alice")
    listed = store.keys()
    assert [key.revoked is None for key in listed] == [False, True]


def test_quota_under_concurrent_use(store: KeyStore) -> None:
    """The last characters are given once."""
    key = store.find(store.add("alice", characters_per_month=1000))
    assert key is not None
    with ThreadPoolExecutor(8) as pool:
        allowed = list(pool.map(lambda _: store.charge(key, 30), range(50)))
    assert sum(allowed) == 33
    assert store.keys()[0].used == 990
    assert store.charge(key, -30) and store.charge(key, 40) and not store.charge(key, 1)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="heedful keys add"):
        KeyStore(tmp_path / "missing")
    (tmp_path / "text").write_text("not a database, but long enough to be read as one" * 50)
    with pytest.raises(ConfigError, match="cannot be used"):
        KeyStore(tmp_path / "text")
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("create table t (x)")
    other.close()
    with pytest.raises(ConfigError, match="not a file of API keys"):
        KeyStore(tmp_path / "other")


def test_rates() -> None:
    now = 0.0
    limiter = RateLimiter(lambda: now)
    assert [limiter.take("a", 6) for _ in range(6)] == [0.0] * 6
    assert limiter.take("a", 6) == pytest.approx(10)
    assert limiter.take("b", 6) == 0
    now = 10.0
    assert limiter.take("a", 6) == 0 and limiter.take("a", 6) == pytest.approx(10)
    for number in range(2 * MAX_REMEMBERED):
        limiter.take(str(number), 6)
    assert len(limiter._clients) == MAX_REMEMBERED


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyStore]:
    made = KeyStore(tmp_path_factory.mktemp("keys") / "keys.sqlite", create=True)
    yield made
    made.close()


@pytest.fixture(scope="module")
def good(keys: KeyStore) -> str:
    return keys.add("good")


@pytest.fixture(scope="module")
def server(keys: KeyStore, good: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("server")
    with running_server(folder, "-m", "en-de-zh", "--keys", str(keys.path), workers=1, threads=1) as running:
        yield running


def senders(server: RunningServer) -> Mapping[str, Send]:
    """A request of each interface with a key, where its clients put the key."""

    def libretranslate(key: str | None) -> Answer:
        return server.request("POST", "/translate", {"q": "Hi.", "source": "en", "target": "de", "api_key": key})

    def with_header(path: str, body: Any, scheme: str) -> Send:
        def send(key: str | None) -> Answer:
            return server.request("POST", path, body, {} if key is None else {"Authorization": f"{scheme} {key}"})

        return send

    return {
        "libretranslate": libretranslate,
        "deepl": with_header("/v2/translate", {"text": ["Hi."], "target_lang": "DE"}, "DeepL-Auth-Key"),
        "deeplx": with_header("/translate", {"text": "Hi.", "target_lang": "DE"}, "Bearer"),
        "openai": with_header(
            "/v1/chat/completions", {"model": "en-de", "messages": [{"role": "user", "content": "Hi."}]}, "Bearer"
        ),
        "own": with_header("/api/v1/translate", {"text": "Hi.", "target": "de"}, "Bearer"),
    }


@pytest.mark.parametrize(
    ("interface", "missing", "wrong", "quota"),
    [
        ("libretranslate", 400, 403, 403),
        ("deepl", 403, 403, 456),
        ("deeplx", 401, 401, 456),
        ("openai", 401, 401, 429),
        ("own", 401, 403, 403),
    ],
)
def test_statuses(
    server: RunningServer, keys: KeyStore, good: str, interface: str, missing: int, wrong: int, quota: int
) -> None:
    send = senders(server)[interface]
    small = keys.add(f"small {interface}", characters_per_month=5)
    slow = keys.add(f"slow {interface}", requests_per_minute=2)
    assert send(None).status == missing
    assert send("hd-wrong").status == wrong
    assert send(good).status == 200
    assert [send(small).status, send(small).status] == [200, quota]
    assert [send(slow).status, send(slow).status] == [200, 200]
    answer = send(slow)
    assert answer.status == 429 and 1 <= int(answer.headers["retry-after"]) <= 30
    keys.revoke(f"small {interface}")
    assert send(small).status == wrong


def test_usage_is_that_of_the_key(server: RunningServer, keys: KeyStore) -> None:
    secret = keys.add("counted", characters_per_month=100)
    header = {"Authorization": f"DeepL-Auth-Key {secret}"}
    body = {"text": ["Hi.", "Hello."], "target_lang": "DE"}
    assert server.request("POST", "/v2/translate", body, header).status == 200
    assert server.request("POST", "/v2/translate", {**body, "target_lang": "XX"}, header).status == 400
    usage = server.request("GET", "/v2/usage", headers=header)
    assert usage.json() == {"character_count": 9, "character_limit": 100}


def test_glossaries_and_documents_of_others(server: RunningServer, keys: KeyStore, good: str) -> None:
    other = {"Authorization": f"DeepL-Auth-Key {keys.add('other')}"}
    mine = {"Authorization": f"DeepL-Auth-Key {good}"}
    terms = {"name": "t", "source_lang": "en", "target_lang": "de", "entries": "cat\tKatze"}
    id = server.request("POST", "/v2/glossaries", terms, mine).json()["glossary_id"]
    assert server.request("GET", f"/v2/glossaries/{id}", headers=mine).status == 200
    for method, path in (("GET", f"/v2/glossaries/{id}"), ("DELETE", f"/v2/glossaries/{id}")):
        assert server.request(method, path, headers=other).status == 404
    assert server.request("GET", "/v2/glossaries", headers=other).json() == {"glossaries": []}


def test_routes_that_need_no_key(server: RunningServer) -> None:
    for path in (
        "/languages",
        "/frontend/settings",
        "/health",
        "/livez",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/docs",
    ):
        assert server.get(path).status == 200, path
    assert server.get("/frontend/settings").json()["keyRequired"] is True


def test_no_secret_in_the_log(server: RunningServer, good: str) -> None:
    for send in senders(server).values():
        send(good)
        send("hd-some-wrong-key")
    server.get(f"/v2/usage?auth_key={good}")
    assert good not in server.log() and "some-wrong-key" not in server.log()


def test_rate_of_addresses_without_a_key(tmp_path: Path) -> None:
    """Each address has its rate, behind a proxy too; an IPv6 network counts as one, this machine has no limit."""
    with running_server(tmp_path, "-m", "en-de-zh", workers=1, threads=1, requests_per_minute=3) as server:

        def status(address: str | None) -> int:
            headers = {} if address is None else {"X-Forwarded-For": address}
            return server.request("POST", "/translate", {"q": "Hi.", "source": "en", "target": "de"}, headers).status

        assert [status("203.0.113.5") for _ in range(4)] == [200, 200, 200, 429]
        assert status("203.0.113.6") == 200
        assert status("198.51.100.1, 203.0.113.5") == 429  # what a client adds itself is not believed
        assert [status(f"2001:db8::{number}") for number in range(1, 5)] == [200, 200, 200, 429]
        assert status("2001:db8:0:1::1") == 200
        assert [status(None) for _ in range(6)] == [200] * 6
        assert "203.0.113" not in server.log() and "2001:db8" not in server.get("/metrics").body.decode()


def test_other_proxies_are_not_believed(tmp_path: Path) -> None:
    limits = {"requests_per_minute": 1, "trusted_proxies": "192.0.2.1"}
    with running_server(tmp_path, "-m", "en-de-zh", workers=1, threads=1, **limits) as server:
        header = {"X-Forwarded-For": "203.0.113.5"}
        body = {"q": "Hi.", "source": "en", "target": "de"}
        assert [server.request("POST", "/translate", body, header).status for _ in range(3)] == [200] * 3


def test_glossaries_are_kept_in_their_file(tmp_path: Path) -> None:
    terms = {"name": "t", "source_lang": "en", "target_lang": "de", "entries": "cat\tKatze"}
    settings = {"workers": 1, "threads": 1, "glossaries": tmp_path / "glossaries.sqlite"}
    with running_server(tmp_path, "-m", "en-de-zh", **settings) as server:
        made = server.request("POST", "/v2/glossaries", terms).json()
    with running_server(tmp_path, "-m", "en-de-zh", **settings) as server:
        assert server.get("/v2/glossaries").json() == {"glossaries": [made]}
        assert server.get(f"/v2/glossaries/{made['glossary_id']}/entries").body == b"cat\tKatze\n"


def test_documents_are_read_only_with_a_key(server: RunningServer) -> None:
    """The answer comes before the body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.putrequest("POST", "/v2/document")
    connection.putheader("Content-Type", "multipart/form-data; boundary=b")
    connection.putheader("Content-Length", "10000000")
    connection.endheaders()
    assert connection.getresponse().status == 403
    connection.close()
