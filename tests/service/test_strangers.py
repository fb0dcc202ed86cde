"""Whoever calls again and again without an identity loses the connection, and nobody else does."""

import socket

from stratamq.service.strangers import (
    AGAIN_REFUSALS,
    MOST_REFUSALS,
    REMEMBERED_NS,
    Closing,
    Strangers,
)
from tests.support.waiting import until

SECOND_NS = 1_000_000_000


class Time:
    now_ns = 7 * SECOND_NS

    def __call__(self) -> int:
        return self.now_ns


def test_a_connection_is_closed_at_so_many_refusals_in_a_second_and_once():
    time, closed = Time(), []
    strangers = Strangers(closed.append, time)
    for _ in range(10):
        assert not any(strangers.refused("ipv4:10.0.0.1:5") for _ in range(MOST_REFUSALS - 1))
        time.now_ns += SECOND_NS
    assert closed == []
    for _ in range(2 * MOST_REFUSALS):
        strangers.refused("ipv4:10.0.0.1:5")
        strangers.refused("ipv4:10.0.0.2:5") if len(closed) == 0 else None
    assert closed == ["ipv4:10.0.0.1:5"]


def test_the_next_connections_of_its_host_are_closed_sooner_for_a_while():
    time, closed = Time(), []
    strangers = Strangers(closed.append, time)
    for _ in range(MOST_REFUSALS):
        strangers.refused("ipv6:%5B2001:db8::1%5D:5")
    for _ in range(AGAIN_REFUSALS):
        strangers.refused("ipv6:%5B2001:db8::1%5D:6")
        strangers.refused("ipv6:%5B2001:db8::2%5D:6")
    assert closed == ["ipv6:%5B2001:db8::1%5D:5", "ipv6:%5B2001:db8::1%5D:6"]
    time.now_ns += REMEMBERED_NS
    for _ in range(AGAIN_REFUSALS):
        strangers.refused("ipv6:%5B2001:db8::1%5D:7")
    assert len(closed) == 2


def test_one_connection_is_closed_and_the_others_of_the_process_are_not():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        ends = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        accepted = [listener.accept()[0] for _ in ends]
        name = "ipv4:{}:{}".format(*ends[1].getsockname())
        Closing(port + 1 if port < 65_535 else port - 1)(name)  # another listener's
        Closing(port)("unix:")
        Closing(port)(name)
        ends[1].settimeout(60)
        assert ends[1].recv(1) == b""
        for near, far in ((ends[0], accepted[0]), (ends[2], accepted[2])):
            far.sendall(b"x")
            assert near.recv(1) == b"x"
        for each in (*ends, *accepted):
            each.close()


def test_a_connection_over_ipv6_that_is_one_of_ipv4_is_found():
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as end:
            far, _ = listener.accept()
            Closing(port)(f"ipv4:127.0.0.1:{end.getsockname()[1]}")
            end.settimeout(60)
            assert until(lambda: end.recv(1) == b"", "it is closed")
            far.close()
