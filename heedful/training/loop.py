"""The training loop, top to bottom: take a batch, update, look at valid now and then, keep the best, stop in time."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from heedful.atomic_files import rename_durably
from heedful.config import TrainingConfig
from heedful.data.batch import Batch
from heedful.data.batch_stream import BatchStream, Position, prefetch
from heedful.errors import TrainingError
from heedful.model_dir.weights import save_tensors
from heedful.training.averaging import MovingAverage, Weights, average_weights, copy_weights
from heedful.training.checkpoint import (
    StoredTensors,
    TrainingState,
    checksum_mark,
    gather_random_states,
    random_states,
    restore_random,
    restore_rank_random,
    save_state,
)
from heedful.training.distributed import World, gather_weights, is_sharded, rank_seed, set_weights, to_local
from heedful.training.logging import START, Evaluation, Reporter, Sample, StartupTimer, TrainRecord, ValidRecord
from heedful.training.model_setup import dither_int8_weights
from heedful.training.optimizer import load_optimizer_tensors, optimizer_tensors
from heedful.training.schedule import Budget, Schedule, Spent
from heedful.training.step import TrainingStep, Window, uses_bf16
from heedful.training.validation import MAX_TIME_SHARE, Best, ValidationWork, validate

VALIDATIONS = 20
"""How often the budget is interrupted for a look at valid, if `validate_every` does not say."""
SHORT_RUN_VALIDATIONS, SHORT_RUN_MINUTES, SHORT_RUN_STEPS = 6, 5, 2000
"""The same for short budgets."""
EARLY = "early stopping"

Evaluate = Callable[[nn.Module], Evaluation | None]
Publish = Callable[[Weights, str, dict[str, Any]], None]


class TrainingLoop:
    """A run of updates over a stream of batches. `publish(weights, kind, numbers)` makes a model of weights.

    With several ranks each runs the same loop. What they decide (to stop, to look at valid, to keep) rests on numbers
    that are the same for all; only the first publishes and evaluates, the others' `evaluate` gives None.
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
    ) -> None:
        self.model, self.stream, self.valid_batches, self.config = model, stream, valid_batches, config
        self.world, self.device, self.directory, self.reporter = world, world.device, directory, reporter
        self.publish, self.evaluate = publish, evaluate
        self.validation_work = validation_work or ValidationWork()
        self.step = TrainingStep(model, config, world.device, world)
        self.budget = Budget.of(config)
        self.schedule = Schedule(config, d_model)
        self.average = MovingAverage(model, config.ema_decay) if config.ema_decay else None
        self.spent, self.best = Spent(), Best()
        self.position = Position(epoch=0, step=0)
        self.window = Window.open(world.device)
        self.part = 0  # equal parts of the budget that are over
        self.looking_seconds = 0.0
        self.validated_step = -1
        self.signal = 0  # the last that came to this rank; all ranks stop by it after their present step
        self.stopped_by: str | None = None
        self.startup_timer: StartupTimer | None = None  # of the time until the first update, if anyone wants to know

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Train until the budget is used, patience is lost or a signal comes; the state is saved in every case."""
        with caught(self._stop, alone=self.world.size == 1):
            if self.config.init_from is not None and not self.spent.steps and self.validated_step < 0:
                self._look_at_start()
            self._update_until_stopped()
        if self.stopped_by is None and self.window.steps:
            self._log()
        if self.stopped_by is None and self.validated_step != self.spent.steps:
            self._validate_and_keep()
        self.save()

    def _update_until_stopped(self) -> None:
        began = time.perf_counter() - self.spent.seconds
        self.window.began = time.perf_counter()
        with closing(prefetch(self._batches(), pin_memory=self.device.type == "cuda")) as batches:
            for (position, num_tokens), batch in batches:
                self.spent.epochs = max(self.spent.epochs, float(position.epoch))
                before = self.budget.progress(self.spent)
                if before >= 1 or self.stopped_by is not None:
                    break
                rate = self.schedule.rate(self.spent.steps + 1, before)
                result = self.step(batch, num_tokens, rate)
                if self.average is not None:
                    self.average.update()
                self.window.add(result, num_tokens, rate)
                self._count(position, num_tokens, self._agree(began))
                if self.startup_timer is not None and self.startup_timer.first_step is None:
                    result.skipped.item()  # waits for the device
                    self.reporter.started(self.startup_timer.stop(self.spent.steps))
                if self.spent.steps % self.config.log_every == 0:
                    self._log()
                if self._is_due():
                    paused = time.perf_counter()
                    self._validate_and_keep()
                    self.looking_seconds += time.perf_counter() - paused
                    self.window.began += time.perf_counter() - paused
                    self.spent.seconds = self._agree(began)
                if self.config.save_every and self.spent.steps % self.config.save_every == 0:
                    self.save()

    def _stop(self, number: int) -> None:
        self.signal = number
        if self.world.size == 1:  # else nobody stops before all have agreed
            self.stopped_by = signal.Signals(number).name

    def _batches(self) -> Iterator[tuple[tuple[Position, int], Batch]]:
        """The batches from here on, with their positions and the tokens of the whole step."""
        for position, batch in self.stream.batches(self.position.epoch, self.position.step):
            yield (position, batch.num_tokens if self.world.size == 1 else self.stream.num_tokens(*position)), batch

    def _agree(self, began: float) -> float:
        """The seconds since `began` by the first rank's clock; a signal that came to any rank stops all."""
        mine = (time.perf_counter() - began, self.looking_seconds) if self.world.is_rank0 else (0.0, 0.0)
        seconds, self.looking_seconds, number = self.world.all_reduce_max([*mine, self.signal])
        if number:
            self.stopped_by = signal.Signals(int(number)).name
        return seconds

    def _count(self, position: Position, num_tokens: int, seconds: float) -> None:
        self.position = Position(position.epoch, position.step + 1)
        self.spent.steps += 1
        self.spent.tokens += num_tokens
        # Only the first batch of the next epoch tells that this one is over, so its last step counts as almost whole.
        share = (position.step + 1) / self.stream.estimated_steps_in_epoch()
        self.spent.epochs = position.epoch + min(share, 1 - 1e-9)
        self.spent.seconds = seconds

    def _log(self) -> None:
        window, self.window = self.window, Window.open(self.device, self.window.skipped_in_a_row)
        skipped, in_a_row = int(window.skipped), int(window.skipped_in_a_row)
        elapsed = max(time.perf_counter() - window.began, 1e-9)
        self.reporter.trained(
            TrainRecord(
                step=self.spent.steps,
                epoch=self.spent.epochs,
                progress=self.budget.progress(self.spent),
                loss=float(window.loss_sum) / max(1, int(window.counted_tokens)),
                learning_rate=window.learning_rate,
                gradient_norm=float(window.gradient_norm),
                tokens=self.spent.tokens,
                tokens_per_second=window.tokens / elapsed,
                seconds=self.spent.seconds,
                skipped_steps=skipped,
            )
        )
        if skipped:
            self.reporter.note(
                f"step {self.spent.steps}: {skipped} updates skipped, their loss or gradients not finite."
            )
        if in_a_row >= self.config.max_skipped_steps:
            raise TrainingError(
                f"The last {in_a_row} losses or gradients were not finite; the weights are as before them. "
                f"Lower training.learning_rate, set training.clip_norm=1, or use training.precision=fp32."
            )

    # ------------------------------------------------------------------ looking at valid

    def _is_due(self) -> bool:
        """Whether it is time to look at valid: by steps if so configured, else after each equal part of the budget.

        A budget in minutes is the clock's in any case: there looks are left out also when they took too long.
        """
        if self.config.validate_every is not None:
            return self.spent.steps % self.config.validate_every == 0
        part = math.floor(min(1.0, self.budget.progress(self.spent)) * self._num_validations())
        is_due, self.part = part > self.part, part
        too_slow = self.config.minutes is not None and self.looking_seconds > MAX_TIME_SHARE * self.spent.seconds
        return is_due and not too_slow

    def _num_validations(self) -> int:
        """How many there are over the budget: fewer where each would cost much beside so little training."""
        minutes, steps = self.config.minutes, self.config.steps
        is_hurried = (minutes or math.inf) <= SHORT_RUN_MINUTES or (steps or math.inf) <= SHORT_RUN_STEPS
        usual = SHORT_RUN_VALIDATIONS if is_hurried else VALIDATIONS
        tokens = self.stream.rows_per_step * self.stream.width
        updates = self.budget.updates(self.stream.estimated_steps_in_epoch(), tokens)
        if updates is None:
            return usual
        affordable = self.validation_work.affordable(updates, tokens, self.device.type, self.world.size)
        at_start = 0 if self.config.init_from is None else 1
        return int(max(1, min(usual, affordable - at_start)))

    @property
    def watched(self) -> str:
        """Which weights the validations look at."""
        return "ema" if self.average is not None else "last"

    def _look_at_start(self) -> None:
        """Look at valid before the first update, on no budget of time: only what is better than the start replaces it.

        The moving average still equals the weights. The start is no snapshot: it is not one of the run's own weights.
        After the validation, weights that were int8 are dithered.
        """
        self.validated_step = self.spent.steps
        record, samples = self.look(START)
        self.reporter.validated(record, samples)
        self.best.start = self.value(record)
        if record.is_best:
            self.best.value = self.best.start
            self._publish(START, record)
        if dither_int8_weights(self.model, self.config.seed) and self.average is not None:
            self.average.weights = copy_weights(self.model)
        if self.startup_timer is not None:
            self.startup_timer.enter("first update")

    def _validate_and_keep(self) -> None:
        """Validate (the moving average, where there is one), publish a new best, keep a snapshot, save."""
        self.validated_step = self.spent.steps
        if self.config.average_last:
            self._snapshot()
        with self._weights(self.average.weights if self.average is not None else None):
            record, samples = self.look(self.watched)
            self.reporter.validated(record, samples)
            self.best.since += 1
            if record.is_best:
                self.best.value, self.best.step, self.best.since = self.value(record), self.spent.steps, 0
                self._publish("best", record)
        if self._lost_patience():
            self.stopped_by = EARLY
        if not self.config.save_every:
            self.save()

    def _lost_patience(self) -> bool:
        return self.config.early_stopping is not None and self.best.since >= self.config.early_stopping

    def look(self, weights: str) -> tuple[ValidRecord, tuple[Sample, ...]]:
        """Loss and BLEU of the model as it stands; leaves no trace in the random numbers that come after."""
        began, random = time.perf_counter(), random_states(self.device)
        bf16 = uses_bf16(self.config, self.device)
        settings: dict[str, Any] = {"bf16": bf16, "world": self.world, "rows": self.step.rows_per_microbatch}
        loss = self.step.with_free_memory(lambda: validate(self.model, self.valid_batches(), self.device, **settings))
        evaluation = self.step.with_free_memory(
            lambda: self.evaluate(self.model) if self.evaluate is not None else None
        )
        restore_random(random, self.device)
        bleu, signature = self.world.broadcast(
            [None, None] if evaluation is None else [evaluation.bleu, evaluation.signature]
        )
        record = ValidRecord(
            step=self.spent.steps,
            weights=weights,
            loss=loss,
            perplexity=math.exp(min(loss, 50.0)),
            bleu=bleu,
            signature=signature,
            is_best=False,
            seconds=time.perf_counter() - began,
            score_name="BLEU" if evaluation is None else evaluation.name,
        )
        is_best = self.value(record) < self.best.value
        return ValidRecord(**{**vars(record), "is_best": is_best}), () if evaluation is None else evaluation.samples

    def value(self, record: ValidRecord) -> float:
        """What `best_metric` compares; smaller is better."""
        if self.config.best_metric == "bleu" and record.bleu is not None:
            return -record.bleu
        return record.loss if math.isfinite(record.loss) else math.inf

    # ------------------------------------------------------------------ weights

    @contextmanager
    def _weights(self, weights: Weights | None) -> Iterator[None]:
        """The model with other weights for a while."""
        if weights is None:
            yield
            return
        own = copy_weights(self.model)
        set_weights(self.model, weights)
        try:
            yield
        finally:
            set_weights(self.model, own)

    def _snapshot(self) -> None:
        weights = gather_weights(self.model, self.world)
        if not self.world.is_rank0:
            return
        folder = self.directory / "snapshots"
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / "incomplete"
        save_tensors(save_file, {name: tensor.detach().contiguous() for name, tensor in weights.items()}, temporary)
        rename_durably(temporary, folder / f"step-{self.spent.steps:09d}.{checksum_mark(temporary)}.safetensors")
        for old in self._snapshots()[: -self.config.average_last]:
            old.unlink()

    def _snapshots(self) -> list[Path]:
        """Snapshots up to the present step, oldest first (a resumed run ignores those it has not reached again)."""
        paths = sorted((self.directory / "snapshots").glob("step-*.safetensors"))
        return [path for path in paths if int(path.name[len("step-") :].split(".")[0]) <= self.spent.steps]

    def _whole_snapshots(self) -> list[str]:
        """The names of the snapshots that are as they were written; others are reported and left out."""
        whole = []
        for path in self._snapshots():
            if path.name.split(".")[1] == checksum_mark(path):
                whole.append(path.name)
            else:
                self.reporter.note(f"{path} is damaged (its checksum does not match) and is left out of the average.")
        return whole

    def _average_of_snapshots(self) -> Weights | None:
        """The mean of the snapshots, of which there have to be several, unless this is what will be published."""
        if not self.config.average_last:
            return None
        names = self.world.broadcast(self._whole_snapshots() if self.world.is_rank0 else [])
        if len(names) < (1 if self.config.final_weights == "average" else 2):
            return None
        num_rows = self._num_rows()
        snapshots = (StoredTensors([self.directory / "snapshots" / name]) for name in names)
        parts = (TrainingState(tensors, {}).part("", self.world, num_rows) for tensors in snapshots)
        return average_weights({name: tensor.to(self.device) for name, tensor in part.items()} for part in parts)

    def candidates(self) -> Iterator[tuple[str, Weights]]:
        """What could be published besides the best: the last weights, their moving average, the mean of snapshots."""
        yield "last", copy_weights(self.model)
        if self.average is not None:
            yield "ema", self.average.weights
        average = self._average_of_snapshots()
        if average is not None:
            yield "average", average

    def choose(self) -> None:
        """At the end of the budget: publish what `training.final_weights` names; auto compares all candidates on valid.

        If that is something new, the state is saved once more: a run that goes on knows what stands published.
        """
        wanted = self.config.final_weights
        if wanted == "best":
            return
        chosen: tuple[ValidRecord, Weights] | None = None
        for kind, weights in self.candidates():
            is_known = kind == self.watched and self.validated_step == self.spent.steps
            if wanted not in ("auto", kind) or (wanted == "auto" and is_known):
                continue
            with self._weights(weights):
                record, _ = self.look(kind)
            self.reporter.validated(record, ())
            if chosen is None or self.value(record) < self.value(chosen[0]):
                chosen = (record, weights)
        if chosen is not None and (wanted != "auto" or self.value(chosen[0]) < self.best.value):
            with self._weights(chosen[1]):
                self._publish(chosen[0].weights, chosen[0])
            self.save()

    def _publish(self, kind: str, record: ValidRecord) -> None:
        self.best.published_loss, self.best.published_bleu = record.loss, record.bleu
        self.best.published_score_name = record.score_name
        self.best.published, self.best.published_step = self.value(record), record.step
        self.publish_model(kind)

    def publish_model(self, kind: str) -> None:
        """Publish the model as it stands; of all ranks the first does it."""
        weights = gather_weights(self.model, self.world)
        if self.world.is_rank0:
            self.publish(weights, kind, self.numbers())

    def numbers(self) -> dict[str, Any]:
        """The run so far in plain numbers, for the model card."""
        return {
            "steps": self.spent.steps,
            "epochs": round(self.spent.epochs, 3),
            "tokens": self.spent.tokens,
            "minutes": round(self.spent.seconds / 60, 2),
            "valid_loss": self.best.published_loss,
            f"valid_{self.best.published_score_name.lower()}": self.best.published_bleu,
        }

    # ------------------------------------------------------------------ stopping and going on

    def state(self) -> TrainingState:
        """Everything that a resumed run needs; of a divided model, this rank's share."""
        tensors = {f"model.{name}": to_local(tensor) for name, tensor in self.model.state_dict().items()}
        optimizer = optimizer_tensors(self.step.optimizer, self.model)
        tensors.update({f"optimizer.{name}": tensor for name, tensor in optimizer.items()})
        values: dict[str, Any] = {
            "spent": vars(self.spent),
            "best": vars(self.best),
            "position": [self.position.epoch, self.position.step],
            "rows": self.stream.resume_cache(self.position),
            "warmup": [self.schedule.warmup_steps, self.schedule.warmup_progress],
            "part": self.part,
            "validated_step": self.validated_step,
            "window": {"steps": self.window.steps, "learning_rate": self.window.learning_rate},
        }
        if self.average is not None:
            tensors.update({f"average.{name}": tensor for name, tensor in self.average.weights.items()})
            values["average_updates"] = self.average.num_updates
        tensors.update({f"window.{name}": tensor for name, tensor in self.window.tensors().items()})
        tensors.update(gather_random_states(self.world))
        return TrainingState(tensors, values, self._num_rows())

    def _num_rows(self) -> dict[str, int]:
        """Of a divided model: what each rank has a share of in states and snapshots, with all their rows."""
        divided = {name: tensor.shape[0] for name, tensor in self.model.state_dict().items() if is_sharded(tensor)}
        prefixes = ("", "model.", "average.", "optimizer.exp_avg.", "optimizer.exp_avg_sq.")
        return {f"{prefix}{name}": count for prefix in prefixes for name, count in divided.items()}

    def save(self) -> None:
        """Save the resume state."""
        save_state(self.directory / "states", self.spent.steps, self.state(), self.world)

    def restore(self, state: TrainingState) -> None:
        """Go on from a saved state."""
        num_rows = self._num_rows()
        set_weights(self.model, state.part("model.", self.world, num_rows))
        moments = state.part("optimizer.", self.world, num_rows)
        load_optimizer_tensors(self.step.optimizer, self.model, moments)
        average = state.part("average.", self.world, num_rows)
        if self.average is not None and average:
            self.average.weights = {name: tensor.to(self.device, copy=True) for name, tensor in average.items()}
            self.average.num_updates = state.values["average_updates"]
        self.spent, self.best = Spent(**state.values["spent"]), Best(**state.values["best"])
        restore_rank_random(state.tensors, self.world, rank_seed(self.config.seed, self.world, self.spent.steps))
        self.position = Position(*state.values["position"])
        self.stream.load_resume_cache(state.values.get("rows"))
        self.part, self.validated_step = state.values["part"], state.values["validated_step"]
        window = state.part("window.", self.world, {})
        since_last_line = {name: tensor.to(self.device, copy=True) for name, tensor in window.items()}
        vars(self.window).update({**since_last_line, **state.values["window"]})
        if self._lost_patience():
            self.stopped_by = EARLY
        warmup_steps, self.schedule.warmup_progress = state.values["warmup"]
        self.schedule.warmup_steps = warmup_steps or self.schedule.warmup_steps


@contextmanager
def caught(stop: Callable[[int], None], *, alone: bool) -> Iterator[None]:
    """Tell `stop` the number of each signal that asks the program to end; a second one ends it, if it is `alone`.

    Of several ranks none ends before the others: torchrun passes a Ctrl-C on to ranks that the terminal told too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def catch(number: int, frame: object) -> None:
        came.append(number)
        stop(number)
        if alone:
            restore()

    def restore() -> None:
        for kind, handler in earlier.items():
            signal.signal(kind, handler)

    earlier = {kind: signal.signal(kind, catch) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if alone or not came:
            restore()
