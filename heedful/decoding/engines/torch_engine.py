"""The PyTorch engine: any device, every search method, constraint and architecture.

Sentences of similar length share a batch, up to a number of tokens or with fixed shapes. The order of the sums in a
matrix product may depend on its shape. For results to be bit-identical whatever else is in the batch, the shape of a
sentence's batch must depend on the sentence only, and its position in the batch must not matter
(`heedful.model.batch_invariance`), since the rows of a product are divided among threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from heedful.config import DecodingConfig
from heedful.decoding.cuda_graph.search import CudaGraphSearch, unsupported_reason
from heedful.decoding.search import alignment_weights, beam_search, force_decode, greedy_search, sample
from heedful.errors import ConfigError
from heedful.model.batch_invariance import ALIGNMENT
from heedful.model.seq2seq import Seq2Seq
from heedful.model_dir.save_load import AlignmentSource, default_source
from heedful.search_types import (
    MIN_COUNTED_TOKENS,
    AttentionWeights,
    ConstraintFactory,
    DecodeRequest,
    DecodeResult,
    Hypothesis,
    SpecialTokens,
    longest_first,
    rows_per_sentence,
)
from heedful.tensor_types import Bool, Int

SEARCHES = {"beam": beam_search, "greedy": greedy_search, "sampling": sample}


class TorchEngine:
    """A model on a device, with the search methods of this package."""

    def __init__(
        self,
        model: Seq2Seq,
        special: SpecialTokens,
        *,
        device: torch.device | str = "cpu",
        num_tags: int = 0,
        use_cuda_graph: bool | None = None,
        alignment: AlignmentSource | None = None,
    ) -> None:
        """`model` is on `device` already; each source begins with `num_tags` language tags.

        `alignment`: the attention that alignments are read from; None: the default for the number of layers.
        `use_cuda_graph`: whether to search with CUDA graphs (`heedful.decoding.cuda_graph`); None: on GPUs, if
        supported.
        """
        self.model, self.special, self.num_tags = model, special, num_tags
        self.device, self.use_cuda_graph, self.alignment = torch.device(device), use_cuda_graph, alignment
        self._search: CudaGraphSearch | None = None

    @property
    def weights(self) -> str:
        """The type of the weights."""
        return str(next(self.model.parameters()).dtype).removeprefix("torch.")  # type: ignore[attr-defined]

    @property
    def max_length(self) -> int:
        """Maximum source and target length in tokens."""
        return self.model.max_length

    def decode(
        self,
        requests: Sequence[DecodeRequest],
        config: DecodingConfig,
        *,
        align: bool,
        constraint_factory: ConstraintFactory | None,
    ) -> dict[DecodeRequest, DecodeResult]:
        """Decode all requests with CUDA graphs if possible, else batch by batch.

        On CPUs with `batch_invariant`, the shape of a batch does not depend on the other sentences in it.
        """
        if config.shortlist:
            raise ConfigError("decoding.shortlist: the engine torch does not support a shortlist; use engine native.")
        if any(request.phrases for request in requests):
            raise ConfigError(
                "the engine torch does not support glossaries; use engine native, with method beam or greedy, on a CPU."
            )
        if self._uses_cuda_graph(requests, config, constraint_factory):
            with evaluating(self.model):
                return self._decode_with_cuda_graph(requests, config, align=align)
        results: dict[DecodeRequest, DecodeResult] = {}
        lengths = [len(request.source) for request in requests]
        if self.device.type != "cpu":
            config = replace(config, batch_invariant=False)  # fixed shapes are verified to be bit-exact on CPUs only
        sizes = {"tokens_per_batch": config.tokens_per_batch, "rows_per_sentence": rows_per_sentence(config)}
        batches = (
            make_fixed_shape_batches(lengths, **sizes) if config.batch_invariant else make_batches(lengths, **sizes)
        )
        with evaluating(self.model):
            for batch in batches:
                members = [requests[index] for index in batch]
                width = min(padded_width(len(members[0].source)), self.max_length) if config.batch_invariant else 0
                sources = [request.source for request in members]
                source, source_mask = pad(sources, pad_id=self.special.pad_id, device=self.device, width=width)
                max_lengths = [request.max_length for request in members]
                constraint = (
                    constraint_factory([request.text for request in members], max_lengths, self.device)
                    if constraint_factory
                    else None
                )
                found = SEARCHES[config.method](
                    self.model,
                    source,
                    source_mask,
                    config,
                    self.special,
                    max_lengths=max_lengths,
                    prefix=[request.prefix for request in members],
                    forbidden=[request.forbidden for request in members],
                    constraint=constraint,
                )
                attention = self._align(source, source_mask, found) if align else [None] * len(members)
                results.update(zip(members, map(DecodeResult, found, attention), strict=True))
        return results

    def _uses_cuda_graph(
        self, requests: Sequence[DecodeRequest], config: DecodingConfig, constraint_factory: ConstraintFactory | None
    ) -> bool:
        """Whether to use CUDA graphs; an error if they were requested but are not supported."""
        requested = self.device.type == "cuda" if self.use_cuda_graph is None else self.use_cuda_graph
        reason = (
            unsupported_reason(
                self.model, requests, config, constraint_factory=constraint_factory, special=self.special
            )
            if requested
            else None
        )
        if reason is not None and self.use_cuda_graph:
            raise ConfigError(f"the CUDA graph search does not support {reason}; leave use_cuda_graph unset.")
        return requested and reason is None

    def _decode_with_cuda_graph(
        self, requests: Sequence[DecodeRequest], config: DecodingConfig, *, align: bool
    ) -> dict[DecodeRequest, DecodeResult]:
        if self._search is None:
            self._search = CudaGraphSearch(self.model, self.special)  # type: ignore[arg-type]
        found = self._search.search(requests, config)
        results = {request: DecodeResult(hypotheses, None) for request, hypotheses in zip(requests, found, strict=True)}
        if not align:
            return results
        lengths = [len(request.source) for request in requests]
        for batch in make_batches(lengths, tokens_per_batch=config.tokens_per_batch, rows_per_sentence=1):
            sources = [requests[index].source for index in batch]
            source, source_mask = pad(sources, pad_id=self.special.pad_id, device=self.device)
            attention = self._align(source, source_mask, [found[index] for index in batch])
            for index, weights in zip(batch, attention, strict=True):
                results[requests[index]] = DecodeResult(found[index], weights)
        return results

    def _align(
        self, source: Tensor, source_mask: Tensor, found: list[list[Hypothesis]]
    ) -> list[AttentionWeights | None]:
        """The attention weights between each source and its best translation, without special tokens."""
        targets = [hypotheses[0].tokens for hypotheses in found]
        forced = force_decode(self.model, source, source_mask, targets, bos_id=self.special.bos_id, need_weights=True)
        aligned: list[AttentionWeights | None] = []
        for score in forced:
            assert score.attention is not None, "it was asked for"
            chosen = self.alignment or default_source(score.attention.shape[1])
            weights = AttentionWeights.of(alignment_weights(score.attention, chosen).numpy())
            aligned.append(chosen.rows(weights, self.num_tags))
        return aligned


@contextmanager
def evaluating(model: Seq2Seq) -> Iterator[None]:
    """Switch a training model to evaluation mode temporarily."""
    if not (isinstance(model, nn.Module) and model.training):
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()


FIXED_BATCH_SIZE, WIDTH_MULTIPLE = 16, 16
"""For batch invariance: the number of sentences in a batch, and the multiple that its width is rounded up to."""


def make_batches(lengths: Sequence[int], *, tokens_per_batch: int, rows_per_sentence: int) -> list[list[int]]:
    """Sentence indices of each batch, longest first; padding and beams count as tokens."""
    batches: list[list[int]] = []
    for index in longest_first(lengths):
        longest = max(lengths[batches[-1][0]], MIN_COUNTED_TOKENS) if batches else 0
        if batches and (len(batches[-1]) + 1) * longest * rows_per_sentence <= tokens_per_batch:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def make_fixed_shape_batches(
    lengths: Sequence[int], *, tokens_per_batch: int, rows_per_sentence: int
) -> list[list[int]]:
    """Sentence indices of each batch, whose size depends on `padded_width` only.

    Sizes are multiples of `ALIGNMENT`: with 5 rows, for example, MKL's division among threads would change some bits.
    The last batch of each width is filled with copies of its first sentence, whose results are discarded.
    """
    by_width: dict[int, list[int]] = {}
    for index in longest_first(lengths):
        by_width.setdefault(padded_width(lengths[index]), []).append(index)
    batches: list[list[int]] = []
    for width, members in by_width.items():
        size = min(FIXED_BATCH_SIZE, tokens_per_batch // (width * rows_per_sentence)) // ALIGNMENT * ALIGNMENT or 1
        for start in range(0, len(members), size):
            batch = members[start : start + size]
            batches.append([*batch, *[batch[0]] * (size - len(batch))])
    return batches


def padded_width(length: int) -> int:
    """The width that sentences of this length are padded to."""
    return -(-length // WIDTH_MULTIPLE) * WIDTH_MULTIPLE


def pad(
    sequences: Sequence[Sequence[int]], *, pad_id: int, device: torch.device, width: int = 0
) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """Sequences as one padded tensor of at least this width, and the mask of real tokens."""
    width = max(width, *(len(sequence) for sequence in sequences))
    table = torch.tensor([[*sequence, *[pad_id] * (width - len(sequence))] for sequence in sequences], device=device)
    lengths = torch.tensor([len(sequence) for sequence in sequences], device=device)
    return table, torch.arange(width, device=device) < lengths[:, None]
