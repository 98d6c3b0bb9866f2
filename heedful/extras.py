"""The extras of the package, and the message for a user when one is not installed.

`pip install heedful` installs what translation needs. Everything else is imported where it is used; this module lists
which extra provides it. A test compares `EXTRAS` with pyproject.toml.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from heedful.errors import MissingPackageError

EXTRAS = {
    "train": ("numpy", "sacrebleu", "safetensors", "tensorboard", "torch"),
    "documents": ("justhtml", "markdown_it", "mdit_py_plugins", "polib"),
    "plots": ("matplotlib",),
    "ctranslate2": ("ctranslate2",),
    "serve": ("python_multipart", "starlette", "uvicorn"),
}
"""For each extra the modules that only it provides; `dev` has them all."""

VERB_PACKAGES = {
    "train": ("numpy", "safetensors", "torch"),
    "generate": ("numpy", "safetensors", "torch"),
    "score": ("sacrebleu",),
    "evaluate": ("sacrebleu",),
    "prepare": ("numpy",),
    "compare": ("numpy", "safetensors", "torch"),
    "average": ("numpy", "safetensors", "torch"),
    "shortlist": ("numpy", "safetensors"),
    "paper": ("numpy", "torch"),
    "serve": ("python_multipart", "starlette", "uvicorn"),
}
"""Packages that a verb always needs, checked before any work is done; all other verbs need no extras."""


def require(packages: Iterable[str]) -> None:
    """Raise a `MissingPackageError` that names all packages that are not installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise missing_packages_error(missing)


def missing_packages_error(packages: Iterable[str]) -> MissingPackageError:
    """The error that names packages and the command that installs them."""
    names = sorted(packages)
    extras = [extra for extra, provided in EXTRAS.items() if not set(provided).isdisjoint(names)]
    listed = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not installed"
    return MissingPackageError(f"{listed}; run: pip install 'heedful[{','.join(extras)}]'")


def explain(error: ModuleNotFoundError) -> MissingPackageError | None:
    """The error for a user if a failed import is of a package of an extra; None for any other module."""
    package = (error.name or "").partition(".")[0]
    is_known = any(package in provided for provided in EXTRAS.values())
    return missing_packages_error([package]) if is_known else None
