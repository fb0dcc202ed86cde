"""Which rows match: each bound is inclusive or exclusive as named, alone and combined."""

import numpy as np
import pytest

from stratamq.formats.columns import columns_at
from stratamq.formats.frame import encode
from stratamq.table.selection import Covered, Selection

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
START_MS = 1_700_000_000_000


def log_of(count: int) -> tuple[np.ndarray, object]:
    """Frames one behind the other: topic by turns, queue id and offset, a millisecond each."""
    parts, starts, position = [], [], 0
    for number in range(count):
        frame = encode(
            topic=b"orders" if number % 2 else b"flights",
            body=b"x" * (number % 5),
            born_host=HOST,
            store_host=HOST,
            queue_id=number // 2 % 2,
            queue_offset=number // 4,
            physical_offset=position,
            store_timestamp_ms=START_MS + number,
            sys_flag=(0, 0, 0, 4, 8, 12)[number % 6],
        )
        parts.append(frame)
        starts.append(position)
        position += len(frame)
    raw = np.frombuffer(b"".join(parts), np.uint8)
    lengths = np.array([len(part) for part in parts], np.int64)
    return raw, columns_at(raw, np.array(starts, np.int64), lengths)


RAW, FRAMES = log_of(48)
ALL = range(48)
IN_QUEUE = [number for number in ALL if number % 6 not in (3, 5)]


def chosen(**fields) -> list[int]:
    rows = Selection(**{"queued_only": False, **fields}).rows(RAW, FRAMES)
    return list(ALL) if rows is None else rows.tolist()


@pytest.mark.parametrize(("first", "end"), [(0, 48), (0, 1), (7, 8), (7, 7), (10, 30), (47, 48)])
def test_a_physical_range_ends_before_the_message_that_begins_at_its_end(first, end):
    offsets = [*FRAMES.physical_offset.tolist(), len(RAW)]
    assert chosen(physical=(offsets[first], offsets[end])) == list(range(first, end))
    if first < end:
        inner = range(first + 1, end)
        assert chosen(physical=(offsets[first] + 1, offsets[end])) == list(inner)
        assert chosen(physical=(offsets[first], offsets[end - 1] + 1)) == list(range(first, end))


@pytest.mark.parametrize(("begin", "end"), [(0, 12), (0, 1), (3, 4), (3, 3), (11, 99)])
def test_queue_offsets_end_before_the_end(begin, end):
    assert chosen(all_offsets=(begin, end)) == [n for n in ALL if begin <= n // 4 < end]


@pytest.mark.parametrize("at", [0, 1, 20, 47, 48])
def test_since_is_inclusive_and_until_is_not(at):
    assert chosen(since_ms=START_MS + at) == [n for n in ALL if n >= at]
    assert chosen(until_ms=START_MS + at) == [n for n in ALL if n < at]


def test_only_what_stands_in_a_queue_is_wanted_unless_that_was_switched_off():
    assert chosen(queued_only=True) == IN_QUEUE
    assert chosen() == list(ALL)


def of(number: int) -> tuple[str, int]:
    return "orders" if number % 2 else "flights", number // 2 % 2


def test_offsets_of_single_queues_take_nothing_else():
    spans = {("orders", 0): (2, 4), ("flights", 1): (0, 1)}
    expected = [n for n in IN_QUEUE if n // 4 in range(*spans.get(of(n), (0, 0)))]
    assert expected
    assert chosen(offsets=spans) == expected


def test_offsets_of_single_queues_may_leave_the_others_alone():
    """What is in no queue is not in the named one either."""
    left_out = [n for n in IN_QUEUE if of(n) == ("orders", 0) and n // 4 not in range(2, 4)]
    assert left_out
    found = chosen(offsets={("orders", 0): (2, 4)}, others_too=True)
    assert found == [n for n in ALL if n not in left_out]


def test_conditions_are_joined():
    expected = [n for n in IN_QUEUE if n % 2 and n // 2 % 2 == 1 and n >= 10]
    fields = {"topics": frozenset({"orders"}), "queues": frozenset({1})}
    assert chosen(queued_only=True, since_ms=START_MS + 10, **fields) == expected


def test_what_is_read_elsewhere_is_left_out_but_for_the_queues_next_life():
    begin, end, last = 1, 5, START_MS + 17
    elsewhere = {("orders", 1): Covered(begin, end, last), ("orders", 0): Covered(0, 0, last)}
    expected = [
        number
        for number in IN_QUEUE
        if not (of(number) == ("orders", 1) and begin <= number // 4 < end and number <= 17)
    ]
    assert chosen(elsewhere=elsewhere, queued_only=True) == expected
    assert set(IN_QUEUE) - set(expected)
    assert {number for number in expected if of(number) == ("orders", 1) and number // 4 == 4}


def test_offsets_of_thousands_of_queues_choose_what_each_queue_says():
    """The spans go round: nothing, what is there, what is not."""
    spans = {("orders", queue): (queue % 3, queue % 5 + 1) for queue in range(5_000)}
    for others_too in (False, True):
        expected = [
            n
            for n in IN_QUEUE
            if (of(n)[0] == "flights" and others_too)
            or (of(n)[0] == "orders" and n // 4 in range(*spans[of(n)]))
        ]
        assert expected
        found = chosen(offsets=spans, others_too=others_too, queued_only=True)
        assert found == expected
    assert Selection(offsets=spans).wants_topic("orders")
    assert not Selection(offsets=spans).wants_topic("flights")
