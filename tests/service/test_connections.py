"""A listener's connections, found among the process's descriptors: closed, counted, kept out."""

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import threading
from types import SimpleNamespace

import pytest

from stratamq.service import connections
from stratamq.service.connection_filter import MOST_HOSTS, keep_out, program
from stratamq.service.connections import AT_ONCE, Closing, KeepingOut, Received
from stratamq.service.stranger_watch import KEPT_OUT, StrangerWatch
from stratamq.service.strangers import MOST_CLOSED, MOST_REFUSALS, ONE_IN
from stratamq.service.unheard import MOST_FORGOTTEN, Sent
from tests.support.kernel_filters import needs_filters
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
        Closing(port + 1 if port < 65_535 else port - 1)([name])  # another listener's
        Closing(port)(["unix:"])
        Closing(port)([name])
        ends[1].settimeout(60)
        assert ends[1].recv(1) == b""
        for near, far in ((ends[0], accepted[0]), (ends[2], accepted[2])):
            far.sendall(b"x")
            assert near.recv(1) == b"x"
        for each in (*ends, *accepted):
            each.close()


def test_many_connections_are_looked_for_once_and_by_a_thread_of_their_own(monkeypatch):
    """By the event loop, one after another, 300 took 600 ms."""
    looked: list[tuple[int, int]] = []

    def shut_down(wanted: set[connections.Ends], most: int | None = None) -> bool:
        looked.append((len(wanted), threading.get_ident()))
        return really(wanted, most)

    really = connections._shut_down
    monkeypatch.setattr(connections, "_shut_down", shut_down)
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        ends, names = [], []
        for _ in range(2 * AT_ONCE):
            ends.append(stack.enter_context(socket.create_connection(listener.getsockname())))
            stack.enter_context(listener.accept()[0])
            names.append(name_of(ends[-1]))
        Closing(listener.getsockname()[1])(names[:-1])
        for each in ends[:-1]:
            each.settimeout(60)
            assert each.recv(1) == b""
        ends[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            ends[-1].recv(1)
    ((count, thread),) = looked
    assert count == len(names) - 1
    assert thread != threading.get_ident()


@contextlib.contextmanager
def no_descriptor_left():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_look_without_a_descriptor_to_look_by_is_for_nothing(caplog):
    """What was not seen would count as gone, and as unauthenticated at the next look."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as end,
        listener.accept()[0],
    ):
        looks = Received(listener.getsockname()[1])
        looks.begin()
        close = Closing(listener.getsockname()[1])
        with no_descriptor_left():
            with pytest.raises(OSError, match="Too many open files"):
                looks.go_on()
            with pytest.raises(OSError, match="Too many open files"):
                looks.begin()
            close([name_of(end)])
        assert list(received(looks)) == [name_of(end)]
    assert "connections are not closed" in caplog.text


class Logged(logging.Handler):
    """Sets the event at its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.event = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == self._text:
            self.event.set()


def test_a_service_without_a_descriptor_to_look_by_continues(caplog):
    """An error in a callback of the event loop ends it."""
    errors: list[dict[str, object]] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        logged = Logged("connections are not looked at")
        logger = logging.getLogger("stratamq.service.stranger_watch")
        logger.addHandler(logged)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            access = SimpleNamespace()
            watch = StrangerWatch(access, listener.getsockname()[1], 0)
            for port in range(MOST_FORGOTTEN + 1):
                access.on_known(f"ipv4:10.0.0.1:{port}")  # it wants to look
            with no_descriptor_left():
                await asyncio.wait_for(logged.event.wait(), 60)
            watch.close()
        logger.removeHandler(logged)

    asyncio.run(scenario())
    assert errors == []


def test_a_connection_over_ipv6_that_is_one_of_ipv4_is_found():
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as end:
            far, _ = listener.accept()
            Closing(port)([f"ipv4:127.0.0.1:{end.getsockname()[1]}"])
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
        until(
            lambda: looked_at(looks)[name_of(second)].silent_ns >= 50 * ms,
            "the second connection sends nothing",
        )
        first.sendall(b"x")
        until(lambda: received(looks)[name_of(first)] == 101, "it is there")
        sent = looked_at(looks)
        assert sent[name_of(first)].silent_ns < sent[name_of(second)].silent_ns
        for each in accepted:
            each.close()
    for descriptor in taken:
        os.close(descriptor)


class OfALink(socket.socket):
    """Accepted over a link that has the number 4."""

    def getpeername(self) -> tuple[str, int, int, int]:
        return "fe80::1", 5, 0, 4


def test_a_connection_over_a_links_own_addresses_has_grpcs_name_of_it(monkeypatch):
    """Who has called as somebody is known by it."""
    with (
        socket.create_server(("::1", 0), family=socket.AF_INET6) as listener,
        socket.create_connection(listener.getsockname()[:2]) as near,
    ):
        far, _ = listener.accept()
        monkeypatch.setattr(
            connections, "_copy", lambda descriptor: OfALink(fileno=os.dup(far.fileno()))
        )
        port = listener.getsockname()[1]
        assert list(received(Received(port))) == ["ipv6:%5Bfe80::1%254%5D:5"]
        Closing(port)(["ipv6:%5Bfe80::1%5D:5"])  # another link's
        far.sendall(b"x")
        near.settimeout(60)
        assert near.recv(2) == b"x"
        Closing(port)(["ipv6:%5Bfe80::1%254%5D:5"])
        assert near.recv(1) == b""
        far.close()


def connecting(address: tuple[str, int], source: str) -> socket.socket:
    connection = socket.socket(socket.AF_INET6 if ":" in source else socket.AF_INET)
    connection.bind((source, 0))
    connection.setblocking(False)
    connection.connect_ex(address)
    return connection


def is_in(connection: socket.socket) -> bool:
    established, state = 1, connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return state == bytes([established])


@needs_filters
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


@needs_filters
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


@needs_filters
def test_of_ipv6_a_network_is_kept_out_and_ipv4_is_distinguished():
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


def test_hosts_of_a_link_have_its_network_in_common_and_are_not_kept_out(monkeypatch):
    kept_out = []
    monkeypatch.setattr(
        connections, "keep_out", lambda listener, hosts: kept_out.append(dict(hosts))
    )
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        keeping_out = KeepingOut(listener.getsockname()[1])
        keeping_out({"ipv6:%5Bfe80::1%252%5D": NEVER, "ipv6:%5B2001:db8::1%5D": 8})
    assert kept_out == [{"2001:db8::1": 8}]


@pytest.mark.parametrize("refused", [False, True], ids=["filters", "no filters"])
def test_hosts_are_logged_as_kept_out_if_they_are(monkeypatch, caplog, refused):
    """Some kernels take filters of root alone."""

    def keep_out(listener: socket.socket, hosts: object) -> None:
        if refused:
            raise PermissionError(errno.EPERM, "Operation not permitted")

    async def scenario() -> list[tuple[str, int]]:
        reported: list[tuple[str, int]] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            access = SimpleNamespace(kept_out=lambda host, one_in: reported.append((host, one_in)))
            watch = StrangerWatch(access, listener.getsockname()[1], 30_000)
            for port in range(MOST_CLOSED):
                for _ in range(MOST_REFUSALS):
                    access.on_stranger(f"ipv4:10.0.0.1:{port}")
            watch.close()
        return reported

    monkeypatch.setattr(connections, "keep_out", keep_out)
    assert asyncio.run(scenario()) == ([] if refused else [("ipv4:10.0.0.1", ONE_IN)])
    assert ("no host is kept out" in caplog.text) == refused
    [shown] = KEPT_OUT.collect()
    assert [sample.value for sample in shown.samples] == [0 if refused else 1]


def test_other_listeners_of_the_process_let_every_host_in():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_server(("127.0.0.1", 0)) as another,
    ):
        KeepingOut(listener.getsockname()[1])({"ipv4:127.0.0.1": NEVER})
        with connecting(another.getsockname(), "127.0.0.1") as connection:
            until(lambda: is_in(connection), "it is let in")


@needs_filters
@pytest.mark.parametrize("named", [MOST_HOSTS, 64 * MOST_HOSTS], ids=["as many as may be", "more"])
@pytest.mark.parametrize("form", ["127.1.{}.{}", "2001:db8:{}:{}::1"], ids=["IPv4", "IPv6"])
def test_of_more_hosts_than_the_kernel_has_room_for_the_last_are_kept_out(form, named):
    hosts = {form.format(number >> 8, number & 0xFF): NEVER for number in range(named)}
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        address = ("127.0.0.1", listener.getsockname()[1])
        for _ in range(2):  # the one before has its share of the room
            keep_out(listener, {**hosts, "127.0.0.2": NEVER, "127.0.0.3": 1})
        with (
            connecting(address, "127.0.0.2") as dropped,
            connecting(address, "127.0.0.3") as by_chance,
            connecting(address, "127.0.0.4") as another,
        ):
            until(lambda: is_in(by_chance) and is_in(another), "others are let in")
            assert not is_in(dropped)
            keep_out(listener, {})
            until(lambda: is_in(dropped), "no host is kept out")


def test_a_host_takes_so_little_of_the_kernel_that_older_ones_have_room_for_all():
    """20 KiB for one listener, of which another filter may have half: eight bytes and more for each
    instruction."""
    four = program({f"127.1.{number >> 8}.{number & 0xFF}": 8 for number in range(MOST_HOSTS)})
    assert len(four) < 2.2 * MOST_HOSTS
    six = program({f"2001:db8:{number:x}::1": 1 << number % 13 for number in range(MOST_HOSTS)})
    assert len(six) < 5.4 * MOST_HOSTS
    assert len(program({f"2001:db8::{number:x}": 8 for number in range(MOST_HOSTS)})) < 32
