"""Beam search with the states of the baselines equals a search that reads every prefix again."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from heedful.build_model import build_model
from heedful.config import DecodingConfig, ModelConfig
from heedful.decoding.search import beam_search
from tests.decoding.stub_models import BOS, SPECIAL, batch_of, exhaustive, naive_beam

SHAPE = {
    "d_model": 16,
    "num_heads": 1,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "tying": "target",
    "source_vocab_size": 6,
    "target_vocab_size": 6,
}
RIVALS = {
    "gru-additive": {"architecture": "recurrent", "attention_scoring": "additive"},
    "lstm-additive": {"architecture": "recurrent", "attention_scoring": "additive", "cell": "lstm"},
    "lstm-dot": {"architecture": "recurrent", "attention_scoring": "dot", "cell": "lstm"},
    "convolutional": {"architecture": "convolutional"},
}
IDS = [[3, 4, 5, 3], [4], [5, 5]]


@torch.inference_mode()
def read_anew(model: torch.nn.Module, source: list[int], prefix: tuple[int, ...]) -> list[float]:
    """Log probabilities of the next token from the full forward pass over a single sentence."""
    logits = model(torch.tensor([source]), torch.tensor([[BOS, *prefix]]))[0, -1]
    return torch.log_softmax(logits, dim=-1).tolist()  # type: ignore[no-any-return]


@pytest.fixture(params=list(RIVALS))
def model(request: pytest.FixtureRequest) -> torch.nn.Module:
    """Weights twice as large as initially, so that sequences differ clearly."""
    torch.manual_seed(3)
    made = build_model(ModelConfig(**{**SHAPE, **RIVALS[request.param]})).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(2.0)
    return made


def test_wide_beam_is_exhaustive_search(model: torch.nn.Module) -> None:
    config = DecodingConfig(beam_size=60, num_best=7)
    found = beam_search(model, *batch_of(IDS), config, SPECIAL, max_lengths=[3, 3, 3])
    for source, hypotheses in zip(IDS, found, strict=True):
        expected = exhaustive(partial(read_anew, model, source), config, 3, ordinary=[3, 4, 5])[:7]
        assert [tuple(one.tokens) for one in hypotheses] == [tokens for tokens, _, _ in expected]
        assert [one.log_prob for one in hypotheses] == pytest.approx([one[1] for one in expected], rel=1e-4)


def test_narrow_beam_with_reordering(model: torch.nn.Module) -> None:
    config = DecodingConfig(beam_size=3, num_best=3)
    found = beam_search(model, *batch_of(IDS), config, SPECIAL, max_lengths=[8, 6, 8])
    for source, longest, hypotheses in zip(IDS, (8, 6, 8), found, strict=True):
        expected = naive_beam(partial(read_anew, model, source), config, longest)
        assert [tuple(one.tokens) for one in hypotheses] == [tokens for tokens, _, _ in expected]
        assert [one.log_prob for one in hypotheses] == pytest.approx([one[1] for one in expected], rel=1e-4)
