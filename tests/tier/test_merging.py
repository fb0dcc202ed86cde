"""Small parts become large ones: the manifest stays short, and nothing of the queue changes."""

from contextlib import suppress

import pytest

from stratamq.formats.tier_manifest import encode_manifest
from stratamq.tier.containers.place import TierLimits
from stratamq.tier.driver.calls import Create, StorageUnavailableError
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import run
from stratamq.tier.writing.merging import RUN
from stratamq.tier.writing.queue_writer import QueueWriter
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


def fill(storage: MemoryStorage, count: int) -> QueueWriter:
    writer = QueueWriter(PLACE, (1, 1), storage.positions, TierLimits())
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
    assert writer.manifest.revision == 200


@pytest.mark.parametrize("calls", range(6))
def test_a_merge_that_dies_at_any_call_loses_nothing(calls):
    storage = MemoryStorage(False)
    writer = QueueWriter(PLACE, (1, 1), False, TierLimits())
    for offset in range(RUN):
        run(writer.commit(MODEL.batch(offset, offset + 1), TIME), storage)
    with suppress(StorageUnavailableError):
        run(writer.merge(TIME), _Dying(storage, calls))
    assert check(storage, MODEL, RUN) == RUN
    run(writer.commit(MODEL.batch(RUN, RUN + 5), TIME), storage)
    run(writer.merge(TIME), storage)
    assert check(storage, MODEL, RUN + 5) == RUN + 5
    assert len(writer.manifest.records[0].parts) < RUN
