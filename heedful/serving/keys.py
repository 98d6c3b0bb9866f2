"""`KeyStore`: API keys with their rates, quotas and usage, in an SQLite file.

A key is 256 random bits; the file has only its SHA-256, from which it cannot be found.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from heedful.errors import ConfigError

PREFIX = "hd-"
FORMAT_VERSION = 1
_TABLES = """
create table keys (
    id integer primary key, name text not null, hash blob not null unique, created text not null,
    requests_per_minute integer, characters_per_month integer, revoked text
);
create unique index active_names on keys (name) where revoked is null;
create table usage (
    key integer not null references keys (id), month text not null, characters integer not null default 0,
    primary key (key, month)
) without rowid;
"""


@dataclass(frozen=True)
class ApiKey:
    """An API key, without its secret."""

    id: int
    name: str
    created: str
    requests_per_minute: int | None
    """None: no limit."""
    characters_per_month: int | None
    """None: no limit."""
    used: int
    """Characters translated in this month (UTC)."""
    revoked: str | None


class KeyStore:
    """The keys in a file. Methods may be called from any thread."""

    def __init__(self, path: str | Path, *, create: bool = False) -> None:
        """Open a file of keys. `create`: make it if it does not exist."""
        self.path = Path(path)
        if not create and not self.path.is_file():
            raise ConfigError(f"{self.path}: there is no such file; make it with: heedful keys add NAME")
        self._lock = threading.Lock()
        try:
            if create:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.touch(mode=0o600)
            self._database = sqlite3.connect(self.path, timeout=5, isolation_level=None, check_same_thread=False)
            self._prepare()
        except sqlite3.Error as error:
            raise ConfigError(f"{self.path}: cannot be used as a file of API keys ({error}).") from None

    def _prepare(self) -> None:
        with self._transaction() as database:
            (version,) = database.execute("pragma user_version").fetchone()
            if version == 0 and not database.execute("select count(*) from sqlite_master").fetchone()[0]:
                for statement in _TABLES.split(";"):
                    database.execute(statement)
                database.execute(f"pragma user_version = {FORMAT_VERSION}")
            elif version != FORMAT_VERSION:
                raise ConfigError(f"{self.path}: not a file of API keys of this version of Heedful.")
        self._database.execute("pragma journal_mode = wal")
        self._database.execute("pragma synchronous = normal")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def add(self, name: str, *, requests_per_minute: int | None = None, characters_per_month: int | None = None) -> str:
        """Make a key and return its secret, which is not kept."""
        secret = PREFIX + secrets.token_urlsafe(32)
        row = (name, _hash(secret), _now().isoformat(timespec="seconds"), requests_per_minute, characters_per_month)
        try:
            with self._transaction() as database:
                database.execute(
                    "insert into keys (name, hash, created, requests_per_minute, characters_per_month) "
                    "values (?, ?, ?, ?, ?)",
                    row,
                )
        except sqlite3.IntegrityError:
            raise ConfigError(f"there is a key {name!r} already; choose another name, or revoke it first.") from None
        return secret

    def keys(self) -> list[ApiKey]:
        """All keys, also revoked ones, in the order in which they were made."""
        return self._select("order by id")

    def has_active(self) -> bool:
        """Whether any key can be used."""
        return bool(self._select("where revoked is null limit 1"))

    def revoke(self, name: str) -> None:
        """End a key."""
        with self._transaction() as database:
            now = _now().isoformat(timespec="seconds")
            done = database.execute("update keys set revoked = ? where name = ? and revoked is null", (now, name))
            if not done.rowcount:
                raise ConfigError(f"there is no active key {name!r}; see: heedful keys list")

    def find(self, secret: str) -> ApiKey | None:
        """The active key with this secret."""
        found = self._select("where hash = ? and revoked is null", _hash(secret))
        return found[0] if found else None

    def charge(self, key: ApiKey, characters: int) -> bool:
        """Add characters to a key's usage of this month; False, without adding, above its quota."""
        with self._transaction() as database:
            (used,) = database.execute(
                "insert into usage values (?, ?, ?) on conflict do update "
                "set characters = max(0, characters + excluded.characters) returning characters",
                (key.id, _month(), characters),
            ).fetchone()
            is_allowed = key.characters_per_month is None or used <= key.characters_per_month or characters <= 0
            if not is_allowed:
                database.execute(
                    "update usage set characters = characters - ? where key = ? and month = ?",
                    (characters, key.id, _month()),
                )
            return is_allowed

    def _select(self, condition: str, *values: object) -> list[ApiKey]:
        with self._lock:
            rows = self._database.execute(
                "select id, name, created, requests_per_minute, characters_per_month, "
                "coalesce((select characters from usage where key = id and month = ?), 0), revoked "
                f"from keys {condition}",
                (_month(), *values),
            ).fetchall()
        return [ApiKey(*row) for row in rows]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._database.execute("begin immediate")
            try:
                yield self._database
            except BaseException:
                self._database.execute("rollback")
                raise
            self._database.execute("commit")


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _now() -> datetime:
    return datetime.now(UTC)


def _month() -> str:
    return _now().strftime("%Y-%m")
