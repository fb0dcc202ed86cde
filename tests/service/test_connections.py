"""A listener's connections, found among the process's descriptors: closed, counted, kept out."""

import os
import socket

import pytest

from stratamq.service.connection_filter import keep_out
from stratamq.service.connections import AT_ONCE, Closing, KeepingOut, Received
from stratamq.service.unheard import Sent
from tests.support.waiting import until

NEVER = 1 << 32
"""One in so many: a test that runs once a second fails once in a century."""


@pytest.mark.parametrize("before", [0, AT_ONCE], ids=["a low descriptor", "one of many"])
def test_one_connection_is_closed_and_the_others_of_the_process_are_not(before):
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(before)]
    try:
        one_connection_is_closed()
    finally:
        for descriptor in taken:
            os.close(descriptor)


def one_connection_is_closed() -> None:
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


def name_of(connection: socket.socket) -> str:
    host, port = connection.getsockname()[:2]
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def looked_at(looks: Received) -> dict[str, Sent]:
    looks.begin()
    while (found := looks.go_on()) is None:
        pass
    return found


def received(looks: Received) -> dict[str, int]:
    return {peer: sent.bytes for peer, sent in looked_at(looks).items()}


@pytest.mark.parametrize("before", [0, AT_ONCE], ids=["few descriptors", "many"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_what_connections_of_a_port_have_sent_is_counted_whether_it_was_read_or_not(host, before):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(before)]
    with (
        socket.create_server((host, 0), family=family) as listener,
        socket.create_server((host, 0), family=family) as another,
        socket.create_connection(listener.getsockname()[:2]) as first,
        socket.create_connection(listener.getsockname()[:2]) as second,
        socket.create_connection(another.getsockname()[:2]) as third,
    ):
        accepted = [listener.accept()[0], listener.accept()[0], another.accept()[0]]
        looks = Received(listener.getsockname()[1])
        assert received(looks) == {name_of(first): 0, name_of(second): 0}
        first.sendall(b"x" * 100)
        third.sendall(b"x")
        expected = {name_of(first): 100, name_of(second): 0}
        until(lambda: received(looks) == expected, "what was sent is there")
        assert accepted[0].recv(100)
        assert received(looks) == expected
        ms = 1_000_000
        until(lambda: looked_at(looks)[name_of(second)].silent_ns >= 50 * ms, "it says nothing")
        first.sendall(b"x")
        until(lambda: received(looks)[name_of(first)] == 101, "it is there")
        sent = looked_at(looks)
        assert sent[name_of(first)].silent_ns < sent[name_of(second)].silent_ns
        for each in accepted:
            each.close()
    for descriptor in taken:
        os.close(descriptor)


def connecting(address: tuple[str, int], source: str) -> socket.socket:
    connection = socket.socket(socket.AF_INET6 if ":" in source else socket.AF_INET)
    connection.bind((source, 0))
    connection.setblocking(False)
    connection.connect_ex(address)
    return connection


def is_in(connection: socket.socket) -> bool:
    established, state = 1, connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return state == bytes([established])


def test_new_connections_of_a_host_that_is_kept_out_are_dropped_and_nothing_else():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        keeping_out = KeepingOut(address[1])
        keeping_out({"ipv4:127.0.0.4": NEVER})
        with connecting(address, "127.0.0.2") as before:
            until(lambda: is_in(before), "it is let in")
            far, _ = listener.accept()
            keeping_out({"ipv4:127.0.0.2": NEVER, "ipv4:127.0.0.3": 1})
            with (
                connecting(address, "127.0.0.2") as dropped,
                connecting(address, "127.0.0.3") as by_chance,
                connecting(address, "127.0.0.4") as another,
            ):
                until(lambda: is_in(by_chance) and is_in(another), "others are let in")
                assert not is_in(dropped)
                before.sendall(b"x")
                assert far.recv(1) == b"x", "what was open stays"
                keeping_out({})
                until(lambda: is_in(dropped), "its kernel asks again, and it is let in")
            far.close()


def test_a_connection_that_has_the_filter_gets_what_a_host_sends_that_is_kept_out():
    """It inherits it from its listener."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        connecting(listener.getsockname(), "127.0.0.2") as near,
    ):
        far, _ = listener.accept()
        keep_out(far, {"127.0.0.2": NEVER})
        until(lambda: is_in(near), "it is open")
        near.sendall(b"x")
        far.settimeout(20)
        assert far.recv(1) == b"x"
        near.shutdown(socket.SHUT_WR)
        assert far.recv(1) == b""
        far.close()


def test_of_ipv6_a_network_is_kept_out_and_ipv4_is_told_apart():
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        port = listener.getsockname()[1]
        keeping_out = KeepingOut(port)
        keeping_out({"ipv6:%5B::2%5D": NEVER, "ipv4:127.0.0.2": NEVER})
        with (
            connecting(("::1", port), "::1") as six,
            connecting(("127.0.0.1", port), "127.0.0.2") as four,
            connecting(("127.0.0.1", port), "127.0.0.3") as another,
        ):
            until(lambda: is_in(another), "another host is let in")
            assert not is_in(six)
            assert not is_in(four)
            keeping_out({"ipv6:%5B2001:db8::1%5D": NEVER, "ipv6:%5B0:0:0:1::1%5D": NEVER})
            until(lambda: is_in(six) and is_in(four), "they are let in")


def test_other_listeners_of_the_process_let_everybody_in():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_server(("127.0.0.1", 0)) as another,
    ):
        KeepingOut(listener.getsockname()[1])({"ipv4:127.0.0.1": NEVER})
        with connecting(another.getsockname(), "127.0.0.1") as connection:
            until(lambda: is_in(connection), "it is let in")
