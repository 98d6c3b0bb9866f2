"""Atomic files: after a kill at any moment, the old or the new contents are complete."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from heedful.atomic_files import (
    INCOMPLETE,
    REPLACED,
    AtomicFile,
    atomic_write,
    fsync_path,
    replace_directory,
    replace_file,
    write_durably,
)


class Killed(BaseException):
    """Simulates kill -9."""


def kill_at(monkeypatch: pytest.MonkeyPatch, moment: int) -> list[str]:
    """Stop before the n-th file operation; returns the names of the completed operations."""
    done: list[str] = []
    for name in ("open", "fsync", "replace", "unlink"):
        original = getattr(os, name)

        def operation(*arguments: Any, original: Any = original, name: str = name, **named: Any) -> Any:
            if len(done) == moment:
                raise Killed
            done.append(name)
            return original(*arguments, **named)

        monkeypatch.setattr(os, name, operation)
    return done


def test_kill_at_any_moment_leaves_old_or_new_file(tmp_path: Path) -> None:
    path, seen = tmp_path / "file", []
    for moment in range(20):
        replace_file(path, "old")
        with pytest.MonkeyPatch.context() as patch:
            done = kill_at(patch, moment)
            try:
                replace_file(path, "new")
            except Killed:
                pass
            else:
                assert done == ["fsync", "replace", "open", "fsync"]
                break
        seen.append(path.read_text())
    assert seen == ["old", "old", "new", "new"]
    assert sorted(tmp_path.iterdir()) == [path]


def test_kill_at_any_moment_leaves_old_or_new_directory(tmp_path: Path) -> None:
    directory, staging, seen = tmp_path / "model", tmp_path / "staging", []
    for moment in range(20):
        for place, contents in ((directory, b"old"), (staging, b"new")):
            place.mkdir(exist_ok=True)
            write_durably(place / "file", contents)
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, moment)
            try:
                replace_directory(staging, directory)
            except Killed:
                pass
            else:
                break
        there = directory if directory.exists() else tmp_path / f"model{REPLACED}"
        seen.append((there / "file").read_bytes())
    assert seen == sorted(seen, reverse=True) and set(seen) == {b"old", b"new"}
    assert (tmp_path / f"model{REPLACED}" / "file").read_bytes() == b"old"


def test_error_keeps_old_contents_and_removes_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, "old")
    for shared in (False, True):
        with pytest.raises(KeyError), atomic_write(path, shared=shared) as file:
            file.write(b"half")
            raise KeyError
        assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("file", "old")]


def test_killed_writer_is_overwritten_by_the_next(tmp_path: Path) -> None:
    (tmp_path / f"file{INCOMPLETE}").write_text("left over from a killed process, longer than the new contents")
    replace_file(tmp_path / "file", "new")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("file", "new")]


def test_shared_file_written_by_threads_at_once_is_whole(tmp_path: Path) -> None:
    path, parts = tmp_path / "cache", 40
    barrier = threading.Barrier(4)

    def write(letter: bytes) -> None:
        with atomic_write(path, shared=True) as file:
            barrier.wait()
            for _ in range(parts):
                file.write(letter * 1000)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c", b"d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    contents = path.read_bytes()
    assert contents in [letter * 1000 * parts for letter in (b"a", b"b", b"c", b"d")]
    assert list(tmp_path.iterdir()) == [path]


def test_fsync_errors_of_directories_that_cannot_be_flushed_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_durably(tmp_path / "file", b"x")

    def fail(code: int) -> None:
        def fsync(descriptor: int) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "fsync", fsync)

    fail(errno.EINVAL)
    fsync_path(tmp_path)
    with pytest.raises(OSError, match="Invalid argument"):
        fsync_path(tmp_path / "file")
    fail(errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        fsync_path(tmp_path)
    with pytest.raises(OSError, match="file"):
        write_durably(tmp_path / "file", b"y")


@pytest.mark.parametrize("fails", [False, True])
def test_fsync_path_closes_its_descriptor(fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    original = os.open

    def recording_open(*arguments: Any) -> int:
        opened.append(original(*arguments))
        return opened[-1]

    def failing_fsync(descriptor: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "open", recording_open)
    if fails:
        monkeypatch.setattr(os, "fsync", failing_fsync)
    fsync_path(tmp_path)
    assert len(opened) == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_contents_reach_the_file_before_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    write_durably(tmp_path / "durable", b"four")
    assert sizes == [4]
    replace_file(tmp_path / "atomic", b"three")
    assert sizes[:2] == [4, 5]


def test_discard_after_commit_does_nothing(tmp_path: Path) -> None:
    atomic = AtomicFile(tmp_path / "file")
    atomic.file.write(b"new")
    atomic.commit()
    atomic.discard()
    assert (tmp_path / "file").read_bytes() == b"new"
