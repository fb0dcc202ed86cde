"""Connections that send and never call as somebody, and those that only look like it."""

import pytest

from stratamq.service.unheard import (
    BYTES_PER_S,
    CALL_BYTES,
    FREE_BYTES,
    MOST_FORGOTTEN,
    PATIENCE_NS,
    Unheard,
)

SECOND_NS = 1_000_000_000
A, B = "ipv4:10.0.0.1:1", "ipv4:10.0.0.1:2"


class Looks:
    def __init__(self) -> None:
        self.now_ns = 0
        self.unheard = Unheard(lambda: self.now_ns)

    def look(self, received: dict[str, int], after_ns: int = PATIENCE_NS) -> list[str]:
        self.now_ns += after_ns
        self.unheard.begin()
        return self.unheard.look(received)


@pytest.fixture
def looks():
    return Looks()


def test_who_has_sent_too_much_for_a_while_is_one_too_many_once(looks):
    assert looks.look({A: 2 * FREE_BYTES, B: FREE_BYTES}) == []
    assert looks.look({A: 2 * FREE_BYTES, B: FREE_BYTES}, PATIENCE_NS - 1) == []
    assert looks.look({A: 2 * FREE_BYTES, B: FREE_BYTES}, 1) == [A]


def test_who_had_sent_too_much_and_is_gone_is_one_too_many(looks):
    assert looks.look({A: 2 * FREE_BYTES, B: FREE_BYTES}, 0) == []
    assert looks.look({}, 0) == [A]
    assert looks.look({}) == []


def test_who_calls_as_somebody_may_send_what_it_likes(looks):
    looks.unheard.known(A)
    for _ in range(3):
        assert looks.look({A: 1 << 40}) == []


def test_who_becomes_known_between_two_looks_may_too_and_when_it_is_gone(looks):
    assert looks.look({A: 1 << 20, B: 1 << 20}) == []
    looks.unheard.known(A)
    looks.unheard.known(B)
    assert looks.look({A: 1 << 30}) == []


def test_who_is_refused_may_have_sent_the_request(looks):
    looks.unheard.refused(A)
    looks.unheard.refused(A)
    for _ in range(3):
        assert looks.look({A: FREE_BYTES + 2 * CALL_BYTES}, 0) == []
    assert looks.look({A: FREE_BYTES + 3 * CALL_BYTES}, 0) == []
    looks.unheard.refused(A)
    assert looks.look({A: FREE_BYTES + 3 * CALL_BYTES}) == []
    assert looks.look({A: FREE_BYTES + 3 * CALL_BYTES}) == []


def test_who_sends_little_for_ever_may(looks):
    for second in range(100):
        assert looks.look({A: FREE_BYTES + BYTES_PER_S * second}, SECOND_NS if second else 0) == []


def test_a_connection_that_came_during_a_look_is_known_after_it(looks):
    """It is not among those that were looked through."""
    looks.unheard.begin()
    looks.unheard.known(A)
    assert looks.unheard.look({}) == []
    assert looks.look({A: 1 << 20}) == []
    assert looks.look({A: 1 << 20}) == []


def test_connections_that_are_gone_are_forgotten(looks):
    for number in range(MOST_FORGOTTEN):
        looks.unheard.known(f"ipv4:10.0.0.2:{number}")
    assert not looks.unheard.wants_look
    looks.unheard.refused(A)
    assert looks.unheard.wants_look
    assert looks.look({B: 0}) == []
    assert not looks.unheard.wants_look
    peer = "ipv4:10.0.0.2:1"  # another connection's, by now
    assert looks.look({peer: 2 * FREE_BYTES}) == []
    assert looks.look({peer: 2 * FREE_BYTES}) == [peer]
