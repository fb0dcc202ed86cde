"""Connections that send and never call as somebody, and those that only look like it."""

import pytest

from stratamq.service.unheard import (
    ARRIVING_NS,
    BYTES_PER_S,
    CALL_BYTES,
    COMING_BYTES,
    ENDED_NS,
    FREE_BYTES,
    IDLE_NS,
    LEAST_OVER_NS,
    LOOKS,
    MOST_FORGOTTEN,
    MOST_IDLE,
    Sent,
    Unheard,
)

SECOND_NS = 1_000_000_000
A, B = "ipv4:10.0.0.1:1", "ipv4:10.0.0.1:2"


class Looks:
    def __init__(self) -> None:
        self.now_ns = 0
        self.unheard = Unheard(lambda: self.now_ns)

    def look(
        self, received: dict[str, int], after_ns: int = LEAST_OVER_NS, silent_ns: int = 0
    ) -> list[str]:
        """`received`: bytes."""
        self.now_ns += after_ns
        self.unheard.begin()
        return self.unheard.look({peer: Sent(sent, silent_ns) for peer, sent in received.items()})


@pytest.fixture
def looks():
    return Looks()


def test_a_connection_that_has_sent_too_much_for_a_while_is_one_too_many_once(looks):
    assert looks.look({A: 2 * FREE_BYTES, B: FREE_BYTES}) == []
    for _ in range(LOOKS):
        assert looks.look({A: 2 * FREE_BYTES, B: FREE_BYTES}, (LEAST_OVER_NS - 1) // LOOKS) == []
    assert looks.look({A: 2 * FREE_BYTES, B: FREE_BYTES}, LOOKS) == [A]
    assert looks.look({A: 4 * FREE_BYTES, B: FREE_BYTES}) == []
    assert looks.look({A: 4 * FREE_BYTES, B: FREE_BYTES}) == []
    assert looks.look({B: FREE_BYTES}) == []
    assert looks.look({A: 2 * FREE_BYTES, B: FREE_BYTES}) == []
    assert looks.look({B: FREE_BYTES}) == [A], "the port was another connection's"


def test_a_process_that_was_paused_closes_no_connection_before_it_has_seen_the_calls(looks):
    """The look is one of the first things that it does; the calls that came meanwhile are next."""
    assert looks.look({A: 2 * FREE_BYTES}) == []
    assert looks.look({A: 2 * FREE_BYTES}, 60 * SECOND_NS) == []
    looks.unheard.known(A)
    for _ in range(2 * LOOKS):
        assert looks.look({A: 1 << 30}) == []


def test_a_connection_on_the_port_of_one_that_is_gone_has_sent_nothing_of_what_that_one_had(looks):
    for _ in range(LOOKS - 1):
        assert looks.look({A: 3 * FREE_BYTES}) == []
    for _ in range(LOOKS - 1):
        assert looks.look({A: 2 * FREE_BYTES}) == []
    looks.unheard.known(A)
    assert looks.look({A: 3 * FREE_BYTES}) == []


def test_a_connection_from_the_port_of_one_that_was_closed_is_closed_again(looks):
    for _ in range(LOOKS - 1):
        assert looks.look({A: 2 * FREE_BYTES}) == []
    assert looks.look({A: 2 * FREE_BYTES}) == [A]
    assert looks.look({A: 3 * FREE_BYTES}, ENDED_NS - 1) == [], "it may be there a moment longer"
    for _ in range(LOOKS - 1):
        assert looks.look({A: 3 * FREE_BYTES}) == []
    assert looks.look({A: 3 * FREE_BYTES}) == [A]


def test_a_connection_that_had_sent_too_much_and_is_gone_is_one_too_many(looks):
    assert looks.look({A: 2 * FREE_BYTES, B: FREE_BYTES // 2}, 0) == []
    assert looks.look({}, 0) == [A]
    assert looks.look({}) == []


def test_an_authenticated_client_may_send_what_it_likes(looks):
    looks.unheard.known(A)
    for _ in range(3):
        assert looks.look({A: 1 << 40}) == []


def test_a_client_that_authenticates_between_two_looks_may_too_and_when_it_is_gone(looks):
    assert looks.look({A: 1 << 20, B: 1 << 20}) == []
    looks.unheard.known(A)
    looks.unheard.known(B)
    assert looks.look({A: 1 << 30}) == []


def test_a_client_that_is_refused_may_have_sent_the_request(looks):
    looks.unheard.refused(A)
    looks.unheard.refused(A)
    for _ in range(3):
        assert looks.look({A: FREE_BYTES + 2 * CALL_BYTES}, 0) == []
    assert looks.look({A: FREE_BYTES + 3 * CALL_BYTES}, 0) == []
    looks.unheard.refused(A)
    assert looks.look({A: FREE_BYTES + 3 * CALL_BYTES}) == []
    assert looks.look({A: FREE_BYTES + 3 * CALL_BYTES}) == []


def test_a_client_that_sends_little_for_ever_may(looks):
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
    for _ in range(LOOKS - 1):
        assert looks.look({peer: 2 * FREE_BYTES}) == []
    assert looks.look({peer: 2 * FREE_BYTES}) == [peer]


def come_and_go(looks: Looks, host: str, port: int, sent: int = 0) -> list[str]:
    peer = f"{host}:{port}"
    return looks.look({peer: sent}, 0) + looks.look({}, 0)


def test_connections_that_come_and_go_are_one_too_many_for_their_host(looks):
    fit = FREE_BYTES // COMING_BYTES
    for port in range(fit):
        assert come_and_go(looks, "ipv4:10.0.0.1", port) == []
        assert come_and_go(looks, "ipv4:10.0.0.2", port) == []
    assert come_and_go(looks, "ipv4:10.0.0.1", fit) == [f"ipv4:10.0.0.1:{fit}"]
    assert come_and_go(looks, "ipv4:10.0.0.1", fit + 1) == []
    looks.now_ns += SECOND_NS
    for port in range(fit):
        assert come_and_go(looks, "ipv4:10.0.0.2", port) == []


def test_what_they_sent_counts_too(looks):
    sent = FREE_BYTES // 2
    assert come_and_go(looks, "ipv4:10.0.0.1", 1, sent) == []
    assert come_and_go(looks, "ipv4:10.0.0.1", 2, sent) == ["ipv4:10.0.0.1:2"]


def test_connections_that_were_authenticated_or_refused_may_come_and_go(looks):
    for port in range(3 * FREE_BYTES // COMING_BYTES):
        peer = f"ipv4:10.0.0.1:{port}"
        looks.unheard.known(peer) if port % 2 else looks.unheard.refused(peer)
        assert come_and_go(looks, "ipv4:10.0.0.1", port, FREE_BYTES) == []


def test_one_that_was_there_for_long_may_have_sent_as_much_as_it_may(looks):
    seconds = 2 * FREE_BYTES // BYTES_PER_S
    assert looks.look({A: 0}) == []
    assert looks.look({A: BYTES_PER_S * seconds}, SECOND_NS * seconds) == []
    assert looks.look({}) == []


def test_connections_that_are_seen_to_be_silent_for_so_long_are_a_crowd_at_once(looks):
    crowd = {f"ipv4:10.0.0.1:{port}": 0 for port in range(MOST_IDLE + 1)}
    looks.look(crowd, silent_ns=IDLE_NS - 1)
    assert looks.unheard.crowds() == []
    looks = Looks()
    looks.look(crowd, silent_ns=IDLE_NS)
    assert looks.unheard.crowds() == ["ipv4:10.0.0.1"]


def test_many_connections_of_a_host_that_call_nothing_are_a_crowd_after_a_while(looks):
    crowd = {f"ipv4:10.0.0.1:{port}": 0 for port in range(MOST_IDLE + 1)}
    others = {f"ipv4:10.0.0.2:{port}": 0 for port in range(MOST_IDLE)}
    known = {f"ipv4:10.0.0.3:{port}": 0 for port in range(MOST_IDLE + 1)}
    for peer in known:
        looks.unheard.known(peer)
    everybody = crowd | others | known
    looks.look(everybody)
    looks.look(everybody, IDLE_NS - 1)
    assert looks.unheard.crowds() == []
    looks.look(everybody, 1)
    assert looks.unheard.crowds() == ["ipv4:10.0.0.1"]
    looks.look(others | known)
    assert looks.unheard.crowds() == []


def test_many_clients_of_a_host_that_connect_again_at_once_are_no_crowd_while_they_arrive(looks):
    """Handshakes of a thousand take seconds."""
    waiting = [f"ipv4:10.0.0.1:{port}" for port in range(2 * MOST_IDLE)]
    everybody = dict.fromkeys(waiting, 500)
    looks.look(everybody)
    while len(waiting) > MOST_IDLE + 1:
        looks.unheard.known(waiting.pop())
        looks.look(everybody, ARRIVING_NS - 1)
        assert looks.unheard.crowds() == []
    looks.look(everybody, 1)
    assert looks.unheard.crowds() == ["ipv4:10.0.0.1"], "no other connection arrives"
    looks.unheard.known("ipv4:10.0.0.2:1")
    looks.look(everybody)
    assert looks.unheard.crowds() == ["ipv4:10.0.0.1"], "nor of another host"
    looks.unheard.known(next(iter(set(everybody) - set(waiting))))
    looks.look(everybody)
    assert looks.unheard.crowds() == ["ipv4:10.0.0.1"], "who was known has not arrived"
