"""The log sorted by queue: every message once, in its order, within the limits."""

import numpy as np
import pytest

from stratamq.formats.dispatch import dispatch_columns, scan_lengths
from stratamq.formats.frame import encode
from stratamq.formats.tier_records import physical_offset_of
from stratamq.tier.writing.intake import Intake, IntakeLimits, goes_into_tier


def log_of(messages: list[tuple[str, int, int, int]], base: int = 0) -> bytes:
    """(topic, queue, queue offset, bytes of the body) → frames as the log has them."""
    data = b""
    for topic, queue_id, offset, size in messages:
        data += encode(
            topic=topic.encode(),
            body=bytes(size),
            born_host=bytes(8),
            store_host=bytes(8),
            queue_id=queue_id,
            queue_offset=offset,
            physical_offset=base + len(data),
            store_timestamp_ms=1_000 + offset,
        )
    return data


def put(intake: Intake, data: bytes, base: int = 0, now_ms: int = 0) -> None:
    lengths = scan_lengths(data, base, base + len(data))
    intake.add(data, base, dispatch_columns(data, base, lengths), now_ms)


def test_messages_of_many_queues_come_out_by_queue_in_their_order():
    messages = [("t", number % 3, number // 3, number) for number in range(60)]
    intake = Intake(IntakeLimits(batch_messages=7))
    put(intake, log_of(messages))
    seen: dict[tuple[str, int], list[int]] = {}
    for due in intake.due(0, everything=True):
        key, batch = due.key, due.batch
        assert len(batch.sizes) <= 7
        offsets = seen.setdefault(key, [])
        offsets += range(batch.first, batch.end)
        assert batch.times.tolist() == [1_000 + offset for offset in range(batch.first, batch.end)]
    assert seen == {("t", queue): list(range(20)) for queue in range(3)}
    assert intake.bytes == 0


def test_a_batch_has_the_records_as_the_log_has_them():
    data = log_of([("t", 0, 5, 10), ("u", 0, 0, 3), ("t", 0, 6, 20)], base=700)
    intake = Intake(IntakeLimits())
    put(intake, data, 700)
    batches = {due.key: due.batch for due in intake.due(0, everything=True)}
    batch = batches["t", 0]
    assert (batch.first, batch.end) == (5, 7)
    starts = np.cumsum(batch.sizes) - batch.sizes
    places = [physical_offset_of(batch.records[start:]) for start in starts.tolist()]
    assert [data[place - 700 : place - 700 + 20] for place in places] == [
        batch.records[start : start + 20] for start in starts.tolist()
    ]


def test_a_jump_of_queue_offsets_ends_a_batch():
    intake = Intake(IntakeLimits())
    put(intake, log_of([("t", 0, 5, 1), ("t", 0, 9, 1)]))
    assert [
        (batch.first, batch.end) for batch in (due.batch for due in intake.due(0, everything=True))
    ] == [
        (5, 6),
        (9, 10),
    ]


def test_a_message_larger_than_a_batch_goes_alone():
    intake = Intake(IntakeLimits(batch_bytes=1_000))
    put(intake, log_of([("t", 0, 0, 10), ("t", 0, 1, 5_000), ("t", 0, 2, 10)]))
    assert [
        len(batch.sizes) for batch in (due.batch for due in intake.due(0, everything=True))
    ] == [1, 1, 1]


def test_a_batch_is_due_after_it_has_waited_and_not_before():
    intake = Intake(IntakeLimits(wait_ms=30_000))
    put(intake, log_of([("t", 0, 0, 1)]), now_ms=50_000)
    put(intake, log_of([("t", 0, 1, 1)], 900), 900, now_ms=60_000)
    assert list(intake.due(79_999)) == []
    (due,) = intake.due(80_000)
    batch = due.batch
    assert (batch.first, batch.end) == (0, 2)


def test_nothing_below_the_oldest_place_waits_whatever_order_queues_come_in():
    # Queues come in another order in the log than by their numbers, and the first is full at once.
    messages = [("t", queue, offset, 10) for offset in range(9) for queue in (3, 2, 0, 1)]
    intake = Intake(IntakeLimits(batch_messages=7, wait_ms=10))
    data = log_of(messages, 500)
    put(intake, data, 500)
    places = {}
    lengths = scan_lengths(data, 500, 500 + len(data)).tolist()
    for (_, queue, offset, _), length in zip(messages, lengths, strict=True):
        places[queue, offset] = 500 + length * len(places)
    waiting = {(queue, offset) for _, queue, offset, _ in messages}
    for now_ms in (0, 10):
        for due in intake.due(now_ms):
            waiting -= {(due.key[1], at) for at in range(due.batch.first, due.batch.end)}
        assert intake.oldest_place == min((places[one] for one in waiting), default=None)
    assert not waiting


def test_the_largest_go_first_when_all_together_are_above_the_budget():
    intake = Intake(IntakeLimits(budget_bytes=10_000))
    for queue, size in ((0, 2_000), (1, 6_000), (2, 3_000)):
        put(intake, log_of([("t", queue, 0, size)]))
    keys = [due.key for due in intake.due(0)]
    assert keys == [("t", 1), ("t", 2)]
    assert intake.bytes < 10_000


@pytest.mark.parametrize(
    ("topic", "goes"),
    [
        ("orders", True),
        ("%RETRY%g", True),
        ("%DLQ%g", True),
        ("SCHEDULE_TOPIC_XXXX", False),
        ("RMQ_SYS_TRANS_HALF_TOPIC", False),
        ("rmq_sys_anything", False),
        ("rmq_sys_REVIVE_LOG_c", False),
        ("%LMQ%q", False),
        ("", False),
    ],
)
def test_the_brokers_own_topics_stay_out(topic, goes):
    assert goes_into_tier(topic) is goes


def test_topics_are_left_out_and_named_where_no_path_can_have_their_names():
    names = ("stratamq-x", "stratamq-writer.json", "a/b", "..", "%RETRY%x", "x" * 127)
    intake = Intake(IntakeLimits())
    put(intake, log_of([(name, 0, 0, 10) for name in names]))
    taken = {due.key[0] for due in intake.due(0, everything=True)}
    assert taken == {"stratamq-x", "%RETRY%x", "x" * 127}
    assert intake.unnamable == {"stratamq-writer.json", "a/b", ".."}
