"""`stratamq pipeline rebuild`: consume queues and index files from the log alone."""

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


def rebuild(
    log: LogArgument,
    out: Annotated[
        str,
        typer.Argument(
            help="a directory that is not there yet; the driver and all workers share it"
        ),
    ],
    queue_file_bytes: QueueFileBytesOption = None,
    index_slots: IndexSlotsOption = None,
    index_items: IndexItemsOption = None,
    delay_levels: DelayLevelsOption = None,
    dry_run: DryRunOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Rebuild the consume queues and index files of a log in a fresh directory.

    OUT gets consumequeue/ and index/, byte for byte what the services make of the same log; it
    appears only when it is complete. Run an interrupted rebuild again with the same arguments to
    continue it (OUT.partial holds what is done). Damage in the log ends the job and is reported
    with its place: see `stratamq pipeline audit`. To use the result, stop the store, move its
    consumequeue/ and index/ away, and put these in their place.
    """
    spark = spark_options(master, conf)
    from stratamq.formats.delay import parse_delay_levels
    from stratamq_pipeline.jobs.dispatched import Reading
    from stratamq_pipeline.jobs.geometry import GeometryOptions
    from stratamq_pipeline.rebuild.job import RebuildOptions, run_rebuild

    options = RebuildOptions(
        log,
        out,
        GeometryOptions(queue_file_bytes, index_slots, index_items),
        Reading(parse_delay_levels(delay_levels)) if delay_levels else Reading(),
        dry_run=dry_run,
    )
    with reporting(output) as progress:
        summary = run_rebuild(options, spark, progress)
    finish(summary, output)
