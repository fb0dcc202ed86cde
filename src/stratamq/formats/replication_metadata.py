"""What a slave asks its master for beside the log, on the replication port: the documents that
stand in no message.

    slave → master   4     ff 53 54 4d
    master → slave   4     the same; RocketMQ's master says nothing
    slave → master   u32 n, then n bytes: what it has
    master → slave   u32 n, then n bytes: what is new to it

    what it has    u8 version  u8 name bytes  broker name  u8 count, count × (u8 kind, 32 digest)
    what is new    u8 version  i64 generation  u16 sentence bytes  sentence
                   u8 count, count × (u8 kind, u32 bytes, document)

The kinds that a slave names are the ones it wants; one whose digest is the master's is not sent.
A sentence says why something is not sent.
Big-endian. A kind that the reader does not know is passed over: either side may be the newer one.
"""

import enum
import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stratamq.errors import CorruptRecordError

METADATA_MARK = b"\xffSTM"
VERSION = 1
MAX_DOCUMENT_BYTES = 7 << 20
"""With its frame a document fits into one gRPC message of the services."""
MAX_ASK_BYTES = 16 << 10
MAX_NEWS_BYTES = 32 << 20
LENGTH = struct.Struct(
    ">I"  # bytes that follow
)
_U8 = struct.Struct(">B")
_U16 = struct.Struct(">H")
_GENERATION = struct.Struct(">q")
_KIND_DIGEST = struct.Struct(
    ">"
    "B"  # kind
    "32s"  # SHA-256 of the document; zeros: none
)
_KIND_LENGTH = struct.Struct(
    ">"
    "B"  # kind
    "I"  # bytes of the document
)
NO_DIGEST = bytes(32)


class Kind(enum.IntEnum):
    """One owner's document."""

    TOPICS = 1
    """`config/topics.json`."""
    QUEUE_OFFSETS = 2
    """The next offset of every queue, and the end of the log for which it holds."""
    CONSUMER_OFFSETS = 3
    """`config/consumerOffset.json`."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a slave has of the kinds that it wants. `name` is its broker's."""

    name: str
    digests: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class News:
    """The documents that differ, by kind. `generation`: the master's last."""

    generation: int
    documents: Mapping[int, bytes] = field(default_factory=dict)
    sentence: str = ""


def digest_of(document: bytes) -> bytes:
    return hashlib.sha256(document).digest()


def encode_ask(ask: Ask) -> bytes:
    """With its length before it."""
    body = _U8.pack(VERSION) + _text(ask.name, _U8) + _U8.pack(len(ask.digests))
    body += b"".join(_KIND_DIGEST.pack(kind, ask.digests[kind]) for kind in sorted(ask.digests))
    return LENGTH.pack(len(body)) + body


def decode_ask(data: bytes) -> Ask:
    """Without its length. CorruptRecordError."""
    reader = _Reader(data)
    name = reader.text(_U8)
    (count,) = reader.take(_U8)
    digests: dict[int, bytes] = {}
    for _ in range(count):
        kind, digest = reader.take(_KIND_DIGEST)
        digests[kind] = bytes(digest)
    reader.end()
    return Ask(name, digests)


def encode_news(news: News) -> bytes:
    """With its length before it. ValueError for a document that is too large to travel."""
    parts = [
        _U8.pack(VERSION),
        _GENERATION.pack(news.generation),
        _text(news.sentence, _U16),
        _U8.pack(len(news.documents)),
    ]
    for kind, document in sorted(news.documents.items()):
        if len(document) > MAX_DOCUMENT_BYTES:
            raise ValueError(f"a document of {len(document)} bytes")
        parts += [_KIND_LENGTH.pack(kind, len(document)), document]
    body = b"".join(parts)
    return LENGTH.pack(len(body)) + body


def decode_news(data: bytes) -> News:
    """Without its length. CorruptRecordError."""
    reader = _Reader(data)
    (generation,) = reader.take(_GENERATION)
    sentence = reader.text(_U16)
    (count,) = reader.take(_U8)
    documents: dict[int, bytes] = {}
    for _ in range(count):
        kind, size = reader.take(_KIND_LENGTH)
        if size > MAX_DOCUMENT_BYTES:
            raise reader.bad(f"a document of {size} bytes")
        documents[kind] = reader.raw(size)
    reader.end()
    return News(generation, documents, sentence)


def decode_bounded_length(data: bytes, most: int) -> int:
    """CorruptRecordError for more than `most` bytes: nothing is allocated for them."""
    (length,) = LENGTH.unpack(data)
    if length > most:
        raise CorruptRecordError(f"a message of {length} bytes", 0, "length")
    return int(length)


def _text(text: str, length: struct.Struct) -> bytes:
    raw = text.encode()[: 255 if length is _U8 else 1024].decode(errors="ignore").encode()
    return length.pack(len(raw)) + raw


class _Reader:
    """Takes a message apart; whatever does not fit is a CorruptRecordError (`metadata`)."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        (version,) = self.take(_U8)
        if version != VERSION:
            raise self.bad(f"version {version}, {VERSION} is known here")

    def take(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.raw(layout.size))

    def raw(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise self.bad("it is cut short")
        self._at += size
        return taken

    def text(self, length: struct.Struct) -> str:
        (size,) = self.take(length)
        try:
            return self.raw(size).decode()
        except UnicodeDecodeError as error:
            raise self.bad("a text that is not UTF-8") from error

    def end(self) -> None:
        if self._at != len(self._data):
            raise self.bad("something follows it")

    def bad(self, what: str) -> CorruptRecordError:
        return CorruptRecordError(
            f"the peer's metadata makes no sense: {what}", self._at, "metadata"
        )
