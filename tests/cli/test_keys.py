"""`heedful keys`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.program import Inside


def test_add_list_and_revoke(inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEEDFUL_KEYS", "my.sqlite")
    secret = inside("keys", "add", "alice", "--rate", "5", "--quota", "100").out.strip()
    assert secret.startswith("hd-")
    inside("keys", "add", "bob")
    assert "5 requests per minute, 0 of 100 characters" in inside("keys", "list").out
    inside("keys", "revoke", "bob")
    listed = json.loads(inside("keys", "list", "--json").out)
    assert [(key["name"], key["revoked"] is None) for key in listed] == [("alice", True), ("bob", False)]
    assert secret not in json.dumps(listed)
    ended = inside("keys", "list", "--keys", "missing.sqlite")
    assert ended.code == 2 and "missing.sqlite: there is no such file" in ended.error


def test_group_without_a_verb_prints_its_help(inside: Inside) -> None:
    ended = inside("keys")
    assert (ended.code, ended.error) == (2, "") and "revoke" in ended.out
