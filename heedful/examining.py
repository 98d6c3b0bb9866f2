"""How a model is examined: BLEU on part of valid while it learns, all scores at the end or whenever asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.config import Config, DecodingConfig
from heedful.errors import CorpusError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from heedful.data.prepare import Prepared
    from heedful.evaluation.score import Score
    from heedful.text.cleaning import TrainingPair
    from heedful.text.tokenizer import Tokenizer
    from heedful.training.distributed import World
    from heedful.training.loop import Evaluate
    from heedful.training.report import ConsoleReporter, Evaluation

    Look = Callable[[nn.Module], Evaluation]
    MakeEvaluate = Callable[[Config, Prepared, torch.device], Look | None]


SENTENCES_AT_ONCE = {"cpu": 128}
"""Sentences that are translated between two movements of a progress bar; elsewhere 2,048."""


def evaluator(config: Config, prepared: Prepared, device: torch.device) -> Look | None:
    """A function that translates part of valid (greedily, for speed) and scores it; None if that is switched off."""
    wanted = config.training.bleu_sentences
    if not wanted or not prepared.valid_pairs:
        return None
    stride = max(1, len(prepared.valid_pairs) // wanted)
    pairs = prepared.valid_pairs[::stride][:wanted]

    def look(model: nn.Module) -> Evaluation:
        from heedful.evaluation.score import score
        from heedful.training.report import Evaluation, Sample

        decoding = replace(config.decoding, method="greedy", num_best=1)
        texts = translate_pairs(model, prepared.tokenizer, pairs, decoding, device)
        references = [pair.target for pair in pairs]
        scores = score(
            texts, references, metrics=("bleu", "chrf"), target_language=config.data.target_language, bootstrap=0
        )
        found = next(one for one in scores if one.is_defined)  # BLEU, unless no reference has four tokens
        chosen = range(0, len(pairs), max(1, len(pairs) // max(1, config.training.samples)))
        samples = [Sample(pairs[i].source, references[i], texts[i]) for i in chosen][: config.training.samples]
        return Evaluation(found.value, found.signature, tuple(samples), name=found.name)

    return look


def on_whole_model(look: Look | None, config: Config, world: World) -> Evaluate | None:
    """The same for the loop: all ranks call it, as a divided model has to be collected; the first one looks."""
    if look is None:
        return None

    def evaluate(model: nn.Module) -> Evaluation | None:
        from heedful.training.placing import collect_model

        collected = collect_model(model, config.model, world)
        return None if collected is None else look(collected)

    return evaluate


def translate_pairs(
    model: nn.Module,
    tokenizer: Tokenizer,
    pairs: Sequence[TrainingPair],
    decoding: DecodingConfig,
    device: torch.device,
    tell: Callable[[int], None] = lambda number: None,
) -> list[str]:
    """Translations of the pairs' sources, each into its own target language; `tell` hears how many more are done."""
    from heedful.decoding.translator import Translator

    translator = Translator(model, tokenizer, replace(decoding, fast=True, shortlist=None), device=device)
    texts = [""] * len(pairs)
    for language in {pair.target_language for pair in pairs}:
        places = [place for place, pair in enumerate(pairs) if pair.target_language == language]
        together = SENTENCES_AT_ONCE.get(device.type, 2048)
        for some in (places[start : start + together] for start in range(0, len(places), together)):
            sources = [pairs[place].source for place in some]
            for place, translation in zip(some, translator.translate(sources, target_language=language), strict=True):
                texts[place] = translation.text
            tell(len(some))
    return texts


def store_alignment(config: Config, prepared: Prepared, device: torch.device) -> None:
    """Choose the attention that the published model's alignments are read from, and store the choice with it."""
    from heedful.checkpoint import load_model
    from heedful.checkpoint.alignment import KEY
    from heedful.checkpoint.model import save_details
    from heedful.decoding.alignment_choice import ALIGNED_PAIRS, LEXICON_PAIRS, PairOfIds, choose_alignment, spread

    learned, held_out = (
        [PairOfIds(*store.pair(place)) for place in spread(len(store), most)]
        for store, most in ((prepared.train, LEXICON_PAIRS), (prepared.valid, ALIGNED_PAIRS))
    )
    model = load_model(config.output, device=device).model
    chosen = choose_alignment(model, prepared.tokenizer, learned, held_out, device=device)
    if chosen is not None:
        save_details(config.output, {KEY: chosen.to_dict()})


def score_test(config: Config, prepared: Prepared, device: torch.device, console: ConsoleReporter) -> list[Score]:
    """All usual scores of the published model on each test corpus, by target language."""
    from heedful.checkpoint import load_model, save_model
    from heedful.evaluation.aside import Aside

    if not prepared.test_pairs:
        return []
    loaded = load_model(config.output, device=device)
    names = [corpus["name"] for corpus in prepared.report["corpora"] if corpus["role"] == "test"]
    groups: dict[tuple[int, str | None], list[TrainingPair]] = {}
    for pair in prepared.test_pairs:
        groups.setdefault((pair.corpus_index, pair.target_language), []).append(pair)
    translated: list[tuple[str, Aside]] = []
    for (index, tag), pairs in groups.items():
        name = names[index] if tag is None else f"{names[index]} into {tag}"
        console.note(f"Translating the {len(pairs):,} sentences of {name} …")
        with console.counted(f"translating {name}", len(pairs)) as tell:
            texts = translate_pairs(loaded.model, prepared.tokenizer, pairs, config.decoding, device, tell)
        references = [pair.target for pair in pairs]
        translated.append((name, Aside(texts, references, target_language=tag or config.data.target_language)))
    all_scores: list[Score] = []
    plain: list[dict[str, Any]] = []
    for name, aside in translated:
        scores = aside.scores()
        for one in scores:
            console.note(f"{name}: {one}")
        all_scores += scores
        plain += [{**one.to_dict(), "data": name} for one in scores]
    save_model(
        config.output,
        weights=loaded.model,
        config=loaded.config,
        tokenizer=loaded.tokenizer,
        details=loaded.details,
        scores=plain,
    )
    return all_scores


class Evaluated(NamedTuple):
    """Translations of a test set, their scores, and who translated: the scores are those of that engine."""

    texts: list[str]
    scores: list[Score]
    engine: str
    weights: str
    """How the engine keeps the weights: native's int8 may score a little less than float32."""
    shortlist: bool
    """Whether the words were chosen from the model's shortlist."""


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
    from heedful.decoding.translator import Translator
    from heedful.evaluation.score import score

    if len(sources) != len(references):
        raise CorpusError(f"{len(sources)} sources but {len(references)} references; they must be line by line.")
    translator = Translator.load(model, device=device, engine=engine, quantization=quantization)
    translator.directions.require_target(target_language, "the language of the references")
    translations = translator.translate(sources, target_language=target_language, **settings)
    texts = [translation.text for translation in translations]
    scores = score(texts, references, target_language=target_language or translator.target_language)
    return Evaluated(texts, scores, *translator.engine_for(**settings), translator.uses_shortlist(**settings))
