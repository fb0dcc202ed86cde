"""A process that is killed while it stores a pass leaves all of it or nothing."""

import errno
import os
from collections.abc import Callable

import pytest

from stratamq.files.port import File
from stratamq.files.simulated import SimulatedCrash, keep_everything
from stratamq.formats.frame import Blank
from tests.support.logs import Store, batch, body_for, message, raw_frame, swallow

SEGMENT = 4096


class DyingFile:
    """A segment's file; the process dies in its n-th write, after `most` bytes of that."""

    def __init__(self, file: File, dies_at: int, most: int) -> None:
        self.stores = 0
        self._file = file
        self._dies_at = dies_at
        self._most = most

    def write(self, position: int, data: bytes | memoryview) -> None:
        self.stores += 1
        if self.stores == self._dies_at:
            self._file.write(position, data[: self._most])
            raise SimulatedCrash("killed while storing")
        self._file.write(position, data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


def dying(store: Store, dies_at: int, most: int) -> DyingFile:
    active = store.log.segments.active
    active.file = DyingFile(active.file, dies_at, most)
    return active.file


def ways(store: Store) -> dict[str, Callable[[], None]]:
    log = store.log
    answers: list = []
    return {
        "one message": lambda: log.put([message(b"n" * 40)], False, answers.append),
        "several messages": lambda: log.put([message(b"n" * 40)] * 4, False, answers.append),
        "a call": lambda: log.put([message(b"n" * 40)] * 4, True, answers.append),
        "a batch": lambda: log.puts.batch(batch([b"n" * 40] * 4), answers.append),
        "several batches": lambda: [
            log.puts.batch(batch([b"n" * 40] * 2), answers.append) for _ in range(3)
        ],
        "raw frames": lambda: log.put_raw([raw_frame(b"n" * 40)] * 3, answers.append),
    }


WAYS = ["one message", "several messages", "a call", "a batch", "several batches", "raw frames"]


def running() -> Store:
    store = Store(SEGMENT)
    store.start()
    store.put_all(message(b"before"), message(b"before"))
    return store


def kill_while_storing(store: Store, way: str, dies_at: int, most: int) -> bool:
    """True if the process died; what it had stored by then is in the page cache."""
    dying(store, dies_at, most)
    ways(store)[way]()
    try:
        store.step()
    except SimulatedCrash:
        store.kill()
        return True
    return False


def stores_of(way: str) -> tuple[int, int]:
    """How many stores a pass makes, and how many frames it has."""
    store = running()
    file = dying(store, 0, 0)
    ways(store)[way]()
    store.step()
    return file.stores, len(store.frames()) - 2


@pytest.mark.parametrize("way", WAYS)
def test_whatever_was_stored_when_it_died_the_pass_is_whole_or_absent(way):
    stores, frames = stores_of(way)
    assert stores == 2
    size = frames * 137 + 8
    for dies_at in (1, 2):
        for most in [*range(10), *range(10, size, 7), size]:
            store = running()
            end = store.end()
            assert kill_while_storing(store, way, dies_at, most)
            store.start()
            count = len(store.frames())
            if dies_at == 2 and most >= 8:
                assert count == 2 + frames
            else:
                assert (count, store.end()) == (2, end)
                assert not any(store.segments()[0][end:])
            assert store.put(b"after").queue_offset == count
            assert [f.queue_offset for f in store.frames()] == list(range(count + 1))


@pytest.mark.parametrize("most", range(9))
def test_a_blank_is_whole_or_absent(most):
    store = running()
    end = store.end()
    store.log.segments.allocate_ahead(SEGMENT)
    store.scheduler.run_until_idle()
    dying(store, 1, most)
    store.log.put([message(body_for(SEGMENT - 8))], False, swallow)
    with pytest.raises(SimulatedCrash):
        store.step()
    store.kill()
    store.start()
    assert len(store.frames()) == 2
    assert store.end() == (SEGMENT if most == 8 else end)
    result = store.put(b"after")
    assert result.physical_offset == store.frames()[-1].physical_offset
    blanks = [at for at, _, value in store.members() if isinstance(value, Blank)]
    assert blanks == ([end] if most == 8 else [])


def test_a_slave_stores_its_masters_bytes_in_the_same_order():
    master = running()
    master.put_batch(batch([b"n" * 40] * 4))
    data = master.segments()[0][: master.end()]
    for dies_at, most in ((1, 50), (1, len(data)), (2, 7), (2, 8)):
        slave = Store(SEGMENT, role="SLAVE")
        slave.start()
        slave.log.segments.roll(0)
        slave.scheduler.run_until_idle()
        slave.log.segments.roll(0)
        dying(slave, dies_at, most)
        slave.log.append_data(slave.log.generation, 0, data, swallow)
        with pytest.raises(SimulatedCrash):
            slave.step()
        slave.kill()
        slave.start()
        assert len(slave.frames()) == (6 if (dies_at, most) == (2, 8) else 0)


def test_a_pass_that_was_published_is_kept_by_a_kill_although_nothing_was_flushed():
    store = running()
    assert not kill_while_storing(store, "a batch", 0, 0)
    store.kill()
    store.start()
    assert len(store.frames()) == 6
    after = Store(SEGMENT, disk=store.disk.image(keep_everything))
    assert len(after.frames()) == 6


class FullFile(DyingFile):
    """Its n-th write fails after `most` bytes."""

    def write(self, position: int, data: bytes | memoryview) -> None:
        try:
            super().write(position, data)
        except SimulatedCrash:
            raise OSError(errno.EIO, os.strerror(errno.EIO)) from None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("dies_at", "most"), [(1, 0), (1, 100), (2, 0)])
def test_a_write_that_fails_ends_writing_and_what_it_left_is_cut(way, dies_at, most):
    store = running()
    end, queues = store.end(), store.queues()
    active = store.log.segments.active
    active.file = FullFile(active.file, dies_at, most)
    log, answers = store.log, []
    if "batch" in way:
        log.puts.batch(batch([b"n" * 40] * 4), lambda answer: answers.append(answer))
    else:
        log.put([message(b"n" * 40)] * 4, way == "a call", answers.extend)
    log.put([message(b"behind it")], False, answers.extend)
    store.step()
    assert answers
    assert {(answer.status.name, answer.physical_offset) for answer in answers} == {
        ("SERVICE_NOT_AVAILABLE", -1)
    }
    assert not log.writable[0]
    assert "a write failed" in log.writable[1]
    later: list = []
    log.put([message(b"later")], False, later.extend)
    assert [result.status.name for result in later] == ["SERVICE_NOT_AVAILABLE"]
    store.kill()
    store.start()
    assert (store.end(), store.queues()) == (end, queues)
    assert not any(store.segments()[0][end:])
    assert store.put(b"after").queue_offset == 2


def test_a_message_that_waits_for_nothing_is_not_called_stored_when_its_write_failed():
    store = running()
    active = store.log.segments.active
    active.file = FullFile(active.file, 1, 0)
    answers: list = []
    store.log.put([message(b"n" * 40, properties={"WAIT": "false"})], False, answers.extend)
    store.step()
    assert [answer.status.name for answer in answers] == ["SERVICE_NOT_AVAILABLE"]
