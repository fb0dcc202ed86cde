"""Reading a topic, without a wire: where each queue begins, what was read, what is to be committed.

`plan_…` are generators that yield operations and are sent their results, so that the synchronous
and the asyncio client run the same plan. `ReadQueues` is the state of one reader.
"""

import re
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stratamq.api.v1 import dispatcher_pb2
from stratamq.client import group_operations, operations
from stratamq.client.operations import Operation, tag_list, wire_message
from stratamq.client.reading import EARLIEST, LATEST, AtTime, Reading, Start, checked_start
from stratamq.client.received import ReceivedMessage, split_frames
from stratamq.client.values import Queue, TimeBoundary, Topic
from stratamq.errors import InvalidRequestError, NotFoundError, StrataError, UnavailableError
from stratamq.formats.log_state import LogState
from stratamq.formats.topic_pattern import TopicPattern
from stratamq.rpc.framing import PULL_STREAM_RESPONSE

LOOK_FOR_ENDS_S = 5.0
"""A reader that does not follow looks after so long whether its queues still end where they did."""

LONGEST_LOOK_S = 300.0
"""The time doubles up to this while nothing comes within it, as over a slow connection."""


Topics = str | Collection[str] | re.Pattern[str] | TopicPattern
"""One, several, or a pattern that the whole name matches."""


@dataclass(slots=True)
class Range:
    """The range of one queue that a reader still has to read. `end` None: everything, including
    messages that are stored later."""

    topic: str
    queue_id: int
    offset: int
    """Behind the message that was given last."""
    end: int | None
    begun: bool = field(default=False, compare=False)
    """Something was given, or passed over."""
    taken: int | None = field(default=None, compare=False)
    """Behind the last message that counts as taken."""
    given: int = field(default=0, compare=False)
    """Behind the last message that was given; 0: none was."""
    log_end: int = field(default=0, compare=False)
    """How far consumers could see the log when `end` was learnt; 0: not known."""
    paused: bool = field(default=False, compare=False)
    generation: int = field(default=0, compare=False)
    """The log's generation at the last answer; 0: not known. If the log loses messages that this
    reader was given, the reader goes on with those that took their place."""

    @property
    def ended(self) -> bool:
        return self.end is not None and self.offset >= self.end


Plan = Generator[Operation[Any], Any, list[Range]]


@dataclass(slots=True)
class Subscription:
    """What a reader reads: the plan of its ranges, made again while it follows."""

    topics: Topics
    reading: Reading
    _begun: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if isinstance(self.topics, re.Pattern):
            self.topics = TopicPattern(self.topics)

    def plan(self) -> Plan:
        """The ranges by now. What appears after the first plan is read from its beginning when
        the reading counts from the end. NotFoundError when there is no such topic and the reader
        does not follow."""
        start = checked_start(self.reading.offset)
        from_end = start == LATEST or (isinstance(start, int) and start < 0)
        if self._begun and from_end:
            start = EARLIEST
        ranges: list[Range] = []
        for topic in (yield from self._names()):
            ranges += yield from self._ranges(
                topic, start, whole=not self.reading.follow or from_end
            )
        self._begun = True
        return ranges

    def _names(self) -> Generator[Operation[Any], Any, list[str]]:
        if isinstance(self.topics, str):
            return [self.topics]
        if not isinstance(self.topics, TopicPattern):
            return sorted(set(self.topics))
        known: list[Topic] = yield operations.topics("")
        names = sorted(one.name for one in known if self.topics.fullmatch(one.name))
        if not names and not self.reading.follow:
            raise NotFoundError(f"no topic matches {self.topics.pattern}")
        return names

    def _ranges(self, topic: str, start: str | int | AtTime, *, whole: bool) -> Plan:
        found, log_end = yield from listed_queues(topic, whole=whole)
        known = {queue.queue_id: queue for queue in found}
        wanted = set(known) if self.reading.queues is None else set(self.reading.queues)
        if self.reading.queues is None and (self.reading.follow or not known):
            try:
                topics: list[Topic] = yield operations.topics(topic)
            except UnavailableError:
                topics = []  # without the log service what is stored can still be read
            counts = {one.name: one.read_queue_count for one in topics}
            if not known and topic not in counts and not self.reading.follow:
                raise NotFoundError(f"there is no topic {topic}")
            wanted |= set(range(counts.get(topic, 0)))
        committed: Mapping[tuple[str, int], int] = {}
        if self.reading.group is not None:
            committed = yield group_operations.committed_offsets(self.reading.group, topic)
        ranges = []
        for queue_id in sorted(wanted):
            queue = known.get(queue_id) or Queue(topic, queue_id, 0, 0, 0)
            offset = committed.get((topic, queue_id))
            if offset is None:
                offset = yield from plan_place(queue, start)
            end = None if self.reading.follow else (yield from self._end(queue))
            begin = max(offset, queue.min_offset)
            ranges.append(Range(topic, queue_id, begin, end, log_end=log_end))
        return ranges

    def _end(self, queue: Queue) -> Generator[Operation[Any], Any, int]:
        if self.reading.until is None:
            return queue.max_offset
        until = yield from plan_place(queue, checked_start(self.reading.until))
        return min(until, queue.max_offset)


def plan_place(queue: Queue, start: str | int | AtTime) -> Generator[Operation[Any], Any, int]:
    """The offset that `start` means in a queue; it need not hold it."""
    if isinstance(start, AtTime):
        offset: int = yield operations.offset_at_time(
            queue.topic, queue.queue_id, start.timestamp_ms
        )
        return offset
    if isinstance(start, str):
        return {EARLIEST: queue.min_offset, LATEST: queue.max_offset}[start]
    return start if start >= 0 else max(0, queue.max_offset + start)


def plan_between(topic: str, begin_ms: int, end_ms: int) -> Plan:
    """What was stored from `begin_ms` to `end_ms`, both inclusive."""
    if end_ms < begin_ms:
        raise InvalidRequestError(f"the time range ends at {end_ms}, before it begins")
    found, log_end = yield from listed_queues(topic, whole=True)
    if not found:
        yield from refuse_empty(topic)
    ranges = []
    for queue in sorted(found, key=lambda queue: queue.queue_id):
        places = []
        for moment in (begin_ms, end_ms + 1):
            offset = yield operations.offset_at_time(
                topic, queue.queue_id, moment, TimeBoundary.LOWER
            )
            places.append(offset)
        ranges.append(Range(topic, queue.queue_id, *places, log_end=log_end))
    return ranges


def refuse_empty(topic: str) -> Generator[Operation[Any], Any, None]:
    """NotFoundError for a topic without a message; says whether there is such a topic."""
    try:
        known: list[Topic] = yield operations.topics(topic)
    except UnavailableError as error:
        raise NotFoundError(f"{topic} has no queue with a message") from error
    raise NotFoundError(
        f"the topic {topic} holds no message" if known else f"there is no topic {topic}"
    )


def plan_seek(ranges: Collection[Range], to: Start) -> Generator[Operation[Any], Any, list[int]]:
    """Where each of the ranges continues at `to`, within what its queue holds."""
    to = checked_start(to)
    bounds: dict[tuple[str, int], Queue] = {}
    for topic in sorted({one.topic for one in ranges}):
        found, _ = yield from listed_queues(topic, whole=True)
        bounds.update({(queue.topic, queue.queue_id): queue for queue in found})
    offsets = []
    for one in ranges:
        queue = bounds.get((one.topic, one.queue_id)) or Queue(one.topic, one.queue_id, 0, 0, 0)
        offset = yield from plan_place(queue, to)
        offsets.append(min(max(offset, queue.min_offset), queue.max_offset))
    return offsets


def plan_ends(ranges: Collection[Range]) -> Plan:
    """The ranges that are to be read, up to where their queues end now: a log that was cut to
    another master's history ends before where it did. UnavailableError while the log service is
    away: the queues may be on their way to where they ended."""
    state: LogState = yield operations.log_state()
    confirmed = state.confirmed_offset
    whole = confirmed == state.appended_offset
    # What is not confirmed yet after a start of the log may be the rest of a range.
    settled = [one for one in ranges if whole or confirmed >= one.log_end]
    ends: dict[tuple[str, int], int] = {}
    for topic in sorted({one.topic for one in settled}):
        # The reader asks again: a dispatcher that stands still is noticed within a call's time-out.
        found: list[Queue] = yield operations.queues(topic, confirmed, wait_s=0.0)
        ends.update({(queue.topic, queue.queue_id): queue.max_offset for queue in found})
    return [
        replace(one, end=min(one.end, ends.get((one.topic, one.queue_id), 0)))
        for one in settled
        if one.end is not None
    ]


def listed_queues(
    topic: str, *, whole: bool
) -> Generator[Operation[Any], Any, tuple[list[Queue], int]]:
    """The topic's queues; `whole`: with everything that consumers may see by now. And how far they
    may see the log, 0: not known."""
    confirmed_offset = 0
    if whole:
        try:
            state: LogState = yield operations.log_state()
            confirmed_offset = state.confirmed_offset
        except UnavailableError:
            pass  # without the log service what is in the queues can still be read
    found: list[Queue] = yield operations.queues(topic, confirmed_offset)
    return found, confirmed_offset


def refuse_paused() -> None:
    raise InvalidRequestError("all that is left to read is paused: resume it, or poll")


class ReadQueues:
    """One reader's queues: the request that reads on, and what each answer means.

    A message counts as taken when the reader asks for the next one; of those that it gets at a
    time (`hold`) all do when it asks again (`release`). With `acknowledged` none does before
    `acknowledge`.
    """

    def __init__(self, ranges: Iterable[Range], reading: Reading) -> None:
        """With a group the dispatcher lists the reader as its member."""
        self.ranges = list(ranges)
        self.acknowledged = reading.acknowledged
        self._reading = reading
        self._tags = tag_list(reading.tags)
        self._asked: list[Range] = []
        self._current: Range | None = None
        """The one whose messages are being given."""
        self._held: tuple[Range, int | None] | None = None
        """How far it was taken before the messages that were given together."""
        self._committed: dict[tuple[str, int], int] = {}

    @property
    def ended(self) -> bool:
        return all(one.ended for one in self.ranges)

    @property
    def unfinished(self) -> list[Range]:
        """What is to be read, as far as it is not paused."""
        return [one for one in self.ranges if not (one.ended or one.paused)]

    @property
    def paused(self) -> bool:
        """Nothing is left to read but what is paused."""
        for one in self.ranges:  # at every answer: several times as fast as `any`
            if one.paused:
                return not self.unfinished
        return False

    @property
    def positions(self) -> dict[tuple[str, int], int]:
        """Behind the message that was given last, by (topic, queue id)."""
        return {(one.topic, one.queue_id): one.offset for one in self.ranges}

    @property
    def generations(self) -> dict[tuple[str, int], int]:
        """The generation of each range, by (topic, queue id)."""
        return {(one.topic, one.queue_id): one.generation for one in self.ranges}

    def chosen(self, queues: Collection[int] | None, topic: str | None) -> list[Range]:
        """The ranges of these queues; InvalidRequestError when one is not read here."""
        topics = self.topics if topic is None else {topic}
        found = [
            one
            for one in self.ranges
            if one.topic in topics and (queues is None or one.queue_id in queues)
        ]
        missing = sorted(set(queues or ()) - {one.queue_id for one in found})
        if missing or not found:
            what = f"queues {missing} of it" if missing else "it"
            raise InvalidRequestError(
                f"this reader reads {', '.join(sorted(self.topics)) or 'nothing yet'}: "
                f"{what if topic is None else topic} not among them"
            )
        return found

    @property
    def topics(self) -> set[str]:
        return {one.topic for one in self.ranges}

    def extend(self, ranges: Iterable[Range]) -> bool:
        """Take up queues that are new; True when there were any."""
        known = {(one.topic, one.queue_id) for one in self.ranges}
        new = [one for one in ranges if (one.topic, one.queue_id) not in known]
        self.ranges += new
        return bool(new)

    def shorten(self, ranges: Iterable[Range]) -> None:
        """End where these end."""
        ends = {(one.topic, one.queue_id): one.end for one in ranges}
        for one in self.ranges:
            one.end = ends.get((one.topic, one.queue_id), one.end)

    def request(self) -> dispatcher_pb2.PullStreamRequest:
        """What reads on where the last answer ended."""
        self._asked = self.unfinished
        queues = [
            wire_message(
                dispatcher_pb2.PullQueue,
                topic=one.topic,
                queue_id=one.queue_id,
                offset=one.offset,
                end_offset=one.end,
                generation=one.generation,
            )
            for one in self._asked
        ]
        return wire_message(
            dispatcher_pb2.PullStreamRequest,
            queues=queues,
            tags=self._tags,
            max_bytes=self._reading.max_bytes,
            group=self._reading.group or "",
            client_id=self._reading.client_id or "",
        )

    def receive(self, response: bytes) -> Iterator[ReceivedMessage]:
        """The messages of one answer. Iterate to the end: then the place moves on."""
        head, (frames,) = PULL_STREAM_RESPONSE.decode(response)
        if not 0 <= head.stream_index < len(self._asked):
            raise StrataError(f"the dispatcher answered for queue number {head.stream_index}")
        self._current = one = self._asked[head.stream_index]
        one.begun = True
        moved, one.generation = one.generation != head.generation, head.generation
        for message in split_frames(frames):
            if moved:
                moved = False
                self._go_back(one, message.queue_offset)
            one.offset = one.given = following = message.queue_offset + 1
            yield message
            if not self.acknowledged:
                one.taken = following
        if moved:
            self._go_back(one, head.next_offset)
        one.offset = head.next_offset
        if not self.acknowledged or (one.taken or 0) >= one.given:
            one.taken = head.next_offset

    def _go_back(self, one: Range, offset: int) -> None:
        """What was taken behind `offset` is not in the log any more."""
        one.given = min(one.given, offset)
        if one.taken is not None:
            one.taken = min(one.taken, offset)
        if self._held is not None and self._held[0] is one and self._held[1] is not None:
            self._held = one, min(self._held[1], offset)

    def acknowledge(self, message: ReceivedMessage) -> None:
        """It and what its queue gave before it count as taken, and what no reader of these tags
        gets behind it. InvalidRequestError when its queue is not read here."""
        (one,) = self.chosen([message.queue_id], message.topic)
        following = message.queue_offset + 1
        one.taken = one.offset if following == one.given else max(one.taken or 0, following)

    def hold(self) -> None:
        """What is given from the last message on counts as taken after `release` only."""
        if self._current is not None and not self.acknowledged:
            self._held = (self._current, self._current.taken)

    def release(self) -> None:
        self._held = None

    def give_back(self, message: ReceivedMessage) -> None:
        """The message that was given last is to be asked for again, after `drop_given`."""
        assert self._current is not None
        self._current.offset = message.queue_offset

    def drop_given(self) -> None:
        """What an answer holds behind the message that was given last is to be asked for again.
        What was given last counts as taken after `release` only."""
        one, self._current = self._current, None
        if one is not None and one.begun and not self.acknowledged:
            self._held = self._held or (one, one.taken)
            one.taken = one.offset

    def seek(self, ranges: Iterable[Range], offsets: Iterable[int]) -> None:
        """Continue there, after `drop_given`. For the group it counts as read up to there."""
        for one, offset in zip(ranges, offsets, strict=True):
            one.offset = one.taken = offset
            one.begun, one.generation = True, 0
            if self._held is not None and self._held[0] is one:
                self.release()

    def uncommitted(self, *, given: bool) -> dict[tuple[str, int], int]:
        """Where the group continues, for queues in which that moved since the last commit. `given`:
        the message that was given last counts as taken, from now on."""
        given = given and not self.acknowledged
        if given:
            self._held = None
            for one in self.ranges:
                one.taken = one.offset if one.begun else one.taken
        reached = {
            (one.topic, one.queue_id): one.offset if given else one.taken
            for one in self.ranges
            if one.begun
        }
        if self._held is not None and not given:
            held, taken = self._held
            reached[held.topic, held.queue_id] = taken
        return {
            key: offset
            for key, offset in reached.items()
            if offset is not None and self._committed.get(key) != offset
        }

    def committed(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self._committed.update(offsets)
