"""Scores of a model: BLEU on part of valid during training, and all scores of a test set after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.config import Config, DataConfig, DecodingConfig
from heedful.errors import CorpusError
from heedful.text.corpus import direction

if TYPE_CHECKING:
    import torch
    from torch import nn

    from heedful.console import Console
    from heedful.data.prepare import Prepared
    from heedful.decoding.translator import Translator
    from heedful.evaluation.score import Score
    from heedful.search_types import Engine
    from heedful.text.preflight import TrainingPair
    from heedful.text.tokenizer import Tokenizer
    from heedful.training.distributed import World
    from heedful.training.logging import Evaluation
    from heedful.training.loop import Evaluate

    EvaluateModel = Callable[[nn.Module], Evaluation]
    EvaluateModelOrEngine = Callable[[nn.Module | Engine], Evaluation]
    MakeEvaluator = Callable[[Config, Prepared, torch.device], EvaluateModel | None]

INT8 = "native int8"
"""The engine that translates on CPUs."""
MAX_INT8_LOSS = 0.5
"""In BLEU points. A warning is shown if int8 loses more on valid, compared with float32."""

SENTENCES_PER_CALL = 2048
"""Sentences that are translated between two updates of a progress bar."""
SENTENCES_PER_CALL_ON_CPU = 128


def make_bleu_evaluator(config: Config, prepared: Prepared, device: torch.device | str) -> EvaluateModelOrEngine | None:
    """A function that translates part of valid (greedily, for speed) and scores it; None if it is disabled."""
    num_sentences = config.training.num_bleu_sentences
    num_samples = config.training.num_samples
    if not num_sentences or not prepared.valid_pairs:
        return None
    stride = max(1, len(prepared.valid_pairs) // num_sentences)
    pairs = prepared.valid_pairs[::stride][:num_sentences]

    def evaluate_model(model: nn.Module | Engine) -> Evaluation:
        from heedful.evaluation.score import score
        from heedful.training.logging import Evaluation, Sample

        decoding = replace(config.decoding, method="greedy", num_best=1, checks=False)
        texts = translate_pairs(model, prepared.tokenizer, pairs, decoding, device)
        references = [pair.target for pair in pairs]
        scores = score(
            texts, references, metrics=("bleu", "chrf"), target_language=config.data.target_language, bootstrap=0
        )
        first = next(score for score in scores if score.is_defined)  # BLEU, unless no reference has four tokens
        indices = range(0, len(pairs), max(1, len(pairs) // max(1, num_samples)))
        samples = [Sample(pairs[i].source, references[i], texts[i]) for i in indices][:num_samples]
        return Evaluation(first.value, first.signature, tuple(samples), name=first.name)

    return evaluate_model


def evaluate_gathered(evaluate_model: EvaluateModel | None, config: Config, world: World) -> Evaluate | None:
    """`evaluate_model` for the training loop: all ranks call it, a sharded model is gathered, and rank 0 evaluates."""
    if evaluate_model is None:
        return None

    def evaluate(model: nn.Module) -> Evaluation | None:
        from heedful.training.model_setup import gather_model

        gathered = gather_model(model, config.model, world)
        return None if gathered is None else evaluate_model(gathered)

    return evaluate


def translate_pairs(
    model: nn.Module | Engine,
    tokenizer: Tokenizer,
    pairs: Sequence[TrainingPair],
    decoding: DecodingConfig,
    device: torch.device | str = "cpu",
) -> list[str]:
    """Translate the sources of the pairs with a model that is not in a model directory."""
    from heedful.decoding.translator import Translator

    translator = Translator(model, tokenizer, replace(decoding, batch_invariant=False, shortlist=None), device=device)
    return translate_with(translator, pairs, device=device)


def translate_with(
    translator: Translator,
    pairs: Sequence[TrainingPair],
    *,
    device: torch.device | str,
    source_language: str | None = None,
    progress: Callable[[int], None] = lambda num_done: None,
) -> list[str]:
    """Translate the sources of the pairs, each into its target language.

    `progress` is called with the number of sentences done since its last call.
    """
    texts = [""] * len(pairs)
    per_call = SENTENCES_PER_CALL_ON_CPU if str(device) == "cpu" else SENTENCES_PER_CALL
    for language in {pair.target_language for pair in pairs}:
        indices = [index for index, pair in enumerate(pairs) if pair.target_language == language]
        for part in (indices[start : start + per_call] for start in range(0, len(indices), per_call)):
            translations = translator.translate(
                [pairs[index].source for index in part],
                target_language=language,
                source_language=source_language,
                batch_invariant=False,
            )
            for index, translation in zip(part, translations, strict=True):
                texts[index] = translation.text
            progress(len(part))
    return texts


def store_alignment(config: Config, prepared: Prepared, device: torch.device) -> None:
    """Choose the attention head that gives the published model's word alignments, and store the choice in it."""
    from heedful.decoding.alignment_selection import (
        ALIGNED_PAIRS,
        LEXICON_PAIRS,
        TokenPair,
        choose_alignment,
        evenly_spaced,
    )
    from heedful.model_dir import load_model
    from heedful.model_dir.save_load import KEY, save_details

    train_pairs, valid_pairs = (
        [TokenPair(*store.pair(index)) for index in evenly_spaced(len(store), max_pairs)]
        for store, max_pairs in ((prepared.train, LEXICON_PAIRS), (prepared.valid, ALIGNED_PAIRS))
    )
    model = load_model(config.output, device=device).model
    chosen = choose_alignment(model, prepared.tokenizer, train_pairs, valid_pairs, device=device)
    if chosen is not None:
        save_details(config.output, {KEY: chosen.to_dict()})


class FinalScores(NamedTuple):
    """The scores of the published model with the engine that translates."""

    test_scores: list[Score]
    valid_score: float | None


def score_published_model(
    config: Config,
    prepared: Prepared,
    device: torch.device,
    console: Console,
    *,
    valid_score: float | None,
    score_name: str = "BLEU",
    score_test: bool = True,
) -> FinalScores:
    """Score the published model with the engine that `heedful translate` uses on this device; add it to the card.

    `valid_score` is the score of the same weights in float32 during training, by the metric `score_name`; int8 is
    compared with it. If it is None, valid is not scored. `score_test`: score the test corpora too.
    """
    from heedful.decoding.translator import Translator
    from heedful.model_dir import load_model, save_model

    score_test = score_test and bool(prepared.test_pairs)
    if not score_test and valid_score is None:
        return FinalScores([], None)
    loaded = load_model(config.output)
    translator = Translator.load(config.output, device=str(device))
    engine = " ".join(translator.engine_for())
    scores = score_test_corpora(config, prepared, translator, engine, console, device=device) if score_test else []
    valid_details: dict[str, Any] = {}
    engine_score: float | None = None
    if valid_score is not None:
        engine_score, valid_details = compare_with_int8(
            config, prepared, translator, engine, console, float32=valid_score, name=score_name
        )
    save_model(
        config.output,
        weights=loaded.model,
        config=loaded.config,
        tokenizer=loaded.tokenizer,
        details={**loaded.details, "training": {**loaded.details["training"], **valid_details}},
        scores=[{**score.to_dict(), "data": name, "engine": engine} for name, score in scores],
    )
    return FinalScores([score for _, score in scores], engine_score)


def score_test_corpora(
    config: Config,
    prepared: Prepared,
    translator: Translator,
    engine: str,
    console: Console,
    *,
    device: torch.device,
) -> list[tuple[str, Score]]:
    """The default scores on each test corpus, by target language, with the corpus's name."""
    from heedful.evaluation.background_scoring import BackgroundScores

    names = [corpus["name"] for corpus in prepared.report["corpora"] if corpus["role"] == "test"]
    groups: dict[tuple[int, str | None], list[TrainingPair]] = {}
    for pair in prepared.test_pairs:
        groups.setdefault((pair.corpus_index, pair.target_language), []).append(pair)
    running: list[tuple[str, BackgroundScores]] = []
    for (index, target_language), pairs in groups.items():
        name = names[index] if target_language is None else f"{names[index]} into {target_language}"
        console.note(f"Translating the {len(pairs):,} sentences of {name} with {engine} …")
        with console.progress_bar(f"translating {name}", len(pairs)) as progress:
            texts = translate_with(
                translator,
                pairs,
                device=device,
                source_language=source_language_of(config.data, index, target_language),
                progress=progress,
            )
        references = [pair.target for pair in pairs]
        language = target_language or config.data.target_language
        running.append((name, BackgroundScores(texts, references, target_language=language)))
    results: list[tuple[str, Score]] = []
    for name, background in running:
        for score in background.scores():
            console.note(f"{name}: {score} ({engine})")
            results.append((name, score))
    return results


def source_language_of(data: DataConfig, index: int, target_language: str | None) -> str | None:
    """The source language of a test corpus when it is translated into `target_language`, if it is known."""
    if index >= len(data.test):
        return None
    known = direction(data.test[index], data)
    is_reversed = data.test[index].both_directions and target_language is not None and target_language == known.source
    return known.target if is_reversed else known.source


def compare_with_int8(
    config: Config,
    prepared: Prepared,
    translator: Translator,
    engine: str,
    console: Console,
    *,
    float32: float,
    name: str,
) -> tuple[float, dict[str, Any]]:
    """The score on valid with the engine that translates, and details for the card: both the int8 and float32 scores.

    Warns if int8 scores clearly less.
    """
    from heedful.decoding.engines import uses_native
    from heedful.decoding.engines.native_engine import load_native
    from heedful.native import available

    evaluate_model = make_bleu_evaluator(config, prepared, "cpu")
    assert evaluate_model is not None
    key = f"valid_{name.lower()}"
    if not uses_native(config.output, device="cpu", quantization=None):
        availability = available()
        reason = "it does not support this model" if availability else availability.reason
        console.note(f"Valid {name} with {engine}: {float32:.1f}. Native int8 was not scored: {reason}.")
        return float32, {key: float32, f"{key}_engine": engine}
    uses_int8 = engine == INT8
    int8 = evaluate_model(translator.engine if uses_int8 else load_native(config.output, device="cpu")[0]).bleu
    score, other, precision = (int8, float32, "float32") if uses_int8 else (float32, int8, "int8")
    console.note(
        f"Valid {name} with {engine}, which `heedful translate` uses here: {score:.1f} ({precision}: {other:.1f})."
    )
    if float32 - int8 > MAX_INT8_LOSS:
        console.warn(
            f"int8 loses {float32 - int8:.1f} {name} on valid: native int8 {int8:.1f}, float32 {float32:.1f}. On CPUs "
            f"`heedful translate` uses int8. Use --quantization float32, which is slower, or train with more steps or "
            f"a higher training.learning_rate."
        )
    return score, {key: score, f"{key}_engine": engine, f"{key}_{precision}": other}


class EvaluationResult(NamedTuple):
    """Translations of a test set, their scores, and the engine that they belong to."""

    texts: list[str]
    scores: list[Score]
    engine: str
    weights: str
    """The type of the engine's weights; native int8 may score slightly less than float32."""
    shortlist: bool
    """Whether the vocabulary was restricted by the model's shortlist."""
    num_too_long: int
    """Lines that are too long for the model and were scored untranslated."""


def evaluate(
    model: str | Path,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    device: str = "auto",
    engine: str = "auto",
    quantization: str | None = None,
    target_language: str | None = None,
    **settings: Any,
) -> EvaluationResult:
    """Translate sources with a model directory and score the translations; `settings` as for `Translator.translate`."""
    from heedful.decoding.translation import TOO_LONG
    from heedful.decoding.translator import Translator
    from heedful.evaluation.score import score
    from heedful.text.language_names import target_code

    if len(sources) != len(references):
        raise CorpusError(f"{len(sources)} sources but {len(references)} references; each source needs one reference.")
    translator = Translator.load(model, device=device, engine=engine, quantization=quantization)
    translator.directions.require_target(target_language, "the language of the references")
    if target_language is not None:
        target_language = target_code(target_language, translator.directions.target_codes)
    translations = translator.translate(sources, target_language=target_language, **settings)
    texts = [translation.text for translation in translations]
    scores = score(texts, references, target_language=target_language or translator.target_language)
    num_too_long = sum(TOO_LONG in translation.warnings for translation in translations)
    shortlist = translator.uses_shortlist(**settings)
    return EvaluationResult(texts, scores, *translator.engine_for(**settings), shortlist, num_too_long)
