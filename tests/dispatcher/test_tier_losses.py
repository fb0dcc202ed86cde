"""A tier that lost messages: who reads there is told, in a pull and in a stream."""

import asyncio
import contextlib

import pytest
from stratamq_dispatcher.cursors import Cursor
from stratamq_dispatcher.pull import PullQuery

from stratamq.errors import LostMessagesError, UnavailableError
from stratamq.follow.tier import TierMessages
from tests.dispatcher.test_tier_streams import MESSAGES, Tier, service_over


class Lossy(Tier):
    """Has the first message of each queue, and knows why it has no other one, once `compared`."""

    def __init__(self) -> None:
        super().__init__()
        self.compared = True
        self.log_minimums: set[int] = set()
        self.refused = asyncio.Event()
        """Once it has not answered."""

    async def messages(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        most_messages: int,
        most_bytes: int,
        log_minimum: int,
    ) -> TierMessages:
        self.log_minimums.add(log_minimum)
        if not offset:
            return await super().messages(
                topic, queue_id, offset, most_messages, most_bytes, log_minimum
            )
        if not self.compared:
            self.refused.set()
            raise UnavailableError("not compared yet")
        raise LostMessagesError.of_queue(topic, queue_id, offset, log_minimum)


async def test_a_pull_of_lost_messages_ends_with_their_offsets_and_is_no_damage_of_the_store(
    tmp_path,
):
    tier = Lossy()
    async with service_over(tier, tmp_path) as service:
        with pytest.raises(LostMessagesError) as found:
            await service.puller.once(PullQuery("t", 0, 1, 1, 1 << 20))
        assert (found.value.first, found.value.end) == (1, MESSAGES)
        assert tier.log_minimums == {MESSAGES}, "the tier is told where the log begins"
        assert "lost" not in " ".join(service.engine.findings.lines([]))


async def test_a_pull_waits_while_it_is_not_known_what_is_lost(tmp_path):
    tier = Lossy()
    tier.compared = False
    async with service_over(tier, tmp_path) as service:
        with pytest.raises(UnavailableError):
            await service.puller.once(PullQuery("t", 0, 1, 1, 1 << 20))


async def test_a_stream_gives_what_is_there_and_ends_at_what_is_lost(tmp_path):
    async with service_over(Lossy(), tmp_path) as service:
        seen = []
        with pytest.raises(LostMessagesError):
            async for _, answer in service.puller.stream(
                [Cursor("t", 0, 0)], None, 1 << 20, 1 << 20
            ):
                seen.append(answer.next_offset)
        assert seen == [1]


async def test_a_stream_that_can_give_nothing_while_the_tier_does_not_answer_says_so(tmp_path):
    tier = Lossy()
    tier.compared = False
    cursors = [Cursor("t", number, 0, MESSAGES) for number in range(3)]
    async with service_over(tier, tmp_path) as service:
        seen = []
        with pytest.raises(UnavailableError, match="not compared yet"):
            async for number, answer in service.puller.stream(cursors, None, 1 << 20, 1 << 20):
                seen.append((number, answer.next_offset))
        assert sorted(seen) == [(0, 1), (1, 1), (2, 1)]


async def test_a_stream_goes_on_with_queues_of_the_log_while_the_tier_does_not_answer(tmp_path):
    tier = Lossy()
    tier.compared = False
    async with service_over(tier, tmp_path) as service:
        end = service.engine.queues.get("filler", 0).end
        cursors = [Cursor("t", 0, 1, MESSAGES), Cursor("filler", 0, end)]
        pieces = service.puller.stream(cursors, None, 1 << 20, 1 << 20)
        async with contextlib.aclosing(pieces):
            waiting = asyncio.ensure_future(anext(pieces))
            await tier.refused.wait()
            service.log.put("filler")
            service.follow()
            number, answer = await waiting
            assert (number, answer.next_offset) == (1, end + 1)
