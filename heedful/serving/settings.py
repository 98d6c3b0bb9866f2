"""`ServerSettings`: every setting of `heedful serve`, from flags, environment variables, a YAML file and defaults.

A flag wins over the environment, the environment over the file, and the file over the default. The environment
variable of a setting is its name in capitals after HEEDFUL_: `max_texts` is HEEDFUL_MAX_TEXTS.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from heedful.config_loading import from_mapping, read_request
from heedful.errors import ConfigError, did_you_mean

PREFIX = "HEEDFUL_"
OTHER_VARIABLES = ("HEEDFUL_MODEL", "HEEDFUL_MODELS", "HEEDFUL_KERNELS")
"""The variables of other parts of the program."""
SERVICE_VARIABLE = re.compile(r"HEEDFUL_(SERVICE_|PORT_)\w+")
"""Variables that Kubernetes sets for a service of the name heedful; it also sets HEEDFUL_PORT to an address."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class ServerSettings:
    """The settings of the server. Every limit has a finite default."""

    models: tuple[str, ...] = ()
    """Model directories or names; empty: the model of `HEEDFUL_MODEL`, else all bundled models."""
    host: str = "127.0.0.1"
    """Address to listen on; others than loopback need API keys or `allow_anonymous`."""
    port: int = 8080
    """Port to listen on; 0: any free port."""
    allow_anonymous: bool = False
    """Accept requests without an API key on addresses other than loopback."""
    keys: str | None = None
    """SQLite file of the API keys (see `heedful keys`); requests need a key if the file has one."""
    cors_origins: tuple[str, ...] = ("*",)
    """Origins of web pages that may call the server; "*": all."""
    trusted_proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    """Addresses of reverse proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` headers are believed."""
    operations_token: str | None = None
    """Bearer token for `POST /operations/reload` and `GET /metrics`; None: metrics for all, no reload."""

    workers: int | None = None
    """Engine processes; None: one for each two cores."""
    threads: int | None = None
    """Threads of each engine process; None: the cores divided by the engine processes."""
    engine: Literal["auto", "native", "torch", "ctranslate2"] = "auto"
    """The engine, as for `heedful translate`."""
    batch_tokens: int = 1024
    """Source tokens (times beam size) of the texts that an engine process translates together."""
    batch_wait_ms: float = 3.0
    """How long a batch may wait for texts of further requests, in milliseconds."""

    max_body_bytes: int = 131_072
    """Size of a request body."""
    max_document_bytes: int = 10_485_760
    """Size of an uploaded document."""
    max_texts: int = 50
    """Texts in one request."""
    max_characters: int = 5000
    """Characters of one text."""
    max_stream_characters: int = 100_000
    """Characters of one text whose translation is streamed sentence by sentence."""
    max_alternatives: int = 5
    """Alternative translations of one text."""
    max_beam_size: int = 10
    """Beam size that a request may ask for."""
    max_fields: int = 1000
    """Fields of a form or query string."""
    requests_per_minute: int = 60
    """Requests a minute of one address without an API key; not of this machine's own."""
    glossaries: str | None = None
    """SQLite file of the glossaries that clients make; None: kept in memory until the server ends."""
    max_queued_texts: int = 2048
    """Texts that wait for an engine; further requests are answered 429."""
    max_queued_texts_per_client: int = 1024
    """Texts of one client that wait for an engine."""
    request_seconds: float = 8.0
    """Time for one request, including waiting; less than the ten seconds after which clients repeat a request."""
    document_seconds: float = 600.0
    """Time for one document or streamed text."""
    engine_seconds: float = 60.0
    """Time for one batch; an engine process that needs longer is restarted."""
    canary_seconds: float = 5.0
    """Time between test translations, which decide whether the server is ready."""

    max_connections: int = 1000
    """Open connections; further ones are closed."""
    max_connections_per_address: int = 100
    """Open connections from one address that is neither of this machine nor a trusted proxy."""
    header_seconds: float = 10.0
    """Time in which a client must send the head of a request."""
    body_seconds: float = 30.0
    """Time in which a client must send the body of a request."""
    response_seconds: float = 60.0
    """Time for which a response may wait for a client that does not read it."""
    keep_alive_seconds: float = 75.0
    """How long a connection may be idle between requests."""
    shutdown_seconds: float = 25.0
    """Time for accepted requests to finish after SIGTERM."""

    log_format: Literal["text", "json"] = "text"
    """Format of the log on stderr."""
    log_requests: bool = True
    """Whether each request is logged; the log never contains text of clients, keys or addresses."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port: a port is a number from 0 to 65535, not {self.port}.")
        may_be_zero = ("port", "batch_wait_ms", "max_alternatives")
        for field in fields(self):
            value = getattr(self, field.name)
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if is_number and value <= 0 and field.name not in may_be_zero:
                raise ConfigError(f"{field.name}: must be above 0, not {value}.")
        if self.batch_wait_ms < 0 or self.max_alternatives < 0:
            raise ConfigError("batch_wait_ms and max_alternatives must not be negative.")
        if self.max_alternatives >= self.max_beam_size:
            raise ConfigError(
                f"max_alternatives ({self.max_alternatives}) must be below max_beam_size ({self.max_beam_size})."
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can reach the server."""
        return self.host in LOOPBACK


def load_settings(
    file: str | Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> ServerSettings:
    """The settings from a YAML file, the environment and flags; flags that are None are not set."""
    values = dict(read_request(file)) if file is not None else {}
    if file is not None:
        from_mapping(ServerSettings, values)  # reports the file's mistakes even where flags would hide them
    values |= _from_environment(environment)
    values |= {name: value for name, value in (flags or {}).items() if value is not None}
    return from_mapping(ServerSettings, values)


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings in the environment; `ConfigError` for variables that are none, which may be misspelled limits."""
    names = {variable(field.name): field.name for field in fields(ServerSettings) if field.name != "models"}
    found = {}
    for key, value in environment.items():
        if SERVICE_VARIABLE.fullmatch(key) or (key == variable("port") and value.startswith("tcp://")):
            continue
        if key in names:
            found[names[key]] = value
        elif key.startswith(PREFIX) and key not in OTHER_VARIABLES:
            raise ConfigError(f"{key}: there is no such setting{did_you_mean(key, names)}; unset this variable.")
    return found
