"""The brokers that a route names, and their gateways' addresses: all masters and their slaves.

Clients send messages to a master's gateway, and heartbeats also to the gateways of its slaves. So
the gateway of a promoted slave knows its consumers before their first pull.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from logging import getLogger
from typing import NamedTuple

from stratamq.client import AsyncClient, Topic
from stratamq.errors import InvalidRequestError, NotFoundError, StrataError, UnavailableError
from stratamq.files.port import Clock
from stratamq.formats.log_state import LogState
from stratamq.rpc.credentials import Credentials
from stratamq.rpc.endpoints import parse_target
from stratamq.service.front import OperationClient

log = getLogger(__name__)

RETRY_S = 0.2
LOOK_S = 0.5
ANSWER_S = 2.0
"""How long one member may take for an answer: a client waits 3 s for its route."""
LOST_MS = 2_000
"""A member that does not answer is named for so long after its last answer."""


class BrokerName(NamedTuple):
    """How clients know the broker that this gateway stands for."""

    cluster: str
    broker: str
    address: str
    """Where clients reach this gateway."""

    @property
    def reply_topic(self) -> str:
        """Clients send replies to requests there. Routes name it, and nothing is stored there."""
        return f"{self.cluster}_REPLY_TOPIC"

    def queue(self, topic: str, queue_id: int) -> dict[str, object]:
        """What RocketMQ calls a MessageQueue."""
        return {"brokerName": self.broker, "queueId": queue_id, "topic": topic}


class RoutedBroker(NamedTuple):
    """A broker that has a master now."""

    name: str
    addresses: tuple[str, ...]
    """Where its members' gateways are, the master's first."""
    client: OperationClient | None
    """Calls the master with the gateway's own rights. None: the only broker, by its caller."""
    grpc: str = ""
    """Where the master's gateway has RocketMQ 5's gRPC protocol; "": nowhere, or of the only
    broker where the client has found it."""


Topics = list[tuple[RoutedBroker, list[Topic]]]


class MemberState(NamedTuple):
    """What a member said when it was looked at."""

    at_ns: int
    broker: str
    gateway: str
    grpc: str
    is_master: bool
    term: int


class Brokers:
    """Belongs to the event loop. Without members there is one broker, whose gateway this is."""

    def __init__(
        self, where: BrokerName, members: Mapping[str, OperationClient], clock: Clock
    ) -> None:
        """`members`: a client of each, this gateway's broker among them, by its address."""
        self._alone = RoutedBroker(where.broker, (where.address,), None)
        self._members = members
        self._clock = clock
        self._seen: dict[str, MemberState] = {}

    async def start(self, spawn: Callable[[Coroutine[None, None, None]], object]) -> None:
        """Look at each member, and go on as long as the tasks of `spawn` run."""
        await self.look()
        for address in self._members:
            spawn(self._watch(address))

    async def look(self) -> None:
        """Look at each member once."""
        await asyncio.gather(*map(self._look, self._members))

    async def _watch(self, address: str) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look(address)

    async def _look(self, address: str) -> None:
        client = self._members[address]
        try:
            state = await client.log_state()
            gateway = await client.admin.gateway_state()
        except StrataError as error:
            if address in self._seen and self._is_lost(self._seen[address]):
                del self._seen[address]
                log.warning("left out of routes", extra={"member": address, "why": error})
            return
        now_ns = self._clock.monotonic_ns()
        where = gateway.advertised_address, gateway.grpc_advertised_address
        seen = MemberState(now_ns, state.broker_name, *where, state.is_master, state.term)
        self._seen[address] = seen

    def _is_lost(self, seen: MemberState) -> bool:
        return self._clock.monotonic_ns() - seen.at_ns > LOST_MS * 1_000_000

    def now(self) -> list[RoutedBroker]:
        """Those that have a master, by name. UnavailableError: none has."""
        if not self._members:
            return [self._alone]
        seen = {at: one for at, one in self._seen.items() if not self._is_lost(one)}
        found = []
        for name in sorted({one.broker for one in seen.values()}):
            of_name = {at: one for at, one in seen.items() if one.broker == name}
            masters = [at for at, one in of_name.items() if one.is_master]
            if masters:
                master = max(masters, key=lambda at: of_name[at].term)
                slaves = [one.gateway for at, one in sorted(of_name.items()) if at != master]
                addresses = (of_name[master].gateway, *slaves)
                grpc = of_name[master].grpc
                found.append(RoutedBroker(name, addresses, self._members[master], grpc))
        if not found:
            raise UnavailableError("no broker of the cluster has a master")
        return found

    def named(self, name: str) -> RoutedBroker:
        """NotFoundError: it is not the only broker. UnavailableError: it has no master now."""
        for one in self.now():
            if one.name == name:
                return one
        if not self._members:
            raise NotFoundError(f"there is no broker {name[:200]} here")
        raise UnavailableError(f"the cluster knows no master of broker {name[:200]} now")

    async def topics(self, client: AsyncClient, name: str = "") -> Topics:
        """The topics of each broker, or the one topic that is asked for where it is. A broker that
        does not answer is left out. UnavailableError: none answers."""
        brokers = self.now()
        asked = (topics_named(one.client or client, name) for one in brokers)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found = []
        for broker, answer in zip(brokers, answers, strict=True):
            if isinstance(answer, list):
                found.append((broker, answer))
            elif len(brokers) == 1 or not isinstance(answer, UnavailableError):
                raise answer
        if not found:
            raise UnavailableError("no broker of the cluster answers")
        return found

    async def close(self) -> None:
        for client in self._members.values():
            await client.close()


def members_at(addresses: Iterable[str], credentials: Credentials) -> dict[str, OperationClient]:
    """A client of each member."""
    return {
        one: OperationClient(parse_target(one, credentials=credentials), timeout_s=ANSWER_S)
        for one in addresses
    }


async def topics_named(client: AsyncClient, name: str) -> list[Topic]:
    """All topics, if the name is empty."""
    try:
        return await client.topics(name) if name else await client.topics()
    except (NotFoundError, InvalidRequestError):
        return []


def order_of(found: Topics) -> dict[str, str]:
    """The places of the topics that are ordered."""
    ordered = {one.name for _, topics in found for one in topics if one.ordered}
    return {name: there for name, there in places_of(found).items() if name in ordered}


def places_of(found: Topics) -> dict[str, str]:
    """How many queues each broker has, `broker:queues;…`, by topic."""
    places: dict[str, list[str]] = {}
    for broker, topics in found:
        for one in topics:
            places.setdefault(one.name, []).append(f"{broker.name}:{one.write_queue_count}")
    return {name: ";".join(there) for name, there in places.items()}


async def first_state(own: AsyncClient) -> LogState:
    """Wait for the log."""
    while True:
        try:
            return await own.log_state()
        except UnavailableError:
            await asyncio.sleep(RETRY_S)
