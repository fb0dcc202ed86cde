"""Carries the documents of the services from a master to its slave: topics, consumer offsets, and
the next offsets of queues whose messages are gone.

    slave   ask the master it follows, every `metadata_interval_ms`, by a connection of its own
    master  ask the owners for each kind that the slave wants; send what differs

What is in a document only its owners know.
"""

import asyncio
import logging
import socket
from dataclasses import dataclass, field
from typing import Protocol

from stratamq.client.replication import OwnLog
from stratamq.client.values import Role
from stratamq.errors import CorruptRecordError, NotWritableError, StrataError, UnavailableError
from stratamq.formats.replication_metadata import (
    LENGTH,
    MAX_ASK_BYTES,
    MAX_DOCUMENT_BYTES,
    MAX_NEWS_BYTES,
    METADATA_MARK,
    NO_DIGEST,
    Ask,
    Kind,
    News,
    decode_ask,
    decode_bounded_length,
    decode_news,
    digest_of,
    encode_ask,
    encode_news,
)
from stratamq_ha import metrics
from stratamq_ha.sockets import connect, receive_exactly, send

log = logging.getLogger(__name__)

EXCHANGE_S = 60.0


class Documents(Protocol):
    """The owners' side, `stratamq.client.owners`."""

    async def export(self, kind: Kind) -> bytes: ...

    async def take(self, kind: Kind, document: bytes, generation: int) -> None: ...


class Following(Protocol):
    """Whom this broker follows; `stratamq_ha.slave`."""

    metadata_problem: str

    @property
    def followed(self) -> tuple[int, str]:
        """The number of the connection, and the master's address; "" while there is none."""
        ...


async def answer(connection: socket.socket, own: OwnLog, owners: Documents) -> None:
    """The master's side, after the asker's mark has come. EOFError, OSError, StrataError."""
    await send(connection, METADATA_MARK)
    size = decode_bounded_length(await receive_exactly(connection, LENGTH.size), MAX_ASK_BYTES)
    ask = decode_ask(await receive_exactly(connection, size))
    await send(connection, encode_news(await news_for(ask, own, owners)))


async def news_for(ask: Ask, own: OwnLog, owners: Documents) -> News:
    """What a slave does not have. An owner that does not answer is left out, and named."""
    facts = await own.facts()
    if facts.role is Role.SLAVE or facts.broker_name != ask.name:
        return News(facts.generation, {}, f"this is no master of {ask.name}")
    documents: dict[int, bytes] = {}
    silent: list[str] = []
    for kind in Kind:
        if kind not in ask.digests:
            continue
        try:
            document = await owners.export(kind)
        except StrataError as error:
            silent.append(f"{kind.name}: {error.message}")
            continue
        if len(document) > MAX_DOCUMENT_BYTES:
            silent.append(f"{kind.name}: {len(document)} bytes are too large to travel")
        elif digest_of(document) != ask.digests[kind]:
            documents[kind] = document
    return News(facts.generation, documents, "; ".join(silent))


async def fetch(address: str, ask: Ask) -> News:
    """Ask a master. OSError, EOFError, CorruptRecordError, TimeoutError."""
    async with asyncio.timeout(EXCHANGE_S):
        connection = await connect(address)
        try:
            await send(connection, METADATA_MARK)
            if await receive_exactly(connection, len(METADATA_MARK)) != METADATA_MARK:
                raise CorruptRecordError("it is no StrataMQ replication port", 0, "mark")
            await send(connection, encode_ask(ask))
            head = await receive_exactly(connection, LENGTH.size)
            size = decode_bounded_length(head, MAX_NEWS_BYTES)
            return decode_news(await receive_exactly(connection, size))
        finally:
            connection.close()


@dataclass(slots=True)
class _Had:
    """What was taken over since the master's connection began."""

    connection: int = -1
    digests: dict[int, bytes] = field(default_factory=dict)
    queues_taken: bool = False
    queues_waiting: bytes | None = None
    """A table that our log has not come to yet; a newer one would be further ahead."""


class MetadataFollower:
    """The slave's side. `run` until it is cancelled."""

    def __init__(
        self, following: Following, own: OwnLog, owners: Documents, interval_ms: int
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
                self._told(str(error) or type(error).__name__)
            await asyncio.sleep(self._interval_s)

    async def exchange(self) -> None:
        """One question, and its answer handed on. Nothing while no master is followed.

        OSError (a TimeoutError too), EOFError, StrataError.
        """
        number, address = self._following.followed
        if not address:
            self._told("")  # that no master is followed is said elsewhere
            return
        if number != self._had.connection:
            self._had = _Had(number)
        facts = await self._own.facts()
        news = await fetch(address, Ask(facts.broker_name, self._wanted()))
        generation = (await self._own.facts()).generation
        if self._following.followed != (number, address) or news.generation != generation:
            # It is not the master's any more, or not yet: what it says may be old.
            return
        self._told(news.sentence)
        documents = dict(news.documents)
        if self._had.queues_waiting is not None:
            documents[Kind.QUEUE_OFFSETS] = self._had.queues_waiting
        for kind in Kind:
            if kind in documents:
                await self._take(kind, documents[kind], generation)

    def _wanted(self) -> dict[int, bytes]:
        kinds = [kind for kind in Kind if kind is not Kind.QUEUE_OFFSETS]
        wanted: dict[int, bytes] = {kind: self._had.digests.get(kind, NO_DIGEST) for kind in kinds}
        if not self._had.queues_taken and self._had.queues_waiting is None:
            wanted[Kind.QUEUE_OFFSETS] = NO_DIGEST
        return wanted

    async def _take(self, kind: Kind, document: bytes, generation: int) -> None:
        try:
            await self._owners.take(kind, document, generation)
        except NotWritableError as error:
            if error.fields.get("reason") != "behind":
                raise
            self._had.queues_waiting = document
            return
        except UnavailableError as error:
            self._told(f"{kind.name}: {error.message}")
            return
        self._had.digests[kind] = digest_of(document)
        if kind is Kind.QUEUE_OFFSETS:
            self._had.queues_taken, self._had.queues_waiting = True, None
        metrics.METADATA.labels(kind.name).inc()

    def _told(self, problem: str) -> None:
        if problem and problem != self._following.metadata_problem:
            log.warning("metadata is not up to date", extra={"reason": problem})
        self._following.metadata_problem = problem
