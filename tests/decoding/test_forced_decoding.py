"""Forced decoding: log-probabilities, attention and alignment of a given translation."""

from __future__ import annotations

import pytest
import torch

from heedful.config import ModelConfig
from heedful.decoding.forced_decoding import alignment_weights, force_decode
from heedful.errors import DecodingError
from heedful.model.seq2seq import StepOutput
from heedful.model.transformer import Transformer
from heedful.model_dir.save_load import AlignmentSource
from tests.decoding.stub_models import BOS, EOS, TableModel, batch_of


def test_step_by_step_scores_equal_parallel_scores():
    config = ModelConfig(
        source_vocab_size=9, target_vocab_size=9, d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1,
        num_decoder_layers=3, max_length=20,
    )  # fmt: skip
    model = Transformer(config).eval()
    sources, targets = [[4, 5, 6, EOS], [7, EOS]], [[3, EOS], [4, 4, 8, EOS]]
    forced = force_decode(model, *batch_of(sources), targets, bos_id=BOS, need_weights=True)
    for source, target, score in zip(sources, targets, forced, strict=True):
        with torch.inference_mode():
            logits = model(torch.tensor([source]), torch.tensor([[BOS, *target[:-1]]]))[0]
        expected = torch.log_softmax(logits, dim=-1)[range(len(target)), target]
        assert score.token_log_probs == pytest.approx(expected.tolist(), abs=1e-5)
        assert score.log_prob == pytest.approx(float(expected.sum()), abs=1e-5)
        assert score.attention.shape == (len(target), 3, 2, len(source))
        torch.testing.assert_close(score.attention.sum(dim=-1), torch.ones(len(target), 3, 2))


@pytest.mark.parametrize(("num_layers", "layer"), [(1, 0), (2, 1), (3, 2), (4, 2), (6, 4)])
def test_default_alignment_is_head_mean_of_late_layer(num_layers, layer):
    attention = torch.softmax(torch.randn(4, num_layers, 3, 5), dim=-1)
    expected = (attention[:, layer, 0] + attention[:, layer, 1] + attention[:, layer, 2]) / 3
    torch.testing.assert_close(alignment_weights(attention), expected)


def test_alignment_uses_given_layer_and_head():
    attention = torch.softmax(torch.randn(4, 2, 3, 5), dim=-1)
    torch.testing.assert_close(alignment_weights(attention, AlignmentSource(0, 1)), attention[:, 0].mean(dim=1))
    torch.testing.assert_close(alignment_weights(attention, AlignmentSource(1, 0, head=2)), attention[:, 1, 2])


def test_model_without_attention_raises():
    class Blind(TableModel):
        def step(self, tokens, state, *, need_weights=False):
            return StepOutput(super().step(tokens, state).logits, None)

    assert force_decode(Blind(), *batch_of([[3]]), [[3, EOS]], bos_id=BOS)[0].attention is None
    with pytest.raises(DecodingError, match="no cross-attention"):
        force_decode(Blind(), *batch_of([[3]]), [[3, EOS]], bos_id=BOS, need_weights=True)
