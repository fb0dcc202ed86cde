"""A master's bytes as they come in one call: one request, or the parts of a larger append."""

from collections.abc import AsyncIterator

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.errors import InvalidRequestError
from stratamq.rpc.framing import APPEND_DATA_REQUEST
from stratamq_commitlog.engine import CommitLog


async def received_data(
    requests: AsyncIterator[bytes], engine: CommitLog
) -> tuple[pb.AppendDataRequest, bytes | memoryview]:
    """The first request without its data, and all data. Nothing more is read of a call that will be
    refused, or that brings more than a segment has: InvalidRequestError."""
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
