"""Settings that all parts of one client share: its times, and the program's serializers,
interceptors and traces."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stratamq.client.received import ReceivedMessage
from stratamq.client.spans import Spans
from stratamq.errors import InvalidRequestError
from stratamq.files.clock import SystemClock
from stratamq.files.port import Clock, Random
from stratamq.rpc.backoff import Backoff

Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]


class Interceptor:
    """Sees every message that a client sends and receives; derive from it, override one or both.

    It runs in the caller's thread or task and must not wait. What it raises reaches the caller:
    nothing is sent, or the message counts as given; `getmany` gives those before it first. Rows of
    `send_rows` are encoded already and are not seen.
    """

    def sending(self, topic: str, properties: dict[str, str]) -> None:
        """Before a message is encoded. `properties` are the caller's, to be added to."""

    def received(self, message: ReceivedMessage) -> None:
        """Before a reader gives a message to its caller."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What one client does with each message on its way: serializers, interceptors, traces."""

    serializer: Serializer | None = None
    deserializer: Deserializer | None = None
    interceptors: Sequence[Interceptor] = ()
    spans: Spans | None = None
    """None: no traces are recorded."""

    def outgoing(
        self, topic: str, body: Any, properties: Mapping[str, str]
    ) -> tuple[bytes, Mapping[str, str]]:
        """What is stored. InvalidRequestError for a body that is no bytes, nor made into bytes."""
        if self.serializer is not None:
            body = self.serializer(body)
        if not isinstance(body, (bytes, bytearray, memoryview)):
            made = "the serializer gave" if self.serializer is not None else "the body is"
            raise InvalidRequestError(f"{made} {_kind(body)}, and a body is bytes: {_advice(body)}")
        if self.interceptors:
            properties = dict(properties)
            for one in self.interceptors:
                one.sending(topic, properties)
        return bytes(body), properties

    def received(self, message: ReceivedMessage) -> None:
        if self.deserializer is not None:
            message.deserializer = self.deserializer
        for one in self.interceptors:
            one.received(message)

    @property
    def change_sent(self) -> bool:
        return self.serializer is not None or bool(self.interceptors)

    @property
    def see_received(self) -> bool:
        return self.deserializer is not None or bool(self.interceptors)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    timeout_s: float = 30.0
    """Within which each call ends."""
    retry_timeout_s: float = 0.0
    """How long calls that change nothing, and first connections, are tried again."""
    hooks: Hooks = field(default_factory=Hooks)
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=random.SystemRandom)

    def backoff(self, limit_s: float | None) -> Backoff:
        return Backoff(limit_s, self.clock, self.random)


def _kind(body: object) -> str:
    return "None" if body is None else f"of type {type(body).__name__}"


def _advice(body: object) -> str:
    if body is None:
        return 'pass b"" for an empty one'
    if isinstance(body, str):
        return "encode the text first, text.encode()"
    if isinstance(body, (dict, list, tuple, int, float, bool)):
        return "pass json.dumps(body).encode(), or connect(…, serializer=…)"
    return "encode it first, or connect(…, serializer=…)"
