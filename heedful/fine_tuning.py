"""Going on from a finished model: its weights, its tokenizer and its shape stand in the place of new ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.config import PRESETS, Config
from heedful.config_loading import merge, settle, to_mapping
from heedful.errors import ConfigError, HeedfulError

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.model_dir.save_load import ModelArrays
    from heedful.text.corpus import Direction
    from heedful.text.tokenizer import Tokenizer
    from heedful.training.distributed import World
    from heedful.training.validation import Best

KEY = "training.init_from"
DROPOUTS = ("dropout", "embedding_dropout", "attention_dropout", "activation_dropout")
"""What may differ from the model: it belongs to the training, not to the weights."""
FOLLOWING = ("source_vocab_size", "target_vocab_size")
"""What `train` always sets itself, whatever the request says."""
DERIVED = {"head_dim": "attention_head_dim", "key_dim": "attention_key_dim", "final_norm": "has_final_norm"}
"""What None stands for: 64 is no contradiction to a None that means 64."""
LONG = ("source_p99", "target_p99")
"""Which of the lengths of a model's sentences say how long a text may be before it is split."""


@dataclass(frozen=True)
class Start:
    """The model that a run begins with: plain data, which the first rank tells the others."""

    directory: str
    identity: str
    """SHA-256 of its weights."""
    tokenizer: str
    """Identity of its tokenizer."""
    is_compact: bool
    changes: dict[str, Any]
    """What it makes of the request: its shape, its tokenizer, its preset where none is named."""
    long: dict[str, float]
    """How long the longest of its sentences were; empty where that is not known."""
    directions: list[list[str]]
    """The pairs of languages that it had learned."""

    @property
    def name(self) -> str:
        """What it is called in messages and in the card of the model that comes of it."""
        return Path(self.directory).resolve().name

    @property
    def beginning(self) -> str:
        """How a run begins with it, in words."""
        return f"Going on from {self.name}{' (compact: its weights are rounded)' if self.is_compact else ''}"

    def laid_over(self, plain: Mapping[str, Any]) -> dict[str, Any]:
        """The request with all that this model decides."""
        return merge(plain, self.changes)

    def weights(self) -> dict[str, Tensor]:
        """Its weights, verified, as they are stored; those of int8 as float32."""
        from heedful.model_dir import load_weights

        weights = load_weights(self.directory)
        if identity_in(self.directory) != self.identity:
            raise ConfigError(f"{KEY}: the model in {self.directory} was replaced just now; start again.")
        return weights

    def check_tokenizer(self, tokenizer: Tokenizer, prepared: str | None) -> None:
        """The data must have been tokenised as the model expects it."""
        if tokenizer.identity != self.tokenizer:
            raise ConfigError(
                f"data.prepared: {prepared} was made with another tokenizer than that of {self.name} ({KEY}); prepare "
                f"it again with `heedful prepare --init-from {self.directory}`."
            )

    def with_long(self, lengths: Mapping[str, float]) -> dict[str, float]:
        """The lengths of the new sentences; the long ones as long as the model has seen, now or before."""
        return {**lengths, **{name: max(value, lengths.get(name, 0.0)) for name, value in self.long.items()}}

    def compare(self, best: Best, config: Config, *, is_over: bool) -> str | None:
        """What to tell the user if the model that was published is no better on valid than this one; else None."""
        if best.start is None or best.published_step is None or best.published < best.start:
            return None
        had, has = (_in_words(value, config) for value in (best.start, best.published))
        if best.is_start:
            nothing, remedy = "Nothing", " A lower training.learning_rate or more text may help."
            if not is_over:
                nothing, remedy = "So far nothing", ""
            return (
                f"{nothing} was better on valid than {self.name} itself ({had}): the model in {config.output} has its "
                f"weights, unchanged.{remedy}"
            )
        return (
            f"The model in {config.output} is no better on valid than {self.name} was: {has}, before {had}. "
            f"training.final_weights=auto keeps the best, the start included; yours is {config.training.final_weights}."
        )

    def details(self) -> dict[str, Any]:
        """What the new model tells about it."""
        from heedful.text.language_routing import INITIAL_DIRECTIONS_KEY

        told: dict[str, Any] = {"started_from": self.name, "started_from_identity": self.identity}
        return {**told, INITIAL_DIRECTIONS_KEY: self.directions} if self.directions else told


def agree_on_start(plain: Mapping[str, Any], asked: Config, world: World, *, is_whole: bool) -> Start | None:
    """The start that the request names, the same on all ranks; None if it begins from nothing."""
    if asked.training.init_from is None:
        return None
    from heedful.model_dir.files import read_consistent

    def find() -> dict[str, Any]:
        start = find_start(plain, asked, is_whole=is_whole)
        assert start is not None
        if Path(start.directory).resolve() == Path(asked.output).resolve():
            raise ConfigError(f"{KEY}: {start.directory} is also the output; choose another directory with -o.")
        read_consistent(
            start.directory, lambda files: files.check(files.weights)
        )  # damage is better known before the work
        return vars(start)

    start = Start(**world.broadcast(world.on_rank0(find)))
    told = f"{{ranks}} cannot see the model of rank 0 in {start.directory} ({KEY}); copy it to every machine."
    world.require_equal(identity_in(start.directory), told)
    return start


def with_start(plain: Mapping[str, Any]) -> dict[str, Any]:
    """A request with all that the model decides which it starts from, if it names one."""
    start = find_start(plain, settle(plain, "base"))
    return dict(plain) if start is None else start.laid_over(plain)


def find_start(plain: Mapping[str, Any], asked: Config, *, is_whole: bool = False) -> Start | None:
    """The model that the request names in `training.init_from`, and what it makes of the request.

    What the request says (`asked`, settled) must not contradict the model. `is_whole`: the request is a full
    configuration, of which all that is as usual counts as not said.
    """
    named = asked.training.init_from
    if named is None:
        return None
    from heedful.model_dir import describe
    from heedful.model_dir.registry import RECORD, find_model
    from heedful.model_dir.save_load import load_arrays

    try:
        directory = find_model(named, "a model directory that `heedful train` wrote, or a name of `heedful models`.")
    except ConfigError as error:
        raise ConfigError(f"{KEY}: {error}") from None
    if (directory / RECORD).is_file():
        raise ConfigError(f"{KEY}: {directory} was exported for CTranslate2; name the model directory it was made of.")
    found = load_arrays(directory, with_weights=False)
    said = unusual(asked) if is_whole else plain
    shape = _shape(said.get("model") or {}, asked, found, directory)
    changes: dict[str, Any] = {
        "model": shape,
        "tokenizer": _tokenizer(said.get("tokenizer") or {}, asked, found, directory),
    }
    if found.tokenizer.tags:
        if asked.data.target_tags is False:
            raise ConfigError(
                f"data.target_tags is false, but the model in {directory} ({KEY}) has tags; leave it out."
            )
        changes["data"] = {"target_tags": True}  # also where the new corpora have but one target language
    if plain.get("preset") in (None, "auto") and found.config.preset in PRESETS:
        changes["preset"] = found.config.preset
    return Start(
        directory=str(directory),
        identity=identity_in(directory),
        tokenizer=found.tokenizer.identity,
        is_compact=bool(describe(directory)["compact"]),
        changes=changes,
        directions=_directions(found),
        long={name: value for name, value in (found.details.get("lengths") or {}).items() if name in LONG},
    )


def known_directions(asked: Config) -> tuple[Direction, ...]:
    """The directions that the model of `training.init_from` has learned, now or before; none without such a model."""
    if asked.training.init_from is None:
        return ()
    from heedful.model_dir.fingerprint import read_directions
    from heedful.model_dir.registry import find_model

    known = read_directions(find_model(asked.training.init_from)).known
    return tuple(pair for pair in known if pair.source and pair.target)


def unusual(config: Config) -> dict[str, Any]:
    """What a full configuration has otherwise than its preset, of the sections that a start decides."""
    usual, own = to_mapping(settle({"preset": config.preset})), to_mapping(config)
    return {
        section: {key: value for key, value in own[section].items() if value != usual[section][key]}
        for section in ("model", "tokenizer")
    }


def identity_in(directory: str | Path) -> str:
    """SHA-256 of the weights in a model directory; empty where there are none to see."""
    from heedful.model_dir.fingerprint import identify_weights

    try:
        return identify_weights(directory)
    except (HeedfulError, OSError):
        return ""


def _shape(said: Mapping[str, Any], asked: Config, found: ModelArrays, directory: Path) -> dict[str, Any]:
    """The section `model` of the model, with the dropouts that the request names."""
    shape = to_mapping(found.config.model)
    for key in said:
        new, had = (getattr(config.model, DERIVED.get(key, key)) for config in (asked, found.config))
        if key in DROPOUTS:
            shape[key] = new
        elif key not in FOLLOWING and new != had:
            raise ConfigError(_contradiction(f"model.{key}", new, had, directory))
    return shape


def _tokenizer(said: Mapping[str, Any], asked: Config, found: ModelArrays, directory: Path) -> dict[str, Any]:
    """The section `tokenizer` of the model, with the path where its tokenizer lies."""
    from heedful.text.tokenizer import Tokenizer

    own = found.tokenizer
    had = {
        **to_mapping(found.config.tokenizer),
        "kind": own.kind,
        "joint": own.joint,
        "vocab_size": own.source_vocab_size,
        "path": str(directory),
    }
    asked_for = to_mapping(asked.tokenizer)
    for key in said:
        new = asked_for[key]
        if key == "path" and new is not None:
            if Tokenizer.load(new).identity != own.identity:
                raise ConfigError(_contradiction("tokenizer.path", new, f"another tokenizer in {directory}", directory))
            had["path"] = new
        elif new is not None and new != had[key]:
            raise ConfigError(_contradiction(f"tokenizer.{key}", new, had[key], directory))
    return had


def _directions(found: ModelArrays) -> list[list[str]]:
    """Plain data of what the model has learned, also before it went on from another, as far as it is told."""
    from heedful.text.language_routing import Directions

    known = Directions.of(found.config.data, found.tokenizer.tags, found.details).known
    return [[pair.source, pair.target] for pair in known if pair.source and pair.target]


def _in_words(value: float, config: Config) -> str:
    """What `training.best_metric` compares, as people know it."""
    return f"score {-value:.1f}" if config.training.best_metric == "bleu" else f"loss {value:.3f}"


def _contradiction(key: str, new: Any, had: Any, directory: Path) -> str:
    return (
        f"{key} is {new!r}, but the model in {directory} ({KEY}) has {had!r}; leave {key} out to go on with that "
        f"model, or leave {KEY} out to begin from nothing."
    )
