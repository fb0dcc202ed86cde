"""The messages that a hand-out is about, read from the dispatcher.

New messages are read ahead: a call of the dispatcher costs both services a millisecond, whatever it
brings, and the next hand-out of the group goes on where this one ends.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stratamq.follow.queues import QueueCalls
from stratamq.formats.frame import Frame, decode
from stratamq_delivery.entries import Bounds
from stratamq_delivery.records import GroupPlace

DISPATCH_WAIT_MS = 1_000
"""How long the dispatcher may be behind this service."""
AHEAD_MESSAGES, AHEAD_BYTES = 256, 512 << 10
"""What is asked for at once. A single message may be larger."""
KEPT_AHEAD_BYTES = 16 << 20
"""The limit of all queues together."""


@dataclass(frozen=True, slots=True)
class ReadMessages:
    """Messages that a hand-out has read: consecutive ones, and those that are gone before them."""

    gone: Bounds
    frames: list[Frame]
    raw: list[bytes]
    attempt: int
    token: int
    """The token of the hand-out that has them; 0: none."""

    @property
    def runs(self) -> tuple[Bounds, ...]:
        return tuple(runs_of([frame.queue_offset for frame in self.frames]))


@dataclass(slots=True)
class _Ahead:
    """Consecutive messages of a queue that were read for a group and are not handed out."""

    epoch: int
    frames: list[Frame]
    raw: list[bytes]
    bytes: int


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
            frames, raw, minimum = await self._pull(place, start, count)
            return _read(start, count, frames, raw, minimum, attempt, token)
        ahead = self._take(place)
        if ahead is None or not _has(ahead, start, count):
            epoch = self._epoch()
            frames, raw, minimum = await self._pull(place, start, max(count, AHEAD_MESSAGES))
            ahead = _Ahead(epoch, frames, raw, 0)
        else:
            minimum = start
        end = bisect_left(ahead.frames, start + count, key=lambda frame: frame.queue_offset)
        self._keep(place, _Ahead(ahead.epoch, ahead.frames[end:], ahead.raw[end:], 0))
        return _read(start, count, ahead.frames[:end], ahead.raw[:end], minimum, attempt, token)

    async def _pull(
        self, place: GroupPlace, start: int, count: int
    ) -> tuple[list[Frame], list[bytes], int]:
        """Messages from `start` on, and where the queue begins."""
        pulled = await self._queues.pull(
            place.topic, place.queue_id, start, count, DISPATCH_WAIT_MS, AHEAD_BYTES
        )
        frames: list[Frame] = []
        raw: list[bytes] = []
        at = 0
        while at < len(pulled.frames):
            size = int.from_bytes(pulled.frames[at : at + 4], "big")
            one = pulled.frames[at : at + size]
            frame = decode(one)
            assert isinstance(frame, Frame)
            if start <= frame.queue_offset < start + count:
                frames.append(frame)
                raw.append(one)
            at += size
        return frames, raw, pulled.minimum

    def _take(self, place: GroupPlace) -> _Ahead | None:
        ahead = self._ahead.pop(place, None)
        if ahead is not None:
            self._ahead_bytes -= ahead.bytes
        return ahead if ahead is not None and ahead.epoch == self._epoch() else None

    def _keep(self, place: GroupPlace, ahead: _Ahead) -> None:
        if not ahead.frames:
            return
        ahead.bytes = sum(map(len, ahead.raw))
        self._ahead[place] = ahead
        self._ahead_bytes += ahead.bytes
        while self._ahead_bytes > KEPT_AHEAD_BYTES:
            _, oldest = self._ahead.popitem(last=False)
            self._ahead_bytes -= oldest.bytes


def _has(ahead: _Ahead, start: int, count: int) -> bool:
    """Whether it begins there, and has so many, one after the other."""
    frames = ahead.frames
    return (
        len(frames) >= count
        and frames[0].queue_offset == start
        and frames[count - 1].queue_offset == start + count - 1
    )


def _read(
    start: int,
    count: int,
    frames: list[Frame],
    raw: list[bytes],
    minimum: int,
    attempt: int,
    token: int,
) -> ReadMessages:
    # What the log has deleted is gone for all workers.
    first = frames[0].queue_offset if frames else min(start + count, minimum)
    return ReadMessages((start, max(start, first)), frames, raw, attempt, token)


def runs_of(offsets: Sequence[int]) -> list[Bounds]:
    """The runs that offsets in order make."""
    runs: list[Bounds] = []
    for offset in offsets:
        if runs and runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], offset + 1)
        else:
            runs.append((offset, offset + 1))
    return runs
