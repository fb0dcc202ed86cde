"""What a numbered producer sends again is stored once, and answered with where it is."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from stratamq_commitlog.messages import BatchResult, FrameBatch, KnownPlace, Numbers
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_commitlog.write.producer_window import ProducerWindow, Stretch, WindowContents

from stratamq.errors import InvalidRequestError, UnavailableError
from stratamq.files.simulated import keep_nothing
from stratamq.formats.batch_frames import FrameShape
from stratamq.formats.hosts import encode_host
from stratamq.formats.log_state import Role
from stratamq.formats.message_status import SendStatus
from stratamq.formats.producer_item import PRODUCER_ITEM, decode_item
from tests.support.logs import BORN, Store, batch_of, message

PRODUCER, OTHER = 0xFEDC_BA98_7654_3210, 7
BOTH = pytest.mark.parametrize("checksum", [False, True], ids=["plain", "checksum"])


def store_of(checksum: bool = False, **settings) -> Store:
    store = Store(1 << 16, property_checksum=checksum, **settings)
    store.start()
    return store


def place(store: Store) -> KnownPlace:
    return KnownPlace(store.log.generation, store.log.offsets.appended)


def numbered(
    store: Store,
    runs: Sequence[tuple[str, int, list[bytes]]],
    first: int,
    sent_from: KnownPlace | None = None,
    producer: int = PRODUCER,
) -> FrameBatch:
    shape = FrameShape(
        encode_host(BORN),
        property_checksum=store.settings["property_checksum"],
        producer=producer,
    )
    made = batch_of(runs, shape=shape)
    return dataclasses.replace(made, numbers=Numbers(producer, first, sent_from))


def bodies(first: int, count: int) -> list[bytes]:
    return [b"message %d" % number for number in range(first, first + count)]


def simple(store: Store, first: int, count: int, sent_from: KnownPlace | None = None, **more):
    return numbered(store, [("orders", 0, bodies(first, count))], first, sent_from, **more)


def answer(store: Store, batch: FrameBatch) -> BatchResult:
    before = len(store.answers.batches)
    store.send_batch(batch)
    store.settle()
    assert len(store.answers.batches) == before + 1
    return store.answers.batches[-1]


def sequences(store: Store) -> list[tuple[int, int]]:
    items = [decode_item(frame.properties[PRODUCER_ITEM].encode()) for frame in store.frames()]
    assert None not in items
    return items


@BOTH
@pytest.mark.parametrize("first", [0, 63, 4_090, (1 << 24) - 3, (1 << 48) - 20])
def test_the_log_writes_each_message_its_producer_and_sequence(checksum, first):
    store = store_of(checksum)
    assert answer(store, simple(store, first, 9)).status is SendStatus.PUT_OK
    unlike = [("orders", 0, [b"a", b"bcd"]), ("orders", 1, [b"efghi"])]
    assert answer(store, numbered(store, unlike, first + 9)).status is SendStatus.PUT_OK
    assert sequences(store) == [(PRODUCER, first + at) for at in range(12)]


def test_batches_of_several_producers_share_a_pass():
    store = store_of()
    store.send_batch(simple(store, 0, 3))
    store.send_batch(simple(store, 5, 2, producer=OTHER))
    store.send_batch(batch_of([("orders", 0, [b"without"])]))
    store.settle()
    assert [result.status for result in store.answers.batches] == [SendStatus.PUT_OK] * 3
    *items, plain = store.frames()
    found = [decode_item(frame.properties[PRODUCER_ITEM].encode()) for frame in items]
    assert found == [(PRODUCER, 0), (PRODUCER, 1), (PRODUCER, 2), (OTHER, 5), (OTHER, 6)]
    assert PRODUCER_ITEM not in plain.properties


def test_a_frame_without_its_producers_item_refuses_its_batch():
    store = store_of()
    bare = dataclasses.replace(batch_of([("orders", 0, [b"x"])]), numbers=Numbers(PRODUCER, 0))
    result = answer(store, bare)
    assert result.status is SendStatus.MESSAGE_ILLEGAL
    assert result.error.fields["reason"] == "producer_item"
    assert store.frames() == []


@BOTH
@pytest.mark.parametrize("restart", [None, "kill", "power", "stop"])
def test_a_batch_that_is_sent_again_is_stored_once_and_answered_as_before(checksum, restart):
    store = store_of(checksum)
    runs = [("orders", 0, bodies(0, 20)), ("other", 2, bodies(20, 3)), ("orders", 1, [b"z"])]
    sent_from = place(store)
    first = answer(store, numbered(store, runs, 0))
    answer(store, simple(store, 24, 5))
    if restart == "kill":
        store.kill()
    elif restart == "power":
        store.power_loss(keep_nothing)
    elif restart == "stop":
        store.stop()
    if restart:
        store.start()
    end = store.end()
    again = answer(store, numbered(store, runs, 0, sent_from))
    assert again.status is SendStatus.PUT_OK
    (part,) = again.parts
    assert dataclasses.replace(again, parts=()) == first
    assert part.first_queue_offsets == first.first_queue_offsets
    assert part.lengths.tolist() == numbered(store, runs, 0).lengths.tolist()
    assert store.end() == end


def test_what_a_loss_of_power_left_of_a_batch_is_completed():
    store = store_of()
    sent_from = place(store)
    runs = [("orders", 0, bodies(0, 4)), ("orders", 1, bodies(4, 4))]
    first = answer(store, numbered(store, runs, 0))
    size = len(store.frame_bytes()[0])
    store.kill()
    end = 6 * size
    store.edit("commitlog/00000000000000000000", end, bytes(2 * size))
    store.start()
    assert len(store.frames()) == 6
    answer(store, simple(store, 100, 1, producer=OTHER))
    other_end = store.end()
    again = answer(store, numbered(store, runs, 0, sent_from))
    assert [part.physical_offset for part in again.parts] == [first.physical_offset, other_end]
    assert [part.first_queue_offsets for part in again.parts] == [(0, 0), (2,)]
    assert [len(part.lengths) for part in again.parts] == [6, 2]
    assert sorted(sequences(store)) == [(OTHER, 100), *[(PRODUCER, at) for at in range(8)]]


def test_an_answer_to_what_is_sent_again_waits_for_its_flush():
    store = store_of()
    answer(store, simple(store, 0, 3))
    sent_from = place(store)
    store.send_batch(simple(store, 3, 3))
    store.step()
    assert store.end() > sent_from.offset
    store.send_batch(simple(store, 3, 3, sent_from))
    store.step()
    assert len(store.answers.batches) == 1
    store.settle()
    assert [one.status for one in store.answers.batches] == [SendStatus.PUT_OK] * 3
    assert len(store.frames()) == 6


def test_what_is_sent_again_before_the_first_was_appended_is_stored_once():
    store = store_of()
    sent_from = place(store)
    for again in (None, sent_from, sent_from):
        store.send_batch(simple(store, 0, 3, again))
    store.settle()
    assert len({one.physical_offset for one in store.answers.batches}) == 1
    assert len(store.frames()) == 3


def test_an_attempt_that_was_overtaken_is_recognised_without_a_mark():
    store = store_of()
    answer(store, simple(store, 0, 3, place(store)))
    answer(store, simple(store, 0, 3))
    assert len(store.frames()) == 3


def test_gaps_and_sequences_out_of_order_are_stored():
    store = store_of()
    for first in (10, 0, 5, 20):
        assert answer(store, simple(store, first, 3)).status is SendStatus.PUT_OK
    again = answer(store, simple(store, 0, 23, place(store)))
    assert again.status is SendStatus.PUT_OK
    assert [len(part.lengths) for part in again.parts] == [3, 2, 3, 2, 3, 7, 3]
    assert sorted(sequences(store)) == [(PRODUCER, at) for at in range(23)]


def test_a_sequence_of_another_message_is_refused():
    store = store_of()
    answer(store, simple(store, 0, 3))
    other_queue = numbered(store, [("orders", 1, bodies(0, 3))], 0, place(store))
    result = answer(store, other_queue)
    assert isinstance(result.error, InvalidRequestError)
    assert len(store.frames()) == 3


# --- the edge ---


def test_what_may_be_before_the_window_is_refused_and_not_stored():
    store = store_of(producer_window_bytes=0)
    sent_from = place(store)
    answer(store, simple(store, 0, 3))
    store.restart()
    assert store.log.window.complete_from == store.end()
    result = answer(store, simple(store, 0, 3, sent_from))
    assert isinstance(result.error, UnavailableError) and result.error.fields["beyond_window"]
    assert len(store.frames()) == 3
    assert answer(store, simple(store, 3, 3, place(store))).status is SendStatus.PUT_OK


def test_a_place_in_a_part_of_the_log_that_was_lost_reaches_back_to_where_it_ended():
    """What was sent in the lost part, and again behind it, may be below the given offset."""
    store = store_of()
    answer(store, simple(store, 0, 40))
    lost = place(store)
    end = 3 * len(store.frame_bytes()[0])
    store.kill()
    store.edit("commitlog/00000000000000000000", end, bytes(lost.offset - end))
    store.start()
    assert store.end() == end
    window = store.log.window
    window.load(WindowContents(end + 1))
    assert window.may_hide(lost)
    window.load(WindowContents(end))
    assert not window.may_hide(lost)


def test_the_window_of_a_start_is_what_the_log_has_at_its_end():
    store = store_of(producer_window_bytes=1000)
    for first in range(0, 200, 5):
        answer(store, simple(store, first, 5))
        answer(store, batch_of([("orders", 0, [b"of no producer"])]))
    store.restart()
    window = store.log.window
    frames, at, expected = store.frame_bytes(), 0, []
    for frame, decoded in zip(frames, store.frames(), strict=True):
        if at >= window.complete_from and PRODUCER_ITEM in decoded.properties:
            expected.append(decode_item(decoded.properties[PRODUCER_ITEM].encode()))
        at += len(frame)
    assert 0 <= window.complete_from - (store.end() - 1000) < len(frames[0]) + 1
    found = [piece for piece in window.find(PRODUCER, 0, 200) if piece.stretch is not None]
    assert [(PRODUCER, s) for p in found for s in range(p.first, p.following)] == expected


def test_damage_ends_the_window_behind_it():
    store = store_of()
    answer(store, simple(store, 0, 5))
    answer(store, simple(store, 5, 5))
    store.restart()
    size = len(store.frame_bytes()[0])
    store.edit("commitlog/00000000000000000000", 2 * size, bytes(8))
    found = store.log.role_changes.scan_producers()
    assert found.complete_from == 3 * size
    assert [(one.first, len(one.lengths)) for one in found._in_log_order] == [(3, 7)]


# --- messages given as fields ---


@BOTH
@pytest.mark.parametrize("restart", [False, True])
def test_a_message_that_is_sent_again_is_stored_once(checksum, restart):
    store = store_of(checksum)
    sent_from = place(store)
    one, two = (
        message(b"%d" % at, queue_id=None, numbers=Numbers(PRODUCER, at, sent_from))
        for at in range(2)
    )
    (first,) = store.put_all(one)
    if restart:
        store.kill()
        store.start()
    again, new = store.put_all(one, two)
    assert dataclasses.replace(again) == first
    assert new.queue_offset in (0, 1) and new.physical_offset > first.physical_offset
    assert sequences(store) == [(PRODUCER, 0), (PRODUCER, 1)]


def test_the_same_message_twice_in_a_pass_is_stored_once():
    store = store_of()
    one = message(b"x", numbers=Numbers(PRODUCER, 0, place(store)))
    store.send(one)
    store.send(one)
    store.settle()
    assert store.answers.results[0] == store.answers.results[1]
    assert len(store.frames()) == 1


def test_a_message_that_may_be_before_the_window_is_refused():
    store = store_of(producer_window_bytes=0)
    one = message(b"x", numbers=Numbers(PRODUCER, 0, place(store)))
    store.put_all(one)
    store.restart()
    (result,) = store.put_all(one)
    assert result.error.fields["beyond_window"] and len(store.frames()) == 1


# --- roles ---


def set_role(store: Store, role: Role) -> None:
    answers: list[object] = []
    store.log.set_role(RoleChange(role), answers.append)
    store.settle()
    assert answers == [None]


def test_a_slave_has_no_window_and_a_promoted_one_has_what_its_log_has():
    store = store_of()
    sent_from = place(store)
    first = answer(store, simple(store, 0, 5))
    set_role(store, Role.SLAVE)
    assert store.log.window.complete_from is None
    set_role(store, Role.ASYNC_MASTER)
    again = answer(store, simple(store, 0, 5, sent_from))
    assert dataclasses.replace(again, parts=()) == first
    assert len(store.frames()) == 5


# --- bounds ---


def stretch(producer: int, first: int, offset: int, count: int = 10) -> Stretch:
    lengths = np.full(count, 10, np.uint32)
    return Stretch(producer, first, offset, offset + 10 * count, lengths, (), (), 0)


def test_the_oldest_leave_a_window_that_is_full():
    one = stretch(1, 0, 0).memory_bytes
    window = ProducerWindow(None)
    window.load(contents := WindowContents(0, most_memory_bytes=3 * one))
    for at in range(10):
        window.record(stretch(at % 2, 10 * at, 100 * at))
    assert window.complete_from == 700
    known = [
        piece.first
        for producer in (0, 1)
        for piece in window.find(producer, 0, 100)
        if piece.stretch is not None
    ]
    assert sorted(known) == [70, 80, 90]
    assert len(contents) == 3 and len(contents.producers) == 2


def test_a_producer_without_messages_in_the_window_leaves_it():
    contents = WindowContents(0, most_memory_bytes=3 * stretch(1, 0, 0).memory_bytes)
    for at in range(1000):
        contents.record(stretch(at, 0, 100 * at))
    assert len(contents.producers) == 3


def test_a_place_of_another_log_is_ignored():
    store = store_of()
    answer(store, simple(store, 0, 3))
    result = answer(store, simple(store, 3, 3, KnownPlace(store.log.generation + 77, 10**9)))
    assert result.error.fields["beyond_window"] and len(store.frames()) == 3
