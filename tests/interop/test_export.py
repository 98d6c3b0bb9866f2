"""`heedful export --to ctranslate2`: contents, atomic replacement, and no need for torch or CTranslate2."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.cli import run
from heedful.config import Config, ModelConfig, TokenizerConfig
from heedful.errors import ConfigError, ModelDirectoryError
from heedful.interop.export import export_ctranslate2
from heedful.model.transformer import Transformer
from heedful.model_dir import load_weights, save_model
from heedful.model_dir.ctranslate2_format import QUANTIZATIONS, TYPE_IDS, ctranslate2_files
from heedful.model_dir.registry import find_model
from heedful.model_dir.save_load import load_arrays, read_exported
from heedful.text.tokenizer import train_tokenizer

ROOT = Path(__file__).parent.parent.parent
TYPES = {0: "<f4", 1: "<i1", 2: "<i2", 3: "<i4", 4: "<f2", 5: "<u2"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("models") / "model")


def save(path: Path, **options) -> Path:
    torch.manual_seed(1)
    tokenizer = train_tokenizer([("a b c d", "d c b a")] * 3, TokenizerConfig())
    size = tokenizer.target_vocab_size
    config = ModelConfig(
        source_vocab_size=size, target_vocab_size=size, d_model=8, d_ff=12, num_heads=2,
        num_encoder_layers=2, num_decoder_layers=1, max_length=16,
    )  # fmt: skip
    save_model(path, weights=Transformer(config), config=Config(model=config), tokenizer=tokenizer, **options)
    return path


def read(contents: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and aliases of a `model.bin`, by the description of the format."""
    place = 0

    def take(kind: str):
        nonlocal place
        values = struct.unpack_from(f"<{kind}", contents, place)
        place += struct.calcsize(f"<{kind}")
        return values[0] if len(values) == 1 else values

    def text() -> str:
        return take(f"{take('H')}s").rstrip(b"\0").decode()

    assert (take("I"), text(), take("I")) == (6, "TransformerSpec", 7)
    arrays = {}
    for _ in range(take("I")):
        name = text()
        shape = tuple(take("I") for _ in range(take("B")))
        kind, size = TYPES[take("B")], take("I")
        arrays[name] = np.frombuffer(take(f"{size}s"), dtype=kind).reshape(shape)
    aliases = {text(): text() for _ in range(take("I"))}
    assert place == len(contents)
    return arrays, aliases


def test_exported_weights_equal_ours_and_shared_ones_are_stored_once(directory: Path) -> None:
    weights = {name: tensor.numpy() for name, tensor in load_weights(directory).items()}
    arrays, aliases = read(ctranslate2_files(load_arrays(directory))["model.bin"])
    assert np.array_equal(arrays["encoder/embeddings_0/weight"], weights["source_embedding.weight"])
    assert aliases == {
        "decoder/embeddings/weight": "encoder/embeddings_0/weight",
        "decoder/projection/weight": "encoder/embeddings_0/weight",
        "decoder/position_encodings/encodings": "encoder/position_encodings/encodings",
    }
    parts = [weights[f"encoder.layers.1.self_attention.{name}.weight"] for name in ("query", "key", "value")]
    assert np.array_equal(arrays["encoder/layer_1/self_attention/linear_0/weight"], np.concatenate(parts))
    real = sum(array.size for array in arrays.values() if array.ndim and array.dtype.kind == "f")
    assert real == sum(array.size for array in weights.values()) + 16 * 8  # the positions are computed, not learned


@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_quantized_weights_are_close(directory: Path, quantization: str) -> None:
    weights = load_weights(directory)
    arrays, aliases = read(ctranslate2_files(load_arrays(directory), quantization)["model.bin"])
    matrix, bias = arrays["decoder/layer_0/ffn/linear_0/weight"], arrays["decoder/layer_0/ffn/linear_0/bias"]
    ours = weights["decoder.layers.0.feed_forward.inner.weight"]
    kind, other = QUANTIZATIONS[quantization]
    assert (matrix.dtype, bias.dtype) == (np.dtype(TYPES[TYPE_IDS[kind]]), np.dtype(TYPES[TYPE_IDS[other]]))
    if kind.startswith("int"):
        scale = arrays["decoder/layer_0/ffn/linear_0/weight_scale"]
        restored = matrix / (scale[:, None] if scale.ndim else scale)
        assert np.abs(restored - ours.numpy()).max() <= 0.501 / scale.min()
        assert aliases["decoder/projection/weight_scale"] == "encoder/embeddings_0/weight_scale"
    elif kind == "bfloat16":
        assert np.array_equal(matrix, ours.bfloat16().view(torch.int16).numpy().view(np.uint16))
    else:
        assert np.array_equal(matrix, ours.numpy().astype(kind))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_any_dtype_are_read_without_torch(tmp_path: Path, dtype: torch.dtype) -> None:
    path = save(tmp_path / "model", dtype=dtype)
    found = load_arrays(path)
    expected = load_weights(path)
    assert found.weights.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found.weights[name].dtype == np.float32
        assert np.array_equal(found.weights[name], tensor.float().numpy())


def test_export_imports_neither_torch_nor_ctranslate2(directory: Path, tmp_path: Path) -> None:
    arguments = ["export", "--to", "ctranslate2", "-m", str(directory), "-o", str(tmp_path / "out")]
    code = (
        f"import sys; sys.modules['torch'] = sys.modules['ctranslate2'] = None\n"
        f"from heedful.cli import run; sys.exit(run({arguments!r}))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    there = {path.name for path in (tmp_path / "out").iterdir()}
    assert there == {
        "model.bin", "config.json", "shared_vocabulary.json", "tokenizer.model", "tokenizer.json", "heedful.json",
        "README.md",
    }  # fmt: skip
    settings = json.loads((tmp_path / "out" / "config.json").read_bytes())
    assert (settings["decoder_start_token"], settings["add_source_eos"]) == ("<s>", True)
    pieces = json.loads((tmp_path / "out" / "shared_vocabulary.json").read_bytes())
    assert pieces[:4] == ["<pad>", "<unk>", "<s>", "</s>"]
    assert read_exported(tmp_path / "out").config == load_arrays(directory).config


def test_readme_snippet_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ctranslate2")
    place = export_ctranslate2(find_model("en-de-zh"), tmp_path / "exported", quantization="int8")
    readme = (place / "README.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"^```python\n(.*?)^```", readme, flags=re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    printed = []
    for code in (snippet, snippet.replace('<2de>"', '<2zh>"'), snippet.replace("A sentence.", "Good morning.")):
        exec(code, {})
        printed.append(capsys.readouterr().out.strip())
    assert "Satz" in printed[0] and re.search("[一-龥]", printed[1]) and "Guten Morgen" in printed[2]


def test_only_exports_are_replaced_with_overwrite(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def export(*flags: object) -> tuple[int, str]:
        code = run(["export", "--to", "ctranslate2", "-m", str(directory), *map(str, flags)])
        return code, capsys.readouterr().err

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    code, output = export("-o", tmp_path / "mine", "--overwrite")
    assert code == 2 and "not an exported model" in output
    assert export("-o", tmp_path / "out") == (0, "")
    code, output = export("-o", tmp_path / "out")
    assert code == 2 and "--overwrite" in output
    size = (tmp_path / "out" / "model.bin").stat().st_size
    assert export("-o", tmp_path / "out", "--overwrite", "--quantization", "int8") == (0, "")
    assert (tmp_path / "out" / "model.bin").stat().st_size < size
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "out"]
    code, output = export("-o", tmp_path / "new", "--quantization", "int9")
    assert code == 2 and "did you mean 'int8'" in output and not (tmp_path / "new").exists()
    assert run(["export", "--to", "onnx", "-m", str(directory), "-o", str(tmp_path / "new")]) == 2


def test_damaged_export_is_refused(directory: Path, tmp_path: Path) -> None:
    place = export_ctranslate2(directory, tmp_path / "out")
    whole = (place / "model.bin").read_bytes()
    (place / "model.bin").write_bytes(whole[:-1] + b"?")
    with pytest.raises(ModelDirectoryError, match=r"model\.bin: missing or not what was exported"):
        read_exported(place)
    (place / "model.bin").unlink()
    with pytest.raises(ModelDirectoryError, match=r"model\.bin"):
        read_exported(place)
    (place / "heedful.json").write_text("[]")
    with pytest.raises(ModelDirectoryError, match="does not describe an exported model"):
        read_exported(place)


def test_unsupported_model_is_not_exported(tmp_path: Path) -> None:
    path = save(tmp_path / "model")
    record = load_arrays(path)
    assert record.config.model.norm == "layer"
    config = Config(
        model=ModelConfig(source_vocab_size=300, target_vocab_size=300, norm="batch", d_model=8, num_heads=2)
    )
    save_model(tmp_path / "batch", weights=Transformer(config.model), config=config, tokenizer=record.tokenizer)
    with pytest.raises(ConfigError, match=r"model\.norm=batch"):
        export_ctranslate2(tmp_path / "batch", tmp_path / "out")
    assert not (tmp_path / "out").exists()
