"""Pages with hand-written prose whose numbers are filled in from the newest results file.

The text between `<!-- made: NAME -->` and `<!-- end -->` is generated; a section without results is empty.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks.common.result_tables import Results

ROOT = Path(__file__).resolve().parents[2]
SECTION = re.compile(r"(<!-- made: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def newest_figures(name: str) -> tuple[Path, Results] | None:
    """The newest results file of this name and its contents; None if there is none."""
    found = sorted((ROOT / "benchmarks" / "results").glob(f"{name}_*_cpu.json"))
    return (found[-1], json.loads(found[-1].read_text(encoding="utf-8"))) if found else None


def fill(page: str, made: dict[str, str]) -> str:
    """A page with regenerated sections."""

    def section(match: re.Match[str]) -> str:
        text = made.get(match[2], "")
        return f"{match[1]}{text}\n{match[4]}" if text else f"{match[1]}{match[4]}"

    return SECTION.sub(section, page)


def source(path: Path, lang: str) -> str:
    """The line that names the source of all numbers."""
    link = f"[`{path.name}`](../benchmarks/results/{path.name})"
    return {
        "en": f"Numbers, machines, versions and commands: {link}.",
        "zh": f"全部数字、机器、版本和命令：{link}。",
    }[lang]


def machine(results: Results, lang: str) -> str:
    """The machine on which the speed was measured."""
    found = results["speed"]["found"]
    loads = [one["load"] for one in found]
    name, least, most = results["speed"]["machine"], f"{min(loads):.1f}", f"{max(loads):.1f}"
    precisions = list(dict.fromkeys(one.get("precision", "int8") for one in found))
    return {
        "en": f"Measured on {name}, {' and '.join(precisions)}, with two cores in use; system load {least} to {most}.",
        "zh": f"测量机器：{name}，{'、'.join(precisions)}，用两个核；测量时的系统负载 {least} 到 {most}。",
    }[lang]


def shape(model: Results, lang: str) -> str:
    """Number of layers and widths of a model."""
    layers, widths = (model["num_encoder_layers"], model["num_decoder_layers"]), (model["d_model"], model["d_ff"])
    return {
        "en": f"Transformer, {layers[0]} encoder and {layers[1]} decoder layers, width {widths[0]}, "
        f"feed-forward {widths[1]:,}",
        "zh": f"Transformer，{layers[0]} 层编码器、{layers[1]} 层解码器，宽度 {widths[0]}，前馈宽度 {widths[1]:,}",
    }[lang]


def two_columns(rows: dict[str, str]) -> str:
    """A two-column table without a header."""
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {summary} |" for name, summary in rows.items())])
