"""`AccessControl`: who sends a request, whether they may, how often, and how many characters."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.requests import Request

from heedful.serving.keys import ApiKey, KeyStore
from heedful.serving.requests import Parameters, RequestError
from heedful.serving.settings import ServerSettings

MAX_REMEMBERED = 10_000
"""Clients whose rates are remembered; of the others the oldest are forgotten."""


class MissingKey(RequestError):  # noqa: N818
    """A request without the API key that the server needs."""

    def __init__(self) -> None:
        super().__init__(403, "this server needs an API key.")


class WrongKey(RequestError):  # noqa: N818
    """A request with an API key that the server does not have."""

    def __init__(self) -> None:
        super().__init__(403, "the API key is not valid.")


class QuotaExceeded(RequestError):  # noqa: N818
    """A request for more characters than the API key has left."""

    def __init__(self) -> None:
        super().__init__(403, "the quota of the API key is used up for this month.")


@dataclass(frozen=True)
class Client:
    """Who sends a request. The name contains the address, so it is never logged."""

    name: str
    key: ApiKey | None = None


class RateLimiter:
    """Counts requests of each client: as many at once as in a minute, then evenly."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """For each client how many requests are left, and when this was computed."""

    def take(self, client: str, per_minute: int) -> float:
        """Count a request; returns 0, or in how many seconds it is allowed."""
        now = self.clock()
        left, since = self._clients.pop(client, (float(per_minute), now))
        left = min(float(per_minute), left + (now - since) * per_minute / 60)
        wait = 0.0 if left >= 1 else (1 - left) * 60 / per_minute
        self._clients[client] = (left - 1 if not wait else left), now
        if len(self._clients) > MAX_REMEMBERED:
            self._clients.popitem(last=False)
        return wait


class AccessControl:
    """Checks keys, rates and quotas as the settings say."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.keys = KeyStore(settings.keys) if settings.keys is not None else None
        self.limiter = RateLimiter()

    def close(self) -> None:
        """Close the file of the keys."""
        if self.keys is not None:
            self.keys.close()

    def needs_key(self) -> bool:
        """Whether requests need an API key; asks the file."""
        return self.keys is not None and self.keys.has_active()

    async def identify(self, request: Request, secret: str | None) -> Client:
        """The client of a request with this API key. Raises `MissingKey`, `WrongKey`, or status 429."""
        address = client_address(request)
        client = Client(f"address {address}")
        per_minute = None if is_loopback(address) else self.settings.requests_per_minute
        if self.keys is not None and await asyncio.to_thread(self.needs_key):
            key = await asyncio.to_thread(self.keys.find, secret) if secret else None
            if key is not None:
                client, per_minute = Client(f"key {key.id}", key), key.requests_per_minute
            self._count(client, per_minute)
            if key is None:
                raise WrongKey if secret else MissingKey
        else:
            self._count(client, per_minute)
        return client

    def _count(self, client: Client, per_minute: int | None) -> None:
        wait = self.limiter.take(client.name, per_minute) if per_minute else 0.0
        if wait:
            raise RequestError(429, f"more than {per_minute} requests a minute.", retry_after=wait)

    @asynccontextmanager
    async def charge(self, client: Client, characters: int) -> AsyncIterator[None]:
        """Count characters for the quota of the client's key; not if the work fails. Raises `QuotaExceeded`."""
        if self.keys is None or client.key is None:
            yield
            return
        if not await asyncio.to_thread(self.keys.charge, client.key, characters):
            raise QuotaExceeded
        try:
            yield
        except BaseException:
            self.keys.charge(client.key, -characters)
            raise


def given_key(request: Request, parameters: Parameters) -> str | None:
    """The API key that a request has: a parameter under one of the usual names, or in a header."""
    if (parameter := parameters.text("api_key", "apiKey", "auth_key", "token")) is not None:
        return parameter
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() in ("bearer", "deepl-auth-key") and secret.strip():
        return secret.strip()
    return request.headers.get("x-api-key")


def client_address(request: Request) -> str:
    """The address of the client; of IPv6 the network, which is what one subscriber has."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 6 and not address.is_loopback and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def is_loopback(address: str) -> bool:
    """Whether a client is on this machine."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
