"""No consumer is given a record that is not as it was written, or that is another queue's."""

from dataclasses import replace

import numpy as np
import pytest

from stratamq.errors import CorruptionError
from stratamq.formats import frame as frames
from stratamq.formats.message_status import PullStatus
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.tier.containers.place import TierLimits
from stratamq.tier.containers.queue import TierQueue
from stratamq.tier.driver.calls import Read
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.checked import first_wrong, pull_checked
from stratamq.tier.reading.records import TierRecords
from stratamq.tier.writing.queue_writer import TierQueueWriter
from tests.tier.queue_model import PLACE, TIME, QueueModel, opened

COUNT, PART = 60, 20
MODEL = QueueModel(0, tuple(50 + offset % 7 for offset in range(COUNT)))
HUGE = (1 << 31) - 1


@pytest.fixture(params=[False, True], ids=["objects", "directory"])
def storage(request) -> MemoryStorage:
    storage = MemoryStorage(request.param)
    writer = TierQueueWriter(PLACE, (1, 1), storage.positions, TierLimits())
    for start in range(0, COUNT, PART):
        run(writer.commit(MODEL.batch(start, start + PART), TIME), storage)
    return storage


def queue_in(storage: MemoryStorage) -> TierQueue:
    found = opened(storage)
    assert found is not None
    return found.queue


def pulled(storage, queue, offset, count=COUNT, max_bytes=1 << 20):
    return run(pull_checked(queue, offset, count, max_bytes, PLACE.folder), storage)


def write(storage: MemoryStorage, read: Read, data: bytes) -> None:
    content = bytearray(storage.objects[read.path])
    content[read.start : read.start + len(data)] = data
    storage.objects[read.path] = bytes(content)


def damage(storage: MemoryStorage, queue: TierQueue, offset: int, what: bytes) -> None:
    """One byte more in the first of `what` in a record."""
    unit = run(queue.read_units(offset, 1), storage)[0]
    (read,) = queue.records.calls(int(unit["physical_offset"]), int(unit["size"]))
    raw = bytearray(storage.perform(read))
    at = raw.index(what)
    raw[at] ^= 1
    write(storage, read, raw)


def body_of(offset: int) -> bytes:
    return bytes((offset * 31 + place) % 256 for place in range(20))


@pytest.mark.parametrize("offset", [0, 1, 19, 20, 37, 59])
@pytest.mark.parametrize(
    ("what", "reason"),
    [(body_of, "damaged"), (lambda offset: PLACE.topic.encode(), "damaged|another queue's")],
    ids=["body", "topic"],
)
def test_a_damaged_record_is_an_error_that_names_it_and_those_around_it_are_given(
    storage, offset, what, reason
):
    queue = queue_in(storage)
    damage(storage, queue, offset, what(offset))
    if offset:
        before = pulled(storage, queue, 0).pulled
        assert (before.status, before.next) == (PullStatus.FOUND, offset)
        assert before.messages.offsets.tolist() == list(range(offset))
    with pytest.raises(
        CorruptionError, match=f"record of queue offset {offset} is ({reason})"
    ) as e:
        pulled(storage, queue, offset)
    assert PLACE.folder in str(e.value)
    if offset + 1 < COUNT:
        behind = pulled(storage, queue, offset + 1).pulled
        assert behind.messages.offsets.tolist() == list(range(offset + 1, COUNT))


def test_a_property_of_a_record_with_a_checksum_of_its_own_is_verified(storage):
    queue = queue_in(storage)
    damage(storage, queue, 31, b"k31")
    with pytest.raises(CorruptionError, match="queue offset 31 is damaged \\(record_crc\\)"):
        pulled(storage, queue, 31)


@pytest.mark.parametrize("others", [{"queue_id": 4}, {"topic": "%RETRY%order"}, {"topic": "t"}])
def test_another_queues_records_are_an_error(storage, others):
    queue = replace(queue_in(storage), **others)
    with pytest.raises(CorruptionError, match="queue offset 7 is another queue's"):
        pulled(storage, queue, 7)


@pytest.mark.parametrize("malformed", [b"a\xffb", b"\xed\xa0\x80"])
def test_a_topic_that_is_no_text_is_its_queues(malformed):
    raw = frames.encode(
        topic=malformed, body=b"x", born_host=bytes(8), store_host=bytes(8), properties=b"",
        queue_id=2, queue_offset=0, physical_offset=0, store_timestamp_ms=TIME,
    )  # fmt: skip
    zero, size = np.zeros(1, np.int64), np.array([len(raw)])
    records = TierRecords(memoryview(bytes(raw)), zero, size, zero, zero)
    topic = frames.decode(bytes(raw)).topic
    assert first_wrong(records, topic, 2) is None
    assert first_wrong(records, topic, 3) == (0, "another queue's")


@pytest.mark.parametrize("offset", [0, 25, 58])
def test_a_unit_of_a_huge_size_costs_no_more_than_its_record(storage, offset):
    queue = queue_in(storage)
    (read,) = queue.units.calls(offset * QUEUE_UNIT_BYTES, QUEUE_UNIT_BYTES)
    unit = bytearray(storage.perform(read))
    unit[8:12] = HUGE.to_bytes(4, "big")
    write(storage, read, unit)
    sizes = []

    class Counted:
        positions = storage.positions

        def perform(self, call):
            sizes.append(getattr(call, "length", 0))
            return storage.perform(call)

    found = run(pull_checked(queue, offset, 1, 100, PLACE.folder), Counted())
    assert (found.pulled.next, found.missing, len(found.pulled.messages)) == (offset + 1, 1, 0)
    assert sum(sizes) < 1_000
    assert pulled(storage, queue, offset + 1).pulled.messages.offsets[0] == offset + 1


@pytest.mark.parametrize(("count", "max_bytes", "calls"), [(PART, 1 << 20, 2), (1, 100, 3)])
def test_a_part_is_pulled_by_two_calls_and_a_record_larger_than_asked_for_by_three(
    storage, count, max_bytes, calls
):
    made = []

    class Counted:
        positions = storage.positions

        def perform(self, call):
            made.append(call)
            return storage.perform(call)

    found = run(pull_checked(queue_in(storage), PART, count, max_bytes, PLACE.folder), Counted())
    assert len(found.pulled.messages) == count
    assert len(made) == calls


def test_what_is_missing_is_counted(storage):
    queue = queue_in(storage)
    for offset in (3, 4, 40):
        unit = run(queue.read_units(offset, 1), storage)[0]
        (read,) = queue.records.calls(int(unit["physical_offset"]), 8)
        write(storage, read, bytes(8))
    found = pulled(storage, queue, 0)
    assert (found.pulled.next, found.missing) == (COUNT, 3)
    assert len(found.pulled.messages) == COUNT - 3
