"""Calls of producers for their transactions: end them, and answer checks. Knows no protocol."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import NamedTuple

from stratamq.errors import InvalidRequestError, NotFoundError, UnavailableError
from stratamq.follow.demand import Demand
from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import OwnAppends
from stratamq.follow.own_log import OwnLog
from stratamq.follow.queues import QueueCalls
from stratamq.formats.frame import Frame, decode
from stratamq.formats.properties import REAL_TOPIC, UNIQ_KEY
from stratamq.service.awaiting import outcome
from stratamq.service.entrance import Call
from stratamq_delivery.check_floors import CheckFloors
from stratamq_delivery.checkers import Checkers
from stratamq_delivery.half_messages import Party
from stratamq_delivery.transaction_records import Outcome
from stratamq_delivery.transactions import TransactionCheck, Transactions

MAX_TOPICS = 1_000
"""The most topics of one stream of checks."""
MAX_BEHIND_S = 2.0
"""How long a decision waits for a half message that the state does not have yet."""


class HalfPlace(NamedTuple):
    """A half message, as its producer names it."""

    topic: str
    """To which it was sent."""
    offset: int
    """In the log."""
    unique_key: str


class Ending:
    """Belongs to the event loop of the fold."""

    def __init__(
        self,
        transactions: Transactions,
        checkers: Checkers,
        followed: FoldPlace,
        appends: OwnAppends,
        log: OwnLog,
        moved: Callable[[], None],
        demand: Demand,
    ) -> None:
        """`moved`: there is something to append."""
        self._transactions = transactions
        self._checkers = checkers
        self._followed = followed
        self._appends = appends
        self._log = log
        self._moved = moved
        self._demand = demand
        self._is_ending = False
        self._behind: list[tuple[int, asyncio.Future[None]]] = []
        """Offsets of half messages that the state does not have yet, and who waits for them."""

    def start(
        self, spawn: Callable[[Coroutine[None, None, None]], object], queues: QueueCalls
    ) -> None:
        """Start what is done without a call."""
        floors = CheckFloors(self._transactions.halves, self._followed, self._appends, queues)
        spawn(floors.run())

    def moved(self) -> None:
        """The state has come further."""
        applied = self._followed.applied
        for offset, reached in self._behind:
            if offset < applied and not reached.done():
                reached.set_result(None)

    def tick(self) -> None:
        """To be called several times a second."""
        if self._followed.is_slave:
            self._transactions.give_way()
            self._checkers.give_way()

    def end_checks(self) -> None:
        """The service stops: producers are asked when it has started again."""
        self._is_ending = True
        self._checkers.give_way()

    async def end(self, group: str, halves: Sequence[HalfPlace], decided: Outcome) -> None:
        """Commit or roll back; see `Transactions.decide`. NotWritableError on a slave.
        UnavailableError when the state is too far behind the log, which may have answered the half
        message a moment ago; NotFoundError when the log ends before it."""
        self._appends.require_active("delivery")
        await self.has_read(max((half.offset for half in halves), default=0))
        transactions = self._transactions
        sources = [transactions.find(*half) for half in halves]

        def decide(on_done: Callable[[None, BaseException | None], None]) -> None:
            transactions.decide(group, sources, decided, lambda error: on_done(None, error))
            self._moved()

        await outcome(decide)

    async def checks(
        self, group: str, topics: Sequence[str], call: Call
    ) -> AsyncGenerator[tuple[HalfPlace, TransactionCheck], None]:
        """The half messages that a producer of the group is asked about, as long as it may send to
        their topics; without topics, for processes of this machine, all of the group's.
        NotWritableError on a slave, also when the broker becomes one, and UnavailableError when the
        service stops."""
        self._appends.require_active("delivery")
        if not group or not (topics or not call.caller.host):
            raise InvalidRequestError("a producer group and its topics are needed")
        if len(topics) > MAX_TOPICS:
            raise InvalidRequestError(f"more than {MAX_TOPICS} topics")
        self._require_open()
        parties = {Party(group, topic): None for topic in topics or ("",)}
        async with contextlib.aclosing(self._checkers.checks(parties)) as checks:
            async for check in checks:
                await call.recheck()
                frame = decode(check.frame)
                assert isinstance(frame, Frame)
                topic, key = frame.properties[REAL_TOPIC], frame.properties.get(UNIQ_KEY, "")
                yield HalfPlace(topic, check.source.offset, key), check
        self._appends.require_active("delivery")
        self._require_open()

    def _require_open(self) -> None:
        """UnavailableError when the service stops. A stream that comes only then would have no
        end."""
        if self._is_ending:
            raise UnavailableError("the delivery service is stopping")

    async def has_read(self, offset: int) -> None:
        """Until the state has the message at this offset. NotFoundError, UnavailableError."""
        if offset < self._followed.applied:
            return
        waiting = offset, asyncio.get_running_loop().create_future()
        self._behind.append(waiting)
        self._demand.expect()
        try:
            async with asyncio.timeout(MAX_BEHIND_S):
                await waiting[1]
        except TimeoutError:
            end = (await self._log.facts()).appended_offset
            if offset >= end:
                raise NotFoundError(
                    f"no message at offset {offset}: the log ends at {end}"
                ) from None
            raise UnavailableError(
                f"the delivery service has not read the log up to offset {offset} yet"
            ) from None
        finally:
            self._behind.remove(waiting)
