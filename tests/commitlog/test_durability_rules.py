"""Rules of the architecture's section 3 in this engine; a test fails when one is switched off.

Those that `tests/torture/test_rules.py` switches off in the simulated broker are not here.

A rule is a scenario that holds, and a way to switch the rule off with which it must fail: a test
that passes without the thing it protects protects nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from stratamq_commitlog import closing
from stratamq_commitlog.recovery import log_walk, opening, own_state, recovery
from stratamq_commitlog.recovery.log_walk import SegmentWalk, Strictness
from stratamq_commitlog.replica.follow_hub import FollowHub
from stratamq_commitlog.upkeep import snapshots
from stratamq_commitlog.write.appender import Appender

from stratamq.errors import StrataError
from stratamq.files.port import PAGE_BYTES
from stratamq.files.simulated import (
    SimulatedCrash,
    SimulatedFiles,
    keep_nothing,
)
from stratamq.formats.columns import FrameColumns, KernelColumns
from stratamq.formats.log_state import ReplicaState
from stratamq.formats.message_status import SendStatus
from stratamq.formats.property_crc import fill_property_crc, reserve
from tests.support.listeners import Listener
from tests.support.logs import (
    Store,
    batch,
    body_for,
    message,
    raw_batch,
    raw_frame,
    segment_path,
)

Patch = pytest.MonkeyPatch
SEGMENT = 4096


@dataclass(frozen=True)
class Rule:
    holds: Callable[[], None]
    switch_off: Callable[[Patch], None]


def bodies(store: Store) -> list[bytes]:
    return [frame.body for frame in store.frames()]


# --- recovery: behind the end ---


def cut_log() -> Store:
    """Six frames of one size, all durable; the third is corrupt, and the stop was unclean."""
    store = Store(SEGMENT)
    store.start()
    store.pass_time(1)
    store.put_all(*[message(b"%04d" % number) for number in range(6)])
    store.kill()
    size = len(store.frame_bytes()[0])
    store.edit(segment_path(0), 2 * size + 90, b"\xff")
    return store


def what_was_cut_is_kept_aside() -> None:
    store = cut_log()
    before = store.segments()[0]
    store.start()
    assert before[store.end() :].rstrip(b"\0") in store.aside().values()


def keep_no_evidence(patch: Patch) -> None:
    patch.setattr(recovery._Recovery, "_keep_aside", lambda self, *rest: "nowhere")


def later_segments_go_from_the_last_on() -> None:
    """A power loss in the middle keeps any of the removals: never a gap."""
    for kept in range(16):
        store = Store(1024)
        store.start()
        store.pass_time(1)
        store.put_all(*[message(body_for(900)) for _ in range(6)])
        store.kill()
        store.edit(segment_path(0), 90, b"\xff")
        store.disk.crash_on("replace", "stratamq/generations.json")
        with pytest.raises(SimulatedCrash):
            store.start()
        entries = iter(range(100))
        store.power_loss(
            lambda item, entries=entries, kept=kept: (
                item.kind != "entry" or bool(kept >> next(entries) & 1)
            )
        )
        store.disk.clear_faults()
        store.start()
        assert store.end() == 0


def do_not_sync_removals(patch: Patch) -> None:
    synced = SimulatedFiles.sync_directory
    patch.setattr(
        SimulatedFiles,
        "sync_directory",
        lambda self, path: None if path == "commitlog" else synced(self, path),
    )


# --- recovery: after a failed flush ---


def what_recovery_accepts_is_on_the_disk() -> None:
    """It has pages of its own, so that no later write makes them dirty again."""
    store = Store(1 << 15)
    store.start()
    store.put(b"safe")
    store.disk.fail("flush", segment_path(0))
    store.put(body_for(2 * PAGE_BYTES - store.end()))
    store.disk.clear_faults()
    store.kill()
    store.start()
    assert store.put(b"promised").status is SendStatus.PUT_OK
    seen = bodies(store)
    assert len(seen) == 3
    store.power_loss(keep_nothing)
    store.start()
    assert bodies(store) == seen


def no_abort(patch: Patch) -> None:
    create = SimulatedFiles.create

    def made(self: SimulatedFiles, path: str, size: int, *, sparse: bool = False) -> None:
        if path != opening.ABORT_PATH:
            create(self, path, size, sparse=sparse)

    patch.setattr(SimulatedFiles, "create", made)


def abort_stays_after_a_failed_flush() -> None:
    store = Store(SEGMENT)
    store.start()
    store.put(b"safe")
    store.disk.fail("flush", segment_path(0))
    store.put(b"seen")
    store.disk.clear_faults()
    store.stop()
    assert store.disk.tree.find("abort") is not None


def believe_the_flush(patch: Patch) -> None:
    def all_flushed(self: closing.LogCloser) -> bool:
        self.commit.failure = None
        return True

    patch.setattr(closing.LogCloser, "_all_flushed", all_flushed)


# --- recovery: what is no message ---


def planted(frame: bytes) -> Store:
    """A frame behind the end, above our durable position, that no append put there."""
    store = Store(SEGMENT)
    store.start()
    store.put_all(*[message() for _ in range(3)])
    store.restart()
    end = store.end()
    store.kill()
    store.edit(segment_path(0), end, frame)
    store.start()
    return store


def end_of_three() -> int:
    return 3 * len(raw_frame(b"body"))


def a_frame_of_another_place_is_none() -> None:
    stale = raw_frame(b"stale", physical_offset=8, queue_offset=3)
    assert planted(stale).end() == end_of_three()


def believe_any_place(patch: Patch) -> None:
    class Anywhere:
        def __eq__(self, other: object) -> np.ndarray:  # type: ignore[override]
            return np.ones(1, np.bool_)

        __hash__ = None  # type: ignore[assignment]

    for columns in (FrameColumns, KernelColumns):
        anywhere = property(lambda self: Anywhere(), lambda self, read: None)
        patch.setattr(columns, "physical_offset", anywhere)


def a_record_that_does_not_fit_its_checksum_is_none() -> None:
    frame = bytearray(
        raw_frame(b"x", physical_offset=end_of_three(), queue_offset=3, properties=reserve(b""))
    )
    fill_property_crc(frame)
    frame[16] ^= 1  # FLAG: nothing else looks at it.
    assert planted(bytes(frame)).end() == end_of_three()


def believe_any_record(patch: Patch) -> None:
    patch.setattr(log_walk, "check_property_crc", lambda frame: True)
    patch.setattr(
        log_walk,
        "record_checksums",
        lambda raw, ends: (np.zeros(len(ends), np.bool_), np.zeros(len(ends), np.int64)),
    )


def a_record_with_a_zero_sector_is_none() -> None:
    frame = bytearray(
        raw_frame(
            b"x",
            physical_offset=end_of_three(),
            queue_offset=3,
            properties=b"k\x01" + b"v" * 1500,
        )
    )
    start = 1024 - end_of_three()
    frame[start : start + 512] = bytes(512)
    assert planted(bytes(frame)).end() == end_of_three()


def ignore_zero_sectors(patch: Patch) -> None:
    patch.setattr(SegmentWalk, "_zero_sector", lambda self, data, start, end, base: False)


def a_record_torn_in_its_last_sector_is_none() -> None:
    """RocketMQ accepts it, with zeros in its properties."""
    frame = raw_frame(
        b"x", physical_offset=end_of_three(), queue_offset=3, properties=b"k\x01" + b"v" * 300
    )
    torn = frame[: 512 - end_of_three() % 512].ljust(len(frame), b"\0")
    assert torn != frame
    assert planted(torn).end() == end_of_three()


def ignore_zero_ends(patch: Patch) -> None:
    patch.setattr(
        SegmentWalk,
        "_zero_tails",
        lambda self, raw, frames, base: np.zeros(len(frames), np.bool_),
    )


def a_frame_of_a_lost_history_is_none() -> None:
    frame = raw_frame(b"lost", physical_offset=end_of_three(), queue_offset=7)
    assert planted(frame).end() == end_of_three()


def know_no_queues(patch: Patch) -> None:
    patch.setattr(
        recovery,
        "Strictness",
        lambda **given: Strictness(**{**given, "known": frozenset()}),
    )


# --- generations, dispatch ---


def confirmed_ends_on_a_frame() -> None:
    store = Store(SEGMENT, role="SYNC_MASTER")
    log = store.start()
    log.report_replication(log.generation, [ReplicaState("s", 0, True)])
    store.send(message(b"x" * 100))
    store.settle()
    log.report_replication(log.generation, [ReplicaState("s", 50, True)])
    Listener(store).listen()


def confirm_any_byte(patch: Patch) -> None:
    patch.setattr(FollowHub, "last_end", lambda self, offset: offset)


# --- our own state ---


def a_snapshot_stands_on_what_is_flushed() -> None:
    store = Store(SEGMENT, flush_disk_type="ASYNC_FLUSH", flush_interval_ms=3_600_000)
    store.start()
    store.pass_time(1)
    store.put_all(*[message() for _ in range(5)])
    store.pass_time(3_000, ticks=4)
    store.power_loss(keep_nothing)
    store.start()
    assert (
        "our snapshot does not fit the log: it is moved aside, and not used" not in store.log.report
    )


def write_any_snapshot(patch: Patch) -> None:
    store_waiting = snapshots.Snapshots._store_waiting

    def store(self: snapshots.Snapshots) -> None:
        flushed, self._offsets.flushed = self._offsets.flushed, self._offsets.appended
        store_waiting(self)
        self._offsets.flushed = flushed

    patch.setattr(snapshots.Snapshots, "_store_waiting", store)


def what_rocketmq_went_on_with_is_not_ours() -> None:
    """RocketMQ deleted the topic and its queue began again: our snapshot would cut that."""
    store = Store(SEGMENT)
    store.start()
    store.put_all(*[message(b"old") for _ in range(5)])
    store.stop()
    end = 5 * len(store.frame_bytes()[0])
    store.edit(segment_path(0), end, raw_frame(b"new", physical_offset=end, queue_offset=0))
    store.disk.files().lock("lock", b"lock").close()
    store.start()
    assert bodies(store) == [b"old"] * 5 + [b"new"]


def always_ours(patch: Patch) -> None:
    patch.setattr(own_state, "is_ours", lambda text: True)


def deletion_leaves_what_the_snapshot_stands_on() -> None:
    store = Store(2048, snapshot_interval_ms=3_600_000)
    store.start()
    store.put_all(message(b"x" * 400, topic="idle"), *[message(b"x" * 400) for _ in range(2)])
    bad = bytearray(raw_frame(b"y" * 1500))
    bad[-20] ^= 1
    store.put_batch(raw_batch([bytes(bad)]))  # Leaves a blank, and nothing behind it.
    store.restart()
    store.pass_time(1)
    store.put_all(*[message(b"x" * 400) for _ in range(8)])
    store.log.delete_below(4096, 10, False)
    store.pass_time(1_000, ticks=3)
    store.kill()
    store.start()
    assert store.queues().get(("idle", 0)) == 1


def delete_up_to_the_snapshot(patch: Patch) -> None:
    has_stored = snapshots.Snapshots._has_stored

    def stored(self, snapshot):
        has_stored(self, snapshot)
        self.needed_from = snapshot.offset

    patch.setattr(snapshots.Snapshots, "_has_stored", stored)


def store_times_never_go_back() -> None:
    store = Store(SEGMENT)
    store.start()
    store.put(b"a")
    store.clock.set_wall_ms(1_000)
    store.put_batch(batch([b"b"]))
    store.put(b"c")
    times = [frame.store_timestamp_ms for frame in store.frames()]
    assert times == sorted(times)


def believe_the_clock(patch: Patch) -> None:
    patch.setattr(Appender, "_now", lambda self: self._clock.wall_ms())


RULES = {
    "evidence is kept": Rule(what_was_cut_is_kept_aside, keep_no_evidence),
    "removals are synced in order": Rule(later_segments_go_from_the_last_on, do_not_sync_removals),
    "abort is there while the log is open": Rule(what_recovery_accepts_is_on_the_disk, no_abort),
    "abort goes only after a good flush": Rule(abort_stays_after_a_failed_flush, believe_the_flush),
    "PHYSICALOFFSET": Rule(a_frame_of_another_place_is_none, believe_any_place),
    "the record checksum": Rule(
        a_record_that_does_not_fit_its_checksum_is_none, believe_any_record
    ),
    "zero sectors": Rule(a_record_with_a_zero_sector_is_none, ignore_zero_sectors),
    "zero ends": Rule(a_record_torn_in_its_last_sector_is_none, ignore_zero_ends),
    "QUEUEOFFSET": Rule(a_frame_of_a_lost_history_is_none, know_no_queues),
    "confirmed ends on a frame": Rule(confirmed_ends_on_a_frame, confirm_any_byte),
    "snapshots stand on what is flushed": Rule(
        a_snapshot_stands_on_what_is_flushed, write_any_snapshot
    ),
    "RocketMQ's text in the lock file": Rule(what_rocketmq_went_on_with_is_not_ours, always_ours),
    "deletion below the snapshot's frame": Rule(
        deletion_leaves_what_the_snapshot_stands_on, delete_up_to_the_snapshot
    ),
    "store times never go back": Rule(store_times_never_go_back, believe_the_clock),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_rule_holds(rule):
    rule.holds()


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_without_the_rule_the_scenario_fails(rule, monkeypatch):
    rule.switch_off(monkeypatch)
    with pytest.raises((AssertionError, StrataError)):
        rule.holds()
