"""`stratamq pipeline verify-tier`: everything in a tier against its manifests, and the log."""

from typing import Annotated

import typer

from stratamq_pipeline.commands.running import (
    BrokerOption,
    ClusterOption,
    ConfOption,
    DryRunOption,
    MasterOption,
    Output,
    OutputOption,
    finish,
    reporting,
    spark_options,
)


def verify_tier(
    tier: Annotated[str, typer.Argument(help="a directory, or s3://BUCKET/PREFIX, gs://…, az://…")],
    log: Annotated[
        str | None,
        typer.Option(help="a store's directory: its messages are compared with the tier's"),
    ] = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="a directory, not there yet, that gets all faults as Parquet; the driver and all "
            "workers share it, or it is given with its file system, as hdfs://HOST/PATH"
        ),
    ] = None,
    dry_run: DryRunOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read every record, unit and index item of a broker's tier, and hold them against each other.

    The rules are those of `stratamq tier verify`. With --log each message that log and tier both
    should have is compared by its content; what the tier has not come to yet is counted as waiting.
    A fault is a row: queue, queue offset, kind, consequence. Nothing is changed. Exit code 1 when
    there is a fault.
    """
    spark = spark_options(master, conf)
    from stratamq_pipeline.verify_tier.job import VerifyTierOptions, run_verify_tier

    options = VerifyTierOptions(tier, cluster, broker, log, out, dry_run=dry_run)
    with reporting(output) as progress:
        summary = run_verify_tier(options, spark, progress)
    finish(summary, output)
