"""The whole path on one page: corpora → rows → model → training → model directory → scores; what the verbs do.

Here the parts meet that do not know each other: `training` is given a way to translate, `decoding` a trained model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.config import Config, DataConfig
from heedful.config_loading import read_request, settle, to_mapping
from heedful.directory_lock import lock_directory
from heedful.errors import ConfigError
from heedful.extras import VERB_PACKAGES, require
from heedful.fine_tuning import Start, agree_on_start, known_directions
from heedful.run_plan import Beside, Corpora, describe_run, fitted, rows_per_step
from heedful.validation_bleu import Examined, evaluator, examine, on_whole_model, store_alignment

if TYPE_CHECKING:
    import torch

    from heedful.console import Console
    from heedful.data.prepare import Prepared, Shuffle
    from heedful.evaluation.score import Score
    from heedful.training.checkpoint import TrainingState
    from heedful.training.distributed import World
    from heedful.training.logging import ConsoleReporter, FirstStep, Reporter, StartupTimer
    from heedful.training.loop import Publish, TrainingLoop
    from heedful.training.validation import ValidationWork
    from heedful.validation_bleu import MakeEvaluate


Request = Config | Mapping[str, Any] | str | Path


@dataclass(frozen=True)
class TrainingResult:
    """How a training run ended; loss and score on valid are those of the model in `output`."""

    output: Path
    steps: int
    stopped_by: str | None
    valid_loss: float | None
    valid_bleu: float | None
    """BLEU, or the score that `valid_score_name` names."""
    scores: tuple[Score, ...]
    valid_score_name: str = "BLEU"
    first_step: FirstStep | None = None
    """How long the first update took to come, and why; None if there was none to make."""
    is_start: bool = False
    """Whether the model in `output` is the one of `training.init_from` as it was, because nothing became better."""


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
    the model on part of valid, if it shall not be BLEU. Under torchrun every rank calls this; ranks that it started
    again go on from the last saved state.
    """
    require(VERB_PACKAGES["train"])
    from heedful.training.logging import StartupTimer

    startup_timer = StartupTimer("starting torch")
    plain = as_mapping(request)
    asked = settle(plain, "base")  # every key and the device are checked before any work
    from heedful.training.distributed import init_distributed, was_restarted
    from heedful.training.logging import ConsoleReporter

    world = init_distributed(asked.training.device)
    console = ConsoleReporter(quiet=quiet or not world.is_rank0)
    with world.process_group(), ExitStack() as held:
        if world.all_reduce_max([was_restarted()])[0]:
            resume, overwrite = True, False
        start = agree_on_start(plain, asked, world, is_whole=isinstance(request, Config))
        if start is not None:
            plain = start.laid_over(plain)
            asked = settle(plain, "base")
        if world.is_rank0:
            held.enter_context(lock_directory(asked.output))
        config, prepared = begin(plain, asked, world, console, startup_timer, start, resume=resume, overwrite=overwrite)
        loop = run(config, prepared, world, console, startup_timer, start, resume=resume, make_evaluate=make_evaluate)
        locks = held.pop_all()
    examined = Examined([], loop.best.published_bleu)
    with locks:
        if world.is_rank0:
            examined = finish(config, prepared, loop, console, is_usual=make_evaluate is None)
    best = loop.best
    return TrainingResult(
        output=Path(config.output),
        steps=loop.spent.steps,
        stopped_by=loop.stopped_by,
        valid_loss=best.published_loss,
        valid_bleu=examined.valid_score,
        valid_score_name=best.published_score_name,
        scores=tuple(examined.scores),
        first_step=startup_timer.first_step,
        is_start=best.is_start,
    )


def begin(
    plain: Mapping[str, Any],
    asked: Config,
    world: World,
    console: Console,
    startup_timer: StartupTimer,
    start: Start | None = None,
    *,
    resume: bool,
    overwrite: bool,
) -> tuple[Config, Prepared]:
    """Check the output, obtain the data (the others open what the first rank wrote), decide what was left open."""
    from heedful.data.prepare import Prepared
    from heedful.training.checkpoint import remove_run
    from heedful.training.compile_cache import is_compiled, set_cache_directories
    from heedful.training.precompile import Background

    world.require_equal(world.device.type, "{ranks} and rank 0 have different devices; set --device cuda or cpu.")
    world.require_equal(
        json.dumps(plain, default=str), "{ranks} and rank 0 have different settings; start all ranks alike."
    )
    output = Path(asked.output)
    data = output / "training" / "data"
    world.on_rank0(lambda: check_output(output, resume=resume, overwrite=overwrite))
    if is_compiled(asked.training, on_gpu=world.device.type == "cuda") and (remark := set_cache_directories()):
        console.note(remark)
    startup_timer.enter("opening the corpora")
    with Background(asked.training, world.device, alone=world.size == 1) as background:
        beside = Beside(plain, asked, startup_timer, background)
        prepared = world.on_rank0(lambda: obtain_data(asked, data, console, beside)) or Prepared.open(
            asked.data.prepared or data
        )
        if background.is_compiled:
            startup_timer.enter("starting the device" if background.compiler is None else "waiting for the compiler")
    startup_timer.enter("building the model")
    if start is not None:
        start.check_tokenizer(prepared.tokenizer, asked.data.prepared)
    config = complete(plain, asked, prepared)
    world.require_equal(
        describe_data(config, prepared), "{ranks} and rank 0 have different prepared corpora; copy the directory."
    )
    console.note(describe_run(config, len(prepared.train), world.size, start.beginning if start is not None else None))
    if overwrite and not resume:  # only now: had the corpora been refused, the old run could still go on
        world.on_rank0(lambda: remove_run(output / "training"))
    return config, prepared


def run(
    config: Config,
    prepared: Prepared,
    world: World,
    console: ConsoleReporter,
    startup_timer: StartupTimer,
    start: Start | None = None,
    *,
    resume: bool,
    make_evaluate: MakeEvaluate | None = None,
) -> TrainingLoop:
    """Train until the budget is used or something stops it; a model stands in the output in every case."""
    state, reporter = open_run(config, prepared, console, resume=resume, world=world, start=start)
    try:
        loop = set_up(config, prepared, state, reporter, world, make_evaluate, startup_timer, start)
        loop.run()
        is_over = loop.stopped_by is None or loop.stopped_by == "early stopping"
        if is_over:
            loop.choose()
        if loop.best.step == 0 and not world.broadcast((Path(config.output) / "config.json").exists()):
            loop.publish_model("last")  # what there is, is better than nothing
        if start is not None and (remark := start.compare(loop.best, config, is_over=is_over)) is not None:
            reporter.note(remark)
        world.barrier()
    except OSError as error:
        error.filename = error.filename or str(Path(config.output) / "training")
        error.add_note("What was saved before is intact: once there is space, run the same command with --resume.")
        raise
    finally:
        with suppress(OSError):
            reporter.close()
    return loop


# ---------------------------------------------------------------------- from a request to a run


def as_mapping(request: Request) -> dict[str, Any]:
    """A request in any of its forms as plain data."""
    if isinstance(request, Config):
        return to_mapping(request)
    return dict(request) if isinstance(request, Mapping) else read_request(request)


def check_output(output: Path, *, resume: bool, overwrite: bool) -> None:
    """Never write over a model, or anything else, unasked."""
    from heedful.model_dir import prepare_directory

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


def obtain_data(asked: Config, directory: Path, console: Console, beside: Beside | None = None) -> Prepared:
    """Open what was prepared, or look over the corpora, show the table, and prepare them now."""
    prepared = open_or_prepare(asked, directory, console, beside)
    arrange_rows(asked.data.shuffle, prepared, console)
    return prepared


def open_or_prepare(asked: Config, directory: Path, console: Console, beside: Beside | None = None) -> Prepared:
    """What was prepared before, here or in `data.prepared`, or else is prepared now."""
    from heedful.data.prepare import Prepared, is_prepared, prepared_fingerprint

    if asked.data.prepared is not None and asked.data.train:
        raise ConfigError(
            "data.prepared and data.train exclude each other: train from what was prepared, or from files."
        )
    if asked.data.prepared is not None:
        return Prepared.open(asked.data.prepared)
    if not asked.data.train:
        raise ConfigError("no corpus to train on: give --source and --target, or data.train in the configuration.")
    if is_prepared(directory, prepared_fingerprint(asked.data, asked.tokenizer, asked.training.seed)):
        return Prepared.open(directory)
    return prepare(asked, directory, console, beside)


def describe_data(config: Config, prepared: Prepared) -> str:
    """All that decides which batches a rank will see."""
    models = [path.read_bytes().hex() for path in sorted(prepared.directory.glob("*.model"))]
    return json.dumps([to_mapping(config), len(prepared.train), prepared.row_width, prepared.lengths, models])


def prepare(asked: Config, directory: Path, console: Console, beside: Beside | None = None) -> Prepared:
    """Preflight with its table, tokenizer, ids on disk; `beside` is told what becomes known on the way."""
    from heedful.data.prepare import prepare as prepare_data
    from heedful.text.preflight import plain_table, preflight, table

    if beside is not None:
        beside.begin()
    with console.stages() as tell:
        found = preflight(
            asked.data,
            seed=asked.training.seed,
            progress=lambda lines: tell("scanning the corpora", lines, None),
            known=known_directions(asked),
        )
    if console.is_terminal:
        console.show(table(found.report))
    else:
        console.note(plain_table(found.report))
    with console.stages() as tell:
        prepared = prepare_data(
            asked.data,
            asked.tokenizer,
            directory,
            seed=asked.training.seed,
            checked=found,
            progress=tell if beside is None else beside.timed(tell),
            on_tokenizer=None if beside is None else beside.foresee(found),
        )
    for side, count in prepared.report["longer_than_a_row"].items():
        if count:
            console.note(f"{count:,} {side} pairs are longer than a row of {prepared.row_width} tokens and left out.")
    return prepared


def arrange_rows(order: Shuffle | None, prepared: Prepared, console: Console) -> None:
    """Make the rows that the order `blocks` needs, if it is this one and preparing has not made them."""
    from heedful.data.prepare import resolve_shuffle

    if resolve_shuffle(order, len(prepared.train)) == "blocks":
        with console.stages() as tell:
            prepared.prepack(tell)


def complete(plain: Mapping[str, Any], asked: Config, prepared: Prepared) -> Config:
    """The configuration with everything decided that depends on the corpora and the device."""
    from heedful.build_model import resolve_device
    from heedful.data.prepare import resolve_shuffle

    on_gpu = resolve_device(asked.training.device).type != "cpu"
    num_pairs, tokenizer = len(prepared.train), prepared.tokenizer
    config = fitted(plain, Corpora.of(num_pairs, tokenizer, prepared.row_width), on_gpu=on_gpu)
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
        training=training,
        data=replace(
            config.data,
            row_width=prepared.row_width,
            shuffle=resolve_shuffle(config.data.shuffle, num_pairs),
            **languages_of(config.data, prepared),
        ),
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


def open_run(
    config: Config,
    prepared: Prepared,
    console: ConsoleReporter,
    *,
    resume: bool,
    world: World | None = None,
    start: Start | None = None,
) -> tuple[TrainingState | None, Reporter]:
    """The state to go on from, if there is one, and whoever is told how the run goes: the console and the log files."""
    from heedful.build_model import resolve_device
    from heedful.training.checkpoint import load_state, record_run
    from heedful.training.distributed import World
    from heedful.training.logging import FileReporter, Reporters

    world = world or World(resolve_device(config.training.device))
    directory = Path(config.output) / "training"
    directory.mkdir(parents=True, exist_ok=True)
    state = load_state(directory / "states", console.note, world) if resume else None
    record = directory / "run.json"
    identity = None if start is None else start.identity
    world.on_rank0(lambda: record_run(record, config, prepared.report, resumed=state is not None, start=identity))
    world.require_equal(
        record.read_text("utf-8") if record.exists() else "",
        f"{{ranks}} cannot see {record}; the output must be on a file system that all machines share.",
    )
    if not world.is_rank0:
        return state, Reporters()
    step = state.values["spent"]["steps"] if state is not None else None
    tensorboard = config.training.tensorboard
    files = FileReporter(directory, resumed_step=step, tensorboard=tensorboard, note=console.note)
    return state, Reporters(console, files)


def set_up(
    config: Config,
    prepared: Prepared,
    state: TrainingState | None,
    reporter: Reporter,
    world: World | None = None,
    make_evaluate: MakeEvaluate | None = None,
    startup_timer: StartupTimer | None = None,
    start: Start | None = None,
) -> TrainingLoop:
    """Build model, stream and loop; try the largest batch; go on from the state if there is one, else from `start`."""
    from heedful.build_model import resolve_device
    from heedful.data.batch_stream import BatchStream, fixed_batches, worst_batch
    from heedful.training.distributed import World
    from heedful.training.logging import StartupTimer
    from heedful.training.loop import TrainingLoop
    from heedful.training.model_setup import set_up_model

    world = world or World(resolve_device(config.training.device))
    width = prepared.row_width
    special: dict[str, Any] = {"bos_id": prepared.tokenizer.bos_id, "pad_id": prepared.tokenizer.pad_id}
    special.update(rank=world.rank, world_size=world.size)
    rows, watch = rows_per_step(config, width), startup_timer or StartupTimer("building the model")
    prepacked = prepared.open_prepacked() if config.data.shuffle == "blocks" else None
    order: dict[str, Any] = {"seed": config.training.seed, "prepacked": prepacked}
    weights = start.weights() if start is not None and state is None else None
    loop = TrainingLoop(
        model=set_up_model(config, world, reporter, weights),
        stream=BatchStream(prepared.train, width=width, rows_per_step=rows, **order, **special),
        valid_batches=lambda: fixed_batches(prepared.valid, width, rows, **special),
        config=config.training,
        d_model=config.model.d_model,
        world=world,
        directory=Path(config.output) / "training",
        reporter=reporter,
        publish=publisher(config, prepared, world, watch, start),
        validation_work=validation_work(config, prepared),
        evaluate=on_whole_model((make_evaluate or evaluator)(config, prepared, world.device), config, world),
    )
    loop.startup_timer = startup_timer
    watch.enter("compiling and trying the largest batch")
    sizes = (config.model.source_vocab_size, config.model.target_vocab_size)
    remark = loop.step.try_largest_batch(worst_batch(loop.stream.num_rows, width, *sizes))
    if remark is not None:
        reporter.note(remark)
    watch.enter("first update" if weights is None else "looking at valid")
    if state is not None:
        loop.restore(state)
        is_over = loop.stopped_by is not None or loop.budget.progress(loop.spent) >= 1
        ending = "This run was complete; raise its budget to go on" if is_over else "Going on"
        reporter.note(f"{ending} from step {loop.spent.steps}.")
    return loop


# ---------------------------------------------------------------------- what the loop is given


def validation_work(config: Config, prepared: Prepared) -> ValidationWork:
    """How much one validation has to do."""
    from heedful.training.validation import ValidationWork

    tokens = prepared.valid.target.num_tokens
    share = min(1.0, config.training.num_bleu_sentences / max(1, len(prepared.valid)))
    return ValidationWork(tokens, round(tokens * share))


def publisher(
    config: Config, prepared: Prepared, world: World, startup_timer: StartupTimer, start: Start | None = None
) -> Publish:
    """A function that turns weights into the model directory."""
    from heedful.model_dir import save_model

    def publish(weights: Mapping[str, torch.Tensor], kind: str, numbers: dict[str, Any]) -> None:
        device = f"{world.size} × {device_name(world.device)}" if world.size > 1 else device_name(world.device)
        training = {"weights": kind, **numbers, "device": device, "seed": config.training.seed}
        training |= {} if start is None else start.details()
        if startup_timer.first_step is not None:
            training["first_step"] = vars(startup_timer.first_step)
        lengths = prepared.lengths if start is None else start.with_long(prepared.lengths)
        details = {"data": prepared.report, "lengths": lengths, "training": training}
        save_model(config.output, weights=weights, config=config, tokenizer=prepared.tokenizer, details=details)

    return publish


def finish(config: Config, prepared: Prepared, loop: TrainingLoop, console: Console, *, is_usual: bool) -> Examined:
    """Choose what aligns the published model, score it with the engine that translates, write both into it.

    `is_usual`: valid was scored as usual, so that the engine can be compared by that score.
    """
    examined = Examined([], loop.best.published_bleu)
    interrupted = loop.stopped_by not in (None, "early stopping")
    loop.step.release_graph()
    store_alignment(config, prepared, loop.device)
    if interrupted:
        console.note(f"Stopped by {loop.stopped_by} at step {loop.spent.steps}; --resume goes on from here.")
    else:
        float32 = loop.best.published_bleu if is_usual and config.training.num_bleu_sentences else None
        try:
            found = examine(
                config,
                prepared,
                loop.device,
                console,
                valid_score=float32,
                score_name=loop.best.published_score_name,
            )
        except KeyboardInterrupt:
            console.note(
                f"Stopped while the finished model was scored. The model in {config.output} is complete and saved; "
                f"only its scores are missing: heedful evaluate -m {config.output} --source … --target … computes them."
            )
            raise
        examined = found if float32 is not None else examined._replace(scores=found.scores)
    console.note(f'The model is in {config.output}. Try: heedful translate -m {config.output} "…"')
    return examined


def device_name(device: torch.device) -> str:
    """What the model was trained on, for the card."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
