"""The registry of who reads with a group's name, and what feeds it over the wire."""

import asyncio

import pytest
from stratamq_dispatcher.group_members import (
    MAX_PULLED_BYTES,
    MAX_PULLED_QUEUES,
    PULL_EXPIRY_S,
    RENEWAL_S,
    GroupMembers,
)

from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.errors import InvalidRequestError, UnavailableError
from stratamq.files.simulated import SimulatedClock
from stratamq.formats.text import LONGEST_NAME_BYTES
from stratamq.rpc.paging import position_of
from tests.dispatcher.running_service import RunningService, error_of

QUEUES = {"t": {0, 1}}


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def members(clock) -> GroupMembers:
    return GroupMembers(clock)


def names(members: GroupMembers, group: str = "g") -> list[str]:
    return [one.client_id for one in members.page(group, 0, 0, 500)[0]]


# --- the registry ---


def test_a_member_has_what_its_streams_and_pulls_read(members, clock):
    members.stream("g", "a", "h:1", {"t": {0, 1}, "u": {5}})
    members.stream("g", "a", "h:2", {"t": {2}})
    members.pulled("g", "a", "h:2", "v", 7)
    members.stream("other", "a", "h:1", QUEUES)
    began_ms = clock.wall_ms()
    clock.advance_ms(1_000)
    members.committed("g", "a")
    (found,), following = members.page("g", 0, 0, 500)
    assert (found.client_id, found.address, following) == ("a", "h:2", 0)
    assert found.topics == {"t": {0, 1, 2}, "u": {5}, "v": {7}}
    assert (found.since_ms, found.last_commit_ms) == (began_ms, began_ms + 1_000)
    assert found.last_seen_ms == began_ms + 1_000, "its streams are open"
    assert found.streaming


def test_the_end_of_its_last_stream_ends_a_membership_at_once(members):
    first = members.stream("g", "a", "h:1", QUEUES)
    second = members.stream("g", "a", "h:1", QUEUES)
    first.end(at_deadline=False)
    assert names(members) == ["a"]
    second.end(at_deadline=False)
    assert names(members) == []


def test_a_stream_that_ended_at_its_deadline_is_waited_for(members, clock):
    stream = members.stream("g", "a", "h:1", QUEUES)
    since_ms = clock.wall_ms()
    stream.end(at_deadline=True)
    clock.advance_ms(RENEWAL_S * 1_000 - 1)
    assert names(members) == ["a"]
    stream = members.stream("g", "a", "h:1", QUEUES)
    clock.advance_ms(100_000)
    assert [one.since_ms for one in members.page("g", 0, 0, 500)[0]] == [since_ms]
    stream.end(at_deadline=True)
    clock.advance_ms(RENEWAL_S * 1_000)
    assert names(members) == []


def test_a_member_that_pulls_expires_behind_its_last_pull(members, clock):
    for queue_id in range(MAX_PULLED_QUEUES + 1):
        members.pulled("g", "a", "h:1", "t", queue_id)
    clock.advance_ms(PULL_EXPIRY_S * 1_000 - 1)
    (found,), _ = members.page("g", 0, 0, 500)
    assert found.topics == {"t": set(range(1, MAX_PULLED_QUEUES + 1))}
    assert not found.streaming
    members.pulled("g", "a", "h:1", "t", 1)
    clock.advance_ms(PULL_EXPIRY_S * 1_000 - 1)
    assert names(members) == ["a"]
    clock.advance_ms(1)
    assert names(members) == []


def test_what_members_pull_takes_bounded_memory_whatever_they_name(members):
    for number in range(1_000):
        members.pulled("g", "a", "h:1", "x" * 1_000_000 + str(number), 0)
    assert members.page("g", 0, 0, 500)[0][0].topics == {}
    for name in range(300):
        for number in range(MAX_PULLED_QUEUES):
            members.pulled("g", f"m{name}", "h:1", f"{number:0200d}", 0)
    kept = [one for one in members.page("g", 0, 0, 500)[0] if one.topics]
    total, place = 0, 0
    while True:
        page, place = members.page("g", place, 0, 500)
        total += sum(200 + len(topic) for one in page for topic in one.topics)
        assert all(one.topics for one in page[1:])
        if not place:
            break
    assert kept
    assert MAX_PULLED_BYTES // 2 < total <= MAX_PULLED_BYTES + 300 * 400


def test_a_commit_makes_no_member(members):
    members.committed("g", "a")
    assert names(members) == []


def test_for_a_new_member_the_idle_one_that_was_seen_least_recently_goes(clock):
    members = GroupMembers(clock, most=3)
    for name in ("a", "b"):
        members.pulled("g", name, "", "t", 0)
        clock.advance_ms(1)
    members.stream("g", "c", "", QUEUES)
    members.pulled("g", "a", "", "t", 0)
    members.stream("g", "d", "", QUEUES)
    assert names(members) == ["a", "c", "d"]
    members.stream("g", "e", "", QUEUES)
    assert names(members) == ["c", "d", "e"]
    refused = members.stream("g", "f", "", QUEUES)
    members.pulled("g", "f", "", "t", 0)
    assert (names(members), members.unlisted_streams) == (["c", "d", "e"], 1)
    refused.end(at_deadline=False)
    assert members.unlisted_streams == 0


def test_pages_have_each_member_once(members):
    streams = [members.stream("g", str(number), "", QUEUES) for number in range(10)]
    found, place = [], 0
    while True:
        page, place = members.page("g", place, 3, 500)
        found += [one.client_id for one in page]
        streams.pop(0).end(at_deadline=False)  # what was given may go meanwhile
        if not place:
            break
    assert found == [str(number) for number in range(10)]


def test_a_page_ends_with_many_queues(members):
    for name in ("a", "b", "c"):
        members.stream("g", name, "", {"t": set(range(6_000))})
    page, place = members.page("g", 0, 0, 500)
    assert [one.client_id for one in page] == ["a", "b"]
    assert [one.client_id for one in members.page("g", place, 0, 500)[0]] == ["c"]


def test_a_name_that_is_too_long_is_refused(members):
    for group, name in (("g" * (LONGEST_NAME_BYTES + 1), "a"), ("g", "ü" * LONGEST_NAME_BYTES)):
        with pytest.raises(InvalidRequestError):
            members.stream(group, name, "", QUEUES)
    assert names(members) == []


# --- over the wire ---


def stream_of(name: str = "a", group: str = "g") -> pb.PullStreamRequest:
    queues = [pb.PullQueue(topic="t", queue_id=number) for number in range(2)]
    return pb.PullStreamRequest(queues=queues, group=group, client_id=name)


async def listed(service: RunningService, group: str = "g") -> list[pb.GroupMember]:
    request = pb.ListGroupMembersRequest(group=group)
    return list((await service.stub.ListGroupMembers(request)).members)


async def test_streams_pulls_and_commits_that_name_a_group_and_a_client_are_seen(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        service.follow()
        stream = service.stub.PullStream(stream_of())
        await stream.read()
        pull = pb.PullRequest(topic="t", queue_id=0, group="g", client_id="b")
        await service.stub.Pull(pull)
        offset = pb.GroupOffset(topic="t", queue_id=0, offset=1)
        commit = pb.CommitOffsetsRequest(group="g", offsets=[offset], client_id="a")
        await service.stub.CommitOffsets(commit)
        for nameless in (stream_of(""), stream_of("a", "")):
            other = service.stub.PullStream(nameless)
            await other.read()
        first, second = await listed(service)
        assert (first.client_id, first.streaming, second.client_id) == ("a", True, "b")
        assert first.address.startswith("127.0.0.1:")
        assert [(one.topic, sorted(one.queue_ids)) for one in first.topics] == [("t", [0, 1])]
        assert first.last_commit_ms and not second.last_commit_ms
        assert await listed(service, "other") == []
        stream.cancel()
        await service.until(lambda: names(service.members) == ["b"])


async def test_a_stream_that_has_given_everything_ends_the_membership(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        service.follow()
        request = stream_of()
        for queue, end in zip(request.queues, (1, 0), strict=True):
            queue.end_offset = end
        async for _ in service.stub.PullStream(request, timeout=60):
            pass
        await service.until(lambda: names(service.members) == [])


async def test_between_two_streams_of_a_reader_that_looks_again_it_stays_a_member(tmp_path):
    async with RunningService(tmp_path) as service:
        service.connect()
        service.follow()
        stream = service.stub.PullStream(stream_of(), timeout=0.2)
        while not await listed(service):
            if stream.done():  # before the busy service had it
                stream = service.stub.PullStream(stream_of(), timeout=0.2)
            await asyncio.sleep(0)
        await error_of(stream.read())
        await service.until(lambda: not service.members.page("g", 0, 0, 9)[0][0].streaming)
        assert [one.client_id for one in await listed(service)] == ["a"]
        service.members_clock.advance_ms(RENEWAL_S * 1_000)
        assert await listed(service) == []


async def test_a_list_of_members_that_makes_no_sense_is_refused(tmp_path):
    async with RunningService(tmp_path) as service:
        service.connect()
        service.follow()
        for request, kind in (
            (pb.ListGroupMembersRequest(), InvalidRequestError),
            (pb.ListGroupMembersRequest(group="g", position=-1), InvalidRequestError),
            (pb.ListGroupMembersRequest(group="g", max_entries=-1), InvalidRequestError),
            (
                pb.ListGroupMembersRequest(group="g", position=position_of(1, 12_345)),
                UnavailableError,
            ),
        ):
            assert isinstance(await error_of(service.stub.ListGroupMembers(request)), kind)


# --- pulled or shared ---


async def test_nobody_else_reads_or_commits_with_the_name_of_a_shared_group(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        service.follow()
        offset = pb.GroupOffset(topic="t", queue_id=0, offset=1)
        await service.stub.CommitOffsets(
            pb.CommitOffsetsRequest(group="g", offsets=[offset], shared=True)
        )
        pull = pb.PullRequest(topic="t", queue_id=0, group="g", client_id="b")
        commit = pb.CommitOffsetsRequest(group="g", offsets=[pb.GroupOffset(topic="t", offset=0)])
        for refused in (
            service.stub.Pull(pull),
            service.stub.PullStream(stream_of()).read(),
            service.stub.CommitOffsets(commit),
            service.stub.DeleteGroup(pb.DeleteGroupRequest(group="g")),
        ):
            error = await error_of(refused)
            assert isinstance(error, InvalidRequestError) and "group g is shared" in str(error)
        request = pb.GetCommittedOffsetsRequest(group="g")
        (kept,) = (await service.stub.GetCommittedOffsets(request)).offsets
        assert kept.offset == 1
        await service.stub.CommitOffsets(pb.CommitOffsetsRequest(group="g", shared=False))
        await service.stub.CommitOffsets(commit)
        await service.stub.Pull(pull)


async def test_a_group_with_a_reader_is_not_shared(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        service.follow()
        await service.stub.Pull(pb.PullRequest(topic="t", queue_id=0, group="g", client_id="b"))
        share = pb.CommitOffsetsRequest(
            group="g", offsets=[pb.GroupOffset(topic="t", queue_id=0, offset=1)], shared=True
        )
        error = await error_of(service.stub.CommitOffsets(share))
        assert isinstance(error, InvalidRequestError) and "is read by 1 clients" in str(error)
        request = pb.GetCommittedOffsetsRequest(group="g")
        assert not (await service.stub.GetCommittedOffsets(request)).offsets
        service.members_clock.advance_ms(PULL_EXPIRY_S * 1_000)
        await service.stub.CommitOffsets(share)
