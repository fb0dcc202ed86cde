"""The log as rows, to build or check queues and indexes: dispatch columns, in parallel.

    part             which of the log's parts; the parts' order is the log's
    physicalOffset   log offset of the frame
    size             bytes of the frame
    topic, queueId, queueOffset
    storeTimestamp   milliseconds
    inQueue          whether it stands in a consume queue
    tagsCode         what its queue unit carries
    keyHashes        its index items, in their order; empty for what is not indexed
    tagHash          the item that RocketMQ 5.4 and later adds for TAGS; only when asked for

The columns come from `formats.dispatch`, as the services' do.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from stratamq.errors import OffsetOutOfRangeError
from stratamq.formats.columns import FrameColumns
from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_MS
from stratamq.formats.dispatch import DispatchColumns, dispatch_columns
from stratamq.formats.index_layout import index_tag_key
from stratamq.formats.javahash import index_key_hash
from stratamq.formats.log_damage import Damage
from stratamq.formats.queue_paths import MAX_NAME_BYTES
from stratamq.formats.sysflag import TRANSACTION_NONE, TRANSACTION_PREPARED
from stratamq.table.decode import Decoder
from stratamq.table.log_files import LogFiles, SegmentPart
from stratamq.table.part_reader import OnDamage, part_frames
from stratamq_pipeline.same_file import check_same, witness

PART_BYTES = 128 << 20
"""About so much of the log is one task's."""

SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("physicalOffset", pa.int64()),
        ("size", pa.int32()),
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("storeTimestamp", pa.int64()),
        ("inQueue", pa.bool_()),
        ("tagsCode", pa.int64()),
        ("keyHashes", pa.list_(pa.int32())),
    ]
)
DAMAGE = pa.schema(
    [("startOffset", pa.int64()), ("endOffset", pa.int64()), ("reason", pa.string())]
)
TAG_FIELD = pa.field("tagHash", pa.int32())
_PARTS = pa.schema(
    [
        ("number", pa.int64()),
        ("path", pa.string()),
        ("segmentStart", pa.int64()),
        ("segmentEnd", pa.int64()),
        ("begin", pa.int64()),
        ("end", pa.int64()),
        ("sealedFrom", pa.int64()),
        ("witness", pa.int64()),
    ]
)
NAMES_A_DIRECTORY = (
    "topic NOT IN ('', '.', '..') AND NOT contains(topic, '/') AND NOT contains(topic, char(0)) "
    f"AND octet_length(topic) <= {MAX_NAME_BYTES}"
)
"""The rule of `formats.queue_paths.can_be_directory`: other topics have no queues."""
BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class FrameReading:
    """How frames are read. `permissive` passes over damage, which otherwise is a CorruptionError
    that names file and position."""

    delay_levels_ms: tuple[int, ...] = tuple(DEFAULT_DELAY_LEVELS_MS)
    permissive: bool = False
    tag_hashes: bool = False


def log_parts(spark: SparkSession, log: LogFiles, part_bytes: int = PART_BYTES) -> DataFrame:
    """A row for each part of the log, each in a Spark partition of its own."""
    return parts_table(spark, log.parts(part_bytes=part_bytes))


def parts_table(spark: SparkSession, parts: Sequence[SegmentPart]) -> DataFrame:
    """The same for selected parts."""
    rows = [
        (number, *(getattr(part, name) for name in SegmentPart.__slots__), witness(part))
        for number, part in enumerate(parts)
    ]
    return one_each(spark, rows, _PARTS)


def one_each(
    spark: SparkSession,
    rows: Sequence[tuple[object, ...]],
    schema: pa.Schema,
    tasks: int | None = None,
) -> DataFrame:
    """A task for each row, or `tasks` of them: row n is in task n modulo their number. The
    schema's first field, `number`, counts the rows from 0."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    frame = spark.createDataFrame(pa.Table.from_arrays(arrays, schema=schema))
    count = max(1, min(len(rows), tasks or len(rows)))
    return frame.repartitionById(count, (frame["number"] % count).cast("int"))


def tasks_for(spark: SparkSession, total_bytes: int) -> int:
    """How many tasks should read so much: small files share one."""
    usual = spark.conf.get("spark.sql.shuffle.partitions", "4") or "4"
    return max(int(usual), total_bytes // PART_BYTES)


def dispatched(parts: DataFrame, reading: FrameReading = FrameReading()) -> DataFrame:
    """Rows of all frames of `log_parts`, in the log's order within each part."""
    schema = SCHEMA.append(TAG_FIELD) if reading.tag_hashes else SCHEMA
    return parts.mapInArrow(_reader(reading, schema), spark_schema(schema))


def queued(rows: DataFrame) -> DataFrame:
    """Those rows of `dispatched` that stand in a queue."""
    return rows.where("inQueue").where(NAMES_A_DIRECTORY)


def damage(parts: DataFrame) -> DataFrame:
    """The stretches of the log in which nothing can be trusted: startOffset, endOffset, reason."""
    return parts.mapInArrow(_read_damage, spark_schema(DAMAGE))


def spark_schema(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _read_damage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found: list[Damage] = []
    for part in parts_of(batches):
        for _ in part_frames(part[1], verify=True, on_damage=lambda _, one: found.append(one)):
            pass
    rows = [(one.start, one.end, one.reason) for one in found]
    names = DAMAGE.names
    yield pa.RecordBatch.from_pylist(
        [dict(zip(names, row, strict=True)) for row in rows], schema=DAMAGE
    )


def parts_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, SegmentPart]]:
    """In an executor: the parts, with their numbers, of rows of `log_parts`. Each is the driver's,
    or InvalidRequestError, or OffsetOutOfRangeError when it was deleted meanwhile."""
    for batch in batches:
        for number, *fields, driver_saw in zip(*batch.to_pydict().values(), strict=True):
            part = SegmentPart(*fields)
            try:
                check_same(part, driver_saw)
            except FileNotFoundError as error:
                raise OffsetOutOfRangeError(
                    f"{part.path} was deleted before it was read", part.segment_end, part.end
                ) from error
            yield number, part


def _reader(reading: FrameReading, schema: pa.Schema) -> BatchFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, part in parts_of(batches):
            yield from read_dispatched(number, part, reading, schema)

    return read


def read_dispatched(
    number: int, part: SegmentPart, reading: FrameReading, schema: pa.Schema = SCHEMA
) -> Iterator[pa.RecordBatch]:
    """The rows of one part; what an executor does."""
    on_damage: OnDamage | None = _pass_over if reading.permissive else None
    for raw, frames in part_frames(part, verify=True, on_damage=on_damage):
        base = int(frames.physical_offset[0])
        columns = dispatch_columns(
            raw.data, base, frames.size.astype(np.uint32), reading.delay_levels_ms
        )
        batch = _batch(number, columns)
        if TAG_FIELD.name in schema.names:
            batch.append(_tag_hashes(raw, frames, columns))
        yield pa.RecordBatch.from_arrays(batch, schema=schema)


def _batch(number: int, columns: DispatchColumns) -> list[pa.Array]:
    topics = pa.DictionaryArray.from_arrays(
        pa.array(columns.topic_index), pa.array(columns.topics, pa.string())
    )
    return [
        pa.array(np.full(len(columns), number, np.int32)),
        pa.array(columns.physical_offset),
        pa.array(columns.size),
        topics.cast(pa.string()),
        pa.array(columns.queue_id),
        pa.array(columns.queue_offset),
        pa.array(columns.store_timestamp_ms),
        pa.array(columns.in_queue),
        pa.array(columns.tags_code),
        _key_lists(columns),
    ]


def _key_lists(columns: DispatchColumns) -> pa.Array:
    kept = columns.in_index[columns.key_row]
    rows, hashes = columns.key_row[kept], columns.key_hash[kept]
    offsets = np.zeros(len(columns) + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=len(columns)), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(hashes))


def _tag_hashes(raw: np.ndarray, frames: FrameColumns, columns: DispatchColumns) -> pa.Array:
    tags = Decoder(("tags",)).packed(raw, frames).batch.column(0).to_pylist()
    known: dict[tuple[int, str], int] = {}
    hashes: list[int | None] = []
    for topic, text in zip(columns.topic_index.tolist(), tags, strict=True):
        if not text:
            hashes.append(None)
            continue
        if (topic, text) not in known:
            known[topic, text] = index_key_hash(index_tag_key(columns.topics[topic], text))
        hashes.append(known[topic, text])
    return pa.array(hashes, pa.int32())


def queue_columns(batch: pa.RecordBatch) -> DispatchColumns:
    """Rows back as dispatch columns without keys, for `formats.queue_units`."""
    topics = batch.column("topic").dictionary_encode()
    in_queue = batch.column("inQueue").to_numpy(zero_copy_only=False)
    sys_flag = np.where(in_queue, TRANSACTION_NONE, TRANSACTION_PREPARED).astype(np.int32)
    return DispatchColumns(
        physical_offset=batch.column("physicalOffset").to_numpy(),
        size=batch.column("size").to_numpy(),
        queue_id=batch.column("queueId").to_numpy(),
        queue_offset=batch.column("queueOffset").to_numpy(),
        store_timestamp_ms=batch.column("storeTimestamp").to_numpy(),
        sys_flag=sys_flag,
        tags_code=batch.column("tagsCode").to_numpy(),
        topic_index=topics.indices.to_numpy(),
        topics=topics.dictionary.to_pylist(),
        key_row=np.zeros(0, np.int32),
        key_hash=np.zeros(0, np.int32),
    )


def _pass_over(path: str, damage: object) -> None:
    """The audit reports damage by itself."""
