"""What other services of a broker ask its tier service, as values. Of one event loop."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stratamq.api.v1 import common_pb2, dispatcher_pb2, tier_pb2
from stratamq.errors import UnavailableError
from stratamq.rpc.asking import ask
from stratamq.rpc.endpoints import Channels
from stratamq.rpc.framing import FETCH_MESSAGES_RESPONSE

_NOT_THERE = (
    common_pb2.GET_MESSAGE_STATUS_NO_MATCHED_LOGIC_QUEUE,
    common_pb2.GET_MESSAGE_STATUS_NO_MESSAGE_IN_QUEUE,
    common_pb2.GET_MESSAGE_STATUS_OFFSET_OVERFLOW_ONE,
    common_pb2.GET_MESSAGE_STATUS_OFFSET_OVERFLOW_BADLY,
)


@dataclass(frozen=True, slots=True)
class TierQueueRange:
    """Queue offsets [minimum, end) of it are in the tier."""

    topic: str
    queue_id: int
    minimum: int
    end: int


@dataclass(frozen=True, slots=True)
class TierMessages:
    """`below`: the offset asked for is below `minimum`, and there are no records. `next_offset`:
    where to go on; records are those that are there before it, one behind the other in `frames`."""

    next_offset: int
    minimum: int
    end: int
    frames: bytes | memoryview = b""
    lengths: Sequence[int] = ()
    tags_codes: Sequence[int] = ()
    below: bool = False


@dataclass(frozen=True, slots=True)
class TierKeyMessages:
    """By store time. `truncated`: more match. `queues_behind`: queues of the topic whose messages
    are not all indexed yet."""

    records: tuple[bytes, ...]
    truncated: bool
    queues_behind: int


class TierCalls:
    """Calls raise StrataError; UnavailableError when the service does not answer within
    `timeout_ms`, or is not there."""

    def __init__(self, channels: Channels, timeout_ms: int) -> None:
        self._channels = channels
        self._timeout_s = timeout_ms / 1000

    async def changed_queues(self, revision: int) -> tuple[list[TierQueueRange], int]:
        """Those that changed behind a mark (0: all), and the next mark."""
        request = tier_pb2.ListTierQueuesRequest(after_revision=revision)
        found: list[TierQueueRange] = []
        while True:
            page = await self._ask("ListTierQueues", request)
            found += [
                TierQueueRange(one.topic, one.queue_id, one.min_offset, one.max_offset)
                for one in page.queues
            ]
            if not page.next_position:
                return found, page.revision
            request.position = page.next_position

    async def messages(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        most_messages: int,
        most_bytes: int,
        log_minimum: int,
    ) -> TierMessages | None:
        """From queue offset `offset` on; None: the tier has nothing there, for a reason that is
        known. `log_minimum`: the queue's first offset in the log. LostMessagesError."""
        answer = await self._ask(
            "FetchMessages",
            tier_pb2.FetchMessagesRequest(
                topic=topic,
                queue_id=queue_id,
                offset=offset,
                max_messages=most_messages,
                max_bytes=most_bytes,
                log_min_offset=log_minimum,
            ),
        )
        response, (frames,) = FETCH_MESSAGES_RESPONSE.decode(answer)
        if response.status in _NOT_THERE:
            return None
        return TierMessages(
            response.next_offset,
            response.min_offset,
            response.max_offset,
            frames,
            response.lengths,
            response.tags_codes,
            response.status == common_pb2.GET_MESSAGE_STATUS_OFFSET_TOO_SMALL,
        )

    async def offset_at(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool) -> int:
        """0 for a queue that the tier does not have."""
        boundary = (
            dispatcher_pb2.TIME_BOUNDARY_UPPER if upper else dispatcher_pb2.TIME_BOUNDARY_LOWER
        )
        response = await self._ask(
            "GetTierOffsetByTime",
            tier_pb2.GetTierOffsetByTimeRequest(
                topic=topic, queue_id=queue_id, timestamp_ms=timestamp_ms, boundary=boundary
            ),
        )
        offset: int = response.offset
        return offset

    async def messages_of_key(
        self,
        topic: str,
        key: str,
        *,
        most_messages: int,
        begin_ms: int = 0,
        end_ms: int = 0,
        oldest_first: bool = False,
        unique_only: bool = False,
    ) -> TierKeyMessages:
        """Those that the tier has. Times as in `QueryKey`."""
        response = await self._ask(
            "QueryTierKey",
            tier_pb2.QueryTierKeyRequest(
                topic=topic,
                key=key,
                unique_key_only=unique_only,
                max_messages=most_messages,
                begin_timestamp_ms=begin_ms,
                end_timestamp_ms=end_ms,
                oldest_first=oldest_first,
            ),
        )
        records = tuple(bytes(one) for one in _cut(response.frames, response.lengths))
        return TierKeyMessages(records, response.truncated, response.queues_behind)

    async def _ask(self, method: str, request: Any) -> Any:
        try:
            return await ask(self._channels, method, request, self._timeout_s)
        except UnavailableError as error:
            raise UnavailableError(f"the tier does not answer: {error}") from error


def _cut(frames: bytes, lengths: Sequence[int]) -> list[memoryview]:
    view, records, place = memoryview(frames), [], 0
    for length in lengths:
        records.append(view[place : place + length])
        place += length
    return records
