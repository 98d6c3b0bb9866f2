"""`heedful shortlist`: add a lexical shortlist to a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options
from heedful.cli.overrides import corpora_from_flags, language_from_name, require_model_directory
from heedful.config import CorpusConfig
from heedful.config_loading import from_mapping
from heedful.errors import ConfigError, ModelDirectoryError
from heedful.text.language_names import target_code

if TYPE_CHECKING:
    from heedful.console import Console
    from heedful.decoding.build_shortlist import TokenizedPairs
    from heedful.model_dir.shortlist import Shortlist
    from heedful.text.tokenizer import Tokenizer


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
    from heedful.model_dir.save_load import load_arrays
    from heedful.model_dir.shortlist import save_shortlist

    arrays = load_arrays(directory, with_weights=False)
    prepare_directory(directory)  # fails now rather than after learning if it is not writable
    corpora = [from_mapping(CorpusConfig, corpus, "corpus") for corpus in given]
    with_languages = [
        (corpus, corpus_target_language(corpus, target_language, arrays.tokenizer.tags)) for corpus in corpora
    ]
    console = Console(quiet=quiet)
    sizes = (arrays.config.model.source_vocab_size, arrays.config.model.target_vocab_size)
    with console.stages() as advance:
        collected = collect_pairs(
            arrays.tokenizer, with_languages, most=pairs, progress=lambda count: advance("reading pairs", count, None)
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
