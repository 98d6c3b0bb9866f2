"""The settings of the server: where they come from, and what is refused."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from heedful.errors import ConfigError
from heedful.serving.settings import ServerSettings, load_settings, variable

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_flags_win_over_the_environment_the_environment_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("port: 1\nmax_texts: 2\nmax_fields: 3\ncors_origins: [https://a.example, https://b.example]\n")
    environment = {"HEEDFUL_PORT": "4", "HEEDFUL_MAX_TEXTS": "5", "HEEDFUL_TRUSTED_PROXIES": "10.0.0.1, 10.0.0.2"}
    found = load_settings(file, {"port": 6, "workers": None}, environment)
    assert (found.port, found.max_texts, found.max_fields, found.workers) == (6, 5, 3, None)
    assert found.cors_origins == ("https://a.example", "https://b.example")
    assert found.trusted_proxies == ("10.0.0.1", "10.0.0.2")
    assert load_settings(None, {}, {}) == ServerSettings()


def test_every_limit_is_finite_by_default() -> None:
    for field in fields(ServerSettings):
        if field.name.startswith("max_") or field.name.endswith(("_seconds", "_ms")):
            assert 0 < getattr(ServerSettings(), field.name) < 1e9


def test_every_setting_can_be_given_in_the_environment() -> None:
    for field in fields(ServerSettings):
        value = getattr(ServerSettings(), field.name)
        if field.name == "models" or value is None:
            continue
        written = ",".join(value) if isinstance(value, tuple) else str(value)
        assert getattr(load_settings(None, {}, {variable(field.name): written}), field.name) == value


@pytest.mark.parametrize(
    ("file", "environment", "message"),
    [
        ("max_text: 5", {}, r"max_text: unknown key \(did you mean 'max_texts'\?\)"),
        ("max_texts: many", {}, "max_texts: expected a whole number, not 'many'"),
        ("max_texts: 0", {}, "max_texts: must be above 0, not 0"),
        ("port: 70000", {}, "port: a port is a number from 0 to 65535"),
        ("log_format: xml", {}, "log_format: 'xml' is not one of text, json"),
        ("max_alternatives: 10", {}, "max_alternatives .10. must be below max_beam_size .10."),
        ("- a", {}, "expected"),
        (
            "",
            {"HEEDFUL_MAX_TEXT": "5"},
            r"HEEDFUL_MAX_TEXT: there is no such setting \(did you mean 'HEEDFUL_MAX_TEXTS'",
        ),
        ("", {"HEEDFUL_BATCH_WAIT_MS": "-1"}, "batch_wait_ms and max_alternatives must not be negative"),
        ("", {"HEEDFUL_REQUEST_SECONDS": "inf"}, "request_seconds: expected a number"),
    ],
)
def test_mistakes_are_named(file: str, environment: dict[str, str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(file)
    with pytest.raises(ConfigError, match=message):
        load_settings(path, {}, environment)


def test_variables_of_kubernetes_and_of_other_parts_are_no_settings() -> None:
    environment = {
        "HEEDFUL_PORT": "tcp://10.0.0.1:8080",
        "HEEDFUL_PORT_8080_TCP_ADDR": "10.0.0.1",
        "HEEDFUL_SERVICE_HOST": "10.0.0.1",
        "HEEDFUL_MODEL": "en-de-zh",
        "HEEDFUL_MODELS": "/models",
    }
    assert load_settings(None, {}, environment) == ServerSettings()


@pytest.mark.parametrize("page", ["serve.md", "serve.zh-CN.md"])
def test_the_table_of_the_documentation_has_every_setting_with_its_default(page: str) -> None:
    text = (DOCS / page).read_text()
    table = text[text.index("| `models` |") :]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.MULTILINE))
    assert list(rows) == [field.name for field in fields(ServerSettings)]
    for field in fields(ServerSettings):
        value = getattr(ServerSettings(), field.name)
        written = (
            ", ".join(value) if isinstance(value, tuple) else str(value).lower() if isinstance(value, bool) else value
        )
        assert rows[field.name] == ("" if value in (None, ()) else f"`{written}`"), field.name
