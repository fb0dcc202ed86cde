"""`stratamq bench`: each command one question, its floor measured in the same minutes.

What measures is imported when it is called: every other command of `stratamq` imports this module.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratamq.cli.dump_output import Output
from stratamq.cli.options import BUILDERS
from stratamq.errors import StrataError

if TYPE_CHECKING:
    from stratamq_bench.report import Case, Failure

OutputOption = Annotated[Output, typer.Option("--output", help="A table, or one JSON object.")]
DirectoryOption = Annotated[
    Path | None,
    typer.Option("--dir", help="Where the stores lie while it runs.", show_default="temporary"),
]
BodyOption = Annotated[int, typer.Option("--body", min=1, help="Bytes of a body.")]
RoundsOption = Annotated[int, typer.Option("--rounds", min=1, help="Each beside its floor.")]
SecondsOption = Annotated[
    float,
    typer.Option(
        "--seconds",
        min=0.1,
        help="Measured time of a case, its rounds together; below 30 the stores are smaller too, "
        "and the page cache is not filled first.",
    ),
]
CaseOption = Annotated[
    list[str] | None, typer.Option("--case", help="Only the case of this name; repeatable.")
]
ResultsOption = Annotated[
    Path | None,
    typer.Option("--results", help="Write the JSON object to this file as well, after each case."),
]

QUESTIONS = {
    "engine": "The commit log's engine alone: CPU beside that of a bare append.",
    "append": "Appends to the log alone: the fast stream, async and sync flush, and single calls.",
    "follow": "Appends with queues and index built behind them, read along, and rebuilt.",
    "queues": "A thousand topics, ten thousand queues.",
    "pull": "One client reads sixteen interleaved queues by a streaming pull.",
    "latency": "How long one message takes: into the log, and to its consumer.",
    "recover": "Recovery's walk of the log beside a bare loop over its frames.",
    "replicate": "A slave: catching up, being waited for, lagging.",
    "idle": "A whole broker that has nothing to do, and how fast it starts.",
}


def register(app: typer.Typer) -> None:
    """Called by the command line through the entry-point group `stratamq.commands`."""
    bench = typer.Typer(
        name="bench",
        help="Speed beside the floor: the unavoidable work, measured in the same minutes.",
        no_args_is_help=True,
    )
    for group, question in QUESTIONS.items():
        bench.command(group, help=question)(_command((group,)))
    others = (delete, scan, spark, tier, standing_tier, failover, security, hostile, shards)
    for command in others:
        bench.command(command.__name__.replace("_", "-"))(command)
    everything = (
        "All but delete, failover, hostile, scan, security, shards, Spark and the tier, with the "
        "bars they are held to: 40 minutes."
    )
    bench.command("all", help=everything)(_command(()))
    bench.command("draw")(draw)
    app.add_typer(bench, rich_help_panel=BUILDERS)


def _command(groups: tuple[str, ...]) -> Callable[..., None]:
    def command(
        seconds: SecondsOption = 30.0,
        rounds: RoundsOption = 2,
        body: BodyOption = 1024,
        case: CaseOption = None,
        directory: DirectoryOption = None,
        output: OutputOption = Output.TABLE,
        results: ResultsOption = None,
    ) -> None:
        from stratamq_bench.catalogue import chosen, run_all
        from stratamq_bench.page_cache import filling
        from stratamq_bench.plan import FULL_SECONDS, Plan

        try:
            entries = chosen(groups, case or ())
        except KeyError as unknown:
            raise typer.BadParameter(f"there is no case {unknown}", param_hint="--case") from None
        plan = Plan(seconds, rounds, body)
        with ExitStack() as stack:
            if plan.seconds >= FULL_SECONDS:
                cache = stack.enter_context(filling(directory))
                plan = replace(plan, make_ready=cache.fill)
            cases, failures = run_all(entries, plan, lambda: _place(directory), results)
        _show(cases, output, failures)
        if failures:
            raise typer.Exit(1)

    return command


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
    sizes = deleted_mib << 20, segment_mib << 20
    _measure("delete", directory, output, seconds, rounds, body, rate, *sizes, followers)


def scan(
    rounds: RoundsOption = 3,
    body: BodyOption = 1024,
    messages: Annotated[int, typer.Option(min=16, help="How many are stored.")] = 200_000,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """The log as an Arrow table, beside copying its bytes into Arrow arrays."""
    _measure("scan", directory, output, rounds, body, messages)


def spark(
    rounds: RoundsOption = 3,
    body: BodyOption = 1024,
    messages: Annotated[int, typer.Option(min=16, help="How many are stored.")] = 400_000,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """The log as a Spark table, beside the same Arrow batches that are only handed over."""
    _measure("spark", directory, output, rounds, body, messages)


def tier(
    target: Annotated[
        str, typer.Option(help="s3://BUCKET/PREFIX, gs://, az://; empty: a directory")
    ] = "",
    endpoint: Annotated[str, typer.Option(help="of a server that is not the provider's")] = "",
    rounds: RoundsOption = 3,
    body: BodyOption = 1024,
    messages: Annotated[int, typer.Option(min=1000, help="How many are stored.")] = 300_000,
    queues: Annotated[int, typer.Option(min=1, help="Of the case with many.")] = 1_000,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Uploading and cold reading beside the storage alone, and how much is asked of it."""
    where = target.rstrip("/"), endpoint
    _measure("tier", directory, output, *where, rounds, body, messages, queues)


def standing_tier(
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, help="So long the tier stands still.")
    ] = 600.0,
    body: BodyOption = 1024,
    rate: Annotated[float, typer.Option(min=1, help="Messages sent per second.")] = 1000.0,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """What appends and local pulls wait while the tier stands still, beside their wait before."""
    _measure("tier_standing", directory, output, seconds, body, rate)


def failover(
    rounds: Annotated[int, typer.Option(min=1, help="Switchovers, then killed masters.")] = 20,
    ttl_s: Annotated[float, typer.Option("--ttl", min=1, help="agent.ttl_ms, in seconds.")] = 30.0,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure how long no master answers after a kill, and during a switchover; needs etcd."""
    ttl_ms = round(ttl_s * 1000)
    _measure("failover", directory, output, rounds, ttl_ms, ttl_ms // 3)


def security(
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each broker.")] = 5,
    messages: Annotated[int, typer.Option(min=100, help="Of one turn of the stream.")] = 100_000,
    body: BodyOption = 1024,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """What TLS and permissions cost, beside the same in clear."""
    _measure("security", directory, output, rounds, messages, messages // 50, body)


def hostile(
    seconds: Annotated[float, typer.Option(min=0.5, help="Of each attack in a turn.")] = 5.0,
    rounds: RoundsOption = 4,
    rate: Annotated[float, typer.Option(min=1, help="Appends a second beside it.")] = 200.0,
    attack: Annotated[list[str] | None, typer.Option(help="This one; may be repeated.")] = None,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """What a client waits beside attackers without permission, beside what it waits in quiet."""
    from stratamq_bench.attacks import ATTACKS

    attacks = tuple(attack or ATTACKS)
    if unknown := set(attacks) - set(ATTACKS):
        raise typer.BadParameter(f"{', '.join(unknown)}: there are {', '.join(ATTACKS)}")
    _measure("hostile", directory, output, attacks, seconds, rounds, rate)


def shards(
    count: Annotated[int, typer.Option("--shards", min=2, max=1_000)] = 100,
    topics: Annotated[int, typer.Option(min=1, help="Of each shard.")] = 100,
    queues: Annotated[int, typer.Option(min=1, help="Of each topic at each shard.")] = 8,
    messages: Annotated[int, typer.Option(min=1, help="Sent one by one.")] = 2_000,
    output: OutputOption = Output.TABLE,
) -> None:
    """What very many shards cost a client; the brokers only answer, in one process."""
    _measure("shards", None, output, count, topics, queues, messages)


def draw(
    results: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="The JSON of a run.")
    ],
    page: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, help="The page whose tables it gives.")
    ] = Path("docs/performance.md"),
    picture: Annotated[Path, typer.Option(help="The SVG to write.")] = Path("docs/performance.svg"),
) -> None:
    """Draw a run, and put its tables into the page. Needs the `bench` extra."""
    import json
    import os

    from stratamq_bench.page import fill

    try:
        from stratamq_bench.picture import draw as draw_picture
    except ModuleNotFoundError as missing:
        raise StrataError("pip install 'stratamq[bench]': it has Matplotlib") from missing
    document = json.loads(results.read_text())
    draw_picture(document, picture)
    here = page.parent
    source, shown = os.path.relpath(results, here), os.path.relpath(picture, here)
    page.write_text(fill(page.read_text(), document, source, shown))


def _measure(module: str, directory: Path | None, output: Output, *options: object) -> None:
    """Each of these modules has `Options`, and `measure(place, options)`, which gives its cases.

    Everything that is written is below a fresh directory.
    """
    work = import_module(f"stratamq_bench.{module}")
    with _place(directory) as place:
        _show(work.measure(place, work.Options(*options)), output)


@contextmanager
def _place(directory: Path | None) -> Iterator[Path]:
    """A fresh directory, removed at the end."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stratamq-bench-", dir=directory) as place:
        yield Path(place)


def _show(cases: "Sequence[Case]", output: Output, failures: "Sequence[Failure]" = ()) -> None:
    from rich.console import Console

    from stratamq_bench.report import as_json, print_table

    if output is Output.JSON:
        sys.stdout.write(as_json(cases, failures) + "\n")
    else:
        print_table(cases, Console(width=None if sys.stdout.isatty() else 180), failures)
