"""DeliveryService: messages of the wire in, calls of the machines out, and nothing else."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace

from stratamq.api.v1 import delivery_pb2 as pb
from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.files.port import Clock
from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import OwnAppends
from stratamq.follow.own_log import OwnLog
from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_MS, FIRST_RETRY_LEVEL
from stratamq.formats.properties import KEYS, ORIGIN_MESSAGE_ID, REAL_QID, REAL_TOPIC, UNIQ_KEY
from stratamq.formats.receipts import messages_of
from stratamq.formats.source_item import MessageSource
from stratamq.formats.text import LONGEST_NAME_BYTES, check_name
from stratamq.formats.topics import DEAD_LETTER_PREFIX, is_system_topic, validate_topic_name
from stratamq.rpc.framing import encode_hand_outs
from stratamq.service.entrance import Call
from stratamq_delivery.classic_servicer import ForGateways
from stratamq_delivery.delayed_copies import WaitEnd
from stratamq_delivery.delivery import Delivery
from stratamq_delivery.ending import Ending, HalfPlace
from stratamq_delivery.entries import Configured
from stratamq_delivery.group_settings import DEFAULT
from stratamq_delivery.leases import LONGEST_MS
from stratamq_delivery.levels import Levels
from stratamq_delivery.reading import checked_tags, frames_of
from stratamq_delivery.replaying import Letter
from stratamq_delivery.schedule import HeldCounts, Schedule, Scheduled
from stratamq_delivery.shared_queue import Hold
from stratamq_delivery.sharing import Settled, Sharing
from stratamq_delivery.subscription_groups import MAX_RETRIES
from stratamq_delivery.timed_messages import TimedMessages
from stratamq_delivery.transaction_records import Outcome
from stratamq_delivery.waiting_line import Wish

_OUTCOMES = {
    pb.TRANSACTION_RESOLUTION_COMMIT: Outcome.COMMITTED,
    pb.TRANSACTION_RESOLUTION_ROLLBACK: Outcome.ROLLED_BACK,
}

MAX_MESSAGES, MAX_WORKERS = 256, 64
MAX_MESSAGES_AT_ONCE = 1_024
"""All workers of a call get no more."""
MAX_HAND_OUTS = 1_000
MAX_LISTED, DEFAULT_LISTED = 1_000, 100
LAST_OFFSET, MAX_WAIT_MS = (1 << 63) - 1, 30_000
MIN_INVISIBLE_MS, MAX_INVISIBLE_MS = 1_000, 43_200_000
DEFAULT_MESSAGES, DEFAULT_INVISIBLE_MS = 32, 30_000


class DeliveryServicer(ForGateways):
    """Belongs to the event loop of the fold."""

    def __init__(
        self,
        room: Delivery,
        followed: FoldPlace,
        appends: OwnAppends,
        levels: Levels,
        timed: TimedMessages,
        sharing: Sharing,
        ending: Ending,
        schedule: Schedule,
        log: OwnLog,
        clock: Clock,
    ) -> None:
        super().__init__(log, clock)
        self._room = room
        self._followed = followed
        self._appends = appends
        self._levels = levels
        self._timed = timed
        self._sharing = sharing
        self._ending = ending
        self._schedule = schedule

    async def drain(self) -> None:
        """End what waits: the service stops."""
        await super().drain()
        self._sharing.lines.close()
        self._ending.end_checks()

    async def EnableSchedule(
        self, request: pb.EnableScheduleRequest, call: Call
    ) -> pb.EnableScheduleResponse:
        held = await self._schedule.enable()
        return pb.EnableScheduleResponse(
            delayed_messages=held.delayed, timed_messages=held.timed, half_messages=held.halves
        )

    async def ListScheduled(
        self, request: pb.ListScheduledRequest, call: Call
    ) -> pb.ListScheduledResponse:
        self._followed.require_serving("delivery")
        limit = _within("limit", request.limit or DEFAULT_LISTED, 1, MAX_LISTED)
        found, may_be_more = await self._schedule.waiting(request.topic, limit)
        return pb.ListScheduledResponse(messages=map(_scheduled, found), truncated=may_be_more)

    async def CancelScheduled(
        self, request: pb.CancelScheduledRequest, call: Call
    ) -> pb.CancelScheduledResponse:
        await self._schedule.end(_source(request.place), WaitEnd.CANCELLED)
        return pb.CancelScheduledResponse()

    async def RecallMessage(
        self, request: pb.RecallMessageRequest, call: Call
    ) -> pb.RecallMessageResponse:
        offset = _within("physical_offset", request.physical_offset, 0, LAST_OFFSET)
        await self._ending.has_read(offset)
        await self._schedule.recall(request.topic, offset, request.unique_key)
        return pb.RecallMessageResponse()

    async def DeliverScheduledNow(
        self, request: pb.DeliverScheduledNowRequest, call: Call
    ) -> pb.DeliverScheduledNowResponse:
        await self._schedule.end(_source(request.place), WaitEnd.DELIVERED)
        return pb.DeliverScheduledNowResponse()

    async def EndTransaction(
        self, request: pb.EndTransactionRequest, call: Call
    ) -> pb.EndTransactionResponse:
        decided = _OUTCOMES.get(request.resolution)
        if decided is None:
            raise InvalidRequestError("resolution must be COMMIT or ROLLBACK")
        halves = [
            HalfPlace(half.topic, half.physical_offset, half.unique_key)
            for half in request.messages
        ]
        await self._ending.end(request.producer_group, halves, decided)
        return pb.EndTransactionResponse()

    async def CheckTransactions(
        self, request: pb.CheckTransactionsRequest, call: Call
    ) -> AsyncIterator[pb.CheckTransactionsResponse]:
        checks = self._ending.checks(request.producer_group, request.topics, call)
        async with contextlib.aclosing(checks):
            async for half, check in checks:
                yield pb.CheckTransactionsResponse(
                    message=pb.HalfMessage(
                        topic=half.topic,
                        physical_offset=half.offset,
                        unique_key=half.unique_key,
                    ),
                    number=check.number,
                    queue_offset=check.queue_offset,
                    frame=check.frame,
                )

    async def GetDeliveryStatus(
        self, request: pb.GetDeliveryStatusRequest, call: Call
    ) -> pb.GetDeliveryStatusResponse:
        followed, levels, timed = self._followed, self._levels, self._timed
        held = self._schedule.held() if followed.opened else HeldCounts(0, 0, 0)
        return pb.GetDeliveryStatusResponse(
            applied_offset=followed.applied,
            durable_offset=followed.durable,
            log_confirmed_offset=followed.confirmed,
            serving=followed.serving,
            stopped_reason=followed.stopped_reason,
            active=self._appends.is_active,
            delayed_messages=len(levels) + len(timed),
            held_messages=held.delayed + held.timed,
            held_timed_messages=held.timed,
            held_half_messages=held.halves,
            held_newest_ms=self._schedule.held_newest_ms if any(held) else 0,
            timed_messages=len(timed),
            needed_offset=self._room.needed_offset,
            levels=[
                pb.DelayLevel(
                    level=level + 1,
                    messages=queue.open,
                    position=queue.position,
                    next_due_ms=0 if queue.head is None else queue.head.due_ms,
                )
                for level, queue in sorted(levels.queues.items())
            ],
        )

    async def Receive(self, request: pb.ReceiveRequest, call: Call) -> bytes:
        _check_names(request.topic, request.group)
        validate_topic_name(DEAD_LETTER_PREFIX + request.group)  # where its dead letters will go
        _within("wait_ms", request.wait_ms, 0, MAX_WAIT_MS)
        _within("the number of workers", len(request.workers), 1, MAX_WORKERS)
        wishes = [_wish(request, worker) for worker in request.workers]
        _within("max_messages together", sum([one.most for one in wishes]), 1, MAX_MESSAGES_AT_ONCE)
        found = await self._sharing.receive_each(wishes)
        return encode_hand_outs(
            (
                pb.HandOut(
                    worker=number,
                    ticket=one.ticket,
                    attempt=one.attempt,
                    invisible_until_ms=one.until_ms,
                ),
                frames_of(one.messages),
            )
            for number, handed in enumerate(found)
            for one in handed
        )

    async def AcknowledgeMessages(
        self, request: pb.AcknowledgeMessagesRequest, call: Call
    ) -> pb.AcknowledgeMessagesResponse:
        _check_receipts(request)
        sharing = self._sharing
        settled = await sharing.acknowledge(request.group, request.topic, request.receipts)
        refused = any(one.error is not None for one in settled)
        return pb.AcknowledgeMessagesResponse(outcomes=_outcomes(settled) if refused else ())

    async def ReturnMessages(
        self, request: pb.ReturnMessagesRequest, call: Call
    ) -> pb.ReturnMessagesResponse:
        for_ms = _within("invisible_ms", request.invisible_ms, 0, MAX_INVISIBLE_MS)
        unseen = request.unseen
        hidden = await self._hide(request, lambda attempt: for_ms or retry_ms(attempt), unseen)
        return pb.ReturnMessagesResponse(outcomes=hidden)

    async def ChangeInvisibleTime(
        self, request: pb.ChangeInvisibleTimeRequest, call: Call
    ) -> pb.ChangeInvisibleTimeResponse:
        for_ms = _invisible_ms(request.invisible_ms)
        return pb.ChangeInvisibleTimeResponse(outcomes=await self._hide(request, lambda _: for_ms))

    async def BuryMessages(
        self, request: pb.BuryMessagesRequest, call: Call
    ) -> pb.BuryMessagesResponse:
        _check_receipts(request, MAX_MESSAGES)
        validate_topic_name(DEAD_LETTER_PREFIX + request.group)
        attempts = _within("attempts", request.attempts, 0, MAX_RETRIES + 1)
        given = request.group, request.topic, request.receipts, attempts
        errors = await self._sharing.asked_burials.bury(*given)
        return pb.BuryMessagesResponse(outcomes=_outcomes(map(Settled, errors)))

    async def RenewLease(self, request: pb.RenewLeaseRequest, call: Call) -> pb.RenewLeaseResponse:
        _check_names("-", request.group, request.client_id)
        lease_ms = request.lease_ms or DEFAULT_INVISIBLE_MS
        for_ms = _within("lease_ms", lease_ms, MIN_INVISIBLE_MS, LONGEST_MS)
        until_ms = self._sharing.renew(request.group, request.client_id, for_ms)
        return pb.RenewLeaseResponse(until_ms=until_ms)

    async def ListHandOuts(
        self, request: pb.ListHandOutsRequest, call: Call
    ) -> pb.ListHandOutsResponse:
        offset = request.offset if request.HasField("offset") else None
        only = (request.topic, request.queue_id) if offset is not None else None
        response = pb.ListHandOutsResponse(now_ms=self._sharing.now_ms())
        for place, queue in await self._sharing.queues_of(request.group, only):
            response.queues.add(
                topic=place.topic,
                queue_id=place.queue_id,
                floor=queue.floor,
                next_offset=queue.next,
                unfinished=queue.unfinished,
            )
            for start, end, holder in queue.runs(offset):
                if not isinstance(holder, Hold):
                    continue
                if len(response.hand_outs) == MAX_HAND_OUTS:
                    response.truncated = True
                    break
                response.hand_outs.add(
                    topic=place.topic,
                    queue_id=place.queue_id,
                    offset=start,
                    count=end - start,
                    client_id=holder.client,
                    attempt=holder.attempt,
                    until_ms=queue.until_ms(holder),
                )
        return response

    async def StopSharing(
        self, request: pb.StopSharingRequest, call: Call
    ) -> pb.StopSharingResponse:
        return pb.StopSharingResponse(queue_count=await self._sharing.stop(request.group))

    async def ListDeadLetters(
        self, request: pb.ListDeadLettersRequest, call: Call
    ) -> pb.ListDeadLettersResponse:
        _check_names("-", request.group)
        limit = _within("limit", request.limit or DEFAULT_LISTED, 1, MAX_LISTED)
        begin = _within("begin_offset", request.begin_offset, 0, LAST_OFFSET)
        found, following = await self._sharing.replaying.letters(request.group, begin, limit)
        return pb.ListDeadLettersResponse(
            dead_letters=map(_dead_letter, found), next_offset=following
        )

    async def ReplayDeadLetters(
        self, request: pb.ReplayDeadLettersRequest, call: Call
    ) -> pb.ReplayDeadLettersResponse:
        _check_names("-", request.group)
        _within("the number of places", len(request.places), 0, MAX_MESSAGES)
        limit = _within("limit", request.limit or DEFAULT_LISTED, 1, MAX_MESSAGES)
        sources = [_source(place) for place in request.places]
        outcomes = await self._sharing.replaying.replay(request.group, sources, limit)
        return pb.ReplayDeadLettersResponse(
            outcomes=[
                pb.ReplayOutcome(place=_place(source), refusal=str(error or ""))
                for source, error in outcomes
            ]
        )

    async def AlterGroup(self, request: pb.AlterGroupRequest, call: Call) -> pb.AlterGroupResponse:
        _check_names("-", request.group)
        sharing, known = self._sharing, self._sharing.settings().of(request.group)
        if request.change == pb.GROUP_CHANGE_DELETE:
            await sharing.configure(request.group, None)
            return pb.AlterGroupResponse(settings=self._settings(request.group, DEFAULT))
        if request.change == pb.GROUP_CHANGE_CREATE and known is not None:
            raise InvalidRequestError(f"group {request.group} has settings: alter it")
        settings = known or DEFAULT
        if request.HasField("ordered"):
            settings = replace(settings, ordered=request.ordered)
        if request.HasField("retries"):
            retries = _within("retries", request.retries, 0, MAX_RETRIES)
            settings = replace(settings, attempts=retries + 1)
        if request.HasField("consume_enabled"):
            settings = replace(settings, enabled=request.consume_enabled)
        await sharing.configure(request.group, settings)
        return pb.AlterGroupResponse(settings=self._settings(request.group, settings))

    async def GetGroupSettings(
        self, request: pb.GetGroupSettingsRequest, call: Call
    ) -> pb.GetGroupSettingsResponse:
        if not request.group:
            every = sorted(self._sharing.settings().all().items())
            return pb.GetGroupSettingsResponse(groups=[self._settings(*one) for one in every])
        settings = self._sharing.settings().of(request.group)
        if settings is None:
            raise NotFoundError(f"group {request.group} has no settings")
        return pb.GetGroupSettingsResponse(settings=self._settings(request.group, settings))

    def _settings(self, group: str, settings: Configured) -> pb.GroupSettings:
        return pb.GroupSettings(
            group=group,
            ordered=settings.ordered,
            retries=self._sharing.burials.attempts(group) - 1,
            consume_enabled=settings.enabled,
        )

    async def _hide(
        self,
        request: pb.ReturnMessagesRequest | pb.ChangeInvisibleTimeRequest,
        for_ms: Callable[[int], int],
        unseen: bool = False,
    ) -> list[pb.SettleOutcome]:
        _check_receipts(request)
        group, topic, receipts = request.group, request.topic, request.receipts
        return _outcomes(await self._sharing.hide(group, topic, receipts, for_ms, unseen=unseen))


def _source(place: pb.MessagePlace) -> MessageSource:
    return MessageSource(place.generation, place.physical_offset)


def _place(source: MessageSource) -> pb.MessagePlace:
    return pb.MessagePlace(generation=source.generation, physical_offset=source.offset)


def _dead_letter(one: Letter) -> pb.DeadLetter:
    frame, properties = one.frame, one.frame.properties
    return pb.DeadLetter(
        place=_place(one.source),
        queue_offset=frame.queue_offset,
        origin_topic=one.topic,
        origin_message_id=properties.get(ORIGIN_MESSAGE_ID, ""),
        message_id=properties.get(UNIQ_KEY, ""),
        keys=properties.get(KEYS, ""),
        attempts=frame.reconsume_times,
        store_timestamp_ms=frame.store_timestamp_ms,
        replays=one.times,
    )


def _scheduled(one: Scheduled) -> pb.ScheduledMessage:
    properties = one.frame.properties
    queue = properties.get(REAL_QID, "")
    return pb.ScheduledMessage(
        place=_place(one.source),
        topic=properties.get(REAL_TOPIC, ""),
        queue_id=int(queue) if queue.isascii() and queue.isdigit() and len(queue) < 10 else -1,
        level=one.level,
        due_ms=one.due_ms,
        held=one.is_held,
        message_id=properties.get(UNIQ_KEY, ""),
        keys=properties.get(KEYS, ""),
        store_timestamp_ms=one.frame.store_timestamp_ms,
    )


def retry_ms(attempt: int) -> int:
    """After how long a message is handed out again that failed for the `attempt`-th time."""
    level = min(FIRST_RETRY_LEVEL + attempt - 1, len(DEFAULT_DELAY_LEVELS_MS))
    return DEFAULT_DELAY_LEVELS_MS[level - 1]


def _wish(request: pb.ReceiveRequest, worker: pb.Worker) -> Wish:
    _check_names(request.topic, request.group, worker.client_id)
    _within("the bytes of attempt_id", len(worker.attempt_id.encode()), 0, LONGEST_NAME_BYTES)
    return Wish(
        request.group,
        request.topic,
        worker.client_id,
        _within("max_messages", worker.max_messages or DEFAULT_MESSAGES, 1, MAX_MESSAGES_AT_ONCE),
        _invisible_ms(worker.invisible_ms or DEFAULT_INVISIBLE_MS),
        request.wait_ms,
        worker.attempt_id,
        worker.leased,
        checked_tags(worker.tags),
    )


def _outcomes(settled: Iterable[Settled]) -> list[pb.SettleOutcome]:
    return [
        pb.SettleOutcome(refusal="" if one.error is None else str(one.error), receipt=one.receipt)
        for one in settled
    ]


def _check_receipts(
    request: pb.AcknowledgeMessagesRequest
    | pb.ReturnMessagesRequest
    | pb.ChangeInvisibleTimeRequest
    | pb.BuryMessagesRequest,
    most: int = MAX_MESSAGES_AT_ONCE,
) -> None:
    _check_names(request.topic, request.group)
    count = sum(map(messages_of, request.receipts))
    _within("the number of messages", count, 0, most)


def _check_names(topic: str, group: str, client_id: str = "-") -> None:
    for what, name in (("topic", topic), ("group", group), ("client_id", client_id)):
        check_name(name, what)
    if is_system_topic(topic):
        raise InvalidRequestError(f"{topic} is the broker's own: its messages are not shared out")


def _invisible_ms(value: int) -> int:
    return _within("invisible_ms", value, MIN_INVISIBLE_MS, MAX_INVISIBLE_MS)


def _within(what: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise InvalidRequestError(f"{what} is from {least} to {most}, not {value}")
    return value
