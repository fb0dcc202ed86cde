"""RocketMQ 5's gRPC protocol: rows of spec/gateway-acceptance.md, played by calls as its clients
make them."""

import hashlib
import hmac
import itertools
import random
import threading
import time
from contextlib import contextmanager

import grpc
import pytest
from stratamq_gateway.messaging.sending import MAX_MESSAGES

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client import Topic, connect
from stratamq.formats.topic_types import MessageType
from stratamq.rpc.permission_file import Permissions, dump, grant_of
from tests.gateway.messaging import DEADLINE_S, SERVICE, Client, code, handle_of, message
from tests.security.conftest import made
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, GATEWAY, Broker
from tests.support.waiting import until

ROOMS = (COMMITLOG, DISPATCHER, DELIVERY, GATEWAY)
TYPES = {
    "normal": MessageType.NORMAL,
    "steps": MessageType.FIFO,
    "later": MessageType.DELAY,
    "paid": MessageType.TRANSACTION,
    "urgent": MessageType.PRIORITY,
    "mixed": MessageType.MIXED,
    "untyped": MessageType.UNSPECIFIED,
}
_groups = itertools.count(1)


@contextmanager
def served(directory, *further: str):
    settings = (
        "gateway.grpc_address=127.0.0.1:0",
        "delivery.transaction_check_interval_ms=1000",
        "delivery.transaction_timeout_ms=1000",
        *further,
    )
    with Broker(directory / "store", directory / "logs", settings) as broker:
        broker.start(ROOMS)
        with connect(broker.root) as client:
            address = client.admin.gateway_state().grpc_address
        yield broker, address
        assert "Traceback" not in broker.output(GATEWAY)


@pytest.fixture(scope="module", params=["h2corn", "grpcio"])
def address(tmp_path_factory, request):
    server = f"gateway.grpc_server={request.param}"
    with served(tmp_path_factory.mktemp("gateway"), server) as (broker, address):
        with connect(broker.root) as client:
            for name, kind in TYPES.items():
                client.admin.create_topic(Topic(name, 4, 4, message_type=kind))
            client.admin.create_topic(Topic("read-only", 1, 1, permission=4))
            client.admin.create_topic(Topic("write-only", 1, 1, permission=2))
            client.admin.create_group("in-order", ordered=True)
        yield address


@pytest.fixture(scope="module")
def channel(address):
    with grpc.insecure_channel(address) as channel:
        yield channel


@pytest.fixture
def client(channel):
    return Client(channel)


@pytest.fixture
def group():
    return f"group-{next(_groups)}"


# --- sending and receiving ---


def test_what_is_sent_comes_back_equal_and_once(client, group):
    sent = message(
        "normal",
        b"\x00\xffbody",
        {"colour": "blau ü", "size": "7"},
        tag="paid",
        keys=["k1", "k2"],
        born_host="shop-1",
        trace_context="trace",
    )
    answer = client.send(sent)
    (entry,) = answer.entries
    assert (code(answer), entry.message_id) == ("OK", sent.system_properties.message_id)
    assert entry.transaction_id == entry.message_id, "also of a message without a transaction"
    (found,) = client.receive("normal", group)
    given, wanted = found.system_properties, sent.system_properties
    assert (found.body, dict(found.user_properties)) == (sent.body, dict(sent.user_properties))
    for name in ("tag", "keys", "message_id", "born_timestamp", "born_host", "trace_context"):
        assert getattr(given, name) == getattr(wanted, name), name
    assert (given.message_type, given.body_encoding) == (pb.NORMAL, pb.IDENTITY)
    assert (given.delivery_attempt, given.queue_offset) == (1, entry.offset)
    digest = hashlib.md5(sent.body).hexdigest().upper()
    assert given.body_digest == pb.Digest(type=pb.MD5, checksum=digest)
    assert code(client.ack("normal", group, found)) == "OK"
    assert client.receive("normal", group, 0) == []


def test_a_waiting_receive_is_woken_by_a_message(client, channel, group):
    client.receive("untyped", group, 0)
    found = []
    waiting = threading.Thread(
        target=lambda: found.extend(Client(channel).receive("untyped", group, 50))
    )
    waiting.start()
    client.send(message("untyped", b"woken"))
    waiting.join(DEADLINE_S)
    assert [one.body for one in found] == [b"woken"]


def test_a_receive_that_names_no_polling_time_has_that_of_its_clients_settings(client, group):
    """Go's client does so; its calls have 3 s more."""
    settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
    settings.subscription.group.name = group
    settings.subscription.long_polling_timeout.FromSeconds(1)
    stream, ended = client.telemetry(settings)
    next(stream)
    request = pb.ReceiveMessageRequest(
        group=pb.Resource(name=group),
        message_queue=pb.MessageQueue(topic=pb.Resource(name="urgent"), id=-1),
    )
    request.invisible_duration.FromSeconds(30)
    began = time.monotonic()
    status, _ = client.call("ReceiveMessage", request, 20)
    ended.set()
    assert code(status) == "MESSAGE_NOT_FOUND"
    assert 0.9 < time.monotonic() - began < 10


def test_a_topic_that_may_not_be_read_is_refused_by_its_permission(client, group):
    status, _ = client.receive_raw("write-only", group)
    assert code(status) == "FORBIDDEN"
    assert "no read permission" in status.status.message


REFUSED = {
    "MESSAGE_BODY_EMPTY": message("normal", b""),
    "MESSAGE_BODY_TOO_LARGE": message("normal", bytes((4 << 20) + 1)),
    "ILLEGAL_MESSAGE_ID": message("normal", message_id=" "),
    "ILLEGAL_MESSAGE_TAG": message("normal", tag="a|b"),
    "ILLEGAL_MESSAGE_KEY": message("normal", keys=["a b"]),
    "ILLEGAL_MESSAGE_GROUP": message("steps", message_group="g" * 64),
    "ILLEGAL_MESSAGE_PROPERTY_KEY": message("normal", properties={"UNIQ_KEY": "x"}),
    "MESSAGE_PROPERTIES_TOO_LARGE": message("normal", properties={f"p{i}": "" for i in range(129)}),
    "ILLEGAL_TOPIC": message("rmq_sys_wheel_timer"),
    "FORBIDDEN": message("read-only"),
    "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE": message("normal", message_group="a"),
    "BAD_REQUEST": message("urgent", priority=-1),
    "MESSAGE_CORRUPTED": message("normal", body_digest=pb.Digest(type=pb.MD5, checksum="0")),
}


@pytest.mark.parametrize("wanted", REFUSED)
def test_a_message_that_is_wrong_is_refused_with_its_own_code(client, group, wanted):
    answer = client.send(REFUSED[wanted])
    assert code(answer) == wanted
    assert answer.status.message not in ("", wanted), "it says why"


def test_a_delivery_time_too_far_ahead_is_refused(client):
    late = message("later")
    late.system_properties.delivery_timestamp.FromSeconds(1 << 33)
    assert code(client.send(late)) == "ILLEGAL_DELIVERY_TIME"


def test_a_list_of_messages_is_of_one_topic_and_one_type(client):
    assert code(client.send()) == "MESSAGE_CORRUPTED"
    assert code(client.send(message("normal"), message("mixed"))) == "MESSAGE_CORRUPTED"
    mixed = (message("mixed"), message("mixed", message_group="a"))
    assert code(client.send(*mixed)) == "BAD_REQUEST"
    assert code(client.send(message("mixed", b""), message("mixed"))) == "MESSAGE_BODY_EMPTY"


@pytest.mark.parametrize("topic", ["mixed", "untyped"])
def test_a_topic_without_one_type_takes_every_message(client, topic):
    route = client.call("QueryRoute", pb.QueryRouteRequest(topic=pb.Resource(name=topic)))
    assert set(route.message_queues[0].accept_message_types) >= {pb.NORMAL, pb.FIFO, pb.DELAY}
    delayed = message(topic)
    delayed.system_properties.delivery_timestamp.FromSeconds(1)
    half = message(topic, message_type=pb.TRANSACTION)
    for one in (message(topic), message(topic, message_group="a"), delayed, half):
        assert code(client.send(one)) == "OK"


def test_a_route_names_the_address_that_the_client_has_used(client):
    request = pb.QueryRouteRequest(topic=pb.Resource(name="normal"))
    request.endpoints.scheme = pb.DOMAIN_NAME
    request.endpoints.addresses.add(host="gateway.example", port=80)
    queues = client.call("QueryRoute", request).message_queues
    assert [one.id for one in queues] == [0, 1, 2, 3]
    assert all(one.broker.endpoints == request.endpoints for one in queues)
    assert all(one.permission == pb.READ_WRITE for one in queues)
    unknown = pb.QueryRouteRequest(topic=pb.Resource(name="not-there"))
    assert code(client.call("QueryRoute", unknown)) == "TOPIC_NOT_FOUND"


def test_a_push_consumer_is_assigned_all_queues_as_one(client, group):
    def ask(topic: str):
        request = pb.QueryAssignmentRequest(
            topic=pb.Resource(name=topic), group=pb.Resource(name=group)
        )
        request.endpoints.scheme = pb.IPv4
        request.endpoints.addresses.add(host="127.0.0.1", port=1)
        return client.call("QueryAssignment", request)

    (one,) = ask("normal").assignments
    assert (one.message_queue.id, one.message_queue.topic.name) == (-1, "normal")
    assert code(ask("write-only")) == "FORBIDDEN"


# --- hidden, visible, again ---


def test_a_negative_acknowledgement_replaces_the_handle_and_counts_an_attempt(client, group):
    client.send(message("mixed", b"again"))
    found = client.receive_until(b"again", "mixed", group)
    (one,) = [each for each in found if each.body == b"again"]
    client.ack("mixed", group, *[each for each in found if each is not one])
    longer = client.hide("mixed", group, handle_of(one), 20)
    assert code(longer) == "OK"
    assert code(client.hide("mixed", group, longer.receipt_handle, 0)) == "OK"
    assert code(client.ack("mixed", group, one)) == "INVALID_RECEIPT_HANDLE", "its old handle"
    (again,) = client.receive("mixed", group)
    assert again.system_properties.delivery_attempt == 2
    for name in ("message_id", "body_digest", "queue_offset"):
        assert getattr(again.system_properties, name) == getattr(one.system_properties, name)
    assert code(client.ack("mixed", group, again)) == "OK"


def test_a_handle_of_another_group_or_topic_or_made_up_changes_nothing(client, group):
    client.send(message("normal", b"held"))
    held = client.receive("normal", group)
    for topic, other in (("normal", f"{group}-2"), ("mixed", group)):
        client.receive(topic, other, 0)
        assert code(client.ack(topic, other, held[0])) == "INVALID_RECEIPT_HANDLE"
    for handle in ("", "no handle", "00" * 40, held[0].system_properties.receipt_handle[:-2]):
        made_up = pb.Message(system_properties=pb.SystemProperties(receipt_handle=handle))
        assert code(client.ack("normal", group, made_up)) != "OK"
    mixed = client.ack("normal", group, held[0], made_up)
    assert code(mixed) == "MULTIPLE_RESULTS"
    assert [code(one) for one in mixed.entries] == ["OK", "INVALID_RECEIPT_HANDLE"]


@pytest.mark.parametrize("invisible_s", [0, 9.9, 43_201])
def test_messages_are_hidden_for_10_s_to_12_hours(client, group, invisible_s):
    status, end = client.receive_raw("normal", group, invisible_s=invisible_s)
    assert code(status) == "ILLEGAL_INVISIBLE_TIME"
    assert end.HasField("delivery_timestamp")


def test_the_same_attempt_id_gives_the_same_messages(client, group):
    client.send(message("normal", b"lost answer"))
    first = client.receive("normal", group, attempt_id="a")
    again = client.receive("normal", group, attempt_id="a")
    assert {handle_of(one) for one in again} == {handle_of(one) for one in first}


def test_what_a_client_is_given_with_automatic_renewal_comes_back_when_it_says_goodbye(
    client, channel, group
):
    """It keeps what it has as long as it lives: its hand-outs' own time is 30 s."""
    client.send(message("normal", b"kept"))
    client.receive_until(b"kept", "normal", group, auto_renew=True, invisible_s=0)
    heartbeat = pb.HeartbeatRequest(group=pb.Resource(name=group), client_type=pb.PUSH_CONSUMER)
    assert code(client.call("Heartbeat", heartbeat)) == "OK"
    other = Client(channel)
    assert other.receive("normal", group, 0) == []
    goodbye = pb.NotifyClientTerminationRequest(group=pb.Resource(name=group))
    assert code(client.call("NotifyClientTermination", goodbye)) == "OK"
    again = until(lambda: other.receive("normal", group), "the lease has ended")
    assert again[0].system_properties.delivery_attempt == 2


# --- filters ---


@pytest.mark.parametrize("expression", ["Aa || C", "Aa||*|| C"])
def test_what_the_tags_leave_out_is_never_delivered(client, group, expression):
    tags = ["Aa", "BB", "C"]  # the first two have the same hash
    client.receive("untyped", group, 0)
    sent = [message("untyped", tag.encode(), tag=tag) for tag in tags]
    for one in sent:
        client.send(one)
    ids = {one.system_properties.message_id for one in sent}
    found: list[pb.Message] = []

    def wanted() -> bool:
        some = client.receive("untyped", group, 1, tags=expression)
        client.ack("untyped", group, *some) if some else None
        found.extend(one for one in some if one.system_properties.message_id in ids)
        return len(found) == 2

    until(wanted, "those with the tags come")
    assert sorted(one.body for one in found) == [b"Aa", b"C"]
    rest = client.receive("untyped", group, 0)
    assert not ids & {one.system_properties.message_id for one in rest}


def test_a_filter_in_sql_gives_exactly_what_it_selects(client, group):
    client.receive("untyped", group, 0)
    given = [{"a": "6", "b": "x"}, {"a": "5", "b": "x"}, {"b": "x"}, {"a": "10", "b": "x"}]
    sent = [message("untyped", b"%d" % at, values) for at, values in enumerate(given)]
    for one in sent:
        client.send(one)
    ids = {one.system_properties.message_id for one in sent}
    found: list[bytes] = []

    def wanted() -> bool:
        some = client.receive("untyped", group, 1, sql="a > 5 AND b = 'x'")
        client.ack("untyped", group, *some) if some else None
        found.extend(one.body for one in some if one.system_properties.message_id in ids)
        return len(found) == 2

    until(wanted, "those that it selects come")
    assert sorted(found) == [b"0", b"3"]
    status, _ = client.receive_raw("untyped", group, sql="a >")
    assert code(status) == "ILLEGAL_FILTER_EXPRESSION"


@pytest.mark.parametrize("expression", ["a ||", "a || || b", "a b"])
def test_an_expression_that_is_none_is_refused(client, group, expression):
    status, _ = client.receive_raw("normal", group, tags=expression)
    assert code(status) == "ILLEGAL_FILTER_EXPRESSION"


# --- order ---


def test_of_a_message_group_one_is_handed_out_at_a_time_and_others_go_on(client):
    for number, name in enumerate(["a", "a", "b"]):
        client.send(message("steps", b"%d" % number, message_group=name))
    first = client.receive("steps", "in-order", 5)
    more = client.receive("steps", "in-order", 1)
    assert sorted(one.body for one in first + more) == [b"0", b"2"]
    queues = {
        one.system_properties.message_group: one.system_properties.queue_id for one in first + more
    }
    for one in first + more:
        client.ack("steps", "in-order", one)
    (second,) = client.receive("steps", "in-order")
    assert second.body == b"1"
    assert second.system_properties.queue_id == queues["a"], "a message group stays in its queue"
    client.ack("steps", "in-order", second)


def test_the_highest_priority_is_handed_out_first(client, group):
    """The topic has four queues: priorities from 3 on share the last one, in their order."""
    route = client.call("QueryRoute", pb.QueryRouteRequest(topic=pb.Resource(name="urgent")))
    assert list(route.message_queues[0].accept_message_types) == [pb.PRIORITY]
    sent = (1, 3, 0, 2**31 - 1, 2)
    for priority in sent:
        assert code(client.send(message("urgent", priority=priority))) == "OK"
    turns = itertools.count()

    def handed() -> list[pb.SystemProperties]:
        """To a new group."""
        name, found = f"{group}-{next(turns)}", list[pb.SystemProperties]()
        while len(found) < len(sent):
            found += [one.system_properties for one in client.receive("urgent", name, batch=1)]
        return found

    wanted = [(3, 3), (2**31 - 1, 3), (2, 2), (1, 1), (0, 0)]
    until(  # the delivery learns of a new topic's type within a second
        lambda: [(one.priority, one.queue_id) for one in handed()] == wanted,
        "the highest priorities come first",
        look_s=0.5,
    )
    assert {one.message_type for one in handed()} == {pb.PRIORITY}


@pytest.mark.parametrize("topic, kind", [("urgent", {}), ("untyped", {"lite_topic": "a"})])
def test_what_a_topic_does_not_serve_is_refused(client, topic, kind):
    assert code(client.send(message(topic, **kind))) == "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"


# --- delay and transactions ---


def test_a_delayed_message_is_never_early(client, group):
    client.receive("later", group, 0)
    sent = message("later", b"in time")
    timestamp = sent.system_properties.delivery_timestamp
    timestamp.GetCurrentTime()
    timestamp.FromMilliseconds(timestamp.ToMilliseconds() + 1_500)
    due_ms = timestamp.ToMilliseconds()
    assert code(client.send(sent)) == "OK"
    (found,) = client.receive("later", group, 25)
    system = found.system_properties
    assert (system.message_type, system.delivery_attempt) == (pb.DELAY, 1)
    assert system.delivery_timestamp.ToMilliseconds() == due_ms
    assert system.store_timestamp.ToMilliseconds() >= due_ms
    client.ack("later", group, found)


def test_a_transaction_is_seen_after_its_commit_alone_through_any_gateway(client, channel, group):
    halves = {
        name: client.send(message("paid", name, message_type=pb.TRANSACTION)).entries[0]
        for name in (b"committed", b"rolled back", b"open")
    }
    assert client.receive("paid", group, 0) == []
    other = Client(channel)  # which knows nothing of the sends
    for name, resolution in ((b"committed", pb.COMMIT), (b"rolled back", pb.ROLLBACK)):
        for _ in range(2):
            answer = other.end("paid", halves[name].transaction_id, resolution)
            assert code(answer) == "OK", "given again, it is still so"
    (found,) = client.receive("paid", group)
    assert found.body == b"committed"
    assert found.system_properties.message_type == pb.TRANSACTION
    late = other.end("paid", halves[b"rolled back"].transaction_id, pb.COMMIT)
    assert code(late) == "INVALID_TRANSACTION_ID", "the first decision stands"
    for wrong in ("", "x", "0" * 16, "F" * 15 + halves[b"open"].transaction_id[15:]):
        assert code(other.end("paid", wrong, pb.COMMIT)) == "INVALID_TRANSACTION_ID"
    client.ack("paid", group, found)
    other.end("paid", halves[b"open"].transaction_id, pb.ROLLBACK)


def test_a_connected_producer_is_asked_what_became_of_a_transaction(client):
    settings = pb.Settings(client_type=pb.PRODUCER)
    settings.publishing.topics.add(name="paid")
    stream, ended = client.telemetry(settings)
    answered = next(stream).settings
    assert answered.publishing.max_body_size == 4 << 20
    assert answered.publishing.validate_message_type
    assert answered.backoff_policy.WhichOneof("strategy") == "exponential_backoff"
    sent = message("paid", b"asked", message_type=pb.TRANSACTION)
    client.send(sent)
    wanted = sent.system_properties.message_id
    command = next(
        told.recover_orphaned_transaction_command
        for told in stream
        if told.recover_orphaned_transaction_command.message.system_properties.message_id == wanted
    )
    assert code(client.end("paid", command.transaction_id, pb.ROLLBACK)) == "OK"
    ended.set()


# --- sessions ---


def test_the_settings_of_a_consumer_are_those_of_its_group(client):
    settings = pb.Settings(client_type=pb.PUSH_CONSUMER)
    settings.subscription.group.name = "in-order"
    settings.user_agent.language = pb.GOLANG
    stream, ended = client.telemetry(settings)
    answer = next(stream)
    assert code(answer) == "OK"
    subscription = answer.settings.subscription
    assert (subscription.fifo, subscription.receive_batch_size) == (True, 1)
    assert subscription.long_polling_timeout.seconds > 0
    assert answer.settings.backoff_policy.max_attempts == 17
    assert answer.settings.user_agent == settings.user_agent
    ended.set()
    assert list(stream) == []


def test_settings_of_nothing_end_the_stream_with_a_reason(client):
    stream, ended = client.telemetry(pb.Settings())
    with pytest.raises(grpc.RpcError) as failure:
        next(stream)
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    ended.set()


def test_a_client_without_a_name_is_told_so(channel):
    nameless = Client(channel, "")
    answer = nameless.call("Heartbeat", pb.HeartbeatRequest(client_type=pb.PRODUCER))
    assert code(answer) == "CLIENT_ID_REQUIRED"


def test_credentials_without_authentication_are_ignored(channel):
    known = Client(channel, authorization="MQv2-HMAC-SHA1 Credential=, SignedHeaders=x, Signature=")
    assert code(known.send(message("normal", b"signed by nothing"))) == "OK"


def test_what_is_not_served_ends_its_call_alone(client, channel):
    newer = channel.unary_unary(f"/{SERVICE.full_name}/NotYetKnown")
    with pytest.raises(grpc.RpcError) as failure:
        newer(b"", timeout=DEADLINE_S)
    assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert code(client.send(message("normal", b"goes on"))) == "OK"


def test_random_bytes_are_answered_and_hurt_nobody(client):
    """Requests whose fields are cut, repeated or of the wrong type."""
    chance = random.Random(7)
    whole = [
        pb.SendMessageRequest(messages=[message("normal", b"y" * 40, {"a": "b"}, tag="t")]),
        pb.AckMessageRequest(
            group=pb.Resource(name="g"),
            topic=pb.Resource(name="normal"),
            entries=[pb.AckMessageEntry(message_id="m", receipt_handle="AB")],
        ),
        pb.EndTransactionRequest(topic=pb.Resource(name="paid"), transaction_id="0" * 20),
    ]
    methods = ["SendMessage", "AckMessage", "EndTransaction", "QueryRoute", "Heartbeat"]
    for _ in range(200):
        data = bytearray(chance.choice(whole).SerializeToString())
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with_end = bytes(data[: chance.randrange(len(data) + 1)])
        assert client.call(chance.choice(methods), with_end).status.code
    assert code(client.send(message("normal", b"still here"))) == "OK"


# --- what no client of RocketMQ does ---


@pytest.mark.parametrize("seconds", [10**12, 253_402_300_800, -62_135_596_801, -(2**63)])
def test_a_time_that_is_none_is_refused(client, seconds):
    born, due = message("normal"), message("later")
    born.system_properties.born_timestamp.seconds = seconds
    due.system_properties.delivery_timestamp.seconds = seconds
    assert code(client.send(born)) == "BAD_REQUEST"
    assert code(client.send(due)) == "ILLEGAL_DELIVERY_TIME"


def test_a_request_of_more_messages_than_clients_send_is_refused_whole(client):
    many = [message("normal") for _ in range(MAX_MESSAGES + 1)]
    assert code(client.send(*many)) == "BAD_REQUEST"
    answer = client.send(*many[1:])
    assert (code(answer), len(answer.entries)) == ("OK", MAX_MESSAGES)


def test_an_address_that_every_queue_of_a_route_would_repeat_is_bounded(client):
    request = pb.QueryRouteRequest(topic=pb.Resource(name="normal"))
    for number in range(1_000):
        request.endpoints.addresses.add(host=f"gateway-{number}", port=80)
    assert code(client.call("QueryRoute", request)) == "ILLEGAL_ACCESS_POINT"


def test_a_call_ends_with_its_time_on_a_topic_full_of_what_its_filter_leaves_out(client, group):
    """The first look finds one that is left out, and the call may not wait for a second."""
    client.receive("untyped", group, 0)
    for tag in ("other", "other", group):  # in one queue
        client.send(message("untyped", tag=tag, message_group="g"))
    wanted = {"sql": f"TAGS = '{group}'", "batch": 1}
    assert client.receive("untyped", group, 0, **wanted) == []
    (found,) = client.receive("untyped", group, **wanted)
    assert found.system_properties.tag == group


@pytest.mark.parametrize("data", [b"\xff\xff", b"\x0a\x03\x12\x01\xff", b"\x0a" * 300_000])
def test_a_command_that_is_none_ends_its_stream_with_a_reason(channel, data):
    """Also of a client that does not wait for it: the gateway's log stays without a traceback."""
    stub = channel.stream_stream(f"/{SERVICE.full_name}/Telemetry")
    for _ in range(5):
        # Another client's: a newer stream of the same client would end the one below.
        stub(iter([data]), metadata=[("x-mq-client-id", "impatient")]).cancel()
    with pytest.raises(grpc.RpcError) as failure:
        list(stub(iter([data]), timeout=DEADLINE_S, metadata=[("x-mq-client-id", "odd")]))
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT


# --- who calls ---


def test_signed_calls_over_tls_have_the_rights_of_their_user(tmp_path):
    pki = made(tmp_path / "pki")
    wanted = (("produce", "topic:normal"), ("consume", "topic:normal"), ("consume", "group:shop"))
    permissions = Permissions(rules=[grant_of("shop", *one) for one in wanted])
    secret = permissions.add_token("shop", "", signs=True)
    file = tmp_path / "permissions.json"
    file.write_bytes(dump(permissions))
    with served(tmp_path, *pki.settings(f"access.file={file}")) as (broker, address):
        with connect(broker.root) as client:
            client.admin.create_topic(Topic("normal", 4, 4))
            client.admin.create_topic(Topic("other", 4, 4))
        credentials = grpc.ssl_channel_credentials((pki.directory / "ca.pem").read_bytes())
        with grpc.secure_channel(address, credentials) as channel:
            shop = Client(channel, **signed("shop", secret))
            assert code(shop.send(message("normal", b"allowed"))) == "OK"
            assert [one.body for one in shop.receive("normal", "shop")] == [b"allowed"]
            assert code(shop.send(message("other"))) == "FORBIDDEN"
            assert code(shop.receive_raw("normal", "billing")[0]) == "FORBIDDEN"
            for other in (signed("shop", "guessed"), signed("nobody", secret), {}):
                stranger = Client(channel, **other)
                assert code(stranger.send(message("normal"))) == "UNAUTHORIZED"
                assert code(stranger.receive_raw("normal", "shop")[0]) == "UNAUTHORIZED"


def signed(user: str, secret: str) -> dict[str, str]:
    now = "20261127T140000Z"
    signature = hmac.new(secret.encode(), now.encode(), "sha1").hexdigest()
    credential = f"MQv2-HMAC-SHA1 Credential={user}/r/RocketMQ, SignedHeaders=x-mq-date-time"
    return {"x-mq-date-time": now, "authorization": f"{credential}, Signature={signature}"}
