# Generated from _async/transactions.py by scripts/gen_sync_client.py (`make client`).
"""Transactions of a client: half messages, the decision about them, and checks."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from stratamq.api.v1 import delivery_pb2
from stratamq.client import operations
from stratamq.client._sync.brokers import LOOK_AGAIN_NS, Broker, Brokers, Routing
from stratamq.client.connections import Stream
from stratamq.client.primitives import Event, Ongoing
from stratamq.client.received import ReceivedMessage
from stratamq.client.shard_routes import of_broker
from stratamq.client.values import HalfMessage, Message, SendResult
from stratamq.errors import (
    InvalidRequestError,
    NotWritableError,
    StrataError,
    UnavailableError,
)
from stratamq.formats.properties import PGROUP, TRAN_MSG
from stratamq.rpc.backoff import Backoff
from stratamq.rpc.methods import METHODS
from stratamq.rpc.rooms import DELIVERY

log = logging.getLogger(__name__)


class Transaction:
    """Messages that consumers see together, or never. Used by one thread at a time.

    All of them go to one broker, since no record of one broker can decide what lies at another. Of
    several brokers the first message chooses it, as a message without a transaction does.

    Leaving the `with` block commits them; an exception rolls them back. A process that ends
    in between has decided nothing: the broker asks the producers of the group (`transaction_checks`
    of the client).
    """

    def __init__(self, group: str, routing: Routing) -> None:
        self._group = group
        self._routing = routing
        self._broker: Broker | None = None
        self._halves: list[HalfMessage] = []
        self._ended = ""

    def send(
        self,
        topic: str,
        body: Any,
        *,
        properties: Mapping[str, str] | None = None,
        **fields: Annotated[Any, Message],
    ) -> SendResult:
        """Store a message that consumers do not see before the commit. `fields` are those of
        `Message`. Raises as `send` of the client does, and InvalidRequestError when the transaction
        has ended, or its broker takes no messages of this topic and another one does."""
        self._require_open()
        own = {TRAN_MSG: "true", PGROUP: self._group}
        message = Message(
            topic, body, properties={**(properties or {}), **own}, half=True, **fields
        )
        if message.unique_key == "":
            raise InvalidRequestError("a message of a transaction has a unique key")
        if self._broker is None:
            order = self._routing.order(topic, message.queue_id)
        else:
            self._routing.require_taken(topic, self._broker)
            order = [self._broker]

        def store(broker: Broker) -> list[SendResult]:
            result = broker.sending.send_one(message, False)
            if result.error is None:
                self._broker = broker
            return [result]

        result = (self._routing.send_in_turn(order, store))[0].check()
        half = HalfMessage(topic, result.physical_offset, result.unique_key)
        self._halves.append(half)
        return result

    def commit(self) -> None:
        """Show all messages. When it returns, the decision is final, and as safe as the broker
        promises of a message. DecidedTransactionError when one was rolled back or given up by a
        check meanwhile. After UnavailableError it may be committed: commit again."""
        self._end(commit=True)

    def rollback(self) -> None:
        """Drop all messages; like `commit`."""
        self._end(commit=False)

    def _end(self, *, commit: bool) -> None:
        word = "committed" if commit else "rolled back"
        if self._ended != word:
            self._require_open()
        self._ended = word
        if self._broker is not None and self._halves:
            _decide(self._broker, self._group, self._halves, commit=commit)

    def _require_open(self) -> None:
        if self._ended:
            raise InvalidRequestError(f"the transaction was {self._ended}: begin another one")

    def __enter__(self) -> "Transaction":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._ended:
            self._end(commit=kind is None)


class TransactionCheck:
    """A message that a producer group left undecided for too long. Find out what became of
    its transaction, and commit it or roll it back; do nothing, and it is asked again later."""

    def __init__(
        self, broker: Broker, group: str, check: delivery_pb2.CheckTransactionsResponse
    ) -> None:
        self.message = ReceivedMessage(check.frame)
        """The message as it is stored, in the half topic."""
        self.topic = check.message.topic
        """To which it was sent."""
        self.number = check.number
        """Which check of this message it is, from 1."""
        self.broker = broker.name
        """Where it lies; "": its client knows no other one."""
        self._broker = broker
        self._group = group
        half = check.message
        self._halves = [HalfMessage(half.topic, half.physical_offset, half.unique_key)]

    def commit(self) -> None:
        """Show the message; see `Transaction.commit`."""
        _decide(self._broker, self._group, self._halves, commit=True)

    def rollback(self) -> None:
        """Drop the message."""
        _decide(self._broker, self._group, self._halves, commit=False)


def _decide(broker: Broker, group: str, halves: Sequence[HalfMessage], *, commit: bool) -> None:
    try:
        broker.run(operations.end_transaction(group, halves, commit))
    except StrataError as error:
        of_broker(error, broker.name)
        raise


class CheckLane:
    """The checks of one broker, by a stream that is opened again where it breaks. `answers` runs
    `next_check`."""

    def __init__(
        self,
        broker: Broker,
        group: str,
        topics: Sequence[str],
        closed: Event,
        backoff: Backoff,
    ) -> None:
        """`closed`: the caller wants no further check."""
        self.broker = broker
        self.answers = Ongoing()
        self._group = group
        self._request = delivery_pb2.CheckTransactionsRequest(producer_group=group, topics=topics)
        self._closed = closed
        self._backoff = backoff
        self._stream: Stream | None = None

    def end(self) -> None:
        stream = self._stream
        if stream is not None:
            stream.end()

    def next_check(self) -> TransactionCheck:
        """UnavailableError when the broker is away for as long as the backoff lasts, or the lane
        is closed."""
        while True:
            error: StrataError
            try:
                response = self._read()
            except (UnavailableError, NotWritableError) as failure:
                error = failure
            else:
                if response is not None:
                    self._backoff.reset()
                    return TransactionCheck(self.broker, self._group, response)
                error = UnavailableError("the delivery service has ended the stream")
            self.end()
            self._stream = None
            self._lost(error)

    def _read(self) -> delivery_pb2.CheckTransactionsResponse | None:
        if self._stream is None:
            method = METHODS["CheckTransactions"]
            self._stream = self.broker.connections.open(method, self._request)
            if self._closed.is_set():
                self.end()
        return self._stream.read()

    def _lost(self, error: StrataError) -> None:
        connections = self.broker.connections
        moved = connections.follow(error) if connections.leads(error) else False
        delay_s = 0.0 if moved else self._backoff.next_delay_s()
        if delay_s is None or self._closed.wait(delay_s):
            raise error
        if not moved:
            connections.renew(DELIVERY)


def transaction_checks(
    brokers: Brokers, group: str, topics: Sequence[str]
) -> Iterator[TransactionCheck]:
    """See `Client.transaction_checks`."""
    known, settings = brokers.all(), brokers.settings
    if brokers.fixed or "" in known:
        (only,) = known.values()
        backoff = settings.backoff(settings.retry_timeout_s)
        lane = CheckLane(only, group, topics, only.connections.closed, backoff)
        try:
            while True:
                yield lane.next_check()
        finally:
            lane.end()
    lanes = CheckLanes(brokers, group, topics)
    try:
        while True:
            yield lanes.next_check()
    finally:
        lanes.close()


class CheckLanes:
    """The checks of several brokers, whichever has one. One that is away is asked again without
    end, and holds up no other; brokers that are new are asked, too."""

    def __init__(self, brokers: Brokers, group: str, topics: Sequence[str]) -> None:
        self._brokers = brokers
        self._group = group
        self._topics = topics
        self._closed = Event()
        self._lanes: dict[str, CheckLane] = {}
        self._finding = Ongoing()
        self._turn = 0

    def next_check(self) -> TransactionCheck:
        if not self._lanes:
            self._take_up(self._brokers.all())
        while True:
            lanes = [*self._lanes.values()]
            self._turn += 1
            begin = self._turn % len(lanes)
            lanes = lanes[begin:] + lanes[:begin]
            for lane in lanes:
                lane.answers.begin(lane.next_check)
            self._finding.begin(self._find)
            runs = [*(lane.answers for lane in lanes), self._finding]
            number = Ongoing.first(runs, None)
            if number is None:
                continue
            if number == len(lanes):
                self._take_up(self._finding.result(self._find))
                continue
            first = lanes[number]
            try:
                return first.answers.result(first.next_check)
            except StrataError as error:
                of_broker(error, first.broker.name)
                raise

    def _take_up(self, brokers: Mapping[str, Broker]) -> None:
        for name, broker in brokers.items():
            if name not in self._lanes:
                backoff = self._brokers.settings.backoff(None)
                self._lanes[name] = CheckLane(
                    broker, self._group, self._topics, self._closed, backoff
                )

    def _find(self) -> Mapping[str, Broker]:
        """The brokers by name, after a while."""
        if self._closed.wait(LOOK_AGAIN_NS / 1e9):
            return {}
        return self._brokers.all()

    def close(self) -> None:
        self._closed.set()
        for lane in self._lanes.values():
            lane.end()
        for run in [*(lane.answers for lane in self._lanes.values()), self._finding]:
            run.ended()
