"""`heedful see`: a page that shows a translation from the inside."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options
from heedful.errors import ConfigError, DecodingError

if TYPE_CHECKING:
    from heedful.inspection.static_site import SiteModel

Models = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Model directory or name (see heedful models); repeatable; default: all bundled models.",
        autocompletion=options.model_names,
    ),
]


def see(
    sentence: Annotated[str | None, typer.Argument(metavar="[SENTENCE]", help="The sentence to translate.")] = None,
    model: Models = None,
    target_language: options.To = None,
    port: Annotated[int | None, typer.Option(metavar="N", help="Port; default: the first free one from 8123.")] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """Show how a model translates, in the browser: attention, decoding, and every other number.

    \b
    heedful see "The book that you gave me is on the table." --to de
    heedful see -m model
    heedful see --no-browser --port 8000

    The model runs in the page. Nothing is sent to any other machine.
    """
    models = site_models_of(model)
    to = check_sentence(models, sentence, target_language)
    from heedful.inspection.page_server import PageServer

    with PageServer(models, host=host, port=port) as server:
        url = server.url(text=sentence, to=to, model=models[0].name if model and (sentence or to) else None)
        print(url, flush=True)
        print("The page is served until Ctrl-C.", file=sys.stderr)
        if browser and has_display():
            import webbrowser

            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print(file=sys.stderr)


def site_models_of(given: list[Path] | None) -> list[SiteModel]:
    """Read the models that the user names; by default the default model and all bundled ones."""
    from heedful.inspection.static_site import site_models
    from heedful.model_dir.registry import default_model, find_model, installed_models

    if given:
        return site_models([find_model(path) for path in given])
    bundled = [found.directory for found in installed_models() if found.is_bundled]
    return site_models([default_model(), *bundled])


def check_sentence(models: list[SiteModel], sentence: str | None, language: str | None) -> str | None:
    """The code of the target language; an error if no model has it, or if the sentence is too long for every model."""
    from heedful.model_dir.save_load import load_arrays, read_directions
    from heedful.text.language_names import target_code

    known = dict.fromkeys(code for model in models for code in read_directions(model.directory).target_codes)
    code = None if language is None else target_code(language, tuple(known))
    if code is not None and code not in known:
        listed = ", ".join(known) or "languages that are not recorded"
        raise ConfigError(f"--to {language}: no model of this page translates into it; they translate into {listed}.")
    if not sentence:
        return code
    lengths = []
    for model in models:
        arrays = load_arrays(model.directory, with_weights=False)
        tags = arrays.tokenizer.tags
        length = len(arrays.tokenizer.encode_source(sentence, code if code in tags else next(iter(tags), None)))
        lengths.append((length, arrays.config.model.max_length))
    if all(length > most for length, most in lengths):
        length, most = min(lengths)
        raise DecodingError(f"this sentence has {length:,} tokens, and the model takes at most {most:,}; shorten it.")
    return code


def has_display() -> bool:
    """Whether a browser with a window can be expected."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
