"""Messages are decoded on access, and damaged ones give nothing but an error."""

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.client.received import ReceivedMessage, single_frame, split_frames, split_heads
from stratamq.errors import CorruptionError
from stratamq.formats import frame
from stratamq.formats.frame_layout import MAGIC_V1, MAGIC_V2
from stratamq.formats.hosts import Host, encode_host
from stratamq.formats.properties import encode_properties
from stratamq.formats.sysflag import Compression
from tests.support.compressing import compress_body
from tests.support.kernels import agree

HOSTS = [encode_host(Host("10.0.0.1", 10911)), encode_host(Host("fd00:0:0:0:0:0:0:7", 10911))]
ATTRIBUTES = ("topic", "properties", "tag", "keys", "unique_key", "body", "stored_body", "body_crc",
              "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "born_host",
              "born_timestamp_ms", "store_timestamp_ms", "store_host", "reconsume_times",
              "prepared_transaction_offset", "message_id", "size")  # fmt: skip

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
frames = st.builds(
    lambda topic, properties, **fields: frame.encode(
        topic=topic.encode(), properties=encode_properties(properties), **fields
    ),
    topic=st.text("abcé", min_size=1, max_size=9),
    body=st.binary(max_size=60),
    born_host=st.sampled_from(HOSTS),
    store_host=st.sampled_from(HOSTS),
    properties=st.dictionaries(
        st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "x"]), st.text("ab c", min_size=1, max_size=5)
    ),
    queue_id=I32,
    flag=I32,
    queue_offset=I64,
    physical_offset=I64,
    sys_flag=st.sampled_from([0, 4, 8]),
    born_timestamp_ms=I64,
    store_timestamp_ms=I64,
    reconsume_times=I32,
    prepared_transaction_offset=I64,
    magic=st.sampled_from([MAGIC_V1, MAGIC_V2]),
)


@given(frames)
def test_every_attribute_is_what_the_codec_decodes(raw):
    message, decoded = single_frame(raw), frame.decode(raw)
    assert message.decode() == decoded
    assert (message.topic, message.properties) == (decoded.topic, decoded.properties)
    assert (message.body, message.message_id) == (decoded.body, decoded.message_id)
    assert encode_host(message.born_host) == decoded.born_host
    assert encode_host(message.store_host) == decoded.store_host
    for name in ("queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "body_crc",
                 "born_timestamp_ms", "store_timestamp_ms", "reconsume_times",
                 "prepared_transaction_offset"):  # fmt: skip
        assert getattr(message, name) == getattr(decoded, name)
    assert message.tag == decoded.properties.get("TAGS", "")
    assert message.keys == decoded.properties.get("KEYS", "").split()


@given(st.lists(frames, max_size=5))
def test_frames_one_behind_the_other_are_separated(raws):
    assert [message.frame for message in split_frames(b"".join(raws))] == raws


@given(st.lists(frames, min_size=1, max_size=3), st.integers(1, 90))
def test_a_cut_off_frame_is_damage_and_not_a_message(raws, missing):
    with pytest.raises(CorruptionError):
        list(split_frames(b"".join(raws)[:-missing]))


@given(frames, st.data())
def test_a_damaged_frame_gives_values_or_a_corruption_error(raw, data):
    position = data.draw(st.integers(0, len(raw) - 1))
    damaged = bytearray(raw)
    damaged[position] ^= data.draw(st.integers(1, 255))
    for name in ATTRIBUTES:
        with contextlib.suppress(CorruptionError):
            getattr(ReceivedMessage(bytes(damaged)), name)


@pytest.mark.parametrize("compression", list(Compression))
def test_a_compressed_body_is_given_as_the_producer_had_it(compression):
    packed, sys_flag = compress_body(b"hello " * 50, compression)
    raw = frame.encode(
        topic=b"t", body=packed, born_host=HOSTS[0], store_host=HOSTS[0], sys_flag=sys_flag
    )
    message = single_frame(raw)
    assert message.body == b"hello " * 50
    assert message.stored_body == packed


def test_a_large_answer_is_not_kept_alive_by_one_of_its_messages():
    raw = frame.encode(topic=b"t", body=b"b", born_host=HOSTS[0], store_host=HOSTS[0])
    answer = raw * 1000
    message = next(split_frames(memoryview(answer)))
    assert len(message.frame) == len(raw)
    assert type(message.frame) is bytes


def test_more_than_one_frame_where_one_was_asked_for_is_damage():
    raw = frame.encode(topic=b"t", body=b"b", born_host=HOSTS[0], store_host=HOSTS[0])
    for wrong in (b"", raw * 2, random.Random(1).randbytes(200)):
        with pytest.raises(CorruptionError):
            single_frame(wrong)


@given(st.lists(frames, min_size=1, max_size=4), st.integers(1, 20), st.data())
def test_the_kernel_gives_the_same_messages_up_to_the_same_damage(raws, times, data):
    changed = bytearray(b"".join(raws * times))
    of_compression = 38  # the low bytes of the first SYSFLAG
    place = data.draw(st.just(of_compression) | st.integers(0, len(changed) - 1))
    changed[place : place + 2] = data.draw(st.sampled_from([b"", b"\0\0", b"\xff\xff", b"\0\1"]))

    def work() -> list[object]:
        given: list[object] = []
        try:
            for raw, head in split_heads(bytes(changed)):
                given += [raw, head]
                given.append(ReceivedMessage(raw, head).body)
        except CorruptionError as error:
            given.append(error.message)
        return given

    agree(work)
