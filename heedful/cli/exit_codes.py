"""How a verb ends: exit code 0, one message and 2, quietly 130 after Ctrl-C, or a traceback and 1."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from heedful.errors import ConfigError, ElsewhereError, HeedfulError, remedy_for

INTERRUPTED = 130
MIN_ADDRESS_SPACE = {"translate": 160, "evaluate": 200, "score": 200, "prepare": 600, "train": 1200}
"""For each verb the least address space in MB; less and libraries abort or fail while they are loaded."""
MORE_MEMORY = "close other programs, or raise the limit on memory (`ulimit -v`)"
MORE_THREADS = "raise the limit on processes (`ulimit -u`)"
MAPPING_FAILED = re.compile("failed to map|cannot allocate memory|memory allocation", re.IGNORECASE)
NO_THREAD = re.compile("can't start new thread|resource temporarily unavailable", re.IGNORECASE)


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
    except (ImportError, RuntimeError) as error:
        message = _about_limit(error)
        if message is None:
            raise
        raise typer.Exit(tell_error(message)) from None


def refuse_small_address_space(verb: str | None) -> None:
    """Refuse to begin under a limit (`ulimit -v`) with which libraries that a verb needs abort the process."""
    try:
        import resource
    except ImportError:  # not on this system
        return
    limit, least = resource.getrlimit(resource.RLIMIT_AS)[0], MIN_ADDRESS_SPACE.get(verb or "", 0)
    if limit != resource.RLIM_INFINITY and limit < least << 20:
        raise ConfigError(
            f"this process may use {limit >> 20:,} MB of address space; heedful {verb} needs {least:,} MB or more; "
            f"raise the limit (`ulimit -v`)."
        )


def _about_limit(error: ImportError | RuntimeError) -> str | None:
    """A message if the error comes from a limit of the device or the system."""
    if type(error).__name__ == "OutOfMemoryError":
        advice = "use a smaller decoding.tokens_per_batch, training.tokens_per_microbatch or model, or --device cpu"
        return f"the device has not enough memory; {advice}."
    if isinstance(error, ImportError):
        if MAPPING_FAILED.search(str(error)):
            return f"there is not enough memory to load {error.name or 'a library'}; {MORE_MEMORY}."
    elif NO_THREAD.search(str(error)):
        return f"the system refuses to start another thread or process; {MORE_THREADS}, or {MORE_MEMORY}."
    return None


def _about_file(error: OSError) -> str:
    named = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, (str, bytes))]
    where = f"{' → '.join(named)}: " if named else ""
    notes = " ".join(getattr(error, "__notes__", []))
    remedy = remedy_for(error, "")
    reason = f"{error.strerror or error}; {remedy}" if remedy else f"{error.strerror or error}"
    return f"{where}{reason}. {notes}".rstrip()


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
