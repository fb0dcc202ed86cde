"""A mounted tier answers as its broker does, and nothing in it is changed."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from stratamq.cli import __main__ as command_line
from stratamq.cli.tier_mount import mount_settings
from stratamq.client import Client, Message, connect
from stratamq.client.values import Topic
from stratamq.errors import NotWritableError
from stratamq.files.real import RealFiles
from stratamq.tier.consumer_offsets import ConsumerOffsetsCopy
from stratamq.tier.driver.posix import PosixStorage
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.reading.contents import load_writer
from stratamq.tier.reading.key_index import load_index
from tests.support.brokers import Broker
from tests.support.storages import no_pause
from tests.support.waiting import until
from tests.tier_service.test_restored_broker import COUNT, all_frames, send, stored_ms
from tests.tier_service.test_uploading import Tier, settings

ROOMS = ("commitlog", "dispatcher", "index", "tier")
LOOK_MS = 50


@pytest.fixture
def tier(tmp_path):
    return Tier(tmp_path)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "tier"


@pytest.fixture
def broker(tmp_path):
    given = settings(tmp_path, "tier.index_interval_ms=100")
    with Broker(tmp_path / "store", tmp_path / "logs", given) as broker:
        yield broker.start(ROOMS)


@contextmanager
def mounted(tmp_path: Path, target: Path, name: str = "mount") -> Iterator[Broker]:
    given = mount_settings(str(target), "DefaultCluster", "broker-a")
    looks = f"tier.mount_look_ms={LOOK_MS}"
    with Broker(tmp_path / name, tmp_path / f"{name}-logs", (*given, looks)) as broker:
        yield broker.start(ROOMS)


def committed(tier: Tier) -> int:
    return sum(end for _, end in tier.messages().values())


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(directory)): one.read_bytes()
        for one in directory.rglob("*")
        if one.is_file()
    }


def put_offsets(storage: Storage) -> None:
    """Of a group, as the broker's tier service copies them now and then."""
    epoch = run(load_writer("DefaultCluster", "broker-a"), storage)
    assert epoch is not None
    copy = ConsumerOffsetsCopy("DefaultCluster", "broker-a", epoch)
    copy.take(b'{"offsetTable":{"t@readers":{"0":150,"1":20}}}')
    run(copy.store(1), storage)


def indexed(client: Client) -> bool:
    return [one.body[:8] for one in client.query_key("t", "k7").messages] == [b"00000007"]


def in_files(storage: Storage) -> int:
    """Messages whose keys are."""
    index = run(load_index("DefaultCluster", "broker-a"), storage)
    return 0 if index is None else sum(index.covered.values())


def test_it_answers_as_the_broker_that_is_gone(tmp_path, tier, target, broker):
    storage = PosixStorage(RealFiles(target), no_pause)
    with connect(broker.root, retry_timeout_s=60) as client:
        send(client, 0, COUNT)
        until(lambda: committed(tier) == COUNT, "all is in the tier")
        before = all_frames(client)
        times = [stored_ms(client, offset) for offset in (0, 60, 199)]
        offsets = [client.offset_at_time("t", 0, ms) for ms in times]
        until(lambda: in_files(storage) == COUNT, "all keys are in files")
    broker.terminate("tier")
    broker.stop()
    shutil.rmtree(tmp_path / "store")
    put_offsets(storage)
    content = files(target)
    with mounted(tmp_path, target) as mount, connect(mount.root, retry_timeout_s=60) as client:
        assert {topic.name for topic in client.topics()} >= {"t"}
        assert all_frames(client) == before
        assert [client.offset_at_time("t", 0, ms) for ms in times] == offsets
        assert client.committed_offsets("readers") == {("t", 0): 150, ("t", 1): 20}
        until(lambda: indexed(client), "a key is found")
    assert files(target) == content


def test_what_its_broker_adds_reaches_who_waits(tmp_path, tier, target, broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        send(client, 0, 30)
        until(lambda: committed(tier) == 30, "all is in the tier")
        with mounted(tmp_path, target) as mount, connect(mount.root, retry_timeout_s=60) as reader:
            with reader.consume("t", follow=True) as messages:
                assert len(list(islice(messages, 30))) == 30
                send(client, 30, 30)
                assert sorted(int(one.body[:8]) for one in islice(messages, 30)) == [*range(30, 60)]
            with client.producer() as producer:
                producer.send_message(Message("later", b"x", queue_id=1))
            until(lambda: "later" in {one.name for one in reader.topics()}, "a topic is new")
            until(lambda: [one.body for one in reader.consume("later")] == [b"x"], "it is read")


@pytest.mark.parametrize("room", ROOMS)
def test_a_service_that_is_killed_serves_all_again(tmp_path, tier, target, broker, room):
    with connect(broker.root, retry_timeout_s=60) as client:
        send(client, 0, 60)
        until(lambda: committed(tier) == 60, "all is in the tier")
    with mounted(tmp_path, target) as mount, connect(mount.root, retry_timeout_s=60) as reader:
        mount.kill(room)
        mount.start((room,))
        until(lambda: len(list(reader.consume("t"))) == 60, "all is read")


def test_it_takes_neither_messages_nor_offsets_nor_topics(tmp_path, tier, target, broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        send(client, 0, 6)
        until(lambda: committed(tier) == 6, "all is in the tier")
    with mounted(tmp_path, target) as mount, connect(mount.root, retry_timeout_s=5) as reader:
        with pytest.raises(NotWritableError):
            reader.commit_offsets("g", {("t", 0): 1})
        with pytest.raises(NotWritableError):
            reader.admin.create_topic(Topic("other"))
        with pytest.raises(NotWritableError):
            reader.send_message(Message("t", b"x"))


def test_a_directory_with_something_else_is_refused(tmp_path, tier, target, broker, capsys):
    def refusal(*words: object) -> str:
        assert command_line.run(["tier", "mount", *map(str, words)]) != 0
        return capsys.readouterr().err

    with connect(broker.root, retry_timeout_s=60) as client:
        send(client, 0, 6)
        until(lambda: committed(tier) == 6, "all is in the tier")
    broker.stop()
    assert "not empty" in refusal(target, tmp_path / "store")
    assert "in the tier itself" in refusal(target, target / "mount")
    assert "nothing of the broker other" in refusal(target, tmp_path / "m", "--broker", "other")
    assert "there is no directory" in refusal(tmp_path / "nowhere", tmp_path / "m")
