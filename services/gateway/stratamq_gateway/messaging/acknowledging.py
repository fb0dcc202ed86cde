"""AckMessage. Clients acknowledge each message by a call of its own. While a call to the delivery
service runs, further acknowledgements of the same user and host are collected, and the next call
takes all of them. `spec/gateway.md` 3.5."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client.group_receipts import settle
from stratamq.formats.receipts import messages_of
from stratamq.rpc.framing import encode_varint
from stratamq.rpc.request_ids import current
from stratamq.service.front import FrontClient
from stratamq_gateway.messaging.messages import group_name, topic_name
from stratamq_gateway.messaging.receiving import OfSharedGroup, receipt_of
from stratamq_gateway.messaging.sessions import ClientSession
from stratamq_gateway.messaging.statuses import RefusedError, common_status, status

MAX_RECEIPTS = 256
"""In one request."""
MAX_TOGETHER = 1_024
"""What the delivery service takes by one call."""
MAX_CALLS = 2
"""On their way for one caller's acknowledgements of a group: a few that follow each other do not
wait for one another."""
_OK = pb.AckMessageResponse(status=status(pb.OK)).SerializeToString()
_ENTRY_TAG = encode_varint(pb.AckMessageResponse.ENTRIES_FIELD_NUMBER << 3 | 2)
_ENTRY = pb.AckMessageResultEntry(status=status(pb.OK)).SerializeToString()


class AckMessage:
    use_case = "AcknowledgeMessages"
    response = pb.AckMessageResponse

    def __init__(self) -> None:
        self._acknowledgements = Acknowledgements()

    def asked(self, request: pb.AckMessageRequest) -> OfSharedGroup:
        if not 0 < len(request.entries) <= MAX_RECEIPTS:
            raise RefusedError(pb.BAD_REQUEST, f"1 to {MAX_RECEIPTS} messages are acknowledged")
        return OfSharedGroup(group_name(request.group), topic_name(request.topic))

    async def answer(
        self, session: ClientSession, request: pb.AckMessageRequest, asked: OfSharedGroup
    ) -> pb.AckMessageResponse | bytes:
        receipts = [_receipt(one.receipt_handle) for one in request.entries]
        refusals = await self._acknowledgements.settle(session.client, asked, receipts)
        if not any(refusals):
            return acknowledged(request.entries)
        statuses = [
            status(pb.INVALID_RECEIPT_HANDLE, one) if one else status(pb.OK) for one in refusals
        ]
        entries = [
            pb.AckMessageResultEntry(
                message_id=one.message_id, receipt_handle=one.receipt_handle, status=each
            )
            for one, each in zip(request.entries, statuses, strict=True)
        ]
        return pb.AckMessageResponse(status=common_status(statuses), entries=entries)


def acknowledged(given: Sequence[pb.AckMessageEntry]) -> bytes:
    """The answer where nothing is refused: an `AckMessageResponse`."""
    parts = [_OK]
    for one in given:
        entry = (
            _ENTRY
            + pb.AckMessageResultEntry(
                message_id=one.message_id, receipt_handle=one.receipt_handle
            ).SerializeToString()
        )
        parts += (_ENTRY_TAG, encode_varint(len(entry)), entry)
    return b"".join(parts)


def _receipt(handle: str) -> bytes:
    """A receipt is of one message. Empty for what is no handle: the service refuses it,
    and settles the others."""
    try:
        receipt = receipt_of(handle)
    except RefusedError:
        return b""
    return receipt if messages_of(receipt) == 1 else b""


class Acknowledgements:
    """Belongs to the event loop."""

    def __init__(self) -> None:
        self._queues: dict[_Key, _Queue] = {}

    async def settle(
        self, client: FrontClient, asked: OfSharedGroup, receipts: Sequence[bytes]
    ) -> list[str]:
        """Why each message is as it was; "": it is finished. Each receipt is of one message.

        StrataError.
        """
        request = current()
        if request is not None and request.span is not None:  # its trace leads to the delivery
            return await _settle(client, asked, receipts)
        key = (client, asked)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
        loop = asyncio.get_running_loop()
        result: asyncio.Future[list[str]] = loop.create_future()
        queue.waiting.append(_Waiting(receipts, result))
        if len(queue.waiting) == 1 and queue.calls < MAX_CALLS:
            queue.calls += 1
            client.finish(self._run(key, queue))  # in the next turn, with those of this one
        return await result

    async def _run(self, key: "_Key", queue: "_Queue") -> None:
        """Until nothing waits."""
        try:
            while queue.waiting:
                taken = queue.take()
                receipts = [receipt for one in taken for receipt in one.receipts]
                try:
                    refusals = await _settle(*key, receipts)
                except Exception as error:  # noqa: BLE001 - it is the callers'
                    for one in taken:
                        if not one.result.done():
                            one.result.set_exception(error)
                    continue
                start = 0
                for one in taken:
                    end = start + len(one.receipts)
                    if not one.result.done():  # else its client has left
                        one.result.set_result(refusals[start:end])
                    start = end
        finally:
            queue.calls -= 1
            if not queue.calls:
                del self._queues[key]


async def _settle(
    client: FrontClient, asked: OfSharedGroup, receipts: Sequence[bytes]
) -> list[str]:
    outcomes = await client.run(settle("AcknowledgeMessages", asked.topic, asked.group, receipts))
    return [one.refusal for one in outcomes] or [""] * len(receipts)


_Key = tuple[FrontClient, OfSharedGroup]


class _Waiting(NamedTuple):
    receipts: Sequence[bytes]
    result: asyncio.Future[list[str]]


class _Queue:
    def __init__(self) -> None:
        self.waiting: list[_Waiting] = []
        self.calls = 0

    def take(self) -> list[_Waiting]:
        """The first ones, as many as one call takes."""
        count = number = 0
        for one in self.waiting:
            count += len(one.receipts)
            if count > MAX_TOGETHER:
                break
            number += 1
        taken, self.waiting = self.waiting[:number], self.waiting[number:]
        return taken
