"""Readers that come back to a log that has lost what they had read, over the wire."""

import asyncio

import pytest

from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.files.metadata import MetadataFile
from stratamq.store.generations import GENERATIONS_PATH, parted_at
from tests.dispatcher.running_service import RunningService

KEPT, READ, GROWN = 12, 20, 27
"""Messages of the queue: what both histories have, what was read, where the queue ends now."""


def write(service: RunningService) -> None:
    for _ in range(READ):
        service.log.put("t")
    service.follow()


def lose(service: RunningService) -> None:
    """Another master's history follows, and the queue is longer than before."""
    log = service.log
    fork = log.messages[KEPT].offset
    log.cut(fork)
    MetadataFile(log.files, GENERATIONS_PATH).store({"generations": [[1, 0], [3, fork]]})
    service.connect(generation=3, start=fork, cut_to=fork)
    log.next_queue_offset["t", 0] = KEPT
    for _ in range(GROWN - KEPT):
        log.put("t", body=b"other")
    service.follow()


def stream_from(generation: int) -> pb.PullStreamRequest:
    place = pb.PullQueue(topic="t", offset=READ, end_offset=GROWN, generation=generation)
    return pb.PullStreamRequest(queues=[place])


@pytest.mark.parametrize(
    ("generation", "first"), [(1, KEPT), (2, KEPT), (3, READ), (0, READ), (4, READ)]
)
async def test_a_reader_goes_on_with_what_took_the_place_of_what_it_read(
    tmp_path, generation, first
):
    async with RunningService(tmp_path) as service:
        write(service)
        lose(service)
        stream = service.stub.PullStream(stream_from(generation))
        answers = [answer async for answer in stream]
        wanted = service.log.of_queue("t", 0)[first:]
        assert b"".join(one.frames for one in answers) == b"".join(m.frame for m in wanted)
        assert {one.generation for one in answers} == {3}


async def test_a_stream_that_is_open_when_the_log_is_cut_goes_back(tmp_path):
    async with RunningService(tmp_path) as service:
        write(service)
        stream = service.stub.PullStream(stream_from(1))
        read = asyncio.ensure_future(stream.read())
        await service.until(lambda: len(service.engine.waiting) == 1)
        lose(service)
        assert (await read).frames.startswith(service.log.of_queue("t", 0)[KEPT].frame)


@pytest.mark.parametrize(("generation", "offset"), [(1, KEPT), (3, READ), (0, READ)])
async def test_a_commit_of_what_was_lost_is_lowered(tmp_path, generation, offset):
    async with RunningService(tmp_path) as service:
        write(service)
        lose(service)
        taken = pb.GroupOffset(topic="t", offset=READ, generation=generation)
        await service.stub.CommitOffsets(pb.CommitOffsetsRequest(group="g", offsets=[taken]))
        asked = pb.GetCommittedOffsetsRequest(group="g")
        (found,) = (await service.stub.GetCommittedOffsets(asked)).offsets
        assert found.offset == offset


@pytest.mark.parametrize(
    ("listed", "generation", "offset"),
    [
        ([(1, 0), (3, 800)], 1, 800),
        ([(1, 0), (3, 800)], 2, 800),
        ([(1, 0), (3, 800), (5, 900)], 4, 900),
        ([(1, 0), (3, 800)], 3, None),
        ([(1, 0), (3, 800)], 7, None),
        ([(3, 0), (5, 800)], 2, None),  # nothing in common
        ([], 2, None),
    ],
)
def test_histories_part_where_the_next_generation_begins(listed, generation, offset):
    assert parted_at(listed, generation) == offset
