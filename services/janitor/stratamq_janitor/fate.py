"""What becomes of segments by the rule: when each expires, and by when it is deleted.

The hour of deletion bounds it from above: a volume or a log that is too full takes a segment
earlier, whatever its age. What holds it back has no bound, but messages that wait for their
delivery, which put it off until it is twice as old as the retention.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from stratamq.errors import OffsetOutOfRangeError
from stratamq_janitor.policy import (
    WAITING_LIFE,
    CleaningFacts,
    Held,
    SegmentFacts,
    Settings,
    held_by,
    span,
    waited_for,
)

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Outlook:
    """Times of the wall clock, None where they are not known; `obstacle` says why, or what puts off
    a deletion. `goes_ms`: as full as the volume is now; `deleted_by_ms`: however full it is."""

    segment: SegmentFacts
    expires_ms: int | None = None
    goes_ms: int | None = None
    deleted_by_ms: int | None = None
    obstacle: str = ""


def fate_of(
    offset: int, facts: CleaningFacts, settings: Settings, local_of: Callable[[int], datetime]
) -> Outlook:
    """The fate of the segment that has an offset of the log. OffsetOutOfRangeError."""
    segments = facts.segments
    number = bisect_right(segments, offset, key=lambda one: one.start) - 1
    if number < 0 or offset >= segments[number].end:
        raise OffsetOutOfRangeError(
            f"the log has no segment with {offset}", segments[0].start, segments[-1].end
        )
    return fates_of(number, number + 1, facts, settings, local_of)[0]


def fates_of(
    begin: int,
    end: int,
    facts: CleaningFacts,
    settings: Settings,
    local_of: Callable[[int], datetime],
) -> list[Outlook]:
    """The fates of the segments [begin, end) of those of `facts`, as the facts are now.

    `local_of`: the wall's time in the zone of `Settings.delete_hours`.
    """
    held = put_off = None
    fates = []
    for number, segment in enumerate(facts.segments[:end]):
        # The first that is held back keeps all behind it: the log gets no hole.
        held = held or held_by(segment, facts, settings)
        put_off = put_off or waited_for(segment, facts, settings)
        if number >= begin:
            fates.append(_fate(segment, held, put_off, facts, settings, local_of))
    return fates


def _fate(
    segment: SegmentFacts,
    held: Held | None,
    put_off: Held | None,
    facts: CleaningFacts,
    settings: Settings,
    local_of: Callable[[int], datetime],
) -> Outlook:
    if segment is facts.segments[-1]:
        after = f"it expires {span(settings.retention_ms)} after its newest message"
        return Outlook(segment, obstacle=f"its segment is not full yet; then {after}")
    if segment.newest_ms is None:
        return Outlook(segment, obstacle="the age of its segment is not known")
    due_ms = expires_ms = segment.newest_ms + settings.retention_ms
    if held is not None:
        return Outlook(segment, expires_ms, obstacle=held.sentence)
    if put_off is not None:
        due_ms = segment.newest_ms + WAITING_LIFE * settings.retention_ms
    due_ms = max(due_ms, facts.now_ms)
    by_ms = _next_hour(due_ms, settings.delete_hours, local_of)
    goes_ms = due_ms if facts.disk_used_ratio > settings.clean_ratio else by_ms
    why = "" if put_off is None else put_off.sentence
    if by_ms is None:
        why = "no hour of deletion is set: only lack of space, or `stratamq janitor run`, takes it"
    return Outlook(segment, expires_ms, goes_ms, by_ms, why)


def _next_hour(
    from_ms: int, hours: frozenset[int], local_of: Callable[[int], datetime]
) -> int | None:
    """The first moment from `from_ms` on at which the wall shows one of the hours."""
    moment_ms = from_ms
    for _ in range(26):  # a day, and what daylight saving time adds to it
        local = local_of(moment_ms)
        if local.hour in hours:
            return moment_ms
        past_ms = (local.minute * 60 + local.second) * 1000 + local.microsecond // 1000
        moment_ms += HOUR_MS - past_ms
    return None
