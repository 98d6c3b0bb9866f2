"""Low limits on open files and memory, no temporary folder: the program succeeds or fails with one message."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.cli.exit_codes import MIN_ADDRESS_SPACE
from tests.cli.program import COMMAND, ENVIRONMENT, TINY, Ended, run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
CORPUS = ["--source", "a", "--target", "b"]
VERBS = {
    "translate": ["translate", "-m", "model", "1 2 3"],
    "translate file": ["translate", "-m", "model", "-i", "short", "-o", "out"],
    "info": ["info", "model"],
    "prepare": ["prepare", *CORPUS, "-o", "prepared"],
    "train": ["train", *CORPUS, *TINY, "--steps", "2", "-o", "trained"],
}
FOR_LIMIT = {"open files": "`ulimit -n`", "address space": "`ulimit -v`"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("limits")
    for name, shift in (("a", 0), ("b", 7)):
        lines = "".join(f"{number + shift} {number} {number % 13} x\n" for number in range(1500))
        (place / name).write_text(lines, encoding="utf-8")
    (place / "short").write_text("1 2 3\n4 5\n", encoding="utf-8")
    run("train", *CORPUS, *TINY, "--steps", 2, "-o", "model", cwd=place)
    run("translate", "-m", "model", "1", cwd=place)  # from here on, the engine's file is in the cache
    return place


def limited(folder: Path, arguments: list[str], *, environment: dict[str, str], **limits: int) -> Ended:
    """Run the program in a subprocess with resource limits."""
    import resource

    def limit() -> None:
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name.upper()}"), (value, value))

    for name in ("out", "prepared", "trained"):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        env={**ENVIRONMENT, **environment},
        cwd=folder,
        timeout=120,
        check=False,
        preexec_fn=limit,
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("temporary", ["missing", "short"], ids=["missing", "a file"])
def test_unusable_temporary_folder_is_not_needed(verb: str, temporary: str, folder: Path) -> None:
    """TMPDIR is not used."""
    ended = limited(folder, VERBS[verb], environment={"TMPDIR": str(folder / temporary)})
    assert ended.code == 0, ended.error


@pytest.mark.parametrize("verb", VERBS)
def test_open_file_limit_is_one_message(verb: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is set in the running interpreter: with an editable install, Python itself needs more to start."""
    codes = set()
    for count in (4, 8):
        program = (
            f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({count}, {count}));"
            "from heedful.cli import main; main()"
        )
        monkeypatch.setattr(sys.modules[__name__], "COMMAND", [sys.executable, "-c", program])
        ended = limited(folder, VERBS[verb], environment={})
        codes.add(ended.code)
        if ended.code:
            assert ": " in ended.refused("Too many open files", FOR_LIMIT["open files"]).removeprefix("heedful: ")
    assert codes <= {0, 2}
    assert (2 in codes) == (verb in ("prepare", "train", "translate file"))


@pytest.mark.parametrize("verb", VERBS)
def test_address_space_limit_is_one_message(verb: str, folder: Path) -> None:
    """Below the minimum, the process stops before a library can abort it; just above, it works."""
    least = MIN_ADDRESS_SPACE.get(VERBS[verb][0], 0)
    for megabytes in (100, least - 1) if least else ():
        ended = limited(folder, VERBS[verb], environment={}, **{"as": megabytes << 20})
        ended.refused(f"heedful {VERBS[verb][0]} needs {least:,} MB or more", FOR_LIMIT["address space"])
    if verb != "train":  # torch's minimum depends on its version
        ended = limited(folder, VERBS[verb], environment={}, **{"as": (least or 100) * 3 // 2 << 20})
        assert ended.code == 0, ended.error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("ImportError('x.so: failed to map segment from shared object', name='torch')", "to load torch"),
        ('RuntimeError("can\'t start new thread")', "`ulimit -u`"),
        ("RuntimeError('Resource temporarily unavailable')", "`ulimit -u`"),
        ("MemoryError()", "not enough memory"),
        ("OSError(24, 'Too many open files', 'some/file')", "some/file: Too many open files; raise the limit"),
    ],
)
def test_library_limit_errors_are_one_message(error: str, words: str) -> None:
    program = "from heedful.cli.exit_codes import exit_on_error\nimport typer, sys\n"
    program += f"try:\n    with exit_on_error():\n        raise {error}\n"
    program += "except typer.Exit as end:\n    sys.exit(end.exit_code)\n"
    done = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    Ended(done.returncode, done.stdout, done.stderr).refused(words)


def test_other_errors_keep_their_traceback() -> None:
    from heedful.cli.exit_codes import exit_on_error

    for error in (ImportError("cannot import name 'x'"), RuntimeError("a defect")):
        with pytest.raises(type(error), match=str(error)), exit_on_error():
            raise error
