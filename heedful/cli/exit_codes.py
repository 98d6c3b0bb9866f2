"""How a verb ends: exit code 0, one message and 2, quietly 130 after Ctrl-C, or a traceback and 1."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from heedful.errors import ConfigError, ElsewhereError, HeedfulError

INTERRUPTED = 130


CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Text for a terminal: control characters, of which escape sequences consist, are shown as what they are."""
    return CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def tell_error(message: str) -> int:
    """Print a message for the user on stderr and return the exit code of errors."""
    print(f"heedful: {printable(message)}", file=sys.stderr)
    return 2


@contextmanager
def handled() -> Iterator[None]:
    """Turn what the user or the system caused into a message and an exit code."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has seen enough
        _close_standard_output()
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except ElsewhereError:
        raise typer.Exit(2) from None
    except HeedfulError as error:
        if isinstance(error, ConfigError) and os.environ.get("LOCAL_RANK", "0") != "0":
            raise typer.Exit(2) from None  # torchrun started all ranks of this machine alike: the first tells it
        notes = getattr(error, "__notes__", [])
        raise typer.Exit(tell_error(" ".join([str(error), *notes]))) from None
    except OSError as error:
        _drop_unwritten_output()
        raise typer.Exit(tell_error(_about_file(error))) from None
    except MemoryError:
        advice = "close other programs, or use a smaller decoding.tokens_per_batch, batch or model"
        raise typer.Exit(tell_error(f"there is not enough memory; {advice}.")) from None
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":
            raise
        advice = "use a smaller decoding.tokens_per_batch, training.tokens_per_microbatch or model, or --device cpu"
        raise typer.Exit(tell_error(f"the device has not enough memory; {advice}.")) from None


def _about_file(error: OSError) -> str:
    named = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, (str, bytes))]
    where = f"{' → '.join(named)}: " if named else ""
    notes = " ".join(getattr(error, "__notes__", []))
    return f"{where}{error.strerror or error}. {notes}".rstrip()


def _drop_unwritten_output() -> None:
    """Forget what standard output could not take, or Python would fail on it once more at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        _close_standard_output()


def _close_standard_output() -> None:
    """Point stdout at nothing, so that Python does not complain when it flushes at its end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass  # not a real file, as in tests
