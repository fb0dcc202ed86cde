"""The time that messages are stored at: the wall clock's, unless that has jumped ahead.

Store times never go back. If the wall clock were set forward by a year, the log would keep that
time forever: delayed messages would wait a year, and retention would find everything old. The
monotonic clock shows how much time has really passed since the last reading. A wall clock that is
ahead of that by more than the limit is not trusted:

    believed ──► ahead by more than the limit ──► doubted: our own time continues with the monotonic
        ▲                                         clock; log, metric and status report it
        ├── the wall clock is right again ◄────────────┤
        └── an operator confirms it (TrustClock) ◄─────┘

A clock that was put back needs no doubt: nothing is stored under its time. When it is put right
again it jumps ahead, no further than the time that was believed before: that is no doubt, either.
The time that passed
while the service did not run is unknown: a start uses the wall clock, unless it was doubted when
the last process ended; `stratamq/clock.json` remembers that, and our own time within one run of the
machine.
"""

import logging
from dataclasses import dataclass

from stratamq.files.metadata import JsonObject, MetadataFile
from stratamq.files.port import Clock, Files
from stratamq.formats.store_paths import CLOCK_PATH
from stratamq_commitlog.recovery.own_state import remove_metadata

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Look:
    """The time that was believed, when the monotonic clock showed this."""

    time_ms: int
    monotonic_ns: int

    def at(self, now_ns: int) -> int:
        """The time, if it has gone on since as the monotonic clock."""
        return self.time_ms + (now_ns - self.monotonic_ns) // 1_000_000


class StoreClock:
    """Implements `Clock`. Single-threaded, except `load` and `save`, which block.

    `boot` names this run of the machine: within it monotonic times can be compared. `limit_ms` 0:
    the wall clock is always believed.
    """

    def __init__(self, files: Files, clock: Clock, limit_ms: int, boot: str) -> None:
        self.ahead_ms = 0
        """By how much the wall clock is ahead of our time while it is doubted; else 0."""
        self.unsaved = False
        """`save` has something to do."""
        self._files = files
        self._metadata = MetadataFile(files, CLOCK_PATH)
        self._clock = clock
        self._limit_ms = limit_ms
        self._boot = boot
        self._look: _Look | None = None
        self._before: _Look | None = None
        """What was believed before the wall clock was put back by more than the limit."""

    def doubt_now(self) -> str:
        """Compare the clock again first. A caller that read the clock before this call knows
        whether to act by what it read."""
        self.wall_ms()
        return self.doubt

    @property
    def doubt(self) -> str:
        """Why the wall clock is not believed, and what to do; "" if it is."""
        if not self.ahead_ms:
            return ""
        return (
            f"the wall clock is {self.ahead_ms / 1000:.0f} s ahead of the time that has passed, "
            f"more than {self._limit_ms} ms (commitlog.clock_jump_limit_ms): messages are stored "
            "under the log's own time. Put the clock right, or confirm it: "
            "`stratamq clock --confirm`"
        )

    def load(self, newest_ms: int) -> None:
        """What the last process doubted. `newest_ms`: of the newest message in the log."""
        self.ahead_ms, self._look, self._before, self.unsaved = 0, None, None, False
        document = self._metadata.load() or {}
        time_ms, then_ns = document.get("timeMs"), document.get("monotonicNs")
        if not isinstance(time_ms, int) or not isinstance(then_ns, int) or not self._limit_ms:
            return
        now_ns = self._clock.monotonic_ns()
        if document.get("boot") == self._boot and now_ns >= then_ns:
            time_ms += (now_ns - then_ns) // 1_000_000
        self._look = _Look(max(time_ms, newest_ms), now_ns)
        self.ahead_ms = 1
        self.wall_ms()

    def wall_ms(self) -> int:
        """The time to store under: the wall clock's, or our own while that is doubted."""
        now_ns, wall_ms = self._clock.monotonic_ns(), self._clock.wall_ms()
        look = self._look
        if look is None or not self._limit_ms:
            self._look = _Look(wall_ms, now_ns)
            return wall_ms
        own_ms = look.at(now_ns)
        ahead_ms = wall_ms - own_ms
        if ahead_ms <= self._limit_ms or self._is_as_before(wall_ms, now_ns):
            if self.ahead_ms:
                self._believe("the wall clock is right again")
            if self._before is not None and wall_ms >= self._before.at(now_ns):
                self._before = None
            elif self._before is None and ahead_ms < -self._limit_ms:
                self._before = look
            self._look = _Look(wall_ms, now_ns)
            return wall_ms
        if not self.ahead_ms:
            self.unsaved = True
            self._look = _Look(own_ms, now_ns)
            log.error("wall clock jumped ahead", extra={"ahead_ms": ahead_ms})
        self.ahead_ms = ahead_ms
        return own_ms

    def _is_as_before(self, wall_ms: int, now_ns: int) -> bool:
        """Whether the clock was put back, and is no further ahead than it had been."""
        before = self._before
        return before is not None and wall_ms - before.at(now_ns) <= self._limit_ms

    def monotonic_ns(self) -> int:
        return self._clock.monotonic_ns()

    def confirm(self) -> None:
        """An operator confirms that the wall clock is right."""
        if self.ahead_ms:
            self._believe("the wall clock was confirmed")
        self._look = self._before = None

    def document(self) -> JsonObject | None:
        """What `save` keeps; None: nothing is doubted."""
        look = self._look
        if not self.ahead_ms or look is None:
            return None
        return {"timeMs": look.time_ms, "monotonicNs": look.monotonic_ns, "boot": self._boot}

    def save(self, document: JsonObject | None) -> None:
        """Durable on return. OSError."""
        if document is None:
            remove_metadata(self._files, CLOCK_PATH)
            self._metadata = MetadataFile(self._files, CLOCK_PATH)
        else:
            self._metadata.store(document)

    def _believe(self, why: str) -> None:
        log.warning("wall clock trusted again", extra={"detail": why, "ahead_ms": self.ahead_ms})
        self.ahead_ms, self.unsaved = 0, True
