"""The fields of a frame by name, each with its place in the bytes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stratamq.formats.frame import Frame
from stratamq.formats.frame_layout import AFTER_STORE_HOST, HEAD, I8, I16, I64, MAGIC_V1


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    position: int
    size: int

    @property
    def end(self) -> int:
        return self.position + self.size


def frame_fields(frame: Frame) -> list[Field]:
    """The 20 fields of a frame, those of no bytes left out."""
    topic_length = (I8 if frame.magic == MAGIC_V1 else I16).size
    sizes = [
        ("TOTALSIZE", 4), ("MAGICCODE", 4), ("BODYCRC", 4), ("QUEUEID", 4), ("FLAG", 4),
        ("QUEUEOFFSET", 8), ("PHYSICALOFFSET", 8), ("SYSFLAG", 4), ("BORNTIMESTAMP", 8),
        ("BORNHOST", len(frame.born_host)), ("STORETIMESTAMP", I64.size),
        ("STOREHOST", len(frame.store_host)), ("RECONSUMETIMES", 4),
        ("PREPAREDTRANSACTIONOFFSET", 8), ("BODYLENGTH", 4), ("BODY", len(frame.body)),
        ("TOPICLENGTH", topic_length), ("TOPIC", len(frame.topic_raw)),
        ("PROPERTIESLENGTH", I16.size), ("PROPERTIES", len(frame.properties_raw)),
    ]  # fmt: skip
    assert sum(size for _, size in sizes[:9]) == HEAD.size
    assert sum(size for _, size in sizes[12:15]) == AFTER_STORE_HOST.size
    return fields_of(sizes)


def fields_of(sizes: list[tuple[str, int]]) -> list[Field]:
    """Consecutive fields of these sizes; those of no bytes are left out."""
    fields, position = [], 0
    for name, size in sizes:
        if size:
            fields.append(Field(name, position, size))
        position += size
    return fields


class FieldPiece(NamedTuple):
    """Bytes of one field on one line of a hex dump. `number`: of the field; None: of no field."""

    number: int | None
    begins: bool
    """Whether the field does."""
    raw: bytes

    @property
    def shown(self) -> str:
        """Its ASCII characters, with a dot for each of the others."""
        return self.raw.translate(_SHOWN).decode("ascii")


_SHOWN = bytes(byte if 0x20 <= byte < 0x7F else ord(".") for byte in range(256))


def lines_of(
    raw: bytes, fields: Sequence[Field], line_bytes: int
) -> Iterator[tuple[int, list[FieldPiece]]]:
    """Where each line of a hex dump begins, and its pieces, cut where fields meet."""
    first = 0  # the first field that reaches into the line
    for start in range(0, len(raw), line_bytes):
        end = min(start + line_bytes, len(raw))
        while first < len(fields) and fields[first].end <= start:
            first += 1
        pieces, position = [], start
        for number in range(first, len(fields)):
            field = fields[number]
            if field.position >= end:
                break
            piece = raw[position : min(field.end, end)]
            pieces.append(FieldPiece(number, field.position == position, piece))
            position += len(piece)
        if position < end:
            pieces.append(FieldPiece(None, False, raw[position:end]))
        yield start, pieces
