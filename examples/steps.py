"""Output of the demo: numbered steps with their figures, and a spinner or a progress bar on long steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

console = Console(highlight=False)


class Step:
    """A step of the demo: a context manager that prints its title, duration and figures at the end."""

    count = 0

    def __init__(self, title: str) -> None:
        Step.count += 1
        self.title = f"{Step.count}. {title}"
        self._started = time.perf_counter()
        self._spinner = console.status(self.title)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    def found(self, figure: str) -> None:
        """Add a figure, to be printed below the title."""
        self._figures.append(figure)

    def rows(self, count: int) -> int:
        """Add the number of processed rows and the rate as a figure; return `count`."""
        self.found(f"{count:,} records, {count / self.seconds:,.0f} a second")
        return count

    @contextmanager
    def progress(self, total: int) -> Iterator[Callable[[int], None]]:
        """Show a bar instead of the spinner; the block calls the yielded function with each advance."""
        self._spinner.stop()
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(self.title, total=total)
            yield lambda done: bar.advance(task, done)
        self._spinner.start()

    def __enter__(self) -> Step:
        self._figures: list[str] = []
        self._spinner.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spinner.stop()
        if error is not None:
            return
        console.print(f"[bold]{self.title}[/bold]  [dim]{self.seconds:.1f} s[/dim]", soft_wrap=True)
        for figure in self._figures:
            console.print(f"   {figure}", soft_wrap=True)


def must_equal(what: str, actual: object, expected: object) -> str:
    """Return a line for equal values; end the demo if they differ."""
    if actual != expected:
        raise SystemExit(f"{what}: not what the CSV file says\n  here: {actual!s:.500}\n  CSV:  {expected!s:.500}")
    return f"[green]✓[/green] {what}: as the CSV file says"


def say(*lines: str) -> None:
    for line in lines:
        console.print(line, soft_wrap=True)
