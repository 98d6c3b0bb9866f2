"""The OpenAPI document has the routes of the application, and is shown without anything from elsewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

import heedful
from heedful.serving.app import build_app
from heedful.serving.routes import openapi
from heedful.serving.routes.openapi import docs_page, openapi_document
from heedful.serving.service import TranslationService
from heedful.serving.settings import ServerSettings
from tests.serving.running_server import running_server

METHODS = {"get", "post", "put", "patch", "delete"}


@pytest.fixture(scope="module")
def client() -> TestClient:
    """Requests without a network to an application whose engines were not started."""
    settings = ServerSettings()
    return TestClient(build_app(TranslationService(settings), settings), base_url="http://server:1")


def test_document_has_every_route(client: TestClient) -> None:
    documented = {
        (method.upper(), path) for path, item in openapi_document()["paths"].items() for method in METHODS & set(item)
    }
    routes = {
        (method, route.path)
        for route in client.app.routes  # type: ignore[attr-defined]
        if isinstance(route, Route) and route.include_in_schema
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert documented == routes


def test_document_is_served_and_references_resolve(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert document == client.get("/spec").json()
    assert document["info"]["version"] == heedful.__version__
    for reference in re.findall(r"'\$ref': '(.*?)'", str(document)):
        assert openapi._resolve(document, {"$ref": reference})


def test_every_text_is_in_both_languages() -> None:
    document = openapi_document()
    operations = [item[method] for item in document["paths"].values() for method in METHODS & set(item)]
    for described in (*operations, document["info"], *document["tags"], *described_in(document["paths"])):
        assert re.search(r"[\u4e00-\u9fff]|^OpenAPI", described["x-zh"]), described
    assert len(list(described_in(document["components"]["schemas"]))) > 10
    assert all("x-zh" in described for described in described_in(document["components"]["schemas"]))
    assert all("x-zh" in described for described in described_in(document["components"]["responses"]))


def described_in(part: Any) -> Iterator[dict[str, Any]]:
    """All objects with a description."""
    if isinstance(part, dict) and isinstance(part.get("description"), str):
        yield part
    for one in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from described_in(one)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_page_needs_nothing_from_elsewhere(client: TestClient, language: str) -> None:
    page = client.get("/docs", headers={"Accept-Language": f"{language},en;q=0.5"})
    assert f'<html lang="{language}">' in page.text
    assert page.text == client.get(f"/docs?lang={language}").text
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert not re.search(r"<script|<link|<img|style=|\son\w+=|src=", page.text)
    assert {link for link in re.findall(r'href="([^#"]*)"', page.text) if link} == {
        "openapi.json",
        f"?lang={'en' if language == 'zh' else 'zh'}",
    }
    for path in openapi_document()["paths"]:
        assert path in page.text


def test_examples_of_the_page_work(tmp_path: Path) -> None:
    """Every curl command with a JSON body, sent as it stands."""
    with running_server(tmp_path, "-m", "en-de-zh", workers=1, threads=1) as server:
        page = unescape(docs_page("en", f"http://127.0.0.1:{server.port}"))
        commands = re.findall(r"<pre>(curl [^<]*)</pre>", page)
        num_tried = 0
        for command in commands:
            words = shlex.split(command)
            path = "/" + words[1].split("/", 3)[3] if words[1].startswith("http") else "{"
            data = [value for flag, value in pairwise(words) if flag == "-d"]
            if not data or "{" in path:
                continue
            num_tried += 1
            is_get = "-G" in words
            sent = server.get(f"{path}?{'&'.join(data)}") if is_get else server.request("POST", path, data[0].encode())
            assert sent.status in (200, 201), command
        assert num_tried >= 9
