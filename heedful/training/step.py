"""One update of the weights: forward, loss and backward over microbatches, a check that all is finite, then Adam.

The model is single-device code; compilation, bf16, accumulation and recording are applied here, from outside. With
several ranks each computes its rows, and the update is that of all rows together.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.config import TrainingConfig
from heedful.data.batch import Batch
from heedful.errors import ConfigError, TrainingError
from heedful.model.fast.forward import can_be_fast, fast_losses
from heedful.model.fast.gradients import Gradients
from heedful.model.fast.on_cpu import can_run_on_cpu
from heedful.model.transformer import Transformer
from heedful.training.distributed import World, is_divided, whole, without_sending
from heedful.training.loss import disagreement, smoothed_cross_entropy
from heedful.training.on_cores import OnCores
from heedful.training.optimizer import build_optimizer, set_learning_rate
from heedful.training.recorded import Recorded
from heedful.training.state import random_tensors, restore_random
from heedful.training.twin import Twin, can_have_twin


class StepResult(NamedTuple):
    """What one update tells, of all ranks together; still on the device so that nothing waits for it."""

    loss_sum: Tensor
    gradient_norm: Tensor
    skipped: Tensor


class TrainingStep:
    """Turns batches into updates of `model`."""

    def __init__(
        self, model: nn.Module, config: TrainingConfig, device: torch.device, world: World | None = None
    ) -> None:
        self.model, self.config, self.device, self.world = model, config, device, world or World(device)
        self.parameters, self.buffers = list(model.parameters()), list(model.buffers())
        self.optimizer = build_optimizer(model, config)
        self.num_tokens = torch.ones((), device=device)
        can_compile = getattr(model, "compiles", True)
        self.is_compiled = can_compile and (config.compile if config.compile is not None else device.type == "cuda")
        self.is_fast = self.is_compiled and device.type == "cuda" and self.world.size == 1 and wants_fast(model, config)
        bf16 = uses_bf16(config, device)
        self.twin = Twin(model, torch.bfloat16) if bf16 and self.is_fast and can_have_twin(model) else None
        self.autocast = bf16 and self.twin is None
        self.computing = model if self.twin is None else self.twin.model
        self.gradients = Gradients()
        self.on_cores: OnCores | None = None
        plain_cpu = device.type == "cpu" and self.world.size == 1 and not (self.is_compiled or bf16 or config.r_drop)
        if plain_cpu and isinstance(model, Transformer) and can_run_on_cpu(model.config):
            self.on_cores = OnCores(model, smoothing=config.label_smoothing)
        self.rows_per_microbatch: int | None = None
        self.update: Callable[[Batch], tuple[Tensor, ...]] = self._update_here
        if self.is_fast:
            self.update = Recorded(self._update, device)
        loss = self._loss_sum
        if self.is_compiled and not is_divided(model):  # the layers of a divided model are compiled one by one
            torch.compiler.reset()  # torch counts what earlier runs of this process compiled, and stops at eight
            loss = torch.compile(loss, fullgraph=True, dynamic=False)
        self.loss: Callable[..., Tensor] = self.world.replicated(self.computing, loss)

    def _loss_sum(self, batch: Batch) -> Tensor:
        if not self.config.r_drop:
            return self._cross_entropy(self._logits(batch), batch)
        rows = batch.source.shape[0] // 2  # `_accumulate` gives every row twice
        logits = self._logits(batch)
        one, other = logits.chunk(2)
        mean = 0.5 * self._cross_entropy(logits, batch)
        return mean + self.config.r_drop * disagreement(one, other, batch.target_segments[:rows])

    def _logits(self, batch: Batch) -> Tensor:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.autocast):
            logits: Tensor = self.computing(*batch.inputs)
        return logits

    def _cross_entropy(self, logits: Tensor, batch: Batch) -> Tensor:
        smoothing = self.config.label_smoothing
        return smoothed_cross_entropy(logits, batch.target_output, batch.target_segments, smoothing=smoothing).loss_sum

    def __call__(self, batch: Batch, num_tokens: int, learning_rate: float) -> StepResult:
        """Update the weights by the mean gradient over the step's real target tokens: so many on all ranks together."""
        self.num_tokens.fill_(num_tokens / self.world.size)  # gradients are averaged over the ranks
        set_learning_rate(self.optimizer, learning_rate)
        return StepResult(*(tensor.clone() for tensor in self.update(batch)))

    def _update_here(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        return self._update(batch.to(self.device, non_blocking=True))

    def _update(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """One whole update on the device, without waiting for it."""
        statistics = [buffer.clone() for buffer in self.buffers]
        loss_sum = self.world.sum(self._accumulate(batch))
        self.world.average(self.buffers)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = whole(torch.nn.utils.get_total_norm(gradients))
        skipped = ~(torch.isfinite(norm) & torch.isfinite(loss_sum))
        if self.config.clip_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.config.clip_norm, norm)
        self._apply(skipped)
        for buffer, before in zip(self.buffers, statistics, strict=True):  # BatchNorm's
            buffer.copy_(torch.where(skipped, before, buffer))
        return loss_sum, norm, skipped

    def _accumulate(self, batch: Batch, *, alone: bool = False) -> Tensor:
        """Sum of losses; leaves the mean's gradient in the parameters, however many microbatches it takes.

        Gradients are sent to the other ranks with the last microbatch only, or, when `alone`, not at all.
        """
        if not self.computing.training:  # asking one module is quicker than telling all
            self.computing.train()
        for parameter in self.parameters:
            parameter.grad = None
        if self.twin is not None:
            self.twin.refresh()
        total = torch.zeros((), device=self.device)
        rows = self.rows_per_microbatch or batch.num_rows
        for start in range(0, batch.num_rows, rows):
            part = batch if rows >= batch.num_rows else batch.rows(start, min(start + rows, batch.num_rows))
            is_last = start + rows >= batch.num_rows
            with nullcontext() if is_last and not alone else without_sending(self.loss):
                total += self._differentiate(part)
            if self.twin is not None:
                self.twin.hand_over()
        return total

    def _differentiate(self, part: Batch) -> Tensor:
        """Add a microbatch's share of the mean's gradient; returns its sum of losses."""
        if self.on_cores is not None and not self.on_cores.is_watched:
            return self.on_cores(part, 1 / self.num_tokens.item())
        model = self.computing
        width, plain_loss = part.target_input.shape[1], not self.config.r_drop
        if self.is_fast and plain_loss and isinstance(model, Transformer) and can_be_fast(model.config, width):
            smoothing = self.config.label_smoothing
            scaled, loss_sum = fast_losses(model, part, 1 / self.num_tokens, self.gradients, smoothing=smoothing)
        else:
            loss_sum = self.loss(part.twice() if self.config.r_drop else part)
            scaled = loss_sum / self.num_tokens
        scaled.backward()
        self.gradients.hand_over()
        return loss_sum.detach()

    def _apply(self, skipped: Tensor) -> None:
        """Adam's update, unless a number was not finite. Fused Adam takes the flag on the device, without waiting."""
        if self.optimizer.defaults["fused"]:
            self.optimizer.found_inf = skipped.float()  # type: ignore[attr-defined]
            self.optimizer.step()
        elif not skipped.item():
            self.optimizer.step()

    def try_largest(self, batch: Batch) -> str | None:
        """Run forward and backward on the largest batch there can be, so that memory runs out now or never.

        Halves the microbatch until it fits, unless the user set its size. Weights, statistics and random states are as
        before. Returns a remark when the batch had to be divided.
        """
        width = batch.target_input.shape[1]
        wanted = self.config.tokens_per_microbatch
        self.rows_per_microbatch = batch.num_rows if wanted is None else min(batch.num_rows, max(1, wanted // width))
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        random = random_tensors(self.device)
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
            return (
                f"A whole step does not fit in memory: using microbatches of {tokens} tokens (the result is the same)."
            )
        return None

    def _fits_everywhere(self, batch: Batch) -> bool:
        fits = self._fits(batch)
        if not fits and is_divided(self.model):  # the others wait in the middle of it for this rank's share
            raise TrainingError(self._advice(batch.target_input.shape[1]))
        return not self.world.agree([not fits])[0]

    def _fits(self, batch: Batch) -> bool:
        moments: list[Tensor] = []
        try:
            if not self.optimizer.state:
                moments = [torch.empty_like(parameter) for parameter in self.parameters for _ in range(2)]
            rows = min(batch.num_rows, 2 * (self.rows_per_microbatch or batch.num_rows))
            self.num_tokens.fill_(1)
            self._accumulate(batch.rows(0, rows).to(self.device), alone=True)
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            return True
        except (torch.OutOfMemoryError, MemoryError):
            pass
        except RuntimeError as error:
            if "memory" not in str(error).lower():
                raise
        for parameter in (*self.parameters, *self.computing.parameters()):
            parameter.grad = None
        self.gradients = Gradients()  # what was collected until then is of no use
        del moments
        if self.is_compiled:
            torch.compiler.reset()  # what was compiled for this size is of no more use
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return False

    def _advice(self, width: int) -> str:
        tokens = (self.rows_per_microbatch or 1) * width
        return (
            f"A microbatch of {tokens} tokens does not fit in the memory of {self.device}. Set "
            f"--training.tokens_per_microbatch={max(width, tokens // 2)} or lower (the result is the same), "
            f"or choose a smaller --preset."
        )


def wants_fast(model: nn.Module, config: TrainingConfig) -> bool:
    """Whether the fast step shall be used: as set, or by default where its operations are made for model and loss."""
    if config.fast_step is not None:
        return config.fast_step
    return isinstance(model, Transformer) and can_be_fast(model.config, width=1) and not config.r_drop


def uses_bf16(config: TrainingConfig, device: torch.device) -> bool:
    """Whether matrix products run in bf16: as set, or by default on a GPU that has it."""
    if config.precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    if config.precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise ConfigError("training.precision=bf16: this GPU has no bf16; use fp32.")
    return config.precision == "bf16"
