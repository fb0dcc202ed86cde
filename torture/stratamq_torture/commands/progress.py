"""Progress of a trial on standard error, if that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counting(total: int | None, unit: str) -> Iterator[Callable[[int, int], None] | None]:
    """Gives what a trial is to call with how many are done and how many of them failed, or None
    when standard error is no terminal. `total` None: not known."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def show(done: int, failed: int) -> None:
            bar.update(task, completed=done, description=f"{failed} failed" if failed else "")

        yield show
