"""DeepL's HTTP interface, version 2: texts, languages, usage, documents and glossaries."""

from __future__ import annotations

import asyncio
import csv
import io
import secrets
from pathlib import PurePath
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from heedful.serving.access import Client, given_key
from heedful.serving.endpoints import ErrorStyle, RouteContext, endpoint, markup_format, while_connected
from heedful.serving.glossaries import Glossary
from heedful.serving.languages import deepl_source_code, deepl_source_codes, deepl_target_codes
from heedful.serving.requests import Parameters, RequestError, read_parameters, refuse
from heedful.serving.routes.libretranslate import attachment
from heedful.serving.service import TextRequest
from heedful.text.documents import format_of

STYLE = ErrorStyle(
    lambda status, message: {"message": message},
    quota_exceeded=456,
    headers=lambda: {"X-Trace-ID": secrets.token_hex(16)},
)
UNLIMITED = 1_000_000_000_000
"""How DeepL reports that there is no limit on characters."""
FIRST_POLL_SECONDS = 2.0
"""How long a question for a document waits for its end: clients ask again only after 5 seconds."""
MAX_GLOSSARY_BYTES = 1_048_576
SPLIT: dict[str, Literal["long", "never"]] = {"0": "never", "1": "long", "nonewlines": "long"}
FORMALITIES = ("default", "more", "less", "prefer_more", "prefer_less")


def routes(context: RouteContext) -> list[BaseRoute]:
    """The routes of this interface."""
    handlers = DeepL(context)

    def route(path: str, handler: Any, *methods: str) -> Route:
        return Route(f"/v2/{path}", endpoint(STYLE, handler), methods=list(methods))

    return [
        route("translate", handlers.translate, "GET", "POST"),
        route("languages", handlers.languages, "GET", "POST"),
        route("usage", handlers.usage, "GET", "POST"),
        route("document", handlers.upload_document, "POST"),
        route("document/{id}", handlers.document_status, "GET", "POST"),
        route("document/{id}/result", handlers.document_result, "GET", "POST"),
        route("glossary-language-pairs", handlers.glossary_language_pairs, "GET"),
        route("glossaries", handlers.list_glossaries, "GET"),
        route("glossaries", handlers.create_glossary, "POST"),
        route("glossaries/{id}", handlers.get_glossary, "GET"),
        route("glossaries/{id}", handlers.delete_glossary, "DELETE"),
        route("glossaries/{id}/entries", handlers.glossary_entries, "GET"),
    ]


class DeepL:
    """The handlers."""

    def __init__(self, context: RouteContext) -> None:
        self.context, self.service, self.settings = context, context.service, context.settings

    # ---- texts -------------------------------------------------------------------------------------------------------

    async def translate(self, request: Request) -> Response:
        """Translate texts."""
        parameters, client = await self._read(request)
        texts, _ = parameters.texts("text")
        self.context.check_texts(texts, "text")
        source, target = self._languages(parameters)
        self._check_formality(parameters)
        format = markup_format(parameters)
        split = parameters.choice("split_sentences", tuple(SPLIT), "1" if format == "text" else "nonewlines")
        parameters.boolean("preserve_formatting")
        glossary = await self._glossary(parameters, client, source, target)
        results = await self.context.translate(
            request,
            client,
            [
                TextRequest(
                    text.replace("\n", " ") if split == "nonewlines" and format == "text" else text,
                    source,
                    target,
                    format=format,
                    split=SPLIT[split],
                    ignore_tags=parameters.names("ignore_tags"),
                    splitting_tags=parameters.names("splitting_tags"),
                    non_splitting_tags=parameters.names("non_splitting_tags"),
                    detects_outline=parameters.boolean("outline_detection", default=True),
                    glossary=glossary,
                )
                for text in texts
            ],
        )
        model_type = {"model_type_used": "latency_optimized"} if parameters.text("model_type") else {}
        return JSONResponse(
            {
                "translations": [
                    {
                        "detected_source_language": deepl_source_code(result.source or self.service.sources()[0]),
                        "text": result.text,
                        "billed_characters": len(text),
                        **model_type,
                    }
                    for text, result in zip(texts, results, strict=True)
                ]
            }
        )

    async def languages(self, request: Request) -> Response:
        """The source or the target languages."""
        parameters, _ = await self._read(request)
        if parameters.choice("type", ("source", "target"), "source") == "source":
            sources = [item for code in self.service.sources() for item in deepl_source_codes(code).items()]
            return JSONResponse([{"language": code, "name": name} for code, name in dict(sources).items()])
        targets = [item for code in self.service.targets() for item in deepl_target_codes(code).items()]
        return JSONResponse(
            [{"language": code, "name": name, "supports_formality": False} for code, name in dict(targets).items()]
        )

    async def usage(self, request: Request) -> Response:
        """The characters translated this month with the API key, and its quota."""
        _, client = await self._read(request)
        used, limit = (client.key.used, client.key.characters_per_month) if client.key else (0, None)
        return JSONResponse({"character_count": used, "character_limit": UNLIMITED if limit is None else limit})

    # ---- documents ---------------------------------------------------------------------------------------------------

    async def upload_document(self, request: Request) -> Response:
        """Begin to translate a document."""
        query = Parameters(dict(request.query_params))  # the key is checked before the document is read
        client = await self.context.access.identify(request, given_key(request, query))
        parameters = await self.context.parameters(request, documents=True)
        if "file" not in parameters.files:
            refuse("file: this parameter is missing; send a multipart form.")
        file = parameters.files["file"]
        source, target = self._languages(parameters)
        self._check_formality(parameters)
        name = PurePath(parameters.text("filename") or file.name or "file").name or "file"
        wanted = parameters.text("output_format")
        if wanted and format_of(f"file.{wanted}") != format_of(name):
            refuse("output_format: must be the format of the file; documents keep their format.")
        glossary = await self._glossary(parameters, client, source, target)
        job = self.context.documents.start(file.data, name, source, target, client=client, glossary=glossary)
        return JSONResponse({"document_id": job.id, "document_key": job.key})

    async def document_status(self, request: Request) -> Response:
        """The state of a document."""
        parameters, _ = await self._read(request)
        job = self.context.documents.find(request.path_params["id"], parameters.required_text("document_key"))
        await while_connected(request, job.wait(FIRST_POLL_SECONDS))
        state: dict[str, Any] = {"document_id": job.id, "status": job.status}
        if job.status == "translating":
            state["seconds_remaining"] = 5
        if job.status == "done":
            state["billed_characters"] = job.characters
        if job.status == "error":
            state["error_message"] = job.problem
        return JSONResponse(state)

    async def document_result(self, request: Request) -> Response:
        """The translated document, once."""
        parameters, _ = await self._read(request)
        job = self.context.documents.find(request.path_params["id"], parameters.required_text("document_key"))
        await while_connected(request, job.wait(FIRST_POLL_SECONDS))
        if job.error is not None:
            raise job.error
        if job.status != "done":
            raise RequestError(503, "the document is not translated yet.", retry_after=1)
        self.context.documents.forget(job)
        return Response(job.result, media_type="application/octet-stream", headers=attachment(job.name))

    # ---- glossaries --------------------------------------------------------------------------------------------------

    async def glossary_language_pairs(self, request: Request) -> Response:
        """The language pairs that a glossary may have."""
        await self._read(request)
        pairs = dict.fromkeys((_base(pair.source), _base(pair.target)) for pair in self.service.directions())
        return JSONResponse(
            {"supported_languages": [{"source_lang": source, "target_lang": target} for source, target in pairs]}
        )

    async def list_glossaries(self, request: Request) -> Response:
        """The glossaries of the client."""
        _, client = await self._read(request)
        found = await asyncio.to_thread(self.context.glossaries.owned_by, self._owner(client))
        return JSONResponse({"glossaries": [_describe(glossary) for glossary in found]})

    async def create_glossary(self, request: Request) -> Response:
        """Make a glossary."""
        limit = max(MAX_GLOSSARY_BYTES, self.settings.max_body_bytes)
        parameters = await read_parameters(request, max_body_bytes=limit, max_fields=self.settings.max_fields)
        client = await self.context.access.identify(request, given_key(request, parameters))
        source, target = self._languages(parameters)
        if source is None:
            refuse("source_lang: this parameter is missing.")
        if target not in self.service.targets(source):
            refuse("no model translates from this source_lang into this target_lang.")
        written = parameters.text("entries") or refuse("entries: this parameter is missing.")
        entries = _read_entries(written, parameters.choice("entries_format", ("tsv", "csv"), "tsv"))
        name = parameters.text("name") or refuse("name: this parameter is missing.")
        made = await asyncio.to_thread(self.context.glossaries.add, self._owner(client), name, source, target, entries)
        return JSONResponse(_describe(made), 201)

    async def get_glossary(self, request: Request) -> Response:
        """A glossary without its entries."""
        _, client = await self._read(request)
        found = await asyncio.to_thread(self.context.glossaries.find, self._owner(client), request.path_params["id"])
        return JSONResponse(_describe(found))

    async def delete_glossary(self, request: Request) -> Response:
        """Delete a glossary."""
        _, client = await self._read(request)
        await asyncio.to_thread(self.context.glossaries.remove, self._owner(client), request.path_params["id"])
        return Response(status_code=204)

    async def glossary_entries(self, request: Request) -> Response:
        """The entries of a glossary, with tabs between their two terms."""
        _, client = await self._read(request)
        entries = await asyncio.to_thread(
            self.context.glossaries.entries, self._owner(client), request.path_params["id"]
        )
        lines = [f"{source}\t{target}\n" for source, target in entries]
        return PlainTextResponse("".join(lines), media_type="text/tab-separated-values")

    # ---- parameters --------------------------------------------------------------------------------------------------

    async def _read(self, request: Request) -> tuple[Parameters, Client]:
        parameters = await self.context.parameters(request)
        return parameters, await self.context.access.identify(request, given_key(request, parameters))

    def _languages(self, parameters: Parameters) -> tuple[str | None, str]:
        """The models' codes of the source (None: detect) and the target."""
        return self.context.source(parameters, "source_lang"), self.context.target(parameters, "target_lang")

    def _check_formality(self, parameters: Parameters) -> None:
        formality = parameters.choice("formality", FORMALITIES, "default")
        if formality in ("more", "less"):
            refuse("formality: is not supported for this target_lang; use prefer_more or prefer_less.")

    async def _glossary(
        self, parameters: Parameters, client: Client, source: str | None, target: str
    ) -> tuple[tuple[str, str], ...]:
        """The entries of the glossary that a request names."""
        id = parameters.text("glossary_id")
        if not id:
            return ()
        if source is None:
            refuse("source_lang: must be given with a glossary_id.")
        owner = self._owner(client)
        found = await asyncio.to_thread(self.context.glossaries.find, owner, id)
        if (found.source, found.target) != (source, target):
            refuse("glossary_id: the glossary is for other languages.")
        return tuple(await asyncio.to_thread(self.context.glossaries.entries, owner, id))

    def _owner(self, client: Client) -> str:
        """Whose glossaries a client sees: those of its key; without keys, those of everybody on this machine."""
        if client.key is not None:
            return client.name
        if not self.settings.is_loopback:
            raise RequestError(403, "glossaries need an API key on this server.")
        return ""


def _base(code: str | None) -> str:
    """A glossary's language, in lower case and without region."""
    return (code or "").split("-", 1)[0].lower()


def _describe(glossary: Glossary) -> dict[str, Any]:
    return {
        "glossary_id": glossary.id,
        "ready": True,
        "name": glossary.name,
        "source_lang": _base(glossary.source),
        "target_lang": _base(glossary.target),
        "creation_time": glossary.created,
        "entry_count": glossary.num_entries,
    }


def _read_entries(written: str, format: str) -> list[tuple[str, str]]:
    """The entries of a glossary: two terms in a line."""
    if format == "csv":
        try:
            rows = list(csv.reader(io.StringIO(written), strict=True))
        except csv.Error:
            refuse("entries: not valid CSV.")
    else:
        rows = [line.split("\t") for line in written.splitlines()]
    rows = [[term.strip() for term in row] for row in rows if any(term.strip() for term in row)]
    for number, row in enumerate(rows, start=1):
        if len(row) < 2 or (format == "tsv" and len(row) != 2):
            refuse(f"entries: entry {number} must have two terms.")
    return [(row[0], row[1]) for row in rows]
