"""A worker of a shared group. Each worker has one of its own."""

from collections import deque
from collections.abc import Iterable, Sequence
from uuid import uuid4

from stratamq.client._async.brokers import AsyncBroker, AsyncBrokers
from stratamq.client._async.together import AsyncCallsOfGroups, AsyncGroupCalls
from stratamq.client.checking import checked
from stratamq.client.group_receipts import (
    GroupWorker,
    HandedMessage,
    HandOut,
    receipts_of,
    receive,
    renew_lease,
    settle,
    settled,
)
from stratamq.client.hand_outs import HandedTogether, JointWish
from stratamq.client.operations import AsyncRunOperation
from stratamq.client.shard_routes import of_broker
from stratamq.errors import StrataError, UnavailableError

WAIT_S = 20.0
"""The limit of one call for messages; a reader asks again."""
TURN_S = 0.2
"""How long one of several brokers waits for a message before the next one is asked."""
NEVER_NS = 1 << 62


class AsyncSharedMessage(HandedMessage):
    """A message that was handed to this worker alone. `attempt`: from 1 on."""

    def __init__(
        self,
        frame: bytes,
        head: tuple[int, ...],
        given: HandOut,
        reader: "AsyncSharedReader",
        broker: AsyncBroker,
    ) -> None:
        # Not through super(): there is one of these for every message.
        self.frame = frame
        self._head = head
        self.ticket = given.ticket
        self.holder = broker
        self._given = given
        self._reader = reader

    @property
    def broker(self) -> str:  # type: ignore[override]
        return self.holder.name

    @property
    def attempt(self) -> int:
        return self._given.attempt

    @property
    def invisible_until_ms(self) -> int:
        """When it was received, by the broker's clock."""
        return self._given.until_ms

    @property
    def topic(self) -> str:
        """From which the worker receives. What was replayed lies in a topic of the group's own."""
        return self._reader.topic

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
    A message that is not acknowledged in its time goes to another worker. What the reader has
    received and not given out goes to the others at once, and was no attempt, when the reader is
    closed, or asked for the next message after half of their time. Of several brokers each is
    asked in turn; one that is away is left out."""

    def __init__(
        self,
        brokers: AsyncBrokers,
        calls: AsyncCallsOfGroups,
        topic: str,
        group: str,
        client_id: str,
        batch: int,
        invisible_s: float,
        *,
        leased: bool,
        tags: tuple[str, ...] = (),
    ) -> None:
        self._brokers = brokers
        self._calls = calls
        self.topic = topic
        self._group = group
        self._client_id = client_id
        self._batch = batch
        self._invisible_s = invisible_s
        self._leased = leased
        self._tags = tags
        self._waiting: deque[AsyncSharedMessage] = deque()
        """Received, and given to no worker."""
        self._asked_ns = 0
        """When the oldest of them was asked for, by the client's clock."""
        self._turn = 0
        self._used: dict[AsyncBroker, AsyncGroupCalls] = {}
        self._waits = False
        """There was less than it asked for: it waits by a call of its own."""
        self._unanswered: dict[AsyncBroker, JointWish] = {}
        """Own calls without an answer: the next one has their attempt id, and gets what they were
        given."""

    async def receive(
        self, max_messages: int = 0, wait_s: float = WAIT_S
    ) -> "list[AsyncSharedMessage]":
        """Messages for this worker; none, if none came in `wait_s`."""
        most = max_messages or self._batch
        if await self._has_some():
            return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        brokers = list((await self._brokers.all()).values())
        self._asked_ns = NEVER_NS
        if len(brokers) == 1:
            return await self._ask(brokers[0].run, brokers[0], most, wait_s)
        clock = self._brokers.settings.clock
        ends_ns = clock.monotonic_ns() + int(wait_s * 1e9)
        turn_s = 0.0
        while True:
            left_s = (ends_ns - clock.monotonic_ns()) / 1e9
            found = await self._ask_each(brokers, most, max(0, min(turn_s, left_s)))
            if found or left_s <= 0:
                return found
            turn_s = TURN_S

    async def _ask_each(
        self, brokers: Sequence[AsyncBroker], most: int, wait_s: float
    ) -> "list[AsyncSharedMessage]":
        """What brokers have, the first of them another one each time; each waits so long for a
        first message."""
        found: list[AsyncSharedMessage] = []
        errors: list[StrataError] = []
        self._turn += 1
        for number in range(len(brokers)):
            broker = brokers[(self._turn + number) % len(brokers)]
            try:
                wanted = most - len(found)
                found += await self._ask(broker.run_soon, broker, wanted, 0 if found else wait_s)
            except StrataError as error:
                errors.append(of_broker(error, broker.name))
            except BaseException:
                self._waiting += found
                raise
            if len(found) == most or (found and wait_s):
                break
        worse = [one for one in errors if not isinstance(one, UnavailableError)]
        if not found and (worse or len(errors) == len(brokers)):
            raise (worse or errors)[0]
        return found

    async def _ask(
        self, run: AsyncRunOperation, broker: AsyncBroker, most: int, wait_s: float
    ) -> "list[AsyncSharedMessage]":
        worker = GroupWorker(self._client_id, most, self._invisible_s, "", self._leased, self._tags)
        given, asked_ns = HandedTogether([], 0)
        alone = self._waits or broker in self._unanswered
        if alone:  # its client may have received some ahead of it
            given, asked_ns = self._together(broker).here(worker)
        else:
            given, asked_ns = await self._together(broker).receive(worker)
        if not given and (alone or wait_s):
            given, asked_ns = await self._ask_alone(run, broker, worker, wait_s)
        if given:
            self._asked_ns = min(self._asked_ns, asked_ns)
        self._waits = len(given) < most
        return [AsyncSharedMessage(*one, self, broker) for one in given]

    async def _ask_alone(
        self, run: AsyncRunOperation, broker: AsyncBroker, worker: GroupWorker, wait_s: float
    ) -> HandedTogether:
        clock, lost = self._brokers.settings.clock, self._unanswered.get(broker)
        wish = lost or JointWish(worker, uuid4().hex, clock.monotonic_ns())
        wish.wanted = [(0, worker.max_messages)]
        self._unanswered[broker] = wish
        (given,) = await run(receive(self.topic, self._group, [wish.as_worker()], wait_s))
        del self._unanswered[broker]
        # The call waited for messages; those of a lost answer are from an earlier one.
        return HandedTogether(given, lost.asked_ns if lost else clock.monotonic_ns())

    def _together(self, broker: AsyncBroker) -> AsyncGroupCalls:
        calls = self._used.get(broker)
        if calls is None:
            calls = self._used[broker] = self._calls.of(broker, self.topic, self._group)
            calls.enter()
        return calls

    async def renew(self, lease_s: float = 30) -> None:
        """Keep all that this worker holds hidden for so long from now on, with one call to each
        broker: for a reader that is `leased`. Each call for messages does the same."""
        operation = renew_lease(self._group, self._client_id, lease_s)
        await self._brokers.read(lambda broker: broker.run(operation))

    async def ack(self, messages: "Sequence[AsyncSharedMessage]") -> None:
        """In one call; see `AsyncSharedMessage.ack`."""
        for broker, some in _by_broker(messages).items():
            settled(some, await self._together(broker).acknowledge(some))

    async def nack(self, messages: "Sequence[AsyncSharedMessage]", delay_s: float = 0) -> None:
        await self._settle("ReturnMessages", messages, delay_s)

    async def hide(self, messages: "Sequence[AsyncSharedMessage]", invisible_s: float) -> None:
        await self._settle("ChangeInvisibleTime", messages, invisible_s)

    async def _settle(
        self, method: str, messages: "Sequence[AsyncSharedMessage]", invisible_s: float
    ) -> None:
        for broker, some in _by_broker(messages).items():
            receipts = receipts_of(some)
            operation = settle(method, self.topic, self._group, receipts, invisible_s)
            settled(some, await broker.run(operation))

    async def close(self) -> None:
        """What no worker was given is no attempt."""
        lost, self._unanswered = self._unanswered, {}
        for broker, wish in lost.items():
            await self._together(broker).give_back_lost([wish])
        await self._give_back()
        used, self._used = self._used, {}
        for calls in used.values():
            await calls.leave()

    async def _has_some(self) -> bool:
        """Whether messages wait here. Those that have less than half of their time left go to any
        worker instead, like what a client has received ahead."""
        passed_ns = self._brokers.settings.clock.monotonic_ns() - self._asked_ns
        if self._waiting and not self._leased and passed_ns >= self._invisible_s * 500_000_000:
            await self._give_back()
        return bool(self._waiting)

    async def _give_back(self) -> None:
        for broker, messages in _by_broker(self._waiting).items():
            await self._together(broker).give_back(messages)  # or their time was over
        self._waiting.clear()

    def __aiter__(self) -> "AsyncSharedReader":
        return self

    async def __anext__(self) -> AsyncSharedMessage:
        if not await self._has_some():
            while not self._waiting:
                self._waiting += await self.receive()
        return self._waiting.popleft()

    async def __aenter__(self) -> "AsyncSharedReader":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _by_broker(
    messages: "Iterable[AsyncSharedMessage]",
) -> "dict[AsyncBroker, list[AsyncSharedMessage]]":
    by_broker: dict[AsyncBroker, list[AsyncSharedMessage]] = {}
    for message in messages:
        by_broker.setdefault(message.holder, []).append(message)
    return by_broker
