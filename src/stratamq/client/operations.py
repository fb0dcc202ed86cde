"""Every unary call of the client as a value: what is asked, and what is made of the answer."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from stratamq.api.v1 import commitlog_pb2, common_pb2, delivery_pb2, dispatcher_pb2, index_pb2
from stratamq.client.append_messages import refused, wire_place
from stratamq.client.numbering import LogPlace, SendNumbers
from stratamq.client.outgoing import refuse_fields, time_properties
from stratamq.client.received import ReceivedMessage, single_frame, split_frames
from stratamq.client.values import (
    HalfMessage,
    Message,
    Queue,
    SendResult,
    TimeBoundary,
    Topic,
    Unit,
)
from stratamq.errors import InvalidRequestError, NotFoundError, StrataError
from stratamq.formats.log_state import LogState
from stratamq.formats.message_id import decode_message_id
from stratamq.formats.message_status import PullStatus, SendStatus
from stratamq.formats.properties import PGROUP
from stratamq.formats.topic_types import numbered_type
from stratamq.rpc.appending import refusal_of
from stratamq.rpc.framing import PULL_RESPONSE
from stratamq.rpc.log_state import log_state_value
from stratamq.rpc.methods import METHODS, Method

R = TypeVar("R")
M = TypeVar("M")
LARGEST_COUNT = 10_000
LONGEST_APPLY_S = 30.0
"""So long ListQueues waits for what the log holds already."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[R]):
    """`safe`: it changes nothing, or doing it twice is doing it once. `wait_s`: the service may
    take so long on purpose. `refusal`: why nothing of it was done, by a result that has its errors
    in it."""

    method: Method
    request: Any
    result: Callable[[Any], R]
    safe: bool = True
    wait_s: float = 0.0
    refusal: Callable[[R], StrataError | None] = lambda _: None
    one_page: bool = False
    """Only the page that is asked for is read, and none of those that follow it."""

    def next_page(self, answer: Any) -> Any | None:
        """The request for what follows an answer of a table in pages; None when nothing does.
        The pages' messages are merged into one, which `result` gets."""
        position = getattr(answer, "next_position", 0)
        if not position or self.one_page:
            return None
        request = type(self.request)()
        request.CopyFrom(self.request)
        request.position = position
        if "incarnation" in answer.DESCRIPTOR.fields_by_name:
            request.incarnation = answer.incarnation
        return request


class RunOperation(Protocol):
    def __call__(self, operation: Operation[R]) -> R: ...


class AsyncRunOperation(Protocol):
    def __call__(self, operation: Operation[R]) -> Awaitable[R]: ...


def merge_page(whole: Any, page: Any) -> None:
    whole.MergeFrom(page)
    whole.next_position = page.next_position


@dataclass(frozen=True, slots=True)
class TopicPage:
    """A page of a broker's topics, in the order in which they became known. `next_position`: where
    the next one begins; 0: nowhere."""

    topics: tuple[Topic, ...]
    next_position: int


@dataclass(frozen=True, slots=True)
class Pulled:
    """One answer of one queue. `next_offset` is where the next pull should begin."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[ReceivedMessage]
    frames: memoryview
    """Those messages as they are stored, one behind the other."""


@dataclass(frozen=True, slots=True)
class Found:
    """Messages of a query. `truncated`: more match than were asked for. `applied_offset`: how far
    into the log the index has come. `missing`: why messages that only the broker's tier has may be
    missing; empty: none is."""

    messages: list[ReceivedMessage]
    truncated: bool
    applied_offset: int
    missing: str = ""


def wire_message(message_type: type[M], /, **fields: Any) -> M:
    """A protobuf message; InvalidRequestError when a value does not fit its field."""
    known = message_type.DESCRIPTOR.fields_by_name
    try:
        for name, value in fields.items():
            if isinstance(value, bool) and known[name].type != known[name].TYPE_BOOL:
                raise TypeError(f"{name} is {value}: a number is expected")
        return message_type(**fields)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"{message_type.DESCRIPTOR.name}: {error}") from error


def called(method: str, result: Callable[[Any], R], /, **fields: Any) -> Operation[R]:
    """The operation that calls a method with these fields of its request."""
    known = METHODS[method]
    return Operation(known, wire_message(known.request, **fields), result)


def given(result: R | None, error: StrataError | None) -> R:
    """A result has its errors in it."""
    if result is None and error is not None:
        raise error
    return cast("R", result)


# --- storing ---


def send(
    messages: Sequence[Message],
    all_or_nothing: bool = False,
    require_replicas: bool = False,
) -> Operation[list[SendResult]]:
    """`unique_key` None stores none here: clients fill it in before."""
    request = wire_message(
        commitlog_pb2.AppendRequest,
        messages=[_message(message) for message in messages],
        all_or_nothing=all_or_nothing,
        require_replicas=require_replicas,
    )

    def result(response: commitlog_pb2.AppendResponse) -> list[SendResult]:
        return [
            _send_result(message, stored)
            for message, stored in zip(messages, response.results, strict=True)
        ]

    return Operation(METHODS["Append"], request, result, safe=False, refusal=refused)


def number(operation: Operation[list[SendResult]], numbers: SendNumbers) -> None:
    """Give these numbers to the messages of a `send`."""
    request = operation.request
    request.producer_id, request.first_sequence = numbers.producer, numbers.first
    request.sent_from.CopyFrom(wire_place(numbers.sent_from))


def end_transaction(group: str, halves: Sequence[HalfMessage], commit: bool) -> Operation[None]:
    """`safe`: a decision that says the same again is answered, and changes nothing."""
    return called(
        "EndTransaction",
        lambda _: None,
        producer_group=group,
        messages=[
            delivery_pb2.HalfMessage(
                topic=half.topic,
                physical_offset=half.physical_offset,
                unique_key=half.unique_key,
            )
            for half in halves
        ],
        resolution=delivery_pb2.TRANSACTION_RESOLUTION_COMMIT
        if commit
        else delivery_pb2.TRANSACTION_RESOLUTION_ROLLBACK,
    )


def log_place() -> Operation[LogPlace | None]:
    """Where the log is, a slave's as well; None of a log that never took a message."""

    def result(response: commitlog_pb2.GetStatusResponse) -> LogPlace | None:
        if not response.generations:
            return None
        return LogPlace(response.generations[-1].generation, response.appended_offset)

    return called("GetStatus", result)


def _message(message: Message) -> commitlog_pb2.Message:
    refuse_fields(message.properties)
    if message.half and message.timed:
        raise InvalidRequestError("a half message is delivered when its transaction commits")
    if message.half and not message.properties.get(PGROUP):
        raise InvalidRequestError(
            f"a half message has the property {PGROUP}, its producer group: "
            "`client.transaction(group)` sends such messages"
        )
    wire = wire_message(
        commitlog_pb2.Message,
        topic=message.topic,
        queue_id=message.queue_id,
        body=message.body,
        properties={**message.properties, **time_properties(message)},
        tag=message.tag,
        keys=[message.keys] if isinstance(message.keys, str) else list(message.keys),
        unique_key=message.unique_key or "",
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        delay_level=message.delay_level,
        reconsume_times=message.reconsume_times,
    )
    if not message.wait_store_ok:
        wire.wait_store_ok = False
    if message.half:
        wire.transaction = commitlog_pb2.TRANSACTION_TYPE_HALF
    return wire


def _send_result(message: Message, stored: commitlog_pb2.AppendResult) -> SendResult:
    status = SendStatus(stored.status or SendStatus.UNKNOWN_ERROR.value)
    return SendResult(
        status=status,
        topic=stored.topic or message.topic,
        queue_id=stored.queue_id,
        queue_offset=stored.queue_offset,
        physical_offset=stored.physical_offset,
        store_timestamp_ms=stored.store_timestamp_ms,
        size=stored.size,
        message_id=stored.offset_message_id,
        unique_key=message.unique_key or "",
        error=refusal_of(status, stored),
    )


# --- reading ---


def pull(
    topic: str,
    queue_id: int,
    offset: int,
    *,
    tags: Iterable[str] = (),
    wait_ms: int = 0,
    **fields: Any,
) -> Operation[Pulled]:
    """`fields`: further ones of the request."""
    request = wire_message(
        dispatcher_pb2.PullRequest,
        topic=topic,
        queue_id=queue_id,
        offset=offset,
        tags=tag_list(tags),
        wait_ms=wait_ms,
        **fields,
    )
    return Operation(METHODS["Pull"], request, pulled_of, wait_s=wait_ms / 1000)


def pulled_of(response: bytes) -> Pulled:
    head, (frames,) = PULL_RESPONSE.decode(response)
    return Pulled(
        status=PullStatus(head.status),
        next_offset=head.next_offset,
        min_offset=head.min_offset,
        max_offset=head.max_offset,
        messages=list(split_frames(frames)),
        frames=frames,
    )


def tag_list(tags: Iterable[str]) -> list[str]:
    """`("A", "B")`, or RocketMQ's expressions `"A || B"` and `"*"`, which means all."""
    if not isinstance(tags, str):
        return list(tags)
    names = [name.strip() for name in tags.split("||")]
    return [] if tags.strip() in ("", "*") else [name for name in names if name]


def message_at(physical_offset: int) -> Operation[ReceivedMessage]:
    return called(
        "GetFrame", lambda r: single_frame(r.frame.frame), physical_offset=physical_offset
    )


def message_by_id(message_id: str) -> Operation[ReceivedMessage]:
    """By an offset message id. NotFoundError when another broker's message is at its offset."""
    store_host, physical_offset = decode_message_id(message_id.strip())

    def result(response: commitlog_pb2.GetFrameResponse) -> ReceivedMessage:
        message = single_frame(response.frame.frame)
        if message.message_id != message_id.strip().upper():
            raise NotFoundError(
                f"the message at offset {physical_offset} was stored by {message.store_host}, "
                f"not under {store_host.hex().upper()}"
            )
        return message

    return called("GetFrame", result, physical_offset=physical_offset)


def query_key(
    topic: str,
    key: str,
    *,
    max_messages: int = 32,
    begin_ms: int = 0,
    end_ms: int = 0,
    oldest_first: bool = False,
    unique: bool = False,
) -> Operation[Found]:
    if not 0 <= max_messages <= LARGEST_COUNT:
        raise InvalidRequestError(f"0 to {LARGEST_COUNT} messages can be asked for at a time")

    def result(response: index_pb2.QueryKeyResponse) -> Found:
        return Found(
            [single_frame(stored.frame) for stored in response.frames],
            response.truncated,
            response.applied_offset,
            response.missing,
        )

    return called(
        "QueryKey",
        result,
        topic=topic,
        key=key,
        unique_key_only=unique,
        max_messages=max_messages,
        begin_timestamp_ms=begin_ms,
        end_timestamp_ms=end_ms,
        oldest_first=oldest_first,
    )


def offset_at_time(
    topic: str, queue_id: int, timestamp_ms: int, boundary: TimeBoundary = TimeBoundary.LOWER
) -> Operation[int]:
    return called(
        "GetOffsetByTime",
        lambda response: response.offset,
        topic=topic,
        queue_id=queue_id,
        timestamp_ms=timestamp_ms,
        boundary=boundary.value,
    )


# --- listings ---


def topics(topic: str = "", contains: str = "") -> Operation[list[Topic]]:
    """By name; with `topic` that one alone, if it exists; with `contains` those that have it in
    their names, ignoring case."""

    def result(response: commitlog_pb2.ListTopicsResponse) -> list[Topic]:
        found = map(topic_of, response.topics)
        # An older service answers with all topics.
        named = [one for one in found if contains.lower() in one.name.lower()]
        return sorted(named, key=lambda one: one.name)

    return called("ListTopics", result, topic=topic, contains=contains)


def topics_page(position: int, count: int, contains: str) -> Operation[TopicPage]:
    def result(response: commitlog_pb2.ListTopicsResponse) -> TopicPage:
        return TopicPage(tuple(map(topic_of, response.topics)), response.next_position)

    request = wire_message(
        commitlog_pb2.ListTopicsRequest, position=position, max_entries=count, contains=contains
    )
    return Operation(METHODS["ListTopics"], request, result, one_page=True)


def topic_of(topic: common_pb2.TopicConfig) -> Topic:
    return Topic(
        topic.topic,
        topic.read_queue_count,
        topic.write_queue_count,
        topic.permission,
        topic.ordered,
        topic.system_flags,
        numbered_type(topic.message_type),
    )


def queues(
    topic: str = "", applied_offset: int = 0, wait_s: float = LONGEST_APPLY_S
) -> Operation[list[Queue]]:
    """List the queues of one topic, or of all, once the dispatcher has applied the log up to
    `applied_offset`, which may take it `wait_s` longer than another answer."""

    def result(response: dispatcher_pb2.ListQueuesResponse) -> list[Queue]:
        found = [
            Queue(
                one.topic,
                one.queue_id,
                one.min_offset,
                one.max_offset,
                one.newest_store_timestamp_ms,
            )
            for one in response.queues
        ]
        return sorted(found, key=lambda one: (one.topic, one.queue_id))

    request = wire_message(
        dispatcher_pb2.ListQueuesRequest, topic=topic, applied_offset=applied_offset
    )
    longer_s = wait_s if applied_offset else 0.0
    return Operation(METHODS["ListQueues"], request, result, wait_s=longer_s)


def units(topic: str, queue_id: int, offset: int, count: int) -> Operation[list[Unit]]:

    return called("ListUnits", units_of, topic=topic, queue_id=queue_id, offset=offset, count=count)


def units_of(response: dispatcher_pb2.ListUnitsResponse) -> list[Unit]:
    return [
        Unit(one.queue_offset, one.physical_offset, one.size, one.tags_code)
        for one in response.units
    ]


# --- states ---


def log_state() -> Operation[LogState]:
    return called("GetStatus", log_state_value)
