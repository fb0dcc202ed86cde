"""Names that are paths, or anything else, in every text field of every call: each is refused or
kept as a name, and nothing is written beside the store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from stratamq.client import connect
from stratamq.rpc.methods import METHODS
from stratamq.rpc.rooms import COMMITLOG, DISPATCHER, HA, INDEX, JANITOR
from tests.security.test_permissions import DESCRIBED
from tests.support.brokers import Broker

ROOMS = (COMMITLOG, DISPATCHER, INDEX, JANITOR, HA)
NAMES = (
    "../../../evil", "/evil", "..", ".", "a/b", "a\0b", "a\nb", "%RETRY%../x",
    "SCHEDULE_TOPIC_XXXX",
    "*", "\u202eevil", "x" * 100_000,
)  # fmt: skip
OURS_ALONE = {"SetRole", "Cut", "PutMembers", "HoldWrites", "SetJoined", "GrantLease", "Promote",
              "Demote", "Follow"}  # fmt: skip
"""What changes or holds the broker, whatever the names are."""
LOOK_S, ANSWER_S = 0.5, 60.0
BUGS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED)


def named(descriptor: Any, name: str, depth: int = 0) -> Any:
    """A request with the name in every text field."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)[name] = name
        elif field.type == FieldDescriptor.TYPE_MESSAGE and depth < 3:
            inner = named(field.message_type, name, depth + 1)
            if field.is_repeated:
                getattr(message, field.name).append(inner)
            elif field.containing_oneof is None or not message.WhichOneof(
                field.containing_oneof.name
            ):
                getattr(message, field.name).CopyFrom(inner)
        elif field.type == FieldDescriptor.TYPE_STRING:
            if field.is_repeated:
                getattr(message, field.name).append(name)
            else:
                setattr(message, field.name, name)
    return message


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[Broker]:
    directory: Path = tmp_path_factory.mktemp("named") / "a" / "b" / "c"
    directory.mkdir(parents=True)
    settings = ["ha.replication_address=127.0.0.1:0"]
    with Broker(directory / "store", directory / "logs", settings) as broker:
        yield broker.start(ROOMS)


def test_no_name_is_a_bug_or_a_file_elsewhere(broker):
    top = broker.root.parent.parent.parent.parent
    beside = {path for path in top.rglob("*") if broker.root not in path.parents}
    pids = {room: broker.pid(room) for room in ROOMS}
    met: set[grpc.StatusCode] = set()
    for method_name in sorted(METHODS.keys() - OURS_ALONE):
        method, described = METHODS[method_name], DESCRIBED[method_name]
        if method.room not in ROOMS:
            continue
        for name in NAMES:
            request = named(described.input_type, name).SerializeToString()
            met.add(status_of(broker, method, described.client_streaming, request))
    assert not met & set(BUGS)
    assert grpc.StatusCode.INVALID_ARGUMENT in met
    assert {room: broker.pid(room) for room in ROOMS} == pids
    assert {path for path in top.rglob("*") if broker.root not in path.parents} == beside
    with connect(broker.root) as client:
        client.send("t", b"goes on")
        assert [message.body for message in client.consume("t")] == [b"goes on"]


def status_of(broker: Broker, method: Any, sends_stream: bool, request: bytes) -> Any:
    channel = broker._channels[method.room]
    call = getattr(channel, method.kind)(method.path)
    is_stream = method.kind.endswith("_stream")
    try:
        answer = call(
            iter([request]) if sends_stream else request, timeout=LOOK_S if is_stream else ANSWER_S
        )
        if is_stream:
            next(iter(answer), None)
            answer.cancel()
    except grpc.RpcError as error:
        if is_stream and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return grpc.StatusCode.OK  # it waits for a message
        if error.code() in BUGS:
            print(method.path, error.code(), error.details())
        return error.code()
    return grpc.StatusCode.OK
