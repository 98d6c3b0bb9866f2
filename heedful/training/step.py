"""One update of the weights: forward and backward over microbatches, a check for non-finite numbers, the optimizer.

The model is single-device code; compilation, bf16, gradient accumulation and CUDA graphs are applied here. With several
ranks each computes its rows, and gradients are averaged, so the update is that of the whole batch.
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
from heedful.baselines.recurrent import RecurrentSeq2Seq
from heedful.config import TrainingConfig
from heedful.data.packing import Batch
from heedful.errors import ConfigError, TrainingError
from heedful.fused.train_gpu import fused_losses, supports_batch
from heedful.fused.train_ops import Gradients
from heedful.model.transformer import Transformer
from heedful.training.checkpoint import random_states, restore_random
from heedful.training.compile_cache import is_compiled
from heedful.training.cuda_graph import GraphedStep
from heedful.training.distributed import CpuDataParallel, World, full_tensor, is_sharded, no_sync
from heedful.training.loss import reinforce, smoothed_cross_entropy, symmetric_kl
from heedful.training.mixed_precision import FlatAdam, LowPrecisionCopy, has_no_buffers, supports_flat_adam
from heedful.training.optimizer import build_optimizer, set_learning_rate

MIN_TRITON_CAPABILITY = (7, 0)

T = TypeVar("T")


class StepResult(NamedTuple):
    """Loss, gradient norm and whether the update was skipped, over all ranks, on the device."""

    loss_sum: Tensor
    gradient_norm: Tensor
    skipped: Tensor


@dataclass
class LogWindow:
    """Sums over the updates since the last line of the log, kept on the device to avoid waiting for it."""

    loss_sum: Tensor
    counted_tokens: Tensor
    skipped: Tensor
    skipped_in_a_row: Tensor
    gradient_norm: Tensor
    learning_rate: float = 0.0
    steps: int = 0
    tokens: int = 0
    start_time: float = field(default_factory=time.perf_counter)

    @classmethod
    def open(cls, device: torch.device, skipped_in_a_row: Tensor | None = None) -> LogWindow:
        """An empty window; `skipped_in_a_row` continues the count of the previous window."""
        loss_sum, skipped, zero, norm = torch.zeros(4, device=device).unbind()
        return cls(
            loss_sum=loss_sum,
            counted_tokens=torch.zeros((), dtype=torch.int64, device=device),
            skipped=skipped,
            skipped_in_a_row=zero if skipped_in_a_row is None else skipped_in_a_row,
            gradient_norm=norm,
        )

    def add(self, result: StepResult, num_tokens: int, learning_rate: float) -> None:
        """Add one update, without waiting for the device."""
        self.loss_sum += torch.where(result.skipped, 0.0, result.loss_sum)
        self.counted_tokens += torch.where(result.skipped, 0, num_tokens)
        self.skipped += result.skipped
        self.skipped_in_a_row = (self.skipped_in_a_row + 1) * result.skipped
        self.gradient_norm = result.gradient_norm
        self.learning_rate = learning_rate
        self.tokens += num_tokens
        self.steps += 1

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the window, which are part of a checkpoint."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}


class TrainingStep:
    """Turns batches into updates of `model`."""

    def __init__(
        self, model: nn.Module, config: TrainingConfig, device: torch.device, world: World | None = None
    ) -> None:
        self.model, self.config, self.device = model, config, device
        self.world = world or World(device)
        self.parameters = list(model.parameters())
        self.buffers = list(model.buffers())
        self.optimizer = build_optimizer(model, config)
        self.num_tokens = torch.ones((), device=device)
        on_gpu = device.type == "cuda"
        bf16 = uses_bf16(config, device)
        too_old = on_gpu and config.compile is None and torch.cuda.get_device_capability(device) < MIN_TRITON_CAPABILITY
        self.is_compiled = getattr(model, "compiles", True) and is_compiled(config, on_gpu=on_gpu) and not too_old
        self.cpu_parallel: CpuDataParallel | None = None
        is_plain_cpu = device.type == "cpu" and self.world.size == 1 and not (self.is_compiled or bf16 or config.r_drop)
        if (
            is_plain_cpu
            and config.fused_step is not False
            and isinstance(model, Transformer)
            and supports("cpu_training", model.config)
        ):
            self.cpu_parallel = CpuDataParallel(model, smoothing=config.label_smoothing)
        self.rows_per_microbatch: int | None = None
        self.remarks: list[str] = []
        """Notes about the largest batch, for the user."""
        is_single_gpu = self.is_compiled and on_gpu and self.world.size == 1
        self._configure(fused=is_single_gpu and wants_fused_step(model, config, bf16=bf16))

    def _configure(self, *, fused: bool) -> None:
        """Choose the fused step, or the usual one."""
        model, device, bf16 = self.model, self.device, uses_bf16(self.config, self.device)
        self.is_fused = fused
        self.gradients = Gradients()
        self.low_precision: LowPrecisionCopy | None = None
        if bf16 and fused and has_no_buffers(model):
            self.low_precision = LowPrecisionCopy(model, torch.bfloat16)
        self.autocast = bf16 and self.low_precision is None
        self.compute_model = model if self.low_precision is None else self.low_precision.model
        self.adam: FlatAdam | None = None
        if self.low_precision is not None and supports_flat_adam(self.optimizer):
            self.adam = FlatAdam(self.optimizer, self.low_precision)
            self.gradients.set_buffers(self.low_precision.parameters, self.adam.gradient_views)
        self.update: Callable[[Batch], tuple[Tensor, ...]] = self._update_on_device
        if fused:
            if device.index is not None:
                torch.cuda.set_device(device)  # Triton launches kernels on the current device
            self.update = GraphedStep(self._update, device)
        loss = self._loss_sum
        if self.is_compiled and not is_sharded(model):  # the layers of a sharded model are compiled one by one
            torch.compiler.reset()  # earlier runs in this process count towards torch's recompilation limit of eight
            loss = torch.compile(loss, fullgraph=True, dynamic=False)
        self.loss: Callable[..., Tensor] = self.world.wrap_ddp(self.compute_model, loss)

    def _loss_sum(self, batch: Batch) -> Tensor:
        logits = self._logits(batch)
        if not self.config.r_drop:
            return self._cross_entropy(logits, batch)
        num_rows = batch.source.shape[0] // 2  # `_backward` repeats every row
        first, second = logits.chunk(2)
        mean = 0.5 * self._cross_entropy(logits, batch)
        return mean + self.config.r_drop * symmetric_kl(first, second, batch.target_segments[:num_rows])

    def _logits(self, batch: Batch) -> Tensor:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.autocast):
            logits: Tensor = self.compute_model(**batch.inputs)
        return logits

    def _cross_entropy(self, logits: Tensor, batch: Batch) -> Tensor:
        smoothing = self.config.label_smoothing
        loss = smoothed_cross_entropy(logits, batch.target_output, batch.target_segments, smoothing=smoothing).loss_sum
        model = self.compute_model
        if isinstance(model, (Transformer, RecurrentSeq2Seq)) and model.config.samples_cross_attention:
            return loss + reinforce(logits, batch.target_output, batch.target_segments, model.sampled_log_prob())
        return loss

    def __call__(self, batch: Batch, num_tokens: int, learning_rate: float) -> StepResult:
        """Update the weights by the mean gradient over `num_tokens`, the real target tokens of all ranks."""
        self.num_tokens.fill_(num_tokens / self.world.size)  # gradients are averaged over the ranks
        set_learning_rate(self.optimizer, learning_rate)
        if self.adam is not None:
            self.adam.sync_weights()
        return StepResult(*(tensor.clone() for tensor in self.update(batch)))

    def _update_on_device(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        return self._update(batch.to(self.device, non_blocking=True))

    def _update(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """One update of a batch on the device, without waiting for it."""
        if self.adam is not None and batch.num_rows <= (self.rows_per_microbatch or batch.num_rows):
            return self._update_flat(batch, self.adam)
        buffers_before = [buffer.clone() for buffer in self.buffers]
        loss_sum = self.world.all_reduce_sum(self._accumulate(batch))
        self.world.all_reduce_mean(self.buffers)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = full_tensor(torch.nn.utils.get_total_norm(gradients))
        skipped = ~(torch.isfinite(norm) & torch.isfinite(loss_sum))
        if self.config.clip_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.config.clip_norm, norm)
        self._apply(skipped)
        for buffer, before in zip(self.buffers, buffers_before, strict=True):  # BatchNorm's running statistics
            buffer.copy_(torch.where(skipped, before, buffer))
        return loss_sum, norm, skipped

    def _update_flat(self, batch: Batch, adam: FlatAdam) -> tuple[Tensor, Tensor, Tensor]:
        """`_update` for one microbatch and a low-precision copy: its gradients are used without a conversion."""
        if not self.compute_model.training:
            self.compute_model.train()
        self._clear_gradients()
        loss_sum = self._backward(batch)
        gradient = adam.gather_gradients()
        norm = torch.linalg.vector_norm(gradient, dtype=torch.float32)
        skipped = ~(torch.isfinite(norm) & torch.isfinite(loss_sum))
        clip_norm = self.config.clip_norm
        adam.update(gradient, skipped, None if clip_norm is None else (clip_norm / (norm + 1e-6)).clamp(max=1.0))
        return loss_sum, norm, skipped

    def _accumulate(self, batch: Batch, *, local_only: bool = False) -> Tensor:
        """The sum of losses; the gradient of the mean loss is in the parameters afterwards.

        Gradients are sent to the other ranks with the last microbatch only, or not at all if `local_only`.
        """
        if not self.compute_model.training:  # checking one flag is faster than setting all
            self.compute_model.train()
        self._clear_gradients()
        if self.low_precision is not None:
            self.low_precision.refresh()
        total = torch.zeros((), device=self.device)
        rows = self.rows_per_microbatch or batch.num_rows
        for start in range(0, batch.num_rows, rows):
            part = batch if rows >= batch.num_rows else batch.rows(start, min(start + rows, batch.num_rows))
            is_last = start + rows >= batch.num_rows
            with nullcontext() if is_last and not local_only else no_sync(self.loss):
                total += self._backward(part)
            if self.low_precision is not None:
                self.low_precision.add_gradients()
        return total

    def _backward(self, microbatch: Batch) -> Tensor:
        """Add the microbatch's part of the mean's gradient to the parameters; returns its sum of losses."""
        if self.cpu_parallel is not None and not self.cpu_parallel.has_hooks:
            return self.cpu_parallel(microbatch, 1 / self.num_tokens.item())
        model = self.compute_model
        num_rows, width = microbatch.target_input.shape
        if (
            self.is_fused
            and not self.config.r_drop
            and isinstance(model, Transformer)
            and supports_batch(model.config, width, num_rows)
        ):
            smoothing = self.config.label_smoothing
            scaled, loss_sum = fused_losses(model, microbatch, 1 / self.num_tokens, self.gradients, smoothing=smoothing)
        else:
            loss_sum = self.loss(microbatch.repeat_rows() if self.config.r_drop else microbatch)
            scaled = loss_sum / self.num_tokens
        try:
            scaled.backward()
            self.gradients.flush()
        except BaseException:
            self._clear_gradients()  # free memory for the caller's next attempt
            raise
        return loss_sum.detach()

    def _clear_gradients(self) -> None:
        """Drop all gradients of weights, including those of an interrupted update."""
        copies = self.low_precision.parameters if self.low_precision is not None else ()
        for parameter in (*self.parameters, *copies):
            parameter.grad = None
        self.gradients.clear()

    def _apply(self, skipped: Tensor) -> None:
        """The optimizer's update, unless `skipped`. Fused Adam reads the flag on the device, without waiting for it."""
        if self.optimizer.defaults["fused"]:
            self.optimizer.found_inf = skipped.float()  # type: ignore[attr-defined]
            self.optimizer.step()
        elif not skipped.item():
            self.optimizer.step()

    def try_largest_batch(self, batch: Batch) -> str | None:
        """Run forward and backward on the largest possible batch, to detect at the start whether memory suffices.

        The microbatch is halved until it fits, unless the user has set its size. Weights, statistics and random states
        do not change. Returns a remark if the batch was divided or the fused step was disabled.
        """
        width = batch.target_input.shape[1]
        requested = self.config.tokens_per_microbatch
        self.remarks = []
        model = self.model
        is_default = self.is_fused and self.config.fused_step is None
        if is_default and isinstance(model, Transformer) and not supports_batch(model.config, width):
            self._configure(fused=False)
        self.rows_per_microbatch = batch.num_rows
        if requested is not None:
            self.rows_per_microbatch = min(batch.num_rows, max(1, requested // width))
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        random = random_states(self.device)
        while not self._fits_on_all_ranks(batch):
            if requested is not None or self.rows_per_microbatch == 1:
                raise TrainingError(self._out_of_memory_advice(width))
            self.rows_per_microbatch = (self.rows_per_microbatch + 1) // 2
        with torch.no_grad():
            for name, buffer in self.model.named_buffers():
                buffer.copy_(buffers[name])
        restore_random(random, self.device)
        for parameter in self.parameters:
            parameter.grad = None
        if requested is None and self.rows_per_microbatch < batch.num_rows:
            tokens = self.rows_per_microbatch * width
            self.remarks.append(
                f"A whole step does not fit in memory: using microbatches of {tokens} tokens (the result is the same)."
            )
        return " ".join(self.remarks) or None

    def with_free_memory(self, work: Callable[[], T]) -> T:
        """Run `work`; if memory runs out, release the CUDA graph, which is captured again later, and retry."""
        try:
            return work()
        except torch.OutOfMemoryError:
            if not self.release_graph():
                raise
        return work()

    def release_graph(self) -> bool:
        """Free the memory of the CUDA graph; returns whether there was one."""
        return isinstance(self.update, GraphedStep) and self.update.release()

    def _fits_on_all_ranks(self, batch: Batch) -> bool:
        fits = self._fits(batch)
        if not fits and is_sharded(self.model):  # the other ranks wait for this rank's shard
            raise TrainingError(self._out_of_memory_advice(batch.target_input.shape[1]))
        return not self.world.all_reduce_max([not fits])[0]

    def _fits(self, batch: Batch) -> bool:
        moments: list[Tensor] = []
        try:
            if not self.optimizer.state:
                copies = 3 if self.is_fused else 2  # a CUDA graph has its own gradients
                moments = [torch.empty_like(parameter) for parameter in self.parameters for _ in range(copies)]
            rows = min(batch.num_rows, 2 * (self.rows_per_microbatch or batch.num_rows))
            self.num_tokens.fill_(1)
            self._accumulate(batch.rows(0, rows).to(self.device), local_only=True)
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            return True
        except Exception as error:
            out_of_memory = _is_out_of_memory(error)
            if not out_of_memory:
                if not self.is_fused:
                    raise
                self._disable_fused(error)
        self._clear_gradients()
        del moments
        if self.is_compiled:
            torch.compiler.reset()  # code compiled for this size is no longer needed
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return False if out_of_memory else self._fits(batch)

    def _disable_fused(self, error: Exception) -> None:
        """Use the usual step where the GPU cannot run the fused kernels; an error if the user has set fused_step."""
        reason = f"{type(error).__name__}: {(str(error).strip() or '-').splitlines()[0]}"
        if self.config.fused_step:
            raise TrainingError(
                f"training.fused_step=true: the fused step does not work on {self.device} ({reason}). Leave it out."
            ) from error
        self._configure(fused=False)
        self.remarks.append(
            f"The fused step does not work on {self.device} ({reason}); the usual compiled step is used instead."
        )

    def _out_of_memory_advice(self, width: int) -> str:
        tokens = (self.rows_per_microbatch or 1) * width
        return (
            f"A microbatch of {tokens} tokens does not fit in the memory of {self.device}. Set "
            f"--training.tokens_per_microbatch={max(width, tokens // 2)} or lower (the result is the same), "
            f"or choose a smaller --preset."
        )


def wants_fused_step(model: nn.Module, config: TrainingConfig, *, bf16: bool) -> bool:
    """Whether to use the fused step: as set, or by default where it supports model and loss.

    It is not the default in fp32, because its kernels would multiply in TF32.
    """
    if config.fused_step is not None:
        return config.fused_step
    return bf16 and isinstance(model, Transformer) and supports_batch(model.config, width=1) and not config.r_drop


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and re.search(r"memory(?! access)", str(error).lower()) is not None


def uses_bf16(config: TrainingConfig, device: torch.device) -> bool:
    """Whether matrix products run in bf16: as set, or by default on a GPU that supports it."""
    if config.precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    if config.precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise ConfigError("training.precision=bf16: this GPU does not support bf16; use fp32.")
    return config.precision == "bf16"
