"""Heedful: the Transformer of "Attention Is All You Need", from two text files to a translation.

These few names are the public interface; each is imported when it is first used, so `import heedful` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedful.config import Config, ModelConfig
    from heedful.decoding.text_generation import TextGenerator
    from heedful.decoding.translation import Translation
    from heedful.decoding.translator import Translator
    from heedful.errors import HeedfulError
    from heedful.evaluation.score import Score, score
    from heedful.inspection.notebook import see
    from heedful.model.transformer import Transformer
    from heedful.training_pipeline import train

__version__ = "0.1.0"

__all__ = [
    "Config",
    "HeedfulError",
    "ModelConfig",
    "Score",
    "TextGenerator",
    "Transformer",
    "Translation",
    "Translator",
    "__version__",
    "score",
    "see",
    "train",
]

_HOMES = {
    "Config": "heedful.config",
    "HeedfulError": "heedful.errors",
    "ModelConfig": "heedful.config",
    "Score": "heedful.evaluation.score",
    "TextGenerator": "heedful.decoding.text_generation",
    "Transformer": "heedful.model.transformer",
    "Translation": "heedful.decoding.translation",
    "Translator": "heedful.decoding.translator",
    "score": "heedful.evaluation.score",
    "see": "heedful.inspection.notebook",
    "train": "heedful.training_pipeline",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'heedful' has no attribute {name!r}")
    try:
        value = getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        from heedful.extras import explain

        raise explain(error) or error from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
