"""What becomes of one segment by the rule: when it expires, and by when it is deleted.

The hour of deletion bounds it from above: a volume or a log that is too full takes a segment
earlier, whatever its age. What holds it back has no bound, but messages that wait for their
delivery, which put it off until it is twice as old as the retention.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from stratamq.errors import OffsetOutOfRangeError
from stratamq_janitor.policy import (
    WAITING_LIFE,
    CleaningFacts,
    SegmentFacts,
    Settings,
    held_by,
    span,
    waited_for,
)

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Outlook:
    """Times of the wall clock. `expires_ms` and `deleted_by_ms` None: not known, and `obstacle`
    says why; it also says what puts off a deletion whose time is known."""

    segment: SegmentFacts
    expires_ms: int | None = None
    deleted_by_ms: int | None = None
    obstacle: str = ""


def fate_of(
    offset: int, facts: CleaningFacts, settings: Settings, local_of: Callable[[int], datetime]
) -> Outlook:
    """The fate of the segment that has an offset of the log, as the facts are now.

    `local_of`: the wall's time in the zone of `Settings.delete_hours`. OffsetOutOfRangeError.
    """
    segments = facts.segments
    segment = next((one for one in segments if one.start <= offset < one.end), None)
    if segment is None:
        raise OffsetOutOfRangeError(
            f"the log has no segment with {offset}", segments[0].start, segments[-1].end
        )
    if segment is segments[-1]:
        after = f"it expires {span(settings.retention_ms)} after its newest message"
        return Outlook(segment, obstacle=f"its segment is not full yet; then {after}")
    if segment.newest_ms is None:
        return Outlook(segment, obstacle="the age of its segment is not known")
    expires_ms = segment.newest_ms + settings.retention_ms
    # The first that is held back keeps all behind it: the log gets no hole.
    before = segments[: segments.index(segment) + 1]
    held = [held_by(one, facts, settings) for one in before]
    if first := next(filter(None, held), None):
        return Outlook(segment, expires_ms, None, first.sentence)
    waiting = [waited_for(one, facts, settings) for one in before]
    put_off, due_ms = next(filter(None, waiting), None), expires_ms
    if put_off is not None:
        due_ms = segment.newest_ms + WAITING_LIFE * settings.retention_ms
    deleted_by_ms = _next_hour(max(due_ms, facts.now_ms), settings.delete_hours, local_of)
    if deleted_by_ms is None:
        why = "no hour of deletion is set: only lack of space, or `stratamq janitor run`, takes it"
        return Outlook(segment, expires_ms, None, why)
    return Outlook(segment, expires_ms, deleted_by_ms, put_off.sentence if put_off else "")


def deletion_ms(
    segment: SegmentFacts,
    facts: CleaningFacts,
    settings: Settings,
    local_of: Callable[[int], datetime],
) -> int | None:
    """When a segment goes for its age, unless something holds it back then. None: its age is not
    known, nothing is deleted at all, or no hour is set and the disk has room."""
    if segment.newest_ms is None or facts.disabled:
        return None
    due_ms = max(segment.newest_ms + settings.retention_ms, facts.now_ms)
    if facts.disk_used_ratio > settings.clean_ratio:
        return due_ms
    return _next_hour(due_ms, settings.delete_hours, local_of)


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
