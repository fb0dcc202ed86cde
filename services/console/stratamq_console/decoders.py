"""Decoders for bodies that users add: `console.decoders`, each for the topics of a pattern.

    orders*=protobuf:/etc/orders.pb:shop.Order    a descriptor set (protoc --include_imports
                                                  --descriptor_set_out) and a message's full name
    flights=avro:/etc/flight.avsc                 an Avro schema; needs fastavro
    t-*=msgpack                                   needs msgpack

The first one whose pattern fits is used. A file is read again when it has changed.
"""

import functools
import importlib
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from stratamq.errors import ConfigurationError, StrataError

Decode = Callable[[bytes], Any]
KINDS = ("protobuf", "avro", "msgpack")


@dataclass(frozen=True, slots=True)
class BodyDecoder:
    """One setting. `argument`: what stands behind the kind."""

    pattern: str
    kind: str
    argument: str

    @property
    def name(self) -> str:
        return f"{self.kind} {self.argument.rpartition(':')[2]}".strip()


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a decoder made of a body; `problem` says why it could not."""

    decoder: str
    value: Any = None
    problem: str = ""


def parse_decoder(text: str) -> BodyDecoder:
    """ConfigurationError."""
    pattern, equals, rest = text.partition("=")
    kind, _, argument = rest.partition(":")
    if not (pattern and equals) or kind not in KINDS:
        raise ConfigurationError(
            [
                f"{text!r} is no decoder: TOPICS=protobuf:FILE:MESSAGE, TOPICS=avro:FILE, "
                "TOPICS=msgpack"
            ]
        )
    path, _, name = argument.rpartition(":")
    if kind == "protobuf" and not (path and name):
        raise ConfigurationError([f"{text!r}: protobuf needs FILE:MESSAGE"])
    if kind == "avro" and not argument:
        raise ConfigurationError([f"{text!r}: avro needs a file with the schema"])
    return BodyDecoder(pattern, kind, argument)


class BodyDecoders:
    """Those of the settings, in order. Reads files: `decode` runs beside the event loop."""

    def __init__(self, settings: Iterable[str]) -> None:
        self._decoders = [parse_decoder(one) for one in settings]

    def of(self, topic: str) -> BodyDecoder | None:
        return next((one for one in self._decoders if fnmatchcase(topic, one.pattern)), None)

    def decode(self, topic: str, body: bytes) -> Decoded | None:
        """None: no decoder is set for the topic."""
        decoder = self.of(topic)
        if decoder is None:
            return None
        try:
            return Decoded(decoder.name, _OPEN[decoder.kind](decoder.argument)(body))
        except ImportError as error:
            package = {"avro": "fastavro"}.get(decoder.kind, decoder.kind)
            why = f"the Python package {package} is missing: install it beside stratamq ({error})"
            return Decoded(decoder.name, problem=why)
        except OSError as error:
            return Decoded(decoder.name, problem=f"its file cannot be read: {error}")
        except (StrataError, ValueError, TypeError, KeyError, EOFError, RecursionError) as error:
            return Decoded(decoder.name, problem=f"the body does not fit: {error}")
        except Exception as error:  # noqa: BLE001 - libraries raise classes of their own
            return Decoded(decoder.name, problem=f"the body does not fit: {error}")


def _protobuf(argument: str) -> Decode:
    path, _, name = argument.rpartition(":")
    stamp = Path(path).stat().st_mtime_ns
    message_class = _protobuf_class(path, name, stamp)

    def decode(body: bytes) -> Any:
        message = message_class()
        message.ParseFromString(body)
        return json_format.MessageToDict(message, preserving_proto_field_name=True)

    return decode


@functools.lru_cache(32)
def _protobuf_class(path: str, name: str, stamp: int) -> Any:
    files = descriptor_pb2.FileDescriptorSet.FromString(Path(path).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _avro(argument: str) -> Decode:
    fastavro = importlib.import_module("fastavro")
    stamp = Path(argument).stat().st_mtime_ns
    schema = _avro_schema(argument, stamp)
    return lambda body: fastavro.schemaless_reader(io.BytesIO(body), schema, None)


@functools.lru_cache(32)
def _avro_schema(path: str, stamp: int) -> Any:
    fastavro = importlib.import_module("fastavro")
    return fastavro.parse_schema(json.loads(Path(path).read_text()))


def _msgpack(_argument: str) -> Decode:
    msgpack = importlib.import_module("msgpack")
    return lambda body: msgpack.unpackb(body, raw=False, strict_map_key=False)


_OPEN: dict[str, Callable[[str], Decode]] = {
    "protobuf": _protobuf,
    "avro": _avro,
    "msgpack": _msgpack,
}
