"""Models by name: where they are looked for, which are installed, and which one came with the package.

A name is that of a model directory in one of these folders, the first that has it:

1. the folders that the environment variable HEEDFUL_MODELS lists, separated as in PATH;
2. `heedful/models` in the user's data folder: $XDG_DATA_HOME, else ~/.local/share;
3. `bundled` inside the package.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from heedful.did_you_mean import did_you_mean
from heedful.errors import ConfigError
from heedful.model_dir.files import CHECKSUMS, SAVED

RECORD, RECORD_FORMAT, RECORD_VERSION = "heedful.json", "heedful-ctranslate2", 1
"""The file that makes an exported directory complete: our configuration, and the checksums of the other files."""
VARIABLE = "HEEDFUL_MODELS"
DEFAULT_VARIABLE = "HEEDFUL_MODEL"
"""The environment variable with the model, a directory or a name, that is used when none is named."""
BUNDLED = Path(__file__).resolve().parent.parent / "bundled"
DEFAULT_NAME = "en-de-zh"
"""The bundled model that is used when none is named and there are several."""


@dataclass(frozen=True)
class Installed:
    """A model that can be found by name."""

    name: str
    directory: Path
    is_bundled: bool
    """Whether it came with the package."""


def model_folders() -> list[Path]:
    """Where models are looked for by name, first to last; not all of them need exist."""
    listed = [Path(os.path.expanduser(part)) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return [*listed, Path(data) / "heedful" / "models", BUNDLED]


def installed_models() -> list[Installed]:
    """Every installed model, in the order of the folders, then of the names."""
    found: dict[str, Installed] = {}
    for folder in model_folders():
        for directory in _directories(folder):
            if is_model(directory):
                found.setdefault(directory.name, Installed(directory.name, directory, folder == BUNDLED))
    return list(found.values())


def is_model(directory: Path) -> bool:
    """Whether a directory looks like a model directory or an export for CTranslate2."""
    return any((directory / file).is_file() for file in (CHECKSUMS, f"{SAVED}/{CHECKSUMS}", RECORD))


REMEDY = "-m DIRECTORY or a name of `heedful models`, or train one: heedful train --source … --target … -o model"


def find_model(named: str | Path, remedy: str = REMEDY) -> Path:
    """The model directory of a path, or if there is none, of a name; `remedy` is what an error says to give."""
    path = Path(named)
    if path.is_dir():
        return path
    is_name = len(path.parts) == 1 and path.name not in ("", ".", "..")
    models = installed_models() if is_name else []
    for model in models:
        if model.name == path.name:
            return model.directory
    if path.exists():  # not a directory: opening it gives the error
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


def bundled_model() -> Path | None:
    """The model that came with the package: the only one, or the default of several."""
    bundled = [directory for directory in _directories(BUNDLED) if is_model(directory)]
    if len(bundled) > 1:
        named = [directory for directory in bundled if directory.name == DEFAULT_NAME]
        if not named:
            names = ", ".join(directory.name for directory in bundled)
            raise ConfigError(f"several models came with heedful: {names}; name one of them.")
        return named[0]
    return bundled[0] if bundled else None


def default_model() -> Path:
    """The model that is used when none is named: that of HEEDFUL_MODEL, else the bundled one."""
    if named := os.environ.get(DEFAULT_VARIABLE):
        return find_model(named, remedy=f"the environment variable {DEFAULT_VARIABLE} another value, or {REMEDY}")
    found = bundled_model()
    if found is None:
        raise ConfigError(f"no model is named, and none came with heedful; give {REMEDY}")
    return found


def _directories(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "_")))
    except OSError:  # a folder that does not exist or cannot be read has no models
        return []
