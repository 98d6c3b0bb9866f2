"""The engine that can do everything: PyTorch, on any device, with every search, rule and model of ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from heedful.config import DecodingConfig
from heedful.decoding import beam, greedy, sampling
from heedful.decoding.batching import even_width, make_batches, make_even_batches, pad
from heedful.decoding.cuda_graph.search import CudaGraphSearch, unsupported_reason
from heedful.decoding.engines import Job, MakeRule, Outcome
from heedful.decoding.forced_decoding import alignment_weights, force
from heedful.errors import ConfigError
from heedful.model.seq2seq import Seq2Seq
from heedful.model_dir.alignment_source import AlignmentSource, default_source
from heedful.search_types import AttentionWeights, Hypothesis, SpecialTokens, rows_per_sentence

SEARCHES = {"beam": beam.search, "greedy": greedy.search, "sampling": sampling.search}


class TorchEngine:
    """A model on a device, and the searches of this package."""

    def __init__(
        self,
        model: Seq2Seq,
        special: SpecialTokens,
        *,
        device: torch.device | str = "cpu",
        num_tags: int = 0,
        captured: bool | None = None,
        alignment: AlignmentSource | None = None,
    ) -> None:
        """Search on `device`, where the model already is; each source begins with `num_tags` tags.

        `alignment`: the attention that alignments are read from; None: what suits most models.

        `captured`: search without waiting for the host (`heedful.decoding.cuda_graph`); None: on GPUs, where it fits.
        """
        self.model, self.special, self.num_tags = model, special, num_tags
        self.device, self.captured, self.alignment = torch.device(device), captured, alignment
        self._search: CudaGraphSearch | None = None

    @property
    def weights(self) -> str:
        """How the weights are kept."""
        return str(next(self.model.parameters()).dtype).removeprefix("torch.")  # type: ignore[attr-defined]

    @property
    def max_length(self) -> int:
        """Longest source or target, in tokens, that the model accepts."""
        return self.model.max_length

    def decode(
        self, jobs: Sequence[Job], config: DecodingConfig, *, align: bool, make_rule: MakeRule | None
    ) -> dict[Job, Outcome]:
        """Search for all jobs: in the slots of a captured search where that fits, else batch by batch.

        On a CPU batches have shapes that mates have no part in, unless the search shall be fast.
        """
        if config.shortlist:
            raise ConfigError("decoding.shortlist: the engine torch looks at all words; use engine native.")
        if self._is_captured(jobs, config, make_rule):
            with evaluating(self.model):
                return self._decode_captured(jobs, config, align=align)
        outcomes: dict[Job, Outcome] = {}
        lengths = [len(job.source) for job in jobs]
        if self.device.type != "cpu":
            config = replace(config, batch_invariant=False)  # what even batches do for bits is shown for CPUs only
        sizes = {"tokens_per_batch": config.tokens_per_batch, "rows_per_sentence": rows_per_sentence(config)}
        batches = make_even_batches(lengths, **sizes) if config.batch_invariant else make_batches(lengths, **sizes)
        with evaluating(self.model):
            for batch in batches:
                members = [jobs[index] for index in batch]
                width = min(even_width(len(members[0].source)), self.max_length) if config.batch_invariant else 0
                sources = [job.source for job in members]
                source, source_mask = pad(sources, pad_id=self.special.pad_id, device=self.device, width=width)
                max_lengths = [job.max_length for job in members]
                rule = make_rule([job.text for job in members], max_lengths, self.device) if make_rule else None
                found = SEARCHES[config.method](
                    self.model,
                    source,
                    source_mask,
                    config,
                    self.special,
                    max_lengths=max_lengths,
                    prefix=[job.prefix for job in members],
                    forbidden=[job.forbidden for job in members],
                    rule=rule,
                )
                attention = self._align(source, source_mask, found) if align else [None] * len(members)
                outcomes.update(zip(members, map(Outcome, found, attention), strict=True))
        return outcomes

    def _is_captured(self, jobs: Sequence[Job], config: DecodingConfig, make_rule: MakeRule | None) -> bool:
        """Whether the captured search is wanted and fits; asked for by name, it is refused with the reason."""
        wanted = self.device.type == "cuda" if self.captured is None else self.captured
        reason = (
            unsupported_reason(self.model, jobs, config, make_rule=make_rule, special=self.special) if wanted else None
        )
        if reason is not None and self.captured:
            raise ConfigError(f"the captured search cannot do {reason}; leave the choice of search to the engine.")
        return wanted and reason is None

    def _decode_captured(self, jobs: Sequence[Job], config: DecodingConfig, *, align: bool) -> dict[Job, Outcome]:
        if self._search is None:
            self._search = CudaGraphSearch(self.model, self.special)  # type: ignore[arg-type]
        found = self._search.search(jobs, config)
        outcomes = {job: Outcome(hypotheses, None) for job, hypotheses in zip(jobs, found, strict=True)}
        if not align:
            return outcomes
        lengths = [len(job.source) for job in jobs]
        for batch in make_batches(lengths, tokens_per_batch=config.tokens_per_batch, rows_per_sentence=1):
            sources = [jobs[index].source for index in batch]
            source, source_mask = pad(sources, pad_id=self.special.pad_id, device=self.device)
            attention = self._align(source, source_mask, [found[index] for index in batch])
            for index, weights in zip(batch, attention, strict=True):
                outcomes[jobs[index]] = Outcome(found[index], weights)
        return outcomes

    def _align(
        self, source: Tensor, source_mask: Tensor, found: list[list[Hypothesis]]
    ) -> list[AttentionWeights | None]:
        """The weights between the words of each source and of its best translation, special tokens left out."""
        targets = [hypotheses[0].tokens for hypotheses in found]
        forced = force(self.model, source, source_mask, targets, bos_id=self.special.bos_id, need_weights=True)
        aligned: list[AttentionWeights | None] = []
        for score in forced:
            assert score.attention is not None, "it was asked for"
            chosen = self.alignment or default_source(score.attention.shape[1])
            weights = AttentionWeights.of(alignment_weights(score.attention, chosen).numpy())
            aligned.append(chosen.rows(weights, self.num_tags))
        return aligned


@contextmanager
def evaluating(model: Seq2Seq) -> Iterator[None]:
    """Switch dropout off, and on again afterwards if the model was training."""
    if not (isinstance(model, nn.Module) and model.training):
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()
