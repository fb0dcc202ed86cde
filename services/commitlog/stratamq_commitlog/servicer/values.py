"""The engine's values as messages of the wire, and back."""

from collections.abc import AsyncIterator
from dataclasses import replace

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.api.v1 import common_pb2
from stratamq.errors import InvalidRequestError
from stratamq.follow.protocol import Closing, Event, Opened
from stratamq.formats.log_state import Role
from stratamq.formats.topic_types import numbered_type
from stratamq.rpc.framing import APPEND_DATA_REQUEST
from stratamq_commitlog.use_cases.replicating import Replicating
from stratamq_commitlog.write.topic_table import TopicConfig


def role_of(number: int) -> Role:
    """InvalidRequestError for a role that is none."""
    try:
        return Role(number)
    except ValueError:
        raise InvalidRequestError("a broker is ASYNC_MASTER, SYNC_MASTER or SLAVE") from None


def follow_opened(opened: Opened) -> pb.FollowOpened:
    return pb.FollowOpened(
        generation=opened.generation,
        cut_to=opened.cut_to,
        minimum_offset=opened.minimum,
        confirmed_offset=opened.confirmed,
        flushed_offset=opened.flushed,
        segment_bytes=opened.segment_bytes,
        generation_start_offset=opened.generation_start,
        slave=opened.is_slave,
    )


def follow_message(message: Event | Closing) -> pb.FollowResponse:
    if isinstance(message, Closing):
        return pb.FollowResponse(closing=pb.FollowClosing(end_offset=message.end))
    return pb.FollowResponse(
        event=pb.FollowEvent(
            generation=message.generation,
            start_offset=message.start,
            end_offset=message.end,
            confirmed_offset=message.confirmed,
            flushed_offset=message.flushed,
            minimum_offset=message.minimum,
            packed_lengths=b""
            if message.lengths is None
            else message.lengths.astype(">u4").tobytes(),
            runs=[
                pb.FollowRun(topic=topic, queue_id=queue_id, first_queue_offset=first, count=count)
                for topic, queue_id, first, count in message.runs or ()
            ],
        )
    )


def new_topic(wanted: common_pb2.TopicConfig) -> TopicConfig:
    """Zeros mean the defaults."""
    return TopicConfig(
        topic=wanted.topic,
        read_queues=wanted.read_queue_count or wanted.write_queue_count or 4,
        write_queues=wanted.write_queue_count or wanted.read_queue_count or 4,
        permission=wanted.permission or 6,
        ordered=wanted.ordered,
        system_flags=wanted.system_flags,
        message_type=numbered_type(wanted.message_type),
    )


def changed_topic(known: TopicConfig, change: pb.TopicChange) -> TopicConfig:
    """`known` with what the change names, zeros included: they are refused where they mean
    nothing."""
    fields = {
        "read_queue_count": "read_queues",
        "write_queue_count": "write_queues",
        "permission": "permission",
        "ordered": "ordered",
    }
    named = {ours: getattr(change, wire) for wire, ours in fields.items() if change.HasField(wire)}
    if change.HasField("message_type"):
        named["message_type"] = numbered_type(change.message_type)
    return replace(known, **named)


def topic_message(config: TopicConfig) -> common_pb2.TopicConfig:
    return common_pb2.TopicConfig(
        topic=config.topic,
        read_queue_count=config.read_queues,
        write_queue_count=config.write_queues,
        permission=config.permission,
        ordered=config.ordered,
        system_flags=config.system_flags,
        message_type=config.message_type.number,  # type: ignore[arg-type]
    )


async def received_data(
    requests: AsyncIterator[bytes], replicating: Replicating
) -> tuple[pb.AppendDataRequest, bytes | memoryview]:
    """A master's bytes as they come in one call: one request, or the parts of a larger append.

    The first request without its data, and all data. Nothing more is read of a call that will
    be refused, or that brings more than a segment has: InvalidRequestError.
    """
    head: pb.AppendDataRequest | None = None
    pieces: list[memoryview] = []
    size = 0
    async for request in requests:
        part, (data,) = APPEND_DATA_REQUEST.decode(request)
        if head is None:
            head = part
            refusal = replicating.refusal(head.generation)
            if refusal is not None:
                raise refusal
        size += len(data)
        if size > replicating.largest_append:
            raise InvalidRequestError(
                f"an append of more than a segment's {replicating.largest_append} bytes"
            )
        pieces.append(data)
    if head is None:
        raise InvalidRequestError("AppendData was called without a request")
    return head, pieces[0] if len(pieces) == 1 else b"".join(pieces)


def received_confirmed(request: pb.AppendDataRequest | pb.CutRequest) -> int | None:
    has_offset = request.HasField("master_confirmed_offset")
    return request.master_confirmed_offset if has_offset else None
