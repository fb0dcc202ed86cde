"""Appends as messages of the wire: `Append`'s fields, and the batches of `AppendStream`."""

import asyncio
import ipaddress
from collections.abc import Callable
from functools import partial

import numpy as np

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.errors import BusyError, InvalidRequestError, StrataError
from stratamq.formats.hosts import Host, encode_host
from stratamq.formats.properties import KEYS, TAGS, UNIQ_KEY
from stratamq.rpc.framing import APPEND_STREAM_REQUEST
from stratamq.rpc.mirrors import message_of
from stratamq.rpc.refusals import Refusal
from stratamq.rpc.status import encode_fields, error_name
from stratamq_commitlog.messages import (
    BatchResult,
    FrameRun,
    KnownPlace,
    Numbers,
    PutMessage,
    PutResult,
    StoredPart,
)
from stratamq_commitlog.use_cases.append_stream import (
    Answered,
    AppendOpened,
    AppendOpening,
    SentBatch,
)

RESULTS_AT_ONCE = 256
"""Results of one call that are made into messages of the wire without a pause."""

# --- Append ---


def numbers_of(request: pb.AppendRequest) -> Numbers | None:
    """Read the first message's numbers."""
    if not request.producer_id:
        return None
    return Numbers(request.producer_id, request.first_sequence, place_of(request.sent_from))


def place_of(place: pb.LogPlace) -> KnownPlace:
    return KnownPlace(place.generation, place.offset)


def put_message(message: pb.Message, born: Host) -> PutMessage:
    """InvalidRequestError for an impossible address."""
    properties = dict(message.properties)
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
        delay_level=message.delay_level,
        half=message.transaction == pb.TRANSACTION_TYPE_HALF,
        reconsume_times=message.reconsume_times,
        wait_store_ok=message.wait_store_ok if message.HasField("wait_store_ok") else True,
    )


async def put_results(results: list[PutResult]) -> list[pb.AppendResult]:
    """Encode the results of one call."""
    messages = []
    for number, result in enumerate(results, 1):
        messages.append(put_result(result))
        if number % RESULTS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return messages


def put_result(result: PutResult) -> pb.AppendResult:
    message = pb.AppendResult(
        status=result.status.value,
        offset_message_id=result.message_id,
        physical_offset=result.physical_offset,
        queue_offset=result.queue_offset,
        topic=result.topic,
        queue_id=result.queue_id,
        store_timestamp_ms=result.store_timestamp_ms,
        size=result.size,
    )
    if result.error is not None:
        _set_error(message, result.error)
    return message


def _set_error(
    message: pb.AppendResult | pb.AppendBatchResult | pb.AppendRefusal, error: StrataError
) -> None:
    message.beyond_window = bool(error.fields.get("beyond_window"))
    message.error_name = error_name(error)
    message.error = str(error)
    message.error_fields = encode_fields(error.fields)
    if isinstance(error, BusyError):
        message.retry_after_ms = error.retry_after_ms


# --- AppendStream ---


def opening_of(request: bytes) -> AppendOpening:
    """InvalidRequestError when it opens no stream."""
    head, _ = APPEND_STREAM_REQUEST.decode(request)
    if not head.HasField("open"):
        raise InvalidRequestError("the first message of an append stream must be `open`")
    sent = head.open
    return AppendOpening(
        sent.producer_id, sent.require_replicas, sent.writer, sent.generation, sent.in_order
    )


def opened_response(opened: AppendOpened) -> bytes:
    message = message_of(
        pb.AppendOpened,
        opened,
        store_address_bytes=len(opened.store_host) - 4,
        born_address=encode_host(opened.born)[:-4],
        born_port=opened.born.port,
        role=opened.role.value,
        store_host=opened.store_host,
    )
    return bytes(pb.AppendStreamResponse(opened=message).SerializeToString())


def batches_of(opened: AppendOpened) -> Callable[[bytes], SentBatch]:
    """How the batches of a stream are decoded."""
    return partial(_sent_batch, opened.max_batch_messages)


def _sent_batch(most: int, request: bytes) -> SentBatch:
    head, (lengths, frames) = APPEND_STREAM_REQUEST.decode(request)
    try:
        if head.HasField("open"):
            raise InvalidRequestError("a stream is opened once")
        if len(lengths) % 4:
            raise InvalidRequestError("packed_lengths must hold four bytes for each frame")
        if len(head.runs) > most:
            raise InvalidRequestError(
                f"a batch has at most {most} messages, and runs no more, not {len(head.runs)}"
            )
    except StrataError as error:
        return SentBatch(head.sequence, len(request), traceparent=head.traceparent, error=error)
    return SentBatch(
        head.sequence,
        len(request),
        [FrameRun(run.topic, run.queue_id, run.count) for run in head.runs],
        np.frombuffer(lengths, ">u4").astype(np.uint32),
        frames,
        place_of(head.sent_from) if head.HasField("sent_from") else None,
        head.traceparent,
        resumes=head.resumes,
        partial=head.partial,
    )


def answers_response(answers: list[Answered]) -> bytes:
    results = [_message(*one) for one in answers]
    return bytes(pb.AppendStreamResponse(results=results).SerializeToString())


def _message(sequence: int, result: BatchResult) -> pb.AppendBatchResult:
    error = result.error
    message = pb.AppendBatchResult(
        sequence=sequence,
        status=result.status.value,
        physical_offset=result.physical_offset,
        first_queue_offsets=result.first_queue_offsets,
        store_timestamp_ms=result.store_timestamp_ms,
        parts=[_part(part) for part in result.parts],
        queue_ids=result.queue_ids,
        refusals=[_refusal(one) for one in result.refusals],
    )
    if error is not None:
        _set_error(message, error)
        frame = error.fields.get("frame", -1)
        message.bad_frame = frame if isinstance(frame, int) else -1
    return message


def _refusal(refusal: Refusal) -> pb.AppendRefusal:
    message = pb.AppendRefusal(
        first=refusal.first, count=refusal.count, status=refusal.status.value
    )
    _set_error(message, refusal.error)
    return message


def _part(part: StoredPart) -> pb.AppendedPart:
    return pb.AppendedPart(
        physical_offset=part.physical_offset,
        packed_lengths=part.lengths.astype(">u4").tobytes(),
        first_queue_offsets=part.first_queue_offsets,
        store_timestamp_ms=part.store_timestamp_ms,
        queue_ids=part.queue_ids,
    )
