"""The retry topics of a heartbeat's groups."""

import asyncio
from types import SimpleNamespace

import pytest
from stratamq_gateway.routes import TOPICS_AT_ONCE, RetryTopics

from stratamq.errors import InvalidRequestError, StrataError, UnavailableError


class Log:
    """Answers calls that make topics once as many of them are open as it waits for."""

    def __init__(self, waits_for: int = 1, fails: StrataError | None = None) -> None:
        self.waits_for, self.fails, self.open = waits_for, fails, 0
        self.complete = asyncio.Event()
        self.made: list[str] = []

    async def create_topic(self, topic, *, if_not_exists):
        assert if_not_exists
        self.open += 1
        if self.open == self.waits_for:
            self.complete.set()
        await self.complete.wait()
        if self.fails is not None:
            raise self.fails
        self.made.append(topic.name)


def topics_at(log: Log) -> RetryTopics:
    return RetryTopics(SimpleNamespace(admin=log))


async def test_topics_of_many_groups_are_made_together():
    log = Log(waits_for=TOPICS_AT_ONCE)
    groups = [f"g{number}" for number in range(TOPICS_AT_ONCE + 3)]
    topics = topics_at(log)
    await topics.require_all(groups)
    assert sorted(log.made) == sorted(f"%RETRY%{group}" for group in groups)
    await topics.require_all(groups)
    assert len(log.made) == len(groups), "they are there"


async def test_a_group_that_can_have_none_takes_no_other_with_it():
    log = Log()
    with pytest.raises(InvalidRequestError):
        await topics_at(log).require_all(["first", "a b", "last"])
    assert log.made == ["%RETRY%first", "%RETRY%last"]


async def test_what_could_not_be_made_is_tried_again():
    log = Log(fails=UnavailableError("it starts"))
    topics = topics_at(log)
    with pytest.raises(UnavailableError):
        await topics.require_all(["billing"])
    log.fails = None
    await topics.require_all(["billing"])
    assert log.made == ["%RETRY%billing"]
