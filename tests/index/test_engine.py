"""Following: files equal what follows from the log, answers come at once, none precedes a flush."""

import pytest
from stratamq_index.persistence import EngineSettings
from stratamq_index.query import KeyQuery

from stratamq.errors import UnavailableError
from stratamq.follow.protocol import Event, FollowError
from stratamq.formats import sysflag
from stratamq.formats.index_layout import decode_index_header
from tests.index.harness import GENERATION, ITEMS, SLOTS, Follower, contents, name_of, names


def test_the_files_are_those_of_the_scalar_builder_byte_for_byte(log):
    log.fill(150)
    follower = Follower(log).start()
    follower.stop()
    assert follower.contents() == log.index_files()
    assert follower.engine.report_lines == []


@pytest.mark.parametrize("count", [1, 3, 1000])
@pytest.mark.parametrize("bare", [True, False])
def test_how_events_are_cut_makes_no_difference(log, count, bare):
    log.fill(90, seed=3)
    follower = Follower(log).load()
    follower.connect()
    follower.apply(count=count, bare=bare)
    follower.stop()
    assert follower.contents() == log.index_files()


def test_every_key_is_answered_as_a_linear_scan_would(log):
    log.fill(150)
    Follower(log).start().assert_answers_like_the_log()


def test_a_message_is_found_before_anything_of_it_is_written(log):
    follower = Follower(log).load()
    follower.connect()
    follower.settle()
    log.append("alpha beta", "U1")
    follower.apply()
    assert names(log.files) == []
    for key in ("alpha", "beta", "U1"):
        assert follower.offsets("orders", key) == [0]
    assert follower.engine.series.pending_items == 3


def test_a_chain_continues_from_memory_to_the_disk(log):
    follower = Follower(log).start()
    expected = []
    for _ in range(4):
        expected.append(log.append("same"))
        follower.apply()
        expected.append(log.append("same"))
        follower.apply()
        follower.sync()
        expected.append(log.append("same"))
        follower.apply()
    assert follower.offsets("orders", "same") == expected


def test_nothing_above_flushed_is_in_any_file(log):
    follower = Follower(log).start()
    log.fill(20)
    flushed = log.end
    follower.apply(flushed=flushed)
    log.fill(20, seed=2)
    follower.apply(flushed=flushed)
    follower.sync()
    assert follower.engine.followed.applied == log.end
    assert follower.engine.fold.report().durable == flushed
    assert 0 < len(contents(log.files)) < len(log.index_files())
    follower.assert_answers_like_the_log()
    follower.stop()
    restarted = Follower(log).load()
    assert restarted.engine.fold.resume_point() == (GENERATION, flushed)
    assert max(r.header.end_phy_offset for r in restarted.engine.records) < flushed


def test_progress_alone_lets_what_waited_be_written(log):
    follower = Follower(log).start()
    log.append("alpha")
    follower.apply(flushed=0)
    follower.sync()
    assert names(log.files) == []
    event = Event(GENERATION, log.end, log.end, log.end, log.end, 0)
    assert list(follower.engine.fold.apply(event)) == []
    follower.sync()
    assert len(names(log.files)) == 1
    assert follower.engine.fold.report().durable == log.end


def test_all_but_rollbacks_are_indexed(log):
    for kind in (0, sysflag.TRANSACTION_PREPARED, sysflag.TRANSACTION_COMMIT):
        log.append("k", transaction=kind)
    log.append("k", transaction=sysflag.TRANSACTION_ROLLBACK)
    follower = Follower(log).start()
    assert len(follower.offsets("orders", "k")) == 3


def test_a_file_has_the_store_time_of_its_first_message_for_a_name(log):
    log.append("first")
    time_ms = log.time_ms
    follower = Follower(log).start()
    assert names(log.files) == [name_of(time_ms)]
    follower.stop()


def test_a_name_that_is_taken_is_followed_by_the_next_millisecond(log):
    for _ in range(3 * ITEMS):
        log.append("k", step_ms=0)
    Follower(log).start()
    assert names(log.files) == [name_of(log.time_ms + ms) for ms in range(len(names(log.files)))]
    assert len(names(log.files)) == 4


def test_no_file_is_made_for_messages_without_keys(log):
    log.fill(30, keyless=True)
    follower = Follower(log).start()
    follower.stop()
    assert names(log.files) == []
    assert Follower(log).load().engine.fold.resume_point() == (GENERATION, log.end)


def test_slots_and_header_reach_the_disk_while_the_file_is_written(log):
    follower = Follower(log).start()
    log.append("alpha")
    follower.apply()
    follower.sync()
    follower.clock.advance_ms(60_000)
    follower.engine.tick()
    follower.settle()
    assert contents(log.files) == log.index_files()


def test_before_the_slots_are_due_a_file_looks_empty_to_rocketmq(log):
    settings = EngineSettings(SLOTS, ITEMS, sync_interval_ms=1000, slot_interval_ms=10**9)
    follower = Follower(log, settings).start()
    log.append("alpha")
    follower.apply()
    follower.sync()
    header = decode_index_header(contents(log.files)[0])
    assert header is not None
    assert (header.index_count, header.end_timestamp_ms) == (0, 0)


def test_the_checkpoint_may_name_rolled_and_synced_files_only(log):
    follower = Follower(log).start()
    assert follower.engine.fold.report().durable_store_timestamp_ms == 0
    for _ in range(ITEMS - 2):
        log.append("k")
    follower.apply()
    follower.sync()
    assert follower.engine.fold.report().durable_store_timestamp_ms == 0
    log.append("k")
    full_ms = log.time_ms
    log.append("k")
    follower.apply()
    assert follower.engine.fold.report().durable_store_timestamp_ms == 0
    follower.sync()
    assert follower.engine.fold.report().durable_store_timestamp_ms == full_ms
    assert Follower(log).load().engine.fold.report().durable_store_timestamp_ms == full_ms


def test_closing_makes_everything_durable_before_it_reports_it(log):
    log.fill(40)
    follower = Follower(log).load()
    follower.connect()
    follower.apply(flushed=0)
    ended = []
    follower.engine.fold.close_at(
        log.end, lambda: ended.append(follower.engine.fold.report().durable)
    )
    assert ended == []
    follower.settle()
    assert ended == [log.end]
    assert follower.contents() == log.index_files()


def test_closing_twice_and_with_nothing_to_do_ends_at_once(log):
    follower = Follower(log).start()
    ended = []
    for _ in range(2):
        follower.engine.fold.close_at(0, lambda: ended.append(True))
        follower.settle()
    assert ended == [True, True]


def test_after_a_close_the_next_log_is_followed_on(log):
    log.fill(20)
    follower = Follower(log).start()
    follower.engine.fold.close_at(log.end, lambda: None)
    follower.settle()
    follower.connect(generation=GENERATION)
    log.fill(20, seed=2)
    follower.apply()
    follower.stop()
    assert follower.contents() == log.index_files()


def test_questions_wait_until_the_index_is_where_the_log_was(log):
    log.fill(30)
    follower = Follower(log).load()
    with pytest.raises(UnavailableError):
        follower.offsets("orders", "key-1")
    follower.connect()
    follower.settle()
    with pytest.raises(UnavailableError):
        follower.offsets("orders", "key-1")
    follower.apply()
    assert follower.engine.followed.serving
    follower.offsets("orders", "key-1")


def test_a_lost_connection_does_not_stop_the_answers(log):
    log.fill(30)
    follower = Follower(log).start()
    follower.connect()
    assert follower.engine.followed.serving
    follower.assert_answers_like_the_log()


def test_an_event_that_does_not_continue_is_refused(log):
    log.fill(5)
    follower = Follower(log).start()
    with pytest.raises(FollowError):
        list(follower.engine.fold.apply(Event(GENERATION, 5, 9, log.end, log.end, 0)))


def test_a_stream_that_ends_within_an_event_is_taken_up_where_it_broke(log):
    log.fill(60)
    follower = Follower(log).load()
    follower.connect()
    follower.settle()
    event = next(log.events(0, GENERATION, count=1000))
    steps = follower.engine.fold.apply(event)
    next(steps)
    steps.close()
    follower.connect()
    follower.apply()
    follower.stop()
    assert follower.contents() == log.index_files()


def test_expired_files_go_and_the_last_one_stays(log):
    log.fill(120)
    follower = Follower(log).start()
    before = follower.engine.records
    log.delete_below(log.end // 2)
    event = Event(GENERATION, log.end, log.end, log.end, log.end, log.minimum)
    assert list(follower.engine.fold.apply(event)) == []
    follower.sync()
    kept = [r.name for r in before if r.header.end_phy_offset >= log.minimum]
    assert names(log.files) == kept
    assert 0 < len(kept) < len(before)
    follower.assert_answers_like_the_log()
    follower.stop()
    restarted = Follower(log).start()
    restarted.assert_answers_like_the_log()
    assert restarted.engine.report_lines == []
    log.delete_below(log.end + log.segment_bytes)
    event = Event(GENERATION, log.end, log.end, log.end, log.end, log.end)
    list(restarted.engine.fold.apply(event))
    restarted.sync()
    assert names(log.files) == kept[-1:]


def test_the_last_file_stays_although_it_is_full_and_all_its_messages_are_gone(log):
    """The next one continues its times."""
    for _ in range(2 * (ITEMS - 1)):
        log.append("k")
    follower = Follower(log).start()
    follower.sync()
    assert [record.header.next_item for record in follower.engine.records] == [ITEMS, ITEMS]
    last = follower.engine.records[-1].name
    log.delete_below(log.end + log.segment_bytes)
    event = Event(GENERATION, log.end, log.end, log.end, log.end, log.end)
    list(follower.engine.fold.apply(event))
    follower.sync()
    assert names(log.files) == [last]


def test_a_segment_that_was_deleted_before_it_was_read_needs_no_index(log):
    log.fill(100)
    follower = Follower(log).load()
    follower.connect()
    follower.settle()
    events = list(log.events(0, GENERATION, count=1000))
    log.delete_below(3 * log.segment_bytes)
    for event in events:
        list(follower.engine.fold.apply(event))
    follower.sync()
    assert follower.engine.followed.applied == log.end
    follower.engine.followed.minimum = log.minimum
    follower.assert_answers_like_the_log()


def test_a_follower_below_the_minimum_starts_empty_there(log):
    log.fill(40)
    Follower(log).start().stop()
    log.fill(80, seed=2)
    log.delete_below(log.end - log.segment_bytes)
    follower = Follower(log).load()
    assert follower.engine.fold.resume_point()[1] < log.minimum
    follower.connect(cut_to=log.minimum)
    follower.apply()
    follower.sync()
    follower.assert_answers_like_the_log()
    assert follower.engine.fold.report().durable == log.end


def test_a_question_without_a_waiter_is_dropped(log):
    log.fill(30)
    follower = Follower(log).start()
    answers = []
    asked = follower.engine.ask(
        KeyQuery("orders", "key-1"), lambda answer, error: answers.append(answer)
    )
    asked.cancel()
    follower.settle()
    assert answers == []
