"""`heedful see` as users run it: the served page, the static site, pictures, and what is refused."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from heedful.cli.see import PICTURES, VIEWS, WITHOUT_MODEL
from heedful.paper.figures.registry import FIGURES
from tests.cli.program import COMMAND, ENVIRONMENT, ROOT, Inside
from tests.inspection.small_sites import save_small


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save_small(folder / "small")
    save_small(folder / "gru", architecture="recurrent")
    return folder


@contextmanager
def serving(*arguments: object) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The program while it serves; yields the address that it prints."""
    command = [*COMMAND, "see", "--no-browser", "--port", "0", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.communicate()


def read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return bytes(answer.read())


def test_serves_until_it_is_interrupted(folder: Path) -> None:
    with serving("-m", folder / "small", "-m", folder / "gru", "Where is the cat?", "--to", "German") as (url, process):
        place = urlsplit(url)
        assert re.fullmatch(r"127\.0\.0\.1:\d+", place.netloc)
        assert parse_qs(place.fragment) == {"text": ["Where is the cat?"], "to": ["de"], "model": ["small"]}
        address = url.partition("#")[0]
        assert b"<html" in read(address)
        site = json.loads(read(f"{address}site.json"))
        assert [(one["name"], one["kind"]) for one in site["models"]] == [("small", "wasm"), ("gru", "server")]
        assert site["default"] == "small"
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
        assert process.returncode == 0, error
        assert out == ""
        assert error.split("\n") == ["The page is served until Ctrl-C.", "", ""]


def test_flags_of_the_view_are_in_the_address(folder: Path) -> None:
    flags = ["--view", "attention", "--layer", "2", "--head", "1", "--lang", "zh"]
    with serving("-m", folder / "small", *flags) as (url, _):
        state = {"model": ["small"], "view": ["attention"], "layer": ["1"], "head": ["0"], "language": ["zh"]}
        assert parse_qs(urlsplit(url).fragment) == state


def test_models_in_the_page_need_neither_torch_nor_numpy(folder: Path) -> None:
    program = """
import sys, threading
from heedful.cli.see import see
from heedful.inspection.page_server import PageServer

def read_once(server):
    threading.Thread(target=PageServer.serve_forever.__wrapped__, args=(server,), daemon=True).start()
    import urllib.request
    for name in ("", "site.json", "models/small/model.json", "models/small/weights.bin"):
        urllib.request.urlopen(server.url() + name).read()
    server.shutdown()

forever = PageServer.serve_forever
read_once.__wrapped__ = forever
PageServer.serve_forever = read_once
see(["The cat"], model=[sys.argv[1]], target_language="de", port=0, browser=False)
print(sorted({"torch", "numpy", "safetensors", "matplotlib", "http.server"} & sys.modules.keys()))
"""
    command = [sys.executable, "-c", program, str(folder / "small")]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == ["['http.server']"]


def test_bundled_models_are_the_default(inside: Inside, tmp_path: Path) -> None:
    from heedful.model_dir.registry import default_models

    inside("see", "--site", tmp_path / "site")
    site = json.loads((tmp_path / "site" / "site.json").read_text())
    names = [one["name"] for one in site["models"]]
    assert names == [directory.name for directory in default_models()]
    assert names[0] == site["default"]


def test_writes_a_static_site(inside: Inside, folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "my site"
    ended = inside("see", "--site", place, "-m", folder / "small")
    assert re.fullmatch(
        rf"{place}: the page with small \([\d.]+ MB\)\.\nServe it: python3 -m http\.server --directory '{place}'\n",
        ended.out,
    )
    inside("see", "--site", place, "-m", folder / "small").refused("has a site; add --overwrite")
    assert inside("see", "--site", place, "-m", folder / "small", "--overwrite").code == 0


def test_models_that_need_the_server_are_not_written(inside: Inside, folder: Path, tmp_path: Path) -> None:
    ended = inside("see", "--site", tmp_path / "site", "-m", folder / "small", "-m", folder / "gru")
    ended.refused("gru: a static site has only models that run in the page", "model.architecture=recurrent")
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-m", "missing"], ["missing: there is no such model directory"]),
        (["-m", "{small}", "--to", "French"], ["French: no model of this page translates into it", "de, zh"]),
        (["-m", "{small}", "word " * 200], ["this sentence has", "the model takes at most 32; shorten it"]),
        (["-m", "{small}", "--port", "99999"], ["--port 99999: a port is a number from 0 to 65535"]),
        (["-m", "{small}", "--host", "192.0.2.1"], ["--host 192.0.2.1", "give an address of this machine"]),
        (["-m", "{small}", "--view", "atention"], ["'atention' is not a view (did you mean 'attention'?)"]),
        (["-m", "{small}", "--lang", "fr"], ["--lang is one of en, zh, not 'fr'"]),
        (["--site", "a", "--png", "b.png"], ["--site and --png are different outputs"]),
        (["--site", "a", "A sentence."], ["--site takes no sentence"]),
        (["--png", "a.png", "--view", "beam"], ["--png cannot draw the view beam", "it draws decoding, attention"]),
        (["--png", "a.jpg"], ["a.jpg: the picture is written as PNG"]),
        (["--png", "a.png", "-m", "a", "-m", "b", "A cat."], ["--png draws one model"]),
        (["--png", "a.png", "-m", "{small}"], ["--png needs a sentence"]),
        (["--png", "a.png", "--view", "norms", "A cat."], ["without a model; leave out the sentence"]),
        (["--png", "a.png", "--view", "head", "-m", "{gru}", "--to", "de", "A cat."], ["of a Transformer only"]),
        (["--png", "a.png", "--theme", "pink"], ["--theme is one of light, dark"]),
        (["--png", "a.png", "-m", "{small}", "--to", "de", "A cat.", "--layer", "9"], ["layer"]),
    ],
    ids=str,
)  # fmt: skip
def test_bad_input_is_one_message(arguments: list[str], words: list[str], inside: Inside, folder: Path) -> None:
    given = [argument.format(small=folder / "small", gru=folder / "gru") for argument in arguments]
    inside("see", "--no-browser", *given).refused(*words)


def test_missing_page_is_one_message(
    inside: Inside, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.interop.web.BUILT", tmp_path / "nothing")
    inside("see", "--no-browser", "-m", folder / "small").refused("lacks engine.js", "install heedful again")


def test_occupied_port_is_one_message(inside: Inside, folder: Path) -> None:
    with serving("-m", folder / "small") as (url, _):
        port = urlsplit(url).port
        ended = inside("see", "--no-browser", "-m", folder / "small", "--port", port)
        ended.refused(f"--port {port}: another program uses this port; choose another, or leave --port out")


@pytest.mark.parametrize("view", [view for view in PICTURES if view != "decoding"])
def test_draws_a_view_without_a_browser(view: str, inside: Inside, folder: Path, tmp_path: Path) -> None:
    given = [] if view in WITHOUT_MODEL else ["-m", folder / "small", "--to", "de", "Where is the cat?"]
    ended = inside("see", "--png", tmp_path / "new" / "view.png", "--view", view, "--theme", "dark", *given)
    assert ended.out == f"{tmp_path / 'new' / 'view.png'}\n", ended.error
    assert (tmp_path / "new" / "view.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["view.png"]


def test_views_are_those_of_the_page() -> None:
    script = (ROOT / "web" / "page" / "state.ts").read_text(encoding="utf-8")
    listed = re.search(r"export const VIEWS = \[(.*?)\]", script, flags=re.DOTALL)
    assert listed is not None
    assert tuple(re.findall(r'"(\w+)"', listed[1])) == VIEWS
    assert PICTURES.keys() <= set(VIEWS)
    for view, figure in PICTURES.items():
        assert FIGURES[figure].needs_sample is (view not in WITHOUT_MODEL)
