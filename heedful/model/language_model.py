"""Language models: one stack of the Transformer, trained on text alone.

    decoder   predicts the next token: causal self-attention, no cross-attention (Radford et al., 2018)
    encoder   predicts masked tokens from the text on both sides of them (Devlin et al., 2018)

Both are a stack of `EncoderLayer`: a decoder layer without cross-attention is an encoder layer with another mask.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.attention import ATTENTION, MultiHeadAttention, causal_mask, segment_mask
from heedful.model.batch_invariance import align
from heedful.model.kv_cache import LayerCache, TransformerState
from heedful.model.layers import EncoderLayer
from heedful.model.norms import build_norm, normalise
from heedful.model.positions import LearnedPositions, position_ids, sinusoidal_encoding
from heedful.model.seq2seq import DecoderState, Memory, StepOutput
from heedful.model.transformer import initialise
from heedful.model.weighting import self_attention_mask
from heedful.tensor_types import Bool, Float, Int


class LanguageModel(nn.Module):
    """A stack of self-attention layers between an embedding and an output layer.

    `config.architecture` is "encoder" or "decoder", and the number of layers is that of this stack. Embedding and
    output share one matrix, unless `tying` is "none". A decoder implements `Seq2Seq`: it ignores the source.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.is_causal = config.architecture == "decoder"
        num_layers = config.num_decoder_layers if self.is_causal else config.num_encoder_layers
        self.embedding = nn.Embedding(config.target_vocab_size, config.d_model)
        self.output = (
            nn.Linear(config.d_model, config.target_vocab_size, bias=False) if config.tying == "none" else None
        )
        self.positions = LearnedPositions(config.max_length, config.d_model) if config.positions == "learned" else None
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(num_layers))
        self.norm = build_norm(config) if config.has_final_norm else None
        self.embedding_dropout = config.dropout if config.embedding_dropout is None else config.embedding_dropout
        initialise(self, config.d_model)

    @property
    def max_length(self) -> int:
        """Longest text, in tokens, that the model accepts."""
        return self.config.max_length

    def use_attention(self, name: str) -> None:
        """Select the "fused" or the "explicit" implementation of attention; the results are the same."""
        if name not in ATTENTION:
            raise ValueError(f"attention is one of {', '.join(ATTENTION)}, not {name!r}")
        for module in self.modules():
            if isinstance(module, MultiHeadAttention):
                module.backend = name

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target_input: Int[Tensor, "B T"],
        source_segments: Int[Tensor, "B S"] | None = None,
        target_segments: Int[Tensor, "B T"] | None = None,
        source_positions: Int[Tensor, "B S"] | None = None,
        target_positions: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits at every position: a decoder reads `target_input`, an encoder `source`, which has masked tokens.

        The arguments are those of `Transformer.forward`, so that both are trained by the same step.
        """
        if self.is_causal:
            return self.logits(target_input, target_segments, target_positions)
        return self.logits(source, source_segments, source_positions)

    def logits(
        self,
        tokens: Int[Tensor, "B T"],
        segments: Int[Tensor, "B T"] | None = None,
        positions: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits at every position of the tokens. Without segments each row is one text without padding."""
        segments = torch.ones_like(tokens) if segments is None else segments
        positions = position_ids(tokens) if positions is None else positions
        mask = segment_mask(segments, segments)
        if self.is_causal:
            mask = mask & causal_mask(tokens.shape[1], tokens.device)
        return self._project(self._run_layers(self._embed(tokens, positions), mask, positions))

    # ---- decoding: a text is a target without a source

    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]) -> Memory:
        """An empty memory for each row of the source, which is not read."""
        return Memory(source.new_zeros(*source.shape, 0, dtype=self.embedding.weight.dtype), source_mask)

    def start(self, memory: Memory, *, num_beams: int, max_length: int) -> DecoderState:
        """Create a state for up to max_length tokens per row."""
        num_rows, config = memory.mask.shape[0] * num_beams, self.config

        def zeros(width: int) -> Tensor:
            return self.embedding.weight.new_zeros(num_rows, config.num_heads, align(max_length), width)

        widths = config.attention_key_dim, config.attention_head_dim
        caches = [LayerCache(*map(zeros, widths)) for _ in self.layers]
        return TransformerState(caches, [], memory.mask, num_beams)

    def step(self, tokens: Int[Tensor, " R"], state: DecoderState, *, need_weights: bool = False) -> StepOutput:
        """Feed one token per row, return the logits of the next; without cross-attention there are no weights."""
        assert isinstance(state, TransformerState)
        assert self.is_causal, "an encoder does not predict the next token"
        positions = torch.full_like(tokens, state.length)[:, None]
        x = self._run_layers(self._embed(tokens[:, None], positions), state.mask, positions, state.layers)
        state.length += 1
        return StepOutput(self._project(x)[:, 0], None)

    def _run_layers(
        self,
        x: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "#B #H #T K"],
        positions: Int[Tensor, "B T"],
        caches: list[LayerCache] | None = None,
    ) -> Float[Tensor, "B T D"]:
        keys = positions if caches is None else torch.arange(mask.shape[-1], device=mask.device)[None]
        mask = self_attention_mask(mask, positions, keys, self.config)
        for index, layer in enumerate(self.layers):
            x = layer(x, mask, positions, cache=None if caches is None else caches[index])
        return x if self.norm is None else normalise(self.norm, x, mask)

    def _embed(self, tokens: Int[Tensor, "B T"], positions: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Embeddings times √d_model (section 3.4), plus positions (section 3.5), with dropout (section 5.4)."""
        x = self.embedding(tokens) * math.sqrt(self.config.d_model)
        if self.positions is not None:
            x = x + self.positions(positions)
        elif self.config.positions == "sinusoidal":
            x = x + sinusoidal_encoding(positions, self.config.d_model).type_as(x)
        return F.dropout(x, self.embedding_dropout, self.training)

    def _project(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T V"]:
        return F.linear(x, self.embedding.weight) if self.output is None else self.output(x)
