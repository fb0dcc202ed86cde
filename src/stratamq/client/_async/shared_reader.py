"""A worker of a shared group. Each worker has one of its own."""

from collections import deque
from collections.abc import Sequence

from stratamq.client.checking import checked
from stratamq.client.group_receipts import HandOut, receive, settle
from stratamq.client.operations import AsyncRunOperation
from stratamq.client.received import ReceivedMessage
from stratamq.errors import StrataError

WAIT_S = 20.0
"""The limit of one call for messages; a reader asks again."""


class AsyncSharedMessage(ReceivedMessage):
    """A message that was handed to this worker alone. `attempt`: from 1 on."""

    def __init__(self, given: HandOut, reader: "AsyncSharedReader") -> None:
        super().__init__(given.message.frame)
        self.attempt = given.attempt
        self.invisible_until_ms = given.until_ms
        self.receipt = given.receipt
        self._reader = reader

    async def ack(self) -> None:
        """It is done, for good: on the disk, and on as many slaves as the broker waits for.
        ExpiredReceiptError when its time was over, and another worker may have it."""
        await self._reader.ack([self])

    async def nack(self, delay_s: float = 0) -> None:
        """Hand it out again after `delay_s`; 0: after RocketMQ's time for the attempt."""
        await self._reader.nack([self], delay_s)

    async def hide(self, invisible_s: float) -> None:
        """Keep it for so long from now on."""
        await self._reader.hide([self], invisible_s)


@checked
class AsyncSharedReader:
    """Iterates over the messages that this worker gets, one after the other, and waits for more.
    A message that is not acknowledged in its time goes to another worker. When the reader is
    closed, what it has received and not given out goes to the others at once."""

    def __init__(
        self,
        run: AsyncRunOperation,
        topic: str,
        group: str,
        client_id: str,
        batch: int,
        invisible_s: float,
    ) -> None:
        self._run = run
        self._topic = topic
        self._group = group
        self._client_id = client_id
        self._batch = batch
        self._invisible_s = invisible_s
        self._waiting: deque[AsyncSharedMessage] = deque()

    async def receive(
        self, max_messages: int = 0, wait_s: float = WAIT_S
    ) -> "list[AsyncSharedMessage]":
        """Messages for this worker; none, if none came in `wait_s`."""
        operation = receive(
            self._topic,
            self._group,
            self._client_id,
            max_messages or self._batch,
            self._invisible_s,
            wait_s,
        )
        return [AsyncSharedMessage(one, self) for one in await self._run(operation)]

    async def ack(self, messages: "Sequence[AsyncSharedMessage]") -> None:
        """In one call; see `AsyncSharedMessage.ack`."""
        await self._settle("AcknowledgeMessages", messages)

    async def nack(self, messages: "Sequence[AsyncSharedMessage]", delay_s: float = 0) -> None:
        await self._settle("ReturnMessages", messages, delay_s)

    async def hide(self, messages: "Sequence[AsyncSharedMessage]", invisible_s: float) -> None:
        await self._settle("ChangeInvisibleTime", messages, invisible_s)

    async def _settle(
        self, method: str, messages: "Sequence[AsyncSharedMessage]", invisible_s: float = 0
    ) -> None:
        receipts = [message.receipt for message in messages]
        operation = settle(method, self._topic, self._group, receipts, invisible_s)
        replaced = await self._run(operation)
        for message, receipt in zip(messages, replaced, strict=True):
            message.receipt = receipt or message.receipt

    async def close(self) -> None:
        given_back, self._waiting = list(self._waiting), deque()
        if given_back:
            try:
                await self.nack(given_back, 0.001)
            except StrataError:
                return  # their time was over, or will be

    def __aiter__(self) -> "AsyncSharedReader":
        return self

    async def __anext__(self) -> AsyncSharedMessage:
        while not self._waiting:
            self._waiting += await self.receive()
        return self._waiting.popleft()

    async def __aenter__(self) -> "AsyncSharedReader":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
