"""A wall clock that jumps ahead does not get into the log, unless an operator confirms it."""

import itertools
import random

import pytest
from stratamq_commitlog.use_cases.served_log import ServedLog
from stratamq_commitlog.write.store_clock import StoreClock

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.files.simulated import SimulatedCrash, keep_nothing, random_choice
from stratamq.formats.store_paths import CLOCK_PATH
from tests.commitlog.served import servicer_of
from tests.support.logs import Store, batch

YEAR_MS = 365 * 24 * 3_600_000
LIMIT_MS = 3_600_000


def started() -> Store:
    store = Store(1 << 16)
    store.start()
    store.put(b"before")
    return store


def jump(store: Store, by_ms: int) -> None:
    store.clock.set_wall_ms(store.clock.wall_ms() + by_ms)


def stored_at(store: Store) -> int:
    single = store.put(b"x").store_timestamp_ms
    together = store.put_batch(batch([b"y"])).store_timestamp_ms
    assert single == together == store.frames()[-1].store_timestamp_ms
    return single


def test_after_a_jump_ahead_messages_get_the_time_that_has_passed():
    store = started()
    before = stored_at(store)
    jump(store, YEAR_MS)
    for passed in (0, 250, 3_600_000, 24 * 3_600_000):
        store.pass_time(passed)
        before += passed
        assert stored_at(store) == before
    assert store.log.store_clock.ahead_ms == YEAR_MS
    assert str(YEAR_MS // 1000) in store.log.store_clock.doubt
    assert "stratamq clock --confirm" in store.log.store_clock.doubt
    assert store.put(b"taken").error is None, "messages are taken all the same"


def test_what_arrives_without_a_time_of_birth_is_not_born_in_the_future():
    store = started()
    before = stored_at(store)
    jump(store, YEAR_MS)
    store.put(b"x", born_timestamp_ms=0)
    assert store.frames()[-1].born_timestamp_ms == before


@pytest.mark.parametrize("back_ms", [YEAR_MS, YEAR_MS - LIMIT_MS, YEAR_MS + 10_000])
def test_once_the_wall_clock_is_right_again_it_is_believed(back_ms):
    store = started()
    before = stored_at(store)
    jump(store, YEAR_MS)
    store.pass_time(5_000)
    jump(store, -back_ms)
    assert stored_at(store) == max(before, store.clock.wall_ms())
    assert (store.log.store_clock.ahead_ms, store.log.store_clock.doubt) == (0, "")


def test_a_clock_that_an_operator_confirms_is_believed():
    store = started()
    jump(store, YEAR_MS)
    assert stored_at(store) < store.clock.wall_ms()
    store.log.store_clock.confirm()
    assert stored_at(store) == store.clock.wall_ms()
    jump(store, 2 * LIMIT_MS)
    assert stored_at(store) == store.clock.wall_ms() - 2 * LIMIT_MS, "the next jump is another"


@pytest.mark.parametrize("by_ms", [LIMIT_MS, 1, -1, -YEAR_MS])
def test_up_to_the_limit_and_backwards_the_wall_clock_is_followed(by_ms):
    store = started()
    before = stored_at(store)
    jump(store, by_ms)
    assert stored_at(store) == max(before, store.clock.wall_ms())
    assert not store.log.store_clock.ahead_ms


def test_a_clock_that_was_put_back_and_is_put_right_is_believed_and_one_ahead_of_that_is_not():
    store = started()
    begins = stored_at(store)
    jump(store, -24 * 3_600_000)
    store.pass_time(60_000)
    assert stored_at(store) == begins, "store times never go back"
    jump(store, 24 * 3_600_000)
    assert stored_at(store) == begins + 60_000
    assert not store.log.store_clock.doubt
    jump(store, -YEAR_MS)
    stored_at(store)
    jump(store, 2 * YEAR_MS)
    assert stored_at(store) == begins + 60_000
    assert store.log.store_clock.doubt


def test_time_that_passes_is_no_jump_however_long_the_clock_is_not_read():
    store = started()
    store.clock.advance_ms(YEAR_MS)
    assert stored_at(store) == store.clock.wall_ms()


def test_without_a_limit_every_wall_clock_is_believed():
    store = Store(1 << 16, clock_jump_limit_ms=0)
    store.start()
    jump(store, YEAR_MS)
    assert stored_at(store) == store.clock.wall_ms()


def test_a_jump_is_seen_while_nothing_is_stored():
    store = started()
    jump(store, YEAR_MS)
    store.pass_time(100)
    assert store.log.store_clock.ahead_ms == YEAR_MS


@pytest.mark.parametrize(
    "end", [Store.stop, Store.kill, lambda store: store.power_loss(keep_nothing)]
)
def test_a_restart_does_not_end_a_doubt(end):
    store = started()
    before = stored_at(store)
    jump(store, YEAR_MS)
    store.pass_time(1_500, ticks=2)
    end(store)
    store.start()  # a second passes
    assert stored_at(store) == before + 4_000
    jump(store, -YEAR_MS)
    store.pass_time(1_500, ticks=2)
    assert store.disk.tree.find(CLOCK_PATH) is None
    store.restart()
    assert stored_at(store) == store.clock.wall_ms()


def test_after_a_start_of_the_machine_time_continues_from_the_newest_message():
    """The monotonic clock restarted, so the length of the downtime is unknown."""
    store = started()
    jump(store, YEAR_MS)
    store.pass_time(1_500, ticks=2)
    newest = stored_at(store)
    store.stop()
    clock = StoreClock(store.new_files(), store.clock, LIMIT_MS, "another boot")
    clock.load(newest)
    assert clock.wall_ms() == newest
    store.clock.advance_ms(10_000)
    assert clock.wall_ms() == newest + 10_000
    assert clock.ahead_ms == YEAR_MS


@pytest.mark.parametrize("seed", range(20))
def test_store_times_never_go_back_whatever_the_clock_and_the_power_do(seed):
    chance = random.Random(seed)
    store = started()
    times = [stored_at(store)]
    for _ in range(60):
        kind = chance.randrange(6)
        if kind == 0:
            jump(store, chance.choice((YEAR_MS, -YEAR_MS, 10 * LIMIT_MS, LIMIT_MS // 2, -5_000)))
        elif kind == 1:
            store.disk.crash_at(store.disk.calls + chance.randrange(1, 40))
            try:
                store.pass_time(1_500)
            except SimulatedCrash:
                store.disk.clear_faults()
                store.power_loss(random_choice(chance))
                store.start()
            store.disk.clear_faults()
        elif kind == 2 and chance.random() < 0.2:
            store.log.store_clock.confirm()
        else:
            store.pass_time(chance.randrange(5_000))
        times.append(stored_at(store))
    assert all(a <= b for a, b in itertools.pairwise(times))


async def test_status_reports_the_doubt_and_a_call_ends_it():
    store = started()
    jump(store, YEAR_MS)
    stored_at(store)
    servicer = servicer_of(ServedLog(store.log, opening=""))
    status = await servicer.GetStatus(pb.GetStatusRequest(), None)
    assert status.clock_doubt == store.log.store_clock.doubt != ""
    assert status.writable
    await servicer.TrustClock(pb.TrustClockRequest(), None)
    status = await servicer.GetStatus(pb.GetStatusRequest(), None)
    assert status.clock_doubt == ""
    assert stored_at(store) == store.clock.wall_ms()
