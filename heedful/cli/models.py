"""`heedful models`: list installed models."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.cli import options
from heedful.cli.exit_codes import printable
from heedful.errors import HeedfulError

if TYPE_CHECKING:
    from heedful.model_dir.registry import InstalledModel


def models(as_json: options.AsJson = False) -> None:
    """List installed models with their languages, size, scores and directory.

    \b
    heedful models
    heedful models --json
    heedful translate -m NAME --to de "A sentence."

    Model directories in ~/.local/share/heedful/models, and in the folders listed in the environment variable
    HEEDFUL_MODELS, can be given by name.
    """
    from heedful.model_dir.registry import default_model, installed_models, model_folders

    try:
        default = default_model().resolve()
    except HeedfulError:
        default = None
    descriptions = [describe_model(model, default) for model in installed_models()]
    if as_json:
        print(
            json.dumps({"models": descriptions, "folders": [str(path) for path in model_folders()]}, ensure_ascii=False)
        )
        return
    if not descriptions:
        print(f"No models are installed. Searched: {', '.join(str(path) for path in model_folders())}.")
    for description in descriptions:
        print_model(description)


def describe_model(model: InstalledModel, default: Path | None) -> dict[str, Any]:
    """A model as plain data, with the key `problem` if it is damaged."""
    from heedful.cli.info import format_direction
    from heedful.config_loading import to_mapping
    from heedful.model_dir import describe
    from heedful.model_dir.files import CHECKSUMS
    from heedful.model_dir.fingerprint import read_exported
    from heedful.model_dir.registry import EXPORT_RECORD

    summary: dict[str, Any] = {
        "name": model.name,
        "directory": str(model.directory),
        "came_with_heedful": model.is_bundled,
        "is_default": model.directory.resolve() == default,
    }
    try:
        if (model.directory / EXPORT_RECORD).is_file():
            exported = read_exported(model.directory)
            description: dict[str, Any] = {"config": to_mapping(exported.config), "details": exported.details}
            kind, files = "ctranslate2", None
        else:
            description = describe(model.directory)
            kind, files = "compact" if description["compact"] else "full", {*description["files"], CHECKSUMS}
    except HeedfulError as error:
        return {**summary, "problem": str(error)}
    return {
        **summary,
        "kind": kind,
        "title": description["config"]["name"],
        "directions": format_direction(description),
        "num_parameters": description["details"].get("num_parameters"),
        "bytes": directory_size(model.directory, files),
        "scores": description["details"].get("scores") or [],
    }


def directory_size(directory: Path, names: Collection[str] | None) -> int:
    """The total size in bytes of the files with these names (None: of all files)."""
    files = (path for path in directory.iterdir() if path.is_file() and (names is None or path.name in names))
    return sum(path.stat().st_size for path in files)


def print_model(model: dict[str, Any]) -> None:
    """Print a model in a few lines."""
    default = "  (default)" if model["is_default"] else ""
    print(printable(f"{model['name']}{default}"))
    if "problem" in model:
        print(printable(f"  cannot be used: {model['problem']}"))
        return
    parameters = f"{model['num_parameters'] / 1e6:,.1f} M parameters, " if model["num_parameters"] else ""
    print(printable(f"  {model['directions']}; {parameters}{model['bytes'] / 1e6:,.1f} MB, {model['kind']}"))
    defined = [score for score in model["scores"] if score["value"] is not None]
    undefined = {score.get("data") for score in model["scores"] if score["value"] is None}
    for score in defined:
        if score["name"] == ("chrF2" if score.get("data") in undefined else "BLEU"):
            print(printable(f"  {score['name']} {score['value']:.1f} on {score.get('data', 'not stated')}"))
    print(printable(f"  {model['directory']}"))
