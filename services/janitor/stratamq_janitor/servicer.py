"""JanitorService: messages of the wire in, calls of the cleaner out, and nothing else."""

from bisect import bisect_left
from typing import TypeVar

from stratamq.api.v1 import janitor_pb2 as pb
from stratamq.rpc.mirrors import message_of
from stratamq.rpc.paging import page
from stratamq.service.entrance import Call
from stratamq.service.worker import ThreadWorker
from stratamq_janitor.cleaner import Check, Cleaner, RetentionRule
from stratamq_janitor.fate import Outlook
from stratamq_janitor.policy import TIERED, Deletion, Held, Kept, Share

M = TypeVar("M", pb.PlannedDeletion, pb.HeldSegment, pb.KeptSegment)


class JanitorServicer:
    """The cleaner is used on `worker` alone: one look at a time, and each to its end."""

    def __init__(self, cleaner: Cleaner, worker: ThreadWorker) -> None:
        self.failure = ""
        """Why the newest look failed."""
        self._cleaner = cleaner
        self._worker = worker
        self._listed: tuple[Check, RetentionRule] | None = None
        """Where the pages of a list of segments come from."""

    async def GetJanitorStatus(
        self, request: pb.GetJanitorStatusRequest, call: Call
    ) -> pb.GetJanitorStatusResponse:
        cleaner = self._cleaner
        return pb.GetJanitorStatusResponse(
            last=None if cleaner.last is None else _look(cleaner.last),
            deleted_segments=cleaner.deleted_files.total(),
            freed_bytes=cleaner.freed_bytes,
            failure=self.failure,
            policy=cleaner.policy,
            disabled=cleaner.disabled,
        )

    async def GetRetention(
        self, request: pb.GetRetentionRequest, call: Call
    ) -> pb.GetRetentionResponse:
        retention = await self._retention()
        if not request.HasField("offset"):
            return pb.GetRetentionResponse(retention=retention)
        fate = await self._worker.run(lambda: self._cleaner.fate(request.offset))
        return pb.GetRetentionResponse(retention=retention, fate=_fate(fate))

    async def SetRetention(
        self, request: pb.SetRetentionRequest, call: Call
    ) -> pb.SetRetentionResponse:
        await self._worker.run(lambda: self._cleaner.set_retention(request.enabled))
        return pb.SetRetentionResponse(retention=await self._retention())

    async def _retention(self) -> pb.Retention:
        return _retention(await self._worker.run(self._cleaner.rule))

    async def PlanCleaning(
        self, request: pb.PlanCleaningRequest, call: Call
    ) -> pb.PlanCleaningResponse:
        look = await self._worker.run(
            lambda: self._cleaner.plan(manual=request.manual, trust_clock=request.trust_clock)
        )
        return pb.PlanCleaningResponse(look=_look(look))

    async def RunCleaning(
        self, request: pb.RunCleaningRequest, call: Call
    ) -> pb.RunCleaningResponse:
        look = await self._worker.run(
            lambda: self._cleaner.run(manual=True, trust_clock=request.trust_clock)
        )
        return pb.RunCleaningResponse(look=_look(look))

    async def ListSegments(
        self, request: pb.ListSegmentsRequest, call: Call
    ) -> pb.ListSegmentsResponse:
        listed = self._listed
        if listed is None or not request.position:
            listed = self._listed = await self._worker.run(self._cleaner.survey)
        look, rule = listed
        facts = look.facts
        # A position is an offset of the log, valid whatever was deleted meanwhile.
        place = min(request.position, 0) or bisect_left(
            facts.segments, request.position, key=lambda one: one.start
        )
        found, following = page(facts.segments, place, request.max_entries)
        fates = await self._worker.run(
            lambda: self._cleaner.fates(place, place + len(found), facts)
        )
        is_first = not request.position
        return pb.ListSegmentsResponse(
            segments=[
                pb.SegmentInfo(
                    start_offset=one.segment.start,
                    end_offset=one.segment.end,
                    newest_timestamp_ms=one.segment.newest_ms,
                    deletion_ms=one.goes_ms,
                )
                for one in fates
            ],
            next_position=facts.segments[following].start if following else 0,
            at_ms=look.at_ms,
            disk_total_bytes=facts.disk_total_bytes,
            disk_used_bytes=facts.disk_used_bytes,
            disabled=facts.disabled,
            tiered_offset=facts.held_at.get(TIERED, 0),
            plan=_look(look) if is_first else None,
            retention=_retention(rule) if is_first else None,
        )


def _retention(rule: RetentionRule) -> pb.Retention:
    shares = {"at_once": _share(rule.at_once), "expired": _share(rule.expired)}
    return message_of(pb.Retention, rule, **shares)


def _fate(fate: Outlook) -> pb.SegmentFate:
    return pb.SegmentFate(
        start_offset=fate.segment.start,
        end_offset=fate.segment.end,
        newest_ms=fate.segment.newest_ms or 0,
        expires_ms=fate.expires_ms or 0,
        deleted_by_ms=fate.deleted_by_ms or 0,
        obstacle=fate.obstacle,
    )


def _share(share: Share) -> pb.LogShare:
    return pb.LogShare(segments=share.segments, size_bytes=share.size)


def _look(look: Check) -> pb.Look:
    decision = look.decision
    return pb.Look(
        at_ms=look.at_ms,
        disk_used_ratio=look.facts.disk_used_ratio,
        segments=len(look.facts.segments),
        deletions=[_step(pb.PlannedDeletion, one) for one in decision.deletions],
        held=[_step(pb.HeldSegment, one) for one in decision.held],
        alarm=decision.alarm,
        deleted=look.deleted,
        minimum_offset=look.minimum_offset,
        kept=None if decision.kept is None else _step(pb.KeptSegment, decision.kept),
    )


def _step(kind: type[M], one: Deletion | Held | Kept) -> M:
    return message_of(kind, one, start_offset=one.segment.start, end_offset=one.segment.end)
