"""Damage under a running dispatcher: in queue files it is mended from the log; in the log it is
DATA_LOSS for the messages it touched, and for no others."""

import asyncio

import pytest

from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.errors import CorruptionError
from stratamq.formats.file_names import offset_name
from tests.dispatcher.followed_log import WrittenLog
from tests.dispatcher.running_service import RunningService, error_of

TOPIC = "topic-0"


@pytest.fixture
def log(tmp_path):
    """Ten messages of one queue, dispatched and written."""

    async def scenario() -> WrittenLog:
        async with RunningService(tmp_path) as service:
            service.log.put_many(10, topics=1, queues=1)
            service.follow()
            return service.log

    return asyncio.run(scenario())


async def pull(service: RunningService, offset: int) -> pb.PullResponse:
    return await service.stub.Pull(pb.PullRequest(topic=TOPIC, offset=offset))


async def reported(service: RunningService) -> str:
    status = await service.stub.GetDispatchStatus(pb.GetDispatchStatusRequest())
    return "\n".join(status.recovery_report)


@pytest.mark.parametrize("first, stop", [(3, 4), (3, 7), (1, 9), (0, 1)])
async def test_damaged_units_are_taken_from_the_log_again(tmp_path, log, first: int, stop: int):
    path = tmp_path / "consumequeue" / TOPIC / "0" / offset_name(0)
    right = path.read_bytes()
    async with RunningService(tmp_path) as service:
        service.log = log
        service.connect()
        with path.open("r+b") as file:
            file.seek(20 * first)
            file.write(b"\x13" * 20 * (stop - first))
        at = 0
        while at < 10:
            answer = await pull(service, at)
            assert answer.count > 0
            at = answer.next_offset
        assert f"units {first} to {stop - 1} were damaged" in await reported(service)
    assert path.read_bytes() == right


async def test_a_damaged_message_is_data_loss_and_those_around_it_are_given(tmp_path, log):
    raw = next(iter((tmp_path / "commitlog").iterdir()))
    content = raw.read_bytes()
    size = int.from_bytes(content[:4])
    at = 3 * size + 88  # the first byte of the body
    assert content[3 * size : 3 * size + 4] == content[:4], "frames of one size"
    raw.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    async with RunningService(tmp_path) as service:
        service.log = log
        service.connect()
        before = await pull(service, 0)
        assert (before.count, before.next_offset) == (3, 3)
        error = await error_of(service.stub.Pull(pb.PullRequest(topic=TOPIC, offset=3)))
        assert isinstance(error, CorruptionError)
        assert (error.file, error.position) == (f"consumequeue/{TOPIC}/0", 3 * size)
        assert error.message in await reported(service)
        behind = await pull(service, 4)
        assert (behind.count, behind.next_offset) == (6, 10)
