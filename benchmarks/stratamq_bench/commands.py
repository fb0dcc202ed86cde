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

OutputOption = Annotated[
    Output, typer.Option("--output", help="Print a table, or one JSON object.")
]
DirectoryOption = Annotated[
    Path | None,
    typer.Option("--dir", help="Create stores in this directory.", show_default="temporary"),
]
BodyOption = Annotated[int, typer.Option("--body", min=1, help="Set the size of a body, in bytes.")]
RoundsOption = Annotated[
    int, typer.Option("--rounds", min=1, help="Run this many rounds, each next to its floor.")
]
SecondsOption = Annotated[
    float,
    typer.Option(
        "--seconds",
        min=0.1,
        help="Measure each case for this many seconds, over all rounds; below 30 the stores are "
        "smaller as well, and the page cache is not filled first.",
    ),
]
CaseOption = Annotated[
    list[str] | None, typer.Option("--case", help="Run only the case of this name; repeatable.")
]
ResultsOption = Annotated[
    Path | None,
    typer.Option("--results", help="Also write the JSON object to this file, after each case."),
]

QUESTIONS = {
    "engine": "Compare the CPU time of the commit log's engine with that of a bare append.",
    "append": "Measure appends to the log alone: streams with either flush, and single calls.",
    "follow": "Measure appends while queues and index are built, followed by readers, and rebuilt.",
    "queues": "Measure appends to a thousand topics with ten thousand queues.",
    "pull": "Measure a streaming pull of sixteen interleaved queues.",
    "latency": "Measure the latency of a message to the log and to its consumer.",
    "recover": "Compare recovery with a bare loop over the log's frames.",
    "replicate": "Measure a slave that catches up, that producers wait for, and that lags.",
    "idle": "Measure an idle broker, and how fast it starts.",
    "delivery": "Measure shared groups, transactions and delayed messages.",
}
SCAN = "Compare reading the log as an Arrow table with copying its bytes to Arrow arrays."
SPARK = "Compare reading the log as a Spark table with passing the same Arrow batches to Spark."
FRONTS = {
    "remoting": "Compare the gateway with RocketMQ itself, both under its own Java client; needs "
    "Maven.",
    "kafka": "Compare durable bulk sends and a consumer with Kafka and RocketMQ; needs Maven.",
    "gateway": "Compare calls of RocketMQ 5's gRPC protocol with RocketMQ's proxy; needs Maven and "
    "h2load.",
}


def register(app: typer.Typer) -> None:
    """Called by the command line through the entry-point group `stratamq.commands`."""
    bench = typer.Typer(
        name="bench",
        help="Compare speeds with their floors: the unavoidable work, measured at the same time.",
        no_args_is_help=True,
    )
    for group, question in QUESTIONS.items():
        bench.command(group, help=question)(_command((group,)))
    others = (
        delete,
        tier,
        standing_tier,
        failover,
        security,
        hostile,
        shards,
        console,
    )
    for command in others:
        bench.command(command.__name__.replace("_", "-"))(command)
    bench.command("scan", help=SCAN)(_of_messages("scan", 200_000))
    bench.command("spark", help=SPARK)(_of_messages("spark", 400_000))
    for front, question in FRONTS.items():
        bench.command(front, help=question)(_of_cases(front))
    everything = (
        "Run all except console, delete, failover, gateway, hostile, kafka, remoting, scan, "
        "security, shards, spark, tier, and compare them with their limits. Takes 45 minutes."
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
        float,
        typer.Option("--seconds", min=0.1, help="Measure this many seconds before each deletion."),
    ] = 15.0,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Delete this many times.")] = 3,
    body: BodyOption = 1024,
    rate: Annotated[
        float, typer.Option(min=1, help="Send this many messages per second.")
    ] = 1000.0,
    deleted_mib: Annotated[
        int, typer.Option(min=1, help="Delete this many MiB in each round.")
    ] = 4096,
    segment_mib: Annotated[
        int, typer.Option(min=1, help="Set the size of a segment, in MiB.")
    ] = 1024,
    followers: Annotated[
        bool, typer.Option("--followers/--alone", help="Run dispatcher and index as well.")
    ] = True,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure append latency while old segments are deleted, and without deletion."""
    sizes = deleted_mib << 20, segment_mib << 20
    _measure("delete", directory, output, seconds, rounds, body, rate, *sizes, followers)


def tier(
    target: Annotated[
        str,
        typer.Option(help="Use s3://BUCKET/PREFIX, gs://…, az://…; the default is a directory."),
    ] = "",
    endpoint: Annotated[str, typer.Option(help="Use this server instead of the provider's.")] = "",
    rounds: RoundsOption = 3,
    body: BodyOption = 1024,
    messages: Annotated[int, typer.Option(min=1000, help="Store this many messages.")] = 300_000,
    queues: Annotated[
        int, typer.Option(min=1, help="Use this many queues in the case with many.")
    ] = 1_000,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare uploads and cold reads with the storage alone, and count requests."""
    where = target.rstrip("/"), endpoint
    _measure("tier", directory, output, *where, rounds, body, messages, queues)


def standing_tier(
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, help="Suspend the tier for this many seconds.")
    ] = 600.0,
    body: BodyOption = 1024,
    rate: Annotated[
        float, typer.Option(min=1, help="Send this many messages per second.")
    ] = 1000.0,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure the latency of appends and local pulls before and while the tier hangs."""
    _measure("tier_standing", directory, output, seconds, body, rate)


def failover(
    rounds: Annotated[
        int, typer.Option(min=1, help="Run this many switchovers, then as many kills of masters.")
    ] = 20,
    ttl_s: Annotated[
        float, typer.Option("--ttl", min=1, help="Set agent.ttl_ms, in seconds.")
    ] = 30.0,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure how long no master answers after a kill, and during a switchover; needs etcd."""
    ttl_ms = round(ttl_s * 1000)
    _measure("failover", directory, output, rounds, ttl_ms, ttl_ms // 3)


def security(
    rounds: Annotated[int, typer.Option(min=1, help="Measure each broker this many times.")] = 5,
    messages: Annotated[
        int, typer.Option(min=100, help="Send this many messages on a stream each time.")
    ] = 100_000,
    body: BodyOption = 1024,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare a broker with TLS and permissions with one without."""
    _measure("security", directory, output, rounds, messages, messages // 50, body)


def hostile(
    seconds: Annotated[
        float, typer.Option(min=0.5, help="Run each attack for this many seconds.")
    ] = 5.0,
    rounds: RoundsOption = 4,
    rate: Annotated[
        float, typer.Option(min=1, help="Send this many appends per second meanwhile.")
    ] = 200.0,
    attack: Annotated[
        list[str] | None, typer.Option(help="Run only this attack; repeatable.")
    ] = None,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure a client's latency with and without attackers that have no permission."""
    from stratamq_bench.attacks import ATTACKS

    attacks = tuple(attack or ATTACKS)
    if unknown := set(attacks) - set(ATTACKS):
        raise typer.BadParameter(f"{', '.join(unknown)}: there are {', '.join(ATTACKS)}")
    _measure("hostile", directory, output, attacks, seconds, rounds, rate)


def shards(
    count: Annotated[
        int, typer.Option("--shards", min=2, max=1_000, help="Simulate this many.")
    ] = 100,
    topics: Annotated[
        int, typer.Option(min=1, help="Create this many topics at each shard.")
    ] = 100,
    queues: Annotated[
        int, typer.Option(min=1, help="Create this many queues of each topic at each shard.")
    ] = 8,
    messages: Annotated[
        int, typer.Option(min=1, help="Send this many messages one by one.")
    ] = 2_000,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure what very many shards cost a client; one process simulates their brokers."""
    _measure("shards", None, output, count, topics, queues, messages)


def console(
    topics: Annotated[int, typer.Option(min=30, help="Create this many topics.")] = 100_000,
    messages: Annotated[
        int, typer.Option(min=10_000, help="Store this many messages.")
    ] = 10_000_000,
    requests: Annotated[int, typer.Option(min=1, help="Ask for each page this many times.")] = 100,
    seconds: Annotated[
        float,
        typer.Option("--seconds", min=1, help="Append for this long with open pages, and without."),
    ] = 60.0,
    pages: Annotated[int, typer.Option(min=1, help="Keep this many pages open.")] = 10,
    directory: DirectoryOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure the console's pages over a large store, and what open ones cost its broker."""
    _measure("console", directory, output, topics, messages, requests, seconds, pages)


def _of_messages(module: str, most: int) -> Callable[..., None]:
    def command(
        rounds: RoundsOption = 3,
        body: BodyOption = 1024,
        messages: Annotated[int, typer.Option(min=16, help="Store this many messages.")] = most,
        directory: DirectoryOption = None,
        output: OutputOption = Output.TABLE,
    ) -> None:
        _measure(module, directory, output, rounds, body, messages)

    return command


def _of_cases(module: str) -> Callable[..., None]:
    def command(
        seconds: Annotated[
            float,
            typer.Option("--seconds", min=1, help="Measure each round for this many seconds."),
        ] = 10.0,
        rounds: RoundsOption = 2,
        body: BodyOption = 1024,
        case: CaseOption = None,
        directory: DirectoryOption = None,
        output: OutputOption = Output.TABLE,
    ) -> None:
        works = import_module(f"stratamq_bench.{module}").WORKS
        cases = tuple(case or works)
        if unknown := set(cases) - set(works):
            raise typer.BadParameter(f"{', '.join(unknown)}: there are {', '.join(works)}")
        _measure(module, directory, output, seconds, rounds, body, cases)

    return command


def draw(
    results: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="JSON file of a run.")
    ],
    page: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, help="Update the tables of this page.")
    ] = Path("docs/performance.md"),
    picture: Annotated[Path, typer.Option(help="Write the picture to this SVG file.")] = Path(
        "docs/performance.svg"
    ),
) -> None:
    """Draw the results of a run and update the page's tables. Needs the `bench` extra."""
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
