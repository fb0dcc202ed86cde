"""Consumer groups' offsets against the ends of queues, over the wire: commits, promotions, lag."""

import asyncio
import json

import pytest
from stratamq_dispatcher.group_listing import GroupListing
from stratamq_dispatcher.offset_bounds import OffsetBounds
from stratamq_dispatcher.pulling import LEARNED_AT_ONCE
from stratamq_dispatcher.tier_reads import TierReads

from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.errors import (
    InvalidRequestError,
    NotWritableError,
    OffsetOutOfRangeError,
    UnavailableError,
)
from stratamq.files.metadata import MetadataFile
from stratamq.follow.tier import TierQueueRange
from stratamq.formats.store_paths import CONSUMER_OFFSETS_PATH
from stratamq.rpc.paging import NestedPlace
from stratamq.store.generations import GENERATIONS_PATH
from tests.dispatcher.running_service import RunningService, error_of
from tests.dispatcher.test_pages import pages_of
from tests.support.disks import write_file


def offsets_of(*offsets: tuple[str, int, int], group: str = "g") -> pb.CommitOffsetsRequest:
    return pb.CommitOffsetsRequest(
        group=group,
        offsets=[pb.GroupOffset(topic=t, queue_id=q, offset=offset) for t, q, offset in offsets],
    )


async def committed(service: RunningService, group: str = "g") -> list[tuple[str, int, int]]:
    answer = await service.stub.GetCommittedOffsets(pb.GetCommittedOffsetsRequest(group=group))
    return [(one.topic, one.queue_id, one.offset) for one in answer.offsets]


async def groups(service: RunningService, entries: int = 0) -> list[tuple[str, int, int, int]]:
    found, asked = [], pb.ListGroupsRequest(max_entries=entries)
    while True:
        page = await service.stub.ListGroups(asked)
        assert not entries or len(page.groups) <= entries
        found += [(one.topic, one.queue_id, one.offset, one.lag) for one in page.groups]
        asked.position, asked.incarnation = page.next_position, page.incarnation
        if not page.next_position:
            return found


async def take_over(service: RunningService, offset: int) -> None:
    """What a slave gets of its master."""
    table = {"t@g": {"0": offset}, "gone@g": {"3": 7}}
    document = json.dumps({"offsetTable": table}).encode()
    await service.stub.ImportConsumerOffsets(
        pb.ImportConsumerOffsetsRequest(consumer_offset_json=document)
    )


# --- commits ---


@pytest.mark.parametrize(
    ("topic", "queue_id", "offset", "end"), [("t", 0, 21, 20), ("t", 5, 1, 0), ("none", 0, 1, 0)]
)
async def test_an_offset_beyond_the_queues_end_is_refused_with_the_range(
    tmp_path, topic, queue_id, offset, end
):
    async with RunningService(tmp_path) as service:
        for _ in range(20):
            service.log.put("t")
        service.follow()
        await service.stub.CommitOffsets(offsets_of(("t", 0, 20)))
        request = offsets_of(("t", 0, 3), (topic, queue_id, offset))
        error = await error_of(service.stub.CommitOffsets(request))
        assert isinstance(error, OffsetOutOfRangeError)
        assert (error.minimum, error.maximum) == (0, end)
        assert f"commit 0 to {end}" in error.message
        assert await committed(service) == [("t", 0, 20)]  # all of them or none


async def test_a_deleted_group_is_listed_no_more_and_a_slave_deletes_none(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        service.log.put("u")
        service.follow()
        await service.stub.CommitOffsets(offsets_of(("t", 0, 1), ("u", 0, 1)))
        listed = await service.stub.ListGroups(pb.ListGroupsRequest())
        assert {(one.topic, one.last_client != "") for one in listed.groups} == {
            ("t", True),
            ("u", True),
        }
        assert all(one.last_commit_timestamp_ms for one in listed.groups)
        answer = await service.stub.DeleteGroup(pb.DeleteGroupRequest(group="g", topic="u"))
        assert answer.queue_count == 1
        listed = await service.stub.ListGroups(pb.ListGroupsRequest())
        assert [one.topic for one in listed.groups] == ["t"]
        service.connect(is_slave=True)
        service.follow()
        error = await error_of(service.stub.DeleteGroup(pb.DeleteGroupRequest(group="g")))
        assert isinstance(error, NotWritableError)
        assert await committed(service) == [("t", 0, 1)]


@pytest.mark.parametrize("master", [None, "send them to its master at 10.0.0.7:10911"])
async def test_a_slave_refuses_commits_and_names_its_master(tmp_path, master):
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        service.not_writable = master
        service.connect(is_slave=True)
        service.follow()
        error = await error_of(service.stub.CommitOffsets(offsets_of(("t", 0, 1))))
        assert isinstance(error, NotWritableError)
        assert error.reason == "role"
        assert error.message.startswith("a slave takes no offset commits: commit at its master")
        assert error.message.endswith(master or "commit at its master")
        assert await committed(service) == []
        service.not_writable = ""  # the log is a master's; its stream has not reported it yet
        error = await error_of(service.stub.CommitOffsets(offsets_of(("t", 0, 1))))
        assert isinstance(error, UnavailableError)
        service.connect(generation=2, start=service.log.end)
        await service.stub.CommitOffsets(offsets_of(("t", 0, 1)))
        assert await committed(service) == [("t", 0, 1)]


async def test_a_group_gets_none_of_its_offsets_before_the_queues_are_known(tmp_path):
    async with RunningService(tmp_path) as service:
        asked = pb.GetCommittedOffsetsRequest(group="g")
        for call in (
            service.stub.GetCommittedOffsets(asked),
            service.stub.CommitOffsets(offsets_of(("t", 0, 0))),
        ):
            assert isinstance(await error_of(call), UnavailableError)


# --- offsets whose messages were lost ---


async def promoted_with_an_offset_ahead(service: RunningService) -> list[tuple[str, int, int]]:
    """A slave has 20 messages of a queue and an offset of 25; it is promoted, and 10 more come.
    What the group hears."""
    for _ in range(20):
        service.log.put("t")
    service.connect(is_slave=True)
    service.follow()
    await take_over(service, 25)
    service.connect(generation=2, start=service.log.end)
    for _ in range(10):
        service.log.put("t")
    service.follow()
    return await committed(service)


async def test_a_promotion_lowers_offsets_to_where_the_queues_ended_then(tmp_path):
    async with RunningService(tmp_path) as service:
        expected = [("t", 0, 20), ("gone", 3, 0)]
        assert await promoted_with_an_offset_ahead(service) == expected
        assert await groups(service) == [("t", 0, 20, 10), ("gone", 3, 0, 0)]
        assert service.offsets.queues_of(("g", "t")) == {0: 25}, "a question changes nothing"
        service.bounds.tick()
        assert service.offsets.queues_of(("g", "t")) == {0: 20}
        assert await committed(service) == expected
        await service.stub.CommitOffsets(offsets_of(("t", 0, 28)))
        service.bounds.tick()
        assert (await committed(service))[0] == ("t", 0, 28)


async def test_a_commit_before_the_table_is_held_against_the_queues_stands(tmp_path):
    async with RunningService(tmp_path) as service:
        await promoted_with_an_offset_ahead(service)
        await service.stub.CommitOffsets(offsets_of(("t", 0, 28)))
        service.bounds.tick()
        assert await committed(service) == [("t", 0, 28), ("gone", 3, 0)]


async def test_without_the_bounds_a_group_skips_the_messages_that_took_the_lost_ones_places(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(
        OffsetBounds, "bounded", lambda self, group, topic, queue_id, offset: offset
    )
    async with RunningService(tmp_path) as service:
        heard = await promoted_with_an_offset_ahead(service)
        assert heard[0] == ("t", 0, 25)


async def test_a_slave_reports_an_offset_no_further_than_it_has_messages_and_keeps_it(tmp_path):
    async with RunningService(tmp_path) as service:
        for _ in range(20):
            service.log.put("t")
        service.connect(is_slave=True)
        service.follow()
        await take_over(service, 25)
        assert (await committed(service))[0] == ("t", 0, 20)
        for _ in range(10):
            service.log.put("t")
        service.follow()
        service.bounds.tick()
        assert (await committed(service))[0] == ("t", 0, 25)


async def test_a_start_after_a_lost_tail_lowers_what_was_committed_of_it(tmp_path):
    async with RunningService(tmp_path) as service:
        for _ in range(20):
            service.log.put("t")
        service.follow()
        await service.stub.CommitOffsets(offsets_of(("t", 0, 20)))
        log, saved = service.log, asyncio.Event()
        service.offsets.close(saved.set)
        await saved.wait()
    log.cut(log.messages[12].offset)
    log.restart()
    for _ in range(4):
        log.put("t")
    async with RunningService(tmp_path) as service:
        service.log = log
        service.offsets.load()
        generation, start = log.generations[-1]
        service.connect(generation=generation, start=start, cut_to=start)
        service.follow()
        assert await committed(service) == [("t", 0, 12)]


async def test_a_dispatcher_that_starts_again_in_the_same_generation_keeps_what_was_committed(
    tmp_path,
):
    async with RunningService(tmp_path) as service:
        for _ in range(20):
            service.log.put("t")
        service.connect(generation=5)
        service.follow()
        await service.stub.CommitOffsets(offsets_of(("t", 0, 18)))
        log, saved = service.log, asyncio.Event()
        service.offsets.close(saved.set)
        await saved.wait()
    async with RunningService(tmp_path) as service:
        service.log = log
        service.offsets.load()
        service.connect(generation=5)
        service.follow()
        service.bounds.tick()
        assert await committed(service) == [("t", 0, 18)]


async def test_an_offset_is_held_against_the_end_of_the_generation_it_was_committed_in(tmp_path):
    """The log began two generations while the dispatcher was away: messages of the first one have
    taken the lost ones' places."""
    async with RunningService(tmp_path) as service:
        for _ in range(20):
            service.log.put("t")
        service.connect(generation=5)
        service.follow()
        await service.stub.CommitOffsets(offsets_of(("t", 0, 20)))
        log, saved = service.log, asyncio.Event()
        service.offsets.close(saved.set)
        await saved.wait()
    fork = log.messages[12].offset
    log.cut(fork)
    for _ in range(15):
        log.put("t")
    MetadataFile(log.files, GENERATIONS_PATH).store(
        {"generations": [[5, 0], [6, fork], [7, log.end]]}
    )
    async with RunningService(tmp_path) as service:
        service.log = log
        service.offsets.load()
        service.connect(generation=7, start=log.end, cut_to=fork)
        service.follow()
        assert await committed(service) == [("t", 0, 12)]


# --- lag ---


@pytest.mark.parametrize("entries", [0, 1, 2, 3])
async def test_lag_counts_every_queue_of_a_topic_that_a_group_has_committed_of(tmp_path, entries):
    async with RunningService(tmp_path) as service:
        service.log.put_many(60, topics=2, queues=3)
        service.follow()
        await service.stub.CommitOffsets(offsets_of(("topic-0", 1, 4), ("gone", 9, 0)))
        await service.stub.CommitOffsets(offsets_of(("topic-1", 2, 10), group="h"))
        assert await groups(service, entries) == [
            ("topic-0", 0, -1, 10),
            ("topic-0", 1, 4, 6),
            ("topic-0", 2, -1, 10),
            ("gone", 9, 0, 0),
            ("topic-1", 0, -1, 10),
            ("topic-1", 1, -1, 10),
            ("topic-1", 2, 10, 0),
        ]
        asked = pb.ListGroupsRequest(max_entries=-1)
        assert isinstance(await error_of(service.stub.ListGroups(asked)), InvalidRequestError)


@pytest.mark.parametrize("entries", [1, 2, 500])
async def test_the_groups_of_a_topic_and_of_one_of_its_queues_come_in_pages(tmp_path, entries):
    async with RunningService(tmp_path) as service:
        for queue_id in range(2):
            service.log.put("t", queue_id)
        service.follow()
        for group, offset in (("g", ("t", 1, 1)), ("h", ("u", 0, 0)), ("i", ("t", 0, 0))):
            await service.stub.CommitOffsets(offsets_of(offset, group=group))

        async def listed(**asked) -> list[tuple[str, int, int]]:
            request = pb.ListGroupsRequest(topic="t", max_entries=entries, **asked)
            pages = await pages_of(service.stub.ListGroups, request)
            return [(one.group, one.queue_id, one.offset) for page in pages for one in page.groups]

        assert await listed() == [("g", 0, -1), ("g", 1, 1), ("i", 0, 0), ("i", 1, -1)]
        assert await listed(queue_id=1) == [("g", 1, 1), ("i", 1, -1)]
        assert await listed(queue_id=7) == []
        for asked in (
            {"topic": "t", "group": "g"},
            {"queue_id": 1},
            {"topic": "t", "queue_id": -1},
        ):
            refused = await error_of(service.stub.ListGroups(pb.ListGroupsRequest(**asked)))
            assert isinstance(refused, InvalidRequestError)


async def test_the_readers_of_a_message_are_counted_and_some_are_named(tmp_path):
    async with RunningService(tmp_path) as service:
        for _ in range(5):
            service.log.put("t", 0)
        service.follow()
        for number in range(30):
            at = offsets_of(("t", 0, number % 5), group=f"g{number:02}")
            await service.stub.CommitOffsets(at)
        await service.stub.CommitOffsets(offsets_of(("t", 1, 0), group="elsewhere"))
        asked = pb.ListGroupsRequest(topic="t", queue_id=0, offset=2, max_entries=3)
        answer = await service.stub.ListGroups(asked)
        assert (answer.read_groups, answer.unread_groups, answer.next_position) == (12, 19, 0)
        named = [(one.group, one.offset, one.lag) for one in answer.groups]
        # Those furthest behind come first; then the nearest of those that have read it.
        assert named == [
            ("elsewhere", -1, 5), ("g00", 0, 5), ("g05", 0, 5),
            ("g03", 3, 2), ("g08", 3, 2), ("g13", 3, 2),
        ]  # fmt: skip
        without = await error_of(service.stub.ListGroups(pb.ListGroupsRequest(topic="t", offset=2)))
        assert isinstance(without, InvalidRequestError)


@pytest.mark.parametrize("entries", [1, 2, 3])
async def test_pages_of_groups_neither_miss_nor_double_a_queue_that_was_there_throughout(
    tmp_path, entries
):
    """Between two pages a queue begins that had an offset alone, a lower one comes, offsets of a
    queue before the position go with a master's document."""
    async with RunningService(tmp_path) as service:
        for queue_id in (5, 3):
            service.log.put("t", queue_id)
        service.follow()
        offsets = [("t", queue_id, 0) for queue_id in (9, 7, 8, 1)]
        await service.stub.CommitOffsets(offsets_of(*offsets, ("u", 0, 0)))
        throughout = {("t", one) for one in (1, 3, 5, 7, 8, 9)} | {("u", 0)}
        changes = [
            lambda: service.log.put("t", 8),
            lambda: service.log.put("t", 0),
            lambda: service.log.put("t", 7),
        ]
        asked, found = pb.ListGroupsRequest(max_entries=entries), []
        while True:
            page = await service.stub.ListGroups(asked)
            found += [(one.topic, one.queue_id) for one in page.groups]
            if not page.next_position:
                break
            asked.position, asked.incarnation = page.next_position, page.incarnation
            if changes:
                changes.pop(0)()
                service.follow()
            service.offsets.import_document(b'{"offsetTable":{"t@g":{"7":0,"8":0,"9":0}}}')
        assert len(found) == len(set(found))
        assert throughout - {("t", 1)} <= set(found)
        assert sorted(found) == found


@pytest.mark.parametrize(
    ("name", "queue_id"),
    [
        ("t@odd", "9999999999"),
        ("t@odd", "2147483648"),
        ("t@odd", "-1"),
        ("t@odd\ud800", "0"),
        ("\udc00@odd", "0"),
    ],
)
async def test_offsets_in_a_file_that_no_answer_can_hold_are_reported_and_the_others_listed(
    tmp_path, name, queue_id
):
    table = {"t@g": {"0": 1, "2147483647": 2}, name: {queue_id: 3}}
    document = json.dumps({"offsetTable": table}).encode()
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        service.follow()
        write_file(service.files, CONSUMER_OFFSETS_PATH, document)
        service.offsets.load()
        assert len(service.offsets.report) == 1
        listed = [("t", 0, 1, 0), ("t", 2147483647, 0, 0)]
        assert [one for one in await groups(service) if one[2] >= 0] == listed
        assert [one[:2] for one in await committed(service)] == [one[:2] for one in listed]
        request = pb.ImportConsumerOffsetsRequest(consumer_offset_json=document)
        error = await error_of(service.stub.ImportConsumerOffsets(request))
        assert isinstance(error, InvalidRequestError)


async def test_where_queues_without_an_offset_begin_is_looked_for_beside_the_event_loop(tmp_path):
    async with RunningService(tmp_path) as service:
        log, queues = service.log, service.engine.queues
        for number in range(3 * LEARNED_AT_ONCE):
            log.put("t", number % LEARNED_AT_ONCE, body=bytes(40_000))
        service.follow()
        service.engine.saver.flush()
        await service.until(lambda: service.engine.is_settled)
        await service.stub.CommitOffsets(offsets_of(("t", 0, 3)))
        log.delete_below(1 << 20)
        log.put("u")
        service.follow()
        asked: list[int] = []

        async def learn(some):
            asked.extend(one.queue_id for one in some)

        left = {
            number: sum(one.offset >= 1 << 20 for one in log.of_queue("t", number))
            for number in range(1, LEARNED_AT_ONCE)
        }
        assert len(set(left.values())) > 1
        listing = GroupListing(service.offsets, service.bounds, learn, lambda one: one.end)
        found, _ = await listing.page(queues, NestedPlace())
        assert asked == list(range(1, LEARNED_AT_ONCE))
        assert {one.lag for one in found} == {0}
        lags = {queue: lag for _, queue, offset, lag in await groups(service) if offset < 0}
        assert lags == left


async def test_what_the_tier_alone_has_of_a_queue_without_an_offset_is_to_be_read(tmp_path):
    class Tier:
        async def changed_queues(self, revision: int) -> tuple[list[TierQueueRange], int]:
            return [TierQueueRange("t", 0, 1, 4)], 1

    tier = TierReads(Tier(), lambda: service.log.minimum, expected=True)
    service = RunningService(tmp_path, tier=tier)
    async with service:
        log = service.log
        for _ in range(6):
            log.put("t", body=bytes(300_000))
        log.put("t", 1)
        service.follow()
        log.delete_below(1 << 20)
        log.put("u")
        service.follow()
        looking = asyncio.create_task(tier.follow())
        await tier.learned.wait()
        looking.cancel()
        await service.stub.CommitOffsets(offsets_of(("t", 1, 1)))
        assert await groups(service) == [("t", 0, -1, 5), ("t", 1, 1, 0)]
        queues = await service.stub.ListQueues(pb.ListQueuesRequest(topic="t"))
        assert [one.min_offset for one in queues.queues] == [1, 0]
        page = await service.stub.ListGroups(pb.ListGroupsRequest(with_lag_ms=True))
        assert [one.HasField("lag_ms") for one in page.groups] == [False, True]


@pytest.mark.parametrize("group", ["g@h", "\x1b[31mg", "g" * 256])
async def test_an_offset_of_a_group_that_may_not_commit_is_lowered_like_others(tmp_path, group):
    """RocketMQ's file may have names that we take from no client."""
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        document = json.dumps({"offsetTable": {f"t@{group}": {"0": 5}}}).encode()
        write_file(service.files, CONSUMER_OFFSETS_PATH, document)
        service.offsets.load()
        service.follow()
        service.bounds.tick()
        assert await committed(service, group) == [("t", 0, 1)]
        assert dict(service.offsets.queues_of((group, "t"))) == {0: 1}
