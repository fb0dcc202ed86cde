"""A producer's number is its user's, although every reader of the messages knows it."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.rpc import discovery
from stratamq.rpc.framing import APPEND_STREAM_REQUEST
from stratamq.rpc.methods import METHODS
from stratamq.rpc.permission_file import (
    AUTHORIZATION,
    BEARER,
    Permissions,
    digest_of,
    dump,
    grant_of,
)
from stratamq.rpc.rooms import COMMITLOG
from stratamq.service.caller import Caller
from stratamq.service.grpc_callers import delegation
from tests.support.brokers import Broker

NUMBER = 12_345
ELSEWHERE = Caller("10.1.2.3", 5_000, encrypted=True)


class Guarded:
    """A log without TLS on loopback; `alice` and `mallory` may produce, each to a topic."""

    def __init__(self, broker: Broker, tokens: dict[str, str], *, behind_a_front: bool) -> None:
        self._tokens = tokens
        found = discovery.read(broker.root, COMMITLOG)
        self.behind_a_front = behind_a_front
        address = found.for_fronts() if behind_a_front else found.address
        self.channel = grpc.insecure_channel(address)

    def metadata(self, user: str) -> list[tuple[str, str | bytes]]:
        token = self._tokens[user]
        if self.behind_a_front:
            return [delegation(ELSEWHERE._replace(name=user, digest=digest_of(token)))]
        return [(AUTHORIZATION, BEARER + token)]

    def stream(self, user: str, number: int, writer: str = "") -> Any:
        opened = pb.AppendOpen(producer_id=number, writer=writer, generation=1)
        opening = pb.AppendStreamRequest(open=opened)
        until_the_end = threading.Event()

        def requests() -> Iterator[bytes]:
            yield APPEND_STREAM_REQUEST.encode(opening, b"", b"")
            until_the_end.wait()

        call = METHODS["AppendStream"].on(self.channel)(requests(), metadata=self.metadata(user))
        call.add_callback(until_the_end.set)
        return call

    def append(self, user: str, topic: str, number: int) -> object:
        message = pb.Message(topic=topic, body=b"x")
        request = pb.AppendRequest(messages=[message], producer_id=number, first_sequence=1)
        return METHODS["Append"].on(self.channel)(request, metadata=self.metadata(user))


@pytest.fixture(params=["direct", "behind a front"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path):
    permissions = Permissions()
    tokens = {
        user: permissions.add_token(user, "") for user in ("alice", "mallory", "unprivileged")
    }
    permissions.rules = [
        grant_of("alice", "produce", "topic:orders"),
        grant_of("mallory", "produce", "topic:own"),
    ]
    (tmp_path / "access.json").write_bytes(dump(permissions))
    settings = [f"access.file={tmp_path}/access.json", "commitlog.followers="]
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start([COMMITLOG])
        found = Guarded(broker, tokens, behind_a_front=request.param != "direct")
        yield found
        found.channel.close()


def test_no_user_ends_anothers_stream_or_takes_its_sequences(guarded):
    open_one = guarded.stream("alice", NUMBER)
    opened = next(open_one).opened
    if guarded.behind_a_front:
        assert (opened.born_address, opened.born_port) == (bytes([10, 1, 2, 3]), 5_000)
    with pytest.raises(grpc.RpcError) as refused:
        next(guarded.stream("mallory", NUMBER))
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(grpc.RpcError) as refused:
        guarded.append("mallory", "own", NUMBER)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert open_one.is_active()
    # Its own user may continue on another stream, as after a broken connection.
    second = guarded.stream("alice", NUMBER)
    assert next(second).HasField("opened")
    guarded.append("alice", "orders", NUMBER)
    second.cancel()
    guarded.append("mallory", "own", NUMBER + 1)


def test_who_may_produce_to_no_topic_opens_no_append_stream(guarded):
    """Each may have the log hold eight mebibytes of a message that is never sent whole."""
    with pytest.raises(grpc.RpcError) as refused:
        next(guarded.stream("unprivileged", 0))
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "may not produce any topic" in refused.value.details()


def test_no_user_writes_from_inside_the_broker(guarded):
    """Neither as a service that is there, whose stream it would end, nor as one of its own."""
    with pytest.raises(grpc.RpcError) as refused:
        next(guarded.stream("alice", 0, "egg_timer"))
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "may not append as the service" in refused.value.details()
