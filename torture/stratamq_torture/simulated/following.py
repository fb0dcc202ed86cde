"""One follower's stream to the log, in steps: what `follow.driver` and the log's servicer do.

    apart ──open──▶ opened ──queue table──▶ following ◀──▶ (event, step of applying, report)
      ▲                                         │ Closing
      └──── broken, or the log is gone ◀────────┴──▶ everything durable, last report, apart

The order of the calls is the real driver's; what the network may do to it (messages under way when
the log dies, a stream that breaks, a queue table that comes from the next log) is chance.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator

from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.replica.follow_hub import Session

from stratamq.errors import StrataError
from stratamq.follow.protocol import (
    Apply,
    Close,
    Closing,
    Cut,
    Event,
    Follower,
    Opened,
    Progress,
    ReadAgainError,
)
from stratamq_torture.simulated.rooms import DISPATCHER, FollowerRoom, LogRoom
from stratamq_torture.simulated.world import Situation, World
from stratamq_torture.trial import Violation

UNDER_WAY = 3
"""Messages that the network holds at most."""
REPORT_INTERVAL_NS = 1_000_000_000
PAGE_ENTRIES = 2


class Connection:
    """Belongs to one follower's room, through all its processes."""

    def __init__(self, world: World, log: LogRoom, room: FollowerRoom) -> None:
        self._world = world
        self._log_room = log
        self._room = room
        self._log: CommitLog | None = None
        self._session: Session | None = None
        self._machine = Follower()
        self._under_way: deque[Opened | Event | Closing] = deque()
        self._applying: Iterator[None] | None = None
        self._moved = False
        self._asks = False
        self._next_page = 0
        self._reports = False
        self._next_report_ns = 0
        self._durable = False
        self._closing = False

    @property
    def connected(self) -> bool:
        return self._session is not None

    @property
    def idle(self) -> bool:
        """Nothing is under way, and the follower has received all there is."""
        waiting = self._under_way or self._applying or self._asks or self._moved or self._closing
        return self.connected and not waiting

    def steps(self) -> list[Callable[[], None]]:
        """What could happen next."""
        room, log = self._room, self._log_room
        if room.engine is None or room.failed is not None or room.stopping:
            return []
        if self._session is None:
            if self._applying is not None or self._under_way:
                return [self._receive]
            return [self._connect] if log.engine is not None else []
        ready: list[Callable[[], None]] = []
        if self._moved and len(self._under_way) < UNDER_WAY and not self._closing:
            ready.append(self._send)
        if self._applying is not None or (self._under_way and not self._asks):
            ready.append(self._receive)
        if self._asks:
            ready.append(self._learn_queues)
        if self._closing and self._durable:
            ready.append(self._last_report)
        now = self._world.clock.monotonic_ns()
        if self._reports and not self._closing and now >= self._next_report_ns:
            ready.append(self._report)
        return ready

    # --- both ends ---

    def _connect(self) -> None:
        engine, log = self._room.engine, self._log_room.engine
        generation, position = engine.fold.resume_point()
        known = engine.followed.applied
        opened, self._session = log.hub.open(
            self._room.name,
            replicable=False,
            generation=generation,
            position=position,
            wake=self._wake,
        )
        if opened.minimum < opened.cut_to < known:
            self._world.met(Situation.FOLLOWER_CUT)
            if known < log.offsets.appended:
                self._world.met(Situation.OVERGROWN)
        self._log = log
        self._machine = Follower()
        self._under_way.clear()
        self._under_way.append(opened)
        self._moved, self._asks, self._reports = True, False, False
        self._closing = self._durable = False
        self._world.note(
            f"{self._room.name} opens at {position} of {generation:x}: cut to {opened.cut_to}"
        )

    def _wake(self) -> None:
        self._moved = True

    def _send(self) -> None:
        """The log's half: one message, or nothing until it is woken again."""
        message = self._session.next()
        if message is None:
            self._moved = False
        else:
            self._under_way.append(message)

    def _receive(self) -> None:
        """The follower's half: the next message, or the next step of applying one."""
        if self._applying is not None:
            self._engine(self._apply_step)
            return
        message = self._under_way.popleft()
        try:
            action = self._machine.receive(message)
        except StrataError as error:
            raise Violation("follow", f"{self._room.name}: {error}") from error
        engine = self._room.engine
        if isinstance(action, Cut):
            opened = action.opened
            self._engine(lambda: engine.fold.opened(opened))
            if self.connected:
                # Otherwise it is the answer of a log that is gone.
                self._world.uncut.discard(self._room.name)
            self._reports = True
            self._asks, self._next_page = self._room.name == DISPATCHER, 0
            self._next_report_ns = self._world.clock.monotonic_ns()
        elif isinstance(action, Close):
            self._closing = True
            end = action.end
            self._engine(lambda: engine.fold.close_at(end, self._all_durable))
        else:
            self._begin(action)

    def _begin(self, action: Apply | Progress) -> None:
        engine = self._room.engine
        self._applying = iter(engine.fold.apply(action.event))
        self._engine(self._apply_step)

    def _apply_step(self) -> None:
        if next(self._applying, self) is self:
            self._applying = None

    def _learn_queues(self) -> None:
        """The table of the log that runs now: it may be another than the one that was opened."""
        self._asks = False
        log, engine = self._log_room.engine, self._room.engine
        if log is None or engine is None or self._room.name != DISPATCHER:
            return
        place = self._next_page if log is self._log else 0
        appended, table, self._next_page = log.queue_page(place, PAGE_ENTRIES)
        self._asks = self._next_page > 0
        self._engine(lambda: engine.learn_queues(appended, table))  # type: ignore[union-attr]

    def _report(self) -> None:
        engine = self._room.engine
        self._session.report(engine.fold.report())
        self._next_report_ns = self._world.clock.monotonic_ns() + REPORT_INTERVAL_NS

    def _all_durable(self) -> None:
        self._durable = True

    def _last_report(self) -> None:
        self._report()
        self.end()

    # --- ends ---

    def end(self) -> None:
        """The stream is over in order: nothing is under way any more."""
        if self._session is not None:
            self._session.close()
        self._session = self._log = None
        self._asks = self._reports = self._closing = False

    def break_off(self, chance: random.Random) -> None:
        """The log or the network is gone: a part of what was under way may still arrive."""
        while len(self._under_way) and chance.random() < 0.5:
            self._under_way.pop()
        self.end()
        if self._room.engine is None:
            self._under_way.clear()

    def leave(self) -> None:
        """The follower's process dies, or stops following."""
        self.end()
        self._under_way.clear()
        if self._applying is not None:
            close = getattr(self._applying, "close", None)
            if close is not None:
                close()
        self._applying = None

    def _engine(self, call: Callable[[], None]) -> None:
        """A call of the engine: what it raises ends following for good."""
        room = self._room
        try:
            call()
        except Violation:
            raise
        except ReadAgainError:
            self.leave()
        except Exception as error:
            engine = room.engine
            if engine is None:
                raise
            # An event that is under way may name bytes that the log has lost since.
            excused = room.excused or self._world.cache_lies or room.name in self._world.uncut
            room.fail(error)
            self._applying = None
            self._under_way.clear()
            self.end()
            self._world.note(f"{room.name} stops following: {error!r}")
            if not excused:
                raise Violation("follow", f"{room.name} stops following: {error!r}") from error
