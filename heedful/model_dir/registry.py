"""Models by name: search folders, installed models, and the bundled models.

A name refers to a model directory in the first of these folders that contains it:

1. the folders that the environment variable HEEDFUL_MODELS lists, separated as in PATH;
2. `heedful/models` in the user's data folder: $XDG_DATA_HOME, else ~/.local/share;
3. `bundled` inside the package.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from heedful.errors import ConfigError, did_you_mean
from heedful.model_dir.files import CHECKSUMS, SAVED

EXPORT_RECORD, EXPORT_FORMAT, EXPORT_VERSION = "heedful.json", "heedful-ctranslate2", 1
"""The file of an exported directory with the configuration and the checksums of the other files."""
MODELS_VARIABLE = "HEEDFUL_MODELS"
DEFAULT_VARIABLE = "HEEDFUL_MODEL"
"""Environment variable with the directory or name of the default model."""
BUNDLED = Path(__file__).resolve().parent.parent / "bundled"
DEFAULT_NAME = "en-de-zh"
"""The bundled model with the most directions; the others are preferred for the directions that they have."""


@dataclass(frozen=True)
class InstalledModel:
    """A model that can be found by name."""

    name: str
    directory: Path
    is_bundled: bool
    """Whether it is part of the package."""


def model_folders() -> list[Path]:
    """The folders that are searched for models, in order; they need not exist."""
    listed = [Path(os.path.expanduser(part)) for part in os.environ.get(MODELS_VARIABLE, "").split(os.pathsep) if part]
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return [*listed, Path(data) / "heedful" / "models", BUNDLED]


def installed_models() -> list[InstalledModel]:
    """All installed models, ordered by folder, then by name."""
    found: dict[str, InstalledModel] = {}
    for folder in model_folders():
        for directory in _directories(folder):
            if is_model(directory):
                found.setdefault(directory.name, InstalledModel(directory.name, directory, folder == BUNDLED))
    return list(found.values())


def is_model(directory: Path) -> bool:
    """Whether a directory looks like a model directory or an export for CTranslate2."""
    return any((directory / file).is_file() for file in (CHECKSUMS, f"{SAVED}/{CHECKSUMS}", EXPORT_RECORD))


REMEDY = "-m DIRECTORY or a name of `heedful models`, or train one: heedful train --source … --target … -o model"


def find_model(named: str | Path, remedy: str = REMEDY) -> Path:
    """The model directory with this path, or else this name; `remedy` completes the error message."""
    path = Path(named)
    if path.is_dir():
        return path
    is_name = len(path.parts) == 1 and path.name not in ("", ".", "..")
    models = installed_models() if is_name else []
    for model in models:
        if model.name == path.name:
            return model.directory
    if path.exists():  # opening it raises the error
        return path
    if not is_name:
        raise ConfigError(f"{path}: there is no such model directory; give {remedy}")
    names = [model.name for model in models]
    known = f"installed are {', '.join(names)}" if names else "none is installed"
    folders = ", ".join(str(folder) for folder in model_folders())
    raise ConfigError(
        f"{path}: there is no such model directory, and no model of this name{did_you_mean(path.name, names)}; {known} "
        f"(looked in {folders}); give {remedy}"
    )


def bundled_models() -> list[Path]:
    """The bundled models in the order in which they are asked for a direction: the default one last."""
    found = [directory for directory in _directories(BUNDLED) if is_model(directory)]
    return sorted(found, key=lambda directory: directory.name == DEFAULT_NAME)


def bundled_model() -> Path | None:
    """The bundled model that has the most directions."""
    return next(reversed(bundled_models()), None)


def default_models() -> list[Path]:
    """The models that translate if none is named: that of HEEDFUL_MODEL, else the bundled ones.

    Each direction is translated by the first model that has it.
    """
    if os.environ.get(DEFAULT_VARIABLE):
        return [default_model()]
    return bundled_models() or [default_model()]


def default_model() -> Path:
    """The default model of commands that work on one: that of HEEDFUL_MODEL, else the bundled one."""
    if named := os.environ.get(DEFAULT_VARIABLE):
        return find_model(named, remedy=f"the environment variable {DEFAULT_VARIABLE} another value, or {REMEDY}")
    found = bundled_model()
    if found is None:
        raise ConfigError(f"no model is named, and none came with heedful; give {REMEDY}")
    return found


def _directories(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "_")))
    except OSError:  # missing or unreadable folder
        return []
