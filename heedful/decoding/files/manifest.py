"""The record beside an unfinished output: what it was made with and how far it is. Replaced in one stroke."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from heedful.decoding.files.line_chunks import Sizes
from heedful.errors import DecodingError

FORMAT, FORMAT_VERSION = "heedful-translation", 1
MOST_NAMED = 6  # differences in one message


@dataclass(frozen=True)
class Made:
    """What makes two translations of a text the same, byte for byte."""

    identity: Mapping[str, Any]
    """Model, engine and search, as `Task.identity` tells them."""
    portion_lines: int
    """Lines of the input that were translated together, at most."""
    shard: str = "1/1"
    """Which part of the input: "3/16" has portions 3, 19, 35 …"""
    first_portion_lines: int | None = None
    """Lines of the first portion, each later one having twice as many; None: all are alike."""

    @property
    def sizes(self) -> Sizes:
        """The sizes of the portions."""
        return Sizes(self.portion_lines, self.first_portion_lines)


@dataclass(frozen=True)
class Record:
    """How far an output is; written whenever another portion is safely on the disk."""

    made: Made
    input_portions: int = 0
    """Portions of the input that are behind, those of other shards included."""
    input_lines: int = 0
    input_digest: str = ""
    """SHA-256 of the input up to there."""
    lines: int = 0
    """Lines of the output."""
    bytes: int = 0
    """Size of the output; what stands after it belongs to a portion that did not get ready."""
    finished: bool = False

    def save(self, path: Path) -> None:
        """Put this record in the place of the last one."""
        plain = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}
        new = path.with_name(f"{path.name}.new")
        with new.open("wb") as file:
            file.write(json.dumps(plain, indent=1, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)


def load_record(path: Path) -> Record | None:
    """The record in a file; None if there is none."""
    try:
        plain = json.loads(path.read_bytes())
        if plain.pop("format") != FORMAT or plain.pop("format_version") != FORMAT_VERSION:
            raise KeyError("format")
        return replace(Record(**{**plain, "made": Made(**plain["made"])}))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DecodingError(
            f"{path} is not a record of this version of heedful, or it is damaged; take it away, or add --overwrite."
        ) from None


def differences(before: Made, now: Made) -> str:
    """What differs between two ways to make an output, in words; empty if nothing does."""
    old, new = _flat(asdict(before)), _flat(asdict(now))
    found = []
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            name = key.removeprefix("identity.")
            if name.startswith("model."):
                found.append(f"another {name.removeprefix('model.')} of the model")
            else:
                found.append(f"{name} {_shown(old.get(key))}, not {_shown(new.get(key))}")
    more = [f"and {len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
    return "; ".join(found[:MOST_NAMED] + more)


def _flat(plain: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in plain.items():
        # names of the model's files hold dots of their own, which do no harm here
        flat |= _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
    return flat


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)
