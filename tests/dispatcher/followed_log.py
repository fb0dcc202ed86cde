"""A log that tests write frame by frame, and the log's half of Follow, without a wire.

The bytes are real: frames by the codec, segments through the file port, blanks at their ends. What
the log service has of its generations is kept as a list, and its answers follow from it.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from stratamq_dispatcher.engine import DispatchEngine, EngineSettings

from stratamq.files.port import Files
from stratamq.files.simulated import SimulatedClock, SimulatedWorker
from stratamq.follow.protocol import (
    Apply,
    Close,
    Closing,
    Cut,
    Event,
    Follower,
    Opened,
    Progress,
    Wait,
)
from stratamq.formats.file_names import offset_name
from stratamq.formats.frame import encode, encode_blank
from stratamq.formats.frame_layout import MAGIC_V1, fits
from stratamq.formats.properties import encode_properties

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
HOST_V6 = bytes(16) + (10911).to_bytes(4, "big")
START_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Stored:
    """One message as it is stored in the log."""

    topic: str
    queue_id: int
    queue_offset: int
    offset: int
    frame: bytes
    store_ms: int
    tags: str

    @property
    def end(self) -> int:
        return self.offset + len(self.frame)


@dataclass
class WrittenLog:
    """Segments on disk and everything that the log service would know about them."""

    files: Files
    segment_bytes: int = 4096
    end: int = 0
    minimum: int = 0
    generations: list[tuple[int, int]] = field(default_factory=lambda: [(1, 0)])
    next_queue_offset: dict[tuple[str, int], int] = field(default_factory=dict)
    messages: list[Stored] = field(default_factory=list)
    lengths: dict[int, int] = field(default_factory=dict)
    """By log offset, of frames and blanks."""
    now_ms: int = START_MS

    def copy(self, files: Files) -> "WrittenLog":
        """The same log on a copy of its disk."""
        return replace(
            self,
            files=files,
            generations=list(self.generations),
            next_queue_offset=dict(self.next_queue_offset),
            messages=list(self.messages),
            lengths=dict(self.lengths),
        )

    def put(
        self,
        topic: str = "orders",
        queue_id: int = 0,
        body: bytes = b"body",
        *,
        tags: str = "",
        properties: dict[str, str] | None = None,
        queue_offset: int | None = None,
        sys_flag: int = 0,
        after_ms: int = 1,
        store_host: bytes = HOST,
        born_host: bytes = HOST,
        magic: int = MAGIC_V1,
    ) -> Stored:
        key = (topic, queue_id)
        in_queue = sys_flag & 0xC in (0, 8)
        if queue_offset is None:
            queue_offset = self.next_queue_offset.get(key, 0) if in_queue else 0
        if in_queue:
            self.next_queue_offset[key] = queue_offset + 1
        self.now_ms += after_ms
        named = dict(properties or {}) | ({"TAGS": tags} if tags else {})

        def frame_at(offset: int) -> bytes:
            return encode(
                topic=topic.encode(),
                body=body,
                born_host=born_host,
                store_host=store_host,
                properties=encode_properties(named),
                queue_id=queue_id,
                queue_offset=queue_offset,
                physical_offset=offset,
                sys_flag=sys_flag,
                store_timestamp_ms=self.now_ms,
                magic=magic,
            )

        left = self.segment_bytes - self.end % self.segment_bytes
        if not fits(len(frame_at(0)), left):
            self._write(encode_blank(left), left)
        frame = frame_at(self.end)
        stored = Stored(topic, queue_id, queue_offset, self.end, frame, self.now_ms, tags)
        self._write(frame, len(frame))
        self.messages.append(stored)
        return stored

    def put_many(self, count: int, topics: int = 2, queues: int = 2) -> list[Stored]:
        """Messages in turn to `topics` × `queues` queues."""
        return [
            self.put(f"topic-{i % topics}", i // topics % queues, tags="ABC"[i % 3])
            for i in range(len(self.messages), len(self.messages) + count)
        ]

    def of_queue(self, topic: str, queue_id: int) -> list[Stored]:
        return [m for m in self.messages if (m.topic, m.queue_id) == (topic, queue_id)]

    def cut(self, offset: int) -> None:
        """Recovery, or a new master's history: everything from `offset` on is removed."""
        for segment in range(offset - offset % self.segment_bytes, self.end, self.segment_bytes):
            path = f"commitlog/{offset_name(segment)}"
            if segment >= offset:
                if self.files.entry(path) is not None:
                    self.files.unlink(path)
                continue
            file = self.files.open(path, writable=True)
            file.zero(offset - segment, self.segment_bytes - (offset - segment))
            file.flush()
            file.close()
        self.files.make_directory("commitlog")
        self.files.sync_directory("commitlog")
        self.messages = [m for m in self.messages if m.offset < offset]
        self.lengths = {at: size for at, size in self.lengths.items() if at < offset}
        self.generations = [(g, min(start, offset)) for g, start in self.generations]
        self.end = offset
        self.next_queue_offset = {}
        for message in self.messages:
            key = (message.topic, message.queue_id)
            self.next_queue_offset[key] = message.queue_offset + 1

    def restart(self) -> None:
        """Every start of a master opens a generation at the log's end."""
        self.generations.append((self.generations[-1][0] + 1, self.end))

    def forget_generations(self) -> None:
        """RocketMQ ran in between: our state is void."""
        self.generations = [(self.generations[-1][0] + 1000, self.end)]

    def delete_below(self, offset: int) -> None:
        while self.minimum + self.segment_bytes <= offset:
            self.files.unlink(f"commitlog/{offset_name(self.minimum)}")
            self.minimum += self.segment_bytes
        self.messages = [m for m in self.messages if m.offset >= self.minimum]

    def answer(self, generation: int, position: int) -> int:
        """`cut_to` for a follower that is at `position` of `generation`."""
        starts = dict(self.generations)
        if generation not in starts:
            return self.minimum
        later = [start for number, start in self.generations if number > generation]
        return max(self.minimum, min([position, self.end, *later]))

    def ranges(self, start: int, end: int, most: int) -> Iterator[tuple[int, int]]:
        """[start, end) in pieces of one segment and at most `most` members."""
        count, begin, at = 0, start, start
        while at < end:
            at += self.lengths[at]
            count += 1
            if count == most or at % self.segment_bytes == 0 or at >= end:
                yield begin, at
                begin, count = at, 0

    def _write(self, data: bytes, length: int) -> None:
        path = f"commitlog/{offset_name(self.end - self.end % self.segment_bytes)}"
        if self.end % self.segment_bytes == 0:
            self.files.create(path, self.segment_bytes)
        file = self.files.open(path, writable=True)
        file.write(self.end % self.segment_bytes, data)
        file.flush()
        file.close()
        self.lengths[self.end] = length
        self.end += length


@dataclass
class Broker:
    """A log and the engine that follows it, step by step, as the client's driver would."""

    log: WrittenLog
    engine: DispatchEngine
    worker: SimulatedWorker
    clock: SimulatedClock
    flushed: int | None = None
    """None: everything is."""
    confirmed: int | None = None
    bare: bool = False
    """Send ranges without lengths, to be scanned."""
    event_members: int = 100
    position: int = 0
    engine_files: Files = field(kw_only=True)
    follower: Follower = field(default_factory=Follower)

    @property
    def _confirmed(self) -> int:
        return self.log.end if self.confirmed is None else self.confirmed

    @property
    def _flushed(self) -> int:
        return self.log.end if self.flushed is None else self.flushed

    def connect(self) -> int:
        """Open the stream; what the log answered as `cut_to`."""
        generation, position = self.engine.fold.resume_point()
        cut_to = self.log.answer(generation, position)
        number, start = self.log.generations[-1]
        opened = Opened(
            number,
            start,
            cut_to,
            self.log.minimum,
            self._confirmed,
            self._flushed,
            self.log.segment_bytes,
        )
        self.follower = Follower()
        action = self.follower.receive(opened)
        assert isinstance(action, Cut)
        self.engine.fold.opened(action.opened)
        self.position = cut_to
        return cut_to

    def send(self) -> None:
        """Everything that is confirmed and not yet sent."""
        pieces = list(self.log.ranges(self.position, self._confirmed, self.event_members))
        for start, end in pieces or [(self.position, self.position)]:
            for wait in self.deliver(start, end):
                if wait is not None:
                    self.wait(wait)

    def wait(self, wait: Wait) -> None:
        """Let the worker run, and the flush interval pass, until the engine takes more."""
        ready: list[bool] = []
        wait(lambda: ready.append(True))
        while not ready:
            if not self.worker.run_one():
                self.clock.advance_ms(1000)
                self.engine.tick()

    def deliver(self, start: int, end: int) -> Iterator[Wait | None]:
        lengths = None
        if not self.bare:
            sizes, at = [], start
            while at < end:
                sizes.append(self.log.lengths[at])
                at += sizes[-1]
            lengths = np.array(sizes, np.uint32)
        action = self.follower.receive(
            Event(
                self.log.generations[-1][0],
                start,
                end,
                self._confirmed,
                self._flushed,
                self.log.minimum,
                lengths,
            )
        )
        assert isinstance(action, Apply | Progress)
        self.position = end
        yield from self.engine.fold.apply(action.event)

    def flush(self) -> None:
        """Let the flush interval pass, and all that follows from it."""
        for _ in range(3):
            self.clock.advance_ms(1000)
            self.engine.tick()
            self.worker.run_until_idle()

    def follow(self) -> None:
        """Everything sent and flushed."""
        self.send()
        self.worker.run_until_idle()
        self.flush()

    def close_log(self) -> list[int]:
        """The log announces its end; what was durable when the engine reported completion."""
        action = self.follower.receive(Closing(self.position))
        assert isinstance(action, Close)
        durable: list[int] = []
        self.engine.fold.close_at(action.end, lambda: durable.append(self.engine.followed.durable))
        self.worker.run_until_idle()
        return durable

    def stop(self) -> None:
        """The dispatcher stops in order."""
        closed: list[bool] = []
        self.engine.close(lambda: closed.append(True))
        self.worker.run_until_idle()
        assert closed


def start(
    files: Files,
    log: WrittenLog,
    *,
    seed: int = 0,
    connect: bool = True,
    awaits_queues: bool = False,
    **settings: object,
) -> Broker:
    """A new dispatcher process on `files`, connected to `log`."""
    clock = SimulatedClock()
    worker = SimulatedWorker(random.Random(seed))
    values = {"queue_file_bytes": 160, "flush_window_bytes": 80} | settings
    engine = DispatchEngine(
        files,
        EngineSettings(**values),  # type: ignore[arg-type]
        worker,
        clock,
        awaits_queues=awaits_queues,
    )
    engine.load()
    broker = Broker(log, engine, worker, clock, engine_files=files)
    if connect:
        broker.connect()
    return broker
