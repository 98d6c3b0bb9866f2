"""The native engine as an engine of the translator: int8 on CPUs, without torch, the same bits in any batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heedful.config import DecodingConfig
from heedful.decoding.engines import Job, MakeRule, Outcome
from heedful.errors import ConfigError
from heedful.model_dir.alignment_source import AlignmentSource, default_source, recorded_source
from heedful.model_dir.save_load import ModelArrays, load_arrays
from heedful.native import NativeEngine, available
from heedful.native.convert import PRECISIONS
from heedful.search_types import AttentionWeights, special_tokens
from heedful.text.tokenizer import Tokenizer


class Native:
    """A model that the native engine has mapped into memory."""

    name = "native"

    def __init__(
        self, engine: NativeEngine, tokenizer: Tokenizer, *, max_length: int, alignment: AlignmentSource | None = None
    ) -> None:
        """`alignment`: the attention that alignments are read from; None: what suits most models."""
        self.engine, self.max_length, self.special = engine, max_length, special_tokens(tokenizer)
        self.alignment = alignment or default_source(engine.shape.num_decoder_layers)
        self.num_tags = 1 if tokenizer.tags else 0

    @property
    def weights(self) -> str:
        """How the weights are kept."""
        return "int8" if self.engine.shape.int8 else "float32"

    def uses_shortlist(self, config: DecodingConfig) -> bool:
        """Whether this search chooses from the model's shortlist: if there is one, unless it is told not to."""
        return config.shortlist is not False and self.engine.has_shortlist

    def decode(
        self, jobs: Sequence[Job], config: DecodingConfig, *, align: bool, make_rule: MakeRule | None
    ) -> dict[Job, Outcome]:
        """Search for all jobs; what is found for one does not depend on the others."""
        if make_rule is not None:
            raise ConfigError("the engine native cannot do a rule over the tokens; use engine torch.")
        found = self.engine.translate_ids(
            [job.source for job in jobs],
            config,
            self.special,
            max_lengths=[job.max_length for job in jobs],
            prefix=[job.prefix for job in jobs],
            forbidden=[job.forbidden for job in jobs],
        )
        attention = self._align(jobs, [hypotheses[0].tokens for hypotheses in found]) if align else [None] * len(jobs)
        return {
            job: Outcome(hypotheses, weights) for job, hypotheses, weights in zip(jobs, found, attention, strict=True)
        }

    def _align(self, jobs: Sequence[Job], targets: Sequence[list[int]]) -> list[AttentionWeights]:
        """The weights between the words of each source and of its translation, special tokens left out."""
        inputs = [[self.special.bos_id, *target[:-1]] for target in targets]
        sources, chosen = [job.source for job in jobs], self.alignment
        found = self.engine.align_ids(sources, inputs, layer=chosen.layer, head=chosen.head)
        return [chosen.rows(weights, self.num_tags) for weights in found]


def load_native(
    path: str | Path, *, device: str = "auto", quantization: str | None = None
) -> tuple[Native, ModelArrays]:
    """The engine of a model directory, and what belongs to the model, without its weights."""
    check_device(device)
    if quantization not in (None, *PRECISIONS):
        known = " and ".join(PRECISIONS)
        raise ConfigError(f"quantization={quantization}: the engine native has {known}.")
    found = available()
    if not found:
        raise ConfigError(f"the engine native is not there: {found.reason}. Use engine torch.")
    arrays = load_arrays(path, with_weights=False)
    engine = NativeEngine.load(path, precision=quantization or "int8")
    model = arrays.config.model
    alignment = recorded_source(arrays.details, num_layers=model.num_decoder_layers, num_heads=model.num_heads)
    return Native(engine, arrays.tokenizer, max_length=model.max_length, alignment=alignment), arrays


def check_device(name: str) -> None:
    """Raise an error for any device but CPUs."""
    if name not in ("auto", "cpu"):
        raise ConfigError(f"device: the engine native runs on CPUs, not on {name!r}; use auto, cpu or another engine.")
