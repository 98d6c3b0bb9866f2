"""Workflows, templates, Makefile, citation and wheel settings agree with each other and with the package."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import heedful

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
YAML_FILES = [
    *WORKFLOWS,
    *sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")),
    *(ROOT / name for name in (".pre-commit-config.yaml", "CITATION.cff")),
]


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def workflow_commands(path: Path) -> list[list[str]]:
    """All commands that a workflow runs, one list of words for each."""
    steps = [step for job in read_yaml(path)["jobs"].values() for step in job.get("steps", [])]
    lines = [line for step in steps for line in step.get("run", "").splitlines()]
    return [shlex.split(part) for line in lines for part in line.split("&&")]


def test_yaml_files_parse() -> None:
    for path in YAML_FILES:
        assert isinstance(read_yaml(path), dict), path


def test_workflow_commands_exist() -> None:
    """`make` targets are in the Makefile, scripts in the repository, reusable workflows beside their caller."""
    num_targets = num_scripts = 0
    for path in WORKFLOWS:
        for command in workflow_commands(path):
            if command[0] == "make":
                assert command[1] in make_targets(), f"{path.name}: make {command[1]}"
                num_targets += 1
            for word in command:
                if word.startswith(".ci/"):
                    assert (ROOT / word).is_file(), f"{path.name}: {word}"
                    assert word.endswith(".py") or (ROOT / word).stat().st_mode & 0o100, f"{word} is not executable"
                    num_scripts += 1
        for job in read_yaml(path)["jobs"].values():
            if "uses" in job:
                assert (ROOT / job["uses"]).is_file(), f"{path.name}: {job['uses']}"
    assert num_targets >= 4 and num_scripts >= 4


def test_workflows_cover_supported_systems_and_pythons() -> None:
    matrix = read_yaml(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["test"]["strategy"]["matrix"]
    classifiers = project()["project"]["classifiers"]
    supported = [text.split(" :: ")[-1] for text in classifiers if re.search(r":: 3\.\d+$", text)]
    assert matrix["python"] == supported
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos"}


def test_only_publishing_may_write() -> None:
    for path in WORKFLOWS:
        workflow = read_yaml(path)
        assert workflow["permissions"] == {"contents": "read"}, path.name
        granted = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
        expected = {"publish": {"id-token": "write"}, "page": {"contents": "write"}}
        assert granted == (expected if path.name == "release.yml" else {}), path.name


def test_make_help_lists_all_commands() -> None:
    done = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {line.split()[1] for line in done.stdout.splitlines()} == make_targets()


def test_make_docs_runs_every_page_script() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    scripts = {path.name for path in (ROOT / ".ci").glob("*_page.py")}
    assert scripts and {name for name in scripts if f".ci/{name}" in text} == scripts


def test_contributing_and_pull_request_template_name_make_targets() -> None:
    for name in ("CONTRIBUTING.md", ".github/pull_request_template.md"):
        named = set(re.findall(r"`make ([a-z]+)`", (ROOT / name).read_text(encoding="utf-8")))
        assert named and named <= make_targets(), name


def test_citation_matches_package() -> None:
    citation = read_yaml(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # what the format requires
    assert citation["version"] == heedful.__version__
    assert citation["license"] == project()["project"]["license"]
    assert citation["repository-code"] == project()["project"]["urls"]["Source"]
    [paper] = citation["references"]
    assert paper["title"] == "Attention Is All You Need" and len(paper["authors"]) == 8


def release_version(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / ".ci" / "release_version.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_release_version_refuses_other_versions() -> None:
    done = release_version("9.9.9")
    assert done.returncode == 1
    for name in ("heedful/__init__.py", "CITATION.cff", "README.md", "README.zh-CN.md", "CHANGELOG.md"):
        assert name in done.stderr


def test_release_version_finds_only_missing_date() -> None:
    """All files name the current version; its section of the changelog is dated, or marked as unreleased."""
    done = release_version(heedful.__version__)
    undated = done.stderr == f"CHANGELOG.md: the date of {heedful.__version__} is 'unreleased', not YYYY-MM-DD\n"
    assert undated or (done.returncode == 0 and done.stdout)


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/README.md"])
def test_release_procedure_is_linked(name: str) -> None:
    assert "development/releasing.md" in (ROOT / name).read_text(encoding="utf-8")


def test_lean_install_has_no_heavy_packages() -> None:
    """`heedful` alone brings neither torch nor numpy; `dev` brings every extra."""
    metadata = project()["project"]
    base = {re.split(r"[>=\[]", text)[0].lower() for text in metadata["dependencies"]}
    assert base == {"pyyaml", "rich", "sentencepiece", "typer"}
    extras = metadata["optional-dependencies"]
    [everything] = [text for text in extras["dev"] if text.startswith("heedful[")]
    assert set(everything.removeprefix("heedful[").removesuffix("]").split(",")) == extras.keys() - {"dev"}
