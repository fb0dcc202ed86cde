"""Where a broker's bytes are, and what becomes of them: `AsyncAdminClient.storage_map`.

No I/O: operations as values. If a service does not answer, its part is missing, and `problems` says
why; without the log there is no map.
"""

import bisect
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from stratamq.api.v1 import dispatcher_pb2, index_pb2, janitor_pb2
from stratamq.client import admin_operations, group_operations
from stratamq.client.operations import Operation, called
from stratamq.client.values import CleaningLook, GroupQueue, Retention, TierState
from stratamq.errors import NotPermittedError, StrataError, UnavailableError
from stratamq.formats.log_damage import Damage
from stratamq.formats.log_state import LogState
from stratamq.rpc.mirrors import value_of
from stratamq.rpc.rooms import TIER

GOES, HELD, KEPT, STAYS = "goes", "held", "kept", "stays"
"""What the janitor's next look does with a segment: deletes it, is kept from it, finds it too young
(the oldest that stays), or has no reason to look at it."""
FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment of the log, [start, end). `newest_ms`: nothing in it was stored later, None for one
    whose age is not known; `deletion_ms`: when it goes for its age, None if that is not known or it
    does not."""

    start_offset: int
    end_offset: int
    newest_ms: int | None
    deletion_ms: int | None


@dataclass(frozen=True, slots=True)
class StoredSegments:
    """All segments, oldest first, by the janitor's clock. `disabled`: why nothing is deleted,
    empty when something may be. `tiered_offset`: a tier keeps what is below; 0: there is none.
    `plan` and `retention`: of the same moment."""

    segments: tuple[StoredSegment, ...]
    at_ms: int
    disk_total_bytes: int
    disk_used_bytes: int
    disabled: str
    tiered_offset: int
    plan: CleaningLook | None = None
    retention: Retention | None = None


@dataclass(frozen=True, slots=True)
class TopicBytes:
    """About so much of a topic is in the log, hidden messages too; `topic` "": of several."""

    topic: str
    size_bytes: int
    messages: int
    queues: int


@dataclass(frozen=True, slots=True)
class TopicShares:
    """The largest topics and all others together, an estimate: counts of messages, times the mean
    size of the newest ones of each queue (`sampled_messages` in all)."""

    largest: tuple[TopicBytes, ...]
    others: TopicBytes
    topics: int
    at_ms: int
    sampled_messages: int
    queue_files: int
    queue_units: int

    @property
    def size_bytes(self) -> int:
        return self.others.size_bytes + sum(one.size_bytes for one in self.largest)


@dataclass(frozen=True, slots=True)
class IndexedRange:
    """An index file, and the part of the log whose keys it has."""

    name: str
    start_offset: int
    end_offset: int
    begin_ms: int
    end_ms: int
    items: int


@dataclass(frozen=True, slots=True)
class MappedSegment:
    """A segment with all that is known about it. `used_bytes`: of messages. `fate`: one of GOES,
    HELD, KEPT, STAYS, and `reason` why. `verified`: the scrubber's newest pass has read it."""

    segment: StoredSegment
    used_bytes: int
    fate: str
    reason: str
    verified: bool
    tiered: bool
    damaged: bool


@dataclass(frozen=True, slots=True)
class StorageMap:
    """What a broker stores, from the log to the tier. None: the service did not answer, or the
    broker has none."""

    log: LogState
    segments: StoredSegments
    topics: TopicShares | None
    index_files: tuple[IndexedRange, ...] | None
    tier: TierState | None
    problems: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """The log, from its first message to its last one."""
        return self.log.appended_offset - self.log.minimum_offset

    def mapped(self) -> list[MappedSegment]:
        """Every segment, oldest first."""
        fates: dict[int, tuple[str, str]] = {}
        plan = self.segments.plan
        if plan is not None:
            kept = () if plan.kept is None else (plan.kept,)
            steps = ((GOES, plan.deletions), (HELD, plan.held), (KEPT, kept))
            fates = {one.start_offset: (fate, one.sentence) for fate, some in steps for one in some}
        scrub, low, high = self.log.scrub, self.log.minimum_offset, self.log.appended_offset
        return [
            MappedSegment(
                one,
                max(0, min(one.end_offset, high) - max(one.start_offset, low)),
                *fates.get(one.start_offset, (STAYS, "")),
                verified=one.end_offset <= scrub.position_offset,
                tiered=one.end_offset <= self.segments.tiered_offset,
                damaged=any(_meets(one, damage) for damage in scrub.damage),
            )
            for one in self.segments.segments
        ]


def _meets(segment: StoredSegment, damage: Damage) -> bool:
    return segment.start_offset < damage.end and damage.start < segment.end_offset


def log_segments() -> Operation[StoredSegments]:
    def result(found: janitor_pb2.ListSegmentsResponse) -> StoredSegments:
        segments = tuple(
            StoredSegment(
                one.start_offset,
                one.end_offset,
                one.newest_timestamp_ms if one.HasField("newest_timestamp_ms") else None,
                one.deletion_ms if one.HasField("deletion_ms") else None,
            )
            for one in found.segments
        )
        return value_of(
            StoredSegments,
            found,
            segments=segments,
            plan=admin_operations.look_of(found.plan),
            retention=admin_operations.retention_of(found.retention),
        )

    return called("ListSegments", result)


def topic_shares(largest: int) -> Operation[TopicShares]:
    def topic(one: dispatcher_pb2.TopicSize) -> TopicBytes:
        return TopicBytes(one.topic, one.size, one.message_count, one.queue_count)

    def result(found: dispatcher_pb2.ListTopicSizesResponse) -> TopicShares:
        return TopicShares(
            tuple(map(topic, found.topics)),
            topic(found.others),
            found.topic_count,
            found.at_ms,
            found.sampled_messages,
            found.file_count,
            found.unit_count,
        )

    return called("ListTopicSizes", result, max_topics=largest)


def indexed_ranges() -> Operation[tuple[IndexedRange, ...]]:
    def result(state: index_pb2.GetIndexStatusResponse) -> tuple[IndexedRange, ...]:
        return tuple(
            IndexedRange(
                one.name,
                one.begin_physical_offset,
                one.end_physical_offset,
                one.begin_timestamp_ms,
                one.end_timestamp_ms,
                max(0, one.index_count - 1),
            )
            for one in state.files
        )

    return called("GetIndexStatus", result)


class StorageQuestion(NamedTuple):
    """About one service's part of the map. `what`: who answers it. `counts`: it has to count what
    it has, so that it gets as long as its client allows; the others answer soon, or not at all."""

    what: str
    operation: Operation[Any]
    counts: bool = False


def storage_questions(log: LogState, largest: int) -> dict[str, StorageQuestion]:
    """What to ask at once for a map, by the part that it becomes."""
    found = {
        "segments": StorageQuestion("the janitor", log_segments()),
        "topics": StorageQuestion("the dispatcher", topic_shares(largest), counts=True),
        "index_files": StorageQuestion("the index", indexed_ranges()),
    }
    if any(one.name == TIER for one in log.followers):
        found["tier"] = StorageQuestion("the tier", admin_operations.tier_state())
    return found


def storage_map_of(
    log: LogState, questions: Mapping[str, StorageQuestion], answers: Sequence[Any]
) -> StorageMap:
    """The map, of the answers or errors in the order of the questions. Raises NotPermittedError: a
    caller without the right to see a part would take it for empty."""
    parts: dict[str, Any] = dict.fromkeys(("segments", "topics", "index_files", "tier"))
    problems = []
    for (part, question), answer in zip(questions.items(), answers, strict=True):
        if isinstance(answer, NotPermittedError):
            raise answer
        if isinstance(answer, StrataError):
            problems.append(f"{question.what}: {answer}")
        else:
            parts[part] = answer
    segments = parts.pop("segments") or _by_the_log(log)
    return StorageMap(log, segments, **parts, problems=tuple(problems))


def _by_the_log(log: LogState) -> StoredSegments:
    """What the log knows of its segments without the janitor."""
    size = log.segment_bytes or 1
    first = log.minimum_offset - log.minimum_offset % size
    starts = range(first, max(log.appended_offset, first + 1), size)
    found = tuple(StoredSegment(start, start + size, None, None) for start in starts)
    return StoredSegments(found, log.store_time_ms, 0, 0, "", 0)


def plan_groups_with_losses(group: str) -> Generator[Operation[Any], Any, list[GroupQueue]]:
    """The queues of a group, or of all, with lag in seconds and with `loses_in_s`, which is None
    where no janitor answers, or the caller may not observe the broker."""
    queues: list[GroupQueue] = yield group_operations.groups(group, with_lag_s=True)
    try:
        segments: StoredSegments = yield log_segments()
    except (NotPermittedError, UnavailableError):
        return queues
    return with_losses(queues, segments)


def with_losses(queues: Sequence[GroupQueue], segments: StoredSegments) -> list[GroupQueue]:
    """Say of each queue in how many seconds retention takes a message that the group has yet to
    read (`loses_in_s`). It was stored `lag_s` ago: it is in the first segment that has a message as
    young, or in an older one."""
    newest: list[int] = []
    for one in segments.segments[:-1]:  # the last one always stays
        newest.append(max(one.newest_ms or 0, newest[-1] if newest else 0))
    return [replace(one, loses_in_s=_loses_in_s(one, segments, newest)) for one in queues]


def _loses_in_s(queue: GroupQueue, segments: StoredSegments, newest: Sequence[int]) -> float | None:
    if not queue.lag or segments.disabled:
        return FOREVER
    if queue.lag_s is None:
        return None
    number = bisect.bisect_left(newest, segments.at_ms - int(queue.lag_s * 1000))
    if number == len(newest) or segments.segments[number].end_offset <= segments.tiered_offset:
        return FOREVER
    deletion_ms = segments.segments[number].deletion_ms
    return None if deletion_ms is None else max(0.0, (deletion_ms - segments.at_ms) / 1000)
