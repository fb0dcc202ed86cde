"""What the workers of one client ask of a shared group, together.

    two workers    ──► two calls ────────► answers
    three more     ──► wait ──────────────► a call for 3, made by the first of them ──► answers
    others                                     ──► wait …

Calls are under way whenever a worker waits, so that a few workers do not wait for each other. There
is no task for the calls: one of those that wait makes the next one, for all.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from stratamq.api.v1 import delivery_pb2 as pb
from stratamq.client import forks
from stratamq.client._async.brokers import AsyncBroker
from stratamq.client.group_receipts import (
    GroupWorker,
    HandedFrame,
    HandedMessage,
    receipts_of,
    receive,
    settle,
)
from stratamq.client.hand_outs import LARGEST_HAND_OUT, HandedTogether, HandOuts, JointWish
from stratamq.client.primitives import (
    AsyncBackground,
    AsyncCondition,
    AsyncEvent,
    AsyncGuard,
)
from stratamq.client.reading import reader_name
from stratamq.errors import InvalidRequestError, StrataError
from stratamq.files.port import Clock

Item = TypeVar("Item")
R = TypeVar("R")

CALLS = 2
"""Under way at once: while one is answered, the workers of the other are served."""
CALL_MESSAGES, CALL_WORKERS = LARGEST_HAND_OUT, 32
"""In one call. One worker's are at most 256."""


class _Waiting(Generic[Item, R]):
    def __init__(self, item: Item, size: int) -> None:
        self.item = item
        self.size = size
        self.moved = AsyncEvent()
        """It is answered, or is to make the next call."""
        self.results: list[R] = []
        self.error: StrataError | None = None
        self.is_gone = False

    @property
    def is_answered(self) -> bool:
        return bool(self.results) or self.error is not None


class AsyncTogether(Generic[Item, R]):
    """One kind of call. Doing it twice is doing it once: when the worker that makes it is
    cancelled, the others make it again."""

    def __init__(
        self,
        call: Callable[[Sequence[Item]], Awaitable[Sequence[R]]],
        unclaimed: Callable[[Item, R], None] | None = None,
        calls: int = CALLS,
        workers: int = CALL_WORKERS,
    ) -> None:
        """`unclaimed` gets the answer to a worker that was cancelled while it waited for it. So
        many `calls` at once, each for so many `workers`."""
        forks.watch(self)
        self._call = call
        self._unclaimed = unclaimed
        self._calls = calls
        self._workers = workers
        self._guard = AsyncGuard()
        self._others = AsyncCondition(self._guard)
        self._waiting: deque[_Waiting[Item, R]] = deque()
        self._caller: _Waiting[Item, R] | None = None
        """The one that makes the next call: the first that waits."""
        self._under_way = 0

    async def ask(self, item: Item, size: int) -> R:
        """The answer to this item. Raises what the call raised."""
        mine: _Waiting[Item, R] = _Waiting(item, size)
        with self._guard:
            self._waiting.append(mine)
            self._call_next()
        try:
            await mine.moved.wait()
            if not mine.is_answered:
                await self._answer()
        except BaseException:
            self._leave(mine)
            raise
        finally:
            with self._guard:
                mine.is_gone = True
                if not mine.is_answered and mine in self._waiting:
                    self._waiting.remove(mine)
                if self._caller is mine:
                    self._caller = None
                self._call_next()
        if mine.error is not None:
            raise mine.error
        return mine.results[0]

    async def _answer(self) -> None:
        """Make the call for those that wait, as many as go together."""
        together: list[_Waiting[Item, R]] = []
        # Others that the last answer has woken are about to ask, too.
        await self._others.yield_control()
        with self._guard:
            left = CALL_MESSAGES
            while self._waiting and (not together or self._waiting[0].size <= left):
                together.append(self._waiting.popleft())
                left -= together[-1].size
                if len(together) == self._workers:
                    break
            self._caller = None
            self._under_way += 1
            self._call_next()
        try:
            await self._ask_for(together)
        finally:
            with self._guard:
                self._under_way -= 1
                for one in together:
                    if one.is_gone:
                        self._leave(one)
                    elif one.is_answered:
                        one.moved.set()
                again = [one for one in together if not (one.is_answered or one.is_gone)]
                self._waiting.extendleft(reversed(again))

    async def _ask_for(self, together: Sequence[_Waiting[Item, R]]) -> None:
        try:
            results = await self._call([one.item for one in together])
        except InvalidRequestError as error:
            # What one of them asked for is not refused to the others.
            for one in together if len(together) > 1 else ():
                await self._ask_for([one])
            if len(together) == 1:
                together[0].error = error
        except StrataError as error:
            for one in together:
                one.error = error
        else:
            for one, result in zip(together, results, strict=True):
                one.results.append(result)

    def _leave(self, one: _Waiting[Item, R]) -> None:
        while one.results:
            result = one.results.pop()
            if self._unclaimed is not None:
                self._unclaimed(one.item, result)

    def _call_next(self) -> None:
        """Choose who makes the next call, if there is to be one. The guard is held."""
        if self._caller is None and self._waiting and self._under_way < self._calls:
            self._caller = self._waiting[0]
            self._caller.moved.set()


class AsyncGroupCalls:
    """The calls about one group and topic to one broker."""

    def __init__(self, broker: AsyncBroker, topic: str, group: str, clock: Clock) -> None:
        forks.watch(self)
        self._broker = broker
        self._place = topic, group
        self._guard = AsyncGuard()
        self._hand_outs = HandOuts(clock)
        self._readers = 0
        self._returning: list[HandedFrame] = []
        """What is to go back, of no worker."""
        self._emptied = AsyncCondition(self._guard)
        self._watch: AsyncBackground | None = None
        self._receiving: AsyncTogether[GroupWorker, HandedTogether] = AsyncTogether(
            self._receive, self._keep
        )
        self._acknowledging: AsyncTogether[Sequence[HandedMessage], Sequence[pb.SettleOutcome]] = (
            AsyncTogether(self._acknowledge, calls=1, workers=CALL_MESSAGES)
        )

    def enter(self) -> None:
        with self._guard:
            self._readers += 1

    async def leave(self) -> None:
        """A reader has ended. Behind the last one, what is left goes to other clients, and what a
        call was given whose answer no worker waited for."""
        with self._guard:
            self._readers -= 1
            is_last = not self._readers
            lost = self._hand_outs.take_unanswered() if is_last else []
        await self.give_back_lost(lost)
        with self._guard:
            watch = self._watch if is_last else None
            if is_last:
                self._returning += self._hand_outs.take_out(late_only=False)
                self._emptied.notify_all()
        await self._give_back()
        if watch is not None:
            await watch.join()

    async def receive(self, worker: GroupWorker) -> HandedTogether:
        """What is there now. `worker` has no attempt id: calls have theirs here."""
        with self._guard:
            ready = self._hand_outs.ready(worker)
        if ready is not None:
            return ready
        return await self._receiving.ask(worker, worker.max_messages)

    def here(self, worker: GroupWorker) -> HandedTogether:
        """What was received ahead of a worker that waits by a call of its own."""
        with self._guard:
            return self._hand_outs.here(worker)

    async def acknowledge(self, messages: Sequence[HandedMessage]) -> Sequence[pb.SettleOutcome]:
        return await self._acknowledging.ask(messages, len(messages))

    async def _receive(self, workers: Sequence[GroupWorker]) -> list[HandedTogether]:
        with self._guard:
            self._returning += self._hand_outs.take_out(late_only=True)
        await self._give_back()
        with self._guard:
            found, wishes = self._hand_outs.plan(workers)
        if not wishes:
            return found
        answers: list[list[HandedFrame]] = []
        try:
            asked = [wish.as_worker() for wish in wishes]
            answers = await self._broker.run(receive(*self._place, asked, 0))
        finally:
            with self._guard:
                if not answers:
                    self._hand_outs.failed(wishes)
                for worker, had in zip(workers, found, strict=True) if not answers else ():
                    self._hand_outs.keep(worker, had)
        with self._guard:
            for wish, given in zip(wishes, answers, strict=True):
                self._hand_outs.answered(wish, given, found)
            self._begin_watch()
        return found

    def _keep(self, worker: GroupWorker, given: HandedTogether) -> None:
        with self._guard:
            self._hand_outs.keep(worker, given)
            self._begin_watch()

    def _begin_watch(self) -> None:
        """The guard is held."""
        if self._watch is None and self._hand_outs.late_in_s() is not None:
            self._watch = AsyncBackground("stratamq-ahead", self._give_back_late)
            self._watch.start()

    async def _give_back_late(self) -> None:
        """What was received ahead of workers that ask for no more: each may be busy with one
        message for longer than the others may wait."""
        while True:
            with self._guard:
                if (wait_s := self._hand_outs.late_in_s()) is None:
                    self._watch = None
                    return
                await self._emptied.wait(wait_s)
                self._returning += self._hand_outs.take_out(late_only=True)
            await self._give_back()

    async def give_back(self, messages: Sequence[HandedMessage]) -> bool:
        """To any worker, at once. It is no attempt of theirs: a message that is tried once would go
        to the dead letters unread. False: the broker does not answer."""
        for start in range(0, len(messages), CALL_MESSAGES):
            receipts = receipts_of(messages[start : start + CALL_MESSAGES])
            back = settle("ReturnMessages", *self._place, receipts, 0.001, unseen=True)
            try:
                await self._broker.run_soon(back)
            except StrataError:
                return False  # their time was over, or will be
        return True

    async def give_back_lost(self, wishes: Sequence[JointWish]) -> None:
        """What calls were given that had no answer: it is asked for once more."""
        for wish in wishes:
            try:
                given = await self._broker.run_soon(receive(*self._place, [wish.as_worker()], 0))
            except StrataError:
                break
            with self._guard:
                self._returning += given[0]
        await self._give_back()

    async def _give_back(self) -> None:
        """What waits for that. A worker that is cancelled meanwhile leaves it to the next one."""
        while self._returning:
            with self._guard:
                frames = self._returning[:CALL_MESSAGES]
                del self._returning[:CALL_MESSAGES]
            messages = [HandedMessage(frame, head) for frame, head, _ in frames]
            for message, (_, _, given) in zip(messages, frames, strict=True):
                message.ticket = given.ticket
            try:
                if not await self.give_back(messages):
                    self._returning.clear()
            except BaseException:
                with self._guard:
                    self._returning += frames
                raise

    async def _acknowledge(
        self, some: Sequence[Sequence[HandedMessage]]
    ) -> list[Sequence[pb.SettleOutcome]]:
        """In the order of the queues: messages of several workers may be one run."""
        firsts = [(one[0].ticket, one[0].queue_offset) for one in some]
        order = sorted(range(len(some)), key=firsts.__getitem__)
        receipts = receipts_of([message for number in order for message in some[number]])
        outcomes = await self._broker.run(settle("AcknowledgeMessages", *self._place, receipts))
        found: list[Sequence[pb.SettleOutcome]] = [()] * len(some)
        for number in order:
            count = len(some[number])
            found[number], outcomes = outcomes[:count], outcomes[count:]
        return found


class AsyncCallsOfGroups:
    """Those of one client, as long as it has workers that use them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.client_id = reader_name()
        """Workers have it that were given none, and have no lease: when one of several ends, its
        messages are not kept by the others."""
        self._guard = AsyncGuard()
        self._known: WeakValueDictionary[tuple[AsyncBroker, str, str], AsyncGroupCalls] = (
            WeakValueDictionary()
        )

    def of(self, broker: AsyncBroker, topic: str, group: str) -> AsyncGroupCalls:
        with self._guard:
            calls = self._known.get((broker, topic, group))
            if calls is None:
                calls = AsyncGroupCalls(broker, topic, group, self._clock)
                self._known[broker, topic, group] = calls
            return calls
