"""When a group loses messages, and what the map says of each segment: from values alone."""

import math
from dataclasses import replace

import pytest

from stratamq.client.storage_map import (
    FOREVER,
    GOES,
    HELD,
    KEPT,
    STAYS,
    StorageMap,
    StoredSegment,
    StoredSegments,
    storage_map_of,
    storage_questions,
    with_losses,
)
from stratamq.client.values import CleaningLook, CleaningStep, GroupQueue
from stratamq.errors import NotPermittedError, UnavailableError
from stratamq.formats.log_damage import Damage
from stratamq.formats.log_state import FollowerState, LogState, ScrubState

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


def segments(*hours_old: float | None, disabled: str = "", tiered: int = 0) -> StoredSegments:
    """Of 100 bytes each; each goes when it is 72 h old."""
    found = tuple(
        StoredSegment(
            number * 100,
            number * 100 + 100,
            None if age is None else NOW_MS - int(age * HOUR_MS),
            None if age is None else NOW_MS + int((72 - age) * HOUR_MS),
        )
        for number, age in enumerate(hours_old)
    )
    return StoredSegments(found, NOW_MS, 1_000, 500, disabled, tiered)


def loses_in_h(hours_behind: float | None, where: StoredSegments, lag: int = 5) -> float | None:
    behind_s = None if hours_behind is None else hours_behind * 3_600
    (found,) = with_losses([GroupQueue("g", "t", 0, 1, 1 + lag, lag, lag_s=behind_s)], where)
    return None if found.loses_in_s is None else found.loses_in_s / 3_600


@pytest.mark.parametrize(
    ("behind", "where", "hours"),
    [
        (71, segments(70, 50, 20, None), 2),  # stored 71 h ago: in the first segment
        (70, segments(70, 50, 20, None), 2),  # its last message
        (69, segments(70, 50, 20, None), 22),  # behind it: in the second one
        (20, segments(70, 50, 20, None), 52),
        (19, segments(70, 50, 20, None), math.inf),  # the last segment always stays
        (71, segments(75, None, 20, None), 52),  # 71 h ago: not in the first one
        (80, segments(75, None, 20, None), 0),  # due already
        (71, segments(70, None, disabled="an operator has disabled retention"), math.inf),
        (71, segments(70, 50, None, tiered=100), math.inf),  # the tier keeps it
        (60, segments(70, 50, None, tiered=100), 22),
        (None, segments(70, 50, None), None),  # how old the message is, is not known
        (60, segments(None), math.inf),
    ],
)
def test_a_group_loses_a_message_when_its_segment_goes(behind, where, hours):
    assert loses_in_h(behind, where) == hours


def test_a_group_that_has_read_everything_loses_nothing():
    assert loses_in_h(0, segments(70, None), lag=0) == math.inf == FOREVER


def look(**parts: object) -> CleaningLook:
    fields = {"deletions": (), "held": (), "kept": None, **parts}
    return CleaningLook(NOW_MS, 0.5, 4, alarm="", deleted=(), minimum_offset=0, **fields)


def step(start: int, sentence: str) -> CleaningStep:
    return CleaningStep(start, start + 100, "expired", sentence)


def test_the_map_says_of_each_segment_what_becomes_of_it():
    log = LogState(
        minimum_offset=30,
        appended_offset=350,
        segment_bytes=100,
        scrub=ScrubState(position_offset=200, damage=(Damage(195, 205, "body_crc"),)),
    )
    plan = look(deletions=(step(0, "old"),), kept=step(100, "young"))
    where = segments(80, 60, 50, None, tiered=250)
    found = StorageMap(log, replace(where, plan=plan), None, None, None, ()).mapped()
    assert [one.used_bytes for one in found] == [70, 100, 100, 50]
    assert [(one.fate, one.reason) for one in found] == [
        (GOES, "old"),
        (KEPT, "young"),
        (STAYS, ""),
        (STAYS, ""),
    ]
    assert [one.verified for one in found] == [True, True, False, False]
    assert [one.tiered for one in found] == [True, True, False, False]
    assert [one.damaged for one in found] == [False, True, True, False]
    where = replace(where, plan=look(held=(step(0, "kept"),)))
    held = StorageMap(log, where, None, None, None, ())
    assert held.mapped()[0].fate == HELD


def test_services_that_do_not_answer_leave_their_part_out():
    state = LogState(minimum_offset=150, appended_offset=320, segment_bytes=100)
    asked = storage_questions(state, 20)
    assert list(asked) == ["segments", "topics", "index_files"]
    found = storage_map_of(state, asked, [UnavailableError("away")] * len(asked))
    assert found.problems == ("the janitor: away", "the dispatcher: away", "the index: away")
    assert [one.start_offset for one in found.segments.segments] == [100, 200, 300]
    assert (found.segments.plan, found.topics, found.index_files, found.tier) == (None,) * 4
    assert found.size_bytes == 170


def test_who_may_not_see_a_part_is_refused_the_map():
    """An empty part would look like one without bytes."""
    asked = storage_questions(LogState(), 20)
    denied = NotPermittedError("bob may not observe the broker")
    with pytest.raises(NotPermittedError, match="bob may not observe"):
        storage_map_of(LogState(), asked, [UnavailableError("away"), denied, denied])


def test_a_tier_is_asked_where_the_log_knows_one():
    tier = FollowerState("tier", True, 0, 0, 0)
    assert "tier" in storage_questions(LogState(followers=(tier,)), 20)
