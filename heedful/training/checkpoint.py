"""Training checkpoints: the state of a run after a step, and averages of weights (section 6.1).

A resumed run continues exactly as if it had never stopped. Each save is a directory `step-N` of tensors (safetensors)
and JSON, without pickle. It is written under a temporary name, flushed to disk and renamed. The two newest are kept, so
a damaged save loses at most the work since the previous one. With sharded weights each rank writes its own file, and
any number of ranks can read the rows it needs from all of them.

Averages are of the last checkpoints, of model directories, or a moving average during the run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from heedful.atomic_files import REPLACED, replace_directory, replace_file, write_durably
from heedful.config import Config
from heedful.config_loading import to_mapping
from heedful.errors import ConfigError, TrainingError
from heedful.model_dir import describe, load_model, load_weights, save_model
from heedful.training.distributed import World, to_local
from heedful.training.kept_checkpoints import remove_checkpoints

FORMAT_VERSION = 4
NUM_KEPT = 2
"""Number of checkpoints that are kept."""
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class TrainingState:
    """A checkpoint: named tensors (weights, moments, averages, random states) and values that JSON can hold."""

    tensors: Mapping[str, Tensor]
    values: dict[str, Any]
    num_rows: Mapping[str, int] = field(default_factory=dict)
    """The total number of rows of each sharded tensor."""

    def part(self, prefix: str, world: World, num_rows: Mapping[str, int]) -> dict[str, Tensor]:
        """The tensors whose names start with `prefix`, without it; this rank's rows of those in `num_rows`."""
        tensors = {}
        for name in (name for name in self.tensors if name.startswith(prefix)):
            if name in num_rows and isinstance(self.tensors, StoredTensors):
                tensor = self.tensors.rows(name, *world.row_range(num_rows[name]))
            else:
                tensor = self.tensors[name]
            tensors[name.removeprefix(prefix)] = tensor
        return tensors


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of a checkpoint, read on access; the rows of a sharded tensor are in several files, in order."""

    def __init__(self, paths: list[Path]) -> None:
        self._files = [safe_open(path, framework="pt") for path in paths]
        self._places: dict[str, list[Any]] = {}
        for file in self._files:
            for name in file.keys():  # type: ignore[no-untyped-call]  # noqa: SIM118
                self._places.setdefault(name, []).append(file)

    def __getitem__(self, name: str) -> Tensor:
        pieces: list[Tensor] = [file.get_tensor(name) for file in self._places[name]]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """A range of rows of a tensor; only these are read."""
        pieces, first = [], 0
        for file in self._places[name]:
            piece = file.get_slice(name)
            num_rows = piece.get_shape()[0]
            begin, end = max(start - first, 0), min(stop - first, num_rows)
            if begin < end:
                pieces.append(piece[begin:end])
            first += num_rows
        return torch.cat(pieces) if pieces else self[name][:0]


def save_state(directory: Path, step: int, state: TrainingState, world: World | None = None) -> None:
    """Save a checkpoint as `directory/step-N`, completely or not at all. All ranks must call this."""
    world = world or World(torch.device("cpu"))
    temporary = directory / f"incomplete-{step:09d}"
    if world.is_rank0:
        directory.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
    world.barrier()
    names = file_names(world.size if state.num_rows else 1)
    digest = bytes(32)
    if world.rank < len(names):
        mine = (
            state.tensors
            if world.is_rank0
            else {name: tensor for name, tensor in state.tensors.items() if name in state.num_rows}
        )
        blob = save({name: tensor.detach().cpu().contiguous() for name, tensor in mine.items()})
        write_durably(temporary / names[world.rank], blob)
        digest = hashlib.sha256(blob).digest()
    digests = world.all_gather(torch.frombuffer(bytearray(digest), dtype=torch.uint8))
    if world.is_rank0:
        files = {name: tensor.numpy().tobytes().hex() for name, tensor in zip(names, digests, strict=False)}
        described = {"format_version": FORMAT_VERSION, "files": files, "values": state.values}
        write_durably(temporary / "state.json", json.dumps({**described, "sha256": values_sha256(described)}).encode())
        _put_in_place(directory, temporary, directory / f"step-{step:09d}")
    world.barrier()


def file_names(count: int) -> list[str]:
    """The names of the tensor files: one, or one for each rank."""
    if count == 1:
        return ["tensors.safetensors"]
    return [f"tensors-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]


def _put_in_place(directory: Path, temporary: Path, final: Path) -> None:
    """Rename a complete checkpoint to its final name, and remove old ones."""
    replace_directory(temporary, final)
    saved = saved_steps(directory)
    place = saved.index(final) + 1  # later ones are damaged: the run resumed before them
    for old in (*saved[: max(0, place - NUM_KEPT)], *saved[place:]):
        shutil.rmtree(old, ignore_errors=True)
    for leftover in directory.glob("incomplete-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def load_state(directory: Path, note: Callable[[str], None], world: World | None = None) -> TrainingState | None:
    """The newest state that is whole; None if there is none. A damaged one is reported and the previous one is used.

    All ranks have to call; each verifies some of the files, and they agree on one state.
    """
    world = world or World(torch.device("cpu"))
    saved = [directory / name for name in world.broadcast([path.name for path in saved_steps(directory)])]
    for candidate in reversed(saved):
        state, problem = None, "another rank cannot read it"
        try:
            state = _read(candidate, world)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
            problem = str(error)
        if not world.all_reduce_max([state is None])[0]:
            return state
        note(f"{candidate} is damaged ({problem}); trying the checkpoint before it.")
    if saved:
        raise TrainingError(f"{directory}: no checkpoint is readable; remove this directory to start again.")
    return None


def saved_steps(directory: Path) -> list[Path]:
    """The checkpoints, oldest first; one that was replaced by another of its step comes before it."""
    paths = [path for path in directory.glob("step-*") if path.is_dir()]
    return sorted(paths, key=lambda path: (path.name.removesuffix(REPLACED), not path.name.endswith(REPLACED)))


def _read(path: Path, world: World) -> TrainingState:
    described = json.loads((path / "state.json").read_bytes())
    if described["format_version"] != FORMAT_VERSION:
        raise ValueError(f"format_version {described['format_version']}, this version reads {FORMAT_VERSION}")
    if described.pop("sha256") != values_sha256(described):
        raise ValueError("state.json: the checksum does not match")
    files = described["files"]
    if list(files) != file_names(len(files)):
        raise ValueError("unexpected file names")
    for name in list(files)[world.rank % len(files) :: world.size]:
        with (path / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != files[name]:
                raise ValueError("the checksum does not match")
    return TrainingState(StoredTensors([path / name for name in files]), described["values"])


def values_sha256(values: Mapping[str, Any]) -> str:
    """The SHA-256 of JSON values, independent of the order of keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def checksum_mark(path: Path) -> str:
    """The first digits of a file's SHA-256, which are part of a snapshot's name."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states of torch's random generators, which dropout uses."""
    states = {"random.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["random.cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random(tensors: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore the random generators."""
    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda" and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"], device)


def gather_random_states(world: World) -> dict[str, Tensor]:
    """The random states of all ranks; names of rank 3 start with `random.3.`, those of rank 0 with `random.`."""
    tensors = {}
    for name, state in random_states(world.device).items():
        for rank, tensor in enumerate(world.all_gather(state)):
            tensors[_of_rank(name, rank)] = tensor
    return tensors


def restore_rank_random(tensors: Mapping[str, Tensor], world: World, seed: int) -> None:
    """Restore this rank's random generators, or seed them if the checkpoint has no such rank."""
    names = ("random.cpu", "random.cuda")
    states = {name: tensors[_of_rank(name, world.rank)] for name in names if _of_rank(name, world.rank) in tensors}
    if states:
        restore_random(states, world.device)
    else:
        torch.manual_seed(seed)


def _of_rank(name: str, rank: int) -> str:
    return name if rank == 0 else name.replace("random.", f"random.{rank}.")


FIXED_SECTIONS = ("data", "tokenizer", "model")
"""Sections that a resumed run may not change, causes first; of `training`, `init_from` and the fields below."""
FIXED_TRAINING = ("seed", "tokens_per_step", "ema_decay", "optimizer", "betas", "epsilon", "label_smoothing", "r_drop")


def record_run(
    path: Path, config: Config, report: Mapping[str, Any], *, resumed: bool, initial_model: str | None = None
) -> None:
    """Write the configuration and the checksums of the corpora, from the preflight report; a resumed run compares them.

    `initial_model` is the SHA-256 of the weights of `training.init_from`, if it is set.
    """
    files = {file["path"]: file["sha256"] for corpus in report["corpora"] for file in corpus["files"]}
    now = json.loads(json.dumps({**to_mapping(config), "files": files, "initial_model": initial_model}))
    if resumed:
        try:
            before = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise TrainingError(f"{path}: cannot read the settings of the run ({error}); start a new run.") from None
        for key, old, new in differences(before, now):
            raise TrainingError(
                f"--resume: {key} was {old!r} when this run started and is {new!r} now. Restore it, or start a new run."
            )
        changed = [name for name, digest in before.get("files", {}).items() if files.get(name) != digest]
        if before.get("initial_model") != initial_model:
            changed.insert(0, str(config.training.init_from))
        if changed:
            raise TrainingError(
                f"--resume: {changed[0]} has changed since this run started. Restore it, or start a new run."
            )
    replace_file(path, json.dumps(now, indent=2, ensure_ascii=False))


def remove_run(directory: Path) -> None:
    """Remove states, snapshots, logs and kept checkpoints of an earlier run, but not its prepared corpora."""
    for name in ("states", "snapshots", "tensorboard"):
        shutil.rmtree(directory / name, ignore_errors=True)
    remove_checkpoints(directory.parent)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Changed keys that a resumed run may not change, with their old and new values."""
    keys = [("training", "init_from")]  # first, because shape and tokenizer follow from it
    keys += [(section, name) for section in FIXED_SECTIONS for name in now[section]]
    keys += [("training", name) for name in FIXED_TRAINING]
    found = []
    for section, name in keys:
        key, new = f"{section}.{name}", now[section][name]
        old = before.get(section, {}).get(name)
        if old != new:
            found.append((key, old, new))
    return found


def copy_weights(model: nn.Module) -> Weights:
    """A copy of the model's weights and buffers; of a sharded model, this rank's rows."""
    return {name: to_local(tensor.detach()).clone() for name, tensor in model.state_dict().items()}


def average_weights(all_weights: Iterable[Mapping[str, Tensor]]) -> Weights:
    """The mean of several state dicts, summed in double precision; they are read one at a time."""
    sums: Weights = {}
    dtypes: dict[str, torch.dtype] = {}
    count = 0
    for weights in all_weights:
        for name, tensor in weights.items():
            dtypes[name] = tensor.dtype
            sums[name] = sums[name] + tensor.double() if count else tensor.double()
        count += 1
    if not count:
        raise ValueError("no weights to average")
    return {name: (total / count).to(dtypes[name]) for name, total in sums.items()}


class MovingAverage:
    """Exponential moving average of the weights: average ← decay · average + (1 - decay) · weights, after each update.

    The first decays are smaller, (1 + n) / (10 + n), so that the initial weights are forgotten quickly.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.num_updates = 0
        self.weights = copy_weights(model)
        self._tensors = model.state_dict(keep_vars=True)  # building it in every step is slow

    @torch.no_grad()
    def update(self) -> None:
        """Add the model's weights after an update."""
        self.num_updates += 1
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        averages = [self.weights[name] for name in self._tensors]
        torch._foreach_lerp_(averages, [to_local(tensor) for tensor in self._tensors.values()], 1 - decay)


def average_models(directories: Sequence[str | Path], output: str | Path) -> None:
    """Average the weights of models of one shape and one tokenizer into a new model directory."""
    if len(directories) < 2:
        raise ConfigError("average needs at least two model directories.")
    described = [describe(directory) for directory in directories]
    for one in described:
        if one["compact"]:
            raise ConfigError(
                f"{one['directory']}: a compact model's weights are rounded to int8 and cannot be averaged. Average "
                f"the full models and export the result: heedful export --to compact."
            )
    for other in described[1:]:
        for key, value in described[0]["config"]["model"].items():
            if other["config"]["model"][key] != value:
                raise ConfigError(
                    f"model.{key} is {value!r} in {directories[0]} and {other['config']['model'][key]!r} in "
                    f"{other['directory']}; only models of one shape can be averaged."
                )
        if _tokenizer_files(other) != _tokenizer_files(described[0]):
            raise ConfigError(
                f"{other['directory']}: has another tokenizer than {directories[0]}; their weights cannot be averaged."
            )
    first = load_model(directories[0])
    weights = average_weights(load_weights(directory) for directory in directories)
    details = {
        **first.details,
        "training": {**first.details.get("training", {}), "weights": f"average of {len(directories)} models"},
    }
    details.pop("scores", None)
    save_model(output, weights=weights, config=first.config, tokenizer=first.tokenizer, details=details)


def _tokenizer_files(described: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry for name, entry in described["files"].items() if name.endswith(".model")}
