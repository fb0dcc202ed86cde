"""A commit log under test: short methods for puts, kills, power losses and starts.

    store = Store(segment_bytes=4096)
    store.start()
    store.put(body=b"hello")       # appended, flushed, answered
    store.power_loss(keep_nothing)
    store.start()
    assert [frame.body for frame in store.frames()] == [b"hello"]

`frames` reads the segments with the scalar codec, frame by frame, and knows nothing of the engine.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.log_parts import ThisProcess, Workers
from stratamq_commitlog.messages import (
    BatchResult,
    FrameBatch,
    FrameRun,
    LogListener,
    PutMessage,
    PutResult,
)
from stratamq_commitlog.recovery.walk_ahead import Walkers

from stratamq.files.port import Files
from stratamq.files.real import RealFiles
from stratamq.files.simulated import (
    CrashChoice,
    SimulatedClock,
    SimulatedDisk,
    SimulatedScheduler,
)
from stratamq.files.simulated_inode import Inode
from stratamq.files.simulated_tree import Directory
from stratamq.formats import frame as frame_format
from stratamq.formats.batch_frames import BatchEncoder, FrameShape
from stratamq.formats.file_names import offset_name, parse_offset_name
from stratamq.formats.frame import Blank, Frame
from stratamq.formats.frame_check import FrameOutcome, check
from stratamq.formats.hosts import Host, encode_host
from stratamq.formats.message_status import SendStatus
from stratamq.formats.properties import encode_properties

BORN = Host("10.1.2.3", 4567)
BORN_V6 = Host("2001:db8:0:0:0:0:0:1", 4567)
STORE_HOST = encode_host(Host("127.0.0.1", 10911))
FIXED = 91
"""TOTALSIZE of a frame without topic, body and properties, IPv4 hosts."""


def message(
    body: bytes = b"body", topic: str = "orders", queue_id: int | None = 0, **fields: Any
) -> PutMessage:
    return PutMessage(
        topic=topic,
        body=body,
        queue_id=queue_id,
        **{"born_host": BORN, "born_timestamp_ms": 1} | fields,
    )


def body_for(frame_bytes: int, topic: str = "orders", properties: bytes = b"") -> bytes:
    """A body that makes a frame of exactly `frame_bytes`."""
    return bytes(frame_bytes - FIXED - len(topic) - len(properties)).replace(b"\0", b".")


def batch(
    bodies: Iterable[bytes],
    topic: str = "orders",
    queue_id: int = 0,
    *,
    properties: dict[str, str] | None = None,
    shape: FrameShape | None = None,
    **fields: Any,
) -> FrameBatch:
    """Ready frames of one run, as the client's encoder makes them."""
    return batch_of([(topic, queue_id, list(bodies))], properties=properties, shape=shape, **fields)


def batch_of(
    runs: Sequence[tuple[str, int, list[bytes]]],
    *,
    properties: dict[str, str] | None = None,
    shape: FrameShape | None = None,
    **fields: Any,
) -> FrameBatch:
    encoder = BatchEncoder(shape or FrameShape(encode_host(BORN)))
    raw = encode_properties(properties or {})
    for topic, _, bodies in runs:
        encoder.add(topic, [(body, raw) for body in bodies], **{"born_timestamp_ms": 1} | fields)
    _, joined = encoder.finish()
    return FrameBatch(
        [FrameRun(topic, queue_id, len(bodies)) for topic, queue_id, bodies in runs],
        np.array(encoder.lengths, np.uint32),
        joined,
    )


def raw_batch(
    frames: Sequence[bytes], topic: str = "orders", queue_id: int = 0, count: int | None = None
) -> FrameBatch:
    """Frames as they are, good or bad, in one run."""
    lengths = np.array([len(frame) for frame in frames], np.uint32)
    run = FrameRun(topic, queue_id, len(frames) if count is None else count)
    return FrameBatch([run], lengths, b"".join(frames))


def raw_frame(body: bytes = b"body", topic: str = "orders", **fields: Any) -> bytes:
    """One complete frame by the scalar encoder."""
    defaults: dict[str, Any] = {"born_host": encode_host(BORN), "store_host": STORE_HOST}
    return frame_format.encode(topic=topic.encode(), body=body, **{**defaults, **fields})


@dataclass
class Answers:
    """The engine's answers, in their order."""

    puts: list[list[PutResult]] = field(default_factory=list)
    batches: list[BatchResult] = field(default_factory=list)
    data: list[object] = field(default_factory=list)

    @property
    def results(self) -> list[PutResult]:
        return [result for answer in self.puts for result in answer]

    @property
    def statuses(self) -> list[SendStatus]:
        return [result.status for result in self.results]


class Store:
    """One store directory, and the log process on it if one runs. Settings are those of `start`."""

    new_walkers: Callable[[Files], Walkers | None] = staticmethod(lambda files: None)
    """What walks ahead of a recovery over these files; None: nothing."""

    def __init__(
        self,
        segment_bytes: int = 4096,
        *,
        seed: int = 0,
        root: Path | None = None,
        disk: SimulatedDisk | None = None,
        capacity_bytes: int = 1 << 40,
        **settings: Any,
    ) -> None:
        self.random = random.Random(seed)
        self.clock = SimulatedClock()
        self.root = root
        self.disk = disk or SimulatedDisk(seed, clock=self.clock, capacity_bytes=capacity_bytes)
        if disk is not None:
            disk.clock = self.clock
        self.settings: dict[str, Any] = {
            "segment_bytes": segment_bytes,
            "followers": (),
            "reserve_bytes": 0,
            "property_checksum": False,  # as RocketMQ writes; what it adds is tested by its name
            **settings,
        }
        self.scheduler = SimulatedScheduler(self.random)
        self.log: CommitLog | None = None
        self.answers = Answers()
        self.files: Files | None = None
        self.listener = LogListener()

    # --- processes ---

    def new_files(self) -> Files:
        """The port of a new process."""
        return self.disk.files() if self.root is None else RealFiles(self.root)

    def prepare(self, files: Files | None = None, **changes: Any) -> CommitLog:
        """A new process whose log is not open yet. Time has passed since the last one."""
        self.clock.advance_ms(1_000)
        self.settings.update(changes)
        self.scheduler = SimulatedScheduler(self.random)
        self.files = files or self.new_files()
        self.log = CommitLog(
            self.files,
            CommitLogConfig(root=Path("store"), **self.settings),
            clock=self.clock,
            random=self.random,
            workers=Workers(self.scheduler.worker(), self.scheduler.worker()),
            walkers=self.new_walkers(self.files),
            process=ThisProcess(4711),
            listener=self.listener,
        )
        return self.log

    def start(self, files: Files | None = None, **changes: Any) -> CommitLog:
        log = self.prepare(files, **changes)
        log.open()
        return log

    def kill(self) -> None:
        """SIGKILL: the page cache survives."""
        self.scheduler.discard()
        if self.root is None:
            self.disk.kill()
        elif self.log is not None:
            self.log.abandon()
        self.log = None

    def power_loss(self, choice: CrashChoice | random.Random | None = None) -> None:
        self.scheduler.discard()
        self.disk.crash(choice)
        self.log = None

    def stop(self) -> None:
        """A graceful stop, as the service does it."""
        assert self.log is not None
        self.log.begin_close()
        self.settle()
        self.log.close()
        self.log = None

    def restart(self, **changes: Any) -> CommitLog:
        self.stop()
        return self.start(**changes)

    # --- time ---

    def step(self) -> None:
        """What waits is appended, nothing else happens."""
        assert self.log is not None
        self.log.run_pass()

    def settle(self) -> None:
        """Passes, flushes and allocations, until nothing moves. No time passes."""
        assert self.log is not None
        for _ in range(10_000):
            self.log.run_pass()
            if not self.scheduler.run_until_idle() and not self.log.appender.waiting:
                return
            if not self.scheduler.pending and not self.log.appender.waiting:
                return
        raise AssertionError("the log does not come to rest")

    def pass_time(self, milliseconds: int, ticks: int = 1) -> None:
        assert self.log is not None
        for _ in range(ticks):
            self.clock.advance_ms(milliseconds)
            self.log.tick()
            self.settle()

    # --- requests ---

    def send(self, *messages: PutMessage, atomic: bool = False) -> None:
        """Enqueued, not yet appended; the answer comes to `answers.puts`."""
        assert self.log is not None
        self.log.put(list(messages), atomic, self.answers.puts.append)

    def send_batch(self, frames: FrameBatch) -> None:
        assert self.log is not None
        self.log.puts.batch(frames, self.answers.batches.append)

    def put(self, body: bytes = b"body", topic: str = "orders", **fields: Any) -> PutResult:
        """One message, settled."""
        return self.put_all(message(body, topic, **fields))[0]

    def put_all(self, *messages: PutMessage, atomic: bool = False) -> list[PutResult]:
        answers: list[list[PutResult]] = []
        assert self.log is not None
        self.log.put(list(messages), atomic, answers.append)
        self.settle()
        return answers[0]

    def put_batch(self, frames: FrameBatch) -> BatchResult:
        answers: list[BatchResult] = []
        assert self.log is not None
        self.log.puts.batch(frames, answers.append)
        self.settle()
        return answers[0]

    def put_raw(self, *frames: bytes) -> list[PutResult]:
        answers: list[list[PutResult]] = []
        assert self.log is not None
        self.log.put_raw(list(frames), answers.append)
        self.settle()
        return answers[0]

    def append_data(self, offset: int, data: bytes, master_confirmed: int | None = None) -> object:
        """A slave's append: None when it is done, else the error."""
        answers: list[object] = []
        assert self.log is not None
        self.log.append_data(self.log.generation, offset, data, answers.append, master_confirmed)
        self.settle()
        return answers[0]

    # --- what is on disk ---

    def segments(self) -> dict[int, bytes]:
        """Content of each segment file as any reader sees it, by its offset."""
        if self.root is not None:
            paths = sorted((self.root / "commitlog").glob("*"))
            return {int(path.name): path.read_bytes() for path in paths}
        directory = self.disk.tree.find("commitlog")
        names = sorted(directory.entries) if isinstance(directory, Directory) else []
        offsets = [offset for name in names if (offset := parse_offset_name(name)) is not None]
        return {
            offset: bytes(node.cache)
            for offset in offsets
            if isinstance(node := self.disk.tree.find(segment_path(offset)), Inode)
        }

    def members(self) -> list[tuple[int, bytes, Frame | Blank]]:
        """Every frame and blank of the log: offset, bytes, value; up to the first that is none."""
        return read_members(self.segments())

    def frames(self) -> list[Frame]:
        return [value for _, _, value in self.members() if isinstance(value, Frame)]

    def frame_bytes(self) -> list[bytes]:
        return [raw for _, raw, value in self.members() if isinstance(value, Frame)]

    def end(self) -> int:
        assert self.log is not None
        return self.log.status().appended_offset

    def queues(self) -> dict[tuple[str, int], int]:
        """The log's own queue table."""
        assert self.log is not None
        return dict(self.log.appender.queues.table)

    def aside(self) -> dict[str, bytes]:
        """What recovery kept, by name."""
        directory = self.disk.tree.find("stratamq/aside")
        nodes = directory.entries if isinstance(directory, Directory) else {}
        return {
            name: bytes(nodes[name].cache)
            for name in sorted(nodes)
            if isinstance(nodes[name], Inode)
        }

    def edit(self, path: str, position: int, data: bytes) -> None:
        """Damage at rest."""
        self.disk.rot(path, position, data)


def segment_path(offset: int) -> str:
    return f"commitlog/{offset_name(offset)}"


def read_members(segments: dict[int, bytes]) -> list[tuple[int, bytes, Frame | Blank]]:
    members: list[tuple[int, bytes, Frame | Blank]] = []
    expected = None
    for base, content in segments.items():
        if expected is not None and base != expected:
            return members
        position = 0
        while position < len(content):
            outcome, size = check(content, position)
            if outcome is FrameOutcome.BLANK:
                raw = content[position : position + 8]
                members.append((base + position, raw, Blank(size)))
                position += size
                continue
            if outcome is not FrameOutcome.GOOD:
                return members
            value = frame_format.decode(content, position)
            assert isinstance(value, Frame)
            if value.physical_offset != base + position:
                return members
            members.append((base + position, content[position : position + size], value))
            position += size
        expected = base + len(content)
    return members


def queue_table(frames: Iterable[Frame]) -> dict[tuple[str, int], int]:
    """Next queue offsets, as a linear scan of the log gives them."""
    table: dict[tuple[str, int], int] = {}
    for frame in frames:
        if frame.sys_flag & 0xC in (0, 8):
            table[frame.topic, frame.queue_id] = frame.queue_offset + 1
    return table


def swallow(_: object) -> None:
    """For answers that a test does not look at."""


def load_directory(disk: SimulatedDisk, root: Path) -> None:
    """Copy a real directory onto an empty simulated disk, durably, times included."""
    files = disk.files(name="copy")
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_dir():
            files.make_directory(name)
            continue
        content = path.read_bytes()
        files.create(name, len(content), sparse=True)
        if content:
            file = files.open(name, writable=True)
            file.write(0, content)
            file.flush()
            file.close()
        files.set_mtime(name, path.stat().st_mtime_ns)
    files.remove_directory("stratamq/tmp")
    files.remove_directory("stratamq")
    files.sync_all()
    files.kill()
    disk.calls = 0
