"""The decoder of Bahdanau et al. (2015): before each step the last state asks the memory; the answer is an input.

Only the first layer asks, as in GNMT, and only it goes step by step; the layers above read whole targets at once. In
the loop stands what one step needs from the one before, nothing else: embeddings and memory go through the cell's input
weights beforehand, and the answers that the readout wants are summed up afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from heedful.baselines.cells import (
    NUM_GATES,
    STEPS,
    Answers,
    Hidden,
    RecurrentState,
    as_hidden,
    as_torch,
    begin,
    recurrent_layers,
)
from heedful.config import ModelConfig
from heedful.model.seq2seq import Memory
from heedful.tensor_types import Float, Int

FEWER = 0.5
"""Finished sentences leave the loop in groups: as soon as less than this share of its rows is still being read."""


@dataclass(frozen=True)
class Asked:
    """What does not change from step to step: the memory as it is asked, and the weights of one step, all of one type.

    `product` makes both the state's part of the gates and the query; `given` are the positions' parts of the gates.
    """

    keys: Float[Tensor, "B S D"]
    given: Float[Tensor, "B S G"]
    absent: Float[Tensor, "B S"]
    product: Float[Tensor, "D G+D"]
    bias: Float[Tensor, " G+D"]
    vector: Float[Tensor, " D"]
    advance: Callable[[Tensor, Tensor, Hidden], Hidden]

    def first(self, count: int) -> Asked:
        """The same of the first sentences only."""
        return replace(self, keys=self.keys[:count], given=self.given[:count], absent=self.absent[:count])

    def step(self, gates: Float[Tensor, "R G"], hidden: Hidden) -> tuple[Hidden, Float[Tensor, "B N S"]]:
        """Ask with the last state, add the answer to the gates, move on; a sentence's N rows ask side by side."""
        (num_sentences, num_positions, width), num_rows = self.keys.shape, gates.shape[0]
        made = torch.addmm(self.bias, hidden[0], self.product)
        from_state, query = made.split((gates.shape[1], width), dim=-1)
        asking = (num_sentences, num_rows // num_sentences)
        mixed = torch.tanh(query.view(*asking, 1, width) + self.keys[:, None])
        absent = self.absent[:, None].expand(*asking, num_positions).reshape(-1)
        scores = torch.addmv(absent, mixed.view(-1, width), self.vector)
        weights = torch.softmax(scores.view(*asking, num_positions), dim=-1)
        gates = torch.baddbmm(gates.view(*asking, -1), weights, self.given).view(num_rows, -1)
        return self.advance(gates, from_state, hidden), weights


class BahdanauDecoder(nn.Module):
    """e = v · tanh(W s + U m) of the last state s and each position m of the memory; the cell reads softmax(e) · m."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, self.num_upper = config.d_model, config.num_decoder_layers - 1
        self.dropout, self.advance, self.num_gates = config.dropout, STEPS[config.cell], NUM_GATES[config.cell]
        self.first = (nn.GRUCell if config.cell == "gru" else nn.LSTMCell)(2 * width, width)  # of [embedding; answer]
        begin(self.first.named_parameters(), config.cell)
        self.upper = recurrent_layers(config, width, width, self.num_upper) if self.num_upper else None
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=config.bias)
        self.vector = nn.Parameter(torch.empty(width).uniform_(-(width**-0.5), width**-0.5))

    def keys(self, memory: Memory) -> Float[Tensor, "B S D+G"]:
        """What is computed once for a source: what each position is compared by, and what it would give the gates."""
        width = self.query.in_features
        given = F.linear(memory.values, self.first.weight_ih[:, width:])
        return torch.cat((self.key(memory.values), given), dim=-1)

    def read(self, embedded: Float[Tensor, "B T D"], lengths: Sequence[int], state: RecurrentState) -> Answers:
        """Read whole targets, the longest first, from where the state stands."""
        memory, total = state.memory, embedded.shape[1]
        packed = pack_padded_sequence(embedded, leaving_in_groups(lengths), batch_first=True)
        sizes = packed.batch_sizes
        outputs, weights, _ = self._loop(self._gates_of(packed.data).split(sizes.tolist()), state)
        output = PackedSequence(torch.cat(outputs), sizes)
        if self.upper is not None:
            between = PackedSequence(F.dropout(output.data, self.dropout, self.training), sizes)
            output, _ = self.upper(between, as_torch(tuple(part[1:] for part in state.hidden)))
        padded, all_weights = (
            pad_packed_sequence(part, batch_first=True, total_length=total)[0]
            for part in (output, PackedSequence(torch.cat(weights)[:, 0], sizes))
        )
        return Answers(padded, all_weights.type_as(memory.values) @ memory.values, all_weights)

    def step(self, embedded: Float[Tensor, "R 1 D"], state: RecurrentState) -> Answers:
        """Read one token a row and move the state on."""
        gates = self._gates_of(embedded[:, 0])
        [output], [weights], last = self._loop([gates], state)
        output, after = output[:, None], tuple(part[None] for part in last)
        if self.upper is not None:
            output, above = self.upper(output, as_torch(tuple(part[1:].contiguous() for part in state.hidden)))
            after = tuple(torch.cat(pair) for pair in zip(after, as_hidden(above), strict=True))
        state.hidden = after
        context = weights.type_as(state.memory.values) @ state.memory.values
        return Answers(output, context.view_as(embedded), weights.view(embedded.shape[0], 1, -1))

    def _gates_of(self, embedded: Float[Tensor, "R D"]) -> Float[Tensor, "R G"]:
        """The embeddings' part of the gates."""
        return F.linear(embedded, self.first.weight_ih[:, : embedded.shape[-1]], self.first.bias_ih)

    def _loop(
        self, steps: Sequence[Float[Tensor, "R G"]], state: RecurrentState
    ) -> tuple[list[Tensor], list[Tensor], Hidden]:
        """Outputs and weights of each step, whose rows may become fewer, and the last state."""
        asked = self._asked(state, steps[0].dtype)
        hidden: Hidden = tuple(part[0].to(steps[0].dtype) for part in state.hidden)
        num_rows, outputs, weights = steps[0].shape[0], [], []
        with torch.autocast(steps[0].device.type, enabled=False):  # all is of one type; no step should look again
            for gates in steps:
                if gates.shape[0] < num_rows:
                    num_rows = gates.shape[0]
                    asked, hidden = asked.first(num_rows), tuple(part[:num_rows] for part in hidden)
                hidden, answered = asked.step(gates, hidden)
                outputs.append(hidden[0])
                weights.append(answered)
        return outputs, weights, hidden

    def _asked(self, state: RecurrentState, dtype: torch.dtype) -> Asked:
        width = self.query.in_features
        keys, given = state.keys.to(dtype).split((width, self.num_gates * width), dim=-1)
        nothing = torch.zeros(state.memory.mask.shape, dtype=dtype, device=keys.device)
        return Asked(
            keys=keys,
            given=given,
            absent=nothing.masked_fill(~state.memory.mask, torch.finfo(dtype).min),
            product=torch.cat((self.first.weight_hh, self.query.weight)).to(dtype).t(),
            bias=F.pad(self.first.bias_hh, (0, width)).to(dtype),  # queries have none
            vector=self.vector.to(dtype),
            advance=self.advance,
        )


def leaving_in_groups(lengths: Sequence[int]) -> Int[Tensor, " M"]:
    """Lengths, longest first, some of them raised so that the loop's rows become fewer only now and then.

    Every time they do costs a copy of all that is asked, in the backward pass; computing some padding costs less.
    """
    ends = torch.tensor(lengths).clamp(min=1)
    sizes = (ends > torch.arange(int(ends[0]))[:, None]).sum(dim=1).tolist()  # rows still being read at each step
    for step in range(1, len(sizes)):
        if sizes[step] >= FEWER * sizes[step - 1]:
            sizes[step] = sizes[step - 1]
    return (torch.tensor(sizes)[:, None] > torch.arange(len(lengths))).sum(dim=0)
