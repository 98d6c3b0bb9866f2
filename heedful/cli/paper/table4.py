"""`heedful paper table4`, `f1` and `parse`: train a constituency parser, score trees, and parse sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.exit_codes import INTERRUPTED
from heedful.cli.overrides import command_line, request_from_flags, require_model_directory, search_settings
from heedful.config_loading import build_config
from heedful.errors import ConfigError

METRICS = ("f1", "precision", "recall", "exact", "crossing", "no_crossing")
TREES = "Treebanks"
TrainTrees = Annotated[
    list[str] | None,
    typer.Option(
        "--train",
        metavar="FILE",
        rich_help_panel=TREES,
        help="Training trees, one bracketed tree per line; repeatable.",
    ),
]
ValidTrees = Annotated[
    list[str] | None,
    typer.Option(
        "--valid",
        metavar="FILE",
        rich_help_panel=TREES,
        help="Validation trees; default: held out from the training trees.",
    ),
]
TestTrees = Annotated[
    list[str] | None,
    typer.Option("--test", metavar="FILE", rich_help_panel=TREES, help="Test trees to score on; repeatable."),
]
Paper = Annotated[bool, typer.Option("--paper", help="The model of the paper: 4 layers, d_model 1024, beam size 21.")]
Words = Annotated[
    str | None,
    typer.Option(metavar="WHICH", help="How words are written in a tree: index, tags, or xx as in the paper."),
]
Scored = Annotated[
    int | None,
    typer.Option("--sentences", metavar="N", help="Score only N sentences of each test set, sampled evenly."),
]
Brackets = Annotated[
    str,
    typer.Option(metavar="WHICH", help="Search constrained to complete trees (forced), unconstrained (free), or both."),
]
TreeFile = Annotated[Path, typer.Argument(metavar="FILE", help="Trees, one per line; may be .gz or .xz.")]
Sentences = Annotated[
    list[str] | None, typer.Argument(metavar="[TEXT]...", help="Sentences with words separated by spaces.")
]
Drawn = Annotated[bool, typer.Option("--tree", help="Draw each tree on several lines.")]
Free = Annotated[bool, typer.Option("--free", help="Do not constrain the search to complete trees.")]


@options.shared_options(after=(*options.BUDGET_OPTIONS, "beam_size", "seed", "device", "settings"))
def table4(
    train: TrainTrees = None,
    valid: ValidTrees = None,
    test: TestTrees = None,
    output: options.Output = None,
    preset: options.Preset = None,
    paper: Paper = False,
    words: Words = None,
    brackets: Brackets = "both",
    sentences: Scored = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    lang: options.LabelLanguage = "en",
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    **flags: Any,
) -> None:
    """Train a constituency parser on treebanks and score it (section 6.3, Table 4).

    \b
    heedful paper table4 --train train.trees --valid valid.trees --test test.trees -o table4
    heedful paper table4 --train a.trees.xz --train b.trees --test test.trees --minutes 3 -o table4
    heedful paper table4 --train train.trees --test test.trees --paper --steps 30000 -o table4
    heedful paper parse -m table4/model "The cat sat ."

    Every configuration key is also a flag: --model.dropout=0.2.
    """
    request = request_from_flags({**flags, "preset": preset, "output": output})
    build_config(request, "base")  # reports unknown keys before torch is imported
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
    """Score predicted trees by labelled brackets, like evalb.

    \b
    heedful paper f1 gold.trees predicted.trees
    heedful paper f1 --json gold.trees.xz predicted.trees

    An empty line in PREDICTED is a sentence without a tree; its gold brackets count as missed.
    """
    from heedful.evaluation.evalb import (
        MAX_SHORT_WORDS,
        aggregate,
        align_sentences,
        read_aligned_trees,
        read_predicted_trees,
        score_trees,
    )
    from heedful.paper.text_tables import print_table

    lines, gold_trees, predicted_trees = align_sentences(read_aligned_trees(gold), read_predicted_trees(predicted))
    counts = score_trees(gold_trees, predicted_trees)
    scores = {"all": aggregate(counts), "short": aggregate(counts, max_words=MAX_SHORT_WORDS)}
    failed = [{"line": line, "why": count.failure} for line, count in zip(lines, counts, strict=True) if count.failure]
    if as_json:
        print(json.dumps({**{name: score.to_dict() for name, score in scores.items()}, "failed": failed}, indent=1))
        return
    rows = [
        [name, *(f"{getattr(score, metric):.2f}" for metric in METRICS),
         f"{score.num_sentences:,}", f"{score.num_failed:,}"]
        for name, score in (("all sentences", scores["all"]), (f"up to {MAX_SHORT_WORDS} words", scores["short"]))
    ]  # fmt: skip
    print_table(
        ["", "F1", "precision", "recall", "exact", "crossing", "no crossing", "sentences", "failed"],
        rows,
    )
    for failure in failed[:5]:
        print(f"line {failure['line']}: {failure['why']}")
    if len(failed) > 5:
        print(f"… and {len(failed) - 5:,} more; use --json to list all.")


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
    """Parse sentences with a model trained by `heedful paper table4`, one bracketed tree per line.

    \b
    heedful paper parse -m table4/model "The cat sat ."
    heedful paper parse -m table4/model --tree "The cat sat ."
    heedful paper parse -m table4/model -i sentences.txt

    Words and punctuation are separated by spaces, as in the treebank. With --free, a line may be empty: no tree.
    """
    if words and input_file is not None:
        raise ConfigError("give sentences as arguments or a file with -i, not both.")
    search = search_settings(settings, beam_size=beam_size)
    directory = require_model_directory(model, "to parse with")
    from heedful.cli.line_io import read_line_chunks
    from heedful.evaluation.evalb import draw_tree, write_tree
    from heedful.paper.parsing import Parser

    parser = Parser.load(directory, device=device or "auto", forced=not free)
    for chunk in iter([words]) if words else read_line_chunks(input_file):
        sentences = [text.split() for text in chunk]
        parses = iter(parser.parse([sentence for sentence in sentences if sentence], **search))
        for sentence in sentences:
            parsed = next(parses).tree if sentence else None
            print((draw_tree if tree else write_tree)(parsed) if parsed else "", flush=True)


def print_results(results: dict[str, Any], language: str) -> None:
    """Print our scores, the table of the paper, and notes."""
    from heedful.paper.table4 import WORDS, our_rows, paper_rows, remarks
    from heedful.paper.text_tables import print_table

    print_table(*our_rows(results, language), names=2)
    print(f"\n{WORDS[language]['paper']}")
    print_table(*paper_rows(language), names=2)
    print("\n".join(f"- {remark}" for remark in remarks(results, language)))
