"""`heedful serve` as users run it: help, banner, and what is refused before it listens."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import COMMAND, ENVIRONMENT, Inside
from tests.serving.running_server import running_server


def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "serve", *map(str, arguments)]
    environment = {**ENVIRONMENT, **variables}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


def test_help_needs_no_package_of_the_server() -> None:
    code = """
import sys
for name in ("starlette", "uvicorn", "python_multipart", "torch", "numpy"):
    sys.modules[name] = None
from heedful.cli import run
sys.exit(run(["serve", "--help"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--allow-anonymous" in done.stdout


def test_missing_packages_are_named_with_the_extra(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.extras.find_spec", lambda name: None if name in ("starlette", "uvicorn") else name)
    inside("serve").refused("starlette, uvicorn are not installed; run: pip install 'heedful[serve]'")


def test_the_server_needs_neither_torch_nor_numpy(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    for name in ("torch", "numpy", "safetensors", "sacrebleu", "ctranslate2"):
        package = hidden / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise ImportError('this package must not be imported')\n")
    path = os.pathsep.join([str(hidden), str(Path(__file__).resolve().parents[2])])
    with running_server(tmp_path, environment={"PYTHONPATH": path}, workers=1) as server:
        assert server.translate("It is raining.", source="en").status == 200
        assert "Regen" in server.translate("The rain", source="en", prefix="Der Regen").json()["text"]


def test_the_command_of_the_banner_works(tmp_path: Path) -> None:
    with running_server(tmp_path, "--port", "0", workers=1) as server:
        answer = server.request("POST", "/translate", {"q": "Good morning.", "source": "en", "target": "de"})
        assert answer.json()["translatedText"].startswith("Guten Morgen")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--host", "0.0.0.0"),
            r"--host 0\.0\.0\.0: other machines could use this server without an API key; .*--allow-anonymous",
        ),
        (("--host", "::"), "--host ::: other machines"),
        (("--port", "70000"), "port: a port is a number from 0 to 65535, not 70000"),
        (("--host", "192.0.2.1", "--allow-anonymous"), r"--host 192\.0\.2\.1: .*; give an address of this machine"),
        (("--host", "no such host", "--allow-anonymous"), "--host no such host: "),
        (("--workers", "0"), "workers: must be above 0"),
        (("-m", "nowhere"), "nowhere: there is no such model directory"),
        (("--config", "nowhere.yaml"), "nowhere.yaml: cannot read this configuration"),
        (("--log-format", "xml"), "log_format: 'xml' is not one of text, json"),
        (("--keys", "nowhere.sqlite"), "nowhere.sqlite"),
    ],
)
def test_what_cannot_be_served_is_one_message(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments, *(() if "--port" in arguments else ("--port", "0")))
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.search(message, done.stderr), done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = run("--port", port)
    assert done.returncode == 2
    assert f"--port {port}: another program uses this port" in done.stderr


def test_a_damaged_model_is_one_message(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{")
    done = run("-m", model, "--port", "0")
    assert done.returncode == 2
    assert str(model) in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_of_the_environment_are_checked() -> None:
    done = run("--port", "0", HEEDFUL_MAX_TEXTZ="5")
    assert done.returncode == 2
    assert "HEEDFUL_MAX_TEXTZ: there is no such setting (did you mean 'HEEDFUL_MAX_TEXTS'?)" in done.stderr
