"""Speed chart of the README: training and CPU decoding beside other systems, as SVG, from committed benchmark results.

    python docs/images/speed_chart.py            # writes docs/images/speed.svg and speed.zh-CN.svg
    python docs/images/speed_chart.py --check    # fails if the committed charts differ from the results

The numbers are read from the tables in benchmarks/results/; nothing is measured here. The card changes its colours with
the reader's light or dark mode.
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE.parent.parent / "benchmarks" / "results"
TRAINING = RESULTS / "train_speed_2026-11-16_h200.md"
DECODING = RESULTS / "translate_speed_2026-11-16_cpu.md"

# Row of the result file -> label of the bar. Each rival is shown in its fastest int8 or float32 setting without a shortlist.
TRAINED = {"heedful": "Heedful", "Hugging Face Marian": "Hugging Face", "nn.Transformer": "nn.Transformer"}
DECODED = {
    "Heedful native int8": "Heedful int8",
    "CTranslate2 int8, 2 × 1 threads": "CTranslate2 int8",
    "Bergamot int8, 2 workers": "Bergamot int8",
    "OpenVINO int8 weights": "OpenVINO int8",
    "Hugging Face Marian float32": "Hugging Face fp32",
}
TITLES = {
    "en": (
        "Training, base model, one H200",
        "Translating, base model, two CPU cores, batch of 32",
        "tokens per second",
    ),
    "zh": ("训练 base 模型，一块 H200", "翻译，base 模型，两个 CPU 核，每批 32 句", "词元/秒"),
}

WIDTH, BAR, STEP, TOP = 880, 22, 34, 92
STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de }
  text { font-family: -apple-system, "Segoe UI", Helvetica, Arial, "PingFang SC", "Microsoft YaHei", sans-serif;
         fill: #1f2328; font-size: 14px }
  .title { font-weight: 600; font-size: 15px }
  .note { fill: #59636e; font-size: 12px }
  .bar { fill: #afb8c1 }
  .ours { fill: #0969da }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d }
    text { fill: #f0f6fc }
    .note { fill: #9198a1 }
    .bar { fill: #545d68 }
    .ours { fill: #4493f8 }
  }
"""


def table_rows(path: Path) -> list[list[str]]:
    """Cells of all table rows of a result file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


def number(cell: str) -> int:
    """The first number of a cell: `1,154,526 (1,146,649–1,163,489)` is 1154526."""
    return int(re.match(r"[\d,]+", cell)[0].replace(",", ""))  # type: ignore[index]


def read_results() -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Bars of both panels: label and tokens per second."""
    trained = {row[0]: number(row[2]) for row in table_rows(TRAINING) if row[0] in TRAINED}
    decoded = {
        row[1]: number(row[2]) for row in table_rows(DECODING) if row[0] == "batch 32, greedy" and row[1] in DECODED
    }
    return [(TRAINED[name], trained[name]) for name in TRAINED], [(DECODED[name], decoded[name]) for name in DECODED]


def panel(left: int, title: str, unit: str, bars: list[tuple[str, int]]) -> list[str]:
    """One bar chart: title, then a row for each system with its speed and how many times as fast the first one is."""
    label_width, full = 130, 180
    longest = max(speed for _, speed in bars)
    drawn = [
        f'<text class="title" x="{left}" y="40">{escape(title)}</text>',
        f'<text class="note" x="{left}" y="62">{escape(unit)}</text>',
    ]
    for row, (name, speed) in enumerate(bars):
        y, width = TOP + row * STEP, max(2, round(full * speed / longest))
        shown = f"{speed:,}" if row == 0 else f"{speed:,}  (1/{bars[0][1] / speed:.1f})"
        drawn += [
            f'<text x="{left}" y="{y + 16}">{escape(name)}</text>',
            f'<rect class="{"ours" if row == 0 else "bar"}" x="{left + label_width}" y="{y}" width="{width}" height="{BAR}" rx="3"/>',
            f'<text x="{left + label_width + width + 8}" y="{y + 16}">{shown}</text>',
        ]
    return drawn


def chart(language: str) -> str:
    """The SVG in English (`en`) or Chinese (`zh`)."""
    training, decoding = read_results()
    first, second, unit = TITLES[language]
    height = TOP + max(len(training), len(decoding)) * STEP + 16
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
            f"<title>{escape(first)}; {escape(second)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
            *panel(24, first, unit, training),
            *panel(452, second, unit, decoding),
            "</svg>\n",
        ]
    )


def main() -> None:
    for language, name in (("en", "speed.svg"), ("zh", "speed.zh-CN.svg")):
        path, drawn = HERE / name, chart(language)
        if "--check" not in sys.argv[1:]:
            path.write_text(drawn, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != drawn:
            sys.exit(f"{path.name} does not show the committed results; run: python docs/images/speed_chart.py")


if __name__ == "__main__":
    main()
