"""A broker restored from its tier alone: read by queue, key and time, and it continues."""

import os
import shutil

import pytest

from stratamq.cli import __main__ as command_line
from stratamq.client import Client, Message, connect
from stratamq.files.real import RealFiles
from stratamq.formats.frame_layout import PHYSICAL_OFFSET_POSITION
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES
from stratamq.tier.consumer_offsets import ConsumerOffsetsCopy
from stratamq.tier.driver.objects import open_objects
from stratamq.tier.driver.posix import PosixStorage
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.reading.contents import load_writer
from stratamq.tier.reading.manifests import load_manifests
from stratamq.tier.reading.verify import queues_of, verify_queue
from tests.support.brokers import Broker
from tests.support.storages import no_pause
from tests.support.waiting import until
from tests.tier.test_restore import QUEUES as QUEUES_OF_A_TIER
from tests.tier.test_restore import Queue, upload

NAMES = ("DefaultCluster", "broker-a")
ROOMS = ("commitlog", "dispatcher", "index", "tier")
COUNT = 600
QUEUES = 3


@pytest.fixture(params=["directory", "moto", "fake_gcs", "azurite"])
def target(request, tmp_path, monkeypatch):
    """The tier's name on a command line, and its storage."""
    if request.param == "directory":
        return str(tmp_path / "tier"), PosixStorage(RealFiles(tmp_path / "tier"), no_pause)
    server = request.getfixturevalue(request.param)
    url = f"{server.scheme}://{server.new_bucket()}/tiers"
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return url, open_objects(server.settings(url))


def settings(target: str) -> tuple[str, ...]:
    return (
        "commitlog.segment_bytes=1048576",
        "commitlog.followers=dispatcher,index",
        "dispatcher.queue_file_bytes=20000",
        f"tier.target={target}",
        "tier.scan_interval_ms=50",
        "tier.batch_wait_ms=100",
        "tier.allow_http=true",
    )


def send(client: Client, first: int, count: int) -> None:
    with client.producer() as producer:
        for number in range(first, first + count):
            body = b"%08d" % number + bytes(number % 700)
            producer.send_message(Message("t", body, keys=[f"k{number}"], queue_id=number % QUEUES))


def in_tier(storage: Storage) -> dict[tuple[str, int], int]:
    places = run(queues_of(*NAMES), storage)
    return {
        (one.topic, one.queue_id): one.end_offset for one in run(load_manifests(places), storage)
    }


def wait_for(storage: Storage, messages: int) -> None:
    until(lambda: sum(in_tier(storage).values()) == messages, "all messages are in the tier")


def all_frames(client: Client) -> dict[int, bytes]:
    """All records of each queue, one behind the other, without what a place in a log makes."""
    ranges = [("t", queue_id, 0, COUNT // QUEUES) for queue_id in range(QUEUES)]
    found = {queue_id: bytearray() for queue_id in range(QUEUES)}
    for number, _, records in client.queue_frames(ranges):
        found[number] += records
    return {queue_id: unplaced(bytes(records)) for queue_id, records in found.items()}


def unplaced(records: bytes) -> bytes:
    """Places and checksums of records left out."""
    kept, at = [], 0
    while at < len(records):
        size = int.from_bytes(records[at : at + 4], "big")
        place = at + PHYSICAL_OFFSET_POSITION
        kept += [records[at:place], records[place + 8 : at + size - PROPERTY_CRC_BYTES]]
        at += size
    return b"".join(kept)


def test_a_broker_without_its_disk_continues_from_the_tier(tmp_path, target, capsys):
    name, storage = target
    with Broker(tmp_path / "store", tmp_path / "logs", settings(name)) as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            send(client, 0, COUNT)
            wait_for(storage, COUNT)
            before = all_frames(client)
            times = [stored_ms(client, offset) for offset in (0, 60, 199)]
    shutil.rmtree(tmp_path / "store")
    epoch = run(load_writer(*NAMES), storage)
    assert epoch is not None
    copy = ConsumerOffsetsCopy(*NAMES, epoch)
    copy.take(b'{"offsetTable":{"t@readers":{"0":150,"1":20}}}')
    run(copy.store(1), storage)
    root = tmp_path / "restored"
    words = ["tier", "restore", name, str(root), "--segment-bytes", "1048576"]
    assert command_line.run(words) == 0
    assert f"restored {COUNT} messages of {QUEUES} queues" in capsys.readouterr().err
    assert command_line.run(words) == 3
    assert "not empty" in capsys.readouterr().err
    objects = set(files_of(tmp_path / "tier"))
    with Broker(root, tmp_path / "logs", settings(name)) as broker:
        broker.start(ROOMS)
        with connect(root, retry_timeout_s=60) as client:
            assert all_frames(client) == before
            for number in (0, 1, COUNT // 2, COUNT - 1):
                (found,) = client.query_key("t", f"k{number}").messages
                assert found.body[:8] == b"%08d" % number
            assert client.committed_offsets("readers") == {("t", 0): 150, ("t", 1): 20}
            for offset, time in zip((0, 60, 199), times, strict=True):
                nearest = client.offset_at_time("t", 0, time)
                assert stored_ms(client, nearest) == time
                assert nearest <= offset
            send(client, COUNT, 60)
            wait_for(storage, COUNT + 60)
            assert {queue.max_offset for queue in client.queues("t")} == {(COUNT + 60) // QUEUES}
        assert "adopt_generation" not in broker.output("tier")
        assert "messages_cut" not in broker.output("tier")
    assert objects <= set(files_of(tmp_path / "tier"))
    for place in run(queues_of(*NAMES), storage):
        assert run(verify_queue(place), storage).faults == ()


def files_of(directory) -> list[str]:
    return [os.path.join(path, name) for path, _, names in os.walk(directory) for name in names]


def stored_ms(client: Client, offset: int) -> int:
    return client.pull("t", 0, offset, max_messages=1).messages[0].store_timestamp_ms


def test_queues_that_do_not_begin_at_zero_are_read_from_where_they_begin(tmp_path, capsys):
    queues = (*QUEUES_OF_A_TIER, Queue("holes", 1, 10, 60, hole=(22, 40)))
    upload(PosixStorage(RealFiles(tmp_path / "tier"), no_pause), queues)
    root = tmp_path / "restored"
    words = ["restore", str(tmp_path / "tier"), str(root), "--segment-bytes", "65536"]
    assert command_line.run(["tier", *words]) == 0
    assert "queue 1 of holes begins at offset 40: 12 messages" in capsys.readouterr().err
    followed = ("commitlog.followers=dispatcher,index", "dispatcher.queue_file_bytes=20000")
    with Broker(root, tmp_path / "logs", followed) as broker:
        broker.start()
        with connect(root, retry_timeout_s=60) as client:
            for queue in queues:
                first, end = queue.in_log().start, queue.end
                (state,) = [
                    one for one in client.queues(queue.topic) if one.queue_id == queue.queue_id
                ]
                assert (state.min_offset, state.max_offset) == (first, end)
                ranges = [(queue.topic, queue.queue_id, first, end)]
                records = b"".join(bytes(part) for _, _, part in client.queue_frames(ranges))
                original = b"".join(queue.record(offset) for offset in queue.in_log())
                assert len(records) == len(original)
                (found,) = client.query_key(queue.topic, f"k{end - 1}").messages
                assert found.queue_offset == end - 1
                assert (
                    client.offset_at_time(queue.topic, queue.queue_id, queue.time(end - 1))
                    == end - 1
                )
        broker.stop()
        broker.start()
        with connect(root, retry_timeout_s=60) as client:
            assert client.send("orders", b"next", queue_id=5).queue_offset == 540
