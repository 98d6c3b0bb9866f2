"""The weight file is created once in the user's cache, and again if the model changes or it is damaged."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.config import Config, DecodingConfig, TokenizerConfig
from heedful.errors import ConfigError, ModelDirectoryError
from heedful.model_dir import save_model
from heedful.model_dir.shortlist import Shortlist, save_shortlist
from heedful.model_dir.weights import read_weights
from heedful.native import NativeEngine, available
from heedful.native.convert import native_weights
from heedful.text.tokenizer import Tokenizer, train_tokenizer
from tests.native.native_models import SPECIAL, random_model, random_sources, small_config, torch_search, weight_file

pytestmark = pytest.mark.skipif(not available(), reason=available().reason)


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return weight_file(
        random_model(small_config()), tmp_path_factory.mktemp("file") / "a.bin", precision="int8"
    ).read_bytes()


def refusal(data: bytes, folder: Path) -> str:
    path = folder / "damaged.bin"
    path.write_bytes(data)
    with pytest.raises(ModelDirectoryError) as caught:
        NativeEngine(path, num_threads=1)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_truncated_weight_file_is_refused(intact: bytes, tmp_path: Path) -> None:
    for length in [0, 1, 63, 64, 191, 192, 1000, *range(64, len(intact), len(intact) // 20), len(intact) - 1]:
        assert "damaged" in refusal(intact[:length], tmp_path)
    assert "full size" in refusal(intact + bytes(64), tmp_path)


def test_flipped_bit_is_detected(intact: bytes, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    places = {*range(0, 192, 5), *random.integers(0, len(intact), 150).tolist()}
    for place in places:
        damaged = bytearray(intact)
        damaged[place] ^= 1 << int(random.integers(8))
        assert "damaged" in refusal(bytes(damaged), tmp_path), place


def test_forged_contents_are_refused(intact: bytes, tmp_path: Path) -> None:
    """A forged file: every field of the shape and the tensor list is changed in turn."""
    random, config = np.random.default_rng(2), DecodingConfig()
    refused = 0
    for place in [*range(96, 160, 4), *range(192, 192 + 96 * 12, 4)]:
        forged = bytearray(intact)
        forged[place : place + 4] = random.integers(0, 2**32, dtype=np.uint32).tobytes()
        path = tmp_path / "forged.bin"
        path.write_bytes(with_checksums(forged))
        try:
            engine = NativeEngine(path, num_threads=1)
        except ModelDirectoryError as error:
            assert "damaged" in str(error)
            refused += 1
        else:  # bytes after the end of a name and reserved fields are not used
            assert len(engine.translate_ids([[5, 6, 3]], config, SPECIAL, max_lengths=[5])[0]) == 1
            engine.close()
    assert refused > 150


def with_checksums(data: bytearray) -> bytes:
    words = np.frombuffer(bytes(data[64:]), dtype=np.uint64)
    sums = words.sum(dtype=np.uint64), (words * np.arange(1, len(words) + 1, dtype=np.uint64)).sum(dtype=np.uint64)
    data[24:40] = np.array(sums, dtype=np.uint64).tobytes()
    return bytes(data)


def test_invalid_weight_path_raises_error(tmp_path: Path) -> None:
    with pytest.raises(ModelDirectoryError, match="cannot read"):
        NativeEngine(tmp_path / "nothing.bin")
    with pytest.raises(ModelDirectoryError, match="not a file"):
        NativeEngine(tmp_path)


@pytest.fixture
def directory(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    return saved(tmp_path / "model", tokenizer)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    lines = [f"sentence {i} about word{i % 7} and thing{i % 5}" for i in range(200)]
    return train_tokenizer(zip(lines, lines, strict=True), TokenizerConfig(vocab_size=300))


def saved(place: Path, tokenizer: Tokenizer, *, seed: int = 1, dtype: torch.dtype | None = None) -> Path:
    size = tokenizer.source_vocab_size
    model = random_model(small_config(source_vocab_size=size, target_vocab_size=size), seed=seed)
    save_model(place, weights=model, config=Config(model=model.config), tokenizer=tokenizer, dtype=dtype)
    return place


def test_weight_file_is_cached_per_model(directory: Path, tokenizer: Tokenizer) -> None:
    before = sorted(os.listdir(directory))
    path = native_weights(directory)
    assert path.parent == Path(os.environ["XDG_CACHE_HOME"], "heedful/native")
    first, made = path.read_bytes(), path.stat().st_mtime_ns
    assert native_weights(directory) == path and path.stat().st_mtime_ns == made
    path.write_bytes(first[:-64])
    assert native_weights(directory).read_bytes() == first
    saved(directory, tokenizer, seed=2)
    assert native_weights(directory) != path and native_weights(directory).read_bytes() != first
    assert sorted(os.listdir(directory)) == before
    assert not [name for name in os.listdir(path.parent) if name.startswith(".")]


def test_weight_file_in_model_directory_is_ignored(directory: Path) -> None:
    """Its weights would not be covered by the model's checksums."""

    def translate() -> object:
        engine = NativeEngine.load(directory, num_threads=1)
        return engine.translate_ids([[5, 6, 3]], DecodingConfig(), SPECIAL, max_lengths=[9])

    expected = translate()
    path = native_weights(directory)
    forged = bytearray(path.read_bytes())
    forged[-1000:] = bytes(1000)
    for name in ("native-int8.bin", path.name):
        (directory / name).write_bytes(with_checksums(forged))
    assert translate() == expected


@pytest.mark.parametrize("harm", ["truncated", "overwritten"])
def test_open_engine_does_not_depend_on_its_file(directory: Path, harm: str) -> None:
    path = native_weights(directory)
    engine = NativeEngine(path, num_threads=1)
    sources, config = random_sources(20, seed=1, vocab_size=engine.shape.source_vocab_size), DecodingConfig()
    expected = engine.translate_ids(sources, config, SPECIAL, max_lengths=[20] * 20)
    with path.open("r+b") as file:
        if harm == "truncated":
            file.truncate(0)
        else:
            file.write(bytes(path.stat().st_size))
    assert engine.translate_ids(sources, config, SPECIAL, max_lengths=[20] * 20) == expected
    path.unlink()


def test_cache_directory_is_made_private(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "cache/heedful/native"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert native_weights(directory).parent == folder
    assert folder.stat().st_mode & 0o777 == 0o700


def test_unused_cache_files_are_removed(directory: Path) -> None:
    path = native_weights(directory)
    old = path.with_name("0" * 32 + ".bin")
    old.write_bytes(b"of a model long gone")
    os.utime(old, (0, 0))
    native_weights(directory, force=True)
    assert path.exists() and not old.exists()


def test_concurrent_first_loads_create_one_file(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with ThreadPoolExecutor(8) as threads:
        paths = set(threads.map(lambda _: native_weights(directory), range(16)))
    assert [path.name for path in paths] == os.listdir(tmp_path / "cache/heedful/native")


def test_read_weights_matches_safetensors(tmp_path: Path, tokenizer: Tokenizer) -> None:
    from safetensors.torch import load_file

    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        path = saved(tmp_path / str(dtype), tokenizer, dtype=dtype) / "model.safetensors"
        expected = load_file(path)
        found = read_weights(path, path)
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[name], tensor.float().numpy()) for name, tensor in expected.items())


def test_non_finite_weights_are_refused(tmp_path: Path) -> None:
    model = random_model(small_config())
    with torch.no_grad():
        model.encoder.layers[0].feed_forward.inner.weight[0, 0] = torch.nan
    with pytest.raises(ModelDirectoryError, match=r"encoder\.layers\.0\.feed_forward\.inner\.weight"):
        weight_file(model, tmp_path / "a.bin", precision="int8")


def test_native_translation_does_not_import_torch(directory: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from types import SimpleNamespace as Special\n"
        "from heedful.config import DecodingConfig; from heedful.native import NativeEngine\n"
        f"engine = NativeEngine.load({str(directory)!r}, precision='float32')\n"
        "special = Special(bos_id=2, eos_id=3, pad_id=0, forbidden=(1,), byte_ids=())\n"
        "found = engine.translate_ids([[9, 8, 7, 3]], DecodingConfig(), special, max_lengths=[9])\n"
        "assert 'torch' not in sys.modules; print(found[0][0].tokens)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    from heedful.model_dir import load_model

    expected = torch_search(load_model(directory).model, [[9, 8, 7, 3]], DecodingConfig(), [9])
    assert done.stdout.strip() == str(expected[0][0].tokens)


@pytest.mark.parametrize(("precision", "listed"), [("int8", False), ("float32", True)])
def test_cached_model_does_not_import_heavy_packages(directory: Path, precision: str, listed: bool) -> None:
    """Importing numpy takes longer than opening a model and translating a sentence with it."""
    if listed:
        size = NativeEngine.load(directory).shape.source_vocab_size
        save_shortlist(directory, Shortlist(np.arange(size + 1), np.arange(size)[::-1], np.array([3])))
    here = NativeEngine.load(directory, precision=precision)
    assert here.has_shortlist == listed
    found = here.translate_ids([[9, 8, 7, 3], [5, 3]], DecodingConfig(num_best=2), SPECIAL, max_lengths=[9, 4])
    program = (
        "import sys; from heedful.config import DecodingConfig; from heedful.native import NativeEngine\n"
        f"from heedful.search_types import SpecialTokens; special = {SPECIAL!r}\n"
        f"engine = NativeEngine.load({str(directory)!r}, precision={precision!r})\n"
        "config = DecodingConfig(num_best=2)\n"
        "print(engine.translate_ids([[9, 8, 7, 3], [5, 3]], config, special, max_lengths=[9, 4]))\n"
        "heavy = {'torch', 'numpy', 'sentencepiece', 'safetensors', 'typer', 'concurrent.futures', 'subprocess'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, str(found), "")


def test_shortlist_of_another_vocabulary_is_refused(directory: Path) -> None:
    save_shortlist(directory, Shortlist(np.array([0, 1]), np.array([4]), np.array([3])))
    with pytest.raises(ModelDirectoryError, match=r"shortlist\.safetensors is for another vocabulary; make it again"):
        NativeEngine.load(directory)


def test_weights_stay_in_memory_without_writable_cache(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = NativeEngine.load(directory).logits([5, 3], [2])
    native_weights(directory).unlink()

    def refuse(path: Path, **rest: object) -> None:
        raise PermissionError(13, "read only", str(path))

    monkeypatch.setattr("heedful.native.convert.write_weight_file", refuse)
    monkeypatch.setattr("heedful.native.convert._in_memory", {})
    first, second = NativeEngine.load(directory), NativeEngine.load(directory)
    assert first.path == second.path and not list(directory.glob("native*"))
    np.testing.assert_array_equal(first.logits([5, 3], [2]), expected)


def test_damaged_weight_file_is_rebuilt(directory: Path) -> None:
    engine = NativeEngine.load(directory)
    expected, path = engine.logits([5, 3], [2]), engine.path
    engine.close()
    intact = path.read_bytes()
    for damaged in (intact[:-1] + bytes([intact[-1] ^ 1]), intact[:500] + b"x" * 100 + intact[600:]):
        path.write_bytes(damaged)
        np.testing.assert_array_equal(NativeEngine.load(directory).logits([5, 3], [2]), expected)
        assert path.read_bytes() == intact


def test_newer_weights_are_verified_again(directory: Path) -> None:
    path = NativeEngine.load(directory).path
    weights = directory / "model.safetensors"
    os.utime(weights, ns=(path.stat().st_mtime_ns + 10**9,) * 2)
    assert NativeEngine.load(directory).path == path
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    os.utime(weights, ns=(path.stat().st_mtime_ns + 10**9,) * 2)
    with pytest.raises(ModelDirectoryError, match="safetensors"):
        NativeEngine.load(directory)


def test_unknown_precisions_are_refused(directory: Path) -> None:
    with pytest.raises(ConfigError, match="int8, float32"):
        NativeEngine.load(directory, precision="int4")


def test_concurrent_calls_are_bit_identical(directory: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    engine = NativeEngine.load(directory)
    sources, config = random_sources(8), DecodingConfig(beam_size=2)

    def translate(_: int) -> object:
        return engine.translate_ids(sources, config, SPECIAL, max_lengths=[10] * 8)

    with ThreadPoolExecutor(4) as workers:
        found = list(workers.map(translate, range(12)))
    assert all(one == found[0] for one in found)


def test_tensor_out_of_bounds_is_refused(intact: bytes, tmp_path: Path) -> None:
    """The start of the tensor is in bounds, its end is not."""
    count = int.from_bytes(intact[12:16], "little")
    refused = 0
    for number in range(count):
        place = 192 + 96 * number
        num_bytes = int.from_bytes(intact[place + 88 : place + 96], "little")
        forged = bytearray(intact)
        forged[place + 80 : place + 88] = (len(intact) - 64).to_bytes(8, "little")
        if num_bytes > 64:
            assert "out of bounds" in refusal(with_checksums(forged), tmp_path)
            refused += 1
    assert refused > 10


SHAPE_LIMITS = {
    **dict.fromkeys(("d_model", "d_ff"), (1, 65536)), "num_heads": (1, 4096), "head_dim": (1, 65536),
    **dict.fromkeys(("num_encoder_layers", "num_decoder_layers"), (1, 1000)),
    **dict.fromkeys(("source_vocab_size", "target_vocab_size"), (1, 1 << 24)), "max_length": (1, 1 << 20),
    **dict.fromkeys(("norm_before", "only_scale", "has_final_norm", "rotary"), (0, 1)), "activation": (1, 3),
    **dict.fromkeys(("int8", "tied_embedding"), (0, 1)),
}  # fmt: skip
"""The valid range of each field of the shape, in the order of the file."""


@pytest.mark.parametrize("number", range(len(SHAPE_LIMITS)), ids=list(SHAPE_LIMITS))
def test_shape_fields_have_bounds(number: int, intact: bytes, tmp_path: Path) -> None:
    name, (least, most) = list(SHAPE_LIMITS.items())[number]
    for value in (least - 1, most + 1, -(2**31), 2**31 - 1):
        forged = bytearray(intact)
        forged[96 + 4 * number : 100 + 4 * number] = value.to_bytes(4, "little", signed=True)
        assert f"{name} is {value}" in refusal(with_checksums(forged), tmp_path)
    for value in (least, most):  # another check may fail instead, or none
        forged[96 + 4 * number : 100 + 4 * number] = value.to_bytes(4, "little", signed=True)
        path = tmp_path / "forged.bin"
        path.write_bytes(with_checksums(forged))
        try:
            NativeEngine(path, num_threads=1).close()
        except ModelDirectoryError as error:
            assert f"{name} is {value}" not in str(error)


@pytest.mark.parametrize(
    ("num_heads", "head_dim", "rotary", "is_possible"),
    [
        (4096, 17, 0, False),
        (2, 32769, 0, False),
        (4, 7, 1, False),
        (2, 32768, 0, True),
        (4, 6, 1, True),
    ],
)
def test_invalid_head_sizes_are_refused(
    num_heads: int, head_dim: int, rotary: int, is_possible: bool, intact: bytes, tmp_path: Path
) -> None:
    forged = bytearray(intact)
    for name, value in (("num_heads", num_heads), ("head_dim", head_dim), ("rotary", rotary)):
        at = 96 + 4 * list(SHAPE_LIMITS).index(name)
        forged[at : at + 4] = value.to_bytes(4, "little")
    assert ("heads cannot be of this size" in refusal(with_checksums(forged), tmp_path)) != is_possible


@pytest.mark.parametrize("more", [1, 2, 1000, 100_000, 2**32 - 1])
def test_tensor_list_out_of_bounds_is_refused(more: int, intact: bytes, tmp_path: Path) -> None:
    forged = bytearray(intact)
    fitting = (len(intact) - 192) // 96
    forged[12:16] = min(fitting + more, 2**32 - 1).to_bytes(4, "little")
    assert "its list is cut short" in refusal(bytes(forged), tmp_path)
    forged[12:16] = fitting.to_bytes(4, "little")
    assert "its list is cut short" not in refusal(bytes(forged), tmp_path)
