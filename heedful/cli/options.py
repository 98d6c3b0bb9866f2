"""What each flag is called and what its help says, in the order of the help pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.completion import choices, model_names, target_languages

DATA, LANGUAGES, SEARCH, BUDGET, BULK = "Corpora", "Languages", "Search", "Budget", "Whole files (-i FILE -o FILE)"

ConfigFile = Annotated[Path | None, typer.Argument(metavar="CONFIG.yaml", help="Settings; flags lay over them.")]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source", "-s", metavar="FILE", rich_help_panel=DATA, help="Source side, one sentence a line; repeatable."
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option("--target", "-t", metavar="FILE", rich_help_panel=DATA, help="Target side of each --source."),
]
SingleFiles = Annotated[
    list[str] | None,
    typer.Option("--data", metavar="FILE", rich_help_panel=DATA, help="TSV, CSV or JSONL with both sides; repeatable."),
]
SourceColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", rich_help_panel=DATA, help="Column of the source in --data: its name or number."),
]
TargetColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", rich_help_panel=DATA, help="Column of the target in --data: its name or number."),
]
ValidSources = Annotated[
    list[str] | None,
    typer.Option("--valid-source", metavar="FILE", rich_help_panel=DATA, help="Without it, pairs are held out."),
]
ValidTargets = Annotated[list[str] | None, typer.Option("--valid-target", metavar="FILE", rich_help_panel=DATA)]
TestSources = Annotated[
    list[str] | None,
    typer.Option("--test-source", metavar="FILE", rich_help_panel=DATA, help="To score the finished model on."),
]
TestTargets = Annotated[list[str] | None, typer.Option("--test-target", metavar="FILE", rich_help_panel=DATA)]
SourceLanguage = Annotated[
    str | None,
    typer.Option(metavar="CODE", rich_help_panel=LANGUAGES, help="Such as en; else the ending of the files tells."),
]
TargetLanguage = Annotated[
    str | None,
    typer.Option(metavar="CODE", rich_help_panel=LANGUAGES, help="Such as de; else the ending of the files tells."),
]
Prepared = Annotated[
    str | None,
    typer.Option(metavar="DIRECTORY", rich_help_panel=DATA, help="What `heedful prepare` wrote, instead of files."),
]
InitFrom = Annotated[
    str | None,
    typer.Option(metavar="MODEL", help="Begin with this finished model (directory or name) instead of a new one."),
]
Steps = Annotated[int | None, typer.Option(rich_help_panel=BUDGET, help="Stop after this many updates.")]
Epochs = Annotated[float | None, typer.Option(rich_help_panel=BUDGET, help="… passes over the data.")]
Tokens = Annotated[int | None, typer.Option(rich_help_panel=BUDGET, help="… target tokens.")]
Minutes = Annotated[float | None, typer.Option(rich_help_panel=BUDGET, help="… minutes of training.")]
Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="DIRECTORY", help="The model directory to write.")
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="tiny, small, iwslt, base or big; else chosen for corpus and device.",
        autocompletion=choices("tiny", "small", "iwslt", "base", "big"),
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run, or start.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
Name = Annotated[str | None, typer.Option(help="Name for the model card.")]
Licence = Annotated[str | None, typer.Option(help="Licence for the model card.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the configuration as YAML, train nothing.")]
Seed = Annotated[int | None, typer.Option(help="Fixes everything that is drawn at random.")]
Device = Annotated[str | None, typer.Option(metavar="NAME", help="auto, cpu, cuda, cuda:1 or mps.")]
Engine = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="auto, torch, native or ctranslate2.",
        autocompletion=choices("auto", "torch", "native", "ctranslate2"),
    ),
]
Quantization = Annotated[
    str | None,
    typer.Option(metavar="TYPE", help="Type of the weights: int8, …; of --engine torch float32 or bfloat16."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]
ModelDirectory = Annotated[
    Path | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Directory or name (heedful models); else the bundled model.",
        autocompletion=model_names,
    ),
]
OutputFolder = Annotated[Path, typer.Option("--output", "-o", metavar="DIRECTORY", help="Folder for what is written.")]
LabelLanguage = Annotated[str, typer.Option("--lang", metavar="CODE", help="Labels in English (en) or Chinese (zh).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]
Settings = Annotated[list[str] | None, typer.Option("--set", hidden=True, metavar="KEY=VALUE")]

Texts = Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts to translate.")]
InputFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="FILE",
        help="Text to translate, line by line; - is standard input; .gz, .xz, .bz2 too; repeatable.",
    ),
]
OutputFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="File for the translations, compressed by its name; - is standard output; once, or once for each -i.",
    ),
]
InputFile = Annotated[
    str | None, typer.Option("--input", "-i", metavar="FILE", help="Text to translate, line by line; .gz, .xz too.")
]
OutputFile = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write the translations to.")
]
NumBest = Annotated[
    int | None, typer.Option("--num-best", "-n", rich_help_panel=SEARCH, help="Translations of each line (--json).")
]
Temperature = Annotated[float | None, typer.Option(rich_help_panel=SEARCH, help="Of sampling; 1 is the model's own.")]
TopK = Annotated[int | None, typer.Option(rich_help_panel=SEARCH, help="Sample from the k likeliest tokens.")]
TopP = Annotated[float | None, typer.Option(rich_help_panel=SEARCH, help="Sample from the tokens of this share.")]
SamplingSeed = Annotated[int | None, typer.Option("--seed", rich_help_panel=SEARCH, help="Fixes what is sampled.")]
Prefix = Annotated[
    str | None, typer.Option(metavar="TEXT", rich_help_panel=SEARCH, help="What each translation begins with.")
]
Align = Annotated[
    bool, typer.Option("--align", rich_help_panel=SEARCH, help="Tell which token comes from which (--json).")
]
BeamSize = Annotated[int | None, typer.Option(rich_help_panel=SEARCH, help="Hypotheses kept at each step.")]
Method = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=SEARCH,
        help="beam, greedy or sampling.",
        autocompletion=choices("beam", "greedy", "sampling"),
    ),
]
LengthPenalty = Annotated[
    str | None, typer.Option(metavar="NAME", rich_help_panel=SEARCH, help="paper, average or none.")
]
LengthPenaltyAlpha = Annotated[float | None, typer.Option(rich_help_panel=SEARCH, help="α of the length penalty.")]
MaxLength = Annotated[int | None, typer.Option(rich_help_panel=SEARCH, help="Longest translation, in tokens.")]
MinLength = Annotated[int | None, typer.Option(rich_help_panel=SEARCH, help="Shortest translation, in tokens.")]
NoRepeatNgram = Annotated[
    int | None, typer.Option(rich_help_panel=SEARCH, help="Never produce the same n tokens twice.")
]
Split = Annotated[
    str | None,
    typer.Option(metavar="WHEN", rich_help_panel=SEARCH, help="Split inputs into sentences: long, always or never."),
]
BatchInvariant = Annotated[
    bool | None,
    typer.Option(
        "--batch-invariant/--no-batch-invariant",
        rich_help_panel=SEARCH,
        help="With torch on a CPU: results independent of the batch, or faster with last digits that may depend on it.",
    ),
]
Shortlist = Annotated[
    bool | None,
    typer.Option(
        "--shortlist/--no-shortlist",
        rich_help_panel=SEARCH,
        help="Choose from the model's shortlist of words, or from all; see heedful shortlist.",
    ),
]
Protect = Annotated[
    bool | None,
    typer.Option(
        "--protect/--no-protect",
        rich_help_panel=SEARCH,
        help="Keep URLs, placeholders, tags, code, emoji, white space and the like, or give everything to the model.",
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--target-language",
        "--to",
        metavar="CODE",
        rich_help_panel=LANGUAGES,
        help="Language to translate into.",
        autocompletion=target_languages,
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--source-language",
        "--from",
        metavar="CODE",
        rich_help_panel=LANGUAGES,
        help="Language of the text; without it, it is detected line by line where that matters.",
    ),
]
NumWorkers = Annotated[
    int | None,
    typer.Option(
        "--workers", metavar="N", rich_help_panel=BULK, help="Processes; 0, the default: for all GPUs, or all cores."
    ),
]
ChunkLines = Annotated[
    int | None,
    typer.Option(
        "--chunk-lines",
        metavar="LINES",
        min=1,
        rich_help_panel=BULK,
        help="Lines translated together and then saved; else 8192 on a GPU; on a CPU 16, 32, 64 … 256.",
    ),
]
ShardOf = Annotated[
    str | None,
    typer.Option(
        "--shard", metavar="I/N", rich_help_panel=BULK, help="Translate the I-th of N parts; see heedful merge."
    ),
]
BeginAnew = Annotated[
    bool,
    typer.Option("--overwrite", rich_help_panel=BULK, help="Begin anew instead of going on with an unfinished output."),
]
DOCUMENTS = "Documents (-i FILE)"
FileFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        rich_help_panel=DOCUMENTS,
        help="text, html, markdown, srt, vtt, po or json; auto, the default, goes by the ending of the file.",
    ),
]
Retranslate = Annotated[
    bool,
    typer.Option("--retranslate", rich_help_panel=DOCUMENTS, help="Of a .po, also what is translated already."),
]
MarkFuzzy = Annotated[
    bool,
    typer.Option("--fuzzy/--no-fuzzy", rich_help_panel=DOCUMENTS, help="Mark new translations of a .po as fuzzy."),
]
