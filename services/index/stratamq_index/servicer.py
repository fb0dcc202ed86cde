"""IndexService: messages of the wire in, engine calls out, and nothing else."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing

from stratamq.api.v1 import common_pb2
from stratamq.api.v1 import index_pb2 as pb
from stratamq.errors import InvalidRequestError
from stratamq.follow.followed_topics import FollowedTopics
from stratamq.rpc.mirrors import message_of
from stratamq.rpc.request_ids import part
from stratamq.service.awaiting import finished, outcome
from stratamq.service.entrance import Call
from stratamq_index.engine import REPORT_LINES, IndexEngine
from stratamq_index.metrics import QUERIES, QUERY_MESSAGES, QUERY_SECONDS, REBUILDS
from stratamq_index.query import DEFAULT_MESSAGES, MAX_MESSAGES, KeyQuery, QueryAnswer
from stratamq_index.rebuild import Rebuild
from stratamq_index.searches import PendingQuery
from stratamq_index.tier_queries import TierQueries


class IndexServicer:
    """Belongs to the event loop that the engine runs on."""

    def __init__(
        self, engine: IndexEngine, tier: TierQueries, catch_up: Callable[[], Awaitable[None]]
    ) -> None:
        """`catch_up`: until what was answered to producers before is in the index."""
        self._engine = engine
        self._tier = tier
        self._catch_up = catch_up
        self._minimums: dict[str, Mapping[int, int]] = {}
        self.topics = FollowedTopics(self._minimums.__setitem__)

    async def QueryKey(self, request: pb.QueryKeyRequest, call: Call) -> pb.QueryKeyResponse:
        self.topics.require_learned()
        question = _question(request, self._minimums.get(request.topic, {}))
        await self._catch_up()
        applied = self._engine.followed.applied
        with QUERY_SECONDS.time():
            with part("index read"):
                local = await self._ask(question)
            answer, missing = await self._tier.complete(question, local)
        QUERIES.inc()
        QUERY_MESSAGES.inc(len(answer.frames))
        return pb.QueryKeyResponse(
            frames=[
                common_pb2.StoredFrame(physical_offset=offset, frame=raw)
                for offset, raw in answer.frames
            ],
            applied_offset=applied,
            truncated=answer.truncated,
            missing=missing,
        )

    async def Rebuild(self, request: pb.RebuildRequest, call: Call) -> pb.RebuildResponse:
        rebuild = Rebuild(self._engine, request.start_offset, request.end_offset)
        with closing(rebuild.steps()) as steps:
            for step in steps:
                # Appends, queries and other calls get their turn between two steps.
                await (asyncio.sleep(0) if step is None else finished(step.then))
        REBUILDS.inc()
        return pb.RebuildResponse(files_rebuilt=rebuild.rebuilt.files, items=rebuild.rebuilt.items)

    async def GetIndexStatus(
        self, request: pb.GetIndexStatusRequest, call: Call
    ) -> pb.GetIndexStatusResponse:
        engine = self._engine
        return pb.GetIndexStatusResponse(
            applied_offset=engine.followed.applied,
            durable_offset=engine.followed.durable,
            log_confirmed_offset=engine.followed.confirmed,
            files=[
                message_of(
                    pb.IndexFileInfo,
                    record.header,
                    name=record.name,
                    begin_physical_offset=record.header.begin_phy_offset,
                    end_physical_offset=record.header.end_phy_offset,
                )
                for record in engine.records
            ],
            serving=engine.followed.serving,
            recovery_report=engine.findings()[:REPORT_LINES],
            stopped_reason=engine.stop_reason,
        )

    async def _ask(self, question: KeyQuery) -> QueryAnswer:
        pending: list[PendingQuery] = []
        try:
            return await outcome(lambda done: pending.append(self._engine.ask(question, done)))
        finally:
            for one in pending:
                one.cancel()


def _question(request: pb.QueryKeyRequest, minimums: Mapping[int, int]) -> KeyQuery:
    if not request.topic:
        raise InvalidRequestError("topic is empty")
    if not request.key:
        raise InvalidRequestError("key is empty")
    if not 0 <= request.max_messages <= MAX_MESSAGES:
        raise InvalidRequestError(
            f"max_messages is at most {MAX_MESSAGES}, 0 means {DEFAULT_MESSAGES}; "
            f"not {request.max_messages}"
        )
    begin_ms, end_ms = request.begin_timestamp_ms, request.end_timestamp_ms
    everything = begin_ms == 0 and end_ms == 0
    if begin_ms < 0 or (end_ms < begin_ms and not everything):
        raise InvalidRequestError(f"no time is between {begin_ms} and {end_ms}")
    return KeyQuery(
        topic=request.topic,
        key=request.key,
        unique_only=request.unique_key_only,
        max_messages=request.max_messages or DEFAULT_MESSAGES,
        begin_ms=begin_ms,
        end_ms=None if everything else end_ms,
        oldest_first=request.oldest_first,
        minimums=minimums,
    )
