"""The recurrent baseline equals a step-by-step implementation with torch's cells."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.baselines.base import Sentences, unpack_pair
from heedful.baselines.recurrent import (
    STEPS,
    BahdanauDecoder,
    LuongDecoder,
    RecurrentSeq2Seq,
    init_recurrent,
    shrink_in_groups,
)
from heedful.config import ModelConfig

SMALL = ModelConfig(
    source_vocab_size=30,
    target_vocab_size=30,
    architecture="recurrent",
    d_model=16,
    num_heads=1,
    num_encoder_layers=1,
    num_decoder_layers=2,
    dropout=0.0,
)
LENGTHS = [(7, 9), (3, 8), (5, 3), (2, 3), (6, 2), (4, 1)]


def pairs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sources and targets of many lengths, with their masks; targets are not sorted by length."""
    generator = torch.Generator().manual_seed(3)
    order = [3, 0, 5, 1, 4, 2]
    sides = []
    for side in (0, 1):
        lengths = torch.tensor([LENGTHS[index][side] for index in order])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        sides += [torch.randint(4, 30, mask.shape, generator=generator) * mask, mask]
    return sides[0], sides[1], sides[2], sides[3]


def attend(model: RecurrentSeq2Seq, scores: Tensor, memory: Tensor, state: Tensor, position: int) -> Tensor:
    """Attention of one state, at one target position, to the memory of one sentence."""
    kind, window, length = model.config.cross_attention, model.config.attention_window, len(memory)
    if kind == "hard":
        return memory[int(scores[0].argmax())][None]
    source_positions = torch.arange(length)
    inside, gaussian = torch.ones(length, dtype=torch.bool), torch.ones(length)
    if kind == "local_monotonic":
        inside = (source_positions - min(position, length - 1)).abs() <= window
    if kind == "local_predictive":
        predictor = model.decoder.weighting.predictor
        exponent = predictor.vector[0] @ torch.tanh(predictor.hidden.weight @ state[0])
        distance = source_positions - length * torch.sigmoid(exponent)
        inside, gaussian = distance.abs() <= window, torch.exp(-distance.square() / (2 * (window / 2) ** 2))
    return (torch.softmax(scores.masked_fill(~inside, float("-inf")), dim=-1) * gaussian) @ memory


def cell_of(model: RecurrentSeq2Seq, layers: nn.Module, suffix: str) -> nn.GRUCell | nn.LSTMCell:
    """A torch cell with the weights of a layer."""
    cell = (nn.GRUCell if model.config.cell == "gru" else nn.LSTMCell)(16, 16)
    cell.load_state_dict({name: getattr(layers, f"{name}_{suffix}") for name, _ in cell.named_parameters()})
    return cell


def read_by_the_book(model: RecurrentSeq2Seq, source: Tensor, target: Tensor) -> Tensor:
    """Logits of one pair without padding: token by token, position by position, layer by layer."""
    mask = torch.ones_like(source, dtype=torch.bool)[None]
    memory = model.encode(source[None], mask).values[0]
    width, is_lstm = model.config.d_model, model.config.cell == "lstm"
    firsts = torch.tanh(model.first_state(memory.mean(dim=0))).view(-1, width)
    states = [(first[None], torch.zeros(1, width)) for first in firsts]
    decoder, logits = model.decoder, []
    if isinstance(decoder, BahdanauDecoder):
        cells = [decoder.first, *(cell_of(model, decoder.upper, f"l{i}") for i in range(len(states) - 1))]
    else:
        cells = [cell_of(model, decoder.layers, f"l{i}") for i in range(len(states))]
    for position, token in enumerate(target):
        embedded = model.tables.embed_target(token.view(1, 1))[0]
        x, context = embedded, embedded
        if isinstance(decoder, BahdanauDecoder):
            query = decoder.query(states[0][0])
            scores = torch.tanh(query + decoder.key(memory)) @ decoder.vector
            context = attend(model, scores[None], memory, states[0][0], position)
            x = torch.cat((embedded, context), dim=-1)
        for index, cell in enumerate(cells):
            after = cell(x, states[index] if is_lstm else states[index][0])
            states[index] = after if is_lstm else (after, after)
            x = states[index][0]
        if isinstance(decoder, LuongDecoder):
            scale = 16**-0.5 if model.config.attention_scoring == "scaled_dot" else 1.0
            context = attend(model, decoder.query(x) @ decoder.key(memory).T * scale, memory, x, position)
        read_out = torch.tanh(model.readout(torch.cat((x, context, embedded), dim=-1)))
        logits.append(model.tables.logits(read_out)[0])
    return torch.stack(logits)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("scoring", ["additive", "dot", "scaled_dot"])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("kind", ["global", "local_monotonic", "local_predictive", "hard"])
def test_values_and_gradients_equal_step_by_step_computation(cell: str, scoring: str, layers: int, kind: str) -> None:
    config = replace(
        SMALL, cell=cell, attention_scoring=scoring, num_decoder_layers=layers, cross_attention=kind, attention_window=2
    )  # fmt: skip
    model = RecurrentSeq2Seq(config)
    source, source_mask, target, target_mask = pairs()
    found = model(source, target, source_mask.long(), target_mask.long())
    expected = torch.zeros_like(found)
    for row in range(len(source)):
        only = (source[row][source_mask[row]], target[row][target_mask[row]])
        expected[row, : len(only[1])] = read_by_the_book(model, *only)
    real = target_mask[..., None]
    torch.testing.assert_close(found * real, expected, atol=1e-5, rtol=1e-5)
    if (
        layers == 1 and scoring == "additive" and kind != "hard"
    ):  # the others would be updated through copies of their weights
        weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(0)) * real
        parameters = list(model.parameters())
        gradients = [torch.autograd.grad((logits * weights).sum(), parameters) for logits in (found, expected)]
        for (name, _), one, other in zip(model.named_parameters(), *gradients, strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_explicit_cell_step_equals_torch(cell: str) -> None:
    reference = (nn.GRUCell if cell == "gru" else nn.LSTMCell)(5, 8)
    x, hidden = torch.randn(4, 5), (torch.randn(4, 8), torch.randn(4, 8))
    expected = reference(x, hidden[0] if cell == "gru" else hidden)
    from_input = F.linear(x, reference.weight_ih, reference.bias_ih)
    found = STEPS[cell](from_input, F.linear(hidden[0], reference.weight_hh, reference.bias_hh), hidden)
    for one, other in zip(found, (expected,) if cell == "gru" else expected, strict=True):
        torch.testing.assert_close(one, other)


def test_initial_weights_are_orthogonal_and_forget_bias_is_one() -> None:
    for cell, gates in (("gru", 3), ("lstm", 4)):
        layers = (nn.GRU if cell == "gru" else nn.LSTM)(8, 8, bidirectional=True)
        init_recurrent(layers.named_parameters(), cell)
        for part in layers.weight_hh_l0_reverse.chunk(gates):
            torch.testing.assert_close(part @ part.T, torch.eye(8), atol=1e-5, rtol=1e-5)
        total = (layers.bias_ih_l0 + layers.bias_hh_l0).detach().chunk(gates)
        assert [float(part.mean()) for part in total] == ([0, 0, 0] if cell == "gru" else [0, 1, 0, 0])


def test_finished_rows_leave_loop_in_groups() -> None:
    for lengths in ([9, 8, 3, 3, 2, 1], [5], [4, 4, 4], [1, 0]):
        raised = shrink_in_groups(lengths).tolist()
        assert raised == sorted(raised, reverse=True) and raised[0] == lengths[0]
        assert all(one >= other for one, other in zip(raised, lengths, strict=True))


@pytest.mark.parametrize("scoring", ["additive", "dot", "scaled_dot"])
def test_initial_attention_of_wide_model_is_nearly_uniform(scoring: str) -> None:
    """Unscaled scores of 512 dimensions are small initially: softmax does not select a single position."""
    model = RecurrentSeq2Seq(replace(SMALL, d_model=512, attention_scoring=scoring, cell="lstm")).eval()
    source, mask = torch.randint(4, 30, (4, 10)), torch.ones(4, 10, dtype=torch.bool)
    with torch.no_grad():
        state = model.start(model.encode(source, mask), num_beams=1, max_length=4)
        weights = model.step(torch.tensor([4, 5, 6, 7]), state, need_weights=True).attention
    assert weights is not None
    entropy = -(weights * weights.log()).sum(dim=-1)
    assert float(entropy.min()) > 1.5  # log 10 is 2.3


# ---- sentences -------------------------------------------------------------------------------------------------------


def packed_rows() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    source = torch.tensor([[11, 12, 21, 0], [31, 32, 33, 34], [0, 0, 0, 0]])
    source_segments = torch.tensor([[1, 1, 2, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
    source_positions = torch.tensor([[0, 1, 0, 0], [0, 1, 2, 3], [0, 0, 0, 0]])
    target = torch.tensor([[51, 61, 62, 63, 64], [71, 72, 0, 0, 0], [0, 0, 0, 0, 0]])
    target_segments = torch.tensor([[1, 2, 2, 2, 2], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
    target_positions = torch.tensor([[0, 0, 1, 2, 3], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
    return source, target, source_segments, target_segments, source_positions, target_positions


def lines(sentences: Sentences) -> list[list[int]]:
    return [row[mask].tolist() for row, mask in zip(sentences.tokens, sentences.mask, strict=True)]


def test_unpack_rows_sorts_by_target_length_and_packs_again() -> None:
    rows = packed_rows()
    sources, targets = unpack_pair(*rows)
    assert lines(sources) == [[21], [31, 32, 33, 34], [11, 12]] and sources.lengths == [1, 4, 2]
    assert lines(targets) == [[61, 62, 63, 64], [71, 72], [51]] and targets.lengths == [4, 2, 1]
    for tokens, sentences in ((rows[0], sources), (rows[1], targets)):
        assert torch.equal(sentences.to_rows(sentences.tokens[..., None].float())[..., 0].long(), tokens)


def test_missing_side_and_empty_batch() -> None:
    source, target, source_segments, target_segments, *positions = packed_rows()
    sources, targets = unpack_pair(source, target, source_segments * (source != 21), target_segments, *positions)
    assert lines(sources) == [[], [31, 32, 33, 34], [11, 12]] and lines(targets)[0] == [61, 62, 63, 64]
    sources, targets = unpack_pair(source, target, torch.zeros_like(source), torch.zeros_like(target), *positions)
    assert lines(sources) == lines(targets) == [[]]
    model = RecurrentSeq2Seq(replace(SMALL, source_vocab_size=80, target_vocab_size=80)).eval()
    for segments in (source_segments * (source != 21), torch.zeros_like(source)):
        assert torch.isfinite(model(source, target, segments, target_segments, *positions)).all()


def test_one_device_synchronization_per_batch() -> None:
    """Every copy of a number from the device makes the host wait; only the lengths are copied."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Waits(TorchDispatchMode):
        names: list[str]

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    mode = Waits()
    mode.names = []
    with mode:
        unpack_pair(*packed_rows())
    assert not any(name.startswith(("nonzero", "masked_select")) for name in mode.names)
    assert sum(name.startswith("_local_scalar_dense") for name in mode.names) <= 1  # of the lengths, on the host


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_encoder_equals_computation_with_all_rows_at_every_step(cell: str) -> None:
    torch.manual_seed(2)
    model = RecurrentSeq2Seq(replace(SMALL, cell=cell, num_encoder_layers=2)).eval()
    source, mask, _, _ = pairs()
    packed = model.encode(source, mask).values
    with torch.no_grad():
        torch.testing.assert_close(model.encode(source, mask).values, packed)
