"""`stratamq pipeline offload`: the messages of a log into a tier."""

from typing import Annotated

import typer

from stratamq_pipeline.commands.running import (
    ConfOption,
    DryRunOption,
    LogArgument,
    MasterOption,
    Output,
    OutputOption,
    finish,
    reporting,
    spark_options,
)


def offload(
    log: LogArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TIER",
            help="a directory that the driver and all workers share, or s3://BUCKET/PREFIX, gs://, "
            "az://",
        ),
    ],
    cluster: Annotated[str, typer.Option(help="brokerClusterName")] = "DefaultCluster",
    broker: Annotated[str, typer.Option(help="brokerName")] = "broker-a",
    topic: Annotated[
        list[str] | None, typer.Option(help="only this topic, as often as needed")
    ] = None,
    export: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="of a directory: RocketMQ's metadata for the tier, below this store directory",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Copy what the log of a store has into a tier, a task for each queue.

    The same as `stratamq tier backfill`, which reads the log in one process. What the tier has
    already is left out: a job that was broken off is begun again and adds what is missing. Refused
    where a tier service has claimed the tier. Nothing of the store is changed.
    """
    spark = spark_options(master, conf)
    from stratamq_pipeline.offload.job import OffloadOptions, run_offload

    options = OffloadOptions(log, to, cluster, broker, tuple(topic or ()), export, dry_run=dry_run)
    with reporting(output) as progress:
        summary = run_offload(options, spark, progress)
    finish(summary, output)
