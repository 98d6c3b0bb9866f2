"""The decoder of Luong et al. (2015): the recurrent layers read the target alone, and each new state asks the memory.

So whole targets are read in one go. Luong's input feeding, by which the last answer is part of the next input, is left
out: it would bring back the loop over the target that this order does without; Bahdanau's decoder has both.

`dot` is Luong's: states are compared as they are. (With matrices before it an unscaled product of many dimensions
saturates softmax within a few updates, and what is attended to is hardly learned.) `scaled_dot` compares as the
Transformer does: queries and keys of their own, divided by √D.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.baselines.cells import Answers, RecurrentState, as_hidden, as_torch, recurrent_layers
from heedful.config import ModelConfig
from heedful.model.seq2seq import Memory
from heedful.tensor_types import Float


class LuongDecoder(nn.Module):
    """softmax(s · m), or softmax(W s · U m / √D), over the positions m of the memory, s being the new state."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.d_model
        self.layers = recurrent_layers(config, width, width, config.num_decoder_layers)
        is_scaled = config.attention_scoring == "scaled_dot"
        self.scale = width**-0.5 if is_scaled else 1.0
        self.query = nn.Linear(width, width, bias=False) if is_scaled else nn.Identity()
        self.key = nn.Linear(width, width, bias=config.bias) if is_scaled else nn.Identity()

    def keys(self, memory: Memory) -> Float[Tensor, "B S D"]:
        """What each position is compared by; computed once for a source."""
        keys: Tensor = self.key(memory.values)
        return keys

    def read(self, embedded: Float[Tensor, "B T D"], lengths: Sequence[int], state: RecurrentState) -> Answers:
        """Read whole targets, the longest first, from where the state stands."""
        packed = pack_padded_sequence(embedded, torch.tensor(lengths).clamp(min=1), batch_first=True)
        output, _ = self.layers(packed, as_torch(state.hidden))
        padded, _ = pad_packed_sequence(output, batch_first=True, total_length=embedded.shape[1])
        return self._ask(padded, state)

    def step(self, embedded: Float[Tensor, "R 1 D"], state: RecurrentState) -> Answers:
        """Read one token a row and move the state on."""
        output, after = self.layers(embedded, as_torch(state.hidden))
        state.hidden = as_hidden(after)
        return self._ask(output, state)

    def _ask(self, output: Float[Tensor, "R T D"], state: RecurrentState) -> Answers:
        """The rows of a sentence ask its memory side by side."""
        memory, shape = state.memory, output.shape
        queries = self.query(output).reshape(memory.values.shape[0], -1, shape[-1])
        scores = (queries @ state.keys.transpose(1, 2)).float() * self.scale
        weights = torch.softmax(scores.masked_fill(~memory.mask[:, None], torch.finfo(scores.dtype).min), dim=-1)
        context = weights.type_as(memory.values) @ memory.values
        return Answers(output, context.reshape(shape), weights.reshape(*shape[:2], -1))
