"""A scan of a tier whose parts are merged, or taken by retention, while it is read."""

import threading
from contextlib import closing, nullcontext

import pytest

from stratamq.errors import CorruptionError, OffsetOutOfRangeError
from stratamq.table import tier_scan
from stratamq.table.decode import Decoder
from stratamq.table.selection import Selection
from stratamq.table.tier_parts import TierDecoder, TierName
from stratamq.tier.containers.place import TierLimits
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import run
from stratamq.tier.writing.queue_writer import TierQueueWriter
from tests.tier.queue_model import PLACE, TIME, QueueModel

COUNT = 60
MODEL = QueueModel(0, tuple((offset * 37) % 300 for offset in range(COUNT)))
LATER = TIME + 10**12


@pytest.fixture
def tier(monkeypatch):
    """A part for each message, each read by itself: many are behind those that are read ahead."""
    storage = MemoryStorage(positions=False)
    monkeypatch.setattr(tier_scan, "open_storage", lambda target: nullcontext(storage))
    monkeypatch.setattr(tier_scan, "_GROUP_BYTES", 1)
    return storage


def filled(storage, segment_bytes=1 << 30):
    limits = TierLimits(record_segment_bytes=segment_bytes)
    writer = TierQueueWriter(PLACE, (1, 1), storage.positions, limits)
    for offset in range(COUNT):
        run(writer.commit(MODEL.batch(offset, offset + 1), TIME), storage)
    return writer


def scan(on_damage=None, verify=True):
    decoder = TierDecoder(Decoder(("queueOffset",), False), Selection(), verify, on_damage)
    return tier_scan.scan_tier(TierName("memory"), decoder)


def _with_a_wrong_byte(data, at):
    """In a record's body, which its checksum covers."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def offsets(batches):
    return [row["queueOffset"] for batch in batches for row in batch.to_pylist()]


def test_parts_that_are_merged_while_a_queue_is_read_come_once(tier):
    writer = filled(tier)
    with closing(scan()) as batches:
        found = offsets([next(batches)])
        run(writer.merge(TIME), tier)
        run(writer.collect(LATER), tier)
        found += offsets(batches)
    assert found == list(range(COUNT))


def test_what_retention_takes_while_a_queue_is_read_is_an_error_and_no_gap(tier):
    writer = filled(tier, segment_bytes=600)
    found = []
    with closing(scan()) as batches:
        found += offsets([next(batches)])
        run(writer.expire(LATER, LATER), tier)
        run(writer.collect(2 * LATER), tier)
        with pytest.raises(OffsetOutOfRangeError, match="retention took offsets of queue"):
            for batch in batches:
                found += offsets([batch])
    assert found == list(range(len(found)))
    assert len(found) < COUNT


def test_damage_is_named_by_the_thread_that_reads_before_the_messages_behind_it(tier):
    filled(tier)
    paths = sorted(path for path in tier.objects if "/COMMIT_LOG/" in path)
    damaged = paths[len(paths) // 2]
    tier.objects[damaged] = _with_a_wrong_byte(tier.objects[damaged], 100)
    with pytest.raises(CorruptionError, match="is damaged in the tier"):
        offsets(scan())
    seen, found = [], []

    def note(path, damage):
        seen.append((threading.get_ident(), path, len(found)))

    for batch in scan(on_damage=note):
        found += offsets([batch])
    ((thread, path, before),) = seen
    assert (thread, path) == (threading.get_ident(), damaged)
    assert len(found) == COUNT - 1
    assert found[before] == found[before - 1] + 2


def test_a_reader_that_stops_early_waits_for_no_more_than_is_under_way(tier):
    filled(tier)
    reads = []
    perform = tier.perform

    def counted(call):
        reads.append(call)
        return perform(call)

    tier.perform = counted
    with closing(scan()) as batches:
        next(batches)
    assert len(reads) < COUNT // 2
