"""Which callers learn that bytes are durable, and when: one shared flush at a time, no retry."""

import errno
import random

import pytest
from stratamq_commitlog.messages import LogListener
from stratamq_commitlog.write.group_commit import GroupCommit

from stratamq.errors import NotWritableError, UnavailableError
from stratamq.files.simulated import SimulatedClock, SimulatedWorker, keep_nothing
from stratamq.formats.message_status import SendStatus
from tests.support.logs import Store, batch, body_for, message, segment_path

# --- the object by itself ---


class Bench:
    """A GroupCommit whose flushes do nothing, or fail when `error` is set."""

    def __init__(self) -> None:
        self.worker = SimulatedWorker(random.Random(0))
        self.clock = SimulatedClock()
        self.flushes: list[tuple[int, int]] = []
        self.error: BaseException | None = None
        self.answered: list[tuple[int, bool | None]] = []
        self.failures: list[OSError] = []
        self.answered_at_failure: list[tuple[int, bool | None]] | None = None
        self.commit = GroupCommit(
            self.worker,
            self.task,
            self.clock,
            flushed=0,
            timeout_ms=1_000,
            on_flushed=lambda end: None,
            on_failed=self.failed,
            listener=LogListener(),
        )

    def failed(self, error: OSError) -> None:
        self.failures.append(error)
        self.answered_at_failure = list(self.answered)

    def task(self, start: int, end: int):
        def flush() -> None:
            self.flushes.append((start, end))
            if self.error is not None:
                raise self.error

        return flush

    def append(self, end: int) -> None:
        self.commit.wait(end, lambda answer: self.answered.append((end, answer)))
        self.commit.request(end)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_no_waiter_is_answered_before_the_flush_returns(bench):
    bench.append(10)
    assert bench.answered == []
    bench.worker.run_one()  # The flush has run on the other thread ...
    assert bench.flushes == [(0, 10)]
    assert bench.answered == []
    bench.worker.run_one()  # ... and only its completion answers.
    assert bench.answered == [(10, True)]
    assert bench.commit.flushed == 10


def test_all_that_arrive_while_a_flush_runs_share_the_next(bench):
    bench.append(10)
    for end in (20, 30, 40):
        bench.append(end)
    assert bench.worker.pending == 1
    bench.worker.run_until_idle()
    assert bench.flushes == [(0, 10), (10, 40)]
    assert bench.answered == [(10, True), (20, True), (30, True), (40, True)]


def test_a_flush_covers_what_it_was_asked_for_and_not_what_came_later(bench):
    bench.append(10)
    bench.worker.run_one()
    bench.append(20)
    bench.worker.run_one()
    assert bench.answered == [(10, True)]
    assert bench.commit.flushed == 10


def test_there_is_never_more_than_one_flush_at_a_time(bench):
    for end in range(1, 50):
        bench.append(end)
        assert bench.worker.pending <= 1
        if end % 3 == 0:
            bench.worker.run_one()
    bench.worker.run_until_idle()
    assert [end for _, end in bench.flushes] == sorted({end for _, end in bench.flushes})
    assert all(
        start == before
        for (start, _), (_, before) in zip(bench.flushes[1:], bench.flushes, strict=False)
    )


def test_who_comes_while_the_flush_of_its_bytes_runs_waits_for_it(bench):
    bench.append(10)
    bench.append(20)
    for end in (10, 20):
        bench.commit.wait(20, lambda answer, end=end: bench.answered.append((end, answer)))
    assert bench.answered == []
    bench.worker.run_until_idle()
    assert bench.answered == [(10, True), (20, True), (10, True), (20, True)]
    assert bench.flushes == [(0, 10), (10, 20)]


def test_what_is_durable_already_is_answered_at_once_and_flushes_nothing(bench):
    bench.append(10)
    bench.worker.run_until_idle()
    bench.commit.wait(7, lambda answer: bench.answered.append((7, answer)))
    bench.commit.request(7)
    assert bench.answered[-1] == (7, True)
    assert bench.worker.pending == 0


def test_after_the_time_is_over_the_answer_is_no_and_comes_once(bench):
    bench.append(10)
    bench.clock.advance_ms(500)
    bench.append(20)
    bench.clock.advance_ms(500)
    bench.commit.expire()
    assert bench.answered == [(10, False)]
    bench.worker.run_until_idle()
    assert bench.answered == [(10, False), (20, True)]
    assert bench.commit.flushed == 20


def test_a_hundred_overdue_waiters_are_answered_in_order_and_the_queue_drains(bench):
    """FlushDiskWatcherTest.testTimeout: a completion that comes later changes nothing."""
    for end in range(1, 101):
        bench.append(end)
    bench.clock.advance_ms(5_000)
    bench.commit.expire()
    assert bench.answered == [(end, False) for end in range(1, 101)]
    bench.worker.run_until_idle()
    assert len(bench.answered) == 100


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_failed_flush_fails_every_waiter_now_and_later_and_is_never_retried(bench, number):
    bench.append(10)
    bench.append(20)
    bench.error = OSError(number, "no")
    bench.worker.run_until_idle()
    assert bench.answered == [(10, None), (20, None)]
    bench.error = None
    bench.append(30)
    bench.commit.request(40)
    bench.commit.expire()
    bench.worker.run_until_idle()
    assert bench.answered[-1] == (30, None)
    assert bench.flushes == [(0, 10)]
    assert bench.commit.flushed == 0
    assert len(bench.failures) == 1


def test_the_reason_is_known_before_any_waiter_is_answered(bench):
    bench.error = OSError(errno.EIO, "no")
    bench.append(10)
    bench.worker.run_until_idle()
    assert bench.answered_at_failure == []


def test_an_error_of_our_own_is_not_mistaken_for_one_of_the_disk(bench):
    bench.error = RuntimeError("a bug")
    bench.append(10)
    with pytest.raises(RuntimeError, match="a bug"):
        bench.worker.run_until_idle()
    assert bench.answered == []


# --- in the log ---


def test_nothing_is_acknowledged_before_it_is_on_the_disk():
    """Whatever the order of the worker's steps: at the moment of each PUT_OK the disk has it."""
    for seed in range(30):
        store = Store(4096, seed=seed)
        store.start()
        promised: list[tuple[int, int]] = []

        def check(results, store=store, promised=promised) -> None:
            for result in results:
                assert result.status is SendStatus.PUT_OK
                base = result.physical_offset // 4096 * 4096
                position = result.physical_offset - base
                durable = store.disk.durable_contents(segment_path(base))
                seen = store.disk.contents(segment_path(base))
                span = slice(position, position + result.size)
                assert durable[span] == seen[span]
                promised.append((result.physical_offset, result.size))

        chance = random.Random(seed)
        for number in range(40):
            store.log.put([message(b"%d" % number + b"x" * chance.randrange(900))], False, check)
            for _ in range(chance.randrange(4)):
                store.scheduler.run_one()
                store.log.run_pass()
        store.settle()
        assert len(promised) == 40


def test_many_appends_share_few_flushes():
    store = Store(1 << 20)
    store.start()
    store.put(b"allocates")
    before = store.log.commit.flushes
    for number in range(200):
        store.send(message(b"x"))
        if number % 10 == 0:
            store.log.run_pass()
    store.settle()
    assert store.answers.statuses == [SendStatus.PUT_OK] * 200
    assert store.log.commit.flushes - before <= 3


def test_a_flush_covers_every_segment_up_to_its_end_oldest_first():
    store = Store(2048)
    store.start()
    store.put(b"allocates")
    store.disk.trace = []
    for _ in range(10):
        store.send(message(body_for(900)))
    store.settle()
    flushed = [c.path for c in store.disk.trace if c.operation == "flush" and "commitlog" in c.path]
    assert flushed == sorted(flushed)
    assert len(set(flushed)) == 5
    store.power_loss(keep_nothing)
    store.start()
    assert len(store.frames()) == 11


def test_flush_disk_timeout_is_stored_and_becomes_durable():
    store = Store(4096, sync_flush_timeout_ms=1_000)
    store.start()
    store.put(b"allocates")
    store.send(message(b"slow"))
    store.send_batch(batch([b"slow, too"]))
    store.step()
    store.clock.advance_ms(1_000)
    store.log.tick()
    (result,), (batched,) = store.answers.results, store.answers.batches
    assert result.status is batched.status is SendStatus.FLUSH_DISK_TIMEOUT
    assert result.status.stored
    assert result.error is None
    assert result.physical_offset > 0
    store.settle()
    assert len(store.answers.results) == len(store.answers.batches) == 1
    store.power_loss(keep_nothing)
    store.start()
    assert [frame.body for frame in store.frames()] == [b"allocates", b"slow", b"slow, too"]


def test_a_failed_flush_fails_what_waits_and_ends_writing():
    store = Store(4096)
    store.start()
    store.put(b"safe")
    store.disk.fail("flush", segment_path(0))
    store.send(message(b"a"))
    store.send_batch(batch([b"b"]))
    store.settle()
    (result,), (batched,) = store.answers.results, store.answers.batches
    for failed in (result, batched):
        assert failed.status is SendStatus.UNKNOWN_ERROR
        assert isinstance(failed.error, UnavailableError)
        assert "perhaps stored" in str(failed.error)
    assert store.log.writable[0] is False
    assert "flush failed" in store.log.writable[1]
    store.disk.clear_faults()
    before = store.log.offsets
    for refused in (store.put(b"c"), store.put_batch(batch([b"c"])), *store.put_raw()):
        assert refused.status is SendStatus.SERVICE_NOT_AVAILABLE
        assert isinstance(refused.error, NotWritableError)
        assert refused.error.reason == "flush_failed"
    assert (before.flushed, before.confirmed) == (102 - 1, 102 - 1)


def test_after_a_failed_flush_nothing_is_flushed_again_and_nothing_becomes_confirmed():
    for disk_type in ("SYNC_FLUSH", "ASYNC_FLUSH"):
        store = Store(4096, flush_disk_type=disk_type, flush_interval_ms=100)
        store.start()
        store.put(b"safe")
        store.pass_time(200)
        flushed = store.log.offsets.flushed
        assert flushed == store.end()
        store.disk.fail("flush", segment_path(0))
        store.put(b"lost")
        store.pass_time(200)
        store.disk.clear_faults()
        store.disk.trace = []
        store.pass_time(2_000, ticks=5)
        store.stop()
        assert not [
            call
            for call in store.disk.trace
            if call.operation == "flush" and call.path.startswith("commitlog/")
        ]
        # `abort` stays, the checkpoint and the snapshot claim nothing of it.
        assert store.disk.tree.find("abort") is not None
        store.power_loss(keep_nothing)
        store.start()
        assert [frame.body for frame in store.frames()] == [b"safe"]


def test_a_restart_after_a_failed_flush_finds_what_the_cache_shows_and_makes_it_durable():
    store = Store(4096)
    store.start()
    store.put(b"safe")
    store.disk.fail("flush", segment_path(0))
    store.put(b"perhaps")
    store.disk.clear_faults()
    store.kill()
    store.start()
    assert store.put(b"again").status is SendStatus.PUT_OK
    store.disk.evict()
    store.power_loss(keep_nothing)
    store.start()
    assert [frame.body for frame in store.frames()] == [b"safe", b"perhaps", b"again"]


def test_a_restart_after_a_failed_flush_and_an_eviction_finds_what_the_disk_has():
    store = Store(4096)
    store.start()
    store.put(b"safe")
    store.disk.fail("flush", segment_path(0))
    store.put(b"lost")
    store.disk.clear_faults()
    store.kill()
    assert store.disk.evict() != []
    store.start()
    assert store.put(b"again").queue_offset == 1
    assert [frame.body for frame in store.frames()] == [b"safe", b"again"]


def test_a_background_write_back_error_ends_writing_at_the_next_flush():
    store = Store(4096)
    store.start()
    store.put(b"safe")
    store.send(message(b"never synced"))
    store.step()
    store.disk.write_back(error=errno.EIO)
    store.settle()
    assert store.answers.statuses == [SendStatus.UNKNOWN_ERROR]
    assert store.log.commit.failure is not None


# --- asynchronous flush ---


def asynchronous(**settings) -> Store:
    store = Store(4096, flush_disk_type="ASYNC_FLUSH", flush_interval_ms=500, **settings)
    store.start()
    return store


def test_async_flush_answers_from_the_cache_and_flushes_by_the_clock():
    store = asynchronous()
    store.pass_time(1)
    assert store.put(b"x").status is SendStatus.PUT_OK
    assert store.log.offsets.flushed == 0
    store.pass_time(499)
    assert store.log.offsets.flushed == 0
    store.pass_time(1)
    assert store.log.offsets.flushed == store.end()


def test_async_flush_survives_a_kill_and_loses_at_most_an_interval_to_a_power_loss():
    store = asynchronous()
    for number in range(10):
        store.put(b"%d" % number)
        store.pass_time(300)
    store.kill()
    store.start()
    assert len(store.frames()) == 10
    for number in range(10, 20):
        store.put(b"%d" % number)
        store.pass_time(300)
    store.power_loss(keep_nothing)
    store.start()
    bodies = [frame.body for frame in store.frames()]
    assert len(bodies) >= 18
    assert bodies == [b"%d" % number for number in range(len(bodies))]


def test_async_flush_that_failed_refuses_further_appends():
    store = asynchronous()
    store.put(b"x")
    store.disk.fail("flush", segment_path(0))
    store.pass_time(500)
    assert store.put(b"y").status is SendStatus.SERVICE_NOT_AVAILABLE
    assert store.log.writable[0] is False


def test_a_stop_flushes_what_async_flush_has_left():
    store = asynchronous()
    store.put(b"x")
    store.stop()
    assert store.disk.tree.find("abort") is None
    store.power_loss(keep_nothing)
    store.start()
    assert len(store.frames()) == 1
