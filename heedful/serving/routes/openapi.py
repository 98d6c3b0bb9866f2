"""The description of all interfaces: `/openapi.json`, and `/docs`, a page that needs nothing but its own HTML."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

import yaml
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from heedful import __version__
from heedful.serving.endpoints import RouteContext

METHODS = ("get", "post", "delete")
CHINESE = "x-zh"
STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881 }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem }
nav a { margin-right: 1rem } h2 { margin-top: 2rem; border-bottom: 1px solid var(--line) }
details { border: 1px solid var(--line); border-radius: .4rem; margin: .5rem 0; padding: .5rem .75rem }
summary { cursor: pointer; overflow-wrap: anywhere } summary span { color: GrayText }
code, pre { font: 14px/1.45 ui-monospace, monospace } summary code { font-weight: 600 }
pre { background: var(--soft); padding: .6rem; border-radius: .3rem; white-space: pre-wrap; overflow-wrap: anywhere }
table { border-collapse: collapse; display: block; overflow-x: auto }
td, th { border-bottom: 1px solid var(--line); padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top }
""".strip()
WORDS = {
    "en": {
        "title": "Interfaces of this server",
        "other": '<a href="?lang=zh" hreflang="zh" lang="zh">中文</a>',
        "json": "OpenAPI document",
        "example": "Example",
        "parameter": "Parameter",
        "type": "Type",
        "required": "required",
        "answer": "Answer",
        "error": "error",
    },
    "zh": {
        "title": "本服务器的接口",
        "other": '<a href="?lang=en" hreflang="en" lang="en">English</a>',
        "json": "OpenAPI 文档",
        "example": "示例",
        "parameter": "参数",
        "type": "类型",
        "required": "必需",
        "answer": "响应",
        "error": "错误",
    },
}


def routes(context: RouteContext) -> list[BaseRoute]:
    """The routes of the description."""

    async def document(request: Request) -> Response:
        """The description as JSON."""
        return JSONResponse(openapi_document())

    async def page(request: Request) -> Response:
        """The description as a page, in the language of the browser."""
        wanted = request.query_params.get("lang") or request.headers.get("accept-language", "")
        language = "zh" if wanted.lower().startswith("zh") else "en"
        html = docs_page(language, str(request.base_url).rstrip("/"))
        return HTMLResponse(html, headers={"Content-Security-Policy": POLICY, "Vary": "Accept-Language"})

    return [
        Route("/openapi.json", document, methods=["GET"]),
        Route("/spec", document, methods=["GET"]),
        Route("/docs", page, methods=["GET"]),
    ]


@cache
def openapi_document() -> dict[str, Any]:
    """The OpenAPI document."""
    document: dict[str, Any] = yaml.safe_load(files("heedful.serving").joinpath("openapi.yaml").read_text("utf-8"))
    document["info"]["version"] = __version__
    return document


def docs_page(language: str, url: str) -> str:
    """The description as HTML; `url` stands in the examples."""
    document, words = openapi_document(), WORDS[language]
    sections = "".join(_section(document, tag, language, url) for tag in document["tags"])
    links = "".join(f'<a href="#{tag["name"]}">{escape(tag["name"])}</a>' for tag in document["tags"])
    about = escape(_text(document["info"], "summary", language))
    return (
        f'<!doctype html><html lang="{language}"><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{words["title"]} · heedful</title>'
        f"<style>{STYLE}</style><h1>{words['title']}</h1><p>{about}</p>"
        f'<nav>{links}<a href="openapi.json">{words["json"]}</a>{words["other"]}</nav>{sections}</html>'
    )


def _section(document: Mapping[str, Any], tag: Mapping[str, Any], language: str, url: str) -> str:
    """The operations with a tag."""
    operations = "".join(
        _operation(document, path, method, item[method], language, url)
        for path, item in document["paths"].items()
        for method in METHODS
        if method in item and tag["name"] in item[method]["tags"]
    )
    about = escape(_text(tag, "description", language))
    return f'<section><h2 id="{tag["name"]}">{escape(tag["name"])}</h2><p>{about}</p>{operations}</section>'


def _operation(
    document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any], language: str, url: str
) -> str:
    words, about = WORDS[language], _inline(_text(operation, "summary", language))
    required = f", {words['required']}"
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(kind)}{required if needed else ''}</td>"
        f"<td>{_inline(description)}</td></tr>"
        for name, kind, needed, description in _parameters(document, operation, language)
    )
    table = f"<table><tr><th>{words['parameter']}</th><th>{words['type']}</th><th></th></tr>{rows}</table>"
    answers = "".join(
        f"<li><code>{words['error'] if status == 'default' else status}</code> "
        f"{_inline(_text(_resolve(document, answer), 'description', language))}</li>"
        for status, answer in operation["responses"].items()
    )
    example = f"<p>{words['example']}:</p><pre>{escape(_curl(method, path, operation, url))}</pre>"
    return (
        f"<details><summary><code>{method.upper()} {escape(path)}</code> <span>{about}</span></summary>"
        f"{table if rows else ''}{example}<p>{words['answer']}:</p><ul>{answers}</ul></details>"
    )


def _parameters(
    document: Mapping[str, Any], operation: Mapping[str, Any], language: str
) -> Iterator[tuple[str, str, bool, str]]:
    """Name, type, whether it is required, and description of each parameter, also of the body."""
    for parameter in operation.get("parameters", ()):
        yield parameter["name"], _kind(document, parameter["schema"]), parameter.get("required", False), ""
    contents = operation.get("requestBody", {}).get("content", {})
    schema: Mapping[str, Any] = next((content["schema"] for content in contents.values()), {})
    alternatives = [_resolve(document, one) for one in schema.get("anyOf", schema.get("allOf", [schema]))]
    for one in alternatives:
        for name, property in one.get("properties", {}).items():
            described = property if "description" in property else _resolve(document, property)
            about = _text(described, "description", language)
            yield name, _kind(document, property), name in one.get("required", ()), about


def _kind(document: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """The type of a value in a few words."""
    resolved = _resolve(document, schema)
    if "enum" in resolved:
        return " | ".join(resolved["enum"])
    if "anyOf" in resolved:
        return " | ".join(_kind(document, one) for one in resolved["anyOf"])
    if resolved.get("type") == "array":
        return f"[{_kind(document, resolved.get('items', {}))}]"
    return "file" if resolved.get("format") == "binary" else str(resolved.get("type", ""))


def _resolve(document: Mapping[str, Any], value: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reference refers to."""
    if "$ref" not in value:
        return value
    found: Any = document
    for name in value["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    return _resolve(document, found)


def _curl(method: str, path: str, operation: Mapping[str, Any], url: str) -> str:
    """A command that calls the operation."""
    command = f"curl {url}{path}" if method == "get" else f"curl -X {method.upper()} {url}{path}"
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "query" and parameter.get("required"):
            command += f" -G -d {parameter['name']}={_FORM_EXAMPLES[parameter['name']]}"
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        if "example" in content:
            data = json.dumps(content["example"], ensure_ascii=False)
            return f"curl {url}{path} -H 'Content-Type: {kind}' -d '{data}'"
        if kind == "multipart/form-data":
            names = content["schema"].get("required", ())
            return f"curl {url}{path} " + " ".join(f"-F {name}={_FORM_EXAMPLES[name]}" for name in names)
    return command


_FORM_EXAMPLES = {
    "file": "@text.txt",
    "source": "en",
    "target": "de",
    "target_lang": "DE",
    "text": "Hello",
    "document_key": "KEY",
}


def _inline(text: str) -> str:
    """HTML of a text with code in backquotes."""
    return re.sub(r"`(.+?)`", r"<code>\1</code>", escape(text))


def _text(item: Mapping[str, Any], name: str, language: str) -> str:
    """A text of the document in a language."""
    return str(item.get(CHINESE if language == "zh" else name, ""))


_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
