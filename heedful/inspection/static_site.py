"""The site of `heedful see`: the page, the engine and the models, by path.

The server (`heedful.inspection.page_server`) sends these files, and `write_site` writes them into a folder, so the
addresses are the same: `site.json` lists the models, and `models/NAME/model.json` describes each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from heedful.backend_support import supports, unsupported_options
from heedful.errors import ConfigError, DecodingError
from heedful.interop.web import (
    EXAMPLE,
    FORMAT_VERSION,
    MANIFEST,
    TRANSLATE,
    WebFile,
    built_files,
    is_empty_or_missing,
    json_file,
    manifest_of_served_model,
    model_files,
    write_folder,
)
from heedful.interop.web_checkpoints import MANIFEST as CHECKPOINTS
from heedful.interop.web_checkpoints import checkpoint_files
from heedful.model_dir.checkpoints import FOLDER
from heedful.model_dir.registry import default_models, find_model
from heedful.model_dir.save_load import load_arrays, read_directions
from heedful.text.language_names import target_code

PAGE, SITE, CHECKSUMS = "index.html", "site.json", "SHA256SUMS"
SENTENCES = {
    "en": "I have never seen the book that you gave me yesterday.",
    "de": "Gestern haben die Kinder im Garten gespielt, bis es dunkel wurde.",
    "zh": "我昨天在图书馆借了三本书。",
}
"""An example for each source language of the bundled models."""


@dataclass(frozen=True)
class SiteModel:
    """A model of a site. `kind`: the engine runs it in the page, or torch runs it on the server."""

    name: str
    directory: Path
    kind: Literal["wasm", "server"]
    files: Mapping[str, WebFile]
    """Its files, without the folder."""

    @property
    def folder(self) -> str:
        """The folder of its files in the site."""
        return f"models/{self.name}"

    def entry(self) -> dict[str, Any]:
        """What site.json says of it."""
        manifest = self.files[MANIFEST].content
        assert isinstance(manifest, bytes)
        described = json.loads(manifest)
        return {
            "name": self.name,
            "title": described["title"],
            "directory": f"models/{quote(self.name)}/",
            "kind": self.kind,
            "directions": described["directions"],
            "bytes": sum(file.size for name, file in self.files.items() if not name.startswith(f"{FOLDER}/")),
            "has_checkpoints": CHECKPOINTS in self.files,
            "parameters": described["model"]["num_parameters"],
        }


def site_model(directory: Path, *, name: str, kind: Literal["wasm", "server"] | None = None) -> SiteModel:
    """Read a model directory. `kind` None: in the page if the native engine supports the model."""
    config = load_arrays(directory, with_weights=False).config
    kind = kind or ("wasm" if supports("native_engine", config.model) else "server")
    if kind == "server":
        return SiteModel(name, directory, kind, {MANIFEST: manifest_of_served_model(directory, name)})
    return SiteModel(name, directory, kind, {**model_files(directory, name), **checkpoint_files(directory)})


def site_models(directories: Sequence[Path]) -> list[SiteModel]:
    """Read the models of a site; of several with the same name, the later ones get a number."""
    models: dict[str, SiteModel] = {}
    for directory in dict.fromkeys(path.resolve() for path in directories):
        name, number = directory.name, 2
        while name in models:
            name, number = f"{directory.name}-{number}", number + 1
        models[name] = site_model(directory, name=name)
    return list(models.values())


def named_models(given: Sequence[str | Path]) -> list[Path]:
    """The directories of the models with these names or paths; of none: those that translate if none is named."""
    return [find_model(path) for path in given] if given else default_models()


def check_sentence(models: Sequence[SiteModel], sentence: str, language: str | None) -> str | None:
    """The code of the target language; an error if no model has it, or if the sentence is too long for every model."""
    known = tuple(dict.fromkeys(code for model in models for code in read_directions(model.directory).target_codes))
    code = None if language is None else target_code(language, known)
    if code is not None and code not in known:
        listed = ", ".join(known) or "languages that are not recorded"
        raise ConfigError(f"{language}: no model of this page translates into it; they translate into {listed}.")
    if not sentence:
        return code
    lengths = []
    for model in models:
        arrays = load_arrays(model.directory, with_weights=False)
        tags = arrays.tokenizer.tags
        length = len(arrays.tokenizer.encode_source(sentence, code if code in tags else next(iter(tags), None)))
        lengths.append((length, arrays.config.model.max_length))
    if all(length > most for length, most in lengths):
        length, most = min(lengths)
        raise DecodingError(f"this sentence has {length:,} tokens, and the model takes at most {most:,}; shorten it.")
    return code


def site_files(models: Sequence[SiteModel]) -> dict[str, WebFile]:
    """Every file of the site, by path."""
    others = f"{EXAMPLE}/", f"{TRANSLATE}/"
    files = {name: file for name, file in built_files().items() if not name.startswith(others)}
    if PAGE not in files:
        raise ConfigError("heedful/web/ lacks the page index.html; install heedful again, or run python web/build.py.")
    entries = [model.entry() for model in models]
    files[SITE] = json_file(
        {
            "format_version": FORMAT_VERSION,
            "models": entries,
            "default": models[0].name,
            "examples": example_sentences(entries),
        }
    )
    return files | {f"{model.folder}/{name}": file for model in models for name, file in model.files.items()}


def example_sentences(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """A sentence for each direction of the models that has one."""
    pairs = dict.fromkeys((pair["source"], pair["target"]) for entry in entries for pair in entry["directions"])
    return [{"text": SENTENCES[source], "to": target} for source, target in pairs if source in SENTENCES and target]


def write_site(models: Sequence[SiteModel], place: Path, *, overwrite: bool = False) -> int:
    """Write the site for a static file server; returns its size in bytes.

    A folder that is not empty is replaced only with `overwrite`, and only if it has the files of such a site and no
    others.
    """
    for model in models:
        if model.kind == "server":
            options = " and ".join(
                unsupported_options("native_engine", load_arrays(model.directory, with_weights=False).config.model)
            )
            raise ConfigError(
                f"{model.name}: a static site has only models that run in the page, and the engine does not support "
                f"{options}; show this one with heedful see -m {model.directory}."
            )
    check_place(place, overwrite=overwrite)
    files = site_files(models)
    checksums = "".join(f"{file.sha256}  {name}\n" for name, file in sorted(files.items()))
    files[CHECKSUMS] = WebFile(checksums.encode())
    write_folder(files, place)
    return sum(file.size for file in files.values())


def check_place(place: Path, *, overwrite: bool) -> None:
    """Raise `ConfigError` if `place` has anything but such a site, or without `overwrite`."""
    if is_empty_or_missing(place, "--site"):
        return
    listed = {CHECKSUMS}
    if (place / CHECKSUMS).is_file() and (place / SITE).is_file():
        lines = (place / CHECKSUMS).read_text("utf-8", errors="replace").splitlines()
        listed |= {line.partition("  ")[2] for line in lines}
    others = sorted({path.relative_to(place).as_posix() for path in place.rglob("*") if not path.is_dir()} - listed)
    if others:
        raise ConfigError(
            f"{place} has files that heedful see did not write, such as {others[0]}; choose another directory with "
            f"--site."
        )
    if not overwrite:
        raise ConfigError(f"{place} has a site; add --overwrite to replace it, or choose another with --site.")
