"""Topics: RocketMQ's file, what is found in the log beside it, and changes that are kept."""

import pytest
from stratamq_commitlog.write.topic_table import TopicConfig, TopicTable

from stratamq.errors import InvalidRequestError, NotFoundError, NotWritableError, StrataError
from stratamq.files.simulated import SimulatedClock, SimulatedDisk
from stratamq.formats.json_files import format_json, parse_json
from stratamq.formats.topics import DRAIN_TOPIC, Drain
from stratamq.rpc.changes import ReadMark
from tests.support.disks import write_file
from tests.support.logs import Store

PATH = "config/topics.json"


def table(disk: SimulatedDisk, **settings) -> TopicTable:
    options = {"auto_create": True, "default_queues": 4} | settings
    made = TopicTable(disk.files(), SimulatedClock(), **options)
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
    assert topics.find("orders") == []
    topics.keep(topics.writable("orders"))
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
    topics.keep(topics.writable("new"))
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
    topics.keep(topics.writable("orders"))
    topics.discover([("orders", 3), ("found", 0)])
    topics.save()
    assert disk.contents(PATH) == before


def test_a_failed_save_leaves_it_to_be_saved_again():
    disk, topics = with_file(rocketmqs())
    topics.keep(topics.writable("new"))
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
        topics.keep(topics.writable("käse"))


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
    topics.keep(topics.writable("a"))
    versions.append(topics.version)
    topics.put(TopicConfig("a", 9, 9))
    versions.append(topics.version)
    topics.import_json(exported(topics), {})
    versions.append(topics.version)
    assert versions == sorted(set(versions))


def exported(topics: TopicTable) -> bytes:
    document, mark = topics.export_changes()
    assert not mark.position
    return document


def test_a_slave_takes_over_its_masters_topics_and_keeps_what_only_its_own_log_has():
    _, master = with_file(rocketmqs(future=1))
    master.keep(master.writable("new"))
    slave = table(SimulatedDisk())
    slave.discover([("only-here", 0), ("new", 6)])
    slave.import_json(exported(master), {})
    assert slave.get("orders") == master.get("orders")
    assert slave.get("new") == TopicConfig("new", 7, 4)
    assert slave.get("only-here")
    assert slave.dirty
    assert parse_json(exported(slave))["topicConfigTable"]["orders"]["future"] == 1


@pytest.mark.parametrize("raw", [b"", b"[]", b"nonsense", b"7", b"\xff"])
def test_topics_that_are_no_document_are_refused_and_change_nothing(raw):
    _, topics = with_file(rocketmqs())
    before = topics.list()
    with pytest.raises(StrataError):
        topics.import_json(raw, {})
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


def test_an_export_has_what_changed_since_its_mark_a_page_at_a_time():
    made = table(SimulatedDisk(), page_entries=2)
    for number in range(5):
        made.put(TopicConfig(f"t{number}"))
    pages, mark = [], ReadMark()
    while not pages or mark.position:
        document, mark = made.export_changes(mark)
        pages.append(list(parse_json(document)["topicConfigTable"]))
    assert pages == [["t0", "t1"], ["t2", "t3"], ["t4"]]
    assert made.export_changes(mark) == (b"", mark)
    made.put(TopicConfig("t1", 9, 9))
    document, again = made.export_changes(mark)
    assert parse_json(document)["topicConfigTable"].keys() == {"t1"}
    assert made.export_changes(again)[0] == b""


def test_topics_are_listed_in_pages_in_the_order_in_which_they_came():
    made = table(SimulatedDisk(), page_entries=2)
    for name in ("c", "a", "b"):
        made.put(TopicConfig(name))
    first, place = made.page(0)
    made.put(TopicConfig("later"))
    second, end = made.page(place)
    assert [one.topic for one in (*first, *second)] == ["c", "a", "b", "later"]
    assert end == 0
    assert [one.topic for one in made.page(0, 1)[0]] == ["c"]
    assert (made.find("b"), made.find("none")) == ([TopicConfig("b")], [])


def test_a_deleted_topic_is_not_listed_and_no_producer_makes_it_again():
    disk = SimulatedDisk()
    topics = table(disk)
    topics.keep(topics.writable("orders"))
    topics.delete("orders", {0: 7})
    assert topics.list() == topics.find("orders") == topics.page(0)[0] == []
    with pytest.raises(NotFoundError):
        topics.get("orders")
    with pytest.raises(NotFoundError, match="topics create orders"):
        topics.keep(topics.writable("orders"))
    with pytest.raises(NotFoundError):
        topics.delete("orders", {0: 8})
    topics.save()
    again = table(disk)
    again.discover([("orders", 3)])
    assert again.list() == []
    assert saved(disk)["topicConfigTable"]["orders"]["perm"] == 0


def test_a_topic_that_is_made_again_keeps_what_was_deleted_of_it():
    disk = SimulatedDisk()
    topics = table(disk)
    topics.keep(topics.writable("orders"))
    topics.delete("orders", {0: 7, 2: 9})
    topics.require_new("orders")
    topics.put(TopicConfig("orders", 2, 2))
    topics.save()
    (orders,) = table(disk).list()
    assert (orders.minimums, orders.permission) == (((0, 7), (2, 9)), 6)


def test_a_topic_takes_no_message_while_it_is_being_deleted():
    topics = table(SimulatedDisk())
    topics.keep(topics.writable("orders"))
    topics.close("orders")
    with pytest.raises(NotFoundError):
        topics.keep(topics.writable("orders"))
    topics.open("orders")
    assert topics.writable("orders").topic == "orders"


def test_a_slave_takes_over_a_deletion_once_it_has_the_messages():
    master, slave = table(SimulatedDisk()), table(SimulatedDisk())
    master.keep(master.writable("orders"))
    document, mark = master.export_changes()
    slave.import_json(document, {})
    master.delete("orders", {0: 7})
    document, _ = master.export_changes(mark)
    with pytest.raises(NotWritableError):
        slave.import_json(document, {("orders", 0): 6})
    slave.import_json(document, {("orders", 0): 7})
    assert slave.list() == []


def test_the_brokers_own_topics_cannot_be_deleted():
    topics = table(SimulatedDisk())
    topics.put(TopicConfig("SCHEDULE_TOPIC_XXXX", 18, 18))
    with pytest.raises(InvalidRequestError):
        topics.close("SCHEDULE_TOPIC_XXXX")


# --- a broker that is drained ---


def drained(topics: TopicTable, drain: Drain) -> None:
    topics.put(TopicConfig(DRAIN_TOPIC, 1, 1, drain.value))


def test_a_leaving_broker_shows_no_permission_to_write_and_takes_what_is_sent_to_its_topics():
    topics = table(SimulatedDisk())
    topics.keep(topics.writable("orders"))
    drained(topics, Drain.LEAVING)
    assert [(one.topic, one.permission) for one in topics.page(0)[0]] == [("orders", 4)]
    assert topics.writable("orders").permission == 6
    with pytest.raises(NotWritableError, match="drained"):
        topics.keep(topics.writable("new"))


@pytest.mark.parametrize("again", [False, True], ids=["at once", "after a restart"])
def test_a_drained_broker_takes_no_message_until_it_is_opened_again(again):
    disk = SimulatedDisk()
    topics = table(disk)
    topics.put(TopicConfig("orders"))
    topics.put(TopicConfig("closed", permission=4))
    drained(topics, Drain.DRAINED)
    topics.put(TopicConfig("made-meanwhile"))
    if again:
        topics.save()
        topics = table(disk)
    for topic in ("orders", "closed", "made-meanwhile", "new"):
        with pytest.raises(NotWritableError) as refused:
            topics.keep(topics.writable(topic))
        assert refused.value.reason == "drained"
    assert {one.permission for one in topics.list() if one.topic != DRAIN_TOPIC} == {4}
    drained(topics, Drain.OPEN)
    assert topics.writable("orders").permission == 6
    assert topics.writable("made-meanwhile").permission == 6
    with pytest.raises(NotWritableError, match="no write permission"):
        topics.keep(topics.writable("closed"))


def test_a_slave_takes_the_drain_over_with_its_masters_topics():
    master, slave = table(SimulatedDisk()), table(SimulatedDisk())
    master.put(TopicConfig("orders"))
    drained(master, Drain.DRAINED)
    exported, _ = master.export_changes()
    slave.import_json(exported, {})
    assert slave.drain is Drain.DRAINED
    with pytest.raises(NotWritableError, match="drained"):
        slave.keep(slave.writable("orders"))
    assert slave.get("orders").permission == 6, "what an undone drain gives back"


def test_the_mark_of_a_drain_is_no_topic_of_users():
    topics = table(SimulatedDisk())
    drained(topics, Drain.OPEN)
    assert topics.page(0)[0] == []
    with pytest.raises(InvalidRequestError, match="the broker's own"):
        topics.writable(DRAIN_TOPIC)
