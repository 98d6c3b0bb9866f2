"""`heedful generate`: continue texts, or fill masks in them, with a language model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.exit_codes import printable
from heedful.cli.line_io import read_text
from heedful.cli.overrides import require_model_directory, search_settings
from heedful.errors import ConfigError, TextError

if TYPE_CHECKING:
    from heedful.decoding.text_generation import FilledText, Generation, TextGenerator

SEARCH_OPTIONS = ("method", "beam_size", "length_penalty", "length_penalty_alpha", "no_repeat_ngram_size")
NUM_CANDIDATES = 5
"""Candidates for each mask, unless `--num-best` is given."""


Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TEXT]...", help="Beginnings of texts to continue, or texts with <mask>."),
]
InputFile = Annotated[
    str | None, typer.Option("--input", "-i", metavar="FILE", help="Texts, one per line; - for standard input.")
]
NumBest = Annotated[
    int | None,
    typer.Option(
        "--num-best",
        "-n",
        rich_help_panel=options.SEARCH,
        help="Continuations per text (default 1), or candidates per mask (5).",
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=options.SEARCH,
        help="Maximum length in tokens, with the given text; default: 50 tokens after it.",
    ),
]
MinLength = Annotated[
    int | None, typer.Option(rich_help_panel=options.SEARCH, help="Minimum length in tokens, with the given text.")
]


@options.shared_options(after=(*SEARCH_OPTIONS, *options.SAMPLING_OPTIONS))
def generate(
    words: Texts = None,
    model: options.LanguageModelDirectory = None,
    input_file: InputFile = None,
    as_json: options.AsJson = False,
    device: options.Device = None,
    num_best: NumBest = None,
    max_length: MaxLength = None,
    min_length: MinLength = None,
    seed: options.SamplingSeed = None,
    settings: options.Settings = None,
    **search_flags: Any,
) -> None:
    """Continue texts with a language model, or fill <mask> in them with a masked one.

    \b
    heedful generate -m lm "Once upon"
    heedful generate -m lm "Once upon" -n 3 --temperature 0.8 --seed 7
    heedful generate -m lm "Once upon" --method beam --beam-size 8
    heedful generate -m masked-lm "The cat sat on the <mask>."

    Without a text, a new line is generated. Every configuration key of the section decoding is also a flag:
    --decoding.max_extra_length=20.
    """
    if words and input_file:
        raise ConfigError("give texts as arguments or a file with -i, not both.")
    search = search_settings(
        settings, num_best=num_best, max_length=max_length, min_length=min_length, seed=seed, **search_flags
    )
    if "beam_size" in search and "method" not in search:
        search["method"] = "beam"
    directory = require_model_directory(model, "that generates")
    texts = list(words or [""]) if input_file is None else read_text(input_file)
    from heedful.decoding.text_generation import TextGenerator

    generator = TextGenerator.load(directory, device=device or "auto")
    try:
        if generator.fills_masks:
            fill(generator, texts, search, as_json=as_json)
        else:
            for text, generations in zip(texts, generator.generate(texts, **search), strict=True):
                print_generations(text, generations, as_json=as_json)
    except TextError as error:
        raise error if input_file is None else error.at(f"{input_file}:{error.number}") from None


def print_generations(prompt: str, generations: Sequence[Generation], *, as_json: bool) -> None:
    """Print one line for each continuation, or one JSON object for the prompt."""
    if as_json:
        plain = {"prompt": prompt, "generations": [generation.to_dict() for generation in generations]}
        print(json.dumps(plain, ensure_ascii=False))
        return
    for generation in generations:
        print(printable(generation.text))


def fill(generator: TextGenerator, texts: Sequence[str], search: dict[str, Any], *, as_json: bool) -> None:
    """Fill the masks of each text and print the candidates."""
    others = sorted(set(search) - {"num_best"})
    if others:
        raise ConfigError(
            f"decoding.{others[0]} is for a model that continues texts; this one fills <mask> (--num-best candidates)."
        )
    count = int(search.get("num_best", NUM_CANDIDATES))
    if count < 1:
        raise ConfigError(f"--num-best must be at least 1, not {count}.")
    for text, filled in zip(texts, generator.fill_masks(texts, num_candidates=count), strict=True):
        if as_json:
            print(json.dumps({"masked": text, **filled.to_dict()}, ensure_ascii=False))
        else:
            print_filled(filled)


def print_filled(filled: FilledText) -> None:
    """Print the filled text, then the candidates for each mask."""
    print(printable(filled.text))
    for number, candidates in enumerate(filled.masks, start=1):
        heading = f"<mask> {number}:" if len(filled.masks) > 1 else "<mask>:"
        listed = ", ".join(
            f"{candidate.text.strip() or candidate.text!r} {candidate.probability:.3f}" for candidate in candidates
        )
        print(printable(f"  {heading} {listed}"))
