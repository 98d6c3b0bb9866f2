"""Speed chart of the README: training and CPU translation compared with other systems, as SVG, from committed results.

    python docs/images/speed_chart.py            # writes docs/images/speed.svg and speed.zh-CN.svg
    python docs/images/speed_chart.py --check    # fails if the committed charts differ from the results

The numbers are read from the tables in benchmarks/results/; nothing is measured here. The colours follow the reader's
light or dark mode.
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

# Row of the result file -> label of the bar. Other systems use their fastest setting without a shortlist.
TRAINED = {"heedful": "Heedful", "Hugging Face Marian": "Hugging Face", "nn.Transformer": "nn.Transformer"}
DECODED = {
    "Heedful native int8": "Heedful int8",
    "CTranslate2 int8, 2 × 1 threads": "CTranslate2 int8",
    "Bergamot int8, 2 workers": "Bergamot int8",
    "OpenVINO int8 weights": "OpenVINO int8",
    "Hugging Face Marian float32": "Hugging Face fp32",
}
TITLES = {  # title and subtitle of each panel
    "en": [
        ("Training speed", "base model, bf16, one H200; target tokens per second"),
        ("Translation speed", "base model, batch of 32, two CPU cores; tokens per second"),
    ],
    "zh": [
        ("训练速度", "base 模型，bf16，一块 H200；目标词元/秒"),
        ("翻译速度", "base 模型，每批 32 句，两个 CPU 核；词元/秒"),
    ],
}

WIDTH, BAR, STEP = 500, 20, 30  # narrow enough to be read on a phone
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


def panel(top: int, title: str, subtitle: str, bars: list[tuple[str, int]]) -> list[str]:
    """One bar chart: title, then a row for each system with its speed and the ratio to the first one."""
    left, label_width, full = 20, 140, 170
    longest = max(speed for _, speed in bars)
    drawn = [
        f'<text class="title" x="{left}" y="{top + 14}">{escape(title)}</text>',
        f'<text class="note" x="{left}" y="{top + 34}">{escape(subtitle)}</text>',
    ]
    for row, (name, speed) in enumerate(bars):
        y, width = top + 50 + row * STEP, max(2, round(full * speed / longest))
        ratio = f'  <tspan class="note">Heedful {bars[0][1] / speed:.1f}×</tspan>' if row else ""
        bar = left + label_width
        drawn += [
            f'<text x="{left}" y="{y + 15}">{escape(name)}</text>',
            f'<rect class="{"bar" if row else "ours"}" x="{bar}" y="{y}" width="{width}" height="{BAR}" rx="3"/>',
            f'<text x="{bar + width + 8}" y="{y + 15}" xml:space="preserve">{speed:,}{ratio}</text>',
        ]
    return drawn


def chart(language: str) -> str:
    """The SVG in English (`en`) or Chinese (`zh`)."""
    training, decoding = read_results()
    (first, first_note), (second, second_note) = TITLES[language]
    middle = 18 + 50 + len(training) * STEP + 22
    height = middle + 50 + len(decoding) * STEP + 8
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(first)}; {escape(second)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        *panel(18, first, first_note, training),
        *panel(middle, second, second_note, decoding),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    for language, name in (("en", "speed.svg"), ("zh", "speed.zh-CN.svg")):
        path, drawn = HERE / name, chart(language)
        if "--check" not in sys.argv[1:]:
            path.write_text(drawn, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != drawn:
            sys.exit(f"{path.name} does not show the committed results; run: python docs/images/speed_chart.py")


if __name__ == "__main__":
    main()
