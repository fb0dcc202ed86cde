"""The engine on both disks: what is applied, what is durable, what a start finds again."""

import pytest

from stratamq.errors import CorruptRecordError, UnavailableError
from stratamq.formats.store_paths import CONSUME_QUEUES
from tests.dispatcher.followed_log import HOST_V6, WrittenLog, start
from tests.dispatcher.queue_checks import check_files, check_queues, consume, contents, pull
from tests.support.disks import Place


@pytest.fixture
def files(place: Place):
    return place.files


@pytest.fixture
def log(files) -> WrittenLog:
    return WrittenLog(files)


# --- applying ---


@pytest.mark.parametrize("bare", [False, True], ids=["with lengths", "bare"])
def test_every_message_is_in_its_queue_at_its_offset(files, log, bare):
    log.put_many(200, topics=3, queues=4)
    broker = start(files, log)
    broker.bare = bare
    broker.follow()
    check_queues(broker)
    check_files(broker)


def test_units_can_be_read_before_they_are_on_disk(files, log):
    broker = start(files, log)
    log.put_many(40)
    broker.send()
    check_queues(broker)
    assert contents(files) == {}


def test_prepared_and_rolled_back_messages_are_in_no_queue(files, log):
    log.put("t", sys_flag=4)
    committed = log.put("t", sys_flag=8)
    log.put("t", sys_flag=12)
    broker = start(files, log)
    broker.follow()
    assert consume(broker, "t", 0) == [committed.frame]


def test_frames_of_ipv6_hosts_are_dispatched_as_others(files, log):
    log.put("t", store_host=HOST_V6)
    log.put("t", born_host=HOST_V6)
    broker = start(files, log)
    broker.follow()
    check_queues(broker)


def test_an_event_is_applied_in_steps(files, log):
    log.put_many(60)
    broker = start(files, log, step_messages=10)
    broker.event_members = 1000
    ends = [end for _, end in log.ranges(0, log.end, 1000)]
    steps = sum(1 for _ in broker.deliver(0, ends[0]))
    assert steps >= 3
    assert broker.engine.followed.applied == ends[0]


def test_a_damaged_frame_stops_dispatch_before_it(files, log):
    log.put_many(10)
    bad = log.messages[6]
    broker = start(files, log)
    file = files.open("commitlog/" + "0" * 20, writable=True)
    file.write(bad.offset + 4, b"\0\0\0\0")
    file.close()
    for message in log.messages[:6]:
        list(broker.deliver(message.offset, message.end))
    with pytest.raises(CorruptRecordError) as caught:
        broker.send()
    assert caught.value.position == bad.offset
    broker.engine.fold.stopped(caught.value)
    assert broker.engine.followed.applied == bad.offset
    assert "magic" in broker.engine.followed.stopped_reason
    check_queues(broker, upto=bad.offset)


def test_queue_offsets_that_start_again_replace_the_old_messages_and_are_reported(files, log):
    """RocketMQ deletes a topic and makes it again: its queues begin at 0 once more."""
    for _ in range(20):
        log.put("t")
    broker = start(files, log)
    broker.follow()
    log.next_queue_offset.clear()
    log.messages.clear()
    for _ in range(3):
        log.put("t")
    broker.follow()
    assert [line for line in broker.engine.recovery_report() if "go back from 20 to 0" in line]
    check_queues(broker)
    check_files(broker)


def test_queue_offsets_that_go_back_a_little_replace_what_they_name(files, log):
    for _ in range(20):
        log.put("t")
    broker = start(files, log)
    broker.follow()
    log.next_queue_offset["t", 0] = 13
    log.messages = [m for m in log.messages if m.queue_offset < 13]
    log.put("t")
    broker.follow()
    assert [line for line in broker.engine.recovery_report() if "go back from 20 to 13" in line]
    check_queues(broker)
    check_files(broker)


def test_a_queue_that_begins_late_has_pre_blank_units_and_its_minimum(files, log):
    log.next_queue_offset["t", 0] = 100
    log.put("t")
    log.put("t")
    broker = start(files, log)
    broker.follow()
    check_files(broker)
    answer = pull(broker, "t", 0, 99)
    assert (answer.status.name, answer.next_offset) == ("OFFSET_TOO_SMALL", 100)
    again = start(files, log)
    again.follow()
    answer = pull(again, "t", 0, 0)
    assert (answer.status.name, answer.minimum, answer.maximum) == ("OFFSET_TOO_SMALL", 100, 102)


def test_one_unit_per_file_is_a_geometry_like_any_other(files, log):
    log.next_queue_offset["t", 0] = 7
    for _ in range(5):
        log.put("t")
    broker = start(files, log, queue_file_bytes=20)
    broker.follow()
    check_queues(broker)
    check_files(broker)
    assert len(contents(files)) == 5


def test_a_topic_that_cannot_be_a_directory_is_passed_over_and_reported(files, log):
    for topic in ("a/b", "..", ".", "x" * 127):
        log.put(topic)
    log.put("good")
    broker = start(files, log)
    broker.follow()
    assert {queue.topic for queue in broker.engine.queues} == {"x" * 127, "good"}
    assert sum("cannot be a directory" in line for line in broker.engine.recovery_report()) == 3
    assert broker.engine.followed.durable == log.end


# --- what is durable ---


def test_nothing_above_flushed_is_written(files, log):
    log.put_many(60)
    broker = start(files, log, connect=False)
    broker.flushed = log.messages[33].end
    broker.connect()
    broker.follow()
    assert broker.engine.followed.applied == log.end
    assert broker.engine.followed.durable <= broker.flushed
    check_files(broker, upto=broker.engine.followed.durable)
    broker.flushed = None
    broker.follow()
    assert broker.engine.followed.durable == log.end
    check_files(broker)


def test_the_watermark_stands_at_the_end_of_a_frame_that_is_flushed_whole(files, log):
    log.put_many(30)
    broker = start(files, log, connect=False)
    broker.event_members = 1
    broker.flushed = log.messages[10].end + 5
    broker.connect()
    broker.follow()
    assert broker.engine.followed.durable == log.messages[10].end
    assert broker.engine.followed.durable_ms == log.messages[10].store_ms


def test_the_watermark_never_stands_where_a_frame_of_a_lost_history_ended(files, log):
    """A start would follow from there: from the middle of a frame of the new history."""
    log.put_many(30)
    broker = start(files, log, connect=False)
    broker.event_members = 1
    broker.flushed = 0
    broker.connect()
    broker.send()
    log.cut(log.messages[10].offset)
    log.restart()
    for number in range(30):
        log.put("t", body=bytes(7 * number + 1))
    broker.connect()
    broker.send()
    ends = {message.end for message in log.messages} | {0}
    ends |= {end - end % -log.segment_bytes for end in ends}
    seen = set()
    for flushed in range(log.messages[10].offset, log.end, 53):
        broker.flushed = flushed
        broker.send()
        broker.flush()
        assert broker.engine.followed.durable in ends
        assert broker.engine.followed.durable <= flushed
        seen.add(broker.engine.followed.durable)
    assert len(seen) > 15


def test_the_report_has_what_is_applied_and_what_is_durable(files, log):
    broker = start(files, log)
    broker.follow()
    log.put_many(20)
    broker.send()
    report = broker.engine.fold.report()
    assert (report.applied, report.durable) == (log.end, 0)
    broker.flush()
    report = broker.engine.fold.report()
    assert (report.durable, report.released) == (log.end, 0)
    assert report.durable_store_timestamp_ms == log.messages[-1].store_ms


def test_after_a_cut_no_request_is_served_before_what_took_its_place_is_applied(files, log):
    log.put_many(30)
    broker = start(files, log)
    broker.follow()
    broker.engine.require_serving()
    log.cut(log.messages[10].offset)
    log.restart()
    log.put_many(20)
    broker.connect()
    with pytest.raises(UnavailableError, match="does not serve yet"):
        broker.engine.require_serving()
    broker.follow()
    broker.engine.require_serving()
    check_queues(broker)


@pytest.mark.parametrize("kept", [0, 1, 12, 29])
def test_after_a_cut_no_store_time_of_what_was_cut_is_reported(files, log, kept):
    """RocketMQ's recovery begins at that time: above the cut it would skip messages."""
    log.put_many(30)
    broker = start(files, log)
    broker.follow()
    assert broker.engine.followed.durable_ms == log.messages[-1].store_ms
    log.cut(log.messages[kept].offset)
    log.restart()
    broker.connect()
    known = [message.store_ms for message in log.messages]
    for _ in range(3):
        report = broker.engine.fold.report()
        assert report.durable <= log.end
        assert report.durable_store_timestamp_ms <= max(known, default=0)
        broker.flush()
    log.put_many(5)
    broker.follow()
    assert broker.engine.followed.durable_ms == log.messages[-1].store_ms


def test_many_units_are_flushed_before_the_interval_is_over(files, log):
    log.put_many(120)
    broker = start(files, log, flush_bytes=400, flush_interval_ms=3_600_000)
    broker.send()
    broker.worker.run_until_idle()
    assert broker.engine.saver.written_bytes >= 400


def test_a_closing_log_gets_a_report_when_everything_is_durable(files, log):
    log.put_many(25)
    broker = start(files, log)
    broker.send()
    assert broker.close_log() == [log.end]
    check_files(broker)


# --- starts ---


def test_a_clean_stop_is_found_again_without_reading_the_log(files, log):
    log.put_many(50)
    broker = start(files, log)
    broker.follow()
    broker.stop()
    again = start(files, log, connect=False)
    assert again.engine.fold.resume_point() == (1, log.end)
    again.connect()
    assert again.engine.followed.serving
    check_queues(again)


def test_a_killed_process_continues_at_its_watermark(files, log):
    log.put_many(50)
    broker = start(files, log)
    broker.follow()
    watermark = log.end
    log.put_many(30)
    broker.send()  # applied, and lost with the process
    again = start(files, log)
    assert again.position == watermark
    again.follow()
    check_queues(again)
    check_files(again)


def test_it_does_not_serve_before_it_has_applied_what_consumers_may_have_seen(files, log):
    log.put_many(50)
    broker = start(files, log)
    with pytest.raises(UnavailableError, match="does not serve yet"):
        pull(broker, "topic-0", 0, 0)
    first, *rest = log.ranges(0, log.end, 20)
    list(broker.deliver(*first))
    assert not broker.engine.followed.serving
    for piece in rest:
        list(broker.deliver(*piece))
    assert broker.engine.followed.serving
    check_queues(broker)


def test_it_does_not_serve_before_the_generation_begins(files, log):
    """Under async flush `confirmed` of the answer may be below what the last process served."""
    log.put_many(20)
    log.restart()
    broker = start(files, log, connect=False)
    broker.confirmed = log.messages[9].end
    broker.connect()
    broker.send()
    assert broker.engine.followed.applied == broker.confirmed
    assert not broker.engine.followed.serving
    broker.confirmed = None
    broker.send()
    assert broker.engine.followed.serving


def test_a_broken_connection_changes_nothing(files, log):
    log.put_many(30)
    broker = start(files, log)
    broker.follow()
    log.put_many(10)
    broker.send()
    applied = broker.engine.followed.applied
    assert broker.connect() == applied
    assert broker.engine.followed.serving
    log.put_many(10)
    broker.follow()
    check_queues(broker)
    check_files(broker)


def test_a_restarted_log_that_lost_nothing_cuts_nothing(files, log):
    log.put_many(30)
    broker = start(files, log)
    broker.follow()
    log.restart()
    assert broker.connect() == log.end
    assert broker.engine.followed.serving
    broker.follow()
    again = start(files, log, connect=False)
    assert again.engine.fold.resume_point() == (2, log.end)


# --- cuts ---


@pytest.mark.parametrize("flush", [True, False], ids=["on disk", "in memory"])
@pytest.mark.parametrize("keep", [0, 1, 17, 40, 59])
def test_a_cut_drops_what_is_beyond_it_in_memory_and_in_files(files, log, keep, flush):
    log.put_many(60)
    broker = start(files, log)
    broker.send()
    if flush:
        broker.flush()
    log.cut(log.messages[keep].offset)
    log.restart()
    broker.connect()
    broker.flush()
    check_queues(broker)
    check_files(broker)
    log.put_many(25)
    broker.follow()
    check_queues(broker)
    check_files(broker)


def test_a_cut_while_a_flush_is_in_flight_leaves_nothing_behind(files, log):
    log.put_many(60)
    broker = start(files, log)
    broker.follow()
    log.put_many(30)
    broker.send()
    broker.clock.advance_ms(1000)
    broker.engine.tick()  # the job waits for the worker
    log.cut(log.messages[50].offset)
    log.restart()
    broker.connect()
    log.put_many(3)
    broker.follow()
    check_queues(broker)
    check_files(broker)


def test_a_log_cut_while_the_dispatcher_was_away_cuts_its_files(files, log):
    log.put_many(60)
    broker = start(files, log)
    broker.follow()
    broker.stop()
    log.cut(log.messages[20].offset)
    log.restart()
    log.put_many(5)
    again = start(files, log)
    again.follow()
    check_queues(again)
    check_files(again)


def test_an_unknown_generation_compares_everything(files, log):
    log.put_many(60)
    broker = start(files, log)
    broker.follow()
    broker.stop()
    log.forget_generations()
    again = start(files, log)
    assert again.position == 0
    again.follow()
    check_queues(again)
    check_files(again)
    assert any("compared with the log" in line for line in again.engine.recovery_report())


# --- deletion ---


def test_whole_files_below_the_minimum_are_deleted_but_never_the_last(files, log):
    log.put("topic-1")
    log.put_many(150, topics=1, queues=1)
    broker = start(files, log)
    broker.follow()
    log.delete_below(2 * log.segment_bytes)
    broker.follow()
    queue = broker.engine.queues.get("topic-0", 0)
    minimum = queue.minimum(broker.engine.queues.open_files, log.minimum)
    assert minimum == log.of_queue("topic-0", 0)[0].queue_offset
    names = sorted(path for path in contents(files) if "topic-0" in path)
    assert len(names) == len(range(minimum // 8, -(-queue.end // 8)))
    assert [path for path in contents(files) if "topic-1" in path]
    answer = pull(broker, "topic-0", 0, 0)
    assert (answer.status.name, answer.next_offset) == ("OFFSET_TOO_SMALL", minimum)
    check_queues(broker)
    again = start(files, log)
    again.follow()
    check_queues(again)
    assert sorted(path for path in contents(files) if "topic-0" in path) == names


def test_a_queue_whose_messages_are_all_gone_keeps_its_offset(files, log):
    log.put("old")
    log.put_many(120, topics=1, queues=1)
    broker = start(files, log)
    broker.follow()
    log.delete_below(log.segment_bytes)
    broker.follow()
    answer = pull(broker, "old", 0, 0)
    assert (answer.status.name, answer.next_offset) == ("OFFSET_TOO_SMALL", 1)
    assert pull(broker, "old", 0, 1).status.name == "OFFSET_OVERFLOW_ONE"


def test_the_logs_queue_table_gives_offsets_to_queues_without_messages(files, log):
    log.put_many(120, topics=1, queues=1)
    log.delete_below(log.segment_bytes)
    broker = start(files, log)
    broker.engine.learn_queues(log.end, [("gone", 3, 500), ("topic-0", 0, 120)])
    broker.follow()
    answer = pull(broker, "gone", 3, 0)
    assert (answer.status.name, answer.minimum, answer.maximum) == ("OFFSET_TOO_SMALL", 500, 500)
    log.next_queue_offset["gone", 3] = 500
    log.put("gone", 3)
    broker.follow()
    check_queues(broker)
    answer = pull(broker, "gone", 3, 500)
    assert (answer.status.name, answer.count) == ("FOUND", 1)


def test_a_follower_below_the_minimum_starts_empty_there(files, log):
    log.put_many(30)
    broker = start(files, log)
    broker.follow()
    broker.stop()
    log.put_many(200)
    log.delete_below(3 * log.segment_bytes)
    again = start(files, log)
    again.follow()
    assert again.engine.followed.serving
    check_queues(again)


def test_a_rebuild_after_deletion_fills_what_is_gone_with_pre_blank_units(files, log):
    log.put_many(150, topics=1, queues=2)
    log.delete_below(2 * log.segment_bytes)
    broker = start(files, log)
    broker.follow()
    check_queues(broker)
    check_files(broker)


# --- geometry ---


def test_the_size_of_existing_files_wins_over_the_setting(files, log):
    log.put_many(60)
    broker = start(files, log, queue_file_bytes=100)
    broker.follow()
    again = start(files, log, queue_file_bytes=6_000_000)
    log.put_many(60)
    again.follow()
    assert again.engine.queues.geometry.file_bytes == 100
    check_files(again)


def test_an_odd_size_is_rounded_up_to_whole_units(files, log):
    log.put_many(60)
    broker = start(files, log, queue_file_bytes=1024)
    broker.follow()
    assert {len(content) for content in contents(files).values()} == {1040}


def test_the_queue_directory_holds_nothing_but_whole_files_with_names_of_offsets(files, log):
    log.put_many(100)
    broker = start(files, log)
    broker.follow()
    for path, content in contents(files).items():
        root, _topic, _queue, name = path.split("/")
        assert root == CONSUME_QUEUES
        assert len(content) == 160
        assert int(name) % 160 == 0
        assert len(name) == 20
