"""The calls of the tier: see protos/stratamq/api/v1/tier.proto."""

from collections.abc import Callable
from typing import Any

from stratamq.api.v1 import tier_pb2 as pb
from stratamq.api.v1 import tier_pb2_grpc
from stratamq_tier.queue_table import QueueTable, TierQueueEntry
from stratamq_tier.status import TierStatus

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["TierService"].full_name
PAGE_ENTRIES = 1_000


class TierServicer(tier_pb2_grpc.TierServiceServicer):
    """Belongs to the event loop."""

    def __init__(self, table: QueueTable, status: Callable[[], TierStatus]) -> None:
        self._table = table
        self._status = status

    async def ListTierQueues(
        self, request: pb.ListTierQueuesRequest, context: Any
    ) -> pb.ListTierQueuesResponse:
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
        self, request: pb.GetTierStatusRequest, context: Any
    ) -> pb.GetTierStatusResponse:
        status = self._status()
        return pb.GetTierStatusResponse(
            storage=status.storage,
            cluster=status.cluster,
            broker=status.broker,
            not_writing_reason=status.not_writing_reason,
            committed_offset=status.committed_offset,
            read_offset=status.read_offset,
            log_confirmed_offset=status.log_confirmed_offset,
            lag_ms=status.lag_ms,
            waiting_messages=status.waiting_messages,
            waiting_bytes=status.waiting_bytes,
            committed_messages=status.committed_messages,
            committed_bytes=status.committed_bytes,
            queue_count=status.queue_count,
            failing_queues=status.failing_queues,
            last_failure=status.last_failure,
            cache_bytes=status.cache.bytes,
            cache_hits=status.cache.hits,
            cache_misses=status.cache.misses,
            requests=[
                pb.TierRequests(
                    kind=one.kind,
                    count=one.count,
                    bytes=one.bytes,
                    errors=one.errors,
                    cost_usd=one.cost_usd,
                )
                for one in status.requests
            ],
        )


def _info(entry: TierQueueEntry) -> pb.TierQueueInfo:
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
