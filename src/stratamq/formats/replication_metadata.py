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

from stratamq.formats.replication_fields import U8, U16, Reader, encode_text, with_length

METADATA_MARK = b"\xffSTM"
VERSION = 2
MAX_DOCUMENT_BYTES = 7 << 20
"""The limit of one page; the services' pages are far smaller."""
MAX_ASK_BYTES = 16 << 10
MAX_NEWS_BYTES = 32 << 20
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
    body = U8.pack(VERSION) + encode_text(ask.name, U8) + U8.pack(len(ask.marks))
    body += b"".join(_KIND_MARK.pack(kind, ask.marks[kind]) for kind in sorted(ask.marks))
    return with_length(body)


def decode_ask(data: bytes) -> MetadataRequest:
    """Without its length. CorruptRecordError."""
    reader = _Reader(data)
    name = reader.text(U8)
    (count,) = reader.take(U8)
    marks: dict[int, bytes] = {}
    for _ in range(count):
        kind, mark = reader.take(_KIND_MARK)
        marks[kind] = bytes(mark)
    reader.end()
    return MetadataRequest(name, marks)


def encode_news(news: News) -> bytes:
    """With its length before it. ValueError for a document that is too large to travel."""
    parts = [
        U8.pack(VERSION),
        _GENERATION.pack(news.generation),
        encode_text(news.sentence, U16),
        U8.pack(len(news.pages)),
    ]
    for kind, page in sorted(news.pages.items()):
        size = len(page.document)
        if size > MAX_DOCUMENT_BYTES:
            raise ValueError(f"a document of {size} bytes")
        parts += [_PAGE.pack(kind, page.mark, page.more, size), page.document]
    body = b"".join(parts)
    return with_length(body)


def decode_news(data: bytes) -> News:
    """Without its length. CorruptRecordError."""
    reader = _Reader(data)
    (generation,) = reader.take(_GENERATION)
    sentence = reader.text(U16)
    (count,) = reader.take(U8)
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


class _Reader(Reader):
    kind = "metadata"

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        (version,) = self.take(U8)
        if version != VERSION:
            raise self.bad(f"version {version}, {VERSION} is known here")

    def end(self) -> None:
        if self._at != len(self._data):
            raise self.bad("something follows it")
