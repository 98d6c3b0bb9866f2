"""`heedful serve`: a translation server with the interfaces of LibreTranslate, DeepL and OpenAI, and one of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options

if TYPE_CHECKING:
    from heedful.serving.service import TranslationService
    from heedful.serving.settings import ServerSettings

Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Model directory or name (see heedful models); repeatable; default: all bundled models.",
        autocompletion=options.model_names,
    ),
]


def serve(
    model: Models = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address to listen on; default: 127.0.0.1.")
    ] = None,
    port: Annotated[int | None, typer.Option(metavar="N", help="Port; 0: any free one; default: 8080.")] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Engine processes; default: one for each two cores.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML file with settings; docs/serve.md lists them.")
    ] = None,
    keys: Annotated[
        str | None, typer.Option(metavar="FILE", help="SQLite file of the API keys; see heedful keys.")
    ] = None,
    allow_anonymous: Annotated[
        bool, typer.Option("--allow-anonymous", help="Accept requests without a key from other machines.")
    ] = False,
    log_format: Annotated[
        str | None, typer.Option(metavar="NAME", help="Lines of the log on stderr: text or json; default: text.")
    ] = None,
) -> None:
    """Serve translations over HTTP, for clients of LibreTranslate, DeepL and OpenAI.

    \b
    heedful serve
    heedful serve -m model --port 5000
    heedful serve --host 0.0.0.0 --keys keys.sqlite
    HEEDFUL_MAX_TEXTS=100 heedful serve --config serve.yaml

    Every setting is also a key of the --config file and an environment variable such as HEEDFUL_PORT.
    """
    from heedful.extras import VERB_PACKAGES, require

    require(VERB_PACKAGES["serve"])
    from heedful.serving.settings import load_settings

    flags = {
        "models": tuple(model) if model else None,
        "host": host,
        "port": port,
        "workers": workers,
        "keys": keys,
        "allow_anonymous": allow_anonymous or None,
        "log_format": log_format,
    }
    run(load_settings(config, flags))


def run(settings: ServerSettings) -> None:
    """Serve until a signal."""
    import asyncio
    from importlib import import_module

    from heedful.serving.json_log import configure_log
    from heedful.serving.listening import listen
    from heedful.serving.service import TranslationService

    configure_log(settings.log_format)
    require_protection(settings)
    listener = listen(settings)

    async def main() -> None:
        service = TranslationService(settings)
        try:
            _, app, http_server = await asyncio.gather(  # the engines load while this process imports the rest
                service.start(),
                asyncio.to_thread(import_module, "heedful.serving.app"),
                asyncio.to_thread(import_module, "heedful.serving.http_server"),
            )
            application = app.build_app(service, settings)
            print_banner(service, settings, listener.getsockname()[1])
            await http_server.run_server(service, application, settings, [listener])
        finally:
            await service.stop()

    asyncio.run(main())


def require_protection(settings: ServerSettings) -> None:
    """Raise `ConfigError` if other machines could use the server without a key and nobody said that they may."""
    from heedful.errors import ConfigError
    from heedful.serving.access import AccessControl

    if settings.is_loopback or settings.allow_anonymous:
        return
    access = AccessControl(settings)
    try:
        if not access.needs_key():
            raise ConfigError(
                f"--host {settings.host}: other machines could use this server without an API key; make one with "
                f"`heedful keys add` and give its file with --keys, or add --allow-anonymous."
            )
    finally:
        access.close()


def print_banner(service: TranslationService, settings: ServerSettings, port: int) -> None:
    """Print the addresses and a command to try."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{port}"
    pair = next((one for one in service.directions() if one.source == "en"), service.directions()[0])
    listed = ", ".join(f"{one.source} → {one.target}" for one in service.directions())
    print(f"heedful serves {', '.join(service.model_names())} ({listed})")
    for name, path in (
        ("page", "/"),
        ("interfaces", "/docs"),
        ("LibreTranslate", "/translate"),
        ("DeepL", "/v2/translate"),
        ("OpenAI", "/v1/chat/completions"),
        ("own interface", "/api/v1/translate"),
    ):
        print(f"  {name:<15} {url}{path}")
    data = f'{{"q": "Good morning.", "source": "{pair.source}", "target": "{pair.target}"}}'
    print(f"Try it: curl {url}/translate -H 'Content-Type: application/json' -d '{data}'", flush=True)
