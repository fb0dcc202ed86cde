"""One start of the delivery service on a simulated disk: the real code, put together as its
`__main__` does it; a wire to the log that may hold up what was sent, and as much of a dispatcher as
the service asks for.
"""

import asyncio
import random
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

import numpy as np
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.messages import BatchResult, FrameBatch, FrameRun
from stratamq_commitlog.use_cases.append_stream import Fence
from stratamq_delivery.checkers import Checkers
from stratamq_delivery.delivery import Delivery
from stratamq_delivery.ending import Ending
from stratamq_delivery.half_messages import CheckRules
from stratamq_delivery.known_ends import KnownEnds
from stratamq_delivery.levels import Levels
from stratamq_delivery.replays import Replays
from stratamq_delivery.rocketmq_files import RocketMQFiles
from stratamq_delivery.schedule import Schedule
from stratamq_delivery.shared_groups import SharedGroups
from stratamq_delivery.sharing import Sharing
from stratamq_delivery.taken_over import TakenOver
from stratamq_delivery.timed_messages import TimedMessages
from stratamq_delivery.transactions import Transactions

from stratamq.errors import NotWritableError, UnavailableError
from stratamq.files.port import Clock
from stratamq.files.simulated import SimulatedScheduler
from stratamq.follow.demand import Demand
from stratamq.follow.fold import Fold, FoldPlace, SnapshotFile
from stratamq.follow.own_appends import AppendLimits, OwnAppends, OwnBatch
from stratamq.follow.queues import ANSWER_S, PulledFrames
from stratamq.formats import sysflag
from stratamq.formats.batch_frames import FrameShape
from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_MS
from stratamq.formats.frame import Frame, decode
from stratamq.formats.hosts import Host, encode_host
from stratamq.formats.log_state import Role
from stratamq.formats.properties import TAGS
from stratamq.formats.replication_metadata import MetadataKind, Page
from stratamq.formats.store_paths import DELIVERY_STATE_PATH
from stratamq_torture.simulated.disk import TortureDisk
from stratamq_torture.trial import Violation

SEGMENT_BYTES = 1 << 14
BORN = Host("10.0.0.7", 4711)
SHAPE = FrameShape(encode_host(BORN))
RARELY_MS = 30_000
"""Between two looks at the files of RocketMQ."""
LOOK_S = 0.05
"""How often a dispatcher that was asked for what it does not have looks again."""


class Settings(NamedTuple):
    """What a seed chooses for all brokers."""

    flush: str
    step_messages: int
    save_ms: int
    undo_bytes: int
    roll_ms: int
    attempts: int
    clock_limit_ms: int


class Wire:
    """One append stream: batches that the log has not read yet, answers that the service has not.
    The log's side does what `stratamq_commitlog/use_cases/append_stream.py` does."""

    def __init__(self, log: CommitLog, generation: int, newest: "list[Wire]") -> None:
        self._log = log
        self._fence = Fence(log.states, generation)
        self.sent: deque[OwnBatch] = deque()
        self.answers: deque[BatchResult] = deque()
        self._unanswered: deque[list[BatchResult]] = deque()
        """By batch, in the order in which they are answered: empty until it has its result."""
        self.is_open = self._fence.obstacle() is None
        if self.is_open:
            for older in newest:
                older._fence.end("its writer opened another append stream")
            newest[:] = [self]

    def read(self) -> None:
        """The log reads what was sent next."""
        own = self.sent.popleft()
        runs = [FrameRun(topic, queue, count) for topic, queue, count in own.runs]
        lengths = np.array(own.lengths, np.uint32)
        batch = FrameBatch(runs, lengths, b"".join(own.pieces), fence=self._fence.obstacle)
        slot: list[BatchResult] = []
        self._unanswered.append(slot)
        self._log.puts.batch(batch, lambda result: self._done(slot, result))

    def _done(self, slot: list[BatchResult], result: BatchResult) -> None:
        if result.error is not None:
            self._fence.end("an earlier batch of the stream was refused")
        slot.append(result)
        while self._unanswered and self._unanswered[0]:
            self.answers += self._unanswered.popleft()


class Machine:
    """What a service finds where it runs: the disk, and the log's process, if there is one."""

    def __init__(self, name: str, settings: Settings, chance: random.Random, clock: Clock) -> None:
        self.name = name
        self.settings = settings
        self.chance = chance
        self.clock = clock
        self.disk = TortureDisk(chance, clock=clock)
        self.log: CommitLog | None = None
        self.queues = Queues(self)
        self.newest: list[Wire] = []
        self.late: list[Wire] = []
        """Streams that were left, and may still have something on the wire."""


class Queues:
    """The dispatcher of a broker, as `QueueCalls` reaches it. What the groups have committed
    outlives it; it knows what the log has confirmed as far as it has looked."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.is_up = True
        self.starts = 1
        self.shared = set[str]()
        self.offsets: dict[tuple[str, str], dict[int, int]] = {}
        self.messages: dict[tuple[str, int], list[tuple[Frame, bytes]]] = {}
        self.all: list[Frame] = []
        self._position = self._generation = 0

    def restart(self) -> None:
        self.starts += 1
        self.shared.clear()
        self.forget()

    def forget(self) -> None:
        """The log was cut, perhaps."""
        self.messages, self.all = {}, []
        self._position = self._generation = 0

    def take_offsets(self, other: "Queues") -> None:
        self.offsets = {key: {**known} for key, known in other.offsets.items()}

    def look(self) -> None:
        """Dispatch what the log has confirmed."""
        log = self._machine.log
        if log is None or not log.gate.open:
            return
        end = log.offsets.confirmed
        for offset, raw in self._machine.disk.frames(self._position, end, SEGMENT_BYTES):
            frame = decode(raw, verify_body=False)
            assert isinstance(frame, Frame) and frame.physical_offset == offset
            self.all.append(frame)
            if frame.sys_flag & sysflag.TRANSACTION_MASK in (0, sysflag.TRANSACTION_COMMIT):
                queue = self.messages.setdefault((frame.topic, frame.queue_id), [])
                if frame.queue_offset != len(queue):
                    raise Violation("dense", f"{frame.topic}: {frame.queue_offset}, {len(queue)}")
                queue.append((frame, raw))
        self._position = max(self._position, end)
        if log.generation != self._generation:
            self._generation = log.generation
            self._lower()

    def _lower(self) -> None:
        """No offset is beyond its queue's end: a generation begins."""
        for (_, topic), known in self.offsets.items():
            for queue_id, offset in known.items():
                known[queue_id] = min(offset, len(self.messages.get((topic, queue_id), [])))

    async def bounds(self, topic: str, applied: int) -> dict[int, tuple[int, int]]:
        deadline = asyncio.get_running_loop().time() + ANSWER_S
        await self._answer()
        while self._position < applied:
            if asyncio.get_running_loop().time() >= deadline:
                raise UnavailableError("simulated: the queues do not have that yet")
            await asyncio.sleep(LOOK_S)
            await self._answer()
        known = self.messages.items()
        return {queue_id: (0, len(queue)) for (name, queue_id), queue in known if name == topic}

    async def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        most: int,
        wait_ms: int,
        max_bytes: int = 0,
        tags: Sequence[str] = (),
    ) -> PulledFrames:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        await self._answer()
        while len(queue := self.messages.get((topic, queue_id), [])) <= offset:
            if loop.time() >= deadline:
                break
            await asyncio.sleep(LOOK_S)
            await self._answer()
        found = queue[offset : offset + most]
        wanted = [raw for frame, raw in found if not tags or frame.properties.get(TAGS) in tags]
        return PulledFrames(b"".join(wanted), 0, len(queue), offset + len(found))

    async def committed(self, group: str, topic: str) -> dict[int, int]:
        await self._answer()
        return {**self.offsets.get((group, topic), {})}

    async def incarnation(self) -> int:
        await self._answer()
        return self.starts

    async def share(
        self, group: str, offsets: Sequence[tuple[str, int, int]], *, shared: bool = True
    ) -> None:
        await self._answer()
        log = self._machine.log
        if log is None or log.role is Role.SLAVE:
            raise NotWritableError("simulated: a slave takes no offset commits", "role")
        for topic, queue_id, offset in offsets:
            self.offsets.setdefault((group, topic), {})[queue_id] = offset
        (self.shared.add if shared else self.shared.discard)(group)

    async def oldest_ms(self, group: str) -> int:
        await self._answer()
        return 0

    async def shared_groups(self) -> set[str]:
        await self._answer()
        return {*self.shared}

    async def _answer(self) -> None:
        """Others run while a call is on its way."""
        await asyncio.sleep(0)
        if not self.is_up:
            raise UnavailableError("simulated: the dispatcher does not answer")


class Service:
    """One start of the delivery service: what its `__main__` puts together. `tasks`: of the
    service, and of the clients that it answers: they get no answer when it dies."""

    def __init__(self, machine: Machine) -> None:
        self._machine, chance, clock = machine, machine.chance, machine.clock
        settings = machine.settings
        self.files = machine.disk.files(name=f"{machine.name}-delivery")
        self.followed = followed = FoldPlace()
        self.lanes = SimulatedScheduler(chance)
        ends = KnownEnds()
        self.room = self._make_machines(settings, ends)
        saving = self.files, self.lanes.worker(), clock, settings.save_ms
        self._state = SnapshotFile(DELIVERY_STATE_PATH, self.room, followed, *saving)
        self._state.load()
        self.appends = OwnAppends("delivery", self.room, followed, clock)
        self._fold = Fold(
            "delivery",
            self._state,
            followed,
            self.files,
            moved=self._moved,
            step_messages=settings.step_messages,
        )
        self.sharing = Sharing(
            self.groups,
            self.replays,
            ends,
            followed,
            self.appends,
            machine.queues,  # type: ignore[arg-type]
            chance,
            lambda: None,
            settings.attempts,
        )
        self.ending = Ending(
            self.transactions,
            self.checkers,
            followed,
            self.appends,
            self,  # type: ignore[arg-type]
            lambda: None,
            Demand(),
        )
        saved = (followed, self.files, self.lanes.worker(), clock, RARELY_MS)
        self._rocketmq = RocketMQFiles(
            self.levels.positions, self.groups, settings.attempts, self.appends, *saved
        )
        self._rocketmq.load()
        self.schedule = Schedule(
            self.taken_over,
            self.levels,
            self.timed,
            self.transactions,
            self._rocketmq,
            self.appends,
            machine.queues,  # type: ignore[arg-type]
            lambda: None,
        )
        self.tasks: set[asyncio.Task[None]] = set()
        self.sharing.start(self.spawn, _nothing_new)
        self._session: Any = None
        self.wire: Wire | None = None

    def _make_machines(self, settings: Settings, ends: KnownEnds) -> Delivery:
        followed = self.followed
        self.taken_over = TakenOver(followed)
        undo = {"undo_bytes": settings.undo_bytes}
        self.levels = Levels(DEFAULT_DELAY_LEVELS_MS, followed, self.taken_over, **undo)
        self.timed = TimedMessages(settings.roll_ms, followed, self.taken_over, **undo)
        for delayed in (self.levels, self.timed):
            delayed.copies.lateness_ms = _never_early
        self.checkers = Checkers(self._machine.chance)
        self.groups = SharedGroups(followed, ends, kept_bytes=SEGMENT_BYTES // 2)
        self.transactions = Transactions(
            followed, CheckRules(2_000, 1_000, 3), self.checkers, self.taken_over, **undo
        )
        self.replays = Replays(followed, ends.lines.arrived)
        machines = [self.taken_over, self.levels, self.timed, self.groups, self.replays]
        return Delivery([*machines, self.transactions], followed)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        self.tasks.add(asyncio.ensure_future(work))

    def require(self) -> None:
        """Raises what a task has ended with."""
        for task in [one for one in self.tasks if one.done()]:
            self.tasks.remove(task)
            if not task.cancelled():
                task.result()

    @property
    def is_current(self) -> bool:
        """Whether it knows of the log's newest generation. For the moment in which it does not, it
        may answer by a history that the log has lost: as if the loss had come a moment later."""
        log = self._machine.log
        return log is not None and log.generation == self.followed.generation

    async def facts(self) -> Any:
        """What `Ending` asks the log's service."""
        if self._machine.log is None:
            raise UnavailableError("simulated: the log does not answer")
        return self._machine.log.status()

    def _moved(self) -> None:
        self.groups.moved(self.appends.is_active)
        self.replays.moved(self.appends.is_active)
        self.ending.moved()
        self.schedule.moved()

    # --- steps ---

    def follow(self, events: int = 1 << 30) -> None:
        """Take so many events of the log; connect first if the stream has ended."""
        log = self._machine.log
        if log is None or not log.gate.open:
            return
        if self._session is None or self._session.ended:
            generation, position = self._fold.resume_point()
            opened, self._session = log.hub.open(
                "delivery",
                replicable=False,
                generation=generation,
                position=position,
                wake=lambda: None,
            )
            self._fold.opened(opened)
        while events > 0 and (event := self._session.next()) is not None:
            for _ in self._fold.apply(event):
                pass
            events -= 1

    def log_died(self) -> None:
        self._session = None
        self.hang_up()

    def open(self) -> None:
        log = self._machine.log
        if self.wire is None and self.appends.may_open and log is not None and log.gate.open:
            wire = Wire(log, self.appends.opening(), self._machine.newest)
            if wire.is_open:
                self.wire = wire
                limits = AppendLimits(SHAPE, SEGMENT_BYTES - 8, 64, sync_flush=log.sync_flush)
                self.appends.opened(limits, log.offsets.appended, log.store_clock.wall_ms())

    def send(self) -> bool:
        batch = self.appends.next() if self.wire is not None else None
        if self.wire is not None and batch is not None:
            self.wire.sent.append(batch)
        return batch is not None

    def read(self) -> None:
        if self.wire is not None and self.wire.sent:
            self.wire.read()

    def receive(self) -> None:
        """Take the answers; leave a stream that is over, and what was sent on it."""
        while self.wire is not None and self.wire.answers:
            result = self.wire.answers.popleft()
            self.appends.answered(result.status, result.error)
        self._moved()
        if self.wire is not None and self.appends.is_over:
            self.hang_up()

    def hang_up(self) -> None:
        """The connection breaks; the log may read later what is on the wire."""
        if self.wire is not None:
            self._machine.late.append(self.wire)
            self.wire = None
            self.appends.ended()

    def look_at_clock(self) -> None:
        log = self._machine.log
        if log is not None and log.gate.open:
            self.appends.time.learn(log.store_clock.wall_ms())

    def save(self) -> None:
        self._state.tick()
        self._rocketmq.tick()
        if self._machine.log is not None and self._machine.log.role is Role.SLAVE:
            self.transactions.give_way()

    def die(self) -> None:
        self.hang_up()
        self.lanes.discard()
        self.files.kill()
        for task in self.tasks:
            task.cancel()


async def _nothing_new(kind: MetadataKind, mark: bytes) -> Page:
    """The log's table of topics does not change."""
    return Page(b"")


def _never_early(late_ms: int) -> None:
    if late_ms < 0:
        raise Violation("early", f"a message was taken {-late_ms} ms before its time")
