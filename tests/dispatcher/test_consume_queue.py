"""One consume queue by itself: where reads end, what is damage, what a cut or restart discards."""

import numpy as np
import pytest
from stratamq_dispatcher.consume_queue import (
    CACHED_UNITS,
    ConsumeQueue,
    read_units,
    unit_at,
)
from stratamq_dispatcher.queue_files import OpenFiles

from stratamq.errors import CorruptionError
from stratamq.files.simulated import SimulatedDisk
from stratamq.formats.queue_paths import QueueGeometry
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.queue_units import UNIT, UnitRun
from tests.support.disks import write_file

UNITS_PER_FILE = 8
GEOMETRY = QueueGeometry(UNITS_PER_FILE)
SIZE = 100


def units(first: int, count: int, log_offset: int | None = None) -> np.ndarray:
    """Unit n points to n * SIZE, or the first of them to `log_offset`."""
    rows = np.zeros(count, UNIT)
    start = first * SIZE if log_offset is None else log_offset
    rows["physical_offset"] = start + np.arange(count) * SIZE
    rows["size"] = SIZE
    return rows


def run(first: int, count: int, log_offset: int | None = None) -> UnitRun:
    rows = units(first, count, log_offset)
    start = int(rows["physical_offset"][0])
    return UnitRun(
        "t", 0, first, count, rows.view(np.uint8).data, start, start + count * SIZE, 1_000 + first
    )


@pytest.fixture
def open_files() -> OpenFiles:
    return OpenFiles(SimulatedDisk(1).files(), 8)


@pytest.fixture
def queue() -> ConsumeQueue:
    """Twenty units, all in memory."""
    queue = ConsumeQueue("t", 0, GEOMETRY)
    queue.append(run(0, 20), 0)
    return queue


def flushed(queue: ConsumeQueue, open_files: OpenFiles) -> None:
    """All units in files, and none in memory but what is kept of them."""
    raw = units(0, queue.end).tobytes().ljust(-(-queue.end // 8) * GEOMETRY.file_bytes, b"\0")
    for first in range(0, queue.end, UNITS_PER_FILE):
        piece = raw[first * QUEUE_UNIT_BYTES :][: GEOMETRY.file_bytes]
        write_file(open_files._files, GEOMETRY.path(queue.directory, first), piece)
    queue.wrote(queue.version, queue.end, erased=True)


def indices(data: bytes) -> list[int]:
    return (np.frombuffer(data, UNIT)["physical_offset"] // SIZE).tolist()


@pytest.mark.parametrize("where", ["memory", "files", "both"])
def test_a_read_ends_with_its_file_and_with_the_queue(queue, open_files, where):
    if where != "memory":
        flushed(queue, open_files)
        queue.tail_start = 20
        queue.tail.clear()
    if where == "both":
        queue.append(run(20, 3), 0)
    end = queue.end
    for index in range(end + 2):
        for count in (0, 1, 5, 100):
            stop = min(index + count, end, index - index % UNITS_PER_FILE + UNITS_PER_FILE)
            found = indices(read_units(queue, open_files, index, count))
            assert found == list(range(index, stop))


def test_a_unit_that_is_none_or_missing_is_named_as_damage(queue, open_files):
    flushed(queue, open_files)
    queue.tail_start = 20
    queue.tail.clear()
    path = GEOMETRY.path(queue.directory, 8)
    open_files._files.open(path, writable=True).write(2 * QUEUE_UNIT_BYTES, bytes(20))
    assert unit_at(queue, open_files, 9).physical_offset == 900
    with pytest.raises(CorruptionError, match="unit 10 is no unit") as caught:
        unit_at(queue, open_files, 10)
    assert (caught.value.file, caught.value.position) == (path, 2 * QUEUE_UNIT_BYTES)
    open_files.forget(GEOMETRY.path(queue.directory, 16))
    open_files._files.unlink(GEOMETRY.path(queue.directory, 16))
    with pytest.raises(CorruptionError, match="unit 17 is missing"):
        unit_at(queue, open_files, 17)


@pytest.mark.parametrize(("minimum_offset", "first"), [(0, 0), (1, 1), (500, 5), (501, 6)])
def test_the_minimum_is_the_first_message_at_or_above_the_logs(
    queue, open_files, minimum_offset, first
):
    assert queue.minimum(open_files, minimum_offset) == first


@pytest.mark.parametrize("minimum_offset", [2_000, 2_001, 1 << 40])
def test_a_queue_whose_messages_are_all_gone_keeps_its_offset(queue, open_files, minimum_offset):
    assert queue.minimum(open_files, minimum_offset) == 20


def test_after_queue_offsets_went_back_the_minimum_is_looked_for_again(queue, open_files):
    """The log has deleted the first fifteen messages, and gives offsets again from eleven on."""
    assert queue.minimum(open_files, 1_500) == 15
    queue.append(run(11, 2, log_offset=2_000), 1_500)
    assert (queue.end, queue.end_offset) == (13, 2_200)
    assert queue.minimum(open_files, 1_500) == 11


def test_the_first_message_is_known_without_files_until_the_minimum_passes_it(queue, open_files):
    assert queue.known_minimum(0) == 0
    assert queue.known_minimum(500) is None
    queue.minimum(open_files, 450)
    assert queue.known_minimum(500) == 5
    assert queue.known_minimum(501) is None
    assert queue.known_minimum(2_000) == 20
    queue.append(run(20, 3, log_offset=2_100), 2_000)
    assert queue.known_minimum(2_050) == 20


@pytest.mark.parametrize("offset", [0, 1, 700, 701, 799, 1_999])
def test_a_cut_keeps_what_begins_below_it_and_writes_the_rest_again(queue, open_files, offset):
    flushed(queue, open_files)
    kept = -(-offset // SIZE)
    assert queue.cut(open_files, offset)
    assert queue.end == queue.written == kept
    assert queue.end_offset == (kept * SIZE if kept else -1)
    assert queue.erase
    queue.append(run(kept, 2, log_offset=5_000), 0)
    assert len(queue.unwritten()) == 2 * QUEUE_UNIT_BYTES
    assert not queue.cut(open_files, 1 << 40)


def test_what_was_written_before_a_cut_counts_for_nothing(queue, open_files):
    version = queue.version
    queue.cut(open_files, 500)
    queue.wrote(version, 20, erased=True)
    assert queue.written == 0
    assert queue.erase


@pytest.mark.parametrize("below", [0, 99, 100, 101, 1_900, 1_999, 2_000, 9_999])
def test_units_go_out_when_their_messages_end_at_or_below_the_watermark(queue, below):
    assert len(queue.unwritten(below)) // QUEUE_UNIT_BYTES == min(20, below // SIZE)


def test_written_units_stay_in_memory_in_limited_number(open_files):
    queue = ConsumeQueue("t", 0, GEOMETRY)
    for first in range(0, 1_000, 10):
        queue.append(run(first, 10), 0)
        queue.wrote(queue.version, queue.end, erased=True)
        assert len(queue.tail) <= CACHED_UNITS * QUEUE_UNIT_BYTES
    assert queue.unwritten() == b""


@pytest.mark.parametrize("more", [0, 5])
def test_a_reader_of_one_unit_gets_it_without_a_copy_of_the_tail(queue, open_files, more):
    flushed(queue, open_files)
    del queue.tail[: 12 * QUEUE_UNIT_BYTES]
    queue.tail_start += 12
    if more:
        queue.append(run(20, more), 0)
    for index in range(queue.end):
        one = queue.snapshot_of(index)
        assert len(one.tail) <= QUEUE_UNIT_BYTES
        assert unit_at(one, open_files, index) == unit_at(queue, open_files, index)
    for index in (queue.end, queue.end + 100):
        with pytest.raises(CorruptionError):
            unit_at(queue.snapshot_of(index), open_files, index)
