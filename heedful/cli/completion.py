"""Values that the shell completes after a flag; see the flag --install-completion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def choices(*values: str) -> Callable[[str], list[str]]:
    """Completes one of a few values."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete


def model_names(incomplete: str) -> list[str]:
    """Installed models, and directories that are models."""
    from heedful.model_dir.registry import installed_models, is_model

    folder = Path(incomplete).parent if not incomplete.endswith("/") else Path(incomplete)
    try:
        here = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    except OSError:
        here = []
    own = [f"{path}" if is_model(path) else f"{path}/" for path in here if not path.name.startswith(".")]
    found = [*(model.name for model in installed_models()), *sorted(own)]
    return [name for name in dict.fromkeys(found) if name.startswith(incomplete)]


def target_languages(ctx: Any, incomplete: str) -> list[str]:
    """The languages that the model translates into: the one named before, else the one used without a name."""
    from heedful.cli.overrides import model_directory
    from heedful.errors import HeedfulError
    from heedful.model_dir.fingerprint import read_directions

    try:
        directions = read_directions(model_directory(ctx.params.get("model")))
    except (HeedfulError, OSError):
        return []
    return [code for code in directions.target_codes if code.startswith(incomplete)]
