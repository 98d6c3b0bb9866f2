"""An environment with only the dependencies of `pip install heedful`: translating works, other verbs name their extra.

The environment is a real one, with links to the packages that `heedful` depends on and to no others. `.ci/lean_install`
does the same with pip and a freshly compiled engine.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from heedful import extras
from heedful.cli import GROUPS, VERBS
from heedful.native import available

ROOT = Path(__file__).parents[2]
TRAIN = "pip install 'heedful[train]'"
LEAN_VERBS = {"translate", "merge", "info", "models", "export", "see", "keys"}
"""Verbs that work without extras; of `export` only `--to web`, and `see` for models that run in the page."""
ARGUMENTS = {
    "train": "--source a.en --target a.de -o model",
    "generate": "-m model Once",
    "score": "--reference a.de a.de",
    "evaluate": "--source a.en --target a.de",
    "prepare": "--source a.en --target a.de -o prepared",
    "compare": "--source a.en --target a.de -o compared",
    "average": "model -o averaged",
    "shortlist": "-m model --source a.en --target a.de",
    "export": "-m model --to ctranslate2 -o exported",
    "paper": "table1 -o results",
    "serve": "--port 0",
}
"""Commands a user could run; missing packages are reported before any file is read."""


def with_dependencies(names: list[str]) -> dict[str, Distribution]:
    """Distributions and all their requirements, without extras."""
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower()
        if name not in found:
            found[name] = distribution(name)
            needed = map(Requirement, found[name].requires or [])
            waiting += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of the lean environment; heedful itself is this checkout."""
    folder = tmp_path_factory.mktemp("lean") / "environment"
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python3*/site-packages")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for one in with_dependencies([Requirement(text).name for text in project["dependencies"]]).values():
        for name in {path.parts[0] for path in one.files or [] if path.parts[0] not in ("..", "__pycache__")}:
            target = Path(str(one.locate_file(name)))
            if target.exists() and not (packages / name).exists():
                (packages / name).symlink_to(target)
    (packages / "heedful.pth").write_text(f"{ROOT}\n", encoding="utf-8")
    return folder / "bin" / "python"


def run(python: Path, *arguments: str, stdin: str = "", cwd: Path) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    environment = {**inherited, "CUDA_VISIBLE_DEVICES": "", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [str(python), *arguments],
        cwd=cwd,
        env=environment,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def heedful(python: Path, *arguments: str, stdin: str = "", cwd: Path) -> str:
    done = run(python, "-m", "heedful", *arguments, stdin=stdin, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_extras_match_pyproject() -> None:
    """Module names are derived from the distributions; `require` and `explain` know every package of an extra."""
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {
        extra: {Requirement(text).name.replace("-", "_").replace("markdown_it_py", "markdown_it") for text in texts}
        for extra, texts in metadata["optional-dependencies"].items()
        if extra != "dev"
    }
    for extra, modules in extras.EXTRAS.items():
        also = set(extras.EXTRAS["train"]) if extra != "train" else set()
        assert set(modules) == declared[extra] - also - {"heedful"}, extra
    assert declared.keys() == extras.EXTRAS.keys()


def test_environment_has_no_packages_of_extras(python: Path, tmp_path: Path) -> None:
    names = [name for modules in extras.EXTRAS.values() for name in modules if name not in ("markdown_it",)]
    found = f"import importlib.util; print([n for n in {names!r} if importlib.util.find_spec(n)])"
    assert run(python, "-c", found, cwd=tmp_path).stdout == "[]\n"


@pytest.mark.skipif(not available(), reason=available().reason)
def test_lines_files_and_documents_are_translated(python: Path, tmp_path: Path) -> None:
    """Converted for the first time in this environment; documents are those whose formats need no package."""
    same = heedful(Path(sys.executable), "translate", "--to", "de", "Good morning.", cwd=tmp_path)
    assert heedful(python, "translate", "--to", "de", "Good morning.", cwd=tmp_path) == same
    record = json.loads(heedful(python, "translate", "--to", "de", "--align", "--json", stdin="A cat.\n", cwd=tmp_path))
    assert record["alignment"] and record["word_alignment"]
    (tmp_path / "a.txt").write_text("Good morning.\nThe door is open.\n" * 50, encoding="utf-8")
    heedful(python, "translate", "--to", "de", "-i", "a.txt", "-o", "b.txt", cwd=tmp_path)
    assert len((tmp_path / "b.txt").read_text(encoding="utf-8").splitlines()) == 100
    for shard in ("1/2", "2/2"):
        heedful(python, "translate", "--to", "de", "-i", "a.txt", "-o", "c.txt", "--shard", shard, cwd=tmp_path)
    heedful(python, "merge", "c.txt", cwd=tmp_path)
    assert (tmp_path / "c.txt").read_bytes() == (tmp_path / "b.txt").read_bytes()
    (tmp_path / "a.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\n<i>Good</i> morning.\n", encoding="utf-8")
    heedful(python, "translate", "--to", "de", "-i", "a.srt", "-o", "b.srt", cwd=tmp_path)
    assert "00:00:01,000 --> 00:00:02,000" in (tmp_path / "b.srt").read_text(encoding="utf-8")
    (tmp_path / "a.json").write_text('{"title": "Good morning."}', encoding="utf-8")
    heedful(python, "translate", "--to", "de", "-i", "a.json", "-o", "b.json", cwd=tmp_path)
    assert json.loads((tmp_path / "b.json").read_text(encoding="utf-8")).keys() == {"title"}


@pytest.mark.skipif(not available(), reason=available().reason)
def test_python_interface_translates(python: Path, tmp_path: Path) -> None:
    program = (
        "import sys, heedful\n"
        "[one] = heedful.Translator.load().translate(['Good morning.'], target_language='de', align=True)\n"
        "assert one.attention.shape == (len(one.tokens), len(one.source_tokens))\n"
        "heedful.Config(); print(one)\n"
        "for use in (lambda: heedful.train({}), lambda: heedful.score(['a'], ['a']), lambda: heedful.Transformer):\n"
        "    try:\n        use()\n"
        "    except heedful.HeedfulError as error:\n        print(error)\n"
    )
    done = run(python, "-c", program, cwd=tmp_path)
    text, *messages = done.stdout.splitlines()
    assert text and len(messages) == 3, done.stdout + done.stderr
    assert all("not installed" in message and TRAIN in message for message in messages)


def test_help_completion_models_and_info_work(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for verb in ([], *([verb] for verb in (*VERBS, *GROUPS))):
        assert "Usage" in heedful(python, *verb, "--help", cwd=tmp_path)
    assert "heedful" in heedful(python, "--version", cwd=tmp_path)
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # the parent here may not be a shell
    assert "complete" in heedful(python, "--show-completion", "bash", cwd=tmp_path)
    assert "en-de-zh" in heedful(python, "models", cwd=tmp_path)
    assert heedful(python, "info", cwd=tmp_path) and heedful(python, "info", "--verify", cwd=tmp_path)


def assert_refused(done: subprocess.CompletedProcess[str]) -> None:
    """One line on stderr that names what to install, exit code 2."""
    assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr
    assert re.fullmatch(r"heedful: [\w, ]+ (is|are) not installed; run: pip install '.+'\n", done.stderr), done.stderr
    assert TRAIN in done.stderr or "pip install 'heedful[serve]'" in done.stderr


@pytest.mark.parametrize("verb", sorted(ARGUMENTS))
def test_verbs_name_missing_extra(python: Path, tmp_path: Path, verb: str) -> None:
    assert_refused(run(python, "-m", "heedful", verb, *ARGUMENTS[verb].split(), cwd=tmp_path))
    assert not list(tmp_path.iterdir())


def test_translate_settings_name_missing_extra(python: Path, tmp_path: Path) -> None:
    command = ["-m", "heedful", "translate", "--to", "de", "--quiet"]
    assert_refused(run(python, *command, "--engine", "torch", "Good morning.", cwd=tmp_path))
    assert_refused(run(python, *command, "--method", "sampling", "Good morning.", cwd=tmp_path))


def test_missing_engine_and_torch_are_both_named(python: Path, tmp_path: Path) -> None:
    program = (
        "import sys, heedful.native.bindings as bindings; bindings.NAME = 'none'\n"
        "from heedful.cli import run; sys.exit(run(['translate', '--to', 'de', '--quiet', 'Good morning.']))"
    )
    done = run(python, "-c", program, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        r"heedful: torch is not installed, and the native engine cannot be used: .*not compiled.*\n", done.stderr
    )


def test_verbs_work_or_name_missing_extra() -> None:
    assert {*VERBS, *GROUPS} == LEAN_VERBS | extras.VERB_PACKAGES.keys()
    assert ARGUMENTS.keys() == extras.VERB_PACKAGES.keys() | {"export"}


@pytest.mark.skipif(not available(), reason=available().reason)
def test_bundled_model_is_exported_for_web_pages(python: Path, tmp_path: Path) -> None:
    printed = heedful(python, "export", "--to", "web", "-o", "site", cwd=tmp_path)
    assert printed.startswith("site: the model and a page that translates (12 files")
    assert (tmp_path / "site" / "weights.bin").stat().st_size < 32_000_000


@pytest.mark.skipif(not available(), reason=available().reason)
def test_page_of_bundled_models_is_written(python: Path, tmp_path: Path) -> None:
    assert heedful(python, "see", "--site", "site", cwd=tmp_path).startswith("site: the page with en-zh, en-de-zh")
    for name in ("en-zh", "en-de-zh"):
        assert (tmp_path / "site" / "models" / name / "weights.bin").stat().st_size < 32_000_000
    done = run(python, "-m", "heedful", "see", "--png", "a.png", "--to", "de", "A cat.", cwd=tmp_path)
    assert done.returncode == 2
    assert "matplotlib, numpy, torch are not installed; run: pip install 'heedful[train,plots]'" in done.stderr
