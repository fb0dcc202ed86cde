"""The append stream seen from the client: what is written first, what the answers mean."""

import struct
from dataclasses import replace

from stratamq.api.v1 import commitlog_pb2
from stratamq.client.numbering import LogPlace
from stratamq.client.units import Batch, BatchOutcome, BatchPart, perhaps_stored
from stratamq.client.values import SendResult
from stratamq.errors import BusyError, NotWritableError, StrataError, UnavailableError
from stratamq.formats.batch_frames import FrameShape
from stratamq.formats.message_status import SendStatus
from stratamq.rpc.appending import refusal_of
from stratamq.rpc.framing import APPEND_STREAM_REQUEST
from stratamq.rpc.refusals import Refusal


class Exchange:
    """One append stream's state, under the producer's guard."""

    def __init__(self, producer: int) -> None:
        self.producer = producer
        """Its number; 0: it numbers nothing."""
        self.shape: FrameShape | None = None
        """The shape of the frames that the broker takes; None until it has opened the stream."""
        self.broken = False
        self.refusal: StrataError | None = None
        """Why nothing more is sent to this broker: another one of its cluster is, or may be, the
        master."""
        self.unconfirmed = False
        """The last answers say that slaves do not have what is stored."""
        self.silent = False
        """It was ended because the log did not answer in time."""


def opening(client_name: str, require_replicas: bool, producer: int, in_order: bool) -> bytes:
    """`producer`: its number; 0: it numbers nothing."""
    open_ = commitlog_pb2.AppendOpen(
        client_name=client_name,
        require_replicas=require_replicas,
        producer_id=producer,
        in_order=in_order,
    )
    return APPEND_STREAM_REQUEST.encode(commitlog_pb2.AppendStreamRequest(open=open_), b"", b"")


def place_of(opened: commitlog_pb2.AppendOpened, producer: int) -> LogPlace | None:
    """Where the log is; None for a producer without a number, and of a log that never took a
    message. A slave's log is a place as well: what its master has stored since then lies behind it,
    or in a later generation."""
    if not producer or not opened.generation:
        return None
    return LogPlace(opened.generation, opened.appended_offset)


def wire_place(place: LogPlace) -> commitlog_pb2.LogPlace:
    return commitlog_pb2.LogPlace(generation=place.generation, offset=place.offset)


def request_of(batch: Batch, shape: FrameShape) -> bytes:
    lengths, pieces = batch.encode(shape)
    runs = [
        commitlog_pb2.AppendRun(topic=run.topic, queue_id=run.queue_id, count=run.count)
        for run in batch.runs.values()
    ]
    head = commitlog_pb2.AppendStreamRequest(
        sequence=batch.sequence, runs=runs, resumes=batch.resumes, partial=not batch.whole
    )
    if batch.unanswered and batch.sent_from is not None:
        head.sent_from.CopyFrom(wire_place(batch.sent_from))
    if batch.span is not None:
        head.traceparent = batch.span.request.traceparent
    return APPEND_STREAM_REQUEST.encode_pieces(head, pieces, sum(batch.lengths), [lengths])


def outcome_of(result: commitlog_pb2.AppendBatchResult, store_host: bytes = b"") -> BatchOutcome:
    status = SendStatus(result.status or SendStatus.UNKNOWN_ERROR.value)
    error = refusal_of(status, result)
    if error is not None and result.error_name == "INVALID_REQUEST" and result.bad_frame >= 0:
        error.fields["frame"] = result.bad_frame
    return BatchOutcome(
        status=status,
        physical_offset=result.physical_offset,
        first_queue_offsets=tuple(result.first_queue_offsets),
        store_timestamp_ms=result.store_timestamp_ms,
        error=error,
        parts=tuple(_part(part) for part in result.parts),
        queue_ids=tuple(result.queue_ids),
        store_host=store_host,
        refusals=tuple(_refusal(one) for one in result.refusals),
    )


def _refusal(refusal: commitlog_pb2.AppendRefusal) -> Refusal:
    status = SendStatus(refusal.status or SendStatus.UNKNOWN_ERROR.value)
    error = refusal_of(status, refusal) or UnavailableError("not stored")
    return Refusal(refusal.first, refusal.count, status, error)


def _part(part: commitlog_pb2.AppendedPart) -> BatchPart:
    packed = part.packed_lengths
    return BatchPart(
        physical_offset=part.physical_offset,
        lengths=struct.unpack(f">{len(packed) // 4}I", packed),
        first_queue_offsets=tuple(part.first_queue_offsets),
        store_timestamp_ms=part.store_timestamp_ms,
        queue_ids=tuple(part.queue_ids),
    )


def refused(results: list[SendResult]) -> StrataError | None:
    """Why the log has taken none of them, for certain."""
    refusals = [
        one.error
        for one in results
        if isinstance(one.error, NotWritableError | BusyError)
        or (one.error is not None and one.status is SendStatus.SERVICE_NOT_AVAILABLE)
    ]
    return refusals[0] if refusals and len(refusals) == len(results) else None


def is_refused(result: SendResult) -> bool:
    """For certain nothing is stored: for want of a master, or because the broker takes nothing."""
    error = result.error
    if error is None or error.fields.get("perhaps_stored"):
        return False
    return isinstance(error, NotWritableError) or result.status is SendStatus.SERVICE_NOT_AVAILABLE


def is_beyond_window(result: SendResult) -> bool:
    return result.error is not None and bool(result.error.fields.get("beyond_window"))


def behind_unanswered(result: SendResult) -> SendResult:
    """Behind an attempt that was not answered what is refused may be stored."""
    if result.error is None:
        return result
    return replace(result, error=perhaps_stored(result.error, "no answer at first"))
