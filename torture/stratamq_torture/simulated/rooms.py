"""The three processes of a broker on the simulated disk, wired as their `__main__` modules wire
them: the same engines, the same calls in the same order, one lane of work where they have a thread.

A room is a process that starts, works in steps, stops in order or dies. Whatever an engine raises
that is not the process's own death is judged here: explained by a failure that was planned for this
process, or a violation.
"""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol

from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.log_parts import Workers
from stratamq_commitlog.pass_timing import PassTiming
from stratamq_dispatcher.engine import DispatchEngine
from stratamq_index.engine import IndexEngine

from stratamq.errors import StoreRefusedError, StrataError
from stratamq.files.port import Lock
from stratamq.files.simulated import SimulatedFiles, SimulatedScheduler
from stratamq.files.simulated_files import SimulatedFile
from stratamq_torture.simulated.disk import TortureDisk, WatchedFile
from stratamq_torture.simulated.model import Violation
from stratamq_torture.simulated.world import World

COMMITLOG, DISPATCHER, INDEX = "commitlog", "dispatcher", "index"
FOLLOWERS = (DISPATCHER, INDEX)
ROOMS = (COMMITLOG, *FOLLOWERS)


class Owner(Protocol):
    """The owner of all rooms, told when one ends."""

    def ended(self, room: "Room", error: BaseException) -> None:
        """Its process ended by an error."""

    def leaves(self, room: "FollowerRoom") -> None:
        """It follows the log no more: it stops."""

    def end_streams(self) -> None:
        """The log ends all streams: it stops."""

    def log_closed(self, engine: CommitLog, *, clean: bool) -> None:
        """The log's process has stopped in order."""


class Room:
    """One process. `engine` is None while there is none."""

    name = ""

    def __init__(self, world: World, owner: Owner) -> None:
        self.world = world
        self.owner = owner
        self.engine: Any = None
        self.files: SimulatedFiles | None = None
        self.scheduler = SimulatedScheduler(world.chance)
        self.stopping = False
        self.starts = 0
        self.starved = False
        """The disk was full, or nearly, or failing, at some time of this process's life."""

    @property
    def running(self) -> bool:
        return self.engine is not None

    @property
    def has_died(self) -> bool:
        """A crash point was met, which has not been handled yet."""
        return self.engine is not None and self.files is not None and self.files.dead

    @property
    def excused(self) -> bool:
        """Something was planned to go wrong in this process, and did."""
        assert self.files is not None
        return self.starved or self.world.disk.hit[self.files.name] > 0

    def start(self) -> bool:
        """Start the process. False when it refused the directory for a planned reason.

        SimulatedCrash when it dies on the way.
        """
        self.starts += 1
        self.stopping = False
        self.starved = self.world.starved or self.world.sick
        self.files = self.world.disk.files(name=f"{self.name}-{self.starts}")
        self.scheduler = SimulatedScheduler(self.world.chance)
        try:
            self._open()
        except (StoreRefusedError, OSError) as error:
            excused = self.excused
            self.die()
            if not excused:
                raise Violation("start", f"{self.name} does not start: {error!r}") from error
            self.world.note(f"{self.name} refuses to start: {error}")
            return False
        return True

    def die(self) -> None:
        """SIGKILL, or the end of what is left after a crash point."""
        if self.files is not None:
            self.files.kill()
        self.scheduler.discard()
        self.engine = None
        self.stopping = False

    def work(self) -> None:
        """One task or one completion of its lanes."""
        self.guarded(self.scheduler.run_one)

    def guarded(self, call: Callable[[], Any]) -> Any:
        """Run a call of the engine; what it raises ends the process."""
        try:
            return call()
        except Violation:
            raise
        except Exception as error:
            excused = self.excused and isinstance(error, OSError | StrataError)
            self.owner.ended(self, error)
            if not excused:
                raise Violation("crash", f"{self.name} raised {error!r}") from error
            return None

    def _open(self) -> None:
        raise NotImplementedError

    def begin_stop(self) -> None:
        raise NotImplementedError

    def stop_step(self) -> bool:
        """True when the process has ended in order."""
        raise NotImplementedError


class LogRoom(Room):
    """The commit log service."""

    name = COMMITLOG
    engine: CommitLog | None

    def __init__(self, world: World, owner: Owner) -> None:
        super().__init__(world, owner)
        self.woken = False
        self._stop_deadline_ns = 0

    def start(self) -> bool:
        """Start like any room, except for one refusal: RocketMQ deletes segments without a sync,
        and a power loss can leave a gap among those behind its end. Then an operator does what the
        refusal describes, moves what is behind the gap away, and the log must start."""
        world = self.world
        if not world.foreign or not has_gap(world.disk):
            return super().start()
        try:
            started = super().start()
        except Violation as refusal:
            if "is missing" not in refusal.sentence:
                raise
            world.note(f"an operator is asked: {refusal.sentence}")
        else:
            return started
        remove_behind_gap(world.disk.files(name="operator"))
        return super().start()

    def _open(self) -> None:
        world, files = self.world, self.files
        assert files is not None
        engine = CommitLog(
            files,
            world.settings.log,
            clock=world.clock,
            random=random.Random(world.chance.getrandbits(32)),
            workers=Workers(self.scheduler.worker(), self.scheduler.worker()),
            pid=self.starts,
        )
        engine.open()
        self.engine = engine
        self.woken = False
        self._timing = PassTiming(
            engine.appender,
            engine.commit,
            sync_flush=engine.sync_flush,
            pass_bytes=engine.config.pass_bytes,
            schedule=self._schedule,
        )
        engine.wake = self._timing.wake
        engine.commit.on_idle = self._timing.resume

    def _schedule(self) -> None:
        self.woken = True

    def run_pass(self) -> None:
        engine, self.woken = self.engine, False
        assert engine is not None and self.files is not None
        self._watch_stores()
        self.guarded(engine.run_pass)

    def _watch_stores(self) -> None:
        """So that the process can die within a write."""
        assert self.engine is not None and self.files is not None
        segments = self.engine.segments
        for segment in (segments.active, segments.ahead):
            if segment is not None and not isinstance(segment.file, WatchedFile):
                assert isinstance(segment.file, SimulatedFile)
                segment.file = WatchedFile(segment.file, self.files)

    def tick(self) -> None:
        assert self.engine is not None
        self.guarded(self.engine.tick)
        if self.engine is not None:
            self._timing.resume()

    def begin_stop(self) -> None:
        assert self.engine is not None
        self.stopping = True
        timeout_ms = self.engine.config.follower_stop_timeout_ms
        self._stop_deadline_ns = self.world.clock.monotonic_ns() + timeout_ms * 1_000_000
        self.guarded(self.engine.begin_close)

    def stop_step(self) -> bool:
        engine = self.engine
        if engine is None:
            return False
        late = self.world.clock.monotonic_ns() >= self._stop_deadline_ns
        if not (late or engine.close_ready()):
            return False
        self.owner.end_streams()
        self.guarded(self.scheduler.run_until_idle)
        if self.engine is None:
            return False
        clean = engine.commit.failure is None and not self.excused
        try:
            engine.close()
        except (OSError, StrataError) as error:
            if not self.excused:
                raise Violation("stop", f"the log does not close: {error!r}") from error
            clean = False
        self.owner.log_closed(engine, clean=clean)
        self.die()
        return True


class FollowerRoom(Room):
    """What the dispatcher and the index have in common."""

    engine: DispatchEngine | IndexEngine | None

    def __init__(self, world: World, owner: Owner) -> None:
        super().__init__(world, owner)
        self.lock: Lock | None = None
        self.failed: BaseException | None = None
        """Following has ended for good, until the next start."""
        self._stopped = False

    def _open(self) -> None:
        assert self.files is not None
        self.failed = None
        self.lock = self.files.lock(f"stratamq/{self.name}.lock", b"%d" % self.starts)
        engine = self._make()
        engine.load()
        self.engine = engine

    def _make(self) -> Any:
        raise NotImplementedError

    def tick(self) -> None:
        assert self.engine is not None
        self.guarded(self.engine.tick)

    def begin_stop(self) -> None:
        self.stopping = True
        self._stopped = False
        self.owner.leaves(self)
        self.guarded(self._shut)

    def _shut(self) -> None:
        raise NotImplementedError

    def _done(self) -> None:
        self._stopped = True

    def stop_step(self) -> bool:
        if not self._stopped:
            return False
        self.guarded(self.scheduler.run_until_idle)
        if self.engine is None:
            return False
        if self.lock is not None:
            self.lock.close()
        self.die()
        return True

    def fail(self, error: BaseException) -> None:
        """What `follow.driver` does when the engine raises: following is over."""
        assert self.engine is not None
        self.failed = error
        self.engine.stopped(error)


class DispatcherRoom(FollowerRoom):
    name = DISPATCHER
    engine: DispatchEngine | None

    def _make(self) -> DispatchEngine:
        world = self.world
        assert self.files is not None
        return DispatchEngine(
            self.files, world.settings.dispatcher, self.scheduler.worker(), world.clock
        )

    def _shut(self) -> None:
        assert self.engine is not None
        self.engine.close(self._done)


class IndexRoom(FollowerRoom):
    name = INDEX
    engine: IndexEngine | None

    def _make(self) -> IndexEngine:
        world = self.world
        assert self.files is not None
        write, query = self.scheduler.worker(), self.scheduler.worker()
        return IndexEngine(self.files, world.settings.index, write, query, world.clock)

    def _shut(self) -> None:
        assert self.engine is not None
        self.engine.shutdown(self._done)


def has_gap(disk: TortureDisk) -> bool:
    """Whether a segment is missing among the log's files."""
    return bool(behind_gap(disk.files(name="observer")))


def remove_behind_gap(files: SimulatedFiles) -> None:
    for path in behind_gap(files):
        files.unlink(path)
    files.sync_directory(COMMITLOG)


def behind_gap(files: SimulatedFiles) -> list[str]:
    """Paths of the segments that do not begin where the one before ends, and all behind them."""
    found = sorted(files.list(COMMITLOG), key=lambda entry: entry.name)
    for number, (one, following) in enumerate(pairwise(found), 1):
        if int(one.name) + one.size != int(following.name):
            return [f"{COMMITLOG}/{entry.name}" for entry in found[number:]]
    return []
