"""Random models, their native weight files, and reference results of torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from heedful.config import DecodingConfig, ModelConfig
from heedful.decoding.constraints import SpecialTokens
from heedful.decoding.engines.torch_engine import pad
from heedful.decoding.search import beam_search, greedy_search
from heedful.model.transformer import Transformer
from heedful.native import NativeEngine
from heedful.native.convert import convert, shape_of
from heedful.native.weight_file import write_weight_file
from heedful.search_types import Hypothesis

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL = SpecialTokens(bos_id=BOS, eos_id=EOS, pad_id=PAD, forbidden=(UNK,))


def small_config(**changes: object) -> ModelConfig:
    plain = {
        "source_vocab_size": 70,
        "target_vocab_size": 70,
        "d_model": 32,
        "d_ff": 64,
        "num_heads": 4,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "max_length": 40,
    }
    return ModelConfig(**{**plain, **changes})


def random_model(config: ModelConfig, *, seed: int = 1) -> Transformer:
    """A model with random biases and norms, and well-separated logits."""
    torch.manual_seed(seed)
    model = Transformer(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif "embedding" in name or name == "output.weight":
                parameter.mul_(2.0)
    return model.eval()


def weight_file(model: Transformer, path: Path, *, precision: str) -> Path:
    weights = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    tensors = convert(model.config, weights, precision=precision)
    shape = shape_of(model.config, int8=precision == "int8")
    write_weight_file(path, fingerprint=bytes(32), shape=shape, tensors=tensors)
    return path


def engine_of(
    model: Transformer, folder: Path, *, precision: str, num_threads: int = 2, kernels: str | None = None
) -> NativeEngine:
    folder.mkdir(exist_ok=True)
    path = folder / f"{precision}.bin"
    if not path.exists():
        weight_file(model, path, precision=precision)
    return NativeEngine(path, num_threads=num_threads, kernels=kernels)


def random_sources(count: int, *, vocab_size: int = 70, longest: int = 12, seed: int = 1) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [[*random.integers(4, vocab_size, random.integers(0, longest)).tolist(), EOS] for _ in range(count)]


@torch.inference_mode()
def torch_logits(model: Transformer, source: Sequence[int], target: Sequence[int]) -> np.ndarray:
    return model(torch.tensor([source]), torch.tensor([target]))[0].numpy()


def torch_search(
    model: Transformer,
    sources: list[list[int]],
    config: DecodingConfig,
    max_lengths: list[int],
    prefix: list[list[int]] | None = None,
) -> list[list[Hypothesis]]:
    source, mask = pad([tuple(ids) for ids in sources], pad_id=PAD, device=torch.device("cpu"))
    search = greedy_search if config.method == "greedy" else beam_search
    return search(model, source, mask, config, SPECIAL, max_lengths=max_lengths, prefix=prefix)
