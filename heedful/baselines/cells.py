"""Recurrent layers: torch's fused ones, how their weights begin, one step of each written out, and their states.

Written out, a step takes what was made of its input and of its state apart, so that the input's part can be made for
all steps at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.baselines.base import RivalState
from heedful.config import ModelConfig
from heedful.model.batch_invariance import sigmoid
from heedful.tensor_types import Float, Int

CELLS = {"gru": nn.GRU, "lstm": nn.LSTM}
NUM_GATES = {"gru": 3, "lstm": 4}
Hidden = tuple[Tensor, ...]
"""The layers' states, each (layers, R, D): one tensor for a GRU, two for an LSTM; of one layer each (R, D)."""


@dataclass
class RecurrentState(RivalState):
    """What the decoder remembers: its layers' states."""

    hidden: Hidden

    @property
    def num_rows(self) -> int:
        """Rows in the state: sentences times beams."""
        return self.hidden[0].shape[1]

    def reorder(self, rows: Int[Tensor, " R"]) -> None:
        """Let row r continue what row rows[r] was."""
        self.hidden = tuple(part[:, rows] for part in self.hidden)


class Answers(NamedTuple):
    """What a decoder has to say of tokens: its last layer's output, what the memory answered, and the weights."""

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
    begin(layers.named_parameters(), config.cell)
    return layers


def begin(parameters: Iterable[tuple[str, Tensor]], cell: str) -> None:
    """Orthogonal recurrent matrices, Glorot's input matrices, biases 0, but 1 where an LSTM decides what to keep."""
    for name, parameter in parameters:
        if "bias" in name:
            nn.init.zeros_(parameter)
            if cell == "lstm" and "bias_ih" in name:
                nn.init.ones_(parameter.detach().chunk(4)[1])
            continue
        for gate in parameter.detach().chunk(NUM_GATES[cell]):
            (nn.init.orthogonal_ if "weight_hh" in name else nn.init.xavier_uniform_)(gate)


def read_both_ways(
    layers: nn.GRU | nn.LSTM, x: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"]
) -> Float[Tensor, "B S E"]:
    """What layers of two directions make of padded sequences, with all rows at every step.

    Packed, as torch would have it, sequences leave when they end, and the shapes of all products then depend on the
    lengths of the mates. What stands on padding comes after all that is real, in both directions, and means nothing.
    """
    places = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
    turned = torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)

    def turn(values: Tensor) -> Tensor:
        return values.gather(1, turned[..., None].expand_as(values))

    for level in range(layers.num_layers):
        forth, back = (read_one_way(layers, f"l{level}{end}", part) for end, part in (("", x), ("_reverse", turn(x))))
        x = torch.cat((forth, turn(back)), dim=-1)
    return x


def read_one_way(layers: nn.GRU | nn.LSTM, name: str, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
    """What one layer in one direction makes of sequences that are all as long, from a state of zeros."""
    weights = [getattr(layers, f"{kind}_{name}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    nothing = x.new_zeros(1, x.shape[0], layers.hidden_size)
    rest = (weights, True, 1, 0.0, False, False, True)  # has_biases, layers, dropout, train, bidirectional, batch_first
    if isinstance(layers, nn.LSTM):
        return torch.lstm(x, (nothing, nothing), *rest)[0]
    return torch.gru(x, nothing, *rest)[0]


def as_torch(hidden: Hidden) -> Tensor | Hidden:
    """States as torch's layers take them: a GRU's bare, an LSTM's two together."""
    return hidden[0] if len(hidden) == 1 else hidden


def as_hidden(states: Tensor | Hidden) -> Hidden:
    """The states that torch's layers give back."""
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
    enters, stays, new, leaves = (from_input + from_state).chunk(4, dim=-1)
    cell = torch.addcmul(sigmoid(stays) * hidden[1], sigmoid(enters), torch.tanh(new))
    return sigmoid(leaves) * torch.tanh(cell), cell


STEPS: dict[str, Callable[[Tensor, Tensor, Hidden], Hidden]] = {"gru": gru_step, "lstm": lstm_step}
