"""The messages that a hand-out is about, read from the dispatcher.

New messages are read ahead: a call of the dispatcher costs both services a millisecond, whatever it
brings, and the next hand-out of the group goes on where this one ends.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, overload

import numpy as np

from stratamq.follow.queues import QueueCalls
from stratamq.formats.columns import check_body_checksums, frame_columns
from stratamq.formats.dispatch import scan_lengths
from stratamq.formats.frame import Frame, decode
from stratamq_delivery.entries import Bounds
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.shared_queue import SharedQueue

DISPATCH_WAIT_MS = 1_000
"""How long the dispatcher may be behind this service."""
AHEAD_MESSAGES, AHEAD_BYTES = 1_024, 1 << 20
"""What is asked for at once. A single message may be larger."""
READ_MESSAGES = 32
KEPT_AHEAD_BYTES = 32 << 20
"""The limit of all queues together."""


class CheckedMessage(NamedTuple):
    """A frame whose bytes were checked. It is decoded where more of it is asked for: to hand it out
    takes no more than its places."""

    queue_offset: int
    physical_offset: int
    raw: bytes

    @property
    def properties(self) -> dict[str, str]:
        frame = decode(self.raw, verify_body=False)
        assert isinstance(frame, Frame)
        return frame.properties


class StoredRun(Sequence[CheckedMessage]):
    """Messages whose frames lie one behind the other. A message is cut out of
    them when it is looked at."""

    __slots__ = ("_begin", "_end", "_frames", "_places")

    def __init__(
        self, frames: bytes, places: list[tuple[int, int, int, int]], begin: int, end: int
    ) -> None:
        """`places`: queue offset, offset in the log, start and size of each of the `frames`."""
        self._frames = frames
        self._places = places
        self._begin = begin
        self._end = end

    def __len__(self) -> int:
        return self._end - self._begin

    @overload
    def __getitem__(self, index: int) -> CheckedMessage: ...

    @overload
    def __getitem__(self, index: slice) -> "StoredRun": ...

    def __getitem__(self, index: int | slice) -> "CheckedMessage | StoredRun":
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            begin = self._begin + start
            return StoredRun(self._frames, self._places, begin, max(begin, self._begin + stop))
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._message(index % len(self))

    @property
    def frames(self) -> memoryview:
        """All of them."""
        if self._begin == self._end:
            return memoryview(b"")
        _, _, last, size = self._places[self._end - 1]
        return memoryview(self._frames)[self._places[self._begin][2] : last + size]

    @property
    def kept_bytes(self) -> int:
        """They keep all that was read together."""
        return len(self._frames)

    @property
    def bounds(self) -> Bounds:
        """The first and the last offset + 1."""
        return self._places[self._begin][0], self._places[self._end - 1][0] + 1

    def before(self, offset: int) -> int:
        """How many have a lower offset."""
        return bisect_left(self._places, (offset,), self._begin, self._end) - self._begin

    def _message(self, number: int) -> CheckedMessage:
        queue_offset, physical_offset, start, size = self._places[self._begin + number]
        return CheckedMessage(queue_offset, physical_offset, self._frames[start : start + size])


def frames_of(messages: Sequence[CheckedMessage]) -> bytes | memoryview:
    """Their frames, one behind the other."""
    if isinstance(messages, StoredRun):
        return messages.frames
    return b"".join([message.raw for message in messages])


@dataclass(frozen=True, slots=True)
class ReadMessages:
    """Messages that a hand-out has read: consecutive ones, and those that are gone before them."""

    gone: Bounds
    messages: Sequence[CheckedMessage]
    attempt: int
    token: int
    """The token of the hand-out that has them; 0: none."""

    @property
    def runs(self) -> tuple[Bounds, ...]:
        if (whole := self._whole()) is not None:
            return (whole,)
        return tuple(runs_of([message.queue_offset for message in self.messages]))

    def still_free(self, queue: SharedQueue, now_ms: int) -> "ReadMessages":
        """What of it may still be handed out. While it was read, a message may have been
        acknowledged, or hidden, with the receipt of a hand-out that the log has lost."""
        whole = self._whole()
        if whole is not None and whole[0] >= queue.next and not self.token:
            return self
        free = [one for one in self.messages if queue.is_free(one.queue_offset, self.token, now_ms)]
        return self if len(free) == len(self.messages) else replace(self, messages=free)

    def _whole(self) -> Bounds | None:
        """Their one run. None: they may be several."""
        if not isinstance(self.messages, StoredRun) or not self.messages:
            return None
        start, end = self.messages.bounds
        return (start, end) if end - start == len(self.messages) else None


@dataclass(slots=True)
class _Ahead:
    """Consecutive messages of a queue that were read for a group and are not handed out."""

    epoch: int
    messages: StoredRun
    bytes: int = 0


class MessageReader:
    """Belongs to one event loop. One call at a time reads a queue of a group."""

    def __init__(self, queues: QueueCalls, epoch: Callable[[], int] = lambda: 0) -> None:
        """`epoch`: another one after the log may have been cut, which what was read may not be
        in."""
        self._queues = queues
        self._epoch = epoch
        self._ahead: OrderedDict[GroupPlace, _Ahead] = OrderedDict()
        self._ahead_bytes = 0

    async def read(
        self, place: GroupPlace, start: int, count: int, attempt: int, token: int
    ) -> ReadMessages:
        """`token` 0: messages that are handed out for the first time, and read ahead."""
        if token:
            messages, minimum = await self._pull(place, start, count)
            return _read(start, count, messages, minimum, attempt, token)
        ahead = self._take(place)
        if ahead is None or not _has(ahead, start, count):
            epoch = self._epoch()
            messages, minimum = await self._pull(place, start, max(count, AHEAD_MESSAGES))
            ahead = _Ahead(epoch, messages)
        else:
            minimum = start
        end = ahead.messages.before(start + count)
        self._keep(place, _Ahead(ahead.epoch, ahead.messages[end:]))
        return _read(start, count, ahead.messages[:end], minimum, attempt, token)

    async def again(
        self, place: GroupPlace, run: Bounds, attempt: int, token: int
    ) -> AsyncGenerator[ReadMessages, None]:
        """All of a run that was handed out with `token`, a few messages at a time."""
        start, end = run
        while start < end:
            read = await self.read(place, start, min(READ_MESSAGES, end - start), attempt, token)
            yield read
            start = read.messages[-1].queue_offset + 1 if read.messages else end

    async def _pull(self, place: GroupPlace, start: int, count: int) -> tuple[StoredRun, int]:
        """Messages from `start` on, and where the queue begins. CorruptRecordError: one is damaged,
        and none of them is handed out."""
        pulled = await self._queues.pull(
            place.topic, place.queue_id, start, count, DISPATCH_WAIT_MS, AHEAD_BYTES
        )
        frames, end = pulled.frames, start + count
        if not frames:
            return StoredRun(b"", [], 0, 0), pulled.minimum
        columns = frame_columns(
            np.frombuffer(frames, np.uint8), scan_lengths(frames, 0, len(frames))
        )
        check_body_checksums(memoryview(frames), columns)
        fields = (columns.queue_offset, columns.physical_offset, columns.start, columns.size)
        places = list(zip(*[column.tolist() for column in fields], strict=True))
        messages = StoredRun(frames, places, 0, len(places))
        return messages[messages.before(start) : messages.before(end)], pulled.minimum

    def _take(self, place: GroupPlace) -> _Ahead | None:
        ahead = self._ahead.pop(place, None)
        if ahead is not None:
            self._ahead_bytes -= ahead.bytes
        return ahead if ahead is not None and ahead.epoch == self._epoch() else None

    def _keep(self, place: GroupPlace, ahead: _Ahead) -> None:
        if not ahead.messages:
            return
        ahead.bytes = ahead.messages.kept_bytes
        self._ahead[place] = ahead
        self._ahead_bytes += ahead.bytes
        while self._ahead_bytes > KEPT_AHEAD_BYTES:
            _, oldest = self._ahead.popitem(last=False)
            self._ahead_bytes -= oldest.bytes


def _has(ahead: _Ahead, start: int, count: int) -> bool:
    """Whether it begins there, and has so many, one after the other."""
    messages = ahead.messages
    return messages.bounds[0] == start and messages.before(start + count) == count


def _read(
    start: int,
    count: int,
    messages: StoredRun,
    minimum: int,
    attempt: int,
    token: int,
) -> ReadMessages:
    # What the log has deleted is gone for all workers.
    first = messages.bounds[0] if messages else min(start + count, minimum)
    return ReadMessages((start, max(start, first)), messages, attempt, token)


def runs_of(offsets: Sequence[int]) -> list[Bounds]:
    """The runs that offsets in order make."""
    runs: list[Bounds] = []
    for offset in offsets:
        if runs and runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], offset + 1)
        else:
            runs.append((offset, offset + 1))
    return runs
