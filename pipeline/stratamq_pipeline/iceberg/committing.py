"""One commit: data files and the position behind them become visible together, or not at all.

pyiceberg repeats an append whose commit met another one, on top of what the other wrote. Of two
exporters both would then add the same messages. So a commit that met another one is repeated here,
and only while the table's position is still the one that it began at.
"""

import json
import logging
from collections.abc import Sequence
from typing import Any

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import (
    _MergeAppendFiles,
    _OverwriteFiles,
    _SnapshotProducer,
)

from stratamq.errors import BusyError
from stratamq_pipeline.iceberg.position import PROPERTY, SEQUENCE, ExportPosition, position_of

log = logging.getLogger(__name__)

ATTEMPTS = 10


class _Once(_SnapshotProducer[Any]):
    """A commit that pyiceberg does not repeat by itself."""

    def _validate_concurrency(self) -> None:
        raise ValidationException("the table has another snapshot by now")


class _OneAppend(_Once, _MergeAppendFiles):
    """Files in addition to those that are there."""


class _OneRewrite(_Once, _OverwriteFiles):
    """Files in the place of others."""


def commit_rows(
    table: Table, files: Sequence[DataFile], before: ExportPosition | None, now: ExportPosition
) -> None:
    """The files' rows are in the table and its position is `now`, on return; `table` is refreshed.

    BusyError when the table's position is not `before` any more; nothing was committed then.
    """
    for attempt in range(1, ATTEMPTS + 1):
        transaction = table.transaction()
        append = _OneAppend(
            Operation.APPEND, transaction, table.io, snapshot_properties=now.properties()
        )
        for file in files:
            append.append_data_file(file)
        try:
            append.commit()
            _note(transaction, now)
            transaction.commit_transaction()
            return
        except (CommitFailedException, ValidationException) as error:
            table.refresh()
            found = position_of(table.metadata, ".".join(table.name()))
            if found == now:
                return  # its answer was lost
            if found != before or attempt == ATTEMPTS:
                raise _conflict(table, found) from error
            log.info("commit repeated", extra={"attempt": attempt})


def _note(transaction: Transaction, now: ExportPosition) -> None:
    current = transaction.table_metadata.current_snapshot()
    sequence = current.sequence_number if current else 0
    transaction.set_properties({PROPERTY: json.dumps({**now.properties(), SEQUENCE: sequence})})


def _conflict(table: Table, found: ExportPosition | None) -> BusyError:
    where = found.offset if found else "nowhere"
    return BusyError(
        f"another program committed to {'.'.join(table.name())} at the same time, and its position "
        f"is {where} now: nothing of this run was added. If another exporter is running, leave one "
        "of them; then run this again, and it continues from there"
    )


def commit_rewrite(table: Table, old: Sequence[DataFile], new: Sequence[DataFile]) -> bool:
    """The rows of `old`, files of the snapshot that `table` has, are in `new`; its position stays.
    False when another commit was faster; the new files are removed then."""
    position = position_of(table.metadata, ".".join(table.name()))
    properties = position.properties() if position else {}
    transaction = table.transaction()
    rewrite = _OneRewrite(
        Operation.OVERWRITE, transaction, table.io, snapshot_properties=properties
    )
    for file in old:
        rewrite.delete_data_file(file)
    for file in new:
        rewrite.append_data_file(file)
    try:
        rewrite.commit()
        transaction.commit_transaction()
    except (CommitFailedException, ValidationException):
        for file in new:
            table.io.delete(file.file_path)
        return False
    return True
