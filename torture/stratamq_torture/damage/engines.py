"""A broker in one process on a real directory, and the stores that it makes to be damaged: copied
for every round, and known by heart.

The three engines are wired as by their `__main__`. One thread does everything, in the order of a
broker in which nothing is ever late; the clock is moved by hand. What an engine raises at its start
reaches the caller; what it raises while it follows is passed to it, as by `follow.driver`.
"""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.log_parts import Workers
from stratamq_commitlog.messages import PutMessage, PutResult
from stratamq_dispatcher.consumer_offsets import ConsumerOffsets
from stratamq_dispatcher.engine import DispatchEngine
from stratamq_dispatcher.engine import EngineSettings as DispatcherSettings
from stratamq_dispatcher.frame_reads import DamagedFrameError
from stratamq_dispatcher.pull import PullAnswer, PullLimits, PullQuery
from stratamq_index.engine import IndexEngine
from stratamq_index.persistence import EngineSettings as IndexSettings
from stratamq_index.query import KeyQuery, QueryAnswer
from stratamq_index.scrubber import IndexScrubber

from stratamq.errors import UnavailableError
from stratamq.files.real import RealFiles
from stratamq.files.simulated import SimulatedClock, SimulatedScheduler
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
from stratamq.formats.file_names import parse_offset_name
from stratamq.formats.frame import Frame, decode
from stratamq.formats.hosts import Host
from stratamq.formats.message_status import SendStatus
from stratamq.formats.properties import KEYS, TAGS, UNIQ_KEY
from stratamq.service.room_lock import take_room_lock

COMMITLOG, DISPATCHER, INDEX = "commitlog", "dispatcher", "index"
ROUNDS = 400
"""More turns than this without coming to rest: something does not end."""
QUIET_TURNS = 3


class NeverSettlesError(Exception):
    """An engine is busy forever."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Small files, so that a few hundred messages fill many of them."""

    segment_bytes: int = 16_384
    queue_file_bytes: int = 400
    index_slots: int = 17
    index_items: int = 60
    property_checksum: bool = True


class _Lane:
    """One follower's stream."""

    def __init__(self, log: CommitLog, engine: Any) -> None:
        self._log, self._engine, self._fold = log, engine, engine.fold
        self.closed = self.failed = False
        self._open()

    def _open(self) -> None:
        generation, position = self._fold.resume_point()
        self._opened, self.session = self._log.hub.open(
            self._fold.name,
            replicable=False,
            generation=generation,
            position=position,
            wake=lambda: None,
        )
        self._machine = Follower()
        self._receive(self._opened)

    def pump(self, settle: Callable[[], None]) -> None:
        """Everything that waits, then a report."""
        while not self.failed and (message := self.session.next()) is not None:
            self._receive(message, settle)
        if not self.failed:
            self.session.report(self._fold.report())

    def _receive(
        self, message: Opened | Event | Closing, settle: Callable[[], None] = lambda: None
    ) -> None:
        action = self._machine.receive(message)
        try:
            if isinstance(action, Cut):
                self._fold.opened(action.opened)
                if isinstance(self._engine, DispatchEngine):
                    following = -1
                    while following:
                        appended, table, following = self._log.queue_page(max(following, 0), 0)
                        self._engine.learn_queues(appended, table)
            elif isinstance(action, Apply | Progress):
                for _ in self._fold.apply(action.event):
                    settle()
            elif isinstance(action, Close):
                self._fold.close_at(action.end, self._all_durable)
        except ReadAgainError:
            self.session.close()
            self._open()
        except Exception as error:  # noqa: BLE001 - as follow.driver: the engine receives it
            self.failed = True
            self._fold.stopped(error)

    def _all_durable(self) -> None:
        self.closed = True


class InProcessBroker:
    """The engines on `root`. Each is None until it was started, and after it refused to."""

    def __init__(self, root: Path, sizes: Sizes, seed: int = 0) -> None:
        self.root = root
        self.sizes = sizes
        self.clock = SimulatedClock()
        self.chance = random.Random(seed)
        self.scheduler = SimulatedScheduler(self.chance)
        self.log: CommitLog | None = None
        self.dispatcher: DispatchEngine | None = None
        self.offsets: ConsumerOffsets | None = None
        self.index: IndexEngine | None = None
        self.scrubber: IndexScrubber | None = None
        self._lanes: dict[str, _Lane] = {}
        self._locks: list[Any] = []

    # --- starts ---

    def start_log(self) -> CommitLog:
        """Raises what a start raises."""
        files = self._files(COMMITLOG)
        log = CommitLog(
            files,
            CommitLogConfig(
                root=self.root,
                segment_bytes=self.sizes.segment_bytes,
                property_checksum=self.sizes.property_checksum,
                default_topic_queues=2,
                snapshot_interval_ms=1_000,
                disk_refuse_ratio=1.0,
                reserve_bytes=0,
            ),
            clock=self.clock,
            random=self.chance,
            workers=Workers(self.scheduler.worker(), self.scheduler.worker()),
        )
        log.open()
        self.log = log
        return log

    def start_dispatcher(self) -> DispatchEngine:
        files = self._files(DISPATCHER)
        worker = self.scheduler.worker()
        settings = DispatcherSettings(queue_file_bytes=self.sizes.queue_file_bytes)
        engine = DispatchEngine(files, settings, worker, self.clock)
        engine.load()
        self.offsets = ConsumerOffsets(files, worker, self.clock, 1_000)
        self.offsets.load()
        self.dispatcher = engine
        return engine

    def start_index(self) -> IndexEngine:
        files = self._files(INDEX)
        settings = replace(
            IndexSettings(), index_slots=self.sizes.index_slots, index_items=self.sizes.index_items
        )
        write, query = self.scheduler.worker(), self.scheduler.worker()
        engine = IndexEngine(files, settings, write, query, self.clock)
        engine.load()
        self.scrubber = IndexScrubber(engine, files, self.clock, write, query, 1 << 40)
        self.scrubber.load()
        self.index = engine
        return engine

    def follow(self) -> None:
        """Connect the followers that run to the log."""
        assert self.log is not None
        for name, engine in ((DISPATCHER, self.dispatcher), (INDEX, self.index)):
            if engine is not None and name not in self._lanes:
                self._lanes[name] = _Lane(self.log, engine)

    def _files(self, room: str) -> RealFiles:
        files = RealFiles(self.root)
        self._locks.append(take_room_lock(files, room))
        return files

    # --- work ---

    def settle(self) -> None:
        """Until nothing moves any more, though every flush that is due is done."""
        quiet, before = 0, self._state()
        for _ in range(ROUNDS):
            self._turn()
            self.clock.advance_ms(1_100)
            for engine in (self.log, self.dispatcher, self.offsets, self.index, self.scrubber):
                if engine is not None:
                    engine.tick()
            state = self._state()
            quiet, before = (quiet + 1 if state == before else 0), state
            if quiet == QUIET_TURNS:
                return
        raise NeverSettlesError(f"still busy after {ROUNDS} turns")

    def _turn(self) -> None:
        self._run_lanes()
        if self.log is not None:
            self.log.run_pass()
        for lane in self._lanes.values():
            lane.pump(self._run_lanes)
        self._run_lanes()

    def _run_lanes(self) -> None:
        self.scheduler.run_until_idle(100_000)

    def _state(self) -> tuple[object, ...]:
        """What moves while there is something to do."""
        log = self.log
        offsets = (0, 0, 0)
        if log is not None:
            offsets = (log.offsets.appended, log.offsets.flushed, log.offsets.confirmed)
        followers = [
            (engine.fold.report(), engine.followed.serving, engine.followed.stopped_reason)
            for engine in (self.dispatcher, self.index)
            if engine is not None
        ]
        scrubbed = self.scrubber is None or self.scrubber.state
        return offsets, scrubbed, *followers, *(lane.closed for lane in self._lanes.values())

    def pull(self, topic: str, queue_id: int, offset: int, count: int = 16) -> PullAnswer:
        """Like `Puller.once`: a damaged unit is restored if the log still has the message."""
        engine = self.dispatcher
        assert engine is not None
        try:
            return self._pull(topic, queue_id, offset, count)
        except DamagedFrameError as error:
            engine.findings.add_damage(error)
            plan = engine.mender.plan(topic, queue_id, error.queue_offset)
            mended = None if plan is None else plan.run(engine.hot_log())
            if plan is None or mended is None:
                raise
            done: list[bool] = []
            engine.mender.write(plan, mended, done.append)
            self._run_lanes()
            if done != [True]:
                raise
        return self._pull(topic, queue_id, offset, count)

    def _pull(self, topic: str, queue_id: int, offset: int, count: int) -> PullAnswer:
        engine = self.dispatcher
        assert engine is not None
        plan = engine.plan_pull(PullQuery(topic, queue_id, offset, count, 0), PullLimits())
        return plan if isinstance(plan, PullAnswer) else plan.run(engine.hot_log())

    def ask(self, topic: str, key: str) -> QueryAnswer:
        """Raises what the answer would be."""
        assert self.index is not None
        got: list[tuple[QueryAnswer | None, BaseException | None]] = []
        self.index.ask(
            KeyQuery(topic, key, max_messages=1_000, end_ms=None),
            lambda answer, error: got.append((answer, error)),
        )
        self.scheduler.run_until_idle(100_000)
        if not got:
            raise UnavailableError("the question was never answered")
        answer, error = got[0]
        if error is not None:
            raise error
        assert answer is not None
        return answer

    # --- ends ---

    def stop(self) -> None:
        """In order, the log first."""
        assert self.log is not None
        self.log.begin_close()
        self.settle()
        self.log.close()
        self.log = None
        for closing in (self.offsets, self.dispatcher):
            if closing is not None:
                closing.close(lambda: None)
        if self.index is not None and self.scrubber is not None:
            self.scrubber.close()
            self.index.shutdown(lambda: None)
        self.scheduler.run_until_idle(100_000)
        self.kill()

    def kill(self) -> None:
        """All processes end at once; what they wrote is in the page cache."""
        self.scheduler.discard()
        if self.log is not None:
            self.log.abandon()
        for lock in self._locks:
            lock.close()
        self.log = self.dispatcher = self.index = self.offsets = self.scrubber = None
        self._lanes.clear()
        self._locks.clear()


TOPICS = ("orders", "payments", "empty-body")
GROUP = "readers"
HALF, WHOLE = 130, 260
"""Messages of a template: about six segments."""
BORN = Host("127.0.0.1", 40_000)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the template, as the log holds it."""

    offset: int
    raw: bytes
    topic: str
    queue_id: int
    queue_offset: int
    unique_key: str

    @property
    def end(self) -> int:
        return self.offset + len(self.raw)


@dataclass(slots=True)
class Template:
    """`clean`: stopped in order; else every process was killed at once."""

    root: Path
    older: Path
    sizes: Sizes
    clean: bool
    end: int
    messages: list[Message] = field(default_factory=list)

    def copy(self, root: Path) -> None:
        shutil.copytree(self.root, root, symlinks=True)


def make_template(directory: Path, seed: int, *, clean: bool, property_checksum: bool) -> Template:
    """A store below `directory`, and beside it its older version."""
    sizes = Sizes(property_checksum=property_checksum)
    root, older = directory / "store", directory / "older"
    chance = random.Random(seed)
    broker = InProcessBroker(root, sizes, seed)
    _start(broker)
    _fill(broker, chance, 0, HALF)
    broker.stop()
    shutil.copytree(root, older, symlinks=True)
    _start(broker)
    _fill(broker, chance, HALF, WHOLE)
    assert broker.log is not None
    template = Template(root, older, sizes, clean, broker.log.offsets.appended)
    if clean:
        broker.stop()
    else:
        broker.kill()
    template.messages = _read(root, template.end)
    if len(template.messages) != WHOLE:
        raise AssertionError(f"{len(template.messages)} messages in the template, not {WHOLE}")
    return template


def _start(broker: InProcessBroker) -> None:
    broker.start_log()
    broker.start_dispatcher()
    broker.start_index()
    broker.follow()
    broker.settle()


def _fill(broker: InProcessBroker, chance: random.Random, first: int, behind: int) -> None:
    """Messages first … behind−1, a few at a time; after each few everything is durable."""
    number = first
    while number < behind:
        count = min(chance.randrange(1, 40), behind - number)
        results: list[PutResult] = []
        assert broker.log is not None
        for each in range(number, number + count):
            broker.log.put([_message(chance, each)], False, results.extend)
        broker.settle()
        failed = [result for result in results if result.status is not SendStatus.PUT_OK]
        if failed or len(results) != count:
            raise AssertionError(f"the template cannot be filled: {failed or results}")
        number += count
        assert broker.offsets is not None
        broker.offsets.commit(GROUP, [("orders", 0, number)])
    broker.settle()


def _message(chance: random.Random, number: int) -> PutMessage:
    topic = chance.choice(TOPICS)
    size = 0 if topic == "empty-body" else chance.choice((10, 100, 300, 700))
    return PutMessage(
        topic,
        chance.randbytes(size),
        BORN,
        queue_id=chance.randrange(2),
        properties={
            UNIQ_KEY: f"message-{number:06d}",
            KEYS: f"key-{number % 9}",
            TAGS: f"tag-{number % 3}",
        },
    )


def _read(root: Path, end: int) -> list[Message]:
    """Every message of the log, read without any code of the rooms."""
    messages: list[Message] = []
    for path in sorted((root / "commitlog").iterdir()):
        base = parse_offset_name(path.name)
        assert base is not None
        content = path.read_bytes()
        position = 0
        while base + position < end and position < len(content):
            frame = decode(content, position)
            if not isinstance(frame, Frame):
                break
            raw = content[position : position + frame.total_size]
            messages.append(
                Message(
                    base + position,
                    raw,
                    frame.topic,
                    frame.queue_id,
                    frame.queue_offset,
                    frame.properties[UNIQ_KEY],
                )
            )
            position += frame.total_size
    return messages
