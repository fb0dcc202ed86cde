"""Pulling consumers by RocketMQ 5's gRPC protocol: PullMessage and three calls about offsets."""

import random
import threading
import time
from types import SimpleNamespace

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from stratamq_gateway.messaging.filtering import MAX_EXPRESSION_CHARACTERS, filter_of
from stratamq_gateway.messaging.pulling import PullMessage, WantedPull

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client import Pulled, PullStatus, Topic, connect
from stratamq.client.received import ReceivedMessage
from stratamq.formats.frame import encode
from stratamq.formats.topic_types import MessageType
from stratamq.rpc.permission_file import Permissions, dump, grant_of
from tests.gateway.messaging import SERVICE, Client, code, message, queue_of
from tests.gateway.test_messaging import served, signed
from tests.security.conftest import made
from tests.support.waiting import until, until_dispatched

NOBODY = "nobody"
METHODS = {
    "PullMessage": pb.PullMessageRequest,
    "UpdateOffset": pb.UpdateOffsetRequest,
    "GetOffset": pb.GetOffsetRequest,
    "QueryOffset": pb.QueryOffsetRequest,
}


@pytest.fixture(scope="module", params=["h2corn", "grpcio"])
def broker(tmp_path_factory, request):
    server = f"gateway.grpc_server={request.param}"
    with served(tmp_path_factory.mktemp("gateway"), server) as (broker, address):
        with connect(broker.root) as client:
            for name in ("read", "empty", "alone", "shared"):
                client.admin.create_topic(Topic(name, 1, 1, message_type=MessageType.NORMAL))
            client.admin.create_topic(Topic("write-only", 1, 1, permission=2))
        with grpc.insecure_channel(address) as channel:
            for number in range(40):
                tag = "ab"[number % 2]
                Client(channel).send(
                    message("read", str(number).encode(), {"n": str(number)}, tag=tag)
                )
        with connect(broker.root) as own:
            until_dispatched(own)
        yield broker, address


@pytest.fixture
def client(broker):
    with grpc.insecure_channel(broker[1]) as channel:
        yield Client(channel)


def update(client: Client, group: str, offset: int, queue=None):
    queue = queue_of("read") if queue is None else queue
    request = pb.UpdateOffsetRequest(
        group=pb.Resource(name=group), message_queue=queue, offset=offset
    )
    return client.call("UpdateOffset", request)


def kept(client: Client, group: str, queue=None):
    queue = queue_of("read") if queue is None else queue
    request = pb.GetOffsetRequest(group=pb.Resource(name=group), message_queue=queue)
    return client.call("GetOffset", request)


def asked(client: Client, policy, queue=None, **fields):
    queue = queue_of("read") if queue is None else queue
    request = pb.QueryOffsetRequest(message_queue=queue, query_offset_policy=policy, **fields)
    return client.call("QueryOffset", request)


def test_pulls_give_a_queue_in_order_with_no_receipts_and_say_where_to_go_on(client):
    status, found, following = client.pull("read", "reader", 0)
    assert (status, len(found), following) == ("OK", 32, 32)
    assert [one.body for one in found] == [str(number).encode() for number in range(32)]
    given = found[5].system_properties
    assert (given.queue_offset, given.tag, given.delivery_attempt) == (5, "b", 1)
    assert not given.HasField("receipt_handle") and found[5].user_properties == {"n": "5"}
    status, found, following = client.pull("read", "reader", following)
    assert (status, len(found), following) == ("OK", 8, 40)
    assert client.pull("read", "reader", 40) == ("MESSAGE_NOT_FOUND", [], 40)
    assert len(client.pull("read", "reader", 0, batch_size=3)[1]) == 3


@pytest.mark.parametrize(("offset", "following"), [(-1, 0), (41, 40), (2**63 - 1, 40)])
def test_an_offset_that_the_queue_has_not_is_refused_and_corrected(client, offset, following):
    assert client.pull("read", "reader", offset, wait_s=20) == ("ILLEGAL_OFFSET", [], following)


def test_a_filter_gives_exactly_what_it_selects_and_goes_on_behind_the_others(client):
    tagged = pb.FilterExpression(type=pb.TAG, expression="b")
    status, found, following = client.pull("read", "reader", 0, filter_expression=tagged)
    assert (status, following) == ("OK", 40)
    assert [int(one.body) for one in found] == [*range(1, 40, 2)]
    selecting = pb.FilterExpression(type=pb.SQL, expression="n > 36")
    status, found, following = client.pull("read", "reader", 0, filter_expression=selecting)
    assert (status, following) == ("MESSAGE_NOT_FOUND", 32), "it does not wait"
    status, found, _ = client.pull("read", "reader", 0, wait_s=5, filter_expression=selecting)
    assert (status, [int(one.body) for one in found]) == ("OK", [37, 38, 39])
    for kind, expression in ((pb.SQL, "n >"), (pb.TAG, "a ||"), (pb.TAG, "a||" * 9_999 + "a")):
        wrong = pb.FilterExpression(type=kind, expression=expression)
        (refused,) = client.pull_raw("read", "reader", 0, filter_expression=wrong)
        assert code(refused) == "ILLEGAL_FILTER_EXPRESSION"
    assert len("a||" * 9_999) > MAX_EXPRESSION_CHARACTERS


async def test_what_is_deleted_behind_a_filtered_pull_is_no_fault_of_its_offset():
    """It went on from 0 to 32. It is told only when what it has not looked at is gone."""
    raw = encode(topic=b"read", body=b"found", born_host=bytes(8), store_host=bytes(8))
    skipped = Pulled(PullStatus.FOUND, 32, 0, 50, [], memoryview(b""))
    found = Pulled(PullStatus.FOUND, 41, 20, 50, [ReceivedMessage(raw)], memoryview(raw))
    gone = Pulled(PullStatus.OFFSET_TOO_SMALL, 45, 45, 50, [], memoryview(b""))
    wanted = WantedPull("read", 0, "reader", 0, 32, filter_of(pb.FilterExpression()))
    for last, expected in (
        (found, ("OK", [b"found"], 41)),
        (gone, ("ILLEGAL_OFFSET", [], 45)),
    ):
        answers = [skipped, last]

        async def pull(*place, answers=answers, **_):
            return answers.pop(0)

        session = SimpleNamespace(client=SimpleNamespace(pull=pull), client_id="c")
        request = pb.PullMessageRequest(message_queue=queue_of("read"))
        request.long_polling_timeout.seconds = 20
        given = PullMessage("").answers(session, request, wanted, None)
        status, *messages, end = [one async for one in given]
        assert (code(status), [one.message.body for one in messages], end.next_offset) == expected


def test_a_pull_that_waits_is_woken_by_the_message_that_its_filter_selects(broker, client):
    found = []

    def wait():
        wanted = pb.FilterExpression(type=pb.TAG, expression="wanted")
        with grpc.insecure_channel(broker[1]) as channel:
            found.append(Client(channel).pull("alone", "waiting", 0, 30, filter_expression=wanted))

    waiting = threading.Thread(target=wait)
    waiting.start()
    for tag in ("other", "wanted"):
        client.send(message("alone", tag.encode(), tag=tag))
    waiting.join()
    ((status, messages, following),) = found
    assert (status, [one.body for one in messages], following) == ("OK", [b"wanted"], 2)
    began = time.monotonic()
    assert client.pull("alone", "waiting", 2, 1) == ("MESSAGE_NOT_FOUND", [], 2)
    assert time.monotonic() - began > 0.9


def test_offsets_are_those_of_the_group_for_every_protocol(broker, client):
    assert code(kept(client, "reader")) == "OFFSET_NOT_FOUND"
    assert code(update(client, "reader", 7)) == "OK"
    assert (code(kept(client, "reader")), kept(client, "reader").offset) == ("OK", 7)
    with connect(broker[0].root) as own:
        assert own.committed_offsets("reader", "read") == {("read", 0): 7}
        own.commit_offsets("reader", {("read", 0): 9})
    assert kept(client, "reader").offset == 9
    for offset in (-1, 41, 2**63 - 1):
        assert code(update(client, "reader", offset)) == "ILLEGAL_OFFSET"
    assert kept(client, "reader").offset == 9


def test_the_bounds_of_a_queue_and_its_offset_at_a_time(client):
    assert [asked(client, one).offset for one in (pb.BEGINNING, pb.END)] == [0, 40]
    _, found, _ = client.pull("read", "reader", 0)
    times = [one.system_properties.store_timestamp for one in found]
    first_of = next(one for one, at in enumerate(times) if at == times[20])
    assert asked(client, pb.TIMESTAMP, timestamp=times[20]).offset == first_of
    for second, offset in ((0, 0), (253_402_300_799, 40)):
        assert asked(client, pb.TIMESTAMP, timestamp=Timestamp(seconds=second)).offset == offset
    assert code(asked(client, pb.TIMESTAMP)) == "BAD_REQUEST", "no time"
    wrong = Timestamp(seconds=2**62)
    assert code(asked(client, pb.TIMESTAMP, timestamp=wrong)) == "BAD_REQUEST"
    assert code(asked(client, 77)) == "BAD_REQUEST"
    empty = queue_of("empty")
    assert [asked(client, one, empty).offset for one in (pb.BEGINNING, pb.END)] == [0, 0]
    assert client.pull("empty", "reader", 0) == ("MESSAGE_NOT_FOUND", [], 0)
    assert client.pull("empty", "reader", 1) == ("ILLEGAL_OFFSET", [], 0)


@pytest.mark.parametrize(
    ("queue", "wanted"),
    [
        (queue_of("nowhere"), "TOPIC_NOT_FOUND"),
        (queue_of("empty", 1), "BAD_REQUEST"),
        (queue_of("read", -1), "BAD_REQUEST"),
        (queue_of("read", 2**31 - 1), "BAD_REQUEST"),
        (queue_of("read", 0, "elsewhere"), "BAD_REQUEST"),
        (queue_of("rmq_sys_wheel_timer"), "ILLEGAL_TOPIC"),
        (queue_of(""), "ILLEGAL_TOPIC"),
    ],
)
def test_a_queue_that_is_not_there_is_refused_and_nothing_is_kept(client, queue, wanted):
    pulled = pb.PullMessageRequest(group=pb.Resource(name=NOBODY), message_queue=queue)
    pulled.long_polling_timeout.seconds = 30
    (refused,) = client.call("PullMessage", pulled)
    assert code(refused) == wanted
    assert code(update(client, NOBODY, 0, queue)) == wanted
    assert code(asked(client, pb.END, queue)) == wanted
    known = wanted != "BAD_REQUEST" or queue.id < 0 or queue.broker.name
    absent = wanted if known and wanted != "TOPIC_NOT_FOUND" else "OFFSET_NOT_FOUND"
    assert code(kept(client, NOBODY, queue)) == absent


def test_a_topic_without_the_right_to_be_read_is_refused(client):
    until(
        lambda: code(client.pull_raw("write-only", "reader", 0)[0]) == "FORBIDDEN",
        "the dispatcher has learned the topic's permission",
    )


def test_a_group_is_received_for_or_pulled_for_and_not_both(broker, client):
    client.send(message("shared"))
    client.ack("shared", "workers", *client.receive("shared", "workers"))
    until(lambda: code(update(client, "workers", 0)) == "BAD_REQUEST", "the group is shared")
    (refused,) = client.pull_raw("shared", "workers", 0)
    assert code(refused) == "BAD_REQUEST" and "is shared" in refused.status.message
    assert client.pull("shared", "pullers", 0)[0] == "OK"
    with connect(broker[0].root) as own:
        assert [one.client_id for one in own.group_members("pullers")] == [client.name]


def test_random_requests_are_answered_and_hurt_nobody(client):
    """Each field is cut, of the wrong type, or out of its bounds."""
    chance = random.Random(11)
    numbers = [0, 1, -1, 40, 2**31 - 1, -(2**31)]
    longs = [*numbers, 2**63 - 1, -(2**63)]
    texts = ["", "read", "%RETRY%g", "é" * 300, "a b", "x" * 5_000, "%DLQ%", "a||b", "n > 5", "NOT"]
    whole = []
    for _ in range(60):
        queue = queue_of(chance.choice(texts), chance.choice(numbers), chance.choice(["", "x"]))
        group = pb.Resource(name=chance.choice(texts), resource_namespace=chance.choice(["", "n"]))
        times = [chance.choice(longs), chance.choice(numbers)]
        whole += [
            pb.PullMessageRequest(
                group=group, message_queue=queue, offset=chance.choice(longs),
                batch_size=chance.choice(numbers),
                filter_expression=pb.FilterExpression(
                    type=chance.randrange(4), expression=chance.choice(texts)
                ),
                long_polling_timeout=Duration(seconds=min(times[0], 0), nanos=times[1]),
            ),
            pb.UpdateOffsetRequest(group=group, message_queue=queue, offset=chance.choice(longs)),
            pb.GetOffsetRequest(group=group, message_queue=queue),
            pb.QueryOffsetRequest(
                message_queue=queue, query_offset_policy=chance.randrange(5),
                timestamp=Timestamp(seconds=times[0], nanos=times[1]),
            ),
        ]  # fmt: skip
    for number, one in enumerate(whole * 2):
        method = [*METHODS][number % 4] if chance.random() < 0.8 else chance.choice([*METHODS])
        data = bytearray(one.SerializeToString())
        for _ in range(chance.randrange(4) if number >= len(whole) else 0):
            data[chance.randrange(len(data))] = chance.randrange(256)
        answer = client.call(method, bytes(data))
        first = answer[0] if isinstance(answer, list) else answer
        assert first.status.code not in (0, pb.INTERNAL_ERROR, pb.INTERNAL_SERVER_ERROR), one
    assert client.pull("read", "reader", 39)[0] == "OK"


def test_a_client_that_leaves_its_pull_hurts_nobody(broker, client):
    with grpc.insecure_channel(broker[1]) as channel:
        request = pb.PullMessageRequest(
            group=pb.Resource(name="leaving"), message_queue=queue_of("empty")
        )
        request.long_polling_timeout.seconds = 30
        stub = channel.unary_stream(f"/{SERVICE.full_name}/PullMessage")
        held = stub(request.SerializeToString(), metadata=[("x-mq-client-id", "leaver")])
        with connect(broker[0].root) as own:
            until(lambda: own.group_members("leaving"), "the pull is held")
        held.cancel()
    assert code(client.send(message("shared", b"another"))) == "OK"


def test_the_rights_of_a_caller_are_those_of_the_queue_and_the_group(tmp_path):
    pki = made(tmp_path / "pki")
    permissions = Permissions(
        rules=[grant_of("shop", "consume", "topic:read"), grant_of("shop", "consume", "group:shop")]
    )
    secret = permissions.add_token("shop", "", signs=True)
    file = tmp_path / "permissions.json"
    file.write_bytes(dump(permissions))
    with served(tmp_path, *pki.settings(f"access.file={file}")) as (broker, address):
        with connect(broker.root) as own:
            for name in ("read", "other"):
                own.admin.create_topic(Topic(name, 1, 1))
        credentials = grpc.ssl_channel_credentials((pki.directory / "ca.pem").read_bytes())
        with grpc.secure_channel(address, credentials) as channel:
            shop = Client(channel, **signed("shop", secret))
            assert shop.pull("read", "shop", 0)[0] == "MESSAGE_NOT_FOUND"
            assert code(update(shop, "shop", 0)) == "OK"
            assert (kept(shop, "shop").offset, asked(shop, pb.END).offset) == (0, 0)
            other = queue_of("other")
            refused = [
                *shop.pull_raw("other", "shop", 0),
                *shop.pull_raw("read", "billing", 0),
                update(shop, "shop", 0, other),
                update(shop, "billing", 0),
                kept(shop, "billing"),
                asked(shop, pb.END, other),
            ]
            assert {code(one) for one in refused} == {"FORBIDDEN"}
            stranger = Client(channel)
            unknown = [*stranger.pull_raw("read", "shop", 0), update(stranger, "shop", 0)]
            unknown += [kept(stranger, "shop"), asked(stranger, pb.END)]
            assert {code(one) for one in unknown} == {"UNAUTHORIZED"}
