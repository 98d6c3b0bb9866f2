"""Print docs/configuration.md: every key of heedful/config.py with its type, default and sentence, and the presets.

    python .ci/configuration_page.py > docs/configuration.md

A test compares the page with what this prints, so that the page cannot differ from the program.
"""

import ast
import dataclasses
import inspect
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from heedful import config  # noqa: E402

INTRODUCTION = """\
# Configuration

Every key with its type, its default and its sentence. This page is made from
[`heedful/config.py`](../heedful/config.py) by `python .ci/configuration_page.py > docs/configuration.md`; a test
compares the two.

A key of a section is a line of a YAML file, an entry of the mapping that `heedful.train` takes, and a flag:
`--training.steps=1000`. A corpus (the keys of `data.train[…]`) is described in YAML or Python; on the command line
`--source` with `--target` (two files) and `--data` (one file) name it, once for each corpus. The common keys have short
flags too, which `heedful train --help` lists. Unknown keys are errors that name the nearest right one. `None` is
written `null` in YAML and `none` in a flag.

What a request does not say comes from the preset, what the preset does not say from the defaults below. A run without
any budget (`steps`, `epochs`, `tokens`, `minutes`) gets one: 10 to 100 epochs, more for smaller corpora, on a CPU at
most 60 minutes, and `early_stopping` 8. `heedful train --dry-run` with your flags prints the result, with `null` where
only the corpora can tell; the configuration that a model was made with stands in its
[`config.json`](model-directory.md)."""

PRESETS = """\
## Presets

What each changes from the defaults; `base` and `big` are the paper's. `auto` chooses by pairs and device: below 20,000
pairs `tiny`, below 100,000 or on a CPU `small`, below 500,000 `iwslt`, else `base`."""

SECTIONS = [
    ("The model as a whole", config.Config),
    ("data", config.DataConfig),
    ("data.train[…], data.valid[…], data.test[…]", config.CorpusConfig),
    ("tokenizer", config.TokenizerConfig),
    ("model", config.ModelConfig),
    ("training", config.TrainingConfig),
    ("decoding", config.DecodingConfig),
]


def sentences(section: type) -> dict[str, tuple[str, str]]:
    """Type and sentence of each field, read from the source: the string below a field is its sentence."""
    [tree] = ast.parse(inspect.getsource(section)).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, tuple[str, str]] = {}
    name = ""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            found[name] = (ast.unparse(node.annotation), "")
        elif name and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found[name] = (found[name][0], str(node.value.value))
    return found


def kind(annotation: str) -> str:
    """A type for readers: the choices of a `Literal`, or its name."""
    return annotation.replace("Literal[", "").replace("]", "") if annotation.startswith("Literal[") else annotation


def written(value: Any) -> str:
    """A default as the page shows it."""
    return f'"{value}"' if isinstance(value, str) else str(value)


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def table(section: type) -> str:
    told = sentences(section)
    rows = ["| key | type | default | |", "|---|---|---|---|"]
    for field in dataclasses.fields(section):
        if field.default is dataclasses.MISSING:
            continue  # a section, which has a table of its own
        annotation, sentence = told[field.name]
        assert sentence, f"{section.__name__}.{field.name} has no sentence"
        default = written(field.default)
        rows.append(f"| `{field.name}` | {cell(kind(annotation))} | `{cell(default)}` | {cell(sentence)} |")
    return "\n".join(rows)


def presets() -> str:
    rows = ["| preset | changes |", "|---|---|"]
    for name, changes in config.PRESETS.items():
        told = [f"`{section}.{key}={value}`" for section, keys in changes.items() for key, value in keys.items()]
        rows.append(f"| `{name}` | {', '.join(told)} |")
    return "\n".join(rows)


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for title, section in SECTIONS:
        heading = title if " " in title and "[" not in title else f"`{title}`".replace(", ", "`, `")
        parts.append(f"## {heading}\n\n{inspect.getdoc(section)}\n\n{table(section)}")
    parts += [PRESETS, presets()]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.write(page())
