"""Every condition of spec section 12, and every mix of two, as transcripts that anyone can read.

Segments have 10 GB of a volume of 1000 GB; oldest first, given by the age of their newest message
in hours; the last one is in use. Defaults: 72 h, at 04, cleaning above 75 %, forcing above 85 %.
"""

import re
from datetime import datetime, timedelta

import pytest
from stratamq_janitor.policy import (
    Decision,
    Facts,
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

# The last one is never deleted, however full the disk is; the alarm says that nothing is left.
disk 99% at 10:00, ages 60 1
    delete 0 space; urgent; alarm no segment is left
disk 99% at 10:00, ages 1
    nothing; urgent; alarm no segment is left

# So many in a run; the next run goes on.
disk 50% at 04:00, ages 100 99 98 97 96 95 94 93 92 91 90 89 1
    delete 0-9 expired
disk 99% at 10:00, ages 60 59 58 57 56 55 54 53 52 51 50 49 1
    delete 0-9 space; urgent

# Somebody asks: expired ones go at any hour, young ones do not.
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

# Held back beats the hour, the levels, the size and whoever asks; what is before it still goes.
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

# A clock that was put forward: nothing expires; a full disk and a log too large still count.
disk 50% at 04:00, ages 100 90 1, clock jumped
    nothing; alarm clock was put forward
disk 86% at 04:00, ages 100 90 1, clock jumped
    delete 0 space; urgent; alarm clock was put forward
disk 50% at 04:00, ages 100 90 80 1, clock jumped, at most 35 GB
    delete 0 size; alarm clock was put forward

# Messages from the future (a clock that was put back) are not old.
disk 50% at 04:00, ages -5 -6 -7
    nothing

# Ages that nobody knows never expire.
disk 50% at 04:00, ages ? ? 1
    nothing
disk 86% at 04:00, ages ? ? 1
    delete 0 space; urgent
"""


def cases() -> list[tuple[str, str]]:
    lines = [line for line in TRANSCRIPTS.splitlines() if line and not line.startswith("#")]
    return [(lines[n], lines[n + 1].strip()) for n in range(0, len(lines), 2)]


def facts_of(line: str) -> tuple[Facts, Settings]:
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
    hold = re.search(r"hold (\w+) up to (\d+) GB", line)
    most = re.search(r"at most (\d+) GB", line)
    facts = Facts(
        now_ms=NOW_MS,
        local=datetime.fromisoformat(f"2026-11-21T{head[2]}:{head[3]}"),
        previous=None,
        disk_total_bytes=1000 * GB,
        disk_used_bytes=int(head[1]) * 10 * GB,
        segments=segments,
        held_at={hold[1]: int(hold[2]) * GB} if hold else {},
        manual="manual" in line,
        clock_jumped="clock jumped" in line,
    )
    settings = Settings(
        hold=frozenset([hold[1]] if hold else []),
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
    for words in ("no segment is left", "held back", "clock was put forward"):
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


def test_every_decision_says_why():
    for given, _ in cases():
        decision = decide(*facts_of(given))
        assert all(one.sentence for one in (*decision.deletions, *decision.held))


# --- the hour ---


def seen(local: datetime, previous: datetime | None) -> Facts:
    return Facts(NOW_MS, local, previous, 1, 0, ())


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
