"""The translator: texts in, `Translation`s out, in the same order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from heedful.config import DecodingConfig
from heedful.config_loading import from_mapping, to_mapping
from heedful.decoding.engines import Engine, Job, MakeRule, Outcome, choose_engine
from heedful.decoding.long_texts import LONG, joined, portions_of, prefixes_of, source_of
from heedful.decoding.output_checks import Languages, SecondSearch, is_checked
from heedful.decoding.span_masking import (
    COPIED,
    COPIED_JOB,
    cells_of,
    keep_spans,
    keeps_spans,
    masked_prefix,
    restored,
    split_cells,
    with_job,
)
from heedful.decoding.text_splitting import (
    Segment,
    SplitRule,
    is_visible,
    join_text,
    lines_of,
    split_text,
    surely_longer,
)
from heedful.decoding.tokenizer_cache import Spelling
from heedful.decoding.translation import TOO_LONG, Alternative, Translation, empty_translation
from heedful.decoding.word_alignment import with_word_alignment
from heedful.errors import ConfigError, DecodingError, MissingPackageError, TextError
from heedful.model_dir.alignment_source import AlignmentSource, recorded_source
from heedful.model_dir.registry import RECORD, default_model, find_model
from heedful.search_types import AttentionWeights, Hypothesis, SearchSettings, special_tokens
from heedful.text.corpus import Direction
from heedful.text.language_routing import Choice, Directions, LanguageEvidence
from heedful.text.protected_spans import remove_spans
from heedful.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from heedful.text.documents.document import MarkedText
    from heedful.text.documents.gettext_format import Catalogue

SHORTEST_USUAL_LENGTH = 32  # tokens: below this no line counts as long, however short the training sentences were


class LoadedFrom(NamedTuple):
    """How a translator was loaded: enough to load it again."""

    path: Path
    device: str
    engine: str
    quantization: str | None


class Row(NamedTuple):
    """A text that was split: its number among all texts, from 0, and what its translation needs."""

    number: int
    segments: list[Segment]
    prefix: str | None
    choice: Choice


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
        alignment: AlignmentSource | None = None,
    ) -> None:
        """Translate with `model`: a `Seq2Seq`, which torch runs on `device`, where it already is, or an `Engine`.

        `usual_length`: longest source, in tokens, that is usual for the model; longer lines are split into sentences,
        and sentences over twice that are cut. None: only what the model cannot take at all is split.
        `target_language`: the language that a model with one direction translates into. `directions`: what a model with
        several has learned. `make_rule`: makes the rule that translations of some sentences must keep, beside those of
        the configuration. `alignment`: the attention of a `Seq2Seq` that alignments are read from.
        """
        self.model = model
        self.tokenizer = tokenizer
        self.config = config or DecodingConfig()
        self.special = special_tokens(tokenizer)
        self.engine = model if isinstance(model, Engine) else make_torch_engine(model, tokenizer, device, alignment)
        self.max_length = self.engine.max_length
        self.usual_length = min(usual_length or self.max_length, self.max_length)
        self.longest = min(2 * self.usual_length, self.max_length)
        self.target_language = target_language
        self.directions = directions or Directions((Direction(None, target_language),), tokenizer.tags)
        self.make_rule = make_rule
        self.loaded_from: LoadedFrom | None = None
        """None for one that was made of a model, not loaded from a directory."""
        self.second_search = SecondSearch(self.engine, tokenizer)

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

        `path`: a directory, or the name of an installed model; None: that of the environment variable HEEDFUL_MODEL,
        else the bundled one.

        `engine`: "torch" can do everything; "native" is int8 on CPUs; "ctranslate2" also reads what `heedful export`
        wrote; "auto" takes native on CPUs, torch on GPUs and for what native cannot do, CTranslate2 for what was
        exported for it. `engine_for` tells which it is.
        `quantization`: how the weights are kept, such as "int8"; None: for native int8, for CTranslate2 float32, or as
        they were exported. torch has "float32" and "bfloat16", in which it also computes; None: as they were saved.
        """
        path = (default_model() if path is None else find_model(path)).absolute()
        translator = cls._load(path, device=device, engine=engine, quantization=quantization)
        translator.loaded_from = LoadedFrom(path, device, engine, quantization)
        return translator

    @classmethod
    def _load(cls, path: Path, *, device: str, engine: str, quantization: str | None) -> Translator:
        chosen = choose_engine(engine, exported=(path / RECORD).is_file())
        where: Any = None
        model: object
        if chosen == "auto":
            from heedful.decoding.engines.loading import load_auto

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
            alignment=alignment_of(loaded),
        )

    def __repr__(self) -> str:
        """The model, the engine and the languages."""
        engine: Any = getattr(self.engine, "native", self.engine)  # of Auto, which has torch for the rest
        name, weights = getattr(engine, "name", "torch"), getattr(engine, "weights", None)
        pairs = [f"{pair.source} → {pair.target}" for pair in self.directions.known if pair.source and pair.target]
        model = str(self.loaded_from.path) if self.loaded_from else type(self.model).__name__
        return f"Translator({model!r}, engine={name!r}, weights={weights!r}, directions={', '.join(pairs) or None!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy in another process loads the same directory again; no weights are pickled."""
        if self.loaded_from is None or self.make_rule is not None:
            raise TypeError(
                "this Translator was made of a model in memory, which is not pickled; save the model and use "
                "Translator.load(directory), or make the Translator in the process that needs it."
            )
        return _load_again, (type(self), *self.loaded_from), {"config": self.config}

    def engine_for(self, **settings: Unpack[SearchSettings]) -> tuple[str, str]:
        """The name of the engine that translates with these settings, and how it keeps the weights."""
        engine = self._engine_for(self._search_settings(settings))
        return getattr(engine, "name", "torch"), getattr(engine, "weights", "float32")

    def uses_shortlist(self, **settings: Unpack[SearchSettings]) -> bool:
        """Whether translations with these settings are chosen from the model's shortlist, not from all words."""
        config = self._search_settings(settings)
        engine = self._engine_for(config)
        return bool(engine.uses_shortlist(config)) if hasattr(engine, "uses_shortlist") else False

    def _engine_for(self, config: DecodingConfig) -> Any:
        from heedful.decoding.engines.loading import Auto

        return self.engine.engine_for(config, self.make_rule) if isinstance(self.engine, Auto) else self.engine

    def _search_settings(self, settings: Mapping[str, Any]) -> DecodingConfig:
        return from_mapping(DecodingConfig, {**to_mapping(self.config), **settings}, "decoding")

    def translate(
        self,
        texts: Iterable[str],
        *,
        target_language: str | Mapping[str, str] | None = None,
        source_language: str | None = None,
        likely_language: str | None = None,
        target_prefix: Sequence[str | None] | None = None,
        align: bool = False,
        **settings: Unpack[SearchSettings],
    ) -> list[Translation]:
        """Translate texts of any length; the results come in their order.

        `target_language`: the language to translate into, by code or name ("de", "de-DE", "German"), or one for each
        source language, such as {"en": "de"}; None: in a model with several, each text goes where its own language
        leaves one choice, or into English.
        `source_language`: the language of all texts; None: in a model with several, each text's is detected.
        `likely_language`: what a text is taken to be in that does not show its language clearly, as of the lines around
        it; None: each text is judged alone, and by the others only where it would be an error.
        `target_prefix`: for each text what its translation must begin with, or None. `align`: also tell which source
        token each target token comes from. `settings` change the search for this call: any key of `DecodingConfig`,
        such as `beam_size=8`, `num_best=4`, `method="sampling"`.

        A part of a text that the model cannot take, as with `split="never"`, is left untranslated, with a warning.
        """
        texts = texts if isinstance(texts, (str, list, tuple)) else list(texts)
        source_language = self.directions.source_code(source_language)
        target_language = self.directions.target_code(target_language)
        self._check_texts(texts, target_prefix, target_language)
        config = self._search_settings(settings)
        choices = self._choose(
            texts, source_language, target_language, likely_language, protects=self._protects(config)
        )
        spelling = Spelling(self.tokenizer)
        prefixes = list(target_prefix or [None] * len(texts))
        segments = self._split(texts, prefixes, choices, spelling, config)
        short = [number for number, parts in enumerate(segments) if len(texts[number]) <= LONG]
        rows = [Row(number, segments[number], prefixes[number], choices[number]) for number in short]
        found = dict(zip(short, self._translate_rows(rows, texts, spelling, config, align=align), strict=True))
        for number, parts in enumerate(segments):
            if number not in found:
                row = Row(number, parts, prefixes[number], choices[number])
                found[number] = self._translate_long(row, texts[number], config, align=align)
        return [found[number] for number in range(len(texts))]

    def _translate_long(self, row: Row, text: str, config: DecodingConfig, *, align: bool) -> Translation:
        """The translation of a long text, in portions."""
        portions = portions_of(row.segments)
        sources = [source_of(portion) for portion in portions]
        sources[0] = text[: max(text.find(sources[0]), 0)] + sources[0]
        found = []
        for source, portion, prefix in zip(sources, portions, prefixes_of(portions, row.prefix), strict=True):
            part = row._replace(segments=portion, prefix=prefix)
            found += self._translate_rows([part], {row.number: source}, Spelling(self.tokenizer), config, align=align)
        return joined(portions, found, sources, config.num_best) if len(portions) > 1 else found[0]

    def _translate_rows(
        self,
        rows: Sequence[Row],
        texts: Sequence[str] | Mapping[int, str],
        spelling: Spelling,
        config: DecodingConfig,
        *,
        align: bool,
    ) -> list[Translation]:
        """The translations of texts that were split; their lists of segments are changed."""
        segments, choices = [row.segments for row in rows], [row.choice for row in rows]
        jobs, outcomes = self._search(rows, spelling, config, align=align)
        languages = {
            job: Languages(choice.source, choice.target)
            for line, choice in zip(jobs, choices, strict=True)
            if self._is_checked(config, choice)
            for job in line
            if job is not COPIED_JOB
        }
        masked = {job: part for pair in zip(jobs, segments, strict=True) for job, part in zip(*pair, strict=True)}
        problems = self.second_search.improve(
            outcomes,
            languages,
            config,
            spelling,
            align=align,
            accepts=lambda job, text: not masked[job].spans or keeps_spans(masked[job], text),
        )
        translated = TextsOf(spelling, {job.text for job in languages})
        found = [
            with_languages(
                self._assemble(parts, line, [outcomes[job] for job in line], translated, config, align=align),
                choice,
                [TOO_LONG] * any(part.too_long for part in parts)
                + list(dict.fromkeys(code for job in line for code in problems.get(job, ()))),
            )
            for parts, line, choice in zip(segments, jobs, choices, strict=True)
        ]
        return [with_word_alignment(one, texts[row.number]) for one, row in zip(found, rows, strict=True)]

    def _search(
        self, rows: Sequence[Row], spelling: Spelling, config: DecodingConfig, *, align: bool
    ) -> tuple[list[list[Job]], dict[Job, Outcome]]:
        """The jobs of all segments and what was found for them; segments whose spans were lost are divided at them."""
        spelling.read(
            (part.text, row.choice.target)
            for row in rows
            for part in row.segments
            if not part.copied and not surely_longer(part.text, self.max_length)
        )

        def make_job(place: int, part: Segment, prefix: str | None) -> Job | None:
            start = self._encode_prefix(masked_prefix(prefix, part))
            row = rows[place]
            return self._make_job(spelling, part.text, row.choice.target, start, row.number + 1, config)

        def search(jobs: Sequence[Job], config: DecodingConfig) -> dict[Job, Outcome]:
            found = self.engine.decode(jobs, config, align=align, make_rule=self.make_rule) if jobs else {}
            spelling.write(one.tokens[:-1] for outcome in found.values() for one in outcome.hypotheses)
            return found

        jobs = []
        for place, row in enumerate(rows):
            first = next((index for index, part in enumerate(row.segments) if not part.copied), None)
            made = [
                with_job(place, part, row.prefix if index == first else None, make_job)
                for index, part in enumerate(row.segments)
            ]
            row.segments[:] = [part for part, _ in made]
            jobs.append([job for _, job in made])
        segments, prefixes = [row.segments for row in rows], [row.prefix for row in rows]
        kept = keep_spans(
            segments, jobs, prefixes, config=config, align=align, spelling=spelling, search=search, make_job=make_job
        )
        different = dict.fromkeys(job for line in jobs for job in line if job not in kept and job is not COPIED_JOB)
        return jobs, {COPIED_JOB: COPIED, **kept, **search(list(different), config)}

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
                    (line, c.target)
                    for text, c in zip(texts, choices, strict=True)
                    for line in lines_of(text)
                    if not surely_longer(line, self.usual_length)
                )
            return [split_text(text, rule) for text, rule in zip(texts, rules, strict=True)]
        cells = [cells_of(text) for text in texts]
        if config.split == "long":
            spelling.read(
                (cell.text, c.target)
                for row, c in zip(cells, choices, strict=True)
                for cell in row
                if not cell.copied and not surely_longer(cell.text, self.usual_length)
            )
        return [
            split_cells(row, rule, keep_start=bool(prefix))
            for row, rule, prefix in zip(cells, rules, prefixes, strict=True)
        ]

    def _protects(self, config: DecodingConfig) -> bool:
        """Whether spans are kept: as the configuration says, else in a model of languages. Never beside a rule."""
        wanted = self.directions.are_natural_languages if config.protect is None else config.protect
        return wanted and self.make_rule is None  # a rule is about the tokens of the whole sentence

    def translate_lines(
        self,
        lines: Iterable[str],
        *,
        target_language: str | Mapping[str, str] | None = None,
        source_language: str | None = None,
        align: bool = False,
        chunk_size: int = 1024,
        **settings: Unpack[SearchSettings],
    ) -> Iterator[Translation]:
        """Translate a stream, one translation a line in the same order, reading `chunk_size` lines at a time.

        The lines are those of one text: one that does not show its language clearly is in that of the lines so far.
        """
        lines = iter(lines)
        evidence = LanguageEvidence(self.directions)
        is_open = self.directions.needs_context(source_language, target_language)
        languages: Any = {"target_language": target_language, "source_language": source_language}
        behind = 0
        while chunk := [line.rstrip("\r\n") for line in islice(lines, chunk_size)]:
            if is_open:
                evidence.read(chunk)
            likely = evidence.language
            try:
                translations = self.translate(chunk, **languages, likely_language=likely, align=align, **settings)
            except TextError as error:
                number = behind + error.number
                raise TextError(number, error.problem, f"line {number}") from None
            yield from translations
            behind += len(chunk)

    def translate_document(
        self,
        document: str | bytes,
        format: str,
        *,
        target_language: str | Mapping[str, str] | None = None,
        source_language: str | None = None,
        catalogue: Catalogue | None = None,
        progress: Callable[[int, int], None] | None = None,
        **settings: Unpack[SearchSettings],
    ) -> str | bytes:
        """Translate the prose of a document and keep its markup; the result is of the type of `document`.

        `format`: "html", "markdown", "srt", "vtt", "po", "json" or "text". `target_language`, `source_language` and
        `settings` are those of `translate`; languages that are not named are decided once for the whole document.
        `catalogue` says how a "po" is filled. `progress` is called with the number of texts that are done and of all.
        """
        from heedful.decoding.document_translation import document_languages, too_long, translate_texts
        from heedful.text.documents import translate_document

        left: list[str] = []

        def translate(texts: Sequence[MarkedText]) -> tuple[list[MarkedText], str | None]:
            choice = document_languages(
                self.directions,
                [text.text for text in texts],
                source_language=source_language,
                target_language=target_language,
            )
            found = translate_texts(self.translate, texts, choice, progress=progress, left=left, **settings)
            return found, choice.target

        made = translate_document(document, format, translate, catalogue=catalogue)
        if left:
            warnings.warn(too_long(left), stacklevel=2)
        return made

    def _choose(
        self,
        texts: Sequence[str],
        source: str | None,
        target: str | Mapping[str, str] | None,
        likely: str | None,
        *,
        protects: bool,
    ) -> list[Choice]:
        """The languages of each text; one that alone would be an error, and is in doubt, goes by the others."""
        choices = []
        others = LanguageEvidence(self.directions)
        for number, text in enumerate(texts, start=1):
            prose = remove_spans(text) if protects and source is None else text
            try:
                choices.append(self.directions.choose(prose, source=source, target=target, likely_language=likely))
                continue
            except DecodingError as error:
                problem = TextError(number, str(error))
            if likely is None and self.directions.needs_context(source, target) and self.directions.is_doubtful(prose):
                if others.language is None:
                    others.read(texts)
                with suppress(DecodingError):
                    choices.append(self.directions.choose(prose, target=target, likely_language=others.language))
                    continue
            raise problem
        return choices

    def _check_texts(
        self,
        texts: Sequence[object],
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
    ) -> Job | None:
        """None for a text that the model cannot take."""
        if surely_longer(text, self.max_length):
            return None
        source = spelling.ids(text, target_language)
        if len(source) > self.max_length:
            return None
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

    def _assemble(
        self,
        segments: list[Segment],
        jobs: list[Job],
        outcomes: list[Outcome],
        texts: TextsOf,
        config: DecodingConfig,
        *,
        align: bool,
    ) -> Translation:
        """One translation of the outcomes of all segments of a text."""
        if not segments:
            return empty_translation(align=align)
        combinations = best_combinations([outcome.hypotheses for outcome in outcomes], config.num_best)
        n_best = [self._alternative(segments, combination, texts) for combination in combinations]
        best = n_best[0]
        weights = [outcome.attention for outcome in outcomes if outcome.attention is not None]
        attention = AttentionWeights.block_diagonal(weights) if align else None
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
            alignment=[(s, t) for t, s in enumerate(attention.largest_columns())] if attention is not None else None,
            attention=attention,
        )

    def _is_checked(self, config: DecodingConfig, choice: Choice) -> bool:
        return self.make_rule is None and is_checked(config, choice)

    def _alternative(self, segments: list[Segment], hypotheses: list[Hypothesis], texts: TextsOf) -> Alternative:
        ids = [hypothesis.tokens[:-1] for hypothesis in hypotheses]
        return Alternative(
            text=join_text(
                segments,
                [restored(part, texts.of(part.text, tokens)) for part, tokens in zip(segments, ids, strict=True)],
            ),
            tokens=[piece for tokens in ids for piece in self.tokenizer.pieces(tokens)],
            log_prob=sum(hypothesis.log_prob for hypothesis in hypotheses),
            score=sum(hypothesis.score for hypothesis in hypotheses),
        )


def _load_again(cls: type[Translator], path: Path, device: str, engine: str, quantization: str | None) -> Translator:
    return cls.load(path, device=device, engine=engine, quantization=quantization)


class TextsOf:
    """The texts of translations. Of sentences that are checked an empty one becomes the sentence itself."""

    def __init__(self, spelling: Spelling, checked: Set[str]) -> None:
        self.spelling, self.checked = spelling, checked

    def of(self, source: str, ids: Sequence[int]) -> str:
        """The text of a sentence's translation: no tab, if the sentence has none."""
        text = self.spelling.text(ids)
        if source in self.checked and not is_visible(text):
            return source
        return text if "\t" in source else text.replace("\t", " ")


def load_torch(path: str | Path, device: str, quantization: str | None = None) -> tuple[Any, Any, Any]:
    """A model ready on its device, all that belongs to it, and the device."""
    if quantization not in (None, "float32", "bfloat16"):
        raise ConfigError(
            f"quantization={quantization}: the engine torch has float32 and bfloat16; use engine native or ctranslate2."
        )
    from heedful.native import available

    if find_spec("torch") is None and not (native := available()):
        raise MissingPackageError(f"torch is not installed, and the native engine cannot be used: {native.reason}")
    import torch

    from heedful.build_model import resolve_device
    from heedful.model_dir import load_model

    where = resolve_device(device)
    if quantization == "bfloat16" and where.type != "cuda":
        raise ConfigError(
            f"quantization=bfloat16: the engine torch computes in it on GPUs, not on {where.type}; "
            f"use float32, or engine native, which is int8."
        )
    loaded = load_model(path, device=where, dtype=getattr(torch, quantization) if quantization else None)
    return loaded.model, loaded, where


def make_torch_engine(
    model: Any, tokenizer: Tokenizer, device: Any, alignment: AlignmentSource | None = None
) -> Engine:
    """Torch's engine for a model on its device."""
    from heedful.decoding.engines.torch_engine import TorchEngine

    num_tags = 1 if tokenizer.tags else 0
    return TorchEngine(model, special_tokens(tokenizer), device=device, num_tags=num_tags, alignment=alignment)


def alignment_of(loaded: Any) -> AlignmentSource | None:
    """The attention that alignments of a loaded model are read from, if that is recorded."""
    model = loaded.config.model
    return recorded_source(loaded.details, num_layers=model.num_decoder_layers, num_heads=model.num_heads)


def torch_engine_of(path: str | Path, device: str) -> Engine:
    """Torch's engine for a model directory."""
    model, loaded, where = load_torch(path, device)
    return make_torch_engine(model, loaded.tokenizer, where, alignment_of(loaded))


def with_languages(translation: Translation, choice: Choice, warnings: list[str]) -> Translation:
    """A translation that says from which language it is into which, and what is wrong with it."""
    return replace(
        translation,
        source_language=choice.source,
        target_language=choice.target,
        language_confidence=choice.confidence,
        remark=choice.remark,
        warnings=warnings,
    )


def best_combinations(choices: Sequence[list[Hypothesis]], count: int) -> list[list[Hypothesis]]:
    """The `count` best ways to pick one hypothesis for every sentence, by the sum of their scores."""
    combinations: list[tuple[float, list[Hypothesis]]] = [(0.0, [])]
    for hypotheses in choices:
        longer = [(score + h.score, [*picked, h]) for score, picked in combinations for h in hypotheses]
        combinations = sorted(longer, key=lambda combination: -combination[0])[:count]
    return [picked for _, picked in combinations]
