"""Compact model directories (int8) and sharded weights: every reader gets the same, complete model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from heedful.build_model import build_model
from heedful.config import Config, ModelConfig, TokenizerConfig, TrainingConfig
from heedful.decoding.translator import Translator
from heedful.errors import ConfigError, ModelDirectoryError
from heedful.interop.export import export_ctranslate2, repack
from heedful.model_dir import describe, load_model, load_weights, save_model, verify
from heedful.model_dir import files as model_files
from heedful.model_dir.save_load import load_arrays
from heedful.model_dir.weights import Int8Matrix, dither, quantize_rows, read_stored_weights
from heedful.native import NativeEngine, available, convert
from heedful.native.bindings import kernel_names
from heedful.native.convert import native_weights
from heedful.text.tokenizer import Tokenizer, train_tokenizer
from heedful.training.checkpoint import average_models

LINES = [f"sentence {i} about word{i % 7} and thing{i % 5}" for i in range(200)]
native_only = pytest.mark.skipif(not available(), reason=available().reason)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(zip(LINES, LINES, strict=True), TokenizerConfig(vocab_size=300))


def saved(place: Path, tokenizer: Tokenizer, *, shard_mb: float | None = None, **changes: object) -> Path:
    size = tokenizer.source_vocab_size
    shape = {"d_model": 48, "d_ff": 80, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 1}
    model = ModelConfig(**{"source_vocab_size": size, "target_vocab_size": size, "max_length": 64, **shape, **changes})
    torch.manual_seed(3)
    weights = build_model(model)
    with torch.no_grad():
        for parameter in weights.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    config = Config(model=model, training=TrainingConfig(shard_mb=shard_mb))
    save_model(place, weights=weights, config=config, tokenizer=tokenizer)
    return place


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    return saved(tmp_path_factory.mktemp("full") / "model", tokenizer)


@pytest.fixture(scope="module")
def compact(full: Path) -> Path:
    repack(full, full.parent / "compact", compact=True)
    return full.parent / "compact"


def test_rounding_error_is_at_most_half_a_step() -> None:
    weight = np.random.default_rng(1).normal(size=(7, 50)).astype(np.float32)
    weight[3] = 0
    rounded = quantize_rows(weight)
    assert np.abs(rounded.values).max(axis=1).tolist() == [127, 127, 127, 0, 127, 127, 127]
    assert (np.abs(rounded.dequantize() - weight) <= rounded.scales[:, None] * 0.5001).all()


def test_dither_keeps_int8_values() -> None:
    chance = np.random.default_rng(1)
    weight = chance.normal(size=(40, 96)).astype(np.float32)
    weight[7] = 0
    start = weight.copy()
    start[:20] = quantize_rows(weight).dequantize()[:20]
    moved = dither(start, np.random.default_rng(2))
    before, after = quantize_rows(start), quantize_rows(moved)
    assert np.array_equal(before.values, after.values) and np.array_equal(before.scales, after.scales)
    assert np.array_equal(moved[20:], start[20:]) and not moved[7].any()
    steps = (moved - start)[:7] / before.scales[:7, None]
    assert steps.min() < -0.48 and steps.max() > 0.48 and abs(steps.mean()) < 0.05


def test_dither_keeps_small_changes_on_average() -> None:
    chance = np.random.default_rng(3)
    start = quantize_rows(chance.normal(size=(50, 384)).astype(np.float32)).dequantize()
    scales = quantize_rows(start).scales[:, None]
    change = np.where(np.abs(start) < 120 * scales, 0.1 * scales, 0).astype(np.float32)
    kept = [
        float((quantize_rows(weight + change).dequantize() - start).sum() / change.sum())
        for weight in (start, dither(start, chance))
    ]
    assert kept[0] == pytest.approx(0, abs=0.001) and kept[1] == pytest.approx(1, abs=0.15)


def test_compact_model_size(full: Path, compact: Path) -> None:
    sizes = [describe(directory)["weights_size"] for directory in (full, compact)]
    assert sizes[1] < 0.35 * sizes[0]  # a quarter, and in so small a model many names, biases and norms
    assert describe(compact)["dtypes"] == ["F32", "I8"] and describe(compact)["compact"]
    assert describe(compact)["num_parameters"] == describe(full)["num_parameters"]
    assert describe(compact)["format_version"] == 2 and describe(full)["format_version"] == 1
    assert sorted(verify(compact)) == sorted(verify(full))


@native_only
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tying": "target", "positions": "learned", "activation": "swiglu"},
        {"tying": "none", "norm": "rms", "positions": "rotary", "norm_placement": "pre", "bias": False},
    ],
    ids=["three_way", "target", "none"],
)
def test_native_engine_loads_compact_model_bit_equal(tmp_path: Path, tokenizer: Tokenizer, changes: dict) -> None:
    one = saved(tmp_path / "full", tokenizer, **changes)
    repack(one, tmp_path / "compact", compact=True)
    made = []
    for directory in (one, tmp_path / "compact"):
        config = load_arrays(directory).config.model
        stored = model_files.read_consistent(directory, lambda files, config=config: read_stored_weights(files, config))
        made.append(convert.convert(config, stored, precision="int8"))
    assert made[0].keys() == made[1].keys()
    for name, tensor in made[0].items():
        assert tensor.kind == made[1][name].kind and tensor.data == made[1][name].data, name
    for kernels in {kernel_names()[0], "portable"}:
        engines = [NativeEngine.load(d, num_threads=1, kernels=kernels) for d in (one, tmp_path / "compact")]
        logits = [engine.logits([5, 9, 40, 7, 3], [2, 8, 30]) for engine in engines]
        assert logits[0].tobytes() == logits[1].tobytes()


@native_only
def test_translations_are_equal_on_all_kernels(full: Path, compact: Path) -> None:
    outputs = set()
    for directory in (full, compact):
        for kernels in (kernel_names()[0], "portable"):
            code = (
                "import sys; sys.modules['torch'] = None; from heedful.cli import run; "
                f"sys.exit(run(['translate', '-m', {str(directory)!r}, '--json', {LINES[3]!r}, {LINES[8]!r}]))"
            )
            environment = {**os.environ, "HEEDFUL_KERNELS": kernels, "PYTHONPATH": os.pathsep.join(sys.path)}
            done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
            outputs.add((kernels, done.stdout))
    assert len(outputs) == len({kernel_names()[0], "portable"})


@native_only
def test_torch_loads_dequantized_weights(compact: Path) -> None:
    source, target = [5, 9, 40, 7, 3], [2, 8, 30]
    with torch.inference_mode():
        theirs = load_model(compact).model(torch.tensor([source]), torch.tensor([target]))[0].numpy()
    ours = NativeEngine.load(compact, precision="float32", num_threads=1).logits(source, target)
    np.testing.assert_allclose(ours, theirs, atol=2e-4)
    restored = load_arrays(compact).weights
    for name, tensor in load_weights(compact).items():
        assert np.array_equal(tensor.numpy(), restored[name]) and tensor.dtype == torch.float32
    assert Translator.load(compact, engine="torch").translate([LINES[0]], align=True)[0].alignment is not None


def test_operations_on_compact_model(full: Path, compact: Path, tmp_path: Path) -> None:
    repack(compact, tmp_path / "again", compact=True)
    assert (tmp_path / "again/model.safetensors").read_bytes() == (compact / "model.safetensors").read_bytes()
    export_ctranslate2(compact, tmp_path / "ct2", quantization="int8")
    with pytest.raises(ConfigError, match=r"compact.*Average the full"):
        average_models([full, compact], tmp_path / "mean")
    with pytest.raises(ConfigError, match="is the model itself"):
        repack(full, full, compact=True, overwrite=True)
    with pytest.raises(ConfigError, match="--overwrite"):
        repack(full, compact, compact=True)


def test_compact_export_refuses_unsupported_model(tmp_path: Path, tokenizer: Tokenizer) -> None:
    model = saved(tmp_path / "model", tokenizer, norm="batch")
    with pytest.raises(ConfigError, match=r"model\.norm=batch"):
        repack(model, tmp_path / "compact", compact=True)
    assert not (tmp_path / "compact").exists()


def test_export_keeps_edited_card(full: Path, compact: Path, tmp_path: Path) -> None:
    assert (full / "README.md").read_text() != (compact / "README.md").read_text()  # it states the size
    own = saved(tmp_path / "own", load_arrays(full).tokenizer)
    (own / "README.md").write_text("# Mine\n")
    repack(own, tmp_path / "small", compact=True)
    assert (tmp_path / "small/README.md").read_text() == "# Mine\n"
    verify(tmp_path / "small")


def test_damaged_compact_model_is_refused(compact: Path, tmp_path: Path) -> None:
    repack(compact, tmp_path / "damaged", compact=True)
    path = tmp_path / "damaged/model.safetensors"
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    for read in (load_model, verify, native_weights):
        with pytest.raises(ModelDirectoryError, match="not what was saved"):
            read(tmp_path / "damaged")
    stored = {"a.weight": np.zeros((3, 4), dtype=np.int8)}
    from heedful.model_dir.weights import pair_scales

    with pytest.raises(ModelDirectoryError, match=r"a\.weight is int8"):
        pair_scales(stored, "here")
    assert isinstance(pair_scales({**stored, "a.weight_scale": np.ones(3, np.float32)}, "here")["a.weight"], Int8Matrix)


def test_sharded_weights_equal_single_file(tmp_path: Path, tokenizer: Tokenizer, full: Path) -> None:
    parts = saved(tmp_path / "parts", tokenizer, shard_mb=0.02)
    names = sorted(name for name in os.listdir(parts) if name.endswith(".safetensors"))
    assert len(names) > 3 and names[0] == f"model-00001-of-{len(names):05d}.safetensors"
    index = json.loads((parts / "model.safetensors.index.json").read_text())
    for tensor, name in index["weight_map"].items():  # as Hugging Face's readers do
        with safe_open(parts / name, framework="np") as file:
            assert np.array_equal(file.get_tensor(tensor), load_arrays(full).weights[tensor])
    assert index["metadata"]["total_size"] == sum(4 * t.numel() for t in load_weights(full).values())
    sizes = [sum((parts / name).stat().st_size for name in names)]
    assert describe(parts)["weights_size"] == sizes[0] and describe(parts)["format_version"] == 2
    assert set(names) < set(verify(parts))
    ours, theirs = load_model(parts).model.state_dict(), load_model(full).model.state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    if available():
        assert native_weights(parts).read_bytes()[96:] == native_weights(full).read_bytes()[96:]


def test_compact_shards_and_back(full: Path, compact: Path, tmp_path: Path) -> None:
    large = repack(full, tmp_path / "parts", compact=True, shard_mb=0.01)
    assert large == ["source_embedding.weight"]  # 300 × 48 bytes: no file can be smaller
    sizes = [path.stat().st_size for path in (tmp_path / "parts").glob("model-*")]
    assert sorted(sizes)[-2] < 0.01e6 + 4000 < sorted(sizes)[-1]  # only the headers exceed the limit
    repack(tmp_path / "parts", tmp_path / "parts-as-one", compact=False, shard_mb=100)
    assert (tmp_path / "parts-as-one/model.safetensors").read_bytes() == (compact / "model.safetensors").read_bytes()
    repack(full, tmp_path / "parts", compact=False, overwrite=True)  # no shard of the old model remains
    assert sorted(verify(tmp_path / "parts")) == sorted(verify(full))
    assert not [name for name in os.listdir(tmp_path / "parts") if name.startswith("model-")]


def test_incomplete_shards_are_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    parts = saved(tmp_path / "parts", tokenizer, shard_mb=0.05)
    second = sorted(parts.glob("model-00002-*"))[0]
    stray = parts / "model-00009-of-00009.safetensors"
    stray.write_bytes(b"")
    with pytest.raises(ModelDirectoryError, match=r"model-00009-of-00009.safetensors is not part of this model"):
        load_model(parts)
    stray.unlink()
    data = second.read_bytes()
    second.unlink()
    with pytest.raises(ModelDirectoryError, match=r"model-00002.*missing"):
        load_model(parts)
    second.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ModelDirectoryError, match=r"model-00002.*not what was saved"):
        load_model(parts)
    second.write_bytes(data)
    load_model(parts)
    listed = json.loads((parts / "checksums.json").read_text())
    del listed["files"][second.name]
    (parts / "checksums.json").write_text(json.dumps(listed))
    with pytest.raises(ModelDirectoryError, match="not all files of one set"):
        load_model(parts)
