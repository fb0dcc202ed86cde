"""Every status of spec 3.5: what is refused, with which name, and that nothing of it is stored."""

import pytest
from stratamq_commitlog.write.topic_table import TopicConfig

from stratamq.errors import (
    BusyError,
    InvalidRequestError,
    NotFoundError,
    NotWritableError,
    UnavailableError,
)
from stratamq.formats.frame import Frame
from stratamq.formats.frame_layout import MAGIC_V1, MAGIC_V2
from stratamq.formats.hosts import Host
from stratamq.formats.message_status import SendStatus
from tests.support.logs import (
    FIXED,
    Store,
    batch,
    body_for,
    message,
    raw_batch,
    raw_frame,
    segment_path,
)


@pytest.fixture
def store() -> Store:
    store = Store(1 << 17)
    store.start()
    return store


def refused(store: Store, result, status: SendStatus, error: type) -> str:
    """The reason; nothing was stored, no queue offset taken, and the next message is."""
    assert (result.status, type(result.error)) == (status, error)
    assert result.physical_offset == -1
    assert (store.end(), store.queues()) == (0, {})
    assert store.put(b"next").queue_offset == 0
    return str(result.error)


# --- the store ---


def test_a_log_that_is_not_open_answers_service_not_available():
    store = Store()
    log = store.prepare()
    for end_of_life in (lambda: None, lambda: (log.open(), log.begin_close())):
        end_of_life()
        answers = store.answers.puts = []
        log.put([message(), message()], False, answers.append)
        assert [r.status for r in answers[0]] == [SendStatus.SERVICE_NOT_AVAILABLE] * 2
        assert all(isinstance(r.error, UnavailableError) for r in answers[0])
        store.answers.batches.clear()
        log.puts.batch(batch([b"x"]), store.answers.batches.append)
        assert store.answers.batches[0].status is SendStatus.SERVICE_NOT_AVAILABLE
        raw: list = []
        log.put_raw([raw_frame()], raw.append)
        assert raw[0][0].status is SendStatus.SERVICE_NOT_AVAILABLE


def test_a_slave_answers_service_not_available():
    store = Store(role="SLAVE")
    store.start()
    for result in (store.put(), store.put_batch(batch([b"x"])), *store.put_raw(raw_frame())):
        assert result.status is SendStatus.SERVICE_NOT_AVAILABLE
        assert isinstance(result.error, NotWritableError)


def test_a_full_disk_is_a_level():
    store = Store(1 << 17, capacity_bytes=1 << 20, disk_refuse_ratio=0.5)
    store.start()
    store.send(message(b"already waiting" * 1000))
    store.disk.files().create("somebody-elses", 600_000)
    store.pass_time(1_000, ticks=2)
    for result in (store.put(), store.put_batch(batch([b"x"]))):
        assert result.status is SendStatus.SERVICE_NOT_AVAILABLE
        assert isinstance(result.error, BusyError)
        assert "disk is" in str(result.error)
    assert store.log.writable[0] is False
    # With something waiting it is still the disk that is the reason.
    store.log.put([message()], False, store.answers.puts.append)
    assert store.answers.statuses[-1] is SendStatus.SERVICE_NOT_AVAILABLE
    store.disk.files().unlink("somebody-elses")
    store.pass_time(1_000, ticks=2)
    assert store.log.writable == (True, "")
    assert store.put().status is SendStatus.PUT_OK


def test_too_much_that_waits_is_answered_busy_and_continues_when_it_has_been_appended():
    store = Store(1 << 23, max_pending_bytes=1 << 20)
    store.start()
    for _ in range(12):
        store.send(message(b"x" * 100_000))
    assert store.answers.statuses == [SendStatus.OS_PAGECACHE_BUSY]
    assert isinstance(store.answers.results[0].error, BusyError)
    assert store.answers.results[0].error.fields["retry_after_ms"] > 0
    store.settle()
    assert store.answers.statuses.count(SendStatus.PUT_OK) == 11
    assert store.put().status is SendStatus.PUT_OK


def test_no_segment_to_be_had_is_create_mapedfile_failed_and_a_level():
    store = Store(1 << 17)
    store.start()
    fault = store.disk.fail("create.allocate", error=28, repeat=True)
    for result in (store.put(), store.put_batch(batch([b"x"])), *store.put_raw(raw_frame())):
        assert result.status is SendStatus.CREATE_MAPEDFILE_FAILED
        assert isinstance(result.error, BusyError)
    store.disk.faults.remove(fault)
    assert store.put().status is SendStatus.PUT_OK
    assert len(store.frames()) == 1


def test_a_segment_that_cannot_be_allocated_ahead_refuses_nothing_that_still_fits():
    store = Store(4096)
    store.start()
    store.put(body_for(2000))
    store.disk.fail("create.allocate", error=28, repeat=True)
    store.send(message(body_for(300)))
    store.step()
    store.send(message(body_for(300)))
    store.scheduler.run_until_idle()  # The allocation fails before the next pass.
    store.settle()
    assert store.answers.statuses == [SendStatus.PUT_OK] * 2
    assert store.put(body_for(1800)).status is SendStatus.CREATE_MAPEDFILE_FAILED
    assert store.put(body_for(300)).status is SendStatus.PUT_OK


# --- topic and queue ---


@pytest.mark.parametrize(
    "topic",
    ["", "a b", "a/b", "..", "a.b", "t\0", "\x01", "käse", "订单", "a" * 128, "\ud800", "a\n"],
)
def test_a_name_that_is_no_topic_is_message_illegal(store, topic):
    refused(store, store.put(topic=topic), SendStatus.MESSAGE_ILLEGAL, InvalidRequestError)


@pytest.mark.parametrize("topic", ["a", "%RETRY%group", "a|b", "A-b_9", "a" * 127])
def test_a_name_of_the_allowed_letters_is_a_topic(store, topic):
    assert store.put(topic=topic).status is SendStatus.PUT_OK
    assert store.frames()[0].topic == topic


@pytest.mark.parametrize(
    "topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"]
)
def test_the_brokers_own_topics_take_nothing_from_producers(store, topic):
    refused(store, store.put(topic=topic), SendStatus.MESSAGE_ILLEGAL, InvalidRequestError)
    store.put(b"delayed", delay_level=1)
    assert store.put(topic=topic).status is SendStatus.MESSAGE_ILLEGAL


def test_an_unknown_topic_is_refused_without_automatic_creation():
    store = Store(auto_create_topics=False)
    store.start()
    assert isinstance(store.put().error, NotFoundError)
    assert store.put_batch(batch([b"x"])).status is SendStatus.MESSAGE_ILLEGAL
    store.log.topics.put(TopicConfig("orders", 1, 1))
    assert store.put().status is SendStatus.PUT_OK


def test_a_topic_without_write_permission_takes_nothing(store):
    store.log.topics.put(TopicConfig("orders", 4, 4, permission=4))
    for result in (store.put(), store.put_batch(batch([b"x"]))):
        assert result.status is SendStatus.SERVICE_NOT_AVAILABLE
        assert isinstance(result.error, NotWritableError)
    assert store.end() == 0


@pytest.mark.parametrize("queue_id", [-1, 4, 2**31])
def test_a_queue_that_the_topic_does_not_have_is_message_illegal(store, queue_id):
    refused(store, store.put(queue_id=queue_id), SendStatus.MESSAGE_ILLEGAL, InvalidRequestError)


def test_without_a_queue_the_topics_queues_are_taken_in_turn(store):
    results = [store.put(queue_id=None) for _ in range(9)]
    assert [r.queue_id for r in results] == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert [r.queue_offset for r in results] == [0] * 4 + [1] * 4 + [2]


# --- sizes ---


def test_the_body_is_limited_and_not_the_frame():
    store = Store(1 << 17, max_message_bytes=1000)
    store.start()
    assert store.put(b"x" * 1000, properties={"k": "v" * 5000}).status is SendStatus.PUT_OK
    result = store.put(b"x" * 1001)
    assert result.status is SendStatus.MESSAGE_ILLEGAL
    assert "max_message_bytes" in str(result.error)


def test_properties_of_32768_bytes_are_properties_size_exceeded(store):
    largest = 32767 - len("k\x01")
    result = store.put(properties={"k": "v" * (largest + 1)})
    refused(store, result, SendStatus.PROPERTIES_SIZE_EXCEEDED, InvalidRequestError)
    assert store.put(properties={"k": "v" * largest}).status is SendStatus.PUT_OK
    # It is the encoded length that counts.
    result = store.put(properties={"k": "é" * (largest // 2 + 1)})
    assert result.status is SendStatus.PROPERTIES_SIZE_EXCEEDED


@pytest.mark.parametrize("waits", [{"half": True}, {"delay_level": 1}])
def test_a_message_that_waits_leaves_room_for_what_its_copy_has_more(store, waits):
    """One that was taken and cannot be copied is lost."""
    result = store.put(properties={"k": "v" * 32_600}, **waits)
    refused(store, result, SendStatus.PROPERTIES_SIZE_EXCEEDED, InvalidRequestError)
    assert store.put(properties={"k": "v" * 32_400}, **waits).status is SendStatus.PUT_OK


def test_a_frame_larger_than_a_segment_is_refused_and_the_largest_fits():
    store = Store(4096)
    store.start()
    result = store.put(body_for(4096 - 7))
    refused(store, result, SendStatus.MESSAGE_ILLEGAL, InvalidRequestError)
    store = Store(4096)
    store.start()
    assert store.put(body_for(4096 - 8)).physical_offset == 0
    assert store.put(body_for(4096 - 8)).physical_offset == 4096


@pytest.mark.parametrize(
    "properties",
    [
        {"": "v"},
        {"a\x01b": "v"},
        {"a\x02b": "v"},
        {"a": "v\x02"},
        {"DELAY": "soon"},
        {"DELAY": "99999999999"},
        {"a": "v\0"},
        {"a": "\0" * 512 + "v"},
    ],
)
def test_properties_that_would_not_come_back_are_message_illegal(store, properties):
    result = store.put(properties=properties)
    refused(store, result, SendStatus.MESSAGE_ILLEGAL, InvalidRequestError)


@pytest.mark.parametrize(
    "fields",
    [
        {"flag": 2**31},
        {"reconsume_times": -(2**31) - 1},
        {"born_timestamp_ms": 2**63},
        {"born_host": Host("nowhere", 1)},
        {"born_host": Host("1.2.3.4", 2**31)},
    ],
)
def test_a_field_that_does_not_fit_its_place_is_message_illegal(store, fields):
    refused(store, store.put(**fields), SendStatus.MESSAGE_ILLEGAL, InvalidRequestError)


# --- version 2 ---


def test_a_long_topic_is_written_as_version_2_only_when_the_setting_allows_it():
    topic = "a" * 200
    store = Store()
    store.start()
    assert "write_v2" in str(store.put(topic=topic).error)
    store = Store(write_v2=True)
    store.start()
    assert store.put(topic=topic).status is SendStatus.PUT_OK
    assert store.put(topic="a" * 127).status is SendStatus.PUT_OK
    assert [frame.magic for frame in store.frames()] == [MAGIC_V2, MAGIC_V1]
    assert store.put(topic="a" * 255).status is SendStatus.PUT_OK
    assert store.put(topic="a" * 256).status is SendStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize("tail", ["/../../x", "/x", ".", " ", "\n", "é", "\0"])
def test_every_letter_of_a_long_topic_is_checked(tail):
    """The name becomes a directory."""
    store = Store(write_v2=True)
    store.start()
    topic = "a" * 127 + tail
    assert store.put(topic=topic).status is SendStatus.MESSAGE_ILLEGAL
    assert store.put_batch(batch([b"x"], topic="b" * 10)).status is SendStatus.PUT_OK


# --- a call of several messages ---


def test_each_message_of_a_call_has_its_own_result_in_order(store):
    results = store.put_all(
        message(b"a"), message(b"b", topic="a b"), message(b"c"), message(b"d", queue_id=99)
    )
    assert [r.status.name for r in results] == [
        "PUT_OK",
        "MESSAGE_ILLEGAL",
        "PUT_OK",
        "MESSAGE_ILLEGAL",
    ]
    assert [frame.body for frame in store.frames()] == [b"a", b"c"]


def test_all_or_nothing_stores_nothing_when_one_is_refused(store):
    wrong = {
        "bad": message(b"x", topic="a b"),
        "other queue": message(b"x", queue_id=1),
        "other topic": message(b"x", topic="other"),
        "delayed": message(b"x", delay_level=1),
        "delayed by property": message(b"x", properties={"DELAY": "2"}),
        "half": message(b"x", half=True),
    }
    for name, bad in wrong.items():
        results = store.put_all(message(b"a"), bad, message(b"c"), atomic=True)
        assert [r.status for r in results] == [SendStatus.MESSAGE_ILLEGAL] * 3, name
    assert (store.end(), store.queues()) == (0, {})
    assert {r.status for r in store.put_all(message(), message(), atomic=True)} == {
        SendStatus.PUT_OK
    }


def test_all_or_nothing_is_limited_in_bytes():
    store = Store(1 << 17, max_batch_bytes=2048)
    store.start()
    results = store.put_all(*[message(b"x" * 500)] * 4, atomic=True)
    assert {r.status for r in results} == {SendStatus.MESSAGE_ILLEGAL}
    assert len(store.put_all(*[message(b"x" * 500)] * 4)) == 4


@pytest.mark.parametrize("atomic", [False, True])
def test_a_call_without_messages_is_answered_at_once_even_in_an_empty_store(atomic):
    store = Store()
    store.start()
    assert store.put_all(atomic=atomic) == []
    assert store.put_raw() == []
    assert store.end() == 0


def test_results_contain_where_and_what_was_stored(store):
    store.put(topic="first")
    result = store.put(b"body", properties={"k": "v"}, queue_id=2)
    (frame,) = [f for f in store.frames() if f.topic == "orders"]
    assert isinstance(frame, Frame)
    assert result.physical_offset == frame.physical_offset == FIXED + 9
    assert (result.queue_id, result.queue_offset) == (frame.queue_id, frame.queue_offset) == (2, 0)
    assert result.store_timestamp_ms == frame.store_timestamp_ms
    assert result.size == frame.total_size
    assert result.message_id == frame.message_id
    assert result.topic == "orders"


# --- raw frames ---


def test_raw_frames_are_held_to_their_own_shape(store):
    good = raw_frame(b"x")
    for bad in (
        b"",
        good[:-1],
        good + b"\0",
        good + good,
        b"\0" * 100,
        good[:88] + b"?" + good[89:],
        raw_frame(b"x", store_host=bytes(20)),
        raw_frame(b"x", properties=b"k\x01v\0"),
        raw_frame(b"x", topic="orders\0"),
    ):
        (result,) = store.put_raw(bad)
        assert result.status is SendStatus.MESSAGE_ILLEGAL
    assert store.end() == 0
    assert store.put_raw(good)[0].queue_offset == 0
    assert store.put_batch(raw_batch([good])).first_queue_offsets == (1,)


def test_nothing_is_written_behind_what_was_refused(store):
    store.put(b"x" * 10)
    end = store.end()
    store.put(topic="a b")
    store.put_batch(raw_batch([b"\1" * 100]))
    assert not any(store.disk.contents(segment_path(0))[end:])
