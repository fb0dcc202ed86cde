"""The columns of a DataFrame: which they are, of which type, and how they are made of decoded ones.

Spark's API for Python sources does not tell which columns a query uses. What is read is therefore
what the option `columns` or the schema of the user names; nothing else is decoded.

`shape=kafka` gives the columns of Spark's Kafka source:

    key            binary     the words of KEYS, with spaces between; null without any
    value          binary     the body
    topic          string
    partition      int        the queue's id
    offset         long       the queue offset
    timestamp      timestamp  when the message was stored; hence
    timestampType  int        1, LogAppendTime
    headers        array<struct<key: string, value: binary>>  all properties
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import Filter
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from stratamq.errors import InvalidRequestError
from stratamq.formats.nearest import did_you_mean
from stratamq.table.schema import SCHEMA, TIME

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
KAFKA_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIME, nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("headers", pa.list_(_HEADER), nullable=False),
    ]
)
_LOG_APPEND_TIME = 1
_KAFKA_SOURCES = {
    "key": "keys",
    "value": "body",
    "partition": "queueId",
    "offset": "queueOffset",
    "timestamp": "storeTimestamp",
    "timestampType": "queueId",
    "headers": "properties",
}
"""The decoded column of which each is made, if it has another name."""
_PLACE = ("topic", "queueId", "queueOffset")
"""What names the message whose value does not fit."""


@dataclass(frozen=True, slots=True)
class TableColumns:
    """`schema`: as Spark expects the batches. `native`: the types before they are cast."""

    schema: pa.Schema
    native: pa.Schema

    @classmethod
    def named(cls, *columns: str) -> "TableColumns":
        """Columns of messages, as they are decoded."""
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        return cls(schema, SCHEMA)

    @classmethod
    def of(cls, native: pa.Schema, wanted: StructType) -> "TableColumns":
        """InvalidRequestError if there is no such column, or its values cannot be cast."""
        schema = to_arrow_schema(wanted, timezone="UTC")
        check_names(native, schema.names)
        for field in schema:
            its = native.field(field.name)
            if its.type != field.type and not _castable(its.type, field.type):
                raise InvalidRequestError(
                    f"the schema asks for column {field.name} as {field.type}, and it is "
                    f"{its.type}: leave it so, and cast it in the query"
                )
            if its.nullable and not field.nullable:
                raise InvalidRequestError(
                    f"the schema says that column {field.name} is NOT NULL, and it may be null"
                )
        return cls(schema, native)

    @property
    def decoded(self) -> tuple[str, ...]:
        """The columns of messages that must be decoded."""
        names = [self._source(name) for name in self.schema.names]
        if any(field.type != self.native.field(field.name).type for field in self.schema):
            names += _PLACE
        return tuple(dict.fromkeys(names))

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """From the `decoded` columns. InvalidRequestError names the message that does not fit."""
        if batch.schema == self.schema:
            return batch
        arrays = []
        for field in self.schema:
            array = batch.column(self._source(field.name))
            if self._is_kafka and (make := _KAFKA_MAKERS.get(field.name)) is not None:
                array = make(array)
            arrays.append(array if array.type == field.type else _cast(array, field, batch))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def of_message(self, one: Filter) -> Filter | None:
        """A filter on a column of messages that chooses the same rows; None: there is none."""
        attribute = getattr(one, "attribute", ())
        if len(attribute) != 1 or attribute[0] not in self.schema.names:
            return None
        name = attribute[0]
        source = self._source(name)
        if source not in SCHEMA.names or SCHEMA.field(source).type != self.schema.field(name).type:
            return None
        if self._is_kafka and name in _KAFKA_MAKERS:
            return None
        return replace(one, attribute=(source,))  # type: ignore[type-var]

    @property
    def _is_kafka(self) -> bool:
        return self.native == KAFKA_SCHEMA

    def _source(self, name: str) -> str:
        return _KAFKA_SOURCES.get(name, name) if self._is_kafka else name


def check_names(native: pa.Schema, names: list[str]) -> None:
    """InvalidRequestError for a column that does not exist, or is named twice."""
    for name in names:
        if name not in native.names:
            hint = did_you_mean(name, native.names) or f": there are {', '.join(native.names)}"
            raise InvalidRequestError(f"there is no column {name}{hint}")
    if len(set(names)) < len(names) or not names:
        raise InvalidRequestError("name each column once, and at least one")


def spark_schema(native: pa.Schema, columns: tuple[str, ...] | None) -> StructType:
    """All columns, or those of the option `columns`. InvalidRequestError."""
    if columns is None:
        return from_arrow_schema(native)
    check_names(native, list(columns))
    return from_arrow_schema(pa.schema([native.field(name) for name in columns]))


def _castable(native: pa.DataType, wanted: pa.DataType) -> bool:
    """Types between which Arrow and Spark cast alike. Times are none: Spark's depend on a zone."""
    if pa.types.is_integer(native):
        kinds = pa.types.is_integer, pa.types.is_floating, pa.types.is_string
        return any(is_kind(wanted) for is_kind in kinds)
    texts = pa.types.is_string, pa.types.is_binary
    return any(is_text(native) for is_text in texts) and any(is_text(wanted) for is_text in texts)


def _cast(array: pa.Array, field: pa.Field, batch: pa.RecordBatch) -> pa.Array:
    try:
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        row = next(row for row in range(len(array)) if not _fits(array[row : row + 1], field))
        where = f"row {row}"
        if set(_PLACE) <= set(batch.schema.names):
            topic, queue_id, offset = (batch.column(name)[row].as_py() for name in _PLACE)
            where = f"topic {topic} queue {queue_id} offset {offset}"
        raise InvalidRequestError(
            f"{where}: column {field.name} cannot be cast to {field.type} ({error}): ask for it as "
            f"{array.type}"
        ) from error


def _fits(array: pa.Array, field: pa.Field) -> bool:
    try:
        array.cast(field.type)
    except pa.ArrowInvalid:
        return False
    return True


def _key(keys: pa.Array) -> pa.Array:
    joined = pc.binary_join(keys, " ")
    return pc.if_else(pc.equal(pc.list_value_length(keys), 0), None, joined).cast(pa.binary())


_KAFKA_MAKERS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "key": _key,
    "timestampType": lambda ids: pa.repeat(pa.scalar(_LOG_APPEND_TIME, pa.int32()), len(ids)),
    "headers": lambda properties: properties.cast(KAFKA_SCHEMA.field("headers").type),
}
