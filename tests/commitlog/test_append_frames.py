"""What a stored frame holds: delay, half messages, WAIT, hosts, checksums; both ways alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stratamq_commitlog.messages import PutMessage

from stratamq.formats.batch_frames import FrameShape
from stratamq.formats.hosts import Host, decode_host, encode_host
from stratamq.formats.message_status import SendStatus
from stratamq.formats.property_crc import check_property_crc
from stratamq.formats.sysflag import BORN_HOST_V6, STORE_HOST_V6
from tests.formats import strategies
from tests.support.logs import BORN, BORN_V6, Store, batch, message, raw_frame
from tests.support.patience import patient


@pytest.fixture
def store() -> Store:
    store = Store(1 << 16)
    store.start()
    return store


def test_every_field_of_a_message_is_where_it_belongs(store):
    store.put(
        b"the body",
        queue_id=3,
        properties={"KEYS": "k1 k2", "TAGS": "t", "own": "ä"},
        flag=-7,
        sys_flag=0x3 | 0x200,
        born_timestamp_ms=123,
        reconsume_times=4,
    )
    (frame,) = store.frames()
    assert frame.body == b"the body"
    assert (frame.topic, frame.queue_id, frame.flag) == ("orders", 3, -7)
    assert frame.properties == {"KEYS": "k1 k2", "TAGS": "t", "own": "ä"}
    assert frame.properties_raw == "KEYS\x01k1 k2\x02TAGS\x01t\x02own\x01ä".encode()
    assert (frame.sys_flag, frame.reconsume_times) == (0x203, 4)
    assert (frame.born_timestamp_ms, decode_host(frame.born_host)) == (123, BORN)
    assert decode_host(frame.store_host) == Host("127.0.0.1", 10911)
    assert frame.prepared_transaction_offset == 0


def test_without_a_born_time_the_time_of_arrival_is_taken(store):
    store.put(born_timestamp_ms=0)
    assert store.frames()[0].born_timestamp_ms == store.clock.wall_ms()


def test_transaction_and_host_bits_of_a_producer_are_not_taken(store):
    store.put(sys_flag=-1)
    assert store.frames()[0].sys_flag == 0x703
    assert store.queues() == {("orders", 0): 1}


# --- delay (13.1) ---


@pytest.mark.parametrize(("level", "queue"), [(1, 0), (3, 2), (18, 17), (19, 17), (2**31 - 1, 17)])
@pytest.mark.parametrize("by_property", [False, True])
def test_a_delayed_message_is_stored_under_the_schedule_topic(store, level, queue, by_property):
    how = {"properties": {"DELAY": str(level)}} if by_property else {"delay_level": level}
    result = store.put(b"later", queue_id=2, **how)
    (frame,) = store.frames()
    assert (frame.topic, frame.queue_id) == ("SCHEDULE_TOPIC_XXXX", queue)
    assert (result.topic, result.queue_id, result.queue_offset) == (frame.topic, queue, 0)
    assert frame.properties == {
        "DELAY": str(queue + 1),
        "REAL_TOPIC": "orders",
        "REAL_QID": "2",
    }


@pytest.mark.parametrize("how", [{"delay_level": 0}, {"delay_level": -1}])
def test_level_zero_and_below_is_no_delay(store, how):
    store.put(b"now", **how)
    assert store.frames()[0].topic == "orders"
    store.put(b"now", properties={"DELAY": "0"})
    assert store.frames()[1].topic == "orders"


def test_fewer_levels_clamp_earlier():
    store = Store(message_delay_level="1s 2s")
    store.start()
    store.put(delay_level=9)
    assert store.frames()[0].queue_id == 1


# --- half messages (13.2) ---


def test_a_half_message_is_stored_under_the_half_topic_and_counts_there(store):
    store.put(b"first", half=True, queue_id=3, properties={"TRAN_MSG": "true", "DELAY": "3"})
    result = store.put(b"second", half=True, queue_id=1)
    assert (result.topic, result.queue_id, result.queue_offset) == (
        "RMQ_SYS_TRANS_HALF_TOPIC",
        0,
        1,
    )
    first = store.frames()[0]
    assert first.sys_flag & 0xC == 0
    assert first.properties == {"TRAN_MSG": "true", "REAL_TOPIC": "orders", "REAL_QID": "3"}
    assert store.queues() == {("RMQ_SYS_TRANS_HALF_TOPIC", 0): 2}


# --- WAIT ---


@pytest.mark.parametrize("wait", ["false", "FALSE", "no", ""])
def test_a_message_that_does_not_wait_is_answered_before_it_is_flushed(store, wait):
    store.put(b"allocates the segment")
    for fields in ({"wait_store_ok": False}, {"properties": {"WAIT": wait, "k": "v"}}):
        answers: list = []
        store.log.put([message(b"x", **fields)], False, answers.append)
        store.step()
        assert answers[0][0].status is SendStatus.PUT_OK
        assert store.log.offsets.flushed < store.log.offsets.appended
        store.settle()
    assert "WAIT" not in store.frames()[-1].properties


@pytest.mark.parametrize("wait", ["true", "TRUE", None])
def test_a_message_that_waits_is_answered_when_it_is_flushed(store, wait):
    store.put(b"allocates the segment")
    answers: list = []
    properties = {} if wait is None else {"WAIT": wait}
    store.log.put([message(b"x", properties=properties)], False, answers.append)
    store.step()
    assert answers == []
    store.settle()
    assert answers[0][0].status is SendStatus.PUT_OK
    assert "WAIT" not in store.frames()[-1].properties


def test_a_call_with_both_waits_for_those_that_wait(store):
    store.put(b"allocates the segment")
    store.disk.fail("flush", "commitlog/*")
    results = store.put_all(message(b"a", wait_store_ok=False), message(b"b"))
    assert [r.status for r in results] == [SendStatus.PUT_OK, SendStatus.UNKNOWN_ERROR]


# --- hosts and versions ---


@pytest.mark.parametrize("store_host", ["127.0.0.1:10911", "[2001:db8::1]:10911"])
@pytest.mark.parametrize("born", [BORN, BORN_V6])
def test_hosts_of_both_families_are_stored_by_every_way_in(store_host, born):
    store = Store(1 << 16, store_host=store_host)
    store.start()
    v6 = store_host.startswith("[")
    expected = encode_host(Host("2001:db8:0:0:0:0:0:1" if v6 else "127.0.0.1", 10911))
    assert len(store.log.store_host) - 4 == (16 if v6 else 4)
    store.put(b"x", born_host=born)
    shape = FrameShape(encode_host(born), store_host_bytes=len(expected))
    assert store.put_batch(batch([b"x"] * 3, shape=shape)).status is SendStatus.PUT_OK
    (raw,) = store.put_raw(
        raw_frame(b"x", born_host=encode_host(born), store_host=bytes(len(expected)))
    )
    assert raw.status is SendStatus.PUT_OK
    frames = store.frames()
    assert len(frames) == 5
    for number, frame in enumerate(frames):
        assert (frame.store_host, frame.born_host) == (expected, encode_host(born))
        assert frame.queue_offset == number
        assert bool(frame.sys_flag & STORE_HOST_V6) is v6
        assert bool(frame.sys_flag & BORN_HOST_V6) is (born is BORN_V6)
        assert frame.store_timestamp_ms == store.clock.wall_ms()
        assert len(frame.message_id) == (56 if v6 else 32)


# --- both ways give the same bytes ---


def both(messages: list[PutMessage], **config) -> tuple[list[bytes], list[bytes]]:
    """The frames of equal messages by fields and by ready frames, at the same moment."""
    stored = []
    for fast in (False, True):
        store = Store(1 << 16, **config)
        store.start()
        if fast:
            shape = FrameShape(
                encode_host(messages[0].born_host),
                store_host_bytes=len(store.log.store_host),
                property_checksum=store.log.config.property_checksum,
                version2=config.get("write_v2", False),
            )
            for m in messages:
                result = store.put_batch(
                    batch(
                        [m.body],
                        m.topic,
                        m.queue_id,
                        properties=m.properties,
                        shape=shape,
                        flag=m.flag,
                        sys_flag=m.sys_flag,
                        born_timestamp_ms=m.born_timestamp_ms,
                        reconsume_times=m.reconsume_times,
                    )
                )
                assert result.status is SendStatus.PUT_OK, result.error
        else:
            for result in store.put_all(*messages):
                assert result.status is SendStatus.PUT_OK, result.error
        stored.append(store.frame_bytes())
    return stored[0], stored[1]


@patient(60)
@given(
    st.lists(
        st.tuples(
            st.binary(max_size=60),
            st.dictionaries(strategies.names, strategies.values, max_size=3),
            st.integers(-(2**31), 2**31 - 1),
            st.integers(0, 3),
            st.sampled_from([0, 1, 2, 3, 0x100, 0x301]),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([BORN, BORN_V6]),
    st.booleans(),
    st.sampled_from(["127.0.0.1:1", "[::2]:1"]),
)
def test_fields_and_ready_frames_give_the_same_bytes(rows, born, checksum, store_host):
    reserved = {"WAIT", "DELAY"}
    messages = [
        message(
            body,
            queue_id=queue,
            properties={
                k: v for k, v in properties.items() if k not in reserved and not v.endswith("\0")
            },
            flag=flag,
            sys_flag=sys_flag,
            born_host=born,
            born_timestamp_ms=7,
        )
        for body, properties, flag, queue, sys_flag in rows
    ]
    slow, fast = both(messages, property_checksum=checksum, store_host=store_host)
    assert slow == fast
    assert {check_property_crc(raw) for raw in slow} == {True if checksum else None}


def test_long_topics_give_the_same_bytes_both_ways():
    messages = [message(b"x", topic="t" * 200), message(b"y", topic="t" * 127)]
    slow, fast = both(messages, write_v2=True)
    assert slow == fast


# --- record checksums ---


def test_with_checksums_on_every_frame_verifies_and_no_byte_can_change_unseen():
    store = Store(1 << 16, property_checksum=True)
    store.start()
    shape = FrameShape(encode_host(BORN), property_checksum=True)
    store.put(b"plain")
    store.put(b"with", properties={"a": "b"})
    store.put(b"later", delay_level=2)
    store.put(b"half", half=True)
    store.put_all(message(b"1"), message(b"2"), atomic=True)
    store.put_batch(batch([b"b"] * 3, properties={"k": "v"}, shape=shape))
    frames = store.frame_bytes()
    assert len(frames) == 9
    for raw in frames:
        assert check_property_crc(raw) is True
        for at in range(len(raw)):
            changed = bytearray(raw)
            changed[at] ^= 1
            assert check_property_crc(changed) is not True


def test_a_checksummed_log_is_read_after_the_setting_was_turned_off_and_back():
    store = Store(1 << 16, property_checksum=True)
    store.start()
    store.put(b"on")
    store.kill()
    store.start(property_checksum=False)
    store.put(b"off")
    store.kill()
    store.start(property_checksum=True)
    store.put(b"on again")
    store.kill()
    store.start()
    assert [frame.body for frame in store.frames()] == [b"on", b"off", b"on again"]
    assert [check_property_crc(raw) for raw in store.frame_bytes()] == [True, None, True]
