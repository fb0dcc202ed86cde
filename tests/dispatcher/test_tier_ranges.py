"""The dispatcher's state of its tier's queues is only as new as its last look."""

import asyncio

import pytest
from stratamq_dispatcher.tier_reads import TierReads

from stratamq.errors import UnavailableError
from stratamq.follow.tier import TierQueueRange

QUEUE = "t", 0
ENDS = TierQueueRange(*QUEUE, 10, 20)


class Tier:
    """Answers for the service."""

    def __init__(self) -> None:
        self.queues: list[TierQueueRange] = []
        self.is_there = True

    async def changed_queues(self, revision: int) -> tuple[list[TierQueueRange], int]:
        if not self.is_there:
            raise UnavailableError("away")
        return self.queues, 1


class Log:
    minimum = 0


def looked(reads: TierReads) -> None:
    """The next look has ended."""

    async def once() -> None:
        looking = asyncio.create_task(reads.follow())
        await asyncio.sleep(0)
        looking.cancel()

    asyncio.run(once())


@pytest.fixture
def tier() -> Tier:
    return Tier()


@pytest.fixture
def reads(tier) -> TierReads:
    return TierReads(tier, lambda: Log.minimum, expected=True)


@pytest.fixture(autouse=True)
def log(monkeypatch) -> type[Log]:
    monkeypatch.setattr(Log, "minimum", 0)
    return Log


def test_a_queue_that_the_tier_has_begins_there(reads, tier):
    tier.queues = [ENDS]
    looked(reads)
    assert reads.minimum(QUEUE, 20, 0) == 10


def test_a_queue_that_the_tier_does_not_have_begins_in_the_log(reads):
    looked(reads)
    assert reads.minimum(QUEUE, 20, 0) == 20


def test_a_log_that_was_cut_since_the_last_look_may_have_its_messages_in_the_tier(reads, tier, log):
    looked(reads)
    tier.queues = [ENDS]
    log.minimum = 4096
    assert reads.minimum(QUEUE, 20, 0) == 0, "no reader begins behind messages that are there"
    assert reads.minimum(QUEUE, 20, 15) == 15, "what is hidden is not there"
    looked(reads)
    assert reads.minimum(QUEUE, 20, 0) == 10


def test_a_tier_that_does_not_answer_may_have_everything(reads, tier):
    looked(reads)
    tier.is_there = False
    looked(reads)
    assert reads.minimum(QUEUE, 20, 0) == 0
