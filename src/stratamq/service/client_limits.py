"""Limits for each client of a service, so that a slow or hostile one does not affect others: the
settings `[limits]`.

    connections       bounded for each listener; one without calls is closed
    open calls        and streams among them: a further one is refused (BusyError)
    requests          read once their caller is known, RECEIVED_AT_ONCE at a time; one that is not
                      there after RECEIVE_S is refused (UnavailableError)
    calls a second    a further one is refused with the time after which it is taken (BusyError)
    bytes a second    of requests and answers: streams are slowed down, calls refused
    bytes in flight   of responses that it has not read: a further one is refused (BusyError)

A client is the calling user, or its host where authentication is disabled. Processes on this
machine (Unix sockets) and members of the cluster have no limits. Where authentication is disabled,
clients on loopback may have any number of open calls: they are many clients with one host.
"""

import asyncio
import logging
import resource
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from stratamq.errors import BusyError, UnavailableError
from stratamq.service.caller import Caller, is_loopback
from stratamq.service.config import setting

SECTION = "limits"
RECEIVED_AT_ONCE = 16
"""Requests of a client that are being read. One takes as much memory as the largest message."""
RECEIVE_S = 60.0
MAX_CLIENTS = 16_384
"""Clients that are remembered; idle ones are forgotten first."""
MAX_DESCRIPTORS = 1 << 20
_SECOND_NS = 1_000_000_000
_OPEN_AGAIN_MS = 1_000

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LimitsConfig:
    """Limits for clients, the same for every service of a broker."""

    connections: int = setting(
        10_000,
        unit="",
        minimum=16,
        maximum=1 << 20,
        doc="Open connections of each listener; at most a quarter of the file descriptors that the "
        "process may have.",
    )
    connection_idle_ms: int = setting(
        300_000,
        unit="ms",
        minimum=1_000,
        maximum=86_400_000,
        doc="Time after which a connection without an open call is closed; a client's next call "
        "opens another.",
    )
    open_calls: int = setting(
        1_024,
        unit="",
        minimum=1,
        maximum=1 << 20,
        doc="Open calls and streams of one client.",
    )
    streams: int = setting(
        256, unit="", minimum=1, maximum=1 << 20, doc="Open streams of one client."
    )
    calls_per_second: int = setting(
        0, unit="", minimum=0, maximum=1 << 30, doc="Calls per second of one client; 0: unlimited."
    )
    bytes_per_second: int = setting(
        0,
        unit="bytes",
        minimum=0,
        maximum=1 << 40,
        doc="Bytes per second of one client's requests and responses; 0: unlimited.",
    )
    bytes_in_flight: int = setting(
        128 << 20,
        unit="bytes",
        minimum=8 << 20,
        maximum=1 << 40,
        doc="Bytes of responses that one client has requested and not yet read.",
    )

    def channel_options(self) -> list[tuple[str, Any]]:
        """Return the options of the gRPC server."""
        descriptors = raise_descriptor_limit()
        return [
            ("grpc.max_allowed_incoming_connections", min(self.connections, descriptors // 4)),
            ("grpc.max_connection_idle_ms", self.connection_idle_ms),
        ]


def raise_descriptor_limit() -> int:
    """Raise the limit of file descriptors as far as the system allows; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


class Rate:
    """So much a second, and what a second saved up."""

    __slots__ = ("_each_ns", "_spent_until_ns")

    def __init__(self, per_second: int) -> None:
        self._each_ns = _SECOND_NS / per_second
        self._spent_until_ns = 0.0

    def debt_s(self, now_ns: int) -> float:
        """How long nothing may be spent."""
        return max(0.0, self._spent_until_ns - now_ns) / _SECOND_NS

    def spend(self, amount: int, now_ns: int) -> None:
        saved_from = now_ns - _SECOND_NS
        self._spent_until_ns = max(self._spent_until_ns, saved_from) + amount * self._each_ns


class Client:
    """What one client uses now. Belongs to the event loop."""

    __slots__ = (
        "_bytes", "_calls", "_counted", "_limits", "_receiving", "_waiting", "calls", "in_flight",
        "streams",
    )  # fmt: skip

    def __init__(self, limits: "ClientLimits", *, counted: bool = True) -> None:
        """Not `counted`: any number of calls and streams may be open."""
        config = limits.config
        self._limits = limits
        self._counted = counted
        self.calls = self.streams = 0
        self.in_flight = 0
        """Bytes of answers that were made and are not with the client."""
        self._receiving = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._calls = Rate(config.calls_per_second) if config.calls_per_second else None
        self._bytes = Rate(config.bytes_per_second) if config.bytes_per_second else None

    @property
    def counts_bytes(self) -> bool:
        return self._bytes is not None

    def begin(self, *, stream: bool) -> None:
        """A call; `end` ends it. BusyError."""
        config = self._limits.config
        if self._counted and self.calls >= config.open_calls:
            raise self._limits.exceeded("open_calls", config.open_calls, _OPEN_AGAIN_MS)
        if self._counted and stream and self.streams >= config.streams:
            raise self._limits.exceeded("streams", config.streams, _OPEN_AGAIN_MS)
        if self._calls is not None or self._bytes is not None:
            self._require_rates(stream=stream)
        self.calls += 1
        self.streams += stream

    def _require_rates(self, *, stream: bool) -> None:
        now_ns, config = self._limits.now_ns(), self._limits.config
        if self._calls is not None:
            debt_s = self._calls.debt_s(now_ns)
            if debt_s:
                raise self._limits.exceeded(
                    "calls_per_second", config.calls_per_second, _milliseconds(debt_s)
                )
            self._calls.spend(1, now_ns)
        if self._bytes is not None and not stream:
            debt_s = self._bytes.debt_s(now_ns)
            if debt_s:
                raise self._limits.exceeded(
                    "bytes_per_second", config.bytes_per_second, _milliseconds(debt_s)
                )

    def end(self, *, stream: bool) -> None:
        self.calls -= 1
        self.streams -= stream

    def require_room(self) -> None:
        """BusyError while the client has to take answers first."""
        most = self._limits.config.bytes_in_flight
        if self.in_flight >= most:
            raise self._limits.exceeded("bytes_in_flight", most, _OPEN_AGAIN_MS)

    def spares(self, size: int) -> bool:
        """Whether an answer of so many bytes leaves half of what may be in flight to others."""
        return 2 * (self.in_flight + size) <= self._limits.config.bytes_in_flight

    def hold(self, size: int, *, refusable: bool = True) -> None:
        """An answer of so many bytes is there; `let_go` when the client has it. One always fits.
        BusyError if it is `refusable`: the answer of what was done is not."""
        most = self._limits.config.bytes_in_flight
        if refusable and self.in_flight and self.in_flight + size > most:
            raise self._limits.exceeded("bytes_in_flight", most, _OPEN_AGAIN_MS)
        self.in_flight += size

    def let_go(self, size: int) -> None:
        self.in_flight -= size

    async def receive(self, read: Callable[[], Awaitable[Any]]) -> Any:
        """What `read` gives, in turn. UnavailableError when it is not there in time."""
        with self._limits.in_time():
            if self._receiving >= RECEIVED_AT_ONCE:
                await self._turn()
            else:
                self._receiving += 1
            try:
                return await read()
            finally:
                self._hand_on()

    async def _turn(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._hand_on()
            raise

    def _hand_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._receiving -= 1

    def spend_bytes(self, size: int) -> float:
        """How long the client has to wait before its next ones."""
        if self._bytes is None:
            return 0.0
        now_ns = self._limits.now_ns()
        self._bytes.spend(size, now_ns)
        return self._bytes.debt_s(now_ns)


class ClientLimits:
    """The limits of all clients of one service."""

    def __init__(self, config: LimitsConfig, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.config = config
        self.now_ns = now_ns
        self._clients: dict[str, Client] = {}
        self._second = -1
        self._begun: dict[asyncio.Task[Any], int] = {}
        """Calls whose requests are not there yet, the oldest first, and since when."""
        self._overdue: set[asyncio.Task[Any]] = set()
        self._looking = False

    def client(self, caller: Caller, *, authenticates: bool) -> Client | None:
        """What the caller uses; None: it has no limits. `authenticates`: whether the service knows
        users by their names."""
        if caller.trusted or not caller.host:
            return None
        if caller.name:
            return self.of(f"user {caller.name}")
        return self.of(caller.host, counted=authenticates or not is_loopback(caller.host))

    def of(self, name: str, *, counted: bool = True) -> Client:
        found = self._clients.get(name)
        if found is None:
            if len(self._clients) >= MAX_CLIENTS:
                self._clients = {key: one for key, one in self._clients.items() if one.calls}
            found = self._clients[name] = Client(self, counted=counted)
        return found

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """UnavailableError when what is done within takes longer than RECEIVE_S. One timer for all:
        one for each call would cost more than the call's own work."""
        task = asyncio.current_task()
        assert task is not None
        self._begun[task] = self.now_ns()
        if not self._looking:
            self._look_again()
        try:
            yield
        except asyncio.CancelledError:
            if task not in self._overdue:
                raise
            task.uncancel()
            raise UnavailableError(f"the request was not there within {RECEIVE_S:.0f} s") from None
        finally:
            self._overdue.discard(task)
            self._begun.pop(task, None)

    def _look_again(self) -> None:
        self._looking = True
        asyncio.get_running_loop().call_later(RECEIVE_S / 8, self._look)

    def _look(self) -> None:
        self._looking = False
        before_ns = self.now_ns() - RECEIVE_S * _SECOND_NS
        for task in list(takewhile(lambda one: self._begun[one] < before_ns, self._begun)):
            del self._begun[task]
            self._overdue.add(task)
            task.cancel()
        if self._begun:
            self._look_again()

    def exceeded(self, limit: str, value: int, retry_after_ms: int) -> BusyError:
        """The error, of which one a second is in the log."""
        second = self.now_ns() // _SECOND_NS
        if second != self._second:
            self._second = second
            log.warning("a client was refused", extra={"limit": f"{SECTION}.{limit}", "is": value})
        return BusyError(f"{SECTION}.{limit} is {value} for a client", retry_after_ms)


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1_000) + 1
