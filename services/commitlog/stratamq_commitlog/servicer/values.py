"""The engine's values as messages of the wire, and back."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from dataclasses import replace

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.api.v1 import common_pb2
from stratamq.errors import BusyError, InvalidRequestError
from stratamq.follow.protocol import Closing, Event, Opened
from stratamq.formats.broker_role import Role
from stratamq.formats.hosts import Host
from stratamq.formats.producer_item import LARGEST_SEQUENCE, PRODUCER_ITEM
from stratamq.formats.properties import KEYS, TAGS, UNIQ_KEY
from stratamq.formats.undelivered import refuse_undelivered
from stratamq.rpc.framing import APPEND_DATA_REQUEST
from stratamq.rpc.status import encode_fields, error_name
from stratamq.service.caller import Caller
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.messages import Numbers, Place, PutMessage, PutResult
from stratamq_commitlog.write.topic_table import TopicConfig

RESULTS_AT_ONCE = 256
"""Results of one call that are made into messages of the wire without a pause."""


def role_of(number: int) -> Role:
    """InvalidRequestError for a role that is none."""
    try:
        return Role(number)
    except ValueError:
        raise InvalidRequestError("a broker is ASYNC_MASTER, SYNC_MASTER or SLAVE") from None


def born_host(caller: Caller) -> Host:
    return Host(caller.host or "127.0.0.1", caller.port)


def numbers_of(request: pb.AppendRequest) -> Numbers | None:
    """Read the first message's numbers. Raises InvalidRequestError for sequences that cannot be a
    message's."""
    if not request.producer_id:
        return None
    check_sequences(request.first_sequence, len(request.messages))
    return Numbers(request.producer_id, request.first_sequence, place_of(request.sent_from))


def place_of(place: pb.LogPlace) -> Place:
    return Place(place.generation, place.offset)


def check_sequences(first: int, count: int) -> None:
    if not 0 <= first <= LARGEST_SEQUENCE - count:
        raise InvalidRequestError(f"a sequence is from 0 to {LARGEST_SEQUENCE}, and not {first}")


def put_message(message: pb.Message, born: Host, numbers: Numbers | None = None) -> PutMessage:
    """InvalidRequestError for a message that is never delivered, and for an impossible address."""
    half = message.transaction == pb.TRANSACTION_TYPE_HALF
    refuse_undelivered(message.delay_level, half, message.properties)
    properties = dict(message.properties)
    properties.pop(PRODUCER_ITEM, None)  # of a received message that is sent again
    if message.keys:
        properties[KEYS] = " ".join(message.keys)
    if message.tag:
        properties[TAGS] = message.tag
    if message.unique_key:
        properties[UNIQ_KEY] = message.unique_key
    if message.born_address:
        try:
            address = ipaddress.ip_address(message.born_address)
        except ValueError:
            raise InvalidRequestError("born_address must have 4 or 16 bytes") from None
        born = Host(str(address), message.born_port)
    return PutMessage(
        topic=message.topic,
        body=message.body,
        born_host=born,
        queue_id=message.queue_id if message.HasField("queue_id") else None,
        properties=properties,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        reconsume_times=message.reconsume_times,
        wait_store_ok=message.wait_store_ok if message.HasField("wait_store_ok") else True,
        numbers=numbers,
    )


def put_result(result: PutResult) -> pb.AppendResult:
    error = result.error
    return pb.AppendResult(
        status=result.status.value,
        offset_message_id=result.message_id,
        physical_offset=result.physical_offset,
        queue_offset=result.queue_offset,
        topic=result.topic,
        queue_id=result.queue_id,
        store_timestamp_ms=result.store_timestamp_ms,
        error=str(error) if error is not None else "",
        error_name=error_name(error) if error is not None else "",
        error_fields=encode_fields(error.fields) if error is not None else "",
        retry_after_ms=error.retry_after_ms if isinstance(error, BusyError) else 0,
        size=result.size,
        beyond_window=error is not None and bool(error.fields.get("beyond_window")),
    )


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
    return replace(known, **named)


def topic_message(config: TopicConfig) -> common_pb2.TopicConfig:
    return common_pb2.TopicConfig(
        topic=config.topic,
        read_queue_count=config.read_queues,
        write_queue_count=config.write_queues,
        permission=config.permission,
        ordered=config.ordered,
        system_flags=config.system_flags,
    )


async def put_results(results: list[PutResult]) -> list[pb.AppendResult]:
    """Encode the results of one call."""
    messages = []
    for number, result in enumerate(results, 1):
        messages.append(put_result(result))
        if number % RESULTS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return messages


def require_call_size(count: int, most: int) -> None:
    """InvalidRequestError for more messages than one call may have: nothing of it is looked at."""
    if count > most:
        raise InvalidRequestError(
            f"{count} messages in one call: at most {most} (commitlog.max_call_messages). Make "
            "several calls, or use the append stream"
        )


async def received_data(
    requests: AsyncIterator[bytes], engine: CommitLog
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
            refusal = engine.slave_data.refusal(head.generation)
            if refusal is not None:
                raise refusal
        size += len(data)
        if size > engine.segment_bytes:
            raise InvalidRequestError(
                f"an append of more than a segment's {engine.segment_bytes} bytes"
            )
        pieces.append(data)
    if head is None:
        raise InvalidRequestError("AppendData was called without a request")
    return head, pieces[0] if len(pieces) == 1 else b"".join(pieces)


def received_confirmed(request: pb.AppendDataRequest | pb.CutRequest) -> int | None:
    has_offset = request.HasField("master_confirmed_offset")
    return request.master_confirmed_offset if has_offset else None
