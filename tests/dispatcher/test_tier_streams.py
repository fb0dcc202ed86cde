"""Streams of many queues whose messages only the tier has, with a tier that counts its answers."""

import asyncio
import contextlib
import weakref
from pathlib import Path

from stratamq_dispatcher.cursors import Cursor
from stratamq_dispatcher.pull import PullAnswer, PullQuery, TagFilter
from stratamq_dispatcher.tier_fetches import LARGEST_ANSWER_BYTES, STREAM_BYTES, answer_bytes
from stratamq_dispatcher.tier_reads import TierReads

from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.follow.tier import TierMessages, TierQueueRange
from stratamq.formats import frame_layout as layout
from stratamq.formats.javahash import tags_code
from stratamq.formats.message_status import PullStatus
from tests.dispatcher.running_service import RunningService

QUEUES, MESSAGES = 100, 3
MESSAGE = 1 << 20


class Frames(bytearray):
    """Of one answer."""


class Tier:
    """Gives one message of `MESSAGE` bytes with each answer."""

    def __init__(self) -> None:
        self.asked_bytes: set[int] = set()
        self._given: list[weakref.ref[Frames]] = []

    @property
    def held(self) -> int:
        """Bytes of answers that somebody keeps."""
        found = [one() for one in self._given]
        return sum(len(one) for one in found if one is not None)

    async def changed_queues(self, revision: int) -> tuple[list[TierQueueRange], int]:
        return [], 1

    async def messages(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        most_messages: int,
        most_bytes: int,
        log_minimum: int,
    ) -> TierMessages:
        self.asked_bytes.add(most_bytes)
        frames = Frames(record(offset, MESSAGE))
        self._given.append(weakref.ref(frames))
        return TierMessages(offset + 1, 0, MESSAGES, frames, [MESSAGE], [0])


def record(offset: int, size: int) -> bytes:
    """As far as it is looked at here."""
    at = layout.QUEUE_OFFSET_POSITION
    return bytes(at) + offset.to_bytes(8, "big") + bytes(size - at - 8)


@contextlib.asynccontextmanager
async def service_over(tier: Tier, root: Path):
    """Its log has no message of topic t any more."""
    reads = TierReads(tier, lambda: 1 << 20, expected=True)
    async with RunningService(root, tier=reads) as service:
        log = service.log
        for number in range(QUEUES * MESSAGES):
            log.put("t", number % QUEUES)
        while log.end < 1 << 20:
            log.put("filler", body=bytes(100_000))
        service.follow()
        log.delete_below(1 << 20)
        log.put("filler")
        service.follow()
        yield service


async def settled() -> None:
    for _ in range(1_000):
        await asyncio.sleep(0)


async def test_a_stream_of_many_queues_holds_no_more_than_its_budget_and_gives_everything(tmp_path):
    tier = Tier()
    async with service_over(tier, tmp_path) as service:
        cursors = [Cursor("t", number, 0, MESSAGES) for number in range(QUEUES)]
        stream = service.puller.stream(cursors, None, 1 << 20, answer_bytes(QUEUES))
        seen: dict[int, list[int]] = {}
        async with contextlib.aclosing(stream):
            async for number, answer in stream:
                assert answer.status is PullStatus.FOUND
                seen.setdefault(number, []).append(answer.next_offset)
                del answer
                if len(seen) in (1, 50) and len(seen[number]) == 1:
                    await settled()  # a slow reader
                    assert STREAM_BYTES // 2 < tier.held <= STREAM_BYTES + 2 * MESSAGE
    assert seen == {number: [1, 2, 3] for number in range(QUEUES)}


async def test_a_message_that_comes_behind_an_answer_that_was_not_taken_is_given(tmp_path):
    async with service_over(Tier(), tmp_path) as service:
        end = service.engine.queues.get("filler", 0).end
        cursors = [Cursor("t", 0, 0, 1), Cursor("filler", 0, end)]
        pieces = service.puller.stream(cursors, None, 1 << 20, 1 << 20)
        async with contextlib.aclosing(pieces):
            assert (await anext(pieces))[0] == 0
            await settled()
            service.log.put("filler")
            service.follow()
            number, answer = await anext(pieces)
            assert (number, answer.next_offset) == (1, end + 1)


async def test_a_stream_that_is_left_keeps_nothing(tmp_path):
    tier = Tier()
    async with service_over(tier, tmp_path) as service:
        cursors = [Cursor("t", number, 0, MESSAGES) for number in range(QUEUES)]
        stream = service.puller.stream(cursors, None, 1 << 20, answer_bytes(QUEUES))
        async with contextlib.aclosing(stream):
            await anext(stream)
            await settled()
            assert tier.held > STREAM_BYTES // 2
        del stream
        await settled()
        assert tier.held <= 2 * MESSAGE


async def test_a_client_cannot_have_larger_answers_than_the_budget_is_made_for(tmp_path):
    tier = Tier()
    async with service_over(tier, tmp_path) as service:
        queues = [pb.PullQueue(topic="t", queue_id=1, offset=0, end_offset=MESSAGES)]
        request = pb.PullStreamRequest(queues=queues, max_bytes=64 << 20)
        offsets = [one.next_offset async for one in service.stub.PullStream(request)]
        assert offsets == [1, 2, 3]
        assert tier.asked_bytes == {LARGEST_ANSWER_BYTES}


# --- tags ---


class Tagged:
    """A tier that gives one answer of `wanted` messages with the tag A, then `others` with B."""

    def __init__(self, wanted: int, others: int) -> None:
        self._wanted, self._count = wanted, wanted + others
        self.given: weakref.ref[Frames] | None = None

    async def messages(self, *asked: object) -> TierMessages:
        frames = Frames(b"".join(record(number, 1_000) for number in range(self._count)))
        self.given = weakref.ref(frames)
        codes = [tags_code("A")] * self._wanted + [tags_code("B")] * (self._count - self._wanted)
        return TierMessages(self._count, 0, self._count, frames, [1_000] * self._count, codes)


def pulled(tier: Tagged) -> PullAnswer:
    query = PullQuery("t", 0, 0, 100, 1 << 20, TagFilter(codes=[tags_code("A")]))
    local = PullAnswer(PullStatus.OFFSET_TOO_SMALL, 0, 0, 0)
    found = asyncio.run(TierReads(tier, lambda: 0, expected=True).pull(query, local, 0))
    assert found is not None
    return found


def test_a_few_messages_of_a_tag_do_not_keep_the_whole_answer():
    tier = Tagged(4, 6)
    found = pulled(tier)
    assert tier.given() is None
    assert (found.count, found.size) == (4, 4_000)
    assert b"".join(found.pieces) == b"".join(record(number, 1_000) for number in range(4))


def test_most_of_an_answer_is_not_copied():
    tier = Tagged(6, 4)
    found = pulled(tier)
    assert tier.given() is not None
    assert (found.count, found.size) == (6, 6_000)
    assert b"".join(found.pieces) == b"".join(record(number, 1_000) for number in range(6))
