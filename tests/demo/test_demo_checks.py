"""The demo's comparisons are effective: each difference from what was sent is reported."""

import json

import pytest
from demo_checks import TOPIC, Ledger, ReadBack, compare_answer, unique_key
from demo_flights import busiest_aircraft, busiest_hour, read

from stratamq.client import ReceivedMessage, SendResult, SendStatus
from stratamq.formats.frame import encode
from stratamq.formats.hosts import Host, encode_host
from stratamq.formats.properties import encode_properties
from tests.demo.sample import write_archive


@pytest.fixture
def flights(tmp_path):
    return read(write_archive(tmp_path, 200))


def stored(flight, number, place, *, stamp=1000, **changes):
    fields = {"body": flight.body, "tag": flight.origin, "keys": flight.keys, "topic": TOPIC}
    fields |= changes
    properties = {
        "KEYS": " ".join(fields["keys"]),
        "TAGS": fields["tag"],
        "UNIQ_KEY": unique_key(number),
    }
    host = encode_host(Host("127.0.0.1", 1))
    frame = encode(
        topic=fields["topic"].encode(),
        body=fields["body"],
        properties=encode_properties(properties),
        queue_id=place[0],
        queue_offset=place[1],
        store_timestamp_ms=stamp,
        born_host=host,
        store_host=host,
    )
    return ReceivedMessage(frame)


def result(place):
    return SendResult(SendStatus.PUT_OK, TOPIC, place[0], place[1])


def sent_and_read(flights):
    """Every flight acknowledged in one queue and read back."""
    ledger, readback = Ledger(), ReadBack(flights)
    for number, flight in enumerate(flights):
        ledger.take(number, result((0, number)))
        readback.take(stored(flight, number, (0, number), stamp=1000 + number))
    return ledger, readback


def test_everything_as_sent_gives_no_fault(flights):
    ledger, readback = sent_and_read(flights)
    assert readback.compare(ledger) == []
    assert readback.duplicates == 0


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("body", {"body": b"{}"}),
        ("tag", {"tag": "SFO"}),
        ("keys", {"keys": ("N0", "XX0")}),
        ("topic", {"topic": "other"}),
    ],
)
def test_a_changed_field_is_named(flights, name, changed):
    readback = ReadBack(flights)
    readback.take(stored(flights[0], 0, (0, 0), **changed))
    assert name in readback.differences[0]


def test_a_message_of_another_producer_is_a_difference(flights):
    readback = ReadBack(flights)
    readback.take(stored(flights[0], len(flights), (0, 0)))
    assert "none of ours" in readback.differences[0]


def test_an_acknowledged_message_that_is_gone_is_a_fault(flights):
    ledger, readback = sent_and_read(flights)
    readback.take(stored(flights[7], 7, (1, 0)))
    del readback.numbers[0, len(flights) - 1]
    assert any("acknowledged and not there" in fault for fault in readback.compare(ledger))


def test_another_message_in_an_acknowledged_place_is_a_fault(flights):
    ledger, readback = sent_and_read(flights)
    readback.numbers[0, 3], readback.numbers[0, 4] = 4, 3
    assert any("another lies there" in fault for fault in readback.compare(ledger))


def test_a_duplicate_is_a_fault_unless_its_first_sending_was_not_answered(flights):
    ledger, readback = sent_and_read(flights)
    readback.take(stored(flights[7], 7, (1, 0)))
    assert readback.duplicates == 1
    assert any("stored twice" in fault for fault in readback.compare(ledger))
    ledger.unanswered.add(7)
    assert readback.compare(ledger) == []


def test_a_flight_that_nothing_is_left_of_is_a_fault(flights):
    readback = ReadBack(flights)
    readback.take(stored(flights[0], 0, (0, 0)))
    assert any("nothing is left" in fault for fault in readback.compare(Ledger()))


def test_a_gap_in_a_queue_is_a_fault(flights):
    ledger, readback = sent_and_read(flights)
    readback.take(stored(flights[7], 7, (1, 1)))
    ledger.unanswered.add(7)
    assert any("gap" in fault for fault in readback.compare(ledger))


def test_an_answer_must_hold_exactly_what_belongs_in_it(flights):
    expected = {(0, 0), (0, 1)}
    first, second = (stored(flights[n], n, (0, n)) for n in (0, 1))
    assert compare_answer([first, second], expected, flights) == (2, [])
    assert "not found" in compare_answer([first], expected, flights)[1][0]
    assert "twice" in compare_answer([first, second, second], expected, flights)[1][0]
    foreign = stored(flights[2], 2, (0, 2))
    assert "do not belong" in compare_answer([first, second, foreign], expected, flights)[1][0]


def test_flights_leave_in_order_and_know_aircraft_and_hour(flights):
    assert [flight.hour for flight in flights] == sorted(flight.hour for flight in flights)
    tail = busiest_aircraft(flights)
    assert sum(flight.tail_number == tail for flight in flights) > 1
    assert any(flight.hour == busiest_hour(flights) for flight in flights)
    without = [flight for flight in flights if not flight.tail_number]
    assert all(len(flight.keys) == 1 for flight in without)


def test_what_is_missing_becomes_null_and_numbers_stay_numbers(tmp_path):
    bodies = [json.loads(flight.body) for flight in read(write_archive(tmp_path, 500))]
    assert any(body["dep_time"] is None for body in bodies)
    assert all(isinstance(body["distance"], int) for body in bodies)


def test_a_limit_takes_the_first_flights(tmp_path):
    assert len(read(write_archive(tmp_path, 100), limit=30)) == 30
