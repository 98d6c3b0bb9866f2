"""The target ids that every search must know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class SpecialTokens:
    """The target ids that a search must know."""

    bos_id: int
    eos_id: int
    pad_id: int
    forbidden: tuple[int, ...] = ()
    """Further ids that no translation may contain, such as the unknown token and language tags."""
    byte_ids: tuple[int, ...] = ()
    """The ids of the 256 bytes; empty if the vocabulary has none."""


def special_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """What the search must know of a tokenizer: a translation holds no unknown token, tag, marker or U+FFFD."""
    tags = tokenizer.control_ids if tokenizer.joint else ()
    return SpecialTokens(
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        pad_id=tokenizer.pad_id,
        forbidden=(tokenizer.unk_id, *tags, *tokenizer.broken_ids),
        byte_ids=tokenizer.byte_ids,
    )
