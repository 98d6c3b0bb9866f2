"""`DocumentJobs`: documents that are translated while their clients wait, ask, or come back later."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

from heedful.errors import HeedfulError
from heedful.serving.access import AccessControl, Client, QuotaExceeded
from heedful.serving.json_log import log_exception
from heedful.serving.requests import RequestError
from heedful.serving.service import BadRequest, DeadlinePassed, EngineFailed, Overloaded, TranslationService
from heedful.text.documents import ENDINGS, OFFICE_FORMATS, format_of, translate_document
from heedful.text.documents.document import MarkedText

SUPPORTED_ENDINGS = (".txt", *ENDINGS)
"""File names may have one of these endings, or none for text."""
MAX_UPLOADS = 16
"""Documents that are received at the same time."""
MAX_JOBS = 1000
MAX_JOBS_PER_CLIENT = 20
KEPT_BYTES = 268_435_456
"""Bytes of all kept documents and results; further documents are answered 429."""
KEPT_SECONDS = 3600
"""How long a finished job is kept."""


@dataclass(eq=False)
class DocumentJob:
    """A document, and its translation when it is done."""

    client: str
    name: str
    """File name of the result."""
    size: int
    id: str = field(default_factory=lambda: secrets.token_hex(16).upper())
    key: str = field(default_factory=lambda: secrets.token_hex(32).upper())
    status: Literal["translating", "done", "error"] = "translating"
    result: bytes = b""
    problem: str = ""
    error: Exception | None = None
    """Why it failed, for interfaces that answer at once."""
    characters: int = 0
    finished: float = 0.0
    task: asyncio.Task[None] | None = None

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the job is finished, or some seconds."""
        if self.task is not None:
            await asyncio.wait((self.task,), timeout=seconds)


class DocumentJobs:
    """All documents of the server, in memory. They are forgotten after an hour."""

    def __init__(self, service: TranslationService, access: AccessControl) -> None:
        self.service, self.access = service, access
        self._jobs: dict[str, DocumentJob] = {}
        self._num_uploads = 0

    @contextmanager
    def upload(self) -> Iterator[None]:
        """Count a document that is being received; status 429 if there are too many."""
        if self._num_uploads >= MAX_UPLOADS:
            raise RequestError(429, "too many documents are being uploaded; try again.", retry_after=2)
        self._num_uploads += 1
        try:
            yield
        finally:
            self._num_uploads -= 1

    def start(
        self,
        data: bytes,
        name: str,
        source: str | None,
        target: str,
        *,
        client: Client,
        glossary: Sequence[tuple[str, str]] = (),
    ) -> DocumentJob:
        """Begin to translate a document; status 400 for an ending of another format."""
        ending = PurePath(name).suffix.lower()
        if ending and ending not in SUPPORTED_ENDINGS:
            listed = ", ".join(SUPPORTED_ENDINGS)
            raise RequestError(400, f"file: the file extension {ending!r} is not supported; send one of {listed}.")
        self._forget_old()
        mine = sum(job.client == client.name and job.status == "translating" for job in self._jobs.values())
        kept = sum(job.size + len(job.result) for job in self._jobs.values())
        if len(self._jobs) >= MAX_JOBS or mine >= MAX_JOBS_PER_CLIENT or kept + len(data) > KEPT_BYTES:
            raise RequestError(429, "too many documents; download the finished ones, or try later.", retry_after=10)
        job = DocumentJob(client.name, name, len(data))
        self._jobs[job.id] = job
        work = self._translate(job, data, source, target, client, tuple(glossary))
        job.task = asyncio.get_running_loop().create_task(work)
        return job

    def find(self, id: str, key: str) -> DocumentJob:
        """The job with this id and key; status 404 if there is none."""
        job = self._jobs.get(id)
        if job is None or not hmac.compare_digest(job.key.encode(), key.encode("utf-8", "replace")):
            raise RequestError(404, "there is no such document, or its key is wrong.")
        return job

    def forget(self, job: DocumentJob) -> None:
        """Drop a job, after its result was downloaded."""
        self._jobs.pop(job.id, None)
        if job.task is not None:
            job.task.cancel()

    def _forget_old(self) -> None:
        oldest = time.monotonic() - KEPT_SECONDS
        for job in [job for job in self._jobs.values() if job.finished and job.finished < oldest]:
            self.forget(job)

    async def _translate(
        self,
        job: DocumentJob,
        data: bytes,
        source: str | None,
        target: str,
        client: Client,
        glossary: Sequence[tuple[str, str]],
    ) -> None:
        try:
            job.characters = await asyncio.to_thread(count_characters, data, job.name)
            async with self.access.charge(client, job.characters):
                job.result = await self.service.translate_document(
                    data, job.name, source, target, client=client.name, glossary=glossary
                )
            job.status = "done"
        except (HeedfulError, BadRequest, Overloaded, DeadlinePassed, EngineFailed, QuotaExceeded) as error:
            job.status, job.error, job.problem = "error", error, getattr(error, "message", None) or str(error)
        except Exception as error:  # a bug
            log_exception(error)
            job.status, job.problem = "error", "the document could not be translated."
            job.error = RequestError(500, job.problem)
        finally:
            job.size, job.finished = 0, time.monotonic()


def count_characters(data: bytes, name: str) -> int:
    """The characters of a document with its markup; of an office document those of its texts."""
    format = format_of(name)
    if format not in OFFICE_FORMATS:
        return len(data.decode("utf-8", "replace"))
    count = 0

    def read(texts: Sequence[MarkedText]) -> tuple[Sequence[MarkedText], None]:
        nonlocal count
        count = sum(len(text.text) for text in texts)
        return texts, None

    translate_document(data, format, read)
    return count
