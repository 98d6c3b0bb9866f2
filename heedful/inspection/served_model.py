"""A model that the server of `heedful see` runs, because the engine in the page does not support it.

The calls are those of the page's interface to a model: `trace`, `translate`, `pieces` and `encode`. A request is a JSON
object; `trace` answers in the format of `heedful.inspection.trace_format`, the others with JSON.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from heedful.config_loading import from_mapping
from heedful.decoding.translator import Translator
from heedful.errors import DecodingError
from heedful.inspection.trace import Intervention, Trace, trace_ids
from heedful.inspection.trace_format import trace_bytes
from heedful.search_types import DecodeRequest
from heedful.text.tokenizer import Tokenizer

Side = Literal["source", "target"]
JSON, BINARY = "application/json", "application/octet-stream"
NUM_LAYER_CANDIDATES, MAX_CANDIDATES, MAX_BEAM = 3, 100, 64
LAYER_LOGITS = "decoder.layers.*.logits"


@dataclass(frozen=True)
class TraceRequest:
    """As `TraceOptions` in web/engine/src/model.ts."""

    text: str = ""
    target_language: str | None = None
    source: tuple[int, ...] | None = None
    """The source ids to read instead of the text."""
    target: tuple[int, ...] | None = None
    """The target ids to explain, without start and end token."""
    prefix: tuple[int, ...] = ()
    """Without `target`: what the translation begins with."""
    wanted: tuple[str, ...] = ("*",)
    interventions: tuple[Intervention, ...] = ()
    candidates: int = 0
    """The number of candidates for each next token; 0: the answer has none."""


@dataclass(frozen=True)
class TranslateRequest:
    """As `TranslateOptions` in web/engine/src/model.ts."""

    text: str = ""
    target_language: str | None = None
    beam_size: int | None = None
    """1 is greedy search; None: the model's setting."""
    num_best: int = 1
    prefix: tuple[int, ...] = ()


@dataclass(frozen=True)
class PiecesRequest:
    """Ids of one side."""

    ids: tuple[int, ...] = ()
    side: Side = "target"


@dataclass(frozen=True)
class EncodeRequest:
    """A text of one side; a source gets the tag of the target language and the end token."""

    text: str = ""
    side: Side = "source"
    target_language: str | None = None


class ServedModel:
    """A model directory, loaded at the first call; one call runs at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()

    @cached_property
    def translator(self) -> Translator:
        """The loaded model."""
        return Translator.load(self.directory, device="cpu")

    @cached_property
    def calls(self) -> dict[str, tuple[type[Any], Callable[[Any], Any]]]:
        """For each call the type of its request, and what answers it."""
        return {
            "trace": (TraceRequest, self.trace),
            "translate": (TranslateRequest, self.translate),
            "pieces": (PiecesRequest, self.pieces),
            "encode": (EncodeRequest, self.encode),
        }

    def call(self, name: str, request: Mapping[str, Any]) -> tuple[str, bytes]:
        """Answer a request; returns the content type and the body."""
        kind, work = self.calls[name]
        try:
            parsed = from_mapping(kind, request, name)
        except TypeError:  # no other field is required
            raise DecodingError(f"{name}.interventions: each needs a kind and a stack.") from None
        with self._lock:
            answer = work(parsed)
        return (BINARY, answer) if isinstance(answer, bytes) else (JSON, json.dumps(answer).encode())

    def trace(self, request: TraceRequest) -> bytes:
        """Trace the translation of a text."""
        translator = self.translator
        source = self._source_ids(request.text, request.target_language, request.source)
        given = request.prefix if request.target is None else request.target
        check_ids(given, translator.tokenizer.target_vocab_size, translator.max_length - 1, "target")
        check_number("candidates", request.candidates, MAX_CANDIDATES)
        max_length = translator.max_target_length(source, translator.config) if request.target is None else 0
        needed = ("logits", LAYER_LOGITS) if request.candidates else ()
        found = trace_ids(
            translator,
            source,
            [translator.special.bos_id, *given],
            max_length=max_length,
            wanted=(*request.wanted, *needed),
            interventions=request.interventions,
        )
        more = self._candidates(found, request.candidates) if request.candidates else {}
        wanted = {name: tensor for name, tensor in found.items() if matches(name, request.wanted)}
        return trace_bytes(replace(found, tensors=wanted), more)

    def _candidates(self, found: Trace, count: int) -> dict[str, Any]:
        """The most probable tokens after each target token, by the model and by each decoder layer alone."""
        tokenizer, eos_id = self.translator.tokenizer, self.translator.special.eos_id
        steps = zip(found["logits"], [*found.target_ids[1:], eos_id], strict=True)
        layers = [name for name in found if matches(name, (LAYER_LOGITS,))]
        return {
            "candidates": [step_candidates(logits, chosen, count, tokenizer) for logits, chosen in steps],
            "layer_candidates": [
                [step_candidates(logits, 0, NUM_LAYER_CANDIDATES, tokenizer)["best"] for logits in found[name]]
                for name in layers
            ],
        }

    def translate(self, request: TranslateRequest) -> dict[str, Any]:
        """Translate a text that the model reads at once; the best translations, best first."""
        translator = self.translator
        source = self._source_ids(request.text, request.target_language, None)
        limit = translator.max_target_length(source, translator.config)
        check_ids(request.prefix, translator.tokenizer.target_vocab_size, limit, "target")
        default = translator.config.beam_size if translator.config.method == "beam" else 1
        beam_size = default if request.beam_size is None else request.beam_size
        check_number("beam_size", beam_size, MAX_BEAM, least=1)
        check_number("num_best", request.num_best, MAX_BEAM, least=1)
        beam_size = max(beam_size, request.num_best)
        method: Literal["greedy", "beam"] = "greedy" if beam_size == 1 else "beam"
        config = replace(translator.config, method=method, beam_size=beam_size, num_best=request.num_best)
        asked = DecodeRequest(tuple(source), request.prefix, request.text, limit)
        found = translator.engine.decode([asked], config, align=False, constraint_factory=None)[asked].hypotheses
        return {
            "translations": [
                {
                    "text": translator.tokenizer.decode(one.tokens[:-1] if one.finished else one.tokens),
                    "tokens": one.tokens,
                    "log_probs": one.token_log_probs,
                    "log_prob": one.log_prob,
                    "score": one.score,
                }
                for one in found
            ]
        }

    def pieces(self, request: PiecesRequest) -> dict[str, Any]:
        """Ids as readable pieces."""
        tokenizer = self.translator.tokenizer
        size = tokenizer.source_vocab_size if request.side == "source" else tokenizer.target_vocab_size
        check_ids(request.ids, size, self.translator.max_length, request.side)
        pieces = tokenizer.source_pieces if request.side == "source" else tokenizer.pieces
        return {"pieces": pieces(request.ids)}

    def encode(self, request: EncodeRequest) -> dict[str, Any]:
        """The ids of a text."""
        if request.side == "source":
            return {"ids": self._source_ids(request.text, request.target_language, None)}
        return {"ids": self.translator.tokenizer.encode_prefix(request.text)}

    def _source_ids(self, text: str, language: str | None, given: Sequence[int] | None) -> list[int]:
        """The ids of a text, or those given; not more than the model reads."""
        translator = self.translator
        if given is not None:
            check_ids(given, translator.tokenizer.source_vocab_size, translator.max_length, "source")
            if not given:
                raise DecodingError("there are no source ids.")
            return list(given)
        code = translator.directions.target_code(language)
        try:
            choice = translator.directions.choose(text, source=None, target=code)
        except DecodingError as error:
            raise DecodingError(f"this text {error}") from None
        ids = translator.tokenizer.encode_source(text, choice.target)
        if len(ids) > translator.max_length:
            raise DecodingError(
                f"this text has {len(ids):,} tokens, and the model takes at most {translator.max_length:,}; shorten it."
            )
        return ids


def step_candidates(logits: np.ndarray, chosen: int, count: int, tokenizer: Tokenizer) -> dict[str, Any]:
    """The most probable next tokens, best first, and the chosen one; as web/engine/src/candidates.ts does it."""
    exact = logits.astype(np.float64)
    log_probs = exact - (exact.max() + np.log(np.exp(exact - exact.max()).sum()))
    best = np.argsort(-exact, kind="stable")[:count].tolist()  # of equal logits the lower id is first
    rank = 1 + int((exact > exact[chosen]).sum()) + int((exact[:chosen] == exact[chosen]).sum())
    [*pieces, piece] = tokenizer.pieces([*best, chosen])

    def candidate(token: int, piece: str) -> dict[str, Any]:
        log_prob = float(log_probs[token])
        return {"token": token, "piece": piece, "probability": float(np.exp(log_prob)), "log_prob": log_prob}

    return {
        "best": [candidate(token, text) for token, text in zip(best, pieces, strict=True)],
        "next": {**candidate(chosen, piece), "rank": rank},
    }


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a tensor is wanted."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def check_ids(ids: Sequence[int], vocab_size: int, most: int, side: Side) -> None:
    """Raise `DecodingError` for ids outside of the vocabulary, or too many."""
    if len(ids) > most:
        raise DecodingError(f"there are {len(ids):,} {side} ids, and the model takes at most {most:,}.")
    for token in ids:
        if not 0 <= token < vocab_size:
            raise DecodingError(f"{side} id {token} is not in the vocabulary of {vocab_size:,} tokens.")


def check_number(name: str, value: int, most: int, *, least: int = 0) -> None:
    """Raise `DecodingError` for a number out of its range."""
    if not least <= value <= most:
        raise DecodingError(f"{name} is a number from {least} to {most}, not {value}.")
