"""Messages, warnings and progress bars on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rich.console
    from rich.progress import Progress

STAGE_COLUMNS = ("{task.description}", "bar", "count", "remaining")


class Console:
    """Writes to stderr only: progress bars on a terminal, plain lines elsewhere."""

    def __init__(self, *, quiet: bool = False) -> None:
        from rich.console import Console as RichConsole

        self.rich: rich.console.Console = RichConsole(stderr=True, quiet=quiet, highlight=False)

    def note(self, message: str) -> None:
        """Print a message on a separate line."""
        self.rich.print(message, markup=False, soft_wrap=True)

    def warn(self, message: str) -> None:
        """Print a warning in red."""
        self.rich.print(f"Warning: {message}", style="bold red", markup=False, soft_wrap=True)

    @property
    def is_terminal(self) -> bool:
        """Whether stderr is a terminal; elsewhere there are no progress bars."""
        return self.rich.is_terminal

    def show(self, table: Any) -> None:
        """Print anything that rich can render."""
        self.rich.print(table)

    @contextmanager
    def stages(self) -> Iterator[Callable[[str, int, int | None], None]]:
        """A progress bar for each stage: call with the stage, the items done since the last call, and the total."""
        tasks: dict[str, Any] = {}
        with self.progress(*STAGE_COLUMNS) as progress:

            def advance(stage: str, num_done: int, total: int | None) -> None:
                if stage not in tasks:
                    tasks[stage] = progress.add_task(stage, total=total)
                    if not self.is_terminal:
                        self.note(f"{stage} …")
                progress.update(tasks[stage], advance=num_done)

            yield advance

    @contextmanager
    def progress_bar(self, description: str, total: int) -> Iterator[Callable[[int], None]]:
        """A progress bar, on a terminal only: call with the number of items done since the last call."""
        with self.progress(*STAGE_COLUMNS) as progress:
            task = progress.add_task(description, total=total)
            yield lambda num_done: progress.advance(task, num_done)

    def progress(self, *columns: str, **options: Any) -> Progress:
        """A transient progress display, on a terminal only.

        A column is "bar", "count", "spinner", "elapsed" or "remaining", or a template such as "{task.description}".
        """
        from rich import progress

        kinds: dict[str, Callable[[], progress.ProgressColumn]] = {
            "bar": progress.BarColumn,
            "count": progress.MofNCompleteColumn,
            "spinner": progress.SpinnerColumn,
            "elapsed": progress.TimeElapsedColumn,
            "remaining": progress.TimeRemainingColumn,
        }
        made = [kinds[column]() if column in kinds else progress.TextColumn(column) for column in columns]
        return progress.Progress(*made, console=self.rich, transient=True, disable=not self.is_terminal, **options)


def clock(seconds: float) -> str:
    """Seconds as 1:02:03 or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
