"""The Transformer (Figure 1): embeddings and positions, encoder, decoder, and logits over the target vocabulary."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.attention import ATTENTION, MultiHeadAttention, Scoring
from heedful.model.batch_invariance import steady
from heedful.model.kv_cache import LayerCache, TransformerState
from heedful.model.layers import DecoderLayer, EncoderLayer
from heedful.model.masks import causal_mask, segment_mask
from heedful.model.norms import build_norm
from heedful.model.positions import LearnedPositions, sinusoidal_encoding
from heedful.model.seq2seq import DecoderState, Memory, StepOutput
from heedful.tensor_types import Bool, Float, Int


class Encoder(nn.Module):
    """N identical layers over the source (section 3.1)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.norm = build_norm(config) if config.has_final_norm else None

    def forward(
        self,
        x: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B #H #S S"],
        positions: Int[Tensor, "B S"],
        token_mask: Bool[Tensor, "B S"],
    ) -> Float[Tensor, "B S D"]:
        for layer in self.layers:
            x = layer(x, mask, positions, token_mask)
        return x if self.norm is None else self.norm(x, token_mask)


class Decoder(nn.Module):
    """N identical layers over the target, each attending to the memory (section 3.1)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        self.norm = build_norm(config) if config.has_final_norm else None

    def memory_keys_values(self, memory: Float[Tensor, "B S D"]) -> list[tuple[Tensor, Tensor]]:
        """Each layer's keys and values of the memory, computed once for a sentence."""
        return [layer.cross_attention.keys_values(memory) for layer in self.layers]  # type: ignore[union-attr, operator]

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        mask: Bool[Tensor, "#R #H #T K"],
        positions: Int[Tensor, "R T"],
        token_mask: Bool[Tensor, "R T"],
        memory: list[tuple[Float[Tensor, "B H S Dk"], Float[Tensor, "B H S Dh"]]],
        memory_mask: Bool[Tensor, "B #H #Q S"],
        *,
        caches: list[LayerCache] | None = None,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "R T D"], list[Tensor]]:
        """The decoder's output, and each layer's cross-attention weights when they are asked for."""
        all_weights = []
        for index, layer in enumerate(self.layers):
            cache = caches[index] if caches is not None else None
            x, weights = layer(
                x, mask, positions, token_mask, memory[index], memory_mask, cache=cache, need_weights=need_weights
            )
            if weights is not None:
                all_weights.append(weights)
        return x if self.norm is None else self.norm(x, token_mask), all_weights


class Transformer(nn.Module):
    """The encoder-decoder of "Attention Is All You Need". Sees token ids, never words; implements `Seq2Seq`."""

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
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Matrices by Xavier's rule, embeddings with standard deviation 1/√d_model, biases zero."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5)
            elif isinstance(module, Scoring) and module.vector is not None:
                nn.init.xavier_uniform_(module.vector)

    @property
    def max_length(self) -> int:
        """Longest source or target, in tokens, that the model accepts."""
        return self.config.max_length

    @property
    def target_table(self) -> nn.Embedding:
        """The embedding of the target side, which may be that of the source side."""
        return self.source_embedding if self.target_embedding is None else self.target_embedding

    @property
    def output_weight(self) -> Tensor:
        """What projects on the vocabulary: by default the embedding matrix itself (section 3.4)."""
        return self.target_table.weight if self.output is None else self.output.weight

    def use_attention(self, name: str) -> None:
        """Compute all attention the "fused" or the "explicit" way; the results are the same."""
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
        """Logits of every next target token. Without segments each row is one sentence pair without padding."""
        if source_segments is None:
            source_segments = torch.ones_like(source)
        if target_segments is None:
            target_segments = torch.ones_like(target_input)
        memory = self._encode(source, source_segments, source_positions)
        positions = counted(target_input) if target_positions is None else target_positions
        x, _ = self.decoder(
            self._embed_target(target_input, positions),
            segment_mask(target_segments, target_segments) & causal_mask(target_input.shape[1], target_input.device),
            positions,
            target_segments > 0,
            self.decoder.memory_keys_values(memory),
            segment_mask(target_segments, source_segments),
        )
        return self._logits(x)

    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]) -> Memory:
        """Read the sources once."""
        return Memory(self._encode(source, source_mask.long(), None), source_mask)

    def start(self, memory: Memory, *, num_beams: int, max_length: int) -> TransformerState:
        """Open a decoder state with an empty cache."""
        rows = memory.values.shape[0] * num_beams
        keys_values = [
            (keys.contiguous(), values.contiguous())  # each head's together, for they are read at every step
            for keys, values in self.decoder.memory_keys_values(memory.values)
        ]

        def room(like: Tensor) -> Tensor:
            return like.new_zeros(rows, like.shape[1], steady(max_length), like.shape[3])

        caches = [LayerCache(room(keys), room(values)) for keys, values in keys_values]
        return TransformerState(caches, keys_values, memory.mask, num_beams)

    def step(self, tokens: Int[Tensor, " R"], state: DecoderState, *, need_weights: bool = False) -> StepOutput:
        """Feed one token a row, give the logits of the next; earlier tokens come from the state's cache."""
        assert isinstance(state, TransformerState)
        positions = torch.full_like(tokens, state.length)[:, None]
        token_mask = torch.ones_like(positions, dtype=torch.bool)
        shown = torch.arange(steady(state.length + 1), device=tokens.device)
        x, weights = self.decoder(
            self._embed_target(tokens[:, None], positions),
            (shown <= state.length)[None, None, None],
            positions,
            token_mask,
            state.memory,
            state.memory_mask[:, None, None, :],
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
        positions = counted(source) if positions is None else positions
        x = self._embed(self.source_embedding, self.source_positions, source, positions)
        return self.encoder(x, segment_mask(segments, segments), positions, segments > 0)

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


def counted(tokens: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Positions 0, 1, 2, … for every row."""
    return torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
