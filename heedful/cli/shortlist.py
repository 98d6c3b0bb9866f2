"""`heedful shortlist`: give a model the list of words that each source word may become."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options
from heedful.cli.overrides import corpora_of, language_of, own_model_directory
from heedful.config import CorpusConfig
from heedful.config_loading import from_mapping
from heedful.errors import ConfigError, ModelDirectoryError
from heedful.text.language_names import target_code

if TYPE_CHECKING:
    from heedful.console import Console
    from heedful.decoding.build_shortlist import PairsInIds
    from heedful.model_dir.shortlist import Shortlist
    from heedful.text.tokenizer import Tokenizer


def shortlist(
    sources: options.Sources = None,
    targets: options.Targets = None,
    data: options.SingleFiles = None,
    model: options.ModelDirectory = None,
    target_language: options.To = None,
    per_token: Annotated[int, typer.Option(min=1, help="Candidates of each source token.")] = 100,
    frequent: Annotated[int, typer.Option(min=0, help="Frequent words that are always candidates.")] = 1000,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of sentences to learn from, evenly from the files.")] = (
        2_000_000
    ),
    force: Annotated[bool, typer.Option("--force", help="Learn from too few pairs all the same.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Give a model a shortlist: which words its source words may become, learned from pairs of sentences.

    \b
    heedful shortlist -m model --source train.en --target train.de
    heedful translate -m model "A sentence."
    heedful translate -m model --no-shortlist "A sentence."

    With it the engine native translates single sentences faster. The pairs the model was trained on serve well.
    """
    found = corpora_of(sources, targets, data)
    if not found:
        raise ConfigError("no pairs to learn from: give --source and --target, or --data.")
    directory = own_model_directory(model, "that the shortlist is for")
    refuse_in_box(directory)
    from heedful.console import Console
    from heedful.decoding.build_shortlist import ShortlistSize, collect_pairs, make_shortlist
    from heedful.model_dir.files import prepare_directory
    from heedful.model_dir.save_load import load_arrays
    from heedful.model_dir.shortlist import save_shortlist

    arrays = load_arrays(directory, with_weights=False)
    prepare_directory(directory)  # that it can be written is better known before the work than after
    corpora = [from_mapping(CorpusConfig, corpus, "corpus") for corpus in found]
    named = [(corpus, language_for(corpus, target_language, arrays.tokenizer.tags)) for corpus in corpora]
    console = Console(quiet=quiet)
    sizes = (arrays.config.model.source_vocab_size, arrays.config.model.target_vocab_size)
    with console.stages() as tell:
        collected = collect_pairs(
            arrays.tokenizer, named, most=pairs, tell=lambda count: tell("reading pairs", count, None)
        )
        check_enough(collected, console, force=force)
        made = make_shortlist(
            collected,
            ShortlistSize(per_token, frequent),
            vocab_sizes=sizes,
            tell=lambda count: tell("learning which words they become", count, len(collected)),
        )
    made, kept = with_earlier(directory, made, arrays.tokenizer, console)
    save_shortlist(directory, made)
    average = collected.average(made)
    console.note(f"{len(collected):,} pairs; about {average:,.0f} of {sizes[1]:,} words are candidates for a sentence.")
    if kept:
        console.note(f"What was learned before for {', '.join(kept)} is kept.")


def check_enough(collected: PairsInIds, console: Console, *, force: bool) -> None:
    """Refuse pairs from which many words would not be learned; with `force` a warning."""
    from heedful.decoding.build_shortlist import LEAST_PAIRS

    for language, count in Counter(collected.languages).items():
        if count >= LEAST_PAIRS:
            continue
        into = f" into {language}" if language else ""
        problem = f"{count:,} pairs of sentences{into} are too few for a shortlist: words that they lack are never used"
        if not force:
            raise ConfigError(
                f"{problem}, and translations get much worse. Give {LEAST_PAIRS:,} or more, best those of the "
                f"training, or add --force where so few pairs have all words."
            )
        console.note(f"warning: {problem}. Compare `heedful evaluate` with and without --no-shortlist.")


def refuse_in_box(directory: Path) -> None:
    """What came with the package stays as it came."""
    from heedful.model_dir.registry import BUNDLED

    if BUNDLED.resolve() in directory.resolve().parents:
        name = directory.name
        raise ConfigError(
            f"{directory} came with heedful and stays as it is; give the shortlist to a copy: "
            f"heedful export --to compact -m {name} -o my-{name}, then heedful shortlist -m my-{name} …"
        )


def with_earlier(
    directory: Path, made: Shortlist, tokenizer: Tokenizer, console: Console
) -> tuple[Shortlist, list[str]]:
    """A new shortlist with what the model's present one has learned for other target languages; and these."""
    from heedful.decoding.build_shortlist import merged
    from heedful.model_dir.shortlist import read_shortlist

    try:
        old = read_shortlist(directory)
    except ModelDirectoryError:
        console.note("The shortlist that was there is damaged; the new one takes its place, and nothing of it is kept.")
        old = None
    return (made, []) if old is None else merged(old, made, tokenizer)


def language_for(corpus: CorpusConfig, given: str | None, tags: Sequence[str]) -> str | None:
    """The language of the tag that a corpus needs: the one that was named, or the ending of its target file."""
    if not tags:
        return None
    language = target_code(given, tags) if given else language_of(corpus.target)
    if language not in tags:
        name = Path(corpus.target or corpus.path or "").name
        raise ConfigError(f"{name}: into which of {', '.join(tags)}? Name it with --target-language.")
    return language
