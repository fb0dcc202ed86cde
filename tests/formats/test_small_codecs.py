"""The small codecs: hashes, text, properties, hosts, ids, batches, units, names, JSON, bodies."""

import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from stratamq.errors import CorruptRecordError, InvalidRequestError
from stratamq.formats import delay
from stratamq.formats.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from stratamq.formats.compression import decompress_body
from stratamq.formats.crc import crc32_31, reference_crc32_31
from stratamq.formats.file_names import (
    index_name,
    next_index_name,
    offset_name,
    parse_index_name,
    parse_offset_name,
)
from stratamq.formats.hosts import Host, decode_host, encode_host
from stratamq.formats.javahash import index_key_hash, java_string_hash, java_string_hash_utf8
from stratamq.formats.json_files import format_json, parse_json, parse_json_object
from stratamq.formats.message_id import decode_message_id, encode_message_id
from stratamq.formats.properties import (
    decode_properties,
    encode_properties,
    find_property,
    split_keys,
    waits_for_store,
)
from stratamq.formats.queue_unit import (
    PRE_BLANK,
    decode_queue_unit,
    encode_queue_unit,
    iter_queue_units,
    queue_file_bytes,
)
from stratamq.formats.sysflag import Compression, compression_of, is_in_queue
from stratamq.formats.text import decode_text, encode_text, utf16_length
from stratamq.formats.topics import is_system_topic, validate_topic_name
from tests.formats import strategies
from tests.support.compressing import compress_body
from tests.support.patience import patient


def java_hash_by_the_definition(text: str) -> int:
    raw = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(raw[::2], raw[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) % 2**32
    return code - 2**32 if code >= 2**31 else code


@given(st.text())
def test_hash_is_javas_over_utf16_units(text):
    assert java_string_hash(text) == java_hash_by_the_definition(text)
    assert java_string_hash_utf8(text.encode()) == java_string_hash(text)
    assert 0 <= index_key_hash(text) < 2**31


def test_characters_beyond_the_first_plane_count_as_two_units():
    assert java_string_hash("😀") == 31 * 0xD83D + 0xDE00
    assert utf16_length("a😀") == 3


@given(st.binary(max_size=500))
def test_isal_computes_what_crcmod_defines(data):
    assert crc32_31(data) == reference_crc32_31(data) < 2**31


@given(st.binary(max_size=60))
def test_any_bytes_decode_to_text_that_ends_where_separators_are(raw):
    text = decode_text(raw)
    assert [decode_text(piece) for piece in raw.split(b"\x02")] == text.split("\x02")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\xed\xa0\x80x", "\ufffdx"),  # a surrogate in three bytes: one character in Java
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xc3", "\ufffd"),
        (b"\xe4\xb8", "\ufffd"),
        (b"\xe0\x80\x80", "\ufffd\ufffd\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xf0\x90A", "\ufffdA"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_malformed_text_is_replaced_as_java_does(raw, text):
    assert decode_text(raw) == text


def test_a_lone_surrogate_is_written_as_a_question_mark():
    assert encode_text("a\ud800b") == b"a?b"


# --- properties


@given(st.dictionaries(strategies.names, strategies.values, max_size=6))
def test_properties_come_back_but_for_empty_values(properties):
    raw = encode_properties(properties)
    kept = {name: value for name, value in properties.items() if value}
    assert decode_properties(raw) == kept
    assert decode_properties(raw + b"\x02") == kept


PIECES = st.sampled_from(
    [b"KEYS", b"KEY", b"S", b"a", b"\x01", b"\x01", b"\x02", b"\x02", b"\x00", b"\x03", b"\xc3\xa9"]
)


@given(st.lists(PIECES, max_size=12).map(b"".join), st.sampled_from([b"a", b"KEYS"]))
@patient(400)
def test_a_property_found_is_the_one_decoded_whatever_names_and_separators_do(raw, name):
    found = find_property(raw, name)
    decoded = decode_properties(raw).get(name.decode())
    assert decoded == (None if found is None else decode_text(found))


@pytest.mark.parametrize(
    ("raw", "decoded"),
    [
        (b"", {}),
        (b"a\x01b\x02a\x01c", {"a": "c"}),
        (b"a\x01b\x02a\x01", {"a": "b"}),
        (b"a\x01b\x01c", {"a": "b\x01c"}),
        (b"a\x01\x01", {"a": "\x01"}),
        (b"\x01\x01\x01", {}),
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
        (b"ba\x01x", {"ba": "x"}),
        (b"b\x01a\x01x", {"b": "a\x01x"}),
        (b"b\x01\x00a\x01x", {"b": "\x00a\x01x"}),
        (b"b\x01x\x02\x01a\x01y", {"b": "x"}),
    ],
)
def test_property_text_is_read_as_rocketmq_reads_it(raw, decoded):
    assert decode_properties(raw) == decoded
    found = find_property(raw, b"a")
    assert (found.decode() if found else None) == decoded.get("a")


def test_nothing_is_written_that_would_come_back_otherwise():
    assert encode_properties({"a": None, "b": "1"}) == b"b\x011"
    for bad in ({"": "x"}, {"a\x01b": "x"}, {"a\x02": "x"}, {"a": "x\x02y"}):
        with pytest.raises(InvalidRequestError):
            encode_properties(bad)


def test_keys_are_split_at_single_spaces_and_empty_ones_dropped():
    assert split_keys(" a  b c ") == ["a", "b", "c"]


def test_wait_is_true_by_default_and_false_for_any_other_text():
    assert [waits_for_store(text) for text in (None, "true", "TRUE", "false", "", "1")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


# --- hosts, ids, topics


@given(strategies.hosts)
def test_hosts_come_back(raw):
    if raw[:12] == b"\0" * 10 + b"\xff\xff" and len(raw) == 20:
        return
    assert encode_host(decode_host(raw)) == raw


def test_bad_hosts_are_refused():
    for host in (Host("localhost", 1), Host("1.2.3", 1), Host("1.2.3.4", 2**31)):
        with pytest.raises(InvalidRequestError):
            encode_host(host)
    with pytest.raises(CorruptRecordError):
        decode_host(b"123")


@given(strategies.hosts, strategies.i64)
def test_message_ids_come_back(host, offset):
    assert decode_message_id(encode_message_id(host, offset)) == (host, offset)
    assert decode_message_id(encode_message_id(host, offset).lower()) == (host, offset)


@pytest.mark.parametrize("text", ["", "0A", "x" * 32, "0" * 31 + " ", "0" * 33, "é" * 32])
def test_what_is_no_message_id_is_refused(text):
    with pytest.raises(InvalidRequestError):
        decode_message_id(text)


def test_topic_names_are_names_of_directories():
    for name in ("a", "%RETRY%group", "a|b_c-d", "t" * 127):
        assert validate_topic_name(name) == name
    for name in ("", ".", "..", "a/b", "a b", "t" * 128, "é", "a\n"):
        with pytest.raises(InvalidRequestError):
            validate_topic_name(name)
    assert is_system_topic("SCHEDULE_TOPIC_XXXX")
    assert not is_system_topic("orders")


# --- delay


def test_delay_levels_are_clamped_to_the_highest():
    levels = delay.DEFAULT_DELAY_LEVELS_MS
    assert (len(levels), levels[0], levels[17]) == (18, 1000, 7_200_000)
    assert delay.deliver_timestamp(0, 5) is None
    assert delay.deliver_timestamp(-1, 5) is None
    assert delay.deliver_timestamp(3, 5) == 10_005
    assert delay.deliver_timestamp(99, 5) == 7_200_005
    assert delay.deliver_timestamp(1, 5, ()) is None


def test_a_bad_delay_level_is_named():
    assert delay.parse_delay_levels("2d") == (172_800_000,)
    for text in ("", "1s  2s", "1x", "s", "1 s", "-1s"):
        with pytest.raises(InvalidRequestError):
            delay.parse_delay_levels(text)


def test_a_time_is_cut_to_the_second_before_it_as_rocketmq_cuts_it():
    assert [delay.timer_out_ms(at) for at in (1_999, 2_000, 2_001, 3_000)] == [
        1_000, 1_000, 2_000, 2_000
    ]  # fmt: skip


def test_the_first_of_several_times_counts_and_what_is_none_is_named():
    texts = {"TIMER_DELIVER_MS": "9", "TIMER_DELAY_MS": "7", "TIMER_DELAY_SEC": "5"}
    assert delay.asked_time(texts, 100) == 5_100
    del texts["TIMER_DELAY_SEC"]
    assert delay.asked_time(texts, 100) == 107
    del texts["TIMER_DELAY_MS"]
    assert delay.asked_time(texts, 100) == 9
    assert delay.asked_time({}, 100) is None
    for text in ("", "x", "1.0", " 1", "²", "9223372036854775808", "1" * 4000):
        with pytest.raises(ValueError, match="TIMER_DELAY_MS"):
            delay.asked_time({"TIMER_DELAY_MS": text}, 0)


def test_delay_applies_to_the_schedule_topic_only():
    schedule = "SCHEDULE_TOPIC_XXXX"
    assert delay.dispatch_tags_code(schedule, "TagA", "1", 10) == 1010
    assert delay.dispatch_tags_code(schedule, "TagA", "0", 10) == 2598919
    assert delay.dispatch_tags_code("orders", "TagA", "1", 10) == 2598919
    assert delay.dispatch_tags_code("orders", None, None, 10) == 0
    with pytest.raises(ValueError):
        delay.dispatch_tags_code(schedule, None, "soon", 10)


@pytest.mark.parametrize("text", ["", "+", "-", " 1", "1 ", "1_0", "2147483648", "0x1", "1" * 4000])
def test_java_refuses_these_numbers(text):
    with pytest.raises(ValueError):
        delay.parse_java_int(text)


def test_java_reads_these_numbers():
    texts = ["+7", "-7", "0007", "0" * 20 + "7", "-2147483648"]
    assert [delay.parse_java_int(text) for text in texts] == [7, -7, 7, 7, -(2**31)]


# --- batch

# --- units, checkpoint, names


@given(strategies.i64, strategies.i32, strategies.i64)
def test_queue_units_come_back(offset, size, code):
    raw = encode_queue_unit(offset, size, code)
    unit = decode_queue_unit(b"..." + raw, 3)
    assert (unit.physical_offset, unit.size, unit.tags_code) == (offset, size, code)
    assert unit.is_valid == (offset >= 0 and size > 0)


def test_every_prefix_of_a_unit_is_not_enough():
    for size in range(20):
        assert decode_queue_unit(PRE_BLANK[:size]) is None
    for size in range(48):
        assert decode_checkpoint(bytes(size)) is None


def test_a_queue_ends_at_the_first_unit_that_is_not_valid():
    unit = encode_queue_unit(0, 100, 7)
    assert decode_queue_unit(bytes(20)).is_zero
    raw = PRE_BLANK + unit + bytes(20) + unit
    assert [u.is_pre_blank for u in iter_queue_units(raw)] == [True, False]
    assert len(list(iter_queue_units(unit * 3 + unit[:19]))) == 3


def test_queue_files_hold_whole_units():
    assert [queue_file_bytes(size) for size in (1, 20, 1024, 6_000_000)] == [
        20, 20, 1040, 6_000_000,
    ]  # fmt: skip


@given(st.builds(Checkpoint, *[strategies.i64] * 6))
def test_checkpoints_come_back(checkpoint):
    raw = encode_checkpoint(checkpoint)
    assert len(raw) == 4096
    assert decode_checkpoint(raw) == checkpoint
    assert checkpoint.min_timestamp_ms >= 0


@given(st.integers(0, 253402300799000))
def test_index_names_order_as_their_times(ms):
    assert parse_index_name(index_name(ms)) == ms
    assert next_index_name(ms, None) == index_name(ms)
    assert next_index_name(ms, index_name(ms)) > index_name(ms) or ms == 253402300799000
    assert next_index_name(0, index_name(ms)) == index_name(ms + 1)


def test_names_that_are_none():
    assert index_name(1_500_000_000_123) == "20170714024000123"
    for name in ("", "abc", "0" * 19, "0" * 21, "-" + "0" * 19, "٠" * 20, "0" * 20 + "\n"):
        assert parse_offset_name(name) is None
    for name in ("", "2017", "20171314024000123", "20170714024000123.tmp"):
        assert parse_index_name(name) is None
    for offset in (-1, 10**20):
        with pytest.raises(InvalidRequestError):
            offset_name(offset)


# --- JSON and bodies


def test_fastjson_keys_without_quotes_are_read():
    raw = b'{"offsetTable":{"a@b":{0:123,1:7 , -2 : 3},"t:{4:5}@g":{}},"x":[{3:1}],"n":{10:{}}}'
    assert parse_json_object(raw) == {
        "offsetTable": {"a@b": {"0": 123, "1": 7, "-2": 3}, "t:{4:5}@g": {}},
        "x": [{"3": 1}],
        "n": {"10": {}},
    }


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_strict_json_means_the_same(value):
    assert parse_json(format_json(value)) == parse_json(format_json(value).decode().encode())
    if "\ud800" not in repr(value):
        assert parse_json(format_json(value)) == value


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"\xff", b"{a:1}", b"nul", b"[" * 100_000, b'{"a":1} x'], ids=repr
)
def test_what_is_no_json_is_refused(raw):
    with pytest.raises(CorruptRecordError) as caught:
        parse_json(raw)
    assert caught.value.reason == "json"


def test_a_list_is_no_configuration_file():
    with pytest.raises(CorruptRecordError):
        parse_json_object(b"[]")


@given(st.binary(max_size=3000), st.sampled_from(Compression))
def test_compressed_bodies_come_back(body, compression):
    packed, bits = compress_body(body, compression)
    assert compression_of(bits) is compression
    assert decompress_body(packed, bits) == body
    assert decompress_body(packed, 0) == packed


def test_without_a_type_it_is_zlib():
    assert decompress_body(zlib.compress(b"old"), 1) == b"old"


@pytest.mark.parametrize("compression", Compression)
def test_every_cut_of_a_compressed_body_is_an_error(compression):
    packed, bits = compress_body(b"some text " * 20, compression)
    for size in range(len(packed)):
        with pytest.raises(CorruptRecordError) as caught:
            decompress_body(packed[:size], bits)
        assert caught.value.reason == "compression"


@pytest.mark.parametrize("compression", Compression)
def test_a_body_that_swells_is_stopped(compression):
    plain = bytes(50_000_000)
    packed = {
        Compression.ZLIB: zlib.compress,
        Compression.LZ4: lz4.frame.compress,
        Compression.ZSTD: zstandard.ZstdCompressor().compress,
    }[compression](plain)
    bits = 1 | compression << 8
    with pytest.raises(CorruptRecordError) as caught:
        decompress_body(packed, bits, max_bytes=1000)
    assert caught.value.reason == "too_large"
    assert len(decompress_body(packed, bits, max_bytes=len(plain))) == len(plain)


@given(st.binary(max_size=100), st.integers(1, 7))
def test_rubbish_is_never_anything_but_an_error(body, number):
    try:
        decompress_body(body, 1 | number << 8, max_bytes=10_000)
    except CorruptRecordError as error:
        assert error.reason in ("compression", "compression_type", "too_large")


def test_transactions_that_are_in_no_queue():
    assert [is_in_queue(flag) for flag in (0, 4, 8, 12, 1 | 8)] == [True, False, True, False, True]
