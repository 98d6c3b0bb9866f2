"""The files in deploy/: each is well-formed, and what it says of the program is true."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from heedful.cli import make_app
from heedful.serving.metrics import Metrics
from heedful.serving.routes import operations
from heedful.serving.settings import ServerSettings, load_settings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PROGRAM: Any = typer.main.get_command(make_app())


def read(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def parsed(arguments: list[str]) -> dict[str, Any]:
    """The values of a verb's flags; fails for unknown verbs and flags."""
    verb = PROGRAM.commands[arguments[0]]
    return dict(verb.make_context(arguments[0], list(arguments[1:])).params)


def unit() -> list[tuple[str, str, str]]:
    """Section, key and value of each line of the unit."""
    section, lines = "", []
    for line in read("heedful.service").splitlines():
        if header := re.fullmatch(r"\[(\w+)\]", line):
            section = header[1]
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals and section and re.fullmatch(r"[A-Z]\w+", key), line
            lines.append((section, key, value))
    return lines


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile."""
    lines = [line for line in read("Dockerfile").splitlines() if line and not line.startswith("#")]
    found = [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]
    assert {name for name, _ in found} <= set("FROM RUN WORKDIR COPY ENV EXPOSE HEALTHCHECK ENTRYPOINT CMD".split())
    return found


def test_unit_starts_the_server_and_confines_it() -> None:
    lines = unit()
    values = {key: value for _, key, value in lines}
    start = shlex.split(values["ExecStart"])
    assert parsed(start[1:])["config"] == "/etc/heedful/serve.yaml"
    wanted = {"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "PrivateTmp": "yes"}
    assert wanted.items() <= values.items() and values["MemoryMax"]
    environment = dict(value.split("=", 1) for _, key, value in lines if key == "Environment")
    heedful = {name: value for name, value in environment.items() if name.startswith("HEEDFUL_")}
    settings = load_settings(DEPLOY / "serve.yaml", environment=heedful)
    assert settings.is_loopback and settings.keys and settings.keys.startswith("/var/lib/heedful/")
    assert int(values["TimeoutStopSec"]) > settings.shutdown_seconds


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = shutil.which("true")
    text = re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={program}", read("heedful.service"))
    (tmp_path / "heedful.service").write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "heedful.service")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "heedful" in line]) == (0, [])


def test_image_is_built_of_existing_files_and_starts_the_server() -> None:
    found = instructions()
    assert [name for name, _ in found].count("FROM") == 2
    copied = [value.split()[:-1] for name, value in found if name == "COPY" and "--from" not in value]
    files = [file for one in copied for file in one]
    assert all((ROOT / file).exists() for file in files)
    kept = {line[1:] for line in read("Dockerfile.dockerignore").splitlines() if line.startswith("!")}
    assert kept == set(files)
    assert next(value for name, value in reversed(found) if name == "FROM").endswith(":nonroot")
    values = dict(found)
    assert json.loads(values["ENTRYPOINT"]) == ["python3", "-m", "heedful"]
    flags = parsed(json.loads(values["CMD"]))
    assert flags["allow_anonymous"] and flags["port"] == int(values["EXPOSE"])
    compile(json.loads(values["HEALTHCHECK"].partition("CMD ")[2])[2], "healthcheck", "exec")


def test_compose_file_is_read_only_and_needs_keys() -> None:
    services = yaml.safe_load(read("compose.yaml"))["services"]
    server = services["heedful"]
    flags = parsed(server["command"])
    assert flags["keys"] and not flags["allow_anonymous"]
    assert server["read_only"] and server["cap_drop"] == ["ALL"] and "ports" not in server
    settings = load_settings(environment=server["environment"])
    assert settings.trusted_proxies == (services["caddy"]["networks"]["inside"]["ipv4_address"],)
    assert services["caddy"]["environment"]["HEEDFUL_UPSTREAM"] == f"heedful:{flags['port']}"
    assert (DEPLOY / server["build"]["context"] / server["build"]["dockerfile"]).exists()
    mounted = [volume.split(":")[0] for volume in services["caddy"]["volumes"] if volume.startswith("./")]
    assert mounted and all((DEPLOY / file).exists() for file in mounted)


def test_kubernetes_objects_fit_together() -> None:
    objects = {one["kind"]: one for one in yaml.safe_load_all(read("kubernetes.yaml"))}
    assert set(objects) == {
        "Deployment",
        "Service",
        "HorizontalPodAutoscaler",
        "PodDisruptionBudget",
        "NetworkPolicy",
    }
    pod = objects["Deployment"]["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert objects["Service"]["spec"]["selector"] == labels
    for kind, key in (
        ("Deployment", "selector"),
        ("PodDisruptionBudget", "selector"),
        ("NetworkPolicy", "podSelector"),
    ):
        assert objects[kind]["spec"][key]["matchLabels"] == labels
    container = pod["spec"]["containers"][0]
    flags = parsed(container["args"])
    assert flags["keys"] and flags["port"] == container["ports"][0]["containerPort"]
    probes = {container[name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert probes == {"/readyz", "/livez"}
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    for one in (container, *pod["spec"]["initContainers"]):
        assert one["securityContext"]["readOnlyRootFilesystem"]
        assert {mount["name"] for mount in one["volumeMounts"]} <= volumes
    assert pod["spec"]["terminationGracePeriodSeconds"] > ServerSettings().shutdown_seconds
    metric = objects["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["metric"]["name"]
    assert re.search(rf"^# TYPE {metric} gauge$", Metrics().text(), re.MULTILINE)


def test_probes_exist() -> None:
    paths = re.findall(r'Route\("(/\w+)', Path(operations.__file__).read_text(encoding="utf-8"))
    assert {"/livez", "/readyz", "/metrics"} <= set(paths)


def balanced(text: str) -> bool:
    depth = 0
    for character in re.sub(r"#.*|\{\$[^}]*\}|\{[a-z_]+\}", "", text):
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0


@pytest.mark.parametrize("name", ["nginx.conf", "Caddyfile"])
def test_proxies_reach_the_server_and_hide_operations(name: str) -> None:
    text = read(name)
    settings = ServerSettings()
    assert balanced(text)
    assert f"127.0.0.1:{settings.port}" in text
    assert "metrics" in text and "operations/" in text and "X-Forwarded-For" in text
    megabytes = int(re.search(r"(?:client_max_body_size|max_size) (\d+)", text)[1])  # type: ignore[index]
    assert megabytes * 1_000_000 > settings.max_document_bytes
    if name == "nginx.conf":
        assert int(re.search(r"proxy_read_timeout (\d+)s", text)[1]) > settings.document_seconds  # type: ignore[index]


@pytest.mark.skipif(shutil.which("caddy") is None, reason="Caddy is not installed")
def test_caddy_accepts_its_file(tmp_path: Path) -> None:
    command = ["caddy", "validate", "--config", str(DEPLOY / "Caddyfile"), "--adapter", "caddyfile"]
    environment = {"HOME": str(tmp_path), "PATH": str(Path(shutil.which("caddy") or "").parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_settings_named_in_the_pages_exist() -> None:
    names = {field.name for field in fields(ServerSettings)}
    for page in ("docs/deploy.md", "docs/deploy.zh-CN.md"):
        found = set(re.findall(r"`((?:trusted|document)_\w+)`", (ROOT / page).read_text(encoding="utf-8")))
        assert found and found <= names
