"""The program `heedful`. The module of a verb is imported only when that verb runs.

Errors that the user can fix are one line on stderr with exit code 2; bugs keep their traceback.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Annotated

import typer

from heedful.cli.exit_codes import print_error, refuse_small_address_space
from heedful.cli.overrides import TEXTS, Verb, similar_flag
from heedful.cpu_count import configure_openmp
from heedful.errors import HeedfulError, did_you_mean

VERBS = {
    "train": "train",
    "translate": "translate",
    "see": "see",
    "serve": "serve",
    "generate": "generate",
    "merge": "translate_file",
    "score": "score",
    "evaluate": "score",
    "prepare": "train",
    "compare": "compare",
    "average": "models",
    "shortlist": "models",
    "export": "models",
    "info": "models",
    "models": "models",
}
"""For each verb the module with the function of the same name, in the order of the help page."""
KEYS, PAPER = "keys", "paper"
"""Groups of verbs, in modules and packages of the same names."""
GROUPS = (KEYS, PAPER)
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]  # the base in typer's click, which may be its own copy


def make_app(verbs: Iterable[str] = (*VERBS, *GROUPS)) -> typer.Typer:
    """The command-line program with these verbs."""
    app = typer.Typer(
        rich_markup_mode="rich",
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(heedful)
    for verb in verbs:
        module = import_module(f"{__name__}.{VERBS.get(verb, verb)}")
        if verb in GROUPS:
            app.add_typer(getattr(module, verb), name=verb)
        else:
            app.command(cls=Verb)(getattr(module, verb))
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program on these arguments (default: `sys.argv`) and exit with its code."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the calling process
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    configure_openmp()
    sys.exit(run(args or ["--help"]))


def run(arguments: list[str]) -> int:
    """Run the program and return its exit code."""
    verbs = [verb for verb in (*VERBS, *GROUPS) if arguments[:1] == [verb]]
    command = typer.main.get_command(make_app(verbs) if verbs else make_app())
    try:
        refuse_small_address_space(verbs[0] if verbs else None)
        code = command.main(arguments, prog_name="heedful", standalone_mode=False)
    except typer.Abort:
        return 130
    except (HeedfulError, USAGE_ERROR) as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without a verb, whose help was printed
            return 2
        return print_error(error_message(error))
    return code if isinstance(code, int) else 0


def error_message(error: Exception) -> str:
    """The message of an error, with a hint at similar flags or verbs."""
    name = getattr(error, "option_name", None)
    context = getattr(error, "ctx", None)
    message = str(getattr(error, "message", error))
    if unknown := re.match(r"No such command '(.*?)'", message):
        verb, known = unknown[1], list(context.command.commands) if context else []
        return f"there is no verb {verb!r}{did_you_mean(verb, known)}; choose one of {', '.join(known)}."
    if name and message.startswith("No such option"):
        flags = [flag for parameter in context.command.params for flag in parameter.opts] if context else []
        takes_texts = any(parameter.name == TEXTS for parameter in context.command.params) if context else False
        hint = " (put -- before a text that begins with a dash)" if takes_texts else ""
        return f"there is no flag {name}{similar_flag(name, flags) or hint}; {_see_help(context)}."
    if hasattr(error, "format_message"):
        message = " ".join(error.format_message().split())
        return f"{message[:1].lower()}{message[1:].rstrip('.')}; {_see_help(context)}."
    return str(error)


def _see_help(context: typer.Context | None) -> str:
    return f"see {context.command_path if context else 'heedful'} --help"


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from heedful import __version__

        print(f"heedful {__version__}")
        raise typer.Exit


def heedful(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The Transformer of "Attention Is All You Need", from two text files to a translation.

    \b
    heedful translate --to de "A sentence." "Another one."
    heedful train --source train.en --target train.de -o model
    heedful translate -m model "A sentence."
    heedful evaluate -m model --source test.en --target test.de
    """
