"""Shards: the portions of a file dealt out in turn, so that each can be translated anywhere and all be merged again.

Of n shards the i-th (from 1) has the portions i, i + n, i + 2n …: nobody need count the lines first, and each shard
gets a like share of every part of the corpus.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from heedful.decoding.files.line_chunks import Sizes
from heedful.errors import ConfigError


@dataclass(frozen=True)
class Shard:
    """The i-th of n parts, i from 1."""

    index: int = 1
    count: int = 1
    is_whole: bool = False
    """Whether nothing was divided: the output itself is written, and nothing need be merged."""

    def has(self, portion: int) -> bool:
        """Whether the portion of this number, from 0, is its own."""
        return portion % self.count == self.index - 1

    def file(self, output: Path) -> Path:
        """Where it is written."""
        if self.is_whole:
            return output
        return output.with_name(f"{output.name}.part-{self.index:04d}-of-{self.count:04d}")

    def num_lines(self, total: int, sizes: Sizes) -> int:
        """How many of `total` lines are its own."""
        return sum(count for number, _, count in sizes.portions(total) if self.has(number))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


WHOLE = Shard(is_whole=True)


def parse_shard(text: str | None) -> Shard:
    """The shard that "3/16" names; None: the whole."""
    if text is None:
        return WHOLE
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise ConfigError(f"--shard {text}: give it as i/n with i from 1 to n, such as 3/16.")
    return Shard(int(found[1]), int(found[2]))


def find_shards(output: Path) -> dict[int, list[Shard]]:
    """Shards of an output that lie beside it, finished or not, by how many they were to be."""
    pattern = re.compile(re.escape(output.name) + r"\.part-(\d{4,})-of-(\d{4,})(\.partial|\.record\.json)?")
    names = [pattern.fullmatch(path.name) for path in sorted(output.parent.iterdir())]
    found: dict[int, list[Shard]] = {}
    for shard in dict.fromkeys(Shard(int(name[1]), int(name[2])) for name in names if name):
        found.setdefault(shard.count, []).append(shard)
    return found
