"""Transactions of an asyncio client: half messages, the decision about them, and checks."""

from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Annotated, Any

from stratamq.api.v1 import delivery_pb2
from stratamq.client import operations
from stratamq.client._async.brokers import AsyncBroker, AsyncRouting
from stratamq.client.client_settings import ClientSettings
from stratamq.client.received import ReceivedMessage
from stratamq.client.values import HalfMessage, Message, SendResult
from stratamq.errors import InvalidRequestError, NotWritableError, UnavailableError
from stratamq.formats.properties import PGROUP, TRAN_MSG
from stratamq.rpc.methods import METHODS


class AsyncTransaction:
    """Messages that consumers see together, or never. Used by one task at a time.

    Leaving the `async with` block commits them; an exception rolls them back. A process that ends
    in between has decided nothing: the broker asks the producers of the group (`transaction_checks`
    of the client).
    """

    def __init__(self, group: str, routing: AsyncRouting) -> None:
        self._group = group
        self._routing = routing
        self._broker: AsyncBroker | None = None
        self._halves: list[HalfMessage] = []
        self._ended = ""

    async def send(
        self,
        topic: str,
        body: Any,
        *,
        properties: Mapping[str, str] | None = None,
        **fields: Annotated[Any, Message],
    ) -> SendResult:
        """Store a message that consumers do not see before the commit. `fields` are those of
        `Message`. Raises as `send` of the client does, and InvalidRequestError when the transaction
        has ended. All messages of a transaction go to one broker, which the first one chooses."""
        self._require_open()
        own = {TRAN_MSG: "true", PGROUP: self._group}
        message = Message(
            topic, body, properties={**(properties or {}), **own}, half=True, **fields
        )
        if message.unique_key == "":
            raise InvalidRequestError("a message of a transaction has a unique key")
        if self._broker is None:
            self._broker = (await self._routing.order(topic, message.queue_id))[0]
        result = (await self._broker.sending.send_one(message, False)).check()
        half = HalfMessage(topic, result.physical_offset, result.unique_key)
        self._halves.append(half)
        return result

    async def commit(self) -> None:
        """Show all messages. When it returns, the decision is final, and as safe as the broker
        promises of a message. DecidedTransactionError when one was rolled back or given up by a
        check meanwhile. After UnavailableError it may be committed: commit again."""
        await self._end(commit=True)

    async def rollback(self) -> None:
        """Drop all messages; like `commit`."""
        await self._end(commit=False)

    async def _end(self, *, commit: bool) -> None:
        word = "committed" if commit else "rolled back"
        if self._ended != word:
            self._require_open()
        self._ended = word
        if self._broker is not None and self._halves:
            await self._broker.run(operations.end_transaction(self._group, self._halves, commit))

    def _require_open(self) -> None:
        if self._ended:
            raise InvalidRequestError(f"the transaction was {self._ended}: begin another one")

    async def __aenter__(self) -> "AsyncTransaction":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._ended:
            await self._end(commit=kind is None)


class AsyncTransactionCheck:
    """A message that a producer group left undecided for too long. Find out what became of
    its transaction, and commit it or roll it back; do nothing, and it is asked again later."""

    def __init__(
        self, broker: AsyncBroker, group: str, check: delivery_pb2.CheckTransactionsResponse
    ) -> None:
        self.message = ReceivedMessage(check.frame)
        """The message as it is stored, in the half topic."""
        self.topic = check.message.topic
        """To which it was sent."""
        self.number = check.number
        """Which check of this message it is, from 1."""
        self._broker = broker
        self._group = group
        half = check.message
        self._halves = [HalfMessage(half.topic, half.physical_offset, half.unique_key)]

    async def commit(self) -> None:
        """Show the message; see `AsyncTransaction.commit`."""
        await self._broker.run(operations.end_transaction(self._group, self._halves, True))

    async def rollback(self) -> None:
        """Drop the message."""
        await self._broker.run(operations.end_transaction(self._group, self._halves, False))


async def transaction_checks(
    broker: AsyncBroker, settings: ClientSettings, group: str, topics: Sequence[str]
) -> AsyncIterator[AsyncTransactionCheck]:
    """See `AsyncClient.transaction_checks`."""
    connections = broker.connections
    request = delivery_pb2.CheckTransactionsRequest(producer_group=group, topics=topics)
    method = METHODS["CheckTransactions"]
    backoff = settings.backoff(settings.retry_timeout_s)
    while True:
        stream = await connections.open(method, request)
        error: UnavailableError | NotWritableError
        try:
            while (response := await stream.read()) is not None:
                backoff = settings.backoff(settings.retry_timeout_s)
                yield AsyncTransactionCheck(broker, group, response)
            error = UnavailableError("the delivery service has ended the stream")
        except (UnavailableError, NotWritableError) as failure:
            error = failure
        finally:
            stream.end()
        moved = await connections.follow(error) if connections.leads(error) else False
        delay_s = 0.0 if moved else backoff.next_delay_s()
        if delay_s is None or await connections.closed.wait(delay_s):
            raise error
        if not moved:
            await connections.renew(method.room)
