"""What goes into the engine and what comes out of it: plain values, no wire types.

Results are delivered through callbacks on the engine's own thread: of what is stored in the order
of the requests, refusals as soon as they are known. A result means *stored* exactly when
`physical_offset` is not −1.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import StrataError
from stratamq.follow.protocol import Run as FollowRun
from stratamq.formats.hosts import Host
from stratamq.formats.message_status import SendStatus
from stratamq.rpc.refusals import Refusal


@dataclass(frozen=True, slots=True)
class KnownPlace:
    """A place of the log that a producer has heard of."""

    generation: int
    offset: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers of consecutive messages of a producer: its own number, and the sequence of the first.
    `sent_from`: they may have been stored before, after that place; None: they were not sent
    before."""

    producer: int
    first: int
    sent_from: KnownPlace | None = None


@dataclass(frozen=True, slots=True)
class PutMessage:
    """One message as fields. `queue_id` None: the topic's queues in turn."""

    topic: str
    body: bytes
    born_host: Host
    queue_id: int | None = None
    properties: dict[str, str] = field(default_factory=dict)
    """Everything that is stored as properties, KEYS, TAGS and UNIQ_KEY among them."""
    flag: int = 0
    sys_flag: int = 0
    """Only the compression and multi-tag bits are taken."""
    born_timestamp_ms: int = 0
    """0: the time of arrival."""
    delay_level: int = 0
    half: bool = False
    """Store under the half topic: the first step of a transaction."""
    reconsume_times: int = 0
    wait_store_ok: bool = True
    numbers: Numbers | None = None


@dataclass(frozen=True, slots=True)
class PutResult:
    """How one message ended. `error`: why nothing was stored."""

    status: SendStatus
    topic: str = ""
    queue_id: int = -1
    physical_offset: int = -1
    queue_offset: int = -1
    store_timestamp_ms: int = 0
    size: int = 0
    message_id: str = ""
    error: StrataError | None = None


@dataclass(frozen=True, slots=True)
class FrameRun:
    """Consecutive frames of one queue within a batch."""

    topic: str
    queue_id: int
    """`ANY_QUEUE`: the log chooses one when it appends them."""
    count: int


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """Ready frames as the fast stream carries them. `lengths`: one u32 per frame."""

    runs: Sequence[FrameRun]
    lengths: NDArray[np.uint32]
    frames: bytes | memoryview
    numbers: Numbers | None = None
    fence: Callable[[], StrataError | None] | None = None
    """For a service of the broker: why nothing of its stream is stored any more (its `Fence`).
    None: the stream is a producer's."""
    behind: Callable[[], StrataError | None] | None = None
    """For a producer's stream in order: why a batch before this one was refused for now."""
    partial: bool = False
    """Messages that the log does not take are left out. False: stored whole or not at all."""

    def obstacle(self) -> StrataError | None:
        """Why it is not stored, or not yet, by what its stream is."""
        look = self.fence or self.behind
        return None if look is None else look()

    def goes_with(self, other: "FrameBatch") -> bool:
        """Whether both may be appended together."""
        both = self.fence is other.fence and (self.numbers is None) is (other.numbers is None)
        return both and self.obstacle() is None

    def stretches(self, bounds: Sequence[tuple[int, int]]) -> "list[FrameBatch]":
        """Some of its messages as batches, one for each `(start, stop)`; these are in order."""
        ends = np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])
        frames, numbers = memoryview(self.frames), self.numbers
        return [
            replace(
                self,
                runs=runs,
                lengths=self.lengths[start:stop],
                frames=frames[ends[start] : ends[stop]],
                numbers=None if numbers is None else replace(numbers, first=numbers.first + start),
            )
            for (start, stop), runs in zip(bounds, runs_within(self.runs, bounds), strict=True)
        ]


def runs_within(
    runs: Sequence[FrameRun], bounds: Sequence[tuple[int, int]]
) -> Iterator[list[FrameRun]]:
    """The runs of messages from `start` up to, and without, `stop`, for several of these pairs,
    which are in order."""
    following = iter(runs)
    run, end = FrameRun("", 0, 0), 0
    for start, stop in bounds:
        found = []
        while start < stop:
            while end <= start:
                run = next(following)
                end += run.count
            count = min(end, stop) - start
            found.append(FrameRun(run.topic, run.queue_id, count))
            start += count
        yield found


@dataclass(frozen=True, slots=True)
class StoredPart:
    """Consecutive messages of a batch that lie one behind the other in the log."""

    physical_offset: int
    lengths: NDArray[np.uint32]
    first_queue_offsets: tuple[int, ...]
    """One for each run of the batch that has messages in the part."""
    store_timestamp_ms: int
    queue_ids: tuple[int, ...] = ()
    """One for each of them; empty when the producer named every queue."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """How one batch ended. `error`: nothing is stored; its field `frame` is the first bad one."""

    status: SendStatus
    physical_offset: int = -1
    first_queue_offsets: tuple[int, ...] = ()
    store_timestamp_ms: int = 0
    error: StrataError | None = None
    parts: tuple[StoredPart, ...] = ()
    """Some of it was in the log already, or is left out: where all that is stored is. The fields
    above are the first's."""
    queue_ids: tuple[int, ...] = ()
    """One for each run; empty when the producer named every queue."""
    refusals: tuple[Refusal, ...] = ()
    """What is left out of a partial batch, in order."""


PutDone = Callable[[list[PutResult]], None]
BatchDone = Callable[[BatchResult], None]


@dataclass(frozen=True, slots=True)
class Appended:
    """One pass within one segment. `lengths` has the frames, and a blank if it ends in one."""

    start: int
    end: int
    lengths: NDArray[np.uint32]
    runs: Sequence[FollowRun]


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class LogListener:
    """What hears of one log, on the engine's thread."""

    wake: Callable[[], None] = _nothing
    """Something waits to be appended: a pass is to run soon."""
    idle: Callable[[], None] = _nothing
    """A flush has ended, and no other has begun."""
    flush_took: Callable[[int], None] = _nothing
    """Nanoseconds."""
    append_took: Callable[[str, int], None] = _nothing
    """A part of an append's time, or the whole (`write.append_times`), in nanoseconds."""
