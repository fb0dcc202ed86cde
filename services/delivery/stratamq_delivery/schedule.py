"""What operators decide about messages that wait: the delivery of what another program stored."""

from collections.abc import Callable
from typing import NamedTuple

from stratamq.follow.own_appends import OwnAppends
from stratamq.service.awaiting import outcome
from stratamq_delivery.levels import Levels
from stratamq_delivery.rocketmq_files import RocketMQFiles
from stratamq_delivery.taken_over import TakenOver
from stratamq_delivery.timed_messages import TimedMessages
from stratamq_delivery.transactions import Transactions


class HeldCounts(NamedTuple):
    """Messages that another program stored, and that are not delivered or checked. Which of the
    timed ones RocketMQ has delivered is found out when they are taken."""

    delayed: int
    timed: int
    halves: int


class Schedule:
    """Belongs to the event loop of the fold."""

    def __init__(
        self,
        taken_over: TakenOver,
        levels: Levels,
        timed: TimedMessages,
        transactions: Transactions,
        files: RocketMQFiles,
        appends: OwnAppends,
        moved: Callable[[], None],
    ) -> None:
        """`moved`: there is something to append."""
        self._taken_over = taken_over
        self._levels = levels
        self._timed = timed
        self._transactions = transactions
        self._files = files
        self._appends = appends
        self._moved = moved
        self._held_below = 0
        """`held_below` when the state moved last."""

    def held(self) -> HeldCounts:
        return HeldCounts(self._levels.held, self._timed.held, self._transactions.halves.held)

    @property
    def held_newest_ms(self) -> int:
        """Store time of the newest message that another program stored."""
        return self._taken_over.newest_ms

    def moved(self) -> None:
        """The state has come further. What was held is taken from a stream's beginning on."""
        if not self._appends.is_active:
            self._taken_over.give_up()
        below = self._taken_over.held_below
        if below < self._held_below:
            self._appends.begin_again()
        self._held_below = below

    async def enable(self) -> HeldCounts:
        """Deliver what is held. Returns what was. NotWritableError on a slave."""
        self._appends.require_active("delivery")
        held = self.held()

        def enable(on_done: Callable[[None, BaseException | None], None]) -> None:
            self._taken_over.enable(
                self._files.delay_offsets.table, lambda error: on_done(None, error)
            )
            self._moved()

        await outcome(enable)
        return held
