"""The models of `translate_cpu.py`: one shape with random weights, in the format of every system.

Sentences and shortlist are drawn by Zipf's law, which gives about as many candidates as newstest2014 has with a
shortlist learned from 1.2 million pairs: 3,100 of 32,000 words for a sentence of 28 tokens (newstest2014: 3,170),
10,000 for 16 sentences together (10,800), 12,500 for 32 (14,500). Our engine uses the candidates of each sentence,
CTranslate2 those of a whole batch. Its vocabulary map is the same list.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch

from benchmarks.speed.bergamot_model import make_bergamot
from benchmarks.speed.train_speed import TorchTransformer, marian
from benchmarks.speed.translate_cpu_systems import BOS, EOS, FIRST, PAD, SOURCE
from heedful.build_model import build_model
from heedful.config import Config, TokenizerConfig
from heedful.config_loading import to_mapping
from heedful.errors import ConfigError
from heedful.interop.export import export_ctranslate2
from heedful.model_dir import save_model
from heedful.model_dir.shortlist import Shortlist, save_shortlist
from heedful.native import NativeEngine
from heedful.text.tokenizer import train_tokenizer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "data"
FREQUENT, PER_TOKEN = 1000, 100


def make_models(folder: Path, config: Config, systems: Iterable[str]) -> None:
    """Write all files that these systems need, except existing ones."""
    vocabulary = config.model.source_vocab_size
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sources.json").write_text(json.dumps(sentences(512, vocabulary)), encoding="utf-8")
    shape = json.dumps(to_mapping(config))
    if (folder / "config.json").exists() and (folder / "config.json").read_text(encoding="utf-8") != shape:
        raise SystemExit(f"{folder} holds models of another shape; name another directory")
    (folder / "config.json").write_text(shape, encoding="utf-8")
    makers: dict[str, Callable[[Path], None]] = {
        "model": lambda directory: ours(directory, config),
        "listed": lambda directory: with_shortlist(folder / "model", directory, random_shortlist(vocabulary)),
        "ctranslate2-int8": lambda directory: for_ctranslate2(folder / "listed", directory, "int8"),
        "ctranslate2-float32": lambda directory: for_ctranslate2(folder / "listed", directory, "float32"),
        "marian": lambda directory: for_transformers(directory, config),
        "openvino-int8": lambda directory: for_openvino(folder / "marian", directory, eight_bits=True),
        "openvino-float32": lambda directory: for_openvino(folder / "marian", directory, eight_bits=False),
        "bergamot": lambda directory: make_bergamot(directory, config),
        "torch.safetensors": lambda directory: for_torch(directory, config),
    }
    needed = {"model", "listed"}
    for name in systems:
        needed |= {made for made in makers if name.startswith(made)}
        needed |= {"marian"} if name.startswith("openvino") else set()
        needed |= {"torch.safetensors"} if name == "naive" else set()
    for name, make in makers.items():
        if name in needed and not (folder / name).exists():
            make(folder / name)


def zipf(count: int, *, offset: float, power: float) -> np.ndarray:
    """Word probabilities by rank."""
    shares = 1 / (np.arange(count) + offset) ** power
    return np.asarray(shares / shares.sum())


def sentences(count: int, vocabulary: int) -> list[list[int]]:
    """Sentences of SOURCE tokens including the end token, drawn by frequency."""
    random = np.random.default_rng(1)
    shares = zipf(vocabulary - FIRST, offset=2, power=1)
    words = FIRST + random.choice(vocabulary - FIRST, (count, SOURCE - 1), p=shares)
    return [[*row, EOS] for row in words.tolist()]


def random_shortlist(vocabulary: int) -> Shortlist:
    """FREQUENT words for every sentence, and PER_TOKEN others for each source token, drawn by frequency."""
    random = np.random.default_rng(2)
    shares = zipf(vocabulary - FIRST, offset=6000, power=4)[FREQUENT:]
    bounds = np.cumsum(shares / shares.sum())[:-1]
    targets = FIRST + FREQUENT + np.searchsorted(bounds, random.random((vocabulary, PER_TOKEN)))
    lists = [np.unique(row) for row in targets]
    return Shortlist(
        starts=np.append(0, np.cumsum([len(row) for row in lists])).astype(np.int64),
        targets=np.concatenate(lists).astype(np.int32),
        always=np.arange(EOS, FIRST + FREQUENT, dtype=np.int32),
        settings={"per_token": PER_TOKEN, "frequent": FREQUENT},
    )


# ---------------------------------------------------------------------- one format each


def ours(directory: Path, config: Config) -> None:
    """Write a model directory with the weight file of the native engine."""
    sides = [(EXAMPLES / name).read_text(encoding="utf-8").splitlines()[:3000] for name in ("tatoeba.en", "tatoeba.de")]
    tokenizer = train_tokenizer(zip(*sides, strict=True), TokenizerConfig(vocab_size=1000))
    torch.manual_seed(1)
    save_model(directory, weights=build_model(config.model), config=config, tokenizer=tokenizer)
    convert(directory)


def with_shortlist(model: Path, directory: Path, shortlist: Shortlist) -> None:
    """The same model with a shortlist."""
    shutil.copytree(model, directory)
    save_shortlist(directory, shortlist)
    convert(directory)


def convert(directory: Path) -> None:
    """Write the native engine's weight file, as on first use; nothing if the engine is not compiled."""
    with contextlib.suppress(ConfigError):
        NativeEngine.load(directory).close()


def for_ctranslate2(model: Path, directory: Path, quantization: str) -> None:
    """Our CTranslate2 export, with a rewritten vocabulary map, since this tokenizer has few words."""
    export_ctranslate2(model, directory, quantization=quantization)
    names = json.loads((directory / "shared_vocabulary.json").read_text(encoding="utf-8"))
    shortlist = random_shortlist(len(names))

    def joined(tokens: np.ndarray) -> str:
        return " ".join(names[token] for token in tokens.tolist())

    lines = ["\t" + joined(shortlist.always)]
    lines += [f"{names[token]}\t{joined(shortlist.of(token))}" for token in range(FIRST, len(names))]
    (directory / "vmap.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def for_transformers(directory: Path, config: Config) -> None:
    """Marian of the same shape."""
    torch.manual_seed(1)
    model = marian(config, PAD)
    model.generation_config.forced_eos_token_id = None  # type: ignore[union-attr]
    model.config.eos_token_id, model.config.bos_token_id = EOS, BOS  # type: ignore[union-attr]
    model.save_pretrained(directory)  # type: ignore[operator]


def for_openvino(model: Path, directory: Path, *, eight_bits: bool) -> None:
    """The OpenVINO model, exported by optimum-intel, whose output is suppressed."""
    from optimum.intel import OVModelForSeq2SeqLM

    with contextlib.redirect_stdout(io.StringIO()):
        OVModelForSeq2SeqLM.from_pretrained(model, export=True, load_in_8bit=eight_bits).save_pretrained(directory)


def for_torch(directory: Path, config: Config) -> None:
    """`nn.Transformer` of the same shape."""
    from safetensors.torch import save_model as save_weights

    torch.manual_seed(1)
    save_weights(TorchTransformer(config), str(directory))
