"""Bodies that are messages of protobuf, by the descriptors that protoc writes.

    int32, …, bool, float, double, string, bytes   the same; uint32: int64; uint64: decimal(20)
    enum                                            its name; a number that has none, as digits
    repeated, map, message                          list, map, struct
    google.protobuf.Timestamp                       timestamp

A field that has presence and is not set is null. What a body has beside the message's fields is
passed over, as protobuf demands. Messages within themselves have no columns.
"""

from collections.abc import Callable
from datetime import UTC
from decimal import Decimal
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from stratamq.errors import InvalidRequestError
from stratamq.formats.nearest import did_you_mean
from stratamq.table.schema import TIME

_TIMESTAMP = "google.protobuf.Timestamp"
_UINT64 = pa.decimal128(20, 0)
_TYPES = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: _UINT64,
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
}
Maker = Callable[[Any], Any]
"""From a field's value to what Arrow takes."""


class ProtobufBodies:
    """Implements `RowDecoder`. `message`: its full name, where the file has several."""

    def __init__(self, file: str, content: bytes, message: str | None) -> None:
        self._file = file
        pool, names = self._read(content)
        self.name = self._chosen(names, message)
        described = pool.FindMessageTypeByName(self.name)
        self._class = GetMessageClass(described)
        self.type, self._make = self._message(described, self.name, ())

    def decode(self, body: bytes) -> dict[str, Any]:
        try:
            row: dict[str, Any] = self._make(self._class.FromString(body))
        except (DecodeError, ValueError, OverflowError) as error:
            raise ValueError(f"not a {self.name}: {error}") from error
        return row

    def _read(self, content: bytes) -> tuple[DescriptorPool, list[str]]:
        """The descriptors, and the messages of the last file, which is the one protoc was given."""
        try:
            files = {one.name: one for one in FileDescriptorSet.FromString(content).file}
        except DecodeError as error:
            raise InvalidRequestError(f"{self._file} is no FileDescriptorSet: {error}") from error
        pool = DescriptorPool()
        for one in _in_order(files):
            try:
                pool.Add(one)
            except TypeError as error:
                raise InvalidRequestError(
                    f"{self._file} is not complete: {error}. Write it with --include_imports"
                ) from error
        last = list(files.values())[-1:]
        names = [
            ".".join(filter(None, (one.package, message.name)))
            for one in last
            for message in one.message_type
        ]
        if not names:
            raise InvalidRequestError(f"{self._file} has no message")
        return pool, names

    def _chosen(self, names: list[str], message: str | None) -> str:
        if message is None and len(names) == 1:
            return names[0]
        if message is None:
            raise InvalidRequestError(
                f"{self._file} has the messages {', '.join(names)}: choose one by --message"
            )
        found = [one for one in names if message in (one, one.rpartition(".")[2])]
        if not found:
            hint = did_you_mean(message, names) or f": it has {', '.join(names)}"
            raise InvalidRequestError(f"{self._file} has no message {message}{hint}")
        return found[0]

    def _message(
        self, described: Descriptor, where: str, within: tuple[str, ...]
    ) -> tuple[Any, Maker]:
        if described.full_name == _TIMESTAMP:
            return TIME, lambda value: value.ToDatetime(UTC)
        within = (*within, described.full_name)
        parts = [(field, *self._field(field, where, within)) for field in described.fields]
        if not parts:
            raise InvalidRequestError(
                f"{self._file}: {where} cannot be a column: a message without fields"
            )

        def make(message: Message) -> dict[str, Any]:
            return {
                field.name: None
                if field.has_presence and not message.HasField(field.name)
                else of_field(getattr(message, field.name))
                for field, _, of_field in parts
            }

        return pa.struct([pa.field(field.name, kind) for field, kind, _ in parts]), make

    def _field(
        self, field: FieldDescriptor, where: str, within: tuple[str, ...]
    ) -> tuple[pa.DataType, Maker]:
        inner = field.message_type
        where = f"{where}.{field.name}"
        if inner is not None and inner.full_name in within:
            raise InvalidRequestError(
                f"{self._file}: {where} cannot be a column: {inner.name} within itself"
            )
        if inner is not None and inner.GetOptions().map_entry:
            key, of_key = self._field(inner.fields_by_name["key"], where, within)
            value, of_value = self._field(inner.fields_by_name["value"], where, within)
            return pa.map_(key, value), lambda entries: [
                (of_key(one), of_value(entries[one])) for one in entries
            ]
        kind, make = _scalar(field) if inner is None else self._message(inner, where, within)
        if field.is_repeated:
            return pa.list_(kind), lambda values: [make(one) for one in values]
        return kind, make


def _scalar(field: FieldDescriptor) -> tuple[pa.DataType, Maker]:
    kind = _TYPES[field.cpp_type]
    if field.type == FieldDescriptor.TYPE_BYTES:
        return pa.binary(), _itself
    if field.type == FieldDescriptor.TYPE_ENUM:
        values = field.enum_type.values_by_number
        names = {number: one.name for number, one in values.items()}
        return kind, lambda number: names.get(number, str(number))
    return kind, Decimal if kind == _UINT64 else _itself


def _itself(value: Any) -> Any:
    return value


def _in_order(files: dict[str, FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Each behind what it imports, as far as it is there."""
    ordered: dict[str, FileDescriptorProto] = {}

    def add(name: str) -> None:
        one = files.get(name)
        if one is None or name in ordered:
            return
        for imported in one.dependency:
            add(imported)
        ordered[name] = one

    for name in files:
        add(name)
    return list(ordered.values())
