"""Topics: RocketMQ's file, what is found in the log beside it, and changes that are kept."""

import pytest
from stratamq_commitlog.topic_table import TopicConfig, TopicTable

from stratamq.errors import InvalidRequestError, NotFoundError, StrataError
from stratamq.files.metadata import MetadataFile
from stratamq.files.simulated import SimulatedClock, SimulatedDisk
from stratamq.formats.json_files import format_json, parse_json
from tests.support.disks import write_file
from tests.support.logs import Store

PATH = "config/topics.json"


def table(disk: SimulatedDisk, **settings) -> TopicTable:
    options = {"auto_create": True, "default_queues": 4} | settings
    made = TopicTable(MetadataFile(disk.files(), PATH), SimulatedClock(), **options)
    made.load(foreign=True)
    return made


def rocketmqs(**entry) -> bytes:
    known = {
        "order": False,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "orders",
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }
    return format_json(
        {
            "dataVersion": {"counter": 7, "timestamp": 1, "stateVersion": 3},
            "topicConfigTable": {"orders": known | entry},
        }
    )


def with_file(content: bytes, **settings) -> tuple[SimulatedDisk, TopicTable]:
    disk = SimulatedDisk()
    write_file(disk.files(), PATH, content)
    return disk, table(disk, **settings)


def saved(disk: SimulatedDisk) -> dict:
    return parse_json(disk.durable_contents(PATH))


def test_a_new_topic_has_the_default_queues_and_is_saved_in_rocketmqs_shape():
    disk = SimulatedDisk()
    topics = table(disk, default_queues=8)
    assert topics.writable("orders") == TopicConfig("orders", 8, 8)
    topics.save()
    assert saved(disk)["topicConfigTable"]["orders"] == {
        "order": False,
        "perm": 6,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "orders",
        "topicSysFlag": 0,
        "writeQueueNums": 8,
    }
    assert saved(disk)["dataVersion"]["counter"] == 1


def test_what_we_do_not_know_is_kept_when_the_file_is_written_again():
    disk, topics = with_file(
        rocketmqs(attributes={"+message.type": "FIFO"}, topicFilterType="MULTI_TAG", future=[1])
    )
    topics.put(TopicConfig("orders", 9, 9))
    topics.writable("new")
    topics.save()
    document = saved(disk)
    entry = document["topicConfigTable"]["orders"]
    assert entry["attributes"] == {"+message.type": "FIFO"}
    assert entry["topicFilterType"] == "MULTI_TAG"
    assert entry["future"] == [1]
    assert (entry["readQueueNums"], entry["writeQueueNums"]) == (9, 9)
    assert document["dataVersion"]["counter"] == 8
    assert document["dataVersion"]["stateVersion"] == 3
    assert set(document["topicConfigTable"]) == {"orders", "new"}


def test_saving_writes_only_when_something_changed():
    disk, topics = with_file(rocketmqs())
    before = disk.contents(PATH)
    topics.save()
    assert disk.contents(PATH) == before
    topics.get("orders")
    topics.writable("orders")
    topics.discover([("orders", 3), ("found", 0)])
    topics.save()
    assert disk.contents(PATH) == before


def test_a_failed_save_leaves_it_to_be_saved_again():
    disk, topics = with_file(rocketmqs())
    topics.writable("new")
    disk.fail("flush", "config/*")
    with pytest.raises(OSError, match=r"."):
        topics.save()
    assert topics.dirty
    topics.save()
    assert not topics.dirty
    assert "new" in saved(disk)["topicConfigTable"]


def test_topics_found_in_the_log_are_served_and_writable():
    disk, topics = with_file(rocketmqs())
    topics.discover([("orders", 6), ("found", 9), ("found", 2), ("%RETRY%g", 0)])
    assert topics.get("orders").read_queues == 7
    assert topics.get("orders").write_queues == 4
    assert topics.writable("found") == TopicConfig("found", 10, 10)
    assert topics.writable("%RETRY%g").write_queues == 4
    assert disk is not None


def test_names_already_on_disk_are_served_whatever_they_are():
    _, topics = with_file(rocketmqs())
    topics.discover([("käse & co", 0)])
    assert topics.writable("käse & co").write_queues == 4
    with pytest.raises(InvalidRequestError):
        topics.writable("käse")


def test_an_unknown_topic_is_not_found():
    topics = table(SimulatedDisk())
    with pytest.raises(NotFoundError):
        topics.get("orders")


@pytest.mark.parametrize(
    "wrong",
    [
        TopicConfig("orders", 0, 4),
        TopicConfig("orders", 4, 0),
        TopicConfig("orders", -1, 4),
        TopicConfig("orders", 4, 65_537),
        TopicConfig("orders", 4, 4, permission=8),
        TopicConfig("a b", 4, 4),
        TopicConfig("", 4, 4),
        TopicConfig("x" * 128, 4, 4),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused_and_changes_nothing(wrong):
    topics = table(SimulatedDisk())
    with pytest.raises(InvalidRequestError):
        topics.put(wrong)
    assert topics.list() == []
    assert not topics.dirty


def test_every_change_has_a_greater_version():
    topics = table(SimulatedDisk())
    versions = [topics.version]
    topics.writable("a")
    versions.append(topics.version)
    topics.put(TopicConfig("a", 9, 9))
    versions.append(topics.version)
    topics.import_json(topics.export_json())
    versions.append(topics.version)
    assert versions == sorted(set(versions))


def test_a_slave_takes_over_its_masters_topics_whole():
    master_disk, master = with_file(rocketmqs(future=1))
    master.writable("new")
    slave = table(SimulatedDisk())
    slave.discover([("only-here", 0)])
    slave.import_json(master.export_json())
    assert slave.list() == master.list()
    assert slave.dirty
    assert parse_json(slave.export_json())["topicConfigTable"]["orders"]["future"] == 1
    assert master_disk is not None


@pytest.mark.parametrize("raw", [b"", b"[]", b"nonsense", b"7", b"\xff"])
def test_topics_that_are_no_document_are_refused_and_change_nothing(raw):
    _, topics = with_file(rocketmqs())
    before = topics.list()
    with pytest.raises(StrataError):
        topics.import_json(raw)
    assert topics.list() == before
    assert not topics.dirty


def test_topics_survive_a_restart_of_the_log_with_their_settings():
    store = Store()
    store.start()
    store.put(b"x")
    store.log.topics.put(TopicConfig("wide", 64, 32, permission=4, ordered=True, system_flags=1))
    store.restart()
    assert store.log.topics.get("wide") == TopicConfig("wide", 64, 32, 4, True, 1)
    assert store.log.topics.get("orders") == TopicConfig("orders", 4, 4)


def test_an_export_is_the_same_bytes_until_a_topic_changes():
    """A slave is sent the document again when its digest is another."""
    clock = SimulatedClock()
    disk = SimulatedDisk()
    made = TopicTable(MetadataFile(disk.files(), PATH), clock, auto_create=True, default_queues=4)
    made.load(foreign=True)
    made.put(TopicConfig("orders"))
    before = made.export_json()
    clock.advance_ms(5_000)
    assert made.export_json() == before
    made.put(TopicConfig("more"))
    assert made.export_json() != before
