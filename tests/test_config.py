"""The configuration: parsing, presets, validation, and error messages."""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from heedful import config as configuration
from heedful import config_loading
from heedful.config import (
    PRESETS,
    Config,
    CorpusConfig,
    DataConfig,
    DecodingConfig,
    ModelConfig,
    TokenizerConfig,
    TrainingConfig,
    choose_preset,
)
from heedful.config_loading import build_config, from_mapping, merge, read_request, set_key, to_mapping
from heedful.errors import ConfigError, HeedfulError
from heedful.paper.systems import parse_systems

SECTIONS = {
    "data": DataConfig,
    "tokenizer": TokenizerConfig,
    "model": ModelConfig,
    "training": TrainingConfig,
    "decoding": DecodingConfig,
}


def message_of(request: dict[str, Any]) -> str:
    """The one-line error for this request."""
    with pytest.raises(ConfigError) as caught:
        build_config(request)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".") and not message.endswith(("..", "?."))
    return message


# ---- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "named", "hint"),
    [
        ({"trainig": {"steps": 5}}, "trainig", "training"),
        ({"training": {"stpes": 5}}, "training.stpes", "steps"),
        ({"training": {"lerning_rate": 5}}, "training.lerning_rate", "learning_rate"),
        ({"model": {"n_heads": 5}}, "model.n_heads", "num_heads"),
        ({"decoding": {"beamsize": 5}}, "decoding.beamsize", "beam_size"),
        ({"data": {"train": [{"source": "a", "target": "b"}, {"sorce": "a"}]}}, "data.train[1].sorce", "source"),
        ({"steps": 5}, "steps", "training.steps exists"),
        ({"training": {"beam_size": 5}}, "training.beam_size", "decoding.beam_size exists"),
        ({"seed": 5}, "seed", "training.seed and decoding.seed exist"),
        ({"data": {"source": "a"}}, "data.source", "data.train[0].source exists"),
        ({1: 2}, "1", "unknown key"),
    ],
)
def test_unknown_key_suggests_the_closest_key(request_: dict[str, Any], named: str, hint: str) -> None:
    message = message_of(request_)
    assert message.startswith(f"{named}: unknown key")
    assert hint in message.removeprefix(named)


def test_unknown_key_without_close_match_gets_no_hint() -> None:
    assert message_of({"training": {"zzzzzz": 1}}) == "training.zzzzzz: unknown key."


@given(st.data())
def test_any_single_typo_in_a_key_suggests_the_key(data: st.DataObject) -> None:
    section = data.draw(st.sampled_from(sorted(SECTIONS)))
    names = [f.name for f in dataclasses.fields(SECTIONS[section])]
    name = data.draw(st.sampled_from([name for name in names if len(name) > 4]))
    place = data.draw(st.integers(0, len(name) - 1))
    slip = name[:place] + name[place + 1 :]  # one letter removed
    if slip in names:
        return
    message = message_of({section: {slip: 1}})
    assert message.startswith(f"{section}.{slip}: unknown key")
    assert "did you mean" in message


# ---- types -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "key", "value", "expected"),
    [
        ("training", "steps", "many", "a whole number"),
        ("training", "steps", 1.5, "a whole number"),
        ("training", "steps", True, "a whole number"),
        ("training", "steps", [1], "a whole number"),
        ("training", "steps", float("inf"), "a whole number"),
        ("training", "minutes", "soon", "a number"),
        ("training", "minutes", float("nan"), "a number"),
        ("training", "minutes", "inf", "a number"),
        ("training", "minutes", False, "a number"),
        ("training", "tensorboard", "maybe", "true or false"),
        ("training", "tensorboard", 1, "true or false"),
        ("training", "tensorboard", None, "true or false"),
        ("training", "device", None, "text"),
        ("training", "device", {"a": 1}, "text"),
        ("training", "betas", 0.9, "a list"),
        ("training", "betas", [0.9], "2 values"),
        ("training", "betas", [0.9, "x"], "a number"),
        ("model", "d_model", None, "a whole number"),
        ("data", "train", 5, "a list"),
        ("data", "train", ["a.tsv"], "a mapping"),
    ],
)
def test_wrong_type_names_the_expected_type(section: str, key: str, value: Any, expected: str) -> None:
    message = message_of({section: {key: value}})
    assert message.startswith(f"{section}.{key}")
    assert f"expected {expected}" in message


@pytest.mark.parametrize("wrong", [5, "text", [1, 2], True])
def test_section_must_be_a_mapping(wrong: Any) -> None:
    assert message_of({"training": wrong}).startswith("training: expected a mapping, not")
    assert message_of({"training": wrong, "preset": "tiny"}).startswith("training: expected a mapping, not")


def test_yaml_no_is_the_language_norwegian() -> None:
    request = yaml.safe_load("data: {target_language: no}")
    assert "put them in quotes" in message_of(request)
    assert build_config(yaml.safe_load("data: {target_language: 'no'}")).data.target_language == "no"


@pytest.mark.parametrize(
    ("section", "key", "value", "nearest"),
    [
        ("training", "schedule", "cosin", "cosine"),
        ("model", "norm_placement", "Pre", "pre"),
        ("model", "positions", "rotery", "rotary"),
        ("decoding", "length_penalty", "papers", "paper"),
    ],
)
def test_invalid_choice_lists_all_choices(section: str, key: str, value: str, nearest: str) -> None:
    message = message_of({section: {key: value}})
    choices = typing.get_args(typing.get_type_hints(SECTIONS[section])[key])
    assert all(choice in message for choice in choices)
    assert f"did you mean {nearest!r}" in message


@pytest.mark.parametrize("value", [None, 3, ["beam"], {"a": 1}])
def test_choice_must_be_text(value: Any) -> None:
    assert "is not one of beam, greedy, sampling" in message_of({"decoding": {"method": value}})


# ---- text, as in flags -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dotted", "text", "value"),
    [
        ("training.steps", "1000", 1000),
        ("training.steps", "1_000", 1000),
        ("training.steps", "1e5", 100_000),
        ("training.steps", "2.0", 2),
        ("training.steps", "none", None),
        ("training.steps", "", None),
        ("training.minutes", "0.5", 0.5),
        ("training.learning_rate", "3e-4", 3e-4),
        ("training.compile", "None", None),
        ("training.compile", "on", True),
        ("training.tensorboard", "False", False),
        ("training.tensorboard", "no", False),
        ("training.betas", "0.9,0.997", (0.9, 0.997)),
        ("training.betas", "[0.9, 0.997]", (0.9, 0.997)),
        ("training.betas", "(0.9, 0.997)", (0.9, 0.997)),
        ("data.train", "[]", ()),
        ("data.source_language", "en", "en"),
        ("decoding.length_penalty", "none", "none"),
        ("model.tying", "none", "none"),
        ("output", "models/a", "models/a"),
    ],
)
def test_flag_text_is_converted_to_the_field_type(dotted: str, text: str, value: Any) -> None:
    request: dict[str, Any] = {}
    set_key(request, dotted, text)
    found: Any = build_config(request)
    for name in dotted.split("."):
        found = getattr(found, name)
    assert found == value
    assert type(found) is type(value)


@given(st.integers(1, 10**30))
def test_integers_keep_every_digit(number: int) -> None:
    assert build_config({"training": {"tokens": str(number)}}).training.tokens == number
    assert build_config({"training": {"tokens": number}}).training.tokens == number


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_floats_keep_every_bit(number: float) -> None:
    assert build_config({"training": {"minutes": repr(number)}}).training.minutes == number


def test_set_key_changes_only_the_key() -> None:
    request = {"training": {"steps": 5, "seed": 2}, "data": None}
    set_key(request, "training.steps", "7")
    set_key(request, "data.row_width", 64)
    set_key(request, "output", "here")
    assert request == {"training": {"steps": "7", "seed": 2}, "data": {"row_width": 64}, "output": "here"}


@pytest.mark.parametrize("dotted", ["output.steps", "data.train.source"])
def test_set_key_refuses_keys_below_a_value(dotted: str) -> None:
    with pytest.raises(ConfigError, match="is not a section"):
        set_key({"output": "here", "data": {"train": []}}, dotted, "1")


# ---- corpora ---------------------------------------------------------------------------------------------------------


def test_single_corpus_needs_no_list() -> None:
    one = {"source": "a.en", "target": "a.de"}
    two = {"path": "b.tsv", "source_column": 2, "target_column": 1, "weight": 2}
    config = build_config({"data": {"train": [one, two], "valid": one}})
    assert config.data.train == (
        CorpusConfig(source="a.en", target="a.de"),
        CorpusConfig(path="b.tsv", source_column="2", target_column="1", weight=2.0),
    )
    assert config.data.valid == (CorpusConfig(source="a.en", target="a.de"),)
    assert config.data.test == ()


def test_section_objects_are_accepted() -> None:
    corpus, training = CorpusConfig(path="a.tsv"), TrainingConfig(steps=3)
    config = build_config({"data": {"train": [corpus]}, "training": training})
    assert config.data.train == (corpus,)
    assert config.training is training


# ---- combinations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "values", "words"),
    [
        ("model", {"d_model": 100, "num_heads": 3}, "not divisible"),
        ("model", {"num_heads": 0}, "model.num_heads must be above 0"),
        ("model", {"head_dim": 0}, "model.head_dim must be above 0"),
        ("model", {"num_encoder_layers": -1}, "model.num_encoder_layers must be above 0"),
        ("model", {"positions": "rotary", "head_dim": 7}, "even head_dim"),
        ("model", {"key_dim": 0}, "model.key_dim must be above 0"),
        ("model", {"positions": "rotary", "key_dim": 7}, "even key_dim"),
        ("model", {"architecture": "recurrent", "key_dim": 8}, "model.key_dim belongs to a Transformer"),
        ("model", {"positions": "rotary", "attention_scoring": "additive"}, "dot products"),
        ("model", {"attention_window": 0}, "model.attention_window must be above 0"),
        ("model", {"architecture": "recurrent", "self_attention": "local"}, "model.self_attention=local belongs to"),
        ("model", {"architecture": "convolutional", "cross_attention": "hard"}, "model.cross_attention=hard belongs"),
        ("model", {"self_attention": "hard", "hard_attention_gradient": "reinforce"}, "gradient=reinforce rewards"),
        ("model", {"d_model": 15, "num_heads": 3}, "even d_model"),
        ("model", {"source_vocab_size": 10, "target_vocab_size": 11}, "joint vocabulary"),
        ("model", {"dropout": 1.0}, "model.dropout"),
        ("model", {"attention_dropout": -0.1}, "model.attention_dropout"),
        ("training", {"steps": 0}, "training.steps must be above 0"),
        ("training", {"minutes": -1}, "training.minutes must be above 0"),
        ("training", {"label_smoothing": 1}, "training.label_smoothing"),
        ("training", {"ema_decay": 1}, "training.ema_decay"),
        ("training", {"betas": [0.9, 1.0]}, "training.betas"),
        ("training", {"weight_decay": -1}, "training.weight_decay"),
        ("training", {"epsilon": 0}, "training.epsilon"),
        ("training", {"final_learning_rate_ratio": 2}, "training.final_learning_rate_ratio"),
        ("training", {"learning_rate": 1, "learning_rate_factor": 1}, "exclude each other"),
        ("training", {"learning_rate_factor": 1, "schedule": "cosine"}, "schedule=paper"),
        ("training", {"final_weights": "average"}, "training.average_last"),
        ("training", {"final_weights": "ema"}, "training.ema_decay"),
        ("training", {"num_samples": -1}, "negative"),
        ("training", {"best_metric": "bleu", "num_bleu_sentences": 0}, "training.num_bleu_sentences"),
        ("decoding", {"num_best": 5}, "decoding.beam_size"),
        ("decoding", {"method": "greedy", "num_best": 2}, "greedy gives one"),
        ("decoding", {"top_p": 0}, "decoding.top_p"),
        ("decoding", {"top_p": 1.5}, "decoding.top_p"),
        ("decoding", {"top_k": -1}, "negative"),
        ("decoding", {"temperature": 0}, "decoding.temperature"),
        ("decoding", {"min_length": 9, "max_length": 8}, "exceeds"),
        ("decoding", {"length_penalty_alpha": -1}, "length_penalty_alpha"),
        ("decoding", {"length_penalty_alpha": 1e300}, "length_penalty_alpha"),
        ("decoding", {"seed": 2**63}, "decoding.seed"),
        ("training", {"seed": -(2**63) - 1}, "training.seed"),
        ("tokenizer", {"vocab_size": 0}, "tokenizer.vocab_size"),
        ("tokenizer", {"character_coverage": 0.5}, "tokenizer.character_coverage"),
        ("data", {"max_length_ratio": 0.5}, "data.max_length_ratio"),
        ("data", {"num_valid_pairs": -1}, "data.num_valid_pairs"),
        ("data", {"row_width": 0}, "data.row_width"),
        ("data", {"train": [{"path": "a.tsv", "weight": 0}]}, "weight"),
    ],
)
def test_invalid_combinations_are_refused(section: str, values: dict[str, Any], words: str) -> None:
    assert words in message_of({section: values})


def test_separate_vocabularies_untie_the_source_by_default() -> None:
    assert build_config({}).model.tying == "three_way"
    assert build_config({"tokenizer": {"joint": "false"}}).model.tying == "target"
    assert (
        build_config({"tokenizer": {"joint": False}, "preset": "tiny", "model": {"tying": "none"}}).model.tying
        == "none"
    )
    assert "tokenizer.joint=true" in message_of({"tokenizer": {"joint": False}, "model": {"tying": "three_way"}})


def test_derived_fields_of_the_model() -> None:
    assert ModelConfig().attention_head_dim == 64
    assert ModelConfig(d_model=100, num_heads=3, head_dim=10).attention_head_dim == 10
    assert ModelConfig().attention_key_dim == 64 and ModelConfig(key_dim=16).attention_key_dim == 16
    assert ModelConfig(positions="rotary", head_dim=7, key_dim=6).attention_head_dim == 7  # only keys are rotated
    assert not ModelConfig().has_final_norm
    assert ModelConfig(norm_placement="pre").has_final_norm
    assert ModelConfig(final_norm=True).has_final_norm
    assert not ModelConfig(norm_placement="pre", final_norm=False).has_final_norm


def test_configuration_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().training.steps = 5  # type: ignore[misc]


# ---- presets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_presets_keep_explicit_values(preset: str) -> None:
    config = build_config({"preset": preset})
    assert config.preset == preset
    for section, values in PRESETS[preset].items():
        assert {name: getattr(getattr(config, section), name) for name in values} == values
    own = build_config({"preset": preset, "model": {"d_ff": 96}, "training": {"tokens_per_step": 77}})
    assert (own.model.d_ff, own.training.tokens_per_step) == (96, 77)
    assert own.model.d_model == config.model.d_model


def test_base_and_big_match_the_paper() -> None:
    base, big = build_config({"preset": "base"}), build_config({"preset": "big"})
    assert base.model == ModelConfig() == from_mapping(ModelConfig, {})
    assert (base.model.d_model, base.model.d_ff, base.model.num_heads, base.model.dropout) == (512, 2048, 8, 0.1)
    assert (big.model.d_model, big.model.d_ff, big.model.num_heads, big.model.dropout) == (1024, 4096, 16, 0.3)
    assert base.training.betas == (0.9, 0.98) and base.training.epsilon == 1e-9 and base.training.label_smoothing == 0.1
    assert base.training.schedule == big.training.schedule == "paper"
    assert base.decoding.beam_size == 4 and base.decoding.length_penalty_alpha == 0.6


def test_named_preset_overrides_automatic_choice() -> None:
    assert (
        build_config({}).preset
        == build_config({"preset": None}).preset
        == build_config({"preset": "auto"}).preset
        == "auto"
    )
    assert build_config({}, "small") == build_config({"preset": "small"}) == build_config({"preset": "auto"}, "small")
    assert build_config({"preset": "tiny"}, "small") == build_config({"preset": "tiny"})


@pytest.mark.parametrize("wrong", ["tinny", ["tiny"], 5])
def test_unknown_preset_lists_the_presets(wrong: Any) -> None:
    message = message_of({"preset": wrong})
    assert all(preset in message for preset in PRESETS)
    assert "did you mean 'tiny'" in message or "tin" not in str(wrong)


def test_learning_rate_factor_replaces_peak_of_preset() -> None:
    training = build_config({"preset": "tiny", "training": {"schedule": "paper", "learning_rate_factor": 2}}).training
    assert (training.learning_rate, training.learning_rate_factor) == (None, 2.0)
    assert PRESETS["tiny"]["training"]["learning_rate"] is not None  # the preset is unchanged


def test_resolving_does_not_modify_presets_or_request() -> None:
    before, request = json.dumps(PRESETS), {"preset": "tiny", "training": {"steps": 3}, "model": None}
    build_config(request)
    merged = merge(PRESETS["tiny"], request)
    merged["model"]["d_model"] = merged["training"]["steps"] = 1
    assert json.dumps(PRESETS) == before
    assert request == {"preset": "tiny", "training": {"steps": 3}, "model": None}


def test_empty_section_changes_nothing() -> None:
    assert build_config({"preset": "tiny", "training": None, "data": None}) == build_config({"preset": "tiny"})


@given(st.integers(1, 10**7), st.integers(1, 10**7), st.booleans())
def test_more_data_never_chooses_a_smaller_preset(few: int, many: int, on_gpu: bool) -> None:
    few, many = sorted((few, many))
    order = list(PRESETS)
    smaller, larger = choose_preset(few, on_gpu=on_gpu), choose_preset(many, on_gpu=on_gpu)
    assert order.index(smaller) <= order.index(larger)
    assert order.index(choose_preset(many, on_gpu=False)) <= order.index(choose_preset(many, on_gpu=True))


# ---- files -----------------------------------------------------------------------------------------------------------


def test_load_config_file(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("\ufeffpreset: tiny\ntraining:\n  steps: 1_000\n  learning_rate: 1e-3\nmodel:\n", encoding="utf-8")
    config = build_config(read_request(file))
    assert (config.training.steps, config.training.learning_rate, config.model.d_model) == (1000, 1e-3, 128)


def test_all_files_in_configs_resolve() -> None:
    shipped = sorted((Path(__file__).parent.parent / "configs").glob("*.yaml"))
    assert shipped
    for file in shipped:
        request = read_request(file)
        own = request.pop("systems", None)
        data = build_config(request).data
        assert data.train or data.prepared, file
        for system in parse_systems(list(own), own) if own else ():
            assert build_config(system.request(request)).model.architecture == system.architecture


def test_comparison_configs_are_refused_by_train() -> None:
    with pytest.raises(ConfigError, match=r"systems: .*heedful compare"):
        build_config({"systems": {"transformer": None}})


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n"])
def test_empty_file_is_an_empty_request(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    assert read_request(str(file)) == {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"training:\n  steps: [1, 2\n", "line 3"),
        (b"training:\n\tsteps: 1\n", "line 2"),
        (b"a: 1\nb: !!python/object/apply:os.system ['true']\n", "line 2"),
        (b"name: 2024-13-45\n", "not valid YAML"),
        (b"name: \x07\n", "not valid YAML"),
        (b"name: Gr\xfc\xdfe\n", "not UTF-8"),
        (b"- training\n", "not a list"),
        (b"just words\n", "not a str"),
        (b"[" * 5000, "not valid YAML"),
    ],
)
def test_invalid_file_error_names_the_file(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "broken.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_request(file)
    assert str(caught.value).startswith(str(file)) and words in str(caught.value) and "\n" not in str(caught.value)


def test_missing_file_and_directory_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(HeedfulError) as caught:
            read_request(path)
        assert str(caught.value).count(str(path)) == 1


# ---- round trip ------------------------------------------------------------------------------------------------------


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Plain data for a field of this type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return st.lists(values_of(arguments[0]), max_size=2)
        return st.tuples(*map(values_of, arguments)).map(list)
    if arguments:
        return st.none() | values_of(next(a for a in arguments if a is not type(None)))
    if dataclasses.is_dataclass(hint):
        return requests_for(hint)
    words = st.text(min_size=1, max_size=8).filter(lambda text: text.lower() not in ("none", "null"))
    plain = {int: st.integers(0, 99), float: st.floats(0, 1), bool: st.booleans(), str: words}
    return plain[hint]


def requests_for(section: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Requests that name some of a section's keys."""
    hints = typing.get_type_hints(section)
    return st.fixed_dictionaries({}, optional={name: values_of(hint) for name, hint in hints.items()})


@pytest.mark.parametrize("section", [CorpusConfig, *SECTIONS.values()])
@given(data=st.data())
def test_any_request_is_refused_or_survives_json(section: type, data: st.DataObject) -> None:
    request = data.draw(requests_for(section))
    try:
        config = from_mapping(section, request)
    except ConfigError as error:
        assert any(f.name in str(error) for cls in (section, CorpusConfig) for f in dataclasses.fields(cls))
        return
    mapping = to_mapping(config)
    assert all(mapping[name] == value for name, value in request.items() if not isinstance(value, list))
    assert from_mapping(section, json.loads(json.dumps(mapping))) == config


@pytest.mark.parametrize("preset", [None, *PRESETS])
def test_configuration_survives_json_and_yaml(preset: str | None) -> None:
    corpus = {"source": "a", "target": "b", "weight": 0.5, "target_language": "no"}
    config = build_config({"name": "näme", "data": {"train": [corpus], "valid": [{"path": "c.tsv"}]}}, preset)
    mapping = to_mapping(config)
    assert from_mapping(Config, json.loads(json.dumps(mapping))) == config
    assert from_mapping(Config, yaml.safe_load(yaml.safe_dump(mapping))) == config
    assert build_config(mapping) == config


@pytest.mark.parametrize("section", [CorpusConfig, Config, *SECTIONS.values()])
def test_every_field_is_documented(section: type) -> None:
    import ast
    import inspect

    body = ast.parse(inspect.getsource(section)).body[0].body  # type: ignore[attr-defined]
    for field, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and field.target.id not in SECTIONS:  # type: ignore[union-attr]
            sentence = after.value.value if isinstance(after, ast.Expr) else None  # type: ignore[attr-defined]
            assert isinstance(sentence, str) and sentence.endswith("."), ast.unparse(field)


@pytest.mark.parametrize("module", [configuration, config_loading])
def test_configuration_page_imports_nothing_heavy(module: ModuleType) -> None:
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    assert "import torch" not in source and "import numpy" not in source


BOUNDED = [
    (section, field.name)
    for section, cls in (("model", ModelConfig), ("decoding", DecodingConfig))
    for field in dataclasses.fields(cls)
    if any(kind in str(field.type) for kind in ("int", "float")) and "Literal" not in str(field.type)
]


@pytest.mark.parametrize(("section", "name"), BOUNDED)
@pytest.mark.parametrize("value", [-(2**31), 2**31, 2**32 + 4, 10**30])
def test_every_number_of_model_and_decoding_has_bounds(section: str, name: str, value: int) -> None:
    """The native engine keeps 32 bits of them: 4294967300 would silently become 4."""
    if name == "seed" and abs(value) < 2**63:
        return  # a seed has up to 63 bits
    with pytest.raises(ConfigError, match=rf"{section}\.{name}"):
        build_config({section: {name: value}})


@pytest.mark.parametrize(
    ("num_pairs", "on_gpu", "preset"),
    [
        (19_999, True, "tiny"),
        (20_000, True, "small"),
        (99_999, True, "small"),
        (100_000, True, "iwslt"),
        (499_999, True, "iwslt"),
        (500_000, True, "base"),
        (500_000, False, "small"),
    ],
)
def test_preset_changes_at_documented_corpus_sizes(num_pairs: int, on_gpu: bool, preset: str) -> None:
    assert choose_preset(num_pairs, on_gpu=on_gpu) == preset


def test_zero_held_out_pairs_are_allowed() -> None:
    assert build_config({"data": {"num_valid_pairs": 0}}).data.num_valid_pairs == 0


def test_max_length_is_limited_to_32768() -> None:
    assert build_config({"model": {"max_length": 32_768}}).model.max_length == 32_768
    with pytest.raises(ConfigError, match=r"model\.max_length must be at most 32,768"):
        build_config({"model": {"max_length": 32_769}})
