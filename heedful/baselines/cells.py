"""Recurrent layers: torch's fused ones and their initialisation, one step of each written out, and their states.

A written-out step takes the projections of its input and of its state separately, so that the inputs of all steps can
be projected at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.baselines.base import BaselineState
from heedful.config import ModelConfig
from heedful.model.batch_invariance import sigmoid
from heedful.tensor_types import Float, Int

CELLS = {"gru": nn.GRU, "lstm": nn.LSTM}
NUM_GATES = {"gru": 3, "lstm": 4}
Hidden = tuple[Tensor, ...]
"""The layers' states, each (layers, R, D): one tensor for a GRU, two for an LSTM; of one layer each (R, D)."""


@dataclass
class RecurrentState(BaselineState):
    """The states of the decoder's layers."""

    hidden: Hidden

    @property
    def num_rows(self) -> int:
        """Rows in the state: sentences times beams."""
        return self.hidden[0].shape[1]

    def reorder(self, rows: Int[Tensor, " R"]) -> None:
        """Let row r continue what row rows[r] was."""
        self.hidden = tuple(part[:, rows] for part in self.hidden)


class DecoderOutput(NamedTuple):
    """The last layer's output for each token, the context from the memory, and the attention weights."""

    output: Float[Tensor, "R T D"]
    context: Float[Tensor, "R T D"]
    weights: Float[Tensor, "R T S"]


def recurrent_layers(
    config: ModelConfig, inputs: int, width: int, num_layers: int, *, bidirectional: bool = False
) -> nn.GRU | nn.LSTM:
    """Layers that read whole sequences, with dropout between them."""
    dropout = config.dropout if num_layers > 1 else 0.0
    layers = CELLS[config.cell](
        inputs, width, num_layers, batch_first=True, bidirectional=bidirectional, dropout=dropout
    )
    init_recurrent(layers.named_parameters(), config.cell)
    return layers


def init_recurrent(parameters: Iterable[tuple[str, Tensor]], cell: str) -> None:
    """Orthogonal recurrent matrices, Glorot's input matrices, biases 0, but 1 for an LSTM's forget gate."""
    for name, parameter in parameters:
        if "bias" in name:
            nn.init.zeros_(parameter)
            if cell == "lstm" and "bias_ih" in name:
                nn.init.ones_(parameter.detach().chunk(4)[1])
            continue
        for gate in parameter.detach().chunk(NUM_GATES[cell]):
            (nn.init.orthogonal_ if "weight_hh" in name else nn.init.xavier_uniform_)(gate)


def run_bidirectional(
    layers: nn.GRU | nn.LSTM, x: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"]
) -> Float[Tensor, "B S E"]:
    """The output of bidirectional layers for padded sequences, with all rows at every step.

    With torch's packed sequences rows leave when they end, and the shapes of all products depend on the lengths of the
    other sentences in the batch. Here padding comes after the real tokens in both directions, and its output is unused.
    """
    positions = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
    reversed_positions = torch.where(positions < lengths[:, None], lengths[:, None] - 1 - positions, positions)

    def reverse(values: Tensor) -> Tensor:
        return values.gather(1, reversed_positions[..., None].expand_as(values))

    for level in range(layers.num_layers):
        forward = run_layer(layers, f"l{level}", x)
        backward = run_layer(layers, f"l{level}_reverse", reverse(x))
        x = torch.cat((forward, reverse(backward)), dim=-1)
    return x


def run_layer(layers: nn.GRU | nn.LSTM, name: str, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
    """The output of one layer in one direction for sequences of equal length, from a state of zeros."""
    weights = [getattr(layers, f"{kind}_{name}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    zeros = x.new_zeros(1, x.shape[0], layers.hidden_size)
    rest = (weights, True, 1, 0.0, False, False, True)  # has_biases, layers, dropout, train, bidirectional, batch_first
    if isinstance(layers, nn.LSTM):
        return torch.lstm(x, (zeros, zeros), *rest)[0]
    return torch.gru(x, zeros, *rest)[0]


def as_torch(hidden: Hidden) -> Tensor | Hidden:
    """States as torch's layers take them: one tensor for a GRU, a pair for an LSTM."""
    return hidden[0] if len(hidden) == 1 else hidden


def as_hidden(states: Tensor | Hidden) -> Hidden:
    """The states that torch's layers give backward."""
    return (states,) if isinstance(states, Tensor) else states


def gru_step(
    from_input: Float[Tensor, "R 3*D"], from_state: Float[Tensor, "R 3*D"], hidden: Hidden
) -> tuple[Float[Tensor, "R D"]]:
    """r, z = σ(x + h); n = tanh(x + r · h); the new state is (1 - z) · n + z · the old one."""
    width = hidden[0].shape[-1]
    (x, x_new), (h, h_new) = (part.split((2 * width, width), dim=-1) for part in (from_input, from_state))
    reset, update = sigmoid(x + h).chunk(2, dim=-1)
    return (torch.lerp(torch.tanh(torch.addcmul(x_new, reset, h_new)), hidden[0], update),)


def lstm_step(
    from_input: Float[Tensor, "R 4*D"], from_state: Float[Tensor, "R 4*D"], hidden: Hidden
) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R D"]]:
    """i, f, g, o = x + h; the new cell is σ(f) · the old one + σ(i) · tanh(g), the new state σ(o) · tanh(cell)."""
    input_gate, forget, new, output_gate = (from_input + from_state).chunk(4, dim=-1)
    cell = torch.addcmul(sigmoid(forget) * hidden[1], sigmoid(input_gate), torch.tanh(new))
    return sigmoid(output_gate) * torch.tanh(cell), cell


STEPS: dict[str, Callable[[Tensor, Tensor, Hidden], Hidden]] = {"gru": gru_step, "lstm": lstm_step}
