"""`GlossaryStore`: glossaries that clients make over HTTP, in an SQLite file or in memory."""

from __future__ import annotations

import sqlite3
import threading
import unicodedata
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from heedful.errors import ConfigError, GlossaryError
from heedful.serving.requests import RequestError
from heedful.text.glossary import Glossary as TermGlossary

FORMAT_VERSION = 1
MAX_GLOSSARIES = 100
"""Glossaries of one client."""
MAX_ENTRIES = 10_000
"""Entries of one glossary."""
MAX_TERM_BYTES = 1024
MAX_NAME_LENGTH = 256
_TABLES = """
create table glossaries (
    id text primary key, owner text not null, name text not null, source text not null, target text not null,
    created text not null
);
create table entries (
    glossary text not null references glossaries (id) on delete cascade, source text not null, target text not null,
    primary key (glossary, source)
) without rowid;
"""

Entries = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Glossary:
    """A glossary without its entries."""

    id: str
    name: str
    source: str
    target: str
    created: str
    num_entries: int


class GlossaryStore:
    """The glossaries of all clients; each sees its own. Methods may be called from any thread."""

    def __init__(self, path: str | Path | None = None) -> None:
        """Open a file, which is made if it does not exist; None: keep the glossaries in memory."""
        self.path = path
        self._lock = threading.Lock()
        try:
            if path is not None:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path or ":memory:", timeout=5, check_same_thread=False)
            self._database.execute("pragma foreign_keys = on")
            self._database.execute("pragma journal_mode = wal")
            (version,) = self._database.execute("pragma user_version").fetchone()
            if version == 0 and not self._database.execute("select count(*) from sqlite_master").fetchone()[0]:
                self._database.executescript(f"begin;{_TABLES}pragma user_version = {FORMAT_VERSION};commit;")
            elif version != FORMAT_VERSION:
                raise ConfigError(f"{path}: not a file of glossaries of this version of Heedful.")
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(f"{path}: cannot be used as a file of glossaries ({error}).") from None

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def add(self, owner: str, name: str, source: str, target: str, entries: Entries) -> Glossary:
        """Make a glossary."""
        check_entries(entries)
        if not name.strip() or len(name) > MAX_NAME_LENGTH:
            raise RequestError(400, f"name: must have 1 to {MAX_NAME_LENGTH} characters.")
        id, created = str(uuid.uuid4()), datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        with self._lock, self._database as database:
            (count,) = database.execute("select count(*) from glossaries where owner = ?", (owner,)).fetchone()
            if count >= MAX_GLOSSARIES:
                raise RequestError(400, f"there are {count} glossaries already, the most that are kept; delete some.")
            row = (id, owner, name, source, target, created)
            database.execute("insert into glossaries values (?, ?, ?, ?, ?, ?)", row)
            database.executemany("insert into entries values (?, ?, ?)", ((id, *entry) for entry in entries))
        return Glossary(id, name, source, target, created, len(entries))

    def owned_by(self, owner: str) -> list[Glossary]:
        """The glossaries of a client, in the order in which they were made."""
        return self._select("where owner = ? order by created, rowid", owner)

    def find(self, owner: str, id: str) -> Glossary:
        """A glossary of a client; status 404 if there is none."""
        found = self._select("where owner = ? and id = ?", owner, id)
        if not found:
            raise RequestError(404, "there is no glossary with this id.")
        return found[0]

    def entries(self, owner: str, id: str) -> list[tuple[str, str]]:
        """The entries of a glossary, by source term."""
        self.find(owner, id)
        with self._lock:
            rows = self._database.execute(
                "select source, target from entries where glossary = ? order by source", (id,)
            )
            return [(source, target) for source, target in rows]

    def remove(self, owner: str, id: str) -> None:
        """Delete a glossary."""
        self.find(owner, id)
        with self._lock, self._database as database:
            database.execute("delete from glossaries where id = ?", (id,))

    def _select(self, condition: str, *values: str) -> list[Glossary]:
        with self._lock:
            rows = self._database.execute(
                "select id, name, source, target, created, (select count(*) from entries where glossary = id) "
                f"from glossaries {condition}",
                values,
            )
            return [Glossary(*row) for row in rows]


def check_entries(entries: Entries, name: str = "entries") -> None:
    """Refuse, with status 400, entries that are no terms; `name` is that of the parameter."""
    if not entries:
        raise RequestError(400, f"{name}: a glossary needs at least one entry.")
    if len(entries) > MAX_ENTRIES:
        raise RequestError(400, f"{name}: more than {MAX_ENTRIES:,} entries.")
    seen: set[str] = set()
    for number, (source, target) in enumerate(entries, start=1):
        for term in (source, target):
            if not term.strip() or term != term.strip():
                raise RequestError(400, f"{name}: a term of entry {number} is empty or has white space at its ends.")
            if len(term.encode()) > MAX_TERM_BYTES:
                raise RequestError(400, f"{name}: a term of entry {number} is longer than {MAX_TERM_BYTES:,} bytes.")
            if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in term):
                raise RequestError(400, f"{name}: a term of entry {number} contains control characters.")
        if source in seen:
            raise RequestError(400, f"{name}: the source term of entry {number} is there twice.")
        seen.add(source)
    try:
        TermGlossary.of(entries)
    except GlossaryError as error:
        raise RequestError(400, f"{name}: {error}") from None
