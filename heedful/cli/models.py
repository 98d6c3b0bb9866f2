"""`heedful models`: the models that can be asked for by name."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.cli import options
from heedful.cli.exit_codes import printable
from heedful.errors import HeedfulError

if TYPE_CHECKING:
    from heedful.model_dir.registry import Installed


def models(as_json: options.AsJson = False) -> None:
    """List the installed models: name, directions, size, scores, place.

    \b
    heedful models
    heedful models --json
    heedful translate -m NAME --to de "A sentence."

    A model directory in ~/.local/share/heedful/models, or in a folder that the environment variable HEEDFUL_MODELS
    lists, is found by its name.
    """
    from heedful.model_dir.registry import default_model, installed_models, model_folders

    try:
        default = default_model().resolve()
    except HeedfulError:
        default = None
    found = [described(model, default) for model in installed_models()]
    if as_json:
        print(json.dumps({"models": found, "folders": [str(path) for path in model_folders()]}, ensure_ascii=False))
        return
    if not found:
        print(f"No models are installed; looked in {', '.join(str(path) for path in model_folders())}.")
    for one in found:
        print_model(one)


def described(model: Installed, default: Path | None) -> dict[str, Any]:
    """One model as plain data; of a damaged one, what is wrong with it."""
    from heedful.cli.info import direction_of
    from heedful.config_loading import to_mapping
    from heedful.model_dir import describe
    from heedful.model_dir.files import CHECKSUMS
    from heedful.model_dir.fingerprint import read_exported
    from heedful.model_dir.registry import RECORD

    told: dict[str, Any] = {
        "name": model.name,
        "directory": str(model.directory),
        "came_with_heedful": model.is_bundled,
        "is_default": model.directory.resolve() == default,
    }
    try:
        if (model.directory / RECORD).is_file():
            read = read_exported(model.directory)
            found: dict[str, Any] = {"config": to_mapping(read.config), "details": read.details}
            kind, own = "ctranslate2", None
        else:
            found = describe(model.directory)
            kind, own = "compact" if found["compact"] else "full", {*found["files"], CHECKSUMS}
    except HeedfulError as error:
        return {**told, "problem": str(error)}
    return {
        **told,
        "kind": kind,
        "title": found["config"]["name"],
        "directions": direction_of(found),
        "num_parameters": found["details"].get("num_parameters"),
        "bytes": size_of(model.directory, own),
        "scores": found["details"].get("scores") or [],
    }


def size_of(directory: Path, own: Collection[str] | None) -> int:
    """The bytes of a model's own files (None: of all): what an engine keeps beside them can be made again."""
    files = (path for path in directory.iterdir() if path.is_file() and (own is None or path.name in own))
    return sum(path.stat().st_size for path in files)


def print_model(one: dict[str, Any]) -> None:
    """A model in a few lines."""
    default = "  (used when none is named)" if one["is_default"] else ""
    print(printable(f"{one['name']}{default}"))
    if "problem" in one:
        print(printable(f"  cannot be used: {one['problem']}"))
        return
    parameters = f"{one['num_parameters'] / 1e6:,.1f} M parameters, " if one["num_parameters"] else ""
    print(printable(f"  {one['directions']}; {parameters}{one['bytes'] / 1e6:,.1f} MB, {one['kind']}"))
    defined = [score for score in one["scores"] if score["value"] is not None]
    undefined = {score.get("data") for score in one["scores"] if score["value"] is None}
    for score in defined:
        if score["name"] == ("chrF2" if score.get("data") in undefined else "BLEU"):
            print(printable(f"  {score['name']} {score['value']:.1f} on {score.get('data', 'not stated')}"))
    print(printable(f"  {one['directory']}"))
