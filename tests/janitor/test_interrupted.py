"""A janitor that is killed, paused, or not there: nothing is lost, and the log protects itself."""

import random

import pytest
from stratamq_torture.disks.volume import Volume, obstacle
from stratamq_torture.processes.services import DEFAULT_RATIOS

from stratamq.client import Client, connect
from stratamq.errors import BusyError
from tests.support.brokers import ROOMS, Broker
from tests.support.freezing import freeze, thaw
from tests.support.waiting import until, until_dispatched

JANITOR = "janitor"
MIB = 1 << 20
SEGMENT = 65536
SETTINGS = (
    f"commitlog.segment_bytes={SEGMENT}",
    "commitlog.release_timeout_ms=0",
    "commitlog.snapshot_interval_ms=50",
    "dispatcher.queue_file_bytes=400",
    "index.index_slots=64",
    "index.index_items=128",
    "janitor.interval_ms=20",
    f"janitor.retention_bytes={6 * SEGMENT}",
)


def send(client: Client, first: int, count: int) -> int:
    """Numbered messages; the number that comes next."""
    with client.producer() as producer:
        for number in range(first, first + count):
            producer.send("t", b"%06d" % number + bytes(4096), queue_id=0)
    return first + count


def numbers(client: Client) -> list[int]:
    """Everything that the log has, by the dispatcher, once it has the log's end.

    Of deleted segments, whose files go one after the other, a reader may be given a part.
    """
    state = client.log_state()
    until_dispatched(client, state.appended_offset)
    messages = client.consume("t")
    return [int(one.body[:6]) for one in messages if one.physical_offset >= state.minimum_offset]


def test_a_janitor_that_is_killed_again_and_again_loses_nothing_that_must_stay(tmp_path):
    chance = random.Random(7)
    with Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            end = 0
            for _ in range(6):
                broker.start([JANITOR])
                end = send(client, end, chance.randrange(40, 200))
                minimum = client.log_state().minimum_offset
                while chance.random() < 0.8:
                    client.log_state()
                broker.kill(JANITOR)
                state = client.log_state()
                assert state.minimum_offset >= minimum
                kept = state.appended_offset - state.minimum_offset
                assert kept >= min(5 * SEGMENT, state.appended_offset)
                there = numbers(client)
                assert there == list(range(end - len(there), end))
            broker.start([JANITOR])
            until(lambda: client.log_state().segment_count <= 6, "segments go")
            broker.kill(JANITOR)
        broker.stop()
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            there = numbers(client)
            assert there == list(range(end - len(there), end))


def test_a_paused_janitor_blocks_no_other_service_and_resumes_at_the_present_log(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as broker:
        broker.start([*ROOMS, JANITOR])
        with connect(broker.root, retry_timeout_s=60) as client:
            end = send(client, 0, 50)
            until(lambda: client.admin.janitor_state().last, "the janitor has looked")
            freeze(broker.pid(JANITOR))
            end = send(client, end, 400)
            assert client.log_state().segment_count > 20, "nothing is deleted"
            thaw(broker.pid(JANITOR))
            until(lambda: client.log_state().segment_count <= 6, "segments go")

            def most_are_there() -> bool:
                there = numbers(client)
                assert there == list(range(end - len(there), end))
                return len(there) > 60

            # A read beside a deletion may be given a part; once that has ended it is all.
            until(most_are_there, "what stays can be read")


@pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "it can run here")
def test_without_a_janitor_the_log_refuses_in_time_and_takes_again_when_one_comes(tmp_path):
    settings = (
        f"commitlog.segment_bytes={4 * MIB}",
        "commitlog.reserve_bytes=1048576",
        "commitlog.release_timeout_ms=0",
        "commitlog.snapshot_interval_ms=50",
        "dispatcher.queue_file_bytes=20000",
        "index.index_slots=1000",
        "index.index_items=4000",
        "janitor.interval_ms=50",
        *DEFAULT_RATIOS,
    )
    with (
        Volume(tmp_path, 160 * MIB) as volume,
        Broker(volume.path / "store", tmp_path / "logs", settings) as broker,
    ):
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            stored, refusal = 0, None
            while refusal is None:
                try:
                    client.send("t", bytes(256 << 10), queue_id=0)
                    stored += 1
                except BusyError as error:
                    refusal = error
            assert "90%" in str(refusal)
            assert 0.8 < volume.used_ratio < 0.95
            assert client.log_state().minimum_offset == 0, "nothing went"
            broker.start([JANITOR])
            until(lambda: client.log_state().writable, "the log takes messages again")
            assert client.send("t", b"taken again", queue_id=0).queue_offset == stored
            assert client.log_state().minimum_offset > 0
            broker.kill(JANITOR)
