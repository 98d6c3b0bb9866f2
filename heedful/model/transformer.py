"""The Transformer (Figure 1): embeddings and positions, encoder, decoder, and logits over the target vocabulary."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.attention import ATTENTION, MultiHeadAttention, Scoring, causal_mask, segment_mask
from heedful.model.kv_cache import KeysValues, LayerCache, TransformerState
from heedful.model.layers import DecoderLayer, EncoderLayer
from heedful.model.norms import build_norm, normalise
from heedful.model.positions import LearnedPositions, position_ids, sinusoidal_encoding
from heedful.model.seq2seq import DecoderState, Memory, StepOutput
from heedful.model.weighting import cross_attention_mask, self_attention_mask
from heedful.tensor_types import Bool, Float, Int


class Encoder(nn.Module):
    """N identical layers over the source (section 3.1)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.norm = build_norm(config) if config.has_final_norm else None

    def forward(
        self, x: Float[Tensor, "B S D"], mask: Bool[Tensor, "B #H #S S"], positions: Int[Tensor, "B S"]
    ) -> Float[Tensor, "B S D"]:
        for layer in self.layers:
            x = layer(x, mask, positions)
        return x if self.norm is None else normalise(self.norm, x, mask)


class Decoder(nn.Module):
    """N identical layers over the target, each attending to the memory (section 3.1)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        self.norm = build_norm(config) if config.has_final_norm else None

    def memory_keys_values(self, memory: Float[Tensor, "B S D"]) -> list[KeysValues]:
        """Each layer's keys and values of the memory, which decoding computes once for a sentence."""
        return [layer.cross_attention.keys_values(memory) for layer in self.layers]  # type: ignore[union-attr, operator]

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        mask: Bool[Tensor, "#R #H #T K"],
        positions: Int[Tensor, "R T"],
        memory: Float[Tensor, "B S D"] | list[KeysValues],
        memory_mask: Bool[Tensor, "B #H #Q S"],
        *,
        caches: list[LayerCache] | None = None,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "R T D"], list[Tensor]]:
        """The decoder's output, and each layer's cross-attention weights if `need_weights`."""
        all_weights = []
        for index, layer in enumerate(self.layers):
            layer_memory = memory if isinstance(memory, Tensor) else memory[index]
            cache = caches[index] if caches is not None else None
            x, weights = layer(x, mask, positions, layer_memory, memory_mask, cache=cache, need_weights=need_weights)
            if weights is not None:
                all_weights.append(weights)
        return x if self.norm is None else normalise(self.norm, x, mask), all_weights


def initialise(model: nn.Module, d_model: int) -> None:
    """Matrices by Xavier's rule, embeddings with standard deviation 1/√d_model, biases zero."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=d_model**-0.5)
        elif isinstance(module, Scoring) and module.vector is not None:
            nn.init.xavier_uniform_(module.vector)


class Transformer(nn.Module):
    """The encoder-decoder of "Attention Is All You Need". Implements `Seq2Seq`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = nn.Embedding(config.source_vocab_size, config.d_model)
        self.target_embedding = (
            None if config.tying == "three_way" else nn.Embedding(config.target_vocab_size, config.d_model)
        )
        self.output = (
            nn.Linear(config.d_model, config.target_vocab_size, bias=False) if config.tying == "none" else None
        )
        self.source_positions = self.target_positions = None
        if config.positions == "learned":
            self.source_positions = LearnedPositions(config.max_length, config.d_model)
            self.target_positions = LearnedPositions(config.max_length, config.d_model)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.embedding_dropout = config.dropout if config.embedding_dropout is None else config.embedding_dropout
        initialise(self, config.d_model)

    @property
    def max_length(self) -> int:
        """Longest source or target, in tokens, that the model accepts."""
        return self.config.max_length

    @property
    def target_table(self) -> nn.Embedding:
        """The target embedding, which may be the source embedding."""
        return self.source_embedding if self.target_embedding is None else self.target_embedding

    @property
    def output_weight(self) -> Tensor:
        """The output projection: by default the embedding matrix (section 3.4)."""
        return self.target_table.weight if self.output is None else self.output.weight

    def use_attention(self, name: str) -> None:
        """Select the "fused" or the "explicit" implementation of attention; the results are the same."""
        if name not in ATTENTION:
            raise ValueError(f"attention is one of {', '.join(ATTENTION)}, not {name!r}")
        for module in self.modules():
            if isinstance(module, MultiHeadAttention):
                module.backend = name

    def sampled_log_prob(self) -> Float[Tensor, "B T"]:
        """The log-probability of the source positions that the last training pass sampled, over layers and heads."""
        attentions = [layer.cross_attention for layer in self.decoder.layers]
        return torch.stack([one.weighting.log_prob for one in attentions]).sum(dim=0)  # type: ignore[union-attr, misc]

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target_input: Int[Tensor, "B T"],
        source_segments: Int[Tensor, "B S"] | None = None,
        target_segments: Int[Tensor, "B T"] | None = None,
        source_positions: Int[Tensor, "B S"] | None = None,
        target_positions: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits of every next target token. Without segments each row is one sentence pair without padding."""
        if source_segments is None:
            source_segments = torch.ones_like(source)
        if target_segments is None:
            target_segments = torch.ones_like(target_input)
        memory = self._encode(source, source_segments, source_positions)
        positions = position_ids(target_input) if target_positions is None else target_positions
        causal = causal_mask(target_input.shape[1], target_input.device)
        target_mask = segment_mask(target_segments, target_segments) & causal
        x, _ = self.decoder(
            self._embed_target(target_input, positions),
            self_attention_mask(target_mask, positions, positions, self.config),
            positions,
            memory,
            cross_attention_mask(segment_mask(target_segments, source_segments), positions, self.config),
        )
        return self._logits(x)

    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]) -> Memory:
        """Read the sources once."""
        return Memory(self._encode(source, source_mask.long(), None), source_mask)

    def start(self, memory: Memory, *, num_beams: int, max_length: int) -> TransformerState:
        """Create a decoder state with an empty cache."""
        keys_values = self.decoder.memory_keys_values(memory.values)
        return TransformerState.allocate(keys_values, memory.mask, num_beams=num_beams, max_length=max_length)

    def step(self, tokens: Int[Tensor, " R"], state: DecoderState, *, need_weights: bool = False) -> StepOutput:
        """Feed one token per row, return the logits of the next; earlier tokens are in the cache."""
        assert isinstance(state, TransformerState)
        positions = torch.full_like(tokens, state.length)[:, None]
        mask = state.mask
        earlier = torch.arange(mask.shape[-1], device=mask.device)[None]
        x, weights = self.decoder(
            self._embed_target(tokens[:, None], positions),
            self_attention_mask(mask, positions[:1], earlier, self.config),
            positions,
            state.memory,
            cross_attention_mask(state.memory_mask[:, None, None, :], positions[:1], self.config),
            caches=state.layers,
            need_weights=need_weights,
        )
        state.length += 1
        attention = torch.stack(weights, dim=1).permute(0, 3, 1, 2, 4).flatten(0, 1) if need_weights else None
        return StepOutput(self._logits(x)[:, 0], attention)

    def _encode(
        self,
        source: Int[Tensor, "B S"],
        segments: Int[Tensor, "B S"],
        positions: Int[Tensor, "B S"] | None,
    ) -> Float[Tensor, "B S D"]:
        positions = position_ids(source) if positions is None else positions
        x = self._embed(self.source_embedding, self.source_positions, source, positions)
        mask = self_attention_mask(segment_mask(segments, segments), positions, positions, self.config)
        return self.encoder(x, mask, positions)

    def _embed_target(self, target_input: Int[Tensor, "B T"], positions: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        return self._embed(self.target_table, self.target_positions, target_input, positions)

    def _embed(
        self,
        table: nn.Embedding,
        learned: LearnedPositions | None,
        tokens: Int[Tensor, "B T"],
        positions: Int[Tensor, "B T"],
    ) -> Float[Tensor, "B T D"]:
        """Embeddings times √d_model (section 3.4), plus positions (section 3.5), with dropout (section 5.4)."""
        x = table(tokens) * math.sqrt(self.config.d_model)
        if learned is not None:
            x = x + learned(positions)
        elif self.config.positions == "sinusoidal":
            x = x + sinusoidal_encoding(positions, self.config.d_model).type_as(x)
        return F.dropout(x, self.embedding_dropout, self.training)

    def _logits(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T V"]:
        return F.linear(x, self.output_weight) if self.output is None else self.output(x)
