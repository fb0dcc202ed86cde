"""What may be deleted from at all: stores that StrataMQ made, and those an operator enabled."""

import random
from collections.abc import Iterator

import pytest
from stratamq_janitor.cleaner import RetentionSwitch
from stratamq_janitor.policy import DISABLED, Share

from stratamq.files.simulated import (
    CrashChoice,
    SimulatedCrash,
    keep_everything,
    keep_nothing,
    random_choice,
)
from stratamq.formats.store_paths import RETENTION_PATH
from stratamq.store.origin import ORIGIN_PATH, is_created_here
from tests.janitor.watched_log import SEGMENT, WatchedLog
from tests.support.logs import Store
from tests.support.sampling import MAX_CALLS, sampled


@pytest.fixture
def log() -> WatchedLog:
    """Four full segments, all of them expired, and the one in use."""
    log = WatchedLog("2026-06-01T12:00")
    log.fill(4)
    log.janitor().run()
    log.pass_hours(100)
    return log


EVERYTHING = Share(4, 4 * SEGMENT)


def test_a_store_that_strata_made_is_cleaned_by_the_rule(log):
    janitor = log.janitor()
    assert janitor.disabled == ""
    assert janitor.rule().expired == EVERYTHING
    assert len(janitor.run(manual=True).deleted) == 4


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"delete_when": tuple(f"{hour:02}" for hour in range(24))},
        {"retention_bytes": 1},
        {"disk_force_ratio": 0.1, "disk_clean_ratio": 0.1},
    ],
    ids=["defaults", "at any hour", "by size", "for want of space"],
)
@pytest.mark.parametrize("manual", [False, True])
def test_nothing_is_deleted_from_an_adopted_store_by_any_rule(log, rule, manual):
    log.adopt()
    janitor = log.janitor(**rule)
    for _ in range(3):
        look = janitor.run(manual=manual, trust_clock=True)
        assert look.decision.deletions == ()
        log.pass_hours(24)
    assert log.minimum == 0
    assert len(log.segments()) == 5


def test_without_the_guard_an_adopted_store_is_deleted_from(log, monkeypatch):
    log.adopt()
    monkeypatch.setattr(RetentionSwitch, "obstacle", lambda self: "")
    assert len(log.janitor().run(manual=True).deleted) == 4


def test_an_adopted_store_reports_what_holds_it_and_what_the_rule_would_delete(log):
    log.adopt()
    rule = log.janitor(delete_when=()).rule()
    assert "another program" in rule.disabled and "stratamq janitor enable" in rule.disabled
    assert (rule.at_once, rule.expired) == (Share(0, 0), EVERYTHING)
    always = log.janitor(
        delete_when=tuple(f"{hour:02}" for hour in range(24)), max_segments_per_run=1
    )
    assert always.rule().at_once == EVERYTHING, "in as many looks as it takes"
    (held,) = always.run().decision.held
    assert held.by == DISABLED and "stratamq janitor enable" in held.sentence


def test_a_full_disk_reports_to_the_operator_that_retention_is_disabled(log):
    log.adopt()
    log.store.disk.capacity_bytes = 8 * SEGMENT
    alarm = log.janitor(disk_force_ratio=0.2, disk_clean_ratio=0.1).run().decision.alarm
    assert "nothing may go" in alarm and "stratamq janitor enable" in alarm


def test_an_operators_word_is_kept_by_restarts_of_everything(log):
    log.adopt()
    log.janitor().set_retention(True)
    log.store.restart()
    assert log.janitor().disabled == ""
    log.store.power_loss()
    log.store.start()
    janitor = log.janitor()
    assert len(janitor.run(manual=True, trust_clock=True).deleted) == 4
    janitor.set_retention(False)
    assert "an operator has disabled" in log.janitor().disabled


def test_a_word_that_cannot_be_read_counts_as_disabled(log):
    log.adopt()
    log.janitor().set_retention(True)
    log.rewrite(RETENTION_PATH, b"{}")
    assert "damaged" in log.janitor().disabled
    log.janitor().set_retention(True)
    assert log.janitor().disabled == ""


def test_the_setting_wins_over_the_word_and_the_origin(log):
    assert "janitor.enabled is false" in log.janitor(enabled=False).disabled
    log.adopt()
    assert log.janitor(enabled=True).disabled == ""
    log.janitor().set_retention(False)
    assert log.janitor(enabled=True).disabled == ""
    log.janitor().set_retention(True)
    assert log.janitor(enabled=False).disabled


def test_without_a_trustworthy_note_of_its_origin_a_store_counts_as_adopted(log):
    files = log.store.new_files()
    assert is_created_here(files)
    log.rewrite(ORIGIN_PATH, b"{}")
    assert log.janitor().disabled
    files.unlink(ORIGIN_PATH)
    assert log.janitor().disabled
    log.store.restart()
    assert log.janitor().disabled, "a start with messages does not make it ours"


CHOICES = [keep_nothing, keep_everything, None]


def start_interrupted_anywhere(
    log: WatchedLog, choice: CrashChoice | None
) -> Iterator[RetentionSwitch]:
    """Power losses at every call of a start, each followed by a whole start."""
    original = log.store.disk.image(keep_everything)
    whole = Store(SEGMENT, disk=original.image(keep_everything))
    before = whole.disk.calls
    whole.start()
    for call in sampled(range(1, whole.disk.calls - before + 1)):
        store = Store(SEGMENT, disk=original.image(keep_everything), seed=call)
        store.disk.crash_at(store.disk.calls + call)
        with pytest.raises(SimulatedCrash):
            store.start()
        store.power_loss(choice or random_choice(random.Random(call)))
        store.disk.clear_faults()
        store.start()
        yield RetentionSwitch(store.new_files(), None)


@pytest.mark.parametrize("choice", CHOICES)
def test_a_start_that_is_interrupted_anywhere_makes_no_adopted_store_ours(log, choice):
    log.store.stop()
    log.rewrite("lock", b"lock")
    seen = [retention.obstacle() for retention in start_interrupted_anywhere(log, choice)]
    assert len(seen) >= MAX_CALLS and all(seen)


@pytest.mark.parametrize("choice", CHOICES)
def test_a_first_start_that_is_interrupted_anywhere_leaves_a_store_of_our_own(choice):
    fresh = WatchedLog("2026-06-01T12:00", started=False)
    seen = [retention.obstacle() for retention in start_interrupted_anywhere(fresh, choice)]
    assert len(seen) >= MAX_CALLS and not any(seen)
