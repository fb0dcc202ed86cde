"""What the codecs read from directories RocketMQ wrote, against RocketMQ's report, by line."""

import hashlib
from collections import defaultdict
from functools import lru_cache
from pathlib import Path

import pytest

from stratamq.formats import frame as frames
from stratamq.formats.checkpoint import decode_checkpoint
from stratamq.formats.compression import decompress_body
from stratamq.formats.delay import dispatch_tags_code
from stratamq.formats.frame import Blank, Frame
from stratamq.formats.frame_check import FrameOutcome, check
from stratamq.formats.hosts import decode_host
from stratamq.formats.index_file import IndexFileView
from stratamq.formats.index_layout import index_key, index_tag_key
from stratamq.formats.json_files import parse_json_object
from stratamq.formats.properties import find_property, split_keys
from stratamq.formats.property_crc import check_property_crc
from stratamq.formats.queue_unit import decode_queue_unit, iter_queue_units
from stratamq.formats.sysflag import (
    TRANSACTION_ROLLBACK,
    is_in_queue,
    transaction_type,
)
from tests.support.fixtures import (
    ALL_STORES,
    CLEAN_STORES,
    expected,
    geometry,
    log_files,
    unpack,
)
from tests.support.index_files import IndexFileBuilder, query_index_files

Placed = tuple[int, bytes, Frame]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    @lru_cache
    def get(name: str) -> Path:
        return unpack(name, tmp_path_factory.mktemp("store"))

    return get


def walk(root: Path) -> tuple[list[tuple[int, Blank | None]], list[Placed]]:
    """Every place of the log in order (with its blank), and the frames, up to the first failure."""
    places: list[tuple[int, Blank | None]] = []
    found: list[Placed] = []
    for start, content in log_files(root):
        position = 0
        while True:
            result = check(content, position)
            if result.outcome is FrameOutcome.BLANK:
                blank = frames.decode(content, position)
                assert isinstance(blank, Blank)
                places.append((start + position, blank))
                assert position + blank.length == len(content)
                break
            if result.outcome is not FrameOutcome.GOOD:
                return places, found
            frame = frames.decode(content, position)
            assert isinstance(frame, Frame)
            raw = content[position : position + result.size]
            places.append((start + position, None))
            found.append((start + position, raw, frame))
            position += result.size
    return places, found


def tags_code_of(frame: Frame) -> int:
    properties = frame.properties
    return dispatch_tags_code(
        frame.topic, properties.get("TAGS"), properties.get("DELAY"), frame.store_timestamp_ms
    )


@pytest.mark.parametrize("name", ALL_STORES)
def test_every_frame_line_is_what_the_codec_reads(stores, name):
    places, found = walk(stores(name))
    # The dump that RocketMQ's answers come from does not look at the last 8 bytes of a file.
    places = [(place, blank) for place, blank in places if blank is None or blank.length > 8]
    lines = list(expected(name, "frame"))
    assert [place for place, _ in places] == [line["phyOffset"] for line in lines]
    blanks = [place for place, blank in places if blank]
    assert blanks == [line["phyOffset"] for line in lines if line["size"] == 0]

    for line, (place, raw, frame) in zip(
        (line for line in lines if line["size"]), found, strict=True
    ):
        properties = frame.properties
        ours = {
            "kind": "frame",
            "phyOffset": place,
            "ok": True,
            "size": frame.total_size,
            "magic": f"{frame.magic:08X}",
            "topic": frame.topic,
            "queueId": frame.queue_id,
            "queueOffset": frame.queue_offset,
            "tagsCode": tags_code_of(frame),
            "storeTimestamp": frame.store_timestamp_ms,
            # RocketMQ has no keys when the property is missing, empty ones without properties.
            "keys": properties.get("KEYS") if frame.properties_raw else "",
            "uniqKey": properties.get("UNIQ_KEY"),
            "sysFlag": frame.sys_flag,
            "preparedTransactionOffset": frame.prepared_transaction_offset,
            "sha256": hashlib.sha256(raw).hexdigest(),
        }
        assert ours == line
        assert frame.physical_offset == place


@pytest.mark.parametrize("name", ALL_STORES)
def test_every_frame_is_encoded_to_the_bytes_it_was_decoded_from(stores, name):
    for _, raw, frame in walk(stores(name))[1]:
        assert frames.encode_frame(frame) == raw


@pytest.mark.parametrize("name", ALL_STORES)
def test_every_message_line_is_what_the_codec_reads(stores, name):
    by_offset = {place: (raw, frame) for place, raw, frame in walk(stores(name))[1]}
    count = 0
    for line in expected(name, "message"):
        raw, frame = by_offset[line["phyOffset"]]
        ours = {
            "frameTopic": frame.topic,
            "frameQueueId": frame.queue_id,
            "queueOffset": frame.queue_offset,
            "phyOffset": frame.physical_offset,
            "size": frame.total_size,
            "storeSize": frame.total_size,
            "sysFlag": frame.sys_flag,
            "flag": frame.flag,
            "bodyCRC": frame.body_crc,
            "bornTimestamp": frame.born_timestamp_ms,
            "bornHost": str(decode_host(frame.born_host)),
            "storeTimestamp": frame.store_timestamp_ms,
            "storeHost": str(decode_host(frame.store_host)),
            "reconsumeTimes": frame.reconsume_times,
            "preparedTransactionOffset": frame.prepared_transaction_offset,
            "bodyLength": len(frame.body),
            "properties": frame.properties,
            "msgId": frame.message_id,
            "frameSha256": hashlib.sha256(raw).hexdigest(),
        }
        if "body" in line:
            ours["body"] = frame.body.hex()
        else:
            ours["bodySha256"] = hashlib.sha256(frame.body).hexdigest()
        assert ours == {key: line[key] for key in ours}
        assert set(line) - set(ours) == {
            "kind",
            "topic",
            "queueId",
            "at",
            "cqPhyOffset",
            "cqSize",
            "tagsCode",
        }
        count += 1
    assert count > 100


@pytest.mark.parametrize("name", CLEAN_STORES)
def test_every_queue_unit_is_at_the_place_in_the_message_line(stores, name):
    root = stores(name)
    unit_bytes = geometry(root).queue_units * 20
    for line in expected(name, "message"):
        queue = root / "consumequeue" / line["topic"] / str(line["queueId"])
        start = line["at"] * 20 // unit_bytes * unit_bytes
        content = (queue / f"{start:020d}").read_bytes()
        unit = decode_queue_unit(content, line["at"] * 20 - start)
        assert (unit.physical_offset, unit.size, unit.tags_code) == (
            line["cqPhyOffset"],
            line["cqSize"],
            line["tagsCode"],
        )


@pytest.mark.parametrize("name", CLEAN_STORES)
def test_queue_units_follow_from_the_log(stores, name):
    root = stores(name)
    from_log = defaultdict(list)
    for place, _, frame in walk(root)[1]:
        if is_in_queue(frame.sys_flag):
            key = (frame.topic, frame.queue_id)
            assert frame.queue_offset == len(from_log[key])
            from_log[key].append((place, frame.total_size, tags_code_of(frame)))
    for (topic, queue_id), units in from_log.items():
        files = sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())
        on_disk = [
            (unit.physical_offset, unit.size, unit.tags_code)
            for file in files
            for unit in iter_queue_units(file.read_bytes())
        ]
        assert on_disk == units


def index_readers(root: Path) -> list[IndexFileView]:
    sizes = geometry(root)
    return [
        IndexFileView(path.read_bytes(), sizes.slots, sizes.items)
        for path in sorted((root / "index").iterdir())
    ]


@pytest.mark.parametrize("name", CLEAN_STORES)
def test_every_index_line_is_the_header_the_codec_reads(stores, name):
    lines = list(expected(name, "index"))
    for line, reader in zip(lines, index_readers(stores(name)), strict=True):
        header = reader.header
        assert (
            header.begin_timestamp_ms,
            header.end_timestamp_ms,
            header.begin_phy_offset,
            header.end_phy_offset,
            header.hash_slot_count,
            header.index_count,
        ) == (
            line["beginTimestamp"],
            line["endTimestamp"],
            line["beginPhyOffset"],
            line["endPhyOffset"],
            line["hashSlotCount"],
            line["indexCount"],
        )


def query_message(readers, by_offset, topic, key, max_num, begin, end) -> list[int]:
    """RocketMQ's `queryMessage` (spec 7.5), over the pure reader."""
    last_query_ms = end
    for _ in range(3):
        offsets = sorted(
            query_index_files(readers, index_key(topic, key), max_num, begin, last_query_ms)
        )
        if not offsets:
            return []
        last_query_ms = by_offset[offsets[0]].store_timestamp_ms
        found = [offset for offset in offsets if offset in by_offset]
        if found or last_query_ms < begin:
            return found
    return []


@pytest.mark.parametrize("name", CLEAN_STORES)
def test_every_query_line_is_the_pure_readers_answer(stores, name):
    root = stores(name)
    by_offset = {place: frame for place, _, frame in walk(root)[1]}
    readers = index_readers(root)
    count = 0
    for line in expected(name, "query"):
        ours = query_message(
            readers,
            by_offset,
            line["topic"],
            line["key"],
            line["maxNum"],
            line["begin"],
            line["end"],
        )
        assert ours == line["phyOffsets"], line
        # RocketMQ reports the end of the index only beside a result.
        last_offset = readers[-1].header.end_phy_offset if ours else 0
        assert last_offset == line["indexLastPhyOffset"]
        count += 1
    assert count > 100


@pytest.mark.parametrize("name", CLEAN_STORES)
def test_the_builder_makes_rocketmqs_index_files_byte_for_byte(stores, name):
    root = stores(name)
    sizes = geometry(root)
    built = [IndexFileBuilder.create(sizes.slots, sizes.items)]
    for place, _, frame in walk(root)[1]:
        if transaction_type(frame.sys_flag) == TRANSACTION_ROLLBACK:
            continue
        properties = frame.properties
        texts = [index_key(frame.topic, properties["UNIQ_KEY"])] if "UNIQ_KEY" in properties else []
        texts += [index_key(frame.topic, key) for key in split_keys(properties.get("KEYS", ""))]
        if name.startswith("5.5") and properties.get("TAGS"):
            texts.append(index_tag_key(frame.topic, properties["TAGS"]))
        for text in texts:
            if not built[-1].put(text, place, frame.store_timestamp_ms):
                last = built[-1].reader.header
                built.append(
                    IndexFileBuilder.create(
                        sizes.slots, sizes.items, last.end_phy_offset, last.end_timestamp_ms
                    )
                )
                assert built[-1].put(text, place, frame.store_timestamp_ms)
    on_disk = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    assert [bytes(builder.buffer) for builder in built] == on_disk


@pytest.mark.parametrize("name", ALL_STORES)
def test_only_the_right_geometry_fits_the_items(stores, name):
    root = stores(name)
    sizes = geometry(root)
    for path in (root / "index").iterdir():
        content = path.read_bytes()
        reader = IndexFileView(content, sizes.slots, sizes.items)
        assert reader.has_geometry_of_its_items()
        for slots, items in (
            (sizes.slots + 5, sizes.items - 1),
            (sizes.slots - 5, sizes.items + 1),
        ):
            assert not IndexFileView(content, slots, items).has_geometry_of_its_items()


def test_property_checksums_hold_in_the_store_that_has_them(stores):
    for _, raw, _ in walk(stores("5.5.1-ipv6-v2-crc"))[1]:
        assert check_property_crc(raw) is True
    for _, raw, _ in walk(stores("4.9.8-small-clean"))[1]:
        assert check_property_crc(raw) is None


@pytest.mark.parametrize("name", ALL_STORES)
def test_compressed_bodies_of_every_kind_decompress(stores, name):
    compressed = [frame for _, _, frame in walk(stores(name))[1] if frame.sys_flag & 1]
    assert compressed
    for frame in compressed:
        assert len(decompress_body(frame.body, frame.sys_flag)) >= len(frame.body)


@pytest.mark.parametrize("name", ALL_STORES)
def test_properties_found_in_the_bytes_are_those_decoded(stores, name):
    for _, _, frame in walk(stores(name))[1]:
        decoded = frame.properties
        for wanted in ("KEYS", "TAGS", "UNIQ_KEY", "DELAY", "WAIT", "CLUSTER", "EY"):
            raw = find_property(frame.properties_raw, wanted.encode())
            text = None if raw is None else raw.decode("utf-8", "replace")
            assert text == decoded.get(wanted)


@pytest.mark.parametrize("name", CLEAN_STORES)
def test_checkpoints_cover_no_more_than_the_log(stores, name):
    root = stores(name)
    checkpoint = decode_checkpoint((root / "checkpoint").read_bytes())
    newest = max(frame.store_timestamp_ms for _, _, frame in walk(root)[1])
    assert 0 <= checkpoint.physic_msg_timestamp_ms <= newest
    assert 0 < checkpoint.logics_msg_timestamp_ms <= newest
    assert checkpoint.min_timestamp_ms <= newest


def test_the_tear_in_the_crash_leaves_a_frame_that_rocketmq_takes_as_good(stores):
    last = walk(stores("4.9.8-crash"))[1][-1][2]
    assert last.topic == "batched"
    assert b"\0" in last.properties_raw


@pytest.mark.parametrize("name", ALL_STORES)
def test_configuration_files_are_read(stores, name):
    for path in stores(name).glob("config/*.json"):
        assert parse_json_object(path.read_bytes())
