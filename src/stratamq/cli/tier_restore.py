"""`stratamq tier restore`: a store directory from what a bucket has."""

import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratamq.cli.tier_options import (
    BrokerNameOption,
    ClusterOption,
    TargetArgument,
    require_free,
    require_there,
)
from stratamq.errors import StoreRefusedError
from stratamq.files.real import RealFiles
from stratamq.service.file_modes import use_file_modes

if TYPE_CHECKING:
    from stratamq.tier.restoring.restoring import Restored

MAX_SEGMENT_BYTES = 1 << 40


def restore(
    target: TargetArgument,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory to create; empty or missing.")
    ],
    cluster: ClusterOption = "DefaultCluster",
    broker: BrokerNameOption = "broker-a",
    segment_bytes: Annotated[
        int,
        typer.Option(
            min=128,
            max=MAX_SEGMENT_BYTES,
            help="Segment size of the new log (commitlog.segment_bytes).",
        ),
    ] = 1 << 30,
) -> None:
    """Make a broker's store from its tier alone, for `stratamq up --data DIR`.

    Queue offsets, times, keys and consumer groups' offsets are as they were; places in the log and
    what is made of them (message ids) are new. Messages that never came into the tier are lost. The
    broker that wrote the tier must have ended: it can write there no more. Interrupted, the same
    command begins again.
    """
    from stratamq.tier.containers.place import broker_folder
    from stratamq.tier.driver.opening import open_storage
    from stratamq.tier.driver.storage import run
    from stratamq.tier.restoring.restoring import Restore

    require_there(target)
    require_free(directory, target)
    use_file_modes()
    work = Restore(
        cluster,
        broker,
        RealFiles(directory),
        os.getpid(),
        random.SystemRandom(),
        _show,
        segment_bytes,
    )
    with open_storage(target, for_writing=broker_folder(cluster, broker)) as storage:
        try:
            restored = run(work.run(storage.positions), storage)
        except OSError as error:
            raise StoreRefusedError(
                f"{error.filename or directory}: {error.strerror}: the store is incomplete. Free "
                "space, or name another directory, and run the same command again; it starts over"
            ) from error
    _show(restored)
    for one in restored.left_out:
        print(
            f"warning: queue {one.place.queue_id} of {one.place.topic} begins at offset "
            f"{one.before}: {one.messages} messages before a hole in the tier are not in the log, "
            "and are read from the tier alone",
            file=sys.stderr,
        )
    for sentence in restored.lost:
        print(f"warning: not restored: {sentence}", file=sys.stderr)
    note = " (an interrupted restore was started again)" if restored.resumed else ""
    print(
        f"restored {restored.messages} messages of {restored.queues} queues, offsets of "
        f"{restored.groups} consumer groups{note}: stratamq up --data {directory}",
        file=sys.stderr,
    )


def _show(restored: "Restored") -> None:
    print(
        f"{restored.messages} of {restored.of_messages} messages, {restored.end} bytes of log",
        file=sys.stderr,
    )
