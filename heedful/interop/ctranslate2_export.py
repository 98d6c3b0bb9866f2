"""Export to CTranslate2: a model in its format, with the tokenizer and Heedful's configuration."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from heedful import __version__
from heedful.atomic_files import REPLACED, fsync_path, replace_directory
from heedful.config_loading import to_mapping
from heedful.directory_lock import lock_directory
from heedful.errors import ConfigError, ModelDirectoryError
from heedful.model_dir.ctranslate2_format import VOCABULARY_MAP, ctranslate2_files
from heedful.model_dir.files import sha256, to_json
from heedful.model_dir.registry import EXPORT_FORMAT, EXPORT_RECORD, EXPORT_VERSION
from heedful.model_dir.save_load import ModelArrays, load_arrays
from heedful.model_dir.shortlist import read_shortlist

README = """\
# A translation model for CTranslate2

Converted from a Heedful model with `heedful export --to ctranslate2 --quantization {quantization}`.

```python
import ctranslate2
import sentencepiece

translator = ctranslate2.Translator("{name}")
source = sentencepiece.SentencePieceProcessor("{name}/{source}")
target = sentencepiece.SentencePieceProcessor("{name}/{target}")
{pieces}
result = translator.translate_batch([pieces], beam_size=4, patience=4, length_penalty=0.6, max_input_length=0)[0]
print(target.decode(result.hypotheses[0]))
```

`heedful translate -m {name}` can also use this directory; it splits long texts and ranks hypotheses as Heedful does.
"""
SHORTLIST_README = """
`vmap.txt` is the model's shortlist: with `use_vmap=True`, `translate_batch` considers only likely translations of the
words in the batch, which is faster.
"""


def export_ctranslate2(
    model: str | Path, output: str | Path, *, quantization: str = "float32", overwrite: bool = False
) -> Path:
    """Convert a model directory to CTranslate2's format, atomically and without torch.

    Model options that CTranslate2 does not support raise `ConfigError`. An existing export is replaced only with
    `overwrite`; any other directory that is not empty is never replaced.
    """
    place = Path(output)
    with lock_directory(place.with_name(f".{place.name}.lock")):  # the directory itself is replaced
        return _export(model, place, quantization, overwrite=overwrite)


def _export(model: str | Path, place: Path, quantization: str, *, overwrite: bool) -> Path:
    check_output(place, overwrite=overwrite)
    arrays = load_arrays(model)
    files = ctranslate2_files(arrays, quantization, read_shortlist(model))
    staging = place.with_name(f".{place.name}.writing")
    try:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        for name, contents in files.items():
            (staging / name).write_bytes(contents)
        arrays.tokenizer.save(staging)
        names = sorted(os.listdir(staging))
        readme = make_readme(arrays, place.name, quantization) + (SHORTLIST_README if VOCABULARY_MAP in names else "")
        (staging / "README.md").write_text(readme, encoding="utf-8")
        record = {
            "format": EXPORT_FORMAT,
            "format_version": EXPORT_VERSION,
            "heedful_version": __version__,
            "quantization": quantization,
            "files": {name: sha256(staging / name) for name in names},
            "config": to_mapping(arrays.config),
            "details": dict(arrays.details),
        }
        (staging / EXPORT_RECORD).write_text(to_json(record), encoding="utf-8")
        for path in staging.iterdir():
            fsync_path(path)
        replace_directory(staging, place)
        shutil.rmtree(place.with_name(place.name + REPLACED), ignore_errors=True)
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise ModelDirectoryError(f"{place}: cannot write the exported model: {error}.") from error
    return place


def check_output(place: Path, *, overwrite: bool) -> None:
    """Raise `ConfigError` if `place` is not empty, unless it is an export and `overwrite` is set."""
    if not os.path.lexists(place):
        return
    if not place.is_dir() or place.is_symlink():
        raise ConfigError(f"{place} is not a directory; choose another with -o.")
    if not any(place.iterdir()):
        return
    if not (place / EXPORT_RECORD).is_file():
        raise ConfigError(f"{place} is not empty and not an exported model; choose another directory with -o.")
    if not overwrite:
        raise ConfigError(f"{place} has an exported model; add --overwrite to replace it, or choose another with -o.")


def make_readme(arrays: ModelArrays, name: str, quantization: str) -> str:
    """The README of the directory, with a snippet that uses the model."""
    joint, tags = arrays.tokenizer.joint, arrays.tokenizer.tags
    pieces = 'pieces = source.encode("A sentence.", out_type=str)'
    if tags:
        others = f", or one of {', '.join(f'<2{tag}>' for tag in tags[1:])}" if tags[1:] else ""
        pieces = (
            f'tag = "<2{tags[0]}>"  # the language to translate into{others}\n{pieces.replace("= ", "= [tag] + ", 1)}'
        )
    return README.format(
        name=name,
        quantization=quantization,
        source="tokenizer.model" if joint else "source.model",
        target="tokenizer.model" if joint else "target.model",
        pieces=pieces,
    )
