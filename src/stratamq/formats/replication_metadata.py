"""What a slave asks its master for beside the log, on the replication port: the tables that stand
in no message, a page of each at a time.

    slave → master   4     ff 53 54 4d
    master → slave   4     the same; RocketMQ's master sends nothing
    slave → master   u32 n, then n bytes: what it has        ┐ as often as the slave likes
    master → slave   u32 n, then n bytes: what is new to it  ┘

    what it has    u8 version  u8 name bytes  broker name  u8 count, count × (u8 kind, 32 mark)
    what is new    u8 version  i64 generation  u16 sentence bytes  sentence
                   u8 count, count × (u8 kind, 32 mark, u8 more, u32 bytes, document)

The kinds that a slave names are the ones it requests. A mark is how far it has come in a table:
zeros, then what came with the last page; its numbers mean something to the master alone. `more` 1:
the next page is there at once. A kind of which nothing is new comes with its mark and no document.
A sentence: why something is not sent.
Big-endian. An unknown kind is passed over: either side may be the newer one.
"""

import enum
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stratamq.errors import CorruptRecordError

METADATA_MARK = b"\xffSTM"
VERSION = 2
MAX_DOCUMENT_BYTES = 7 << 20
"""The limit of one page; the services' pages are far smaller."""
MAX_ASK_BYTES = 16 << 10
MAX_NEWS_BYTES = 32 << 20
LENGTH = struct.Struct(
    ">I"  # bytes that follow
)
_U8 = struct.Struct(">B")
_U16 = struct.Struct(">H")
_GENERATION = struct.Struct(">q")
_KIND_MARK = struct.Struct(
    ">"
    "B"  # kind
    "32s"  # mark
)
_PAGE = struct.Struct(
    ">"
    "B"  # kind
    "32s"  # mark
    "B"  # more: 0 or 1
    "I"  # bytes of the document
)
NO_MARK = bytes(32)


class MetadataKind(enum.IntEnum):
    """One owner's table. Its pages are documents."""

    TOPICS = 1
    """A document in the shape of `config/topics.json`, with the topics that changed."""
    QUEUE_OFFSETS = 2
    """Next offsets of queues, and the end of the log for which they hold."""
    CONSUMER_OFFSETS = 3
    """A document in the shape of `config/consumerOffset.json`, with the topics of groups that
    changed."""


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """What a slave has of the kinds that it requests. `name` is its broker's."""

    name: str
    marks: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class Page:
    """What is new of one kind; `document` b"": nothing."""

    document: bytes
    mark: bytes = NO_MARK
    more: bool = False


@dataclass(frozen=True, slots=True)
class News:
    """Pages by kind. `generation`: the master's last."""

    generation: int
    pages: Mapping[int, Page] = field(default_factory=dict)
    sentence: str = ""


def encode_ask(ask: MetadataRequest) -> bytes:
    """With its length before it."""
    body = _U8.pack(VERSION) + _text(ask.name, _U8) + _U8.pack(len(ask.marks))
    body += b"".join(_KIND_MARK.pack(kind, ask.marks[kind]) for kind in sorted(ask.marks))
    return LENGTH.pack(len(body)) + body


def decode_ask(data: bytes) -> MetadataRequest:
    """Without its length. CorruptRecordError."""
    reader = _Reader(data)
    name = reader.text(_U8)
    (count,) = reader.take(_U8)
    marks: dict[int, bytes] = {}
    for _ in range(count):
        kind, mark = reader.take(_KIND_MARK)
        marks[kind] = bytes(mark)
    reader.end()
    return MetadataRequest(name, marks)


def encode_news(news: News) -> bytes:
    """With its length before it. ValueError for a document that is too large to travel."""
    parts = [
        _U8.pack(VERSION),
        _GENERATION.pack(news.generation),
        _text(news.sentence, _U16),
        _U8.pack(len(news.pages)),
    ]
    for kind, page in sorted(news.pages.items()):
        size = len(page.document)
        if size > MAX_DOCUMENT_BYTES:
            raise ValueError(f"a document of {size} bytes")
        parts += [_PAGE.pack(kind, page.mark, page.more, size), page.document]
    body = b"".join(parts)
    return LENGTH.pack(len(body)) + body


def decode_news(data: bytes) -> News:
    """Without its length. CorruptRecordError."""
    reader = _Reader(data)
    (generation,) = reader.take(_GENERATION)
    sentence = reader.text(_U16)
    (count,) = reader.take(_U8)
    pages: dict[int, Page] = {}
    for _ in range(count):
        kind, mark, more, size = reader.take(_PAGE)
        if size > MAX_DOCUMENT_BYTES:
            raise reader.bad(f"a document of {size} bytes")
        if more > 1:
            raise reader.bad(f"more is {more}")
        pages[kind] = Page(reader.raw(size), bytes(mark), bool(more))
    reader.end()
    return News(generation, pages, sentence)


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
