"""Which client of a group works on a queue in order, as RocketMQ's classic clients ask for it (41,
42): `spec/remoting.md` 7.

A client asks for its locks every 20 s, and stops working on a queue whose lock it did not get for
`STOPS_S`. The locks are in memory. So those of a table that has just begun, or whose broker has
just become the master, were lost: until all clients have stopped or asked again, a queue is only
given to the client that shows that it has its lock, or in which its group has read nothing yet.

The delivery service has the table. A gateway has one beside it for the time in which that service
does not answer.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from stratamq.files.port import Clock
from stratamq.formats.log_state import LogState, Role

LOCK_S = 60
STOPS_S = 30
EXPIRE_S = 10


class QueueName(NamedTuple):
    broker: str
    topic: str
    queue_id: int


class Locked(NamedTuple):
    granted: list[QueueName]
    """Which of the queues the client has now."""
    unknown: list[QueueName]
    """Those whose locks may have been lost: for `kept`."""


class QueueLocks:
    """Belongs to the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ns = clock.monotonic_ns()
        self._reign: tuple[Role | None, int] | None = None
        self._groups: dict[str, dict[QueueName, tuple[str, int]]] = {}
        """Who has the queue, since when; "": it was let go."""
        self._expired_ns = self._began_ns

    def settle(self, state: LogState) -> None:
        """The broker's log is so now. Locks of its earlier time as the master count no more: there
        was another one since."""
        reign = state.role, state.term
        if self._reign not in (None, reign):
            self._began_ns, self._groups = self._clock.monotonic_ns(), {}
        self._reign = reign

    @property
    def is_new(self) -> bool:
        """Whether clients may work on queues whose locks are not here."""
        return self._clock.monotonic_ns() - self._began_ns <= STOPS_S * 1_000_000_000

    def begin_again(self) -> None:
        """Others may have got locks elsewhere since: those of clients that have theirs count on,
        and what is not here is as new as at the start."""
        self.expire()
        self._began_ns = self._clock.monotonic_ns()

    def lock(
        self, group: str, client_id: str, queues: Iterable[QueueName], *, kept: bool = False
    ) -> Locked:
        """`kept`: the client has shown that it may have them while the locks are new."""
        if self._clock.monotonic_ns() - self._expired_ns > EXPIRE_S * 1_000_000_000:
            self.expire()
        locks = self._groups.setdefault(group, {})
        now_ns, is_new = self._clock.monotonic_ns(), self.is_new
        granted, unknown = [], []
        for queue in queues:
            if is_new and queue not in locks and not kept:
                unknown.append(queue)
                continue
            holder, since_ns = locks.get(queue, ("", 0))
            if holder in ("", client_id) or now_ns - since_ns > LOCK_S * 1_000_000_000:
                locks[queue] = (client_id, now_ns)
                granted.append(queue)
        return Locked(granted, unknown)

    def learn(
        self,
        group: str,
        client_id: str,
        queues: Iterable[QueueName],
        granted: Collection[QueueName],
    ) -> None:
        """What another table has decided about a client's request."""
        locks = self._groups.setdefault(group, {})
        now_ns, has = self._clock.monotonic_ns(), set(granted)
        for queue in queues:
            if queue in has:
                locks[queue] = (client_id, now_ns)
            elif locks.get(queue, ("", 0))[0] == client_id:
                del locks[queue]

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueName]) -> None:
        locks = self._groups.get(group, {})
        now_ns = self._clock.monotonic_ns()
        for queue in queues:
            if locks.get(queue, ("", 0))[0] == client_id:
                locks[queue] = ("", now_ns)

    def expire(self) -> None:
        """Forget locks that were not refreshed."""
        self._expired_ns = self._clock.monotonic_ns()
        oldest_ns = self._expired_ns - LOCK_S * 1_000_000_000
        for name, locks in list(self._groups.items()):
            for queue in [queue for queue, (_, since_ns) in locks.items() if since_ns < oldest_ns]:
                del locks[queue]
            if not locks:
                del self._groups[name]
