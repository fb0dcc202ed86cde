"""A stream's answers of the tier: few bytes of them at a time, and every queue gets its turn."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from stratamq_dispatcher.pull import PullAnswer
from stratamq_dispatcher.tier_fetches import (
    FETCHES_AT_ONCE,
    FIRST_EXPECTED_BYTES,
    LARGEST_ANSWER_BYTES,
    SMALLEST_ANSWER_BYTES,
    STREAM_BYTES,
    TierFetches,
    answer_bytes,
)

from stratamq.errors import CorruptionError, UnavailableError
from stratamq.formats.message_status import PullStatus

ASKED = SMALLEST_ANSWER_BYTES
LARGE = 4 << 20
QUEUES = range(150)


def piece(size: int) -> PullAnswer:
    return PullAnswer(PullStatus.FOUND, 1, 0, 2, 1, [], size)


class Stream:
    """Fetches whose answers the test gives, and what they hold."""

    def __init__(self, most_bytes: int = ASKED) -> None:
        self.ended: list[int] = []
        self.begun: list[int] = []
        """In this order."""
        self.answered: dict[int, int] = {}
        """Bytes of those that were not taken."""
        self._under_way: dict[int, asyncio.Future[PullAnswer]] = {}
        self.fetches = TierFetches(self._ended, most_bytes)

    def _ended(self, number: int) -> None:
        self.ended.append(number)

    def begin(self, *numbers: int) -> None:
        for number in numbers:
            self.fetches.begin(number, partial(self._work, number))

    def _work(self, number: int) -> Coroutine[Any, Any, PullAnswer]:
        self.begun.append(number)
        self._under_way[number] = asyncio.get_running_loop().create_future()
        return self._answer(number)

    async def _answer(self, number: int) -> PullAnswer:
        try:
            return await self._under_way[number]
        finally:
            del self._under_way[number]

    @property
    def under_way(self) -> list[int]:
        return list(self._under_way)

    @property
    def held(self) -> int:
        return sum(self.answered.values())

    async def answer(self, number: int, size: int) -> None:
        self._under_way[number].set_result(piece(size))
        self.answered[number] = size
        await settled()

    async def fail(self, number: int, error: Exception) -> None:
        self._under_way[number].set_exception(error)
        await settled()

    async def answer_all(self, size: int) -> None:
        """As long as one is under way."""
        while self._under_way:
            await self.answer(self.under_way[0], size)

    def take(self, number: int) -> PullAnswer | None:
        self.answered.pop(number, None)
        return self.fetches.take(number)


async def settled() -> None:
    """What follows from what was done is done."""
    for _ in range(5):
        await asyncio.sleep(0)


def streaming(scenario: Callable[[Stream], Coroutine[Any, Any, None]], most_bytes=ASKED) -> None:
    async def run() -> None:
        stream = Stream(most_bytes)
        with stream.fetches:
            await scenario(stream)

    asyncio.run(run())


# --- the budget ---


@pytest.mark.parametrize("size", [100_000, 1 << 20, LARGE])
def test_answers_of_many_queues_that_nobody_takes_hold_one_streams_bytes(size):
    async def scenario(stream):
        stream.begin(*QUEUES)
        await stream.answer_all(size)
        assert STREAM_BYTES // 2 < stream.held <= STREAM_BYTES or len(stream.answered) == len(
            QUEUES
        )

    streaming(scenario)


def test_small_answers_wait_beside_each_other_for_all_queues():
    async def scenario(stream):
        stream.begin(*QUEUES)
        await stream.answer_all(ASKED)
        assert sorted(stream.answered) == list(QUEUES)

    streaming(scenario)


def test_before_an_answer_has_come_it_may_be_large():
    async def scenario(stream):
        stream.begin(*QUEUES)
        assert len(stream.under_way) == STREAM_BYTES // FIRST_EXPECTED_BYTES

    streaming(scenario)


def test_not_more_than_a_few_fetches_are_under_way():
    """Each of them may be one message of any size."""

    async def scenario(stream):
        stream.begin(*QUEUES)
        for _ in range(100):
            await stream.answer(stream.under_way[0], 10)
            assert len(stream.under_way) <= FETCHES_AT_ONCE
        assert len(stream.under_way) == FETCHES_AT_ONCE
        for number in stream.under_way:
            await stream.answer(number, LARGE)
        assert stream.held <= FETCHES_AT_ONCE * LARGE + 1_000
        assert not stream.under_way, "what is held is more than a stream may hold"

    streaming(scenario)


def test_what_came_large_is_expected_again_and_small_answers_bring_that_down():
    async def scenario(stream):
        stream.begin(*range(10_000))
        for number in stream.under_way:
            await stream.answer(number, LARGE)
            stream.take(number)
        await settled()
        assert len(stream.under_way) == STREAM_BYTES // LARGE
        for _ in range(10):
            number = stream.under_way[0]
            await stream.answer(number, 10)
            stream.take(number)
        assert len(stream.under_way) == FETCHES_AT_ONCE

    streaming(scenario)


def test_one_fetch_is_begun_whatever_is_expected_and_the_next_when_it_was_taken():
    async def scenario(stream):
        stream.begin(0, 1)
        assert stream.begun == [0]
        await stream.answer(0, 2 * STREAM_BYTES)
        assert stream.begun == [0]
        assert stream.take(0).size == 2 * STREAM_BYTES
        assert stream.begun == [0, 1]

    streaming(scenario, 2 * STREAM_BYTES)


@pytest.mark.parametrize(
    ("asked", "each"),
    [(1_000, 1_000), (LARGEST_ANSWER_BYTES, LARGEST_ANSWER_BYTES), (1 << 30, LARGEST_ANSWER_BYTES)],
)
def test_what_the_client_names_makes_no_answer_larger_than_the_largest(asked, each):
    assert answer_bytes(1, asked) == answer_bytes(150, asked) == each


# --- turns ---


def test_every_queue_has_its_first_turn_before_one_has_its_second():
    async def scenario(stream):
        stream.begin(*QUEUES)
        while len(stream.begun) < 2 * len(QUEUES):
            number = stream.under_way[0]
            await stream.answer(number, LARGE)
            stream.take(number)
            stream.begin(number)
        assert stream.begun[: len(QUEUES)] == list(QUEUES)
        assert stream.begun[len(QUEUES) : 2 * len(QUEUES)] == list(QUEUES)

    streaming(scenario)


def test_a_queue_that_grows_waits_for_its_answer():
    async def scenario(stream):
        stream.begin(*QUEUES)
        first, last = QUEUES[0], QUEUES[-1]
        assert first in stream.under_way and last not in stream.begun
        assert stream.fetches.postpones(first) and stream.fetches.postpones(last)
        await stream.answer(first, 10)
        assert stream.ended == [first]
        assert not stream.fetches.postpones(first)

    streaming(scenario)


# --- errors and the end ---


def test_an_error_is_raised_where_the_answer_is_taken_and_holds_nothing():
    async def scenario(stream):
        stream.begin(*QUEUES)
        await stream.fail(0, CorruptionError("damaged"))
        assert stream.ended == [0]
        with pytest.raises(CorruptionError, match="damaged"):
            stream.take(0)
        await stream.answer_all(LARGE)
        assert stream.held == STREAM_BYTES

    streaming(scenario)


def test_queues_that_the_tier_does_not_answer_for_keep_no_other_from_its_turn():
    async def scenario(stream):
        away = QUEUES[:-1]
        stream.begin(*QUEUES)
        for number in away:
            await stream.fail(number, UnavailableError("away"))
            assert stream.fetches.postpones(number)
        assert stream.under_way == [QUEUES[-1]]
        stream.fetches.require_others(len(QUEUES))

    streaming(scenario)


def test_cursors_of_which_the_tier_answers_none_are_told_until_it_answers_one():
    async def scenario(stream):
        stream.begin(0, 1)
        for number in (0, 1):
            stream.fetches.require_others(2)
            await stream.fail(number, UnavailableError("away"))
        assert stream.ended == [0, 1], "who waits for an answer is woken"
        with pytest.raises(UnavailableError, match="away"):
            stream.fetches.require_others(2)
        stream.begin(0)
        await stream.answer(0, 10)
        stream.fetches.require_others(2)

    streaming(scenario)


def test_a_tier_that_did_not_answer_is_asked_again_behind_a_pause(monkeypatch):
    monkeypatch.setattr("stratamq_dispatcher.tier_fetches.PAUSE_S", 0.0)

    async def scenario(stream):
        stream.begin(0)
        await stream.fail(0, UnavailableError("away"))
        assert stream.begun == [0, 0]
        await stream.answer(0, 10)
        assert stream.take(0).size == 10

    streaming(scenario)


async def test_the_end_of_a_stream_cancels_what_is_under_way_or_pauses_and_begins_nothing():
    pauses: list[asyncio.TimerHandle] = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def noted(*arguments: Any) -> asyncio.TimerHandle:
        pauses.append(call_later(*arguments))
        return pauses[-1]

    loop.call_later = noted
    stream = Stream()
    with stream.fetches:
        stream.begin(*QUEUES)
        await stream.answer(0, 10)
        await stream.fail(1, UnavailableError("away"))
        assert len(stream.under_way) > 1
        begun = len(stream.begun)
        stream.ended.clear()
    await settled()
    assert [one.cancelled() for one in pauses] == [True]
    assert stream.under_way == [] and stream.ended == []
    assert len(stream.begun) == begun
