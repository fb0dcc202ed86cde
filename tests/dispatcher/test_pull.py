"""Pulls: every status and next offset of RocketMQ 4.9.8, its limits, filters, damaged units."""

import random
from contextlib import aclosing, closing
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stratamq_dispatcher.cold_reads import ColdReads, LogIdentity
from stratamq_dispatcher.cursors import Cursor
from stratamq_dispatcher.pull import (
    PullAnswer,
    PullLimits,
    PullQuery,
    StreamPieces,
    TagFilter,
    plan_pull,
)
from stratamq_dispatcher.pulling import Puller

from stratamq.errors import CorruptionError
from stratamq.files.simulated import SimulatedWorker
from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_MS
from stratamq.formats.file_names import offset_name
from stratamq.formats.javahash import tags_code
from stratamq.formats.message_status import PullStatus
from stratamq.formats.queue_unit import encode_queue_unit
from stratamq.formats.topics import SCHEDULE_TOPIC
from tests.dispatcher.followed_log import HOST_V6, Broker, WrittenLog, start
from tests.dispatcher.queue_checks import frames_of, pull
from tests.support.disks import simulated_place

LARGE = 1 << 20


def broker_with(
    *, count: int = 0, tags: str = "", body: int = 40, segment_bytes: int = LARGE, **settings
) -> Broker:
    """`count` messages of one queue; `tags` are given to them in turn, one letter each."""
    files = simulated_place().files
    log = WrittenLog(files, segment_bytes=segment_bytes)
    for number in range(count):
        log.put("t", body=bytes(body), tags=tags[number % len(tags)] if tags else "")
    broker = start(files, log, **({"queue_file_bytes": 20_000} | settings))
    broker.follow()
    return broker


def outcome(answer: PullAnswer) -> tuple[str, int]:
    return answer.status.name, answer.next_offset


# --- statuses ---


@pytest.mark.parametrize("offset", [-1, 0, 5])
def test_an_unknown_queue_has_no_message(offset):
    broker = broker_with(count=1)
    assert outcome(pull(broker, "unknown", 0, offset)) == ("NO_MESSAGE_IN_QUEUE", 0)
    assert outcome(pull(broker, "t", 9, offset)) == ("NO_MESSAGE_IN_QUEUE", 0)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (-(2**63), ("OFFSET_TOO_SMALL", 0)),
        (-1, ("OFFSET_TOO_SMALL", 0)),
        (0, ("FOUND", 5)),
        (4, ("FOUND", 5)),
        (5, ("OFFSET_OVERFLOW_ONE", 5)),
        (6, ("OFFSET_OVERFLOW_BADLY", 5)),
        (2**63 - 1, ("OFFSET_OVERFLOW_BADLY", 5)),
    ],
)
def test_an_offset_outside_the_queue_leads_to_its_nearest_end(offset, expected):
    assert outcome(pull(broker_with(count=5), "t", 0, offset)) == expected


def test_a_missing_queue_file_leads_to_the_next_one():
    broker = broker_with(count=20, queue_file_bytes=100)
    broker.stop()
    broker = start(broker.engine_files, broker.log)
    broker.engine_files.unlink(f"consumequeue/t/0/{offset_name(100)}")
    assert outcome(pull(broker, "t", 0, 7)) == ("OFFSET_FOUND_NULL", 10)
    assert outcome(pull(broker, "t", 0, 10)) == ("FOUND", 15)


def test_a_pull_ends_at_the_end_of_a_queue_file():
    """RocketMQ looks at one file; its clients ask again from where it ended."""
    broker = broker_with(count=20, queue_file_bytes=100)
    assert outcome(pull(broker, "t", 0, 3)) == ("FOUND", 5)
    assert outcome(pull(broker, "t", 0, 5)) == ("FOUND", 10)


def test_messages_of_a_segment_that_is_being_deleted_are_passed_over():
    broker = broker_with(count=60, segment_bytes=1024)
    log = broker.log
    broker.engine.followed.segments.close()
    broker.engine_files.unlink(f"commitlog/{offset_name(0)}")
    first_left = next(m.queue_offset for m in log.messages if m.offset >= 1024)
    answer = pull(broker, "t", 0, 0, most=first_left - 1)
    assert (answer.status.name, answer.count) == ("MESSAGE_WAS_REMOVING", 0)
    assert 0 < answer.next_offset <= first_left
    answer = pull(broker, "t", 0, 0)
    assert answer.status is PullStatus.FOUND
    assert frames_of(answer)[0] == log.messages[first_left].frame


def test_wanted_messages_of_a_deleted_segment_are_passed_over_in_a_filtered_pull():
    broker = broker_with(count=60, tags="AB", segment_bytes=1024)
    broker.engine.followed.segments.close()
    broker.engine_files.unlink(f"commitlog/{offset_name(0)}")
    answer = pull(broker, "t", 0, 0, most=200, tag_filter=TagFilter(["B"]))
    assert answer.status is PullStatus.FOUND
    wanted = [m.frame for m in broker.log.messages if m.tags == "B" and m.offset >= 1024]
    assert frames_of(answer) == wanted[: answer.count]


# --- limits ---


@pytest.mark.parametrize("most", [1, 10, 20, 31, 32, 33, 1000])
def test_as_many_messages_as_asked_for_but_at_most_32(most):
    answer = pull(broker_with(count=100), "t", 0, 0, most)
    assert answer.count == min(most, 32)
    assert answer.next_offset == answer.count


def test_zero_messages_means_32():
    assert pull(broker_with(count=100), "t", 0, 0, 0).count == 32


def test_a_batch_from_memory_stays_within_256_kib():
    broker = broker_with(count=40, body=20_000, segment_bytes=LARGE)
    answer = pull(broker, "t", 0, 0)
    size = len(broker.log.messages[0].frame)
    assert answer.count == 262_144 // size
    assert answer.size == answer.count * size <= 262_144


def test_the_first_message_is_given_whatever_its_size():
    broker = broker_with(count=3, body=300_000, segment_bytes=4 * LARGE)
    answer = pull(broker, "t", 0, 1)
    assert (answer.count, answer.next_offset) == (1, 2)
    assert answer.size > 262_144


def test_the_first_message_with_the_tag_is_given_whatever_its_size():
    broker = broker_with(count=3, tags="BAB", body=300_000, segment_bytes=4 * LARGE)
    answer = pull(broker, "t", 0, 0, tag_filter=TagFilter(["A"]))
    assert frames_of(answer) == [broker.log.messages[1].frame]
    assert (answer.count, answer.next_offset) == (1, 2)


def test_messages_far_behind_the_end_come_in_batches_of_8_and_64_kib():
    broker = broker_with(count=100, body=1_000)
    end = broker.log.end
    assert pull(broker, "t", 0, 0, limits=PullLimits(hot_bytes=end)).count == 32
    assert pull(broker, "t", 0, 0, limits=PullLimits(hot_bytes=1000)).count == 8
    broker = broker_with(count=40, body=20_000)
    assert pull(broker, "t", 0, 0, limits=PullLimits(hot_bytes=1000)).count == 3


def test_a_batch_that_reaches_what_is_in_memory_takes_its_limits_unit_by_unit():
    broker = broker_with(count=100, body=1_000)
    size = len(broker.log.messages[0].frame)
    hot = PullLimits(hot_bytes=broker.log.end - 5 * size)
    assert pull(broker, "t", 0, 0, limits=hot).count == 32
    cold = PullLimits(hot_bytes=broker.log.end - 8 * size - 1)
    assert pull(broker, "t", 0, 0, limits=cold).count == 8


def test_a_request_that_names_its_bytes_gets_more_than_rocketmqs_limits():
    broker = broker_with(count=500, body=1_000)
    size = len(broker.log.messages[0].frame)
    answer = pull(broker, "t", 0, 0, 10_000, max_bytes=300 * size)
    assert answer.count == 300
    bounded = pull(broker, "t", 0, 0, 10_000, 1 << 30, limits=PullLimits(most_bytes=100 * size))
    assert bounded.count == 100
    bounded = pull(broker, "t", 0, 0, 10_000, 1 << 30, limits=PullLimits(most_messages=77))
    assert bounded.count == 77


@pytest.mark.parametrize(("asked_kib", "expected_kib"), [(0, [256, 512]), (384, [384, 384])])
async def test_a_stream_gives_pieces_of_the_size_asked_for_or_larger_and_larger_ones(
    monkeypatch, asked_kib, expected_kib
):
    monkeypatch.setattr(StreamPieces, "SURE_AFTER", 1)
    files = simulated_place().files
    log = WrittenLog(files, segment_bytes=LARGE)
    for _ in range(60):
        log.put("t", body=bytes(16_000))
    broker = start(files, log, queue_file_bytes=20_000)
    broker.follow()
    worker = SimulatedWorker(random.Random(0))
    puller = Puller(broker.engine, PullLimits(), ColdReads(files), worker, now_s=lambda: 0.0)
    sizes = []
    pieces = puller.stream([Cursor("t", 0, 0, 60)], None, asked_kib << 10, LARGE)
    async with aclosing(pieces):
        async for _, answer in pieces:
            sizes.append(answer.size)
    for size, expected in zip(sizes[:2], expected_kib, strict=True):
        assert (expected << 10) - 17_000 < size <= expected << 10


def test_a_stream_reader_gets_twice_as_much_when_it_is_quick_and_half_when_it_is_slow():
    pieces, sizes_kib = StreamPieces(0, lambda _: True), []
    quick, slow = [0.2] * 15, [0.201]
    for after_s in (*quick, 0.2, *quick, 0.2, *quick, 0.2, *slow, *quick, *slow, *quick, 0.2):
        pieces.taken(after_s)
        sizes_kib.append(pieces.max_bytes >> 10)
    assert [size for size, _ in groupby(sizes_kib)] == [256, 512, 1024, 512, 256, 512]
    assert sizes_kib.count(256) == 15 + 16 and sizes_kib.count(512) == 16 + 16 + 1


def test_a_filtered_pull_looks_at_800_units_or_as_many_as_messages_were_asked_for():
    broker = broker_with(count=1_000, tags="A", body=1)
    no_one = TagFilter(["B"])
    assert outcome(pull(broker, "t", 0, 0, 32, tag_filter=no_one)) == ("NO_MATCHED_MESSAGE", 800)
    answer = pull(broker, "t", 0, 0, 900, LARGE, no_one)
    assert outcome(answer) == ("NO_MATCHED_MESSAGE", 900)


# --- filters ---


def consumed(broker: Broker, tag_filter: TagFilter) -> list[bytes]:
    frames, offset = [], 0
    while True:
        answer = pull(broker, "t", 0, offset, 5, tag_filter=tag_filter)
        if answer.status not in (PullStatus.FOUND, PullStatus.NO_MATCHED_MESSAGE):
            return frames
        frames += frames_of(answer)
        offset = answer.next_offset


def test_only_messages_with_the_tags_come():
    broker = broker_with(count=90, tags="ABC")
    wanted = [m.frame for m in broker.log.messages if m.tags in "AC"]
    assert consumed(broker, TagFilter(["A", "C"])) == wanted
    assert consumed(broker, TagFilter(codes=[tags_code("A"), tags_code("C")])) == wanted


@pytest.mark.parametrize("texts", [["*"], ["*", "A"], []])
def test_a_star_or_nothing_means_all(texts):
    broker = broker_with(count=10, tags="ABC")
    assert len(consumed(broker, TagFilter(texts))) == 10


def test_tags_of_one_hash_are_distinguished_by_their_text_but_not_by_their_code():
    files = simulated_place().files
    log = WrittenLog(files, segment_bytes=LARGE)
    assert tags_code("Aa") == tags_code("BB")
    for number in range(30):
        log.put("t", tags=("Aa", "BB", "C")[number % 3])
    broker = start(files, log, queue_file_bytes=20_000)
    broker.follow()
    assert consumed(broker, TagFilter(["BB"])) == [m.frame for m in log.messages if m.tags == "BB"]
    both = [m.frame for m in log.messages if m.tags in ("Aa", "BB")]
    assert consumed(broker, TagFilter(codes=[tags_code("BB")])) == both
    assert consumed(broker, TagFilter(["C"], [tags_code("BB")])) == [m.frame for m in log.messages]


def test_a_pull_compares_the_texts_of_one_batch():
    """A queue full of others with the same hash takes many pulls, and none of them long."""
    files = simulated_place().files
    log = WrittenLog(files, segment_bytes=LARGE)
    for number in range(100):
        log.put("t", tags="BB" if number < 99 else "Aa")
    broker = start(files, log, queue_file_bytes=20_000)
    broker.follow()
    answer = pull(broker, "t", 0, 0, 8, tag_filter=TagFilter(["Aa"]))
    assert outcome(answer) == ("NO_MATCHED_MESSAGE", 8)
    assert consumed(broker, TagFilter(["Aa"])) == [log.messages[-1].frame]


def test_text_is_read_from_frames_of_every_shape():
    files = simulated_place().files
    log = WrittenLog(files, segment_bytes=LARGE)
    log.put("t", tags="naïve", born_host=HOST_V6)
    log.put("t", tags="naïve", store_host=HOST_V6, body=b"")
    log.put("t", tags="naïve", magic=0xDAA320AB)
    log.put("t", tags="naïve", properties={"KEYS": "TAGS naïve"})
    log.put("t", tags="naive")
    log.put("t")
    broker = start(files, log)
    broker.follow()
    assert consumed(broker, TagFilter(["naïve"])) == [m.frame for m in log.messages[:4]]


def test_tags_of_the_schedule_topic_are_compared_by_text_because_its_codes_are_times():
    files = simulated_place().files
    log = WrittenLog(files, segment_bytes=LARGE)
    for tag in "AB":
        log.put(SCHEDULE_TOPIC, 2, tags=tag, properties={"DELAY": "3"})
    broker = start(files, log)
    broker.follow()
    answer = pull(broker, SCHEDULE_TOPIC, 2, 0, tag_filter=TagFilter(["B"]))
    assert frames_of(answer) == [log.messages[1].frame]
    due = log.messages[0].store_ms + DEFAULT_DELAY_LEVELS_MS[2]
    answer = pull(broker, SCHEDULE_TOPIC, 2, 0, tag_filter=TagFilter(codes=[due]))
    assert frames_of(answer) == [log.messages[0].frame]
    low = (due + 2**31) % 2**32 - 2**31  # the broker compares the low 32 bits
    answer = pull(broker, SCHEDULE_TOPIC, 2, 0, tag_filter=TagFilter(codes=[low]))
    assert frames_of(answer) == [log.messages[0].frame]


def test_a_code_of_64_bits_is_compared_with_all_of_them():
    files = simulated_place().files
    log = WrittenLog(files, segment_bytes=LARGE)
    first = log.put(SCHEDULE_TOPIC, 2, properties={"DELAY": "3"})
    log.put(SCHEDULE_TOPIC, 2, properties={"DELAY": "3"}, after_ms=1 << 32)
    broker = start(files, log)
    broker.follow()
    due = first.store_ms + DEFAULT_DELAY_LEVELS_MS[2]
    answer = pull(broker, SCHEDULE_TOPIC, 2, 0, tag_filter=TagFilter(codes=[due]))
    assert frames_of(answer) == [first.frame]


@settings(deadline=None, max_examples=60)
@given(
    tags=st.text("AB", min_size=1, max_size=60),
    offset=st.integers(0, 59),
    most=st.integers(1, 40),
    sizes=st.integers(1, 12_000),
    wanted=st.sampled_from(["", "A", "B"]),
)
def test_a_pull_takes_what_taking_one_unit_after_another_takes(tags, offset, most, sizes, wanted):
    """The loop of spec 10.1, unit by unit, gives the expected result of the columns."""
    files = simulated_place().files
    log = WrittenLog(files, segment_bytes=LARGE)
    for number, tag in enumerate(tags):
        log.put("t", body=bytes(number * sizes % 30_000), tags=tag)
    broker = start(files, log, queue_file_bytes=20_000)
    broker.follow()
    offset = min(offset, len(tags) - 1)
    taken, size, next_offset = [], 0, offset
    for message in log.messages[offset:]:
        frame_size = len(message.frame)
        if taken and (len(taken) >= min(most, 32) or size + frame_size > 262_144):
            break
        next_offset += 1
        if not wanted or message.tags == wanted:
            taken.append(message.frame)
            size += frame_size
    tag_filter = TagFilter([wanted]) if wanted else None
    answer = pull(broker, "t", 0, offset, most, tag_filter=tag_filter)
    assert frames_of(answer) == taken
    assert (answer.next_offset, answer.count, answer.size) == (next_offset, len(taken), size)


# --- reading ---


def test_neighbours_in_the_log_come_as_one_piece():
    broker = broker_with(count=50)
    assert len(pull(broker, "t", 0, 0).pieces) == 1


def test_messages_of_a_batch_that_crosses_segments_come_in_order():
    broker = broker_with(count=200, segment_bytes=2_000, body=300)
    answer = pull(broker, "t", 0, 3)
    assert frames_of(answer) == [m.frame for m in broker.log.messages[3 : 3 + answer.count]]
    assert len(answer.pieces) == 1, "one behind the other"


@pytest.mark.parametrize("queues", [1, 7])
def test_cold_reads_give_the_same_bytes(queues):
    files = simulated_place().files
    log = WrittenLog(files, segment_bytes=5_000)
    for number in range(150):
        log.put("t", number % queues, body=bytes(number * 7))
    broker = start(files, log, queue_file_bytes=20_000)
    broker.follow()
    engine = broker.engine
    cold = ColdReads(files)
    plan = plan_pull(
        engine.queues.get("t", 0),
        PullQuery("t", 0, 2, 100, 50_000),
        engine.queues.open_files,
        0,
        engine.followed.confirmed,
        PullLimits(hot_bytes=0),
        engine.followed.segment_bytes,
    )
    assert not isinstance(plan, PullAnswer)
    assert plan.cold
    answer = cold.pull(plan, LogIdentity(engine.followed.segment_bytes, engine.history, 0))
    assert frames_of(answer) == frames_of(pull(broker, "t", 0, 2, 100, 50_000))


@pytest.mark.parametrize(
    "unit",
    [
        encode_queue_unit(0, 0, 0),  # a zeroed page
        encode_queue_unit(0, 132, 0),  # another message's frame
        encode_queue_unit(133, 132, 0),  # no frame's beginning
        encode_queue_unit(264, 131, 0),  # a wrong size
        encode_queue_unit(1 << 40, 132, 0),  # beyond the log
        encode_queue_unit(264, 2**31 - 1, 0),
        encode_queue_unit(-1, 132, 0),
    ],
)
def test_a_damaged_unit_never_gives_a_wrong_message(unit):
    broker = broker_with(count=6)
    assert broker.log.messages[2].offset == 264
    broker.stop()
    broker = start(broker.engine_files, broker.log)
    file = broker.engine_files.open(f"consumequeue/t/0/{offset_name(0)}", writable=True)
    file.write(40, unit)
    file.close()
    with pytest.raises(CorruptionError) as caught:
        pull(broker, "t", 0, 2, 1)
    assert caught.value.file == "consumequeue/t/0"
    assert frames_of(pull(broker, "t", 0, 3)) == [m.frame for m in broker.log.messages[3:]]


@pytest.mark.parametrize("tag_filter", [None, TagFilter(["A"])], ids=["all", "a tag"])
def test_a_zeroed_unit_is_not_passed_over(tag_filter):
    """As if it had no tag, or its segment were deleted."""
    broker = broker_with(count=60, tags="A", segment_bytes=1024)
    broker.stop()
    broker = start(broker.engine_files, broker.log)
    with closing(
        broker.engine_files.open(f"consumequeue/t/0/{offset_name(0)}", writable=True)
    ) as file:
        file.write(40 * 20, encode_queue_unit(0, 0, 0))
    broker.engine_files.unlink(f"commitlog/{offset_name(0)}")
    answer = pull(broker, "t", 0, 30, 200, 1 << 20, tag_filter)
    assert (answer.status, answer.next_offset) == (PullStatus.FOUND, 40)
    with pytest.raises(CorruptionError, match="no frame can be so small"):
        pull(broker, "t", 0, 40, 200, 1 << 20, tag_filter)
