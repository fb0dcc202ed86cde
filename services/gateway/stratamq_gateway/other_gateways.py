"""Consumers at the broker's other gateways, by way of the delivery service (decision 106).

    here ── joined, changed, left ──► delivery ──► each other gateway's `ConnectedClients`

One stream, on which each side says everything once, and then what changes. Without it, as when the
delivery service restarts, the others' last known consumers are members for `KEPT_S`; once it is
back, those that were not said again within `RETURN_S` have left.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from logging import getLogger
from typing import Any, NamedTuple

from stratamq.errors import BusyError, StrataError, UnavailableError
from stratamq.files.port import Clock, Random
from stratamq.rpc.backoff import Backoff
from stratamq.rpc.endpoints import Channels
from stratamq.service.classic_calls import (
    BEAT_S,
    ClassicMember,
    ClassicSubscription,
    MemberChange,
    SharedMembers,
    renew_after,
)
from stratamq_gateway.config import GatewayConfig
from stratamq_gateway.elsewhere import ClientsElsewhere
from stratamq_gateway.frames import Command
from stratamq_gateway.members import DETAILS, ConnectedClients, Consumer, subscription

log = getLogger(__name__)

KEPT_S = 60.0
RETURN_S = 10.0
"""Many times what a gateway needs to open its stream again."""
BATCH = 32
"""Members that are worked on before others get a turn: less than a millisecond."""

LONGEST_LANGUAGE, LARGEST_VERSION = 32, 0x7FFF_FFFF
"""A client says what it likes."""

Asked = Callable[[int, Mapping[str, object], bytes], Awaitable[Command]]
Place = tuple[int, str, str]
"""Gateway, group, client id."""


class Elsewhere(NamedTuple):
    """A client's connection at another gateway, which tells its clients what is new."""

    language: str
    version: int
    address: str
    asked: Asked

    def notify(self, code: int, fields: dict[str, object], body: bytes = b"") -> None:
        pass

    async def ask(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> Command:
        return await self.asked(code, fields, body)


class OtherGateways:
    """Belongs to the event loop."""

    def __init__(
        self,
        channels: Channels,
        config: GatewayConfig,
        members: ConnectedClients,
        clock: Clock,
        random: Random,
    ) -> None:
        self._channels = channels
        self._members = members
        self.clients = ClientsElsewhere(channels, config)
        self.number = random.getrandbits(62)
        """Tells this process from others, and from an earlier one."""
        self._backoff = Backoff(None, clock, random)
        self._known: dict[Place, int] = {}
        """In which session each consumer was said last."""
        self._session = 0
        self._is_heard = False
        self._forgetting: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._exchange()
            except StrataError as error:
                if self._is_heard:
                    self._is_heard = False
                    log.warning("the broker's other gateways are not heard", extra={"why": error})
                    self._forget_later(KEPT_S, self._session + 1)
                renew_after(self._channels, error)
                busy_s = error.retry_after_ms / 1000 if isinstance(error, BusyError) else 0.0
            await asyncio.sleep(max(busy_s, self._backoff.next_delay_s() or 0.0))

    async def _exchange(self) -> None:
        """One stream from its opening to its end. StrataError: why it has ended."""
        stream = await SharedMembers.begin(self._channels)
        saying = asyncio.create_task(self._say(stream))
        try:
            while True:
                changes = await stream.read()
                if not self._is_heard:
                    self._is_heard = True
                    self._session += 1
                    self._backoff.reset()
                    self._forget_later(RETURN_S, self._session)
                self.take(changes)
                if stream.told_all:
                    self.clients.told_all.set()
                await asyncio.sleep(0)
        finally:
            saying.cancel()
            stream.end()
            await asyncio.wait([saying])

    async def _say(self, stream: SharedMembers) -> None:
        """What is here, and then what changes."""
        members = self._members
        members.says_news = True
        unsaid = members.here()
        try:
            while True:
                for some in _batches(unsaid) or [[]]:
                    await stream.say([self._change(*one) for one in some])
                    await asyncio.sleep(0)
                with suppress(TimeoutError):
                    async with asyncio.timeout(BEAT_S):
                        await members.has_unsaid.wait()
                members.has_unsaid.clear()
                unsaid = list(members.unsaid)
                members.unsaid.clear()
        except UnavailableError:
            return  # `read` says why
        finally:
            members.says_news = False
            members.unsaid.clear()

    def _change(self, group: str, client_id: str) -> MemberChange:
        consumer = self._members.consumer_here(group, client_id)
        said = None if consumer is None else _said(consumer)
        return MemberChange(self.number, group, client_id, said)

    def take(self, changes: Iterable[MemberChange]) -> None:
        """What has changed at the others."""
        for gateway, group, client_id, member in changes:
            place = (gateway, group, client_id)
            if gateway == self.number:
                continue  # of an earlier stream
            if member is not None:
                self._known[place] = self._session
                asked = partial(self.clients.ask, group, client_id)
                self._members.beat_elsewhere(gateway, group, _consumer(client_id, member, asked))
            elif self._known.pop(place, None) is not None:
                self._members.left_elsewhere(*place)

    def _forget_later(self, after_s: float, session: int) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = asyncio.create_task(self._forget(after_s, session))

    async def _forget(self, after_s: float, session: int) -> None:
        """Consumers that were not said in this session or a later one have left."""
        await asyncio.sleep(after_s)
        for some in _batches([place for place, last in self._known.items() if last < session]):
            for place in some:
                if self._known.get(place, session) < session:
                    del self._known[place]
                    self._members.left_elsewhere(*place)
            await asyncio.sleep(0)


def _batches(places: list[Any]) -> list[list[Any]]:
    return [places[at : at + BATCH] for at in range(0, len(places), BATCH)]


def _said(consumer: Consumer) -> ClassicMember:
    channel = consumer.channel
    return ClassicMember(
        channel.address,
        channel.language[:LONGEST_LANGUAGE],
        channel.version & LARGEST_VERSION,
        *(consumer.named(detail) or "" for detail in DETAILS),
        consumer.since_ms,
        tuple(
            ClassicSubscription(one.topic, one.expression, one.kind, one.version)
            for one in consumer.subscriptions
        ),
    )


def _consumer(client_id: str, said: ClassicMember, asked: Asked) -> Consumer:
    named = (said.consume_type, said.message_model, said.consume_from_where)
    return Consumer(
        client_id,
        Elsewhere(said.language, said.version, said.address, asked),
        0,
        dict(zip(DETAILS, named, strict=True)),
        tuple(
            subscription(one.topic, one.expression, one.kind, one.version)
            for one in said.subscriptions
        ),
        said.since_ms,
    )
