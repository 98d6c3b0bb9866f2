"""Embeddings and output projection of the baselines, tied as the configuration says."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.tensor_types import Float, Int


class Tables(nn.Module):
    """Source and target embeddings, and logits by the target's table or by one of their own."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.source = nn.Embedding(config.source_vocab_size, config.d_model)
        self.target = None if config.tying == "three_way" else nn.Embedding(config.target_vocab_size, config.d_model)
        self.output = (
            nn.Linear(config.d_model, config.target_vocab_size, bias=False) if config.tying == "none" else None
        )
        self.dropout = config.dropout if config.embedding_dropout is None else config.embedding_dropout
        for table in (self.source, self.target):
            if table is not None:
                nn.init.normal_(table.weight, std=config.d_model**-0.5)

    def embed_source(self, tokens: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        """Source embeddings of unit scale, with dropout."""
        return self._embed(self.source, tokens)

    def embed_target(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Target embeddings of unit scale, with dropout."""
        return self._embed(self.target or self.source, tokens)

    def logits(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """Project on the target vocabulary."""
        return self.output(x) if self.output is not None else F.linear(x, (self.target or self.source).weight)

    def _embed(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        return F.dropout(table(tokens) * table.embedding_dim**0.5, self.dropout, self.training)
