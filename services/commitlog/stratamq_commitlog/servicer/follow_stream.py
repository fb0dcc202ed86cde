"""The follow streams: what the hub has for each follower out, its reports in."""

import asyncio
from collections.abc import AsyncIterator, Iterable

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.errors import InvalidRequestError
from stratamq.follow.demand import set_within
from stratamq.follow.protocol import Event, Queue, Report
from stratamq_commitlog.replica.follow_hub import EventPace, Session
from stratamq_commitlog.servicer.values import follow_message, follow_opened
from stratamq_commitlog.use_cases.served_log import ServedLog


class FollowStreams:
    """All open streams of the service."""

    def __init__(self, log: ServedLog) -> None:
        self._log = log
        self._sessions: set[Session] = set()

    def end(self) -> None:
        """End them; followers open again, here or at the next process."""
        for session in list(self._sessions):
            session.ended = True
            session.poke()

    async def run(
        self, open_: pb.FollowOpen, requests: AsyncIterator[pb.FollowRequest]
    ) -> AsyncIterator[pb.FollowResponse]:
        """The responses to one follower."""
        moved, hurry = asyncio.Event(), asyncio.Event()

        def wake() -> None:
            moved.set()
            if session.is_hurried:
                hurry.set()

        def finish(_: asyncio.Task[None]) -> None:
            session.ended = True
            session.poke()

        replicable = open_.horizon == pb.FOLLOW_HORIZON_REPLICABLE
        opened, session = self._log.get().hub.open(
            open_.name,
            replicable=replicable,
            generation=open_.generation,
            position=open_.position,
            wake=wake,
        )
        self._sessions.add(session)
        loop, pace = asyncio.get_running_loop(), EventPace(steady=replicable)
        reader = asyncio.create_task(_read_reports(requests, session, pace, hurry))
        reader.add_done_callback(finish)
        try:
            yield pb.FollowResponse(opened=follow_opened(opened))
            while not session.ended:
                message = session.next()
                if message is None:
                    await moved.wait()
                    moved.clear()
                    while not session.is_ending:
                        waiting, unhurried = session.waiting_bytes, session.is_unhurried
                        early = pace.early(loop.time(), waiting, unhurried)
                        if not early:
                            break
                        if session.is_hurried:
                            await asyncio.sleep(early)
                        else:
                            hurry.clear()
                            await set_within(hurry, early)
                    continue
                if isinstance(message, Event):
                    pace.spoke(loop.time(), message.end - message.start, message.confirmed)
                yield follow_message(message)
            if reader.done() and not reader.cancelled() and reader.exception() is not None:
                raise reader.exception()  # type: ignore[misc]
        finally:
            reader.cancel()
            session.close()
            self._sessions.discard(session)


async def _read_reports(
    requests: AsyncIterator[pb.FollowRequest],
    session: Session,
    pace: EventPace,
    hurry: asyncio.Event,
) -> None:
    """A report may say that a caller has begun to wait for what is held back."""
    async for request in requests:
        if not request.HasField("report"):
            raise InvalidRequestError("a follow stream is opened once")
        report = request.report
        session.report(
            Report(
                applied=report.applied_offset,
                durable=report.durable_offset,
                durable_store_timestamp_ms=report.durable_store_timestamp_ms,
                released=report.released_offset,
                unhurried=report.unhurried,
                by_queue=report.by_queue,
                began=_queues(report.began),
                ended=_queues(report.ended),
                leaving=report.leaving,
            )
        )
        pace.hurry()
        hurry.set()


def _queues(queues: Iterable[pb.FollowQueue]) -> tuple[Queue, ...]:
    return tuple((queue.topic, queue.queue_id) for queue in queues)
