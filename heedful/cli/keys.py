"""`heedful keys`: make, list and revoke the API keys of `heedful serve`."""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options
from heedful.cli.exit_codes import printable
from heedful.cli.overrides import Verb
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.serving.keys import KeyStore

keys = typer.Typer(
    help="Make, list and revoke the API keys of heedful serve.", rich_markup_mode="rich", no_args_is_help=True
)

KeysFile = Annotated[
    Path | None,
    typer.Option("--keys", metavar="FILE", help="SQLite file; default: that of HEEDFUL_KEYS, else keys.sqlite."),
]
DEFAULT_FILE = "keys.sqlite"


@keys.command(cls=Verb)
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whom the key is for.")],
    file: KeysFile = None,
    rate: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Requests per minute; default: no limit.")
    ] = None,
    quota: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Characters per month; default: no limit.")
    ] = None,
) -> None:
    """Make an API key and print it. It is not stored and cannot be printed again.

    \b
    heedful keys add alice
    heedful keys add weblate --rate 600 --quota 1000000
    heedful serve --host 0.0.0.0 --keys keys.sqlite
    """
    if not name.strip() or not name.isprintable():
        raise ConfigError("NAME: must be a text without control characters.")
    with _store(file, create=True) as store:
        print(store.add(name, requests_per_minute=rate, characters_per_month=quota))


@keys.command("list", cls=Verb)
def list_keys(file: KeysFile = None, as_json: options.AsJson = False) -> None:
    """List the API keys with their rates, quotas and use this month.

    \b
    heedful keys list
    heedful keys list --json
    """
    with _store(file) as store:
        found = store.keys()
    if as_json:
        print(json.dumps([asdict(key) for key in found], ensure_ascii=False))
        return
    if not found:
        print("There are no keys.")
    for key in found:
        rate = f"{key.requests_per_minute:,} requests per minute" if key.requests_per_minute else "no rate limit"
        quota = f" of {key.characters_per_month:,}" if key.characters_per_month else ""
        state = f"revoked {key.revoked}" if key.revoked else f"{rate}, {key.used:,}{quota} characters this month"
        print(printable(f"{key.name}  {key.created}  {state}"))


@keys.command(cls=Verb)
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name that the key was made with.")],
    file: KeysFile = None,
) -> None:
    """Revoke an API key, at once also in servers that are running.

    \b
    heedful keys revoke alice
    """
    with _store(file) as store:
        store.revoke(name)
    print(printable(f"The key {name!r} is revoked."))


def _store(file: Path | None, *, create: bool = False) -> closing[KeyStore]:
    """The keys in the file that is given, or in the one of the environment."""
    from heedful.serving.keys import KeyStore

    return closing(KeyStore(file or Path(os.environ.get("HEEDFUL_KEYS") or DEFAULT_FILE), create=create))
