"""The verbs that list, describe, combine and convert models: `models`, `info`, `average`, `export` and `shortlist`."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.exit_codes import printable
from heedful.cli.overrides import corpora_from_flags, language_from_name, model_directory, require_model_directory
from heedful.config import LANGUAGE_MODELS, CorpusConfig
from heedful.config_loading import from_mapping
from heedful.errors import ConfigError, HeedfulError, ModelDirectoryError, did_you_mean
from heedful.extras import require
from heedful.model_card import format_layers
from heedful.text.language_names import target_code

if TYPE_CHECKING:
    from heedful.console import Console
    from heedful.decoding.build_shortlist import TokenizedPairs
    from heedful.model_dir.registry import InstalledModel
    from heedful.model_dir.shortlist import Shortlist
    from heedful.text.tokenizer import Tokenizer


FORMATS = ("ctranslate2", "compact", "shards", "web")
KINDS = {
    "encoder": "masked language model: fills <mask> in a text",
    "decoder": "language model: continues a text",
}
"""The language models, as `heedful info` and `heedful models` describe them."""


def models(as_json: options.AsJson = False) -> None:
    """List installed models with their languages, size, scores and directory.

    \b
    heedful models
    heedful models --json
    heedful translate -m NAME --to de "A sentence."

    Model directories in ~/.local/share/heedful/models, and in the folders listed in the environment variable
    HEEDFUL_MODELS, can be given by name.
    """
    from heedful.model_dir.registry import default_models, installed_models, model_folders

    try:
        default = {directory.resolve() for directory in default_models()}
    except HeedfulError:
        default = set()
    descriptions = [describe_model(model, default) for model in installed_models()]
    if as_json:
        print(
            json.dumps({"models": descriptions, "folders": [str(path) for path in model_folders()]}, ensure_ascii=False)
        )
        return
    if not descriptions:
        print(f"No models are installed. Searched: {', '.join(str(path) for path in model_folders())}.")
    for description in descriptions:
        print_model(description)


def describe_model(model: InstalledModel, default: set[Path]) -> dict[str, Any]:
    """A model as plain data, with the key `problem` if it is damaged."""
    from heedful.config_loading import to_mapping
    from heedful.model_dir import describe
    from heedful.model_dir.files import CHECKSUMS
    from heedful.model_dir.registry import EXPORT_RECORD
    from heedful.model_dir.save_load import read_exported

    summary: dict[str, Any] = {
        "name": model.name,
        "directory": str(model.directory),
        "came_with_heedful": model.is_bundled,
        "is_default": model.directory.resolve() in default,
    }
    try:
        if (model.directory / EXPORT_RECORD).is_file():
            exported = read_exported(model.directory)
            description: dict[str, Any] = {"config": to_mapping(exported.config), "details": exported.details}
            kind, files = "ctranslate2", None
        else:
            description = describe(model.directory)
            kind, files = "compact" if description["compact"] else "full", {*description["files"], CHECKSUMS}
    except HeedfulError as error:
        return {**summary, "problem": str(error)}
    return {
        **summary,
        "kind": kind,
        "title": description["config"]["name"],
        "directions": format_kind(description) or format_direction(description),
        "num_parameters": description["details"].get("num_parameters"),
        "bytes": directory_size(model.directory, files),
        "scores": description["details"].get("scores") or [],
    }


def directory_size(directory: Path, names: Collection[str] | None) -> int:
    """The total size in bytes of the files with these names (None: of all files)."""
    files = (path for path in directory.iterdir() if path.is_file() and (names is None or path.name in names))
    return sum(path.stat().st_size for path in files)


def print_model(model: dict[str, Any]) -> None:
    """Print a model in a few lines."""
    default = "  (default)" if model["is_default"] else ""
    print(printable(f"{model['name']}{default}"))
    if "problem" in model:
        print(printable(f"  cannot be used: {model['problem']}"))
        return
    parameters = f"{model['num_parameters'] / 1e6:,.1f} M parameters, " if model["num_parameters"] else ""
    print(printable(f"  {model['directions']}; {parameters}{model['bytes'] / 1e6:,.1f} MB, {model['kind']}"))
    defined = [score for score in model["scores"] if score["value"] is not None]
    undefined = {score.get("data") for score in model["scores"] if score["value"] is None}
    for score in defined:
        if score["name"] == ("chrF2" if score.get("data") in undefined else "BLEU"):
            print(printable(f"  {score['name']} {score['value']:.1f} on {score.get('data', 'not stated')}"))
    print(printable(f"  {model['directory']}"))


def info(
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL", help="Directory or name; default: the bundled model.")
    ] = None,
    check: Annotated[bool, typer.Option("--verify", help="Check every file against its checksum.")] = False,
    card: Annotated[bool, typer.Option("--card", help="Print the model card.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Describe a model: languages, size, training data and scores.

    \b
    heedful info model
    heedful info model --verify
    heedful info model --card > CARD.md
    """
    from heedful.model_dir import describe, verify
    from heedful.model_dir.registry import EXPORT_RECORD

    directory = model_directory(model)
    if (directory / EXPORT_RECORD).is_file():
        raise ConfigError(
            f"{directory} was exported for CTranslate2; run heedful info on the model that it was exported from."
        )
    description = describe(directory)
    verified = verify(directory) if check else []
    if card:
        print(printable((directory / "README.md").read_text(encoding="utf-8", errors="replace")), end="")
    elif as_json:
        print(json.dumps({**description, "verified": verified} if check else description, indent=2, ensure_ascii=False))
    else:
        print_rows(info_rows(description))
        if verified:
            print(f"All {len(verified)} files match their checksums.")


def info_rows(description: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The main facts about a model, as rows of name and value."""
    from heedful.model_dir.files import SHORTLIST

    config, details = description["config"], description["details"]
    model, training = config["model"], details.get("training") or {}
    kind = format_kind(description)
    layers = f"{model['num_encoder_layers']} + {model['num_decoder_layers']} layers"
    if kind:
        layers = format_layers(model["architecture"], model["num_encoder_layers"], model["num_decoder_layers"])
    shape = f"{config['preset']}: {layers}, width {model['d_model']}, {model['num_heads']} heads"
    rows = [
        ("name", config["name"] or "not stated"),
        ("kind", f"{kind} (heedful generate)") if kind else ("direction", format_direction(description)),
        ("licence", config["licence"] or "not stated"),
        ("parameters", f"{description['num_parameters']:,} ({format_weights(description)})"),
        ("shape", shape),
        ("vocabulary", format_vocabulary(config)),
        ("longest text", f"{model['max_length']:,} subwords"),
        *([] if model["architecture"] == "encoder" else [("search", format_search(config["decoding"]))]),
        *([] if kind else [("shortlist", "yes" if SHORTLIST in description["files"] else "none")]),
    ]
    for corpus in (details.get("data") or {}).get("corpora", []):
        rows.append(("data", f"{corpus['role']}: {corpus['name']}, {corpus['num_kept']:,} of {corpus['num_read']:,}"))
    numbers = {
        key: value for key, value in training.items() if value is not None and not isinstance(value, (Mapping, list))
    }
    facts = [f"{key.replace('_', ' ')} {format_number(value)}" for key, value in numbers.items()]
    rows.append(("training", ", ".join(facts) or "not stated"))
    if steps := description["checkpoints"]:
        rows.append(("checkpoints", f"{len(steps)}, from step {steps[0]:,} to {steps[-1]:,}"))
    rows += [("score", format_score(score)) for score in details.get("scores") or []] or [("score", "none")]
    rows.append(("created by", f"heedful {description['heedful_version']}, format {description['format_version']}"))
    return rows


def format_weights(description: Mapping[str, Any]) -> str:
    """Size, data types and number of files of the weights."""
    from heedful.model_dir.files import is_weights

    count = sum(is_weights(name) for name in description["files"])
    dtypes = "compact: I8 with scales" if description["compact"] else ", ".join(description["dtypes"])
    return f"{description['weights_size'] / 1e6:,.1f} MB, {dtypes}{f', {count} files' if count > 1 else ''}"


def format_kind(description: Mapping[str, Any]) -> str | None:
    """The kind of a language model; None for a translation model."""
    return KINDS.get(description["config"]["model"]["architecture"])


def format_direction(description: Mapping[str, Any]) -> str:
    """The translation directions of a model, such as `en → de`."""
    from heedful.config import Config
    from heedful.config_loading import from_mapping
    from heedful.text.language_routing import format_initial_directions, trained_directions

    pairs = trained_directions(from_mapping(Config, description["config"]).data, description["details"])
    directions = ", ".join(f"{pair.source} → {pair.target}" for pair in pairs if pair.source and pair.target)
    return (directions or "not stated") + format_initial_directions(pairs, description["details"])


def format_vocabulary(config: Mapping[str, Any]) -> str:
    """The vocabulary size, of each side if they differ."""
    model = config["model"]
    if config["tokenizer"]["joint"]:
        shared = "" if model["architecture"] in LANGUAGE_MODELS else ", shared by both sides"
        return f"{model['target_vocab_size']:,} subwords{shared}"
    return f"{model['source_vocab_size']:,} source and {model['target_vocab_size']:,} target subwords"


def format_search(decoding: Mapping[str, Any]) -> str:
    """The default search of a model."""
    if decoding["method"] == "sampling" and decoding["top_p"] < 1:
        return f"sampling, top-p {decoding['top_p']}"
    if decoding["method"] != "beam":
        return str(decoding["method"])
    penalty = f"length penalty {decoding['length_penalty']} {decoding['length_penalty_alpha']}"
    return f"beam of {decoding['beam_size']}, {penalty}"


def format_score(score: Mapping[str, Any]) -> str:
    """A score with its signature, test set and engine."""
    from heedful.evaluation.score import Score

    engine = f" ({score['engine']})" if score.get("engine") else ""
    return f"{score.get('data', 'not stated')}: {Score.from_dict(score)}{engine}"


def format_number(value: Any) -> str:
    """A number with thousands separators."""
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def print_rows(rows: list[tuple[str, str]]) -> None:
    """Print rows in two columns; a repeated name is printed once."""
    width = max(len(name) for name, _ in rows)
    previous = None
    for name, value in rows:
        print(printable(f"{name if name != previous else '':<{width}}  {value}"))
        previous = name


def average(
    models: Annotated[
        list[Path], typer.Argument(metavar="DIRECTORY...", help="Models with the same architecture and tokenizer.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIRECTORY", help="Model directory to write.")],
    overwrite: options.Overwrite = False,
) -> None:
    """Average the weights of several models.

    \b
    heedful average run1 run2 run3 -o averaged
    """
    if len(models) < 2:
        raise ConfigError("average needs at least two model directories.")
    from heedful.model_dir.registry import find_model

    models = [find_model(model) for model in models]
    if (output / "config.json").exists() and not overwrite:
        raise ConfigError(
            f"{output} already contains a model; add --overwrite to replace it, or choose another directory with -o."
        )
    from heedful.training.checkpoint import average_models

    average_models(models, output)


def export(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIRECTORY", help="Output directory.")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="ctranslate2, compact, shards or web.")],
    model: options.ModelDirectory = None,
    quantization: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="With ctranslate2: float32, float16, bfloat16, int16 or int8."),
    ] = None,
    shard_mb: Annotated[
        float | None,
        typer.Option(metavar="MB", help="With compact and shards: maximum size of a weight file in MB."),
    ] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Convert a model to another format.

    \b
    heedful export --to ctranslate2 -m model -o model-ct2
    heedful export --to ctranslate2 -m model -o model-int8 --quantization int8
    heedful translate -m model-int8 --engine ctranslate2 "A sentence."
    heedful export --to compact -m model -o model-small
    heedful export --to shards --shard-mb 100 -m model -o model-in-parts
    heedful export --to web -m model -o site

    compact writes a model directory of a quarter of the size, with the int8
    weights of the native engine. Every engine can read it; training and
    averaging need the full model. web writes a folder for a static file
    server: the model, the engine in WebAssembly, and an example page.
    """
    if to not in FORMATS:
        raise ConfigError(
            f"--to: {to!r} is not a known format{did_you_mean(to, FORMATS)}; choose one of {', '.join(FORMATS)}."
        )
    if to != "ctranslate2" and quantization is not None:
        raise ConfigError("--quantization applies to --to ctranslate2 only.")
    if to == "web" and shard_mb is not None:
        raise ConfigError("--shard-mb applies to --to shards and --to compact.")
    if to == "ctranslate2" and shard_mb is not None:
        raise ConfigError("--shard-mb applies to --to shards and --to compact; CTranslate2 reads a single file.")
    if to == "shards" and shard_mb is None:
        raise ConfigError("--to shards needs a file size, such as --shard-mb 100.")
    if shard_mb is not None and not shard_mb > 0:
        raise ConfigError(f"--shard-mb must be above 0, not {shard_mb}.")
    if to != "web":
        require(("numpy",))
    directory = model_directory(model)
    if to == "ctranslate2":
        from heedful.interop.export import export_ctranslate2

        export_ctranslate2(directory, output, quantization=quantization or "float32", overwrite=overwrite)
        print_written(output, "CTranslate2 files")
        return
    if to == "web":
        from heedful.interop.web import export_web

        export_web(directory, output, overwrite=overwrite)
        use = f"python3 -m http.server --directory {shlex.quote(str(output))}"
        print_written(output, "the model and a page that translates", use=use)
        return
    from heedful.interop.export import repack

    for name in repack(directory, output, compact=to == "compact", shard_mb=shard_mb, overwrite=overwrite):
        print(f"note: the tensor {name} is larger than {shard_mb:g} MB, so its file is too.", file=sys.stderr)
    print_written(output, "a compact int8 model" if to == "compact" else "the model")


def print_written(output: Path, contents: str, *, use: str | None = None) -> None:
    """Print what was written, its size, and a command that uses it."""
    files = [file for file in output.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files) / 1e6
    number = "1 file" if len(files) == 1 else f"{len(files)} files"
    use = use or f'heedful translate -m {shlex.quote(str(output))} "…"'
    print(f"{output}: {contents} ({number}, {size:,.1f} MB). Use it: {use}")


def shortlist(
    sources: options.Sources = None,
    targets: options.Targets = None,
    data: options.SingleFiles = None,
    model: options.ModelDirectory = None,
    target_language: options.To = None,
    per_token: Annotated[int, typer.Option(min=1, help="Number of candidates per source token.")] = 100,
    frequent: Annotated[int, typer.Option(min=0, help="Number of frequent tokens that are always candidates.")] = 1000,
    pairs: Annotated[
        int, typer.Option(min=1, help="Maximum number of sentence pairs to learn from, sampled evenly.")
    ] = (2_000_000),
    force: Annotated[bool, typer.Option("--force", help="Allow fewer sentence pairs than recommended.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Learn a lexical shortlist from parallel text and add it to a model.

    \b
    heedful shortlist -m model --source train.en --target train.de
    heedful translate -m model "A sentence."
    heedful translate -m model --no-shortlist "A sentence."

    A shortlist restricts the output vocabulary to likely translations of the source tokens, which makes the native
    engine faster on single sentences. The model's training data is a good choice.
    """
    given = corpora_from_flags(sources, targets, data)
    if not given:
        raise ConfigError("no corpus to learn from: give --source and --target, or --data.")
    directory = require_model_directory(model, "to add the shortlist to")
    refuse_bundled(directory)
    from heedful.console import Console
    from heedful.decoding.build_shortlist import ShortlistSize, collect_pairs, make_shortlist
    from heedful.model_dir.files import prepare_directory
    from heedful.model_dir.save_load import load_arrays, require_translation_model
    from heedful.model_dir.shortlist import save_shortlist

    arrays = load_arrays(directory, with_weights=False)
    require_translation_model(arrays.config, directory)
    prepare_directory(directory)  # fails now rather than after learning if it is not writable
    corpora = [from_mapping(CorpusConfig, corpus, "corpus") for corpus in given]
    with_languages = [
        (corpus, corpus_target_language(corpus, target_language, arrays.tokenizer.tags)) for corpus in corpora
    ]
    console = Console(quiet=quiet)
    sizes = (arrays.config.model.source_vocab_size, arrays.config.model.target_vocab_size)
    with console.stages() as advance:
        collected = collect_pairs(
            arrays.tokenizer,
            with_languages,
            max_pairs=pairs,
            progress=lambda count: advance("reading pairs", count, None),
        )
        require_enough_pairs(collected, console, force=force)
        learned = make_shortlist(
            collected,
            ShortlistSize(per_token, frequent),
            vocab_sizes=sizes,
            progress=lambda count: advance("learning translation probabilities", count, len(collected)),
        )
    learned, kept = merge_with_existing(directory, learned, arrays.tokenizer, console)
    save_shortlist(directory, learned)
    average = collected.average(learned)
    console.note(f"{len(collected):,} sentence pairs; on average {average:,.0f} of {sizes[1]:,} tokens are candidates.")
    if kept:
        console.note(f"Kept the existing entries for {', '.join(kept)}.")


def require_enough_pairs(collected: TokenizedPairs, console: Console, *, force: bool) -> None:
    """Raise `ConfigError` if there are too few sentence pairs; with `force`, warn."""
    from heedful.decoding.build_shortlist import MIN_PAIRS

    for language, count in Counter(collected.languages).items():
        if count >= MIN_PAIRS:
            continue
        into = f" into {language}" if language else ""
        problem = f"{count:,} sentence pairs{into} are too few for a shortlist: tokens not in them are never used"
        if not force:
            raise ConfigError(
                f"{problem}, which makes translations much worse. Give {MIN_PAIRS:,} or more, preferably the "
                f"training data, or add --force if these pairs cover the vocabulary."
            )
        console.note(f"warning: {problem}. Compare `heedful evaluate` with and without --no-shortlist.")


def refuse_bundled(directory: Path) -> None:
    """Raise `ConfigError` for a model that is part of the installed package."""
    from heedful.model_dir.registry import BUNDLED

    if BUNDLED.resolve() in directory.resolve().parents:
        name = directory.name
        raise ConfigError(
            f"{directory} is part of heedful and cannot be changed; add the shortlist to a copy: "
            f"heedful export --to compact -m {name} -o my-{name}, then heedful shortlist -m my-{name} …"
        )


def merge_with_existing(
    directory: Path, learned: Shortlist, tokenizer: Tokenizer, console: Console
) -> tuple[Shortlist, list[str]]:
    """Merge a new shortlist with the existing one; returns it and the target languages that were kept."""
    from heedful.decoding.build_shortlist import merge_shortlists
    from heedful.model_dir.shortlist import read_shortlist

    try:
        existing = read_shortlist(directory)
    except ModelDirectoryError:
        console.note("The existing shortlist is damaged and is replaced.")
        existing = None
    return (learned, []) if existing is None else merge_shortlists(existing, learned, tokenizer)


def corpus_target_language(corpus: CorpusConfig, given: str | None, tags: Sequence[str]) -> str | None:
    """The target language of a corpus: as given, else from its file name; None if the model has no language tags."""
    if not tags:
        return None
    language = target_code(given, tags) if given else language_from_name(corpus.target)
    if language not in tags:
        name = Path(corpus.target or corpus.path or "").name
        raise ConfigError(
            f"{name}: the target language is unknown; give one of {', '.join(tags)} with --target-language."
        )
    return language
