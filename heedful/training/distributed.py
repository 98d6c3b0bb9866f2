"""Training on many devices, one process (rank) each: the one place that knows torch.distributed.

torchrun starts the ranks and tells each its place. Weights are kept equal by DDP, or divided among the ranks by FSDP2.
Tensors of the training travel between the devices; what the ranks decide together travels between their hosts (gloo),
so that deciding never waits for a device.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
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
from heedful.data.batch import Batch
from heedful.errors import ConfigError, ElsewhereError, HeedfulError, TrainingError
from heedful.model.layers import DecoderLayer, EncoderLayer

T = TypeVar("T")

STEP_TIMEOUT = timedelta(minutes=30)
"""How long a rank waits for the others inside a step."""
WAITING_TIMEOUT = timedelta(days=7)
"""How long it waits while one of them prepares corpora or translates."""
NEEDED = ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class World:
    """The ranks that train together, seen from one of them; by default it is alone and nothing is ever sent."""

    device: torch.device
    rank: int = 0
    size: int = 1
    hosts: Any = None
    """The group of all ranks that sends between hosts."""

    @property
    def is_first(self) -> bool:
        """Whether this rank writes, prints and publishes for all."""
        return self.rank == 0

    def wait(self) -> None:
        """Go on when all ranks have come here."""
        self.agree([0.0])

    def agree(self, values: Sequence[float]) -> list[float]:
        """The largest of all ranks' values, one by one."""
        if self.size == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(numbers, op=dist.ReduceOp.MAX, group=self.hosts)
        return [float(number) for number in numbers]

    def tell(self, value: Any) -> Any:
        """What the first rank says, as plain data, to everyone."""
        if self.size == 1:
            return value
        text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        length = torch.tensor(len(text))
        dist.broadcast(length, src=0, group=self.hosts)
        if not self.is_first:
            text = torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(text, src=0, group=self.hosts)
        return json.loads(text.numpy().tobytes())

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Every rank's tensor (on its host, all of one shape)."""
        if self.size == 1:
            return [tensor]
        tensors = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(tensors, tensor.contiguous(), group=self.hosts)
        return tensors

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, in place, from device to device."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def first(self, work: Callable[[], T]) -> T | None:
        """Let the first rank work while the others wait. If it fails all stop, and only it tells why."""
        result, error = None, None
        if self.is_first:
            try:
                result = work()
            except (HeedfulError, OSError) as caught:
                error = caught
        if self.tell(error is not None):
            raise error if error is not None else ElsewhereError("the first rank stopped; it tells why.")
        return result

    def same(self, text: str, message: str) -> None:
        """Raise `ConfigError` if ranks have another text than the first; `{ranks}` in the message is these."""
        digest = torch.frombuffer(bytearray(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8)
        first, *others = self.gather(digest)
        wrong = [str(rank) for rank, other in enumerate(others, start=1) if not torch.equal(first, other)]
        if wrong:
            told = message.format(ranks=f"rank {wrong[0]}" if len(wrong) == 1 else f"ranks {', '.join(wrong)}")
            raise ConfigError(told) if self.is_first else ElsewhereError(told)

    @contextmanager
    def together(self) -> Iterator[None]:
        """While ranks work together: one that is lost is told in a line, and in the end all part."""
        if self.size == 1:
            yield
            return
        try:
            yield
        except dist.DistError as error:
            raise TrainingError(self._lost(error)) from error
        except RuntimeError as error:
            if "gloo" not in str(error) and "NCCL" not in str(error):
                raise
            raise TrainingError(self._lost(error)) from error
        finally:
            dist.destroy_process_group()

    def _lost(self, error: Exception) -> str:
        reason = str(error).strip().splitlines()[0]
        return (
            f"rank {self.rank} lost another rank ({reason}). torchrun --max-restarts=3 starts all ranks again by "
            f"itself; they go on from the last saved state."
        )

    # ------------------------------------------------------------------ the model on many devices

    def replicated(self, model: nn.Module, loss: Callable[[Batch], Tensor]) -> Callable[[Batch], Tensor]:
        """`loss`, with the gradients of `model` averaged over the ranks in backward (DDP), unless they are divided."""
        if self.size == 1 or is_divided(model):
            return loss
        return nn.parallel.DistributedDataParallel(Objective(model, loss), gradient_as_bucket_view=True)

    def average(self, tensors: Sequence[Tensor]) -> None:
        """The mean over all ranks, in place."""
        for tensor in tensors if self.size > 1 else ():
            self.sum(tensor).div_(self.size)

    def divide(self, model: nn.Module, *, compile_layers: bool) -> None:
        """Divide the weights among the ranks (FSDP2): each layer is whole only while it computes."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        # What a layer returns may be a view; nothing here changes it in place, which is what the warning is about.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
        mesh = init_device_mesh(self.device.type, (self.size,))
        for layer in [module for module in model.modules() if isinstance(module, (EncoderLayer, DecoderLayer))]:
            if isinstance(layer, DecoderLayer):  # these read the memory before the layer itself is called
                fully_shard(layer.cross_attention.key, mesh=mesh)
                fully_shard(layer.cross_attention.value, mesh=mesh)
            if compile_layers:
                layer.compile(dynamic=False)
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)

    def share(self, num_rows: int) -> tuple[int, int]:
        """First and last row (not included) that this rank holds of a divided tensor; as `torch.chunk` has it."""
        each = -(-num_rows // self.size)
        return min(self.rank * each, num_rows), min((self.rank + 1) * each, num_rows)


class Objective(nn.Module):
    """A loss as a module, so that DDP sees forward and loss as one."""

    def __init__(self, model: nn.Module, loss: Callable[[Batch], Tensor]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Batch) -> Tensor:
        return self.loss(batch)


def without_sending(loss: Callable[[Batch], Tensor]) -> AbstractContextManager[None]:
    """While gradients of several microbatches are summed, DDP keeps them to itself."""
    if isinstance(loss, nn.parallel.DistributedDataParallel):
        return loss.no_sync()
    return nullcontext()


# ---------------------------------------------------------------------- tensors that are divided


def is_divided(thing: nn.Module | Tensor) -> bool:
    """Whether this rank holds only some rows of a tensor, or of a model's parameters."""
    tensors = thing.parameters() if isinstance(thing, nn.Module) else [thing]
    return any(hasattr(tensor, "full_tensor") for tensor in tensors)


def local(tensor: Tensor) -> Tensor:
    """The rows that this rank holds: all of them, unless the tensor is divided."""
    return tensor.to_local() if is_divided(tensor) else tensor  # type: ignore[attr-defined]


def whole(tensor: Tensor) -> Tensor:
    """All rows of a tensor; where it is divided, all ranks have to ask."""
    return tensor.full_tensor() if is_divided(tensor) else tensor  # type: ignore[attr-defined]


def whole_weights(model: nn.Module, world: World) -> dict[str, Tensor]:
    """The weights of the whole model on the first rank, collected one by one; elsewhere nothing is kept of them."""
    if not is_divided(model):
        return model.state_dict() if world.is_first else {}
    weights = {}
    for name, tensor in model.state_dict().items():
        collected = whole(tensor)
        if world.is_first:
            weights[name] = collected.cpu()
    return weights


@torch.no_grad()
def put_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Give a model the weights, of which only this rank's rows are given where it is divided."""
    for name, tensor in model.state_dict().items():
        local(tensor).copy_(weights[name])


# ---------------------------------------------------------------------- coming together


def join(device: str) -> World:
    """Join the ranks that torchrun's environment tells of; alone where it tells of none."""
    size = _number("WORLD_SIZE", 1)
    if size == 1:
        return World(resolve_device(device))
    missing = [name for name in NEEDED if name not in os.environ]
    if missing:
        raise ConfigError(
            f"WORLD_SIZE is {size}, but {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set: start "
            f"all ranks with torchrun, or unset WORLD_SIZE to train in one process."
        )
    rank, own = _number("RANK", 0), own_device(device)
    if own.type == "cuda":
        torch.cuda.set_device(own)
    try:
        backend = "cpu:gloo,cuda:nccl" if own.type == "cuda" else "gloo"
        store, _, _ = next(rendezvous("env://", rank=rank, world_size=size, timeout=STEP_TIMEOUT))
        fresh = PrefixStore(meet(store, rank, size), store)
        dist.init_process_group(backend, store=fresh, rank=rank, world_size=size, timeout=STEP_TIMEOUT)
        hosts = dist.new_group(backend="gloo", timeout=WAITING_TIMEOUT)
    except (dist.DistError, RuntimeError, ValueError) as error:
        place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"rank {rank} of {size} could not meet the others at {place}: {reason}. Start all ranks with torchrun, "
            f"and see that every machine reaches this address."
        ) from error
    return World(own, rank, size, hosts)


def meet(store: Store, rank: int, size: int) -> str:
    """A name for this start of all ranks that no earlier start had, given by rank 0 to each that asks for it.

    torchrun keeps its store when it starts ranks again, and with it the addresses of dead ones: they must not be read.
    """
    mine = secrets.token_hex(8)
    if rank > 0:
        store.set(f"heedful/asks/{rank}", mine)
        name: str = store.get(f"heedful/answers/{mine}").decode()
        store.add(f"heedful/came/{name}", 1)
        return name
    answered: dict[int, bytes] = {}
    deadline = time.monotonic() + STEP_TIMEOUT.total_seconds()
    while store.add(f"heedful/came/{mine}", 0) < size - 1:
        for other in range(1, size):
            key = f"heedful/asks/{other}"
            asked = store.get(key) if store.check([key]) else b""
            if asked and asked != answered.get(other):  # one of an earlier start does no harm: nobody reads the answer
                store.set(f"heedful/answers/{asked.decode()}", mine)
                answered[other] = asked
        if time.monotonic() > deadline:
            raise RuntimeError("not all of them came in time")
        time.sleep(0.02)
    return mine


def own_device(name: str) -> torch.device:
    """The device of this rank alone: the GPU with its local number, or the CPU."""
    device = resolve_device(name)
    here = _number("LOCAL_WORLD_SIZE", 1)
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"--device {name}: several ranks train on cuda or cpu only.")
    if device.type == "cpu":
        return device
    if name.startswith("cuda:"):
        raise ConfigError(f"--device {name}: each rank has a GPU of its own; use cuda or auto with torchrun.")
    if here > torch.cuda.device_count():
        raise ConfigError(
            f"{here} ranks on this machine, but {torch.cuda.device_count()} GPUs: one rank needs one GPU; "
            f"use torchrun --nproc-per-node={torch.cuda.device_count()}, or --device cpu."
        )
    return torch.device("cuda", _number("LOCAL_RANK", 0))


def own_seed(seed: int, world: World, step: int = 0) -> int:
    """A seed for the dropout of this rank alone, from a step on; the first rank's is the run's own."""
    return seed if world.is_first and not step else ((seed * 1_000_003 + world.rank) * 1_000_000_007 + step) % 2**63


def was_restarted() -> bool:
    """Whether torchrun started this rank again after one was lost."""
    return _number("TORCHELASTIC_RESTART_COUNT", 0) > 0


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not text.isdecimal() or (name.endswith("SIZE") and not int(text)):
        raise ConfigError(f"the environment has {name}={text!r}, which is no number; torchrun sets it.")
    return int(text)
