"""Sends that go on as they came: which they are, what they store, and what they are answered."""

import json
import struct

import pytest
from stratamq_gateway.codes import RequestCode
from stratamq_gateway.frames import Command, encode_answer
from stratamq_gateway.rows import encode_sent, rows_of
from stratamq_gateway.sending import Send, sent_answer

from stratamq.client import connect
from stratamq.client.outgoing import encode_message_properties
from stratamq.client.units import PlacedRun
from stratamq.client.values import SendResult
from stratamq.formats.frame import decode
from stratamq.formats.message_status import SendStatus
from stratamq.formats.properties import decode_properties
from stratamq.rpc.permission_file import Permissions, dump, grant_of
from tests.gateway.remoting import Remoting, request
from tests.gateway.test_gateway import NO_PERMISSION, OK, ROOMS, SETTINGS, address
from tests.support.brokers import Broker

KEY = "7F000001000000000000000000000001"
ILLEGAL = 13
BORN_MS = 1_700_000_000_000


def packed(**properties: str) -> str:
    return "".join(f"{name}\1{value}\2" for name, value in properties.items())


def fields_of(topic: str, properties: str, **others: object) -> dict[str, object]:
    fields = {"a": "producers", "b": topic, "c": "TBW102", "d": 4, "e": 1, "f": 0, "g": BORN_MS}
    return {**fields, "h": 7, "i": properties, "j": 0, **others}


def entry(body: bytes, properties: str, flag: int = 7) -> bytes:
    raw = properties.encode()
    rest = struct.pack(">iiii", 0, 0, flag, len(body)) + body + struct.pack(">h", len(raw)) + raw
    return struct.pack(">i", len(rest) + 4) + rest


def command(properties: str, body: bytes = b"body", code: int = 310, **others: object) -> Command:
    fields = fields_of(str(others.pop("topic", "orders")), properties, **others)
    return Command(code, {name: str(value) for name, value in fields.items()}, body)


def decoded(asked: Command) -> list[tuple[bytes, dict[str, str]]]:
    """Bodies and properties as the way that decodes makes them."""
    sent = Send(RequestCode(asked.code), "region", "cluster", None).decode(asked)
    return [
        (
            one.body,
            decode_properties(
                encode_message_properties(one.tag, one.keys, one.unique_key or "", one.properties)
            ),
        )
        for one in sent.messages
    ]


FULL = packed(KEYS="k1 k2", UNIQ_KEY=KEY, WAIT="true", TAGS="grün", colour="red")
MESSAGES = [entry(b"a", packed(UNIQ_KEY=KEY, TAGS="t")), entry(b"", packed(UNIQ_KEY=KEY, x="1"))]
OUTER = packed(UNIQ_KEY="other", WAIT="true", x="2")


@pytest.mark.parametrize(
    "asked",
    [
        command(FULL),
        command("NO_UNIQ_KEY\1a\2" + FULL),
        command(OUTER, b"".join(MESSAGES), m="true"),
        command(OUTER, MESSAGES[0], 320),
        command(OUTER, entry(b"a", packed(NOWAIT="true", UNIQ_KEY=KEY, x="23")), 320),
    ],
    ids=["one", "another key", "batch", "320", "names within names"],
)
def test_what_goes_on_undecoded_stores_the_same_messages(asked):
    found = rows_of(asked)
    assert found is not None
    assert (found.topic, found.queue_id, found.fields) == ("orders", 1, (7, 0, BORN_MS, 0))
    assert [(body, decode_properties(raw)) for body, raw in found.rows] == decoded(asked)
    assert not any(raw.endswith(b"\x02") for _, raw in found.rows), "the log adds its own items"


def test_request_10_has_the_long_names():
    fields = {"topic": "orders", "queueId": "-1", "bornTimestamp": "5", "properties": FULL}
    found = rows_of(Command(10, fields, b"body"))
    assert found is not None
    assert (found.topic, found.queue_id, found.fields) == ("orders", None, (0, 0, 5, 0))


BIG = packed(UNIQ_KEY=KEY, large="x" * 32_767)


@pytest.mark.parametrize(
    "asked",
    [
        command(packed(UNIQ_KEY=KEY, DELAY="3")),
        command(packed(UNIQ_KEY=KEY, TIMER_DELIVER_MS="3")),
        command(packed(UNIQ_KEY=KEY, TIMER_DELAY_MS="3")),
        command(packed(UNIQ_KEY=KEY, TIMER_DELAY_SEC="3")),
        command(packed(UNIQ_KEY=KEY, TRAN_MSG="true")),
        command(packed(UNIQ_KEY=KEY, WAIT="false")),
        command(packed(UNIQ_KEY=KEY, PSEQ="0")),
        command(packed(UNIQ_KEY=KEY, REPLY_TO_CLIENT="c")),
        command(packed(TAGS="a")),
        command("UNIQ_KEY\1\2TAGS\1a"),
        command("NO_UNIQ_KEY\1a\2"),
        command(BIG),
        command("\ud800" + FULL),
        command(FULL, topic="%RETRY%billing"),
        command(FULL, topic=""),
        command(FULL, g=0),
        command(FULL, e="x"),
        command(OUTER, b"", m="true"),
        command(OUTER, b"".join(MESSAGES)[:-1], m="true"),
        command(OUTER, entry(b"a", packed(TAGS="t")), m="true"),
        command(OUTER, entry(b"a", packed(UNIQ_KEY=KEY), flag=8), m="true"),
        command(packed(UNIQ_KEY=KEY), MESSAGES[0], m="true"),
        command(packed(UNIQ_KEY=KEY, DELAY="1"), MESSAGES[0], m="true"),
        command(
            OUTER, entry(b"a", packed(UNIQ_KEY=KEY)).replace(KEY[:2].encode(), b"\xff\xff"), 320
        ),
    ],
)
def test_what_needs_more_is_decoded(asked):
    assert rows_of(asked) is None


@pytest.mark.parametrize("key", [KEY, '"a\\', "grün"])
@pytest.mark.parametrize("count", [1, 3])
def test_both_ways_answer_alike(key, count):
    status, ids = SendStatus.FLUSH_DISK_TIMEOUT, [f"{at:032X}" for at in range(count)]
    results = [
        SendResult(status, "t", 3, 9 + at, unique_key=key, message_id=ids[at])
        for at in range(count)
    ]
    slow = b"".join(encode_answer(sent_answer(results, "region"), 5))
    fast = encode_sent(PlacedRun(status, 3, 9, ids), key, 5, "region")
    assert fast[:4] == struct.pack(">I", len(fast) - 4)
    assert json.loads(fast[8:]) == json.loads(slow[8:])


# --- at a gateway ---


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    place = tmp_path_factory.mktemp("rows")
    with Broker(place / "store", place / "logs", SETTINGS) as broker:
        yield broker.start(ROOMS)


@pytest.fixture
def client(broker):
    """Its connection has sent a message: the next ones may go on undecoded."""
    with Remoting(address(broker)) as client:
        assert client.ask(310, b"first", **fields_of("first", FULL)).code == OK
        yield client


def test_sends_that_come_together_are_each_answered_with_their_place(broker, client):
    asked = []
    for number in range(300):
        properties = packed(UNIQ_KEY=f"{number:032X}", colour="red")
        asked.append(request(310, fields_of("many", properties), b"%d" % number, 1_000 + number))
    client.socket.sendall(b"".join(asked))
    replies = {}
    for _ in asked:
        header, reply = client.receive()
        replies[header["opaque"]] = reply
    with connect(broker.root) as direct:
        for number in range(300):
            reply = replies[1_000 + number]
            assert (reply.code, reply.fields["queueOffset"]) == (OK, str(number))
            assert reply.fields["transactionId"] == f"{number:032X}"
            message = decode(direct.message_by_id(reply.fields["msgId"]).frame)
            assert (message.body, message.flag) == (b"%d" % number, 7)
            assert message.properties["colour"] == "red"


def test_a_batch_is_stored_and_answered_whole(broker, client):
    bodies = b"".join(
        entry(b"%d" % number, packed(UNIQ_KEY=f"{number:032X}")) for number in range(50)
    )
    reply = client.ask(320, bodies, **fields_of("batch", OUTER))
    assert (reply.code, reply.fields["queueOffset"], reply.fields["queueId"]) == (OK, "0", "1")
    with connect(broker.root) as direct:
        found = [direct.message_by_id(one) for one in reply.fields["msgId"].split(",")]
    assert [one.body for one in found] == [b"%d" % number for number in range(50)]
    assert [one.queue_offset for one in found] == list(range(50))


def test_messages_that_cannot_be_stored_are_refused_and_the_others_are_not(broker, client):
    assert client.ask(310, b"x", **fields_of("no topic!", FULL)).code == ILLEGAL
    assert client.ask(310, b"x", **fields_of("numbers", FULL, j=1 << 40)).code == ILLEGAL
    assert client.ask(310, b"x" * (5 << 20), **fields_of("large", FULL)).code == ILLEGAL
    batch = b"".join(MESSAGES)
    assert client.ask(320, batch, **fields_of("no topic!", OUTER)).code == ILLEGAL
    assert client.ask(310, b"x", **fields_of("others", FULL)).code == OK


def test_what_is_sent_without_waiting_for_an_answer_is_stored(broker, client):
    oneway = 2
    client.socket.sendall(request(310, fields_of("oneway", FULL), b"x", 77, oneway))
    reply = client.ask(310, b"y", **fields_of("oneway", FULL))
    assert reply.fields["queueOffset"] == "1", "nothing was answered before, and one was stored"


def test_a_topic_that_may_not_be_written_to_is_refused_on_every_way(tmp_path):
    permissions = Permissions(rules=[grant_of("shop", "produce", "topic:orders")])
    secret = permissions.add_token("shop", "", signs=True)
    file = tmp_path / "permissions.json"
    file.write_bytes(dump(permissions))
    settings = (*SETTINGS, f"access.file={file}")
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start(ROOMS)
        with Remoting(address(broker), key=("shop", secret)) as client:
            for _ in range(2):
                assert client.ask(310, b"x", **fields_of("orders", FULL)).code == OK
                assert client.ask(310, b"x", **fields_of("others", FULL)).code == NO_PERMISSION
