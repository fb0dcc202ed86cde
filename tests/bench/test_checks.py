"""A fast wrong answer is a failure: every check of a benchmark refuses what is not as was sent."""

import threading
from types import SimpleNamespace

import pytest
from stratamq_bench import recovering
from stratamq_bench.catalogue import run_all
from stratamq_bench.engine_alone import Engine, PassLoad, compare
from stratamq_bench.load import Load, Mismatch, Places, SenderState, check_queues, check_stored
from stratamq_bench.plan import Plan
from stratamq_bench.single_clients import check_dense
from stratamq_bench.stream_clients import Progress
from stratamq_bench.streaming import Slave, fill
from stratamq_bench.usage import LagWatch
from stratamq_commitlog.messages import BatchResult

from stratamq.client import PullStatus, SendResult, SendStatus
from stratamq.errors import InvalidRequestError, StrataError

SIXTEEN = Places()


def test_the_engine_alone_is_held_against_the_floor(tmp_path):
    found = compare(tmp_path, PassLoad(64, 100, 4), rounds=1, seconds=0.05)
    assert found.messages > 0
    passes_us = found.cpu_us_per_message["passes"]
    assert passes_us > sum(found.floor.cpu_us_per_message.values()) * found.ratio * 0.5
    assert 0 < found.ratio <= found.measured["times_with_allocation_and_flush"]


def stored(offsets=(0,), status=SendStatus.PUT_OK, physical=0, error=None):
    return BatchResult(status, physical, tuple(offsets), error=error)


@pytest.mark.parametrize(
    ("answers", "batches"),
    [
        ([], 1),
        ([stored(offsets=(1,))], 1),
        ([stored(status=SendStatus.MESSAGE_ILLEGAL, error=InvalidRequestError("x"))], 1),
    ],
    ids=["no answer", "an offset too far", "refused"],
)
def test_wrong_answers_of_the_engine_are_a_mismatch(tmp_path, answers, batches):
    engine = Engine(tmp_path / "store", PassLoad(4, 100))
    engine._answers += answers
    try:
        with pytest.raises(Mismatch):
            engine.check_and_forget(batches)
    finally:
        engine.close()


@pytest.mark.parametrize(
    "state",
    [SenderState(0, [0] * 16, []), SenderState(16, [0] * 16, [])],
    ids=["nothing", "offsets that do not add up"],
)
def test_what_clients_report_is_added_up(state):
    with pytest.raises(Mismatch):
        check_stored(None, state, Load(100), SIXTEEN, followers=False)


class Holds:
    """A client of a dispatcher that reports `end` for its only queue; a pull returns `message`."""

    def __init__(self, end, message=None):
        self._end, self._message = end, message

    def queues(self):
        return [SimpleNamespace(topic="bench-0", queue_id=0, max_offset=self._end)]

    def pull(self, *_, **__):
        return SimpleNamespace(status=PullStatus.FOUND, messages=[self._message])


def test_a_queue_that_ends_too_early_is_a_mismatch():
    with pytest.raises(Mismatch, match="holds 15 messages, not 16"):
        check_queues(Holds(15), [("bench-0", 0)], [16], Load(100))


@pytest.mark.parametrize(
    ("offset", "key"), [(14, 15), (15, 14)], ids=["another offset", "another body"]
)
def test_the_last_message_of_a_queue_is_the_right_one(offset, key):
    load = Load(100)
    message = SimpleNamespace(
        queue_id=0, queue_offset=offset, body=load.body(15), unique_key=f"{key:032X}"
    )
    with pytest.raises(Mismatch):
        check_queues(Holds(16, message), [("bench-0", 0)], [16], load)


def answered(topic, queue_id, offset):
    return SendResult(SendStatus.PUT_OK, topic, queue_id, offset)


def test_offsets_of_single_calls_are_dense():
    places = Places(1, 1)
    good = [(n, answered("bench-0", 0, offset)) for n, offset in enumerate([6, 5, 7])]
    assert check_dense(good, places, [5]) == [8]
    for offsets in ([5, 7], [5, 5], [4, 5]):
        with pytest.raises(Mismatch):
            wrong = [(n, answered("bench-0", 0, offset)) for n, offset in enumerate(offsets)]
            check_dense(wrong, places, [5])


async def test_a_consumer_is_done_when_it_has_read_everything():
    progress = Progress(Places(1, 2))
    progress.next["bench-0", 0] = 3
    progress.end_at([3, 2])
    assert not progress.all_read.is_set()
    progress.next["bench-0", 1] = 2
    progress.look()
    assert progress.all_read.is_set()


def test_a_follower_that_stands_still_is_seen_to_lag():
    looked = threading.Semaphore(0)

    def look():
        looked.release()
        return 100, 0

    with LagWatch(look) as watch:
        for _ in range(4):
            looked.acquire()
    assert watch.worst_s > 0


def test_a_watch_that_cannot_look_fails_the_case():
    def look():
        raise StrataError("no service answers")

    with pytest.raises(StrataError, match="no service answers"), LagWatch(look) as watch:
        watch._thread.join()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("bench"), 2_000, 100, 1 << 20)


@pytest.mark.parametrize("what", recovering.WORK)
def test_walk_and_bare_loop_find_every_frame(store, what):
    assert recovering.WORK[what](store.root) == store.messages


def test_a_slave_with_other_bytes_is_a_mismatch(tmp_path):
    for name, byte in (("master", b"a"), ("slave", b"b")):
        (tmp_path / name / "commitlog").mkdir(parents=True)
        (tmp_path / name / "commitlog" / f"{0:020d}").write_bytes(byte * 100)
    slave = Slave.__new__(Slave)
    master = SimpleNamespace(log_state=lambda: SimpleNamespace(minimum_offset=0))
    slave._master = SimpleNamespace(
        broker=SimpleNamespace(root=tmp_path / "master"), client=master, segment_bytes=100
    )
    slave.broker = SimpleNamespace(root=tmp_path / "slave")
    slave.client = SimpleNamespace(log_state=lambda: SimpleNamespace(appended_offset=100))
    with pytest.raises(Mismatch, match="is not its master's"):
        slave.check_bytes()


def test_a_case_that_fails_gives_no_figures_and_stops_no_other(tmp_path):
    class Wrong:
        name, title = "append-wrong", "gives wrong answers"

        def run(self, place, plan):
            raise Mismatch("another body")

    results = tmp_path / "results.json"
    cases, failures = run_all([Wrong(), Wrong()], Plan(), lambda: _Here(tmp_path), results)
    assert cases == []
    assert [failure.error for failure in failures] == ["Mismatch: another body"] * 2
    assert "another body" in results.read_text()


class _Here:
    def __init__(self, path):
        self._path = path

    def __enter__(self):
        return self._path

    def __exit__(self, *_):
        return None
