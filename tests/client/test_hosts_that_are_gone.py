"""Addresses that answer nothing: they hold up one search for a broker, and are used again when they
answer."""

import threading
from asyncio import to_thread
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager

import grpc

from stratamq.api.v1 import broker_pb2
from stratamq.client.questions import AsyncQuestions, Questions
from stratamq.files.clock import SystemClock
from stratamq.rpc import discovery
from stratamq.rpc.credentials import Credentials
from stratamq.rpc.endpoints import Channels, Endpoints
from stratamq.rpc.methods import DESCRIBE_BROKER
from stratamq.rpc.questions import GRACE_S, LONGEST_ANSWER_S, PendingQuestions, Plan, Question, Turn
from tests.support.brokers import COMMITLOG
from tests.support.waiting import until

NAME = "broker-a"


@contextmanager
def answering(may_answer: threading.Event) -> Iterator[str]:
    """A service that answers what it was asked when it may."""

    def describe(request, context):
        may_answer.wait()
        return broker_pb2.DescribeBrokerResponse(broker_name=NAME)

    _, service, method = DESCRIBE_BROKER.path.split("/")
    handler = grpc.unary_unary_rpc_method_handler(
        describe,
        broker_pb2.DescribeBrokerRequest.FromString,
        broker_pb2.DescribeBrokerResponse.SerializeToString,
    )
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(service, {method: handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        may_answer.set()
        server.stop(None).wait()


def test_an_address_that_answers_nothing_holds_up_one_search(log_alone, opened):
    endpoint = discovery.read(log_alone.root, COMMITLOG)
    assert endpoint is not None
    clock = SystemClock()

    def search_s() -> float:
        begin_ns = clock.monotonic_ns()
        assert client.services() == {COMMITLOG: endpoint.address}
        return (clock.monotonic_ns() - begin_ns) / 1e9

    with (
        answering(threading.Event()) as silent,
        opened(f"{silent},{endpoint.address}", broker=NAME) as client,
    ):
        first_s, *later_s = [search_s() for _ in range(6)]
    assert first_s < 2 * LONGEST_ANSWER_S
    assert min(later_s) < 2 * GRACE_S, "the shortest: the machine may be busy"


def test_an_answer_that_comes_when_no_caller_waits_any_more_ends_the_silence(kind, run):
    endpoints = Endpoints(seeds=["a:1"], credentials=Credentials())
    may_answer = threading.Event()

    def gives_up(address: str) -> Plan[list[str]]:
        asking = PendingQuestions(endpoints.silence, SystemClock())
        question = Question(address, DESCRIBE_BROKER, broker_pb2.DescribeBrokerRequest())
        asking.begin([question])
        assert (yield Turn([question], 0.0)) == []
        return asking.give_up()

    async def on_loop(address: str) -> None:
        channels = Channels(endpoints, grpc.aio)
        questions = AsyncQuestions(channels, endpoints.silence, LONGEST_ANSWER_S)
        assert await questions.ask(gives_up(address)) == [address]
        await to_thread(answers, address)
        for channel in channels.close():
            await channel.close()

    def by_threads(address: str) -> None:
        channels = Channels(endpoints, grpc)
        assert Questions(channels, endpoints.silence, LONGEST_ANSWER_S).ask(gives_up(address)) == [
            address
        ]
        answers(address)
        for channel in channels.close():
            channel.close()

    def answers(address: str) -> None:
        assert address in endpoints.silence
        may_answer.set()
        until(lambda: address not in endpoints.silence, "it has answered")

    with answering(may_answer) as address:
        if kind == "synchronous":
            by_threads(address)
        else:
            run(on_loop(address))
