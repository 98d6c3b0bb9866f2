"""Training from start to end: corpora → rows → model → training → model directory → scores.

This module connects packages that do not import each other: `training` receives a function that translates and scores.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.config import Config
from heedful.config_loading import build_config, read_request, to_mapping
from heedful.directory_lock import lock_directory
from heedful.errors import ConfigError
from heedful.extras import VERB_PACKAGES, require
from heedful.fine_tuning import InitialModel, known_directions, share_initial_model
from heedful.language_modelling import finish_language_model, make_masking, perplexity_report, require_kind
from heedful.run_plan import PreparationObserver, describe_run, resolve_config, rows_per_step
from heedful.validation_bleu import (
    FinalScores,
    evaluate_gathered,
    make_bleu_evaluator,
    score_published_model,
    store_alignment,
)

if TYPE_CHECKING:
    import torch

    from heedful.console import Console
    from heedful.data.batch_stream import BatchStream
    from heedful.data.packing import Batch
    from heedful.data.prepare import Prepared, Shuffle
    from heedful.evaluation.score import Score
    from heedful.training.checkpoint import TrainingState
    from heedful.training.distributed import World
    from heedful.training.logging import ConsoleReporter, FirstStep, Reporter, StartupTimer
    from heedful.training.loop import Publish, TrainingLoop
    from heedful.training.validation import ValidationWork
    from heedful.validation_bleu import MakeEvaluator


Request = Config | Mapping[str, Any] | str | Path


@dataclass(frozen=True)
class TrainingResult:
    """The result of a training run; loss and score on valid are those of the model in `output`."""

    output: Path
    steps: int
    stopped_by: str | None
    valid_loss: float | None
    valid_bleu: float | None
    """BLEU, or the score that `valid_score_name` names."""
    scores: tuple[Score, ...]
    valid_score_name: str = "BLEU"
    first_step: FirstStep | None = None
    """Time until the first update, by stage; None if there was no update."""
    is_initial_model: bool = False
    """Whether the model in `output` is that of `training.init_from`, unchanged, because no update improved it."""


def train(
    request: Request,
    *,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    make_evaluator: MakeEvaluator | None = None,
    score_test: bool = True,
) -> TrainingResult:
    """Train a model. `request` is a YAML file, a mapping of what differs from the defaults, or a complete `Config`.

    `resume` continues an interrupted run in the same output directory, or starts one. `overwrite` replaces a finished
    model. Returns when the budget is used, patience runs out, or SIGINT or SIGTERM arrives; after the first validation
    there is always a complete model directory. `make_evaluator` replaces BLEU as the score on part of valid.
    `score_test`: translate and score the test corpora with the finished model. Under torchrun every rank calls this
    function; restarted ranks resume from the last checkpoint.
    """
    require(VERB_PACKAGES["train"])
    from heedful.training.logging import StartupTimer

    startup_timer = StartupTimer("starting torch")
    is_complete = isinstance(request, Config)
    request = as_mapping(request)
    config = build_config(request, "base")  # check all keys and the device before any work
    from heedful.training.distributed import init_distributed, was_restarted
    from heedful.training.logging import ConsoleReporter

    world = init_distributed(config.training.device)
    console = ConsoleReporter(quiet=quiet or not world.is_rank0)
    with world.process_group(), ExitStack() as stack:
        if world.all_reduce_max([was_restarted()])[0]:
            resume, overwrite = True, False
        initial_model = share_initial_model(request, config, world, is_complete=is_complete)
        if initial_model is not None:
            request = initial_model.apply_to(request)
            config = build_config(request, "base")
        if world.is_rank0:
            stack.enter_context(lock_directory(config.output))
        config, prepared = prepare_run(
            request, config, world, console, startup_timer, initial_model, resume=resume, overwrite=overwrite
        )
        loop = run_training(
            config,
            prepared,
            world,
            console,
            startup_timer,
            initial_model,
            resume=resume,
            make_evaluator=make_evaluator,
        )
        output_lock = stack.pop_all()
    scores = FinalScores([], loop.best.published_bleu)
    with output_lock:
        if world.is_rank0:
            scores = finish_run(
                config, prepared, loop, console, compare_int8=make_evaluator is None, score_test=score_test
            )
    best = loop.best
    return TrainingResult(
        output=Path(config.output),
        steps=loop.progress.steps,
        stopped_by=loop.stopped_by,
        valid_loss=best.published_loss,
        valid_bleu=scores.valid_score,
        valid_score_name=best.published_score_name,
        scores=tuple(scores.test_scores),
        first_step=startup_timer.first_step,
        is_initial_model=best.is_initial,
    )


def prepare_run(
    request: Mapping[str, Any],
    config: Config,
    world: World,
    console: Console,
    startup_timer: StartupTimer,
    initial_model: InitialModel | None = None,
    *,
    resume: bool,
    overwrite: bool,
) -> tuple[Config, Prepared]:
    """Check the output directory, prepare or open the data, and resolve the configuration.

    Rank 0 prepares the data; the other ranks open what it wrote.
    """
    from heedful.data.prepare import Prepared
    from heedful.training.checkpoint import remove_run
    from heedful.training.compile_cache import is_compiled, set_cache_directories
    from heedful.training.precompile import Background

    world.require_equal(world.device.type, "{ranks} and rank 0 have different devices; set --device cuda or cpu.")
    world.require_equal(
        json.dumps(request, default=str), "{ranks} and rank 0 have different settings; start all ranks alike."
    )
    output = Path(config.output)
    data_directory = output / "training" / "data"
    world.on_rank0(lambda: check_output(output, resume=resume, overwrite=overwrite))
    if is_compiled(config.training, on_gpu=world.device.type == "cuda") and (remark := set_cache_directories()):
        console.note(remark)
    startup_timer.enter("opening the corpora")
    with Background(config.training, world.device, single_rank=world.size == 1) as background:
        observer = PreparationObserver(request, config, startup_timer, background)
        prepared = world.on_rank0(lambda: load_data(config, data_directory, console, observer)) or Prepared.open(
            config.data.prepared or data_directory
        )
        if background.is_compiled:
            startup_timer.enter("starting the device" if background.compiler is None else "waiting for the compiler")
    startup_timer.enter("building the model")
    if initial_model is not None:
        initial_model.check_tokenizer(prepared.tokenizer, config.data.prepared)
    resolved = resolve_config(request, config, prepared)
    world.require_equal(
        data_fingerprint(resolved, prepared), "{ranks} and rank 0 have different prepared corpora; copy the directory."
    )
    description = None if initial_model is None else initial_model.description
    console.note(describe_run(resolved, len(prepared.train), world.size, description))
    if overwrite and not resume:  # not earlier: if the corpora are refused, the old run can still be resumed
        world.on_rank0(lambda: remove_run(output / "training"))
    return resolved, prepared


def run_training(
    config: Config,
    prepared: Prepared,
    world: World,
    console: ConsoleReporter,
    startup_timer: StartupTimer,
    initial_model: InitialModel | None = None,
    *,
    resume: bool,
    make_evaluator: MakeEvaluator | None = None,
) -> TrainingLoop:
    """Train until the budget is used or the run is stopped, and publish a model in every case."""
    state, reporter = open_run(config, prepared, console, resume=resume, world=world, initial_model=initial_model)
    try:
        loop = build_loop(config, prepared, state, reporter, world, make_evaluator, startup_timer, initial_model)
        loop.run()
        is_over = loop.stopped_by is None or loop.stopped_by == "early stopping"
        if is_over:
            loop.publish_final_weights()
        if loop.best.step == 0 and not world.broadcast((Path(config.output) / "config.json").exists()):
            loop.publish_model("last")  # interrupted before the first validation
        if initial_model is not None:
            remark = initial_model.compare(loop.best, config, is_over=is_over)
            if remark is not None:
                reporter.note(remark)
        world.barrier()
    except OSError as error:
        error.filename = error.filename or str(Path(config.output) / "training")
        error.add_note("Earlier checkpoints are intact. Free some space and run the same command with --resume.")
        raise
    finally:
        with suppress(OSError):
            reporter.close()
    return loop


# ---------------------------------------------------------------------- data


def as_mapping(request: Request) -> dict[str, Any]:
    """A request of any type as a mapping."""
    if isinstance(request, Config):
        return to_mapping(request)
    return dict(request) if isinstance(request, Mapping) else read_request(request)


def check_output(output: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse to overwrite a model, or other files, unless asked to."""
    from heedful.model_dir import prepare_directory

    if output.exists() and not output.is_dir():
        raise ConfigError(f"{output}: the output must be a directory, but it is a file.")
    has_model, has_run = (output / "config.json").exists(), (output / "training" / "run.json").exists()
    is_used = has_model or any((output / "training" / "states").glob("step-*"))
    if has_model and resume and not has_run and not overwrite:
        raise ConfigError(f"{output} holds a model but no run to resume; add --overwrite to train it again.")
    if is_used and not resume and not overwrite:
        raise ConfigError(
            f"{output} already holds a model or a run; add --resume to continue it, --overwrite to replace it, "
            f"or choose another directory with -o."
        )
    if output.exists():  # refuse foreign files now, not after the training
        prepare_directory(output)


def load_data(
    config: Config, directory: Path, console: Console, observer: PreparationObserver | None = None
) -> Prepared:
    """Open prepared data, or prepare the corpora now."""
    prepared = open_or_prepare_data(config, directory, console, observer)
    prepack_rows(config.data.shuffle, prepared, console)
    return prepared


def open_or_prepare_data(
    config: Config, directory: Path, console: Console, observer: PreparationObserver | None = None
) -> Prepared:
    """Open the data of `data.prepared` or of an earlier run; otherwise prepare the corpora."""
    from heedful.data.prepare import Prepared, is_prepared, prepared_fingerprint

    if config.data.prepared is not None and config.data.train:
        raise ConfigError("data.prepared and data.train exclude each other: train from prepared data, or from files.")
    if config.data.prepared is not None:
        prepared = Prepared.open(config.data.prepared)
        require_kind(config, prepared)
        return prepared
    if not config.data.train:
        files = "--text" if config.model.is_language_model else "--source and --target"
        raise ConfigError(f"no corpus to train on: give {files}, or data.train in the configuration.")
    if is_prepared(directory, prepared_fingerprint(config.data, config.tokenizer, config.training.seed)):
        return Prepared.open(directory)
    return prepare_corpora(config, directory, console, observer)


def data_fingerprint(config: Config, prepared: Prepared) -> str:
    """A text that is equal on two ranks if they will see the same batches."""
    models = [path.read_bytes().hex() for path in sorted(prepared.directory.glob("*.model"))]
    return json.dumps([to_mapping(config), len(prepared.train), prepared.row_width, prepared.lengths, models])


def prepare_corpora(
    config: Config, directory: Path, console: Console, observer: PreparationObserver | None = None
) -> Prepared:
    """Scan the corpora and show the report, train the tokenizer, and write the tokenised pairs."""
    from heedful.data.prepare import prepare
    from heedful.text.preflight import plain_table, preflight, table

    if observer is not None:
        observer.started()
    with console.stages() as progress:
        found = preflight(
            config.data,
            seed=config.training.seed,
            progress=lambda num_lines: progress("scanning the corpora", num_lines, None),
            known=known_directions(config),
        )
    if console.is_terminal:
        console.show(table(found.report))
    else:
        console.note(plain_table(found.report))
    with console.stages() as progress:
        prepared = prepare(
            config.data,
            config.tokenizer,
            directory,
            seed=config.training.seed,
            checked=found,
            progress=progress if observer is None else observer.timed(progress),
            on_tokenizer=None if observer is None else observer.scanned(found),
        )
    unit = "lines" if config.data.train[0].text else "pairs"
    for side, count in prepared.report["longer_than_a_row"].items():
        if count:
            console.note(
                f"{count:,} {side} {unit} are longer than a row of {prepared.row_width} tokens and are dropped."
            )
    return prepared


def prepack_rows(shuffle: Shuffle | None, prepared: Prepared, console: Console) -> None:
    """Write prepacked rows if the shuffle is `blocks` and they do not exist yet."""
    from heedful.data.prepare import resolve_shuffle

    if resolve_shuffle(shuffle, len(prepared.train)) == "blocks":
        with console.stages() as progress:
            prepared.prepack(progress)


# ---------------------------------------------------------------------- the loop and what it is given


def open_run(
    config: Config,
    prepared: Prepared,
    console: ConsoleReporter,
    *,
    resume: bool,
    world: World | None = None,
    initial_model: InitialModel | None = None,
) -> tuple[TrainingState | None, Reporter]:
    """The checkpoint to resume from, if any, and the reporters for the console and the log files."""
    from heedful.build_model import resolve_device
    from heedful.training.checkpoint import load_state, record_run
    from heedful.training.distributed import World
    from heedful.training.logging import FileReporter, Reporters

    world = world or World(resolve_device(config.training.device))
    directory = Path(config.output) / "training"
    directory.mkdir(parents=True, exist_ok=True)
    state = load_state(directory / "states", console.note, world) if resume else None
    path = directory / "run.json"
    identity = None if initial_model is None else initial_model.identity
    world.on_rank0(lambda: record_run(path, config, prepared.report, resumed=state is not None, initial_model=identity))
    world.require_equal(
        path.read_text("utf-8") if path.exists() else "",
        f"{{ranks}} cannot see {path}; the output must be on a file system that all machines share.",
    )
    if not world.is_rank0:
        return state, Reporters()
    resumed_step = state.values["progress"]["steps"] if state is not None else None
    tensorboard = config.training.tensorboard
    files = FileReporter(directory, resumed_step=resumed_step, tensorboard=tensorboard, note=console.note)
    return state, Reporters(console, files)


def build_loop(
    config: Config,
    prepared: Prepared,
    state: TrainingState | None,
    reporter: Reporter,
    world: World | None = None,
    make_evaluator: MakeEvaluator | None = None,
    startup_timer: StartupTimer | None = None,
    initial_model: InitialModel | None = None,
) -> TrainingLoop:
    """Build model, batch stream and loop, try the largest batch, and restore the checkpoint if there is one."""
    from heedful.build_model import resolve_device
    from heedful.data.batch_stream import worst_batch
    from heedful.training.distributed import World
    from heedful.training.logging import StartupTimer
    from heedful.training.loop import TrainingLoop
    from heedful.training.model_setup import set_up_model

    world = world or World(resolve_device(config.training.device))
    timer = startup_timer or StartupTimer("building the model")
    weights = initial_model.weights() if initial_model is not None and state is None else None
    evaluator = (make_evaluator or make_bleu_evaluator)(config, prepared, world.device)
    loop = TrainingLoop(
        model=set_up_model(config, world, reporter, weights),
        stream=build_stream(config, prepared, world),
        valid_batches=valid_batches(config, prepared, world),
        config=config.training,
        d_model=config.model.d_model,
        world=world,
        directory=Path(config.output) / "training",
        reporter=reporter,
        publish=make_publisher(config, prepared, world, timer, initial_model),
        validation_work=validation_work(config, prepared),
        evaluate=evaluate_gathered(evaluator, config, world),
        perplexity=perplexity_report(config, prepared),
    )
    loop.startup_timer = startup_timer
    timer.enter("compiling and trying the largest batch")
    vocab_sizes = (config.model.source_vocab_size, config.model.target_vocab_size)
    remark = loop.step.try_largest_batch(worst_batch(loop.stream.num_rows, prepared.row_width, *vocab_sizes))
    if remark is not None:
        reporter.note(remark)
    timer.enter("first update" if weights is None else "validating the initial model")
    if state is not None:
        loop.restore(state)
        is_over = loop.stopped_by is not None or loop.budget.fraction_used(loop.progress) >= 1
        reporter.note(
            f"This run was complete at step {loop.progress.steps}; increase its budget to continue."
            if is_over
            else f"Resuming from step {loop.progress.steps}."
        )
    return loop


def build_stream(config: Config, prepared: Prepared, world: World) -> BatchStream:
    """The training batches of this rank."""
    from heedful.data.batch_stream import BatchStream

    return BatchStream(
        prepared.train,
        width=prepared.row_width,
        rows_per_step=rows_per_step(config, prepared.row_width),
        seed=config.training.seed,
        prepacked=prepared.open_prepacked() if config.data.shuffle == "blocks" else None,
        masking=make_masking(config, prepared),
        bos_id=prepared.tokenizer.bos_id,
        pad_id=prepared.tokenizer.pad_id,
        rank=world.rank,
        world_size=world.size,
    )


def valid_batches(config: Config, prepared: Prepared, world: World) -> Callable[[], Iterator[Batch]]:
    """A function that returns the validation batches of this rank, always the same."""
    from heedful.data.batch_stream import fixed_batches

    masking = make_masking(config, prepared)
    return lambda: fixed_batches(
        prepared.valid,
        prepared.row_width,
        rows_per_step(config, prepared.row_width),
        bos_id=prepared.tokenizer.bos_id,
        pad_id=prepared.tokenizer.pad_id,
        rank=world.rank,
        world_size=world.size,
        masking=masking,
    )


def validation_work(config: Config, prepared: Prepared) -> ValidationWork:
    """The work of one validation."""
    from heedful.training.validation import ValidationWork

    num_tokens = prepared.valid.target.num_tokens
    translated_share = min(1.0, config.training.num_bleu_sentences / max(1, len(prepared.valid)))
    return ValidationWork(num_tokens, round(num_tokens * translated_share))


def make_publisher(
    config: Config,
    prepared: Prepared,
    world: World,
    startup_timer: StartupTimer,
    initial_model: InitialModel | None = None,
) -> Publish:
    """A function that writes weights as the model directory, or as another one without the time of the start."""
    from heedful.model_dir import save_model

    def publish(
        weights: Mapping[str, torch.Tensor], kind: str, summary: dict[str, Any], directory: Path | None = None
    ) -> None:
        device = f"{world.size} × {device_name(world.device)}" if world.size > 1 else device_name(world.device)
        training = {"weights": kind, **summary, "device": device, "seed": config.training.seed}
        lengths: Mapping[str, float] = prepared.lengths
        if initial_model is not None:
            training |= initial_model.details()
            lengths = initial_model.merge_lengths(lengths)
        if startup_timer.first_step is not None and directory is None:
            training["first_step"] = vars(startup_timer.first_step)
        details = {"data": prepared.report, "lengths": lengths, "training": training}
        save_model(
            directory or config.output, weights=weights, config=config, tokenizer=prepared.tokenizer, details=details
        )

    return publish


# ---------------------------------------------------------------------- after training


def finish_run(
    config: Config,
    prepared: Prepared,
    loop: TrainingLoop,
    console: Console,
    *,
    compare_int8: bool,
    score_test: bool,
) -> FinalScores:
    """Choose the alignment head of the published model and score it with the engine that translates.

    `compare_int8`: compare the engine's score on valid with that of training; needs the default evaluator.
    `score_test`: score the test corpora too.
    """
    scores = FinalScores([], loop.best.published_bleu)
    loop.step.release_graph()
    if config.model.is_language_model:
        finish_language_model(config, prepared, loop, console)
        return scores
    store_alignment(config, prepared, loop.device)
    if loop.stopped_by not in (None, "early stopping"):
        console.note(f"Stopped by {loop.stopped_by} at step {loop.progress.steps}; --resume continues from here.")
    else:
        has_bleu = compare_int8 and config.training.num_bleu_sentences
        float32_score = loop.best.published_bleu if has_bleu else None
        try:
            found = score_published_model(
                config,
                prepared,
                loop.device,
                console,
                valid_score=float32_score,
                score_name=loop.best.published_score_name,
                score_test=score_test,
            )
        except KeyboardInterrupt:
            console.note(
                f"Interrupted while scoring the finished model. The model in {config.output} is complete and saved; "
                f"only its scores are missing: heedful evaluate -m {config.output} --source … --target … computes them."
            )
            raise
        scores = found if float32_score is not None else scores._replace(test_scores=found.test_scores)
    console.note(f'The model is in {config.output}. Try: heedful translate -m {config.output} "…"')
    return scores


def device_name(device: torch.device) -> str:
    """The name of the device, for the model card."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
