"""What the recurrent and the convolutional model share: embeddings, unpacking of rows into sentences, the state.

Recurrence and convolution cannot stop at the border between two sentences of a packed row, as the mask of a Transformer
does. So rows are unpacked, one sentence per line. Everything runs on the device; the host synchronises once per
batch, to read the number of sentences and their lengths.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.positions import position_ids
from heedful.model.seq2seq import Memory
from heedful.tensor_types import Bool, Float, Int


class Embeddings(nn.Module):
    """Source and target embeddings and the output projection, tied as the configuration says."""

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
        """Source embeddings, scaled by √d_model, with dropout."""
        return self._embed(self.source, tokens)

    def embed_target(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Target embeddings, scaled by √d_model, with dropout."""
        return self._embed(self.target or self.source, tokens)

    def logits(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """Logits over the target vocabulary."""
        return self.output(x) if self.output is not None else F.linear(x, (self.target or self.source).weight)

    def _embed(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        return F.dropout(table(tokens) * table.embedding_dim**0.5, self.dropout, self.training)


# ---- unpacking


@dataclass(frozen=True)
class Sentences:
    """The sentences of one side of packed rows, one per line; the longest target comes first.

    `indices` has, for each token of the rows, its flat index in the lines. `lengths` are on the host.
    """

    tokens: Int[Tensor, "M L"]
    mask: Bool[Tensor, "M L"]
    lengths: list[int]
    indices: Int[Tensor, "B T"]
    is_real: Bool[Tensor, "B T"]

    def to_rows(self, values: Float[Tensor, "M L D"]) -> Float[Tensor, "B T D"]:
        """Values of the sentences' tokens in the layout of the rows; zeros on padding."""
        rows = values.flatten(0, 1).index_select(0, self.indices.flatten()).unflatten(0, self.indices.shape)
        return rows * self.is_real[..., None]


def unpack_pair(
    source: Int[Tensor, "B S"],
    target: Int[Tensor, "B T"],
    source_segments: Int[Tensor, "B S"] | None,
    target_segments: Int[Tensor, "B T"] | None,
    source_positions: Int[Tensor, "B S"] | None,
    target_positions: Int[Tensor, "B T"] | None,
) -> tuple[Sentences, Sentences]:
    """Both sides of packed rows as sentences, sorted by target length; line m of both sides is one pair."""
    sides = []
    for tokens, segments, positions in (
        (source, source_segments, source_positions),
        (target, target_segments, target_positions),
    ):
        segments = torch.ones_like(tokens) if segments is None else segments
        sides.append((tokens, segments, position_ids(tokens) if positions is None else positions))
    max_pairs = source.shape[1] + target.shape[1]  # each pair of a row has at least one token
    lengths = torch.stack([segment_lengths(segments, positions, max_pairs) for _, segments, positions in sides])
    exists = (lengths > 0).any(dim=0)
    order = torch.where(exists, lengths[1] + 1, 0).argsort(descending=True, stable=True)
    line = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
    ordered = lengths[:, order]
    host_lengths: Tensor = ordered.cpu()  # the only synchronisation with the host
    num_lines = max(1, int((host_lengths > 0).any(dim=0).sum()))
    parts = [
        unpack_side(
            *side,
            line=line.view(source.shape[0], max_pairs),
            device_lengths=ordered[i, :num_lines],
            lengths=host_lengths[i].tolist(),
        )
        for i, side in enumerate(sides)
    ]
    return parts[0], parts[1]


def segment_lengths(segments: Int[Tensor, "B T"], positions: Int[Tensor, "B T"], max_pairs: int) -> Int[Tensor, " B*K"]:
    """Number of tokens of each segment, row after row; 0 for segment numbers that a row does not use."""
    found = torch.zeros(segments.shape[0], max_pairs + 1, dtype=torch.long, device=segments.device)
    return found.scatter_reduce_(1, segments.long(), positions.long() + 1, "amax")[:, 1:].flatten()


def unpack_side(
    tokens: Int[Tensor, "B T"],
    segments: Int[Tensor, "B T"],
    positions: Int[Tensor, "B T"],
    *,
    line: Int[Tensor, "B K"],
    device_lengths: Int[Tensor, " M"],
    lengths: list[int],
) -> Sentences:
    """Copy segment k of row b to line line[b, k - 1]."""
    num_lines = device_lengths.shape[0]
    is_real, longest = segments > 0, max(1, *lengths)
    indices = line.gather(1, (segments - 1).clamp(min=0)) * longest + positions
    beyond = num_lines * longest  # the index of padding, which is cut off
    flat = tokens.new_zeros(beyond + 1).scatter_(0, torch.where(is_real, indices, beyond).flatten(), tokens.flatten())
    mask = torch.arange(longest, device=tokens.device) < device_lengths[:, None]
    indices = torch.where(is_real, indices, 0)
    return Sentences(flat[:beyond].view(num_lines, longest), mask, lengths[:num_lines], indices, is_real)


# ---- model and decoder state


@dataclass
class BaselineState(ABC):
    """The constant part of a decoder state: the memory and its keys."""

    memory: Memory
    keys: Float[Tensor, "B S D"]
    num_beams: int

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """Rows in the state: sentences times beams."""

    @abstractmethod
    def reorder(self, rows: Int[Tensor, " R"]) -> None:
        """Make row r continue the hypothesis of row rows[r]."""

    def select(self, sentences: Int[Tensor, " B"]) -> None:
        """Keep only these sentences."""
        beams = torch.arange(self.num_beams, device=sentences.device)
        self.reorder((sentences[:, None] * self.num_beams + beams).flatten())
        self.memory = Memory(self.memory.values[sentences], self.memory.mask[sentences])
        self.keys = self.keys[sentences]


class BaselineModel(nn.Module, ABC):
    """A model that reads sentences instead of packed rows; subclasses implement `Seq2Seq`."""

    compiles = False
    """Shapes change from batch to batch, so torch.compile is not worthwhile."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.tables = Embeddings(config)

    @property
    def max_length(self) -> int:
        """Longest source or target, in tokens, that the model accepts."""
        return self.config.max_length

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target_input: Int[Tensor, "B T"],
        source_segments: Int[Tensor, "B S"] | None = None,
        target_segments: Int[Tensor, "B T"] | None = None,
        source_positions: Int[Tensor, "B S"] | None = None,
        target_positions: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits of every next target token; rows are unpacked into sentences first."""
        sources, targets = unpack_pair(
            source, target_input, source_segments, target_segments, source_positions, target_positions
        )
        x = self.read(targets, self.encode(sources.tokens, sources.mask))
        return self.tables.logits(targets.to_rows(x))

    @abstractmethod
    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]) -> Memory:
        """Read the sources; the mask is True on real tokens."""

    @abstractmethod
    def read(self, targets: Sentences, memory: Memory) -> Float[Tensor, "M L D"]:
        """Read whole targets from their start; returns the input of the output projection."""
