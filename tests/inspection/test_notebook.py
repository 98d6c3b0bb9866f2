"""`heedful.see`: a frame of the page in a notebook, the address elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

import heedful
from heedful.errors import ConfigError
from tests.cli.program import ENVIRONMENT
from tests.inspection.small_sites import save_small


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small(tmp_path_factory.mktemp("models") / "small")


def test_page_is_a_frame_of_a_running_server(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = heedful.see('a "cat" & <dog>', model=model, to="German", height=500)
    assert capsys.readouterr().out == f"{page.url}\n"
    frame = page._repr_html_()
    assert re.match(rf'<iframe src="{re.escape(page.url.replace("&", "&amp;"))}" title="heedful see" ', frame)
    assert "height: 500px" in frame
    with urlopen(page.url) as answer:
        assert b"<html" in answer.read()
        assert "vscode-webview:" in answer.headers["Content-Security-Policy"]
    page.close()
    page.close()
    with pytest.raises(URLError):
        urlopen(page.url)


def test_pages_of_the_same_models_share_a_server(model: Path) -> None:
    first, second = heedful.see("A cat.", model=model, to="de"), heedful.see("A dog.", model=[model], to="zh")
    third = heedful.see(model=[model, save_small(model.parent / "other")])
    try:
        addresses = [page.url.partition("#")[0] for page in (first, second, third)]
        assert addresses[0] == addresses[1] != addresses[2]
        assert second.url.endswith("#model=small&text=A%20dog.&to=zh")
        assert repr(first) == f"Page({first.url!r})"
    finally:
        first.close()
        third.close()
    again = heedful.see("A cat.", model=model)
    with urlopen(again.url) as answer:
        assert answer.status == 200
    again.close()


def test_errors_are_those_of_the_program(model: Path) -> None:
    with pytest.raises(ConfigError, match="French: no model of this page translates into it"):
        heedful.see("A cat.", model=model, to="French")
    with pytest.raises(ConfigError, match="no model of this name"):
        heedful.see("A cat.", model="missing")


def test_notebooks_get_no_printed_address_and_the_process_ends(model: Path) -> None:
    program = """
import sys, types
shell = types.SimpleNamespace(kernel=None)
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)
import heedful
page = heedful.see("A cat.", model=sys.argv[1], to="de")
print(page._repr_html_()[:7], "torch" in sys.modules, "numpy" in sys.modules)
"""
    command = [sys.executable, "-c", program, str(model)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "<iframe False False\n", "")
