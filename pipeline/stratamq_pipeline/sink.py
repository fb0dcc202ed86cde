"""The sink: rows of a DataFrame become messages of a running broker, at least once.

| option | default | meaning |
|---|---|---|
| `path` | | the address of a running broker's log service, or the store's directory |
| `topic` | column `topic` | where all rows go |
| `retry` | 20 | 0: a batch is sent once; else again for two minutes, and stored once |
| `queryName` | the query's id | the first part of the unique keys |
| `tlsCa`, `tlsCertificate`, `tlsKey`, `token`, `tokenFile` | | as those of the source |

Columns: `body` (binary or string); and, where there are any, `topic`, `keys` (a list of words, or
one text of words), `tags`, `properties` (a map), `queueId` (null: the producer chooses) and
`uniqueKey`. Columns that brokers make themselves (`msgId`, `storeTimestamp`, …) are passed over, so
that what was read, with `decompress=true`, can be written; others are refused.

A task that is done again stores its messages twice. So that
readers can recognise them, every message has a UNIQ_KEY `query-batch-partition-row`, which is the
same each time, if the plan gives the same rows in the same order each time. A plan that does not (a
shuffle whose input comes as it likes) needs a `uniqueKey` column made from the data. A batch write
has a query id of its own and batch 0.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from stratamq.errors import InvalidRequestError
from stratamq.formats.nearest import did_you_mean
from stratamq.table.schema import COLUMNS
from stratamq_pipeline.options import ACCESS
from stratamq_pipeline.sink_rows import MESSAGE_COLUMNS, rows_by_topic

_LARGEST_RETRY = 1000
_DEFAULT_RETRY = 20
_KNOWN = ("path", "topic", "retry", "queryName", "checkpointLocation", *ACCESS)
"""Spark hands `checkpointLocation` on to a stream's sink."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Checked at once; InvalidRequestError names the option."""

    path: str
    topic: str | None
    retry: int
    query: str
    access: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str], columns: Sequence[str]) -> "SinkOptions":
        given = {name.lower(): value for name, value in options.items()}
        path = given.get("path", "")
        if not path:
            raise InvalidRequestError("no path: .option('path', 'HOST:PORT') or a directory")
        topic = given.get("topic")
        if topic is None and "topic" not in columns:
            raise InvalidRequestError("no topic: neither an option nor a column of this name")
        if "body" not in columns:
            raise InvalidRequestError("there is no column body")
        unknown = [name for name in columns if name not in (*MESSAGE_COLUMNS, *COLUMNS)]
        if unknown:
            names = ", ".join(MESSAGE_COLUMNS)
            hint = did_you_mean(unknown[0], MESSAGE_COLUMNS) or f": {names}"
            raise InvalidRequestError(f"column {unknown[0]!r} is nothing of a message{hint}")
        text = given.get("retry", str(_DEFAULT_RETRY))
        if not text.isdecimal() or int(text) > _LARGEST_RETRY:
            raise InvalidRequestError(f"retry is a number up to {_LARGEST_RETRY}, not {text!r}")
        known = {name.lower(): name for name in _KNOWN}
        for name in given:
            if name not in known:
                raise InvalidRequestError(f"there is no option {name}{did_you_mean(name, _KNOWN)}")
        query = given.get("queryname", "")
        if any(character.isspace() or ord(character) < 32 for character in query):
            raise InvalidRequestError(f"queryName is a word, not {query!r}")
        access = {name: given[name.lower()] for name in ACCESS if name.lower() in given}
        return cls(path, topic, int(text), query, access)


class Stored(WriterCommitMessage):
    """What a task has stored."""

    def __init__(self, messages: int) -> None:
        self.messages = messages


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("stratamq").mode("append")`."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str], overwrite: bool) -> None:
        _refuse_overwrite(overwrite)
        self.options = SinkOptions.parse(options, columns)
        self._query = self.options.query or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        return _store(self.options, f"{self._query}-0", iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("stratamq")`. The query's id is the checkpoint's: it stays the same
    when the query is started again."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str], overwrite: bool) -> None:
        _refuse_overwrite(overwrite)
        self.options = SinkOptions.parse(options, columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        task = _task()
        query = self.options.query or task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        if not query or batch is None:
            raise InvalidRequestError("this is no task of a streaming query")
        return _store(self.options, f"{query.replace('-', '')}-{batch}", iterator)


def _store(options: SinkOptions, origin: str, batches: Iterator[pa.RecordBatch]) -> Stored:
    """Return when every row is as safe as the broker promises; raises the first failure."""
    from stratamq_pipeline.broker_client import connect_to

    origin = f"{origin}-{_task().partitionId()}"
    count = 0
    with (
        connect_to(options.path, options.access, retry_s=0) as client,
        client.producer(retry=options.retry > 0, client_name="spark") as producer,
    ):
        for batch in batches:
            for topic, queue_id, rows in rows_by_topic(batch, options.topic, origin, count):
                producer.send_rows(topic, rows, queue_id=queue_id)
            count += len(batch)
        producer.flush()
    return Stored(count)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "writers run in tasks"
    return task


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise InvalidRequestError('a log is only appended to: .mode("append")')
