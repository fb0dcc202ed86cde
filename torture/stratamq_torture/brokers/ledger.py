"""What was promised to producers and shown to consumers, and for how long it counts.

    answer                     counts
    PUT_OK of a SYNC_MASTER    every broker that is promoted, by section 3 of ARCHITECTURE.md
    any other that is stored   in that broker's log, until another is promoted

What is excused is what a fault itself took away: a disk that is replaced, or put back to an earlier
copy, may have been the last one that had a message; a power loss under async flush takes what was
not flushed, and nothing inside the cluster can see that it did. Promotions excuse nothing.

What a consumer was shown, by master or slave, counts as the answers do: under SYNC_MASTER, with
`hold_without_slave`, like PUT_OK, otherwise like the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from stratamq.formats.message_status import SendStatus
from stratamq_torture.simulated.model import Violation


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
            # and the broker that serves in the end is held against what was promised before.
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
