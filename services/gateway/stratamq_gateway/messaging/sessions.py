"""What the gateway knows of each client: its settings, the streams on which it is told something,
and the connections with which the broker's services are called for it. `spec/gateway.md` 5.

All of it is in memory. A client sends its settings again when its Telemetry stream breaks.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from functools import lru_cache
from itertools import islice, takewhile
from logging import getLogger

from google.protobuf.duration_pb2 import Duration

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client.group_receipts import GroupSettings, group_settings, renew_lease
from stratamq.errors import BusyError, StrataError
from stratamq.files.port import Clock
from stratamq.service.caller import Caller
from stratamq.service.front import Front, FrontClient
from stratamq_gateway.group_rules import settings_of
from stratamq_gateway.messaging.messages import (
    MAX_BODY_BYTES,
    NO_LITE_TOPICS,
    group_name,
    topic_name,
)
from stratamq_gateway.messaging.statuses import RefusedError, status
from stratamq_gateway.messaging.topics import QueueCounts

log = getLogger(__name__)

MAX_SESSIONS = 10_000
MAX_UNTOLD = 1_000
"""Commands that wait for one client to read them."""
IDLE_S = 120
LOOKED_AT_ONCE = 1_000
"""Sessions of which one step of the loop asks whether their clients are gone."""
SEEN_STEP_NS = 1_000_000_000
"""When a client was heard of is known to a second."""
RECONNECT_S = 5
"""A client whose Telemetry stream is gone for longer is dead; others open a new one after 1 s."""
MAX_ATTEMPTS_OF_SENDS = 3
RECEIVE_BATCH = 32
POLL_S = 20
LEASE_S = 30
"""Clients say every 10 s that they live."""
_LONGEST_BACKOFF_S, _LONGEST_FIFO_BACKOFF_S = 7_200, 30

Key = tuple[str, Caller]


@lru_cache(maxsize=4096)
def _key(client_id: str, caller: Caller) -> Key:
    """A client has several connections, each from a port of its own."""
    return client_id, caller._replace(port=0)


class CallersClients:
    """A client of the broker's services for each caller, a user at a host, however many of its
    programs are connected: what they send at one moment leaves in one batch. Belongs to the event
    loop."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._clients: dict[Caller, FrontClient] = {}
        self._users: Counter[Caller] = Counter()

    def take(self, caller: Caller) -> FrontClient:
        """To be given back."""
        self._users[caller] += 1
        if caller not in self._clients:
            self._clients[caller] = self._front.client(caller)
        return self._clients[caller]

    async def give_back(self, caller: Caller) -> None:
        self._users[caller] -= 1
        if not self._users[caller]:
            del self._users[caller]
            await self._clients.pop(caller).close()


class ClientSession:
    """One client, as one user from one host; with it, a call of the client is open. Belongs to the
    event loop."""

    def __init__(self, client_id: str, caller: Caller, clients: CallersClients) -> None:
        self.client_id = client_id
        self.client = clients.take(caller)
        self.queues = QueueCounts(self.client)
        self._caller = caller
        self._clients = clients
        self.seen_ns = 0
        self.calls = 0
        """Calls and streams that are open."""
        self.producer_of: frozenset[str] = frozenset()
        """Topics of which it is asked what became of its transactions."""
        self.leased_of: set[str] = set()
        """Groups of which it was given messages that are hidden as long as it lives."""
        self.ended_ns = 0
        """When its Telemetry stream ended; 0: it has one, or never had."""
        self.polling: Duration | None = None
        """How long its receives wait that do not say it, as Go's. None: nor do its settings."""
        self._untold: asyncio.Queue[pb.TelemetryCommand | None] | None = None

    @property
    def key(self) -> Key:
        return self.client_id, self._caller

    def __enter__(self) -> "ClientSession":
        self.calls += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.calls -= 1

    # --- its Telemetry stream: the newest one ---

    def begin_telling(self) -> "asyncio.Queue[pb.TelemetryCommand | None]":
        """What the client is told comes out of the queue; None: there is a newer stream."""
        self.end_telling()
        self.ended_ns = 0
        self._untold = asyncio.Queue()
        return self._untold

    def end_telling(self) -> None:
        if self._untold is not None:
            self._untold.put_nowait(None)
            self._untold = None

    def ended(self, stream: "asyncio.Queue[pb.TelemetryCommand | None]", now_ns: int) -> None:
        if self._untold is stream:
            self._untold, self.ended_ns = None, now_ns
            self.producer_of = frozenset()  # it says them again on its next stream

    def tell(self, command: pb.TelemetryCommand) -> bool:
        """Whether the client will be told, if it reads its stream."""
        if self._untold is None or self._untold.qsize() >= MAX_UNTOLD:
            return False
        self._untold.put_nowait(command)
        return True

    @property
    def is_told(self) -> bool:
        return self._untold is not None

    # --- its settings ---

    async def settle(self, given: pb.Settings) -> pb.TelemetryCommand:
        """The client's settings with what the broker decides. RefusedError."""
        if given.client_type in (pb.LITE_PUSH_CONSUMER, pb.LITE_SIMPLE_CONSUMER):
            raise RefusedError(pb.BAD_REQUEST, NO_LITE_TOPICS)
        settings = pb.Settings()
        settings.CopyFrom(given)
        settings.metric.on = False
        backoff = settings.backoff_policy
        kind = given.WhichOneof("pub_sub")
        if kind == "publishing":
            self.producer_of = frozenset(topic_name(one) for one in given.publishing.topics)
            settings.publishing.max_body_size = MAX_BODY_BYTES
            settings.publishing.validate_message_type = True
            backoff.max_attempts = MAX_ATTEMPTS_OF_SENDS
            _exponential(backoff, 0.01, 1, 2)
        elif kind == "subscription":
            group = await self._settings_of(group_name(given.subscription.group))
            subscription = settings.subscription
            if given.subscription.HasField("long_polling_timeout"):
                self.polling = given.subscription.long_polling_timeout
            subscription.fifo = group.ordered
            subscription.long_polling_timeout.seconds = POLL_S
            go = given.user_agent.language == pb.GOLANG
            # Go's push consumer does not wait with the rest of a batch for a message that failed.
            subscription.receive_batch_size = 1 if group.ordered and go else RECEIVE_BATCH
            backoff.max_attempts = group.retries + 1
            if group.ordered:
                _exponential(backoff, 1, _LONGEST_FIFO_BACKOFF_S, 1.5)
            else:
                _exponential(backoff, 1, _LONGEST_BACKOFF_S, 2)
        else:
            raise RefusedError(pb.BAD_REQUEST, "settings of neither a producer nor a consumer")
        return pb.TelemetryCommand(status=status(pb.OK), settings=settings)

    async def _settings_of(self, group: str) -> GroupSettings:
        return await settings_of(group, self.client.run(group_settings(group)))

    # --- the messages that it keeps as long as it lives ---

    async def renew(self, group: str) -> None:
        await self.client.run(renew_lease(group, self.client_id, LEASE_S))

    async def end_lease(self) -> None:
        """What it has not acknowledged goes to others, once its hand-out's own time is over."""
        groups, self.leased_of = self.leased_of, set()
        for group in groups:
            await self.client.run(renew_lease(group, self.client_id, 1))

    async def close(self) -> None:
        self.end_telling()
        await self._clients.give_back(self._caller)


def _exponential(policy: pb.RetryPolicy, initial_s: float, most_s: int, factor: float) -> None:
    """The only strategy that every client understands."""
    backoff = policy.exponential_backoff
    backoff.initial.FromMilliseconds(int(initial_s * 1_000))
    backoff.max.FromSeconds(most_s)
    backoff.multiplier = factor


class Sessions:
    """Belongs to the event loop."""

    def __init__(self, front: Front, clock: Clock) -> None:
        self._clients = CallersClients(front)
        self._clock = clock
        self._sessions: dict[Key, ClientSession] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unlooked: Iterator[Key] = iter(())
        """Those that `expire` comes to next."""
        self._left: dict[Key, int] = {}
        """Clients that have said goodbye within `IDLE_S`, and when."""

    def __len__(self) -> int:
        return len(self._sessions)

    def of(self, client_id: str, caller: Caller) -> ClientSession:
        """A client that has no call open makes room for another: it is known again by its next
        call. BusyError: all have. RefusedError: the client does not name itself."""
        if not client_id.strip():
            raise RefusedError(pb.CLIENT_ID_REQUIRED, "x-mq-client-id is missing")
        key = _key(client_id, caller)
        now_ns = self._clock.monotonic_ns()
        session = self._sessions.get(key)
        if session is not None and now_ns - session.seen_ns < SEEN_STEP_NS:
            return session
        self._left.pop(key, None)
        session = self._sessions.pop(key, None)
        if session is None:
            if len(self._sessions) >= MAX_SESSIONS:
                self._make_room()
            session = ClientSession(*key, self._clients)
        self._sessions[key] = session  # the last one heard of is the last one here
        session.seen_ns = now_ns
        return session

    def has_left(self, client_id: str, caller: Caller) -> bool:
        """It has said goodbye, and called for nothing since."""
        return _key(client_id, caller) in self._left

    def _make_room(self) -> None:
        idle = next((key for key, one in self._sessions.items() if not one.calls), None)
        if idle is None:
            raise BusyError(f"{MAX_SESSIONS} clients are connected")
        self._forget(idle)

    def expire(self) -> None:
        """To be called every second. Forget clients of which nothing was heard for `IDLE_S`. Java's
        that is closed just after its stream broke opens another one all the same, and waits for
        that one's end."""
        now_ns = self._clock.monotonic_ns()
        late_ns, gone_ns = now_ns - IDLE_S * 1_000_000_000, now_ns - RECONNECT_S * 1_000_000_000
        for key in self._some():
            session = self._sessions.get(key)
            if session is None:
                continue
            if session.leased_of and 0 < session.ended_ns < gone_ns:
                self._beside(self._end_lease(session))
            if session.seen_ns < late_ns:
                session.end_telling()
                if not session.calls:
                    self._forget(key)
        for key in [*takewhile(lambda one: self._left[one] <= late_ns, self._left)]:
            del self._left[key]

    def _some(self) -> list[Key]:
        """The next `LOOKED_AT_ONCE` sessions; behind the last one the first again."""
        found = [*islice(self._unlooked, LOOKED_AT_ONCE)]
        if not found:
            self._unlooked = iter([*self._sessions])
            found = [*islice(self._unlooked, LOOKED_AT_ONCE)]
        return found

    def forget(self, session: ClientSession) -> None:
        """The client has said goodbye."""
        key = session.key
        if self._sessions.get(key) is session:
            self._forget(key)
            if len(self._left) < MAX_SESSIONS:
                self._left[key] = self._clock.monotonic_ns()

    def producers(self) -> dict[str, list[ClientSession]]:
        """Those that can be asked about transactions, by topic."""
        found: dict[str, list[ClientSession]] = {}
        for session in self._sessions.values():
            for topic in session.producer_of if session.is_told else ():
                found.setdefault(topic, []).append(session)
        return found

    def _forget(self, key: Key) -> None:
        self._beside(self._sessions.pop(key).close())

    async def _end_lease(self, session: ClientSession) -> None:
        try:
            await session.end_lease()
        except StrataError as error:
            log.info("a lease ends by itself", extra={"client": session.client_id, "why": error})

    def _beside(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for key in [*self._sessions]:
            self._forget(key)
        if self._tasks:
            await asyncio.wait(self._tasks)
