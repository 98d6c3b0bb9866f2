"""Recorded terminal of the README, as SVG: runs `heedful translate` and draws what it really printed.

    python docs/images/record_terminal.py            # runs the commands and writes docs/images/terminal.svg
    python docs/images/record_terminal.py --check    # runs them and fails if they print something else now

The lines appear one after the other; readers who prefer reduced motion see them at once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
DRAWING = HERE / "terminal.svg"
COMMANDS = [
    'heedful translate --to de "I would like a cup of coffee, please." "Where is the train station?"',
    'heedful translate "Könnten Sie mir bitte helfen?"',
    'heedful translate --to zh "The weather is nice today."',
    'echo "Hello, {name}! See <b>https://example.org</b>." | heedful translate --to de',
]

COLUMNS, LINE, LEFT, TOP = 98, 22, 20, 62
STYLE = """
  text { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
         font-size: 14px; fill: #e6edf3; white-space: pre }
  .prompt { fill: #7ee787 }
  .line { animation: appear 0.01s backwards }
  @keyframes appear { from { opacity: 0 } }
  @media (prefers-reduced-motion: reduce) { .line { animation: none } }
"""


def run(command: str) -> list[str]:
    """Run a command with this Python's `heedful` and return what it prints on both streams."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "PYTHONIOENCODING": "utf-8", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{command}\n{done.stdout}")
    return done.stdout.splitlines()


def columns(text: str) -> int:
    """Columns of a terminal that a text takes: East Asian wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def draw(session: list[tuple[str, list[str]]]) -> str:
    """The SVG of commands and what each printed."""
    lines: list[tuple[str, bool, float]] = []  # text, is it a command, second at which it appears
    second = 0.4
    for command, printed in session:
        lines.append((command, True, second))
        second += 1.0
        lines += [(line, False, second) for line in printed]
        second += 1.4
    assert all(columns(text) + 2 * is_command <= COLUMNS for text, is_command, _ in lines), "a line is too long"
    width, height = LEFT * 2 + round(COLUMNS * 8.45), TOP + len(lines) * LINE
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        "<title>A terminal in which heedful translate is run</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>',
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="none" stroke="#3d444d"/>',
        *(
            f'<circle cx="{LEFT + 6 + 20 * index}" cy="22" r="6" fill="{colour}"/>'
            for index, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
        ),
    ]
    for row, (text, is_command, appears) in enumerate(lines):
        prompt = '<tspan class="prompt">$ </tspan>' if is_command else ""
        style, y = f"animation-delay: {appears:.1f}s", TOP + row * LINE
        words = f"{prompt}{escape(text)}"
        drawn.append(f'<text class="line" style="{style}" x="{LEFT}" y="{y}" xml:space="preserve">{words}</text>')
    return "\n".join([*drawn, "</svg>\n"])


def main() -> None:
    drawn = draw([(command, run(command)) for command in COMMANDS])
    if "--check" not in sys.argv[1:]:
        DRAWING.write_text(drawn, encoding="utf-8")
    elif DRAWING.read_text(encoding="utf-8") != drawn:
        sys.exit("the commands print something else now; run: python docs/images/record_terminal.py")


if __name__ == "__main__":
    main()
