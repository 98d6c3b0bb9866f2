"""With `--lang zh` every command prints tables and remarks in Chinese, aligned by the width of the characters."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.cells import cell_len

from heedful.cli import make_app, run

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "paper"
UNITS = {
    "nat",
    "ms",
    "CPU",
    "GiB",
    "MiB",
    "KiB",
    "GPU",
    "TFLOP",
    "FLOPs",
    "BLEU",
    "chrF",
    "id",
    "logit",
    "logits",
    "RSS",
}
NAMES = {
    *("ByteNet", "Deep-Att", "PosUnk", "GNMT", "RL", "ConvS2S", "MoE", "Transformer", "Heedful", "sacreBLEU", "Moses"),
    *(
        "WMT",
        "WSJ",
        "REINFORCE",
        "local-m",
        "local-p",
        "newstest2014",
        "evalb",
        "COLLINS",
        "prm",
        "dev",
        "GRU",
        "LSTM",
        "NVIDIA",
        "H200",
        "P100",
        "bf16",
    ),
    *(
        "softmax",
        "dropout",
        "Concat",
        "Attention",
        "MultiHeadAttention",
        "sin",
        "cos",
        "exp",
        "MODEL",
        "base",
        "big",
        "F1",
    ),
    *("Vinyals", "Kaiser", "Petrov", "Zhu", "Dyer", "Huang", "Harper", "McClosky", "Luong", "et", "al"),
    "max_memory_allocated",
}
"""Words that are not translated: names, units and terms that Chinese texts on the subject write in Latin letters."""
WORD = re.compile(r"(?<![\w.])[A-Za-z][A-Za-z0-9_-]+")
SYMBOL = re.compile(r"\b(?:[A-Za-z]_\w+|P_drop|log_k|d_\w+)|ε_ls")


def load(name: str) -> Any:
    (path,) = RESULTS.glob(f"{name}_*.json")
    return json.loads(path.read_text(encoding="utf-8"))


def printer(module: str, function: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def print_tables(module: str, function: str, name: str, language: str) -> None:
    made = printer(module, function)(load(name), language)
    for table in [made] if hasattr(made, "render") else made:
        print(table.render("text"))


def run_command(*arguments: str, language: str) -> None:
    assert run([*arguments, "--lang", language]) == 0


def run_quickly(name: str, *arguments: str, language: str) -> None:
    """Run an experiment with few updates in a temporary folder, and print all but the last line, which lists files."""
    with tempfile.TemporaryDirectory() as folder:
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            run_command("paper", name, "-o", folder, "--quick", *arguments, language=language)
    print("\n".join(stream.getvalue().splitlines()[:-1]))


PRINTED: dict[str, Callable[[str], None]] = {
    "table1": lambda lang: printer("heedful.cli.paper.tables", "print_exponents")(load("table1"), lang),
    "table2": lambda lang: printer("heedful.cli.paper.tables", "print_table2")(load("table2"), lang),
    "table3": lambda lang: printer("heedful.cli.paper.tables", "print_table3")(load("table3"), lang),
    "table4": lambda lang: printer("heedful.cli.paper.tables", "print_table4")(load("table4"), lang),
    "scoring": lambda lang: print_tables("heedful.paper.scoring", "scoring_table", "scoring", lang),
    "positions": lambda lang: print_tables("heedful.paper.positions", "positions_tables", "positions", lang),
    "compare": lambda lang: printer("heedful.cli.compare", "print_table")(load("compare_multi30k"), lang),
    "attention-kinds": lambda lang: run_quickly("attention-kinds", "--steps", "2", "--systems", "luong", language=lang),
    "worked-example": lambda lang: run_command("paper", "worked-example", "三 个 词", language=lang),
    "teacher-forcing": lambda lang: run_command("paper", "teacher-forcing", "你 好", "您 好", language=lang),
    "mixing": lambda lang: run_command("paper", "mixing", "--length", "8", "--width", "16", language=lang),
}
"""How the terminal output of each command is produced; from published results if the command is slow."""
PRINTS_NO_TABLE = {"figures", "see"}


@pytest.fixture(params=sorted(PRINTED))
def command(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def output(command: str, language: str) -> str:
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        PRINTED[command](language)
    return stream.getvalue()


def data_words(command: str) -> set[str]:
    """Words in the results: names of corpora, systems, rows and options."""
    files = {"table2": "table2", "table3": "table3", "table4": "table4", "compare": "compare_multi30k"}
    results = load(files[command]) if command in files else {}
    found: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                if key not in ("budget", "search", "command", "versions", "machine"):
                    collect(inner)
        elif isinstance(value, list):
            for inner in value:
                collect(inner)
        elif isinstance(value, str):
            found.update(WORD.findall(value))

    collect(results)
    return found


def test_every_command_with_a_language_is_checked() -> None:
    app: Any = typer.main.get_command(make_app())
    verbs = {**app.commands, **app.commands["paper"].commands}
    with_language = {name for name, verb in verbs.items() if any("--lang" in one.opts for one in verb.params)}
    assert with_language == set(PRINTED) | PRINTS_NO_TABLE


def test_chinese_output_is_in_chinese(command: str) -> None:
    text = SYMBOL.sub("", output(command, "zh"))
    assert len(re.findall(r"[\u4e00-\u9fff]", text)) > 20
    left = set(WORD.findall(text)) - NAMES - UNITS - data_words(command)
    assert not left


def test_english_output_has_no_chinese(command: str) -> None:
    text = output(command, "en")
    found = set(re.findall(r"[\u4e00-\u9fff]", text))
    assert found <= set("三个词你好您")  # the texts that were given


def blocks(text: str) -> list[list[str]]:
    """The tables of an output: a rule below the header, with the lines above and below it."""
    lines = text.splitlines()
    found = []
    for index, line in enumerate(lines):
        if index and re.fullmatch(r" ?(-{2,}(  -{2,})+|─{8,}) ?", line):
            end = next((i for i in range(index + 1, len(lines)) if not lines[i].strip()), len(lines))
            found.append([lines[index - 1], *lines[index + 1 : end]])
    return found


def cells_at(line: str) -> list[str]:
    """The characters of a line by terminal cell; the second cell of a wide character is empty."""
    return [cell for character in line for cell in [character, ""][: cell_len(character)]]


def gaps(lines: list[str]) -> list[int]:
    """Cells that are blank in all lines, at least two in a row: the space between two columns."""
    width = max(cell_len(line) for line in lines)
    rows = [cells_at(line) + [" "] * (width - cell_len(line)) for line in lines]
    blank = [all(row[place] == " " for row in rows) for place in range(width)]
    return [place for place in range(1, width) if blank[place] and blank[place - 1]]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_columns_are_aligned_by_display_width(command: str, language: str) -> None:
    """Between all columns of a table there are cells that are blank in every row."""
    tables = blocks(output(command, language))
    assert tables or command in ("worked-example", "compare")
    for lines in tables:
        lines = [line for line in lines if not re.fullmatch(r"[ ─]*", line)]
        columns = max(len(re.split(r" {2,}", line.strip())) for line in lines)
        starts = {place for place in gaps(lines) if place - 1 not in gaps(lines)}
        assert len(starts) >= columns - 1, lines[0]
