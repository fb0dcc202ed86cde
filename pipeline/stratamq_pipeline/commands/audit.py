"""`stratamq pipeline audit`: everything in a store against everything else."""

from typing import Annotated

import typer

from stratamq_pipeline.commands.running import (
    ConfOption,
    DelayLevelsOption,
    DryRunOption,
    IndexItemsOption,
    IndexSlotsOption,
    LogArgument,
    MasterOption,
    Output,
    OutputOption,
    QueueFileBytesOption,
    finish,
    reporting,
    spark_options,
)


def audit(
    log: LogArgument,
    out: Annotated[
        str | None,
        typer.Option(
            help="a directory, not there yet, that gets all faults as Parquet; the driver and all "
            "workers share it, or it is given with its file system, as hdfs://HOST/PATH"
        ),
    ] = None,
    queue_file_bytes: QueueFileBytesOption = None,
    index_slots: IndexSlotsOption = None,
    index_items: IndexItemsOption = None,
    delay_levels: DelayLevelsOption = None,
    dry_run: DryRunOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Hold every frame, queue unit and index item of a store against each other.

    A fault is a row: file, position, kind, consequence. Damaged stretches of the log, units and
    items that are missing, wrong or too many, broken chains, files that do not belong. Nothing is
    changed. Exit code 1 when there is a fault. What services have not come to yet is not missed.
    """
    spark = spark_options(master, conf)
    from stratamq.formats.delay import parse_delay_levels
    from stratamq_pipeline.audit.job import AuditOptions, run_audit
    from stratamq_pipeline.jobs.dispatched import Reading
    from stratamq_pipeline.jobs.geometry import GeometryOptions

    options = AuditOptions(
        log,
        out,
        GeometryOptions(queue_file_bytes, index_slots, index_items),
        Reading(parse_delay_levels(delay_levels)) if delay_levels else Reading(),
        dry_run=dry_run,
    )
    with reporting(output) as progress:
        summary = run_audit(options, spark, progress)
    finish(summary, output)
