"""The model directory: a trained model on disk, saved atomically and verified before it is used.

    config.json         format, version, the whole configuration, and details of how it was trained
    model.safetensors   the weights, float32, shared ones once
    tokenizer files     what `Tokenizer.save` writes
    README.md           the model card; people may edit it
    checksums.json      size and SHA-256 of all the others

A folder `training/` (resume state, logs) and files with other names may be in the directory; they are never changed.
"""

from heedful.model_dir.files import FORMAT_VERSION, prepare_directory
from heedful.model_dir.save_load import LoadedModel, describe, load_model, load_weights, save_model, verify

__all__ = [
    "FORMAT_VERSION",
    "LoadedModel",
    "describe",
    "load_model",
    "load_weights",
    "prepare_directory",
    "save_model",
    "verify",
]
