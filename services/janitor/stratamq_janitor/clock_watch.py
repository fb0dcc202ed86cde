"""Whether the wall clock can be trusted: compare it with the time that is known to have passed.

A clock that was set forward makes everything old. The watch compares it with:

    the machine has run since the last look    its monotonic clock: exact, also while no janitor ran
    it was started since, or nothing is known  the last look and the newest message in the log: the
                                               time since then is unaccounted for

A difference above the tolerance raises a doubt: nothing expires for an hour (the grace), in which
an operator can correct the clock. A broker that was off for a weekend therefore deletes an hour
later. A clock that was set back makes everything young and raises no doubt.

The last look is kept in `stratamq/janitor.json`, at most a minute old, so that neither a restart of
the janitor nor one of the machine ends a doubt or hides an hour that came and went.
"""

import logging
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Self

from stratamq.files.metadata import JsonObject, MetadataFile
from stratamq.files.port import Clock

log = logging.getLogger(__name__)

SAVE_INTERVAL_NS = 60_000_000_000


@dataclass(frozen=True, slots=True)
class Witness:
    """One reading of the clocks, judged: all that a look decides, it decides by that reading. A
    later jump is the next look's. `monotonic_ns` means something within one `boot` of the
    machine."""

    wall_ms: int
    monotonic_ns: int
    boot: str
    doubt_ns: int | None = None
    """The monotonic time at which the clock was last found to be doubtful."""
    doubt_ms: int = 0
    """By how much."""

    @property
    def doubt(self) -> str:
        """Why `wall_ms` is not believed, as a sentence; empty: it is."""
        if self.doubt_ns is None:
            return ""
        by = timedelta(seconds=self.doubt_ms // 1000)
        return f"the clock went forward by {by} (h:mm:ss) that is unaccounted for"

    def trusted(self) -> Self:
        """The same reading, of a clock that an operator confirms."""
        return replace(self, doubt_ns=None, doubt_ms=0)

    def document(self) -> JsonObject:
        return {
            "wallMs": self.wall_ms,
            "monotonicNs": self.monotonic_ns,
            "boot": self.boot,
            "doubtNs": self.doubt_ns,
            "doubtMs": self.doubt_ms,
        }

    @classmethod
    def parse(cls, document: JsonObject | None) -> Self | None:
        """None when it holds something else."""
        document = document or {}
        wall, monotonic = document.get("wallMs"), document.get("monotonicNs")
        boot, doubt = document.get("boot"), document.get("doubtNs")
        doubt_ms = document.get("doubtMs")
        if not isinstance(wall, int) or not isinstance(monotonic, int):
            return None
        if not isinstance(boot, str) or not isinstance(doubt, int | None):
            return None
        return cls(wall, monotonic, boot, doubt, doubt_ms if isinstance(doubt_ms, int) else 0)


def unexplained_ms(before: Witness | None, now: Witness, newest_message_ms: int | None) -> int:
    """How much of the wall clock's step forward is unaccounted for; 0 when nothing is known."""
    if before is not None and before.boot == now.boot:
        passed_ms = (now.monotonic_ns - before.monotonic_ns) // 1_000_000
        return max(0, now.wall_ms - before.wall_ms - passed_ms)
    known = [moment for moment in (newest_message_ms, before and before.wall_ms) if moment]
    return max(0, now.wall_ms - max(known)) if known else 0


class ClockWatch:
    """One look at a time. `boot` names this start of the machine."""

    def __init__(
        self, file: MetadataFile, boot: str, tolerance_ms: int, grace_ms: int, clock: Clock
    ) -> None:
        self._file = file
        self._boot = boot
        self._tolerance_ms = tolerance_ms
        self._grace_ns = grace_ms * 1_000_000
        self._clock = clock
        self._last = Witness.parse(file.load())
        self._saved_ns: int | None = None

    @property
    def previous_ms(self) -> int | None:
        """What the wall showed at the last look; None: there was none."""
        return None if self._last is None else self._last.wall_ms

    def read(self, newest_message_ms: int | None) -> Witness:
        """Read the clocks, and judge them by the last look. Changes nothing.

        `newest_message_ms`: the store time of the newest message in the log.
        """
        before = self._last
        now = Witness(self._clock.wall_ms(), self._clock.monotonic_ns(), self._boot)
        ahead_ms = unexplained_ms(before, now, newest_message_ms)
        if ahead_ms > self._tolerance_ms:
            return replace(now, doubt_ns=now.monotonic_ns, doubt_ms=ahead_ms)
        if before is not None and before.doubt_ns is not None:
            # A start of the machine begins the grace again: how much of it has run is unknown.
            since_ns = before.doubt_ns if before.boot == now.boot else now.monotonic_ns
            if now.monotonic_ns - since_ns < self._grace_ns:
                return replace(now, doubt_ns=since_ns, doubt_ms=before.doubt_ms)
        return now

    def see(self, newest_message_ms: int | None, *, trust: bool = False) -> Witness:
        """`read`, and remember it. `trust`: an operator confirms the clock, durably."""
        before, now = self._last, self.read(newest_message_ms)
        if now.doubt_ns == now.monotonic_ns:
            log.error("wall clock jumped ahead unobserved", extra={"by_ms": now.doubt_ms})
        kept = now.trusted() if trust else now
        doubted = before is not None and bool(before.doubt)
        self._remember(kept, at_once=doubted is not bool(kept.doubt) or kept != now)
        return kept

    def _remember(self, witness: Witness, *, at_once: bool) -> None:
        self._last = witness
        saved_ns = self._saved_ns
        due = saved_ns is None or witness.monotonic_ns - saved_ns >= SAVE_INTERVAL_NS
        if not at_once and not due:
            return
        self._saved_ns = witness.monotonic_ns
        try:
            self._file.store(witness.document())
        except OSError as error:
            # The volume may be full, which is when the janitor is needed most.
            log.warning("time of the last check not saved", extra={"error": str(error)})
