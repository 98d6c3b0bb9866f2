"""`Translator`: texts in, `Translation`s out, in the same order; `RoutedTranslator`: the same of several models."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from heedful.config import DecodingConfig
from heedful.config_loading import from_mapping, to_mapping
from heedful.decoding.glossary_phrases import PhraseEncoder
from heedful.decoding.output_checks import LanguagePair, OutputChecker, is_checked
from heedful.decoding.span_masking import (
    COPIED_REQUEST,
    COPIED_RESULT,
    find_terms,
    has_all_spans,
    mask_prefix,
    split_cells,
    split_into_cells,
    translate_masked,
    with_request,
)
from heedful.decoding.text_splitting import Segment, SplitRule, certainly_longer, split_text, visible_lines
from heedful.decoding.tokenizer_cache import TokenizerCache
from heedful.decoding.translation import (
    LONG_TEXT,
    TERM_MISSING,
    TOO_LONG,
    SegmentMerger,
    Translation,
    merge_portions,
    portion_prefixes,
    portion_source,
    split_portions,
)
from heedful.decoding.word_alignment import with_word_alignment
from heedful.errors import ConfigError, DecodingError, TextError
from heedful.model_dir.registry import default_models, find_model
from heedful.model_dir.save_load import AlignmentSource, identify_model, read_directions, require_translation_model
from heedful.search_types import (
    ConstraintFactory,
    DecodeRequest,
    DecodeResult,
    Engine,
    SearchSettings,
    special_tokens,
)
from heedful.text.corpus import Direction
from heedful.text.glossary import Glossary
from heedful.text.language_routing import Choice, Directions, LanguageEvidence
from heedful.text.protected_spans import remove_spans
from heedful.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from heedful.text.documents.document import MarkedText
    from heedful.text.documents.gettext_format import Catalogue

MIN_TYPICAL_LENGTH = 32  # tokens: shorter lines never count as long, however short the training sentences are


class LoadedFrom(NamedTuple):
    """The arguments of `Translator.load`, enough to load the same translator again."""

    path: Path
    device: str
    engine: str
    quantization: str | None


class SplitInput(NamedTuple):
    """An input text split into segments."""

    position: int
    """Its index among the texts of the call."""
    segments: list[Segment]
    prefix: str | None
    choice: Choice
    glossary: Glossary | None = None


class Translator:
    """A model, its tokenizer and search settings.

    A translator is immutable while it translates, so several threads may share one.
    """

    def __init__(
        self,
        model: object,
        tokenizer: Tokenizer,
        config: DecodingConfig | None = None,
        *,
        device: Any = "cpu",
        typical_length: int | None = None,
        target_language: str | None = None,
        directions: Directions | None = None,
        constraint_factory: ConstraintFactory | None = None,
        alignment: AlignmentSource | None = None,
    ) -> None:
        """Make a translator of `model`: an `Engine`, or a `Seq2Seq` that is on `device` already and runs with torch.

        `typical_length`: the length, in tokens, up to which source sentences are usual for the model. Longer lines are
        split into sentences, and sentences more than twice as long are cut. None: only what exceeds the model's maximum
        length is split. `target_language`: the target language of a model with one direction. `directions`: the
        directions of a model with several. `constraint_factory`: makes a constraint on the translations of some
        sentences, in addition to those of the configuration. `alignment`: the attention of a `Seq2Seq` from which
        alignments are read.
        """
        self.model = model
        self.tokenizer = tokenizer
        self.config = config or DecodingConfig()
        self.special = special_tokens(tokenizer)
        if isinstance(model, Engine):
            self.engine = model
        else:
            from heedful.decoding.engines import make_torch_engine

            self.engine = make_torch_engine(model, tokenizer, device, alignment)
        self.max_length = self.engine.max_length
        self.typical_length = min(typical_length or self.max_length, self.max_length)
        self.max_segment_length = min(2 * self.typical_length, self.max_length)
        self.target_language = target_language
        self.directions = directions or Directions((Direction(None, target_language),), tokenizer.tags)
        self.constraint_factory = constraint_factory
        self.loaded_from: LoadedFrom | None = None
        """None for a translator made from a model in memory."""
        self.output_checker = OutputChecker(self.engine, tokenizer)
        self.phrase_encoder = PhraseEncoder(tokenizer)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        device: str = "auto",
        engine: str = "auto",
        quantization: str | None = None,
    ) -> Translator:
        """Load a model directory, with the decoding settings saved in it.

        `path`: a directory, or the name of an installed model; None: the model named by the environment variable
        HEEDFUL_MODEL, else the bundled models, each for its directions and loaded when a text needs it.

        `engine`: "torch" supports everything; "native" runs int8 on CPUs; "ctranslate2" also reads what `heedful
        export` writes; "auto" uses native on CPUs, torch on GPUs and for the rest, and CTranslate2 for
        exported models. `engine_for` returns the choice. `quantization`: the type of the weights. native has "int8"
        (the default) and "float32"; CTranslate2 defaults to float32, or the type of the export; torch has "float32"
        and "bfloat16", in which it also computes, and defaults to the saved type.
        """
        from heedful.decoding.engines import alignment_source_of, load_engine

        models = default_models() if path is None else [find_model(path)]
        if len(models) > 1:
            return RoutedTranslator(models, device=device, engine=engine, quantization=quantization)
        path = models[0].absolute()
        model, loaded, torch_device = load_engine(path, device=device, engine=engine, quantization=quantization)
        require_translation_model(loaded.config, path)
        source_p99 = loaded.details.get("lengths", {}).get("source_p99")
        translator = cls(
            model,
            loaded.tokenizer,
            loaded.config.decoding,
            device=torch_device,
            typical_length=max(int(source_p99), MIN_TYPICAL_LENGTH) if source_p99 else None,
            target_language=loaded.config.data.target_language,
            directions=Directions.of(loaded.config.data, loaded.tokenizer.tags, loaded.details),
            alignment=alignment_source_of(loaded),
        )
        translator.loaded_from = LoadedFrom(path, device, engine, quantization)
        return translator

    def __repr__(self) -> str:
        """The model, the engine and the languages."""
        engine: Any = getattr(self.engine, "native", self.engine)  # an AutoEngine is shown as its native engine
        name, weights = getattr(engine, "name", "torch"), getattr(engine, "weights", None)
        pairs = [f"{pair.source} → {pair.target}" for pair in self.directions.known if pair.source and pair.target]
        model = str(self.loaded_from.path) if self.loaded_from else type(self.model).__name__
        return f"Translator({model!r}, engine={name!r}, weights={weights!r}, directions={', '.join(pairs) or None!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path, not the weights: a copy in another process loads the same directory."""
        if self.loaded_from is None or self.constraint_factory is not None:
            raise TypeError(
                "this Translator was made from a model in memory, which is not pickled; save the model and use "
                "Translator.load(directory), or make the Translator in the process that needs it."
            )
        return _load, (type(self), *self.loaded_from), {"config": self.config}

    def translator_for(self, source: str | None, target: str | None) -> Translator:
        """The translator of the model that translates this direction: this one, unless it stands for several models."""
        return self

    def engine_for(self, **settings: Unpack[SearchSettings]) -> tuple[str, str]:
        """The name of the engine used with these settings, and the type of its weights."""
        engine = self._engine_for(self._search_settings(settings))
        return getattr(engine, "name", "torch"), getattr(engine, "weights", "float32")

    def uses_shortlist(self, **settings: Unpack[SearchSettings]) -> bool:
        """Whether translations with these settings are restricted to the model's lexical shortlist."""
        config = self._search_settings(settings)
        engine = self._engine_for(config)
        return bool(engine.uses_shortlist(config)) if hasattr(engine, "uses_shortlist") else False

    def _engine_for(self, config: DecodingConfig) -> Any:
        from heedful.decoding.engines import AutoEngine

        if isinstance(self.engine, AutoEngine):
            return self.engine.engine_for(config, self.constraint_factory)
        return self.engine

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
        glossary: Glossary | Iterable[Sequence[str]] | None = None,
        align: bool = False,
        **settings: Unpack[SearchSettings],
    ) -> list[Translation]:
        """Translate texts of any length; results are in the order of the texts.

        `target_language`: the language to translate into, by code or name ("de", "de-DE", "German"), or one for each
        source language, such as {"en": "de"}. None: in a model with several, the only target for the language of
        the text, or else English.
        `source_language`: the language of all texts. None: in a model with several, it is detected for each text.
        `likely_language`: assumed for texts whose language is ambiguous, for example the language of the lines around
        them. None: the other texts are considered only if the text alone would be an error.
        `target_prefix`: for each text, what its translation must begin with, or None. `glossary`: pairs of a term and
        the translation that must stand for it, or a `Glossary`; it needs the native engine. `align`: also return which
        source token each target token comes from. `settings`: override any key of `DecodingConfig` for this call, such
        as `beam_size=8`, `num_best=4`, `method="sampling"`.

        Segments that exceed the model's maximum length, as with `split="never"`, are copied, with a warning.
        """
        texts = texts if isinstance(texts, (str, list, tuple)) else list(texts)
        source_language = self.directions.source_code(source_language)
        target_language = self.directions.target_code(target_language)
        self._check_texts(texts, target_prefix, target_language)
        config = self._search_settings(settings)
        terms = Glossary.of(glossary or ())
        if terms.entries and self.engine_for(**settings)[0] != "native":
            raise ConfigError("a glossary needs the engine native, on a CPU, with decoding.method=beam or greedy.")
        choices = self._choose_languages(
            texts, source_language, target_language, likely_language, masks_spans=self._masks_spans(config)
        )
        prefixes = list(target_prefix or [None] * len(texts))
        wanted = terms if terms.entries else None
        return self._translate_chosen(texts, prefixes, choices, config, glossary=wanted, align=align)

    def _translate_chosen(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str | None],
        choices: Sequence[Choice],
        config: DecodingConfig,
        *,
        glossary: Glossary | None,
        align: bool,
    ) -> list[Translation]:
        """Translate texts whose languages are chosen."""
        cache = TokenizerCache(self.tokenizer)
        segments = self._split(texts, prefixes, choices, cache, config)
        rows = enumerate(zip(segments, prefixes, choices, strict=True))
        inputs = [SplitInput(index, *row, glossary) for index, row in rows]
        short = [one for one in inputs if len(texts[one.position]) <= LONG_TEXT]
        translated = self._translate_segments(short, [texts[one.position] for one in short], cache, config, align=align)
        translations = dict(zip([one.position for one in short], translated, strict=True))
        for one in inputs:
            if one.position not in translations:
                translations[one.position] = self._translate_long(one, texts[one.position], config, align=align)
        return [translations[index] for index in range(len(texts))]

    def _translate_long(self, one: SplitInput, text: str, config: DecodingConfig, *, align: bool) -> Translation:
        """Translate a long text in portions."""
        portions = split_portions(one.segments)
        sources = [portion_source(portion) for portion in portions]
        sources[0] = text[: max(text.find(sources[0]), 0)] + sources[0]
        translations = []
        for source, portion, prefix in zip(sources, portions, portion_prefixes(portions, one.prefix), strict=True):
            part = one._replace(segments=portion, prefix=prefix)
            cache = TokenizerCache(self.tokenizer)
            translations += self._translate_segments([part], [source], cache, config, align=align)
        if len(portions) == 1:
            return translations[0]
        return merge_portions(portions, translations, sources, config.num_best)

    def _translate_segments(
        self,
        inputs: Sequence[SplitInput],
        sources: Sequence[str],
        cache: TokenizerCache,
        config: DecodingConfig,
        *,
        align: bool,
    ) -> list[Translation]:
        """Translate split texts and merge their segments. May modify the lists of segments."""
        requests, results = self._search(inputs, cache, config, align=align)
        checked = {
            request: LanguagePair(one.choice.source, one.choice.target)
            for one, row in zip(inputs, requests, strict=True)
            if self.constraint_factory is None and is_checked(config, one.choice)
            for request in row
            if request is not COPIED_REQUEST
        }
        segment_of = {
            request: segment
            for one, row in zip(inputs, requests, strict=True)
            for request, segment in zip(row, one.segments, strict=True)
        }
        problems = self.output_checker.retry_failed(
            results,
            checked,
            config,
            cache,
            align=align,
            accepts=lambda request, text: not segment_of[request].spans or has_all_spans(segment_of[request], text),
        )
        merger = SegmentMerger(cache, {request.text for request in checked}, config.num_best, align=align)
        translations = []
        for one, row, source in zip(inputs, requests, sources, strict=True):
            translation = replace(
                merger.merge(one.segments, row, [results[request] for request in row]),
                source_language=one.choice.source,
                target_language=one.choice.target,
                language_confidence=one.choice.confidence,
                remark=one.choice.remark,
                warnings=[TOO_LONG] * any(segment.too_long for segment in one.segments)
                + list(dict.fromkeys(code for request in row for code in problems.get(request, ())))
                + [TERM_MISSING] * any(self._lacks_term(one, segment_of, results, request) for request in row),
            )
            translations.append(with_word_alignment(translation, source))
        return translations

    def _lacks_term(
        self,
        one: SplitInput,
        segment_of: Mapping[DecodeRequest, Segment],
        results: Mapping[DecodeRequest, DecodeResult],
        request: DecodeRequest,
    ) -> bool:
        """Whether the translation of a segment lacks a term of the glossary."""
        if one.glossary is None or request is COPIED_REQUEST:
            return False
        num_terms = len(find_terms(one.glossary, segment_of[request]))
        return len(request.phrases) < num_terms or bool(results[request].hypotheses[0].missing)

    def _search(
        self, inputs: Sequence[SplitInput], cache: TokenizerCache, config: DecodingConfig, *, align: bool
    ) -> tuple[list[list[DecodeRequest]], dict[DecodeRequest, DecodeResult]]:
        """The requests of all segments and their results. Segments whose spans are lost are split at the spans."""
        cache.encode_all(
            (segment.text, one.choice.target)
            for one in inputs
            for segment in one.segments
            if not segment.copied and not certainly_longer(segment.text, self.max_length)
        )

        def make_request(row: int, segment: Segment, prefix: str | None) -> DecodeRequest | None:
            target_prefix = self._encode_prefix(mask_prefix(prefix, segment))
            one = inputs[row]
            source = segment.text, one.choice.target
            request = self._make_request(cache, *source, target_prefix, one.position + 1, config)
            if request is None or one.glossary is None:
                return request
            phrases = self.phrase_encoder.phrases(find_terms(one.glossary, segment), segment.text, request.source)
            return request._replace(phrases=phrases)

        def search(requests: Sequence[DecodeRequest], config: DecodingConfig) -> dict[DecodeRequest, DecodeResult]:
            if not requests:
                return {}
            found = self.engine.decode(requests, config, align=align, constraint_factory=self.constraint_factory)
            cache.decode_all(hypothesis.tokens[:-1] for result in found.values() for hypothesis in result.hypotheses)
            return found

        requests = []
        for row, one in enumerate(inputs):
            first = next((index for index, segment in enumerate(one.segments) if not segment.copied), None)
            pairs = [
                with_request(row, segment, one.prefix if index == first else None, make_request)
                for index, segment in enumerate(one.segments)
            ]
            one.segments[:] = [segment for segment, _ in pairs]
            requests.append([request for _, request in pairs])
        masked = translate_masked(
            [one.segments for one in inputs],
            requests,
            [one.prefix for one in inputs],
            config=config,
            align=align,
            cache=cache,
            search=search,
            make_request=make_request,
        )
        remaining = dict.fromkeys(
            request for row in requests for request in row if request not in masked and request is not COPIED_REQUEST
        )
        return requests, {COPIED_REQUEST: COPIED_RESULT, **masked, **search(list(remaining), config)}

    def _split(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str | None],
        choices: Sequence[Choice],
        cache: TokenizerCache,
        config: DecodingConfig,
    ) -> list[list[Segment]]:
        """The segments of each text, with protected spans masked."""
        rules = [self._split_rule(config, cache, choice.target) for choice in choices]
        if not self._masks_spans(config):
            if config.split == "long":  # needs the length of each line
                cache.encode_all(
                    (line, choice.target)
                    for text, choice in zip(texts, choices, strict=True)
                    for line in visible_lines(text)
                    if not certainly_longer(line, self.typical_length)
                )
            return [split_text(text, rule) for text, rule in zip(texts, rules, strict=True)]
        cells = [split_into_cells(text) for text in texts]
        if config.split == "long":
            cache.encode_all(
                (cell.text, choice.target)
                for row, choice in zip(cells, choices, strict=True)
                for cell in row
                if not cell.copied and not certainly_longer(cell.text, self.typical_length)
            )
        return [
            split_cells(row, rule, keep_start=bool(prefix))
            for row, rule, prefix in zip(cells, rules, prefixes, strict=True)
        ]

    def _masks_spans(self, config: DecodingConfig) -> bool:
        """Whether protected spans are masked: as configured, else for models of natural languages."""
        enabled = self.directions.are_natural_languages if config.protect is None else config.protect
        return enabled and self.constraint_factory is None  # a constraint applies to the unmasked sentence

    def translate_lines(
        self,
        lines: Iterable[str],
        *,
        target_language: str | Mapping[str, str] | None = None,
        source_language: str | None = None,
        glossary: Glossary | Iterable[Sequence[str]] | None = None,
        align: bool = False,
        chunk_size: int = 1024,
        **settings: Unpack[SearchSettings],
    ) -> Iterator[Translation]:
        """Translate a stream line by line, in order, reading `chunk_size` lines at a time.

        The lines are treated as one text: a line whose language is ambiguous takes the language of the lines so far.
        """
        lines = iter(lines)
        evidence = LanguageEvidence(self.directions)
        detects_language = self.directions.needs_context(source_language, target_language)
        terms = Glossary.of(glossary or ())
        options: Any = {"target_language": target_language, "source_language": source_language, "glossary": terms}
        num_done = 0
        while chunk := [line.rstrip("\r\n") for line in islice(lines, chunk_size)]:
            if detects_language:
                evidence.read(chunk)
            likely = evidence.language
            try:
                translations = self.translate(chunk, **options, likely_language=likely, align=align, **settings)
            except TextError as error:
                number = num_done + error.number
                raise TextError(number, error.problem, f"line {number}") from None
            yield from translations
            num_done += len(chunk)

    def translate_document(
        self,
        document: str | bytes,
        format: str,
        *,
        target_language: str | Mapping[str, str] | None = None,
        source_language: str | None = None,
        catalogue: Catalogue | None = None,
        glossary: Glossary | Iterable[Sequence[str]] | None = None,
        progress: Callable[[int, int], None] | None = None,
        **settings: Unpack[SearchSettings],
    ) -> str | bytes:
        """Translate the prose of a document and keep its markup; the result is of the type of `document`.

        `format`: "html", "markdown", "srt", "vtt", "po", "json" or "text"; for bytes also "docx", "odt" and "pptx".
        `target_language`, `source_language`, `glossary` and `settings`: as for `translate`; missing languages are
        chosen once for the whole document. `catalogue`: how a "po" is filled. `progress` is called with the number of
        texts done and the total.
        """
        from heedful.decoding.document_translation import document_languages, too_long_warning, translate_texts
        from heedful.text.documents import translate_document

        copied: list[str] = []
        terms = Glossary.of(glossary or ())

        def translate(texts: Sequence[MarkedText]) -> tuple[list[MarkedText], str | None]:
            choice = document_languages(
                self.directions,
                [text.text for text in texts],
                source_language=source_language,
                target_language=target_language,
            )
            translated = translate_texts(
                self.translate, texts, choice, progress=progress, copied=copied, glossary=terms, **settings
            )
            return translated, choice.target

        result = translate_document(document, format, translate, catalogue=catalogue)
        if copied:
            warnings.warn(too_long_warning(copied), stacklevel=2)
        return result

    def _choose_languages(
        self,
        texts: Sequence[str],
        source: str | None,
        target: str | Mapping[str, str] | None,
        likely: str | None,
        *,
        masks_spans: bool,
    ) -> list[Choice]:
        """The languages of each text. An ambiguous text that would be an error takes the language of the others."""
        choices = []
        others = LanguageEvidence(self.directions)
        for number, text in enumerate(texts, start=1):
            prose = remove_spans(text) if masks_spans and source is None else text
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
        if isinstance(target_language, str) and known not in (None, target_language) and not self.tokenizer.tags:
            raise DecodingError(f"this model translates into {known!r} only, not into {target_language!r}.")

    def _encode_prefix(self, text: str | None) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode_prefix(text)) if text else ()

    def _split_rule(self, config: DecodingConfig, cache: TokenizerCache, target_language: str | None) -> SplitRule:
        return SplitRule(
            split=config.split,
            typical_length=self.typical_length,
            max_length=self.max_segment_length,
            num_tokens=lambda text: cache.num_tokens(text, target_language),
        )

    def _make_request(
        self,
        cache: TokenizerCache,
        text: str,
        target_language: str | None,
        prefix: tuple[int, ...],
        number: int,
        config: DecodingConfig,
    ) -> DecodeRequest | None:
        """The request for a segment; None if the segment exceeds the model's maximum length."""
        if certainly_longer(text, self.max_length):
            return None
        source = cache.encode(text, target_language)
        if len(source) > self.max_length:
            return None
        limit = self.max_target_length(source, config)
        if len(prefix) > limit:
            raise TextError(
                number,
                f"has a target prefix of {len(prefix)} tokens, more than the maximum translation length ({limit}); "
                f"shorten it or raise decoding.max_length or max_extra_length.",
            )
        return DecodeRequest(source, prefix, text, limit)

    def max_target_length(self, source_ids: Sequence[int], config: DecodingConfig) -> int:
        """Maximum number of target tokens for a source, without the end token; the start token takes one position."""
        num_source_tokens = len(source_ids) - 1 - (1 if self.tokenizer.tags else 0)
        configured = config.max_length or num_source_tokens + config.max_extra_length
        return min(configured, self.max_length - 1)


def _load(cls: type[Translator], path: Path, device: str, engine: str, quantization: str | None) -> Translator:
    return cls.load(path, device=device, engine=engine, quantization=quantization)


class RoutedTranslator(Translator):
    """Each text goes to the first model that knows its direction, else to the last model.

    Search settings are those of the last model. Whatever else belongs to one model, such as `engine` and `tokenizer`,
    is that of the last one; `translator_for` returns the translator of a direction.
    """

    def __init__(
        self,
        models: Sequence[str | Path],
        *,
        device: str = "auto",
        engine: str = "auto",
        quantization: str | None = None,
    ) -> None:
        """Read the directions of the models. `models`: directories; the other arguments are as for `load`."""
        self.models = tuple(Path(model).absolute() for model in models)
        self.known = [read_directions(model) for model in self.models]
        self.directions = Directions.joined(self.known)
        self.options: dict[str, Any] = {"device": device, "engine": engine, "quantization": quantization}
        self.config: DecodingConfig = identify_model(self.models[-1])[0]
        self.target_language = None
        self.constraint_factory = None
        self.loaded_from = None
        self._loaded: dict[Path, Translator] = {}
        self._lock = Lock()

    def __getattr__(self, name: str) -> Any:
        """What belongs to one model."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._translator(self.models[-1]), name)

    def __repr__(self) -> str:
        """The models and the languages."""
        pairs = ", ".join(f"{pair.source} → {pair.target}" for pair in self.directions.known)
        return f"RoutedTranslator({[str(model) for model in self.models]}, directions={pairs})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the paths, not the weights."""
        return _load_routed, (self.models, self.options), {"config": self.config}

    def translator_for(self, source: str | None, target: str | None, text: str = "") -> Translator:
        """The translator of the model for a direction. A text in a language that this model does not know, such as a
        German line in a Chinese file, goes to the last model.
        """
        language = self.directions.detect(text)[0] if text else None
        for model, directions in zip(self.models, self.known, strict=True):
            if Direction(source, target) in directions.known and language in (None, *directions.languages):
                return self._translator(model)
        return self._translator(self.models[-1])

    def _translator(self, model: Path) -> Translator:
        with self._lock:
            if model not in self._loaded:
                self._loaded[model] = Translator.load(model, **self.options)
            return self._loaded[model]

    def _engine_for(self, config: DecodingConfig) -> Any:
        return self._translator(self.models[-1])._engine_for(config)

    def _translate_chosen(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str | None],
        choices: Sequence[Choice],
        config: DecodingConfig,
        *,
        glossary: Glossary | None,
        align: bool,
    ) -> list[Translation]:
        groups: dict[int, tuple[Translator, list[int]]] = {}
        for index, (text, choice) in enumerate(zip(texts, choices, strict=True)):
            translator = self.translator_for(choice.source, choice.target, text if choice.confidence is None else "")
            groups.setdefault(id(translator), (translator, []))[1].append(index)
        found: dict[int, Translation] = {}
        for translator, members in groups.values():
            chosen = [choices[index] for index in members]
            part, beginnings = [texts[index] for index in members], [prefixes[index] for index in members]
            try:
                translated = translator._translate_chosen(
                    part, beginnings, chosen, config, glossary=glossary, align=align
                )
            except TextError as error:
                raise TextError(members[error.number - 1] + 1, error.problem) from None
            found.update(zip(members, translated, strict=True))
        return [found[index] for index in range(len(texts))]


def _load_routed(models: tuple[Path, ...], options: dict[str, Any]) -> RoutedTranslator:
    return RoutedTranslator(models, **options)
