"""What all brokers of one run share: settings, chance, time, the network between them; and what was
promised to producers and shown to consumers, and for how long it counts.

    answer                     counts
    PUT_OK of a SYNC_MASTER    every broker that is promoted, by section 3 of ARCHITECTURE.md
    any other that is stored   in that broker's log, until another is promoted

What is excused is what a fault itself took away: a disk that is replaced, or put back to an earlier
copy, may have been the last one that had a message; a power loss under async flush takes what was
not flushed, and nothing inside the cluster can see that it did. Promotions excuse nothing.

What a consumer was shown, by master or slave, counts as the answers do: under SYNC_MASTER, with
`hold_without_slave`, like PUT_OK, otherwise like the rest.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from stratamq_commitlog.config import CommitLogConfig

from stratamq.formats.log_state import Role
from stratamq.formats.members import configured_members
from stratamq.formats.message_status import SendStatus
from stratamq_torture.simulated.world import ASYNC, SYNC, Shared, standard
from stratamq_torture.trial import Violation


@dataclass(frozen=True, slots=True)
class Settings:
    """`required`: so many slaves acknowledge before PUT_OK. `log.role` is set for each broker."""

    brokers: int
    required: int
    sync_master: bool
    hold: bool
    sync_flush: bool
    misses: float
    """The chance that a question, or its answer, does not arrive."""
    log: CommitLogConfig

    def __str__(self) -> str:
        return (
            f"{self.brokers} brokers, {self.role.name} of {self.required}, "
            f"{self.log.flush_disk_type}{', hold_without_slave' if self.hold else ''}"
        )

    @property
    def role(self) -> Role:
        """Return the role of the current master."""
        return Role.SYNC_MASTER if self.sync_master else Role.ASYNC_MASTER


def chosen(chance: random.Random) -> Settings:
    """Brokers of a seed's choice."""
    brokers = chance.choice((2, 3, 3))
    required = chance.randint(1, brokers - 1)
    sync_master = chance.random() < 0.8
    hold = chance.random() < 0.8
    sync_flush = chance.random() < 0.6
    log = standard(
        flush=SYNC if sync_flush else ASYNC,
        segment_bytes=chance.choice((2048, 4096, 8192)),
        property_checksum=chance.random() < 0.5,
        flush_interval_ms=chance.choice((50, 500, 5_000)),
        snapshot_interval_ms=chance.choice((100, 2_000, 20_000)),
        pass_messages=chance.choice((1, 4, 64)),
    ).log
    log = replace(
        log,
        followers=(),
        required_replicas=required,
        hold_without_slave=hold,
        slave_timeout_ms=chance.choice((300, 3_000)),
        wait_for_peers=True,
        take_back=False,  # a promoted slave has it; tests/ha/test_taking_back.py covers it
    )
    misses = chance.choice((0.0, 0.1, 0.4))
    return Settings(brokers, required, sync_master, hold, sync_flush, misses, log)


class World(Shared):
    """Brokers are known by their numbers from 0."""

    def __init__(self, settings: Settings, chance: random.Random, notes: list[str] | None) -> None:
        super().__init__(chance, notes)
        self.settings = settings
        named = [(str(number), str(number)) for number in range(settings.brokers)]
        self.members = configured_members(named, settings.required)
        self.apart: set[frozenset[int]] = set()
        """Pairs without a connection between them."""
        self.paused: set[int] = set()
        """Brokers that are paused, as if stopped by a signal."""

    @property
    def now_ms(self) -> int:
        return self.clock.monotonic_ns() // 1_000_000

    def reach(self, one: int, other: int) -> bool:
        return frozenset((one, other)) not in self.apart

    def misses(self) -> bool:
        """A question, or its answer, does not arrive in time."""
        return self.chance.random() < self.settings.misses


@dataclass(frozen=True, slots=True)
class Promise:
    """A frame that is to stay where it is. `replicated`: promotions do not end it."""

    offset: int
    raw: bytes
    replicated: bool
    broker: str
    """Whose log it was that promised."""

    @property
    def end(self) -> int:
        return self.offset + len(self.raw)


@dataclass(slots=True)
class Ledger:
    """Promises by their log offset."""

    acknowledged: int = 0
    shown: int = 0
    promises: dict[int, Promise] = field(default_factory=dict)
    views: dict[int, Promise] = field(default_factory=dict)

    def answered(
        self, status: SendStatus, offset: int, raw: bytes, *, broker: str, sync_master: bool
    ) -> None:
        """A producer received the acknowledgement of its message."""
        self.acknowledged += 1
        replicated = sync_master and status is SendStatus.PUT_OK
        self._enter(self.promises, Promise(offset, raw, replicated, broker))

    def pulled(self, offset: int, raw: bytes, *, broker: str, replicated: bool) -> None:
        """A consumer was given this frame."""
        self.shown += 1
        self._enter(self.views, Promise(offset, raw, replicated, broker))

    def _enter(self, book: dict[int, Promise], promise: Promise) -> None:
        before = book.get(promise.offset)
        if before is not None and before.raw != promise.raw and before.replicated:
            # A master that was replaced may report late what it has alone: that promises nothing,
            # and the broker that serves in the end is checked against what was promised before.
            if promise.replicated or promise.broker == before.broker:
                raise Violation("replaced", f"another message is at {promise.offset}")
            return
        if before is None or promise.replicated or not before.replicated:
            book[promise.offset] = promise

    def forgotten(
        self, broker: str, had: Callable[[Promise], bool], elsewhere: Callable[[Promise], bool]
    ) -> None:
        """The disk of `broker` is another one now, and does not have what it `had`. What is not
        `elsewhere` is gone."""
        self.excuse(
            lambda one: (
                (not one.replicated and one.broker == broker) or (had(one) and not elsewhere(one))
            )
        )

    def excuse(self, excused: Callable[[Promise], bool]) -> None:
        """These do not count any more."""
        for book in (self.promises, self.views):
            for promise in [one for one in book.values() if excused(one)]:
                del book[promise.offset]

    def promoted(self) -> None:
        """Another broker's log is the one that counts."""
        self.excuse(lambda promise: not promise.replicated)

    def check(self, broker: str, read: Callable[[int, int], bytes | None]) -> None:
        """The log of the broker that serves has everything that counts. `read` gives the bytes at
        an offset, None where the log has none."""
        for book, rule in ((self.promises, "lost"), (self.views, "seen")):
            for promise in book.values():
                if not promise.replicated and promise.broker != broker:
                    continue
                found = read(promise.offset, len(promise.raw))
                if found != promise.raw:
                    what = "nothing" if found is None else "something else"
                    raise Violation(
                        rule,
                        f"broker {broker} has {what} at {promise.offset}, promised by "
                        f"{promise.broker}, {'replicated' if promise.replicated else 'alone'}",
                    )
