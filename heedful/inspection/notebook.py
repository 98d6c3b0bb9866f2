"""`heedful.see`: the page of `heedful see` in a frame of a notebook."""

from __future__ import annotations

import atexit
import html
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from heedful.inspection.page_server import NOTEBOOKS, PageServer
from heedful.inspection.static_site import check_sentence, named_models, site_models

_servers: dict[tuple[Path, ...], PageServer] = {}
_lock = threading.Lock()


class Page:
    """The page with a sentence. A notebook shows it in a frame; `url` opens it in a browser."""

    def __init__(self, server: PageServer, url: str, height: int) -> None:
        self._server, self.url, self.height = server, url, height

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {self.height}px; border: 0"
        allowed = "fullscreen; clipboard-write"
        return f'<iframe src="{html.escape(self.url)}" title="heedful see" style="{style}" allow="{allowed}"></iframe>'

    def __repr__(self) -> str:
        return f"Page({self.url!r})"

    def close(self) -> None:
        """Stop the server, and with it every page of the same models."""
        close(self._server)


def see(
    text: str = "",
    *,
    model: str | Path | Sequence[str | Path] | None = None,
    to: str | None = None,
    height: int = 900,
) -> Page:
    """Show how a model translates `text`, in a frame of a notebook; outside of one, print the address of the page.

    `model`: a directory, the name of an installed model, or several; None: all bundled models. `to`: the target
    language, in a model with several. `height`: of the frame, in pixels. The page is served on this machine until
    `close` is called or the process ends.
    """
    given = [model] if isinstance(model, str | Path) else list(model or [])
    models = site_models(named_models(given))
    code = check_sentence(models, text, to)
    key = tuple(one.directory for one in models)
    with _lock:
        server = _servers.get(key)
        if server is None:
            server = _servers[key] = PageServer(models, frame_ancestors=NOTEBOOKS)
            server.start()
    page = Page(server, server.url(model=models[0].name if given else None, text=text, to=code), height)
    if not _in_notebook():
        sys.stdout.write(f"{page.url}\n")
    return page


def close(server: PageServer) -> None:
    """Stop a server; does nothing if it has stopped."""
    with _lock:
        keys = [key for key, one in _servers.items() if one is server]
        for key in keys:
            del _servers[key]
    if keys:
        server.shutdown()
        server.server_close()


@atexit.register
def close_all() -> None:
    """Stop all servers."""
    for server in list(_servers.values()):
        close(server)


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this process."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")
