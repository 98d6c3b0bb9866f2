"""Print docs/configuration.md: every key of heedful/config.py with its type, default and description, and the presets.

    python .ci/configuration_page.py > docs/configuration.md
    python .ci/configuration_page.py zh > docs/configuration.zh-CN.md

The Chinese descriptions are in .ci/configuration.zh-CN.yaml. A test compares both pages with the output of this script.
"""
# ruff: noqa: E501

import ast
import dataclasses
import inspect
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from heedful import config  # noqa: E402

Descriptions = dict[str, dict[str, str]]
"""Of each section's class: the description of each key, and under "" that of the section itself."""

INTRODUCTION = """\
# Configuration

[中文](configuration.zh-CN.md)

All keys with type, default and description. This page is generated from
[`heedful/config.py`](../heedful/config.py) by `python .ci/configuration_page.py > docs/configuration.md`.

A key can be given in a YAML file, in the mapping passed to `heedful.train`, or as a flag:
`--training.steps=1000`. Corpora (`data.train[…]`) are described in YAML or Python; on the command line,
use `--source` with `--target` (two files) or `--data` (one file), once for each corpus. Common keys also have short
flags, which `heedful train --help` lists. Unknown keys are errors that suggest the nearest valid key. `None` is
`null` in YAML and `none` in a flag.

Keys that are not given have the value of the preset, or else the default below. A run without
a budget (`steps`, `epochs`, `tokens`, `minutes`) gets 10 to 100 epochs, more for smaller corpora, on a CPU at
most 60 minutes, and `early_stopping` 8. `heedful train --dry-run` with your flags prints the result, with `null` for values
that depend on the corpora; the configuration of a trained model is in its
[`config.json`](model-directory.md)."""

PRESETS = """\
## Presets

Values that differ from the defaults; `base` and `big` are those of the paper. `auto` selects by number of pairs and device: below 20,000
pairs `tiny`, below 100,000 or on a CPU `small`, below 500,000 `iwslt`, otherwise `base`."""

INTRODUCTION_ZH = """\
# 配置

[English](configuration.md)

本页列出所有配置项的类型、默认值和说明，由 `python .ci/configuration_page.py zh > docs/configuration.zh-CN.md` 根据 [`heedful/config.py`](../heedful/config.py) 生成。

配置项可以写在 YAML 文件里，可以写在传给 `heedful.train` 的映射里，也可以作为命令行参数：`--training.steps=1000`。语料（`data.train[…]`）在 YAML 或 Python 里描述；在命令行上，每份语料用一次 `--source` 和 `--target`（两个文件）或 `--data`（一个文件）。常用的配置项还有短参数，见 `heedful train --help`。写错的键会报错，并提示最接近的正确写法。`None` 在 YAML 里写作 `null`，在命令行参数里写作 `none`。

没有给出的配置项取预设的值，预设没有的取下面的默认值。没有给出预算（`steps`、`epochs`、`tokens`、`minutes`）时，训练 10 到 100 轮，语料越小轮数越多，在 CPU 上最多 60 分钟，并且 `early_stopping` 为 8。给自己的命令加上 `heedful train --dry-run` 会输出最终结果，取决于语料的值写作 `null`；训练好的模型的配置在它的 [`config.json`](model-directory.zh-CN.md) 里。"""

PRESETS_ZH = """\
## 预设

与默认值不同的值；`base` 和 `big` 是论文的设置。`auto` 按句对数和设备选择：少于 20,000 对用 `tiny`，少于 100,000 对或在 CPU 上用 `small`，少于 500,000 对用 `iwslt`，否则用 `base`。"""

SECTIONS = [
    ("The model as a whole", config.Config),
    ("data", config.DataConfig),
    ("data.train[…], data.valid[…], data.test[…]", config.CorpusConfig),
    ("tokenizer", config.TokenizerConfig),
    ("model", config.ModelConfig),
    ("training", config.TrainingConfig),
    ("decoding", config.DecodingConfig),
]


def fields_of(section: type) -> dict[str, tuple[str, str]]:
    """Type and description of each field, read from the source: the string below a field describes it."""
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
    """Text in one line of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def keys_of(section: type) -> list[dataclasses.Field[Any]]:
    """The fields that are keys, without those that are sections with their own table."""
    return [field for field in dataclasses.fields(section) if field.default is not dataclasses.MISSING]


def table(section: type, heading: str, translated: Descriptions | None) -> str:
    """The keys of a section."""
    fields = fields_of(section)
    rows = [heading, "|---|---|---|---|"]
    for field in keys_of(section):
        annotation, description = fields[field.name]
        assert description, f"{section.__name__}.{field.name} has no description"
        if translated is not None:
            description = translated[section.__name__][field.name]
        default = written(field.default)
        rows.append(f"| `{field.name}` | {cell(kind(annotation))} | `{cell(default)}` | {cell(description)} |")
    return "\n".join(rows)


def presets(heading: str) -> str:
    """The values of each preset."""
    rows = [heading, "|---|---|"]
    for name, changes in config.PRESETS.items():
        values = [f"`{section}.{key}={value}`" for section, keys in changes.items() for key, value in keys.items()]
        rows.append(f"| `{name}` | {', '.join(values)} |")
    return "\n".join(rows)


def page(*, in_chinese: bool = False) -> str:
    """The whole page."""
    translated = chinese_descriptions() if in_chinese else None
    heading = "| 配置项 | 类型 | 默认值 | 说明 |" if in_chinese else "| key | type | default | description |"
    parts = [INTRODUCTION_ZH if in_chinese else INTRODUCTION]
    for title, section in SECTIONS:
        about = inspect.getdoc(section) if translated is None else translated[section.__name__][""]
        if " " in title and "[" not in title:
            shown = "整个模型" if in_chinese else title
        else:
            shown = f"`{title}`".replace(", ", "`、`" if in_chinese else "`, `")
        parts.append(f"## {shown}\n\n{about}\n\n{table(section, heading, translated)}")
    parts.append(PRESETS_ZH if in_chinese else PRESETS)
    parts.append(presets("| 预设 | 不同的值 |" if in_chinese else "| preset | values |"))
    return "\n\n".join(parts) + "\n"


def chinese_descriptions() -> Descriptions:
    """The translations, which must have the same keys as the configuration."""
    path = Path(__file__).with_name("configuration.zh-CN.yaml")
    found: Descriptions = yaml.safe_load(path.read_text(encoding="utf-8"))
    for _, section in SECTIONS:
        wanted = {"", *(field.name for field in keys_of(section))}
        differing = wanted ^ set(found[section.__name__])
        if differing:
            sys.exit(f"{path.name}: {section.__name__} must describe: {', '.join(sorted(differing))}")
    return found


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.write(page(in_chinese=sys.argv[1:] == ["zh"]))
