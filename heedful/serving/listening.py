"""The socket that the server listens on, and what to do if its address cannot be used."""

from __future__ import annotations

import errno
import os
import socket

from heedful.errors import ConfigError
from heedful.serving.settings import ServerSettings

BACKLOG = 1024


def listen(settings: ServerSettings) -> socket.socket:
    """A socket that listens; `ConfigError` says what to do if the address cannot be used."""
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and hasattr(socket, "IPV6_V6ONLY") and settings.host == "::":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # IPv4 too
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        raise ConfigError(describe(error, settings)) from None
    listener.setblocking(False)
    return listener


def describe(error: OSError, settings: ServerSettings) -> str:
    """The message for an address that cannot be used."""
    if error.errno == errno.EADDRINUSE:
        return f"--port {settings.port}: another program uses this port; choose another, or 0 for any free one."
    if error.errno == errno.EACCES:
        return f"--port {settings.port}: this port needs special rights; choose one above 1023."
    return f"--host {settings.host}: {error.strerror or error}; give an address of this machine."
