"""A batch with a bad frame is refused whole, and the first bad frame is named; a partial batch is
stored without its bad frames. Other batches continue."""

import struct
from dataclasses import replace

import numpy as np
import pytest
from stratamq_commitlog.messages import (
    BatchResult,
    FrameBatch,
    FrameRun,
    KnownPlace,
    Numbers,
)
from stratamq_commitlog.write.partial_batch import MAX_BAD_FRAMES
from stratamq_commitlog.write.topic_table import TopicConfig

from stratamq.errors import (
    BusyError,
    InvalidRequestError,
    NotFoundError,
    NotPermittedError,
    NotWritableError,
    UnavailableError,
)
from stratamq.formats.batch_frames import FrameShape
from stratamq.formats.frame import encode_blank
from stratamq.formats.frame_layout import MAGIC_V2
from stratamq.formats.hosts import encode_host
from stratamq.formats.message_status import SendStatus
from stratamq.formats.property_crc import check_property_crc, encode_property_crc, reserve
from stratamq.formats.topic_types import MessageType
from stratamq.formats.topics import DRAIN_TOPIC, PERMISSION_READ, Drain
from tests.support.logs import BORN, BORN_V6, Store, batch, batch_of, raw_batch, raw_frame

V6 = encode_host(BORN_V6)


@pytest.fixture
def store() -> Store:
    store = Store(1 << 16)
    store.start()
    return store


def patched(frame: bytes, position: int, raw: bytes) -> bytes:
    return frame[:position] + raw + frame[position + len(raw) :]


GOOD = raw_frame(b"good")
BAD = {
    "magic": (patched(GOOD, 4, b"\1\2\3\4"), "magic"),
    "no magic": (patched(GOOD, 4, bytes(4)), "magic"),
    "V2": (raw_frame(b"x", magic=MAGIC_V2), "magic"),
    "blank": (encode_blank(len(GOOD)).ljust(len(GOOD), b"\0"), "magic"),
    "TOTALSIZE": (patched(GOOD, 0, struct.pack(">i", len(GOOD) + 1)), "length"),
    "short": (GOOD[:50], "length"),
    "body length": (patched(GOOD, 84, struct.pack(">i", 9)), None),
    "huge body length": (patched(GOOD, 84, struct.pack(">i", 2**31 - 1)), "body_length"),
    "negative body length": (
        patched(raw_frame(b""), 84, struct.pack(">i", -1)),
        "body_length",
    ),
    "negative properties length": (GOOD[:-2] + b"\xff\xff", "properties_length"),
    "body": (patched(GOOD, 88, b"?"), "body_crc"),
    "body crc": (patched(GOOD, 8, b"\1"), "body_crc"),
    "topic": (raw_frame(b"x", topic="another"), "topic"),
    "prefix of the topic": (raw_frame(b"x", topic="order"), "topic"),
    "no topic": (raw_frame(b"x", topic=""), "topic"),
    "topic length": (patched(GOOD, 92, b"\xff"), "topic_length"),
    "store host": (raw_frame(b"x", store_host=V6), "host"),
    "prepared": (raw_frame(b"x", sys_flag=0x4), "sys_flag"),
    "commit": (raw_frame(b"x", sys_flag=0x8), "sys_flag"),
    "rollback": (raw_frame(b"x", sys_flag=0xC), "sys_flag"),
    "inner batch": (raw_frame(b"x", sys_flag=0x80), "sys_flag"),
    "sign bit": (raw_frame(b"x", sys_flag=-(2**31)), "sys_flag"),
    "zero end": (raw_frame(b"x", properties=b"k\x01v\0"), "properties"),
    "zero sector": (raw_frame(b"x", properties=b"k\x01" + bytes(512) + b"v"), "properties"),
}
each_bad = pytest.mark.parametrize(("bad", "reason"), BAD.values(), ids=BAD)


@each_bad
@pytest.mark.parametrize(("count", "number"), [(5, 0), (5, 2), (5, 4), (20, 0), (20, 19)])
def test_a_bad_frame_refuses_its_batch_and_is_named(store, bad, reason, count, number):
    frames = [GOOD] * count
    frames[number] = bad
    result = store.put_batch(raw_batch(frames))
    assert result.status is SendStatus.MESSAGE_ILLEGAL
    assert result.physical_offset == -1
    assert result.error.fields["frame"] == number
    if reason is not None:
        assert result.error.fields["reason"] == reason
    assert (store.end(), store.queues(), store.frames()) == (0, {}, [])
    assert store.put_batch(raw_batch([GOOD])).first_queue_offsets == (0,)


@each_bad
def test_other_batches_of_the_same_pass_are_stored(store, bad, reason):
    for frames in ([GOOD] * 2, [GOOD, bad], [GOOD] * 3, [bad], [GOOD]):
        store.send_batch(raw_batch(frames))
    store.settle()
    by_status = [result.status for result in store.answers.batches]
    assert (
        sorted(by_status, key=lambda s: s.value)
        == [SendStatus.PUT_OK] * 3 + [SendStatus.MESSAGE_ILLEGAL] * 2
    )
    assert [frame.queue_offset for frame in store.frames()] == list(range(6))
    assert [r.first_queue_offsets for r in store.answers.batches if not r.error] == [
        (0,),
        (2,),
        (5,),
    ]


def test_the_first_bad_frame_is_named_whatever_the_order_of_the_checks(store):
    late = [bad for bad, _ in BAD.values()]
    for early, _ in BAD.values():
        result = store.put_batch(raw_batch([GOOD, early, GOOD, *late]))
        assert result.error.fields["frame"] == 1


def test_a_pass_of_nothing_but_bad_batches_is_answered(store):
    bad = raw_batch([BAD["body"][0]])
    for _ in range(1500):
        store.send_batch(bad)
    store.send_batch(raw_batch([GOOD]))
    store.settle()
    assert len(store.answers.batches) == 1501
    assert len(store.frames()) == 1


def test_runs_are_checked_against_topics_frame_by_frame(store):
    wrong = batch_of([("a", 0, [b"1"] * 3), ("b", 1, [b"2"] * 3), ("a", 2, [b"3"])])
    wrong = FrameBatch(
        [FrameRun("a", 0, 3), FrameRun("b", 1, 2), FrameRun("a", 2, 2)], wrong.lengths, wrong.frames
    )
    assert store.put_batch(wrong).error.fields["frame"] == 5


def test_many_topics_are_checked_like_few(store):
    runs = [(f"topic-{number}", number % 4, [b"x"] * 2) for number in range(40)]
    good = batch_of(runs)
    assert store.put_batch(good).status is SendStatus.PUT_OK
    swapped = [FrameRun(r.topic, r.queue_id, r.count) for r in good.runs]
    swapped[31] = FrameRun("topic-9", 0, 2)
    result = store.put_batch(FrameBatch(swapped, good.lengths, good.frames))
    assert result.error.fields["frame"] == 62


SHAPES = {
    "empty": FrameBatch([], np.zeros(0, np.uint32), b""),
    "no run": FrameBatch([], np.array([len(GOOD)], np.uint32), GOOD),
    "lengths too long": FrameBatch(
        [FrameRun("orders", 0, 1)], np.array([len(GOOD) + 1], np.uint32), GOOD
    ),
    "lengths too short": FrameBatch(
        [FrameRun("orders", 0, 1)], np.array([len(GOOD) - 1], np.uint32), GOOD
    ),
    "lengths that wrap": FrameBatch(
        [FrameRun("orders", 0, 2)], np.array([2**32 - 1, len(GOOD) + 1], np.uint32), GOOD
    ),
    "run too long": raw_batch([GOOD], count=2),
    "run too short": raw_batch([GOOD, GOOD], count=1),
    "empty run": FrameBatch(
        [FrameRun("orders", 0, 1), FrameRun("orders", 1, 0)], np.array([len(GOOD)], np.uint32), GOOD
    ),
    "negative run": FrameBatch(
        [FrameRun("orders", 0, 2), FrameRun("orders", 1, -1)],
        np.array([len(GOOD)], np.uint32),
        GOOD,
    ),
    "no such queue": raw_batch([GOOD], queue_id=4),
    "negative queue": raw_batch([GOOD], queue_id=-2),
    "bad topic name": raw_batch([raw_frame(b"x", topic="a b")], topic="a b"),
    "the broker's own topic": raw_batch(
        [raw_frame(b"x", topic="SCHEDULE_TOPIC_XXXX")], topic="SCHEDULE_TOPIC_XXXX"
    ),
}


@pytest.mark.parametrize("wrong", SHAPES.values(), ids=SHAPES)
def test_a_batch_that_contradicts_itself_is_refused_before_it_waits(store, wrong):
    result = store.put_batch(wrong)
    assert result.status is SendStatus.MESSAGE_ILLEGAL
    assert result.error is not None
    assert store.log.appender.pending_bytes == 0
    assert store.put_batch(raw_batch([GOOD])).status is SendStatus.PUT_OK


def test_a_batch_has_limits_of_bytes_and_messages():
    store = Store(1 << 16, max_batch_messages=10, max_batch_bytes=2048)
    store.start()
    assert store.put_batch(batch([b"x"] * 11)).status is SendStatus.MESSAGE_ILLEGAL
    assert store.put_batch(batch([b"x" * 1000] * 2)).status is SendStatus.MESSAGE_ILLEGAL
    assert store.put_batch(batch([b"x"] * 10)).status is SendStatus.PUT_OK


def test_a_body_larger_than_the_limit_is_refused_in_a_batch():
    store = Store(1 << 16, max_message_bytes=100)
    store.start()
    assert store.put_batch(batch([b"x" * 100])).status is SendStatus.PUT_OK
    refused = store.put_batch(batch([b"x", b"x" * 101]))
    assert refused.error.fields == {"frame": 1, "reason": "body_length"}


# --- partial batches ---


def put_in_part(store: Store, frames: list[bytes]) -> BatchResult:
    return store.put_batch(replace(raw_batch(frames), partial=True))


@each_bad
@pytest.mark.parametrize(("count", "number"), [(1, 0), (5, 0), (5, 2), (5, 4), (20, 19)])
def test_a_partial_batch_is_stored_without_its_bad_frame(store, bad, reason, count, number):
    frames = [GOOD] * count
    frames[number] = bad
    result = put_in_part(store, frames)
    (refusal,) = result.refusals
    assert (refusal.first, refusal.count) == (number, 1)
    assert refusal.status is SendStatus.MESSAGE_ILLEGAL
    assert refusal.error.fields["frame"] == number
    assert [frame.body for frame in store.frames()] == [b"good"] * (count - 1)
    assert (result.error is None) == (count > 1)
    stored = [length for part in result.parts for length in part.lengths]
    assert stored == [len(GOOD)] * (count - 1)
    assert [part.first_queue_offsets for part in result.parts] == [
        (first,) for first, more in ((0, number), (number, count - 1 - number)) if more
    ]


def test_of_many_bad_frames_the_last_that_is_looked_for_refuses_all_behind_it(store):
    frames = [BAD["topic"][0], GOOD] * (MAX_BAD_FRAMES + 4)
    result = put_in_part(store, frames)
    assert len(store.frames()) == MAX_BAD_FRAMES - 1
    *before, last = result.refusals
    assert [one.first for one in before] == [*range(0, 2 * MAX_BAD_FRAMES - 2, 2)]
    assert last.rows.stop == len(frames)


@pytest.mark.parametrize(
    ("topic", "queue_id", "error"),
    [
        ("closed", 0, NotWritableError),
        ("orders", 99, InvalidRequestError),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 0, InvalidRequestError),
        ("forbidden", 0, NotPermittedError),
    ],
)
def test_a_partial_batch_is_stored_without_the_runs_that_no_queue_takes(
    store, topic, queue_id, error
):
    store.log.topics.put(TopicConfig("closed", permission=PERMISSION_READ))
    runs = [("orders", 0, [b"1", b"2"]), (topic, queue_id, [b"3", b"4"]), ("orders", 1, [b"5"])]
    wanted, answers = replace(batch_of(runs), partial=True), []

    def permit(name: str) -> None:
        if name == "forbidden":
            raise NotPermittedError("it may not be named")

    store.log.puts.batch(wanted, answers.append, permit=permit)
    store.settle()
    (result,) = answers
    (refusal,) = result.refusals
    assert (refusal.first, refusal.count) == (2, 2) and isinstance(refusal.error, error)
    assert [frame.body for frame in store.frames()] == [b"1", b"2", b"5"]
    with pytest.raises(NotFoundError):
        store.log.topics.get("forbidden")


def test_a_partial_batch_is_refused_whole_where_the_broker_takes_nothing(store):
    store.log.topics.put(TopicConfig(DRAIN_TOPIC, 1, 1, Drain.DRAINED.value))
    result = put_in_part(store, [GOOD])
    assert result.error.reason == "drained" and not result.refusals


def test_a_part_that_is_refused_for_now_makes_the_batch_one_that_may_be_stored():
    """The segment takes the first piece, and the next one is not there yet."""
    store = Store(4096)
    store.start()
    store.put(bytes(2000))
    store.send_batch(batch([bytes(3000)]))
    runs = [("orders", 0, [bytes(500)]), ("orders", 99, [b"x"]), ("orders", 0, [bytes(1500)])]
    answers = []
    store.log.puts.batch(replace(batch_of(runs), partial=True), answers.append)
    for _ in range(5):
        store.step()
    assert store.log.appender.blocked and not answers
    store.log.appender.refuse_all(SendStatus.OS_PAGECACHE_BUSY, BusyError("no segment"))
    store.settle()
    (result,) = answers
    assert result.status is SendStatus.UNKNOWN_ERROR
    assert isinstance(result.error, UnavailableError) and not result.refusals


def test_a_part_that_is_refused_for_now_is_told_at_once():
    """The stream stores nothing behind it from then on: while the piece before it waits for the
    disk, a later batch would be stored before this piece."""
    store = Store(4096)
    store.start()
    store.put(bytes(2000))
    store.send_batch(batch([bytes(3000)]))
    runs = [("orders", 0, [bytes(500)]), ("orders", 99, [b"x"]), ("orders", 0, [bytes(1500)])]
    answers = []
    store.log.puts.batch(replace(batch_of(runs), partial=True), answers.append)
    for _ in range(5):
        store.step()
    store.log.appender.refuse_all(SendStatus.OS_PAGECACHE_BUSY, BusyError("no segment"))
    assert [one.status for one in answers] == [SendStatus.UNKNOWN_ERROR]
    store.settle()
    assert len(answers) == 1


def test_beside_a_frame_that_is_none_nothing_is_taken_of_topics_with_a_type(store):
    store.log.topics.put(TopicConfig("ordered", message_type=MessageType.FIFO))
    normal = raw_frame(b"x", topic="ordered")
    frames = [GOOD, normal, normal, GOOD, GOOD[:50]]
    lengths = np.array([len(one) for one in frames], np.uint32)
    runs = [FrameRun("orders", 0, 1), FrameRun("ordered", 0, 2), FrameRun("orders", 0, 2)]
    result = store.put_batch(FrameBatch(runs, lengths, b"".join(frames), partial=True))
    assert [(one.first, one.count) for one in result.refusals] == [(1, 2), (4, 1)]
    assert [one.error.fields["frame"] for one in result.refusals] == [4, 4]
    assert [frame.topic for frame in store.frames()] == ["orders"] * 2


def test_consecutive_messages_of_a_wrong_type_are_one_refusal(store):
    """An answer has no sentence for each message of a batch."""
    store.log.topics.put(TopicConfig("ordered", message_type=MessageType.FIFO))
    result = store.put_batch(replace(batch([b"x"] * 9, "ordered"), partial=True))
    assert [(one.first, one.count) for one in result.refusals] == [(0, 9)]


# --- sent again ---


class Counted(list):
    reads = 0

    def __iter__(self):
        for one in super().__iter__():
            Counted.reads += 1
            yield one

    def __getitem__(self, at):
        Counted.reads += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("first_whole", [False, True])
def test_what_is_sent_again_in_many_pieces_is_found_at_a_linear_cost(monkeypatch, first_whole):
    """A hostile client alternates a topic that is open with one that is not, and opens or closes
    it between its attempts."""
    monkeypatch.setattr(Counted, "reads", 0)
    store = Store(1 << 18)
    log = store.start()
    count, shape = 500, FrameShape(encode_host(BORN), producer=7)
    made = batch_of([("ab"[at % 2], 0, [b"x"]) for at in range(count)], shape=shape)
    wanted = replace(made, runs=Counted(made.runs), numbers=Numbers(7, 0), partial=True)
    again = replace(wanted, numbers=Numbers(7, 0, KnownPlace(log.generation, 0)))
    for writes in (first_whole, not first_whole):
        log.topics.put(TopicConfig("a", permission=6 if writes else PERMISSION_READ))
        result = store.put_batch(wanted if writes is first_whole else again)
        assert len(result.refusals) == (0 if writes else count // 2)
    assert len(store.frames()) == count
    assert Counted.reads < 40 * count


def test_a_pass_looks_for_few_batches_that_may_be_in_the_log(store):
    """Each costs a search, and those that are found appended nothing."""
    store.log.topics.put(TopicConfig("closed", permission=PERMISSION_READ))
    shape = FrameShape(encode_host(BORN), producer=7)
    made = batch_of([(("orders", "closed")[at % 2], 0, [b"x"]) for at in range(100)], shape=shape)
    first = replace(made, numbers=Numbers(7, 0), partial=True)
    place = KnownPlace(store.log.generation, 0)
    assert len(store.put_batch(first).parts) == 50
    store.send_batch(replace(first, numbers=Numbers(7, 0, place)))
    store.step()
    assert store.log.appender.waiting
    store.settle()
    assert len(store.answers.batches[-1].parts) == 50
    assert len(store.frames()) == 50


# --- record checksums ---


def test_with_checksums_on_a_frame_without_room_for_one_is_refused():
    store = Store(1 << 16, property_checksum=True)
    store.start()
    room = raw_frame(b"x", properties=reserve(b"k\x01v"))
    for bad in (
        GOOD,
        raw_frame(b"x", properties=b"k\x01" + b"v" * 40),
        raw_frame(b"x", properties=reserve(b"") + b"k\x01v"),
        raw_frame(b"x", properties=encode_property_crc(7)),
    ):
        result = store.put_batch(raw_batch([room, bad]))
        assert result.error.fields == {"frame": 1, "reason": "property_checksum"}
    assert store.put_batch(raw_batch([room] * 3)).status is SendStatus.PUT_OK
    assert all(check_property_crc(raw) for raw in store.frame_bytes())


def test_a_checksum_that_a_producer_sends_unasked_is_made_right():
    """A message read from one broker and sent to another may bring one along."""
    store = Store(1 << 16)
    store.start()
    foreign = raw_frame(b"x", properties=b"k\x01v\x02" + encode_property_crc(1234567890))
    store.put_batch(raw_batch([GOOD, foreign, GOOD]))
    store.put_raw(foreign)
    assert [check_property_crc(raw) for raw in store.frame_bytes()] == [None, True, None, True]
    store.kill()
    store.start()
    assert len(store.frames()) == 4


def test_what_is_refused_creates_no_topic(store):
    good, bad = raw_frame(b"x", topic="new"), raw_frame(b"x", topic="known")
    store.put(topic="known")
    runs = [FrameRun("new", 0, 1), FrameRun("known", 99, 1)]
    lengths = np.array([len(good), len(bad)], np.uint32)
    refused = store.put_batch(FrameBatch(runs, lengths, good + bad))
    assert refused.status is SendStatus.MESSAGE_ILLEGAL
    assert store.put(b"x", topic="new", queue_id=99).status is SendStatus.MESSAGE_ILLEGAL
    assert store.log.topics.find("new") == []
    assert store.put(b"x", topic="new").status is SendStatus.PUT_OK
    assert store.log.topics.find("new") != []
