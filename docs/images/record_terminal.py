"""Recorded terminal of the README, as SVG: runs `heedful translate` and draws its output.

    python docs/images/record_terminal.py            # run the commands; write terminal.svg and terminal.zh-CN.svg
    python docs/images/record_terminal.py --check    # run them and fail if their output differs from the drawings

The lines appear one after another; readers who prefer reduced motion see them at once.
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
SESSIONS = {
    "terminal.svg": [
        'heedful translate --to de "Where is the train station?" \\\n    "I would like a cup of coffee, please."',
        'heedful translate "Könnten Sie mir bitte helfen?"',
        'heedful translate --to zh "The weather is nice today."',
        'echo "Hello, {name}! See <b>https://example.org</b>." |\n    heedful translate --to de',
    ],
    "terminal.zh-CN.svg": [
        'heedful translate --to zh "The weather is nice today." \\\n    "Where is the train station?"',
        'heedful translate "你明天下午有空吗？"',
        'heedful translate --to de "I would like a cup of coffee, please."',
        'echo "Hello, {name}! See <b>https://example.org</b>." |\n    heedful translate --to zh',
    ],
}

COLUMNS, LINE, LEFT, TOP = 68, 22, 16, 58  # narrow enough to be read on a phone
STYLE = """
  text { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Noto Sans Mono CJK SC",
                      monospace;
         font-size: 14px; fill: #e6edf3; white-space: pre }
  .prompt { fill: #7ee787 }
  .line { animation: appear 0.01s backwards }
  @keyframes appear { from { opacity: 0 } }
  @media (prefers-reduced-motion: reduce) { .line { animation: none } }
"""


def run(command: str) -> list[str]:
    """Run a command with this Python's `heedful` and return its output on both streams."""
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
    function = f'heedful() {{ "{sys.executable}" -m heedful "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-c", function + command],
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
    """The SVG of commands and their output."""
    lines: list[tuple[str, bool, float]] = []  # text, whether it has a prompt, second at which it appears
    second = 0.4
    for command, printed in session:
        first, *rest = command.split("\n")
        lines += [(first, True, second), *((line, False, second) for line in rest)]
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
    for name, commands in SESSIONS.items():
        path, drawn = HERE / name, draw([(command, run(command)) for command in commands])
        if "--check" not in sys.argv[1:]:
            path.write_text(drawn, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != drawn:
            sys.exit(f"the commands of {name} have other output now; run: python docs/images/record_terminal.py")


if __name__ == "__main__":
    main()
