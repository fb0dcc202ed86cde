"""Batches, window, acknowledgements and lost streams, without a wire."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.api.v1 import commitlog_pb2
from stratamq.client.append_messages import place_of, request_of
from stratamq.client.batching import Batching, Outbox, size_bound
from stratamq.client.numbering import LogPlace, Numbering
from stratamq.client.received import split_frames
from stratamq.client.units import BatchOutcome, BatchPart, BatchRun
from stratamq.client.values import Topic
from stratamq.errors import BusyError, InvalidRequestError, UnavailableError
from stratamq.formats.batch_frames import FrameShape
from stratamq.formats.message_status import SendStatus
from stratamq.rpc.appending import shape_of
from stratamq.rpc.framing import APPEND_STREAM_REQUEST

SHAPE = FrameShape(bytes((127, 0, 0, 1)) + bytes(4))
FIELDS = (0, 0, 1_700_000_000_000, 0)
LINGER_NS = 5_000_000
DELIVERY_NS = 1_000_000_000


def outbox(numbering: Numbering | None = None, **changes: int) -> Outbox:
    made = Outbox(replace(Batching(100_000, 100, 2, LINGER_NS), **changes), numbering)
    made.learn([Topic("t", write_queue_count=4), Topic("u", write_queue_count=2)])
    return made


def retrying(**changes: int) -> Outbox:
    """Of a producer that numbers its messages, over an open stream."""
    box = outbox(numbering=Numbering(random.Random(1)), delivery_ns=DELIVERY_NS, **changes)
    box.place = LogPlace(7, 5000)
    return box


def add(box: Outbox, body: bytes = b"body", topic: str = "t", queue_id: int | None = None, now=0):
    row = (body, b"")
    return box.add(topic, queue_id, FIELDS, row, size_bound(topic, row), now)


def stored(batch, physical_offset: int = 1000) -> BatchOutcome:
    first = tuple(10 * number for number in range(len(batch.runs)))
    return BatchOutcome(SendStatus.PUT_OK, physical_offset, first, 42)


def test_a_first_message_goes_at_once():
    box = outbox()
    add(box)
    assert box.next_batch(0).count == 1


def test_what_comes_while_a_batch_is_in_flight_waits_for_company():
    box = outbox()
    add(box)
    first = box.next_batch(0)
    add(box)
    add(box)
    assert box.next_batch(0) is None
    assert box.due_in_ns(0) == LINGER_NS
    box.acknowledge(first.sequence, stored(first), 0)
    assert box.next_batch(0).count == 2


def test_a_batch_that_has_lingered_long_enough_goes():
    box = outbox()
    add(box)
    box.next_batch(0)
    add(box, now=7)
    assert box.next_batch(LINGER_NS + 6) is None
    assert box.next_batch(LINGER_NS + 7).count == 1


def test_only_behind_many_messages_what_comes_waits_for_company():
    box = outbox(linger_behind=3)
    for _ in range(2):
        add(box)
    first = box.next_batch(0)
    add(box)
    assert box.due_in_ns(0) == 0
    assert box.next_batch(0).count == 1, "two in flight are not many"
    box.acknowledge(first.sequence, stored(first), 0)
    box = outbox(linger_behind=3)
    for _ in range(3):
        add(box)
    first = box.next_batch(0)
    add(box)
    add(box)
    assert box.next_batch(0) is None
    assert box.due_in_ns(0) == LINGER_NS
    box.acknowledge(first.sequence, stored(first), 0)
    assert box.next_batch(0).count == 2


def test_a_flush_waits_for_no_company():
    box = outbox()
    add(box)
    box.next_batch(0)
    add(box)
    box.flushes = 1
    assert box.due_in_ns(0) == 0
    assert box.next_batch(0).count == 1


def test_batches_are_full_by_messages_and_by_bytes():
    box = outbox(batch_messages=3, window=10)
    for _ in range(7):
        add(box)
    assert [box.next_batch(0).count for _ in range(2)] == [3, 3]
    box = outbox(batch_bytes=3 * size_bound("t", (b"x" * 100, b"")), window=10)
    for _ in range(7):
        add(box, b"x" * 100)
    assert [box.next_batch(0).count for _ in range(2)] == [3, 3]


def test_no_more_than_the_window_is_in_flight():
    box = outbox(batch_messages=1)
    for _ in range(5):
        add(box)
    first = box.next_batch(0)
    assert box.next_batch(0) is not None
    assert box.next_batch(0) is None
    assert box.due_in_ns(0) is None
    box.acknowledge(first.sequence, stored(first), 0)
    assert box.next_batch(0) is not None


def test_a_topic_keeps_its_queue_within_a_batch_and_takes_the_next_in_the_next():
    box = outbox(batch_messages=2, window=100)
    taken = [add(box)[1].queue_id for _ in range(10)]
    assert taken == [0, 0, 1, 1, 2, 2, 3, 3, 0, 0]


def test_a_topic_that_the_broker_does_not_have_yet_takes_queue_0():
    box = outbox(batch_messages=1)
    assert [add(box, topic="new")[1].queue_id for _ in range(3)] == [0, 0, 0]


def test_a_message_that_names_its_queue_gets_it():
    assert add(outbox(), queue_id=3)[1].queue_id == 3


def test_the_brokers_limits_hold_from_then_on():
    box = outbox(window=10)
    box.limit(batch_bytes=1000, batch_messages=2)
    for _ in range(4):
        add(box)
    assert box.next_batch(0).count == 2
    assert box.carries("t", size_bound("t", (b"x" * 700, b"")))
    assert not box.carries("t", size_bound("t", (b"x" * 1000, b"")))


def test_names_of_more_than_127_bytes_are_left_to_the_broker():
    assert not outbox().carries("t" * 128, 0)


def test_results_contain_where_each_message_of_each_queue_went():
    box = outbox()
    places = [
        add(box, b"a", queue_id=1),
        add(box, b"bb", topic="u", queue_id=0),
        add(box, b"ccc", queue_id=1),
    ]
    batch = box.next_batch(0)
    frames = b"".join(batch.encode(SHAPE)[1])
    box.acknowledge(batch.sequence, stored(batch), 0)
    results = [batch.result_of(run, index) for _, run, index in places]
    assert [(r.topic, r.queue_id, r.queue_offset) for r in results] == [
        ("t", 1, 0),
        ("u", 0, 10),
        ("t", 1, 1),
    ]
    for result, body in zip(results, (b"a", b"bb", b"ccc"), strict=True):
        begin = result.physical_offset - 1000
        (message,) = split_frames(frames[begin : begin + result.size])
        assert (message.body, message.topic) == (body, result.topic)
    assert sum(result.size for result in results) == len(frames)
    for count, index in ((2, 0), (1, 1), (1, 0)):  # of queue 1
        run = places[0][1]
        stored_run = batch.places_of(run, index, count)
        with_ids = [batch.result_of(run, index + at, with_id=True) for at in range(count)]
        first = with_ids[0]
        assert stored_run[:3] == (first.status, first.queue_id, first.queue_offset)
        assert stored_run.message_ids == [one.message_id for one in with_ids]
    assert list(batch.results()) == [results[0], results[2], results[1]]


@given(
    st.lists(st.tuples(st.sampled_from("tu"), st.integers(0, 1), st.integers(0, 3)), max_size=60),
    st.integers(1, 20),
)
def test_each_queue_keeps_the_order_in_which_messages_were_added(messages, batch_messages):
    box = outbox(batch_messages=batch_messages, window=1000)
    for number, (topic, queue_id, flag) in enumerate(messages):
        row = (str(number).encode(), b"")
        box.add(topic, queue_id, (flag, 0, 0, 0), row, size_bound(topic, row), 0)
    box.flushes = 1
    sent: dict[tuple[str, int], list[int]] = {}
    while (batch := box.next_batch(0)) is not None:
        frames = b"".join(batch.encode(SHAPE)[1])
        received = list(split_frames(frames))
        assert len(received) == batch.count
        for run in batch.runs.values():
            for message in received[run.first : run.first + run.count]:
                assert message.topic == run.topic
                number = int(message.body)
                assert messages[number][2] == message.flag
                sent.setdefault((run.topic, run.queue_id), []).append(number)
    assert sorted(number for numbers in sent.values() for number in numbers) == list(
        range(len(messages))
    )
    for numbers in sent.values():
        assert numbers == sorted(numbers)


def test_an_acknowledgement_out_of_order_breaks_the_stream():
    box = outbox(batch_messages=1)
    add(box)
    add(box)
    first, second = box.next_batch(0), box.next_batch(0)
    with pytest.raises(UnavailableError):
        box.acknowledge(second.sequence, stored(second), 0)
    with pytest.raises(UnavailableError):
        box.acknowledge(first.sequence + 7, stored(first), 0)


def test_a_refused_batch_settles_all_its_messages_with_the_error():
    box = outbox()
    _, run, index = add(box)
    batch = box.next_batch(0)
    error = InvalidRequestError("bad frame", frame=0)
    box.acknowledge(batch.sequence, BatchOutcome(SendStatus.MESSAGE_ILLEGAL, error=error), 0)
    assert batch.result_of(run, index).error is error
    assert box.idle


def test_a_busy_log_is_tried_again_after_its_hint_when_that_was_asked_for():
    box = retrying()
    add(box)
    batch = box.next_batch(0)
    busy = BatchOutcome(SendStatus.OS_PAGECACHE_BUSY, error=BusyError("busy", retry_after_ms=3))
    assert box.acknowledge(batch.sequence, busy, 0) is None
    assert not batch.settled
    assert box.next_batch(2_999_999) is None
    assert box.due_in_ns(2_999_999) == 1
    assert box.next_batch(3_000_000) is batch
    assert box.acknowledge(batch.sequence, busy, DELIVERY_NS) is batch
    assert isinstance(batch.error(), BusyError)


def test_a_lost_stream_gives_up_what_was_sent_and_keeps_what_was_not():
    box = outbox(batch_messages=1)
    for _ in range(3):
        add(box)
    sent = [box.next_batch(0), box.next_batch(0)]
    assert box.lost(0) == sent
    for batch in sent:
        box.give_up(batch, UnavailableError("gone"))
    assert box.has_unsent
    (unsent,) = box.take_unsent()
    box.give_up(unsent, UnavailableError("gone"))
    assert box.idle


def test_a_lost_stream_sends_again_in_the_same_order_with_the_same_sequences():
    box = retrying(batch_messages=2)
    for number in range(6):
        add(box, str(number).encode())
    sent = [box.next_batch(0), box.next_batch(0)]
    assert [batch.sequence for batch in sent] == [0, 2]
    assert not sent[0].unanswered
    assert box.lost(0) == []
    box.place = LogPlace(8, 9000)
    again = [box.next_batch(0), box.next_batch(0)]
    assert again == sent
    assert [batch.sequence for batch in again] == [0, 2]
    assert [batch.sent_from for batch in again] == [LogPlace(7, 5000)] * 2
    assert box.lost(DELIVERY_NS) == sent
    box.place = LogPlace(8, 9000)
    last = box.next_batch(DELIVERY_NS)
    assert (last.sequence, last.sent_from, last.unanswered) == (4, LogPlace(8, 9000), False)


def test_what_a_log_would_not_recognise_is_not_sent_again():
    box = retrying()
    box.place = None
    add(box)
    sent = box.next_batch(0)
    assert box.lost(0) == [sent]


def test_what_a_slave_did_not_answer_is_sent_again():
    """Its log is a place like any other, and the frames are numbered, should it become a master."""
    box = retrying()
    opened = commitlog_pb2.AppendOpened(
        generation=7, appended_offset=5000, store_address_bytes=4, born_address=bytes(4)
    )
    box.place = place_of(opened, producer=1)
    assert shape_of(opened, producer=1).producer == 1
    add(box)
    sent = box.next_batch(0)
    assert box.lost(0) == []
    assert sent.sent_from == LogPlace(7, 5000)


@pytest.mark.parametrize("numbers", [(0, 1), (1, 0), (0, 1, 2), (2, 0, 1)])
def test_batches_that_were_refused_for_now_go_again_in_their_order(numbers):
    box = retrying(batch_messages=1, window=3)
    for _ in range(4):
        add(box)
    sent = [box.next_batch(0) for _ in range(3)]
    busy = BatchOutcome(SendStatus.OS_PAGECACHE_BUSY, error=BusyError("busy", retry_after_ms=0))
    for batch in sent:
        refused = batch.sequence in numbers
        box.acknowledge(batch.sequence, busy if refused else stored(batch), 0)
    following = [box.next_batch(0) for _ in range(3)]
    wanted = [*sorted(numbers), 3][:3]
    assert [batch.sequence for batch in following if batch is not None] == wanted
    assert not any(batch.unanswered for batch in following if batch is not None)


def test_a_refusal_behind_an_unanswered_attempt_is_perhaps_stored():
    box = retrying()
    add(box)
    batch = box.next_batch(0)
    assert box.lost(0) == []
    box.place = LogPlace(8, 1)
    assert box.next_batch(0) is batch
    error = InvalidRequestError("the topic takes no messages")
    box.acknowledge(batch.sequence, BatchOutcome(SendStatus.MESSAGE_ILLEGAL, error=error), 0)
    assert batch.error().fields["perhaps_stored"]


def test_what_the_log_can_no_longer_recognise_is_perhaps_stored():
    box = retrying()
    add(box)
    batch = box.next_batch(0)
    box.lost(0)
    box.place = LogPlace(8, 1)
    box.next_batch(0)
    error = UnavailableError("beyond", beyond_window=True)
    outcome = BatchOutcome(SendStatus.UNKNOWN_ERROR, error=error)
    assert box.acknowledge(batch.sequence, outcome, 0) is batch
    assert batch.error().fields["perhaps_stored"]


def test_writing_that_ended_is_tried_again_as_perhaps_stored():
    box = retrying()
    add(box)
    batch = box.next_batch(0)
    ended = BatchOutcome(SendStatus.UNKNOWN_ERROR, error=UnavailableError("writing stopped"))
    assert box.acknowledge(batch.sequence, ended, 0) is None
    assert box.next_batch(0) is batch
    assert batch.unanswered


def test_messages_wait_for_their_delivery_so_long_and_no_longer():
    box = retrying(batch_messages=1)
    add(box, now=0)
    add(box, now=10)
    (late,) = box.take_overdue(DELIVERY_NS)
    assert late.opened_ns == 0
    assert box.next_batch(DELIVERY_NS).opened_ns == 10


def test_where_the_log_is_moves_with_its_answers():
    box = retrying(batch_messages=1)
    add(box)
    add(box)
    first = box.next_batch(0)
    assert first.sent_from == LogPlace(7, 5000)
    box.acknowledge(first.sequence, stored(first, 6000), 0)
    assert box.next_batch(0).sent_from == LogPlace(7, 6000)


def test_a_batch_in_parts_has_each_message_where_it_is():
    box = retrying()
    for queue_id in (0, 0, 0, 1, 1):
        add(box, queue_id=queue_id)
    batch = box.next_batch(0)
    batch.encode(SHAPE)
    parts = (BatchPart(100, (10, 20), (7,), 1), BatchPart(900, (30, 40, 50), (50, 3), 2))
    outcome = BatchOutcome(SendStatus.PUT_OK, 100, (7,), 1, parts=parts)
    box.acknowledge(batch.sequence, outcome, 0)
    found = [
        (one.queue_id, one.queue_offset, one.physical_offset, one.size, one.store_timestamp_ms)
        for one in batch.results()
    ]
    assert found == [
        (0, 7, 100, 10, 1),
        (0, 8, 110, 20, 1),
        (0, 50, 900, 30, 2),
        (1, 3, 930, 40, 2),
        (1, 4, 970, 50, 2),
    ]


def test_a_withdrawn_batch_is_no_longer_in_flight():
    box = outbox()
    add(box)
    batch = box.next_batch(0)
    box.withdraw(batch)
    assert box.in_flight == 0


@given(
    st.lists(st.integers(0, 400), max_size=60),
    st.integers(1, 7),
    st.integers(0, 3),
    st.sampled_from([300, 1000, 5000]),
)
def test_rows_that_are_added_together_go_where_single_ones_would(
    sizes, batch_messages, before, batch_bytes
):
    def batches(together: bool) -> list[list[tuple[int, list[bytes]]]]:
        box = outbox(batch_messages=batch_messages, batch_bytes=batch_bytes, window=1000)
        rows = [(bytes([number % 256]) * size, b"") for number, size in enumerate(sizes)]
        for _ in range(before):
            add(box, b"before", queue_id=3)
        done = 0
        while done < len(rows):
            if together:
                _, run, first, count = box.add_rows("t", 1, FIELDS, rows, done, 0)
                places = [row for _, piece in run.pieces for row in piece]
                assert places[first : first + count] == rows[done : done + count]
                assert count > 0
                done += count
            else:
                box.add("t", 1, FIELDS, rows[done], size_bound("t", rows[done]), 0)
                done += 1
        box.flushes = 1
        found = []
        while (batch := box.next_batch(0)) is not None:
            bodies = [(q, [r[0] for _, p in run.pieces for r in p]) for (_, q), run in
                      batch.runs.items()]  # fmt: skip
            assert all(run for _, run in bodies)
            found.append(bodies)
        pending = box.pending_bytes
        assert pending == sum(size_bound("t", row) for row in rows) + before * size_bound(
            "t", (b"before", b"")
        )
        return found

    assert batches(True) == batches(False)


def test_a_row_that_no_batch_can_carry_is_refused_and_adds_nothing():
    box = outbox()
    box.limit(batch_bytes=1000, batch_messages=10)
    rows = [(b"fits", b""), (bytes(2000), b"")]
    *_, count = box.add_rows("t", 0, FIELDS, rows, 0, 0)
    assert count == 1
    with pytest.raises(InvalidRequestError, match="row 1"):
        box.add_rows("t", 0, FIELDS, rows, 1, 0)
    assert box.next_batch(0).count == 1
    assert box.next_batch(0) is None


def single_sends(**changes) -> Outbox:
    return retrying(single_sends=True, unreached_ns=0, **changes)


def test_rows_that_are_stored_together_or_not_at_all_are_a_batch_of_their_own():
    box = single_sends(window=3)
    box.flushes = 1
    add(box, b"before", queue_id=0)
    rows = [(b"%d" % number, b"") for number in range(3)]
    batch, run, first = box.add_whole("t", 0, FIELDS, rows, 300, 0)
    add(box, b"after", queue_id=0)
    assert (run.count, first, batch.size) == (3, 0, 300)
    sent = [box.next_batch(0) for _ in range(3)]
    assert sent[1] is batch
    heads = [APPEND_STREAM_REQUEST.decode(request_of(one, SHAPE))[0] for one in sent]
    partial = [head.partial for head in heads]
    assert partial == [True, False, True]


def test_a_log_that_stops_fails_all_single_sends_at_once():
    box = single_sends()
    add(box), add(box)
    batch = box.next_batch(0)
    error = UnavailableError("stops")
    outcome = BatchOutcome(SendStatus.SERVICE_NOT_AVAILABLE, error=error)
    assert box.acknowledge(batch.sequence, outcome, 0) is batch
    assert batch.error() is error


def test_a_single_send_is_given_up_without_a_stream_and_sent_again_after_a_lost_answer():
    box = single_sends()
    add(box)
    lost = box.next_batch(0)
    assert not box.lost(DELIVERY_NS)  # the time begins with the answer that was lost
    add(box, now=DELIVERY_NS)
    (given_up,) = box.take_overdue(DELIVERY_NS, False)
    assert given_up is not lost and not given_up.unanswered
    assert box.take_overdue(2 * DELIVERY_NS - 1, False) == []
    assert box.take_overdue(2 * DELIVERY_NS, False) == [lost]


def test_the_log_tells_the_queue_of_what_names_none():
    box = single_sends()
    _, run, index = add(box)
    add(box, queue_id=3)
    batch = box.next_batch(0)
    batch.encode(SHAPE)
    assert [key[1] for key in batch.runs] == [-1, 3]
    outcome = BatchOutcome(SendStatus.PUT_OK, 1000, (7, 8), 42, queue_ids=(2, 3))
    box.acknowledge(batch.sequence, outcome, 0)
    assert batch.result_of(run, index).queue_id == 2
    assert batch.places_of(run, index, 1).queue_id == 2
    parts = (BatchPart(1000, tuple(batch.lengths), (7, 8), 42, (1, 3)),)
    batch.settle(BatchOutcome(SendStatus.PUT_OK, 1000, (7, 8), 42, parts=parts))
    assert [one.queue_id for one in batch.results()] == [1, 3]


class CountedPieces(list):
    looks = 0

    def __getitem__(self, number):
        self.looks += 1
        return super().__getitem__(number)

    def __iter__(self):
        for one in super().__iter__():
            self.looks += 1
            yield one


def test_what_each_message_is_costs_one_look_although_each_has_a_time_of_its_own():
    run = BatchRun("t", 0, 0)
    for number in range(1000):
        run.add((0, 0, number // 2, 0), (b"", b"%d" % number))
    run.pieces = CountedPieces(run.pieces)
    assert [run.properties(number) for number in range(1000)] == [b"%d" % n for n in range(1000)]
    assert run.pieces.looks == 1000
    with pytest.raises(IndexError):
        run.properties(1000)
