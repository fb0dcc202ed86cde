"""`stratamq pipeline stats`: what a log's messages look like."""

from typing import Annotated

import typer

from stratamq_pipeline.commands.running import (
    ConfOption,
    DryRunOption,
    MasterOption,
    Output,
    OutputOption,
    ReadableArgument,
    ReadBrokerOption,
    finish,
    need,
    reporting,
    spark_options,
)


def stats(
    log: ReadableArgument,
    html: Annotated[
        str | None, typer.Option("--html", help="write a page with charts: one file")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="only this topic, as often as needed")
    ] = None,
    most: Annotated[
        int, typer.Option(min=1, max=1000, help="so many tags, keys and producers are listed")
    ] = 20,
    broker: ReadBrokerOption = None,
    dry_run: DryRunOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Rates, sizes, keys, tags, producers and gaps of a log, by topic and time.

    The table has a row for each topic; the page shows messages and bytes over time, sizes, the most
    frequent tags and producers, keys that stand in several messages, the longest silence of each
    topic, and where queue offsets leave some out.
    """
    spark = spark_options(master, conf)
    if html is not None:
        need("matplotlib")
    from stratamq_pipeline.stats.job import StatsOptions, run_stats

    options = StatsOptions(log, html, tuple(topic or ()), most, dry_run=dry_run, broker=broker)
    with reporting(output) as progress:
        summary = run_stats(options, spark, progress)
    finish(summary, output)
