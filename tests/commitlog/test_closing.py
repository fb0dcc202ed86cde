"""The end of a run: what must be true before `abort` goes, and what happens when it is not."""

import errno

import pytest
from stratamq_commitlog.recovery.own_state import SNAPSHOT_PATH

from stratamq.files.journal import Journal
from stratamq.files.simulated import SimulatedCrash, keep_everything, keep_nothing
from stratamq.formats.checkpoint import decode_checkpoint
from stratamq.formats.json_files import parse_json
from stratamq.formats.message_status import SendStatus
from tests.support.listeners import Listener
from tests.support.logs import Store, batch, body_for, message, swallow
from tests.support.sampling import sampled

SEGMENT = 4096


def running(**settings) -> Store:
    store = Store(SEGMENT, **settings)
    store.start()
    store.put_all(*[message(b"x" * 100) for _ in range(10)])
    return store


def abort_is_there(store: Store) -> bool:
    return store.disk.tree.find("abort") is not None


def test_abort_is_durable_before_anything_else_of_the_log_changes():
    store = Store(SEGMENT)
    store.disk.trace = []
    store.start()
    calls = [(call.operation, call.path) for call in store.disk.trace]
    made = calls.index(("create.sync_target", "abort"))
    changing = {"write", "zero", "unlink", "replace", "create.rename"}
    before = [
        path
        for operation, path in calls[:made]
        if operation in changing and not path.startswith(("stratamq/", "abort", "lock"))
    ]
    assert before == []


def test_abort_is_there_while_the_log_is_open_and_after_a_kill():
    store = running()
    assert abort_is_there(store)
    store.kill()
    assert abort_is_there(store)


def test_a_clean_stop_removes_abort_and_the_unused_segment():
    store = running()
    store.stop()
    assert not abort_is_there(store)
    assert list(store.segments()) == [0]
    store.power_loss(keep_nothing)
    assert not abort_is_there(store)
    store.start()
    assert len(store.frames()) == 10
    assert store.log.report == ["recovery begins at 1970: at our snapshot, known durable"]


def test_a_stop_before_the_first_message_is_clean():
    store = Store(SEGMENT, followers=("dispatcher",))
    store.start()
    store.log.begin_close()
    assert store.log.close_ready()
    store.log.close()
    assert not abort_is_there(store)


def test_a_missing_follower_keeps_abort():
    store = running(followers=("dispatcher", "index"))
    dispatcher, index = Listener(store, "dispatcher"), Listener(store, "index")
    store.log.begin_close()
    store.settle()
    for listener in (dispatcher, index):
        assert not store.log.close_ready()
        listener.listen()
        assert listener.closed_at == store.end()
        listener.report(durable=store.end() - 1)
        assert not store.log.close_ready()
        listener.report()
    assert store.log.closing.missing_followers() == []
    assert store.log.close_ready()
    store.log.close()
    assert not abort_is_there(store)

    store = running(followers=("dispatcher", "index"))
    dispatcher = Listener(store, "dispatcher")
    dispatcher.report(durable=store.end())
    store.log.begin_close()
    store.settle()
    # A report from before it received the log's end is not its final report.
    assert store.log.closing.missing_followers() == ["dispatcher", "index"]
    dispatcher.listen()
    dispatcher.report(durable=store.end())
    assert store.log.closing.missing_followers() == ["index"]
    store.log.close()
    assert abort_is_there(store)
    store.start()
    assert len(store.frames()) == 10


def test_a_follower_that_has_left_with_everything_is_not_waited_for():
    store = running(followers=("dispatcher",))
    dispatcher = Listener(store, "dispatcher")
    dispatcher.listen()
    dispatcher.report(leaving=True)
    store.log.begin_close()
    store.settle()
    assert store.log.close_ready()
    store.log.close()
    assert not abort_is_there(store), "it had everything"

    store = running(followers=("dispatcher",))
    dispatcher = Listener(store, "dispatcher")
    dispatcher.listen()
    dispatcher.report(leaving=True)
    store.put_all(message(b"later"))
    store.log.begin_close()
    store.settle()
    assert not store.log.close_ready(), "it may come back for the rest"
    store.log.close()
    assert abort_is_there(store)

    store = running(followers=("dispatcher",))
    Listener(store, "dispatcher").report(leaving=True)
    again = Listener(store, "dispatcher")
    store.log.begin_close()
    store.settle()
    assert not store.log.close_ready(), "it is back"
    again.listen()
    again.report()
    assert store.log.close_ready()


def test_what_waits_is_refused_and_what_was_appended_is_flushed_and_answered():
    store = running()
    store.send(message(b"appended"))
    store.step()
    store.send(message(b"waits"))
    store.send_batch(batch([b"waits"]))
    store.log.begin_close()
    store.settle()
    assert store.answers.statuses == [SendStatus.SERVICE_NOT_AVAILABLE, SendStatus.PUT_OK]
    assert store.answers.batches[0].status is SendStatus.SERVICE_NOT_AVAILABLE
    store.log.close()
    assert not abort_is_there(store)
    store.start()
    assert store.frames()[-1].body == b"appended"


def test_closing_twice_and_ticking_afterwards_does_nothing():
    store = running()
    log = store.log
    store.stop()
    log.begin_close()
    log.run_pass()
    log.tick()
    log.close()
    assert log.close_ready()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_close_that_cannot_write_lets_go_and_loses_nothing(error):
    reference = running()
    reference.log.begin_close()
    reference.settle()
    before = reference.disk.calls
    reference.log.close()
    calls = reference.disk.calls - before
    assert calls > 10
    for call in sampled(range(1, calls + 1)):
        store = running()
        store.log.begin_close()
        store.settle()
        store.disk.fail_at(store.disk.calls + call, error)
        store.log.close()
        store.disk.clear_faults()
        store.start()  # The lock is free.
        assert len(store.frames()) == 10, call
        assert store.queues() == {("orders", 0): 10}
        assert store.put(b"x").queue_offset == 10


@pytest.mark.parametrize("choice", [keep_nothing, keep_everything, None])
def test_a_power_loss_at_any_call_of_a_close_loses_nothing(choice):
    for call in range(1, 80):
        store = running()
        store.log.begin_close()
        store.settle()
        store.disk.crash_at(store.disk.calls + call)
        try:
            store.log.close()
        except SimulatedCrash:
            pass
        else:
            break
        store.power_loss(choice)
        store.disk.clear_faults()
        store.start()
        assert len(store.frames()) == 10, call
        assert store.queues() == {("orders", 0): 10}
    assert call > 10


# --- what is saved by the clock ---


def checkpoint(store: Store):
    return decode_checkpoint(store.disk.durable_contents("checkpoint"))


def snapshot(store: Store) -> dict:
    return Journal(store.disk.image(keep_nothing).files(), SNAPSHOT_PATH).load(lambda piece: None)


def test_a_snapshot_never_stands_above_what_is_flushed():
    store = Store(SEGMENT, flush_disk_type="ASYNC_FLUSH", flush_interval_ms=10_000)
    store.start()
    store.pass_time(1)
    flushed = []
    for number in range(60):
        store.put(b"%d" % number)
        store.pass_time(900)
        flushed.append(store.log.offsets.flushed)
        assert snapshot(store)["offset"] <= store.log.offsets.flushed
    assert len(set(flushed)) > 3
    assert snapshot(store)["offset"] > 0


def test_the_snapshot_is_saved_every_few_seconds_while_something_changes():
    store = running()
    store.pass_time(2_500, ticks=4)
    end = store.end()
    assert snapshot(store)["offset"] == end
    store.disk.trace = []
    store.pass_time(2_500, ticks=4)
    assert not [c for c in store.disk.trace if "queue-offsets" in c.path]


def test_the_checkpoint_holds_what_is_flushed_and_what_followers_have():
    store = running(followers=("dispatcher", "index"))
    newest = store.frames()[-1].store_timestamp_ms
    listener = Listener(store)
    listener.listen()
    listener.report()
    store.pass_time(1_000, ticks=3)
    saved = checkpoint(store)
    assert saved.physic_msg_timestamp_ms == newest
    assert saved.index_msg_timestamp_ms == 0
    assert saved.confirm_phy_offset == store.end()


def test_the_checkpoint_has_rocketmq_redispatch_what_only_a_file_it_will_delete_has_indexed():
    store = running(followers=("dispatcher", "index"))
    queues, index = Listener(store), Listener(store, "index")
    for listener in (queues, index):
        listener.listen()
    queues.report()
    store.pass_time(1_000, ticks=3)
    assert checkpoint(store).logics_msg_timestamp_ms == 0
    index.report()
    store.pass_time(1_000, ticks=3)
    assert checkpoint(store).logics_msg_timestamp_ms == 1
    assert checkpoint(store).index_msg_timestamp_ms == 1


def test_the_checkpoint_never_claims_what_is_not_flushed():
    store = Store(SEGMENT, flush_disk_type="ASYNC_FLUSH", flush_interval_ms=10_000)
    store.start()
    store.pass_time(1)
    for number in range(40):
        store.put(b"%d" % number)
        store.pass_time(700)
        saved, offsets = checkpoint(store), store.log.offsets
        flushed = [f for f in store.frames() if f.physical_offset < offsets.flushed]
        assert saved.physic_msg_timestamp_ms <= max(
            (frame.store_timestamp_ms for frame in flushed), default=0
        )
        assert saved.confirm_phy_offset <= offsets.flushed


def test_a_start_lowers_a_checkpoint_that_claims_more_than_there_is():
    store = running()
    store.stop()
    store.edit("checkpoint", 0, (1 << 62).to_bytes(8, "big") * 5)
    store.start()
    newest = store.frames()[-1].store_timestamp_ms
    saved = checkpoint(store)
    assert saved.physic_msg_timestamp_ms <= newest
    assert saved.logics_msg_timestamp_ms <= newest
    assert saved.index_msg_timestamp_ms <= newest
    assert saved.confirm_phy_offset == store.end()


def test_topics_are_saved_within_a_second_of_their_creation_and_at_a_stop():
    store = running()
    store.pass_time(1_000, ticks=2)
    table = parse_json(store.disk.durable_contents("config/topics.json"))["topicConfigTable"]
    assert set(table) == {"orders"}
    store.put(topic="late")
    store.stop()
    table = parse_json(store.disk.durable_contents("config/topics.json"))["topicConfigTable"]
    assert set(table) == {"orders", "late"}


def test_saving_topics_on_demand_answers_when_they_are_durable():
    store = running()
    answers: list = []
    store.log.upkeep.save_topics(answers.append)
    store.log.upkeep.save_topics(answers.append)
    assert answers == []
    store.settle()
    assert answers == [None, None]
    store.put(topic="more")
    store.disk.fail("flush", "config/*")
    store.log.upkeep.save_topics(answers.append)
    store.settle()
    assert answers[2] is not None
    store.log.upkeep.save_topics(answers.append)
    store.settle()
    assert answers[3] is None


def test_no_failure_of_housekeeping_ever_comes_out_of_a_tick():
    """Each call of a minute of housekeeping fails in turn; appends continue, nothing is lost."""
    reference = running()
    before = reference.disk.calls
    reference.pass_time(700, ticks=12)
    calls = reference.disk.calls - before
    for call in range(1, calls + 1):
        store = running()
        store.disk.fail_at(store.disk.calls + call, errno.EIO)
        store.pass_time(700, ticks=12)
        store.disk.clear_faults()
        assert store.put(b"goes on").status is SendStatus.PUT_OK, call
        store.pass_time(3_000, ticks=4)
        assert snapshot(store)["offset"] == store.end(), call
        store.kill()
        store.start()
        assert len(store.frames()) == 11


def test_answers_that_are_never_looked_at_do_not_matter():
    store = running()
    store.log.put([message()], False, swallow)
    store.settle()
    assert len(store.frames()) == 11


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_only_an_unclean_stop_under_async_flush_may_have_lost_something(flush):
    store = Store(SEGMENT, flush_disk_type=flush, flush_interval_ms=700)

    def warned() -> bool:
        return any("700 ms before it may be missing" in line for line in store.log.report)

    store.start()
    assert not warned()
    store.put(b"1")
    store.power_loss(keep_nothing)
    store.start()
    assert warned() is (flush == "ASYNC_FLUSH")
    store.stop()
    store.start()
    assert not warned()


def test_a_clean_stop_leaves_no_segment_without_data():
    store = Store(4096)
    store.start()
    store.put(body_for(3000))
    assert list(store.segments()) == [0, 4096]
    store.stop()
    assert list(store.segments()) == [0]
