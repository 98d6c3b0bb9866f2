"""How a model is examined: BLEU on part of valid while it learns, all scores at the end or whenever asked for."""

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
    from heedful.decoding.engines import Engine
    from heedful.decoding.translator import Translator
    from heedful.evaluation.score import Score
    from heedful.text.preflight import TrainingPair
    from heedful.text.tokenizer import Tokenizer
    from heedful.training.distributed import World
    from heedful.training.logging import Evaluation
    from heedful.training.loop import Evaluate

    Look = Callable[[nn.Module], Evaluation]
    LookWithEngine = Callable[[nn.Module | Engine], Evaluation]
    MakeEvaluate = Callable[[Config, Prepared, torch.device], Look | None]

INT8 = "native int8"
"""The engine that translates on CPUs."""
MOST_LOST = 0.5
"""BLEU: when int8 has so much less than float32 on valid, a warning says so."""

MOST_AT_ONCE, MOST_AT_ONCE_ON_CPU = 2048, 128
"""Sentences that are translated between two movements of a progress bar."""


def evaluator(config: Config, prepared: Prepared, device: torch.device | str) -> LookWithEngine | None:
    """A function that translates part of valid (greedily, for speed) and scores it; None if that is switched off."""
    wanted = config.training.num_bleu_sentences
    if not wanted or not prepared.valid_pairs:
        return None
    stride = max(1, len(prepared.valid_pairs) // wanted)
    pairs = prepared.valid_pairs[::stride][:wanted]

    def look(model: nn.Module | Engine) -> Evaluation:
        from heedful.evaluation.score import score
        from heedful.training.logging import Evaluation, Sample

        decoding = replace(config.decoding, method="greedy", num_best=1, checks=False)
        texts = translate_pairs(model, prepared.tokenizer, pairs, decoding, device)
        references = [pair.target for pair in pairs]
        scores = score(
            texts, references, metrics=("bleu", "chrf"), target_language=config.data.target_language, bootstrap=0
        )
        found = next(one for one in scores if one.is_defined)  # BLEU, unless no reference has four tokens
        chosen = range(0, len(pairs), max(1, len(pairs) // max(1, config.training.num_samples)))
        samples = [Sample(pairs[i].source, references[i], texts[i]) for i in chosen][: config.training.num_samples]
        return Evaluation(found.value, found.signature, tuple(samples), name=found.name)

    return look


def on_whole_model(look: Look | None, config: Config, world: World) -> Evaluate | None:
    """The same for the loop: all ranks call it, as a divided model has to be collected; the first one looks."""
    if look is None:
        return None

    def evaluate(model: nn.Module) -> Evaluation | None:
        from heedful.training.model_setup import gather_model

        collected = gather_model(model, config.model, world)
        return None if collected is None else look(collected)

    return evaluate


def translate_pairs(
    model: nn.Module | Engine,
    tokenizer: Tokenizer,
    pairs: Sequence[TrainingPair],
    decoding: DecodingConfig,
    device: torch.device | str = "cpu",
) -> list[str]:
    """What a model, with nothing around it, makes of the pairs' sources; `device` is where it computes."""
    from heedful.decoding.translator import Translator

    translator = Translator(model, tokenizer, replace(decoding, batch_invariant=False, shortlist=None), device=device)
    return translate_with(translator, pairs, device=device)


def translate_with(
    translator: Translator,
    pairs: Sequence[TrainingPair],
    *,
    device: torch.device | str,
    source_language: str | None = None,
    tell: Callable[[int], None] = lambda number: None,
) -> list[str]:
    """Translations of the pairs' sources, each into its own target language; `tell` hears how many more are done."""
    texts = [""] * len(pairs)
    together = MOST_AT_ONCE_ON_CPU if str(device) == "cpu" else MOST_AT_ONCE
    for language in {pair.target_language for pair in pairs}:
        places = [place for place, pair in enumerate(pairs) if pair.target_language == language]
        for some in (places[start : start + together] for start in range(0, len(places), together)):
            found = translator.translate(
                [pairs[place].source for place in some],
                target_language=language,
                source_language=source_language,
                batch_invariant=False,
            )
            for place, translation in zip(some, found, strict=True):
                texts[place] = translation.text
            tell(len(some))
    return texts


def store_alignment(config: Config, prepared: Prepared, device: torch.device) -> None:
    """Choose the attention that the published model's alignments are read from, and store the choice with it."""
    from heedful.decoding.alignment_selection import ALIGNED_PAIRS, LEXICON_PAIRS, PairOfIds, choose_alignment, spread
    from heedful.model_dir import load_model
    from heedful.model_dir.alignment_source import KEY
    from heedful.model_dir.save_load import save_details

    learned, held_out = (
        [PairOfIds(*store.pair(place)) for place in spread(len(store), most)]
        for store, most in ((prepared.train, LEXICON_PAIRS), (prepared.valid, ALIGNED_PAIRS))
    )
    model = load_model(config.output, device=device).model
    chosen = choose_alignment(model, prepared.tokenizer, learned, held_out, device=device)
    if chosen is not None:
        save_details(config.output, {KEY: chosen.to_dict()})


class Examined(NamedTuple):
    """How good the published model is with the engine that translates."""

    scores: list[Score]
    valid_score: float | None


def examine(
    config: Config,
    prepared: Prepared,
    device: torch.device,
    console: Console,
    *,
    valid_score: float | None,
    score_name: str = "BLEU",
) -> Examined:
    """Score the published model with the engine that `heedful translate` uses on this device; write it into the card.

    `valid_score` is what torch had in float32 with the same weights while they were trained, by the metric
    `score_name`: int8 is compared with it. None, and valid is not scored again.
    """
    from heedful.decoding.translator import Translator
    from heedful.model_dir import load_model, save_model

    if not prepared.test_pairs and valid_score is None:
        return Examined([], None)
    loaded = load_model(config.output)
    translator = Translator.load(config.output, device=str(device))
    engine = " ".join(translator.engine_for())
    scores = score_test(config, prepared, translator, engine, console, device=device)
    valid: dict[str, Any] = {}
    used: float | None = None
    if valid_score is not None:
        used, valid = compare_with_int8(
            config, prepared, translator, engine, console, float32=valid_score, name=score_name
        )
    details = {**loaded.details, "training": {**loaded.details["training"], **valid}}
    plain = [{**one.to_dict(), "data": name, "engine": engine} for name, one in scores]
    save_model(
        config.output,
        weights=loaded.model,
        config=loaded.config,
        tokenizer=loaded.tokenizer,
        details=details,
        scores=plain,
    )
    return Examined([one for _, one in scores], used)


def score_test(
    config: Config,
    prepared: Prepared,
    translator: Translator,
    engine: str,
    console: Console,
    *,
    device: torch.device,
) -> list[tuple[str, Score]]:
    """All usual scores on each test corpus, by target language, with the corpus's name."""
    from heedful.evaluation.background_scoring import BackgroundScores

    names = [corpus["name"] for corpus in prepared.report["corpora"] if corpus["role"] == "test"]
    groups: dict[tuple[int, str | None], list[TrainingPair]] = {}
    for pair in prepared.test_pairs:
        groups.setdefault((pair.corpus_index, pair.target_language), []).append(pair)
    translated: list[tuple[str, BackgroundScores]] = []
    for (index, tag), pairs in groups.items():
        name = names[index] if tag is None else f"{names[index]} into {tag}"
        console.note(f"Translating the {len(pairs):,} sentences of {name} with {engine} …")
        with console.progress_bar(f"translating {name}", len(pairs)) as tell:
            source = source_of(config.data, index, tag)
            texts = translate_with(translator, pairs, device=device, source_language=source, tell=tell)
        references = [pair.target for pair in pairs]
        translated.append(
            (name, BackgroundScores(texts, references, target_language=tag or config.data.target_language))
        )
    found: list[tuple[str, Score]] = []
    for name, aside in translated:
        for one in aside.scores():
            console.note(f"{name}: {one} ({engine})")
            found.append((name, one))
    return found


def source_of(data: DataConfig, index: int, target: str | None) -> str | None:
    """The language of the sources of a test corpus that are translated into this language, if it is known."""
    if index >= len(data.test):
        return None
    known = direction(data.test[index], data)
    is_turned = data.test[index].both_directions and target is not None and target == known.source
    return known.target if is_turned else known.source


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
    """The score on valid with the engine that translates, and for the card also with native int8 or in float32.

    A warning says so if int8 loses.
    """
    from heedful.decoding.engines.loading import is_native
    from heedful.decoding.engines.native_engine import load_native
    from heedful.native import available

    look = evaluator(config, prepared, "cpu")
    assert look is not None
    key = f"valid_{name.lower()}"
    if not is_native(config.output, device="cpu", quantization=None):
        found = available()
        reason = "it cannot compute this model" if found else found.reason
        console.note(f"Valid {name} with {engine}: {float32:.1f}. Native int8 was not scored: {reason}.")
        return float32, {key: float32, f"{key}_engine": engine}
    is_used = engine == INT8
    int8 = look(translator.engine if is_used else load_native(config.output, device="cpu")[0]).bleu
    used, other, precision = (int8, float32, "float32") if is_used else (float32, int8, "int8")
    console.note(
        f"Valid {name} with {engine}, which `heedful translate` uses here: {used:.1f} ({precision}: {other:.1f})."
    )
    if float32 - int8 > MOST_LOST:
        console.warn(
            f"int8 loses {float32 - int8:.1f} {name} on valid: native int8 {int8:.1f}, float32 {float32:.1f}. On CPUs "
            f"`heedful translate` uses int8. Add --quantization float32 to it, which is slower, or train with more "
            f"steps or a higher training.learning_rate."
        )
    return used, {key: used, f"{key}_engine": engine, f"{key}_{precision}": other}


class Evaluated(NamedTuple):
    """Translations of a test set, their scores, and who translated: the scores are those of that engine."""

    texts: list[str]
    scores: list[Score]
    engine: str
    weights: str
    """How the engine keeps the weights: native's int8 may score a little less than float32."""
    shortlist: bool
    """Whether the words were chosen from the model's shortlist."""
    num_too_long: int
    """Lines that the model cannot take, which were scored untranslated."""


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
) -> Evaluated:
    """Translate sources with a model directory and score the translations; `settings` as for `Translator.translate`."""
    from heedful.decoding.translation import TOO_LONG
    from heedful.decoding.translator import Translator
    from heedful.evaluation.score import score
    from heedful.text.language_names import target_code

    if len(sources) != len(references):
        raise CorpusError(f"{len(sources)} sources but {len(references)} references; they must be line by line.")
    translator = Translator.load(model, device=device, engine=engine, quantization=quantization)
    translator.directions.require_target(target_language, "the language of the references")
    if target_language is not None:
        target_language = target_code(target_language, translator.directions.target_codes)
    translations = translator.translate(sources, target_language=target_language, **settings)
    texts = [translation.text for translation in translations]
    scores = score(texts, references, target_language=target_language or translator.target_language)
    num_too_long = sum(TOO_LONG in translation.warnings for translation in translations)
    shortlist = translator.uses_shortlist(**settings)
    return Evaluated(texts, scores, *translator.engine_for(**settings), shortlist, num_too_long)
