"""A gateway beside a broker of real processes: what was answered is there, whatever is
killed; bad requests get an answer, bad bytes a closed connection, and others are served on."""

import json
import random
import re
import socketserver
import struct
import threading

import pytest
from stratamq_bench.ports import free_port
from stratamq_gateway.connection import Connection
from stratamq_gateway.frames import Command
from stratamq_gateway.sending import LONG_NAMES

from stratamq.client import MessageType, Topic, connect
from stratamq.formats.frame import decode
from stratamq.rpc.permission_file import Permissions, dump
from stratamq.rpc.request_ids import Request
from stratamq.service.logging import DEFECTS
from tests.gateway.hostile_frames import (
    ALL_CODES,
    BODIES,
    ROOMS,
    Task,
    attack,
    hostile_broker,
    random_fields,
    run_frames,
)
from tests.gateway.remoting import Remoting, beat, frame, pull, request, send
from tests.security.conftest import made
from tests.support.brokers import GATEWAY, Broker
from tests.support.sampling import few
from tests.support.waiting import until

SETTINGS = ("gateway.remoting_address=127.0.0.1:0",)
FRAMES = 2_000
OK, SYSTEM_ERROR, INVALID_PARAMETER = 0, 1, 29
MESSAGE_ILLEGAL, NO_PERMISSION, TOPIC_NOT_EXIST, NOT_SUPPORTED = 13, 16, 17, 3
NO_MATCH, PARSE_FAILED, SUBSCRIPTION_NOT_EXIST = 20, 23, 24
NOTIFY_CONSUMER_IDS_CHANGED = 40


@pytest.fixture(scope="module")
def further():
    """Where the gateway listens, too."""
    return [f"127.0.0.1:{free_port()}" for _ in range(2)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory, further):
    place = tmp_path_factory.mktemp("gateway")
    settings = (*SETTINGS, f"gateway.remoting_further_addresses={','.join(further)}")
    with Broker(place / "store", place / "logs", settings) as broker:
        yield broker.start(ROOMS)


def address(broker: Broker) -> str:
    with connect(broker.root, retry_timeout_s=60) as client:
        return client.admin.gateway_state().remoting_address


@pytest.fixture
def client(broker):
    with Remoting(address(broker)) as client:
        yield client


def test_a_message_that_was_sent_is_pulled_as_it_is_stored(broker, client):
    sent = send(client, "stored", b"body", TAGS="a", KEYS="k1 k2")
    assert sent.code == OK and sent.fields["queueOffset"] == "0"
    pulled = until(
        lambda: (one := pull(client, "stored", 0)).code == OK and one, "it is dispatched"
    )
    message = decode(pulled.body)
    assert (message.topic, message.body) == ("stored", b"body")
    assert pulled.fields["nextBeginOffset"] == "1"
    with connect(broker.root) as direct:
        assert direct.message_at(message.physical_offset).frame == pulled.body


def test_a_priority_chooses_the_queue_whatever_the_client_has_chosen(broker, client):
    with connect(broker.root) as direct:
        direct.admin.create_topic(Topic("urgent", 4, 4, message_type=MessageType.PRIORITY))
    sent = [send(client, "urgent", b"x", _SYS_MSG_PRIORITY_=one).fields for one in ("9", "1")]
    assert [one["queueId"] for one in sent] == ["3", "1"]
    assert send(client, "urgent", b"x").code == MESSAGE_ILLEGAL


def test_a_route_names_the_address_at_which_clients_connect(broker, client):
    send(client, "routed", b"x")
    route = client.ask(105, topic="routed").document
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": address(broker)}
    assert client.ask(105, topic="none").code == TOPIC_NOT_EXIST


def test_clients_are_served_at_each_address_and_routes_name_the_first(broker, client, further):
    """Such as the old broker's, which ids of messages and cached routes name."""
    sent = send(client, "further", b"x")
    for one in further:
        with Remoting(one) as other:
            assert send(other, "further", b"y").code == OK
            frame = other.ask(33, offset=int(sent.fields["msgId"][16:], 16)).body
            assert decode(frame).body == b"x"
            (route,) = other.ask(105, topic="further").document["brokerDatas"]
            assert route["brokerAddrs"] == {"0": address(broker)}


def test_a_code_that_is_not_served_is_answered(client):
    reply = client.ask(9_999)
    assert (reply.code, reply.remark) == (NOT_SUPPORTED, " request type 9999 not supported")


def test_answered_sends_are_there_after_every_process_was_killed(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as broker:
        broker.start(ROOMS)
        with Remoting(address(broker)) as client:
            replies = [send(client, "kept", b"%d" % number) for number in range(20)]
        assert {one.code for one in replies} == {OK}
        broker.kill(*ROOMS)
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as direct:
            found = until(
                lambda: len(one := list(direct.consume("kept"))) == 20 and one,
                "they are dispatched",
            )
        assert [one.body for one in found] == [b"%d" % number for number in range(20)]


def test_a_gateway_that_is_killed_resets_its_connections_and_one_that_stops_closes_them(tmp_path):
    """Java's clients of 4.x notice a reset alone, and else wait 30 s for each pull."""
    with Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as broker:
        broker.start(ROOMS)
        with Remoting(address(broker)) as client:
            assert send(client, "orders", b"x").code == OK
            broker.kill(GATEWAY)
            with pytest.raises(ConnectionResetError):
                client.socket.recv(1)
        broker.start([GATEWAY])
        with Remoting(address(broker)) as client:
            assert send(client, "orders", b"x").code == OK
            broker.terminate(GATEWAY)
            assert client.socket.recv(1) == b""


def test_members_are_told_of_a_new_one_and_of_one_that_goes(broker, client):
    beat(client, "first", consumer="together")
    with Remoting(address(broker)) as other:
        beat(other, "second", consumer="together")
        listed = client.ask(38, consumerGroup="together").document["consumerIdList"]
        assert sorted(listed) == ["first", "second"]
    until(
        lambda: client.ask(38, consumerGroup="together").document == {"consumerIdList": ["first"]},
        "the second is gone",
    )
    assert client.told == [NOTIFY_CONSUMER_IDS_CHANGED] * 3, "itself, the second, its going"


REPLY = {"a": "repliers", "b": "DefaultCluster_REPLY_TOPIC", "c": "TBW102", "d": 4, "e": 0}
REPLY |= {"f": 0, "g": 1, "h": 7, "j": 0}
LONG_REPLY = {name: REPLY[short] for name, short in LONG_NAMES.items() if short in REPLY}
TO_WAITING = "CORRELATION_ID\1n1\2REPLY_TO_CLIENT\1waiting\2MSG_TYPE\1reply\2"


@pytest.mark.parametrize("code, fields", [(325, REPLY), (324, LONG_REPLY)])
@pytest.mark.parametrize("body", [b"reply", b""])
@pytest.mark.parametrize("taken", [OK, SYSTEM_ERROR])
def test_a_reply_is_passed_to_the_client_that_waits_and_stored_nowhere(
    broker, client, code, fields, body, taken
):
    beat(client, "waiting", producer="requests")
    (queues,) = client.ask(105, topic="DefaultCluster_REPLY_TOPIC").document["queueDatas"]
    assert (queues["writeQueueNums"], queues["perm"]) == (1, 6)
    with Remoting(address(broker)) as replier, connect(broker.root) as direct:
        before = direct.log_state().appended_offset
        name = "i" if code == 325 else "properties"
        replier.socket.sendall(request(code, {**fields, name: TO_WAITING}, body, 1))
        header, pushed = client.receive()
        assert (pushed.code, pushed.body) == (326, body)
        assert pushed.fields["topic"] == "DefaultCluster_REPLY_TOPIC"
        assert (pushed.fields["producerGroup"], pushed.fields["flag"]) == ("repliers", "7")
        assert re.fullmatch(r"PUSH_REPLY_TIME\x01\d+\x02" + TO_WAITING, pushed.fields["properties"])
        client.socket.sendall(request(taken, {}, b"", header["opaque"], flag=1))
        _, answer = replier.receive()
        assert answer.code == taken
        assert answer.fields.get("msgId") == ("0" if taken == OK else None)
        assert direct.log_state().appended_offset == before


def test_a_reply_to_a_client_that_is_not_there_is_answered(client):
    gone = client.ask(325, b"reply", i="REPLY_TO_CLIENT\1nobody\2", **REPLY)
    assert gone.code == SYSTEM_ERROR and "nobody is not connected" in gone.remark
    assert client.ask(325, b"reply", i="TAGS\1a", **REPLY).code == INVALID_PARAMETER


def test_a_request_for_an_answer_names_the_cluster(client, broker):
    send(client, "asked", b"x", REPLY_TO_CLIENT="waiting")
    send(client, "asked", b"x", TAGS="a")
    with connect(broker.root) as direct:
        asking, other = until(
            lambda: len(one := list(direct.consume("asked"))) == 2 and one, "they are dispatched"
        )
    assert asking.properties["CLUSTER"] == "DefaultCluster"
    assert "CLUSTER" not in other.properties


def test_a_filter_selects_by_properties_and_goes_on_behind_what_it_does_not(broker, client):
    for number in range(4):
        assert send(client, "filtered", b"%d" % number, a=str(number), b="x").code == OK
    asked = {"subscription": "a > 1 AND b = 'x'", "expressionType": "SQL92"}
    until(lambda: pull(client, "filtered", 3).code == OK, "all are dispatched")
    pulled = pull(client, "filtered", 0, **asked)
    assert (pulled.code, pulled.fields["nextBeginOffset"]) == (OK, "4")
    with connect(broker.root) as direct:
        frames = [one.frame for one in direct.consume("filtered")]
    assert pulled.body == b"".join(frames[2:])
    none = pull(client, "filtered", 0, **asked | {"subscription": "a > 9"})
    assert (none.code, none.body, none.fields["nextBeginOffset"]) == (NO_MATCH, b"", "4")
    wrong = pull(client, "filtered", 0, **asked | {"subscription": "a >"})
    assert wrong.code == PARSE_FAILED and "cannot be parsed" in wrong.remark
    beat(client, "c", consumer="selecting", topic="filtered", sql="a = 3")
    later = {"consumerGroup": "selecting", "sysFlag": 0, "subscription": ""}
    assert pull(client, "filtered", 0, **later).body == frames[3], "as its heartbeat said"


def test_a_pull_by_tags_needs_no_heartbeat_and_one_by_sql_does(client):
    """As after a restart of the gateway: the client looks at tags again, and at SQL it does not."""
    assert send(client, "unknown", b"body", TAGS="a").code == OK
    asked = {"consumerGroup": "away", "sysFlag": 0, "subscription": "", "expressionType": "TAG"}
    found = until(
        lambda: (one := pull(client, "unknown", 0, **asked)).code == OK and one, "it is dispatched"
    )
    assert decode(found.body).body == b"body"
    for kind in ("SQL92", ""):
        refused = pull(client, "unknown", 0, **(asked | {"expressionType": kind}))
        assert refused.code == SUBSCRIPTION_NOT_EXIST


@pytest.mark.parametrize(
    "kind, expression, code",
    [("SQL92", "a > 1", OK), ("SQL92", "a >", 23), ("TAG", "A || B", OK), ("REGEX", "a", 23)],
)
def test_a_consumer_learns_whether_its_expression_is_one(client, kind, expression, code):
    one = {"topic": "orders", "subString": expression, "expressionType": kind, "subVersion": 1}
    said = {"clientId": "c", "group": "g", "subscriptionData": one}
    assert client.ask(46, json.dumps(said).encode()).code == code
    assert client.ask(46, b'{"group": "g"}').code == INVALID_PARAMETER


def test_a_connection_without_permission_stores_and_reads_nothing(tmp_path):
    permissions = tmp_path / "permissions.json"
    permissions.write_bytes(dump(Permissions()))
    settings = (*SETTINGS, f"access.file={permissions}")
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start(ROOMS)
        with Remoting(address(broker)) as client:
            assert send(client, "orders", b"x").code == NO_PERMISSION
            assert pull(client, "orders", 0).code == NO_PERMISSION
            assert {client.ask(code).code for code in ALL_CODES} == {NO_PERMISSION}
        with connect(broker.root) as direct:
            assert direct.log_state().appended_offset == 0


# --- hostile bytes ---


def well(broker: Broker) -> None:
    """The gateway serves others, and its log has no exception."""
    with Remoting(address(broker)) as other:
        assert send(other, "well", b"after").code == OK
    assert "Traceback" not in broker.output(GATEWAY)


@pytest.mark.parametrize("seed", few(range(20), 2))
def test_random_fields_of_every_code_get_an_answer(broker, seed):
    chance = random.Random(seed)
    with Remoting(address(broker)) as client:
        for _ in range(20):
            for code in ALL_CODES:
                fields = random_fields(chance)
                assert client.ask(code, chance.choice(BODIES), **fields).code >= 0
    well(broker)


def test_a_frame_that_is_none_ends_its_connection(client):
    client.socket.sendall(struct.pack(">I", 1 << 31) + b"x" * 8)
    with pytest.raises(EOFError):
        client.receive()


HALF = "\ud800"


def test_half_a_character_is_refused_and_leaves_no_traceback(broker, client):
    sending = {"a": "p", "b": "orders", "d": 4, "e": 0, "g": 1, "j": 0}
    for fields in (sending | {"i": HALF}, sending | {"b": HALF}, {"AccessKey": HALF}):
        refused = client.ask(310, **fields)
        assert refused.code == INVALID_PARAMETER and "surrogate" in refused.remark
    assert client.ask(105, topic=HALF).code == INVALID_PARAMETER
    beaten = client.ask(34, json.dumps({"clientID": HALF}).encode())
    assert beaten.code == INVALID_PARAMETER and "surrogate" in beaten.remark
    well(broker)


def test_a_failure_of_the_gateway_itself_is_logged_where_lines_are_few(caplog):
    failed = ValueError("nobody expected it")
    answer = Connection(None, {}, None).failure(Command(310, {}), "Append", failed, Request())
    assert answer.code == SYSTEM_ERROR and "internal error" in answer.remark
    assert [one.name for one in caplog.records] == [DEFECTS]


def test_torn_frames_harm_neither_the_gateway_nor_an_honest_client(tmp_path):
    """`python -m tests.gateway.hostile_frames` sends a million."""
    with hostile_broker(tmp_path) as (broker, address, authority):
        found = run_frames(broker, address, authority, FRAMES, seed=0, jobs=1)
    assert found.well, "\n".join(found.lines())
    assert len(found.frames) == 7 and min(found.frames.values()) > FRAMES // 100


@pytest.mark.parametrize(
    ("answer", "failure"),
    [(frame(b"{}")[:-1], ""), (frame(b"no header"), "seed 7: Traceback")],
    ids=["cut", "none"],
)
def test_a_task_goes_on_after_an_answer_that_is_cut_and_names_its_seed_after_none(
    tmp_path, answer, failure
):
    class Answers(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            self.request.sendall(answer)

    authority = made(tmp_path / "pki").directory / "ca.pem"
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host, port = server.server_address
        done = attack(Task(f"{host}:{port}", str(authority), seed=7, frames=60))
        server.shutdown()
    assert done.failure.startswith(failure) and bool(done.failure) == bool(failure)
    assert bool(failure) or sum(done.sent.values()) >= 60
