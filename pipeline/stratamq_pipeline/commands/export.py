"""`stratamq pipeline export`: the messages of a log as Parquet."""

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
    reporting,
    spark_options,
)


def export(
    log: ReadableArgument,
    out: Annotated[
        str,
        typer.Argument(
            help="the export, fresh or that of earlier runs: a directory that the driver and all "
            "workers share, or one with its file system, as hdfs://HOST/PATH"
        ),
    ],
    topic: Annotated[
        list[str] | None, typer.Option(help="only this topic, as often as needed")
    ] = None,
    decompress: Annotated[bool, typer.Option(help="bodies as producers had them")] = False,
    accept_gap: Annotated[
        bool, typer.Option("--accept-gap", help="go on behind what retention took unexported")
    ] = False,
    broker: ReadBrokerOption = None,
    dry_run: DryRunOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write what is new in a log as Parquet files by topic and date of the store time (UTC).

    Each run continues where the one before it ended: OUT/_exports has a manifest for every run,
    with its log offsets, queue offsets and files. A run appears as a whole; one that is killed
    leaves neither a gap nor a duplicate when it is run again. Messages are counted where they are
    read and again in OUT's files; a run whose counts differ is not published. Read OUT with
    anything that reads directories of the kind topic=T/date=D. Topics that look like numbers stay
    words in Spark with spark.sql.sources.partitionColumnTypeInference.enabled=false.
    """
    spark = spark_options(master, conf)
    from stratamq_pipeline.export.job import ExportOptions, run_export

    options = ExportOptions(
        log, out, tuple(topic or ()), decompress, accept_gap, dry_run=dry_run, broker=broker
    )
    with reporting(output) as progress:
        summary = run_export(options, spark, progress)
    finish(summary, output)
