"""`heedful see`: a page that shows a translation from the inside, a static site of it, or a picture of one view."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options
from heedful.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from heedful.inspection.static_site import SiteModel

VIEWS = (
    "decoding", "attention", "head", "beam", "positions", "norms", "residual", "feed_forward", "what_if", "explanation",
    "over_time",
)  # fmt: skip
"""The views of the page (web/page/state.ts)."""
PICTURES = {
    "decoding": "decoding",
    "attention": "attention",
    "head": "head_split",
    "positions": "positions",
    "norms": "norms",
}
"""For each view that --png draws, the figure of `heedful.paper.figures`."""
WITHOUT_MODEL = ("positions", "norms")
"""The pictures that show no translation."""
SERVER, SITE, PICTURE = "Server", "Static site", "Picture"

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
View = Annotated[
    str | None,
    typer.Option(metavar="NAME", help=f"View to show: {', '.join(VIEWS)}.", autocompletion=options.choices(*VIEWS)),
]


def see(
    words: Annotated[list[str] | None, typer.Argument(metavar="[SENTENCE]", help="The sentence to translate.")] = None,
    model: Models = None,
    target_language: options.To = None,
    view: View = None,
    layer: Annotated[int | None, typer.Option(metavar="N", min=1, help="Layer to show, counted from 1.")] = None,
    head: Annotated[int | None, typer.Option(metavar="N", min=1, help="Head to show, counted from 1.")] = None,
    lang: Annotated[str | None, typer.Option("--lang", metavar="CODE", help="Language of labels: en or zh.")] = None,
    port: Annotated[
        int | None, typer.Option(metavar="N", rich_help_panel=SERVER, help="Port; default: the first free from 8123.")
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", rich_help_panel=SERVER, help="Address to listen on.")
    ] = "127.0.0.1",
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", rich_help_panel=SERVER, help="Open the page in the browser.")
    ] = True,
    site: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY", rich_help_panel=SITE, help="Write the page for a static file server instead."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", rich_help_panel=SITE, help="Replace an earlier site.")
    ] = False,
    png: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=PICTURE, help="Draw one view instead; no browser is needed."),
    ] = None,
    theme: Annotated[
        str, typer.Option(metavar="NAME", rich_help_panel=PICTURE, help="Colours of the picture: light or dark.")
    ] = "light",
) -> None:
    """Show in the browser how a model translates: attention, decoding, and every other number.

    \b
    heedful see "The book that you gave me is on the table." --to de
    heedful see -m model --view attention
    heedful see --site site -m model
    heedful see --png attention.png --view attention --to de "Where is Tom?"

    The model runs in the page, and nothing is sent to other machines.
    """
    sentence = " ".join(words or [])
    refuse_combinations(sentence, view, lang, site, png)
    if png is not None:
        draw_view(png, sentence, model, target_language, view=view, layer=layer, head=head, lang=lang, theme=theme)
        return
    from heedful.inspection.static_site import check_sentence, named_models, site_models, write_site

    models = site_models(named_models(model or []))
    if site is not None:
        size = write_site(models, site, overwrite=overwrite)
        print(f"{site}: the page with {', '.join(one.name for one in models)} ({size / 1e6:,.1f} MB).")
        print(f"Serve it: python3 -m http.server --directory {shlex.quote(str(site))}")
        return
    state = {
        "model": models[0].name if model else None,
        "text": sentence,
        "to": check_sentence(models, sentence, target_language),
        "view": view,
        "layer": None if layer is None else str(layer - 1),
        "head": None if head is None else str(head - 1),
        "language": lang,
    }
    serve(models, state, host=host, port=port, browser=browser)


def refuse_combinations(sentence: str, view: str | None, lang: str | None, site: Path | None, png: Path | None) -> None:
    """Raise `ConfigError` for flags that do not go together, and for unknown names."""
    if view is not None and view not in VIEWS:
        raise ConfigError(
            f"--view: {view!r} is not a view{did_you_mean(view, VIEWS)}; choose one of {', '.join(VIEWS)}."
        )
    if lang not in (None, "en", "zh"):
        raise ConfigError(f"--lang is one of en, zh, not {lang!r}.")
    if site is not None and png is not None:
        raise ConfigError("--site and --png are different outputs; give one of them.")
    if site is not None and sentence:
        raise ConfigError("--site takes no sentence; the address of the page has it: index.html#text=…")


def serve(models: list[SiteModel], state: dict[str, str | None], *, host: str, port: int | None, browser: bool) -> None:
    """Serve the page until Ctrl-C."""
    from heedful.inspection.page_server import PageServer

    try:
        with PageServer(models, host=host, port=port) as server:
            url = server.url(**state)
            print(url, flush=True)
            print("The page is served until Ctrl-C.", file=sys.stderr, flush=True)
            if browser and has_display():
                import webbrowser

                threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
            server.serve_forever()
    except KeyboardInterrupt:
        print(file=sys.stderr)


def has_display() -> bool:
    """Whether a browser with a window can be expected."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def draw_view(
    png: Path,
    sentence: str,
    models: list[Path] | None,
    target_language: str | None,
    *,
    view: str | None,
    layer: int | None,
    head: int | None,
    lang: str | None,
    theme: str,
) -> None:
    """Draw a view of the page with matplotlib."""
    view = view or "attention"
    if view not in PICTURES:
        raise ConfigError(f"--png cannot draw the view {view}, which needs the page; it draws {', '.join(PICTURES)}.")
    if models and len(models) > 1:
        raise ConfigError("--png draws one model; give -m once.")
    if view in WITHOUT_MODEL and (sentence or models):
        raise ConfigError(f"--png draws the view {view} without a model; leave out the sentence and -m.")
    if models and not sentence:
        raise ConfigError("--png needs a sentence that the model translates.")
    if png.suffix.lower() != ".png":
        raise ConfigError(f"{png}: the picture is written as PNG; give it a name that ends in .png.")
    from heedful.extras import require

    require(("matplotlib", "numpy", "torch"))
    from heedful.cli.paper.figures import load_sample
    from heedful.model_dir.registry import find_model
    from heedful.paper.figures.registry import draw_figures

    language, sample = lang or "en", None
    if view not in WITHOUT_MODEL:
        sample = load_sample(find_model(models[0]) if models else None, sentence or None, target_language, language)
        architecture = sample.loaded.config.model.architecture
        if view != "attention" and architecture != "transformer":
            raise ConfigError(f"--png draws the view {view} of a Transformer only, and this model is {architecture}.")
    with tempfile.TemporaryDirectory() as folder:
        written = draw_figures(
            Path(folder),
            language=language,
            theme=theme,
            only=[PICTURES[view]],
            sample=sample,
            layer=layer,
            heads=[] if head is None else [head],
        )
        png.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(next(path for path in written if path.suffix == ".png"), png)
    print(png)
