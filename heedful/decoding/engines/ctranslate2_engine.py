"""The engine CTranslate2: many servers run it, and it has int8 kernels for CPUs and GPUs.

Its greedy search is ours. Its beam search extends, ends and keeps hypotheses as ours does, and differs in three things:

* It ranks by log_prob / length^α. We take every translation that it ended and rank them ourselves, by our penalty.
* It goes on until beam_size · patience translations have ended, where ours stops when nothing alive can win any more.
  So ours may go on longer. With `patience_of` that hardly ever changes the best; without a penalty both rules agree.
* A forbidden token's probability is spread over the rest, where ours is left out: its log-probabilities are a trifle
  higher.

It writes bytes as they come. A sentence whose bytes are no whole characters is searched again without byte tokens.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from heedful.config import DecodingConfig
from heedful.decoding.engines import Job, MakeRule, Outcome
from heedful.decoding.utf8_automaton import is_whole
from heedful.errors import ConfigError, DecodingError
from heedful.model_dir.ctranslate2_format import VOCABULARY_MAP, ctranslate2_files
from heedful.model_dir.fingerprint import read_exported
from heedful.model_dir.registry import RECORD
from heedful.model_dir.save_load import ModelArrays, load_arrays
from heedful.model_dir.shortlist import read_shortlist
from heedful.search_types import Hypothesis, length_penalty, special_tokens
from heedful.text.tokenizer import Tokenizer

PATIENCE, LONG_PATIENCE = 4, 32


class CTranslate2Engine:
    """A model that CTranslate2 has loaded, and our tokenizer to speak to it in pieces."""

    name = "ctranslate2"

    def __init__(self, translator: Any, tokenizer: Tokenizer, *, max_length: int, has_map: bool = False) -> None:
        """`translator`: a `ctranslate2.Translator` whose vocabularies are those of `tokenizer`.

        `has_map`: whether it has loaded a vocabulary map, which is what it calls a shortlist.
        """
        self.has_map = has_map
        self.translator, self.max_length = translator, max_length
        self.weights = str(translator.compute_type)
        self.special = special_tokens(tokenizer)
        self.source_pieces = tokenizer.source_pieces(range(tokenizer.source_vocab_size))
        self.pieces = tokenizer.pieces(range(tokenizer.target_vocab_size))
        self.ids = {piece: number for number, piece in enumerate(self.pieces)}

    def uses_shortlist(self, config: DecodingConfig) -> bool:
        """Whether this search chooses from the vocabulary map: only if told to, since the map is that of a batch."""
        return bool(config.shortlist)

    def decode(
        self, jobs: Sequence[Job], config: DecodingConfig, *, align: bool, make_rule: MakeRule | None
    ) -> dict[Job, Outcome]:
        """Search for all jobs; those that may become equally long go together, since the limit is one for a call."""
        refuse(jobs, config, align=align, rule=make_rule is not None)
        if config.shortlist and not self.has_map:
            raise ConfigError(
                "decoding.shortlist: this model has no shortlist; make one with `heedful shortlist`, then export again."
            )
        outcomes = self._decode(jobs, config)
        broken = [job for job, outcome in outcomes.items() if not all(map(self._is_whole, outcome.hypotheses))]
        if broken:
            without_bytes = {job._replace(forbidden=(*job.forbidden, *self.special.byte_ids)): job for job in broken}
            again = self._decode(list(without_bytes), config)
            outcomes.update({without_bytes[job]: outcome for job, outcome in again.items()})
        return outcomes

    def _decode(self, jobs: Sequence[Job], config: DecodingConfig) -> dict[Job, Outcome]:
        groups: dict[tuple[int, tuple[int, ...]], list[Job]] = {}
        for job in jobs:
            groups.setdefault((job.max_length, job.forbidden), []).append(job)
        outcomes: dict[Job, Outcome] = {}
        for (limit, forbidden), members in groups.items():
            results = self._search(members, limit, forbidden, config)
            for job, result in zip(members, results, strict=True):
                found = [self._read(*pair, config) for pair in zip(result.hypotheses, result.scores, strict=True)]
                outcomes[job] = Outcome(self._best(job, found, config), None)
        return outcomes

    def _is_whole(self, hypothesis: Hypothesis) -> bool:
        return is_whole(hypothesis.tokens, self.special.byte_ids)

    def _search(self, jobs: Sequence[Job], limit: int, forbidden: Sequence[int], config: DecodingConfig) -> list[Any]:
        """CTranslate2's results. Without a penalty the first to end has won, but to cut it off all must be seen."""
        sources, options = [self._source(job) for job in jobs], self._options(config)
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

    def _source(self, job: Job) -> list[str]:
        """The pieces of a source; the end token is added by CTranslate2."""
        return [self.source_pieces[number] for number in job.source[:-1]]

    def _options(self, config: DecodingConfig) -> dict[str, Any]:
        """How CTranslate2 is told to search."""
        beams = config.beam_size if config.method == "beam" else 1
        exponent = ranking_exponent(config)
        patience = 1 if beams == 1 or (exponent == 0 and config.num_best == 1) else patience_of(config)
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
        """A hypothesis in ids. One that ran into its limit has no end token: its price is still to be asked."""
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

    def _best(self, job: Job, found: list[Hypothesis], config: DecodingConfig) -> list[Hypothesis]:
        """The best `num_best` by our penalty; those that were cut off pay for their end, where it could matter."""
        ranked = sorted(found, key=lambda hypothesis: -hypothesis.score)
        if all(hypothesis.finished for hypothesis in ranked[: config.num_best]):
            return ranked[: config.num_best]
        cut = [hypothesis for hypothesis in found if not hypothesis.finished]
        texts = [[self.pieces[number] for number in hypothesis.tokens[:-1]] for hypothesis in cut]
        scored = self.translator.score_batch([self._source(job)] * len(cut), texts, max_input_length=0)
        paid = []
        for hypothesis, forced in zip(cut, scored, strict=True):
            log_prob = hypothesis.log_prob + forced.log_probs[-1]
            score = log_prob / length_penalty(float(len(hypothesis.tokens)), config)
            paid.append(replace(hypothesis, log_prob=log_prob, score=score))
        whole = [hypothesis for hypothesis in found if hypothesis.finished]
        return sorted([*whole, *paid], key=lambda hypothesis: -hypothesis.score)[: config.num_best]


def ranking_exponent(config: DecodingConfig) -> float:
    """CTranslate2's `length_penalty`: the α of log_prob / length^α that comes nearest to our penalty."""
    return 0.0 if config.length_penalty == "none" or config.method == "greedy" else config.length_penalty_alpha


def patience_of(config: DecodingConfig) -> int:
    """How many times `beam_size` translations are let end. By their mean, long ones win late, and more must be seen."""
    by_mean = config.length_penalty == "average" and config.length_penalty_alpha > 0.9
    return LONG_PATIENCE if by_mean else PATIENCE


def refuse(jobs: Sequence[Job], config: DecodingConfig, *, align: bool, rule: bool) -> None:
    """An error that names what was asked for and CTranslate2 cannot do as we do.

    It has limits and blocking of n-grams, but spreads what they forbid over the rest, and so finds other translations.
    """
    wanted = {
        f"decoding.method={config.method}": config.method == "sampling",
        f"decoding.min_length={config.min_length}": config.min_length > 0,
        f"decoding.no_repeat_ngram_size={config.no_repeat_ngram_size}": config.no_repeat_ngram_size > 0,
        "a target prefix": any(job.prefix for job in jobs),
        "alignment": align,
        "a rule over the tokens": rule,
    }
    found = [name for name, asked in wanted.items() if asked]
    if found:
        raise ConfigError(f"the engine ctranslate2 cannot do {' and '.join(found)} as heedful does; use engine torch.")


def load_engine(
    path: str | Path, *, device: str = "auto", quantization: str | None = None
) -> tuple[CTranslate2Engine, ModelArrays]:
    """The engine of a model directory or of an exported one, and what belongs to the model, without its weights."""
    files: Mapping[str, bytes] | None = None
    module = import_ctranslate2()
    if (Path(path) / RECORD).is_file():
        arrays = read_exported(path)
    else:
        arrays = load_arrays(path)
        quantization = quantization or "float32"
        files = ctranslate2_files(arrays, quantization, read_shortlist(path))
    where, index = ctranslate2_device(module, device)
    try:
        translator = module.Translator(
            str(path),
            device=where,
            device_index=index,
            compute_type=quantization or "default",
            intra_threads=0 if "OMP_NUM_THREADS" in os.environ else os.cpu_count() or 1,
            files=files,
        )
    except (ValueError, RuntimeError) as error:
        raise ConfigError(f"{path}: CTranslate2 cannot load this model on {where}: {error}") from None
    loaded = replace(arrays, weights={})
    has_map = VOCABULARY_MAP in files if files else (Path(path) / VOCABULARY_MAP).is_file()
    length = arrays.config.model.max_length
    return CTranslate2Engine(translator, arrays.tokenizer, max_length=length, has_map=has_map), loaded


def import_ctranslate2() -> Any:
    """The package, or an error that tells how to get it."""
    try:
        import ctranslate2
    except ImportError:
        raise ConfigError(
            "the engine ctranslate2 needs the package of that name; install it: pip install 'heedful[ctranslate2]'"
        ) from None
    return ctranslate2


def ctranslate2_device(module: Any, name: str) -> tuple[str, int]:
    """CTranslate2's names for a device: its kind and its number."""
    has_gpu = module.get_cuda_device_count() > 0
    kind, _, number = ("cuda" if has_gpu else "cpu", "", "") if name == "auto" else name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise ConfigError(f"device: the engine ctranslate2 has cpu, cuda and cuda:1, not {name!r}.")
    if kind == "cuda" and not has_gpu:
        raise ConfigError(f"device: {name!r} is not available to CTranslate2 on this machine; use auto or cpu.")
    return kind, int(number or 0)
