"""What a list of queues costs: no queue file is opened for what is known, nothing read twice."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from stratamq.api.v1 import dispatcher_pb2 as pb
from tests.dispatcher.running_service import RunningService


@asynccontextmanager
async def started_again(root: Path, messages: int) -> AsyncIterator[RunningService]:
    """A service over what another one has dispatched."""
    async with RunningService(root) as service:
        log = service.log
        log.put_many(messages, topics=2, queues=3)
        service.follow()
    async with RunningService(root) as service:
        service.log = log
        service.connect()
        yield service


async def listed(service: RunningService) -> list[tuple[str, int, int, int, int]]:
    answer = await service.stub.ListQueues(pb.ListQueuesRequest())
    return sorted(
        (q.topic, q.queue_id, q.min_offset, q.max_offset, q.newest_store_timestamp_ms)
        for q in answer.queues
    )


def by_the_log(service: RunningService) -> list[tuple[str, int, int, int, int]]:
    """The same, from the messages that the test wrote."""
    found = []
    for (topic, queue_id), end in sorted(service.log.next_queue_offset.items()):
        there = service.log.of_queue(topic, queue_id)
        begin, newest_ms = (there[0].queue_offset, there[-1].store_ms) if there else (end, 0)
        found.append((topic, queue_id, begin, end, newest_ms))
    return found


async def test_a_list_opens_no_queue_file_after_a_start(tmp_path):
    async with started_again(tmp_path, 600) as service:
        shutil.rmtree(tmp_path / "consumequeue")
        assert await listed(service) == by_the_log(service)


async def test_a_second_list_reads_no_file_at_all(tmp_path):
    async with started_again(tmp_path, 60) as service:
        await listed(service)
        _remove_everything_of_messages(service, tmp_path)
        assert await listed(service) == by_the_log(service)


async def test_what_is_appended_is_listed_without_reading(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put_many(600, topics=2, queues=3)
        service.follow()
        _remove_everything_of_messages(service, tmp_path)
        assert await listed(service) == by_the_log(service)


async def test_after_a_deletion_the_first_message_is_looked_for_once(tmp_path):
    async with RunningService(tmp_path) as service:
        log = service.log
        log.put("gone", body=bytes(1 << 19))
        log.put_many(60, topics=2, queues=3)
        log.put("large", body=bytes(1 << 19))
        log.put_many(60, topics=2, queues=3)
        service.follow()
        log.delete_below(1 << 20)
        log.put("gone")
        log.put("topic-0")
        service.follow()
        assert service.engine.followed.minimum == 1 << 20
        wanted = by_the_log(service)
        assert min(one[2] for one in wanted if one[0].startswith("topic")) > 0
        assert await listed(service) == wanted
        _remove_everything_of_messages(service, tmp_path)
        assert await listed(service) == wanted


async def test_a_damaged_queue_is_listed_and_the_others_with_it(tmp_path):
    async with started_again(tmp_path, 60) as service:
        log = service.log
        last = log.of_queue("topic-0", 1)[-1]
        with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as segment:
            segment.truncate(last.offset + 30)
        found, wanted = await listed(service), by_the_log(service)
        assert [one[:4] for one in found] == [one[:4] for one in wanted]
        newest = {one[:2]: one[4] for one in found}
        assert newest["topic-0", 1] == 0
        assert {key for key, ms in newest.items() if not ms} == {
            (one.topic, one.queue_id)
            for one in log.messages
            if one is log.of_queue(one.topic, one.queue_id)[-1] and one.end > last.offset
        }


def _remove_everything_of_messages(service: RunningService, root: Path) -> None:
    """What is open keeps its content: let go of it too."""
    shutil.rmtree(root / "consumequeue", ignore_errors=True)
    shutil.rmtree(root / "commitlog")
    service.engine.queues.open_files.close()
    assert service.engine.followed.segments is not None
    service.engine.followed.segments.close()
