"""Locks of queues of consumers in order (41, 42): `spec/remoting.md` 7.

The delivery service has them, for all gateways of the broker. While it does not answer, a gateway
goes on with those that it has seen granted; what it does not know it treats as a process that has
just begun does (`stratamq.service.queue_locks`).
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from logging import getLogger

from stratamq.errors import NotWritableError, UnavailableError
from stratamq.files.port import Clock
from stratamq.formats.log_state import LogState
from stratamq.rpc.endpoints import Channels
from stratamq.service.classic_calls import lock_queues
from stratamq.service.queue_locks import STOPS_S, Locked, QueueLocks, QueueName

log = getLogger(__name__)

_PAIR = re.compile(r"(\{[^{}]*\})\s*:\s*(\{[^{}]*\})")


class BrokerLocks:
    """Belongs to the event loop."""

    def __init__(
        self,
        channels: Channels,
        clock: Clock,
        look: Callable[[], Awaitable[LogState]],
        state: LogState,
    ) -> None:
        """`look`: at the broker's log, while this process has the locks; `state` is it now."""
        self._channels = channels
        self._look = look
        self.own = QueueLocks(clock)
        self.own.settle(state)
        self._is_shared = False

    async def lock(
        self, group: str, client_id: str, queues: Sequence[QueueName], *, kept: bool = False
    ) -> Locked:
        """The same as of `QueueLocks`. NotWritableError on a slave."""
        try:
            locked = await lock_queues(self._channels, group, client_id, queues, kept=kept)
            self._is_shared = True
            self.own.learn(group, client_id, queues, locked.granted)
            return locked
        except UnavailableError as error:
            self._go_alone(error)
        state = await self._look()
        if not state.is_master:
            raise NotWritableError("queues are locked at the master", "role")
        self.own.settle(state)
        return self.own.lock(group, client_id, queues, kept=kept)

    async def unlock(self, group: str, client_id: str, queues: Sequence[QueueName]) -> None:
        try:
            await lock_queues(self._channels, group, client_id, queues, unlock=True)
            self.own.learn(group, client_id, queues, ())
        except UnavailableError as error:
            self._go_alone(error)
            self.own.unlock(group, client_id, queues)

    def _go_alone(self, error: UnavailableError) -> None:
        if self._is_shared:
            self._is_shared = False
            self.own.begin_again()
            log.warning("queues are locked here, for this gateway", extra={"why": error})


def locked_queues(running_info: bytes, now_ms: int) -> Iterator[QueueName]:
    """Which locks a client says that it has, in its answer to 307. Its `mqTable` is no JSON: the
    keys are objects. When it got a lock it says by its own clock."""
    for key, value in _PAIR.findall(running_info.decode(errors="replace")):
        try:
            queue, said = json.loads(key), json.loads(value)
            name = QueueName(str(queue["brokerName"]), str(queue["topic"]), int(queue["queueId"]))
            is_held = said["locked"] is True
            age_ms = now_ms - int(said["lastLockTimestamp"])
        except (ValueError, TypeError, KeyError, OverflowError):
            continue
        if is_held and age_ms <= STOPS_S * 1_000:
            yield name
