"""Which client of a group works on a queue in order (41, 42): `spec/remoting.md` 7.

A client asks for its locks every 20 s, and stops working on a queue whose lock it did not get for
`STOPS_S`. The locks are in memory, of this process. So those of a process that has just begun, or
whose broker has just become the master, were lost: until all clients have stopped or asked again, a
queue is only given to the client that says that it has its lock, or in which its group has read
nothing yet.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator

from stratamq.files.port import Clock
from stratamq.formats.log_state import LogState, Role

LOCK_S = 60
STOPS_S = 30
_PAIR = re.compile(r"(\{[^{}]*\})\s*:\s*(\{[^{}]*\})")

QueueName = tuple[str, str, int]
"""Broker, topic, queue id."""


class QueueLocks:
    """Belongs to the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ns = clock.monotonic_ns()
        self._reign: tuple[Role | None, int] | None = None
        self._groups: dict[str, dict[QueueName, tuple[str, int]]] = {}
        """Who has the queue, since when; "": it was let go."""

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

    def unknown(self, group: str, queues: Iterable[QueueName]) -> list[QueueName]:
        """Those that no client has asked for here."""
        locks = self._groups.get(group, {})
        return [one for one in queues if one not in locks]

    def lock(
        self,
        group: str,
        client_id: str,
        queues: Iterable[QueueName],
        kept: Collection[QueueName] = (),
    ) -> list[QueueName]:
        """Which of them the client has now. `kept`: what it may have while the locks are new."""
        locks = self._groups.setdefault(group, {})
        now_ns, is_new = self._clock.monotonic_ns(), self.is_new
        granted = []
        for queue in queues:
            if is_new and queue not in locks and queue not in kept:
                continue
            holder, since_ns = locks.get(queue, ("", 0))
            if holder in ("", client_id) or now_ns - since_ns > LOCK_S * 1_000_000_000:
                locks[queue] = (client_id, now_ns)
                granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueName]) -> None:
        locks = self._groups.get(group, {})
        now_ns = self._clock.monotonic_ns()
        for queue in queues:
            if locks.get(queue, ("", 0))[0] == client_id:
                locks[queue] = ("", now_ns)

    def expire(self) -> None:
        """Forget locks that were not refreshed."""
        oldest_ns = self._clock.monotonic_ns() - LOCK_S * 1_000_000_000
        for name, locks in list(self._groups.items()):
            for queue in [queue for queue, (_, since_ns) in locks.items() if since_ns < oldest_ns]:
                del locks[queue]
            if not locks:
                del self._groups[name]


def locked_queues(running_info: bytes, now_ms: int) -> Iterator[QueueName]:
    """Which locks a client says that it has, in its answer to 307. Its `mqTable` is no JSON: the
    keys are objects. When it got a lock it says by its own clock."""
    for key, value in _PAIR.findall(running_info.decode(errors="replace")):
        try:
            queue, said = json.loads(key), json.loads(value)
            name = (str(queue["brokerName"]), str(queue["topic"]), int(queue["queueId"]))
            is_held = said["locked"] is True
            age_ms = now_ms - int(said["lastLockTimestamp"])
        except (ValueError, TypeError, KeyError, OverflowError):
            continue
        if is_held and age_ms <= STOPS_S * 1_000:
            yield name
