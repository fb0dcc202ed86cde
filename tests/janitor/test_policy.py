"""Every condition of spec section 12, and every mix of two, as transcripts that anyone can read.

Segments have 10 GB of a volume of 1000 GB; oldest first, given by the age of their newest message
in hours; the last one is in use. Defaults: 72 h, at 04, cleaning above 75 %, forcing above 85 %.
"""

import re
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import combinations

import pytest
from stratamq_janitor.policy import (
    CleaningFacts,
    Decision,
    SegmentFacts,
    Settings,
    decide,
    hour_has_come,
)

GB = 10**9
HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000

TRANSCRIPTS = """
# Nothing has expired.
disk 50% at 10:00, ages 70 50 1
    nothing

# Expired, but it is not the hour: nothing. At the hour, all during it, they go; the last one stays.
disk 50% at 10:00, ages 100 80 1
    nothing
disk 50% at 04:00, ages 100 80 1
    delete 0 expired, delete 1 expired
disk 50% at 04:59, ages 100 80 1
    delete 0 expired, delete 1 expired
disk 50% at 05:00, ages 100 80 1
    nothing
disk 50% at 04:00, ages 100 80 75
    delete 0 expired, delete 1 expired
disk 50% at 04:00, ages 100
    nothing

# Exactly as old as the retention is expired.
disk 50% at 04:00, ages 72 71 1
    delete 0 expired

# What waits for its delivery puts off what has expired, until it is twice as old.
disk 50% at 04:00, ages 100 80 1, waiting from 15 GB
    delete 0 expired; held 1 waiting
disk 50% at 04:00, ages 100 80 1, waiting from 10 GB
    delete 0 expired; held 1 waiting
disk 50% at 04:00, ages 100 80 1, waiting from 20 GB
    delete 0 expired, delete 1 expired
disk 50% at 10:00, ages 100 80 1, waiting from 5 GB, manual
    nothing; held 0 waiting
disk 50% at 04:00, ages 144 143 1, waiting from 0 GB
    delete 0 expired; held 1 waiting

# A disk that is too full takes it, and so does a log that is too large.
disk 86% at 04:00, ages 100 80 1, waiting from 0 GB
    delete 0 expired; held 1 waiting; urgent
disk 50% at 04:00, ages 100 80 1, at most 20 GB, waiting from 0 GB
    delete 0 expired; held 1 waiting
disk 50% at 04:00, ages 60 50 1, at most 20 GB, waiting from 0 GB
    delete 0 size

# The first that stays ends the list: no holes.
disk 50% at 04:00, ages 100 70 100 1
    delete 0 expired

# Above the cleaning level expired ones go at any hour, until it is below; young ones do not.
disk 76% at 10:00, ages 100 80 1
    delete 0 expired
disk 77% at 10:00, ages 100 80 75 1
    delete 0 expired, delete 1 expired
disk 75% at 10:00, ages 100 80 1
    nothing
disk 80% at 10:00, ages 60 50 1
    nothing

# Above the forcing level young ones go, too, until it is below.
disk 86% at 10:00, ages 60 50 1
    delete 0 space; urgent
disk 88% at 10:00, ages 60 50 40 30 1
    delete 0 space, delete 1 space, delete 2 space; urgent
disk 85% at 10:00, ages 60 50 1
    nothing

# Forced, and expired at that: the reason is the milder one as long as it holds.
disk 86% at 10:00, ages 100 50 1
    delete 0 expired; urgent
disk 88% at 10:00, ages 100 50 40 1
    delete 0 expired, delete 1 space, delete 2 space; urgent

# The last one is never deleted, however full the disk is; the alarm reports that nothing is left.
disk 99% at 10:00, ages 60 1
    delete 0 space; urgent; alarm no segment is left
disk 99% at 10:00, ages 1
    nothing; urgent; alarm no segment is left

# So many in a run; the next run continues.
disk 50% at 04:00, ages 100 99 98 97 96 95 94 93 92 91 90 89 1
    delete 0-9 expired
disk 99% at 10:00, ages 60 59 58 57 56 55 54 53 52 51 50 49 1
    delete 0-9 space; urgent

# A manual run: expired ones go at any hour, young ones do not.
disk 50% at 10:00, ages 100 80 60 1, manual
    delete 0 expired, delete 1 expired
disk 50% at 10:00, ages 60 50 1, manual
    nothing

# A log that may not be larger.
disk 50% at 10:00, ages 30 20 10 1, at most 25 GB
    delete 0 size, delete 1 size
disk 50% at 04:00, ages 100 20 10 1, at most 25 GB
    delete 0 expired, delete 1 size
disk 50% at 10:00, ages 30 20 10 1, at most 40 GB
    nothing

# Held back beats the hour, the levels, the size and a manual run; what is before it still goes.
disk 50% at 04:00, ages 100 90 80 1, hold replicated up to 10 GB
    delete 0 expired; held 1 replicated
disk 50% at 04:00, ages 100 90 80 1, hold replicated up to 9 GB
    nothing; held 0 replicated
disk 80% at 10:00, ages 100 90 1, hold consumed up to 0 GB
    nothing; held 0 consumed
disk 88% at 10:00, ages 60 50 40 30 1, hold tiered up to 10 GB
    delete 0 space; held 1 tiered; urgent; alarm held back
disk 88% at 10:00, ages 60 50 1, hold tiered up to 0 GB
    nothing; held 0 tiered; urgent; alarm held back
disk 50% at 10:00, ages 30 20 10 1, at most 25 GB, hold consumed up to 0 GB
    nothing; held 0 consumed
disk 50% at 10:00, ages 100 80 1, manual, hold replicated up to 0 GB
    nothing; held 0 replicated
disk 50% at 04:00, ages 70 50 1, hold replicated up to 0 GB
    nothing

# A clock in doubt: nothing expires, in a manual run neither; a full disk and a log too large still
# count. The alarm comes only when the doubt keeps something.
disk 50% at 04:00, ages 100 90 1, clock in doubt
    nothing; alarm clock in doubt
disk 50% at 04:00, ages 70 60 1, clock in doubt
    nothing
disk 50% at 10:00, ages 100 90 1, clock in doubt, manual
    nothing; alarm clock in doubt
disk 80% at 10:00, ages 100 90 1, clock in doubt
    nothing; alarm clock in doubt
disk 86% at 10:00, ages 100 90 1, clock in doubt
    delete 0 space; urgent; alarm clock in doubt
disk 50% at 10:00, ages 100 90 80 1, clock in doubt, at most 35 GB
    delete 0 size; alarm clock in doubt
disk 50% at 04:00, ages 100 90 1, clock in doubt, hold replicated up to 0 GB
    nothing; alarm clock in doubt
disk 86% at 10:00, ages 100 90 1, clock in doubt, hold tiered up to 0 GB
    nothing; held 0 tiered; urgent; alarm held back
disk 50% at 04:00, ages ? 90 1, clock in doubt
    nothing
disk 50% at 04:00, ages 100, clock in doubt
    nothing
disk 99% at 10:00, ages 60 59 58 57 56 55 54 53 52 51 50 49 1, clock in doubt
    delete 0-9 space; urgent

# Messages from the future (a clock that was put back) are not old; a doubt about them is no alarm.
disk 50% at 04:00, ages -5 -6 -7
    nothing
disk 50% at 04:00, ages 100 -6 -7
    delete 0 expired
disk 50% at 10:00, ages -5 -6 -7, manual
    nothing
disk 80% at 10:00, ages -5 -6 -7
    nothing
disk 86% at 10:00, ages -5 -6 -7
    delete 0 space; urgent
disk 50% at 04:00, ages -5 -6 -7, clock in doubt
    nothing
disk 50% at 10:00, ages -5 -6 -7, at most 25 GB
    delete 0 size
disk 50% at 04:00, ages -5 -6 -7, hold replicated up to 0 GB
    nothing
disk 50% at 04:00, ages ? -6 -7
    nothing
disk 50% at 04:00, ages -5
    nothing
disk 99% at 10:00, ages -1 -2 -3 -4 -5 -6 -7 -8 -9 -10 -11 -12 -13
    delete 0-9 space; urgent

# Segments of unknown age never expire, in a manual run neither.
disk 50% at 04:00, ages ? ? 1
    nothing
disk 50% at 10:00, ages ? ? 1, manual
    nothing
disk 80% at 10:00, ages ? ? 1
    nothing
disk 86% at 10:00, ages ? ? 1
    delete 0 space; urgent
disk 50% at 10:00, ages ? ? 1, at most 25 GB
    delete 0 size
disk 50% at 04:00, ages ? 100 1, hold consumed up to 0 GB
    nothing
disk 50% at 04:00, ages ?
    nothing
disk 99% at 10:00, ages ? ? ? ? ? ? ? ? ? ? ? ? 1
    delete 0-9 space; urgent

# Mixes of two reasons: one is named, the milder first, and what remains goes for the other.
disk 50% at 04:00, ages 100 80 1, manual
    delete 0 expired, delete 1 expired
disk 80% at 04:00, ages 100 80 60 1
    delete 0 expired, delete 1 expired
disk 86% at 04:00, ages 100 90 60 1
    delete 0 expired, delete 1 expired; urgent
disk 80% at 10:00, ages 100 60 1, manual
    delete 0 expired
disk 86% at 10:00, ages 100 90 60 1, manual
    delete 0 expired, delete 1 expired; urgent
disk 50% at 10:00, ages 100 60 50 1, manual, at most 25 GB
    delete 0 expired, delete 1 size
disk 80% at 10:00, ages 60 50 1, at most 25 GB
    delete 0 size
disk 86% at 10:00, ages 60 50 40 1, at most 25 GB
    delete 0 space, delete 1 size; urgent

# The limit of a run, and the last segment, hold for every reason.
disk 50% at 10:00, ages 100 99 98 97 96 95 94 93 92 91 90 89 1, manual
    delete 0-9 expired
disk 88% at 10:00, ages 100 99 98 97 96 95 94 93 92 91 90 89 1
    delete 0-9 expired; urgent
disk 84% at 10:00, ages 100 99 98 97 96 95 94 93 92 91 90 89 1
    delete 0-8 expired
disk 85% at 10:00, ages 100 99 98 97 96 95 94 93 92 91 90 89 1, at most 5 GB
    delete 0-9 expired
disk 50% at 10:00, ages 60 59 58 57 56 55 54 53 52 51 50 49 1, at most 5 GB
    delete 0-9 size
disk 50% at 04:00, ages 100 99 98 97 96 95 94 93 92 91 90 89 1, hold replicated up to 50 GB
    delete 0-4 expired; held 5 replicated
disk 50% at 04:00, ages 100 99 98 97 96 95 94 93 92 91 90 89 1, hold replicated up to 100 GB
    delete 0-9 expired; held 10 replicated
disk 50% at 10:00, ages 100, manual
    nothing
disk 80% at 10:00, ages 100
    nothing
disk 50% at 10:00, ages 100, at most 5 GB
    nothing
disk 50% at 04:00, ages 100, hold replicated up to 0 GB
    nothing

# Everything that must be true of a segment before it may go, two of them at a time.
disk 50% at 04:00, ages 100 90 1, hold replicated up to 0 GB, hold consumed up to 20 GB
    nothing; held 0 replicated
disk 50% at 04:00, ages 100 90 1, hold replicated up to 10 GB, hold consumed up to 0 GB
    nothing; held 0 consumed
disk 50% at 04:00, ages 100 90 1, hold consumed up to 10 GB, hold tiered up to 20 GB
    delete 0 expired; held 1 consumed
disk 50% at 04:00, ages 100 90 1, hold replicated up to 20 GB, hold tiered up to 10 GB
    delete 0 expired; held 1 tiered
disk 80% at 10:00, ages 100 90 1, hold replicated up to 10 GB
    delete 0 expired; held 1 replicated
disk 50% at 10:00, ages 100 90 1, manual, hold consumed up to 10 GB
    delete 0 expired; held 1 consumed
disk 50% at 04:00, ages 100 90 1, hold tiered up to 20 GB
    delete 0 expired, delete 1 expired
disk 50% at 10:00, ages 30 20 10 1, at most 25 GB, hold tiered up to 10 GB
    delete 0 size; held 1 tiered
disk 50% at 10:00, ages 30 20 10 1, at most 25 GB, hold replicated up to 10 GB
    delete 0 size; held 1 replicated
disk 50% at 10:00, ages 100 80 1, manual, hold tiered up to 0 GB
    nothing; held 0 tiered
disk 50% at 10:00, ages 100 80 1, clock in doubt, manual, hold consumed up to 0 GB
    nothing; alarm clock in doubt
disk 80% at 10:00, ages 100 90 1, hold tiered up to 0 GB
    nothing; held 0 tiered
disk 88% at 10:00, ages 60 50 1, hold replicated up to 0 GB
    nothing; held 0 replicated; urgent; alarm held back
disk 88% at 10:00, ages 60 50 1, hold consumed up to 0 GB
    nothing; held 0 consumed; urgent; alarm held back
disk 50% at 04:00, ages 100 90 1, hold consumed up to 0 GB
    nothing; held 0 consumed
disk 86% at 10:00, ages ? ? 1, hold replicated up to 0 GB
    nothing; held 0 replicated; urgent; alarm held back
disk 86% at 10:00, ages ? ? 1, hold tiered up to 0 GB
    nothing; held 0 tiered; urgent; alarm held back
disk 86% at 10:00, ages -5 -6 1, hold consumed up to 0 GB
    nothing; held 0 consumed; urgent; alarm held back
disk 86% at 10:00, ages -5 -6 1, hold tiered up to 0 GB
    nothing; held 0 tiered; urgent; alarm held back
disk 50% at 04:00, ages 100 99 98 97 96 95 94 93 92 91 90 89 1, hold consumed up to 50 GB
    delete 0-4 expired; held 5 consumed
disk 50% at 04:00, ages 100 99 98 97 96 95 94 93 92 91 90 89 1, hold tiered up to 50 GB
    delete 0-4 expired; held 5 tiered
disk 50% at 04:00, ages 100, hold consumed up to 0 GB
    nothing
disk 50% at 04:00, ages 100, hold tiered up to 0 GB
    nothing
"""


def cases() -> list[tuple[str, str]]:
    lines = [line for line in TRANSCRIPTS.splitlines() if line and not line.startswith("#")]
    return [(lines[n], lines[n + 1].strip()) for n in range(0, len(lines), 2)]


def facts_of(line: str) -> tuple[CleaningFacts, Settings]:
    head = re.match(r"disk (\d+)% at (\d\d):(\d\d), ages ([-\d ?]+)", line)
    assert head is not None, line
    ages = head[4].split()
    segments = [
        SegmentFacts(
            n * 10 * GB,
            (n + 1) * 10 * GB,
            None if age == "?" else NOW_MS - int(age) * HOUR_MS,
        )
        for n, age in enumerate(ages)
    ]
    holds = re.findall(r"hold (\w+) up to (\d+) GB", line)
    most = re.search(r"at most (\d+) GB", line)
    facts = CleaningFacts(
        now_ms=NOW_MS,
        local=datetime.fromisoformat(f"2026-11-21T{head[2]}:{head[3]}"),
        previous=None,
        disk_total_bytes=1000 * GB,
        disk_used_bytes=int(head[1]) * 10 * GB,
        segments=segments,
        held_at={name: int(upto) * GB for name, upto in holds},
        manual="manual" in line,
        clock_doubt="clock in doubt" if "clock in doubt" in line else "",
    )
    waiting = re.search(r"waiting from (\d+) GB", line)
    if waiting is not None:
        facts = replace(facts, waiting_from=int(waiting[1]) * GB)
    settings = Settings(
        hold=frozenset(name for name, _ in holds),
        retention_bytes=int(most[1]) * GB if most else 0,
    )
    return facts, settings


def text_of(decision: Decision) -> str:
    deletions = [(d.segment.start // (10 * GB), d.reason) for d in decision.deletions]
    reasons = {reason for _, reason in deletions}
    if len(deletions) > 4 and len(reasons) == 1:
        parts = [f"delete {deletions[0][0]}-{deletions[-1][0]} {deletions[0][1]}"]
    elif deletions:
        parts = [", ".join(f"delete {number} {reason}" for number, reason in deletions)]
    else:
        parts = ["nothing"]
    parts += [f"held {one.segment.start // (10 * GB)} {one.by}" for one in decision.held]
    parts += ["urgent"] * decision.urgent
    for words in ("no segment is left", "held back", "clock in doubt"):
        if words in decision.alarm:
            parts.append(f"alarm {words}")
    return "; ".join(parts)


@pytest.mark.parametrize(("given", "expected"), cases())
def test_the_transcript(given, expected):
    facts, settings = facts_of(given)
    decision = decide(facts, settings)
    assert text_of(decision) == expected
    assert bool(decision.alarm) is ("alarm" in expected)
    if decision.deletions:
        assert decision.delete_below == decision.deletions[-1].segment.end


def conditions(line: str) -> set[str]:
    """Which of section 12's conditions, and of ours, hold in a transcript."""
    facts, settings = facts_of(line)
    old = [s.newest_ms is not None and NOW_MS - s.newest_ms >= 72 * HOUR_MS for s in facts.segments]
    used = facts.disk_used_ratio
    return {
        name
        for name, holds in {
            "the hour": facts.local.hour == 4,
            "above the cleaning level": 0.75 < used <= 0.85,
            "above the forcing level": used > 0.85,
            "somebody asks": facts.manual,
            "too large": 0 < settings.retention_bytes < len(old) * 10 * GB,
            "expired": any(old[:-1]),
            "an unknown age": any(s.newest_ms is None for s in facts.segments),
            "from the future": any((s.newest_ms or 0) > NOW_MS for s in facts.segments),
            "clock in doubt": bool(facts.clock_doubt),
            "not replicated": "replicated" in settings.hold,
            "not consumed": "consumed" in settings.hold,
            "not tiered": "tiered" in settings.hold,
            "the last segment": len(old) == 1,
            "more than one run takes": len(old) > settings.max_segments + 1,
        }.items()
        if holds
    }


EXCLUSIVE = {
    frozenset(pair)
    for pair in (
        ("above the cleaning level", "above the forcing level"),
        # With one segment nothing can be older than it, and nothing more than it.
        ("the last segment", "expired"),
        ("the last segment", "more than one run takes"),
    )
}


def test_every_condition_and_every_mix_of_two_has_a_transcript():
    seen = [conditions(given) for given, _ in cases()]
    names = sorted(set.union(*seen))
    assert len(names) == 14
    missing = [
        pair
        for pair in combinations(names, 2)
        if frozenset(pair) not in EXCLUSIVE and not any(set(pair) <= one for one in seen)
    ]
    assert not missing


def test_what_stays_first_is_reported_with_its_reason():
    def kept(line: str) -> str:
        found = decide(*facts_of(line)).kept
        return "" if found is None else found.sentence

    assert "70 h old, it expires after 72 h" in kept("disk 50% at 10:00, ages 70 50 1")
    assert "goes at 04:00 (the broker's local time), above 75%" in kept(
        "disk 50% at 10:00, ages 100 50 1"
    )
    assert "last one" in kept("disk 50% at 04:00, ages 100 90 80")
    assert "is not known" in kept("disk 50% at 04:00, ages ? 90 1")
    many = " ".join(["100"] * 12)
    assert "10 segments; the next one continues" in kept(f"disk 50% at 04:00, ages {many}")
    assert kept("disk 50% at 04:00, ages 100 1, hold tiered up to 0 GB") == ""


@pytest.mark.parametrize(("younger_ms", "goes"), [(0, True), (1, False), (-1, True)])
def test_a_segment_expires_at_its_retention_to_the_millisecond(younger_ms, goes):
    facts, settings = facts_of("disk 50% at 04:00, ages 72 1")
    first = facts.segments[0]
    newest_ms = facts.now_ms - settings.retention_ms + younger_ms
    segments = [replace(first, newest_ms=newest_ms), *facts.segments[1:]]
    assert bool(decide(replace(facts, segments=segments), settings).deletions) is goes


@pytest.mark.parametrize("hold", ["replicated", "consumed", "tiered"])
def test_a_hold_of_which_nothing_is_known_holds_everything(hold):
    facts, settings = facts_of(f"disk 99% at 04:00, ages 100 80 1, hold {hold} up to 30 GB")
    assert decide(facts, settings).deletions
    decision = decide(replace(facts, held_at={}), settings)
    assert not decision.deletions
    assert [held.by for held in decision.held] == [hold]


@pytest.mark.parametrize(
    "line",
    [
        "disk 50% at 04:00, ages 100 80 1",
        "disk 99% at 10:00, ages 60 50 1",
        "disk 50% at 10:00, ages 100 80 1, manual",
        "disk 50% at 10:00, ages 30 20 10 1, at most 15 GB",
    ],
)
def test_disabled_retention_deletes_nothing_whatever_the_reason(line):
    facts, settings = facts_of(line)
    assert decide(facts, settings).deletions
    decision = decide(replace(facts, disabled="by an operator"), settings)
    assert not decision.deletions
    assert "by an operator" in decision.held[0].sentence


def test_messages_from_the_future_are_reported():
    facts, settings = facts_of("disk 50% at 10:00, ages -5 -6 -7")
    near, far = (decide(replace(facts, future_ms=ms), settings) for ms in (600_000, 600_001))
    assert near.alarm == ""
    assert "stored 0.2 h from now" in far.alarm


def test_every_decision_has_a_reason():
    for given, _ in cases():
        decision = decide(*facts_of(given))
        assert all(one.sentence for one in (*decision.deletions, *decision.held))


# --- the hour ---


def seen(local: datetime, previous: datetime | None) -> CleaningFacts:
    return CleaningFacts(NOW_MS, local, previous, 1, 0, ())


DAY = datetime.fromisoformat("2026-03-29")


@pytest.mark.parametrize(
    ("previous", "now", "come"),
    [
        ("03:59", "04:00", True),
        ("03:59", "03:59", False),
        (None, "05:00", False),
        ("03:50", "05:10", True),  # the process was paused through the hour
        ("04:59", "05:01", False),
        ("05:10", "04:10", True),  # the clock was put back into the hour: it is the hour again
        ("05:10", "03:10", False),
    ],
)
def test_the_hour_comes_once_a_day_and_is_not_missed(previous, now, come):
    def moment(text: str) -> datetime:
        hours, minutes = map(int, text.split(":"))
        return DAY + timedelta(hours=hours, minutes=minutes)

    facts = seen(moment(now), None if previous is None else moment(previous))
    assert hour_has_come(facts, frozenset({4})) is come


def test_an_hour_that_daylight_saving_skips_still_comes():
    # Central Europe: 01:59 is followed by 03:00.
    facts = seen(DAY + timedelta(hours=3), DAY + timedelta(hours=1, minutes=59, seconds=50))
    assert hour_has_come(facts, frozenset({2}))
    assert not hour_has_come(facts, frozenset({4}))


def test_an_hour_that_daylight_saving_repeats_is_the_hour_both_times():
    facts = seen(DAY + timedelta(hours=2, minutes=5), DAY + timedelta(hours=2, minutes=59))
    assert hour_has_come(facts, frozenset({2}))


def test_a_pause_of_days_has_passed_every_hour():
    assert hour_has_come(seen(DAY + timedelta(days=3), DAY), frozenset({17}))
    assert not hour_has_come(seen(DAY + timedelta(days=3), DAY), frozenset())
