"""Distributed training, one process (rank) per device, and data parallelism over the cores of a CPU.

Only this module uses torch.distributed. torchrun starts the ranks and sets their environment. DDP keeps the weights
equal, or FSDP2 shards them over the ranks. Training tensors are sent between devices. Control messages are sent between
hosts (gloo) and never wait for a device.

On a CPU each thread computes the gradient of some sentence pairs. torch would divide every operation among the cores,
which then synchronise about a thousand times per update; here they synchronise once. The division of work and the order
of sums depend only on the batch and the number of threads.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import secrets
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from heedful.build_model import resolve_device
from heedful.data.packing import Batch
from heedful.errors import ConfigError, HeedfulError, OtherRankError, TrainingError
from heedful.fused.train_cpu import SentenceGroup, add_gradient, group_by_length
from heedful.model.layers import DecoderLayer, EncoderLayer
from heedful.model.transformer import Transformer

T = TypeVar("T")

STEP_TIMEOUT = timedelta(minutes=30)
"""Timeout of collectives inside a step."""
SETUP_TIMEOUT = timedelta(days=7)
"""Timeout while one rank prepares corpora or translates."""
REQUIRED_VARIABLES = ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
TOKENS_PER_GROUP = 2048
"""Approximate number of source and target tokens computed at a time, so that activations fit in a core's cache."""
MAX_WORKERS = 8
"""Each worker has its own gradients; with more cores each worker uses several."""


@dataclass(frozen=True)
class World:
    """The group of ranks, seen from one of them. With one rank, the default, every collective returns its input."""

    device: torch.device
    rank: int = 0
    size: int = 1
    cpu_group: Any = None
    """Process group of all ranks that communicates between hosts."""

    @property
    def is_rank0(self) -> bool:
        """Whether this is rank 0, which writes files, prints, and publishes models."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait until all ranks have called this."""
        self.all_reduce_max([0.0])

    def all_reduce_max(self, values: Sequence[float]) -> list[float]:
        """The elementwise maximum of all ranks' values."""
        if self.size == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(numbers, op=dist.ReduceOp.MAX, group=self.cpu_group)
        return [float(number) for number in numbers]

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value (anything JSON can hold) on all ranks."""
        if self.size == 1:
            return value
        text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        length = torch.tensor(len(text))
        dist.broadcast(length, src=0, group=self.cpu_group)
        if not self.is_rank0:
            text = torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(text, src=0, group=self.cpu_group)
        return json.loads(text.numpy().tobytes())

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all ranks; they are on the host and have the same shape."""
        if self.size == 1:
            return [tensor]
        tensors = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(tensors, tensor.contiguous(), group=self.cpu_group)
        return tensors

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, in place, sent between devices."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def on_rank0(self, work: Callable[[], T]) -> T | None:
        """Call `work` on rank 0 while the others wait. If it fails, all ranks stop and rank 0 reports the error."""
        result, error = None, None
        if self.is_rank0:
            try:
                result = work()
            except (HeedfulError, OSError) as caught:
                error = caught
        if self.broadcast(error is not None):
            raise error if error is not None else OtherRankError("rank 0 stopped; see its error message.")
        return result

    def require_equal(self, text: str, message: str) -> None:
        """Raise `ConfigError` if a rank's text differs from rank 0's; `{ranks}` in the message names these ranks."""
        digest = torch.frombuffer(bytearray(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8)
        reference, *others = self.all_gather(digest)
        wrong = [str(rank) for rank, other in enumerate(others, start=1) if not torch.equal(reference, other)]
        if wrong:
            message = message.format(ranks=f"rank {wrong[0]}" if len(wrong) == 1 else f"ranks {', '.join(wrong)}")
            raise ConfigError(message) if self.is_rank0 else OtherRankError(message)

    @contextmanager
    def process_group(self) -> Iterator[None]:
        """Report a lost rank as a `TrainingError`; destroy the process group on exit."""
        if self.size == 1:
            yield
            return
        try:
            yield
        except dist.DistError as error:
            raise TrainingError(self._lost_rank_message(error)) from error
        except RuntimeError as error:
            if "gloo" not in str(error) and "NCCL" not in str(error):
                raise
            raise TrainingError(self._lost_rank_message(error)) from error
        finally:
            dist.destroy_process_group()

    def _lost_rank_message(self, error: Exception) -> str:
        reason = str(error).strip().splitlines()[0]
        return (
            f"rank {self.rank} lost another rank ({reason}). With --max-restarts=3 torchrun restarts all ranks, and "
            f"they resume from the last saved state."
        )

    # ------------------------------------------------------------------ the model on several devices

    def wrap_ddp(self, model: nn.Module, loss: Callable[[Batch], Tensor]) -> Callable[[Batch], Tensor]:
        """`loss`, with the gradients of `model` averaged over the ranks in backward (DDP), unless it is sharded."""
        if self.size == 1 or is_sharded(model):
            return loss
        return nn.parallel.DistributedDataParallel(LossModule(model, loss), gradient_as_bucket_view=True)

    def all_reduce_mean(self, tensors: Sequence[Tensor]) -> None:
        """The mean over all ranks, in place."""
        for tensor in tensors if self.size > 1 else ():
            self.all_reduce_sum(tensor).div_(self.size)

    def fully_shard(self, model: nn.Module, *, compile_layers: bool) -> None:
        """Shard the weights over the ranks (FSDP2); a layer's weights are gathered only while it computes."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        # The warning is about in-place changes of a returned view; there are none here.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
        mesh = init_device_mesh(self.device.type, (self.size,))
        for layer in [module for module in model.modules() if isinstance(module, (EncoderLayer, DecoderLayer))]:
            if isinstance(layer, DecoderLayer):  # used by `memory_keys_values` outside the layer's forward
                fully_shard(layer.cross_attention.key, mesh=mesh)
                fully_shard(layer.cross_attention.value, mesh=mesh)
            if compile_layers:
                layer.compile(dynamic=False)
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)

    def row_range(self, num_rows: int) -> tuple[int, int]:
        """The range of rows that this rank holds of a sharded tensor, divided as by `torch.chunk`."""
        each = -(-num_rows // self.size)
        return min(self.rank * each, num_rows), min((self.rank + 1) * each, num_rows)


class LossModule(nn.Module):
    """Model and loss as one module, for DDP."""

    def __init__(self, model: nn.Module, loss: Callable[[Batch], Tensor]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Batch) -> Tensor:
        return self.loss(batch)


def no_sync(loss: Callable[[Batch], Tensor]) -> AbstractContextManager[None]:
    """Keep DDP from sending gradients, for all microbatches but the last."""
    if isinstance(loss, nn.parallel.DistributedDataParallel):
        return loss.no_sync()
    return nullcontext()


# ---------------------------------------------------------------------- sharded tensors


def is_sharded(module_or_tensor: nn.Module | Tensor) -> bool:
    """Whether this rank holds only some rows of a tensor, or of a model's parameters."""
    tensors = module_or_tensor.parameters() if isinstance(module_or_tensor, nn.Module) else [module_or_tensor]
    return any(hasattr(tensor, "full_tensor") for tensor in tensors)


def to_local(tensor: Tensor) -> Tensor:
    """The rows that this rank holds: all of them, unless the tensor is sharded."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def full_tensor(tensor: Tensor) -> Tensor:
    """All rows of a tensor. All ranks must call this if the tensor is sharded."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def gather_weights(model: nn.Module, world: World) -> dict[str, Tensor]:
    """The full state dict on rank 0, gathered tensor by tensor; empty on the other ranks."""
    if not is_sharded(model):
        return model.state_dict() if world.is_rank0 else {}
    weights = {}
    for name, tensor in model.state_dict().items():
        collected = full_tensor(tensor)
        if world.is_rank0:
            weights[name] = collected.cpu()
    return weights


@torch.no_grad()
def set_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy weights into a model; `weights` has only this rank's rows of sharded tensors."""
    for name, tensor in model.state_dict().items():
        to_local(tensor).copy_(weights[name])


# ---------------------------------------------------------------------- initialisation


def init_distributed(device: str) -> World:
    """Join the process group that torchrun's environment describes; one rank without such an environment."""
    size = _env_int("WORLD_SIZE", 1)
    if size == 1:
        return World(resolve_device(device))
    missing = [name for name in REQUIRED_VARIABLES if name not in os.environ]
    if missing:
        raise ConfigError(
            f"WORLD_SIZE is {size}, but {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set. Start "
            f"all ranks with torchrun, or unset WORLD_SIZE to train in one process."
        )
    rank = _env_int("RANK", 0)
    local = local_device(device)
    if local.type == "cuda":
        torch.cuda.set_device(local)
    try:
        backend = "cpu:gloo,cuda:nccl" if local.type == "cuda" else "gloo"
        store, _, _ = next(rendezvous("env://", rank=rank, world_size=size, timeout=STEP_TIMEOUT))
        prefixed_store = PrefixStore(agree_on_prefix(store, rank, size), store)
        dist.init_process_group(backend, store=prefixed_store, rank=rank, world_size=size, timeout=STEP_TIMEOUT)
        cpu_group = dist.new_group(backend="gloo", timeout=SETUP_TIMEOUT)
    except (dist.DistError, RuntimeError, ValueError) as error:
        place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"rank {rank} of {size} could not connect to the others at {place}: {reason}. Start all ranks with "
            f"torchrun, and check that every machine can reach this address."
        ) from error
    return World(local, rank, size, cpu_group)


def agree_on_prefix(store: Store, rank: int, size: int) -> str:
    """A key prefix that is unique to this start of the ranks, chosen by rank 0.

    torchrun keeps its store when it restarts ranks. The prefix hides the stale addresses of the previous start.
    """
    token = secrets.token_hex(8)
    if rank > 0:
        store.set(f"heedful/requests/{rank}", token)
        prefix: str = store.get(f"heedful/answers/{token}").decode()
        store.add(f"heedful/joined/{prefix}", 1)
        return prefix
    answered: dict[int, bytes] = {}
    deadline = time.monotonic() + STEP_TIMEOUT.total_seconds()
    while store.add(f"heedful/joined/{token}", 0) < size - 1:
        for other in range(1, size):
            key = f"heedful/requests/{other}"
            request = store.get(key) if store.check([key]) else b""
            if request and request != answered.get(other):  # stale requests are harmless: their answers are never read
                store.set(f"heedful/answers/{request.decode()}", token)
                answered[other] = request
        if time.monotonic() > deadline:
            raise RuntimeError("not all ranks joined in time")
        time.sleep(0.02)
    return token


def local_device(name: str) -> torch.device:
    """The device of this rank: the GPU with its local rank, or the CPU."""
    device = resolve_device(name)
    num_local_ranks = _env_int("LOCAL_WORLD_SIZE", 1)
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"--device {name}: distributed training supports cuda and cpu only.")
    if device.type == "cpu":
        return device
    if name.startswith("cuda:"):
        raise ConfigError(f"--device {name}: each rank uses its own GPU; use cuda or auto with torchrun.")
    if num_local_ranks > torch.cuda.device_count():
        raise ConfigError(
            f"{num_local_ranks} ranks on this machine, but {torch.cuda.device_count()} GPUs: one rank needs one GPU; "
            f"use torchrun --nproc-per-node={torch.cuda.device_count()}, or --device cpu."
        )
    return torch.device("cuda", _env_int("LOCAL_RANK", 0))


def rank_seed(seed: int, world: World, step: int = 0) -> int:
    """The dropout seed of this rank from a step on; rank 0 starts with the seed of the run."""
    return seed if world.is_rank0 and not step else ((seed * 1_000_003 + world.rank) * 1_000_000_007 + step) % 2**63


def was_restarted() -> bool:
    """Whether torchrun restarted this rank after a failure."""
    return _env_int("TORCHELASTIC_RESTART_COUNT", 0) > 0


def _env_int(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not text.isdecimal() or (name.endswith("SIZE") and not int(text)):
        raise ConfigError(f"the environment variable {name}={text!r} is not a number; torchrun sets it.")
    return int(text)


class CpuDataParallel:
    """Adds the gradient of a batch to the parameters of `model`."""

    def __init__(self, model: Transformer, *, smoothing: float) -> None:
        self.smoothing = smoothing
        self.num_threads = torch.get_num_threads()
        self.num_workers = max(n for n in range(1, MAX_WORKERS + 1) if self.num_threads % n == 0)
        self.replicas = [model, *(_replicate(model) for _ in range(self.num_workers - 1))]
        self.gradients = [
            [torch.zeros_like(parameter) for parameter in replica.parameters()] for replica in self.replicas
        ]
        self.pool = ThreadPoolExecutor(self.num_workers, thread_name_prefix="core")

    @property
    def has_hooks(self) -> bool:
        """Whether hooks are registered on the model or its parameters; then the reference path must run."""
        model = self.replicas[0]
        hooked = any(
            module._forward_hooks or module._forward_pre_hooks or module._backward_hooks for module in model.modules()
        )
        return hooked or any(parameter._backward_hooks for parameter in model.parameters())

    def __call__(self, batch: Batch, scale: float) -> Tensor:
        """The sum of losses; the gradient of `scale` times it is added to the gradients of the parameters."""
        num_tokens = int((batch.source_segments > 0).sum()) + batch.num_tokens
        groups_per_worker = max(1, round(num_tokens / (TOKENS_PER_GROUP * self.num_workers)))
        groups = group_by_length(batch, groups_per_worker * self.num_workers)
        seeds: list[int] = torch.randint(2**62, (len(groups),)).tolist()
        self._prepare_gradients()
        stride = self.num_workers  # groups are sorted by length: every worker gets short and long ones
        futures = [
            self.pool.submit(self._compute, replica, groups[index::stride], seeds[index::stride], scale)
            for index, replica in enumerate(self.replicas)
        ]
        wait(futures)  # wait for all of them, even if one fails
        torch.set_num_threads(self.num_threads)  # new threads would inherit the number that the workers have set
        total = torch.stack([future.result() for future in futures]).sum()
        for gradients in self.gradients[1:]:
            for parameter, gradient in zip(self.replicas[0].parameters(), gradients, strict=True):
                parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        return total

    def _compute(self, replica: Transformer, groups: list[SentenceGroup], seeds: list[int], scale: float) -> Tensor:
        torch.set_num_threads(self.num_threads // self.num_workers)  # for this thread only
        total = torch.zeros((), dtype=replica.source_embedding.weight.dtype)
        for group, seed in zip(groups, seeds, strict=True):
            total += add_gradient(replica, group, scale, smoothing=self.smoothing, seed=seed)
        return total

    def _prepare_gradients(self) -> None:
        """The first worker adds to existing gradients, the others start from zero; all use the same weights."""
        parameters = list(self.replicas[0].parameters())
        for index, (replica, gradients) in enumerate(zip(self.replicas, self.gradients, strict=True)):
            for parameter, original, gradient in zip(replica.parameters(), parameters, gradients, strict=True):
                if index or parameter.grad is None:
                    parameter.grad = gradient.zero_()
                parameter.data = original.data


def _replicate(model: Transformer) -> Transformer:
    """A copy of the model that shares its weights but has its own gradients."""
    shared = {id(parameter): nn.Parameter(parameter.detach()) for parameter in model.parameters()}
    return copy.deepcopy(model, memo=dict(shared))
