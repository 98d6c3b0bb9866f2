"""One update of the weights: forward, loss and backward over microbatches, a check that all is finite, then Adam.

The model is single-device code; compilation, bf16, accumulation and recording are applied here, from outside. With
several ranks each computes its rows, and the update is that of all rows together.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from heedful.backend_support import supports
from heedful.config import TrainingConfig
from heedful.data.batch import Batch
from heedful.errors import ConfigError, TrainingError
from heedful.fused.grad_buffers import Gradients
from heedful.fused.train_gpu import fused_losses, supports_batch
from heedful.model.transformer import Transformer
from heedful.training.checkpoint import random_states, restore_random
from heedful.training.compile_cache import is_compiled
from heedful.training.cpu_data_parallel import CpuDataParallel
from heedful.training.cuda_graph import Recorded
from heedful.training.distributed import World, full_tensor, is_sharded, no_sync
from heedful.training.loss import smoothed_cross_entropy, symmetric_kl
from heedful.training.mixed_precision import FlatAdam, LowPrecisionCopy, has_no_buffers, supports_flat_adam
from heedful.training.optimizer import build_optimizer, set_learning_rate

OLDEST_FOR_TRITON = (7, 0)

T = TypeVar("T")


class StepResult(NamedTuple):
    """What one update tells, of all ranks together; still on the device so that nothing waits for it."""

    loss_sum: Tensor
    gradient_norm: Tensor
    skipped: Tensor


@dataclass
class Window:
    """What has happened since the last line of the log, on the device until it is asked for."""

    loss_sum: Tensor
    counted_tokens: Tensor
    skipped: Tensor
    skipped_in_a_row: Tensor
    gradient_norm: Tensor
    learning_rate: float = 0.0
    steps: int = 0
    tokens: int = 0
    began: float = field(default_factory=time.perf_counter)

    @classmethod
    def open(cls, device: torch.device, skipped_in_a_row: Tensor | None = None) -> Window:
        """An empty window; the count of skips in a row goes on from the one before."""
        loss_sum, skipped, in_a_row, norm = torch.zeros(4, device=device).unbind()
        counted = torch.zeros((), dtype=torch.int64, device=device)
        return cls(loss_sum, counted, skipped, in_a_row if skipped_in_a_row is None else skipped_in_a_row, norm)

    def add(self, result: StepResult, num_tokens: int, learning_rate: float) -> None:
        """Count one update in, without waiting for the device."""
        self.loss_sum += torch.where(result.skipped, 0.0, result.loss_sum)
        self.counted_tokens += torch.where(result.skipped, 0, num_tokens)
        self.skipped += result.skipped
        self.skipped_in_a_row = (self.skipped_in_a_row + 1) * result.skipped
        self.gradient_norm, self.learning_rate = result.gradient_norm, learning_rate
        self.tokens += num_tokens
        self.steps += 1

    def tensors(self) -> dict[str, Tensor]:
        """All but the clock, so that a resumed run writes the line that the unbroken one would have written."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}


class TrainingStep:
    """Turns batches into updates of `model`."""

    def __init__(
        self, model: nn.Module, config: TrainingConfig, device: torch.device, world: World | None = None
    ) -> None:
        self.model, self.config, self.device, self.world = model, config, device, world or World(device)
        self.parameters, self.buffers = list(model.parameters()), list(model.buffers())
        self.optimizer = build_optimizer(model, config)
        self.num_tokens = torch.ones((), device=device)
        on_gpu, bf16 = device.type == "cuda", uses_bf16(config, device)
        too_old = on_gpu and config.compile is None and torch.cuda.get_device_capability(device) < OLDEST_FOR_TRITON
        self.is_compiled = getattr(model, "compiles", True) and is_compiled(config, on_gpu=on_gpu) and not too_old
        self.cpu_parallel: CpuDataParallel | None = None
        plain_cpu = device.type == "cpu" and self.world.size == 1 and not (self.is_compiled or bf16 or config.r_drop)
        wanted = plain_cpu and config.fused_step is not False
        if wanted and isinstance(model, Transformer) and supports("cpu_training", model.config):
            self.cpu_parallel = CpuDataParallel(model, smoothing=config.label_smoothing)
        self.rows_per_microbatch: int | None = None
        self.remarks: list[str] = []  # of the trial with the largest batch
        alone_on_gpu = self.is_compiled and on_gpu and self.world.size == 1
        self._compute(fast=alone_on_gpu and wants_fused_step(model, config, bf16=bf16))

    def _compute(self, *, fast: bool) -> None:
        """From now on compute by the fast step, or by the usual one."""
        model, device, bf16 = self.model, self.device, uses_bf16(self.config, self.device)
        self.is_fast, self.gradients = fast, Gradients()
        self.twin = LowPrecisionCopy(model, torch.bfloat16) if bf16 and fast and has_no_buffers(model) else None
        self.autocast = bf16 and self.twin is None
        self.computing = model if self.twin is None else self.twin.model
        self.adam: FlatAdam | None = None
        if self.twin is not None and supports_flat_adam(self.optimizer):
            self.adam = FlatAdam(self.optimizer, self.twin)
            self.gradients.set_buffers(self.twin.parameters, self.adam.rooms)
        self.update: Callable[[Batch], tuple[Tensor, ...]] = self._update_here
        if fast:
            if device.index is not None:
                torch.cuda.set_device(device)  # kernels of our own are started on the present device
            self.update = Recorded(self._update, device)
        loss = self._loss_sum
        if self.is_compiled and not is_sharded(model):  # the layers of a divided model are compiled one by one
            torch.compiler.reset()  # torch counts what earlier runs of this process compiled, and stops at eight
            loss = torch.compile(loss, fullgraph=True, dynamic=False)
        self.loss: Callable[..., Tensor] = self.world.wrap_ddp(self.computing, loss)

    def _loss_sum(self, batch: Batch) -> Tensor:
        if not self.config.r_drop:
            return self._cross_entropy(self._logits(batch), batch)
        rows = batch.source.shape[0] // 2  # `_accumulate` gives every row twice
        logits = self._logits(batch)
        one, other = logits.chunk(2)
        mean = 0.5 * self._cross_entropy(logits, batch)
        return mean + self.config.r_drop * symmetric_kl(one, other, batch.target_segments[:rows])

    def _logits(self, batch: Batch) -> Tensor:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.autocast):
            logits: Tensor = self.computing(**batch.inputs)
        return logits

    def _cross_entropy(self, logits: Tensor, batch: Batch) -> Tensor:
        smoothing = self.config.label_smoothing
        return smoothed_cross_entropy(logits, batch.target_output, batch.target_segments, smoothing=smoothing).loss_sum

    def __call__(self, batch: Batch, num_tokens: int, learning_rate: float) -> StepResult:
        """Update the weights by the mean gradient over the step's real target tokens: so many on all ranks together."""
        self.num_tokens.fill_(num_tokens / self.world.size)  # gradients are averaged over the ranks
        set_learning_rate(self.optimizer, learning_rate)
        if self.adam is not None:
            self.adam.sync_weights()
        return StepResult(*(tensor.clone() for tensor in self.update(batch)))

    def _update_here(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        return self._update(batch.to(self.device, non_blocking=True))

    def _update(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """One whole update on the device, without waiting for it."""
        if self.adam is not None and batch.num_rows <= (self.rows_per_microbatch or batch.num_rows):
            return self._update_at_once(batch, self.adam)
        statistics = [buffer.clone() for buffer in self.buffers]
        loss_sum = self.world.all_reduce_sum(self._accumulate(batch))
        self.world.all_reduce_mean(self.buffers)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = full_tensor(torch.nn.utils.get_total_norm(gradients))
        skipped = ~(torch.isfinite(norm) & torch.isfinite(loss_sum))
        if self.config.clip_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.config.clip_norm, norm)
        self._apply(skipped)
        for buffer, before in zip(self.buffers, statistics, strict=True):  # BatchNorm's
            buffer.copy_(torch.where(skipped, before, buffer))
        return loss_sum, norm, skipped

    def _update_at_once(self, batch: Batch, adam: FlatAdam) -> tuple[Tensor, Tensor, Tensor]:
        """The same for one microbatch and a twin that is kept up: its gradients are never summed in another type."""
        if not self.computing.training:
            self.computing.train()
        self._forget_gradients()
        loss_sum = self._differentiate(batch)
        gradient = adam.gather()
        norm = torch.linalg.vector_norm(gradient, dtype=torch.float32)
        skipped = ~(torch.isfinite(norm) & torch.isfinite(loss_sum))
        limit = self.config.clip_norm
        adam.update(gradient, skipped, None if limit is None else (limit / (norm + 1e-6)).clamp(max=1.0))
        return loss_sum, norm, skipped

    def _accumulate(self, batch: Batch, *, alone: bool = False) -> Tensor:
        """Sum of losses; leaves the mean's gradient in the parameters, however many microbatches it takes.

        Gradients are sent to the other ranks with the last microbatch only, or, when `alone`, not at all.
        """
        if not self.computing.training:  # asking one module is quicker than telling all
            self.computing.train()
        self._forget_gradients()
        if self.twin is not None:
            self.twin.refresh()
        total = torch.zeros((), device=self.device)
        rows = self.rows_per_microbatch or batch.num_rows
        for start in range(0, batch.num_rows, rows):
            part = batch if rows >= batch.num_rows else batch.rows(start, min(start + rows, batch.num_rows))
            is_last = start + rows >= batch.num_rows
            with nullcontext() if is_last and not alone else no_sync(self.loss):
                total += self._differentiate(part)
            if self.twin is not None:
                self.twin.hand_over()
        return total

    def _differentiate(self, part: Batch) -> Tensor:
        """Add a microbatch's share of the mean's gradient; returns its sum of losses."""
        if self.cpu_parallel is not None and not self.cpu_parallel.has_hooks:
            return self.cpu_parallel(part, 1 / self.num_tokens.item())
        model = self.computing
        (rows, width), plain_loss = part.target_input.shape, not self.config.r_drop
        if self.is_fast and plain_loss and isinstance(model, Transformer) and supports_batch(model.config, width, rows):
            smoothing = self.config.label_smoothing
            scaled, loss_sum = fused_losses(model, part, 1 / self.num_tokens, self.gradients, smoothing=smoothing)
        else:
            loss_sum = self.loss(part.repeat_rows() if self.config.r_drop else part)
            scaled = loss_sum / self.num_tokens
        try:
            scaled.backward()
            self.gradients.hand_over()
        except BaseException:
            self._forget_gradients()  # whoever goes on needs the memory
            raise
        return loss_sum.detach()

    def _forget_gradients(self) -> None:
        """Drop all gradients of weights, also those that an update left which did not come to its end."""
        for parameter in (*self.parameters, *(self.twin.parameters if self.twin is not None else ())):
            parameter.grad = None
        self.gradients.clear()

    def _apply(self, skipped: Tensor) -> None:
        """Adam's update, unless a number was not finite. Fused Adam takes the flag on the device, without waiting."""
        if self.optimizer.defaults["fused"]:
            self.optimizer.found_inf = skipped.float()  # type: ignore[attr-defined]
            self.optimizer.step()
        elif not skipped.item():
            self.optimizer.step()

    def try_largest_batch(self, batch: Batch) -> str | None:
        """Run forward and backward on the largest batch there can be, so that memory runs out now or never.

        Halves the microbatch until it fits, unless the user set its size. Weights, statistics and random states are as
        before. Returns a remark when the batch had to be divided, or the fast step left to others.
        """
        width = batch.target_input.shape[1]
        wanted, self.remarks = self.config.tokens_per_microbatch, []
        model, by_default = self.model, self.is_fast and self.config.fused_step is None
        if by_default and isinstance(model, Transformer) and not supports_batch(model.config, width):
            self._compute(fast=False)
        self.rows_per_microbatch = batch.num_rows if wanted is None else min(batch.num_rows, max(1, wanted // width))
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        random = random_states(self.device)
        while not self._fits_everywhere(batch):
            if wanted is not None or self.rows_per_microbatch == 1:
                raise TrainingError(self._advice(width))
            self.rows_per_microbatch = (self.rows_per_microbatch + 1) // 2
        with torch.no_grad():
            for name, buffer in self.model.named_buffers():
                buffer.copy_(buffers[name])
        restore_random(random, self.device)
        for parameter in self.parameters:
            parameter.grad = None
        if wanted is None and self.rows_per_microbatch < batch.num_rows:
            tokens = self.rows_per_microbatch * width
            self.remarks.append(
                f"A whole step does not fit in memory: using microbatches of {tokens} tokens (the result is the same)."
            )
        return " ".join(self.remarks) or None

    def with_free_memory(self, work: Callable[[], T]) -> T:
        """Do other work; if memory is short, a recorded step gives its own back for it, and is recorded anew later."""
        try:
            return work()
        except torch.OutOfMemoryError:
            if not self.release_graph():
                raise
        return work()

    def release_graph(self) -> bool:
        """Whether a recorded step had memory to give back."""
        return isinstance(self.update, Recorded) and self.update.forget()

    def _fits_everywhere(self, batch: Batch) -> bool:
        fits = self._fits(batch)
        if not fits and is_sharded(self.model):  # the others wait in the middle of it for this rank's share
            raise TrainingError(self._advice(batch.target_input.shape[1]))
        return not self.world.all_reduce_max([not fits])[0]

    def _fits(self, batch: Batch) -> bool:
        moments: list[Tensor] = []
        try:
            if not self.optimizer.state:
                copies = 3 if self.is_fast else 2  # a recorded step has gradients of its own
                moments = [torch.empty_like(parameter) for parameter in self.parameters for _ in range(copies)]
            rows = min(batch.num_rows, 2 * (self.rows_per_microbatch or batch.num_rows))
            self.num_tokens.fill_(1)
            self._accumulate(batch.rows(0, rows).to(self.device), alone=True)
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            return True
        except Exception as error:
            lacks_memory = _is_lack_of_memory(error)
            if not lacks_memory:
                if not self.is_fast:
                    raise
                self._leave_fast(error)
        self._forget_gradients()
        del moments
        if self.is_compiled:
            torch.compiler.reset()  # what was compiled for this size is of no more use
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return False if lacks_memory else self._fits(batch)

    def _leave_fast(self, error: Exception) -> None:
        """Go on without the fast step, whose kernels not every GPU can run; but not if the user insists on it."""
        what = f"{type(error).__name__}: {(str(error).strip() or '-').splitlines()[0]}"
        if self.config.fused_step:
            raise TrainingError(
                f"training.fused_step=true: the fast step does not work on {self.device} ({what}). Leave it out."
            ) from error
        self._compute(fast=False)
        self.remarks.append(f"The fast step does not work on {self.device} ({what}); the usual compiled one is used.")

    def _advice(self, width: int) -> str:
        tokens = (self.rows_per_microbatch or 1) * width
        return (
            f"A microbatch of {tokens} tokens does not fit in the memory of {self.device}. Set "
            f"--training.tokens_per_microbatch={max(width, tokens // 2)} or lower (the result is the same), "
            f"or choose a smaller --preset."
        )


def wants_fused_step(model: nn.Module, config: TrainingConfig, *, bf16: bool) -> bool:
    """Whether the fast step shall be used: as set, or by default where its operations are made for model and loss.

    In fp32 it is no default: its kernels then multiply in TF32, which nobody asked for.
    """
    if config.fused_step is not None:
        return config.fused_step
    return bf16 and isinstance(model, Transformer) and supports_batch(model.config, width=1) and not config.r_drop


def _is_lack_of_memory(error: Exception) -> bool:
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and re.search(r"memory(?! access)", str(error).lower()) is not None


def uses_bf16(config: TrainingConfig, device: torch.device) -> bool:
    """Whether matrix products run in bf16: as set, or by default on a GPU that has it."""
    if config.precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    if config.precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise ConfigError("training.precision=bf16: this GPU has no bf16; use fp32.")
    return config.precision == "bf16"
