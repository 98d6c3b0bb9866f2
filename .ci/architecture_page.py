"""Fill the tables of docs/architecture.md and docs/architecture.zh-CN.md, and draw docs/images/imports.svg.

    python .ci/architecture_page.py                        # write all
    python .ci/architecture_page.py docs/architecture.md   # print one of them

Everything is read from the source: docstrings (in C++ first comments), imports, and the layers in CONTRIBUTING.md.
The prose between the generated sections is written by hand. A test compares the files with the output of this script.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
import sys
from collections import defaultdict
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common.generated_pages import fill  # noqa: E402

PACKAGE = ROOT / "heedful"
PAGES = [ROOT / "docs" / f"architecture{language}.md" for language in ("", ".zh-CN")]
DRAWING = ROOT / "docs" / "images" / "imports.svg"
Rows = list[list[str]]
Paths = dict[tuple[str, str], list[str]]
BASE = "text"  # lower names, which nearly everything imports, are drawn as one box


# ---- reading ---------------------------------------------------------------------------------------------------------


def layers() -> list[list[str]]:
    """Names of packages and modules from CONTRIBUTING.md, highest layer first."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^## Layers\n.*?^```\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [line.split() for line in block.splitlines()]


def name_of(path: Path) -> str:
    """The package directly under `heedful` that a file belongs to, or the module that it is."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def summary(path: Path) -> str:
    """The first line of a Python file's docstring, or the first sentence of a C++ file's first comment."""
    if path.suffix == ".py":
        return (ast.get_docstring(tree_of(path)) or "").split("\n")[0]
    comment = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        found = re.match(r"(?://|/\*)\s*(.*?)\s*(?:\*/)?$", line)
        if found is None or not found[1]:
            break
        comment += found[1] + " "
    return re.split(r"(?<=[.:]) ", comment.strip())[0]


def imports() -> dict[str, set[str]]:
    """Which of the names in `layers` each of them imports, also inside functions."""
    graph: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module == "heedful":
                modules = [f"heedful.{alias.name}" for alias in node.names]
            else:
                modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            parts = [module.split(".")[1] for module in modules if module.startswith("heedful.")]
            graph[name_of(path)].update(part for part in parts if part != "__version__")
    return {name: found - {name} for name, found in graph.items() if not name.startswith("__")}


# ---- drawing ---------------------------------------------------------------------------------------------------------


def drawn_graph() -> tuple[Rows, dict[str, set[str]]]:
    """Rows of boxes, highest first, and the arrows between them that are not implied by other arrows."""
    rows = [[name for name in line if not name.startswith("__")] for line in layers()]
    rows = [row for row in rows if row]
    bottom = next(number for number, row in enumerate(rows) if BASE in row) + 1
    base = ", ".join(name for row in rows[bottom:] for name in row)
    home = {name: base if number >= bottom else name for number, row in enumerate(rows) for name in row}
    graph: dict[str, set[str]] = {box: set() for box in home.values()}
    for name, found in imports().items():
        graph[home[name]] |= {home[other] for other in found} - {home[name]}

    @functools.cache
    def reached(box: str) -> set[str]:
        return graph[box] | {far for near in graph[box] for far in reached(near)}

    reduced = {
        box: {other for other in found if not any(other in reached(near) for near in found)}
        for box, found in graph.items()
    }
    return [*rows[:bottom], [base]], reduced


STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de }
  .box { fill: #f6f8fa; stroke: #59636e }
  .arrow { fill: none; stroke: #8c959f; stroke-width: 1.3 }
  .head { fill: #8c959f }
  text { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 13px; fill: #1f2328 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d }
    .box { fill: #151b23; stroke: #9198a1 }
    .arrow { stroke: #656c76 }
    .head { fill: #656c76 }
    text { fill: #f0f6fc }
  }
"""
ROW, HEIGHT, GAP = 66, 28, 26


def width_of(box: str) -> float:
    return 7.9 * len(box) + 22 if not box.startswith("·") else 6.0


def placed(rows: Rows, graph: dict[str, set[str]]) -> tuple[Rows, Paths]:
    """Rows ordered for few crossings, with a node (`·a>b·n`) where an arrow passes; the nodes of each arrow."""
    level = {box: number for number, row in enumerate(rows) for box in row}
    rows = [list(row) for row in rows]
    paths = {}
    for box, found in graph.items():
        for other in sorted(found):
            passed = [f"·{box}>{other}·{number}" for number in range(level[box] + 1, level[other])]
            for number, place in enumerate(passed, level[box] + 1):
                rows[number].append(place)
            paths[box, other] = [box, *passed, other]
    near: dict[str, list[str]] = defaultdict(list)
    for path in paths.values():
        for upper, lower in itertools.pairwise(path):
            near[upper].append(lower)
            near[lower].append(upper)
    for turn in range(24):
        for number in range(1, len(rows)) if turn % 2 == 0 else range(len(rows) - 2, -1, -1):
            beside = rows[number - 1 if turn % 2 == 0 else number + 1]
            at = {box: (index + 0.5) / len(beside) for index, box in enumerate(beside)}

            def middle(box: str, at: dict[str, float] = at, row: list[str] = rows[number]) -> float:
                found = [at[other] for other in near[box] if other in at]
                return sum(found) / len(found) if found else (row.index(box) + 0.5) / len(row)

            rows[number] = sorted(rows[number], key=middle)
    return rows, paths


def row_width(row: list[str]) -> float:
    return sum(map(width_of, row)) + GAP * (len(row) - 1)


def positions(rows: Rows, paths: Paths, card: float) -> dict[str, tuple[float, float]]:
    """The centre of each box and node: near the mean of its neighbours, without overlap."""
    near: dict[str, list[str]] = defaultdict(list)
    for path in paths.values():
        for upper, lower in itertools.pairwise(path):
            near[upper].append(lower)
            near[lower].append(upper)
    x = {}
    for row in rows:
        left = (card - row_width(row)) / 2
        for box in row:
            x[box] = left + width_of(box) / 2
            left += width_of(box) + GAP
    for _ in range(60):
        for row in rows:
            wish = {box: sum(x[o] for o in near[box]) / len(near[box]) if near[box] else x[box] for box in row}
            for box in row:
                x[box] += 0.5 * (wish[box] - x[box])
            for _ in range(40):  # push neighbours apart, then back inside the card
                for left, right in itertools.pairwise(row):
                    lacking = (width_of(left) + width_of(right)) / 2 + GAP - (x[right] - x[left])
                    if lacking > 0:
                        x[left], x[right] = x[left] - lacking / 2, x[right] + lacking / 2
                for box in row:
                    x[box] = min(max(x[box], 16 + width_of(box) / 2), card - 16 - width_of(box) / 2)
    return {box: (x[box], 22 + ROW * number + HEIGHT / 2) for number, row in enumerate(rows) for box in row}


def drawing() -> str:
    """The import graph as SVG."""
    rows, paths = placed(*drawn_graph())
    card = round(max(map(row_width, rows))) + 48
    at = positions(rows, paths, card)
    height = 22 + ROW * (len(rows) - 1) + HEIGHT + 22
    size = f'viewBox="0 0 {card} {height}" width="{card}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        "<title>Imports between the packages and modules of heedful</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{card - 1}" height="{height - 1}" rx="8"/>',
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="head" d="M0 0 L8 4 L0 8 Z"/></marker>',
    ]
    for path in paths.values():
        curve = ""
        for upper, lower in itertools.pairwise(path):
            (x1, y1), (x2, y2) = at[upper], at[lower]
            y1 += HEIGHT / 2 if upper == path[0] else 0
            y2 -= HEIGHT / 2 if lower == path[-1] else 0
            bend = (y1 + y2) / 2
            curve += f"M{x1:.0f} {y1:.0f} " if not curve else ""
            curve += f"C{x1:.0f} {bend:.0f} {x2:.0f} {bend:.0f} {x2:.0f} {y2:.0f} "
        lines.append(f'<path class="arrow" d="{curve.strip()}" marker-end="url(#head)"/>')
    for box, (x, y) in at.items():
        if not box.startswith("·"):
            left, top, wide = x - width_of(box) / 2, y - HEIGHT / 2, width_of(box)
            lines.append(
                f'<rect class="box" x="{left:.0f}" y="{top:.0f}" width="{wide:.0f}" height="{HEIGHT}" rx="5"/>'
            )
            lines.append(f'<text x="{x:.0f}" y="{y + 4.5:.0f}" text-anchor="middle">{escape(box)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


# ---- the page --------------------------------------------------------------------------------------------------------


def link(path: Path, text: str) -> str:
    return f"[`{text}`](../{path.relative_to(ROOT).as_posix()}{'/' if path.is_dir() else ''})"


def layer_table() -> str:
    """Every package and top-level module, by layer, with all its imports."""
    graph = imports()
    order = [name for line in layers() for name in line]
    rows = ["| layer | package or module | imports |", "|---:|---|---|"]
    for number, line in enumerate(layers(), 1):
        for name in line:
            if name.startswith("__"):
                continue
            path = PACKAGE / name if (PACKAGE / name).is_dir() else PACKAGE / f"{name}.py"
            found = ", ".join(f"`{other}`" for other in order if other in graph[name])
            rows.append(f"| {number} | {link(path, name)} | {found} |")
    return "\n".join(rows)


def file_tables() -> str:
    """Every file with its one line, by folder, in the order of the layers."""
    order = {name: number for number, name in enumerate(name for line in layers() for name in line)}
    sources = [path for kind in ("*.py", "*.h", "*.cpp") for path in PACKAGE.rglob(kind)]
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in sources:
        folders[path.parent].append(path)
    parts = []

    def place(folder: Path) -> tuple[int, Path]:
        return (-1 if folder == PACKAGE else order[folder.relative_to(PACKAGE).parts[0]], folder)

    for folder in sorted(folders, key=place):
        title = folder.relative_to(ROOT).as_posix()
        about = folder / "__init__.py"
        rows = ["| file | contents |", "|---|---|"]
        for path in sorted(folders[folder], key=lambda path: (path.name != "__main__.py", path.name)):
            if path != about and (text := summary(path)):
                rows.append(f"| {link(path, path.name)} | {cell(text)} |")
        parts.append(f"### `{title}/`\n\n{summary(about) if about.exists() else ''}".rstrip())
        parts.append("\n".join(rows))
    return "\n\n".join(parts)


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def filled(page: Path) -> str:
    """A page with its tables."""
    return fill(page.read_text(encoding="utf-8"), {"layers": layer_table(), "files": file_tables()})


def main() -> None:
    """Print the requested file, or write all."""
    made = {DRAWING: drawing, **{page: functools.partial(filled, page) for page in PAGES}}
    if len(sys.argv) > 1:
        asked = (ROOT / sys.argv[1]).resolve()
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        sys.stdout.write(made[asked]()) if asked in made else sys.exit(f"{sys.argv[1]}: not a file made here")
        return
    for path, make in made.items():
        path.write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
