"""The recurrent encoder-decoder that the paper set out to replace: GRU or LSTM, with attention.

Bahdanau et al. (2015), `attention_scoring: additive`: the last state asks the memory before each step, and the answer
is part of the step's input. Luong et al. (2015), `dot` or `scaled_dot`: the new state asks after the step. In both, the
encoder reads in both directions, and the state begins as a summary of the whole source.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.baselines.bahdanau import BahdanauDecoder
from heedful.baselines.base import Rival
from heedful.baselines.cells import Answers, RecurrentState, read_both_ways, recurrent_layers
from heedful.baselines.luong import LuongDecoder
from heedful.baselines.unpacking import Sentences
from heedful.config import ModelConfig
from heedful.model.batch_invariance import requires_invariance
from heedful.model.seq2seq import DecoderState, Memory, StepOutput
from heedful.tensor_types import Bool, Float, Int


class RecurrentSeq2Seq(Rival):
    """Bidirectional encoder, recurrent decoder, attention between them; implements `Seq2Seq`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        width = config.d_model
        self.encoder = recurrent_layers(config, width, width // 2, config.num_encoder_layers, bidirectional=True)
        self.decoder = (BahdanauDecoder if config.attention_scoring == "additive" else LuongDecoder)(config)
        self.first_state = nn.Linear(width, width * config.num_decoder_layers)
        self.readout = nn.Linear(3 * width, width)

    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]) -> Memory:
        """Read the sources in both directions; zeros stand on padding, so an empty source answers with zeros."""
        x = self.tables.embed_source(source)
        lengths = source_mask.sum(dim=1).clamp(min=1)
        if requires_invariance(x) and not self.training:
            values = read_both_ways(self.encoder, x, lengths)
        else:
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            values, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=source.shape[1])
        return Memory(F.dropout(values * source_mask[..., None], self.config.dropout, self.training), source_mask)

    def read(self, targets: Sentences, memory: Memory) -> Float[Tensor, "M L D"]:
        """Read whole targets: what can be done for all steps at once is done so."""
        state = self.start(memory, num_beams=1, max_length=targets.tokens.shape[1])
        embedded = self.tables.embed_target(targets.tokens)
        return self._read_out(embedded, self.decoder.read(embedded, targets.lengths, state))

    def start(self, memory: Memory, *, num_beams: int, max_length: int) -> RecurrentState:
        """The first state is a summary of the source: tanh(W · mean of the memory)."""
        real = memory.mask[..., None]
        mean = (memory.values * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
        first = torch.tanh(self.first_state(mean)).unflatten(1, (-1, self.config.d_model)).transpose(0, 1)
        first = first.repeat_interleave(num_beams, dim=1).contiguous()
        hidden = (first,) if self.config.cell == "gru" else (first, torch.zeros_like(first))
        return RecurrentState(memory, self.decoder.keys(memory), num_beams, hidden)

    def step(self, tokens: Int[Tensor, " R"], state: DecoderState, *, need_weights: bool = False) -> StepOutput:
        """Feed one token a row; the recurrent state is the cache."""
        assert isinstance(state, RecurrentState)
        embedded = self.tables.embed_target(tokens[:, None])
        answers = self.decoder.step(embedded, state)
        attention = answers.weights[:, None] if need_weights else None
        return StepOutput(self.tables.logits(self._read_out(embedded, answers))[:, 0], attention)

    def _read_out(self, embedded: Float[Tensor, "R T D"], answers: Answers) -> Float[Tensor, "R T D"]:
        """What the logits are made of: tanh(W [output; context; embedding]), with dropout."""
        x = torch.tanh(self.readout(torch.cat((answers.output, answers.context, embedded), dim=-1)))
        return F.dropout(x, self.config.dropout, self.training)
