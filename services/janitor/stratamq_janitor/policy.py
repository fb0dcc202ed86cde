"""Decide from facts what may be deleted, with reasons. Spec 12 without its surprises.

Segments go oldest first, never the last one, and no hole is ever left: the first segment that stays
ends the list. For each, in this order:

    reason to go       expired  older than the retention, and the hour has come, or the disk is
                                above the cleaning level, or on request
                       space    the disk is above the forcing level: however young it is
                       size     the log is larger than it may be
    held back          retention is disabled; not replicated, not consumed by a named group, not
                       tiered: by setting
    put off            it would go because it has expired, and messages in it still wait for their
                       delivery: until it is twice as old
    limit              so many segments in one run

Held back beats every reason, forcing included: then nothing goes, the alarm names what holds, and
in the end the log refuses writes. Forcing takes no more segments than bring the disk below its
level. What waits for its delivery only puts off what has expired: a disk or a log that is too full
takes it, and one message that can never be delivered does not keep the whole log.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

EXPIRED, SPACE, SIZE = "expired", "space", "size"
REPLICATED, CONSUMED, TIERED = "replicated", "consumed", "tiered"
HOLDS = (REPLICATED, CONSUMED, TIERED)
DISABLED, WAITING = "disabled", "waiting"
WAITING_LIFE = 2
"""After so many times the retention it does not count that messages wait."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The policy's own; all ratios are parts of the volume."""

    retention_ms: int = 72 * 3_600_000
    retention_bytes: int = 0
    """The log is kept no larger than this; 0: as large as it gets."""
    delete_hours: frozenset[int] = frozenset((4,))
    """Local hours in which expired segments go."""
    clean_ratio: float = 0.75
    """Above it expired segments go at any hour."""
    force_ratio: float = 0.85
    """Above it segments go however young they are."""
    max_segments: int = 10
    """In one run."""
    clock_tolerance_ms: int = 10 * 60_000
    """Messages that were stored further than this in the future are reported."""
    hold: frozenset[str] = frozenset()
    """The values of `HOLDS` that a segment must satisfy before it may be deleted."""

    def __str__(self) -> str:
        """The rules in one sentence, for people."""
        age = f"Segments expire after {span(self.retention_ms)}"
        hours = ", ".join(f"{hour:02}:00" for hour in sorted(self.delete_hours))
        when = f"from {hours} for an hour (the broker's local time) and " if hours else ""
        rules = [
            age,
            f"expired ones are deleted {when}above {self.clean_ratio:.0%} disk usage",
            f"all but the last above {self.force_ratio:.0%}",
        ]
        if self.retention_bytes:
            rules.append(f"the oldest if the log exceeds {self.retention_bytes} bytes")
        if self.hold:
            rules.append(f"none until it is {' and '.join(sorted(self.hold))}")
        return "; ".join(rules)


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """One segment of the log, [start, end). `newest_ms`: nothing in it was stored later than that;
    None: unknown."""

    start: int
    end: int
    newest_ms: int | None

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class CleaningFacts:
    """The world at one look. `held_at`: for each hold, the log offset up to which it lets go."""

    now_ms: int
    local: datetime
    """The same moment on the wall, without a time zone."""
    previous: datetime | None
    """The wall's time at the last look that left nothing over; None: this is the first."""
    disk_total_bytes: int
    disk_used_bytes: int
    """What is deleted and waits to be unlinked not counted: it is on its way."""
    segments: Sequence[SegmentFacts]
    held_at: dict[str, int] = field(default_factory=dict)
    holders: dict[str, str] = field(default_factory=dict)
    """For each hold: the follower that is furthest behind, if known."""
    waiting_from: int | None = None
    """No message below still waits for its delivery. None: none waits, or it was not asked."""
    waiting_unknown: str = ""
    """Why it is not known; `waiting_from` is 0 then."""
    manual: bool = False
    disabled: str = ""
    """Why nothing may be deleted at all; empty: it may."""
    clock_doubt: str = ""
    """Why the wall clock is not believed: ages mean nothing then. Empty: it is."""
    future_ms: int = 0
    """By how much the newest message was stored in the future."""

    @property
    def disk_used_ratio(self) -> float:
        return self.disk_used_bytes / self.disk_total_bytes if self.disk_total_bytes else 0.0


@dataclass(frozen=True, slots=True)
class Deletion:
    segment: SegmentFacts
    reason: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Held:
    """A segment that would go, and what keeps it."""

    segment: SegmentFacts
    by: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Kept:
    """The oldest segment that stays without being held back, and why."""

    segment: SegmentFacts
    sentence: str


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the log, in whole segments."""

    segments: int
    size: int


@dataclass(frozen=True, slots=True)
class Decision:
    deletions: tuple[Deletion, ...] = ()
    held: tuple[Held, ...] = ()
    kept: Kept | None = None
    """None when one is held back."""
    urgent: bool = False
    """The disk does not wait for followers."""
    limited: bool = False
    """More would go, and the limit of one run is reached."""
    alarm: str = ""
    """What an operator must act on; empty when there is nothing."""

    @property
    def delete_below(self) -> int:
        """The log offset below which segments go; 0: none does."""
        return self.deletions[-1].segment.end if self.deletions else 0


def decide(facts: CleaningFacts, settings: Settings) -> Decision:
    """The decision of one look."""
    used = facts.disk_used_bytes
    left = sum(segment.size for segment in facts.segments)
    deletions: list[Deletion] = []
    held: list[Held] = []
    limited = False
    for segment in facts.segments[:-1]:
        reason = _reason(segment, facts, settings, used, left)
        if reason is None:
            break
        by = held_by(segment, facts, settings)
        if by is None and _shortage(facts, settings, used, left) is None:
            by = waited_for(segment, facts, settings)
        if by is not None:
            held.append(by)
            break
        if len(deletions) == settings.max_segments:
            limited = True
            break
        deletions.append(Deletion(segment, *reason))
        used -= segment.size
        left -= segment.size
    forcing = facts.disk_used_ratio > settings.force_ratio
    return Decision(
        deletions=tuple(deletions),
        held=tuple(held),
        kept=None if held else _kept(facts, settings, len(deletions), limited),
        urgent=forcing,
        limited=limited,
        # What is only put off is no matter of the disk.
        alarm=_alarm(
            facts,
            settings,
            forcing and not limited,
            used,
            [one for one in held if one.by != WAITING],
        ),
    )


def taken(facts: CleaningFacts, settings: Settings, *, manual: bool) -> Share:
    """All that the rules take from the log as it is, in as many runs as it needs, if retention is
    enabled: at once, or (`manual`) whatever the hour."""
    facts = replace(facts, manual=manual, disabled="")
    deletions = decide(facts, replace(settings, max_segments=len(facts.segments))).deletions
    return Share(len(deletions), sum(one.segment.size for one in deletions))


def hour_has_come(facts: CleaningFacts, hours: frozenset[int]) -> bool:
    """Whether the wall shows one of the hours, or has passed its beginning since the last look: a
    clock that is put forward skips hours, and a pause of the process does."""
    if facts.local.hour in hours:
        return True
    if facts.previous is None or facts.previous >= facts.local:
        return False
    moment = facts.previous.replace(minute=0, second=0, microsecond=0)
    for _ in range(25):
        moment += timedelta(hours=1)
        if moment > facts.local:
            return False
        if moment.hour in hours:
            return True
    return bool(hours)


def _reason(
    segment: SegmentFacts, facts: CleaningFacts, settings: Settings, used: int, left: int
) -> tuple[str, str] | None:
    total = facts.disk_total_bytes or 1
    if not facts.clock_doubt and _is_old(segment, facts.now_ms, settings):
        why = None
        if facts.manual:
            why = "requested by an operator"
        elif hour_has_come(facts, settings.delete_hours):
            why = "the hour has come"
        elif used / total > settings.clean_ratio:
            why = f"the disk is {used / total:.1%} full"
        if why is not None:
            return EXPIRED, f"stored more than {span(settings.retention_ms)} ago, and {why}"
    return _shortage(facts, settings, used, left)


def _shortage(
    facts: CleaningFacts, settings: Settings, used: int, left: int
) -> tuple[str, str] | None:
    """The reasons that do not ask how old a segment is."""
    total = facts.disk_total_bytes or 1
    if used / total > settings.force_ratio:
        return SPACE, f"the disk is {used / total:.1%} full, above {settings.force_ratio:.0%}"
    if settings.retention_bytes and left > settings.retention_bytes:
        return SIZE, f"the log has {left} bytes, more than {settings.retention_bytes}"
    return None


def any_is_old(segments: Sequence[SegmentFacts], now_ms: int, settings: Settings) -> bool:
    """Whether there is a segment, besides the last one, that has expired."""
    return any(_is_old(segment, now_ms, settings) for segment in segments[:-1])


def _is_old(segment: SegmentFacts, now_ms: int, settings: Settings) -> bool:
    if segment.newest_ms is None:
        return False
    return now_ms - segment.newest_ms >= settings.retention_ms


def held_by(segment: SegmentFacts, facts: CleaningFacts, settings: Settings) -> Held | None:
    if facts.disabled:
        return Held(segment, DISABLED, f"retention is disabled: {facts.disabled}")
    words = {
        REPLICATED: "no slave has acknowledged it",
        CONSUMED: "a group that must not lose it has not consumed it",
        TIERED: "it has not been moved to the tier",
    }
    for hold in HOLDS:
        if hold in settings.hold and facts.held_at.get(hold, 0) < segment.end:
            upto = facts.held_at.get(hold, 0)
            who = facts.holders.get(hold, "")
            place = f"only up to {upto}" + (f": {who}" if who else "")
            return Held(segment, hold, f"{words[hold]} ({place})")
    return None


def waited_for(segment: SegmentFacts, facts: CleaningFacts, settings: Settings) -> Held | None:
    if facts.waiting_from is None or facts.waiting_from >= segment.end:
        return None
    life_ms = WAITING_LIFE * settings.retention_ms
    if segment.newest_ms is None or facts.now_ms - segment.newest_ms >= life_ms:
        return None
    what = (
        f"whether messages in it wait for their delivery is not known: {facts.waiting_unknown}"
        if facts.waiting_unknown
        else "messages in it wait for their delivery, or for the end of their transaction "
        f"(the first one at {facts.waiting_from})"
    )
    return Held(segment, WAITING, f"{what}; it goes when it is {span(life_ms)} old")


def _kept(facts: CleaningFacts, settings: Settings, gone: int, limited: bool) -> Kept | None:
    if gone >= len(facts.segments):
        return None
    segment = facts.segments[gone]
    if gone == len(facts.segments) - 1:
        sentence = "it is the last one, which always stays"
    elif limited:
        sentence = f"one run takes {settings.max_segments} segments; the next one continues"
    elif segment.newest_ms is None:
        sentence = "its age is not known"
    elif _is_old(segment, facts.now_ms, settings):
        hours = ", ".join(f"{hour:02}:00" for hour in sorted(settings.delete_hours))
        when = f"at {hours} (the broker's local time), " if hours else ""
        sentence = f"it has expired and goes {when}above {settings.clean_ratio:.0%} of the disk, "
        sentence += "or by `stratamq janitor run`"
    else:
        age = span(facts.now_ms - segment.newest_ms)
        sentence = f"its newest message is {age} old, it expires after "
        sentence += span(settings.retention_ms)
    return Kept(segment, sentence)


def span(milliseconds: int) -> str:
    if abs(milliseconds) >= 3_600_000:
        return f"{round(milliseconds / 3_600_000, 1):g} h"
    return f"{round(milliseconds / 1000, 1):g} s"


def _alarm(
    facts: CleaningFacts, settings: Settings, forcing: bool, used: int, held: Sequence[Held]
) -> str:
    full = used / facts.disk_total_bytes if facts.disk_total_bytes else 0.0
    if forcing and held:
        return (
            f"the disk is {facts.disk_used_ratio:.1%} full and nothing may go: segment "
            f"{held[0].segment.start} is held back: {held[0].sentence}"
        )
    if forcing and full > settings.force_ratio:
        return (
            f"the disk is {facts.disk_used_ratio:.1%} full and no segment is left that could go: "
            "something else fills the volume, or the last segment does"
        )
    if facts.clock_doubt and any_is_old(facts.segments[:2], facts.now_ms, settings):
        return (
            f"{facts.clock_doubt}: nothing expires for a while (janitor.clock_grace_ms); if it is "
            "right, confirm it by `stratamq janitor run --trust-clock`"
        )
    if facts.future_ms > settings.clock_tolerance_ms:
        return (
            f"the newest message was stored {facts.future_ms / 3_600_000:.1f} h from now: the "
            "clock is slow, or was fast when it was stored. Until it has caught up, what is stored "
            "gets that time too, searches by time find it there, and ages count by file times"
        )
    return ""
