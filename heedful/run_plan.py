"""What a run will be like, told before it begins: as much of it as is known while the corpora are still prepared."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from heedful.config import Config, choose_preset
from heedful.config_loading import settle
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.data.prepare import Progress, TokenizerReady
    from heedful.text.preflight import Preflight
    from heedful.text.tokenizer import Tokenizer
    from heedful.training.logging import StartupTimer
    from heedful.training.precompile import Background


PAPER_TOKENS_PER_STEP = 25_600  # about 25,000 (section 5.1), in whole rows


@dataclass(frozen=True)
class Corpora:
    """All that the corpora decide about the model."""

    num_pairs: int
    source_vocab_size: int
    target_vocab_size: int
    joint: bool
    row_width: int

    @classmethod
    def of(cls, num_pairs: int, tokenizer: Tokenizer, row_width: int) -> Corpora:
        """The same from the tokenizer itself."""
        return cls(num_pairs, tokenizer.source_vocab_size, tokenizer.target_vocab_size, tokenizer.joint, row_width)


def fitted(plain: Mapping[str, Any], corpora: Corpora, *, on_gpu: bool) -> Config:
    """The request with its preset chosen and the model's sizes set; those of a finished model stay as they are."""
    config = settle(plain, choose_preset(corpora.num_pairs, on_gpu=on_gpu))
    longest = max(config.model.max_length, corpora.row_width)
    if config.training.init_from is not None:
        if config.model.positions == "learned" and longest > config.model.max_length:
            raise ConfigError(
                f"data.row_width is {corpora.row_width}, but the model of training.init_from has learned positions up "
                f"to {config.model.max_length} (model.max_length); set data.row_width to that or less."
            )
        return replace(config, model=replace(config.model, max_length=longest))
    sizes: dict[str, Any] = {
        "source_vocab_size": corpora.source_vocab_size,
        "target_vocab_size": corpora.target_vocab_size,
        "max_length": longest,
    }
    if not corpora.joint and "tying" not in (plain.get("model") or {}):
        sizes["tying"] = "target"
    return replace(config, model=replace(config.model, **sizes))


def rows_per_step(config: Config, width: int) -> int:
    """Rows of one step on all ranks together."""
    return max(1, (config.training.tokens_per_step or PAPER_TOKENS_PER_STEP) // width)


def describe_run(config: Config, num_pairs: int, num_ranks: int = 1, beginning: str | None = None) -> str:
    """One line about what is going to happen; `beginning` tells of the model that training goes on from."""
    training = config.training
    limits = {name: getattr(training, name) for name in ("steps", "epochs", "tokens", "minutes")}
    budget = " or ".join(f"{value:,.10g} {name}" for name, value in limits.items() if value)
    ranks = f" with {num_ranks} ranks" if num_ranks > 1 else ""
    what = f"{beginning}, training" if beginning else f"Training a {config.preset} model"
    return f"{what} on {num_pairs:,} pairs{ranks} for {budget}. Ctrl-C saves; --resume goes on."


@dataclass(frozen=True)
class Beside:
    """What goes on beside the preparing of corpora: time is taken, and the step is compiled as soon as it is known."""

    plain: Mapping[str, Any]
    asked: Config
    startup_timer: StartupTimer
    background: Background

    def begin(self) -> None:
        """The preparing begins."""
        from heedful.text.corpus import corpus_files

        files = [path for corpus in self.asked.data.train for path in corpus_files(corpus)]
        self.background.begin(sum(os.path.getsize(path) for path in files))
        self.startup_timer.enter("scanning the corpora")

    def timed(self, tell: Progress) -> Progress:
        """`tell`, with the time of each stage taken."""

        def tell_and_take_time(stage: str, done: int, total: int | None) -> None:
            self.startup_timer.enter(stage)
            tell(stage, done, total)

        return tell_and_take_time

    def foresee(self, found: Preflight) -> TokenizerReady:
        """Have the step compiled for what was found and what is asked for; gives a function to tell the rest to.

        If the vocabulary or the rows come out otherwise, the right step is compiled from then on.
        """
        from heedful.data.prepare import WIDTHS

        def settled(tokenizer: Tokenizer, width: int) -> None:
            self._compile(Corpora.of(found.num_pairs, tokenizer, width))

        asked, width = self.asked.tokenizer, self.asked.data.row_width or WIDTHS[0]
        if asked.path is None and asked.vocab_size is not None and asked.target_kind != "word":
            self._compile(Corpora(found.num_pairs, asked.vocab_size, asked.vocab_size, asked.joint, width))
        return settled

    def _compile(self, corpora: Corpora) -> None:
        config = fitted(self.plain, corpora, on_gpu=self.background.device.type != "cpu")
        self.background.compile(config, rows_per_step(config, corpora.row_width), corpora.row_width)
