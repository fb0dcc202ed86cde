"""`stratamq bench`: each command one question, its floor measured in the same minutes.

What measures is imported when it is called: every other command of `stratamq` imports this module.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratamq.cli.dump_output import Output

if TYPE_CHECKING:
    from stratamq_bench.report import Case


OutputOption = Annotated[Output, typer.Option("--output", help="A table, or one JSON object.")]
DirectoryOption = Annotated[
    Path | None,
    typer.Option("--dir", help="Where the stores lie while it runs.", show_default="temporary"),
]
BodyOption = Annotated[int, typer.Option("--body", min=1, help="Bytes of a body.")]
RoundsOption = Annotated[int, typer.Option("--rounds", min=1, help="Each beside its floor.")]
SecondsOption = Annotated[
    float, typer.Option("--seconds", min=0.1, help="Measured time of a round.")
]


def register(app: typer.Typer) -> None:
    """Called by the command line through the entry-point group `stratamq.commands`."""
    bench = typer.Typer(
        name="bench",
        help="Speed beside the floor: the work nobody can avoid, measured in the same minutes.",
        no_args_is_help=True,
    )
    bench.command("append")(append)
    bench.command("pull")(pull)
    bench.command("engine")(engine)
    bench.command("delete")(delete)
    bench.command("scan")(scan)
    bench.command("spark")(spark)
    bench.command("all")(everything)
    app.add_typer(bench)


def append(
    seconds: SecondsOption = 10.0,
    rounds: RoundsOption = 3,
    body: BodyOption = 1024,
    batch: Annotated[
        int, typer.Option(min=0, max=4096, help="Messages of a batch; 0: the client's default.")
    ] = 256,
    sync: Annotated[
        bool, typer.Option("--sync/--async", help="Answer from the disk, or the page cache.")
    ] = True,
    followers: Annotated[
        bool, typer.Option("--followers", help="With dispatcher and index running.")
    ] = False,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """One client's fast stream into the commit log, four topics of four queues."""
    from stratamq_bench.append import AppendOptions, run_append

    options = AppendOptions(seconds, rounds, body, batch, sync, followers)
    with _place(directory) as place:
        _show([run_append(place, options)], output)


def pull(
    seconds: SecondsOption = 5.0,
    rounds: RoundsOption = 3,
    body: BodyOption = 1024,
    messages: Annotated[int, typer.Option(min=16, help="How many are stored and read.")] = 500_000,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """One client reads sixteen interleaved queues by a streaming pull."""
    from stratamq_bench.pull import PullOptions, run_pull

    with _place(directory) as place:
        _show([run_pull(place, PullOptions(seconds, rounds, body, messages))], output)


def engine(
    seconds: SecondsOption = 0.7,
    rounds: RoundsOption = 7,
    body: BodyOption = 1024,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """The commit log's engine alone: CPU beside that of a bare append."""
    from stratamq_bench.engine_alone import run_engine

    with _place(directory) as place:
        _show(run_engine(place, body_bytes=body, rounds=rounds, seconds=seconds), output)


def delete(
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, help="Of quiet before each deletion.")
    ] = 15.0,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Deletions.")] = 3,
    body: BodyOption = 1024,
    rate: Annotated[float, typer.Option(min=1, help="Messages sent per second.")] = 1000.0,
    deleted_mib: Annotated[int, typer.Option(min=1, help="MiB deleted in each round.")] = 4096,
    segment_mib: Annotated[int, typer.Option(min=1, help="MiB of a segment.")] = 1024,
    followers: Annotated[
        bool, typer.Option("--followers/--alone", help="With dispatcher and index running.")
    ] = True,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """What an append waits while old segments are deleted, beside its wait in quiet."""
    from stratamq_bench.delete import DeleteOptions, run_delete

    options = DeleteOptions(
        seconds, rounds, body, rate, deleted_mib << 20, segment_mib << 20, followers
    )
    with _place(directory) as place:
        _show([run_delete(place, options)], output)


def scan(
    rounds: RoundsOption = 3,
    body: BodyOption = 1024,
    messages: Annotated[int, typer.Option(min=16, help="How many are stored.")] = 200_000,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """The log as an Arrow table, beside copying its bytes into Arrow arrays."""
    from stratamq_bench.scan import ScanOptions, run_scan

    with _place(directory) as place:
        _show(run_scan(place, ScanOptions(rounds, body, messages)), output)


def spark(
    rounds: RoundsOption = 3,
    body: BodyOption = 1024,
    messages: Annotated[int, typer.Option(min=16, help="How many are stored.")] = 400_000,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """The log as a Spark table, beside the same Arrow batches that are only handed over."""
    from stratamq_bench.spark import SparkOptions, run_spark

    with _place(directory) as place:
        _show(run_spark(place, SparkOptions(rounds, body, messages)), output)


def everything(
    seconds: SecondsOption = 10.0,
    rounds: RoundsOption = 3,
    body: BodyOption = 1024,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """All of these but Spark, with the bars they are held to: some minutes."""
    from stratamq_bench.append import AppendOptions, run_append
    from stratamq_bench.engine_alone import run_engine
    from stratamq_bench.pull import PullOptions, run_pull
    from stratamq_bench.scan import ScanOptions, run_scan

    appends = [
        AppendOptions(seconds, rounds, body),
        AppendOptions(seconds, rounds, body, followers=True),
        AppendOptions(seconds, rounds, body, batch=0),
        AppendOptions(seconds, rounds, body, sync=False),
    ]
    with _place(directory) as place:
        cases = run_engine(place, body_bytes=body, rounds=2 * rounds + 1, seconds=seconds / 14)
    for options in appends:
        with _place(directory) as place:
            cases.append(run_append(place, options))
    with _place(directory) as place:
        cases.append(run_pull(place, PullOptions(seconds, rounds, body)))
    with _place(directory) as place:
        cases += run_scan(place, ScanOptions(rounds, body))
    _show(cases, output)


@contextmanager
def _place(directory: Path | None) -> Iterator[Path]:
    """A fresh directory, removed at the end."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stratamq-bench-", dir=directory) as place:
        yield Path(place)


def _show(cases: "list[Case]", output: Output) -> None:
    from rich.console import Console

    from stratamq_bench.report import as_json, print_table

    if output is Output.JSON:
        sys.stdout.write(as_json(cases) + "\n")
    else:
        print_table(cases, Console(width=None if sys.stdout.isatty() else 160))
