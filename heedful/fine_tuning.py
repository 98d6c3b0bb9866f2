"""Fine-tuning: a run that starts from the weights, tokenizer and shape of an existing model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.config import PRESETS, Config
from heedful.config_loading import build_config, merge, to_mapping
from heedful.errors import ConfigError, HeedfulError

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.model_dir.save_load import ModelArrays
    from heedful.text.corpus import Direction
    from heedful.text.tokenizer import Tokenizer
    from heedful.training.distributed import World
    from heedful.training.validation import BestTracker

KEY = "training.init_from"
DROPOUTS = ("dropout", "embedding_dropout", "attention_dropout", "activation_dropout")
"""Keys of the model that may change, because the weights do not depend on them."""
VOCAB_SIZES = ("source_vocab_size", "target_vocab_size")
"""Keys that `train` sets itself, whatever the request says."""
DERIVED = {"head_dim": "attention_head_dim", "key_dim": "attention_key_dim", "final_norm": "has_final_norm"}
"""The properties with the effective values of keys that may be None: 64 does not contradict a None that means 64."""
SPLIT_LENGTHS = ("source_p99", "target_p99")
"""The sentence lengths of a model above which texts are split."""


@dataclass(frozen=True)
class InitialModel:
    """The model that a run starts from; plain data, which rank 0 sends to the other ranks."""

    directory: str
    identity: str
    """SHA-256 of its weights."""
    tokenizer: str
    """Identity of its tokenizer."""
    is_compact: bool
    changes: dict[str, Any]
    """The values that it sets in the request: shape, tokenizer, and the preset if none is named."""
    lengths: dict[str, float]
    """The lengths of its long sentences (`SPLIT_LENGTHS`); empty if unknown."""
    directions: list[list[str]]
    """The language pairs that it was trained on."""

    @property
    def name(self) -> str:
        """Its name in messages and in the card of the new model."""
        return Path(self.directory).resolve().name

    @property
    def description(self) -> str:
        """Its name, and whether its weights are rounded."""
        return f"{self.name}{' (compact: weights rounded to int8)' if self.is_compact else ''}"

    def apply_to(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The request with the values that this model sets."""
        return merge(request, self.changes)

    def weights(self) -> dict[str, Tensor]:
        """Its weights, verified; int8 weights as float32."""
        from heedful.model_dir import load_weights

        weights = load_weights(self.directory)
        if weights_sha256(self.directory) != self.identity:
            raise ConfigError(f"{KEY}: the model in {self.directory} was replaced meanwhile; run the command again.")
        return weights

    def check_tokenizer(self, tokenizer: Tokenizer, prepared: str | None) -> None:
        """Raise `ConfigError` if the data was prepared with another tokenizer."""
        if tokenizer.identity != self.tokenizer:
            raise ConfigError(
                f"data.prepared: {prepared} was prepared with another tokenizer than that of {self.name} ({KEY}); "
                f"prepare it again with `heedful prepare --init-from {self.directory}`."
            )

    def merge_lengths(self, lengths: Mapping[str, float]) -> dict[str, float]:
        """The lengths of the new corpora; long sentences may be as long as those of this model."""
        return {**lengths, **{name: max(value, lengths.get(name, 0.0)) for name, value in self.lengths.items()}}

    def compare(self, best: BestTracker, config: Config, *, is_over: bool) -> str | None:
        """A remark if the published model is no better on valid than this one, else None."""
        initial, published = best.initial_value, best.published_value
        if initial is None or best.published_step is None or published < initial:
            return None
        before = _describe_value(initial, config)
        if best.is_initial:
            nothing, remedy = "Nothing", " A lower training.learning_rate or more text may help."
            if not is_over:
                nothing, remedy = "So far nothing", ""
            return (
                f"{nothing} was better on valid than {self.name} itself ({before}): the model in {config.output} has "
                f"its weights, unchanged.{remedy}"
            )
        return (
            f"The model in {config.output} is no better on valid than {self.name}: "
            f"{_describe_value(published, config)}, before {before}. training.final_weights=auto keeps the best model, "
            f"including the initial one; it is {config.training.final_weights} now."
        )

    def details(self) -> dict[str, Any]:
        """Its entry in the details of the new model."""
        from heedful.text.language_routing import INITIAL_DIRECTIONS_KEY

        details: dict[str, Any] = {"started_from": self.name, "started_from_identity": self.identity}
        return {**details, INITIAL_DIRECTIONS_KEY: self.directions} if self.directions else details


def share_initial_model(
    request: Mapping[str, Any], config: Config, world: World, *, is_complete: bool
) -> InitialModel | None:
    """The initial model that the request names, the same on all ranks; None if it names none.

    `is_complete`: see `find_initial_model`.
    """
    if config.training.init_from is None:
        return None
    from heedful.model_dir.files import read_consistent

    def find() -> dict[str, Any]:
        initial_model = find_initial_model(request, config, is_complete=is_complete)
        assert initial_model is not None
        if Path(initial_model.directory).resolve() == Path(config.output).resolve():
            raise ConfigError(f"{KEY}: {initial_model.directory} is also the output; choose another directory with -o.")
        read_consistent(  # detect damage before the work starts
            initial_model.directory, lambda files: files.check(files.weights)
        )
        return vars(initial_model)

    initial_model = InitialModel(**world.broadcast(world.on_rank0(find)))
    message = (
        f"{{ranks}} cannot see the model of rank 0 in {initial_model.directory} ({KEY}); copy it to every machine."
    )
    world.require_equal(weights_sha256(initial_model.directory), message)
    return initial_model


def with_initial_model(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request with the values that its initial model sets, if it names one."""
    initial_model = find_initial_model(request, build_config(request, "base"))
    return dict(request) if initial_model is None else initial_model.apply_to(request)


def find_initial_model(request: Mapping[str, Any], config: Config, *, is_complete: bool = False) -> InitialModel | None:
    """The model that the request names in `training.init_from`, and the values that it sets in the request.

    `config`, built from the request, may not contradict the model. `is_complete`: the request is a full configuration,
    in which default values count as not given.
    """
    name = config.training.init_from
    if name is None:
        return None
    from heedful.model_dir import describe
    from heedful.model_dir.registry import EXPORT_RECORD, find_model
    from heedful.model_dir.save_load import load_arrays

    try:
        directory = find_model(name, "a model directory that `heedful train` wrote, or a name of `heedful models`.")
    except ConfigError as error:
        raise ConfigError(f"{KEY}: {error}") from None
    if (directory / EXPORT_RECORD).is_file():
        raise ConfigError(
            f"{KEY}: {directory} was exported for CTranslate2; name the model directory it was exported from."
        )
    model = load_arrays(directory, with_weights=False)
    given = non_default_values(config) if is_complete else request
    changes: dict[str, Any] = {
        "model": _model_section(given.get("model") or {}, config, model, directory),
        "tokenizer": _tokenizer_section(given.get("tokenizer") or {}, config, model, directory),
    }
    if model.tokenizer.tags:
        if config.data.target_tags is False:
            raise ConfigError(
                f"data.target_tags is false, but the model in {directory} ({KEY}) has tags; leave it out."
            )
        changes["data"] = {"target_tags": True}  # even if the new corpora have a single target language
    if request.get("preset") in (None, "auto") and model.config.preset in PRESETS:
        changes["preset"] = model.config.preset
    lengths = model.details.get("lengths") or {}
    return InitialModel(
        directory=str(directory),
        identity=weights_sha256(directory),
        tokenizer=model.tokenizer.identity,
        is_compact=bool(describe(directory)["compact"]),
        changes=changes,
        directions=_directions(model),
        lengths={name: value for name, value in lengths.items() if name in SPLIT_LENGTHS},
    )


def known_directions(config: Config) -> tuple[Direction, ...]:
    """The directions that the model of `training.init_from` was trained on; none without such a model."""
    if config.training.init_from is None or config.model.is_language_model:
        return ()
    from heedful.model_dir.registry import find_model
    from heedful.model_dir.save_load import read_directions

    known = read_directions(find_model(config.training.init_from)).known
    return tuple(pair for pair in known if pair.source and pair.target)


def non_default_values(config: Config) -> dict[str, Any]:
    """The values of a configuration that differ from its preset, in the sections that an initial model sets."""
    defaults = to_mapping(build_config({"preset": config.preset}))
    values = to_mapping(config)
    return {
        section: {key: value for key, value in values[section].items() if value != defaults[section][key]}
        for section in ("model", "tokenizer")
    }


def weights_sha256(directory: str | Path) -> str:
    """SHA-256 of the weights in a model directory; empty if they cannot be read."""
    from heedful.model_dir.save_load import identify_weights

    try:
        return identify_weights(directory)
    except (HeedfulError, OSError):
        return ""


def _model_section(given: Mapping[str, Any], config: Config, model: ModelArrays, directory: Path) -> dict[str, Any]:
    """The section `model` of the initial model, with the dropouts of the request."""
    section = to_mapping(model.config.model)
    for key in given:
        requested, existing = (getattr(either.model, DERIVED.get(key, key)) for either in (config, model.config))
        if key in DROPOUTS:
            section[key] = requested
        elif key not in VOCAB_SIZES and requested != existing:
            raise ConfigError(_contradiction(f"model.{key}", requested, existing, directory))
    return section


def _tokenizer_section(given: Mapping[str, Any], config: Config, model: ModelArrays, directory: Path) -> dict[str, Any]:
    """The section `tokenizer` of the initial model, with the path of its tokenizer."""
    from heedful.text.tokenizer import Tokenizer

    section = {
        **to_mapping(model.config.tokenizer),
        "kind": model.tokenizer.kind,
        "joint": model.tokenizer.joint,
        "vocab_size": model.tokenizer.source_vocab_size,
        "path": str(directory),
    }
    requested = to_mapping(config.tokenizer)
    for key in given:
        value = requested[key]
        if key == "path" and value is not None:
            if Tokenizer.load(value).identity != model.tokenizer.identity:
                other = f"another tokenizer in {directory}"
                raise ConfigError(_contradiction("tokenizer.path", value, other, directory))
            section["path"] = value
        elif value is not None and value != section[key]:
            raise ConfigError(_contradiction(f"tokenizer.{key}", value, section[key], directory))
    return section


def _directions(model: ModelArrays) -> list[list[str]]:
    """The known directions of a model, including those of the models that it was fine-tuned from."""
    from heedful.text.language_routing import Directions

    known = Directions.of(model.config.data, model.tokenizer.tags, model.details).known
    return [[pair.source, pair.target] for pair in known if pair.source and pair.target]


def _describe_value(value: float, config: Config) -> str:
    """A value of `training.best_metric` for users."""
    return f"score {-value:.1f}" if config.training.best_metric == "bleu" else f"loss {value:.3f}"


def _contradiction(key: str, requested: Any, existing: Any, directory: Path) -> str:
    return (
        f"{key} is {requested!r}, but the model in {directory} ({KEY}) has {existing!r}; leave out {key} to continue "
        f"from that model, or leave out {KEY} to start from random weights."
    )
