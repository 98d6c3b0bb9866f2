"""`TranslationService`: what the routes of all HTTP interfaces call."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, NamedTuple

from heedful.decoding.document_translation import detect_document_language, with_tags
from heedful.decoding.text_splitting import Segment, SplitRule, space_between, split_text
from heedful.errors import DecodingError, HeedfulError
from heedful.serving.batcher import Batcher, Item, QueueFull, estimated_tokens
from heedful.serving.engine_pool import EnginePool
from heedful.serving.json_log import log
from heedful.serving.metrics import Metrics
from heedful.serving.settings import ServerSettings
from heedful.text.corpus import Direction
from heedful.text.documents import format_of, translate_document
from heedful.text.documents.document import MarkedText
from heedful.text.documents.markup import MarkupOptions
from heedful.text.documents.xml_format import read_markup
from heedful.text.glossary import Glossary
from heedful.text.language_id import detect_language
from heedful.text.language_names import language_code, target_code
from heedful.text.language_routing import Directions

STREAM_RULE = SplitRule("always", 128, 128, estimated_tokens)
"""How a streamed text is split into sentences."""
MAX_TERMS = 50
"""Terms of a glossary in one text."""
COST_OF_TERM = 6
"""How much longer a sentence takes for each term of a glossary, in its time without."""
STREAM_WINDOW = 32
"""Sentences of a streamed text that are translated ahead."""
DOCUMENT_TEXTS = 256
"""Texts of a document that are queued together."""
DOCUMENT_THREADS = 2
"""Documents that are read and written at the same time."""
FULL_QUEUE_PAUSE = 0.05
"""Seconds before a stream tries again to queue a sentence."""

Span = tuple[int, int]
"""Start and end of a word, in characters."""


@dataclass(frozen=True)
class TextRequest:
    """A text to translate, and how."""

    text: str
    source: str | None
    """A model's language code; None: detect."""
    target: str
    """A model's language code; `TranslationService.language_code` finds it."""
    format: Literal["text", "html", "xml"] = "text"
    """With html and xml, tags are kept."""
    num_best: int = 1
    """Number of translations: 1 + alternatives."""
    beam_size: int | None = None
    """None: that of the model, or `num_best` if that is larger."""
    prefix: str | None = None
    """What the translation must begin with."""
    align: bool = False
    """Whether to return which words correspond."""
    split: Literal["long", "always", "never"] = "long"
    """Which lines are split into sentences."""
    ignore_tags: tuple[str, ...] = ()
    """Elements of html and xml that are copied unchanged."""
    splitting_tags: tuple[str, ...] = ()
    """Elements of html and xml that separate texts."""
    non_splitting_tags: tuple[str, ...] = ()
    """Elements of html and xml that are inside a text."""
    detects_outline: bool = True
    """Whether other elements of xml separate texts unless there is text beside them."""
    glossary: tuple[tuple[str, str], ...] = ()
    """Pairs of a source term and its translation."""


@dataclass(frozen=True)
class Alternative:
    """A further translation of a text."""

    text: str
    score: float
    log_prob: float


@dataclass(frozen=True)
class TextResult:
    """The translation of a text."""

    text: str
    alternatives: tuple[Alternative, ...] = ()
    """The further translations asked for with `num_best`, best first, each different."""
    source: str | None = None
    """The given or detected source language."""
    detected_source: str | None = None
    """The detected source language; None if it was given, or if it cannot be detected."""
    confidence: float = 0.0
    """Confidence of the detected source language, from 0 to 1."""
    score: float = 0.0
    log_prob: float = 0.0
    alignment: tuple[tuple[Span, Span], ...] | None = None
    """With `align`: pairs of corresponding words, as character spans of the source and of the translation."""
    source_span: Span | None = None
    """Of a streamed sentence: where it is in the source. The spans of `alignment` count from its start."""
    num_source_tokens: int = 0
    num_target_tokens: int = 0
    warnings: tuple[str, ...] = ()
    """Keys of `heedful.decoding.translation.WARNINGS`."""


class BatchKey(NamedTuple):
    """What the texts of a batch have in common."""

    source: str | None
    target: str
    num_best: int
    beam_size: int | None
    align: bool
    split: str
    glossary: tuple[tuple[str, str], ...]
    """The terms that occur in the texts."""


class LanguageGuess(NamedTuple):
    """A language that a text may be in."""

    language: str
    confidence: float
    """From 0 to 1."""


class Overloaded(Exception):  # noqa: N818
    """The queue is full, or the request would wait too long. HTTP status 429."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"the server is busy; try again in {retry_after:.0f} seconds")
        self.retry_after = retry_after
        """Estimated seconds until the queue has room."""


class DeadlinePassed(Exception):  # noqa: N818
    """The request was not finished in time. HTTP status 503 or 504, as each interface has it."""

    def __init__(self) -> None:
        super().__init__("the translation was not finished in time")


class EngineFailed(Exception):  # noqa: N818
    """No engine could finish the request, although it was sent several times. HTTP status 503."""

    def __init__(self) -> None:
        super().__init__("the translation engine failed; try again")


class BadRequest(HeedfulError):  # noqa: N818
    """A request that can never succeed. HTTP status 400, with the error body of each interface."""

    def __init__(self, problem: str, number: int | None = None) -> None:
        super().__init__(problem, number)
        self.problem, self.number = problem, number
        """What is wrong, and the number of the text in the request, from 1."""

    def __str__(self) -> str:
        return self.problem if self.number is None else f"text {self.number} {self.problem}"


class TranslationService:
    """Translates for all clients. Requests of all of them share batches."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings, self.metrics = settings, Metrics()
        self.pool = EnginePool(settings, self.metrics)
        self.batcher = Batcher(
            self._translate_batch,
            self.metrics,
            num_lanes=self.pool.num_workers,
            batch_cost=settings.batch_tokens,
            wait_seconds=settings.batch_wait_ms / 1000,
            max_items=settings.max_queued_texts,
            max_items_per_client=settings.max_queued_texts_per_client,
        )
        self.metrics.queue_texts.read = lambda: self.batcher.num_queued
        self.metrics.ready.read = lambda: float(self.is_ready())
        self._is_stopping = False
        self._document_threads = ThreadPoolExecutor(DOCUMENT_THREADS, "document")

    async def start(self) -> None:
        """Start the engines; `HeedfulError` if a model cannot be loaded."""
        await self.pool.start()
        self.batcher.start()

    def begin_shutdown(self) -> None:
        """Be no longer ready, but answer what comes."""
        self._is_stopping = True

    async def stop(self) -> None:
        """End the engines."""
        self.begin_shutdown()
        await self.batcher.stop()
        await self.pool.stop()
        self._document_threads.shutdown(wait=False, cancel_futures=True)

    async def reload(self) -> None:
        """Load the models again; requests go on meanwhile. `HeedfulError`: the old ones stay."""
        try:
            await self.pool.reload()
        except HeedfulError as error:
            self.metrics.reloads.add(labels=("failed",))
            log("reload_failed", problem=str(error))
            raise
        self.metrics.reloads.add(labels=("done",))
        log("reloaded", models=", ".join(self.model_names()))

    # ---- languages ---------------------------------------------------------------------------------------------------

    def directions(self) -> list[Direction]:
        """All pairs of languages that the models translate, in the order of the models."""
        return self.pool.directions

    def sources(self) -> list[str]:
        """All source languages."""
        return list(dict.fromkeys(pair.source for pair in self.directions() if pair.source))

    def targets(self, source: str | None = None) -> list[str]:
        """All target languages, or those for a source language."""
        pairs = [pair for pair in self.directions() if source is None or pair.source == source]
        return list(dict.fromkeys(pair.target for pair in pairs if pair.target))

    def language_code(self, given: str, *, role: Literal["source", "target"]) -> str:
        """The models' code for a language given by any code or name (`zh-Hans` is `zh`); `BadRequest` if none fits."""
        known = self.sources() if role == "source" else self.targets()
        try:
            code = language_code(given, known) if role == "source" else target_code(given, known)
        except DecodingError as error:
            raise BadRequest(f"{role} language: {error}") from None
        if code not in known:
            raise BadRequest(f"{role} language: {given[:40]!r} is not supported; choose one of {', '.join(known)}.")
        return code

    def model_names(self) -> list[str]:
        """The names of the models, in the order in which they are asked for a direction."""
        return [model["name"] for model in self.pool.description["models"]]

    def is_ready(self) -> bool:
        """Whether the engines translate and the server is not shutting down."""
        return not self._is_stopping and self.pool.is_ready()

    async def detect(self, texts: Sequence[str]) -> list[list[LanguageGuess]]:
        """The languages that each text may be in, best first; empty for texts without words."""
        languages = tuple(dict.fromkeys((*self.sources(), *self.targets())))

        def guess(text: str) -> list[LanguageGuess]:
            language, confidence = detect_language(text, languages)
            return [LanguageGuess(language, confidence)] if language else []

        return await asyncio.to_thread(lambda: [guess(text) for text in texts])

    # ---- texts -------------------------------------------------------------------------------------------------------

    async def translate(
        self, requests: Sequence[TextRequest], *, client: str, deadline: float | None = None
    ) -> list[TextResult]:
        """Translate texts; results are in their order.

        `client`: who asks, for fairness between clients. `deadline`: seconds; None: `request_seconds`. A text that is
        in its target language already is returned unchanged.
        Raises `BadRequest`, `Overloaded`, `DeadlinePassed` or `EngineFailed`. When the calling task is cancelled,
        texts that no engine has begun are dropped.
        """
        if len(requests) > self.settings.max_texts:
            raise BadRequest(f"{len(requests)} texts are more than the limit of {self.settings.max_texts}.")
        for number, request in enumerate(requests, start=1):
            self._check(request, number, self.settings.max_characters)
        seconds = deadline or self.settings.request_seconds
        plain = [request for request in requests if request.format == "text"]
        marked = [request for request in requests if request.format != "text"]
        works = [self._translate_plain(plain, client, seconds)] if plain else []
        works += [self._translate_markup(request, client, seconds) for request in marked]
        tasks = [asyncio.ensure_future(work) for work in works]
        try:
            found = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        of_plain, of_marked = (
            iter(found[0] if plain else ()),
            iter(one for part in found[bool(plain) :] for one in part),
        )
        return [next(of_plain if request.format == "text" else of_marked) for request in requests]

    async def stream(self, request: TextRequest, *, client: str) -> AsyncIterator[TextResult]:
        """Translate a text sentence by sentence: the texts of the results concatenate to the translation."""
        self._check(request, 1, self.settings.max_stream_characters)
        segments = await asyncio.to_thread(split_text, request.text, STREAM_RULE)
        source = request.source or await self._language_of([segment.text for segment in segments])
        ends_at = time.monotonic() + self.settings.document_seconds
        pending: deque[asyncio.Task[list[TextResult]]] = deque()
        waiting = iter(segments)
        previous: tuple[Segment, str] | None = None
        end = 0
        try:
            for index, segment in enumerate(segments):
                for ahead in islice(waiting, STREAM_WINDOW - len(pending)):
                    one = replace(request, text=ahead.text, source=source, prefix=None if index else request.prefix)
                    seconds = max(ends_at - time.monotonic(), 0.0)
                    pending.append(asyncio.create_task(self._translate_plain([one], client, seconds, patient=True)))
                result = (await pending.popleft())[0]
                space = space_between(previous[0], segment, previous[1], result.text) if previous else segment.before
                previous = segment, result.text
                start = request.text.index(segment.text, end)
                end = start + len(segment.text)
                yield after_space(replace(result, source_span=(start, end)), space)
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    def _check(self, request: TextRequest, number: int, max_characters: int) -> None:
        """Raise `BadRequest` for what can never be translated."""
        settings = self.settings
        length = len(request.text)
        if length > max_characters:
            raise BadRequest(f"has {length:,} characters, more than the limit of {max_characters:,}.", number)
        if not is_whole(request.text) or not is_whole(request.prefix or ""):
            raise BadRequest("contains half of a surrogate pair, which is not a character.", number)
        if not 1 <= request.num_best <= settings.max_alternatives + 1:
            raise BadRequest(f"alternatives must be from 0 to {settings.max_alternatives}.")
        if not 1 <= (request.beam_size or 1) <= settings.max_beam_size:
            raise BadRequest(f"beam_size must be from 1 to {settings.max_beam_size}.")
        if request.prefix is not None and len(request.prefix) > max_characters:
            raise BadRequest(f"has a prefix of more than {max_characters:,} characters.", number)
        pair = request.source, request.target
        if request.target not in self.targets() or (
            request.source and pair not in self.directions() and len({*pair}) > 1
        ):
            raise BadRequest(f"no model translates {request.source or 'anything'} into {request.target}.")

    async def _translate_plain(
        self, requests: Sequence[TextRequest], client: str, seconds: float, *, patient: bool = False
    ) -> list[TextResult]:
        """Queue the texts and wait for their results. `patient`: wait, too, while the queue is full."""
        if any(request.glossary for request in requests):
            requests = await asyncio.to_thread(keep_found_terms, requests)
        wanted = [request for request in requests if request.source != request.target]
        loop = asyncio.get_running_loop()
        items = [self._item(request, loop) for request in wanted]
        try:
            async with asyncio.timeout(seconds):
                while not self._submit(client, items, seconds, patient=patient):
                    await asyncio.sleep(FULL_QUEUE_PAUSE)
                answers = iter(await asyncio.gather(*(item.future for item in items)))
        except TimeoutError:
            raise DeadlinePassed from None
        finally:
            if not all(item.future.done() for item in items):
                for item in items:
                    item.future.cancel()
            if any(item.future.cancelled() for item in items):
                self.batcher.drop_cancelled(client)
        return [
            self._result(request, next(answers), number)
            if request.source != request.target
            else TextResult(request.text, source=request.source)
            for number, request in enumerate(requests, start=1)
        ]

    def _item(self, request: TextRequest, loop: asyncio.AbstractEventLoop) -> Item:
        key = BatchKey(
            request.source,
            request.target,
            request.num_best,
            request.beam_size,
            request.align,
            request.split,
            request.glossary,
        )
        beams = max(request.beam_size or self.pool.description["beam_size"], request.num_best)
        beams *= 1 + COST_OF_TERM * len(request.glossary)
        return Item(key, request.text, request.prefix, estimated_tokens(request.text) * beams, loop.create_future())

    def _submit(self, client: str, items: Sequence[Item], seconds: float, *, patient: bool) -> bool:
        """Queue the items; `Overloaded` if they would wait too long, but False if the caller is patient."""
        wait = self.batcher.seconds_until_done(client, sum(item.cost for item in items))
        try:
            if wait > seconds and not self.batcher.is_idle and not patient:
                raise QueueFull(wait - seconds)
            self.batcher.submit(client, items)
        except QueueFull as error:
            if patient:
                return False
            self.metrics.texts_refused.add(len(items))
            spread = random.uniform(1.0, 2.0)  # so that refused clients do not come back all at once
            raise Overloaded(max(error.seconds, 1.0) * spread) from None
        return True

    async def _translate_batch(self, lane: int, key: BatchKey, items: list[Item]) -> list[dict[str, Any]]:
        """The results of a batch, for the batcher."""
        return await self.pool.translate(lane, key._asdict(), items)

    def _result(self, request: TextRequest, answer: dict[str, Any], number: int) -> TextResult:
        """The result of a text from what an engine process answered."""
        if "problem" in answer:
            raise BadRequest(answer["problem"], number)
        if "failed" in answer:
            raise EngineFailed
        source_tokens, target_tokens = answer["num_tokens"]
        self.metrics.texts.add()
        self.metrics.characters.add(len(request.text))
        self.metrics.source_tokens.add(source_tokens)
        self.metrics.target_tokens.add(target_tokens)
        detected = answer["source"] if request.source is None else None
        confidence = answer["confidence"] if detected and answer["confidence"] else 0.0
        if detected == request.target and request.prefix is None:
            return TextResult(request.text, source=detected, detected_source=detected, confidence=confidence)
        n_best: dict[str, Alternative] = {}
        for one in answer.get("n_best", ()):
            n_best.setdefault(one[0], Alternative(*one))
        n_best.pop(answer["text"], None)
        alignment = answer.get("alignment")
        return TextResult(
            text=answer["text"],
            alternatives=tuple(n_best.values()),
            source=answer["source"],
            detected_source=detected,
            confidence=confidence,
            score=answer["score"],
            log_prob=answer["log_prob"],
            alignment=None if alignment is None else tuple((tuple(a), tuple(b)) for a, b in alignment),
            num_source_tokens=source_tokens,
            num_target_tokens=target_tokens,
            warnings=tuple(answer["warnings"]),
        )

    # ---- documents ---------------------------------------------------------------------------------------------------

    async def translate_document(
        self,
        data: bytes,
        name: str,
        source: str | None,
        target: str,
        *,
        client: str,
        glossary: Sequence[tuple[str, str]] = (),
    ) -> bytes:
        """Translate a file; its format is that of the ending of its name. The result is of the same format."""
        if len(data) > self.settings.max_document_bytes:
            raise BadRequest(f"the document is larger than {self.settings.max_document_bytes:,} bytes.")
        loop = asyncio.get_running_loop()
        work: list[Future[list[MarkedText]]] = []

        def translate(texts: Sequence[MarkedText]) -> tuple[list[MarkedText], str]:
            """Called in the thread that reads and writes the document; the texts are translated by the event loop."""
            request = TextRequest("", source, target, glossary=tuple(glossary))
            coroutine = self._translate_marked(texts, request, client, self.settings.document_seconds)
            work.append(asyncio.run_coroutine_threadsafe(coroutine, loop))
            return work[0].result(), target

        def run() -> bytes:
            written = translate_document(data, format_of(name), translate)
            assert isinstance(written, bytes)
            return written

        try:
            return await loop.run_in_executor(self._document_threads, run)
        finally:
            for future in work:
                future.cancel()

    async def _translate_markup(self, request: TextRequest, client: str, seconds: float) -> list[TextResult]:
        """Translate a text with tags; a list with its result."""
        options = MarkupOptions(
            frozenset(request.ignore_tags),
            frozenset(request.splitting_tags),
            frozenset(request.non_splitting_tags),
            request.detects_outline,
        )
        format: Literal["html", "xml"] = "html" if request.format == "html" else "xml"
        document = await asyncio.to_thread(read_markup, request.text, format, options)
        results: list[TextResult] = []
        texts = await self._translate_marked(document.texts, request, client, seconds, results)
        written = await asyncio.to_thread(document.write, iter(texts), request.target)
        longest = max(results, key=lambda result: result.num_source_tokens, default=TextResult(""))
        whole = "\n".join(text.text for text in document.texts)
        guesses = [] if request.source else (await self.detect([whole]))[0]
        guess = next((guess for guess in guesses if guess.language == longest.source), None)
        result = replace(
            longest,
            text=written,
            detected_source=guess.language if guess else None,
            confidence=guess.confidence if guess else 0.0,
            alternatives=(),
            alignment=None,
            score=sum(result.score for result in results),
            log_prob=sum(result.log_prob for result in results),
            num_source_tokens=sum(result.num_source_tokens for result in results),
            num_target_tokens=sum(result.num_target_tokens for result in results),
            warnings=tuple(dict.fromkeys(code for result in results for code in result.warnings)),
        )
        return [result]

    async def _translate_marked(
        self,
        texts: Sequence[MarkedText],
        request: TextRequest,
        client: str,
        seconds: float,
        results: list[TextResult] | None = None,
    ) -> list[MarkedText]:
        """Translate the texts of a document; `results` receives what else is known of them."""
        source = request.source or await self._language_of([text.text for text in texts])
        align = any(text.marks for text in texts)
        one = replace(request, format="text", source=source, align=align, num_best=1, prefix=None)
        ends_at = time.monotonic() + seconds
        translated: list[MarkedText] = []
        for start in range(0, len(texts), DOCUMENT_TEXTS):
            part = texts[start : start + DOCUMENT_TEXTS]
            left = max(ends_at - time.monotonic(), 0.0)
            requests = [replace(one, text=text.text) for text in part]
            found = await self._translate_plain(requests, client, left, patient=start > 0)
            translated += await asyncio.to_thread(place_all_tags, part, found)
            if results is not None:
                results += found
        return translated

    async def _language_of(self, texts: Sequence[str]) -> str | None:
        """The language of most of the texts, if it can be detected and translated from."""
        languages = self.sources()
        directions = Directions(tuple(self.directions()), tuple(self.targets()))
        found = await asyncio.to_thread(detect_document_language, directions, texts)
        return found if found in languages else None


def keep_found_terms(requests: Sequence[TextRequest]) -> list[TextRequest]:
    """The requests with those terms of their glossaries that their texts contain; `BadRequest` for too many terms."""
    glossaries: dict[int, Glossary] = {}
    kept = []
    for number, request in enumerate(requests, start=1):
        if id(request.glossary) not in glossaries:
            glossaries[id(request.glossary)] = Glossary.of(request.glossary)
        glossary = glossaries[id(request.glossary)]
        found = glossary.find(request.text)
        if len(found) > MAX_TERMS:
            raise BadRequest(f"has {len(found)} terms of the glossary, more than the limit of {MAX_TERMS}.", number)
        terms = {request.text[match.start : match.end].casefold() for match in found}
        entries = (entry for entry in glossary.entries if entry.source.casefold() in terms)
        kept.append(replace(request, glossary=tuple((entry.source, entry.target) for entry in entries)))
    return kept


def place_all_tags(texts: Sequence[MarkedText], results: Sequence[TextResult]) -> list[MarkedText]:
    """The translations of texts with their tags."""
    pairs = zip(texts, results, strict=True)
    return [with_tags(text, result.text, result.alignment) for text, result in pairs]


def after_space(result: TextResult, space: str) -> TextResult:
    """The result with white space before its text."""
    by = len(space)
    alignment = result.alignment and tuple(
        (source, (start + by, end + by)) for source, (start, end) in result.alignment
    )
    return replace(result, text=space + result.text, alignment=alignment)


def is_whole(text: str) -> bool:
    """Whether a text is valid Unicode: no halves of surrogate pairs."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
