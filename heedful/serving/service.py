"""`TranslationService`: what the routes of all HTTP interfaces call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from heedful.errors import HeedfulError
from heedful.serving.settings import ServerSettings
from heedful.text.corpus import Direction

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
    """Elements of xml that separate texts."""
    non_splitting_tags: tuple[str, ...] = ()
    """Elements of xml that are inside a text; all that have text beside them are, unless `splitting_tags` has them."""
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
    num_source_tokens: int = 0
    num_target_tokens: int = 0
    warnings: tuple[str, ...] = ()
    """Keys of `heedful.decoding.translation.WARNINGS`."""


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
        self.settings = settings

    async def translate(
        self, requests: Sequence[TextRequest], *, client: str, deadline: float | None = None
    ) -> list[TextResult]:
        """Translate texts; results are in their order.

        `client`: who asks, for fairness between clients. `deadline`: seconds; None: `request_seconds`.
        Raises `BadRequest`, `Overloaded`, `DeadlinePassed` or `EngineFailed`. When the calling task is cancelled,
        texts that no engine has begun are dropped.
        """
        raise NotImplementedError

    def stream(self, request: TextRequest, *, client: str) -> AsyncIterator[TextResult]:
        """Translate a text sentence by sentence: the texts of the results concatenate to the translation."""
        raise NotImplementedError

    async def detect(self, texts: Sequence[str]) -> list[list[LanguageGuess]]:
        """The languages that each text may be in, best first; empty for texts without words."""
        raise NotImplementedError

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
        raise NotImplementedError

    def directions(self) -> list[Direction]:
        """All pairs of languages that the models translate, in the order of the models."""
        raise NotImplementedError

    def sources(self) -> list[str]:
        """All source languages."""
        raise NotImplementedError

    def targets(self, source: str | None = None) -> list[str]:
        """All target languages, or those for a source language."""
        raise NotImplementedError

    def language_code(self, given: str, *, role: Literal["source", "target"]) -> str:
        """The models' code for a language given by any code or name (`zh-Hans` is `zh`); `BadRequest` if none fits."""
        raise NotImplementedError

    def model_names(self) -> list[str]:
        """The names of the models, in the order in which they are asked for a direction."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether the engines translate and the server is not shutting down."""
        raise NotImplementedError
