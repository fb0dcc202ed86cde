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

from stratamq_commitlog.driver import PassTiming
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.log_parts import ThisProcess, Workers
from stratamq_commitlog.messages import LogListener
from stratamq_dispatcher.engine import DispatchEngine
from stratamq_index.engine import IndexEngine

from stratamq.errors import StoreRefusedError, StrataError
from stratamq.files.simulated import SimulatedFiles, SimulatedScheduler
from stratamq_torture.simulated.disk import WatchedFile
from stratamq_torture.simulated.world import World
from stratamq_torture.trial import Violation

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
        self.files: Any = None
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


class LogRoom(Room):
    """The commit log service."""

    name = COMMITLOG

    def __init__(self, world: World, owner: Owner) -> None:
        super().__init__(world, owner)
        self.woken = False
        self._stop_deadline_ns = 0

    def start(self) -> bool:
        """Start like any room, except for one refusal: RocketMQ deletes segments without a sync,
        and a power loss can leave a gap among those behind its end. Then an operator does what the
        refusal describes, moves what is behind the gap away, and the log must start."""
        world = self.world
        if not world.foreign or not behind_gap(world.disk.files(name="observer")):
            return super().start()
        try:
            return super().start()
        except Violation as refusal:
            if "is missing" not in refusal.sentence:
                raise
            world.note(f"an operator is asked: {refusal.sentence}")
        files = world.disk.files(name="operator")
        for path in behind_gap(files):
            files.unlink(path)
        files.sync_directory(COMMITLOG)
        return super().start()

    def _open(self) -> None:
        world, files = self.world, self.files
        engine = CommitLog(
            files,
            world.settings.log,
            clock=world.clock,
            random=random.Random(world.chance.getrandbits(32)),
            workers=Workers(self.scheduler.worker(), self.scheduler.worker()),
            process=ThisProcess(self.starts),
            listener=LogListener(
                wake=lambda: self._timing.wake(), idle=lambda: self._timing.resume()
            ),
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

    def _schedule(self) -> None:
        self.woken = True

    def run_pass(self) -> None:
        self.woken = False
        segments = self.engine.segments
        # So that the process can die within a write.
        for segment in (segments.active, segments.ahead):
            if segment is not None and not isinstance(segment.file, WatchedFile):
                segment.file = WatchedFile(segment.file, self.files)
        self.guarded(self.engine.run_pass)

    def tick(self) -> None:
        self.guarded(self.engine.tick)
        if self.engine is not None:
            self._timing.resume()

    def begin_stop(self) -> None:
        self.stopping = True
        timeout_ms = self.engine.config.follower_stop_timeout_ms
        self._stop_deadline_ns = self.world.clock.monotonic_ns() + timeout_ms * 1_000_000
        self.guarded(self.engine.begin_close)

    def stop_step(self) -> None:
        """Continues with each call, until the process has ended in order."""
        engine = self.engine
        late = self.world.clock.monotonic_ns() >= self._stop_deadline_ns
        if not (late or engine.close_ready()):
            return
        self.owner.end_streams()
        self.guarded(self.scheduler.run_until_idle)
        if self.engine is None:
            return
        clean = engine.commit.failure is None and not self.excused
        try:
            engine.close()
        except (OSError, StrataError) as error:
            if not self.excused:
                raise Violation("stop", f"the log does not close: {error!r}") from error
            clean = False
        self.owner.log_closed(engine, clean=clean)
        self.die()


class FollowerRoom(Room):
    """The dispatcher, or the index."""

    def __init__(self, world: World, owner: Owner, name: str) -> None:
        super().__init__(world, owner)
        self.name = name
        self.failed: BaseException | None = None
        """Following has ended for good, until the next start."""
        self._lock: Any = None
        self._stopped = False

    def _open(self) -> None:
        self.failed = None
        self._lock = self.files.lock(f"stratamq/{self.name}.lock", b"%d" % self.starts)
        world, worker = self.world, self.scheduler.worker
        engine: Any
        if self.name == DISPATCHER:
            engine = DispatchEngine(self.files, world.settings.dispatcher, worker(), world.clock)
        else:
            settings = world.settings.index
            engine = IndexEngine(self.files, settings, worker(), worker(), world.clock)
        engine.load()
        self.engine = engine

    def tick(self) -> None:
        self.guarded(self.engine.tick)

    def begin_stop(self) -> None:
        self.stopping, self._stopped = True, False
        self.owner.leaves(self)
        shut = self.engine.close if self.name == DISPATCHER else self.engine.shutdown
        self.guarded(lambda: shut(self._done))

    def _done(self) -> None:
        self._stopped = True

    def stop_step(self) -> None:
        """Continues with each call, until the process has ended in order."""
        if not self._stopped:
            return
        self.guarded(self.scheduler.run_until_idle)
        if self.engine is not None:
            self._lock.close()
            self.die()

    def fail(self, error: BaseException) -> None:
        """What `follow.driver` does when the engine raises: following is over."""
        self.failed = error
        self.engine.fold.stopped(error)


def behind_gap(files: SimulatedFiles) -> list[str]:
    """Paths of the segments that do not begin where the one before ends, and all behind them."""
    found = sorted(files.list(COMMITLOG), key=lambda entry: entry.name)
    for number, (one, following) in enumerate(pairwise(found), 1):
        if int(one.name) + one.size != int(following.name):
            return [f"{COMMITLOG}/{entry.name}" for entry in found[number:]]
    return []
