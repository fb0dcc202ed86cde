"""Small parts become large ones: the manifest stays short, and nothing of the queue changes."""

from contextlib import suppress

import pytest

from stratamq.formats.tier_manifest import encode_manifest
from stratamq.tier.containers.place import TierLimits
from stratamq.tier.driver.calls import Create, Load, StorageUnavailableError, Together
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.manifests import queue_of
from stratamq.tier.writing.merging import JOIN_BYTES, RUN
from stratamq.tier.writing.queue_writer import TierQueueWriter
from tests.tier.queue_model import PLACE, TIME, QueueModel, check
from tests.tier.test_cutting import _Dying

MODEL = QueueModel(0, tuple((offset * 37) % 300 for offset in range(400)))


class Weighed(MemoryStorage):
    """Counts the bytes of new objects."""

    def __init__(self, positions: bool) -> None:
        super().__init__(positions)
        self.written = 0

    def perform(self, call):
        if isinstance(call, Create):
            self.written += len(call.data)
        return super().perform(call)


def fill(storage: MemoryStorage, count: int) -> TierQueueWriter:
    writer = TierQueueWriter(PLACE, (1, 1), storage.positions, TierLimits())
    for offset in range(count):
        run(writer.commit(MODEL.batch(offset, offset + 1), TIME), storage)
        run(writer.merge(TIME), storage)
    return writer


def test_a_queue_of_single_messages_has_a_short_manifest_and_is_whole():
    storage = Weighed(False)
    writer = fill(storage, 400)
    assert check(storage, MODEL, 400) == 400
    assert len(writer.manifest.records[0].parts) < 2 * RUN
    assert storage.written < 6 * sum(len(MODEL.record(offset)) + 20 for offset in range(400))
    run(writer.collect(TIME + 1), storage)
    assert len(encode_manifest(writer.manifest)) < 2 * RUN * 150
    assert check(storage, MODEL, 400) == 400


def test_where_storage_has_positions_nothing_is_merged():
    storage = Weighed(True)
    writer = fill(storage, 200)
    # One before the first fences earlier writers.
    assert writer.manifest.revision == 201


@pytest.mark.parametrize("calls", range(6))
def test_a_merge_that_dies_at_any_call_loses_nothing(calls):
    storage = MemoryStorage(False)
    writer = TierQueueWriter(PLACE, (1, 1), False, TierLimits())
    for offset in range(RUN):
        run(writer.commit(MODEL.batch(offset, offset + 1), TIME), storage)
    with suppress(StorageUnavailableError):
        run(writer.merge(TIME), _Dying(storage, calls))
    assert check(storage, MODEL, RUN) == RUN
    run(writer.commit(MODEL.batch(RUN, RUN + 5), TIME), storage)
    run(writer.merge(TIME), storage)
    assert check(storage, MODEL, RUN + 5) == RUN + 5
    assert len(writer.manifest.records[0].parts) < RUN


def test_parts_that_are_not_small_become_few():
    model = QueueModel(0, (300_000,) * 80)
    storage = Weighed(False)
    writer = TierQueueWriter(PLACE, (1, 1), False, TierLimits())
    for offset in range(80):
        run(writer.commit(model.batch(offset, offset + 1), TIME), storage)
        run(writer.merge(TIME), storage)
    size = 80 * 300_000
    parts = writer.manifest.records[0].parts
    assert len(parts) <= size // (JOIN_BYTES // 2) + JOIN_BYTES // 2 // 300_000 + 1
    assert storage.written < 2.2 * size
    assert check(storage, model, 80) == 80


def test_a_commit_and_a_later_look_load_no_list_of_parts_again():
    limits = TierLimits(record_segment_bytes=1_000)
    storage, loads = MemoryStorage(False), []

    class Counted:
        positions = False

        def perform(self, call):
            if isinstance(call, Together):
                return [self.perform(one) for one in call.calls]
            if isinstance(call, Load) and call.path.endswith(".json"):
                loads.append(call.path)
            return storage.perform(call)

    writer = TierQueueWriter(PLACE, (1, 1), False, limits)
    run(writer.commit(MODEL.batch(0, 200), TIME), storage)
    before = run(queue_of(PLACE, writer.manifest), Counted())
    assert len(loads) > 20
    loads.clear()
    run(writer.commit(MODEL.batch(200, 201), TIME), Counted())
    run(writer.merge(TIME), Counted())
    after = run(queue_of(PLACE, writer.manifest, before), Counted())
    assert len(loads) <= 1
    assert after.parts == run(queue_of(PLACE, writer.manifest), storage).parts
