"""A deleted segment's cache is emptied slice by slice before its file goes: no append waits."""

import pytest
from stratamq_commitlog.upkeep import deletion

from tests.support.logs import Store, body_for, message, segment_path

SEGMENT = 16384
GIB = 1 << 30


@pytest.fixture
def store(monkeypatch) -> Store:
    """Four segments whose two oldest are deleted, slices of a quarter of one."""
    monkeypatch.setattr(deletion, "LEAST_SLICE_BYTES", SEGMENT // 4)
    store = Store(SEGMENT, followers=())
    store.start()
    store.disk.trace = []
    store.put_all(*[message(body_for(4000)) for _ in range(14)])
    store.pass_time(3_000, ticks=4)
    assert store.log.delete_below(2 * SEGMENT, 10, False)[0] == 2 * SEGMENT
    return store


def freed(store: Store) -> list[tuple[str, str]]:
    wanted = ("drop_cache", "unlink")
    return [
        (call.operation, call.path)
        for call in store.disk.trace
        if call.operation in wanted and call.path.startswith("commitlog/")
    ]


def test_a_tick_empties_one_slice_and_the_last_one_unlinks_the_file(store):
    first, second = segment_path(0), segment_path(SEGMENT)
    store.pass_time(100)  # the new minimum goes to the disk first
    steps = []
    for _ in range(8):
        before = len(freed(store))
        store.pass_time(100)
        steps.append(freed(store)[before:])
    for path, done in ((first, steps[:4]), (second, steps[4:])):
        assert done[:3] == [[("drop_cache", path)]] * 3
        assert done[3] == [("drop_cache", path), ("unlink", path)]
    assert min(store.segments()) == 2 * SEGMENT


def test_a_file_that_could_not_be_unlinked_is_tried_again_with_nothing_left_to_empty(store):
    store.disk.fail("unlink", segment_path(0), nth=1)
    store.pass_time(100, ticks=16)
    assert min(store.segments()) == 2 * SEGMENT
    assert freed(store).count(("drop_cache", segment_path(0))) == 4


def test_while_writes_are_refused_room_comes_first(store):
    store.pass_time(100)
    store.log.gate.disk_full = True
    store.pass_time(100)
    store.pass_time(100)
    assert min(store.segments()) == 2 * SEGMENT
    assert freed(store) == [("unlink", segment_path(0)), ("unlink", segment_path(SEGMENT))]


def test_the_more_waits_the_faster_it_goes():
    least = deletion.LEAST_SLICE_BYTES
    assert deletion.slice_bytes(0, refusing=False) == least
    assert deletion.slice_bytes(GIB, refusing=False) == least
    assert deletion.slice_bytes(100 * GIB, refusing=False) == GIB
    assert deletion.slice_bytes(GIB, refusing=True) == GIB


def test_a_stop_waits_for_no_slices(store):
    store.stop()
    assert min(store.segments()) == 2 * SEGMENT
