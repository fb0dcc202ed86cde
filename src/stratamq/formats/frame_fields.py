"""The fields of a frame by name, each with its place in the bytes."""

from dataclasses import dataclass

from stratamq.formats.frame import MAGIC_V1, Frame
from stratamq.formats.frame_layout import AFTER_STORE_HOST, HEAD, I8, I16, I64


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
