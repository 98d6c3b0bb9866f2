"""The training loop: update on each batch, validate, publish the best model, save checkpoints, stop."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from safetensors.torch import save_file
from torch import nn

from heedful.atomic_files import rename_durably
from heedful.config import TrainingConfig
from heedful.data.batch_stream import BatchStream, Position, prefetch
from heedful.data.packing import Batch
from heedful.errors import TrainingError
from heedful.model_dir.weights import save_tensors
from heedful.training.checkpoint import (
    MovingAverage,
    StoredTensors,
    TrainingState,
    Weights,
    average_weights,
    checksum_mark,
    copy_weights,
    gather_random_states,
    random_states,
    restore_random,
    restore_rank_random,
    save_state,
)
from heedful.training.distributed import World, gather_weights, is_sharded, rank_seed, set_weights, to_local
from heedful.training.kept_checkpoints import KeptCheckpoints
from heedful.training.logging import INITIAL, Evaluation, Reporter, Sample, StartupTimer, TrainRecord, ValidRecord
from heedful.training.model_setup import dither_int8_weights
from heedful.training.optimizer import Budget, Schedule, TrainingProgress, load_optimizer_tensors, optimizer_tensors
from heedful.training.step import LogWindow, TrainingStep, uses_bf16
from heedful.training.validation import MAX_TIME_SHARE, BestTracker, PerplexityReport, ValidationWork, validate

NUM_VALIDATIONS = 20
"""Validations over the budget, unless `validate_every` is set."""
SHORT_RUN_NUM_VALIDATIONS = 6
"""The same for a run of at most `SHORT_RUN_MINUTES` or `SHORT_RUN_STEPS`."""
SHORT_RUN_MINUTES = 5
SHORT_RUN_STEPS = 2000
EARLY_STOPPING = "early stopping"

Evaluate = Callable[[nn.Module], Evaluation | None]


class Publish(Protocol):
    """Writes the model directory of the run, or another one."""

    def __call__(self, weights: Weights, kind: str, summary: dict[str, Any], directory: Path | None = None) -> None: ...


class TrainingLoop:
    """Updates over a stream of batches. `publish(weights, kind, summary)` writes the model directory.

    With several ranks each runs the same loop. Decisions (to stop, to validate, to publish) depend on numbers that are
    equal on all ranks. Only rank 0 publishes and evaluates; `evaluate` returns None on the others.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        stream: BatchStream,
        valid_batches: Callable[[], Iterator[Batch]],
        config: TrainingConfig,
        d_model: int,
        world: World,
        directory: Path,
        reporter: Reporter,
        publish: Publish,
        evaluate: Evaluate | None,
        validation_work: ValidationWork | None = None,
        perplexity: PerplexityReport | None = None,
    ) -> None:
        self.model, self.stream, self.valid_batches, self.config = model, stream, valid_batches, config
        self.world, self.device, self.directory, self.reporter = world, world.device, directory, reporter
        self.publish, self.evaluate = publish, evaluate
        self.validation_work = validation_work or ValidationWork()
        self.perplexity = perplexity or PerplexityReport()
        self.step = TrainingStep(model, config, world.device, world)
        self.budget = Budget.of(config)
        self.schedule = Schedule(config, d_model)
        self.average = MovingAverage(model, config.ema_decay) if config.ema_decay else None
        self.progress = TrainingProgress()
        self.best = BestTracker()
        self.position = Position(epoch=0, step=0)
        self.window = LogWindow.open(world.device)
        self.kept = KeptCheckpoints(directory.parent, config.keep_checkpoints)
        self.budget_part = 0
        """How many equal parts of the budget are used; a validation follows each."""
        self.validation_seconds = 0.0
        self.validated_step = -1
        self.signal = 0
        """The last signal that this rank received; all ranks stop after their current step."""
        self.stopped_by: str | None = None
        self.startup_timer: StartupTimer | None = None

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Train until the budget is used, patience runs out or a signal arrives; always save a checkpoint."""
        with handle_signals(self._stop, restore_after_first=self.world.size == 1):
            self._keep_if_due()
            is_new = not self.progress.steps and self.validated_step < 0
            if self.config.init_from is not None and is_new:
                self._validate_initial_model()
            self._update_until_stopped()
        if self.stopped_by is None and self.window.steps:
            self._log()
        if self.stopped_by is None and self.validated_step != self.progress.steps:
            self._validate_and_save()
        if self.stopped_by in (None, EARLY_STOPPING):
            self._keep_last()
        self.save()

    def _update_until_stopped(self) -> None:
        start_time = time.perf_counter() - self.progress.seconds
        self.window.start_time = time.perf_counter()
        with closing(prefetch(self._batches(), pin_memory=self.device.type == "cuda")) as batches:
            for (position, num_tokens), batch in batches:
                self.progress.epochs = max(self.progress.epochs, float(position.epoch))
                fraction_used = self.budget.fraction_used(self.progress)
                if fraction_used >= 1 or self.stopped_by is not None:
                    break
                learning_rate = self.schedule.rate(self.progress.steps + 1, fraction_used)
                result = self.step(batch, num_tokens, learning_rate)
                if self.average is not None:
                    self.average.update()
                self.window.add(result, num_tokens, learning_rate)
                self._advance(position, num_tokens, self._synchronize(start_time))
                if self.startup_timer is not None and self.startup_timer.first_step is None:
                    result.skipped.item()  # wait for the device
                    self.reporter.started(self.startup_timer.stop(self.progress.steps))
                if self.progress.steps % self.config.log_every == 0:
                    self._log()
                self._keep_if_due()
                if self._is_validation_due():
                    validation_start = time.perf_counter()
                    self._validate_and_save()
                    self.validation_seconds += time.perf_counter() - validation_start
                    self.window.start_time += time.perf_counter() - validation_start
                    self.progress.seconds = self._synchronize(start_time)
                if self.config.save_every and self.progress.steps % self.config.save_every == 0:
                    self.save()

    def _stop(self, number: int) -> None:
        self.signal = number
        if self.world.size == 1:  # several ranks stop together, in `_synchronize`
            self.stopped_by = signal.Signals(number).name

    def _batches(self) -> Iterator[tuple[tuple[Position, int], Batch]]:
        """The batches from the current position on, with their positions and the tokens of the whole step."""
        for position, batch in self.stream.batches(self.position.epoch, self.position.step):
            yield (position, batch.num_tokens if self.world.size == 1 else self.stream.num_tokens(*position)), batch

    def _synchronize(self, start_time: float) -> float:
        """The seconds since `start_time` by rank 0's clock; a signal to any rank stops all."""
        clocks = (time.perf_counter() - start_time, self.validation_seconds) if self.world.is_rank0 else (0.0, 0.0)
        seconds, self.validation_seconds, number = self.world.all_reduce_max([*clocks, self.signal])
        if number:
            self.stopped_by = signal.Signals(int(number)).name
        return seconds

    def _advance(self, position: Position, num_tokens: int, seconds: float) -> None:
        self.position = Position(position.epoch, position.step + 1)
        self.progress.steps += 1
        self.progress.tokens += num_tokens
        # The number of steps is an estimate: an epoch is complete only when the first batch of the next one arrives.
        fraction = (position.step + 1) / self.stream.estimated_steps_in_epoch()
        self.progress.epochs = position.epoch + min(fraction, 1 - 1e-9)
        self.progress.seconds = seconds

    def _log(self) -> None:
        window = self.window
        self.window = LogWindow.open(self.device, window.skipped_in_a_row)
        num_skipped = int(window.skipped)
        num_skipped_in_a_row = int(window.skipped_in_a_row)
        elapsed = max(time.perf_counter() - window.start_time, 1e-9)
        self.reporter.trained(
            TrainRecord(
                step=self.progress.steps,
                epoch=self.progress.epochs,
                progress=self.budget.fraction_used(self.progress),
                loss=float(window.loss_sum) / max(1, int(window.counted_tokens)),
                learning_rate=window.learning_rate,
                gradient_norm=float(window.gradient_norm),
                tokens=self.progress.tokens,
                tokens_per_second=window.tokens / elapsed,
                seconds=self.progress.seconds,
                skipped_steps=num_skipped,
            )
        )
        if num_skipped:
            self.reporter.note(
                f"step {self.progress.steps}: skipped {num_skipped} updates with a non-finite loss or gradient."
            )
        if num_skipped_in_a_row >= self.config.max_skipped_steps:
            raise TrainingError(
                f"The last {num_skipped_in_a_row} losses or gradients were not finite; these updates were skipped. "
                f"Lower training.learning_rate, set training.clip_norm=1, or use training.precision=fp32."
            )

    # ------------------------------------------------------------------ validation

    def _is_validation_due(self) -> bool:
        """Whether to validate now: every `validate_every` steps if set, else after each equal part of the budget.

        With a budget in minutes, validations are also skipped if the previous ones took too long.
        """
        if self.config.validate_every is not None:
            return self.progress.steps % self.config.validate_every == 0
        part = math.floor(min(1.0, self.budget.fraction_used(self.progress)) * self._num_validations())
        is_due = part > self.budget_part
        self.budget_part = part
        too_slow = self.config.minutes is not None and self.validation_seconds > MAX_TIME_SHARE * self.progress.seconds
        return is_due and not too_slow

    def _num_validations(self) -> int:
        """Validations over the budget: fewer if each is expensive compared with the training between them."""
        minutes, steps = self.config.minutes, self.config.steps
        is_short = (minutes or math.inf) <= SHORT_RUN_MINUTES or (steps or math.inf) <= SHORT_RUN_STEPS
        default = SHORT_RUN_NUM_VALIDATIONS if is_short else NUM_VALIDATIONS
        tokens_per_step = self.stream.rows_per_step * self.stream.width
        num_steps = self.budget.num_steps(self.stream.estimated_steps_in_epoch(), tokens_per_step)
        if num_steps is None:
            return default
        affordable = self.validation_work.max_validations(num_steps, tokens_per_step, self.device.type, self.world.size)
        num_initial = 0 if self.config.init_from is None else 1
        return int(max(1, min(default, affordable - num_initial)))

    @property
    def validated_weights(self) -> str:
        """Which weights are validated during training."""
        return "ema" if self.average is not None else "last"

    def _validate_initial_model(self) -> None:
        """Validate and publish the model of `init_from` before the first update; only a better one replaces it.

        The moving average equals the weights at this point. The initial model does not count as a snapshot. Weights
        that were int8 are dithered afterwards.
        """
        self.validated_step = self.progress.steps
        record, samples = self.validate_weights(INITIAL)
        self.reporter.validated(record, samples)
        self.best.initial_value = self.metric_value(record)
        if record.is_best:
            self.best.value = self.best.initial_value
            self._publish(INITIAL, record)
        if dither_int8_weights(self.model, self.config.seed) and self.average is not None:
            self.average.weights = copy_weights(self.model)
        if self.startup_timer is not None:
            self.startup_timer.enter("first update")

    def _validate_and_save(self) -> None:
        """Validate the weights or their moving average, publish a new best, keep a snapshot, save a checkpoint."""
        self.validated_step = self.progress.steps
        if self.config.average_last:
            self._snapshot()
        with self._swapped_weights(self.average.weights if self.average is not None else None):
            record, samples = self.validate_weights(self.validated_weights)
            self.reporter.validated(record, samples)
            self.best.num_since_best += 1
            if record.is_best:
                self.best.value = self.metric_value(record)
                self.best.step = self.progress.steps
                self.best.num_since_best = 0
                self._publish("best", record)
        if self._is_out_of_patience():
            self.stopped_by = EARLY_STOPPING
        if not self.config.save_every:
            self.save()

    def _is_out_of_patience(self) -> bool:
        return self.config.early_stopping is not None and self.best.num_since_best >= self.config.early_stopping

    def validate_weights(self, weights: str) -> tuple[ValidRecord, tuple[Sample, ...]]:
        """Loss and BLEU of the model's current weights, which `weights` names; random states do not change."""
        start_time = time.perf_counter()
        random = random_states(self.device)
        loss = self.step.with_free_memory(
            lambda: validate(
                self.model,
                self.valid_batches(),
                self.device,
                bf16=uses_bf16(self.config, self.device),
                world=self.world,
                max_rows=self.step.rows_per_microbatch,
            )
        )
        evaluation = self.step.with_free_memory(
            lambda: self.evaluate(self.model) if self.evaluate is not None else None
        )
        restore_random(random, self.device)
        bleu, signature = self.world.broadcast(
            [None, None] if evaluation is None else [evaluation.bleu, evaluation.signature]
        )
        record = ValidRecord(
            step=self.progress.steps,
            weights=weights,
            loss=loss,
            perplexity=math.exp(min(loss, 50.0)),
            bleu=bleu,
            signature=signature,
            is_best=False,
            seconds=time.perf_counter() - start_time,
            score_name="BLEU" if evaluation is None else evaluation.name,
            perplexity_name=self.perplexity.name,
            character_perplexity=self.perplexity.of_character(loss),
        )
        record = replace(record, is_best=self.metric_value(record) < self.best.value)
        return record, () if evaluation is None else evaluation.samples

    def metric_value(self, record: ValidRecord) -> float:
        """The value of `best_metric`; smaller is better."""
        if self.config.best_metric == "bleu" and record.bleu is not None:
            return -record.bleu
        return record.loss if math.isfinite(record.loss) else math.inf

    # ------------------------------------------------------------------ weights

    @contextmanager
    def _swapped_weights(self, weights: Weights | None) -> Iterator[None]:
        """Temporarily give the model other weights, if any."""
        if weights is None:
            yield
            return
        original = copy_weights(self.model)
        set_weights(self.model, weights)
        try:
            yield
        finally:
            set_weights(self.model, original)

    def _snapshot(self) -> None:
        weights = gather_weights(self.model, self.world)
        if not self.world.is_rank0:
            return
        folder = self.directory / "snapshots"
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / "incomplete"
        save_tensors(save_file, {name: tensor.detach().contiguous() for name, tensor in weights.items()}, temporary)
        rename_durably(temporary, folder / f"step-{self.progress.steps:09d}.{checksum_mark(temporary)}.safetensors")
        for old in self._snapshots()[: -self.config.average_last]:
            old.unlink()

    def _snapshots(self) -> list[Path]:
        """Snapshots up to the current step, oldest first; a resumed run ignores those of later steps."""
        paths = sorted((self.directory / "snapshots").glob("step-*.safetensors"))
        return [path for path in paths if int(path.name[len("step-") :].split(".")[0]) <= self.progress.steps]

    def _intact_snapshots(self) -> list[str]:
        """The names of the snapshots whose checksum matches; damaged ones are reported and excluded."""
        intact = []
        for path in self._snapshots():
            if path.name.split(".")[1] == checksum_mark(path):
                intact.append(path.name)
            else:
                self.reporter.note(f"{path} is damaged (its checksum does not match) and is excluded from the average.")
        return intact

    def _averaged_snapshots(self) -> Weights | None:
        """The mean of the snapshots; None if there are fewer than two, or none if the average will be published."""
        if not self.config.average_last:
            return None
        names = self.world.broadcast(self._intact_snapshots() if self.world.is_rank0 else [])
        if len(names) < (1 if self.config.final_weights == "average" else 2):
            return None
        num_rows = self._num_rows()
        snapshots = (StoredTensors([self.directory / "snapshots" / name]) for name in names)
        parts = (TrainingState(tensors, {}).part("", self.world, num_rows) for tensors in snapshots)
        return average_weights({name: tensor.to(self.device) for name, tensor in part.items()} for part in parts)

    def candidates(self) -> Iterator[tuple[str, Weights]]:
        """Weights that could be published: the last ones, their moving average, the mean of snapshots."""
        yield "last", copy_weights(self.model)
        if self.average is not None:
            yield "ema", self.average.weights
        average = self._averaged_snapshots()
        if average is not None:
            yield "average", average

    def publish_final_weights(self) -> None:
        """Publish the weights that `training.final_weights` names; auto compares all candidates on valid.

        A new model is recorded in the checkpoint, so that a resumed run knows what is published.
        """
        requested = self.config.final_weights
        if requested == "best":
            return
        chosen: tuple[ValidRecord, Weights] | None = None
        for kind, weights in self.candidates():
            is_validated = kind == self.validated_weights and self.validated_step == self.progress.steps
            if requested not in ("auto", kind) or (requested == "auto" and is_validated):
                continue
            with self._swapped_weights(weights):
                record, _ = self.validate_weights(kind)
            self.reporter.validated(record, ())
            if chosen is None or self.metric_value(record) < self.metric_value(chosen[0]):
                chosen = (record, weights)
        if chosen is not None and (requested != "auto" or self.metric_value(chosen[0]) < self.best.value):
            with self._swapped_weights(chosen[1]):
                self._publish(chosen[0].weights, chosen[0])
            self.save()

    def _publish(self, kind: str, record: ValidRecord) -> None:
        self.best.published_loss = record.loss
        self.best.published_bleu = record.bleu
        self.best.published_score_name = record.score_name
        self.best.published_value = self.metric_value(record)
        self.best.published_step = record.step
        self.publish_model(kind)

    def publish_model(self, kind: str) -> None:
        """Publish the model's current weights, on rank 0."""
        weights = gather_weights(self.model, self.world)
        if self.world.is_rank0:
            self.publish(weights, kind, self.summary())

    def summary(self) -> dict[str, Any]:
        """Steps, tokens, time and validation results, for the model card."""
        return {
            "steps": self.progress.steps,
            "epochs": round(self.progress.epochs, 3),
            "tokens": self.progress.tokens,
            "minutes": round(self.progress.seconds / 60, 2),
            "valid_loss": self.best.published_loss,
            **self.perplexity.summary(self.best.published_loss),
            f"valid_{self.best.published_score_name.lower()}": self.best.published_bleu,
        }

    # ------------------------------------------------------------------ checkpoints

    def _keep_if_due(self) -> None:
        if self.kept.is_due(self.progress.steps):
            self._keep()

    def _keep_last(self) -> None:
        if self.config.keep_checkpoints and self.kept.steps[-1:] != [self.progress.steps]:
            self._keep()

    def _keep(self) -> None:
        """Keep the weights that are validated, the current ones or their moving average, as a model directory."""
        start_time = time.perf_counter()
        progress = self.progress
        summary = {"steps": progress.steps, "epochs": round(progress.epochs, 3), "tokens": progress.tokens}
        with self._swapped_weights(self.average.weights if self.average is not None else None):
            weights = gather_weights(self.model, self.world)
            save = partial(self.publish, weights, self.validated_weights, summary) if self.world.is_rank0 else None
            self.kept.add(progress.steps, save)
        self.window.start_time += time.perf_counter() - start_time

    def state(self) -> TrainingState:
        """The state that a resumed run needs; of a sharded model, this rank's part."""
        tensors = {f"model.{name}": to_local(tensor) for name, tensor in self.model.state_dict().items()}
        optimizer = optimizer_tensors(self.step.optimizer, self.model)
        tensors.update({f"optimizer.{name}": tensor for name, tensor in optimizer.items()})
        values: dict[str, Any] = {
            "progress": vars(self.progress),
            "best": vars(self.best),
            "position": [self.position.epoch, self.position.step],
            "rows": self.stream.resume_cache(self.position),
            "warmup": [self.schedule.warmup_steps, self.schedule.warmup_progress],
            "budget_part": self.budget_part,
            "validated_step": self.validated_step,
            "kept_checkpoints": self.kept.steps,
            "window": {"steps": self.window.steps, "learning_rate": self.window.learning_rate},
        }
        if self.average is not None:
            tensors.update({f"average.{name}": tensor for name, tensor in self.average.weights.items()})
            values["average_updates"] = self.average.num_updates
        tensors.update({f"window.{name}": tensor for name, tensor in self.window.tensors().items()})
        tensors.update(gather_random_states(self.world))
        return TrainingState(tensors, values, self._num_rows())

    def _num_rows(self) -> dict[str, int]:
        """The total number of rows of each sharded tensor in checkpoints and snapshots."""
        sharded = {name: tensor.shape[0] for name, tensor in self.model.state_dict().items() if is_sharded(tensor)}
        prefixes = ("", "model.", "average.", "optimizer.exp_avg.", "optimizer.exp_avg_sq.")
        return {f"{prefix}{name}": count for prefix in prefixes for name, count in sharded.items()}

    def save(self) -> None:
        """Save a checkpoint."""
        save_state(self.directory / "states", self.progress.steps, self.state(), self.world)

    def restore(self, state: TrainingState) -> None:
        """Continue from a checkpoint."""
        num_rows = self._num_rows()
        set_weights(self.model, state.part("model.", self.world, num_rows))
        moments = state.part("optimizer.", self.world, num_rows)
        load_optimizer_tensors(self.step.optimizer, self.model, moments)
        average = state.part("average.", self.world, num_rows)
        if self.average is not None and average:
            self.average.weights = {name: tensor.to(self.device, copy=True) for name, tensor in average.items()}
            self.average.num_updates = state.values["average_updates"]
        self.progress = TrainingProgress(**state.values["progress"])
        self.best = BestTracker(**state.values["best"])
        restore_rank_random(state.tensors, self.world, rank_seed(self.config.seed, self.world, self.progress.steps))
        self.position = Position(*state.values["position"])
        self.stream.load_resume_cache(state.values.get("rows"))
        self.budget_part = state.values["budget_part"]
        self.validated_step = state.values["validated_step"]
        self.kept.restore(state.values.get("kept_checkpoints", []), is_writer=self.world.is_rank0)
        window = state.part("window.", self.world, {})
        tensors = {name: tensor.to(self.device, copy=True) for name, tensor in window.items()}
        vars(self.window).update({**tensors, **state.values["window"]})
        if self._is_out_of_patience():
            self.stopped_by = EARLY_STOPPING
        warmup_steps, self.schedule.warmup_progress = state.values["warmup"]
        self.schedule.warmup_steps = warmup_steps or self.schedule.warmup_steps


@contextmanager
def handle_signals(stop: Callable[[int], None], *, restore_after_first: bool) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into calls of `stop`. With `restore_after_first`, a second signal ends the program.

    Of several ranks none may end before the others: torchrun forwards a Ctrl-C to ranks that have already received it
    from the terminal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def handle(number: int, frame: object) -> None:
        received.append(number)
        stop(number)
        if restore_after_first:
            restore()

    def restore() -> None:
        for kind, handler in previous.items():
            signal.signal(kind, handler)

    previous = {kind: signal.signal(kind, handle) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if restore_after_first or not received:
            restore()
