"""A broker is found by the address of any one of its services, and found again when they move."""

import asyncio
import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import grpc
import pytest

from stratamq.client import connect_async
from stratamq.errors import InvalidRequestError, StrataError, UnavailableError
from stratamq.rpc import discovery
from tests.support.brokers import COMMITLOG, DISPATCHER, INDEX, Broker, broker_fixture
from tests.support.waiting import until

DEADLINE_S = 60.0
NO_ANSWER_S = 0.5
"""For what never answers: whatever does may be late on a busy machine."""
SETTINGS = (
    "commitlog.segment_bytes=1048576", "commitlog.broker_name=solo",
    "index.index_slots=1000", "index.index_items=4000",
)  # fmt: skip


def address(broker: Broker, room: str) -> str:
    endpoint = discovery.read(broker.root, room)
    assert endpoint is not None
    return endpoint.address


broker = broker_fixture(*SETTINGS, scope="function")


def test_every_service_leads_to_all(broker, opened):
    rooms = (COMMITLOG, DISPATCHER, INDEX)
    for number, room in enumerate(rooms):
        with opened(address(broker, room), retry_timeout_s=DEADLINE_S) as client:
            assert client.services() == {one: address(broker, one) for one in rooms}
            assert client.send("t", b"x%d" % number, keys=["k"], queue_id=0).stored
            with client.consume("t", follow=True) as reader:
                bodies = [next(reader).body for _ in range(number + 1)]
            assert bodies == [b"x%d" % each for each in range(number + 1)]
            until(
                lambda client=client, number=number: (
                    len(client.query_key("t", "k").messages) == number + 1
                ),
                "the index has it",
            )
            client.commit_offsets("g", {("t", 0): number})
            with client.producer() as producer:
                assert producer.send("u", b"y").result(DEADLINE_S).stored


def test_services_that_moved_are_found_again(broker, opened):
    with (
        opened(address(broker, COMMITLOG), retry_timeout_s=DEADLINE_S) as by_log,
        opened(address(broker, DISPATCHER), retry_timeout_s=DEADLINE_S) as by_dispatcher,
    ):
        with by_dispatcher.producer() as producer:
            producer.send("t", b"1", queue_id=0).result(DEADLINE_S)
            assert [message.body for message in by_log.consume("t")] == [b"1"]
            broker.kill(DISPATCHER)
            broker.start([DISPATCHER])
            assert [message.body for message in by_log.consume("t")] == [b"1"]
            former = address(broker, COMMITLOG)
            # The dispatcher, by which it is found, is elsewhere by now as well.
            assert by_dispatcher.log_state().broker_name == "solo"
            broker.kill(COMMITLOG)
            broker.start([COMMITLOG])
            assert address(broker, COMMITLOG) != former
            producer.send("t", b"2", queue_id=0).result(DEADLINE_S)
        with by_dispatcher.consume("t", follow=True) as reader:
            assert [next(reader).body, next(reader).body] == [b"1", b"2"]


def test_a_service_that_was_not_started_is_named(tmp_path, opened):
    with Broker(tmp_path / "store", tmp_path / "logs", ["commitlog.followers="]) as broker:
        broker.start([COMMITLOG])
        with opened(address(broker, COMMITLOG)) as client:
            assert client.send("t", b"x").stored
            with pytest.raises(UnavailableError, match="no dispatcher service has announced"):
                client.pull("t", 0, 0)


# --- what else may be there ---


@contextmanager
def listening(treat: Callable[[socket.socket], object]) -> Iterator[str]:
    """The address of a program that does `treat` to every connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                treat(connection)

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


class Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing on standard error."""


@contextmanager
def web_server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def rocketmq() -> Iterator[str]:
    """As RocketMQ's remoting port treats a frame that claims 1.3 GB: it closes the connection."""

    def close(connection: socket.socket) -> None:
        connection.recv(4)
        connection.close()

    with listening(close) as where:
        yield where


@contextmanager
def silent() -> Iterator[str]:
    kept: list[socket.socket] = []
    with listening(kept.append) as where:
        yield where
    for one in kept:
        one.close()


@contextmanager
def unreachable() -> Iterator[str]:
    """No connection is made any more: as with a firewall that drops packets."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def other_grpc() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@contextmanager
def nothing() -> Iterator[str]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.parametrize(
    ("there", "timeout_s", "error", "reason"),
    [
        (nothing, DEADLINE_S, UnavailableError, "nothing listens at"),
        (web_server, DEADLINE_S, InvalidRequestError, "is no StrataMQ: it does not speak gRPC"),
        (rocketmq, DEADLINE_S, UnavailableError, "RocketMQ's own ports do not speak gRPC"),
        (silent, NO_ANSWER_S, UnavailableError, "does not answer"),
        (unreachable, NO_ANSWER_S, UnavailableError, "does not answer"),
        (other_grpc, DEADLINE_S, InvalidRequestError, "no service of StrataMQ"),
    ],
)
def test_another_program_there_is_one_clear_error(opened, there, timeout_s, error, reason):
    with there() as where, opened(where, timeout_s=timeout_s) as client:
        for ask in (client.services, client.topics, lambda: client.send("t", b"x")):
            with pytest.raises(error, match=reason) as refused:
                ask()
            assert where in str(refused.value)
        with pytest.raises(error, match=reason), client.producer() as producer:
            producer.send("t", b"x", queue_id=0)
        with pytest.raises(error, match=reason):
            client.consume("t")


def test_a_host_that_is_not_known_is_named(opened):
    with (
        opened("no-such-host.invalid:1", timeout_s=DEADLINE_S) as client,
        pytest.raises(UnavailableError, match="is not known"),
    ):
        client.topics()


def test_a_search_leaves_the_event_loop_to_others(run):
    async def scenario() -> None:
        with ExitStack() as there:
            where = there.enter_context(silent())
            async with connect_async(where, timeout_s=DEADLINE_S) as client:
                asked = [asyncio.ensure_future(client.topics()) for _ in range(20)]
                for _ in range(100):
                    await asyncio.sleep(0)
                assert not any(one.done() for one in asked), "it continues beside others"
                there.close()
                await asyncio.wait(asked)
                errors = {str(one.exception()) for one in asked}
                assert len(errors) == 1, "one search answers all who wait for it"
                assert all(isinstance(one.exception(), StrataError) for one in asked)

    run(scenario())
