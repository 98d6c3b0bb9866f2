"""The translator: texts in, `Translation`s out, in the same order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.checkpoint.exported import RECORD
from heedful.checkpoint.finding import REMEDY, box_model, find_model
from heedful.config import DecodingConfig
from heedful.decoding.engines.interface import Engine, Job, MakeRule, Outcome, choose_engine
from heedful.decoding.hypothesis import Alternative, Hypothesis, Translation, empty_translation
from heedful.decoding.protection import COPIED, COPIED_JOB, cells_of, keep_spans, masked_prefix, restored, split_cells
from heedful.decoding.segments import Segment, SplitRule, join_text, lines_of, split_text
from heedful.decoding.special_tokens import special_tokens
from heedful.decoding.spelling import Spelling
from heedful.errors import ConfigError, DecodingError, TextError
from heedful.request import from_mapping, to_mapping
from heedful.text.corpus import Direction
from heedful.text.directions import Choice, Directions
from heedful.text.protected_spans import without_spans
from heedful.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np

SHORTEST_USUAL_LENGTH = 32  # tokens: below this no line counts as long, however short the training sentences were


class Translator:
    """A model, its tokenizer and the way to search, ready to translate.

    Nothing in it changes while it translates, so several threads may share one.
    """

    def __init__(
        self,
        model: object,
        tokenizer: Tokenizer,
        config: DecodingConfig | None = None,
        *,
        device: Any = "cpu",
        usual_length: int | None = None,
        target_language: str | None = None,
        directions: Directions | None = None,
        make_rule: MakeRule | None = None,
    ) -> None:
        """Translate with `model`: a `Seq2Seq`, which torch runs on `device`, where it already is, or an `Engine`.

        `usual_length`: longest source, in tokens, that is usual for the model; longer lines are split into sentences,
        and sentences over twice that are cut. None: only what the model cannot take at all is split.
        `target_language`: the language that a model with one direction translates into. `directions`: what a model with
        several has learned. `make_rule`: makes the rule that translations of some sentences must keep, beside those of
        the configuration.
        """
        self.model = model
        self.tokenizer = tokenizer
        self.config = config or DecodingConfig()
        self.special = special_tokens(tokenizer)
        self.engine = model if isinstance(model, Engine) else self._torch_engine(model, device)
        self.max_length = self.engine.max_length
        self.usual_length = min(usual_length or self.max_length, self.max_length)
        self.longest = min(2 * self.usual_length, self.max_length)
        self.target_language = target_language
        self.directions = directions or Directions((Direction(None, target_language),), tokenizer.tags)
        self.make_rule = make_rule

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        device: str = "auto",
        engine: str = "auto",
        quantization: str | None = None,
    ) -> Translator:
        """The translator of a model directory, with the settings saved there.

        `path`: a directory, or the name of an installed model; None: the model that came with the package.

        `engine`: "torch" can do everything; "native" is int8 on CPUs; "ctranslate2" also reads what `heedful export`
        wrote; "auto" takes native on CPUs, torch on GPUs and for what native cannot do, CTranslate2 for what was
        exported for it. `engine_for` tells which it is.
        `quantization`: how the weights are kept, such as "int8"; None: for native int8, for CTranslate2 float32, or as
        they were exported. torch has "float32" and "bfloat16", in which it also computes; None: as they were saved.
        """
        path = box_model() if path is None else find_model(path)
        if path is None:
            raise ConfigError(f"no model came with this heedful; give {REMEDY}")
        chosen = choose_engine(engine, exported=(path / RECORD).is_file())
        where: Any = None
        model: object
        if chosen == "auto":
            from heedful.decoding.engines.auto import load_auto

            found = load_auto(path, device=device, quantization=quantization, load_torch=partial(torch_engine_of, path))
            if found is not None:
                return cls._of(*found)
        if chosen == "ctranslate2":
            from heedful.decoding.engines.ctranslate2_engine import load_engine

            model, loaded = load_engine(path, device=device, quantization=quantization)
        elif chosen == "native":
            from heedful.decoding.engines.native_engine import load_native

            model, loaded = load_native(path, device=device, quantization=quantization)
        else:
            model, loaded, where = load_torch(path, device, quantization)
        return cls._of(model, loaded, where)

    @classmethod
    def _of(cls, model: object, loaded: Any, device: Any = None) -> Translator:
        typical = loaded.details.get("lengths", {}).get("source_p99")
        return cls(
            model,
            loaded.tokenizer,
            loaded.config.decoding,
            device=device,
            usual_length=max(int(typical), SHORTEST_USUAL_LENGTH) if typical else None,
            target_language=loaded.config.data.target_language,
            directions=Directions.of(loaded.config.data, loaded.tokenizer.tags, loaded.details),
        )

    def engine_for(self, **settings: Any) -> tuple[str, str]:
        """The name of the engine that translates with these settings, and how it keeps the weights."""
        engine = self._engine_for(self._search_settings(settings))
        return getattr(engine, "name", "torch"), getattr(engine, "weights", "float32")

    def uses_shortlist(self, **settings: Any) -> bool:
        """Whether translations with these settings are chosen from the model's shortlist, not from all words."""
        config = self._search_settings(settings)
        engine = self._engine_for(config)
        return bool(engine.uses_shortlist(config)) if hasattr(engine, "uses_shortlist") else False

    def _engine_for(self, config: DecodingConfig) -> Any:
        from heedful.decoding.engines.auto import Auto

        return self.engine.engine_for(config, self.make_rule) if isinstance(self.engine, Auto) else self.engine

    def _search_settings(self, settings: Mapping[str, Any]) -> DecodingConfig:
        return from_mapping(DecodingConfig, {**to_mapping(self.config), **settings}, "decoding")

    def translate(
        self,
        texts: Sequence[str],
        *,
        target_language: str | Mapping[str, str] | None = None,
        source_language: str | None = None,
        target_prefix: Sequence[str | None] | None = None,
        align: bool = False,
        **settings: Any,
    ) -> list[Translation]:
        """Translate texts of any length; the results come in their order.

        `target_language`: the language to translate into, or one for each source language, such as {"en": "de"}; None:
        in a model with several, each text goes where its own language leaves one choice, or into English.
        `source_language`: the language of all texts; None: in a model with several, each text's is detected.
        `target_prefix`: for each text what its translation must begin with, or None. `align`: also tell which source
        token each target token comes from. `settings` change the search for this call: any key of `DecodingConfig`,
        such as `beam_size=8`, `num_best=4`, `method="sampling"`.
        """
        self._check_texts(texts, target_prefix, target_language)
        config = self._search_settings(settings)
        choices = self._choose(texts, source_language, target_language, protects=self._protects(config))
        spelling = Spelling(self.tokenizer)
        prefixes = list(target_prefix or [None] * len(texts))
        segments = self._split(texts, prefixes, choices, spelling, config)
        spelling.read(
            (part.text, c.target)
            for parts, c in zip(segments, choices, strict=True)
            for part in parts
            if not part.copied
        )

        def make_job(place: int, part: Segment, prefix: str | None) -> Job:
            start = self._encode_prefix(masked_prefix(prefix, part))
            return self._make_job(spelling, part.text, choices[place].target, start, place + 1, config)

        def search(jobs: Sequence[Job], config: DecodingConfig) -> dict[Job, Outcome]:
            found = self.engine.decode(jobs, config, align=align, make_rule=self.make_rule) if jobs else {}
            spelling.write(one.tokens[:-1] for outcome in found.values() for one in outcome.hypotheses)
            return found

        jobs = []
        for place, (parts, prefix) in enumerate(zip(segments, prefixes, strict=True)):
            first = next((index for index, part in enumerate(parts) if not part.copied), None)
            jobs.append(
                [
                    COPIED_JOB if part.copied else make_job(place, part, prefix if index == first else None)
                    for index, part in enumerate(parts)
                ]
            )
        kept = keep_spans(
            segments, jobs, prefixes, config=config, align=align, spelling=spelling, search=search, make_job=make_job
        )
        different = dict.fromkeys(job for line in jobs for job in line if job not in kept and job is not COPIED_JOB)
        outcomes = {COPIED_JOB: COPIED, **kept, **search(list(different), config)}
        return [
            with_languages(
                self._assemble(parts, line, [outcomes[job] for job in line], spelling, config, align=align), choice
            )
            for parts, line, choice in zip(segments, jobs, choices, strict=True)
        ]

    def _split(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str | None],
        choices: Sequence[Choice],
        spelling: Spelling,
        config: DecodingConfig,
    ) -> list[list[Segment]]:
        """The segments of each text, with its spans masked if they are protected."""
        rules = [self._split_rule(config, spelling, choice.target) for choice in choices]
        if not self._protects(config):
            if config.split == "long":  # which asks for the length of each line
                spelling.read(
                    (line, c.target) for text, c in zip(texts, choices, strict=True) for line in lines_of(text)
                )
            return [split_text(text, rule) for text, rule in zip(texts, rules, strict=True)]
        cells = [cells_of(text) for text in texts]
        if config.split == "long":
            spelling.read(
                (cell.text, c.target) for row, c in zip(cells, choices, strict=True) for cell in row if not cell.copied
            )
        return [
            split_cells(row, rule, keep_start=bool(prefix))
            for row, rule, prefix in zip(cells, rules, prefixes, strict=True)
        ]

    def _protects(self, config: DecodingConfig) -> bool:
        """Whether spans are kept: as the configuration says, else in a model of languages. Never beside a rule."""
        wanted = self.directions.are_languages if config.protect is None else config.protect
        return wanted and self.make_rule is None  # a rule is about the tokens of the whole sentence

    def translate_lines(
        self,
        lines: Iterable[str],
        *,
        target_language: str | Mapping[str, str] | None = None,
        source_language: str | None = None,
        align: bool = False,
        chunk_size: int = 1024,
        **settings: Any,
    ) -> Iterator[Translation]:
        """Translate a stream, one translation a line in the same order, reading `chunk_size` lines at a time."""
        lines = iter(lines)
        languages: Any = {"target_language": target_language, "source_language": source_language}
        behind = 0
        while chunk := [line.rstrip("\r\n") for line in islice(lines, chunk_size)]:
            try:
                translations = self.translate(chunk, **languages, align=align, **settings)
            except TextError as error:
                number = behind + error.number
                raise TextError(number, error.problem, f"line {number}") from None
            yield from translations
            behind += len(chunk)

    def _choose(
        self,
        texts: Sequence[str],
        source_language: str | None,
        target_language: str | Mapping[str, str] | None,
        *,
        protects: bool,
    ) -> list[Choice]:
        """The languages of each text."""
        choices = []
        for number, text in enumerate(texts, start=1):
            try:
                prose = without_spans(text) if protects and source_language is None else text
                choices.append(self.directions.choose(prose, source=source_language, target=target_language))
            except DecodingError as error:
                raise TextError(number, str(error)) from None
        return choices

    def _check_texts(
        self,
        texts: Sequence[str],
        target_prefix: Sequence[str | None] | None,
        target_language: str | Mapping[str, str] | None,
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
        if isinstance(target_language, str) and not self.tokenizer.tags and known not in (None, target_language):
            raise DecodingError(f"this model translates into {known!r} only, not into {target_language!r}.")

    def _encode_prefix(self, text: str | None) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode_prefix(text)) if text else ()

    def _split_rule(self, config: DecodingConfig, spelling: Spelling, target_language: str | None) -> SplitRule:
        return SplitRule(
            split=config.split,
            usual_length=self.usual_length,
            longest=self.longest,
            num_tokens=lambda text: spelling.count(text, target_language),
        )

    def _make_job(
        self,
        spelling: Spelling,
        text: str,
        target_language: str | None,
        prefix: tuple[int, ...],
        number: int,
        config: DecodingConfig,
    ) -> Job:
        source = spelling.ids(text, target_language)
        if len(source) > self.max_length:
            raise TextError(
                number,
                f"has a line of {len(source)} tokens, and the model takes {self.max_length}; "
                f"let it be split with decoding.split=long.",
            )
        limit = self._max_length(len(source) - 1 - self._num_tags, config)
        if len(prefix) > limit:
            raise TextError(
                number,
                f"has a target prefix of {len(prefix)} tokens, more than its longest allowed translation ({limit}); "
                f"shorten it or raise decoding.max_length or max_extra_length.",
            )
        return Job(source, prefix, text, limit)

    def _max_length(self, num_source_tokens: int, config: DecodingConfig) -> int:
        """Most tokens, without the end token, of a translation; the start token takes a place in the model too."""
        wanted = config.max_length or num_source_tokens + config.max_extra_length
        return min(wanted, self.max_length - 1)

    @property
    def _num_tags(self) -> int:
        return 1 if self.tokenizer.tags else 0

    def _torch_engine(self, model: object, device: Any) -> Engine:
        return make_torch_engine(model, self.tokenizer, device)

    def _assemble(
        self,
        segments: list[Segment],
        jobs: list[Job],
        outcomes: list[Outcome],
        spelling: Spelling,
        config: DecodingConfig,
        *,
        align: bool,
    ) -> Translation:
        """One translation of the outcomes of all segments of a text."""
        if not segments:
            return empty_translation(align=align)
        combinations = best_combinations([outcome.hypotheses for outcome in outcomes], config.num_best)
        n_best = [self._alternative(segments, combination, spelling) for combination in combinations]
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
            sentences=sum(not segment.copied for segment in segments),
            alignment=[(int(row.argmax()), t) for t, row in enumerate(attention)] if attention is not None else None,
            attention=attention,
        )

    def _alternative(self, segments: list[Segment], hypotheses: list[Hypothesis], spelling: Spelling) -> Alternative:
        ids = [hypothesis.tokens[:-1] for hypothesis in hypotheses]
        return Alternative(
            text=join_text(
                segments, [restored(part, spelling.text(tokens)) for part, tokens in zip(segments, ids, strict=True)]
            ),
            tokens=[piece for tokens in ids for piece in self.tokenizer.pieces(tokens)],
            log_prob=sum(hypothesis.log_prob for hypothesis in hypotheses),
            score=sum(hypothesis.score for hypothesis in hypotheses),
        )


def load_torch(path: str | Path, device: str, quantization: str | None = None) -> tuple[Any, Any, Any]:
    """A model ready on its device, all that belongs to it, and the device."""
    if quantization not in (None, "float32", "bfloat16"):
        raise ConfigError(
            f"quantization={quantization}: the engine torch has float32 and bfloat16; use engine native or ctranslate2."
        )
    import torch

    from heedful.build import resolve_device
    from heedful.checkpoint import load_model

    where = resolve_device(device)
    if quantization == "bfloat16" and where.type != "cuda":
        raise ConfigError(
            f"quantization=bfloat16: the engine torch computes in it on GPUs, not on {where.type}; "
            f"use float32, or engine native, which is int8."
        )
    loaded = load_model(path, device=where, dtype=getattr(torch, quantization) if quantization else None)
    return loaded.model, loaded, where


def make_torch_engine(model: Any, tokenizer: Tokenizer, device: Any) -> Engine:
    """Torch's engine for a model on its device."""
    from heedful.decoding.engines.torch_engine import TorchEngine

    return TorchEngine(model, special_tokens(tokenizer), device=device, num_tags=1 if tokenizer.tags else 0)


def torch_engine_of(path: str | Path, device: str) -> Engine:
    """Torch's engine for a model directory."""
    model, loaded, where = load_torch(path, device)
    return make_torch_engine(model, loaded.tokenizer, where)


def with_languages(translation: Translation, choice: Choice) -> Translation:
    """A translation that tells from which language it is into which."""
    return replace(
        translation,
        source_language=choice.source,
        target_language=choice.target,
        language_confidence=choice.confidence,
        remark=choice.remark,
    )


def best_combinations(choices: Sequence[list[Hypothesis]], count: int) -> list[list[Hypothesis]]:
    """The `count` best ways to pick one hypothesis for every sentence, by the sum of their scores."""
    combinations: list[tuple[float, list[Hypothesis]]] = [(0.0, [])]
    for hypotheses in choices:
        longer = [(score + h.score, [*picked, h]) for score, picked in combinations for h in hypotheses]
        combinations = sorted(longer, key=lambda combination: -combination[0])[:count]
    return [picked for _, picked in combinations]


def block_diagonal(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """The weights of several sentences as those of one text: no sentence looks at another."""
    import numpy as np

    whole = np.zeros((sum(b.shape[0] for b in blocks), sum(b.shape[1] for b in blocks)), dtype=np.float32)
    row = column = 0
    for block in blocks:
        whole[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return whole
