"""Builds the objects that the configuration names: model and device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from heedful.baselines.convolutional import ConvolutionalSeq2Seq
from heedful.baselines.recurrent import RecurrentSeq2Seq
from heedful.config import ModelConfig
from heedful.errors import ConfigError
from heedful.model.language_model import LanguageModel
from heedful.model.transformer import Transformer

Model = Transformer | RecurrentSeq2Seq | ConvolutionalSeq2Seq | LanguageModel

ARCHITECTURES: dict[str, Callable[[ModelConfig], Model]] = {
    "transformer": Transformer,
    "recurrent": RecurrentSeq2Seq,
    "convolutional": ConvolutionalSeq2Seq,
    "encoder": LanguageModel,
    "decoder": LanguageModel,
}


def build_model(config: ModelConfig) -> Model:
    """A freshly initialised model of the architecture that the configuration names."""
    return ARCHITECTURES[config.architecture](config)


def num_parameters(model: nn.Module) -> int:
    """The number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def resolve_device(name: str) -> torch.device:
    """The device for "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1" or "mps"; or an error."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device: {name!r} is not a device; use auto, cpu, cuda, cuda:1 or mps.") from None
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not available.get(device.type, False):
        raise ConfigError(f"device: {name!r} is not available on this machine; use auto or cpu.")
    return device
