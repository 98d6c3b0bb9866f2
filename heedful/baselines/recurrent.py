"""The recurrent encoder-decoder that the paper set out to replace: GRU or LSTM, with attention.

Bahdanau et al. (2015), `attention_scoring: additive`: the last state asks the memory before each step, and the answer
is part of the step's input. Luong et al. (2015), `dot` or `scaled_dot`: the new state asks after the step. In both, the
encoder reads in both directions, and the state begins as a summary of the whole source.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.baselines.rival import Rival, RivalState
from heedful.config import ModelConfig
from heedful.model.seq2seq import DecoderState, Memory, StepOutput
from heedful.shapes import Bool, Float, Int

CELLS = {"gru": nn.GRU, "lstm": nn.LSTM}
Hidden = tuple[Tensor, ...]
"""The layers' states, each (layers, R, D): one tensor for a GRU, two for an LSTM."""


class SourceAttention(nn.Module):
    """One head that weighs the memory's positions for a decoder state; keys are computed once for a sentence."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.scale = config.d_model**-0.5 if config.attention_scoring == "scaled_dot" else 1.0
        self.query = nn.Linear(config.d_model, config.d_model, bias=False)
        self.key = nn.Linear(config.d_model, config.d_model, bias=config.bias)
        self.vector = nn.Parameter(torch.empty(config.d_model)) if config.attention_scoring == "additive" else None
        if self.vector is not None:
            nn.init.uniform_(self.vector, -(config.d_model**-0.5), config.d_model**-0.5)

    def forward(
        self,
        state: Float[Tensor, "B Q D"],
        keys: Float[Tensor, "B S D"],
        memory: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B S"],
    ) -> tuple[Float[Tensor, "B Q D"], Float[Tensor, "B Q S"]]:
        """The weighted sum of the memory for each query, and the weights."""
        query = self.query(state)
        if self.vector is not None:
            scores = torch.tanh(query[:, :, None] + keys[:, None]) @ self.vector.type_as(query)
        else:
            scores = (query @ keys.transpose(1, 2)) * self.scale
        weights = torch.softmax(scores.float().masked_fill(~mask[:, None], float("-inf")), dim=-1)
        weights = weights.masked_fill(~mask.any(dim=1)[:, None, None], 0.0)
        return weights.type_as(memory) @ memory, weights


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


class RecurrentSeq2Seq(Rival):
    """Bidirectional encoder, recurrent decoder, attention between them; implements `Seq2Seq`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        width, cell = config.d_model, CELLS[config.cell]
        between = config.dropout if config.num_encoder_layers > 1 else 0.0
        self.encoder = cell(
            width, width // 2, config.num_encoder_layers, batch_first=True, bidirectional=True, dropout=between
        )
        self.asks_first = config.attention_scoring == "additive"
        between = config.dropout if config.num_decoder_layers > 1 else 0.0
        self.decoder = cell(
            2 * width if self.asks_first else width, width, config.num_decoder_layers, batch_first=True, dropout=between
        )
        self.attention = SourceAttention(config)
        self.first_state = nn.Linear(width, width * config.num_decoder_layers)
        self.readout = nn.Linear(3 * width, width)

    def read(self, tokens: Int[Tensor, "B T"], memory: Memory) -> Float[Tensor, "B T D"]:
        """Read whole targets: in one go, or step by step where each step needs the answer to the one before."""
        state = self.start(memory, num_beams=1, max_length=tokens.shape[1])
        embedded = self.tables.embed_target(tokens)
        if not self.asks_first:
            return self._advance(embedded, state)[0]
        steps = [self._advance(embedded[:, t : t + 1], state)[0] for t in range(embedded.shape[1])]
        return torch.cat(steps, dim=1)

    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]) -> Memory:
        """Read the sources in both directions."""
        x = self.tables.embed_source(source)
        lengths = source_mask.sum(dim=1).clamp(min=1).cpu()
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        values, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=source.shape[1])
        return Memory(F.dropout(values, self.config.dropout, self.training), source_mask)

    def start(self, memory: Memory, *, num_beams: int, max_length: int) -> RecurrentState:
        """The first state is a summary of the source: tanh(W · mean of the memory)."""
        real = memory.mask[..., None]
        mean = (memory.values * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
        first = torch.tanh(self.first_state(mean)).unflatten(1, (-1, self.config.d_model)).transpose(0, 1)
        first = first.repeat_interleave(num_beams, dim=1).contiguous()
        hidden = (first,) if self.config.cell == "gru" else (first, torch.zeros_like(first))
        return RecurrentState(memory, self.attention.key(memory.values), num_beams, hidden)

    def step(self, tokens: Int[Tensor, " R"], state: DecoderState, *, need_weights: bool = False) -> StepOutput:
        """Feed one token a row; the recurrent state is the cache."""
        assert isinstance(state, RecurrentState)
        x, weights = self._advance(self.tables.embed_target(tokens[:, None]), state)
        attention = weights.flatten(0, 1)[:, None, None] if need_weights else None
        return StepOutput(self.tables.logits(x)[:, 0], attention)

    def _advance(
        self, embedded: Float[Tensor, "R T D"], state: RecurrentState
    ) -> tuple[Float[Tensor, "R T D"], Float[Tensor, "B Q S"]]:
        """Read target tokens (one, where attention asks first), update the state, give what the logits are made of."""
        inputs = embedded
        context, weights = embedded, embedded  # replaced below
        if self.asks_first:
            context, weights = self._attend(state.hidden[0][-1][:, None], state)
            inputs = torch.cat((embedded, context), dim=-1)
        hidden = state.hidden[0] if self.config.cell == "gru" else state.hidden
        output, after = self.decoder(inputs, hidden)
        state.hidden = (after,) if self.config.cell == "gru" else after
        if not self.asks_first:
            context, weights = self._attend(output, state)
        x = torch.tanh(self.readout(torch.cat((output, context, embedded), dim=-1)))
        return F.dropout(x, self.config.dropout, self.training), weights

    def _attend(self, queries: Float[Tensor, "R T D"], state: RecurrentState) -> tuple[Tensor, Tensor]:
        """The beams of a sentence ask its memory side by side."""
        memory = state.memory
        side_by_side = queries.reshape(memory.values.shape[0], -1, queries.shape[-1])
        context, weights = self.attention(side_by_side, state.keys, memory.values, memory.mask)
        return context.reshape(queries.shape), weights
