"""`heedful paper table4`, `f1` and `parse`: a parser trained on treebanks, its score, and its trees."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.exit_codes import INTERRUPTED
from heedful.cli.overrides import command_line, own_model_directory, search_settings, settings_of
from heedful.config_loading import settle
from heedful.errors import ConfigError

FIGURES = ("f1", "precision", "recall", "exact", "crossing", "no_crossing")
TREES, SIZE = "Treebanks", "Size"
TrainTrees = Annotated[
    list[str] | None,
    typer.Option("--train", metavar="FILE", rich_help_panel=TREES, help="One tree in brackets a line; repeatable."),
]
ValidTrees = Annotated[
    list[str] | None,
    typer.Option("--valid", metavar="FILE", rich_help_panel=TREES, help="Without it, sentences are held out."),
]
TestTrees = Annotated[
    list[str] | None, typer.Option("--test", metavar="FILE", rich_help_panel=TREES, help="To score on; repeatable.")
]
Paper = Annotated[bool, typer.Option("--paper", help="The paper's size: 4 layers, d_model 1024, beam of 21.")]
Words = Annotated[
    str | None,
    typer.Option(metavar="WHICH", help="What stands for a word in a tree: index, tags, or xx as in the paper."),
]
Scored = Annotated[
    int | None, typer.Option("--sentences", metavar="N", help="Score only so many of each test set, taken evenly.")
]
Brackets = Annotated[str, typer.Option(metavar="WHICH", help="Search with forced whole trees, free, or both.")]
TreeFile = Annotated[Path, typer.Argument(metavar="FILE", help="Trees, one a line; .gz and .xz too.")]
Sentences = Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Sentences, words parted by spaces.")]
Drawn = Annotated[bool, typer.Option("--tree", help="Draw each tree on several lines.")]
Free = Annotated[bool, typer.Option("--free", help="Do not force whole trees.")]


def table4(
    train: TrainTrees = None,
    valid: ValidTrees = None,
    test: TestTrees = None,
    steps: options.Steps = None,
    epochs: options.Epochs = None,
    tokens: options.Tokens = None,
    minutes: options.Minutes = None,
    output: options.Output = None,
    preset: options.Preset = None,
    paper: Paper = False,
    words: Words = None,
    brackets: Brackets = "both",
    sentences: Scored = None,
    beam_size: options.BeamSize = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    seed: options.Seed = None,
    device: options.Device = None,
    lang: options.LabelLanguage = "en",
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    settings: options.Settings = None,
) -> None:
    """Train a constituency parser on treebanks and score its trees (section 6.3, Table 4).

    \b
    heedful paper table4 --train train.trees --valid valid.trees --test test.trees -o table4
    heedful paper table4 --train a.trees.xz --train b.trees --test test.trees --minutes 3 -o table4
    heedful paper table4 --train train.trees --test test.trees --paper --steps 30000 -o table4
    heedful paper parse -m table4/model "The cat sat ."

    Every key of the configuration is also a flag: --model.dropout=0.2.
    """
    request = settings_of(
        settings,
        preset=preset,
        output=output,
        training__steps=steps,
        training__epochs=epochs,
        training__tokens=tokens,
        training__minutes=minutes,
        training__seed=seed,
        training__device=device,
        decoding__beam_size=beam_size,
    )
    settle(request, "base")  # a wrong key is told before torch is imported
    from heedful.paper.table4 import Treebanks, run_table4

    results = run_table4(
        request,
        Treebanks(train=train or (), valid=valid or (), test=test or (), sentences=sentences),
        paper=paper,
        words=words,
        brackets=brackets,
        language=lang,
        resume=resume,
        overwrite=overwrite,
        quiet=quiet,
        command=command_line(),
    )
    if as_json:
        print(json.dumps(results, indent=1, ensure_ascii=False))
    elif results["complete"]:
        print_results(results, lang)
    if not results["complete"]:
        raise typer.Exit(INTERRUPTED)


def f1(gold: TreeFile, predicted: TreeFile, as_json: options.AsJson = False) -> None:
    """Score predicted trees by labelled brackets, as evalb counts them.

    \b
    heedful paper f1 gold.trees predicted.trees
    heedful paper f1 --json gold.trees.xz predicted.trees

    An empty line in PREDICTED is a sentence without a tree: its gold brackets count as missed.
    """
    from heedful.evaluation.evalb import SHORT, same_sentences, score_trees, summarise
    from heedful.evaluation.parse_trees import read_guesses, read_tree_lines

    lines, wanted, guesses = same_sentences(read_tree_lines(gold), read_guesses(predicted))
    counts = score_trees(wanted, guesses)
    scores = {"all": summarise(counts), "short": summarise(counts, max_words=SHORT)}
    failed = [{"line": line, "why": one.failure} for line, one in zip(lines, counts, strict=True) if one.failure]
    if as_json:
        print(json.dumps({**{name: one.to_dict() for name, one in scores.items()}, "failed": failed}, indent=1))
        return
    rows = [
        [name, *(f"{getattr(one, figure):.2f}" for figure in FIGURES),
         f"{one.num_sentences:,}", f"{one.num_failed:,}"]
        for name, one in (("all sentences", scores["all"]), (f"up to {SHORT} words", scores["short"]))
    ]  # fmt: skip
    print_table(
        ["", "F1", "precision", "recall", "all right", "crossing", "no crossing", "sentences", "failed"], rows, names=1
    )
    for one in failed[:5]:
        print(f"line {one['line']}: {one['why']}")
    if len(failed) > 5:
        print(f"… and {len(failed) - 5:,} more; --json lists all.")


def parse(
    words: Sentences = None,
    model: options.ModelDirectory = None,
    input_file: options.InputFile = None,
    tree: Drawn = False,
    free: Free = False,
    beam_size: options.BeamSize = None,
    device: options.Device = None,
    settings: options.Settings = None,
) -> None:
    """Parse sentences with a model of `heedful paper table4`: one tree in brackets for each line.

    \b
    heedful paper parse -m table4/model "The cat sat ."
    heedful paper parse -m table4/model --tree "The cat sat ."
    heedful paper parse -m table4/model -i sentences.txt

    Words are parted by spaces, punctuation too, as in the treebank. A line without a tree (--free) is empty.
    """
    if words and input_file is not None:
        raise ConfigError("give sentences as arguments or a file with -i, not both.")
    search = search_settings(settings, beam_size=beam_size)
    directory = own_model_directory(model, "that parses")
    from heedful.cli.line_io import chunks_of
    from heedful.evaluation.parse_trees import draw_tree, write_tree
    from heedful.paper.parsing import Parser

    parser = Parser.load(directory, device=device or "auto", forced=not free)
    for chunk in iter([words]) if words else chunks_of(input_file):
        sentences = [text.split() for text in chunk]
        guesses = iter(parser.parse([sentence for sentence in sentences if sentence], **search))
        for sentence in sentences:
            result = next(guesses).tree if sentence else None
            print((draw_tree if tree else write_tree)(result) if result else "", flush=True)


def print_results(results: dict[str, Any], language: str) -> None:
    """Print our numbers, the paper's table, and what must be known to read them."""
    from heedful.paper.table4 import WORDS, our_rows, paper_rows, remarks

    print_table(*our_rows(results, language), names=2)
    print(f"\n{WORDS[language]['paper']}")
    print_table(*paper_rows(language), names=2)
    print("\n".join(f"- {remark}" for remark in remarks(results, language)))


def print_table(heading: Sequence[str], rows: Sequence[Sequence[str]], *, names: int) -> None:
    """Print a table whose columns after the first `names` are numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, title in enumerate(heading):
        table.add_column(title, justify="left" if number < names else "right")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(table)
