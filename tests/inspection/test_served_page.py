"""The served page in a real browser: models in the page and on the server, and the frame of a notebook."""

from __future__ import annotations

import http.server
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.inspection import trace
from heedful.inspection.static_site import site_models
from tests.inspection.small_sites import running, save_small
from tests.web.web_build import WEB, needs_node

pytestmark = [
    needs_node,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium"),
    pytest.mark.slow,
]
SENTENCE = "Where is the cat, Anna?"


class QuietFiles(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def other_origin(folder: Path) -> Iterator[str]:
    """A server on localhost, as Jupyter is one."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietFiles, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_address[1]}/"
        server.shutdown()


def run_browser(**request: Any) -> Any:
    script = json.dumps({"executablePath": shutil.which("chromium"), **request})
    command = ["node", str(WEB / "tests" / "served_page.mjs")]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_page_shows_models_of_every_kind_alone_and_in_a_notebook(tmp_path: Path) -> None:
    changes: dict[str, dict[str, Any]] = {
        "native": {}, "gru": {"architecture": "recurrent"}, "cnn": {"architecture": "convolutional"},
        "batch": {"norm": "batch"},
    }  # fmt: skip
    directories = [save_small(tmp_path / name, **options) for name, options in changes.items()]
    pages = tmp_path / "pages"
    pages.mkdir()
    notebook = heedful.see(SENTENCE, model=directories[0], to="de")
    with running(site_models(directories)) as server, other_origin(pages) as origin:
        addresses = [server.url(model=name, text=SENTENCE, to="de") for name in changes]
        (pages / "notebook.html").write_text(f"<!doctype html>{notebook._repr_html_()}")
        (pages / "stranger.html").write_text(f'<!doctype html><iframe src="{addresses[0]}"></iframe>')
        frames = [f"{origin}notebook.html", f"{origin}stranger.html"]
        found = run_browser(addresses=addresses, frames=frames, known=[notebook.url])
    notebook.close()
    expected = [trace(directory, SENTENCE, target_language="de").text for directory in directories]
    assert found["shown"] == expected
    assert found["framed"] == [expected[0], None]
    assert found["errors"] == []
    assert found["outside"] == []
    assert found["isolated"] is True
