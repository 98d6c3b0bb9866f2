"""`TranslationJob`: model, engine and search settings of a file translation, as plain serializable data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.config import DecodingConfig
from heedful.config_loading import from_mapping, to_mapping
from heedful.decoding.engines import choose_engine
from heedful.decoding.files.chunked_files import ChunkSizes, read_chunks
from heedful.decoding.translation import Translation
from heedful.model_dir.registry import EXPORT_RECORD
from heedful.model_dir.save_load import identify_model, read_directions
from heedful.text.glossary import Glossary
from heedful.text.language_routing import Directions, LanguageEvidence

if TYPE_CHECKING:
    from heedful.decoding.translator import Translator

LANGUAGE_SAMPLE_LINES = 1000
"""Lines from which the language of a file is detected; fixed, so that all shards detect the same."""
IGNORED_SETTING = "tokens_per_batch"
"""The setting that a resumed run may change: it affects memory and speed only."""


@dataclass(frozen=True)
class TranslationJob:
    """A model, the engine to run it, and the search settings."""

    model: str
    preferred: tuple[str, ...] = ()
    """Models that translate the directions that they have in place of `model`."""
    engine: str = "auto"
    quantization: str | None = None
    target_language: str | Mapping[str, str] | None = None
    """The language to translate into, or one for each source language."""
    source_language: str | None = None
    likely_language: str | None = None
    """Assumed language of lines whose language is ambiguous: that of the file."""
    prefix: str | None = None
    """The text that each translation must begin with."""
    glossary: Sequence[Sequence[str]] = ()
    """Terms and the translations that must stand for them."""
    align: bool = False
    as_json: bool = False
    """Write a JSON object for each line instead of the text."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Search settings that override those saved with the model."""

    @property
    def directions(self) -> Directions:
        """The directions of all models."""
        return Directions.joined([read_directions(model) for model in (*self.preferred, self.model)])

    @cached_property
    def terms(self) -> Glossary | None:
        """The glossary, if there is one."""
        return Glossary.of(self.glossary) if self.glossary else None

    def load(self, device: str) -> Callable[[Sequence[str]], list[Translation]]:
        """Load the model and return a function that translates texts."""
        return partial(self.translate, self.load_translator(device))

    def load_translator(self, device: str) -> Translator:
        """Load the model; with several, each when a text needs it."""
        from heedful.decoding.translator import RoutedTranslator, Translator

        if self.preferred:
            models = [*self.preferred, self.model]
            return RoutedTranslator(models, device=device, engine=self.engine, quantization=self.quantization)
        return Translator.load(self.model, device=device, engine=self.engine, quantization=self.quantization)

    def translate(self, translator: Translator, texts: Sequence[str]) -> list[Translation]:
        """Translate texts with the loaded model."""
        return translator.translate(
            texts,
            target_language=self.target_language,
            source_language=self.source_language,
            likely_language=self.likely_language,
            target_prefix=[self.prefix] * len(texts) if self.prefix else None,
            glossary=self.terms,
            align=self.align,
            **self.search,
        )

    def with_language_codes(self) -> TranslationJob:
        """The job with languages as the model's own codes, so that two spellings of a language give the same job."""
        directions = self.directions
        source, target = directions.source_code(self.source_language), directions.target_code(self.target_language)
        return replace(self, source_language=source, target_language=target)

    def with_detected_language(self, path: str) -> TranslationJob:
        """The job with the language detected from a file's first lines, if it matters and none is set."""
        directions = self.directions
        if not directions.needs_context(self.source_language, self.target_language):
            return self
        evidence = LanguageEvidence(directions)
        first = next(read_chunks(path, ChunkSizes(LANGUAGE_SAMPLE_LINES)), None)
        evidence.read(first.texts(path)[0] if first else ())
        return replace(self, likely_language=evidence.language)

    def engine_name(self, device: str = "auto") -> str:
        """The engine that will run the model; resolves "auto"."""
        chosen = choose_engine(self.engine, exported=(Path(self.model) / EXPORT_RECORD).is_file())
        if chosen != "auto":
            return chosen
        from heedful.decoding.engines import uses_native

        method = self.search.get("method", identify_model(self.model)[0].method)
        is_native = method != "sampling" and uses_native(self.model, device=device, quantization=self.quantization)
        return "native" if is_native else "torch"

    def native_unavailable_reason(self, device: str) -> str | None:
        """Why the native engine is not available although "auto" would choose it; None otherwise."""
        from heedful.decoding.engines import suits_native
        from heedful.native import available

        availability = available()
        exported, sampled = (Path(self.model) / EXPORT_RECORD).is_file(), self.search.get("method") == "sampling"
        if availability or self.engine != "auto" or exported or sampled:
            return None
        return availability.reason if suits_native(self.model, device=device, quantization=self.quantization) else None

    def format_lines(self, texts: Sequence[str], translations: Sequence[Translation]) -> bytes:
        """Exactly one output line for each text."""
        lines = []
        for text, translation in zip(texts, translations, strict=True):
            line = translation.to_json(text) if self.as_json else translation.text
            lines.append(line.replace("\r", " ").replace("\n", " ").encode("utf-8", errors="replace") + b"\n")
        return b"".join(lines)

    def identity(self, device: str) -> dict[str, Any]:
        """Everything the translations depend on except the text; `device` is the kind of device."""
        from heedful import __version__

        saved, files = identify_model(self.model)
        config = to_mapping(from_mapping(DecodingConfig, {**to_mapping(saved), **self.search}, "decoding"))
        return {
            "heedful": __version__,
            "model": files,
            **({"preferred": [identify_model(model)[1] for model in self.preferred]} if self.preferred else {}),
            "engine": self.engine_name(device),
            "quantization": self.quantization,
            "device": device,
            "target_language": self.target_language,
            "source_language": self.source_language,
            "likely_language": self.likely_language,
            "prefix": self.prefix,
            **({"glossary": [list(entry) for entry in self.glossary]} if self.glossary else {}),
            "align": self.align,
            "json": self.as_json,
            "decoding": {key: value for key, value in config.items() if key != IGNORED_SETTING},
        }


def restore_crlf(lines: bytes, originals: Sequence[bytes]) -> bytes:
    """Translated lines, with CR LF where the source line had it."""
    if not any(line.endswith(b"\r\n") for line in originals):
        return lines
    pairs = zip(lines.split(b"\n"), originals, strict=False)
    return b"".join(line + (b"\r\n" if original.endswith(b"\r\n") else b"\n") for line, original in pairs)


def collect_remarks(translations: Sequence[Translation]) -> list[tuple[int, str]]:
    """(index of the text, remark) for language remarks and translation warnings."""
    return [
        (index, remark)
        for index, translation in enumerate(translations)
        for remark in ([translation.remark] if translation.remark else []) + translation.warnings
    ]
