"""What is done with every line of a file: plain data, so that it can be sent to a process and kept in a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.config import DecodingConfig
from heedful.config_loading import from_mapping, to_mapping
from heedful.decoding.engines import choose_engine
from heedful.decoding.files.line_chunks import Sizes, read_portions
from heedful.decoding.translation import Translation
from heedful.model_dir.fingerprint import identify_model, read_directions
from heedful.model_dir.registry import RECORD
from heedful.text.language_routing import LanguageEvidence

if TYPE_CHECKING:
    from heedful.decoding.translator import Translator

LINES_FOR_LANGUAGE = 1000
"""First lines of a file that show its language; a fixed number, so that all shards see the same."""
NO_MATTER = "tokens_per_batch"
"""The setting that may change between a run and the one that goes on with it: it says how much memory is used."""


@dataclass(frozen=True)
class Task:
    """A model, an engine to run it, and the way to search."""

    model: str
    engine: str = "auto"
    quantization: str | None = None
    target_language: str | Mapping[str, str] | None = None
    """The language to translate into, or one for each source language."""
    source_language: str | None = None
    likely_language: str | None = None
    """What a line is taken to be in that does not show its language clearly: that of the file."""
    prefix: str | None = None
    """What each translation begins with."""
    align: bool = False
    as_json: bool = False
    """Write everything about a translation, not its text alone."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from those saved with the model."""

    def load(self, device: str) -> Callable[[Sequence[str]], list[Translation]]:
        """The function that translates; the model is loaded."""
        return partial(self.translate, self.load_translator(device))

    def load_translator(self, device: str) -> Translator:
        """The loaded model."""
        from heedful.decoding.translator import Translator

        return Translator.load(self.model, device=device, engine=self.engine, quantization=self.quantization)

    def translate(self, translator: Translator, texts: Sequence[str]) -> list[Translation]:
        """Translate texts with the model, loaded."""
        return translator.translate(
            texts,
            target_language=self.target_language,
            source_language=self.source_language,
            likely_language=self.likely_language,
            target_prefix=[self.prefix] * len(texts) if self.prefix else None,
            align=self.align,
            **self.search,
        )

    def with_codes(self) -> Task:
        """The task with the model's own codes of the languages: two spellings of one are the same task."""
        directions = read_directions(self.model)
        source, target = directions.source_code(self.source_language), directions.target_code(self.target_language)
        return replace(self, source_language=source, target_language=target)

    def with_language_of(self, path: str) -> Task:
        """The task with the language of a file, by its first lines, where nobody has said it and it may matter."""
        directions = read_directions(self.model)
        if not directions.needs_evidence(self.source_language, self.target_language):
            return self
        evidence = LanguageEvidence(directions)
        first = next(read_portions(path, Sizes(LINES_FOR_LANGUAGE)), None)
        evidence.read(first.texts(path)[0] if first else ())
        return replace(self, likely_language=evidence.language)

    def engine_name(self, device: str = "auto") -> str:
        """The engine that will run the model; "auto" is decided."""
        chosen = choose_engine(self.engine, exported=(Path(self.model) / RECORD).is_file())
        if chosen != "auto":
            return chosen
        from heedful.decoding.engines.loading import is_native

        method = self.search.get("method", identify_model(self.model)[0].method)
        is_one = method != "sampling" and is_native(self.model, device=device, quantization=self.quantization)
        return "native" if is_one else "torch"

    def lacks_native(self, device: str) -> str | None:
        """Why the engine that would be the fastest by far is not there; None where it is, or is not wanted."""
        from heedful.decoding.engines.loading import suits_native
        from heedful.native import available

        found = available()
        exported, sampled = (Path(self.model) / RECORD).is_file(), self.search.get("method") == "sampling"
        if found or self.engine != "auto" or exported or sampled:
            return None
        return found.reason if suits_native(self.model, device=device, quantization=self.quantization) else None

    def write(self, texts: Sequence[str], translations: Sequence[Translation]) -> bytes:
        """One line for each text, whatever is in it."""
        lines = []
        for text, translation in zip(texts, translations, strict=True):
            line = translation.to_json(text) if self.as_json else translation.text
            lines.append(line.replace("\r", " ").replace("\n", " ").encode("utf-8", errors="replace") + b"\n")
        return b"".join(lines)

    def identity(self, device: str) -> dict[str, Any]:
        """All that the translations depend on, beside the text; `device` is the kind of device that was chosen."""
        from heedful import __version__

        saved, files = identify_model(self.model)
        config = to_mapping(from_mapping(DecodingConfig, {**to_mapping(saved), **self.search}, "decoding"))
        return {
            "heedful": __version__,
            "model": files,
            "engine": self.engine_name(device),
            "quantization": self.quantization,
            "device": device,
            "target_language": self.target_language,
            "source_language": self.source_language,
            "likely_language": self.likely_language,
            "prefix": self.prefix,
            "align": self.align,
            "json": self.as_json,
            "decoding": {key: value for key, value in config.items() if key != NO_MATTER},
        }


def with_line_ends(lines: bytes, originals: Sequence[bytes]) -> bytes:
    """Translated lines with CR LF where the line that was translated had it."""
    if not any(line.endswith(b"\r\n") for line in originals):
        return lines
    pairs = zip(lines.split(b"\n"), originals, strict=False)
    return b"".join(line + (b"\r\n" if original.endswith(b"\r\n") else b"\n") for line, original in pairs)


def remarks_of(translations: Sequence[Translation]) -> list[tuple[int, str]]:
    """What is odd about some texts, and the warnings about their translations, with their places from 0."""
    return [
        (place, remark)
        for place, one in enumerate(translations)
        for remark in ([one.remark] if one.remark else []) + one.warnings
    ]
