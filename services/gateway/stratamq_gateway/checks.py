"""Asks connected producers what became of their transactions. `spec/remoting.md` 9,
`spec/gateway.md` 7.7."""

import asyncio
from collections.abc import Callable, Collection
from logging import getLogger

from stratamq.client import AsyncClient
from stratamq.client.received import ReceivedMessage
from stratamq.errors import StrataError
from stratamq.formats.properties import UNIQ_KEY
from stratamq.formats.topics import HALF_TOPIC
from stratamq_gateway.codes import RequestCode
from stratamq_gateway.members import ConnectedClients

log = getLogger(__name__)

INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
"""The group of every Java client's own producer."""
MAX_GROUPS = 1_000
RETRY_S = 1.0


class Checks:
    """A stream of checks for each producer group that has a connection. Belongs to the event
    loop."""

    def __init__(
        self,
        own: AsyncClient,
        groups: Callable[[], Collection[str]],
        send: Callable[[str, ReceivedMessage, int], None],
    ) -> None:
        """`groups`: those of which a producer can be asked; `send`: asks one, for the nth time. If
        none is left, the group is asked again later."""
        self._own = own
        self._groups = groups
        self._send = send
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def look(self) -> None:
        """Begin and end streams as producers come and go."""
        here = self._groups()
        for group in [one for one in self._tasks if one not in here]:
            self._tasks.pop(group).cancel()
        for group in here:
            if group != INNER_PRODUCER and group not in self._tasks:
                if len(self._tasks) >= MAX_GROUPS:
                    log.warning("too many producer groups are connected", extra={"group": group})
                    break
                task = asyncio.get_running_loop().create_task(self._ask(group))
                self._tasks[group] = task

    async def _ask(self, group: str) -> None:
        while True:
            try:
                async for check in self._own.transaction_checks(group, ()):
                    self._send(group, check.message, check.number)
            except StrataError as error:
                log.warning("no checks", extra={"group": group, "why": error})
            await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())


def ask_member(
    members: ConnectedClients, broker: str, group: str, message: ReceivedMessage, number: int
) -> None:
    """39, to one of the group's connections."""
    channels = list(members.producers.get(group, {}).values())
    if not channels:
        return
    key = message.properties.get(UNIQ_KEY, "")
    fields: dict[str, object] = {
        "topic": HALF_TOPIC,
        "commitLogOffset": message.physical_offset,
        "tranStateTableOffset": message.queue_offset,
        "msgId": key,
        "transactionId": key,
        "offsetMsgId": message.message_id,
        "bname": broker,
    }
    channel = channels[number % len(channels)]
    channel.notify(RequestCode.CHECK_TRANSACTION_STATE, fields, message.frame)
