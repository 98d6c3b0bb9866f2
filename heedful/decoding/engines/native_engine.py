"""The native engine as an `Engine`: int8 on CPUs, without torch, bit-identical results in any batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from heedful.config import DecodingConfig
from heedful.decoding.glossary_phrases import word_flags
from heedful.errors import ConfigError
from heedful.model_dir.save_load import AlignmentSource, ModelArrays, default_source, load_arrays, recorded_source
from heedful.native import NativeEngine, available
from heedful.native.convert import PRECISIONS
from heedful.search_types import (
    AttentionWeights,
    ConstraintFactory,
    DecodeRequest,
    DecodeResult,
    PhrasePlacement,
    special_tokens,
)
from heedful.text.tokenizer import Tokenizer

PLACEMENT_WEIGHT = 8.0
"""See `PhrasePlacement.weight`; chosen with benchmarks/quality/glossary.py."""


class NativeDecodingEngine:
    """A model mapped into memory by the native engine."""

    name = "native"

    def __init__(
        self, engine: NativeEngine, tokenizer: Tokenizer, *, max_length: int, alignment: AlignmentSource | None = None
    ) -> None:
        """`alignment`: the attention that alignments are read from; None: the default for the number of layers."""
        self.engine, self.max_length, self.special = engine, max_length, special_tokens(tokenizer)
        self.alignment = alignment or default_source(engine.shape.num_decoder_layers)
        self.tokenizer, self.num_tags = tokenizer, 1 if tokenizer.tags else 0

    @cached_property
    def placement(self) -> PhrasePlacement:
        """How the place of required phrases is found."""
        head = self.alignment
        return PhrasePlacement(head.layer, head.head, head.offset, PLACEMENT_WEIGHT, word_flags(self.tokenizer))

    @property
    def weights(self) -> str:
        """The type of the weights."""
        return "int8" if self.engine.shape.int8 else "float32"

    def uses_shortlist(self, config: DecodingConfig) -> bool:
        """Whether this search uses the model's lexical shortlist: if there is one, unless disabled."""
        return config.shortlist is not False and self.engine.has_shortlist

    def decode(
        self,
        requests: Sequence[DecodeRequest],
        config: DecodingConfig,
        *,
        align: bool,
        constraint_factory: ConstraintFactory | None,
    ) -> dict[DecodeRequest, DecodeResult]:
        """Decode all requests; the result of each does not depend on the others."""
        if constraint_factory is not None:
            raise ConfigError("the engine native does not support a token constraint; use engine torch.")
        found = self.engine.translate_ids(
            [request.source for request in requests],
            config,
            self.special,
            max_lengths=[request.max_length for request in requests],
            prefix=[request.prefix for request in requests],
            forbidden=[request.forbidden for request in requests],
            phrases=[request.phrases for request in requests],
            placement=self.placement if any(request.phrases for request in requests) else None,
        )
        attention = (
            self._align(requests, [hypotheses[0].tokens for hypotheses in found]) if align else [None] * len(requests)
        )
        return {
            request: DecodeResult(hypotheses, weights)
            for request, hypotheses, weights in zip(requests, found, attention, strict=True)
        }

    def _align(self, requests: Sequence[DecodeRequest], targets: Sequence[list[int]]) -> list[AttentionWeights]:
        """The attention weights between each source and its translation, without special tokens."""
        inputs = [[self.special.bos_id, *target[:-1]] for target in targets]
        sources, chosen = [request.source for request in requests], self.alignment
        found = self.engine.align_ids(sources, inputs, layer=chosen.layer, head=chosen.head)
        return [chosen.rows(weights, self.num_tags) for weights in found]


def load_native(
    path: str | Path, *, device: str = "auto", quantization: str | None = None
) -> tuple[NativeDecodingEngine, ModelArrays]:
    """Load a model directory. Returns the engine and the metadata, without weights."""
    check_device(device)
    if quantization not in (None, *PRECISIONS):
        supported = " and ".join(PRECISIONS)
        raise ConfigError(f"quantization={quantization}: the engine native has {supported}.")
    availability = available()
    if not availability:
        raise ConfigError(f"the engine native is not available: {availability.reason}. Use engine torch.")
    arrays = load_arrays(path, with_weights=False)
    engine = NativeEngine.load(path, precision=quantization or "int8")
    model = arrays.config.model
    alignment = recorded_source(arrays.details, num_layers=model.num_decoder_layers, num_heads=model.num_heads)
    return NativeDecodingEngine(engine, arrays.tokenizer, max_length=model.max_length, alignment=alignment), arrays


def check_device(name: str) -> None:
    """Raise an error for any device but CPUs."""
    if name not in ("auto", "cpu"):
        raise ConfigError(f"device: the engine native runs on CPUs, not on {name!r}; use auto, cpu or another engine.")
