"""What a client records of its calls, where it records them: names and attributes by
OpenTelemetry's conventions for messaging systems. OpenTelemetry itself is in `tracing`.

    send TOPIC       producer   messages that go together: by a call, or a batch of a producer
    receive TOPIC    client     a pull, or a reader's stream from its opening to its end
    SERVICE/METHOD   client     every other call
"""

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from stratamq.client.values import SendResult
from stratamq.rpc.methods import METHODS, Method
from stratamq.rpc.request_ids import Request, within

SYSTEM = "stratamq"
SEND, RECEIVE = "send", "receive"
MAX_LINKS = 128
"""Contexts of messages that a batch's span is linked to: the SDK keeps no more either."""

Value = str | int
_APPEND, _PULL = METHODS["Append"], METHODS["Pull"]


@dataclass(frozen=True, slots=True)
class Called:
    """`alone`: it has messages of many callers, so its span has no parent. `error`: what went
    wrong, by a result that has its errors in it."""

    name: str
    attributes: dict[str, Value]
    produces: bool = False
    alone: bool = False
    error: Callable[[Any], Exception | None] = lambda _: None


class CallSpan(Protocol):
    @property
    def request(self) -> Request:
        """Under which calls are made."""

    def end(self, error: BaseException | None = None) -> None:
        """Has no effect once it has ended."""


class Spans(Protocol):
    """The spans of one client. Thread-safe."""

    def begin(self, called: Called, links: Iterable[str] = ()) -> CallSpan:
        """`links`: `traceparent`s."""


class Finished:
    """What a recorded call came to."""

    def __init__(self) -> None:
        self.error: Exception | None = None


@contextmanager
def recorded(spans: Spans, called: Called) -> Generator[Finished, None, None]:
    """A span as long as the block, whose calls are made within it."""
    span = spans.begin(called)
    finished = Finished()
    try:
        with within(span.request):
            yield finished
    except BaseException as error:
        span.end(error)
        raise
    span.end(finished.error)


def unary(method: Method, request: Any) -> Called:
    name = method.path.removeprefix("/")
    if method is _APPEND:
        topics = {message.topic for message in request.messages}
        attributes = _sending(topics, len(request.messages))
        return Called(_named(SEND, topics), attributes, produces=True, error=_first_error)
    attributes = {"rpc.system.name": "grpc", "rpc.method": name}
    if method is _PULL:
        return receiving(
            {request.topic},
            request.group,
            **attributes,
            **{"messaging.destination.partition.id": str(request.queue_id)},
        )
    return Called(name, attributes)


def batch(topics: Collection[str], count: int) -> Called:
    return Called(_named(SEND, topics), _sending(topics, count), produces=True, alone=True)


def _sending(topics: Collection[str], count: int) -> dict[str, Value]:
    attributes = _messaging(SEND, topics)
    if count > 1:
        attributes["messaging.batch.message_count"] = count
    return attributes


def receiving(topics: Collection[str], group: str, **more: Value) -> Called:
    attributes = _messaging(RECEIVE, topics) | more
    if group:
        attributes["messaging.consumer.group.name"] = group
    return Called(_named(RECEIVE, topics), attributes)


def _messaging(operation: str, topics: Collection[str]) -> dict[str, Value]:
    attributes: dict[str, Value] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
    if len(topics) == 1:
        attributes["messaging.destination.name"] = next(iter(topics))
    return attributes


def _named(operation: str, topics: Collection[str]) -> str:
    return f"{operation} {next(iter(topics))}" if len(topics) == 1 else operation


def _first_error(results: Sequence[SendResult]) -> Exception | None:
    return next((one.error for one in results if one.error is not None), None)
