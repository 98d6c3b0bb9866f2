"""The convolutional encoder-decoder of Gehring et al. (2017, "ConvS2S"), the strongest baseline in the paper's Table 2.

Stacks of convolutions with gated linear units, weight normalisation, residual sums scaled by √½, and attention in every
decoder layer (multi-step attention). Each layer widens the receptive field by k - 1 tokens.

The original also divides the encoder's gradients by twice the number of attentions; that is left out, because Adam
normalises gradients anyway.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from heedful.baselines.base import BaselineModel, BaselineState, Sentences
from heedful.config import ModelConfig
from heedful.model.positions import LearnedPositions, sinusoidal_encoding
from heedful.model.seq2seq import DecoderState, Memory, StepOutput
from heedful.tensor_types import Bool, Float, Int

HALF = math.sqrt(0.5)


class GatedConvolution(nn.Module):
    """GLU(conv(x)): half of the channels are values, the other half are their gates."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dropout = config.dropout
        convolution = nn.Conv1d(config.d_model, 2 * config.d_model, config.kernel_size)
        nn.init.normal_(
            convolution.weight, std=math.sqrt(4 * (1 - config.dropout) / (config.kernel_size * config.d_model))
        )
        nn.init.zeros_(convolution.bias) if convolution.bias is not None else None
        self.convolution = weight_norm(convolution)

    def forward(self, x: Float[Tensor, "B P D"]) -> Float[Tensor, "B T D"]:
        """x has kernel_size - 1 positions more than the output."""
        x = F.dropout(x, self.dropout, self.training)
        return F.glu(self.convolution(x.transpose(1, 2)).transpose(1, 2), dim=-1)


class StepAttention(nn.Module):
    """Attention of a decoder layer to the memory; its query is the layer's state plus the target embedding."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        # The original has no scale but embeddings of standard deviation 0.1; here it is 1, and softmax would saturate.
        self.scale = config.d_model**-0.5 if config.attention_scoring == "scaled_dot" else 1.0
        self.query = weight_norm(scaled_linear(config))
        self.output = weight_norm(scaled_linear(config))

    def forward(
        self,
        x: Float[Tensor, "B Q D"],
        embedded: Float[Tensor, "B Q D"],
        keys: Float[Tensor, "B S D"],
        values: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B S"],
    ) -> tuple[Float[Tensor, "B Q D"], Float[Tensor, "B Q S"]]:
        """The context, scaled by the number of source tokens as in the original, and the weights."""
        scores = ((self.query(x) + embedded) * HALF) @ keys.transpose(1, 2) * self.scale
        weights = torch.softmax(scores.float().masked_fill(~mask[:, None], float("-inf")), dim=-1)
        weights = weights.masked_fill(~mask.any(dim=1)[:, None, None], 0.0)
        context = weights.type_as(values) @ values * mask.sum(dim=1).sqrt()[:, None, None].type_as(values)
        return (x + self.output(context)) * HALF, weights


@dataclass
class ConvolutionalState(BaselineState):
    """For each layer the last kernel_size - 1 inputs of its convolution."""

    windows: list[Float[Tensor, "R P D"]]
    length: int = 0

    @property
    def num_rows(self) -> int:
        """Rows in the state: sentences times beams."""
        return self.windows[0].shape[0]

    def reorder(self, rows: Int[Tensor, " R"]) -> None:
        """Make row r continue the hypothesis of row rows[r]."""
        self.windows = [window[rows] for window in self.windows]


class ConvolutionalSeq2Seq(BaselineModel):
    """Convolutions on both sides, attention in every decoder layer; implements `Seq2Seq`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.source_positions = self.target_positions = None
        if config.positions == "learned":
            self.source_positions = LearnedPositions(config.max_length, config.d_model)
            self.target_positions = LearnedPositions(config.max_length, config.d_model)
        self.encoder = nn.ModuleList(GatedConvolution(config) for _ in range(config.num_encoder_layers))
        self.key = weight_norm(scaled_linear(config))
        self.decoder = nn.ModuleList(GatedConvolution(config) for _ in range(config.num_decoder_layers))
        self.attention = nn.ModuleList(StepAttention(config) for _ in range(config.num_decoder_layers))
        self.readout = weight_norm(scaled_linear(config))

    def read(self, targets: Sentences, memory: Memory) -> Float[Tensor, "M L D"]:
        """Read whole targets, all positions at once."""
        state = self.start(memory, num_beams=1, max_length=targets.tokens.shape[1])
        return self._advance(targets.tokens, state)[0]

    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]) -> Memory:
        """Read the sources; padding is zero before every convolution."""
        embedded = self._embed(self.tables.embed_source(source), self.source_positions, first=0)
        x, real = embedded, source_mask[..., None]
        before = (self.config.kernel_size - 1) // 2
        after = self.config.kernel_size - 1 - before
        for layer in self.encoder:
            x = (x + layer(F.pad(x * real, (0, 0, before, after)))) * HALF
        keys = self.key(x)
        return Memory(torch.cat((keys, (keys + embedded) * HALF), dim=-1), source_mask)

    def start(self, memory: Memory, *, num_beams: int, max_length: int) -> ConvolutionalState:
        """The state before the first token: all windows are zero."""
        keys, values = memory.values.chunk(2, dim=-1)
        rows, width = memory.values.shape[0] * num_beams, self.config.kernel_size - 1
        windows = [keys.new_zeros(rows, width, self.config.d_model) for _ in self.decoder]
        return ConvolutionalState(Memory(values, memory.mask), keys, num_beams, windows)

    def step(self, tokens: Int[Tensor, " R"], state: DecoderState, *, need_weights: bool = False) -> StepOutput:
        """Feed one token a row; each layer reads its window of earlier inputs."""
        assert isinstance(state, ConvolutionalState)
        x, weights = self._advance(tokens[:, None], state)
        attention = torch.stack([part.flatten(0, 1) for part in weights], dim=1)[:, :, None] if need_weights else None
        return StepOutput(self.tables.logits(x)[:, 0], attention)

    def _advance(
        self, tokens: Int[Tensor, "R T"], state: ConvolutionalState
    ) -> tuple[Float[Tensor, "R T D"], list[Tensor]]:
        """Read target tokens, one or all, starting from the state; returns the input of the output projection."""
        embedded = self._embed(self.tables.embed_target(tokens), self.target_positions, first=state.length)
        memory, all_weights, x = state.memory, [], embedded
        num_sentences = memory.values.shape[0]

        def group_beams(values: Tensor) -> Tensor:
            return values.reshape(num_sentences, -1, values.shape[-1])  # the beams of a sentence share its memory

        for index, (layer, attention) in enumerate(zip(self.decoder, self.attention, strict=True)):
            window = torch.cat((state.windows[index], x), dim=1)
            state.windows[index] = window[:, window.shape[1] - self.config.kernel_size + 1 :]
            gated = layer(window)
            attended, weights = attention(
                group_beams(gated), group_beams(embedded), state.keys, memory.values, memory.mask
            )
            all_weights.append(weights)
            x = (x + attended.reshape(x.shape)) * HALF
        state.length += tokens.shape[1]
        return F.dropout(self.readout(x), self.config.dropout, self.training), all_weights

    def _embed(
        self, x: Float[Tensor, "B T D"], learned: LearnedPositions | None, *, first: int
    ) -> Float[Tensor, "B T D"]:
        positions = torch.arange(first, first + x.shape[1], device=x.device).expand(x.shape[0], -1)
        if learned is not None:
            return x + learned(positions)
        return x + sinusoidal_encoding(positions, self.config.d_model).type_as(x)


def scaled_linear(config: ModelConfig) -> nn.Linear:
    """A linear layer initialised so that outputs have the variance of inputs before dropout."""
    layer = nn.Linear(config.d_model, config.d_model)
    nn.init.normal_(layer.weight, std=math.sqrt((1 - config.dropout) / config.d_model))
    nn.init.zeros_(layer.bias)
    return layer
