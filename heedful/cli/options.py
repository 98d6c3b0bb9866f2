"""Command-line options that several verbs share: their names, help texts and shell completion."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

Verb = TypeVar("Verb", bound=Callable[..., None])


def choices(*values: str) -> Callable[[str], list[str]]:
    """A completion function for a fixed set of values."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete


def model_names(incomplete: str) -> list[str]:
    """Complete the names of installed models and the paths of model directories."""
    from heedful.model_dir.registry import installed_models, is_model

    folder = Path(incomplete).parent if not incomplete.endswith("/") else Path(incomplete)
    try:
        directories = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    except OSError:
        directories = []
    paths = [f"{path}" if is_model(path) else f"{path}/" for path in directories if not path.name.startswith(".")]
    names = [*(model.name for model in installed_models()), *sorted(paths)]
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def target_languages(ctx: Any, incomplete: str) -> list[str]:
    """Complete the target languages of the model named by `--model`, else of the default model."""
    from heedful.cli.overrides import model_directory
    from heedful.errors import HeedfulError
    from heedful.model_dir.save_load import read_directions

    try:
        directions = read_directions(model_directory(ctx.params.get("model")))
    except (HeedfulError, OSError):
        return []
    return [code for code in directions.target_codes if code.startswith(incomplete)]


def shared_options(*, before: Sequence[str] = (), after: Sequence[str] = ()) -> Callable[[Verb], Verb]:
    """Add options of `SHARED` to a verb, which receives them in `**flags`.

    Typer and `--help` see them as parameters before and after those that the verb declares itself.
    """

    def add(verb: Verb) -> Verb:
        signature = inspect.signature(verb, eval_str=True)
        declared = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        parameters = [*map(_shared_parameter, before), *declared, *map(_shared_parameter, after)]
        keyword_only = [one.replace(kind=one.KEYWORD_ONLY) for one in parameters]
        verb.__signature__ = signature.replace(parameters=keyword_only)  # type: ignore[attr-defined]
        verb.__annotations__ = {one.name: one.annotation for one in keyword_only}
        return verb

    return add


def _shared_parameter(name: str) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=SHARED[name])


DATA, LANGUAGES, SEARCH, BUDGET, BULK = "Corpora", "Languages", "Search", "Budget", "Whole files (-i FILE -o FILE)"

ConfigFile = Annotated[Path | None, typer.Argument(metavar="CONFIG.yaml", help="Configuration; flags override it.")]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source", "-s", metavar="FILE", rich_help_panel=DATA, help="Source text, one sentence per line; repeatable."
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option("--target", "-t", metavar="FILE", rich_help_panel=DATA, help="Target text of each --source."),
]
SingleFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--data", metavar="FILE", rich_help_panel=DATA, help="TSV, CSV or JSONL file with both sides; repeatable."
    ),
]
SourceColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", rich_help_panel=DATA, help="Source column of --data: name or number."),
]
TargetColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", rich_help_panel=DATA, help="Target column of --data: name or number."),
]
ValidSources = Annotated[
    list[str] | None,
    typer.Option(
        "--valid-source",
        metavar="FILE",
        rich_help_panel=DATA,
        help="Validation data; default: pairs held out from the training data.",
    ),
]
ValidTargets = Annotated[list[str] | None, typer.Option("--valid-target", metavar="FILE", rich_help_panel=DATA)]
TestSources = Annotated[
    list[str] | None,
    typer.Option(
        "--test-source", metavar="FILE", rich_help_panel=DATA, help="Test data to score the trained model on."
    ),
]
TestTargets = Annotated[list[str] | None, typer.Option("--test-target", metavar="FILE", rich_help_panel=DATA)]
SourceLanguage = Annotated[
    str | None,
    typer.Option(metavar="CODE", rich_help_panel=LANGUAGES, help="Such as en; default: from the file names."),
]
TargetLanguage = Annotated[
    str | None,
    typer.Option(metavar="CODE", rich_help_panel=LANGUAGES, help="Such as de; default: from the file names."),
]
Text = Annotated[
    list[str] | None,
    typer.Option(
        "--text",
        metavar="FILE",
        rich_help_panel=DATA,
        help="Text of a language model, one text per line; repeatable.",
    ),
]
ValidText = Annotated[
    list[str] | None,
    typer.Option("--valid-text", metavar="FILE", rich_help_panel=DATA, help="Validation text of a language model."),
]
TestText = Annotated[
    list[str] | None,
    typer.Option("--test-text", metavar="FILE", rich_help_panel=DATA, help="Test text of a language model."),
]
Prepared = Annotated[
    str | None,
    typer.Option(
        metavar="DIRECTORY", rich_help_panel=DATA, help="Directory written by `heedful prepare`, instead of files."
    ),
]
InitFrom = Annotated[
    str | None,
    typer.Option(metavar="MODEL", help="Fine-tune this model (directory or name) instead of training a new one."),
]
Steps = Annotated[int | None, typer.Option(rich_help_panel=BUDGET, help="Stop after this many updates.")]
Epochs = Annotated[
    float | None, typer.Option(rich_help_panel=BUDGET, help="Stop after this many passes over the data.")
]
Tokens = Annotated[int | None, typer.Option(rich_help_panel=BUDGET, help="Stop after this many target tokens.")]
Minutes = Annotated[
    float | None, typer.Option(rich_help_panel=BUDGET, help="Stop after this many minutes of training.")
]
KeepCheckpoints = Annotated[
    int | None,
    typer.Option("--keep-checkpoints", metavar="N", help="Keep N models of the run, to see how it learned."),
]
Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="DIRECTORY", help="The model directory to write.")
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="tiny, small, iwslt, base or big; default: by corpus size and device.",
        autocompletion=choices("tiny", "small", "iwslt", "base", "big"),
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run; start if there is none.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing output.")]
Name = Annotated[str | None, typer.Option(help="Model name for the model card.")]
Licence = Annotated[str | None, typer.Option(help="Licence for the model card.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the configuration as YAML without training.")]
Seed = Annotated[int | None, typer.Option(help="Seed of all random numbers.")]
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
    typer.Option(metavar="TYPE", help="Type of the weights: int8, …; with --engine torch float32 or bfloat16."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
ModelDirectory = Annotated[
    Path | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Model directory or name (see heedful models); default: the bundled model.",
        autocompletion=model_names,
    ),
]
LanguageModelDirectory = Annotated[
    Path | None,
    typer.Option(
        "--model", "-m", metavar="MODEL", help="Directory or name of a language model.", autocompletion=model_names
    ),
]
OutputFolder = Annotated[Path, typer.Option("--output", "-o", metavar="DIRECTORY", help="Output directory.")]
LabelLanguage = Annotated[str, typer.Option("--lang", metavar="CODE", help="Language of labels: en or zh.")]
Theme = Annotated[str, typer.Option("--theme", metavar="NAME", help="Colours of figures: light or dark.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Settings = Annotated[list[str] | None, typer.Option("--set", hidden=True, metavar="KEY=VALUE")]

Texts = Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts to translate.")]
InputFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="FILE",
        help="Text to translate, line by line; - for standard input; may be .gz, .xz or .bz2; repeatable.",
    ),
]
OutputFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="File for the translations; .gz, .xz or .bz2 compresses; - for standard output; once, or once per -i.",
    ),
]
InputFile = Annotated[
    str | None,
    typer.Option("--input", "-i", metavar="FILE", help="Text to translate, line by line; may be .gz, .xz or .bz2."),
]
OutputFile = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write the translations to.")
]
NumBest = Annotated[
    int | None,
    typer.Option("--num-best", "-n", rich_help_panel=SEARCH, help="Number of translations per line (with --json)."),
]
Temperature = Annotated[
    float | None,
    typer.Option(rich_help_panel=SEARCH, help="Sampling temperature; 1 leaves the distribution unchanged."),
]
TopK = Annotated[int | None, typer.Option(rich_help_panel=SEARCH, help="Sample from the k most probable tokens.")]
TopP = Annotated[
    float | None,
    typer.Option(rich_help_panel=SEARCH, help="Sample from the smallest set of tokens with this total probability."),
]
SamplingSeed = Annotated[int | None, typer.Option("--seed", rich_help_panel=SEARCH, help="Seed of sampling.")]
Prefix = Annotated[
    str | None, typer.Option(metavar="TEXT", rich_help_panel=SEARCH, help="Text that each translation starts with.")
]
Glossary = Annotated[
    Path | None,
    typer.Option(
        "--glossary",
        metavar="FILE",
        rich_help_panel=SEARCH,
        help="Terms and their required translations, in two columns.",
    ),
]
Align = Annotated[bool, typer.Option("--align", rich_help_panel=SEARCH, help="Add token alignments (with --json).")]
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
MaxLength = Annotated[
    int | None, typer.Option(rich_help_panel=SEARCH, help="Maximum length of a translation in tokens.")
]
MinLength = Annotated[
    int | None, typer.Option(rich_help_panel=SEARCH, help="Minimum length of a translation in tokens.")
]
NoRepeatNgram = Annotated[int | None, typer.Option(rich_help_panel=SEARCH, help="Never repeat an n-gram of this size.")]
Split = Annotated[
    str | None,
    typer.Option(metavar="WHEN", rich_help_panel=SEARCH, help="Split inputs into sentences: long, always or never."),
]
BatchInvariant = Annotated[
    bool | None,
    typer.Option(
        "--batch-invariant/--no-batch-invariant",
        rich_help_panel=SEARCH,
        help="With torch on a CPU: make results independent of batching, at some cost in speed.",
    ),
]
Shortlist = Annotated[
    bool | None,
    typer.Option(
        "--shortlist/--no-shortlist",
        rich_help_panel=SEARCH,
        help="Restrict the output vocabulary to the model's shortlist; see heedful shortlist.",
    ),
]
Protect = Annotated[
    bool | None,
    typer.Option(
        "--protect/--no-protect",
        rich_help_panel=SEARCH,
        help="Copy URLs, placeholders, tags, code, emoji and white space unchanged.",
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
        help="Language of the text; default: detected per line where needed.",
    ),
]
NumWorkers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        rich_help_panel=BULK,
        help="Number of processes; 0 (default) for all GPUs or all cores.",
    ),
]
ChunkLines = Annotated[
    int | None,
    typer.Option(
        "--chunk-lines",
        metavar="LINES",
        min=1,
        rich_help_panel=BULK,
        help="Lines translated and saved together; default: 8192 on a GPU, 16 growing to 256 on a CPU.",
    ),
]
Shard = Annotated[
    str | None,
    typer.Option("--shard", metavar="I/N", rich_help_panel=BULK, help="Translate shard I of N; see heedful merge."),
]
Restart = Annotated[
    bool,
    typer.Option("--overwrite", rich_help_panel=BULK, help="Start over instead of resuming an unfinished output."),
]
DOCUMENTS = "Documents (-i FILE)"
FileFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        rich_help_panel=DOCUMENTS,
        help="text, html, markdown, srt, vtt, po, json, docx, odt or pptx; default auto: by file extension.",
    ),
]
Retranslate = Annotated[
    bool,
    typer.Option("--retranslate", rich_help_panel=DOCUMENTS, help="In .po files, also replace existing translations."),
]
MarkFuzzy = Annotated[
    bool,
    typer.Option("--fuzzy/--no-fuzzy", rich_help_panel=DOCUMENTS, help="Mark new translations in .po files as fuzzy."),
]

SHARED: dict[str, Any] = {
    "config": ConfigFile,
    "source": Sources,
    "target": Targets,
    "data": SingleFiles,
    "source_column": SourceColumn,
    "target_column": TargetColumn,
    "valid_source": ValidSources,
    "valid_target": ValidTargets,
    "test_source": TestSources,
    "test_target": TestTargets,
    "text": Text,
    "valid_text": ValidText,
    "test_text": TestText,
    "prepared": Prepared,
    "init_from": InitFrom,
    "source_language": SourceLanguage,
    "target_language": TargetLanguage,
    "steps": Steps,
    "epochs": Epochs,
    "tokens": Tokens,
    "minutes": Minutes,
    "keep_checkpoints": KeepCheckpoints,
    "seed": Seed,
    "device": Device,
    "settings": Settings,
    "num_best": NumBest,
    "method": Method,
    "beam_size": BeamSize,
    "length_penalty": LengthPenalty,
    "length_penalty_alpha": LengthPenaltyAlpha,
    "max_length": MaxLength,
    "min_length": MinLength,
    "no_repeat_ngram_size": NoRepeatNgram,
    "split": Split,
    "batch_invariant": BatchInvariant,
    "shortlist": Shortlist,
    "protect": Protect,
    "temperature": Temperature,
    "top_k": TopK,
    "top_p": TopP,
}
"""Options that `shared_options` adds to a verb, under the names of its parameters."""
CORPUS_FILES = ("config", "source", "target", "data")
COLUMNS = ("source_column", "target_column")
HELD_OUT_FILES = ("valid_source", "valid_target", "test_source", "test_target")
TEXT_FILES = ("text", "valid_text", "test_text")
LANGUAGE_CODES = ("source_language", "target_language")
CORPUS_OPTIONS = (*CORPUS_FILES, *COLUMNS, *HELD_OUT_FILES, "prepared", *LANGUAGE_CODES)
BUDGET_OPTIONS = ("steps", "epochs", "tokens", "minutes")
SEARCH_OPTIONS = (
    "method",
    "beam_size",
    "length_penalty",
    "length_penalty_alpha",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "split",
    "batch_invariant",
    "shortlist",
    "protect",
)
"""Keys of the section `decoding`."""
SAMPLING_OPTIONS = ("temperature", "top_k", "top_p")
