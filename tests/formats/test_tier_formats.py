"""The tiered store's bytes: names, metadata, records and index files, by the golden vectors."""

import json
import tarfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.errors import CorruptRecordError
from stratamq.formats import frame as frames
from stratamq.formats import tier_index as index
from stratamq.formats.frame_verify import damage_in
from stratamq.formats.properties import encode_properties
from stratamq.formats.property_crc import fill_property_crc, reserve
from stratamq.formats.queue_unit import encode_queue_unit
from stratamq.formats.tier_metadata import (
    NO_TIME,
    SegmentRecord,
    TierMetadata,
    TopicRecord,
    format_tier_metadata,
    parse_tier_metadata,
)
from stratamq.formats.tier_names import (
    SegmentType,
    cluster_folder,
    index_path,
    parse_segment_name,
    queue_path,
    segment_name,
    segment_path,
)
from stratamq.formats.tier_records import physical_offset_of, place_records
from tests.support.fixtures import ALL_TIERS, TIERS, tier_vectors

VECTORS = tier_vectors()


@pytest.mark.parametrize(("base", "name"), VECTORS["segment_names"].items())
def test_a_segment_is_named_by_its_base_and_a_hash_of_it(base, name):
    assert segment_name(int(base)) == name
    assert parse_segment_name(name) == int(base)


@pytest.mark.parametrize(
    "name", ["", "00000000", "cfcd208400000000000000000001", "x" * 28, "cfcd2084" + "٠" * 20]
)
def test_another_name_is_no_segments(name):
    assert parse_segment_name(name) is None


@pytest.mark.parametrize(("cluster", "folder"), VECTORS["cluster_prefix"].items())
def test_a_cluster_has_a_folder_with_a_hash(cluster, folder):
    assert cluster_folder(cluster) == folder


def test_a_segments_path_keeps_the_topics_name_as_it_is():
    path = queue_path("broker-a", "%RETRY%billing", 0)
    assert segment_path("DefaultCluster", path, SegmentType.CONSUME_QUEUE, 0) == (
        "212d6b50_DefaultCluster/broker-a/%RETRY%billing/0/CONSUME_QUEUE/"
        "cfcd208400000000000000000000"
    )
    assert index_path("broker-a") == "broker-a/rmq_sys_INDEX/0"


@pytest.mark.parametrize("unit", VECTORS["cq_unit"])
def test_a_unit_of_the_tier_is_a_unit_of_a_queue(unit):
    assert (
        encode_queue_unit(unit["commitlog_offset"], unit["size"], unit["tags_code"]).hex()
        == unit["hex"]
    )


def _metadata_of(name: str) -> bytes:
    with tarfile.open(TIERS / f"{name}.tar.gz") as archive:
        member = archive.extractfile(f"{name}/local/config/tieredStoreMetadata.json")
        assert member is not None
        return member.read()


@pytest.mark.parametrize("name", ALL_TIERS)
def test_rocketmqs_metadata_comes_back_with_every_line(name):
    raw = _metadata_of(name)
    ours = format_tier_metadata(parse_tier_metadata(raw))
    assert len(ours) == len(raw)  # maps are in hash order there
    assert parse_tier_metadata(ours) == parse_tier_metadata(raw)


def test_metadata_in_rocketmqs_order_is_written_byte_for_byte():
    raw = _metadata_of("torn-queue")
    assert format_tier_metadata(parse_tier_metadata(raw)) == raw


def test_metadata_is_read_with_quoted_keys_without_white_space_and_with_unknown_fields():
    raw = (
        b'{"topicSerialNumber":4,"new":1,"commitLogFileSegmentTable":{"b\\\\t\\\\3":{"100":'
        b'{"size":7,"more":{}},"20":{"size":80}}}}'
    )
    metadata = parse_tier_metadata(raw)
    assert metadata.topic_serial_number == 4
    assert [
        (segment.base, segment.size, segment.end_ms)
        for segment in metadata.of(SegmentType.COMMIT_LOG, "b/t/3")
    ] == [(20, 80, NO_TIME), (100, 7, NO_TIME)]


def test_an_empty_object_is_an_empty_tier():
    assert parse_tier_metadata(b"{}") == TierMetadata()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{",
        b'{"topicSerialNumber":"a"}',
        b'{"topicMetadataTable":[]}',
        b'{"topicMetadataTable":{"a":1}}',
        b'{"queueMetadataTable":{"a":{"x":{}}}}',
        b'{"commitLogFileSegmentTable":{"a":{"-1":{}}}}',
        b'{"commitLogFileSegmentTable":{"a":{"1":{"size":-3}}}}',
    ],
)
def test_what_is_no_metadata_is_refused(raw):
    with pytest.raises(CorruptRecordError):
        parse_tier_metadata(raw)


@given(st.text(), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_metadata_with_any_topic_comes_back(topic, base, size):
    topic = topic.encode("utf-8", "replace").decode()
    metadata = TierMetadata(3, {topic: TopicRecord(1, topic, reserve_hours=5)})
    record = SegmentRecord(f"b/{topic}/0".replace("\\", "/"), SegmentType.INDEX, base, size)
    metadata.segments[SegmentType.INDEX][record.path] = [record]
    assert parse_tier_metadata(format_tier_metadata(metadata)) == metadata
    json.loads(format_tier_metadata(TierMetadata(1, {topic: TopicRecord(1, topic)})))


CASE = VECTORS["index_case"]


def _items_of_the_case() -> index.Items:
    items = np.zeros(len(CASE["puts"]), index.ITEM)
    for row, put in enumerate(CASE["puts"]):
        items[row] = (
            index.hashes_of_key(put["topic"], put["key"])[0],
            put["topicId"],
            put["queueId"],
            put["offset"],
            put["size"],
            int((put["storeTimestamp"] - CASE["begin_timestamp"]) / 1000),
        )
    return items


def test_an_uploaded_index_file_is_rocketmqs_byte_for_byte():
    end = max(put["storeTimestamp"] for put in CASE["puts"])
    ours = index.encode_uploaded(_items_of_the_case(), CASE["slots"], CASE["begin_timestamp"], end)
    assert ours.hex() == CASE["compacted_hex"]


def test_a_written_index_file_has_the_items_that_were_put():
    file = bytes.fromhex(CASE["unsealed_first_292_bytes_hex"]).ljust(CASE["unsealed_len"], b"\0")
    assert index.open_items(file, CASE["slots"]).tolist() == _items_of_the_case().tolist()


def test_an_uploaded_file_names_its_own_number_of_slots():
    file = bytes.fromhex(CASE["compacted_hex"])
    assert index.slot_count(file[28:36]) == CASE["slots"]
    wanted = index.newest_first_by_slot(_items_of_the_case(), CASE["slots"])
    assert index.uploaded_items(file).tolist() == wanted.tolist()


@pytest.mark.parametrize("content", [b"", bytes(20), bytes(28)])
def test_an_index_file_with_no_more_than_a_header_has_no_items(content):
    assert len(index.uploaded_items(content)) == 0


def test_items_whose_page_never_reached_the_disk_are_left_out():
    file = bytearray.fromhex(CASE["unsealed_first_292_bytes_hex"]).ljust(708, b"\0")
    third = 28 + 8 * 5 + 32 * 3
    file[third : third + 32] = bytes(32)
    kept = index.open_items(bytes(file), 5)["offset"].tolist()
    assert kept == [1000, 1100, 1300, 1400, 1500]


@pytest.mark.parametrize(
    ("text", "code"),
    [(text, code) for text, code in VECTORS["java_hash"].items() if "#" in text and code >= 0],
)
def test_a_key_is_looked_for_by_its_java_hash(text, code):
    topic, key = text.split("#")
    assert code in index.hashes_of_key(topic, key)


def test_a_key_without_a_positive_hash_is_stored_and_found_as_zero():
    case = VECTORS["hash_min_key"]
    assert index.hashes_of_key(case["topic"], case["key"]) == (0,)


def test_a_negative_hash_is_looked_for_as_both_releases_write_it():
    topic, key = (
        "orders",
        next(key for key in map(str, range(99)) if len(index.hashes_of_key("orders", key)) == 2),
    )
    first, masked = index.hashes_of_key(topic, key)
    assert first == (1 << 31) - masked


def test_an_item_is_found_by_every_time_of_its_second():
    case = VECTORS["index_query_case"]
    items = np.zeros(3, index.ITEM)
    for row, (offset, time) in enumerate(case["item_offsets_and_times"]):
        items[row] = (7, 0, 0, offset, 1, int(time / 1000))
    begin = case["file_begin"]

    def found(first: int, last: int) -> list[int]:
        span = (begin + first, begin + last)
        return index.matching(items, (7,), begin, span)["offset"].tolist()

    for offset, time in case["item_offsets_and_times"]:
        assert offset in found(time, time)
    for first, last, answer in case["original_answers"]:
        assert set(answer) <= set(found(first, last))
    assert found(10_000, 20_000) == []


def _record(number: int, checksum: bool) -> bytes:
    properties = encode_properties({"KEYS": f"k{number}", "UNIQ_KEY": "u"})
    record = bytearray(
        frames.encode(
            topic=b"orders",
            body=b"x" * (number * 7 % 40),
            born_host=bytes(20 if number % 3 == 0 else 8),
            store_host=bytes(8),
            properties=reserve(properties) if checksum else properties,
            queue_offset=500 + number,
            physical_offset=0x1122334455667788,
            store_timestamp_ms=9_000 + number,
        )
    )
    if checksum:
        fill_property_crc(record)
    return bytes(record)


@given(st.lists(st.booleans(), max_size=12), st.integers(0, 1 << 50))
def test_records_get_their_place_and_a_checksum_that_holds(checksums, base):
    originals = [_record(number, checksum) for number, checksum in enumerate(checksums)]
    sizes = np.array([len(record) for record in originals], np.int64)
    starts = np.cumsum(sizes) - sizes
    buffer = bytearray(b"".join(originals))
    place_records(buffer, starts, sizes, base)
    for original, start, size, sealed in zip(originals, starts, sizes, checksums, strict=True):
        placed = bytes(buffer[start : start + size])
        assert physical_offset_of(placed) == base + start
        assert damage_in(placed, sealed=sealed) == ""
        kept = size - 20 if sealed else size
        assert placed[:28] == original[:28]
        assert placed[36:kept] == original[36:kept]


def test_the_vectors_records_get_the_offsets_of_their_tier_file():
    case = VECTORS["commitlog_case"]
    size = case["message_len"]
    count = case["messages"]
    buffer = bytearray(size * count)
    starts = np.arange(count, dtype=np.int64) * size
    place_records(buffer, starts, np.full(count, size, np.int64), 0)
    places = [physical_offset_of(buffer[start : start + size]) for start in starts.tolist()]
    assert places == case["expected_phys_offsets"]


@pytest.mark.parametrize("place", [8, 90, -25, -8])
def test_a_damaged_record_stays_damaged_at_its_new_place(place):
    good = _record(1, checksum=True)
    bad = bytearray(good)
    bad[place] ^= 1
    both = bytearray(good + bytes(bad))
    size = len(good)
    place_records(both, np.array([0, size]), np.array([size, size]), 5_000)
    assert damage_in(both[:size], sealed=True) == ""
    assert damage_in(both[size:], sealed=True) == "record_crc"
