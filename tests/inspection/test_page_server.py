"""The server of `heedful see` on real sockets: files, headers, caching, and what it refuses."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from heedful.errors import ConfigError
from heedful.inspection.page_server import FIRST_PORT, MAX_BODY, NOTEBOOKS, PageServer, accepts_gzip
from heedful.inspection.static_site import SiteModel, site_models
from heedful.interop.web import BUILT
from tests.inspection.small_sites import Client, connected, running, save_small


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[SiteModel]:
    folder = tmp_path_factory.mktemp("models")
    return site_models([save_small(folder / "small one"), save_small(folder / "gru", architecture="recurrent")])


@pytest.fixture(scope="module")
def server(models: list[SiteModel]) -> Iterator[PageServer]:
    with running(models) as server:
        yield server


@pytest.fixture
def client(server: PageServer) -> Iterator[Client]:
    with connected(server) as client:
        yield client


TYPES = {
    "/": "text/html; charset=utf-8",
    "/index.html": "text/html; charset=utf-8",
    "/page.js": "text/javascript; charset=utf-8",
    "/worker.js": "text/javascript; charset=utf-8",
    "/page.css": "text/css; charset=utf-8",
    "/icon.svg": "image/svg+xml",
    "/engine.wasm": "application/wasm",
    "/site.json": "application/json",
    "/models/small%20one/model.json": "application/json",
    "/models/small%20one/weights.bin": "application/octet-stream",
    "/models/small%20one/tokenizer.model": "application/octet-stream",
}


@pytest.mark.parametrize("path", TYPES)
def test_files_have_types_lengths_and_strict_headers(path: str, client: Client) -> None:
    found = client.get(path)
    assert found.status == 200
    assert found.headers["content-type"] == TYPES[path]
    assert int(found.headers["content-length"]) == len(found.body) > 0
    assert "content-encoding" not in found.headers
    policy = dict(part.strip().partition(" ")[::2] for part in found.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["script-src"] == "'self' 'wasm-unsafe-eval'"
    assert policy["connect-src"] == policy["worker-src"] == policy["style-src"] == policy["frame-ancestors"] == "'self'"
    assert not any("unsafe-inline" in value or "http" in value for value in policy.values())
    assert found.headers["cross-origin-opener-policy"] == "same-origin"
    assert found.headers["cross-origin-embedder-policy"] == "require-corp"
    assert found.headers["cross-origin-resource-policy"] == "same-origin"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "no-referrer"
    assert "server" not in found.headers
    head = client.ask("HEAD", path)
    assert (head.status, head.body) == (200, b"")
    volatile = {"date"}
    assert {key: value for key, value in head.headers.items() if key not in volatile} == {
        key: value for key, value in found.headers.items() if key not in volatile
    }


def test_pages_are_those_that_were_built(client: Client) -> None:
    for path in sorted(BUILT.rglob("*")):
        name = path.relative_to(BUILT).as_posix()
        if path.is_file() and not name.startswith(("example/", "translate/")):
            assert client.get(f"/{name}").body == path.read_bytes(), name
    assert client.get("/example/index.html").status == 404


@pytest.mark.parametrize("path", ["/engine.wasm", "/page.js", "/page.css", "/site.json"])
def test_text_and_wasm_are_compressed_for_clients_that_accept_it(path: str, client: Client) -> None:
    plain, small = client.get(path), client.get(path, Accept_Encoding="br, gzip")
    assert small.headers["content-encoding"] == "gzip"
    assert small.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert gzip.decompress(small.body) == plain.body
    assert len(small.body) == int(small.headers["content-length"]) < len(plain.body)
    assert small.headers["etag"] != plain.headers["etag"]
    assert client.get(path, Accept_Encoding="gzip;q=0").body == plain.body


def test_weights_are_sent_as_they_are(client: Client) -> None:
    found = client.get("/models/small%20one/weights.bin", Accept_Encoding="gzip")
    assert "content-encoding" not in found.headers
    assert found.body.startswith(b"HEEDFULN")


def test_accepted_encodings() -> None:
    for header in ("gzip", "deflate, gzip;q=0.5", "*", "GZIP", "br;q=1, gzip; q=0.1"):
        assert accepts_gzip(header), header
    for header in ("", "br", "gzip;q=0", "gzip; q=0.0", "identity"):
        assert not accepts_gzip(header), header


@pytest.mark.parametrize("path", ["/", "/engine.wasm", "/models/small%20one/weights.bin"])
def test_unchanged_files_are_not_sent_twice(path: str, client: Client) -> None:
    first = client.get(path, Accept_Encoding="gzip")
    tag = first.headers["etag"]
    assert first.headers["cache-control"] == "no-cache"
    for header in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = client.get(path, Accept_Encoding="gzip", If_None_Match=header)
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
        assert "content-security-policy" in again.headers
    assert client.get(path, Accept_Encoding="gzip", If_None_Match='"other"').body == first.body


def test_one_connection_serves_many_requests(client: Client) -> None:
    client.get("/")
    used = client.connection.sock
    for method, path in (("GET", "/site.json"), ("GET", "/missing"), ("HEAD", "/engine.wasm"), ("GET", "/icon.svg")):
        client.ask(method, path)
    client.post("/api/pieces", {"model": "gru", "ids": [4, 5]})
    assert client.get("/").status == 200
    assert client.connection.sock is used


@pytest.mark.parametrize(
    "path",
    [
        "/missing", "/../pyproject.toml", "/..%2f..%2fetc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd",
        "/models/small%20one/../../../../etc/passwd", "/models/small%20one/", "/models", "/page.js/", "/page.js%00",
        "/config.json", "/models/small%20one/config.json", "/models/gru/model.safetensors", "/api/trace", "/[", "/%ff",
        "/etc/passwd",
    ],
)  # fmt: skip
def test_only_files_of_the_site_exist(path: str, client: Client) -> None:
    found = client.get(path)
    assert found.status == 404
    assert found.json == {"error": "there is no such file"}
    assert "content-security-policy" in found.headers


def test_address_may_have_a_query(client: Client) -> None:
    assert client.get("/site.json?sha256=1").body == client.get("/site.json").body


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9000", "[::1]:80", "LOCALHOST:1"])
def test_names_of_this_machine_are_accepted(host: str, client: Client) -> None:
    assert client.get("/", Host=host).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8123", "localhost.evil.example", "192.168.0.1"])
def test_other_names_are_refused(host: str, client: Client) -> None:
    for found in (
        client.get("/", Host=host),
        client.post("/api/trace", {"model": "gru", "text": "a", "target_language": "de"}, Host=host),
    ):
        assert found.status == 421
        assert "localhost only" in found.json["error"]


def raw(server: PageServer, request: bytes) -> bytes:
    """Send bytes and read until the server ends the connection."""
    with socket.create_connection((server.server_name, server.server_port), timeout=60) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: \r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", 505),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"PUT / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"OPTIONS /api/trace HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n", 405),
        (b"POST /api/trace HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n", 411),
        (
            b"POST /api/trace HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            411,
        ),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 405),
    ],
)
def test_malformed_requests_end_with_one_error(request_bytes: bytes, status: int, server: PageServer) -> None:
    answer = raw(server, request_bytes)
    assert answer.count(b"HTTP/1.1 ") == 1
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"Connection: close" in head
    assert list(json.loads(body)) == ["error"]


def test_body_of_a_refused_request_is_not_read_as_a_request(server: PageServer) -> None:
    hidden = b"GET /site.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for start in (b"GET /", b"POST /missing"):
        head = start + b" HTTP/1.1\r\nHost: localhost\r\ncontent-length: %d\r\n\r\n" % len(hidden)
        assert raw(server, head + hidden).count(b"HTTP/1.1 ") == 1


def test_requests_about_models_are_checked(client: Client) -> None:
    good = {"model": "gru", "text": "The cat", "target_language": "de"}
    cases = [
        ("/api/trace", {**good, "model": "small one"}, 404, "this server runs no such model; it runs gru"),
        ("/api/trace", {"text": "a"}, 404, "no such model"),
        ("/api/trace", {**good, "model": ["gru"]}, 404, "no such model"),
        ("/api/delete", good, 404, "there are trace, translate, pieces, encode"),
        ("/api/a/b", good, 404, "there is no such interface"),
        ("/missing", good, 404, "there is no such interface"),
        ("/page.js", good, 405, "read with GET"),
        ("/api/trace", b"{", 400, "not JSON"),
        ("/api/trace", b"\xff", 400, "not JSON"),
        ("/api/trace", b"[" * 60_000, 400, "not JSON"),
        ("/api/trace", b"[1]", 400, "not a JSON object"),
        ("/api/trace", b" " * (MAX_BODY + 1), 413, "at most 65,536 bytes"),
    ]
    for path, request, status, problem in cases:
        found = client.post(path, request)
        assert found.status == status, found
        assert problem in found.json["error"]
        assert found.headers["content-type"] == "application/json"
    assert client.ask("POST", "/api/trace", b"{}", Content_Type="text/plain").status == 415
    assert client.post("/api/trace", good).status == 200


def test_sentences_do_not_reach_the_log(server: PageServer, client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    for path in ("/api/trace", "/api/translate", "/api/wrong"):
        client.post(path, {"model": "gru", "text": "a secret sentence", "target_language": "de"})
    client.get("/a%20secret%20sentence")
    raw(server, b"a secret sentence\r\n\r\n")
    said = capfd.readouterr()
    assert said.out + said.err == ""


def test_notebooks_may_frame_the_page(models: list[SiteModel]) -> None:
    with running(models, frame_ancestors=NOTEBOOKS) as server, connected(server) as client:
        policy = client.get("/").headers["content-security-policy"]
    assert policy.endswith("frame-ancestors 'self' " + " ".join(NOTEBOOKS))


def test_other_addresses_accept_every_name(models: list[SiteModel]) -> None:
    with running(models, host="0.0.0.0") as server, connected(server) as client:
        assert client.get("/", Host="my-machine.example:1").status == 200


def test_port_is_the_first_free_one(models: list[SiteModel]) -> None:
    with PageServer(models) as first, PageServer(models) as second:
        assert FIRST_PORT <= first.server_port < second.server_port
        with pytest.raises(ConfigError, match=f"--port {first.server_port}: another program uses this port"):
            PageServer(models, port=first.server_port)
    with pytest.raises(ConfigError, match="--port 70000: a port is a number"):
        PageServer(models, port=70_000)
    with pytest.raises(ConfigError, match=r"--host 192\.0\.2\.1: .*; give an address of this machine"):
        PageServer(models, host="192.0.2.1")


def test_address_has_the_sentence_after_the_number_sign(models: list[SiteModel]) -> None:
    with PageServer(models) as server:
        start = f"http://127.0.0.1:{server.server_port}/"
        assert server.url() == server.url(text=None, to=None) == start
        assert (
            server.url(text="a&b = 100% 你好", to="de")
            == f"{start}#text=a%26b%20%3D%20100%25%20%E4%BD%A0%E5%A5%BD&to=de"
        )


def test_page_without_its_files_names_the_remedy(
    models: list[SiteModel], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("heedful.interop.web.BUILT", tmp_path)
    with pytest.raises(ConfigError, match=r"lacks engine\.js, .* run python web/build\.py"):
        PageServer(models)
