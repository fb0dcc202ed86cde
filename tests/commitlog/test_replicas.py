"""SYNC_MASTER: what slaves acknowledged, what an append waits for, what consumers may see."""

import itertools

import pytest
from stratamq_commitlog.replica.acknowledgement import Replicas

from stratamq.errors import NotWritableError
from stratamq.formats.log_state import ReplicaState, Role
from stratamq.formats.message_status import SendStatus
from tests.support.listeners import Listener
from tests.support.logs import FIXED, Store, batch, message

GAP = 1 << 20


def slave(acknowledged: int, *, connected: bool = True, name: str = "s1") -> ReplicaState:
    return ReplicaState(name, acknowledged, connected)


def replicated(appended: int, *acknowledged: int, required: int = 1) -> int | None:
    replicas = Replicas(required, GAP)
    replicas.report(slave(value, name=str(n)) for n, value in enumerate(acknowledged))
    return replicas.replicated(appended)


# --- the pure object ---


def test_the_kth_largest_acknowledgement_counts():
    assert replicated(125, 123, 124, 123, 125) == 125
    assert replicated(125, 123, 124, 123, 125, required=2) == 124
    assert replicated(125, 123, 124, 123, 125, required=4) == 123
    assert replicated(125, 123, 124, required=3) is None


def test_a_slave_counts_while_it_is_strictly_less_than_the_gap_behind():
    assert replicated(124 + GAP - 1, 124) == 124
    assert replicated(124 + GAP, 124) is None
    # HAServerTest.inSyncReplicasNums, without the master.
    for more, count in ((123 + GAP, 2), (124 + GAP, 1), (125 + GAP, 0)):
        assert replicated(more, 123, 124, 123, 125, required=max(count, 1)) is not None or not count
        assert replicated(more, 123, 124, 123, 125, required=count + 1) is None


def test_a_slave_that_is_not_connected_does_not_count():
    replicas = Replicas(1, GAP)
    replicas.report([slave(100, connected=False)])
    assert replicas.replicated(100) is None


def test_a_slave_that_acknowledges_more_than_there_is_does_not_count():
    assert replicated(100, 101) is None
    assert replicated(100, 101, 40) == 40
    assert replicated(100, 100) == 100


def test_the_last_report_is_the_whole_truth():
    replicas = Replicas(1, GAP)
    replicas.report([slave(100)])
    replicas.report([])
    assert replicas.replicated(100) is None


# --- in the log ---


def master(**settings) -> Store:
    store = Store(4096, role="SYNC_MASTER", slave_timeout_ms=1_000, **settings)
    store.start()
    return store


def acknowledge(store: Store, offset: int) -> int:
    return store.log.report_replication(store.log.generation, [slave(offset)])


def test_without_a_slave_messages_are_stored_and_answered_slave_not_available():
    store = master()
    for result in (store.put(b"a"), store.put_batch(batch([b"b"]))):
        assert result.status is SendStatus.SLAVE_NOT_AVAILABLE
        assert result.status.stored
        assert result.error is None
        assert result.physical_offset >= 0
    assert len(store.frames()) == 2


def test_put_ok_comes_when_the_slave_has_it_all():
    store = master()
    acknowledge(store, 0)
    store.send(message(b"x"))
    store.send_batch(batch([b"y"]))
    store.settle()
    assert store.answers.results == []
    first = store.frames()[0]
    acknowledge(store, first.total_size - 1)
    assert store.answers.results == []
    acknowledge(store, store.end())
    assert store.answers.statuses == [SendStatus.PUT_OK]
    assert store.answers.batches[0].status is SendStatus.PUT_OK


def test_put_ok_never_comes_before_the_local_flush():
    store = master()
    store.put(b"allocates")
    acknowledge(store, store.end())
    store.send(message(b"x"))
    store.step()
    acknowledge(store, store.end())
    assert store.answers.results == []
    store.settle()
    assert store.answers.statuses == [SendStatus.PUT_OK]


def test_a_slave_that_does_not_answer_in_time_is_flush_slave_timeout():
    store = master()
    acknowledge(store, 0)
    store.send(message(b"x"))
    store.settle()
    store.pass_time(999)
    assert store.answers.results == []
    store.pass_time(1)
    assert store.answers.statuses == [SendStatus.FLUSH_SLAVE_TIMEOUT]
    acknowledge(store, store.end())
    assert len(store.answers.results) == 1


def test_a_message_that_does_not_wait_does_not_wait_for_slaves():
    store = master()
    assert store.put(wait_store_ok=False).status is SendStatus.PUT_OK


def test_an_async_master_never_waits():
    store = Store(4096)
    store.start()
    assert store.log.role is Role.ASYNC_MASTER
    assert store.put(b"x").status is SendStatus.PUT_OK


def test_a_report_of_another_generation_is_refused():
    store = master()
    with pytest.raises(NotWritableError):
        store.log.report_replication(store.log.generation + 1, [slave(0)])


def test_two_required_slaves_must_both_have_it():
    store = master(required_replicas=2)
    both = [slave(0, name="a"), slave(0, name="b")]
    store.log.report_replication(store.log.generation, both)
    store.send(message(b"x"))
    store.settle()
    end = store.end()
    store.log.report_replication(store.log.generation, [slave(end, name="a"), both[1]])
    assert store.answers.results == []
    done = [slave(end, name="a"), slave(end, name="b")]
    store.log.report_replication(store.log.generation, done)
    assert store.answers.statuses == [SendStatus.PUT_OK]


# --- confirmed ---


def test_consumers_see_what_slaves_have():
    store = master()
    acknowledge(store, 0)
    listener = Listener(store)
    store.send(message(b"x"))
    store.settle()
    listener.listen()
    assert store.log.offsets.confirmed == listener.position == 0
    assert acknowledge(store, store.end()) == store.end()
    listener.listen()
    assert listener.position == store.end()


def test_acknowledgements_in_the_middle_of_a_frame_never_make_an_event_that_is_not_whole():
    """RocketMQ's slaves acknowledge after every 32 KiB, wherever that is."""
    for behind in (False, True):
        store = master()
        acknowledge(store, 0)
        listener = None if behind else Listener(store)
        for size in (10, 200, 50):
            store.send(message(b"x" * size))
            store.step()
            store.settle()
            store.step()
        store.send_batch(batch([b"y" * 40] * 6))
        store.settle()
        listener = listener or Listener(store)
        for offset in range(0, store.end() + 1, 3):
            acknowledge(store, min(offset, store.end()))
            listener.listen()
            assert listener.position == store.log.offsets.confirmed <= offset
        acknowledge(store, store.end())
        listener.listen()
        assert listener.position == store.end()


def test_confirmed_never_goes_back():
    store = master()
    acknowledge(store, 0)
    store.send(message(b"x"))
    store.settle()
    end = store.end()
    assert acknowledge(store, end) == end
    assert acknowledge(store, 0) == end


def test_without_hold_without_slave_confirmed_continues_when_too_few_slaves_qualify():
    store = master(hold_without_slave=False)
    acknowledge(store, 0)
    store.send(message(b"x"))
    store.settle()
    end = store.end()
    assert acknowledge(store, end) == end
    store.log.report_replication(store.log.generation, [])
    store.put(b"y")
    assert store.log.offsets.confirmed == store.end()


def test_consumers_see_nothing_that_slaves_do_not_have():
    store = master()
    assert store.put(b"x").status is SendStatus.SLAVE_NOT_AVAILABLE
    assert store.log.offsets.confirmed == 0
    listener = Listener(store)
    listener.listen()
    assert listener.position == 0
    assert acknowledge(store, store.end()) == store.end()


def test_replication_ships_what_is_flushed_under_sync_and_appended_under_async_flush():
    for disk_type in ("SYNC_FLUSH", "ASYNC_FLUSH"):
        store = master(flush_disk_type=disk_type, flush_interval_ms=3_600_000)
        store.pass_time(1)
        store.put(b"allocates")
        replica = Listener(store, "ha", replicable=True)
        store.send(message(b"x"))
        store.step()
        replica.listen()
        expected = store.log.offsets.flushed if disk_type == "SYNC_FLUSH" else store.end()
        assert replica.position == store.log.offsets.replicable == expected


def test_no_event_goes_beyond_confirmed_whatever_the_order_of_things():
    for order in itertools.permutations(range(4)):
        store = master()
        acknowledge(store, 0)
        listener = Listener(store)
        steps = [
            lambda store=store: store.send(message(b"x")),
            lambda store=store: store.settle(),
            lambda store=store: acknowledge(store, min(FIXED, store.end())),
            lambda store=store: acknowledge(store, store.end()),
        ]
        for index in order:
            steps[index]()
            listener.listen()
            assert listener.position <= store.log.offsets.confirmed <= store.log.offsets.flushed
