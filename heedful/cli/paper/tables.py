"""`heedful paper table1` to `table4`, `f1` and `parse`: reproduce the tables of the paper."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.exit_codes import INTERRUPTED
from heedful.cli.overrides import command_line, request_from_flags, require_model_directory, search_settings
from heedful.config_loading import build_config
from heedful.errors import ConfigError

EXPONENT_WORDS = {
    "complexity": ("theory: operations", "理论：运算量"),
    "sequential": ("theory: sequential", "理论：顺序运算"),
    "longest_path": ("theory: maximum path", "理论：最长路径"),
    "flops_mixing": ("operations, mixing", "运算量，位置间交互"),
    "flops": ("operations, layer", "运算量，整层"),
    "seconds_mixing": ("time, mixing", "时间，位置间交互"),
    "seconds": ("time, layer", "时间，整层"),
    "memory_bytes": ("memory", "内存"),
    "operations": ("sequential operations", "顺序运算"),
    "path": ("path", "路径"),
    "self_attention": ("self-attention", "自注意力"),
    "restricted": ("restricted", "受限自注意力"),
    "recurrent": ("recurrent", "循环层"),
    "convolutional": ("convolutional", "卷积层"),
    "note": (
        "Measured: fitted powers of length n and width d. A stack of dilated convolutions has a path of log_k n.",
        "实测：对长度 n 和宽度 d 拟合的幂。多层空洞卷积的路径为 log_k n。",
    ),
}
"""The texts of the table."""
MEASURED = ("flops_mixing", "flops", "seconds_mixing", "seconds", "memory_bytes", "operations", "path")
"""Measured quantities in the order of the table."""
Numbers = Annotated[str | None, typer.Option(metavar="N,N,…", help="Default: by device.")]
Recipe = Annotated[str, typer.Option(metavar="NAME", help="Model of the paper: base or big.")]
SOME_FAILED = 1

Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="DIRECTORY", help="Output directory; default: ./table3.")
]
Scale = Annotated[str, typer.Option(metavar="NAME", help="cheap (smaller models, same proportions) or paper.")]
Rows = Annotated[
    str | None, typer.Option(metavar="NAMES", help="Groups or rows, such as A,B,big or C-layers-2; default: all.")
]
Seeds = Annotated[int, typer.Option(help="Number of runs per row, each with another seed.")]
Jobs = Annotated[
    int | None, typer.Option(help="Parallel runs; default: half the number of cores on a GPU (at most 8), 1 on a CPU.")
]
NumSentences = Annotated[
    int | None, typer.Option(help="Sentences per corpus for BLEU; default: 1,000 (cheap) or all (paper).")
]
Plots = Annotated[bool, typer.Option("--plots/--no-plots", help="Also draw the differences (needs matplotlib).")]
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


def table1(
    output: options.OutputFolder,
    lengths: Numbers = None,
    widths: Numbers = None,
    window: Annotated[int | None, typer.Option(help="r of restricted self-attention; default: 16.")] = None,
    kernel_size: Annotated[int | None, typer.Option(help="k of the convolution; default: 3.")] = None,
    attention: Annotated[str | None, typer.Option(metavar="NAME", help="fused (the default) or explicit.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes and few repetitions.")] = False,
    overwrite: options.Overwrite = False,
    lang: options.LabelLanguage = "en",
    device: options.Device = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure Table 1: complexity per layer, sequential operations and maximum path length.

    \b
    heedful paper table1 -o table1
    heedful paper table1 -o table1 --quick --json
    heedful paper table1 -o table1 --lengths 16,64,256,1024 --widths 64,256 --device cpu
    """
    from heedful.build_model import resolve_device
    from heedful.paper.table1 import default_sweep, run_table1, timing_warnings

    target_device = resolve_device(device or "auto")
    values = {
        "lengths": parse_numbers(lengths, "--lengths"),
        "widths": parse_numbers(widths, "--widths"),
        "window": window,
        "kernel_size": kernel_size,
        "attention": attention,
    }
    changes: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    sweep = dataclasses.replace(default_sweep(target_device, quick=quick), **changes)

    def report(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr)

    command = command_line()
    results = run_table1(
        output, sweep=sweep, device=target_device, command=command, language=lang, overwrite=overwrite, report=report
    )
    if as_json:
        print(json.dumps(results, indent=1, ensure_ascii=False))
    elif not quiet:
        print_exponents(results, lang)
        for warning in timing_warnings(results, lang):
            print(f"heedful: {warning}", file=sys.stderr)
        print(f"\n{output / 'results.json'}, {output / 'table1.png'}, {output / 'table1.svg'}")


def parse_numbers(text: str | None, flag: str) -> tuple[int, ...] | None:
    """The integers in a string such as `16,64,256`."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"{flag} takes comma-separated integers such as 16,64,256, not {text!r}.") from None


def print_exponents(results: Mapping[str, Any], language: str) -> None:
    """Print a table with a column for each kind of layer: the theory, and the measured exponents."""
    from heedful.paper.plot_style import in_language
    from heedful.paper.text_tables import print_table

    words = in_language(EXPONENT_WORDS, language)
    theory, exponents = results["theory"], results["exponents"]
    rows = [
        [words[text], *(theory[kind][name].split(" (")[0] for kind in exponents)]
        for text, name in (("complexity", "complexity"), ("sequential", "sequential"), ("longest_path", "path"))
    ]
    for name in MEASURED:
        has_width = name not in ("operations", "path")
        rows.append(
            [words[name], *(format_exponents(exponents[kind][name], has_width=has_width) for kind in exponents)]
        )
    print_table(["", *(words[kind] for kind in exponents)], rows, sections=[2])
    print(words["note"])


def format_exponents(exponents: tuple[float, float] | None, *, has_width: bool = True) -> str:
    """Exponents such as `n^2.00 d^1.00`, or a dash for those that are not reliable."""
    if exponents is None:
        return "–"
    n = f"n^{exponents[0] + 0.0:.2f}"
    return f"{n} d^{exponents[1] + 0.0:.2f}" if has_width else n


@options.shared_options(
    before=(*options.CORPUS_FILES, *options.HELD_OUT_FILES, "prepared", *options.LANGUAGE_CODES),
    after=("steps", "minutes", "seed", "device", "settings"),
)
def table2(
    output: options.OutputFolder,
    *,
    recipe: Recipe = "base",
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    lang: options.LabelLanguage = "en",
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    **flags: Any,
) -> None:
    """Train with the recipe of the paper, score, and compare with Table 2.

    \b
    heedful paper table2 -s train.en -t train.de --test-source test.en --test-target test.de -o table2
    heedful paper table2 -s train.en -t train.de --minutes 60 -o table2       (shortened, noted in the report)
    heedful paper table2 corpora.yaml --recipe big -o table2 --resume

    Every configuration key is also a flag; the report lists all changes to the recipe.
    """
    request = request_from_flags(flags)
    results = run_recipe(request, recipe, output, lang=lang, resume=resume, overwrite=overwrite, quiet=quiet)
    if as_json:
        print(json.dumps(results, indent=1, ensure_ascii=False))
    elif not quiet:
        print_table2(results, lang)


def run_recipe(
    request: dict[str, Any], recipe: str, output: Path, *, lang: str, resume: bool, overwrite: bool, quiet: bool
) -> dict[str, Any]:
    """Run the experiment and return its results; exit if it is interrupted."""
    from heedful.paper.table2 import run_table2

    results = run_table2(
        request,
        recipe=recipe,
        output=output,
        language=lang,
        resume=resume,
        overwrite=overwrite,
        quiet=quiet,
        command=command_line(),
    )
    if not results["complete"]:
        raise typer.Exit(INTERRUPTED)
    return results


def print_table2(results: dict[str, Any], language: str) -> None:
    """Print both tables and the notes."""
    from heedful.paper.table2 import remarks, scores_table, table
    from heedful.paper.text_tables import print_table

    for heading, rows in (table(results, language), scores_table(results, language)):
        print_table(heading, rows)
    for remark in remarks(results, language):
        print("- " + re.sub(r"\*\*|`", "", remark))


@options.shared_options(
    before=(*options.CORPUS_FILES, *options.HELD_OUT_FILES, "prepared", *options.LANGUAGE_CODES),
    after=(*options.BUDGET_OPTIONS, "seed", "device", "settings"),
)
def table3(
    *,
    scale: Scale = "cheap",
    rows: Rows = None,
    seeds: Seeds = 3,
    jobs: Jobs = None,
    sentences: NumSentences = None,
    output: Output = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    lang: options.LabelLanguage = "en",
    plots: Plots = True,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    **flags: Any,
) -> None:
    """Train every row of Table 3 with several seeds and test which effects are significant.

    \b
    heedful paper table3 --source train.en --target train.de -o table3
    heedful paper table3 configs/table3.yaml -o table3 --rows A,B --seeds 5 --jobs 8
    heedful paper table3 configs/table3.yaml -o table3 --resume
    heedful paper table3 --prepared wmt14 --scale paper --seeds 1 -o table3-paper

    Every configuration key is also a flag and applies to all rows: --model.d_model=128 makes all of them smaller.
    """
    request = request_from_flags({**flags, "output": output})
    from heedful.paper.table3 import make_plan, run_table3

    names = [name.strip() for name in (rows or "").split(",") if name.strip()]
    plan = make_plan(request, scale=scale, rows=names, num_seeds=seeds, jobs=jobs, sentences=sentences)
    results = run_table3(
        plan,
        language=lang,
        plots=plots,
        resume=resume,
        overwrite=overwrite,
        quiet=quiet,
        command=command_line(),
    )
    if as_json:
        print(json.dumps(results, indent=1, ensure_ascii=False))
    else:
        print_table3(results, lang)
    if not results["complete"]:
        raise typer.Exit(INTERRUPTED)
    if results["failed"]:
        raise typer.Exit(SOME_FAILED)


def print_table3(results: Mapping[str, Any], language: str) -> None:
    """Print the table, the remarks, and which of the paper's effects are seen."""
    from heedful.paper.plot_style import in_language
    from heedful.paper.table3_report import COLUMNS, WORDS, claims_table, main_table, remarks
    from heedful.paper.text_tables import print_table

    words = in_language(WORDS, language)
    print(words["title"])
    print_table(*main_table(results, language), names=1 + len(COLUMNS))
    print("\n".join(f"- {remark}" for remark in remarks(results, language)))
    print(f"\n{words['claims']}")
    print_table(*claims_table(results, language), names=3)
    print(words["beyond"])


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
        print_table4(results, lang)
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


def print_table4(results: dict[str, Any], language: str) -> None:
    """Print our scores, the table of the paper, and notes."""
    from heedful.paper.table4 import WORDS, our_rows, paper_rows, remarks
    from heedful.paper.text_tables import print_table

    print_table(*our_rows(results, language), names=2)
    print(f"\n{WORDS[language]['paper']}")
    print_table(*paper_rows(language), names=2)
    print("\n".join(f"- {remark}" for remark in remarks(results, language)))
