"""Bodies in Avro's binary encoding, each a record of one schema, without a header.

    int, long, float, double, boolean, string, bytes   the same; enum: string; fixed: binary
    record, array, map                                  struct, list, map
    union of null and one type                          that type, which may be null
    union of int and long, of float and double          the larger
    another union                                       struct with a field for each type, called
                                                        member_int, member_Order, …: one is not null
    date, timestamp-*, local-timestamp-*, decimal       the same; other logical types as stored

The names of a union's fields are those of Spark's option `enableStableIdentifiersForUnionType`, so
that a type that is added to a union adds a column, wherever it stands.

Records within themselves have no columns. Neither has what takes no bytes (null alone, a record
without fields): ten bytes of a body could say that an array has 2**60 of it.
"""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
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
_VALUES: dict[Callable[[pa.DataType], bool], type] = {
    pa.types.is_boolean: bool,
    pa.types.is_integer: int,
    pa.types.is_floating: float,
    pa.types.is_binary: bytes,
    pa.types.is_string: str,
    pa.types.is_list: list,
    pa.types.is_map: dict,
    pa.types.is_date: date,
    pa.types.is_timestamp: datetime,
    pa.types.is_decimal: Decimal,
}
"""What fastavro makes of them. No two types of one union that have no names are of one class, once
`_LARGER` has joined some."""
_LARGER = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}
Maker = Callable[[Any], Any]
"""From what fastavro reads to what Arrow takes."""
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
        column = _Columns(file).of(given, given["name"])
        self.type, self._make = column.type, column.make
        parsed: Any = fastavro.parse_schema(given)
        self._schema = parsed
        self.name = str(parsed["name"])

    def decode(self, body: bytes) -> dict[str, Any]:
        stream = io.BytesIO(body)
        try:
            row = fastavro.schemaless_reader(stream, self._schema, None, return_named_type=True)
        except _UNREADABLE as error:
            raise ValueError(f"not a record of Avro's: {error}") from error
        if stream.tell() < len(body):
            raise ValueError(f"{len(body) - stream.tell()} bytes follow the record")
        assert isinstance(row, dict)
        return row if self._make is None else dict(self._make(row))


@dataclass(frozen=True, slots=True)
class _Column:
    type: pa.DataType
    label: str
    """The type's name in Avro."""
    is_named: bool = False
    """In a union fastavro gives its values with its name."""
    make: Maker | None = None
    """None: Arrow takes what fastavro reads."""


class _Columns:
    """The columns of a schema. What a column cannot have of a logical type is taken out of the
    schema, so that values come as they are stored."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._named: dict[str, _Column] = {}
        self._within: set[str] = set()

    def of(self, schema: Any, where: str, space: str = "") -> _Column:
        if isinstance(schema, list):
            return self._union(schema, where, space)
        if isinstance(schema, str):
            if schema == "null":
                self._refuse(where, "null alone")
            known = _PRIMITIVE.get(schema)
            return self._by_name(schema, where, space) if known is None else _Column(known, schema)
        kind = schema["type"]
        if kind == "array":
            item = self.of(schema["items"], f"{where}[]", space)
            return _Column(pa.list_(item.type), kind, make=_make_list(item.make))
        if kind == "map":
            value = self.of(schema["values"], f"{where}{{}}", space)
            return _Column(pa.map_(pa.string(), value.type), kind, make=_make_map(value.make))
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(kind, schema, where, space)
        if not isinstance(kind, str):
            return self.of(kind, where, space)
        logical = self._logical(kind, schema)
        return self.of(kind, where, space) if logical is None else _Column(logical, kind)

    def _define(self, kind: str, schema: Any, where: str, space: str) -> _Column:
        name, space = _full_name(schema, space)
        self._within.add(name)
        make = None
        if kind in ("record", "error"):
            columns = {
                field["name"]: self.of(field["type"], f"{where}.{field['name']}", space)
                for field in schema["fields"]
            }
            if not columns:
                self._refuse(where, "a record without fields")
            made: pa.DataType = pa.struct([(name, one.type) for name, one in columns.items()])
            make = _make_fields({name: one.make for name, one in columns.items() if one.make})
        elif kind == "enum":
            made = pa.string()
        else:
            if not schema["size"]:
                self._refuse(where, "fixed of no bytes")
            made = self._logical(kind, schema) or pa.binary()
        self._within.discard(name)
        column = self._named[name] = _Column(made, name, True, make)
        return column

    def _by_name(self, name: str, where: str, space: str) -> _Column:
        full = name if "." in name or not space else f"{space}.{name}"
        full = full if full in self._named or full in self._within else name
        if full in self._within:
            self._refuse(where, f"{name} within itself")
        return self._named[full]

    def _union(self, branches: list[Any], where: str, space: str) -> _Column:
        columns = [self.of(one, where, space) for one in branches if one != "null"]
        if not columns:
            self._refuse(where, "null alone")
        unnamed = {one.type for one in columns if not one.is_named}
        columns = [one for one in columns if one.is_named or _LARGER.get(one.type) not in unnamed]
        if len(columns) == 1:
            return replace(columns[0], is_named=False, make=_make_nullable(columns[0]))
        members: dict[str, _Column] = {}
        for one in columns:
            member = f"member_{one.label.rpartition('.')[2]}"
            if member in members:
                self._refuse(where, f"a union of {members[member].label} and {one.label}")
            members[member] = one
        struct = pa.struct([(member, one.type) for member, one in members.items()])
        return _Column(struct, "union", make=_make_member(members))

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


def _make_list(make: Maker | None) -> Maker | None:
    return make and (lambda values: [make(value) for value in values])


def _make_map(make: Maker | None) -> Maker | None:
    return make and (lambda values: {key: make(value) for key, value in values.items()})


def _make_fields(makers: dict[str, Maker]) -> Maker | None:
    def make(row: dict[str, Any]) -> dict[str, Any]:
        return row | {name: make_one(row[name]) for name, make_one in makers.items()}

    return make if makers else None


def _make_nullable(column: _Column) -> Maker | None:
    """For the only type of a union beside null."""
    inner = column.make
    if not column.is_named:
        return inner and (lambda value: None if value is None else inner(value))

    def make(value: tuple[str, Any] | None) -> Any:
        if value is None or inner is None:
            return value and value[1]
        return inner(value[1])

    return make


def _make_member(members: dict[str, _Column]) -> Maker:
    """For a union of several types: the value in the field of its type."""
    found: dict[str | type, tuple[str, Maker | None]] = {}
    for member, one in members.items():
        found[one.label if one.is_named else _value_class(one.type)] = member, one.make

    def make(value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        kind: str | type = type(value)
        if kind is tuple:
            kind, value = value
        member, make_one = found[kind]
        return {member: value if make_one is None else make_one(value)}

    return make


def _value_class(kind: pa.DataType) -> type:
    return next(made for fits, made in _VALUES.items() if fits(kind))


def _full_name(schema: Any, space: str) -> tuple[str, str]:
    """The name, and the namespace of what is within."""
    name = schema["name"]
    if "." in name:
        return name, name.rpartition(".")[0]
    space = schema.get("namespace", space)
    return (f"{space}.{name}" if space else name), space
