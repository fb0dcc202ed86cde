"""Several logs as one stream: the shards of a cluster, or several directories.

Each log has a reader and a place of its own: `{"logs": {"broker-a": {"log": 8190, …}, …}}`. Limits
of a batch are divided evenly among the logs. A log that is new to the checkpoint is read from its
beginning, from the batch on that follows the one that finds it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from stratamq.errors import InvalidRequestError
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.partition import read_partition
from stratamq_pipeline.places import log_name
from stratamq_pipeline.stream import StreamReader
from stratamq_pipeline.table_columns import TableColumns

Places = dict[str, Any]


class StreamOfLogs(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`logs`: the options of each, as `logs_of` gives them."""

    def __init__(self, logs: Sequence[SourceOptions], columns: TableColumns) -> None:
        self.columns = columns
        self._options = logs[0]
        self._readers = {
            log_name(one): StreamReader(_share(one, len(logs)), columns) for one in logs
        }
        if len(self._readers) < len(logs):
            raise InvalidRequestError("two brokers of one name are not read as one stream")

    def initialOffset(self) -> Places:
        return {"logs": {name: one.initialOffset() for name, one in self._readers.items()}}

    def getDefaultReadLimit(self) -> ReadLimit:
        return next(iter(self._readers.values())).getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:
        for reader in self._readers.values():
            reader.prepareForTriggerAvailableNow()

    def latestOffset(self, start: Places, limit: ReadLimit) -> Places:
        places = self._places(start)
        found = {}
        for name, reader in self._readers.items():
            if name not in places:
                found[name] = reader.beginning()
                continue
            # A reader's default is its share; Spark gives what `getDefaultReadLimit` said.
            its = limit if isinstance(limit, ReadAllAvailable) else reader.getDefaultReadLimit()
            found[name] = reader.latestOffset(places[name], its)
        return start if found == places else {"logs": found}

    def reportLatestOffset(self) -> Places:
        return {"logs": {name: one.reportLatestOffset() for name, one in self._readers.items()}}

    def partitions(self, start: Places, end: Places) -> Sequence[InputPartition]:
        first, last = self._places(start), self._places(end)
        return [
            part
            for name, reader in self._readers.items()
            if name in first and name in last
            for part in reader.partitions(first[name], last[name])
        ]

    def read(self, partition: InputPartition) -> Any:
        parts = read_partition(partition, self._options, self.columns.decoded)
        return map(self.columns.rows, parts)

    def commit(self, end: Places) -> None:
        """Nothing is held for batches that are done; the offsets stand in the checkpoint."""

    def stop(self) -> None:
        for reader in self._readers.values():
            reader.stop()

    def _places(self, offset: Places) -> Places:
        """InvalidRequestError unless the checkpoint is of these logs."""
        places: Places = offset.get("logs", {})
        gone = sorted(places.keys() - self._readers.keys())
        if gone or not places:
            what = f"of {gone[0]}, too, which is not" if gone else "of a single log, which is not"
            raise InvalidRequestError(
                f"the checkpoint is {what} among the logs of this query "
                f"({', '.join(self._readers)}): read the same logs, or begin a new checkpoint"
            )
        return places


def _share(options: SourceOptions, count: int) -> SourceOptions:
    """What a log may contribute to a batch."""
    return replace(
        options,
        min_partitions=-(-options.min_partitions // count),
        max_offsets=-(-options.max_offsets // count),
        max_bytes=-(-options.max_bytes // count),
        min_offsets=-(-options.min_offsets // count),
    )
