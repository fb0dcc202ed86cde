"""A small volume that a broker fills under load: the levels come in order, and go again."""

import pytest
from stratamq_torture.disks.volume import Volume, obstacle
from stratamq_torture.processes.services import DEFAULT_RATIOS

from stratamq.client import connect
from stratamq.errors import BusyError
from tests.support.brokers import Broker
from tests.support.waiting import until, until_dispatched

MIB = 1 << 20
SEGMENT = 4 * MIB
SETTINGS = (
    f"commitlog.segment_bytes={SEGMENT}",
    "commitlog.reserve_bytes=1048576",
    "commitlog.release_timeout_ms=0",
    "dispatcher.queue_file_bytes=20000",
    "index.index_slots=1000",
    "index.index_items=4000",
    "janitor.interval_ms=50",
    *DEFAULT_RATIOS,
)

pytestmark = pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "it can run here")


@pytest.fixture
def volume(tmp_path):
    with Volume(tmp_path, 160 * MIB) as volume:
        yield volume


@pytest.fixture
def broker(volume, tmp_path):
    with Broker(volume.path / "store", tmp_path / "logs", SETTINGS) as broker:
        broker.start(["commitlog", "dispatcher", "index", "janitor"])
        yield broker


def is_full(state) -> bool:
    return not state.writable and state.segment_count == 1


def test_a_volume_filled_under_load_is_cleaned_refused_and_taken_again_in_this_order(
    volume, broker
):
    body = bytes(32 << 10)
    with connect(broker.root, retry_timeout_s=60) as client:

        def send(count: int) -> None:
            with client.producer() as producer:
                for number in range(count):
                    producer.send("t", body, queue_id=0, keys=[f"k{number}"])

        # Below the levels nothing goes.
        while volume.used_ratio < 0.6:
            send(32)
        assert client.log_state().minimum_offset == 0
        # Above the forcing level the oldest go, however young they are; every message is taken.
        while client.log_state().minimum_offset < 6 * SEGMENT:
            send(64)
            assert volume.used_ratio < 0.92
        # It counts a segment once the log has answered that it is deleted.
        until(lambda: client.admin.janitor_state().deleted_segments >= 6, "they are counted")
        last_look = client.admin.janitor_state().last
        assert last_look is not None and last_look.alarm == ""
        until_dispatched(client)
        queue = next(q for q in client.queues("t") if q.queue_id == 0)
        last = client.pull("t", 0, queue.max_offset - 1)
        assert len(next(iter(last.messages)).body) == len(body)
        # Another program repeatedly takes all free space: when only the last segment is left, the
        # janitor reports it, and the log refuses writes.
        while (look := client.admin.janitor_state().last) is None or not look.alarm:
            volume.fill(0.97)
        volume.fill(0.97)
        until(lambda: is_full(client.log_state()), "only the last segment is left, and it is full")
        assert "no segment is left" in look.alarm
        with pytest.raises(BusyError, match="full"):
            client.send("t", b"refused", queue_id=0)
        # When there is room again, messages are taken again, without a restart.
        volume.free()
        until(lambda: client.log_state().writable, "the log takes messages again")
        assert client.send("t", b"taken", queue_id=0).queue_offset == queue.max_offset
        until(lambda: not client.admin.janitor_state().last.alarm, "the janitor sees the room")
