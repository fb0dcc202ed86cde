"""A store made from its tier alone: all messages under their queue offsets, and it continues."""

import random
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pytest
from stratamq_commitlog.recovery import opening

from stratamq.cli.tier_backfill import backfill
from stratamq.errors import (
    CorruptionError,
    InvalidRequestError,
    NotWritableError,
    StoreRefusedError,
)
from stratamq.files.simulated import SimulatedCrash, SimulatedDisk
from stratamq.formats import frame as frames
from stratamq.formats.frame_layout import PHYSICAL_OFFSET_POSITION
from stratamq.formats.frame_verify import damage_in
from stratamq.formats.properties import encode_properties
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES, fill_property_crc, reserve
from stratamq.formats.store_paths import RESTORING_PATH
from stratamq.tier.consumer_offsets import ConsumerOffsetsCopy
from stratamq.tier.containers.place import QueuePlace, TierLimits
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.simulated import SimulatedBackend, When
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.reading.manifests import open_queue
from stratamq.tier.reading.pull import pull
from stratamq.tier.reading.verify import queues_of, verify_queue
from stratamq.tier.restoring import merging
from stratamq.tier.restoring.restoring import Restore, Restored
from stratamq.tier.writing.batch import TierBatch
from stratamq.tier.writing.claim import FencedError, claim
from stratamq.tier.writing.progress import ProgressObject
from stratamq.tier.writing.queue_writer import TierQueueWriter
from tests.support.disks import read_file
from tests.support.fixtures import ALL_STORES, unpack
from tests.support.logs import Store

NAMES = ("DefaultCluster", "broker-a")
TIME = 1_700_000_000_000
LIMITS = TierLimits(
    record_segment_bytes=2_000, unit_segment_bytes=140, roll_min_bytes=600, join_bytes=500
)
SEGMENT_BYTES = 4096
GENERATION = (3 << 51) + 77
"""Of term 3."""
BOTH = pytest.mark.parametrize("positions", [True, False], ids=["positions", "parts"])


@dataclass(frozen=True)
class Queue:
    """`first` to `end` were uploaded, in batches of 5; `step_ms` apart."""

    topic: str
    queue_id: int
    first: int
    end: int
    step_ms: int = 10
    hole: tuple[int, int] | None = None
    kept_from: int = 0
    """Messages below were purged."""

    @property
    def place(self) -> QueuePlace:
        return QueuePlace(*NAMES, self.topic, self.queue_id)

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.queue_id

    def time(self, offset: int) -> int:
        return TIME + (offset - self.first) * self.step_ms

    def record(self, offset: int) -> bytes:
        sealed = offset % 3 != 0
        properties = encode_properties({"KEYS": f"k{offset}"})
        raw = bytearray(
            frames.encode(
                topic=self.topic.encode(),
                body=bytes((offset * 31 + at) % 256 for at in range(offset * 37 % 300)),
                born_host=bytes(20 if offset % 5 == 0 else 8),
                store_host=bytes(8),
                properties=reserve(properties) if sealed else properties,
                queue_id=self.queue_id,
                queue_offset=offset,
                physical_offset=offset * 100_000 + 7,
                store_timestamp_ms=self.time(offset),
            )
        )
        if sealed:
            fill_property_crc(raw)
        return bytes(raw)

    def batch(self, start: int, end: int) -> TierBatch:
        records = [self.record(offset) for offset in range(start, end)]
        sizes = np.array([len(raw) for raw in records], np.int64)
        times = np.array([self.time(offset) for offset in range(start, end)], np.int64)
        return TierBatch(start, b"".join(records), sizes, sizes * 0, times)

    def in_log(self) -> range:
        return range(max(self.hole[1] if self.hole else self.first, self.kept_from), self.end)


IN_TIER = {"orders", "%RETRY%billing", "%DLQ%billing"}
QUEUES = (
    Queue("orders", 0, 0, 23),
    Queue("orders", 5, 500, 540, step_ms=3),
    Queue("%RETRY%billing", 0, 7, 19, step_ms=40),
    Queue("%DLQ%billing", 0, 0, 1),
)


def upload(storage: Storage, queues=QUEUES, generation: int = GENERATION) -> None:
    epoch = run(claim(*NAMES, generation), storage)
    for queue in queues:
        writer = TierQueueWriter(queue.place, epoch, storage.positions, LIMITS)
        lost = range(*queue.hole) if queue.hole else range(0)
        offsets = [at for at in range(queue.first, queue.end) if at not in lost]
        while offsets:
            few = [at for at in offsets[:5] if (at < lost.start) == (offsets[0] < lost.start)]
            run(writer.commit(queue.batch(few[0], few[-1] + 1), queue.time(few[-1])), storage)
            offsets = offsets[len(few) :]
    copy = ConsumerOffsetsCopy(*NAMES, epoch)
    copy.take(b'{"offsetTable":{"orders@group":{"0":12,"5":530}}}')
    run(copy.store(TIME), storage)


def tier(positions: bool, queues=QUEUES) -> MemoryStorage:
    storage = MemoryStorage(positions)
    upload(storage, queues)
    return storage


def restore(
    storage: Storage, disk: SimulatedDisk, segment_bytes: int = SEGMENT_BYTES, seed: int = 0
) -> Restored:
    work = Restore(
        *NAMES, disk.files(), 1, random.Random(seed), lambda restored: None, segment_bytes
    )
    return run(work.run(storage.positions), storage)


def check(disk: SimulatedDisk, queues=QUEUES) -> None:
    """The log has every message that it should have, and continues at the queues' ends."""
    store = Store(SEGMENT_BYTES, disk=disk)
    log = store.start()
    try:
        found = {}
        for place, raw, value in store.members():
            if isinstance(value, frames.Frame):
                assert value.physical_offset == place
                found[value.topic, value.queue_id, value.queue_offset] = raw
        wanted = {
            (*queue.key, offset): queue.record(offset)
            for queue in queues
            for offset in queue.in_log()
        }
        assert found.keys() == wanted.keys()
        for key, raw in found.items():
            check_record(raw, wanted[key], sealed=key[2] % 3 != 0)
        times = [frame.store_timestamp_ms for frame in store.frames()]
        assert times == sorted(times)
        assert store.queues() == {queue.key: queue.end for queue in queues}
        assert log.status().minimum_offset == 0
        result = store.put(b"next", queues[-1].topic, queue_id=queues[-1].queue_id)
        assert result.queue_offset == queues[-1].end
        assert store.frames()[-1].store_timestamp_ms >= max(times, default=0)
        store.stop()
    finally:
        store.kill()


def check_record(restored: bytes, original: bytes, *, sealed: bool) -> None:
    place = PHYSICAL_OFFSET_POSITION
    kept = len(original) - (PROPERTY_CRC_BYTES if sealed else 0)
    assert restored[:place] == original[:place]
    assert restored[place + 8 : kept] == original[place + 8 : kept]
    assert damage_in(restored, sealed=sealed) == ""


@BOTH
@pytest.mark.parametrize("chunk", [1, 700, 1 << 20])
def test_every_message_is_in_the_log_under_its_queue_offset(positions, chunk, monkeypatch):
    monkeypatch.setattr(merging, "LEAST_CHUNK_BYTES", 1)
    monkeypatch.setattr(merging, "LARGEST_CHUNK_BYTES", chunk)
    disk = SimulatedDisk()
    restored = restore(tier(positions), disk)
    assert (restored.messages, restored.queues, restored.left_out) == (76, 4, ())
    assert restored.of_messages == 76
    assert len(disk.files().list("commitlog")) > 2
    check(disk)


@BOTH
def test_consumer_offsets_and_topics_come_along(positions):
    disk = SimulatedDisk()
    assert restore(tier(positions), disk).groups == 1
    offsets = read_file(disk.files(), "config/consumerOffset.json")
    assert b'"orders@group"' in offsets
    assert b'"5": 530' in offsets
    store = Store(SEGMENT_BYTES, disk=disk)
    topics = {topic.topic: topic for topic in store.start().topics.list()}
    assert (topics["orders"].read_queues, topics["orders"].write_queues) == (6, 6)
    assert {topic.permission for topic in topics.values() if topic.topic in IN_TIER} == {6}


@BOTH
def test_of_a_queue_with_a_hole_the_log_has_what_is_behind_it(positions):
    queues = (*QUEUES, Queue("holes", 1, 10, 60, hole=(22, 40)))
    disk = SimulatedDisk()
    restored = restore(tier(positions, queues), disk)
    (left,) = restored.left_out
    assert (left.place.topic, left.messages, left.before) == ("holes", 12, 40)
    check(disk, queues)


@BOTH
@pytest.mark.parametrize("batch", [1, 5, 100])
@pytest.mark.parametrize("seed", range(6))
def test_what_verify_calls_sound_is_restored_after_any_sequence_of_changes(positions, batch, seed):
    chance, storage = random.Random(seed), MemoryStorage(positions)
    epoch = run(claim(*NAMES, GENERATION), storage)
    expected = []
    for number in range(3):
        queue = Queue("orders", number, 0, 0, step_ms=chance.choice((1, 7, 40)))
        writer = TierQueueWriter(queue.place, epoch, positions, LIMITS)
        minimum = end = 0
        for _ in range(30):
            change = chance.choice(
                ("append", "append", "append", "purge", "delete", "again", "cut")
            )
            now_ms = queue.time(end)
            if change == "append":
                later = end + chance.randint(1, batch)
                run(writer.commit(queue.batch(end, later), now_ms), storage)
                end = later
            elif change == "purge":
                minimum = chance.randint(minimum, end)
                run(writer.purge(minimum, now_ms), storage)
            elif change == "delete":
                minimum = end
                run(writer.purge(end, now_ms), storage)
            elif change == "again":
                run(writer.cut(0, now_ms), storage)
                minimum = end = 0
            else:
                end = chance.randint(0, end)
                run(writer.cut(end, now_ms), storage)
                minimum = min(minimum, end)
            run(writer.merge(now_ms), storage)
        minimum = chance.randint(minimum, end)
        run(writer.purge(minimum, queue.time(end)), storage)
        assert run(verify_queue(queue.place), storage).faults == ()
        expected.append(replace(queue, end=end, kept_from=minimum))
    disk = SimulatedDisk()
    restored = restore(storage, disk)
    assert restored.messages == restored.of_messages == sum(len(one.in_log()) for one in expected)
    assert restored.left_out == ()
    check(disk, tuple(expected))


@BOTH
@pytest.mark.parametrize("chunk", [1, 700, 1 << 20])
def test_a_queue_that_begins_within_a_part_is_restored_kept_fromthere(
    positions, chunk, monkeypatch
):
    monkeypatch.setattr(merging, "LEAST_CHUNK_BYTES", 1)
    monkeypatch.setattr(merging, "LARGEST_CHUNK_BYTES", chunk)
    queue, storage = Queue("orders", 0, 0, 40), MemoryStorage(positions)
    writer = TierQueueWriter(
        queue.place, run(claim(*NAMES, GENERATION), storage), positions, LIMITS
    )
    run(writer.commit(queue.batch(0, 40), TIME), storage)
    run(writer.purge(37, TIME), storage)
    disk = SimulatedDisk()
    restored = restore(storage, disk)
    assert (restored.messages, restored.of_messages, restored.left_out) == (3, 3, ())
    check(disk, (replace(queue, kept_from=37),))


@BOTH
def test_of_a_queue_with_a_hole_only_messages_that_were_not_purged_are_left_out(positions):
    holed = Queue("holes", 1, 10, 60, hole=(22, 40))
    storage = tier(positions, (holed,))
    writer = TierQueueWriter(
        holed.place, run(claim(*NAMES, GENERATION), storage), positions, LIMITS
    )
    run(writer.purge(18, TIME), storage)
    (left,) = restore(storage, SimulatedDisk()).left_out
    assert (left.messages, left.before) == (4, 40)


@BOTH
def test_a_queue_whose_messages_have_all_expired_continues_at_its_end(positions):
    storage = tier(positions)
    expired = QUEUES[2]
    epoch = run(claim(*NAMES, GENERATION), storage)
    writer = TierQueueWriter(expired.place, epoch, positions, LIMITS)
    assert run(writer.expire(TIME + 10**9, TIME), storage) > 0
    disk = SimulatedDisk()
    assert restore(storage, disk).messages == 64
    gone = Queue(*expired.key, expired.end, expired.end)
    check(disk, (*QUEUES[:2], gone, QUEUES[3]))


@BOTH
def test_the_writer_of_before_can_add_nothing_more(positions):
    storage = tier(positions)
    queue = QUEUES[0]
    old = TierQueueWriter(queue.place, run(claim(*NAMES, GENERATION), storage), positions, LIMITS)
    run(old.open(), storage)
    restore(storage, SimulatedDisk())
    longer = Queue("orders", 0, 0, 30)
    with pytest.raises(FencedError):
        run(old.commit(longer.batch(23, 30), TIME), storage)
    with pytest.raises(FencedError):
        run(claim(*NAMES, GENERATION), storage)


def test_without_taking_the_queues_over_the_writer_of_before_adds_messages(monkeypatch):
    def only_load(self, *_, **given):
        return (yield from self.open())

    monkeypatch.setattr(TierQueueWriter, "take_over", only_load)
    monkeypatch.setattr(TierQueueWriter, "fence", only_load)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_the_writer_of_before_can_add_nothing_more(positions=False)


@BOTH
def test_the_restored_logs_history_is_that_of_the_tier(positions):
    storage, disk = tier(positions), SimulatedDisk()
    restored = restore(storage, disk)
    store = Store(SEGMENT_BYTES, disk=disk)
    log = store.start()
    generations = [(one.number, one.start) for one in log.state.generations]
    assert [start for _, start in generations] == [0, restored.end]
    epoch = run(claim(*NAMES, log.generation), storage)
    known = run(ProgressObject(*NAMES, epoch).load(), storage)
    assert known is not None
    assert (known.generation, known.position, known.reach) == (
        generations[0][0],
        restored.end,
        restored.end,
    )


def test_a_message_larger_than_a_segment_is_refused_by_name():
    with pytest.raises(InvalidRequestError, match="--segment-bytes"):
        restore(tier(False), SimulatedDisk(), segment_bytes=300)


@pytest.mark.parametrize("what", ["records", "units", "another"])
def test_damage_ends_the_restore_and_leaves_no_store(what):
    storage = tier(False)
    paths = sorted(path for path in storage.objects if ".parts/" in path)
    raw = bytearray(storage.objects[paths[3]])
    if what == "another":
        raw[:] = storage.objects[paths[2]]
    else:
        raw[60 if what == "records" else -5] ^= 1
    storage.objects[paths[3]] = bytes(raw)
    disk = SimulatedDisk()
    with pytest.raises(CorruptionError):
        restore(storage, disk)
    with pytest.raises(StoreRefusedError, match="tier restore"):
        Store(SEGMENT_BYTES, disk=disk).start()


def test_a_directory_that_holds_something_is_refused_and_left_alone():
    disk = SimulatedDisk()
    files = disk.files()
    files.create("commitlog/00000000000000000000", SEGMENT_BYTES)
    storage = tier(False)
    before = dict(storage.objects)
    with pytest.raises(StoreRefusedError, match="not empty"):
        restore(storage, disk)
    assert storage.objects == before
    assert files.entry(RESTORING_PATH) is None


def test_two_restores_into_one_directory_are_kept_apart():
    storage, disk = tier(False), SimulatedDisk()
    work = Restore(*NAMES, disk.files(), 1, random.Random(0), lambda restored: None, SEGMENT_BYTES)
    first = work.run(False)
    call = next(first)
    while disk.files().entry(RESTORING_PATH) is None:
        call = first.send(storage.perform(call))
    with pytest.raises(NotWritableError, match="another process"):
        restore(storage, disk)
    first.close()
    restore(storage, disk)
    check(disk)


FEW = (Queue("orders", 0, 3, 12), Queue("orders", 1, 0, 8))


@BOTH
def test_a_restore_that_dies_at_any_call_of_the_disk_is_begun_again(positions):
    storage = tier(positions, FEW)
    whole = SimulatedDisk()
    restore(storage, whole)
    calls = whole.calls
    assert calls > 60
    for call in range(1, calls + 1):
        disk = SimulatedDisk(seed=call)
        disk.crash_at(call)
        with suppress(SimulatedCrash):
            restore(storage, disk)
        if call % 2:
            disk.crash(random.Random(call))
        else:
            disk.kill()
        disk.clear_faults()
        files = disk.files()
        finished = files.entry(RESTORING_PATH) is None and bool(files.list("commitlog"))
        if not finished:
            assert no_log_begins(disk, call)
            restore(storage, disk)
        check(disk, FEW)


def no_log_begins(disk: SimulatedDisk, call: int) -> bool:
    """Nothing durable yet, or refused."""
    if disk.files().entry(RESTORING_PATH) is None:
        return not disk.files().list("commitlog") and not disk.files().list("config")
    store = Store(SEGMENT_BYTES, disk=disk)
    try:
        store.start()
    except StoreRefusedError:
        return True
    finally:
        store.kill()
    raise AssertionError(f"a log began in a directory that was not restored, call {call}")


@BOTH
def test_a_restore_whose_storage_fails_at_any_call_is_begun_again(positions):
    backend = SimulatedBackend(1, positions=positions)
    upload(backend.storage(), FEW)
    kept = dict(backend.memory.objects)
    before = backend.calls
    restore(backend.storage(), SimulatedDisk())
    calls = backend.calls - before
    for call in range(1, calls + 1):
        for when in When:
            backend.memory.objects = dict(kept)
            disk = SimulatedDisk()
            backend.crash_at(backend.calls + call, when)
            with pytest.raises(SimulatedCrash):
                restore(backend.storage(), disk, seed=call)
            disk.kill()
            restored = restore(backend.storage(), disk, seed=call + 1000)
            assert restored.resumed or call < 5
        check(disk, FEW)


def test_without_its_mark_a_log_begins_in_a_directory_that_is_half_restored(monkeypatch):
    monkeypatch.setattr(opening, "RESTORING_PATH", "stratamq/another")
    with pytest.raises(AssertionError, match="a log began"):
        test_a_restore_that_dies_at_any_call_of_the_disk_is_begun_again(positions=False)


def test_consumer_offsets_are_stored_by_the_last_writer_alone():
    storage = MemoryStorage(positions=False)
    old = ConsumerOffsetsCopy(*NAMES, (1, 1))
    old.take(b'{"offsetTable":{"t@g":{"0":1}}}')
    assert old.changed
    run(old.store(1), storage)
    assert not old.changed
    old.take(b'{"offsetTable":{"t@g":{"0":1}}}')
    assert not old.changed
    new = ConsumerOffsetsCopy(*NAMES, (1, 2))
    new.take(b'{"offsetTable":{"t@g":{"0":5},"t@h":{"3":7}}}')
    run(new.store(2), storage)
    with pytest.raises(FencedError):
        run(old.store(3), storage)
    with pytest.raises(InvalidRequestError):
        new.take(b'{"offsetTable":{"t@g":[]}}')


@pytest.mark.parametrize("when", list(When))
def test_consumer_offsets_whose_answer_was_lost_are_stored_again(when):
    from stratamq.tier.consumer_offsets import load_consumer_offsets

    backend = SimulatedBackend(3, positions=False)
    copy = ConsumerOffsetsCopy(*NAMES, (1, 1))
    for number in range(4):
        copy.take(b'{"offsetTable":{"t@g":{"0":%d}}}' % number)
        storage = backend.storage()
        if number == 2:
            backend.crash_at(backend.calls + 1, when)
            with pytest.raises(SimulatedCrash):
                run(copy.store(number), storage)
            continue
        run(copy.store(number), storage)
    assert run(load_consumer_offsets(*NAMES), backend.storage()) == {"t@g": {"0": 3}}


@pytest.mark.parametrize("name", ALL_STORES)
def test_every_message_that_rocketmq_wrote_comes_back(name, tmp_path, capsys):
    storage, disk = MemoryStorage(positions=False), SimulatedDisk()
    backfill(unpack(name, tmp_path), storage, *NAMES, [])
    before = {}
    for place in run(queues_of(*NAMES), storage):
        opened = run(open_queue(place), storage)
        assert opened is not None
        at = max([opened.queue.minimum, *(end for _, end in opened.queue.holes)])
        while at < opened.queue.end:
            answer = run(pull(opened.queue, at, 100), storage)
            for message in answer.messages:
                before[place.topic, place.queue_id, message.offset] = bytes(message.record)
            at = answer.next
    restored = restore(storage, disk, segment_bytes=1 << 20)
    store = Store(1 << 20, disk=disk)
    store.start()
    found = {
        (value.topic, value.queue_id, value.queue_offset): raw
        for _, raw, value in store.members()
        if isinstance(value, frames.Frame)
    }
    assert restored.messages == len(before) == len(found) > 0
    for key, raw in found.items():
        sealed = has_checksum(before[key])
        check_record(raw, before[key], sealed=sealed)


def has_checksum(record: bytes) -> bool:
    return b"__CRC32#" in record[-PROPERTY_CRC_BYTES:]
