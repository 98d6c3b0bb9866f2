"""`trace` runs a sentence pair through a model and returns every intermediate result, under the names of the paper.

The native engine computes it in float32 over its stored weights; for models that it does not support, torch does.
Shapes use S source tokens, T target tokens, H heads, Dh head_dim, D d_model, F d_ff and V vocabulary:

    source_embedding, source_positions, encoder.input           (S, D); likewise target_…, decoder.input (T, D)
    {encoder,decoder}.layers.i.self_attention, decoder.layers.i.cross_attention:
        .query .key .value .head_outputs                        (H, tokens, Dh); rotated, with rotary positions
        .scores .scaled_scores .weights                         (H, queries, keys)
        .mask                                                   (queries, keys): 0, or -infinity where masked
        .output                                                 (tokens, D): after W_O
    {encoder,decoder}.layers.i.feed_forward:
        .pre_activation .gate .post_activation                  (tokens, F); gate only with SwiGLU
        .output                                                 (tokens, D)
    each sublayer: .residual_before .residual_after             (tokens, D)
    each sublayer's norm, `…_norm`, and encoder.norm, decoder.norm:
        .input .output                                          (tokens, D)
        .mean .deviation                                        (tokens); the mean is 0 with RMSNorm
    memory, decoder.output                                      (S, D) and (T, D)
    logits, probabilities                                       (T, V), of the next token
    decoder.layers.i.logits                                     (T, V): final norm and output layer applied to layer i

Parameters are recorded only if `wanted` has their exact names, because together they are as large as the model:

    each attention: .query_weight .key_weight .value_weight     (H, Dh, D), with .query_bias … (H, Dh)
        .output_weight                                          (D, H·Dh), with .output_bias (D)
    each feed-forward: .input_weight .gate_weight               (F, D), with .input_bias .gate_bias (F)
        .output_weight                                          (D, F), with .output_bias (D)
    each norm: .weight .bias                                    (D)

Row t of a target tensor belongs to the token that the decoder reads at step t; the first is the start token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from heedful.errors import ConfigError
from heedful.extras import require
from heedful.native import NativeEngine
from heedful.native.bindings import Intervention as NativeIntervention

if TYPE_CHECKING:
    require(("numpy",))
    import numpy as np

    from heedful.decoding.translator import Translator

Kind = Literal["remove", "uniform", "set_weight", "unscaled", "no_positions"]
KINDS: tuple[Kind, ...] = ("remove", "uniform", "set_weight", "unscaled", "no_positions")
STACKS = ("encoder", "decoder")
SUBLAYERS = ("self_attention", "cross_attention", "feed_forward")


@dataclass(frozen=True)
class Intervention:
    """A change to the pass. Layers and heads count from 0; None stands for all sublayers, layers or heads."""

    kind: Kind
    """remove: the output of a head or sublayer is zero. uniform: a head attends equally to all visible positions.
    set_weight: one attention weight gets `value`; the others of its row are scaled so that the sum stays 1.
    unscaled: scores are not divided by √d_k. no_positions: the stack gets no positional encoding."""
    stack: Literal["encoder", "decoder"]
    sublayer: Literal["self_attention", "cross_attention", "feed_forward"] | None = None
    layer: int | None = None
    head: int | None = None
    query: int = 0
    """Of set_weight: the token that attends."""
    key: int = 0
    """Of set_weight: the token that is attended to."""
    value: float = 0.0

    def __post_init__(self) -> None:
        for name, value, known in (("kind", self.kind, KINDS), ("stack", self.stack, STACKS)):
            if value not in known:
                raise ConfigError(f"an intervention's {name} is one of {', '.join(known)}, not {value!r}.")
        if self.sublayer is not None and self.sublayer not in SUBLAYERS:
            raise ConfigError(f"an intervention's sublayer is one of {', '.join(SUBLAYERS)}, not {self.sublayer!r}.")
        if self.kind == "set_weight" and (self.sublayer is None or self.layer is None or self.head is None):
            raise ConfigError("set_weight needs a sublayer, a layer and a head.")

    def native(self) -> NativeIntervention:
        """The structure of the C interface."""
        return NativeIntervention(
            kind=KINDS.index(self.kind) + 1,
            stack=STACKS.index(self.stack),
            sublayer=-1 if self.sublayer is None else SUBLAYERS.index(self.sublayer),
            layer=-1 if self.layer is None else self.layer,
            head=-1 if self.head is None else self.head,
            query=self.query,
            key=self.key,
            value=self.value,
        )


@dataclass(frozen=True)
class Trace(Mapping[str, "np.ndarray"]):
    """The tensors of one pass by name (`heedful.inspection.trace` lists them), and the tokens."""

    source_ids: list[int]
    target_ids: list[int]
    """What the decoder reads: the start token, then the translation without the end token."""
    source_tokens: list[str]
    target_tokens: list[str]
    text: str
    """The translation."""
    tensors: dict[str, np.ndarray] = field(repr=False)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def trace(
    model: str | Path | Translator | None,
    source: str,
    target: str | None = None,
    *,
    target_language: str | None = None,
    target_prefix: str | None = None,
    wanted: Sequence[str] = ("*",),
    interventions: Sequence[Intervention] = (),
) -> Trace:
    """Trace the translation of `source`.

    `model`: a directory, an installed model's name, a `Translator`, or None for the default model. `target`: the
    translation to explain; None: the most probable tokens, found by the traced pass itself, after `target_prefix`.
    `wanted`: patterns of tensor names, in which * stands for any text. Requires numpy.
    """
    translator = translator_of(model, source, target_language)
    tokenizer = translator.tokenizer
    source_ids = source_ids_of(translator, source, target_language)
    if target is None:
        given = tokenizer.encode_prefix(target_prefix) if target_prefix else []
        max_length = translator.max_target_length(source_ids, translator.config)
    else:
        given, max_length = tokenizer.encode_target(target)[:-1], 0
    return trace_ids(
        translator,
        source_ids,
        [translator.special.bos_id, *given],
        max_length=max_length,
        wanted=wanted,
        interventions=interventions,
    )


def trace_ids(
    translator: Translator,
    source_ids: list[int],
    target_ids: list[int],
    *,
    max_length: int = 0,
    wanted: Sequence[str] = ("*",),
    interventions: Sequence[Intervention] = (),
) -> Trace:
    """The same of token ids: `target_ids` begin with the start token and are continued up to `max_length` tokens."""
    import numpy as np

    tokenizer, special = translator.tokenizer, translator.special
    engine = native_engine(translator)
    if engine is not None:
        found, numbers = engine.trace_ids(
            source_ids,
            target_ids,
            special,
            max_length=max_length,
            wanted=wanted,
            interventions=[intervention.native() for intervention in interventions],
        )
        tensors = {name: np.frombuffer(one.data, np.float32).reshape(one.shape) for name, one in numbers.items()}
    else:
        if interventions:
            raise ConfigError("interventions need the native engine, which does not support this model.")
        from heedful.inspection.torch_trace import torch_trace

        sequence_model = getattr(translator.engine, "model", None)
        if sequence_model is None:
            raise ConfigError("this engine keeps no intermediate results; load the model with engine native or torch.")
        found, tensors = torch_trace(
            sequence_model, source_ids, target_ids, special, max_length=max_length, wanted=wanted
        )
    return Trace(
        source_ids=source_ids,
        target_ids=[special.bos_id, *found],
        source_tokens=tokenizer.source_pieces(source_ids),
        target_tokens=tokenizer.pieces([special.bos_id, *found]),
        text=tokenizer.decode(found),
        tensors=tensors,
    )


def translator_of(model: str | Path | Translator | None, source: str, target_language: str | None) -> Translator:
    """The translator of the one model that translates this text."""
    from heedful.decoding.translator import Translator

    translator = model if isinstance(model, Translator) else Translator.load(model)
    choice = translator.directions.choose(source, target=translator.directions.target_code(target_language))
    return translator.translator_for(choice.source, choice.target)


def source_ids_of(translator: Translator, source: str, target_language: str | None) -> list[int]:
    """The source ids of a text, with the tag of the target language if the model has tags."""
    target = translator.directions.target_code(target_language)
    choice = translator.directions.choose(source, source=None, target=target)
    return translator.tokenizer.encode_source(source, choice.target)


def native_engine(translator: Translator) -> NativeEngine | None:
    """The native engine of a translator that uses it."""
    engine = getattr(translator.engine, "native", translator.engine)
    engine = getattr(engine, "engine", None)
    return engine if isinstance(engine, NativeEngine) else None
