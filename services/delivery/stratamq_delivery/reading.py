"""The messages that a hand-out is about, read from the dispatcher.

New messages are read ahead: a call of the dispatcher costs both services a millisecond, whatever it
brings, and the next hand-out of the group goes on where this one ends. For a worker that wants
certain tags the dispatcher compares tag codes in queue units, and other messages are not read.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from sys import getsizeof
from typing import NamedTuple, overload

import numpy as np

from stratamq.errors import InvalidRequestError
from stratamq.follow.queues import PulledFrames, QueueCalls
from stratamq.formats.columns import check_body_checksums, frame_columns
from stratamq.formats.dispatch import scan_lengths
from stratamq.formats.frame import Frame, decode
from stratamq.formats.properties import TAGS
from stratamq_delivery.entries import Bounds
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.shared_queue import SharedQueue

Tags = tuple[str, ...]

DISPATCH_WAIT_MS = 1_000
"""How long the dispatcher may be behind this service."""
AHEAD_MESSAGES, AHEAD_BYTES = 1_024, 1 << 20
"""What is asked for at once. A single message may be larger."""
READ_MESSAGES = 32
MAX_TAG_BYTES, ALL_TAGS = 16_384, "*"
LOOKED_AT, FEW_BYTES = 16_384, 1 << 17
"""What is looked at together where few messages have the tag that is wanted, and how much of it is
taken if they are many all the same."""
KEPT_AHEAD_BYTES = 32 << 20
"""The limit of all queues together, with the tags for which messages were read."""


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

    @property
    def offsets(self) -> list[int]:
        return [place[0] for place in self._places[self._begin : self._end]]

    def before(self, offset: int) -> int:
        """How many have a lower offset."""
        return bisect_left(self._places, (offset,), self._begin, self._end) - self._begin

    def _message(self, number: int) -> CheckedMessage:
        queue_offset, physical_offset, start, size = self._places[self._begin + number]
        return CheckedMessage(queue_offset, physical_offset, self._frames[start : start + size])


def checked_tags(given: Collection[str]) -> Tags:
    """None where each message is wanted. InvalidRequestError."""
    if not all(given) or sum([len(tag.encode()) for tag in given]) > MAX_TAG_BYTES:
        raise InvalidRequestError(f"tags have 1 to {MAX_TAG_BYTES} bytes, together")
    return () if ALL_TAGS in given else tuple(sorted({*given}))


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
    others: tuple[Bounds, ...] = ()
    """Messages among them that have another tag than is wanted."""

    @property
    def runs(self) -> tuple[Bounds, ...]:
        if (whole := self._whole()) is not None:
            return (whole,)
        return tuple(runs_of(_offsets_of(self.messages)))

    @property
    def left_out(self) -> tuple[Bounds, ...]:
        """What the group has done with, without a worker."""
        return (*([self.gone] if self.gone[0] < self.gone[1] else []), *self.others)

    def only(self, tags: Collection[str]) -> "ReadMessages":
        """Those that have one of the tags; none are wanted: all."""
        if not tags:
            return self
        wanted = [one for one in self.messages if one.properties.get(TAGS) in tags]
        if len(wanted) == len(self.messages):
            return self
        others = {*_offsets_of(self.messages)}.difference(_offsets_of(wanted))
        return replace(self, messages=wanted, others=tuple(runs_of(sorted(others))))

    def still_free(self, queue: SharedQueue, now_ms: int) -> "ReadMessages":
        """What of it may still be handed out. While it was read, a message may have been
        acknowledged, or hidden, with the receipt of a hand-out that the log has lost."""
        first = self.messages[0].queue_offset if self.messages else queue.next
        if first >= queue.next and not self.token:
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
    """Messages of a queue that were read for a group and are not handed out: consecutive ones, or
    all that have certain tags."""

    epoch: int
    messages: StoredRun
    looked_from: int
    looked_to: int
    """All that is wanted between these two offsets is among them."""
    bytes: int = 0


class MessageReader:
    """Belongs to one event loop. One call at a time reads a queue of a group."""

    def __init__(self, queues: QueueCalls, epoch: Callable[[], int] = lambda: 0) -> None:
        """`epoch`: another one after the log may have been cut, which what was read may not be
        in."""
        self._queues = queues
        self._epoch = epoch
        self._ahead: OrderedDict[tuple[GroupPlace, Tags], _Ahead] = OrderedDict()
        self._ahead_bytes = 0

    async def read(
        self, place: GroupPlace, start: int, count: int, attempt: int, token: int
    ) -> ReadMessages:
        """`token` 0: messages that are handed out for the first time, and read ahead."""
        if token:
            messages, pulled = await self._pull(place, start, count)
            return _read(start, count, messages, pulled.minimum, attempt, token)
        ahead, minimum = self._take(place, ()), start
        if ahead is None or not _has(ahead, start, count):
            epoch = self._epoch()
            messages, pulled = await self._pull(place, start, max(count, AHEAD_MESSAGES))
            ahead = _Ahead(epoch, messages, start, pulled.looked_to)
            minimum = pulled.minimum
        end = ahead.messages.before(start + count)
        self._keep(place, (), replace(ahead, messages=ahead.messages[end:]))
        return _read(start, count, ahead.messages[:end], minimum, attempt, token)

    async def tagged(
        self, place: GroupPlace, start: int, most: int, end: int, tags: Tags
    ) -> ReadMessages:
        """The first of those that have one of the tags, of new messages from `start` to `end`, the
        queue's. `others` are what lies before them; without any, all that was looked at."""
        ahead, minimum = self._take(place, tags), start
        if ahead is None or not ahead.looked_from <= start <= ahead.messages.bounds[0]:
            epoch = self._epoch()
            messages, pulled = await self._pull(place, start, AHEAD_MESSAGES, tags)
            if not messages and start < pulled.looked_to < end:
                seen = pulled.looked_to
                messages, pulled = await self._pull(place, seen, LOOKED_AT, tags, FEW_BYTES)
            ahead = _Ahead(epoch, messages, start, pulled.looked_to)
            minimum = pulled.minimum
        most = min(most, ahead.messages.before(end))
        chosen, rest = ahead.messages[:most], ahead.messages[most:]
        looked_to = min(rest.bounds[0] if rest else ahead.looked_to, end)
        self._keep(place, tags, replace(ahead, messages=rest, looked_from=looked_to))
        first = max(start, min(minimum, end))
        runs = runs_of(chosen.offsets)
        starts = [first, *(stop for _, stop in runs)]
        stops = [*(begin for begin, _ in runs), max(looked_to, first)]
        others = [(a, b) for a, b in zip(starts, stops, strict=True) if a < b]
        return ReadMessages((start, first), chosen, 1, 0, tuple(others))

    async def again(
        self, place: GroupPlace, run: Bounds, attempt: int, token: int
    ) -> AsyncGenerator[ReadMessages, None]:
        """All of a run that was handed out with `token`, a few messages at a time."""
        start, end = run
        while start < end:
            read = await self.read(place, start, min(READ_MESSAGES, end - start), attempt, token)
            yield read
            start = read.messages[-1].queue_offset + 1 if read.messages else end

    async def _pull(
        self,
        place: GroupPlace,
        start: int,
        count: int,
        tags: Tags = (),
        most_bytes: int = AHEAD_BYTES,
    ) -> tuple[StoredRun, PulledFrames]:
        """Messages from `start` on. CorruptRecordError: one is damaged, and none of them is handed
        out."""
        # A message that has the tag may come in an hour: nothing is waited for.
        wait_ms = 0 if tags else DISPATCH_WAIT_MS
        pulled = await self._queues.pull(
            place.topic, place.queue_id, start, count, wait_ms, most_bytes, tags
        )
        frames, end = pulled.frames, pulled.looked_to if tags else start + count
        if not frames:
            return StoredRun(b"", [], 0, 0), pulled
        columns = frame_columns(
            np.frombuffer(frames, np.uint8), scan_lengths(frames, 0, len(frames))
        )
        check_body_checksums(memoryview(frames), columns)
        fields = (columns.queue_offset, columns.physical_offset, columns.start, columns.size)
        places = list(zip(*[column.tolist() for column in fields], strict=True))
        messages = StoredRun(frames, places, 0, len(places))
        return messages[messages.before(start) : messages.before(end)], pulled

    def _take(self, place: GroupPlace, tags: Tags) -> _Ahead | None:
        ahead = self._ahead.pop((place, tags), None)
        if ahead is not None:
            self._ahead_bytes -= ahead.bytes
        return ahead if ahead is not None and ahead.epoch == self._epoch() else None

    def _keep(self, place: GroupPlace, tags: Tags, ahead: _Ahead) -> None:
        if not ahead.messages:
            return
        ahead.bytes = ahead.messages.kept_bytes + sum(map(getsizeof, tags))
        self._ahead[place, tags] = ahead
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


def _offsets_of(messages: Sequence[CheckedMessage]) -> list[int]:
    if isinstance(messages, StoredRun):
        return messages.offsets
    return [message.queue_offset for message in messages]


def runs_of(offsets: Sequence[int]) -> list[Bounds]:
    """The runs that offsets in order make."""
    runs: list[Bounds] = []
    for offset in offsets:
        if runs and runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], offset + 1)
        else:
            runs.append((offset, offset + 1))
    return runs
