"""Exit codes and error messages.

0: success. 1: a bug, with a traceback. 2: an error that the user can fix, with a message on stderr. 130: Ctrl-C.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from heedful.errors import ConfigError, HeedfulError, OtherRankError, remedy_for
from heedful.extras import explain

INTERRUPTED = 130
MIN_ADDRESS_SPACE = {"translate": 160, "evaluate": 200, "score": 200, "prepare": 600, "train": 1200}
"""Minimum address space per verb in MB; with less, libraries abort or fail while they are loaded."""
MORE_MEMORY = "close other programs, or raise the limit on memory (`ulimit -v`)"
MORE_THREADS = "raise the limit on processes (`ulimit -u`)"
MAPPING_FAILED = re.compile("failed to map|cannot allocate memory|memory allocation", re.IGNORECASE)
NO_THREAD = re.compile("can't start new thread|resource temporarily unavailable", re.IGNORECASE)


CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Text with control characters escaped, so that it cannot send escape sequences to a terminal."""
    return CONTROL_CHARACTERS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def print_error(message: str) -> int:
    """Print an error message to stderr and return its exit code."""
    print(f"heedful: {printable(message)}", file=sys.stderr)
    return 2


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Turn errors of the user or the system into a message and an exit code; other exceptions pass through."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # such as `| head`
        _close_standard_output()
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except OtherRankError:
        raise typer.Exit(2) from None
    except HeedfulError as error:
        if isinstance(error, ConfigError) and os.environ.get("LOCAL_RANK", "0") != "0":
            raise typer.Exit(2) from None  # under torchrun only the first rank reports it
        notes = getattr(error, "__notes__", [])
        raise typer.Exit(print_error(" ".join([str(error), *notes]))) from None
    except ModuleNotFoundError as error:
        missing = explain(error)
        if missing is None:
            raise
        raise typer.Exit(print_error(str(missing))) from None
    except OSError as error:
        _drop_unwritten_output()
        raise typer.Exit(print_error(_describe_os_error(error))) from None
    except MemoryError:
        advice = "close other programs, or use a smaller decoding.tokens_per_batch, batch or model"
        raise typer.Exit(print_error(f"not enough memory; {advice}.")) from None
    except (ImportError, RuntimeError) as error:
        message = _describe_limit(error)
        if message is None:
            raise
        raise typer.Exit(print_error(message)) from None


def refuse_small_address_space(verb: str | None) -> None:
    """Raise `ConfigError` under an address space limit (`ulimit -v`) with which libraries abort the process."""
    try:
        import resource
    except ImportError:  # not on this system
        return
    limit, minimum = resource.getrlimit(resource.RLIMIT_AS)[0], MIN_ADDRESS_SPACE.get(verb or "", 0)
    if limit != resource.RLIM_INFINITY and limit < minimum << 20:
        raise ConfigError(
            f"this process may use {limit >> 20:,} MB of address space; heedful {verb} needs {minimum:,} MB or more; "
            f"raise the limit (`ulimit -v`)."
        )


def _describe_limit(error: ImportError | RuntimeError) -> str | None:
    """A message if the error comes from a resource limit, else None."""
    if type(error).__name__ == "OutOfMemoryError":
        advice = "use a smaller decoding.tokens_per_batch, training.tokens_per_microbatch or model, or --device cpu"
        return f"not enough memory on the device; {advice}."
    if isinstance(error, ImportError):
        if MAPPING_FAILED.search(str(error)):
            return f"there is not enough memory to load {error.name or 'a library'}; {MORE_MEMORY}."
    elif NO_THREAD.search(str(error)):
        return f"the system refuses to start another thread or process; {MORE_THREADS}, or {MORE_MEMORY}."
    return None


def _describe_os_error(error: OSError) -> str:
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, (str, bytes))]
    prefix = f"{' → '.join(names)}: " if names else ""
    notes = " ".join(getattr(error, "__notes__", []))
    remedy = remedy_for(error, "")
    reason = f"{error.strerror or error}; {remedy}" if remedy else f"{error.strerror or error}"
    return f"{prefix}{reason}. {notes}".rstrip()


def _drop_unwritten_output() -> None:
    """Drop buffered output that cannot be written, so that Python does not report it again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        _close_standard_output()


def _close_standard_output() -> None:
    """Redirect stdout to the null device, so that flushing it at exit does not fail."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass  # stdout has no file descriptor, as in tests
