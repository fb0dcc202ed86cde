"""A request's id: made where it is needed, passed on, and never a foreign text."""

import threading

import pytest

from stratamq.rpc.request_ids import (
    KEY,
    CallableWithRequestId,
    Request,
    current,
    one_request,
    part,
    valid,
    within,
)

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ID = "4bf92f3577b34da6a3ce929d0e0e4736"


class Incoming:
    """The context of a call that came in with this metadata."""

    def __init__(self, *metadata) -> None:
        self.metadata = metadata
        self.looks = 0

    def invocation_metadata(self):
        self.looks += 1
        return self.metadata


def shown(request=None, metadata=()) -> dict[str, str]:
    """What a call within `request` shows."""
    seen = {}

    def method(asked, timeout=None, metadata=()):
        seen.update(metadata)
        return asked

    call = CallableWithRequestId(method, metadata)
    if request is None:
        assert call("asked", timeout=60) == "asked"
    else:
        with within(request):
            assert call("asked", timeout=60) == "asked"
    return seen


def test_a_call_outside_of_a_request_shows_none():
    assert shown() == {}
    assert shown(metadata=(("authorization", "t"),)) == {"authorization": "t"}


def test_a_call_within_a_request_passes_its_id_on_beside_the_token():
    request = Request(Incoming(("user-agent", "x"), (KEY, GIVEN)))
    assert shown(request, (("authorization", "t"),)) == {"authorization": "t", KEY: GIVEN}
    assert request.id == ID and request.recorded_by_caller()


def test_what_came_in_is_looked_at_once_and_only_when_it_is_needed():
    incoming = Incoming((KEY, GIVEN))
    request = Request(incoming)
    assert incoming.looks == 0
    assert request.id == request.id == ID
    assert incoming.looks == 1


def test_a_request_without_an_id_gets_one_and_keeps_it():
    first, second = Request(Incoming()), Request()
    assert first.id == first.id != second.id
    assert valid(first.traceparent) and not first.recorded_by_caller()


@pytest.mark.parametrize(
    "foreign",
    [
        "",
        "4bf92f3577b34da6a3ce929d0e0e4736",
        GIVEN.upper(),
        GIVEN + "0",
        GIVEN + "\n",
        "\n" + GIVEN,
        GIVEN.replace("00-", "ff-", 1),
        GIVEN.replace(ID, "0" * 32),
        GIVEN.replace("00f067aa0ba902b7", "0" * 16),
        "00-" + "x" * 32 + "-00f067aa0ba902b7-01",
        "a" * 8_000,
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        GIVEN.replace("4", "\N{ARABIC-INDIC DIGIT FOUR}"),
    ],
)
def test_what_is_no_trace_context_counts_as_not_sent(foreign):
    request = Request(Incoming((KEY, foreign)))
    assert valid(request.traceparent) and request.id != ID
    assert valid(foreign) == ""


def test_a_request_begun_within_another_is_the_same():
    assert current() is None
    with one_request() as outer, one_request() as inner:
        assert inner is outer is current()
    assert current() is None


def test_threads_of_a_reader_work_for_the_request_that_made_them():
    from stratamq.client.primitives import Background

    found = []
    with one_request() as request:
        worker = Background("test", lambda: found.append(current()))
    worker.start()
    assert worker.join(60) and found == [request]


def test_a_new_thread_works_for_no_request():
    found = []
    with one_request():
        thread = threading.Thread(target=lambda: found.append(current()))
        thread.start()
        thread.join()
    assert found == [None]


def test_a_part_of_a_request_that_is_not_recorded_costs_no_object():
    first = part("read", topic="t")
    with one_request():
        assert part("read") is first
