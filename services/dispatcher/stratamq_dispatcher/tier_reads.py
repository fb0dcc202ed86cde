"""Messages that the local log has no more, from the broker's tier.

The tier service is asked; nothing here waits for it where the local log has the answer. What the
tier has is learned in steps, for lists; a pull below the local minimum asks the tier itself, so
that no message is passed over because a list is old.
"""

import asyncio
import enum
import logging
from collections.abc import Callable

import numpy as np

from stratamq.errors import StrataError
from stratamq.follow.tier import TierCalls, TierMessages, TierQueueRange
from stratamq.formats import frame_layout as layout
from stratamq.formats.message_status import PullStatus
from stratamq.rpc.request_ids import part
from stratamq_dispatcher.frame_reads import Piece
from stratamq_dispatcher.long_poll import QueueKey
from stratamq_dispatcher.pull import PullAnswer, PullPlan, PullQuery, TagFilter

log = logging.getLogger(__name__)

LOOK_S = 2.0
FIRST_LOOK_S = 0.1
"""Where nothing is served before the tier was read."""
DEFAULT_MESSAGES, DEFAULT_BYTES = 32, 256 << 10


class TierLevel(enum.Enum):
    """RocketMQ's tieredStorageLevel: what is read from the tier although the log may have it."""

    DISABLE = 0
    NOT_IN_DISK = 1
    NOT_IN_MEM = 2
    FORCE = 3

    @classmethod
    def named(cls, text: str) -> "TierLevel":
        """By its name or its number, as RocketMQ takes it."""
        return cls(int(text)) if text.isdigit() else cls[text]


class TierReads:
    """Belongs to the event loop. `expected`: the broker has a tier, also before it was met. With
    `calls` None, or the level DISABLE, nothing is asked."""

    def __init__(
        self,
        calls: TierCalls | None,
        log_minimum: Callable[[], int],
        level: TierLevel = TierLevel.NOT_IN_DISK,
        *,
        expected: bool = False,
        grow: Callable[[TierQueueRange], None] | None = None,
    ) -> None:
        """`log_minimum`: the log's first offset, as far as this service knows. `grow`: of a mounted
        tier, whose queues are this broker's: called with each queue that is new or has changed."""
        self.level = level
        self.learned = asyncio.Event()
        """Set once all queues of the tier are known."""
        self._grow = grow
        self._log_minimum = log_minimum
        self._calls = None if level is TierLevel.DISABLE else calls
        self.known = expected and self._calls is not None
        """There is a tier: what is below the local minimum may be there."""
        self._ranges: dict[QueueKey, TierQueueRange] = {}
        self._answered_at: int | None = None
        """The log's first offset at the last look; None: it was not answered."""
        self._revision = 0

    async def follow(self) -> None:
        """Learn what the tier has, again and again, until cancelled."""
        failing = False
        while (calls := self._calls) is not None:
            try:
                await self._learn(calls)
                failing = False
            except StrataError as error:
                self._answered_at = None
                if self.known and not failing:
                    log.warning("the tier does not answer", extra={"reason": str(error)})
                failing = True
            awaited = self._grow is not None and not self.learned.is_set()
            await asyncio.sleep(FIRST_LOOK_S if awaited else LOOK_S)

    @property
    def _is_current(self) -> bool:
        """What the log has no more, the tier had before the last look, and its queue is known."""
        return self._answered_at is not None and self._answered_at >= self._log_minimum()

    def minimum(self, key: QueueKey, local: int, hidden_below: int) -> int:
        """The queue's first offset in the local log (`local`) or the tier. While the tier does not
        answer, or was not asked since the log was cut: the first that it might have, so that who
        begins there misses nothing."""
        found = self._ranges.get(key)
        if found is not None and found.minimum < min(found.end, local):
            return max(found.minimum, hidden_below)
        return min(local, hidden_below) if self.known and not self._is_current else local

    def prefers(self, query: PullQuery, plan: PullPlan) -> bool:
        """Whether the tier is asked first for what the local log has as well."""
        if self.level is TierLevel.NOT_IN_DISK:
            return False
        if self.level is TierLevel.NOT_IN_MEM and not plan.cold:
            return False
        found = self._ranges.get((query.topic, query.queue_id))
        return found is not None and found.minimum <= query.offset < found.end

    async def pull(
        self, query: PullQuery, local: PullAnswer, hidden_below: int
    ) -> PullAnswer | None:
        """Messages from `query.offset` on; None: the tier has nothing there, or not all that the
        local log has there, and `local`, which the local log answers, stands. UnavailableError
        when the tier does not answer, or does not know yet why it has nothing there;
        LostMessagesError."""
        if self._calls is None:
            return None
        offset = max(query.offset, hidden_below)
        wanted = query.max_messages or DEFAULT_MESSAGES
        if query.stop_before is not None:
            wanted = max(1, min(wanted, query.stop_before - offset))
        most_bytes = query.max_bytes or DEFAULT_BYTES
        with part("tier fetch", topic=query.topic, queue_id=query.queue_id):
            found = await self._calls.messages(
                query.topic, query.queue_id, offset, wanted, most_bytes, local.minimum
            )
        if found is None:
            return None
        minimum = max(found.minimum, hidden_below)
        maximum = max(local.maximum, found.end)
        if found.below or query.offset < offset:
            if local.minimum < local.maximum and minimum >= local.minimum:
                return None
            return PullAnswer(PullStatus.OFFSET_TOO_SMALL, minimum, minimum, maximum)
        first = _first_offset(found)
        if first > max(offset, local.minimum) and local.minimum < local.maximum:
            # The tier has a gap there, and the log has messages in it.
            if local.minimum <= offset:
                return None
            return PullAnswer(PullStatus.NO_MATCHED_MESSAGE, local.minimum, minimum, maximum)
        pieces, count = _chosen(found, query.tag_filter, query.topic)
        status = PullStatus.FOUND if count else PullStatus.NO_MATCHED_MESSAGE
        size = sum(map(len, pieces))
        return PullAnswer(status, found.next_offset, minimum, maximum, count, pieces, size)

    async def offset_at(
        self, key: QueueKey, timestamp_ms: int, local: int, local_minimum: int, *, upper: bool
    ) -> int:
        """`local`, what the local log answers, unless the message is in the tier alone.
        UnavailableError."""
        calls = self._calls
        if calls is None or local > local_minimum or local_minimum <= 0:
            return local
        if not self._is_current:
            await self._learn(calls)
        found = self._ranges.get(key)
        if found is None or found.minimum >= local_minimum:
            return local
        in_tier = await calls.offset_at(*key, timestamp_ms, upper=upper)
        if found.end <= in_tier < local_minimum:
            # It has grown since the last look, or has nothing of that time.
            await self._learn(calls)
            found = self._ranges[key]
        return in_tier if in_tier < min(found.end, local_minimum) else local

    async def _learn(self, calls: TierCalls) -> None:
        log_minimum = self._log_minimum()
        changed, revision = await calls.changed_queues(self._revision)
        if revision < self._revision:
            # The service was restarted, and counts from the beginning.
            changed, revision = await calls.changed_queues(0)
        for one in changed:
            self._ranges[one.topic, one.queue_id] = one
            if self._grow is not None:
                self._grow(one)
        self._revision = revision
        self._answered_at = log_minimum
        self.known = True
        self.learned.set()


def _first_offset(found: TierMessages) -> int:
    """The queue offset of the first record; where to go on when there is none."""
    if not found.lengths:
        return found.next_offset
    at = layout.QUEUE_OFFSET_POSITION
    return int.from_bytes(found.frames[at : at + 8], "big")


def _chosen(
    found: TierMessages, tag_filter: TagFilter | None, topic: str
) -> tuple[list[Piece], int]:
    """The records with a wanted tag, in one piece where all are wanted, and their number. They keep
    the whole answer in memory only where they are at least half of it."""
    whole = memoryview(found.frames)
    if not found.lengths:
        return [], 0
    if tag_filter is None or tag_filter.matches_all:
        return [whole], len(found.lengths)
    codes = np.array(found.tags_codes, np.int64)
    wanted, doubtful = tag_filter.mask(codes, topic), tag_filter.needs_text(codes)
    ends = np.cumsum(np.array(found.lengths, np.int64))
    pieces: list[Piece] = []
    for number in np.flatnonzero(wanted).tolist():
        record = whole[int(ends[number]) - found.lengths[number] : int(ends[number])]
        if not doubtful[number] or tag_filter.has_tag(record):
            pieces.append(record)
    count = len(pieces)
    if 0 < 2 * sum(map(len, pieces)) < len(whole):
        pieces = [b"".join(pieces)]
    return pieces, count
