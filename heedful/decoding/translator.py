"""The translator: texts in, `Translation`s out, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from heedful.build import resolve_device
from heedful.checkpoint import load_model
from heedful.config import DecodingConfig, from_mapping, to_mapping
from heedful.decoding import beam, greedy, sampling
from heedful.decoding.batching import make_batches, pad
from heedful.decoding.constraints import Rule, SpecialTokens
from heedful.decoding.hypothesis import Alternative, Hypothesis, Translation, empty_translation
from heedful.decoding.scoring import alignment_weights, force
from heedful.decoding.segments import Segment, SplitRule, join_text, split_text
from heedful.errors import DecodingError
from heedful.model.seq2seq import Seq2Seq
from heedful.text.tokenizer import Tokenizer

SEARCHES = {"beam": beam.search, "greedy": greedy.search, "sampling": sampling.search}
MakeRule = Callable[[Sequence[str], Sequence[int], torch.device], Rule]
"""(sentences, longest length allowed for each, device) -> a rule that their translations must keep."""
SHORTEST_USUAL_LENGTH = 32  # tokens: below this no line counts as long, however short the training sentences were


class Job(NamedTuple):
    """One sentence to decode. Equal jobs have equal results, so each is done once."""

    source: tuple[int, ...]
    prefix: tuple[int, ...]
    text: str


class Outcome(NamedTuple):
    """What decoding a job gave: hypotheses, best first, and the alignment weights of the best when asked for."""

    hypotheses: list[Hypothesis]
    attention: np.ndarray | None


class Translator:
    """A model, its tokenizer and the way to search, ready to translate.

    Nothing in it changes while it translates, so several threads may share one.
    """

    def __init__(
        self,
        model: Seq2Seq,
        tokenizer: Tokenizer,
        config: DecodingConfig | None = None,
        *,
        device: torch.device | str = "cpu",
        usual_length: int | None = None,
        target_language: str | None = None,
        make_rule: MakeRule | None = None,
    ) -> None:
        """Translate on `device`, where the model already is.

        `usual_length`: longest source, in tokens, that is usual for the model; longer lines are split into sentences,
        and sentences over twice that are cut. None: only what the model cannot take at all is split.
        `target_language`: the language that a model with one direction translates into. `make_rule`: makes the rule
        that translations of some sentences must keep, beside those of the configuration.
        """
        self.model = model
        self.tokenizer = tokenizer
        self.config = config or DecodingConfig()
        self.device = torch.device(device)
        self.usual_length = min(usual_length or model.max_length, model.max_length)
        self.longest = min(2 * self.usual_length, model.max_length)
        self.target_language = target_language
        self.make_rule = make_rule
        self.special = special_tokens(tokenizer)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> Translator:
        """The translator of a model directory, with the settings saved there."""
        where = resolve_device(device)
        loaded = load_model(path, device=where)
        typical = loaded.details.get("lengths", {}).get("source_p99")
        return cls(
            cast(Seq2Seq, loaded.model),
            loaded.tokenizer,
            loaded.config.decoding,
            device=where,
            usual_length=max(int(typical), SHORTEST_USUAL_LENGTH) if typical else None,
            target_language=loaded.config.data.target_language,
        )

    def translate(
        self,
        texts: Sequence[str],
        *,
        target_language: str | None = None,
        target_prefix: Sequence[str | None] | None = None,
        align: bool = False,
        **settings: Any,
    ) -> list[Translation]:
        """Translate texts of any length; the results come in their order.

        `target_prefix`: for each text what its translation must begin with, or None. `align`: also tell which source
        token each target token comes from. `settings` change the search for this call: any key of `DecodingConfig`,
        such as `beam_size=8`, `num_best=4`, `method="sampling"`.
        """
        self._check_texts(texts, target_prefix, target_language)
        config = from_mapping(DecodingConfig, {**to_mapping(self.config), **settings}, "decoding")
        rule = SplitRule(
            split=config.split,
            usual_length=self.usual_length,
            longest=self.longest,
            num_tokens=lambda text: len(self.tokenizer.encode_source(text, target_language)),
        )
        segments = [split_text(text, rule) for text in texts]
        prefixes = [self._encode_prefix(text) for text in target_prefix or [None] * len(texts)]
        jobs = [
            [
                self._make_job(segment, prefix if index == 0 else (), number, target_language, config)
                for index, segment in enumerate(parts)
            ]
            for number, (parts, prefix) in enumerate(zip(segments, prefixes, strict=True), start=1)
        ]
        outcomes = self._decode(list(dict.fromkeys(job for line in jobs for job in line)), config, align=align)
        return [
            self._assemble(parts, line, [outcomes[job] for job in line], config, align=align)
            for parts, line in zip(segments, jobs, strict=True)
        ]

    def translate_lines(
        self,
        lines: Iterable[str],
        *,
        target_language: str | None = None,
        align: bool = False,
        chunk_size: int = 1024,
        **settings: Any,
    ) -> Iterator[Translation]:
        """Translate a stream, one translation a line in the same order, reading `chunk_size` lines at a time."""
        lines = iter(lines)
        while chunk := [line.rstrip("\r\n") for line in islice(lines, chunk_size)]:
            yield from self.translate(chunk, target_language=target_language, align=align, **settings)

    def _check_texts(
        self, texts: Sequence[str], target_prefix: Sequence[str | None] | None, target_language: str | None
    ) -> None:
        for name, value in (("texts", texts), ("target_prefix", target_prefix)):
            if isinstance(value, str):
                raise TypeError(f"{name} is one string; pass a list of strings, such as [{value[:20]!r}].")
        for number, text in enumerate(texts, start=1):
            if not isinstance(text, str):
                raise TypeError(f"text {number} is a {type(text).__name__}, not a string.")
        if target_prefix is not None and len(target_prefix) != len(texts):
            raise DecodingError(
                f"{len(target_prefix)} target prefixes for {len(texts)} texts; give one (or None) for each."
            )
        known = self.target_language
        if target_language is not None and not self.tokenizer.tags and known not in (None, target_language):
            raise DecodingError(f"this model translates into {known!r} only, not into {target_language!r}.")

    def _encode_prefix(self, text: str | None) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode_prefix(text)) if text else ()

    def _make_job(
        self,
        segment: Segment,
        prefix: tuple[int, ...],
        number: int,
        target_language: str | None,
        config: DecodingConfig,
    ) -> Job:
        job = Job(tuple(self.tokenizer.encode_source(segment.text, target_language)), prefix, segment.text)
        if len(job.source) > self.model.max_length:
            raise DecodingError(
                f"text {number} has a line of {len(job.source)} tokens, and the model takes {self.model.max_length}; "
                f"let it be split with decoding.split=long."
            )
        if len(prefix) > (limit := self._max_length(job, config)):
            raise DecodingError(
                f"the target prefix of text {number} has {len(prefix)} tokens, more than its longest allowed "
                f"translation ({limit}); shorten it or raise decoding.max_length or max_extra_length."
            )
        return job

    def _max_length(self, job: Job, config: DecodingConfig) -> int:
        """Most tokens, without the end token, of a translation; the start token takes a place in the model too."""
        wanted = config.max_length or self._num_source_tokens(job) + config.max_extra_length
        return min(wanted, self.model.max_length - 1)

    def _num_source_tokens(self, job: Job) -> int:
        return len(job.source) - 1 - self._num_tags

    @property
    def _num_tags(self) -> int:
        return 1 if self.tokenizer.tags else 0

    def _decode(self, jobs: list[Job], config: DecodingConfig, *, align: bool) -> dict[Job, Outcome]:
        """Search for all jobs, batch by batch."""
        rows = {"beam": config.beam_size, "greedy": 1, "sampling": config.num_best}[config.method]
        outcomes: dict[Job, Outcome] = {}
        lengths = [len(job.source) for job in jobs]
        with evaluating(self.model):
            for batch in make_batches(lengths, tokens_per_batch=config.tokens_per_batch, rows_per_sentence=rows):
                members = [jobs[index] for index in batch]
                source, source_mask = pad(
                    [job.source for job in members], pad_id=self.special.pad_id, device=self.device
                )
                max_lengths = [self._max_length(job, config) for job in members]
                found = SEARCHES[config.method](
                    self.model,
                    source,
                    source_mask,
                    config,
                    self.special,
                    max_lengths=max_lengths,
                    prefix=[job.prefix for job in members],
                    rule=self._rule(members, max_lengths),
                )
                attention = self._align(source, source_mask, found) if align else [None] * len(members)
                outcomes.update(zip(members, map(Outcome, found, attention), strict=True))
        return outcomes

    def _rule(self, jobs: Sequence[Job], max_lengths: Sequence[int]) -> Rule | None:
        return self.make_rule([job.text for job in jobs], max_lengths, self.device) if self.make_rule else None

    def _align(self, source: Tensor, source_mask: Tensor, found: list[list[Hypothesis]]) -> list[np.ndarray | None]:
        """The weights between the words of each source and of its best translation, special tokens left out."""
        targets = [hypotheses[0].tokens for hypotheses in found]
        forced = force(self.model, source, source_mask, targets, bos_id=self.special.bos_id, need_weights=True)
        return [
            alignment_weights(score.attention)[:-1, self._num_tags : -1].numpy()
            if score.attention is not None
            else None
            for score in forced
        ]

    def _assemble(
        self, segments: list[Segment], jobs: list[Job], outcomes: list[Outcome], config: DecodingConfig, *, align: bool
    ) -> Translation:
        """One translation of the outcomes of all segments of a text."""
        if not segments:
            return empty_translation(align=align)
        combinations = best_combinations([outcome.hypotheses for outcome in outcomes], config.num_best)
        n_best = [self._alternative(segments, combination) for combination in combinations]
        best = n_best[0]
        attention = block_diagonal([o.attention for o in outcomes if o.attention is not None]) if align else None
        return Translation(
            text=best.text,
            tokens=best.tokens,
            log_prob=best.log_prob,
            score=best.score,
            n_best=n_best,
            source_tokens=[
                piece for job in jobs for piece in self.tokenizer.source_pieces(job.source[self._num_tags : -1])
            ],
            finished=all(hypothesis.finished for hypothesis in combinations[0]),
            sentences=len(segments),
            alignment=[(int(row.argmax()), t) for t, row in enumerate(attention)] if attention is not None else None,
            attention=attention,
        )

    def _alternative(self, segments: list[Segment], hypotheses: list[Hypothesis]) -> Alternative:
        ids = [hypothesis.tokens[:-1] for hypothesis in hypotheses]
        return Alternative(
            text=join_text(segments, [one_line(self.tokenizer.decode(tokens)) for tokens in ids]),
            tokens=[piece for tokens in ids for piece in self.tokenizer.pieces(tokens)],
            log_prob=sum(hypothesis.log_prob for hypothesis in hypotheses),
            score=sum(hypothesis.score for hypothesis in hypotheses),
        )


def special_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """What the search must know of a tokenizer: a translation holds no unknown token and no language tag."""
    tags = [tokenizer.encode_source("", tag)[0] for tag in tokenizer.tags] if tokenizer.joint else []
    return SpecialTokens(
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        pad_id=tokenizer.pad_id,
        forbidden=(tokenizer.unk_id, *tags),
    )


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


def one_line(text: str) -> str:
    """A translated sentence without white space around it and without line breaks, whatever bytes the model wrote."""
    return text.replace("\r", " ").replace("\n", " ").strip()


def best_combinations(choices: Sequence[list[Hypothesis]], count: int) -> list[list[Hypothesis]]:
    """The `count` best ways to pick one hypothesis for every sentence, by the sum of their scores."""
    combinations: list[tuple[float, list[Hypothesis]]] = [(0.0, [])]
    for hypotheses in choices:
        longer = [(score + h.score, [*picked, h]) for score, picked in combinations for h in hypotheses]
        combinations = sorted(longer, key=lambda combination: -combination[0])[:count]
    return [picked for _, picked in combinations]


def block_diagonal(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """The weights of several sentences as those of one text: no sentence looks at another."""
    whole = np.zeros((sum(b.shape[0] for b in blocks), sum(b.shape[1] for b in blocks)), dtype=np.float32)
    row = column = 0
    for block in blocks:
        whole[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return whole
