"""Bytes of topics: an estimate that reads nothing, comes in slices, and agrees with the log."""

import asyncio
from collections import Counter

from stratamq_dispatcher import topic_sizes
from stratamq_dispatcher.topic_sizes import QUEUES_AT_ONCE, TOPICS_AT_ONCE, TopicSizes

from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.errors import InvalidRequestError
from tests.dispatcher.running_service import RunningService, error_of


async def sizes(service: RunningService, topics: int = 0) -> pb.ListTopicSizesResponse:
    return await service.stub.ListTopicSizes(pb.ListTopicSizesRequest(max_topics=topics))


def by_the_log(service: RunningService) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in service.log.messages:
        found[one.topic] += len(one.frame)
    return found


async def test_messages_of_one_size_for_a_topic_are_counted_to_the_byte(tmp_path):
    async with RunningService(tmp_path) as service:
        for number in range(400):
            service.log.put("large", number % 3, body=bytes(2_000))
            service.log.put("small", number % 2, body=bytes(10))
        service.follow()
        found, expected = await sizes(service), by_the_log(service)
        assert [
            (one.topic, one.size, one.message_count, one.queue_count) for one in found.topics
        ] == [
            ("large", expected["large"], 400, 3),
            ("small", expected["small"], 400, 2),
        ]
        assert found.topic_count == 2
        assert found.others == pb.TopicSize()
        assert found.unit_count == 800
        assert 0 < found.sampled_messages <= 5 * 32


async def test_the_largest_come_first_and_the_others_are_added_up(tmp_path):
    async with RunningService(tmp_path) as service:
        for number in range(1_100):
            service.log.put(f"topic-{number}", body=bytes(number))
        service.follow()
        found, expected = await sizes(service, 3), by_the_log(service)
        assert [one.topic for one in found.topics] == ["topic-1099", "topic-1098", "topic-1097"]
        assert found.topic_count == 1_100
        assert found.others.size == sum(expected.values()) - sum(one.size for one in found.topics)
        assert (found.others.message_count, found.others.queue_count) == (1_097, 1_097)
        assert len((await sizes(service)).topics) == 20
        assert len((await sizes(service, 10_000)).topics) == 500
        assert isinstance(await error_of(sizes(service, -1)), InvalidRequestError)


async def test_what_the_log_has_deleted_does_not_count(tmp_path):
    async with RunningService(tmp_path) as service:
        for _ in range(2_000):
            service.log.put("even", body=bytes(3_000))
        for _ in range(20):
            service.log.put("young", body=bytes(3_000))
        service.follow()
        log = service.log
        log.delete_below(3 << 20)
        service.connect()
        found, expected = await sizes(service), by_the_log(service)
        got = {one.topic: one.size for one in found.topics}
        assert got["young"] == expected["young"]
        assert abs(got["even"] - expected["even"]) < 2 * 3_200, "where it begins is not known"


async def test_after_a_start_the_last_message_of_each_queue_gives_the_size(tmp_path):
    async with RunningService(tmp_path) as service:
        log = service.log
        for _ in range(100):
            log.put("t", body=bytes(500))
        service.follow()
        log.put("t", body=bytes(500))
        service.follow()
    async with RunningService(tmp_path) as service:
        service.log = log
        service.connect()
        found = await sizes(service)
        assert found.topics[0].size == by_the_log(service)["t"]
        assert found.sampled_messages == 1


async def test_an_estimate_is_kept_for_as_long_as_it_says_and_made_once_for_all(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put("t", body=bytes(100))
        service.follow()
        first = await sizes(service)
        service.log.put("t", body=bytes(100))
        service.follow()
        assert await sizes(service) == first
        service.clock.advance_ms(2_000)
        again = await asyncio.gather(*(sizes(service) for _ in range(3)))
        assert [one.topics[0].message_count for one in again] == [2, 2, 2]


async def test_an_estimate_goes_on_when_who_asked_leaves(tmp_path):
    async with RunningService(tmp_path) as service:
        for number in range(3 * QUEUES_AT_ONCE):
            service.log.put(f"t{number}", body=b"1")
        service.follow()
        tables = iter([service.engine.queues])  # one estimate is made, and no second one
        estimates = TopicSizes(
            lambda: next(tables), lambda: service.engine.followed.minimum, service.clock
        )
        leaving = asyncio.ensure_future(estimates.estimate())
        await asyncio.sleep(0)
        leaving.cancel()
        assert (await estimates.estimate()).topics == 3 * QUEUES_AT_ONCE


async def test_while_a_new_estimate_takes_long_the_one_before_it_is_given(tmp_path, monkeypatch):
    monkeypatch.setattr(topic_sizes, "PATIENCE_S", 0.0)
    async with RunningService(tmp_path) as service:
        for number in range(3 * QUEUES_AT_ONCE):
            service.log.put(f"t{number}", body=b"1")
        service.follow()
        first = await sizes(service)
        service.log.put("more", body=b"1")
        service.follow()
        service.clock.advance_ms(2_000)
        assert await sizes(service) == first
        while (found := await sizes(service)) == first:
            await asyncio.sleep(0)
        assert found.topic_count == first.topic_count + 1


async def test_other_tasks_run_while_an_estimate_is_made(tmp_path):
    queues, turns = 1_000, 0
    async with RunningService(tmp_path) as service:
        for number in range(queues):
            service.log.put(f"t{number}", body=b"1")
        service.follow()
        engine = service.engine
        estimates = TopicSizes(
            lambda: engine.queues, lambda: engine.followed.minimum, service.clock
        )
        making = asyncio.ensure_future(estimates.estimate())
        while not making.done():
            turns += 1
            await asyncio.sleep(0)
        assert making.result().topics == queues
        assert turns >= queues // QUEUES_AT_ONCE + queues // TOPICS_AT_ONCE
