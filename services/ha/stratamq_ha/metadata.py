"""Carries tables of the services from a master to its slave, a page at a time: topics, consumer
offsets, and the next offsets of queues whose messages are gone.

    slave   ask the master it follows, every `metadata_interval_ms`, by a connection of its own,
            until there is no more
    master  ask the owners for each kind that the slave requests; send what is new

Pages and marks are opaque here; their owners interpret them.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from stratamq.errors import CorruptRecordError, NotWritableError, StrataError, UnavailableError
from stratamq.follow.own_log import OwnLog
from stratamq.formats.log_state import Role
from stratamq.formats.replication_fields import LENGTH, decode_length
from stratamq.formats.replication_metadata import (
    MAX_ASK_BYTES,
    MAX_DOCUMENT_BYTES,
    MAX_NEWS_BYTES,
    METADATA_MARK,
    NO_MARK,
    MetadataKind,
    MetadataRequest,
    News,
    Page,
    decode_ask,
    decode_news,
    encode_ask,
    encode_news,
)
from stratamq_ha import metrics
from stratamq_ha.sockets import connect, receive_exactly, send

log = logging.getLogger(__name__)

EXCHANGE_S = 60.0


class Documents(Protocol):
    """The owners' side, `stratamq.follow.tables`."""

    async def export(self, kind: MetadataKind, mark: bytes) -> Page: ...

    async def take(self, kind: MetadataKind, page: Page, generation: int) -> None: ...


class FollowedMaster(Protocol):
    """The master that this broker follows; `stratamq_ha.slave`."""

    metadata_problem: str

    @property
    def followed(self) -> tuple[int, str]:
        """The number of the connection, and the master's address; "" while there is none."""
        ...


async def answer(connection: socket.socket, own: OwnLog, owners: Documents) -> None:
    """The master's side, after the asker's mark has come, until the asker leaves: EOFError.
    OSError, StrataError."""
    await send(connection, METADATA_MARK)
    while True:
        async with asyncio.timeout(EXCHANGE_S):
            head = await receive_exactly(connection, LENGTH.size)
            size = decode_length(head, MAX_ASK_BYTES)
            ask = decode_ask(await receive_exactly(connection, size))
            await send(connection, encode_news(await news_for(ask, own, owners)))


async def news_for(ask: MetadataRequest, own: OwnLog, owners: Documents) -> News:
    """What a slave does not have. An owner that does not answer is left out, and named."""
    facts = await own.facts()
    if facts.role is Role.SLAVE or facts.broker_name != ask.name:
        return News(facts.generation, {}, f"this is no master of {ask.name}")
    pages: dict[int, Page] = {}
    silent: list[str] = []
    for kind in MetadataKind:
        if kind not in ask.marks:
            continue
        try:
            page = await owners.export(kind, ask.marks[kind])
        except StrataError as error:
            silent.append(f"{kind.name}: {error.message}")
            continue
        if len(page.document) > MAX_DOCUMENT_BYTES:
            silent.append(f"{kind.name}: {len(page.document)} bytes are too large to travel")
        else:
            pages[kind] = page
    return News(facts.generation, pages, "; ".join(silent))


class MetadataConnection:
    """A connection to a master's tables."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    async def ask(self, ask: MetadataRequest) -> News:
        """OSError, EOFError, CorruptRecordError, TimeoutError."""
        async with asyncio.timeout(EXCHANGE_S):
            await send(self._socket, encode_ask(ask))
            head = await receive_exactly(self._socket, LENGTH.size)
            size = decode_length(head, MAX_NEWS_BYTES)
            return decode_news(await receive_exactly(self._socket, size))


@asynccontextmanager
async def asking(address: str) -> AsyncIterator[MetadataConnection]:
    """Connect to a master. OSError, EOFError, CorruptRecordError, TimeoutError."""
    async with asyncio.timeout(EXCHANGE_S):
        connection = await connect(address)
    try:
        async with asyncio.timeout(EXCHANGE_S):
            await send(connection, METADATA_MARK)
            if await receive_exactly(connection, len(METADATA_MARK)) != METADATA_MARK:
                raise CorruptRecordError("it is no StrataMQ replication port", 0, "mark")
        yield MetadataConnection(connection)
    finally:
        connection.close()


@dataclass(slots=True)
class _Had:
    """What was taken over since the master's connection began."""

    connection: int = -1
    marks: dict[int, bytes] = field(default_factory=dict)
    queues_taken: bool = False
    queues_waiting: Page | None = None
    """A page that our log has not come to yet; a newer one would be further ahead."""


class MetadataFollower:
    """The slave's side. `run` until it is cancelled."""

    def __init__(
        self, following: FollowedMaster, own: OwnLog, owners: Documents, interval_ms: int
    ) -> None:
        self._following = following
        self._own = own
        self._owners = owners
        self._interval_s = interval_ms / 1000
        self._had = _Had()

    async def run(self) -> None:
        while True:
            try:
                await self.exchange()
            except (OSError, EOFError, StrataError) as error:
                self._report(str(error) or type(error).__name__)
            await asyncio.sleep(self._interval_s)

    async def exchange(self) -> None:
        """Ask, and hand on what comes, until there is no more. Nothing while no master is followed.

        OSError (a TimeoutError too), EOFError, StrataError.
        """
        number, address = self._following.followed
        if not address:
            self._report("")  # that no master is followed is reported elsewhere
            return
        if number != self._had.connection:
            self._had = _Had(number)
        name = (await self._own.facts()).broker_name
        async with asking(address) as master:
            wanted = set(MetadataKind)
            while wanted:
                news = await master.ask(MetadataRequest(name, self._marks(wanted)))
                generation = (await self._own.facts()).generation
                if self._following.followed != (number, address) or news.generation != generation:
                    # The answer is of another master, or of another generation: it may be outdated.
                    return
                self._report(news.sentence)
                pages = dict(news.pages)
                if self._had.queues_waiting is not None:
                    pages[MetadataKind.QUEUE_OFFSETS] = self._had.queues_waiting
                wanted = {
                    kind
                    for kind in MetadataKind
                    if kind in pages and await self._take(kind, pages[kind], generation)
                }

    def _marks(self, kinds: Collection[MetadataKind]) -> dict[int, bytes]:
        """How far we are in each table that is to be asked for."""
        had = self._had
        marks: dict[int, bytes] = {kind: had.marks.get(kind, NO_MARK) for kind in kinds}
        if had.queues_taken or had.queues_waiting is not None:
            marks.pop(MetadataKind.QUEUE_OFFSETS, None)
        return marks

    async def _take(self, kind: MetadataKind, page: Page, generation: int) -> bool:
        """Hand a page to its owner. True if the next one is to be asked for at once."""
        try:
            await self._owners.take(kind, page, generation)
        except NotWritableError as error:
            if error.fields.get("reason") != "behind":
                raise
            if kind is MetadataKind.QUEUE_OFFSETS:
                self._had.queues_waiting = page
            return False
        except UnavailableError as error:
            self._report(f"{kind.name}: {error.message}")
            return False
        self._had.marks[kind] = page.mark
        if kind is MetadataKind.QUEUE_OFFSETS:
            self._had.queues_taken, self._had.queues_waiting = not page.more, None
        if page.document:
            metrics.METADATA.labels(kind.name).inc()
        return page.more

    def _report(self, problem: str) -> None:
        if problem and problem != self._following.metadata_problem:
            log.warning("metadata is not up to date", extra={"reason": problem})
        self._following.metadata_problem = problem
