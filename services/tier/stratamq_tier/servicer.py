"""The calls of the tier: see protos/stratamq/api/v1/tier.proto."""

import logging
from collections.abc import Callable, Mapping

from stratamq.api.v1 import dispatcher_pb2
from stratamq.api.v1 import tier_pb2 as pb
from stratamq.errors import InvalidRequestError
from stratamq.formats.numbers import INT64_MAX
from stratamq.rpc.framing import FETCH_MESSAGES_RESPONSE
from stratamq.rpc.mirrors import message_of
from stratamq.service.entrance import Call
from stratamq.tier.reading.key_index import ALL_TIMES, KeyQuestion
from stratamq_tier.fetching import Fetcher
from stratamq_tier.querying import KeyQueries
from stratamq_tier.queue_table import DamagedQueue, TierQueueEntry, TierQueueTable
from stratamq_tier.status import TierStatus

log = logging.getLogger(__name__)

PAGE_ENTRIES = 1_000
FETCH_MESSAGES, FETCH_BYTES = 32, 256 << 10
MAX_FETCHED, MAX_FETCHED_BYTES = 4_096, 1 << 20
"""A larger answer holds up the event loop for more than 2 ms."""
MAX_FOUND = 20_000
MAX_NAMED = 8


class TierServicer:
    """Belongs to the event loop."""

    def __init__(
        self,
        table: TierQueueTable,
        fetcher: Fetcher,
        queries: KeyQueries,
        status: Callable[[], TierStatus],
        floors: Callable[[str], Mapping[int, int]],
        require_loaded: Callable[[], None],
    ) -> None:
        """`floors`: of a topic, by queue id: messages below are hidden. `require_loaded` raises
        UnavailableError until the table has all queues."""
        self._require_loaded = require_loaded
        self._table = table
        self._fetcher = fetcher
        self._queries = queries
        self._status = status
        self._floors = floors

    async def FetchMessages(self, request: pb.FetchMessagesRequest, call: Call) -> bytes:
        self._require_loaded()
        fetched = await self._fetcher.fetch(
            request.topic,
            request.queue_id,
            request.offset,
            min(request.max_messages or FETCH_MESSAGES, MAX_FETCHED),
            min(request.max_bytes or FETCH_BYTES, MAX_FETCHED_BYTES),
            request.log_min_offset,
        )
        head = pb.FetchMessagesResponse(
            status=fetched.status.value,
            next_offset=fetched.next_offset,
            min_offset=fetched.minimum,
            max_offset=fetched.end,
            lengths=fetched.messages.sizes.tolist(),
            tags_codes=fetched.messages.tags_codes.tolist(),
        )
        pieces, size = fetched.messages.pieces()
        return FETCH_MESSAGES_RESPONSE.encode_pieces(head, pieces, size)

    async def GetTierOffsetByTime(
        self, request: pb.GetTierOffsetByTimeRequest, call: Call
    ) -> pb.GetTierOffsetByTimeResponse:
        self._require_loaded()
        offset = await self._fetcher.offset_at(
            request.topic,
            request.queue_id,
            request.timestamp_ms,
            upper=request.boundary == dispatcher_pb2.TIME_BOUNDARY_UPPER,
        )
        return pb.GetTierOffsetByTimeResponse(offset=offset)

    async def QueryTierKey(
        self, request: pb.QueryTierKeyRequest, call: Call
    ) -> pb.QueryTierKeyResponse:
        self._require_loaded()
        question = _question(request, self._floors(request.topic))
        answer, behind = await self._queries.ask(question)
        if answer.damaged:
            log.error(
                "damaged messages left out of an answer",
                extra={"topic": request.topic, "places": list(answer.damaged[:MAX_NAMED])},
            )
        return pb.QueryTierKeyResponse(
            frames=b"".join([hit.record for hit in answer.hits]),
            lengths=[len(hit.record) for hit in answer.hits],
            truncated=answer.truncated,
            queues_behind=behind,
        )

    async def ListTierQueues(
        self, request: pb.ListTierQueuesRequest, call: Call
    ) -> pb.ListTierQueuesResponse:
        self._require_loaded()
        most = min(request.max_entries or PAGE_ENTRIES, PAGE_ENTRIES)
        page = self._table.page(
            request.after_revision, request.position, max(1, most), request.topic
        )
        return pb.ListTierQueuesResponse(
            queues=[_info(entry) for entry in page.entries],
            next_position=page.next_position,
            revision=page.revision,
        )

    async def GetTierStatus(
        self, request: pb.GetTierStatusRequest, call: Call
    ) -> pb.GetTierStatusResponse:
        status = self._status()
        return message_of(
            pb.GetTierStatusResponse,
            status,
            index_items=status.index.items,
            index_waiting_items=status.index.waiting_items,
            index_files=status.index.files,
            index_queues_behind=status.index.queues_behind,
            index_failure=status.index.failure,
            cache_bytes=status.cache.bytes,
            cache_hits=status.cache.hits,
            cache_misses=status.cache.misses,
            requests=[message_of(pb.TierRequests, one) for one in status.requests],
        )


def _question(request: pb.QueryTierKeyRequest, floors: Mapping[int, int]) -> KeyQuestion:
    if not request.topic or not request.key:
        raise InvalidRequestError("topic and key are needed")
    if not 0 <= request.max_messages <= MAX_FOUND:
        raise InvalidRequestError(
            f"max_messages is at most {MAX_FOUND}, 0 means {FETCH_MESSAGES}; "
            f"not {request.max_messages}"
        )
    span = request.begin_timestamp_ms, request.end_timestamp_ms
    if span[0] < 0 or (span[1] < span[0] and span != (0, 0)):
        raise InvalidRequestError(f"no time is between {span[0]} and {span[1]}")
    return KeyQuestion(
        request.topic,
        request.key,
        request.max_messages or FETCH_MESSAGES,
        ALL_TIMES if span == (0, 0) else span,
        request.oldest_first,
        request.unique_key_only,
        floors,
    )


def _info(entry: TierQueueEntry | DamagedQueue) -> pb.TierQueueInfo:
    if isinstance(entry, DamagedQueue):
        # Every offset may be there: a request for one is answered with the damage.
        return pb.TierQueueInfo(topic=entry.topic, queue_id=entry.queue_id, max_offset=INT64_MAX)
    manifest = entry.manifest
    segments = [segment for segment in manifest.records if segment.size]
    return pb.TierQueueInfo(
        topic=manifest.topic,
        queue_id=manifest.queue_id,
        min_offset=manifest.minimum,
        max_offset=manifest.end_offset,
        first_store_timestamp_ms=segments[0].begin_ms if segments else 0,
        last_store_timestamp_ms=segments[-1].end_ms if segments else 0,
        size=sum(segment.size for segment in segments),
        segment_count=len(segments),
        missing_messages=sum(hole.end - hole.start for hole in manifest.holes),
    )
