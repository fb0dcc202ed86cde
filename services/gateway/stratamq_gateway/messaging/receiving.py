"""What workers of a group do: ReceiveMessage, ChangeInvisibleDuration,
ForwardMessageToDeadLetterQueue. `spec/gateway.md` 3.4 to 3.7.

A receipt handle is the delivery service's receipt in hexadecimal digits: it names queue, offset,
group and topic, so that every gateway can settle it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from logging import getLogger
from secrets import token_hex
from typing import NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client.group_receipts import (
    GroupWorker,
    HandedFrame,
    HandedMessage,
    receipts_of,
    receive,
    settle,
    settled,
)
from stratamq.errors import StrataError
from stratamq.files.port import Clock
from stratamq_gateway.messaging.filtering import TagsOrSql, filter_of
from stratamq_gateway.messaging.messages import group_name, to_deliver, topic_name
from stratamq_gateway.messaging.sessions import LEASE_S, ClientSession
from stratamq_gateway.messaging.statuses import RefusedError, status

log = getLogger(__name__)

MAX_BATCH = 32
MAX_POLL_S = 30.0
ANSWER_S = 0.1
"""What is left of a call's time when its poll ends."""
MIN_INVISIBLE_S, MAX_INVISIBLE_S = 10.0, 43_200.0
MAX_ATTEMPTS = 10_000
GIVE_BACK_S = 5.0


class OfSharedGroup(NamedTuple):
    group: str
    topic: str


class WantedMessages(NamedTuple):
    group: str
    topic: str
    filter: TagsOrSql
    most: int
    invisible_s: float


class ReceiveMessage:
    """Answers with a status, messages, and the time."""

    use_case = "Receive"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def asked(self, request: pb.ReceiveMessageRequest) -> WantedMessages:
        invisible_s = LEASE_S
        if not request.auto_renew:
            invisible_s = seconds(request.invisible_duration)
            if not MIN_INVISIBLE_S <= invisible_s <= MAX_INVISIBLE_S:
                raise RefusedError(
                    pb.ILLEGAL_INVISIBLE_TIME,
                    f"messages are hidden for 10 s to 12 h, and not for {invisible_s} s",
                )
        return WantedMessages(
            group_name(request.group),
            topic_name(request.message_queue.topic),
            filter_of(request.filter_expression),
            max(1, min(request.batch_size or MAX_BATCH, MAX_BATCH)),
            invisible_s,
        )

    async def answers(
        self,
        session: ClientSession,
        request: pb.ReceiveMessageRequest,
        asked: WantedMessages,
        left_s: float | None,
    ) -> AsyncIterator[pb.ReceiveMessageResponse]:
        """`left_s`: of the call's time."""
        most_s = MAX_POLL_S if left_s is None else max(0.0, left_s - ANSWER_S)
        says = request.HasField("long_polling_timeout")
        polling = request.long_polling_timeout if says else session.polling
        wait_s = most_s if polling is None else min(seconds(polling), most_s)
        given = await self._take(session, request, asked, min(wait_s, MAX_POLL_S))
        yield pb.ReceiveMessageResponse(
            status=status(pb.OK) if given else status(pb.MESSAGE_NOT_FOUND, "no new message")
        )
        for one, attempt in given:
            message = to_deliver(
                one,
                request.message_queue.topic,
                attempt=attempt,
                receipt=one.receipt.hex().upper(),
            )
            yield pb.ReceiveMessageResponse(message=message)
        yield pb.ReceiveMessageResponse(delivery_timestamp=self.now())

    def refused(self, problem: pb.Status) -> Iterator[pb.ReceiveMessageResponse]:
        yield pb.ReceiveMessageResponse(status=problem)
        yield pb.ReceiveMessageResponse(delivery_timestamp=self.now())

    def now(self) -> Timestamp:
        made = Timestamp()
        made.FromMilliseconds(self._clock.wall_ms())
        return made

    async def _take(
        self,
        session: ClientSession,
        request: pb.ReceiveMessageRequest,
        asked: WantedMessages,
        wait_s: float,
    ) -> list[tuple[HandedMessage, int]]:
        """Messages that the filter lets through. The others are finished for the group."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait_s
        # With an id of its own the call can be made again behind a lost answer: without, what the
        # first one was given is hidden from all.
        worker = GroupWorker(
            session.client_id,
            asked.most,
            asked.invisible_s,
            request.attempt_id or token_hex(8),
            request.auto_renew,
            asked.filter.compared,
        )
        while True:
            wait_s = max(0.0, ends - loop.time())
            try:
                call = receive(asked.topic, asked.group, [worker], wait_s)
                (given,) = await session.client.run(call)
            except asyncio.CancelledError:
                if not request.attempt_id:
                    session.client.finish(_give_back(session, asked, worker))
                raise
            found = [*_handed(given)]
            if found and request.auto_renew:
                session.leased_of.add(asked.group)
            if asked.filter.sql is None and asked.filter.compared == asked.filter.tags:
                return found
            wanted: list[tuple[HandedMessage, int]] = []
            others: list[HandedMessage] = []
            for message, attempt in found:
                if asked.filter.selects(message):
                    wanted.append((message, attempt))
                else:
                    others.append(message)
            if others:
                await self._pass_over(session, asked, others, wanted)
            # A topic may be full of others: the call ends with its time all the same.
            if wanted or not found or loop.time() >= ends:
                return wanted

    async def _pass_over(
        self,
        session: ClientSession,
        asked: WantedMessages,
        others: list[HandedMessage],
        wanted: Sequence[object],
    ) -> None:
        """What cannot be acknowledged now comes again, and is passed over then: the messages that
        the client waits for are not lost with it."""
        try:
            await _settle(session, "AcknowledgeMessages", asked, receipts_of(others))
        except StrataError as error:
            if not wanted:
                raise
            log.info("passed over later", extra={"group": asked.group, "why": error})


async def _give_back(session: ClientSession, asked: WantedMessages, worker: GroupWorker) -> None:
    """What a call was given in the moment in which its client left it goes to others at once. A
    client with an attempt id of its own asks for it again."""
    try:
        async with asyncio.timeout(GIVE_BACK_S):
            call = receive(asked.topic, asked.group, [worker], 0)
            (given,) = await session.client.run(call)
            if found := [one for one, _ in _handed(given)]:
                await _settle(session, "ReturnMessages", asked, receipts_of(found), 0.001)
    except (StrataError, TimeoutError) as error:
        log.info("hidden for its time", extra={"group": asked.group, "why": error})


def _handed(given: Iterable[HandedFrame]) -> Iterator[tuple[HandedMessage, int]]:
    """Messages, and which attempt each is."""
    for frame, head, hand_out in given:
        message = HandedMessage(frame, head)
        message.ticket = hand_out.ticket
        yield message, hand_out.attempt


class ForwardMessageToDeadLetterQueue:
    """A push consumer has failed too often at a message of a group in order."""

    use_case = "BuryMessages"
    response = pb.ForwardMessageToDeadLetterQueueResponse

    def asked(self, request: pb.ForwardMessageToDeadLetterQueueRequest) -> OfSharedGroup:
        return OfSharedGroup(group_name(request.group), topic_name(request.topic))

    async def answer(
        self,
        session: ClientSession,
        request: pb.ForwardMessageToDeadLetterQueueRequest,
        asked: OfSharedGroup,
    ) -> pb.ForwardMessageToDeadLetterQueueResponse:
        attempts = max(0, min(request.delivery_attempt, MAX_ATTEMPTS))
        receipts = [receipt_of(request.receipt_handle)]
        await _settle(session, "BuryMessages", asked, receipts, attempts=attempts)
        return pb.ForwardMessageToDeadLetterQueueResponse(status=status(pb.OK))


class ChangeInvisibleDuration:
    use_case = "ChangeInvisibleTime"
    response = pb.ChangeInvisibleDurationResponse

    def asked(self, request: pb.ChangeInvisibleDurationRequest) -> OfSharedGroup:
        if not 0 <= seconds(request.invisible_duration) <= MAX_INVISIBLE_S:
            raise RefusedError(pb.ILLEGAL_INVISIBLE_TIME, "messages are hidden for 0 s to 12 h")
        return OfSharedGroup(group_name(request.group), topic_name(request.topic))

    async def answer(
        self,
        session: ClientSession,
        request: pb.ChangeInvisibleDurationRequest,
        asked: OfSharedGroup,
    ) -> pb.ChangeInvisibleDurationResponse:
        for_s = seconds(request.invisible_duration)
        # A negative acknowledgement may be for any time; 0 would be RocketMQ's for the attempt.
        method = "ChangeInvisibleTime" if for_s >= 1 else "ReturnMessages"
        receipts = [receipt_of(request.receipt_handle)]
        (new,) = await _settle(session, method, asked, receipts, max(for_s, 0.001))
        return pb.ChangeInvisibleDurationResponse(
            status=status(pb.OK), receipt_handle=new.hex().upper()
        )


async def _settle(
    session: ClientSession,
    method: str,
    asked: OfSharedGroup | WantedMessages,
    receipts: Sequence[bytes],
    invisible_s: float = 0,
    attempts: int = 0,
) -> list[bytes]:
    outcomes = await session.client.run(
        settle(method, asked.topic, asked.group, receipts, invisible_s, attempts)
    )
    settled((), outcomes)
    return [one.receipt for one in outcomes]


def receipt_of(handle: str) -> bytes:
    """RefusedError for what is no handle."""
    try:
        return bytes.fromhex(handle)
    except ValueError:
        raise RefusedError(
            pb.INVALID_RECEIPT_HANDLE, f"no receipt handle: {handle!r:.80}"
        ) from None


def seconds(duration: object) -> float:
    return duration.ToNanoseconds() / 1e9  # type: ignore[attr-defined, no-any-return]
