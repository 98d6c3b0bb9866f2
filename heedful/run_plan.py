"""The configuration of a run when its corpora are known: preset, vocabulary sizes, budget."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from heedful.config import Config, DataConfig, choose_preset
from heedful.config_loading import build_config
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.data.prepare import Prepared, Progress, TokenizerReady
    from heedful.text.preflight import Preflight
    from heedful.text.tokenizer import Tokenizer
    from heedful.training.logging import StartupTimer
    from heedful.training.precompile import Background

PAPER_TOKENS_PER_STEP = 25_600
"""About 25,000 (section 5.1), in whole rows."""


@dataclass(frozen=True)
class CorpusSizes:
    """What the model's configuration depends on."""

    num_pairs: int
    source_vocab_size: int
    target_vocab_size: int
    joint: bool
    row_width: int

    @classmethod
    def of(cls, num_pairs: int, tokenizer: Tokenizer, row_width: int) -> CorpusSizes:
        """The sizes with the vocabularies of a tokenizer."""
        return cls(num_pairs, tokenizer.source_vocab_size, tokenizer.target_vocab_size, tokenizer.joint, row_width)


def resolve_config(request: Mapping[str, Any], config: Config, prepared: Prepared) -> Config:
    """The configuration with everything that depends on the corpora and the device.

    `config` is that of the request alone.
    """
    from heedful.build_model import resolve_device
    from heedful.data.prepare import resolve_shuffle

    on_gpu = resolve_device(config.training.device).type != "cpu"
    num_pairs, tokenizer = len(prepared.train), prepared.tokenizer
    config = fit_to_corpora(request, CorpusSizes.of(num_pairs, tokenizer, prepared.row_width), on_gpu=on_gpu)
    training = config.training
    if not (training.steps or training.epochs or training.tokens or training.minutes):
        training = replace(
            training,
            epochs=float(min(100, max(10, round(3_000_000 / num_pairs)))),
            minutes=None if on_gpu else 60.0,
            early_stopping=training.early_stopping or 8,
        )
    return replace(
        config,
        training=training,
        data=replace(
            config.data,
            row_width=prepared.row_width,
            shuffle=resolve_shuffle(config.data.shuffle, num_pairs),
            **infer_languages(config.data, prepared),
        ),
        tokenizer=replace(config.tokenizer, joint=tokenizer.joint, vocab_size=tokenizer.source_vocab_size),
    )


def fit_to_corpora(request: Mapping[str, Any], sizes: CorpusSizes, *, on_gpu: bool) -> Config:
    """Choose the preset and set the model's sizes. With `training.init_from`, those of that model are kept."""
    config = build_config(request, choose_preset(sizes.num_pairs, on_gpu=on_gpu))
    max_length = max(config.model.max_length, sizes.row_width)
    if config.training.init_from is not None:
        if config.model.positions == "learned" and max_length > config.model.max_length:
            raise ConfigError(
                f"data.row_width is {sizes.row_width}, but the model of training.init_from has learned positions up "
                f"to {config.model.max_length} (model.max_length); set data.row_width to that or less."
            )
        return replace(config, model=replace(config.model, max_length=max_length))
    model = replace(
        config.model,
        source_vocab_size=sizes.source_vocab_size,
        target_vocab_size=sizes.target_vocab_size,
        max_length=max_length,
        tying="target" if not sizes.joint and "tying" not in (request.get("model") or {}) else config.model.tying,
    )
    return replace(config, model=model)


def infer_languages(data: DataConfig, prepared: Prepared) -> dict[str, Any]:
    """The languages of prepared data, if the configuration names none and all training corpora have the same."""
    corpora = [corpus for corpus in prepared.report["corpora"] if corpus["role"] == "train"]
    pairs = {(corpus["source_language"], corpus["target_language"]) for corpus in corpora}
    if data.train or data.source_language or data.target_language or len(pairs) != 1:
        return {}
    source, target = pairs.pop()
    return {key: code for key, code in (("source_language", source), ("target_language", target)) if code}


def rows_per_step(config: Config, width: int) -> int:
    """Rows of one step on all ranks together."""
    return max(1, (config.training.tokens_per_step or PAPER_TOKENS_PER_STEP) // width)


def describe_run(config: Config, num_pairs: int, num_ranks: int = 1, initial_model: str | None = None) -> str:
    """One line about the run; `initial_model` describes the model that it continues from."""
    training = config.training
    limits = {name: getattr(training, name) for name in ("steps", "epochs", "tokens", "minutes")}
    budget = " or ".join(f"{value:,.10g} {name}" for name, value in limits.items() if value)
    ranks = f" with {num_ranks} ranks" if num_ranks > 1 else ""
    kind, unit = (f"{config.preset} model", "pairs")
    if config.model.is_language_model:
        kind, unit = (f"{config.preset} {config.model.architecture} language model", "lines")
    what = f"Continuing from {initial_model}, training" if initial_model else f"Training a {kind}"
    return f"{what} on {num_pairs:,} {unit}{ranks} for {budget}. Ctrl-C saves; --resume continues."


@dataclass(frozen=True)
class PreparationObserver:
    """Observes the preparation of corpora: measures its stages and compiles the step once its sizes are known."""

    request: Mapping[str, Any]
    config: Config
    startup_timer: StartupTimer
    background: Background

    def started(self) -> None:
        """The preparation starts."""
        from heedful.text.corpus import corpus_files

        files = [path for corpus in self.config.data.train for path in corpus_files(corpus)]
        self.background.begin(sum(os.path.getsize(path) for path in files))
        self.startup_timer.enter("scanning the corpora")

    def timed(self, progress: Progress) -> Progress:
        """`progress`, also measuring the time of each stage."""

        def timed_progress(stage: str, num_done: int, total: int | None) -> None:
            self.startup_timer.enter(stage)
            progress(stage, num_done, total)

        return timed_progress

    def scanned(self, preflight: Preflight) -> TokenizerReady:
        """The corpora are scanned: compile for the requested sizes, if they are set.

        Returns a function to call with the tokenizer and the row width; if they differ, the step is compiled again.
        """
        from heedful.data.prepare import WIDTHS

        def tokenizer_ready(tokenizer: Tokenizer, width: int) -> None:
            self._compile(CorpusSizes.of(preflight.num_pairs, tokenizer, width))

        tokenizer, width = self.config.tokenizer, self.config.data.row_width or WIDTHS[0]
        size = tokenizer.vocab_size
        if tokenizer.path is None and size is not None and tokenizer.target_kind != "word":
            self._compile(CorpusSizes(preflight.num_pairs, size, size, tokenizer.joint, width))
        return tokenizer_ready

    def _compile(self, sizes: CorpusSizes) -> None:
        config = fit_to_corpora(self.request, sizes, on_gpu=self.background.device.type != "cpu")
        self.background.compile(config, rows_per_step(config, sizes.row_width), sizes.row_width)
