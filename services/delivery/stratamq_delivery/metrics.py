"""What Prometheus sees of the delivery. Gauges are brought up to date by `observe`."""

from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import OwnAppends
from stratamq.service.metrics import Totals, counter, gauge, histogram
from stratamq_delivery.levels import Levels
from stratamq_delivery.replays import Replays
from stratamq_delivery.shared_groups import SharedGroups
from stratamq_delivery.timed_messages import TimedMessages
from stratamq_delivery.transactions import Transactions

_BEHIND = "How far behind the log is the delivery?"
_SERVES = "Does the room decide, and are its calls answered?"
_DELAY = "Are delayed messages delivered at their time?"
_SHARED = "Do the workers of shared groups get through?"
_TRANSACTIONS = "Are transactions decided, and committed messages shown?"

LAG = gauge(
    "delivery_lag_bytes", "Confirmed bytes of the log that are not applied yet.", asks=_BEHIND
)
SERVING = gauge("delivery_serving", "1 while calls are answered.", asks=_SERVES)
ACTIVE = gauge(
    "delivery_active", "1 while the room delivers: on the master, with its state up to date.",
    asks=_SERVES,
)  # fmt: skip
STOPPED = gauge(
    "delivery_stopped", "1 after the room has stopped; only a restart clears it.", asks=_SERVES
)
WAITING = gauge("delivery_delayed_messages", "Delayed messages that wait.", asks=_DELAY)
OVERDUE = gauge(
    "delivery_overdue_seconds",
    "How long the oldest delayed message is due that is not delivered yet.",
    asks=_DELAY,
)
DELIVERED = counter("delivery_delivered_messages", "Delayed messages delivered.", asks=_DELAY)
GIVEN_UP = counter(
    "delivery_given_up_messages", "Delayed messages that no topic takes.", asks=_DELAY
)
CANCELLED = counter(
    "delivery_cancelled_messages", "Delayed messages that operators cancelled.", asks=_DELAY
)
MISSED = counter(
    "delivery_missed_messages", "Messages deleted from the log before their time.", asks=_DELAY
)
ROLLED = counter(
    "delivery_rolled_messages",
    "Messages that wait for longer than their segment is kept: appended to the log again.",
    asks=_DELAY,
)
LATENESS = histogram(
    "delivery_lateness_seconds", "From a message's time to its delivery's start.", asks=_DELAY
)


OPEN = gauge("delivery_open_transactions", "Half messages that are not closed.", asks=_TRANSACTIONS)
HELD = gauge(
    "delivery_held_messages", "Committed messages that their topic does not take.",
    asks=_TRANSACTIONS,
)  # fmt: skip
EXPIRED = counter(
    "delivery_expired_transactions", "Half messages deleted from the log undecided.",
    asks=_TRANSACTIONS,
)  # fmt: skip
LOST = counter(
    "delivery_lost_transactions",
    "Committed messages deleted from the log before their topic took them.",
    asks=_TRANSACTIONS,
)
UNFINISHED = gauge(
    "delivery_unacknowledged_messages",
    "Messages of shared groups that were handed out, or wait for their message group.",
    asks=_SHARED,
)
READY = gauge(
    "delivery_group_ready_messages",
    "Messages of a shared group that no worker has, for the 20 groups with the most of these and "
    "of unacknowledged ones, every 10 s. In an ordered group some wait for others.",
    ["group"],
    asks=_SHARED,
)
OLDEST = gauge(
    "delivery_group_oldest_seconds",
    "Age of the oldest message of these groups that is not acknowledged.",
    ["group"],
    asks=_SHARED,
)
BURIED = counter(
    "delivery_dead_letters", "Messages that failed too often in a shared group.", asks=_SHARED
)
OWED = gauge(
    "delivery_dead_letters_owed", "Dead letters that their topic does not have yet.", asks=_SHARED
)
REPLAYED = counter(
    "delivery_replayed_dead_letters", "Dead letters handed out again for operators.", asks=_SHARED
)


class Observer:
    """Carries the room's numbers into the registry."""

    def __init__(
        self,
        followed: FoldPlace,
        appends: OwnAppends,
        levels: Levels,
        timed: TimedMessages,
        transactions: Transactions,
        groups: SharedGroups,
        replays: Replays,
    ) -> None:
        self._groups = groups
        self._replays = replays
        self._transactions = transactions
        self._followed = followed
        self._appends = appends
        self._delayed = (levels, timed)
        self._timed = timed
        self._totals = Totals()
        for one in self._delayed:
            one.copies.lateness_ms = lambda late_ms: LATENESS.observe(late_ms / 1000)

    def observe(self) -> None:
        followed, delayed = self._followed, self._delayed
        LAG.set(max(0, followed.confirmed - followed.applied))
        SERVING.set(followed.serving)
        STOPPED.set(bool(followed.stopped_reason))
        ACTIVE.set(self._appends.is_active)
        WAITING.set(sum(map(len, delayed)))
        now_ms = self._appends.time.now_ms()
        times = [due_ms for one in delayed if (due_ms := one.next_due_ms())]  # 0: taken once more
        late = self._appends.is_active and now_ms is not None and times
        OVERDUE.set(max(0, now_ms - min(times)) / 1000 if late else 0)
        transactions = self._transactions
        OPEN.set(len(transactions))
        HELD.set(transactions.held)
        UNFINISHED.set(self._groups.unfinished)
        OWED.set(len(self._groups.dead_letters.owed))
        totals = {
            DELIVERED: sum(one.copies.delivered for one in delayed),
            GIVEN_UP: sum(one.copies.given_up for one in delayed),
            CANCELLED: sum(one.copies.cancelled for one in delayed),
            MISSED: sum(one.missed for one in delayed),
            ROLLED: self._timed.rolled,
            EXPIRED: transactions.halves.expired,
            LOST: transactions.halves.lost,
            BURIED: self._groups.dead_letters.buried,
            REPLAYED: self._replays.replayed,
        }
        for metric, total in totals.items():
            self._totals.set(metric, total)
