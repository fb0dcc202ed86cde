"""Bodies in Avro's binary encoding, each a record of one schema, without a header.

    int, long, float, double, boolean, string, bytes   the same; enum: string; fixed: binary
    record, array, map                                  struct, list, map
    union of null and one type                          that type, which may be null
    date, timestamp-*, local-timestamp-*, decimal       the same; other logical types as stored

Other unions, and records within themselves, have no columns. Neither has what takes no bytes (null
alone, a record without fields): ten bytes of a body could say that an array has 2**60 of it.
"""

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException

from stratamq.errors import InvalidRequestError
from stratamq.table.schema import TIME

_PRIMITIVE = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOCAL_TIME = pa.timestamp("us")
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): TIME,
    ("long", "timestamp-micros"): TIME,
    ("long", "local-timestamp-millis"): _LOCAL_TIME,
    ("long", "local-timestamp-micros"): _LOCAL_TIME,
}
_DIGITS = 38
"""The most that Arrow's, Spark's and Iceberg's decimals have."""
_UNREADABLE = (EOFError, ValueError, IndexError, KeyError, TypeError, ArithmeticError)
"""What fastavro raises for bytes that are no such record."""


class AvroBodies:
    """Implements `RowDecoder`."""

    def __init__(self, file: str, content: bytes) -> None:
        try:
            given = json.loads(content)
            fastavro.parse_schema(given)
        except (ValueError, SchemaParseException, fastavro.schema.UnknownType) as error:
            raise InvalidRequestError(f"{file} is no schema of Avro's: {error}") from error
        if not isinstance(given, dict) or given.get("type") != "record":
            raise InvalidRequestError(f"{file}: bodies become columns if they are a record")
        self.type = _Columns(file).of(given, given["name"])
        parsed: Any = fastavro.parse_schema(given)
        self._schema = parsed
        self.name = str(parsed["name"])

    def decode(self, body: bytes) -> dict[str, Any]:
        stream = io.BytesIO(body)
        try:
            row = fastavro.schemaless_reader(stream, self._schema, None)
        except _UNREADABLE as error:
            raise ValueError(f"not a record of Avro's: {error}") from error
        if stream.tell() < len(body):
            raise ValueError(f"{len(body) - stream.tell()} bytes follow the record")
        assert isinstance(row, dict)
        return row


class _Columns:
    """The Arrow types of a schema. What a column cannot have of a logical type is taken out of the
    schema, so that values come as they are stored."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._named: dict[str, pa.DataType] = {}
        self._within: set[str] = set()

    def of(self, schema: Any, where: str, space: str = "") -> Any:
        if isinstance(schema, list):
            return self._union(schema, where, space)
        if isinstance(schema, str):
            if schema == "null":
                self._refuse(where, "null alone")
            known = _PRIMITIVE.get(schema)
            return known if known is not None else self._by_name(schema, where, space)
        kind = schema["type"]
        if kind == "array":
            return pa.list_(self.of(schema["items"], f"{where}[]", space))
        if kind == "map":
            return pa.map_(pa.string(), self.of(schema["values"], f"{where}{{}}", space))
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(kind, schema, where, space)
        if not isinstance(kind, str):
            return self.of(kind, where, space)
        return self._logical(kind, schema) or self.of(kind, where, space)

    def _define(self, kind: str, schema: Any, where: str, space: str) -> pa.DataType:
        name, space = _full_name(schema, space)
        self._within.add(name)
        if kind in ("record", "error"):
            fields = [
                pa.field(field["name"], self.of(field["type"], f"{where}.{field['name']}", space))
                for field in schema["fields"]
            ]
            if not fields:
                self._refuse(where, "a record without fields")
            made = pa.struct(fields)
        elif kind == "enum":
            made = pa.string()
        else:
            if not schema["size"]:
                self._refuse(where, "fixed of no bytes")
            made = self._logical(kind, schema) or pa.binary()
        self._within.discard(name)
        self._named[name] = made
        return made

    def _by_name(self, name: str, where: str, space: str) -> pa.DataType:
        full = name if "." in name or not space else f"{space}.{name}"
        full = full if full in self._named or full in self._within else name
        if full in self._within:
            self._refuse(where, f"{name} within itself")
        return self._named[full]

    def _union(self, branches: list[Any], where: str, space: str) -> pa.DataType:
        types = [self.of(one, where, space) for one in branches if one != "null"]
        if len(types) != 1:
            self._refuse(where, "a union of several types" if types else "null alone")
        return types[0]

    def _logical(self, kind: str, schema: Any) -> pa.DataType | None:
        logical = schema.get("logicalType")
        if logical == "decimal" and schema["precision"] <= _DIGITS:
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        made = _LOGICAL.get((kind, logical))
        if made is None:
            schema.pop("logicalType", None)
        return made

    def _refuse(self, where: str, what: str) -> None:
        raise InvalidRequestError(f"{self._file}: {where} cannot be a column: {what}")


def _full_name(schema: Any, space: str) -> tuple[str, str]:
    """The name, and the namespace of what is within."""
    name = schema["name"]
    if "." in name:
        return name, name.rpartition(".")[0]
    space = schema.get("namespace", space)
    return (f"{space}.{name}" if space else name), space
