"""The native trace equals torch's explicit path in every tensor; interventions have the documented effect."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from heedful import Translator
from heedful.config import ModelConfig
from heedful.errors import ConfigError, DecodingError
from heedful.inspection import Intervention, trace
from heedful.inspection.torch_trace import torch_trace
from heedful.model_dir.registry import default_model
from heedful.native import NativeEngine
from heedful.native.bindings import kernel_names
from heedful.native.weight_file import Numbers, dequantize, quantize_rows
from tests.native.native_models import BOS, EOS, SPECIAL, engine_of, random_model, random_sources, small_config

OPTIONS: dict[str, dict[str, object]] = {
    "paper": {},
    "pre_norm": {"norm_placement": "pre"},
    "no_final_norm": {"norm_placement": "pre", "final_norm": False},
    "rms_rotary_swiglu": {"norm": "rms", "norm_placement": "pre", "positions": "rotary", "activation": "swiglu"},
    "gelu_learned": {"activation": "gelu", "positions": "learned", "final_norm": True},
    "unscaled_separate": {"attention_scoring": "dot", "tying": "none", "target_vocab_size": 50},
    "odd_sizes": {"d_model": 36, "num_heads": 3, "head_dim": 10, "d_ff": 50, "bias": False, "tying": "target"},
    "uneven": {"num_encoder_layers": 3, "num_decoder_layers": 1, "source_vocab_size": 71, "tying": "target"},
}


def native_tensors(
    engine: NativeEngine, source: list[int], target: list[int], **arguments: object
) -> dict[str, np.ndarray]:
    _, tensors = engine.trace_ids(source, target, SPECIAL, **arguments)
    return {name: np.frombuffer(one.data, np.float32).reshape(one.shape) for name, one in tensors.items()}


def assert_equal_tensors(native: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> None:
    assert native.keys() == reference.keys()
    for name, expected in reference.items():
        found = native[name]
        assert found.shape == expected.shape, name
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(np.isfinite(found), finite, err_msg=name)
        largest = np.abs(expected[finite]).max(initial=1e-3)
        np.testing.assert_allclose(found[finite], expected[finite], rtol=0, atol=1e-4 * largest, err_msg=name)


@pytest.mark.parametrize("option", OPTIONS)
def test_native_trace_equals_torch(option: str, tmp_path: Path) -> None:
    model = random_model(small_config(**OPTIONS[option]))
    engine = engine_of(model, tmp_path, precision="float32")
    for seed, source in enumerate(random_sources(4, vocab_size=50, longest=20)):
        target = [BOS, *random_sources(1, vocab_size=50, longest=20, seed=seed + 5)[0][:-1]]
        reference = torch_trace(model, source, target, SPECIAL)[1]
        assert_equal_tensors(native_tensors(engine, source, target), reference)


def parameter_names(config: ModelConfig) -> list[str]:
    stacks = {
        "encoder": (config.num_encoder_layers, ["self_attention"]),
        "decoder": (config.num_decoder_layers, ["self_attention", "cross_attention"]),
    }
    names = []
    for stack, (num_layers, attentions) in stacks.items():
        for layer in range(num_layers):
            place = f"{stack}.layers.{layer}"
            parts = [f"{place}.{kind}.{part}" for kind in attentions for part in ("query", "key", "value", "output")]
            parts += [f"{place}.feed_forward.{part}" for part in ("input", "output")]
            parts += [f"{place}.feed_forward.gate"] if config.activation == "swiglu" else []
            names += [f"{part}_{kind}" for part in parts for kind in ("weight", "bias")]
            norms = [f"{place}.{kind}_norm" for kind in (*attentions, "feed_forward")]
            names += [f"{norm}.{kind}" for norm in norms for kind in ("weight", "bias")]
    return names


@pytest.mark.parametrize("option", OPTIONS)
def test_parameters_are_those_of_the_model_and_come_only_by_name(option: str, tmp_path: Path) -> None:
    config = small_config(**OPTIONS[option])
    model = random_model(config)
    engine = engine_of(model, tmp_path, precision="float32")
    wanted = parameter_names(config)
    found = native_tensors(engine, [5, EOS], [BOS, 8], wanted=wanted)
    reference = torch_trace(model, [5, EOS], [BOS, 8], SPECIAL, wanted=wanted)[1]
    assert set(found) == set(wanted)
    for name, expected in reference.items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)
    assert not set(native_tensors(engine, [5, EOS], [BOS, 8])) & set(wanted)


def test_a_query_is_the_sum_of_its_terms(tmp_path: Path) -> None:
    engine = engine_of(random_model(small_config(norm_placement="pre")), tmp_path, precision="int8")
    place = "encoder.layers.1.self_attention"
    names = [f"{place}_norm.output", f"{place}.query", f"{place}.query_weight", f"{place}.query_bias"]
    x, query, weight, bias = (native_tensors(engine, [5, 6, 7, EOS], [BOS], wanted=names)[name] for name in names)
    expected = np.einsum("td,hkd->htk", x.astype(np.float64), weight) + bias[:, None]
    np.testing.assert_allclose(query, expected, atol=1e-5)


@pytest.mark.parametrize("option", ["paper", "rms_rotary_swiglu", "odd_sizes"])
def test_trace_of_int8_weights_equals_torch_on_the_dequantized_weights(option: str, tmp_path: Path) -> None:
    model = random_model(small_config(**OPTIONS[option]))
    engine = engine_of(model, tmp_path, precision="int8")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and "positions" not in name:
                rounded = dequantize(quantize_rows(Numbers.of(weight.numpy())))
                weight.copy_(torch.frombuffer(rounded.data, dtype=torch.float32).reshape(weight.shape))
    source = random_sources(1, vocab_size=50, longest=15)[0]
    target = [BOS, 9, 8, 7, 30, 31]
    assert_equal_tensors(native_tensors(engine, source, target), torch_trace(model, source, target, SPECIAL)[1])


def test_all_kernels_and_thread_counts_give_the_same_bits(tmp_path: Path) -> None:
    model = random_model(small_config(**OPTIONS["rms_rotary_swiglu"], d_model=64))
    source, target = random_sources(1, longest=30)[0], [BOS, *range(10, 25)]
    for precision in ("int8", "float32"):
        found = [
            native_tensors(
                engine_of(model, tmp_path, precision=precision, kernels=kernels, num_threads=threads), source, target
            )
            for kernels in kernel_names()
            for threads in (1, 3)
        ]
        for other in found[1:]:
            for name, tensor in found[0].items():
                np.testing.assert_array_equal(tensor, other[name], err_msg=name)


def test_trace_in_float32_gives_the_logits_and_the_greedy_translation_of_the_engine(tmp_path: Path) -> None:
    from heedful.config import DecodingConfig

    model = random_model(small_config())
    engine = engine_of(model, tmp_path, precision="float32")
    for source in random_sources(20, longest=15):
        [[hypothesis]] = engine.translate_ids([source], DecodingConfig(method="greedy"), SPECIAL, max_lengths=[12])
        found, tensors = engine.trace_ids(source, [BOS], SPECIAL, max_length=12, wanted=["logits"])
        assert found == [token for token in hypothesis.tokens if token != EOS][:12]
        logits = np.frombuffer(tensors["logits"].data, np.float32).reshape(tensors["logits"].shape)
        np.testing.assert_array_equal(logits, engine.logits(source, [BOS, *found]))


def test_weights_sum_to_one_and_masked_weights_are_zero(tmp_path: Path) -> None:
    engine = engine_of(random_model(small_config()), tmp_path, precision="int8")
    tensors = native_tensors(engine, [5, 6, 7, EOS], [BOS, 8, 9, 10, 11])
    weights = [name for name in tensors if name.endswith(".weights")]
    assert len(weights) == 6
    for name in weights:
        np.testing.assert_allclose(tensors[name].sum(-1), 1.0, atol=1e-6)
        masked = np.isinf(tensors[name.replace(".weights", ".mask")])
        assert (tensors[name][:, masked] == 0).all()
    assert np.isinf(tensors["decoder.layers.0.self_attention.mask"]).sum() == 10


def test_only_wanted_tensors_are_recorded(tmp_path: Path) -> None:
    engine = engine_of(random_model(small_config()), tmp_path, precision="int8")
    names = native_tensors(engine, [5, EOS], [BOS, 8], wanted=["encoder.layers.*.self_attention.weights", "logits"])
    assert list(names) == [*(f"encoder.layers.{i}.self_attention.weights" for i in (0, 1)), "logits"]
    assert native_tensors(engine, [5, EOS], [BOS], wanted=[]) == {}


def intervene(engine: NativeEngine, *interventions: Intervention) -> dict[str, np.ndarray]:
    changes = [one.native() for one in interventions]
    return native_tensors(engine, [5, 6, 7, 8, EOS], [BOS, 8, 9, 10], interventions=changes)


def test_removed_head_adds_nothing(tmp_path: Path) -> None:
    model = random_model(small_config())
    engine = engine_of(model, tmp_path, precision="float32")
    found = intervene(engine, Intervention("remove", "decoder", "cross_attention", 1, 2))
    outputs = found["decoder.layers.1.cross_attention.head_outputs"]
    assert (outputs[2] == 0).all() and (outputs[1] != 0).all()
    with torch.no_grad():  # the same as zeros in the head's columns of W_O
        model.decoder.layers[1].cross_attention.output.weight[:, 16:24] = 0
    reference = torch_trace(model, [5, 6, 7, 8, EOS], [BOS, 8, 9, 10], SPECIAL, wanted=["logits"])[1]["logits"]
    np.testing.assert_allclose(found["logits"], reference, atol=1e-4 * np.abs(reference).max())


def test_removed_sublayer_leaves_the_residual_stream_unchanged(tmp_path: Path) -> None:
    engine = engine_of(random_model(small_config(norm_placement="pre")), tmp_path, precision="int8")
    found = intervene(engine, Intervention("remove", "decoder", "cross_attention"))
    for layer in (0, 1):
        name = f"decoder.layers.{layer}.cross_attention"
        np.testing.assert_array_equal(found[f"{name}.residual_after"], found[f"{name}.residual_before"])
    other = engine.trace_ids([9, 9, EOS], [BOS, 8, 9, 10], SPECIAL, wanted=["logits"], interventions=[
        Intervention("remove", "decoder", "cross_attention").native()
    ])[1]["logits"]  # fmt: skip
    assert other.data.tobytes() == found["logits"].tobytes()  # the decoder no longer depends on the source


def test_uniform_set_and_unscaled_weights(tmp_path: Path) -> None:
    engine = engine_of(random_model(small_config()), tmp_path, precision="int8")
    name = "decoder.layers.0.self_attention"
    uniform = intervene(engine, Intervention("uniform", "decoder", "self_attention", 0, 3))[f"{name}.weights"][3]
    np.testing.assert_allclose(uniform, np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None], rtol=1e-6)
    plain = intervene(engine)[f"{name}.weights"]
    change = Intervention("set_weight", "decoder", "self_attention", 0, 1, query=2, key=0, value=0.7)
    changed = intervene(engine, change)[f"{name}.weights"]
    row, rest = changed[1, 2], plain[1, 2, 1:3]
    np.testing.assert_allclose(row, [0.7, *(rest / rest.sum() * 0.3), 0], rtol=1e-5)
    changed[1, 2] = plain[1, 2]
    np.testing.assert_array_equal(changed, plain)
    unscaled = intervene(engine, Intervention("unscaled", "decoder", "self_attention", 0))
    np.testing.assert_array_equal(unscaled[f"{name}.scaled_scores"], unscaled[f"{name}.scores"])


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_encoder_without_positions_does_not_see_the_order(positions: str, tmp_path: Path) -> None:
    engine = engine_of(random_model(small_config(positions=positions)), tmp_path, precision="float32")
    change = [Intervention("no_positions", "encoder").native()]
    one, other = (
        native_tensors(engine, source, [BOS, 8], interventions=change)["logits"]
        for source in ([5, 6, 7, EOS], [7, EOS, 5, 6])
    )
    np.testing.assert_allclose(one, other, atol=1e-4)
    assert np.abs(one - native_tensors(engine, [5, 6, 7, EOS], [BOS, 8])["logits"]).max() > 1e-2


def test_invalid_requests_are_refused(tmp_path: Path) -> None:
    engine = engine_of(random_model(small_config()), tmp_path, precision="int8")
    with pytest.raises(DecodingError, match="the source has 0 tokens"):
        engine.trace_ids([], [BOS], SPECIAL)
    with pytest.raises(DecodingError, match="token 70 is not in the vocabulary"):
        engine.trace_ids([5], [BOS, 70], SPECIAL)
    with pytest.raises(DecodingError, match="max_length is from 0 to 39"):
        engine.trace_ids([5], [BOS], SPECIAL, max_length=40)
    for intervention, message in (
        (Intervention("remove", "decoder", layer=2), "layer is 2; it must be from -1 to 1"),
        (Intervention("remove", "encoder", "cross_attention"), "the encoder has no cross-attention"),
        (Intervention("set_weight", "decoder", "self_attention", 0, 0, value=2.0), "from 0 to 1"),
        (Intervention("uniform", "encoder", head=4), "head is 4"),
    ):
        with pytest.raises(DecodingError, match=message):
            engine.trace_ids([5], [BOS], SPECIAL, interventions=[intervention.native()])
    with pytest.raises(ConfigError, match="kind is one of remove"):
        Intervention("explode", "encoder")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="needs a sublayer"):
        Intervention("set_weight", "encoder")


def test_bundled_model_trace_equals_torch() -> None:
    native, explicit = Translator.load(default_model(), engine="native"), Translator.load(engine="torch")
    text = "Where is the train station?"
    found = trace(native, text, target_language="de")
    reference = trace(explicit, text, found.text, target_language="de")
    assert found.text == "Wo ist der Bahnhof?" and found.source_tokens == reference.source_tokens
    assert found.target_ids == reference.target_ids
    assert_equal_tensors(dict(found), dict(reference))
    assert found["probabilities"].argmax(-1).tolist()[:-1] == found.target_ids[1:]
    assert repr(found) and len(found) > 100


@pytest.mark.parametrize("architecture", ["recurrent", "convolutional"])
def test_other_architectures_record_their_attention(architecture: str) -> None:
    from heedful.build_model import build_model

    config = ModelConfig(
        architecture=architecture, source_vocab_size=30, target_vocab_size=30, d_model=16, d_ff=32, num_heads=2,
        num_encoder_layers=1, num_decoder_layers=1, max_length=20,
    )  # type: ignore[arg-type]  # fmt: skip
    torch.manual_seed(1)
    model = build_model(config).eval()
    _, tensors = torch_trace(model, [5, 6, 7, EOS], [BOS, 8, 9], SPECIAL)
    weights = tensors["decoder.layers.0.cross_attention.weights"]
    assert weights.shape[1:] == (3, 4)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert tensors["logits"].shape == (3, 30)


@pytest.mark.parametrize(
    "changes",
    [
        {"self_attention": "local", "cross_attention": "local_monotonic", "attention_window": 1},
        {"cross_attention": "local_predictive", "attention_window": 2},
        {"self_attention": "hard", "cross_attention": "hard"},
    ],
    ids=str,
)
def test_trace_shows_the_weights_of_local_and_hard_attention(changes: dict[str, object]) -> None:
    model = random_model(small_config(**changes))
    [source] = random_sources(1, vocab_size=50, longest=9)
    _, tensors = torch_trace(model, source, [BOS, 7, 9, 11], SPECIAL)
    memory = model.encode(torch.tensor([source]), torch.ones(1, len(source), dtype=torch.bool))
    state = model.start(memory, num_beams=1, max_length=8)
    steps = [model.step(torch.tensor([token]), state, need_weights=True).attention for token in (BOS, 7, 9, 11)]
    for layer in range(model.config.num_decoder_layers):
        found = tensors[f"decoder.layers.{layer}.cross_attention.weights"]
        expected = torch.stack([one[0, layer] for one in steps if one is not None], dim=1)
        np.testing.assert_allclose(found, expected.detach().numpy(), rtol=0, atol=1e-5)
        for place in ("self_attention", "cross_attention"):
            name = f"decoder.layers.{layer}.{place}"
            if changes.get(place) == "hard":
                assert set(np.unique(tensors[f"{name}.weights"])) == {0.0, 1.0}
            head_outputs = tensors[f"{name}.weights"] @ tensors[f"{name}.value"]
            np.testing.assert_allclose(tensors[f"{name}.head_outputs"], head_outputs, rtol=0, atol=1e-5)
