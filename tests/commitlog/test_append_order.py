"""Rolling with a blank, order across calls, queue offsets, store times: spec 2.6, 3.4, 5.1, 5.2."""

import itertools
import random

import pytest
from stratamq_commitlog.messages import LogListener

from stratamq.formats.frame import Blank, Frame
from stratamq.formats.message_status import SendStatus
from tests.support.logs import (
    FIXED,
    Store,
    batch,
    batch_of,
    body_for,
    message,
    queue_table,
    raw_frame,
)

SEGMENT = 4096


@pytest.fixture
def store() -> Store:
    store = Store(SEGMENT)
    store.start()
    return store


def blanks(store: Store) -> dict[int, int]:
    return {at: value.length for at, _, value in store.members() if isinstance(value, Blank)}


# --- the roll rule (acceptance, part C 1 and 17) ---


@pytest.mark.parametrize("how", ["put", "atomic", "batch", "raw"])
@pytest.mark.parametrize("first", [FIXED + 6, 1000, SEGMENT - 8 - FIXED - 6])
def test_a_frame_that_leaves_exactly_eight_bytes_fits_and_a_byte_more_rolls(how, first):
    for extra, rolls in ((0, False), (1, True)):
        store = Store(SEGMENT)
        store.start()
        store.put(body_for(first))
        body = body_for(SEGMENT - first - 8 + extra)
        if how == "put":
            at = store.put(body).physical_offset
        elif how == "atomic":
            at = store.put_all(message(body), atomic=True)[0].physical_offset
        elif how == "batch":
            at = store.put_batch(batch([body])).physical_offset
        else:
            at = store.put_raw(raw_frame(body))[0].physical_offset
        assert at == (SEGMENT if rolls else first)
        assert blanks(store) == ({first: SEGMENT - first} if rolls else {})


def test_after_a_frame_that_leaves_eight_bytes_comes_a_blank_of_eight(store):
    store.put(body_for(SEGMENT - 8))
    assert store.put(b"x").physical_offset == SEGMENT
    assert blanks(store) == {SEGMENT - 8: 8}


def test_a_blank_has_its_eight_bytes_and_zeros_behind_it(store):
    store.put(body_for(1000))
    store.put(body_for(SEGMENT - 8))
    assert store.segments()[0][1008:] == bytes(SEGMENT - 1008)


@pytest.mark.parametrize("room", range(5))
def test_a_batch_is_never_split_wherever_the_segment_ends(room):
    """All or nothing in one segment: with room for 0 to 4 of its 5 frames it goes to the next."""
    store = Store(SEGMENT)
    store.start()
    size = 200
    filled = SEGMENT - 8 - room * size
    store.put(body_for(filled))
    for number, put in enumerate(
        (
            lambda: store.put_batch(batch([body_for(size)] * 5)).physical_offset,
            lambda: store.put_all(*[message(body_for(size))] * 5, atomic=True)[0].physical_offset,
        )
    ):
        if number:
            store.put(body_for(filled - store.end() % SEGMENT))
        assert put() == (number + 1) * SEGMENT
        assert len([f for f in store.frames() if f.physical_offset >= (number + 1) * SEGMENT]) == 5


def test_a_call_that_is_not_atomic_is_split_at_the_segments_end(store):
    store.put(body_for(SEGMENT - 8 - 450))
    results = store.put_all(*[message(body_for(200)) for _ in range(5)])
    assert [r.physical_offset // SEGMENT for r in results] == [0, 0, 1, 1, 1]
    assert [r.queue_offset for r in results] == [1, 2, 3, 4, 5]


def test_batches_of_one_pass_share_a_segment_as_far_as_they_fit(store):
    for _ in range(5):
        store.send_batch(batch([body_for(500)] * 3))
    store.settle()
    assert [r.physical_offset for r in store.answers.batches] == [0, 1500, 4096, 5596, 8192]
    assert blanks(store) == {3000: 1096, 7096: 1096}


@pytest.mark.parametrize("how", ["put", "atomic", "batch"])
@pytest.mark.parametrize("left", [0, 1, 7, 8, 9])
def test_what_comes_second_in_a_pass_leaves_room_for_a_blank_too(store, how, left):
    second = body_for(SEGMENT - 1000 - left)
    for body in (body_for(1000), second):
        if how == "batch":
            store.send_batch(batch([body]))
        else:
            store.send(message(body), atomic=how == "atomic")
    store.settle()
    places = [frame.physical_offset for frame in store.frames()]
    assert places == [0, 1000 if left >= 8 else SEGMENT]
    assert blanks(store) == ({} if left >= 8 else {1000: SEGMENT - 1000})


def test_an_atomic_call_is_never_split_whatever_goes_before_it_in_the_pass(store):
    store.send(message(body_for(1000)), atomic=True)
    store.send(*[message(body_for(1200)) for _ in range(3)], atomic=True)
    store.settle()
    assert [frame.physical_offset for frame in store.frames()] == [
        0,
        *(SEGMENT + 1200 * number for number in range(3)),
    ]


def test_the_next_segment_is_there_before_the_one_in_use_is_full(store):
    """Half of it is left when the next one begins to be made: no append waits for an allocation."""
    store.put(body_for(SEGMENT // 2 - 1))
    assert list(store.segments()) == [0]
    store.put(body_for(FIXED + 6))
    assert list(store.segments()) == [0, SEGMENT]


def test_no_frame_ever_crosses_a_segment_and_blanks_fill_the_rest():
    for seed in range(20):
        chance = random.Random(seed)
        store = Store(chance.choice([512, 1000, 4097]), seed=seed)
        store.start()
        size = store.settings["segment_bytes"]
        for _ in range(60):
            bodies = [b"x" * chance.randrange(150) for _ in range(chance.randrange(1, 4))]
            kind = chance.randrange(3)
            if kind == 0:
                store.send(*[message(b) for b in bodies], atomic=chance.random() < 0.5)
            elif kind == 1:
                store.send_batch(batch(bodies))
            else:
                store.log.put_raw([raw_frame(b) for b in bodies], store.answers.puts.append)
            if chance.random() < 0.3:
                store.settle()
        store.settle()
        for at, raw, value in store.members():
            if isinstance(value, Blank):
                assert (at + value.length) % size == 0
            else:
                assert at // size == (at + len(raw) - 1) // size
                assert at % size + len(raw) + 8 <= size
        stored = [r for r in store.answers.results if r.physical_offset >= 0]
        batches = [b.physical_offset for b in store.answers.batches if b.error is None]
        assert {r.physical_offset for r in stored} | set(batches) <= {
            at for at, _, _ in store.members()
        }


# --- order ---


def test_calls_are_stored_in_the_order_they_came(store):
    expected = []
    for number in range(60):
        body = b"%03d" % number
        if number % 3 == 0:
            store.send(message(body))
            expected.append(body)
        elif number % 3 == 1:
            store.send_batch(batch([body + b"a", body + b"b"]))
            expected += [body + b"a", body + b"b"]
        else:
            store.log.put_raw([raw_frame(body)], store.answers.puts.append)
            expected.append(body)
    store.settle()
    assert [frame.body for frame in store.frames()] == expected
    assert [frame.queue_offset for frame in store.frames()] == list(range(len(expected)))


def test_what_waits_for_a_segment_is_not_overtaken(store):
    store.put(body_for(3000))
    store.send(message(body_for(2000)))
    store.send(message(b"small, would fit"))
    store.send_batch(batch([b"small, too"]))
    store.settle()
    assert [len(frame.body) for frame in store.frames()] == [
        len(body_for(3000)),
        len(body_for(2000)),
        16,
        10,
    ]


def test_a_pass_is_bounded_in_bytes_and_messages():
    store = Store(1 << 20, pass_messages=10, pass_bytes=4096)
    store.start()
    store.put(b"x")
    for _ in range(25):
        store.send(message(b"x"))
    before = store.end()
    store.step()
    assert (store.end() - before) // (FIXED + 7) == 10
    store.settle()
    for _ in range(10):
        store.send_batch(batch([b"x" * 1000]))
    before = store.end()
    store.step()
    assert 4000 <= store.end() - before <= 4096 + FIXED + 1006
    store.settle()
    assert len(store.frames()) == 36


def test_a_driver_that_runs_a_pass_for_each_wake_appends_everything():
    store = Store(1 << 20, pass_messages=10)
    wakes: list[int] = []
    store.listener = LogListener(wake=lambda: wakes.append(1))
    log = store.start()
    for _ in range(100):
        store.send(message(b"x"))
    while wakes or store.scheduler.run_one():
        if wakes:
            wakes.clear()
            log.run_pass()
    assert len(store.frames()) == 100
    assert store.answers.statuses == [SendStatus.PUT_OK] * 100


# --- queue offsets ---


def test_queue_offsets_are_dense_and_unique_in_every_queue():
    chance = random.Random(1)
    store = Store(SEGMENT)
    store.start()
    topics = ["a", "b", "c"]
    for _ in range(150):
        topic, queue = chance.choice(topics), chance.randrange(4)
        kind = chance.randrange(4)
        if kind == 0:
            store.send(message(b"x", topic, queue))
        elif kind == 1:
            store.send(*[message(b"x", topic, queue)] * 3, atomic=True)
        elif kind == 2:
            store.send_batch(
                batch_of(
                    [(chance.choice(topics), chance.randrange(4), [b"y"] * 2) for _ in range(3)]
                )
            )
        else:
            store.send(message(b"x", topic, queue, delay_level=chance.randrange(19)))
        if chance.random() < 0.2:
            store.settle()
    store.settle()
    by_queue: dict[tuple[str, int], list[int]] = {}
    for frame in store.frames():
        by_queue.setdefault((frame.topic, frame.queue_id), []).append(frame.queue_offset)
    assert all(offsets == list(range(len(offsets))) for offsets in by_queue.values())
    assert store.queues() == {key: len(offsets) for key, offsets in by_queue.items()}
    assert "SCHEDULE_TOPIC_XXXX" in {topic for topic, _ in by_queue}


def test_a_batch_of_many_runs_has_the_first_offset_of_each(store):
    runs = [("a", 0, [b"1"] * 3), ("b", 1, [b"2"]), ("a", 0, [b"3"] * 2), ("a", 1, [b"4"])]
    assert store.put_batch(batch_of(runs)).first_queue_offsets == (0, 0, 3, 0)
    assert store.put_batch(batch_of(runs)).first_queue_offsets == (5, 1, 8, 1)
    assert store.queues() == queue_table(store.frames())


def test_a_refused_message_takes_no_queue_offset(store):
    for _ in range(3):
        assert store.put(properties={"k": "v" * 40_000}).physical_offset == -1
        store.put_batch(batch([b"x"] * 3, sys_flag=0x4))
    assert store.put(b"x").queue_offset == 0


def test_prepared_and_rollback_frames_take_offset_zero_and_do_not_move_the_queue(store):
    kinds = [0x0, 0x4, 0x8, 0xC, 0x0]
    results = store.put_raw(*[raw_frame(b"x", sys_flag=kind) for kind in kinds])
    assert [r.queue_offset for r in results] == [0, 0, 1, 0, 2]
    assert [f.queue_offset for f in store.frames()] == [0, 0, 1, 0, 2]
    assert [f.sys_flag for f in store.frames()] == kinds
    assert store.queues() == {("orders", 0): 3}


# --- store time ---


def test_the_store_time_never_goes_back():
    store = Store(SEGMENT)
    store.start()
    times = []
    for jump in (0, 5, -10_000, 3, -1_000_000, 20):
        store.clock.set_wall_ms(store.clock.wall_ms() + jump)
        times += [
            store.put(b"x").store_timestamp_ms,
            store.put_batch(batch([b"y"])).store_timestamp_ms,
        ]
    assert times == sorted(times)
    store.clock.set_wall_ms(1_000)
    store.restart()
    assert store.put(b"x").store_timestamp_ms == times[-1]
    store.kill()
    store.start()
    assert store.put(b"x").store_timestamp_ms == times[-1]
    assert [f.store_timestamp_ms for f in store.frames()] == [*times, times[-1], times[-1]]


def test_a_batch_has_one_store_time():
    store = Store(SEGMENT)
    store.start()
    store.put_batch(batch([b"x"] * 10))
    assert len({frame.store_timestamp_ms for frame in store.frames()}) == 1


# --- the queue table and the log agree whatever happened ---


def test_every_prefix_of_a_workload_leaves_a_log_that_agrees_with_the_engines_answers(store):
    results = []
    for number in range(40):
        results.append(store.put(b"%d" % number, topic=f"t{number % 3}", queue_id=number % 4))
        frames = store.frames()
        assert [f.physical_offset for f in frames] == [r.physical_offset for r in results]
        assert queue_table(frames) == store.queues()
    pairs = itertools.pairwise(store.members())
    assert all(
        at + (value.length if isinstance(value, Blank) else len(raw)) == following[0]
        for (at, raw, value), following in pairs
    )
    assert all(isinstance(value, Frame | Blank) for _, _, value in store.members())
