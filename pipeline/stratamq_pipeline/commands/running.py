"""What every job's command shares: its options, its progress, and how it ends."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from stratamq.errors import ConfigurationError

if TYPE_CHECKING:
    from stratamq_pipeline.jobs.session import SparkOptions
    from stratamq_pipeline.jobs.summary import Summary

NEEDED = ("pyarrow", "pyspark", "pandas")


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="a table, or one JSON object as the last line")
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        help="Spark's master: local[N], spark://HOST:PORT, yarn, k8s://…; otherwise what "
        "spark-submit sets, or local[*]",
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", help="KEY=VALUE, a setting of Spark's, as often as needed"),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="show what would be done, and do nothing")
]
LogArgument = Annotated[str, typer.Argument(help="a store's directory, ours or RocketMQ's")]
ReadableArgument = Annotated[
    str,
    typer.Argument(
        help="a store's directory, ours or RocketMQ's; or a running broker: HOST:PORT of any of "
        "its services, several of them, or of a name for them"
    ),
]
ReadBrokerOption = Annotated[
    str | None,
    typer.Option(
        "--broker",
        help="the broker of this name, where brokers of several names are at the address",
    ),
]
ClusterOption = Annotated[
    str | None, typer.Option(help="whose tier; not needed where there is one")
]
BrokerOption = Annotated[str | None, typer.Option(help="whose tier; not needed where there is one")]
QueueFileBytesOption = Annotated[
    int | None,
    typer.Option(
        min=20, help="size of a queue file; otherwise that of the files there, or 6 000 000"
    ),
]
IndexSlotsOption = Annotated[
    int | None,
    typer.Option(min=1, help="slots of an index file; otherwise as recorded, or 5 000 000"),
]
IndexItemsOption = Annotated[
    int | None,
    typer.Option(min=2, help="items of an index file; otherwise as recorded, or 20 000 000"),
]
DelayLevelsOption = Annotated[
    str | None,
    typer.Option(help="the delays of levels 1, 2, … as the log's service has them: '1s 5s 10s'"),
]


def spark_options(master: str | None, conf: list[str] | None) -> "SparkOptions":
    """ConfigurationError with what to install when Spark is not there."""
    need(*NEEDED)
    from stratamq_pipeline.jobs.session import SparkOptions, parse_settings

    return SparkOptions(master, parse_settings(conf or []), progress=sys.stderr.isatty())


def need(*modules: str) -> None:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            [
                f"{', '.join(missing)} not installed: pip install 'stratamq[pipeline]'",
                "Spark needs Java 17 or later, too",
            ]
        )


@contextmanager
def reporting(output: Output) -> Iterator[Callable[[str], None]]:
    """Each step as a line on standard error, with the time since the start."""
    from rich.console import Console

    from stratamq.files.clock import SystemClock

    console = Console(stderr=True)
    clock = SystemClock()
    start = clock.monotonic_ns()

    def progress(what: str) -> None:
        if console.is_terminal or output is Output.TABLE:
            seconds = (clock.monotonic_ns() - start) / 1e9
            console.print(f"{seconds:7.1f} s  {what}", markup=False, highlight=False)

    yield progress


def finish(summary: "Summary", output: Output) -> None:
    """Show what was done; exit code 1 when the job requires it."""
    from rich.console import Console

    from stratamq_pipeline.jobs.summary import as_json, print_table

    if output is Output.JSON:
        sys.stdout.write(as_json(summary) + "\n")
    else:
        print_table(summary, Console(width=None if sys.stdout.isatty() else 160))
    if summary.failed:
        raise typer.Exit(1)
