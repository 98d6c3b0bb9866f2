"""The whole path on one page: corpora → rows → model → training → model directory → scores; what the verbs do.

Here the parts meet that do not know each other: `training` is given a way to translate, `decoding` a trained model.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.config import (
    Config,
    DataConfig,
    DecodingConfig,
    choose_preset,
    read_request,
    settle,
    to_mapping,
)
from heedful.errors import ConfigError, CorpusError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from heedful.data.prepare import Prepared
    from heedful.evaluation.score import Score
    from heedful.text.cleaning import TrainingPair
    from heedful.text.tokenizer import Tokenizer
    from heedful.training.loop import Evaluate, Publish, TrainingLoop
    from heedful.training.report import ConsoleReporter, Evaluation, Reporter
    from heedful.training.state import TrainingState

    MakeEvaluate = Callable[[Config, Prepared, torch.device], Evaluate | None]

PAPER_TOKENS_PER_STEP = 25_600  # about 25,000 (section 5.1), in whole rows

Request = Config | Mapping[str, Any] | str | Path


@dataclass(frozen=True)
class TrainingResult:
    """How a training run ended; loss and BLEU on valid are those of the model in `output`."""

    output: Path
    steps: int
    stopped_by: str | None
    valid_loss: float | None
    valid_bleu: float | None
    scores: tuple[Score, ...]


def train(
    request: Request,
    *,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    make_evaluate: MakeEvaluate | None = None,
) -> TrainingResult:
    """Train a model: `request` is a YAML file, a mapping that says what differs from the defaults, or a full `Config`.

    `resume` goes on with an interrupted run in the same output directory, or starts where there is none. `overwrite`
    replaces a finished model. Returns when the budget is used, patience is lost, or Ctrl-C or SIGTERM came; a
    complete model directory is left in every case once a first validation was made. `make_evaluate` makes what scores
    the model on part of valid, if it shall not be BLEU.
    """
    from heedful.build import resolve_device
    from heedful.training.report import ConsoleReporter

    plain = as_mapping(request)
    asked = settle(plain, "base")  # every key and the device are checked before any work
    resolve_device(asked.training.device)
    output = Path(asked.output)
    check_output(output, resume=resume, overwrite=overwrite)
    console = ConsoleReporter(quiet=quiet)
    prepared = obtain_data(asked, output / "training" / "data", console)
    config = complete(plain, asked, prepared)
    console.note(describe_run(config, len(prepared.train)))
    if overwrite and not resume:  # only now: had the corpora been refused, the old run could still go on
        for name in ("states", "snapshots", "tensorboard"):
            shutil.rmtree(output / "training" / name, ignore_errors=True)
    state, reporter = open_run(config, prepared, console, resume=resume)
    try:
        loop = set_up(config, prepared, state, reporter, make_evaluate)
        loop.run()
        if loop.stopped_by is None or loop.stopped_by == "early stopping":
            loop.choose()
        if loop.best.step == 0 and not (output / "config.json").exists():  # what there is, is better than nothing
            loop.publish(loop.model.state_dict(), "last", loop.numbers())
    finally:
        reporter.close()
    scores = finish(config, prepared, loop, console)
    best = loop.best
    return TrainingResult(
        output, loop.spent.steps, loop.stopped_by, best.published_loss, best.published_bleu, tuple(scores)
    )


# ---------------------------------------------------------------------- from a request to a run


def as_mapping(request: Request) -> dict[str, Any]:
    """A request in any of its forms as plain data."""
    if isinstance(request, Config):
        return to_mapping(request)
    return dict(request) if isinstance(request, Mapping) else read_request(request)


def check_output(output: Path, *, resume: bool, overwrite: bool) -> None:
    """Never write over a model, or anything else, unasked."""
    from heedful.checkpoint import prepare_directory

    if output.exists() and not output.is_dir():
        raise ConfigError(f"{output}: the output must be a directory, and this is a file.")
    has_model, has_run = (output / "config.json").exists(), (output / "training" / "run.json").exists()
    used = has_model or any((output / "training" / "states").glob("step-*"))
    if has_model and resume and not has_run and not overwrite:
        raise ConfigError(f"{output} holds a model but no run to go on with; add --overwrite to train it anew.")
    if used and not resume and not overwrite:
        raise ConfigError(
            f"{output} already holds a model or a run; add --resume to go on with it, --overwrite to replace it, "
            f"or choose another directory with -o."
        )
    if output.exists():  # foreign files that a model would replace are refused now, not after the training
        prepare_directory(output)


def obtain_data(asked: Config, directory: Path, console: ConsoleReporter) -> Prepared:
    """Open what was prepared, or look over the corpora, show the table, and prepare them now."""
    from heedful.data.prepare import Prepared, fingerprint, is_prepared

    if asked.data.prepared is not None and asked.data.train:
        raise ConfigError(
            "data.prepared and data.train exclude each other: train from what was prepared, or from files."
        )
    if asked.data.prepared is not None:
        return Prepared.open(asked.data.prepared)
    if not asked.data.train:
        raise ConfigError("no corpus to train on: give --source and --target, or data.train in the configuration.")
    if is_prepared(directory, fingerprint(asked.data, asked.tokenizer, asked.training.seed)):
        return Prepared.open(directory)
    return prepare(asked, directory, console)


def prepare(asked: Config, directory: Path, console: ConsoleReporter) -> Prepared:
    """Preflight with its table, tokenizer, ids on disk."""
    from heedful.data.prepare import prepare as prepare_data
    from heedful.text.cleaning import plain_table, preflight, table

    with console.stages() as tell:
        found = preflight(
            asked.data, seed=asked.training.seed, progress=lambda lines: tell("looking over the corpora", lines, None)
        )
    if console.is_terminal:
        console.show(table(found.report))
    else:
        console.note(plain_table(found.report))
    with console.stages() as tell:
        prepared = prepare_data(
            asked.data, asked.tokenizer, directory, seed=asked.training.seed, found=found, progress=tell
        )
    for side, count in prepared.report["longer_than_a_row"].items():
        if count:
            console.note(f"{count:,} {side} pairs are longer than a row of {prepared.row_width} tokens and left out.")
    return prepared


def complete(plain: Mapping[str, Any], asked: Config, prepared: Prepared) -> Config:
    """The configuration with everything decided that depends on the corpora and the device."""
    from heedful.build import resolve_device

    on_gpu = resolve_device(asked.training.device).type != "cpu"
    num_pairs = len(prepared.train)
    config = settle(plain, choose_preset(num_pairs, on_gpu=on_gpu))
    tokenizer = prepared.tokenizer
    sizes: dict[str, Any] = {
        "source_vocab_size": tokenizer.source_vocab_size,
        "target_vocab_size": tokenizer.target_vocab_size,
        "max_length": max(config.model.max_length, prepared.row_width),
    }
    if not tokenizer.joint and "tying" not in (plain.get("model") or {}):
        sizes["tying"] = "target"
    model = replace(config.model, **sizes)
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
        model=model,
        training=training,
        data=replace(config.data, row_width=prepared.row_width, **languages_of(config.data, prepared)),
        tokenizer=replace(config.tokenizer, joint=tokenizer.joint, vocab_size=tokenizer.source_vocab_size),
    )


def languages_of(data: DataConfig, prepared: Prepared) -> dict[str, Any]:
    """The languages of a prepared directory whose training corpora all agree, when the request names none."""
    corpora = [corpus for corpus in prepared.report["corpora"] if corpus["role"] == "train"]
    pairs = {(corpus["source_language"], corpus["target_language"]) for corpus in corpora}
    if data.train or data.source_language or data.target_language or len(pairs) != 1:
        return {}
    source, target = pairs.pop()
    return {key: code for key, code in (("source_language", source), ("target_language", target)) if code}


def describe_run(config: Config, num_pairs: int) -> str:
    """One line about what is going to happen."""
    training = config.training
    limits = {
        "steps": training.steps,
        "epochs": training.epochs,
        "tokens": training.tokens,
        "minutes": training.minutes,
    }
    budget = " or ".join(f"{value:,.10g} {name}" for name, value in limits.items() if value)
    return f"Training a {config.preset} model on {num_pairs:,} pairs for {budget}. Ctrl-C saves; --resume goes on."


def open_run(
    config: Config, prepared: Prepared, console: ConsoleReporter, *, resume: bool
) -> tuple[TrainingState | None, Reporter]:
    """The state to go on from, if there is one, and whoever is told how the run goes: the console and the log files."""
    from heedful.training.report import FileReporter, Reporters
    from heedful.training.run_record import record_run
    from heedful.training.state import load_state

    directory = Path(config.output) / "training"
    directory.mkdir(parents=True, exist_ok=True)
    state = load_state(directory / "states", console.note) if resume else None
    record_run(directory / "run.json", config, prepared.report, resumed=state is not None)
    step = state.values["spent"]["steps"] if state is not None else 0
    return state, Reporters(
        console, FileReporter(directory, resumed_step=step, tensorboard=config.training.tensorboard)
    )


def set_up(
    config: Config,
    prepared: Prepared,
    state: TrainingState | None,
    reporter: Reporter,
    make_evaluate: MakeEvaluate | None = None,
) -> TrainingLoop:
    """Build model, stream and loop; try the largest batch; go on from the state, if there is one."""
    import torch

    from heedful.build import build_model, resolve_device
    from heedful.data.stream import BatchStream, fixed_batches, worst_batch
    from heedful.training.loop import TrainingLoop

    device, directory = resolve_device(config.training.device), Path(config.output) / "training"
    torch.manual_seed(config.training.seed)
    model = build_model(config.model).to(device)
    width = prepared.row_width
    special: dict[str, Any] = {"bos_id": prepared.tokenizer.bos_id, "pad_id": prepared.tokenizer.pad_id}
    rows = max(1, (config.training.tokens_per_step or PAPER_TOKENS_PER_STEP) // width)
    loop = TrainingLoop(
        model=model,
        stream=BatchStream(prepared.train, width=width, rows_per_step=rows, seed=config.training.seed, **special),
        valid_batches=lambda: fixed_batches(prepared.valid, width, rows, **special),
        config=config.training,
        d_model=config.model.d_model,
        device=device,
        directory=directory,
        reporter=reporter,
        publish=publisher(config, prepared, device),
        evaluate=(make_evaluate or evaluator)(config, prepared, device),
    )
    sizes = (config.model.source_vocab_size, config.model.target_vocab_size)
    remark = loop.step.try_largest(worst_batch(rows, width, *sizes))
    if remark is not None:
        reporter.note(remark)
    if state is not None:
        loop.restore(state)
        is_over = loop.stopped_by is not None or loop.budget.progress(loop.spent) >= 1
        ending = "This run was complete; raise its budget to go on" if is_over else "Going on"
        reporter.note(f"{ending} from step {loop.spent.steps}.")
    return loop


# ---------------------------------------------------------------------- what the loop is given


def publisher(config: Config, prepared: Prepared, device: torch.device) -> Publish:
    """A function that turns weights into the model directory."""
    from heedful.checkpoint import save_model

    def publish(weights: Mapping[str, torch.Tensor], kind: str, numbers: dict[str, Any]) -> None:
        details = {
            "data": prepared.report,
            "lengths": prepared.lengths,
            "training": {"weights": kind, **numbers, "device": device_name(device), "seed": config.training.seed},
        }
        save_model(config.output, weights=weights, config=config, tokenizer=prepared.tokenizer, details=details)

    return publish


def evaluator(config: Config, prepared: Prepared, device: torch.device) -> Evaluate | None:
    """A function that translates part of valid (greedily, for speed) and scores it; None if that is switched off."""
    wanted = config.training.bleu_sentences
    if not wanted or not prepared.valid_pairs:
        return None
    stride = max(1, len(prepared.valid_pairs) // wanted)
    pairs = prepared.valid_pairs[::stride][:wanted]

    def evaluate(model: nn.Module) -> Evaluation:
        from heedful.evaluation.score import score
        from heedful.training.report import Evaluation, Sample

        decoding = replace(config.decoding, method="greedy", num_best=1)
        texts = translate_pairs(model, prepared.tokenizer, pairs, decoding, device)
        references = [pair.target for pair in pairs]
        [bleu] = score(texts, references, metrics=("bleu",), target_language=config.data.target_language, bootstrap=0)
        chosen = range(0, len(pairs), max(1, len(pairs) // max(1, config.training.samples)))
        samples = [Sample(pairs[i].source, references[i], texts[i]) for i in chosen][: config.training.samples]
        return Evaluation(bleu.value, bleu.signature, tuple(samples))

    return evaluate


def translate_pairs(
    model: nn.Module,
    tokenizer: Tokenizer,
    pairs: Sequence[TrainingPair],
    decoding: DecodingConfig,
    device: torch.device,
) -> list[str]:
    """Translations of the pairs' sources, each into its own target language."""
    from heedful.decoding.translator import Translator

    translator = Translator(model, tokenizer, decoding, device=device)  # type: ignore[arg-type]
    texts = [""] * len(pairs)
    for language in {pair.target_language for pair in pairs}:
        places = [place for place, pair in enumerate(pairs) if pair.target_language == language]
        sources = [pairs[place].source for place in places]
        for place, translation in zip(places, translator.translate(sources, target_language=language), strict=True):
            texts[place] = translation.text
    return texts


def finish(config: Config, prepared: Prepared, loop: TrainingLoop, console: ConsoleReporter) -> list[Score]:
    """Score the published model on the test corpora, write the scores into its card, and say how it ended."""
    interrupted = loop.stopped_by not in (None, "early stopping")
    scores = [] if interrupted else score_test(config, prepared, loop, console)
    if interrupted:
        console.note(f"Stopped by {loop.stopped_by} at step {loop.spent.steps}; --resume goes on from here.")
    console.note(f'The model is in {config.output}. Try: heedful translate -m {config.output} "…"')
    return scores


def score_test(config: Config, prepared: Prepared, loop: TrainingLoop, console: ConsoleReporter) -> list[Score]:
    """BLEU, chrF and TER of the published model on each test corpus, by target language."""
    from heedful.checkpoint import load_model, save_model
    from heedful.evaluation.score import score

    if not prepared.test_pairs:
        return []
    loaded = load_model(config.output, device=loop.device)
    names = [corpus["name"] for corpus in prepared.report["corpora"] if corpus["role"] == "test"]
    groups: dict[tuple[int, str | None], list[TrainingPair]] = {}
    for pair in prepared.test_pairs:
        groups.setdefault((pair.corpus_index, pair.target_language), []).append(pair)
    all_scores: list[Score] = []
    plain: list[dict[str, Any]] = []
    for (index, tag), pairs in groups.items():
        name = names[index] if tag is None else f"{names[index]} into {tag}"
        console.note(f"Translating the {len(pairs):,} sentences of {name} …")
        texts = translate_pairs(loaded.model, prepared.tokenizer, pairs, config.decoding, loop.device)
        references = [pair.target for pair in pairs]
        scores = score(texts, references, target_language=tag or config.data.target_language)
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


def device_name(device: torch.device) -> str:
    """What the model was trained on, for the card."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()


# ---------------------------------------------------------------------- scoring a model


def evaluate(
    model: str | Path,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    device: str = "auto",
    target_language: str | None = None,
    **settings: Any,
) -> tuple[list[str], list[Score]]:
    """Translate sources with a model directory and score the translations; `settings` as for `Translator.translate`."""
    from heedful.decoding.translator import Translator
    from heedful.evaluation.score import score

    if len(sources) != len(references):
        raise CorpusError(f"{len(sources)} sources but {len(references)} references; they must be line by line.")
    translator = Translator.load(model, device=device)
    translations = translator.translate(sources, target_language=target_language, **settings)
    texts = [translation.text for translation in translations]
    return texts, score(texts, references, target_language=target_language or translator.target_language)
