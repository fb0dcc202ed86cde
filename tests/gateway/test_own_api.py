"""StrataMQ's own API through the gateway's port behaves as at the services, for every caller."""

import socket
import struct
import threading
from contextlib import contextmanager
from functools import partial
from urllib.request import urlopen

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from stratamq.api.v1 import broker_pb2, commitlog_pb2, delivery_pb2, dispatcher_pb2
from stratamq.client import Topic, connect
from stratamq.errors import NotFoundError, StrataError
from stratamq.rpc import discovery
from stratamq.rpc.address import split_address
from stratamq.rpc.methods import DESCRIBE_BROKER, METHODS
from stratamq.rpc.permission_file import AUTHORIZATION, BEARER, Permissions, dump, grant_of
from stratamq.rpc.request_ids import one_request
from stratamq.rpc.status import NAME_KEY
from stratamq.service.caller import Caller
from stratamq.service.grpc_callers import delegation
from tests.gateway.messaging import DEADLINE_S
from tests.gateway.test_messaging import served
from tests.security.conftest import made
from tests.security.test_hostile_connections import PREFACE, frame, headers_of
from tests.security.test_permissions import DESCRIBED, filled
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, GATEWAY
from tests.support.waiting import until, until_dispatched

SERVERS = ["h2corn", "grpcio"]
RUNNING = {COMMITLOG, DISPATCHER, DELIVERY, GATEWAY}
LARGE = 1 << 20
CALLS, KEPT_CALLS = 40, 3
"""Calls whose answers, of up to 4 MiB, are not read; at most so many of them fit into 8 MiB."""


@pytest.fixture(scope="module", params=SERVERS)
def open_broker(tmp_path_factory, request):
    with served(tmp_path_factory.mktemp("open"), f"gateway.grpc_server={request.param}") as found:
        yield found


@pytest.fixture(scope="module")
def door(open_broker):
    return open_broker[1]


@pytest.fixture(scope="module")
def client(door):
    with connect(door) as client:
        yield client


def test_the_port_is_the_only_address_that_a_client_needs(open_broker, door):
    with grpc.insecure_channel(door) as channel:
        found = DESCRIBE_BROKER.on(channel)(broker_pb2.DescribeBrokerRequest(), timeout=DEADLINE_S)
    assert {one.service for one in found.services} == RUNNING
    assert {one.address for one in found.services} == {door}
    assert found.answered_by == GATEWAY


def test_what_is_sent_is_read_one_by_one_and_as_streams(client):
    assert client.send("orders", b"first").queue_offset == 0
    with client.producer() as producer:
        for number in range(1_000):
            producer.send("orders", b"%d" % number)
    read = [message.body for message in client.consume("orders")]
    assert sorted(read) == sorted([b"first", *(b"%d" % number for number in range(1_000))])


def test_messages_of_a_mebibyte_pass_in_both_directions(client):
    bodies = [bytes([number]) * LARGE for number in range(8)]
    with client.producer() as producer:
        for body in bodies:
            producer.send("large", body)
    assert sorted(message.body for message in client.consume("large")) == bodies


def test_shared_groups_are_served(client):
    client.send("shared", b"work")
    with client.subscribe("shared", group="workers") as messages:
        message = next(iter(messages))
        assert message.body == b"work"
        message.ack()


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.admin.delete_topic("no-such-topic"),
        lambda client: client.commit_offsets("billing", {("orders", 0): 1_000_000}),
        lambda client: client.admin.alter_topic(Topic("orders", 0, 0)),
        lambda client: client.stop_sharing("none"),
    ],
)
def test_errors_are_those_of_the_service(open_broker, client, ask):
    broker, _ = open_broker
    found = []
    with connect(broker.root) as own:
        for one in (own, client):
            with pytest.raises(StrataError) as refused:
                ask(one)
            found.append((type(refused.value), str(refused.value)))
    assert found[0] == found[1]


def test_a_call_keeps_its_request_id(client):
    with one_request() as request, pytest.raises(NotFoundError) as refused:
        client.admin.delete_topic("no-such-topic")
    assert refused.value.request_id == request.id


def test_a_call_that_names_another_caller_is_refused(door):
    with grpc.insecure_channel(door) as channel:
        call = METHODS["GetStatus"].on(channel)
        request = commitlog_pb2.GetStatusRequest()
        with pytest.raises(grpc.RpcError) as refused:
            call(request, metadata=[delegation(Caller("127.0.0.1", 5_000))], timeout=DEADLINE_S)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("server", SERVERS)
def test_answers_that_a_client_does_not_read_are_bounded(tmp_path, server):
    """A connection whose streams have no window: what its calls ask for stays at the gateway."""
    limit = f"limits.bytes_in_flight={8 * LARGE}"
    with served(tmp_path, f"gateway.grpc_server={server}", limit) as (broker, door):
        with connect(broker.root) as own:
            for _ in range(4):
                own.send("large", bytes(LARGE), queue_id=0)
            until_dispatched(own)
        asked = dispatcher_pb2.PullRequest(topic="large", max_bytes=4 * LARGE).SerializeToString()
        no_window = frame(4, 0, 0, struct.pack(">HI", 4, 0))
        head, body = headers_of(METHODS["Pull"].path.encode()), struct.pack(">BI", 0, len(asked))
        calls = b"".join(
            frame(1, 4, stream, head) + frame(0, 1, stream, body + asked)
            for stream in range(1, 2 * CALLS, 2)
        )
        with socket.create_connection(split_address(door), timeout=DEADLINE_S) as connection:
            connection.sendall(PREFACE + no_window + calls)
            refused, answers = 0, connection.makefile("rb")
            while refused < CALLS - KEPT_CALLS:
                size, kind, flags, _ = struct.unpack(">IBBI", b"\0" + answers.read(9))
                answers.read(size)
                refused += kind == 1 and flags & 1  # the end of an answer, which has no body
        with connect(door) as other:
            assert other.send("large", b"x").error is None


def test_probes_and_tools_find_what_the_port_serves(door):
    with grpc.insecure_channel(door) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = health.Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        [listed] = reflection.ServerReflectionInfo(iter([asked]), timeout=DEADLINE_S)
    names = {one.name for one in listed.list_services_response.service}
    assert {METHODS["Pull"].path.split("/")[1], "apache.rocketmq.v2.MessagingService"} <= names


def metric(broker, room: str, name: str) -> float:
    where = discovery.read(broker.root, room).metrics
    with urlopen(f"http://{where}/metrics", timeout=DEADLINE_S) as page:
        lines = page.read().decode().splitlines()
    return sum(float(one.rpartition(" ")[2]) for one in lines if one.startswith(name))


@pytest.mark.parametrize("server", SERVERS)
def test_the_call_of_a_client_that_leaves_ends_at_the_service(tmp_path, server):
    pull = dispatcher_pb2.PullRequest(topic="quiet", wait_ms=30_000)
    check = delivery_pb2.CheckTransactionsRequest(producer_group="p", topics=["quiet"])
    open_streams = 'grpc_open_streams{method="%s"}'
    left = threading.Event()

    def unsaid():
        left.wait()
        yield from ()

    with served(tmp_path, f"gateway.grpc_server={server}") as (broker, door):
        with connect(broker.root) as own:
            own.admin.create_topic(Topic("quiet", 1, 1))
        with grpc.insecure_channel(door) as channel:
            for name, asked, watched, others in (
                ("Pull", pull, "dispatcher_waiting_pulls", 0),
                ("CheckTransactions", check, open_streams % METHODS["CheckTransactions"].path, 0),
                ("AppendStream", unsaid(), open_streams % METHODS["AppendStream"].path, 1),
            ):
                room, begin = METHODS[name].room, METHODS[name].on(channel)
                served_now = partial(metric, broker, room, watched)
                until(lambda now=served_now, at=others: now() == at, "delivery has its stream")
                call = getattr(begin, "future", begin)(asked, timeout=DEADLINE_S)
                until(lambda now=served_now, at=others: now() == at + 1, f"{name} is served")
                call.cancel()
                until(lambda now=served_now, at=others: now() == at, f"{name} has ended")
        left.set()


def test_a_service_that_was_killed_is_found_again(tmp_path):
    with served(tmp_path) as (broker, door), connect(door) as client:
        client.send("orders", b"before")
        broker.kill(COMMITLOG)
        broker.start([COMMITLOG])
        client.send("orders", b"after")
        assert len(list(client.consume("orders"))) == 2


# --- who calls ---


@pytest.fixture(scope="module", params=SERVERS)
def guarded(tmp_path_factory, request):
    place = tmp_path_factory.mktemp("guarded")
    pki = made(place / "pki", "alice")
    permissions = Permissions(
        rules=[
            grant_of("neighbour", verb, what)
            for what in ("topic:others", "group:others")
            for verb in ("produce", "consume", "manage")
            if what.startswith("topic") or verb != "produce"
        ]
    )
    tokens = {who: permissions.add_token(who, "") for who in ("nobody-special", "neighbour")}
    file = place / "access.json"
    file.write_bytes(dump(permissions))
    settings = pki.settings(f"access.file={file}", f"gateway.grpc_server={request.param}")
    with served(place, *settings) as (broker, address):
        yield broker, address, tokens, pki


@contextmanager
def channels(guarded, room):
    broker, door, _, pki = guarded
    ca = (pki.directory / "ca.pem").read_bytes()
    found = discovery.read(broker.root, room)
    with (
        grpc.secure_channel(found.address, grpc.ssl_channel_credentials(ca)) as direct,
        grpc.insecure_channel(door) as through,
    ):
        yield direct, through


def outcome(channel, name: str, token: str) -> tuple[str, ...]:
    method, described = METHODS[name], DESCRIBED[name]
    request = filled(described.input_type).SerializeToString()
    given = iter([request]) if described.client_streaming else request
    metadata = [(AUTHORIZATION, BEARER + token)] if token else []
    call = getattr(channel, method.kind)(method.path)
    try:
        answer = call(given, metadata=metadata, timeout=DEADLINE_S)
        if described.server_streaming:
            next(answer)
            answer.cancel()
        return ("OK",)
    except grpc.RpcError as error:
        kind = dict(error.trailing_metadata()).get(NAME_KEY, "")
        return error.code().name, error.details(), kind
    except StopIteration:
        return ("OK",)


@pytest.mark.parametrize("who", ["", "guessed", "nobody-special", "neighbour"])
def test_each_method_refuses_whom_its_service_refuses(guarded, who):
    _, _, tokens, _ = guarded
    token = tokens.get(who, who)
    differ, refused = [], 0
    for room in RUNNING:
        with channels(guarded, room) as (direct, through):
            for name in (one for one in METHODS if METHODS[one].room == room):
                expected = outcome(direct, name, token)
                refused += expected[0] in ("UNAUTHENTICATED", "PERMISSION_DENIED")
                found = outcome(through, name, token)
                if found != expected:
                    differ.append((name, expected, found))
    assert not differ
    assert refused > len(RUNNING)
