"""Consumers get nothing below a queue's minimum offset, and everything from it on."""

import json

from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.errors import UnavailableError
from stratamq.formats.message_status import PullStatus
from tests.dispatcher.running_service import RunningService, error_of


def document(topic: str, minimums: dict[int, int]) -> bytes:
    entry = {"topicName": topic, "perm": 6, "stratamqMinimumOffsets": minimums}
    return json.dumps({"topicConfigTable": {topic: entry}}).encode()


def purged(service: RunningService, **minimums: int) -> None:
    by_id = {int(name[1:]): offset for name, offset in minimums.items()}
    service.permissions.take(document("topic-0", by_id))


async def test_a_pull_below_the_minimum_continues_at_it_as_after_retention(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put_many(30, topics=1, queues=1)
        service.follow()
        purged(service, q0=20)
        low = await service.stub.Pull(pb.PullRequest(topic="topic-0", offset=3))
        assert low.status == PullStatus.OFFSET_TOO_SMALL.value
        assert (low.count, low.next_offset, low.min_offset, low.max_offset) == (0, 20, 20, 30)
        rest = await service.stub.Pull(pb.PullRequest(topic="topic-0", offset=20))
        assert (rest.count, rest.next_offset) == (10, 30)


async def test_lists_time_search_and_streams_begin_at_the_minimum(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put_many(30, topics=1, queues=1)
        service.follow()
        purged(service, q0=20)
        (queue,) = (await service.stub.ListQueues(pb.ListQueuesRequest())).queues
        assert (queue.min_offset, queue.max_offset) == (20, 30)
        found = await service.stub.GetOffsetByTime(
            pb.GetOffsetByTimeRequest(topic="topic-0", timestamp_ms=0)
        )
        assert found.offset == 20
        request = pb.PullStreamRequest()
        request.queues.add(topic="topic-0", offset=0, end_offset=30)
        counts = [answer.count async for answer in service.stub.PullStream(request)]
        assert sum(counts) == 10


async def test_queues_that_come_later_are_hidden_too_and_others_are_not(tmp_path):
    async with RunningService(tmp_path) as service:
        purged(service, q0=20, q9=1)
        service.log.put_many(60, topics=2, queues=1)
        service.follow()
        first = await service.stub.Pull(pb.PullRequest(topic="topic-0"))
        second = await service.stub.Pull(pb.PullRequest(topic="topic-1"))
        assert (first.count, first.next_offset) == (0, 20)
        assert (second.min_offset, second.count) == (0, 30)


async def test_minimums_are_the_logs_also_when_they_fall(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put_many(30, topics=1, queues=1)
        service.follow()
        purged(service, q0=30)
        assert (await service.stub.Pull(pb.PullRequest(topic="topic-0"))).next_offset == 30
        purged(service)
        assert (await service.stub.Pull(pb.PullRequest(topic="topic-0"))).count == 30


async def test_queues_that_are_built_anew_from_the_log_hide_the_same(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put_many(30, topics=1, queues=1)
        service.follow()
        purged(service, q0=20)
        service.connect(generation=2, cut_to=0)
        service.follow()
        answer = await service.stub.Pull(pb.PullRequest(topic="topic-0", offset=0))
        assert (answer.next_offset, answer.max_offset) == (20, 30)


async def test_nothing_is_served_before_the_minimums_are_learned(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put_many(30, topics=1, queues=1)
        service.follow()
        service.permissions.learned = False
        stub = service.stub
        for call in (
            stub.Pull(pb.PullRequest(topic="topic-0")),
            stub.ListQueues(pb.ListQueuesRequest()),
            stub.ListUnits(pb.ListUnitsRequest(topic="topic-0", count=1)),
            stub.GetOffsetByTime(pb.GetOffsetByTimeRequest(topic="topic-0")),
            stub.ListGroups(pb.ListGroupsRequest()),
        ):
            assert isinstance(await error_of(call), UnavailableError)
