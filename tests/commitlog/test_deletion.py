"""Whole segments go from the front, below every watermark; a full disk does not wait for these."""

import pytest
from stratamq_commitlog.recovery.own_state import OwnState

from stratamq.errors import OffsetOutOfRangeError, StoreRefusedError
from stratamq.files.simulated import keep_everything, keep_nothing
from tests.support.listeners import Listener
from tests.support.logs import Store, body_for, message, segment_path

SEGMENT = 2048


@pytest.fixture
def store() -> Store:
    """Ten segments, two followers configured, a snapshot at the end."""
    return made()


def made(**settings) -> Store:
    store = Store(SEGMENT, **({"followers": ("dispatcher", "index")} | settings))
    store.start()
    store.put_all(*[message(body_for(1000)) for _ in range(20)])
    store.pass_time(3_000, ticks=4)
    return store


def followers(store: Store, *names: str) -> list[Listener]:
    listeners = [Listener(store, name) for name in names or ("dispatcher", "index")]
    for listener in listeners:
        listener.listen()
        listener.report()
    return listeners


def delete(store: Store, offset: int, most: int = 100, urgent: bool = False) -> int:
    return store.log.delete_below(offset, most, urgent)[0]


def test_only_whole_segments_below_the_offset_go(store):
    followers(store)
    assert delete(store, 3 * SEGMENT - 1) == 2 * SEGMENT
    assert delete(store, 3 * SEGMENT) == 3 * SEGMENT
    minimum, paths = store.log.delete_below(5 * SEGMENT, 100, False)
    assert minimum == 5 * SEGMENT
    assert paths == [f"commitlog/{3 * SEGMENT:020d}", f"commitlog/{4 * SEGMENT:020d}"]


def test_no_more_go_than_asked_for(store):
    followers(store)
    assert delete(store, 8 * SEGMENT, most=3) == 3 * SEGMENT
    assert delete(store, 8 * SEGMENT, most=0) == 3 * SEGMENT


def test_the_last_segment_never_goes(store):
    followers(store)
    assert delete(store, 1 << 40, urgent=True) == store.end() // SEGMENT * SEGMENT
    assert store.put_all(message(b"x"))[0].physical_offset >= 0


def test_nothing_goes_that_a_configured_follower_still_needs(store):
    assert delete(store, 5 * SEGMENT) == 0
    dispatcher, index = followers(store)
    index.report(durable=2 * SEGMENT + 5)
    assert delete(store, 5 * SEGMENT) == 2 * SEGMENT
    index.report(durable=4 * SEGMENT)
    dispatcher.report(durable=3 * SEGMENT)
    assert delete(store, 5 * SEGMENT) == 3 * SEGMENT


def test_a_follower_that_never_came_since_the_start_keeps_everything(store):
    followers(store, "dispatcher")
    assert delete(store, 5 * SEGMENT) == 0
    store.restart()
    followers(store, "index")
    assert delete(store, 5 * SEGMENT) == 0


def test_nothing_goes_above_the_durable_snapshot():
    store = Store(SEGMENT, followers=(), snapshot_interval_ms=3_600_000)
    store.start()
    store.pass_time(1)
    store.put_all(*[message(body_for(1000)) for _ in range(20)])
    assert delete(store, 5 * SEGMENT) == 0
    store.restart()
    assert delete(store, 5 * SEGMENT) == 5 * SEGMENT


def test_queues_continue_where_they_were_after_a_deletion_in_a_hurry_and_a_crash():
    store = Store(SEGMENT, followers=(), snapshot_interval_ms=3_600_000)
    store.start()
    store.pass_time(1)
    store.put_all(message(topic="idle"), *[message(body_for(1000)) for _ in range(20)])
    known = store.queues()
    minimum = delete(store, 5 * SEGMENT, urgent=True)
    assert minimum == 0
    store.pass_time(3_600_000, ticks=4)
    assert delete(store, 5 * SEGMENT, urgent=True) == 5 * SEGMENT
    store.pass_time(200_000, ticks=4)
    store.power_loss(keep_nothing)
    store.start()
    assert store.queues() == known


def test_a_full_disk_waits_for_no_follower(store):
    assert delete(store, 5 * SEGMENT, urgent=True) == 5 * SEGMENT


def test_nothing_that_is_not_flushed_goes_even_in_a_hurry():
    store = Store(SEGMENT, followers=(), flush_disk_type="ASYNC_FLUSH", flush_interval_ms=10**6)
    store.start()
    store.pass_time(1)
    store.put_all(*[message(body_for(1000)) for _ in range(10)])
    assert delete(store, 1 << 40, urgent=True) == 0


def test_followers_hear_of_the_new_minimum(store):
    (dispatcher, _) = followers(store)
    delete(store, 4 * SEGMENT)
    assert [event.minimum for event in dispatcher.listen()] == [4 * SEGMENT]


def test_a_file_stays_until_every_connected_follower_has_let_go(store):
    dispatcher, index = followers(store)
    index.report(released=SEGMENT)
    delete(store, 4 * SEGMENT)
    store.pass_time(1_000, ticks=6)
    assert min(store.segments()) == SEGMENT
    dispatcher.session.close()
    index.report(released=3 * SEGMENT)
    store.pass_time(1_000, ticks=6)
    assert min(store.segments()) == 3 * SEGMENT
    index.session.close()
    store.pass_time(1_000, ticks=6)
    assert min(store.segments()) == 4 * SEGMENT


def test_after_the_timeout_the_file_goes_all_the_same():
    store = made(release_timeout_ms=10_000)
    followers(store)[0].report(released=0)
    delete(store, 2 * SEGMENT)
    store.pass_time(1_000, ticks=9)
    assert min(store.segments()) == 0
    store.pass_time(1_000, ticks=4)
    assert min(store.segments()) == 2 * SEGMENT


def test_files_are_removed_oldest_first_and_each_for_good(store):
    followers(store)
    delete(store, 4 * SEGMENT)
    seen = []
    for _ in range(8):
        store.pass_time(1_000)
        after = Store(SEGMENT, disk=store.disk.image(keep_nothing))
        seen.append(min(after.segments()))
        segments = list(after.segments())
        assert segments == list(range(segments[0], segments[-1] + 1, SEGMENT))
    assert seen == sorted(seen)
    assert seen[-1] == 4 * SEGMENT


def test_a_crash_before_the_unlinks_brings_the_segments_back_and_nothing_else(store):
    followers(store)
    end = store.end()
    delete(store, 4 * SEGMENT)
    store.power_loss(keep_everything)
    store.start()
    assert (store.log.status().minimum_offset, store.end()) == (0, end)


def test_a_failing_unlink_is_tried_again(store):
    followers(store)
    delete(store, 2 * SEGMENT)
    store.disk.fail("unlink", "commitlog/*", nth=1)
    store.pass_time(1_000, ticks=5)
    assert min(store.segments()) == 2 * SEGMENT


def test_what_was_deleted_is_known_on_the_disk_before_its_file_goes(store):
    followers(store)
    delete(store, 4 * SEGMENT)
    store.disk.fail("flush", "stratamq/queue-offsets.journal*", nth=1)
    for _ in range(8):
        store.pass_time(1_000)
        stored = OwnState(store.disk.image(keep_nothing).files()).load()
        assert min(store.segments()) <= stored.minimum
    assert min(store.segments()) == stored.minimum == 4 * SEGMENT


def gap_after_power_loss(store: Store, listeners: list[Listener]) -> None:
    """The sync of the first unlink fails and is not repeated; the later ones succeed."""
    for listener in listeners:
        listener.report()
    delete(store, 4 * SEGMENT)
    store.disk.fail("sync_directory", "commitlog", nth=1)
    store.pass_time(1_000, ticks=8)
    store.power_loss(keep_nothing)


def test_deleted_segments_that_a_power_loss_brings_back_in_front_of_a_gap_are_moved_aside(store):
    end = store.end()
    gap_after_power_loss(store, followers(store))
    assert sorted(store.segments())[:2] == [0, 4 * SEGMENT]
    store.start()
    assert (store.log.status().minimum_offset, store.end()) == (4 * SEGMENT, end)
    assert any("had been deleted, and came back" in line for line in store.log.report)
    aside = [entry.name for entry in store.disk.files().list("stratamq/aside")]
    assert [name for name in aside if name.startswith(f"commitlog-{0:020d}-")]
    assert min(store.segments()) == 4 * SEGMENT


def test_a_gap_above_what_was_deleted_is_refused_and_nothing_is_moved(store):
    store.kill()
    store.disk.files().unlink(segment_path(3 * SEGMENT))
    before = store.segments()
    with pytest.raises(StoreRefusedError, match="A segment is missing"):
        store.start()
    assert store.segments() == before


def test_a_snapshot_that_does_not_fit_the_log_does_not_determine_what_was_deleted(store):
    gap_after_power_loss(store, followers(store))
    for base in sorted(store.segments())[-2:]:
        store.disk.files().unlink(segment_path(base))
    with pytest.raises(StoreRefusedError, match="A segment is missing"):
        store.start()


def test_a_stop_removes_what_waits_to_be_removed(store):
    listeners = followers(store)
    delete(store, 3 * SEGMENT)
    store.log.begin_close()
    store.settle()
    for listener in listeners:
        listener.listen()
        listener.report()
    store.log.close()
    assert min(store.segments()) == 3 * SEGMENT
    assert store.disk.tree.find("abort") is None


def test_reads_below_the_minimum_report_what_is_kept(store):
    followers(store)
    frame = store.frame_bytes()[0]
    assert store.log.frame_at(0) == frame
    delete(store, 2 * SEGMENT)
    for read in (lambda: store.log.frame_at(0), lambda: store.log.read_range(0, 0, 0)):
        with pytest.raises(OffsetOutOfRangeError) as error:
            read()
        assert (error.value.minimum, error.value.maximum) == (2 * SEGMENT, store.end())


def test_a_follower_that_finds_itself_below_the_minimum_starts_there(store):
    generation = store.log.generation
    delete(store, 5 * SEGMENT, urgent=True)
    listener = Listener(store, generation=generation, position=SEGMENT)
    assert listener.opened.cut_to == listener.opened.minimum == 5 * SEGMENT
    listener.listen()
    assert listener.position == store.end()


def test_the_queue_table_keeps_queues_whose_messages_are_gone(store):
    followers(store)
    queues = store.queues()
    delete(store, 9 * SEGMENT, urgent=True)
    store.pass_time(3_000, ticks=12)
    store.kill()
    store.start()
    assert store.queues() == queues


def test_a_first_segment_that_is_missing_is_named(store):
    store.kill()
    store.disk.files().unlink(segment_path(0))
    store.start()
    assert store.log.status().minimum_offset == SEGMENT
    expected_line = f"the log begins at {SEGMENT}, and began at 0 when its state was last saved"
    assert any(expected_line in line for line in store.log.report), store.log.report


def test_segments_that_were_deleted_in_order_are_not(store):
    followers(store)
    assert delete(store, 3 * SEGMENT) == 3 * SEGMENT
    store.put_all(message(body_for(1000)))
    store.pass_time(8_000, ticks=8)
    store.kill()
    store.start()
    assert not any("are missing" in line for line in store.log.report), store.log.report


def test_a_snapshot_that_comes_while_one_is_written_is_not_forgotten():
    """An idle log's last segments may go, too: nothing else would ever take another one."""
    store = made(followers=())
    store.put_all(*[message(body_for(1000)) for _ in range(10)])
    store.pass_time(6_000)  # taken, and written at the next tick
    assert delete(store, 2 * SEGMENT) == 2 * SEGMENT  # whose minimum is written at that tick, too
    store.pass_time(6_000, ticks=4)
    end = store.end()
    assert delete(store, end) == end - end % SEGMENT - SEGMENT * (end % SEGMENT == 0)
