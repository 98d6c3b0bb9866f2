"""The CTranslate2 engine, with int8 kernels for CPUs and GPUs.

Greedy search gives the same results as ours. Beam search extends and keeps hypotheses in the same way, with three
differences:

* It ranks by log_prob / length^α. We take all finished translations and rank them by our own length penalty.
* It stops after beam_size · patience finished translations; our search stops when no live hypothesis can win, which may
  be later. With `choose_patience` this hardly ever changes the best one; without a penalty both stop alike.
* The probability of forbidden tokens is redistributed to the others, so its log-probabilities are slightly higher.

It may generate invalid UTF-8 byte sequences; such sentences are searched again without byte tokens.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from heedful.config import DecodingConfig
from heedful.decoding.utf8_automaton import is_valid_utf8
from heedful.errors import ConfigError, DecodingError
from heedful.model_dir.ctranslate2_format import VOCABULARY_MAP, ctranslate2_files
from heedful.model_dir.registry import EXPORT_RECORD
from heedful.model_dir.save_load import ModelArrays, load_arrays, read_exported
from heedful.model_dir.shortlist import read_shortlist
from heedful.search_types import (
    ConstraintFactory,
    DecodeRequest,
    DecodeResult,
    Hypothesis,
    length_penalty,
    special_tokens,
)
from heedful.text.tokenizer import Tokenizer

PATIENCE, MEAN_PENALTY_PATIENCE = 4, 32


class CTranslate2Engine:
    """A model loaded by CTranslate2, which takes and returns token strings."""

    name = "ctranslate2"

    def __init__(self, translator: Any, tokenizer: Tokenizer, *, max_length: int, has_map: bool = False) -> None:
        """`translator`: a `ctranslate2.Translator` whose vocabularies are those of `tokenizer`.

        `has_map`: whether it has a vocabulary map, CTranslate2's term for a lexical shortlist.
        """
        self.has_map = has_map
        self.translator, self.max_length = translator, max_length
        self.weights = str(translator.compute_type)
        self.special = special_tokens(tokenizer)
        self.source_pieces = tokenizer.source_pieces(range(tokenizer.source_vocab_size))
        self.pieces = tokenizer.pieces(range(tokenizer.target_vocab_size))
        self.ids = {piece: number for number, piece in enumerate(self.pieces)}

    def uses_shortlist(self, config: DecodingConfig) -> bool:
        """Whether this search uses the vocabulary map: only on request, because it is applied to a whole batch."""
        return bool(config.shortlist)

    def decode(
        self,
        requests: Sequence[DecodeRequest],
        config: DecodingConfig,
        *,
        align: bool,
        constraint_factory: ConstraintFactory | None,
    ) -> dict[DecodeRequest, DecodeResult]:
        """Decode all requests, grouped by maximum length and forbidden tokens, which apply to a whole call."""
        check_supported(requests, config, align=align, has_constraint=constraint_factory is not None)
        if config.shortlist and not self.has_map:
            raise ConfigError(
                "decoding.shortlist: this model has no shortlist; make one with `heedful shortlist`, then export again."
            )
        results = self._decode(requests, config)
        malformed = [
            request for request, result in results.items() if not all(map(self._is_valid_utf8, result.hypotheses))
        ]
        if malformed:
            without_bytes = {
                request._replace(forbidden=(*request.forbidden, *self.special.byte_ids)): request
                for request in malformed
            }
            again = self._decode(list(without_bytes), config)
            results.update({without_bytes[request]: result for request, result in again.items()})
        return results

    def _decode(self, requests: Sequence[DecodeRequest], config: DecodingConfig) -> dict[DecodeRequest, DecodeResult]:
        groups: dict[tuple[int, tuple[int, ...]], list[DecodeRequest]] = {}
        for request in requests:
            groups.setdefault((request.max_length, request.forbidden), []).append(request)
        results: dict[DecodeRequest, DecodeResult] = {}
        for (limit, forbidden), members in groups.items():
            outputs = self._search(members, limit, forbidden, config)
            for request, output in zip(members, outputs, strict=True):
                found = [self._read(*pair, config) for pair in zip(output.hypotheses, output.scores, strict=True)]
                results[request] = DecodeResult(self._best(request, found, config), None)
        return results

    def _is_valid_utf8(self, hypothesis: Hypothesis) -> bool:
        return is_valid_utf8(hypothesis.tokens, self.special.byte_ids)

    def _search(
        self, requests: Sequence[DecodeRequest], limit: int, forbidden: Sequence[int], config: DecodingConfig
    ) -> list[Any]:
        """CTranslate2's results. Without a penalty, the first finished hypothesis wins, unless it was cut off."""
        sources, options = [self._source(request) for request in requests], self._options(config)
        options["suppress_sequences"] += [[self.pieces[number]] for number in forbidden]
        results: list[Any] = self.translator.translate_batch(sources, max_decoding_length=limit, **options)
        if options["patience"] > 1 or options["beam_size"] == 1:
            return results
        end = self.pieces[self.special.eos_id]
        cut = [index for index, result in enumerate(results) if result.hypotheses[0][-1:] != [end]]
        if cut:
            longer = {**options, "patience": PATIENCE, "num_hypotheses": options["beam_size"] * PATIENCE}
            again = self.translator.translate_batch([sources[i] for i in cut], max_decoding_length=limit, **longer)
            for index, result in zip(cut, again, strict=True):
                results[index] = result
        return results

    def _source(self, request: DecodeRequest) -> list[str]:
        """The pieces of a source; CTranslate2 adds the end token."""
        return [self.source_pieces[number] for number in request.source[:-1]]

    def _options(self, config: DecodingConfig) -> dict[str, Any]:
        """The arguments of `translate_batch`."""
        beams = config.beam_size if config.method == "beam" else 1
        exponent = ranking_exponent(config)
        patience = 1 if beams == 1 or (exponent == 0 and config.num_best == 1) else choose_patience(config)
        special = self.special
        return {
            "beam_size": beams,
            "patience": patience,
            "num_hypotheses": beams * patience if patience > 1 else config.num_best,
            "length_penalty": exponent,
            "min_decoding_length": 0,
            "max_input_length": 0,
            "suppress_sequences": [[self.pieces[n]] for n in (special.pad_id, special.bos_id, *special.forbidden)],
            "use_vmap": self.uses_shortlist(config),
            "return_scores": True,
            "return_end_token": True,
            "max_batch_size": max(1, config.tokens_per_batch // beams),
            "batch_type": "tokens",
        }

    def _read(self, pieces: list[str], score: float, config: DecodingConfig) -> Hypothesis:
        """A hypothesis in ids. If it was cut off at the limit, the log-probability of its end token is missing."""
        tokens = [self.ids[piece] for piece in pieces]
        log_prob = score * max(len(tokens), 1) ** ranking_exponent(config)
        if log_prob != log_prob:
            raise DecodingError("the model's log-probabilities are not numbers (NaN): its weights are damaged.")
        finished = bool(tokens) and tokens[-1] == self.special.eos_id
        tokens = tokens if finished else [*tokens, self.special.eos_id]
        return Hypothesis(
            tokens=tokens,
            token_log_probs=[],
            log_prob=log_prob,
            score=log_prob / length_penalty(float(len(tokens)), config),
            finished=finished,
        )

    def _best(self, request: DecodeRequest, found: list[Hypothesis], config: DecodingConfig) -> list[Hypothesis]:
        """The best `num_best` by our length penalty; scores the end token of cut-off hypotheses if it matters."""
        ranked = sorted(found, key=lambda hypothesis: -hypothesis.score)
        if all(hypothesis.finished for hypothesis in ranked[: config.num_best]):
            return ranked[: config.num_best]
        cut = [hypothesis for hypothesis in found if not hypothesis.finished]
        texts = [[self.pieces[number] for number in hypothesis.tokens[:-1]] for hypothesis in cut]
        scored = self.translator.score_batch([self._source(request)] * len(cut), texts, max_input_length=0)
        rescored = []
        for hypothesis, forced in zip(cut, scored, strict=True):
            log_prob = hypothesis.log_prob + forced.log_probs[-1]
            score = log_prob / length_penalty(float(len(hypothesis.tokens)), config)
            rescored.append(replace(hypothesis, log_prob=log_prob, score=score))
        whole = [hypothesis for hypothesis in found if hypothesis.finished]
        return sorted([*whole, *rescored], key=lambda hypothesis: -hypothesis.score)[: config.num_best]


def ranking_exponent(config: DecodingConfig) -> float:
    """CTranslate2's `length_penalty`: the α of log_prob / length^α that is closest to our length penalty."""
    return 0.0 if config.length_penalty == "none" or config.method == "greedy" else config.length_penalty_alpha


def choose_patience(config: DecodingConfig) -> int:
    """CTranslate2's `patience`. With an average penalty, long hypotheses win late, so more must be finished."""
    by_mean = config.length_penalty == "average" and config.length_penalty_alpha > 0.9
    return MEAN_PENALTY_PATIENCE if by_mean else PATIENCE


def check_supported(
    requests: Sequence[DecodeRequest], config: DecodingConfig, *, align: bool, has_constraint: bool
) -> None:
    """Raise an error that names the settings which CTranslate2 does not support, or supports differently.

    It has length limits and n-gram blocking, but redistributes forbidden probability, so its results would differ.
    """
    unsupported = {
        f"decoding.method={config.method}": config.method == "sampling",
        f"decoding.min_length={config.min_length}": config.min_length > 0,
        f"decoding.no_repeat_ngram_size={config.no_repeat_ngram_size}": config.no_repeat_ngram_size > 0,
        "a target prefix": any(request.prefix for request in requests),
        "alignment": align,
        "a token constraint": has_constraint,
    }
    if any(request.phrases for request in requests):
        raise ConfigError("the engine ctranslate2 does not support glossaries; use engine native.")
    found = [name for name, asked in unsupported.items() if asked]
    if found:
        raise ConfigError(f"the engine ctranslate2 does not support {' and '.join(found)}; use engine torch.")


def load_ctranslate2(
    path: str | Path, *, device: str = "auto", quantization: str | None = None
) -> tuple[CTranslate2Engine, ModelArrays]:
    """Load a model directory or an exported model. Returns the engine and the metadata, without weights."""
    files: Mapping[str, bytes] | None = None
    module = import_ctranslate2()
    if (Path(path) / EXPORT_RECORD).is_file():
        arrays = read_exported(path)
    else:
        arrays = load_arrays(path)
        quantization = quantization or "float32"
        files = ctranslate2_files(arrays, quantization, read_shortlist(path))
    ct2_device, index = ctranslate2_device(module, device)
    try:
        translator = module.Translator(
            str(path),
            device=ct2_device,
            device_index=index,
            compute_type=quantization or "default",
            intra_threads=0 if "OMP_NUM_THREADS" in os.environ else os.cpu_count() or 1,
            files=files,
        )
    except (ValueError, RuntimeError) as error:
        raise ConfigError(f"{path}: CTranslate2 cannot load this model on {ct2_device}: {error}") from None
    loaded = replace(arrays, weights={})
    has_map = VOCABULARY_MAP in files if files else (Path(path) / VOCABULARY_MAP).is_file()
    length = arrays.config.model.max_length
    return CTranslate2Engine(translator, arrays.tokenizer, max_length=length, has_map=has_map), loaded


def import_ctranslate2() -> Any:
    """Import the package, or raise an error with the install command."""
    try:
        import ctranslate2
    except ImportError:
        raise ConfigError(
            "the engine ctranslate2 needs the package of that name; install it: pip install 'heedful[ctranslate2]'"
        ) from None
    return ctranslate2


def ctranslate2_device(module: Any, name: str) -> tuple[str, int]:
    """CTranslate2's device type and index."""
    has_gpu = module.get_cuda_device_count() > 0
    kind, _, number = ("cuda" if has_gpu else "cpu", "", "") if name == "auto" else name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise ConfigError(f"device: the engine ctranslate2 has cpu, cuda and cuda:1, not {name!r}.")
    if kind == "cuda" and not has_gpu:
        raise ConfigError(f"device: {name!r} is not available to CTranslate2 on this machine; use auto or cpu.")
    return kind, int(number or 0)
