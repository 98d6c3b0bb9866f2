"""The engines that run a model: the interface `Engine`, and one module per implementation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from heedful.config import DecodingConfig
from heedful.errors import ConfigError, did_you_mean
from heedful.search_types import AttentionWeights, Hypothesis

ENGINES = ("auto", "torch", "native", "ctranslate2")
ConstraintFactory = Callable[[Sequence[str], Sequence[int], Any], Any]
"""(source sentences, maximum length of each translation, device) -> a `Constraint` on their translations."""


class DecodeRequest(NamedTuple):
    """One sentence to decode. Equal requests have equal results and are decoded once."""

    source: tuple[int, ...]
    """Source ids, including tag and end token."""
    prefix: tuple[int, ...]
    """Target ids that the translation must begin with."""
    text: str
    max_length: int
    """Maximum number of target tokens, not counting the end token."""
    forbidden: tuple[int, ...] = ()
    """Target ids forbidden in this translation, in addition to those forbidden everywhere."""


class DecodeResult(NamedTuple):
    """The hypotheses for a request, best first, and with `align` the attention weights of the best one."""

    hypotheses: list[Hypothesis]
    attention: AttentionWeights | None


@runtime_checkable
class Engine(Protocol):
    """A loaded model that can search. Raises a `ConfigError` for settings it does not support."""

    @property
    def max_length(self) -> int:
        """Maximum source and target length in tokens."""
        ...

    def decode(
        self,
        requests: Sequence[DecodeRequest],
        config: DecodingConfig,
        *,
        align: bool,
        constraint_factory: ConstraintFactory | None,
    ) -> dict[DecodeRequest, DecodeResult]:
        """Decode all requests; the engine forms the batches."""
        ...


def choose_engine(name: str, *, exported: bool = False) -> str:
    """Validate an engine name. "auto" becomes "ctranslate2" for a model exported for it, and is otherwise kept."""
    if name not in ENGINES:
        raise ConfigError(
            f"engine: {name!r} is not known{did_you_mean(name, ENGINES)}; choose one of {', '.join(ENGINES)}."
        )
    return "ctranslate2" if name == "auto" and exported else name
