"""What is given to a public call is checked when it is given: every parameter of every one."""

import dataclasses
import inspect
import math
import typing

import pytest

from stratamq.client import (
    AtTime,
    Drain,
    GroupReset,
    HalfMessage,
    Message,
    ProducerSettings,
    QueuePurge,
    Reading,
    TimeBoundary,
    Topic,
    connect,
    connect_async,
)
from stratamq.errors import InvalidRequestError, StrataError
from stratamq.rpc import discovery
from tests.client.on_loop import original
from tests.support.brokers import COMMITLOG, broker_fixture

GOOD = {
    "topic": "t",
    "topics": ["t"],
    "name": "t",
    "body": b"x",
    "queue_id": 0,
    "offset": 0,
    "key": "k",
    "unique_key": "k",
    "group": "g",
    "member": "m",
    "message_id": "00",
    "physical_offset": 0,
    "begin": 0,
    "begin_ms": 0,
    "end_ms": 0,
    "timestamp_ms": 0,
    "boundary": TimeBoundary.LOWER,
    "ranges": [],
    "offsets": {},
    "message": Message("t", b"x"),
    "messages": [],
    "halves": [HalfMessage("t", 0, "key")],
    "commit": True,
    "rows": [],
    "before": 0,
    "to": "earliest",
    "purges": [],
    "resets": [],
    "drain": Drain.OPEN,
    "term": 0,
    "boot": "",
    "until_ns": 0,
    "enabled": True,
    "paused": True,
    "place": "1:2",
}
"""For parameters without a default. A new one is to be named here."""
VALUES = {"Client.consume": Reading, "Client.send": Message}
"""Whose fields are keyword arguments of a call."""
ITERATED = {("send_rows", "rows"): TypeError}
"""Raised by what iterates it."""
MORE_WRONG = {
    str: ["\ud800"],
    int: [1.5, 1 << 64, math.nan, True],
    float: ["1", math.nan, True],
    bool: ["yes", 2],
}


SETTINGS = (
    "commitlog.segment_bytes=1048576",
    "index.index_slots=1000",
    "index.index_items=4000",
)
broker = broker_fixture(*SETTINGS, of_each_kind=True)


@pytest.fixture(scope="module", params=["one name", "several"])
def objects(request, broker, opened):
    """By kind: client, admin, producer, reader."""
    target = broker.root
    if request.param == "several":
        port = discovery.read(broker.root, COMMITLOG).address.rpartition(":")[2]
        target = f"localhost:{port}"
    with opened(target, retry_timeout_s=60) as client:
        client.send("t", b"x", queue_id=0)
        with client.producer() as producer, client.consume("t") as reader:
            yield {"client": client, "admin": client.admin, "producer": producer, "reader": reader}


def wrong_for(hint) -> list:
    """None of them is of the annotation."""
    kinds = set(flattened(hint))
    wrong = [object()]
    if len(kinds - {type(None)}) == 1:
        (kind,) = kinds - {type(None)}
        wrong += MORE_WRONG.get(kind, [])
    return wrong


def flattened(hint):
    inner = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin is None or not inner:
        yield hint
    elif origin in (typing.Union, type(int | None)):
        for one in inner:
            yield from flattened(one)
    else:
        yield origin


def parameters(method):
    """Those with an annotation, and the fields of the value that stands for further ones."""
    value = VALUES.get(method.__qualname__.removeprefix("Async"))
    if value is not None:
        of_fields = typing.get_type_hints(value)
        yield from ((one.name, of_fields[one.name]) for one in dataclasses.fields(value))
    hints = typing.get_type_hints(method)
    for name, one in inspect.signature(method).parameters.items():
        several = one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        if not several and hints.get(name, typing.Any) is not typing.Any:
            yield name, hints[name]


def required(method) -> dict:
    return {
        name: GOOD[name]
        for name, one in inspect.signature(method).parameters.items()
        if one.default is one.empty
        and name != "self"
        and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    }


@pytest.mark.parametrize("which", ["client", "admin", "producer", "reader"])
def test_every_parameter_of_every_public_call_is_checked(objects, which):
    one = objects[which]
    unchecked, looked_at = [], 0
    for name, method in inspect.getmembers(type(original(one)), inspect.isfunction):
        if name.startswith("_"):
            continue
        for parameter, hint in parameters(method):
            for wrong in wrong_for(hint):
                looked_at += 1
                expected = ITERATED.get((name, parameter), InvalidRequestError)
                try:
                    getattr(one, name)(**{**required(method), parameter: wrong})
                    unchecked.append(f"{name}({parameter}={wrong!r}): nothing was raised")
                except expected:
                    pass
                except (StrataError, TypeError, AttributeError, ValueError) as error:
                    unchecked.append(f"{name}({parameter}={wrong!r}): {type(error)} {error}")
    assert looked_at
    assert not unchecked, "\n".join(unchecked)


@pytest.mark.parametrize("call", [connect, connect_async])
def test_every_parameter_of_connect_is_checked(call):
    for parameter, hint in parameters(call):
        for wrong in wrong_for(hint):
            given = {"target": "127.0.0.1:1", parameter: wrong}
            with pytest.raises(InvalidRequestError):
                call(**given)
    for timeout_s in (0, -1):
        with pytest.raises(InvalidRequestError):
            call("127.0.0.1:1", timeout_s=timeout_s)


@pytest.mark.parametrize("name", ["retry_timeout_s", "refresh_s", "commit_interval_s"])
def test_a_time_below_0_is_refused(objects, name):
    with pytest.raises(InvalidRequestError, match=f"{name} is -1: 0 or more"):
        objects["client"].consume("t", **{name: -1})


def test_an_infinite_time_is_no_limit(broker, opened):
    """Nothing on the way, from gRPC to the operating system, takes what no clock can hold."""
    with opened(broker.root, timeout_s=math.inf, retry_timeout_s=math.inf) as client:
        assert client.send("endless", b"0", queue_id=0).queue_offset == 0
        assert client.send_all([Message("endless", b"1", queue_id=0)])[0].queue_offset == 1
        settings = {"timeout_s": math.inf, "delivery_timeout_s": math.inf}
        with client.producer(**settings) as producer:
            assert producer.send("endless", b"2", queue_id=0).result(math.inf).queue_offset == 2
            producer.send("endless", b"3", queue_id=0)
            producer.flush(math.inf)
            producer.close(math.inf)
        named = ("retry_timeout_s", "refresh_s", "commit_interval_s")
        with client.consume("endless", group="g", **dict.fromkeys(named, math.inf)) as reader:
            assert reader.poll(math.inf).body == b"0"
            assert reader.getmany(1, math.inf)[0].body == b"1"


def test_a_time_that_is_no_number_is_refused_by_a_delivery(objects):
    delivery = objects["producer"].send("t", b"x", queue_id=0)
    delivery.result()
    for timeout_s in (math.nan, True, "1"):
        with pytest.raises(InvalidRequestError, match="timeout_s"):
            delivery.result(timeout_s)


@pytest.mark.parametrize("field", dataclasses.fields(ProducerSettings), ids=lambda one: one.name)
def test_every_setting_of_a_producer_is_checked(field):
    hint = typing.get_type_hints(ProducerSettings)[field.name]
    for wrong in wrong_for(hint):
        with pytest.raises(InvalidRequestError):
            ProducerSettings(**{field.name: wrong})


def test_true_is_no_number(objects):
    client, admin = objects["client"], objects["admin"]
    calls = [
        lambda: client.send_all([Message("t", b"x", queue_id=True)]),
        lambda: client.send_message(Message("t", b"x", flag=True)),
        lambda: client.send_message(Message("t", b"x", delay_level=False, queue_id=True)),
        lambda: objects["producer"].send_message(Message("t", b"x", reconsume_times=True)),
        lambda: client.commit_offsets("g", {("t", 0): True}),
        lambda: client.commit_offsets("g", {("t", True): 0}),
        lambda: client.queue_frames([("t", True, 0, 1)]),
        lambda: client.consume("t", queues=[True]),
        lambda: list(client.consume("t", offset=AtTime(True))),
        lambda: list(client.consume("t", until=AtTime(True))),
        lambda: admin.create_topic(Topic("true", write_queue_count=True)),
        lambda: admin.create_topic(Topic("true", permission=True)),
        lambda: admin.purge_topic("t", [QueuePurge("t", True, 0, 1, 1)]),
        lambda: admin.reset_group("g", [GroupReset("t", True, 0, 1, 1)]),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(InvalidRequestError):
            call()
            pytest.fail(f"call {number} was taken")


def test_what_is_in_a_list_is_checked_too(objects):
    client, admin = objects["client"], objects["admin"]
    calls = [
        lambda: client.consume(["t", 1]),
        lambda: client.consume("t", queues=[0, "1"]),
        lambda: client.consume("t", tags=["a", 1]),
        lambda: client.queue_frames([("t", 0, 0)]),
        lambda: client.queue_frames([("t", 0, 0, "1")]),
        lambda: client.commit_offsets("g", {("t", 0): "1"}),
        lambda: client.commit_offsets("g", {"t": 1}),
        lambda: client.send_all([Message("t", b"x"), b"x"]),
        lambda: admin.reset_group("g", [QueuePurge("t", 0, 0, 0, 0)]),
        lambda: admin.purge_topic("t", [GroupReset("t", 0, 0, 0, 0)]),
        lambda: admin.create_topic(Topic("t\ud800")),
    ]
    for call in calls:
        with pytest.raises(InvalidRequestError):
            call()


def test_an_iterator_is_read_once_and_used(objects):
    client = objects["client"]
    client.send("iterated", b"x", tag="a", queue_id=0)
    client.send("iterated", b"x", tag="b", queue_id=0)
    found = [message.tag for message in client.consume("iterated", tags=iter(["a"]))]
    assert set(found) == {"a"}
