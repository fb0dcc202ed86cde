"""What this broker's log has for slaves: followed up to what may be replicated.

The service reads no frames. It requires how far bytes may be shipped, where the log begins, and
when another generation begins, after which every slave has to compare its history again.
"""

import asyncio
import bisect
import logging
from collections import deque
from collections.abc import Callable, Iterator

from stratamq.errors import StrataError
from stratamq.files.port import Clock
from stratamq.follow.own_log import OwnLog
from stratamq.follow.protocol import Event, Opened, Report
from stratamq.formats.log_state import LogState
from stratamq_ha.history import History
from stratamq_ha.master_connection import MasterLogView

log = logging.getLogger(__name__)

ASK_AGAIN_S = 0.2
MARK_INTERVAL_MS = 50
MARKS = 4_096
"""Remembered moments of growth: more than three minutes of steady writing."""


class OwnLogView:
    """Follows the log; `stratamq.follow.driver` drives it."""

    name = "ha"

    def __init__(
        self,
        clock: Clock,
        on_moved: Callable[[], None] = lambda: None,
        on_generation: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_moved` is called when the log has grown, or its facts have changed; `on_generation`
        when it has begun a generation, or has another role: slaves must compare again."""
        self.facts: LogState | None = None
        """The log's answer in the present generation; None until it has been asked."""
        self.generation = 0
        self.answered = asyncio.Event()
        """The log has answered a new connection: it is to be asked for its facts."""
        self.stopped_reason = ""
        self._clock = clock
        self._on_moved, self._on_generation = on_moved, on_generation
        self._minimum = self._shippable = self._segment_bytes = 0
        self._confirmed = 0
        self._opened_at = 0
        self._grown: deque[tuple[int, int]] = deque(maxlen=MARKS)
        """(end, monotonic ms) of growth, for the lag in time."""

    @property
    def ready(self) -> bool:
        """Slaves can be served: it is known what the log has."""
        return self.facts is not None and self._shippable >= self._opened_at

    @property
    def view(self) -> MasterLogView:
        appended = self.facts.appended_offset if self.facts is not None else 0
        return MasterLogView(
            minimum=self._minimum,
            shippable=self._shippable,
            appended=max(appended, self._shippable),
            segment_bytes=self._segment_bytes,
            confirmed=self._confirmed,
        )

    @property
    def history(self) -> History:
        assert self.facts is not None
        return History(self.facts.generations, self._minimum, self.view.appended)

    def learned(self, facts: LogState) -> None:
        """The log's answer; one of another generation is ignored."""
        if facts.generation == self.generation:
            before, self.facts = self.facts, facts
            if before is not None and before.role is not facts.role:
                self._on_generation()
            self._on_moved()

    def lag_ms(self, acknowledged: int) -> int:
        """For how long there has been something that a slave does not have."""
        if acknowledged >= self._shippable:
            return 0
        at = bisect.bisect_right(self._grown, acknowledged, key=lambda mark: mark[0])
        return self._now_ms() - self._grown[at][1] if at < len(self._grown) else 0

    # --- what the transport of Follow calls ---

    def resume_point(self) -> tuple[int, int]:
        return self.generation, self._shippable

    def opened(self, opened: Opened) -> None:
        self._minimum, self._segment_bytes = opened.minimum, opened.segment_bytes
        self._shippable, self._confirmed = opened.cut_to, opened.confirmed
        self._opened_at = opened.confirmed
        if opened.generation != self.generation or self.facts is None:
            self.generation, self.facts = opened.generation, None
            self._grown.clear()
            self._on_generation()
        self.answered.set()

    def apply(self, event: Event) -> Iterator[None]:
        self._minimum, self._confirmed = event.minimum, event.confirmed
        if event.end > self._shippable:
            self._shippable = event.end
            now = self._now_ms()
            if not self._grown or now - self._grown[-1][1] >= MARK_INTERVAL_MS:
                self._grown.append((event.end, now))
        self._on_moved()
        yield from ()

    def report(self) -> Report:
        return Report(self._shippable, self._shippable, 0, self._shippable)

    def close_at(self, end: int, done: Callable[[], None]) -> None:
        done()

    def stopped(self, error: BaseException) -> None:
        self.stopped_reason = f"following the log has failed: {error}"

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000


async def ask_for_facts(view: OwnLogView, own: OwnLog, on_learned: Callable[[], None]) -> None:
    """Query the log's state whenever the log has been restarted; runs until cancelled."""
    while True:
        await view.answered.wait()
        view.answered.clear()
        learned = False
        while not learned:
            try:
                facts = await own.facts()
                view.learned(facts)
                learned = facts.generation == view.generation
                on_learned()
            except StrataError as error:
                log.debug("the log does not answer", extra={"error": str(error)})
            if not learned:
                await asyncio.sleep(ASK_AGAIN_S)
