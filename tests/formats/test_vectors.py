"""The golden vectors, entry by entry."""

import pytest

from stratamq.formats import frame as frames
from stratamq.formats import sysflag
from stratamq.formats.checkpoint import decode_checkpoint, encode_checkpoint
from stratamq.formats.crc import crc32_31, reference_crc32_31
from stratamq.formats.delay import dispatch_tags_code
from stratamq.formats.file_names import offset_name, parse_offset_name
from stratamq.formats.frame import Blank, Frame
from stratamq.formats.frame_check import CheckResult, FrameOutcome, check
from stratamq.formats.frame_layout import MAGIC_V1, MAGIC_V2, fits
from stratamq.formats.hosts import Host, decode_host, encode_host
from stratamq.formats.index_file import IndexFileView
from stratamq.formats.javahash import (
    index_key_hash,
    java_string_hash,
    java_string_hash_utf8,
    tags_code,
)
from stratamq.formats.message_id import decode_message_id
from stratamq.formats.properties import (
    decode_properties,
    encode_properties,
    find_property,
)
from stratamq.formats.queue_unit import (
    PRE_BLANK,
    decode_queue_unit,
    encode_queue_unit,
    extension_offset,
    is_extension_address,
)
from stratamq.formats.transaction_state import STATES, iter_states
from tests.support.fixtures import vectors
from tests.support.index_files import IndexFileBuilder

VECTORS = vectors()


def raw(name: str, key: str = "hex") -> bytes:
    return bytes.fromhex(VECTORS[name][key])


@pytest.mark.parametrize("name", ["message_v1_ipv4", "message_v1_ipv6"])
def test_v1_frames_have_the_golden_fields(name):
    wanted = VECTORS[name]["expected"]
    frame = frames.decode(raw(name))
    assert isinstance(frame, Frame)
    assert frame.total_size == wanted["totalSize"]
    assert frame.magic == MAGIC_V1
    assert frame.body_crc == wanted.get("bodyCRC", 0)
    assert frame.queue_id == wanted["queueId"]
    assert frame.flag == wanted["flag"]
    assert frame.queue_offset == wanted["queueOffset"]
    assert frame.physical_offset == wanted["physicalOffset"]
    assert frame.sys_flag == wanted.get("sysFlagOnDisk", wanted["sysFlag"])
    assert frame.born_timestamp_ms == wanted["bornTimestamp"]
    assert frame.store_timestamp_ms == wanted["storeTimestamp"]
    assert frame.reconsume_times == wanted["reconsumeTimes"]
    assert frame.prepared_transaction_offset == wanted["preparedTransactionOffset"]
    assert frame.body.hex() == wanted["body"]
    assert frame.topic == wanted["topic"]
    assert frame.properties_raw.decode() == wanted["properties"]
    assert frame.message_id == wanted["offsetMsgId"]
    assert frame.born_host == encode_host(Host(*wanted["bornHost"]))
    assert frame.store_host == encode_host(Host(*wanted["storeHost"]))
    assert decode_message_id(wanted["offsetMsgId"]) == (frame.store_host, frame.physical_offset)
    assert frames.encode_frame(frame) == raw(name)
    if "tagsCode" in wanted:
        assert tags_code(frame.properties["TAGS"]) == wanted["tagsCode"]
        assert frame.properties["KEYS"].split(" ") == wanted["keys"]


def test_host_bits_of_sysflag_follow_from_the_hosts():
    wanted = VECTORS["message_v1_ipv6"]["expected"]
    assert frames.encode(
        topic=b"TopicTest",
        body=b"",
        queue_id=3,
        sys_flag=0,
        born_timestamp_ms=wanted["bornTimestamp"],
        born_host=encode_host(Host(*wanted["bornHost"])),
        store_timestamp_ms=wanted["storeTimestamp"],
        store_host=encode_host(Host(*wanted["storeHost"])),
    ) == raw("message_v1_ipv6")


def test_v2_frame_has_a_topic_of_130_bytes():
    frame = frames.decode(raw("message_v2_topic130"))
    assert (frame.magic, frame.topic) == (MAGIC_V2, "T" * 130)
    assert frames.magic_for_topic(frame.topic) == MAGIC_V2
    assert frames.encode_frame(frame) == raw("message_v2_topic130")


def test_blank_holds_how_much_of_the_file_remains():
    assert frames.decode(raw("blank_remaining_100")) == Blank(100)
    assert check(raw("blank_remaining_100")) == CheckResult(FrameOutcome.BLANK, 100)
    assert frames.encode_blank(100) == raw("blank_remaining_100")


@pytest.mark.parametrize("case", VECTORS["roll_rule"])
def test_roll_rule(case):
    remaining = case["fileSize"] - case["wrotePosition"]
    assert fits(case["msgLen"], remaining) == case["result"].startswith("fits")


def test_sysflag_bits():
    wanted = VECTORS["sysflag"]
    assert wanted["compressed"] == sysflag.COMPRESSED
    assert wanted["multiTags"] == sysflag.MULTI_TAGS
    assert wanted["prepared"] == sysflag.TRANSACTION_PREPARED
    assert wanted["commit"] == sysflag.TRANSACTION_COMMIT
    assert wanted["rollback"] == sysflag.TRANSACTION_ROLLBACK
    assert wanted["bornV6"] == sysflag.BORN_HOST_V6
    assert wanted["storeV6"] == sysflag.STORE_HOST_V6
    assert wanted["needUnwrap_5x"] == sysflag.NEED_UNWRAP
    assert wanted["innerBatch_5x"] == sysflag.INNER_BATCH
    assert wanted["compressionTypeMask_5x"] == sysflag.COMPRESSION_MASK
    for kind in sysflag.Compression:
        assert kind << sysflag.COMPRESSION_SHIFT == wanted[kind.name.lower()]


@pytest.mark.parametrize("name", ["cq_unit", "cq_unit_negative_tag", "cq_pre_blank_unit"])
def test_queue_units(name):
    wanted = VECTORS[name]["expected"]
    unit = decode_queue_unit(raw(name))
    fields = (unit.physical_offset, unit.size, unit.tags_code)
    assert fields == (wanted["commitLogOffset"], wanted["size"], wanted["tagsCode"])
    assert encode_queue_unit(*fields) == raw(name)
    assert unit.is_valid
    assert unit.is_pre_blank == (raw(name) == PRE_BLANK)
    if "tag" in VECTORS[name]:
        assert tags_code(VECTORS[name]["tag"]) == unit.tags_code


def test_delay_unit_carries_the_deliver_time():
    frame = frames.decode(raw("delayed_message"))
    wanted = VECTORS["delayed_message"]["expected"]
    assert frame.topic == wanted["topic"]
    assert frame.queue_id == wanted["queueId"]
    assert frame.properties == wanted["properties"]
    code = dispatch_tags_code(
        frame.topic, None, frame.properties["DELAY"], frame.store_timestamp_ms
    )
    assert code == wanted["tagsCode"] == decode_queue_unit(raw("cq_delay_unit")).tags_code


@pytest.mark.parametrize("text", VECTORS["java_hash"])
def test_java_string_hash(text):
    wanted = VECTORS["java_hash"][text]
    assert java_string_hash(text) == wanted["hashCode"]
    assert java_string_hash_utf8(text.encode()) == wanted["hashCode"]
    assert index_key_hash(text) == wanted["indexHash"]


def test_tag_key_of_5_4_has_the_golden_hash():
    for text, wanted in VECTORS["index_tag_item_5_4"].items():
        assert index_key_hash(text) == wanted["indexHash"]


@pytest.mark.parametrize("text", VECTORS["body_crc"])
def test_body_crc(text):
    assert crc32_31(text.encode()) == VECTORS["body_crc"][text]
    assert reference_crc32_31(text.encode()) == VECTORS["body_crc"][text]


def test_index_file_of_5_slots_and_6_items_is_built_and_read():
    vector = VECTORS["index_file_5slots_6items"]
    wanted = vector["expected"]
    builder = IndexFileBuilder.create(5, 6)
    for put in vector["puts"]:
        assert builder.put(*put)
    assert builder.is_full
    assert not builder.put("TopicTest#more", 5000, 1500000009999)
    assert bytes(builder.buffer).hex() == vector["hex"]

    reader = IndexFileView(raw("index_file_5slots_6items"), 5, 6)
    assert [reader.slot(slot) for slot in range(5)] == wanted["slots"]
    assert [
        {
            "n": item.number,
            "keyHash": item.key_hash,
            "phyOffset": item.physical_offset,
            "timeDiffSeconds": item.time_diff_seconds,
            "prev": item.previous,
        }
        for item in reader
    ] == wanted["items"]
    assert reader.header.hash_slot_count == wanted["header"]["hashSlotCount"]
    assert reader.header.index_count == wanted["header"]["indexCount"]
    query = wanted["query_order1"]
    found = reader.query(query["key"], 64, query["begin"], query["end"])
    assert found == query["phyOffsetsNewestFirst"]


def test_first_item_after_a_rollover_is_skewed_as_in_rocketmq():
    vector = VECTORS["index_file_rollover"]
    builder = IndexFileBuilder.create(5, 6, 4096, 1500000009123)
    assert bytes(builder.buffer[:40]).hex() == vector["headerAfterCreate"]
    assert builder.put("TopicTest#new", 5000, vector["expected"]["beginTimestamp"])
    assert bytes(builder.buffer[:40]).hex() == vector["headerAfterFirstPut"]
    item = builder.reader.item(1)
    assert item.time_diff_seconds == vector["expected"]["timeDiffSeconds"]
    shown = builder.reader.header.begin_timestamp_ms + item.time_diff_seconds * 1000
    late = shown - vector["expected"]["beginTimestamp"]
    assert late == 10_000


def test_checkpoints_of_4_and_5():
    wanted = VECTORS["checkpoint"]["expected"]
    checkpoint = decode_checkpoint(raw("checkpoint", "hexFirst40").ljust(4096, b"\0"))
    assert checkpoint.physic_msg_timestamp_ms == wanted["physicMsgTimestamp"]
    assert checkpoint.logics_msg_timestamp_ms == wanted["logicsMsgTimestamp"]
    assert checkpoint.index_msg_timestamp_ms == wanted["indexMsgTimestamp"]
    assert checkpoint.min_timestamp_ms == wanted["minTimestamp"]
    assert checkpoint.min_timestamp_index_ms == wanted["minTimestampIndex"]
    for name in ("checkpoint", "checkpoint_5x"):
        content = raw(name, "hexFirst40").ljust(VECTORS["checkpoint"]["fileLength"], b"\0")
        assert encode_checkpoint(decode_checkpoint(content)) == content
    newer = decode_checkpoint(raw("checkpoint_5x", "hexFirst40").ljust(4096, b"\0"))
    assert newer.master_flushed_offset == 777
    assert newer.confirm_phy_offset == 888


def test_addresses_of_extensions_are_below_every_tag_code():
    for offset in (0, 100):
        address = VECTORS["cq_ext_unit"][f"addressOfOffset{offset}"]
        assert is_extension_address(address)
        assert extension_offset(address) == offset
    assert not is_extension_address(-(2**31))
    assert is_extension_address(-(2**31) - 1)


def test_properties_are_read_with_and_without_a_trailing_separator():
    vector = VECTORS["properties"]
    for version in ("v4_9_3", "v4_9_0_and_5_2"):
        assert decode_properties(bytes.fromhex(vector[version])) == vector["decoded"]
        assert find_property(bytes.fromhex(vector[version]), b"TAGS") == b"T"
    assert encode_properties(vector["decoded"]).hex() == vector["v4_9_3"]


@pytest.mark.parametrize("text", ["6b01", "0176", "6b76"])
def test_useless_property_items_are_dropped(text):
    item = bytes.fromhex(text)
    assert decode_properties(item + b"\x02a\x01b") == {"a": "b"}


def test_file_names():
    for offset, name in VECTORS["file_names"].items():
        assert offset_name(int(offset)) == name
        assert parse_offset_name(name) == int(offset)


def test_ipv6_hosts_are_shown_in_eight_groups():
    host = decode_host(encode_host(Host("2001:db8::1", 50000)))
    assert str(host) == "2001:db8:0:0:0:0:0:1|50000"
    assert str(decode_host(encode_host(Host("::ffff:10.0.0.1", 1)))) == "10.0.0.1|1"


def test_a_unit_of_the_state_table_of_transactions():
    unit, expected = raw("tran_statetable_unit_31"), VECTORS["tran_statetable_unit_31"]["expected"]
    one, two = iter_states(unit * 2 + bytes(48) + unit)
    assert one == two and STATES[one.state] == "prepared"
    assert one.physical_offset == expected["clOffset"] and one.size == expected["size"]
    assert one.store_time_s == expected["timestampSeconds"]
    assert one.group_hash == expected["producerGroupHash"]


@pytest.mark.parametrize("place, value", [(0, b"\xff"), (8, b"\xff"), (23, b"\x05"), (23, b"\0")])
def test_what_is_no_state_ends_the_table(place, value):
    unit = bytearray(raw("tran_statetable_unit_31"))
    unit[place : place + 1] = value
    assert list(iter_states(bytes(unit))) == []
    assert list(iter_states(raw("tran_statetable_unit_31")[:-1])) == []
