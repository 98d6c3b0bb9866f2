"""What runs a model while it translates: the interface `Engine`, and one module for each engine that implements it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from heedful.config import DecodingConfig
from heedful.did_you_mean import did_you_mean
from heedful.errors import ConfigError
from heedful.search_types import AttentionWeights, Hypothesis

ENGINES = ("auto", "torch", "native", "ctranslate2")
MakeRule = Callable[[Sequence[str], Sequence[int], Any], Any]
"""(sentences, longest length allowed for each, device) -> a `Rule` that their translations must keep."""


class Job(NamedTuple):
    """One sentence to decode. Equal jobs have equal results, so each is done once."""

    source: tuple[int, ...]
    """Source ids, tag and end token included."""
    prefix: tuple[int, ...]
    """Target ids that the translation must begin with."""
    text: str
    max_length: int
    """Most tokens that the translation may have, without the end token."""
    forbidden: tuple[int, ...] = ()
    """Target ids that this translation may not contain, beside those that none may."""


class Outcome(NamedTuple):
    """What decoding a job gave: hypotheses, best first, and the alignment weights of the best when asked for."""

    hypotheses: list[Hypothesis]
    attention: AttentionWeights | None


@runtime_checkable
class Engine(Protocol):
    """A loaded model that can search. What it cannot do it refuses with a `ConfigError` that names it."""

    @property
    def max_length(self) -> int:
        """Longest source or target, in tokens, that the model accepts."""
        ...

    def decode(
        self, jobs: Sequence[Job], config: DecodingConfig, *, align: bool, make_rule: MakeRule | None
    ) -> dict[Job, Outcome]:
        """Search for all jobs, in the engine's own batches."""
        ...


def choose_engine(name: str, *, exported: bool = False) -> str:
    """The engine that a name stands for; "auto" is left open, but for a model that was exported for CTranslate2."""
    if name not in ENGINES:
        raise ConfigError(
            f"engine: {name!r} is not known{did_you_mean(name, ENGINES)}; choose one of {', '.join(ENGINES)}."
        )
    return "ctranslate2" if name == "auto" and exported else name
