"""The schema of bodies, as a file has it: Avro's JSON, or what protoc makes of `.proto` files.

    orders.avsc                   a record of Avro's
    orders.desc, .binpb, .pb      a FileDescriptorSet: protoc --include_imports --descriptor_set_out

It is read once, where a job begins, and handed to executors as it is.
"""

import importlib.util
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stratamq.errors import ConfigurationError, InvalidRequestError, NotFoundError

if TYPE_CHECKING:
    import pyarrow as pa

_DESCRIPTORS = (".desc", ".binpb", ".pb")


class BodyFormat(StrEnum):
    AVRO = "avro"
    PROTOBUF = "protobuf"


class RowDecoder(Protocol):
    """Bodies of one schema."""

    @property
    def name(self) -> str:
        """The full name of the record or message."""

    @property
    def type(self) -> "pa.StructType":
        """What Arrow makes of it."""

    def decode(self, body: bytes) -> dict[str, Any]:
        """ValueError, which says why, for what is no such body."""


@dataclass(frozen=True, slots=True)
class BodySchema:
    """`message`: which of several the bodies are; None where there is one. Pickled to executors."""

    format: BodyFormat
    file: str
    content: bytes
    message: str | None = None

    def decoder(self) -> RowDecoder:
        """InvalidRequestError, which names the file, where it is no schema that has columns;
        ConfigurationError with what to install."""
        if self.format is BodyFormat.PROTOBUF:
            from stratamq_pipeline.bodies.protobuf import ProtobufBodies

            return ProtobufBodies(self.file, self.content, self.message)
        if importlib.util.find_spec("fastavro") is None:
            raise ConfigurationError(["fastavro not installed: pip install 'stratamq[avro]'"])
        from stratamq_pipeline.bodies.avro import AvroBodies

        return AvroBodies(self.file, self.content)


def read_schema_file(file: str, message: str | None = None) -> BodySchema:
    """NotFoundError without such a file; InvalidRequestError for one of another kind."""
    path = Path(file)
    if path.suffix == ".proto":
        raise InvalidRequestError(
            f"{file} is source: compile it, protoc --include_imports "
            f"--descriptor_set_out={path.stem}.desc {path.name}, and name the result"
        )
    if path.suffix != ".avsc" and path.suffix not in _DESCRIPTORS:
        raise InvalidRequestError(
            f"{file}: a schema file is called .avsc (Avro), or {', '.join(_DESCRIPTORS)} (the "
            "FileDescriptorSet that protoc writes)"
        )
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no schema file {file}") from error
    except OSError as error:
        raise InvalidRequestError(f"{file} cannot be read: {error.strerror}") from error
    if path.suffix != ".avsc":
        return BodySchema(BodyFormat.PROTOBUF, file, content, message)
    if message is not None:
        raise InvalidRequestError(f"--message is for protobuf: {file} has one record")
    return BodySchema(BodyFormat.AVRO, file, content)
