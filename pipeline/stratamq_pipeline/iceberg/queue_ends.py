"""How far a table has each queue: by its rows, for what has no place in a log."""

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table

from stratamq.table.selection import Covered, Queue
from stratamq.table.tier_scan import ReadBefore

_COLUMNS = ("topic", "queueId", "queueOffset", "storeTimestamp")
_QUEUE = ["topic", "queueId"]


def queue_ends(table: Table) -> dict[Queue, ReadBefore]:
    """Four columns of the whole table are read, file by file.

    A topic that was deleted and created again has queues with several lives: the one of the newest
    message is gone on with.
    """
    newest: dict[Queue, tuple[int, int]] = {}
    ends: dict[Queue, int] = {}
    for queue, stored_ms, offset, highest in _by_queue(table):
        newest[queue] = max(newest.get(queue, (0, 0)), (stored_ms, offset))
        ends[queue] = max(ends.get(queue, 0), highest + 1)
    return {
        queue: ReadBefore(offset + 1, Covered(0, ends[queue], stored_ms))
        for queue, (stored_ms, offset) in newest.items()
    }


def _by_queue(table: Table) -> Iterator[tuple[Queue, int, int, int]]:
    """Yield store time and offset of the newest message, and the highest offset, by file and queue.

    Messages of one millisecond are in the order of their offsets.
    """
    for rows in _rows(table):
        order = [("storeTimestamp", "ascending"), ("queueOffset", "ascending")]
        groups = rows.sort_by(order).group_by(_QUEUE, use_threads=False)
        last = groups.aggregate(
            [("storeTimestamp", "last"), ("queueOffset", "last"), ("queueOffset", "max")]
        )
        for row in last.to_pylist():
            stored_ms = round(row["storeTimestamp_last"].timestamp() * 1000)
            queue = row["topic"], row["queueId"]
            yield queue, stored_ms, row["queueOffset_last"], row["queueOffset_max"]


def _rows(table: Table) -> Iterator[pa.Table]:
    scan = table.scan(selected_fields=_COLUMNS)
    reader = ArrowScan(table.metadata, table.io, scan.projection(), AlwaysTrue())
    for task in scan.plan_files():
        yield pa.Table.from_batches(reader.to_record_batches([task]))
