"""Topics with a type (RocketMQ's `message.type`) take its messages, and no others."""

from dataclasses import replace

import pytest
from stratamq_commitlog.write.topic_table import TopicConfig, TopicTable

from stratamq.errors import InvalidRequestError
from stratamq.files.simulated import SimulatedClock, SimulatedDisk
from stratamq.formats.json_files import format_json, parse_json
from stratamq.formats.message_status import SendStatus
from stratamq.formats.properties import PRIORITY, decode_properties, encode_properties
from stratamq.formats.topic_types import (
    MessageType,
    numbered_type,
    priority_of,
    queue_of_priority,
    type_of_message,
    types_of,
)
from tests.support.disks import write_file
from tests.support.logs import Store, batch, batch_of, message, raw_batch, raw_frame

PATH = "config/topics.json"
ONE_TYPE = [MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION]
GROUP = {"__SHARDINGKEY": "k"}
SENT = {
    MessageType.NORMAL: [{}, {"properties": {"KEYS": "__SHARDINGKEY"}}],
    MessageType.FIFO: [{"properties": GROUP}],
    MessageType.DELAY: [
        {"delay_level": 1},
        {"delay_level": 1, "properties": GROUP},
        {"properties": {"DELAY": "2"}},
        {"properties": {"TIMER_DELAY_MS": "50"}},
        {"properties": {"TIMER_DELAY_SEC": "5"}},
        {"properties": {"TIMER_DELIVER_MS": "1"}},
    ],
    MessageType.TRANSACTION: [{"half": True}, {"half": True, "properties": GROUP}],
}
"""How each type is sent as fields."""
EACH_SENT = [(kind, fields) for kind, some in SENT.items() for fields in some]


@pytest.fixture
def store() -> Store:
    store = Store(1 << 17)
    store.start()
    return store


def make(store: Store, message_type: MessageType, topic: str = "orders") -> None:
    store.log.topics.put(TopicConfig(topic, message_type=message_type))


@pytest.mark.parametrize(("kind", "fields"), EACH_SENT)
def test_a_topic_of_one_type_takes_its_messages_and_refuses_the_others(store, kind, fields):
    for wanted in ONE_TYPE:
        make(store, wanted)
        end = store.end()
        result = store.put(**fields)
        if wanted is kind:
            assert result.status is SendStatus.PUT_OK
            continue
        assert (result.status, result.physical_offset) == (SendStatus.MESSAGE_ILLEGAL, -1)
        assert isinstance(result.error, InvalidRequestError)
        assert f"orders takes {wanted} messages, and this is of the type {kind}" in str(
            result.error
        )
        assert store.end() == end


@pytest.mark.parametrize("taken", [MessageType.UNSPECIFIED, MessageType.MIXED])
def test_a_topic_without_a_type_or_of_all_takes_everything(store, taken):
    make(store, taken)
    for _, fields in EACH_SENT:
        assert store.put(**fields).status is SendStatus.PUT_OK
    for properties in ({}, GROUP, {"DELAY": "1"}):
        assert store.put_batch(batch([b"x"], properties=properties)).status is SendStatus.PUT_OK


def test_of_a_call_only_what_must_be_stored_together_is_refused_together(store):
    make(store, MessageType.NORMAL)
    messages = [message(b"1"), message(b"2", properties=GROUP), message(b"3")]
    assert [one.status for one in store.put_all(*messages)] == [
        SendStatus.PUT_OK,
        SendStatus.MESSAGE_ILLEGAL,
        SendStatus.PUT_OK,
    ]
    together = store.put_all(*messages, atomic=True)
    assert {one.status for one in together} == {SendStatus.MESSAGE_ILLEGAL}
    assert [frame.body for frame in store.frames()] == [b"1", b"3"]


def frame_with(properties: dict[str, str], topic: str = "orders") -> bytes:
    return raw_frame(
        b"body \x02__SHARDINGKEY\x01k", topic, properties=encode_properties(properties)
    )


@pytest.mark.parametrize("count", [1, 5, 40])
@pytest.mark.parametrize("at", [0, 2, 39])
@pytest.mark.parametrize(
    ("wanted", "good", "bad", "found"),
    [
        (MessageType.NORMAL, {}, GROUP, MessageType.FIFO),
        (MessageType.NORMAL, {"a": "b"}, {"c": "d"} | GROUP, MessageType.FIFO),
        (MessageType.NORMAL, {"a": "DELAY\x012"}, {"DELAY": "1"}, MessageType.DELAY),
        (MessageType.FIFO, {"a": "b"} | GROUP, {"a": "__SHARDINGKEY\x01k"}, MessageType.NORMAL),
        (MessageType.FIFO, GROUP, {"__SHARDINGKEY": ""}, MessageType.NORMAL),
        (MessageType.FIFO, GROUP, GROUP | {"TIMER_DELIVER_MS": "1"}, MessageType.DELAY),
    ],
)
def test_a_ready_frame_of_another_type_refuses_its_batch_and_is_named(
    store, wanted, good, bad, found, count, at
):
    make(store, wanted)
    at = min(at, count - 1)
    frames = [frame_with(good) for _ in range(count)]
    assert store.put_batch(raw_batch(frames)).status is SendStatus.PUT_OK
    end = store.end()
    frames[at] = frame_with(bad)
    result = store.put_batch(raw_batch(frames))
    assert result.status is SendStatus.MESSAGE_ILLEGAL
    assert result.error.fields == {"frame": at, "reason": "message_type"}
    assert f"topic orders takes {wanted} messages, and this is of the type {found}" in str(
        result.error
    )
    assert store.end() == end


@pytest.mark.parametrize("wanted", [MessageType.DELAY, MessageType.TRANSACTION])
def test_a_topic_of_messages_that_wait_takes_no_ready_frames(store, wanted):
    make(store, wanted)
    for properties in ({}, {"DELAY": "1"}, {"TRAN_MSG": "true"}):
        result = store.put_batch(batch([b"x"], properties=properties))
        assert result.status is SendStatus.MESSAGE_ILLEGAL
        assert f"orders takes {wanted} messages" in str(result.error)
    assert store.end() == 0


def test_each_run_of_a_batch_is_held_to_the_type_of_its_own_topic(store):
    make(store, MessageType.FIFO, "ordered")
    make(store, MessageType.NORMAL, "plain")
    runs = [("any", 0, [b"1"] * 3), ("plain", 0, [b"2"] * 2), ("any", 1, [b"3"])]
    assert store.put_batch(batch_of(runs)).status is SendStatus.PUT_OK
    refused = store.put_batch(batch_of([*runs, ("ordered", 0, [b"4"])]))
    assert refused.error.fields["frame"] == 6
    refused = store.put_batch(batch_of(runs, properties=GROUP))
    assert refused.error.fields["frame"] == 3


def test_frames_that_are_none_are_refused_for_that(store):
    make(store, MessageType.FIFO)
    for frame in (raw_frame()[:60], b"\0" * 200, raw_frame(magic=7)):
        assert store.put_batch(raw_batch([frame])).error.fields["reason"] in ("length", "magic")


def test_what_a_service_delivers_is_not_held_to_the_type(store):
    """The copy of a delayed message has its properties, and goes to a topic of delayed ones."""
    make(store, MessageType.DELAY)
    own = replace(batch([b"x"], properties={"DELAY": "1"}), fence=lambda: None)
    assert store.put_batch(own).status is SendStatus.PUT_OK


# --- what is kept ---


def table(disk: SimulatedDisk) -> TopicTable:
    made = TopicTable(disk.files(), SimulatedClock(), auto_create=True, default_queues=4)
    made.load(foreign=True)
    return made


def with_attributes(attributes: object) -> SimulatedDisk:
    disk = SimulatedDisk()
    entry = {"topicName": "orders", "perm": 6, "attributes": attributes}
    write_file(disk.files(), PATH, format_json({"topicConfigTable": {"orders": entry}}))
    return disk


def kept_attributes(disk: SimulatedDisk, topics: TopicTable) -> object:
    topics.save()
    entry = parse_json(disk.durable_contents(PATH))["topicConfigTable"]["orders"]
    return entry.get("attributes")


def test_the_type_is_rocketmqs_attribute_and_its_others_stay():
    disk = with_attributes({"message.type": "FIFO", "cleanup.policy": "DELETE"})
    topics = table(disk)
    found = topics.get("orders")
    assert found.message_type is MessageType.FIFO
    topics.put(replace(found, message_type=MessageType.DELAY))
    assert kept_attributes(disk, topics) == {"message.type": "DELAY", "cleanup.policy": "DELETE"}
    topics.put(replace(found, message_type=MessageType.UNSPECIFIED))
    assert kept_attributes(disk, topics) == {"cleanup.policy": "DELETE"}
    assert table(disk).get("orders").message_type is MessageType.UNSPECIFIED


@pytest.mark.parametrize(
    "attributes", [{"message.type": "LITE"}, {"message.type": ["FIFO"]}, {}, "FIFO", None]
)
def test_a_type_that_is_not_known_here_takes_everything_and_stays_in_the_file(attributes):
    disk = with_attributes(attributes)
    topics = table(disk)
    found = topics.writable("orders")
    assert found.message_type is MessageType.UNSPECIFIED
    topics.put(replace(found, write_queues=3))
    assert kept_attributes(disk, topics) == attributes


def test_a_topic_that_never_had_a_type_has_no_attributes_in_the_file():
    disk = SimulatedDisk()
    topics = table(disk)
    topics.put(TopicConfig("orders"))
    assert kept_attributes(disk, topics) is None


def test_a_slave_has_the_types_of_its_master():
    topics, slave = table(SimulatedDisk()), table(SimulatedDisk())
    topics.put(TopicConfig("orders", message_type=MessageType.TRANSACTION))
    slave.import_json(topics.export_changes()[0], {})
    assert slave.get("orders").message_type is MessageType.TRANSACTION
    topics.put(TopicConfig("orders"))
    slave.import_json(topics.export_changes()[0], {})
    assert slave.get("orders").message_type is MessageType.UNSPECIFIED


def test_a_topic_that_is_made_again_has_the_type_it_is_made_with():
    topics = table(SimulatedDisk())
    topics.put(TopicConfig("orders", message_type=MessageType.FIFO))
    topics.delete("orders", {})
    assert topics.put(TopicConfig("orders")).message_type is MessageType.UNSPECIFIED


# --- the texts of properties ---


def test_columns_of_texts_say_what_the_decoded_properties_say():
    """Each pair of properties, in both orders, with what looks like one in another's value."""
    items = [
        "__SHARDINGKEY",
        "_SYS_MSG_PRIORITY_",
        "DELAY",
        "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC",
        "TIMER_DELIVER_MS",
    ]
    values = ["", "1", "__SHARDINGKEY\x01x", "DELAY\x01x"]
    texts = [
        f"{one}\x01{value}\x02{other}\x01{second}{end}".encode()
        for one in [*items, "a", "xDELAY", "x__SHARDINGKEY"]
        for other in [*items, "a"]
        for value in values
        for second in values
        for end in ("", "\x02")
    ]
    for text in texts:
        assert types_of([text]) == [type_of_message(decode_properties(text))], text
    assert types_of(texts) == [type_of_message(decode_properties(text)) for text in texts]
    assert types_of([]) == []


def test_a_number_that_is_no_type_is_refused():
    assert [numbered_type(one.number) for one in MessageType] == [*MessageType]
    for number in (-1, len(MessageType)):
        with pytest.raises(InvalidRequestError, match="no type"):
            numbered_type(number)


@pytest.mark.parametrize("text", ["", "-1", "high", "1.5", "²", "2147483648", "1" * 4_000])
def test_what_is_no_priority_chooses_no_queue(text):
    assert priority_of({PRIORITY: text}) is None
    assert priority_of({}) is None


def test_a_priority_chooses_its_queue_and_those_beyond_the_last_share_it():
    assert [queue_of_priority(one, 4) for one in (0, 3, 4, 2**31 - 1)] == [0, 3, 3, 3]
    assert priority_of({PRIORITY: "2147483647"}) == 2**31 - 1
