"""The static site: the files of the server, the same every time, written atomically, for any file server."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from heedful.errors import ConfigError
from heedful.inspection.static_site import CHECKSUMS, SiteModel, site_files, site_model, site_models, write_site
from heedful.interop.web import BUILT, export_web
from tests.inspection.small_sites import connected, running, save_small


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save_small(folder / "small model")
    save_small(
        folder / "modern", norm="rms", norm_placement="pre", positions="rotary", activation="swiglu", tags=("de",)
    )
    save_small(folder / "gru", architecture="recurrent")
    return folder


@pytest.fixture(scope="module")
def models(folder: Path) -> list[SiteModel]:
    return site_models([folder / "small model", folder / "modern"])


def contents(place: Path) -> dict[str, bytes]:
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}


class QuietFiles(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def file_server(folder: Path) -> Iterator[str]:
    """What `python -m http.server` runs."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietFiles, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def test_file_server_below_a_path_sends_what_our_server_sends(models: list[SiteModel], tmp_path: Path) -> None:
    size = write_site(models, tmp_path / "some" / "path" / "site")
    files = contents(tmp_path / "some" / "path" / "site")
    assert sum(map(len, files.values())) == size
    with file_server(tmp_path) as address, running(models) as server, connected(server) as client:
        assert set(files) - {CHECKSUMS} == set(server.files)
        for name in server.files:
            with urlopen(f"{address}some/path/site/{quote(name)}") as answer:
                body = answer.read()
                kind = answer.headers.get_content_type()
            ours = client.get(f"/{quote(name)}")
            assert body == ours.body == files[name], name
            if not name.endswith((".bin", ".model", ".f32")):
                assert kind == ours.headers["content-type"].partition(";")[0], name


def test_site_has_the_page_the_models_and_their_checksums(models: list[SiteModel], tmp_path: Path) -> None:
    write_site(models, tmp_path / "site")
    files = contents(tmp_path / "site")
    for path in BUILT.rglob("*"):
        name = path.relative_to(BUILT).as_posix()
        assert not path.is_file() or (name in files) is not name.startswith(("example/", "translate/"))
    for name in ("model.json", "weights.bin", "tokenizer.model"):
        assert f"models/small model/{name}" in files
    lines = files.pop(CHECKSUMS).decode().splitlines()
    assert lines == [f"{hashlib.sha256(data).hexdigest()}  {name}" for name, data in sorted(files.items())]
    site = json.loads(files["site.json"])
    assert site["format_version"] == 1
    assert site["default"] == "small model"
    first, second = site["models"]
    assert first["directory"] == "models/small%20model/"
    assert first["kind"] == second["kind"] == "wasm"
    assert first["directions"] == [{"source": "en", "target": "de"}, {"source": "en", "target": "zh"}]
    assert first["bytes"] == sum(len(data) for name, data in files.items() if name.startswith("models/small model/"))
    assert {one["to"] for one in site["examples"]} == {"de", "zh"}
    for entry in site["models"]:
        manifest = json.loads(files[f"models/{entry['name']}/model.json"])
        assert manifest["name"] == entry["name"]
        assert manifest["title"] == entry["title"]
        assert manifest["model"]["num_parameters"] == entry["parameters"]
        for name, described in manifest["files"].items():
            data = files[f"models/{entry['name']}/{name}"]
            assert described == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_bytes_are_the_same_every_time(models: list[SiteModel], folder: Path, tmp_path: Path) -> None:
    write_site(models, tmp_path / "first")
    write_site(site_models([folder / "small model", folder / "modern"]), tmp_path / "second")
    assert contents(tmp_path / "first") == contents(tmp_path / "second")


def test_policy_of_the_page_is_in_the_page_too() -> None:
    page = (BUILT / "index.html").read_text(encoding="utf-8")
    assert 'http-equiv="Content-Security-Policy"' in page
    assert "default-src 'none'" in page
    assert "unsafe-inline" not in page
    assert 'src="/' not in page and 'href="/' not in page  # relative, for a site below a path


def test_only_own_sites_are_replaced(models: list[SiteModel], tmp_path: Path) -> None:
    place = tmp_path / "site"
    place.mkdir()
    write_site(models, place)  # an empty folder may be written to
    before = contents(place)
    with pytest.raises(ConfigError, match="has a site; add --overwrite"):
        write_site(models, place)
    write_site(models[:1], place, overwrite=True)
    assert "models/modern/model.json" in before
    assert "models/modern/model.json" not in contents(place)
    (place / "notes.txt").write_text("mine")
    for overwrite in (True, False):
        with pytest.raises(ConfigError, match=r"files that heedful see did not write, such as notes\.txt"):
            write_site(models, place, overwrite=overwrite)
    assert (place / "notes.txt").read_text() == "mine"
    other = tmp_path / "other"
    other.mkdir()
    (other / "index.html").write_text("mine")
    with pytest.raises(ConfigError, match=r"did not write, such as index\.html"):
        write_site(models, other, overwrite=True)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="is not a directory; choose another with --site"):
        write_site(models, tmp_path / "file", overwrite=True)
    (tmp_path / "link").symlink_to(place)
    with pytest.raises(ConfigError, match="is not a directory"):
        write_site(models, tmp_path / "link", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "other", "site"]


def test_failed_site_leaves_the_old_one(
    models: list[SiteModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "site"
    write_site(models, place)
    before = contents(place)
    monkeypatch.setattr("heedful.interop.web.shutil.copyfile", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_site(models, place, overwrite=True)
    assert contents(place) == before
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_models_on_the_server_are_described_but_not_written(folder: Path, tmp_path: Path) -> None:
    gru = site_model(folder / "gru", name="gru")
    assert gru.kind == "server"
    assert list(gru.files) == ["model.json"]
    with pytest.raises(ConfigError, match=r"gru: a static site has only .* model\.architecture=recurrent"):
        write_site([gru], tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_models_with_the_same_name_get_numbers(folder: Path, tmp_path: Path) -> None:
    save_small(tmp_path / "modern", positions="learned")
    models = site_models([folder / "modern", tmp_path / "modern", folder / "modern"])
    assert [model.name for model in models] == ["modern", "modern-2"]
    files = site_files(models)
    content = files["models/modern-2/model.json"].content
    assert isinstance(content, bytes)
    manifest = json.loads(content)
    assert (manifest["name"], manifest["model"]["positions"]) == ("modern-2", "learned")


def test_export_and_site_have_the_same_model(models: list[SiteModel], folder: Path, tmp_path: Path) -> None:
    write_site(models, tmp_path / "site")
    exported = contents(export_web(folder / "small model", tmp_path / "exported"))
    site = contents(tmp_path / "site")
    for name in ("model.json", "weights.bin", "tokenizer.model"):
        assert exported[name] == site[f"models/small model/{name}"]
