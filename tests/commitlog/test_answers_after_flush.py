"""Under SYNC_FLUSH a call of any kind is answered when all of its bytes are on the disk."""

import random
from collections.abc import Callable

import pytest
from stratamq_commitlog.messages import BatchResult, PutResult

from stratamq.formats.message_status import SendStatus
from tests.support.logs import Store, batch_of, body_for, message, raw_frame, segment_path

SEGMENT = 2048


class Promises:
    """Looks at the disk at the moment of each answer."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.answers = 0

    def durable(self, start: int, end: int) -> None:
        """Everything in [start, end) is on the disk, over however many segments."""
        disk = self.store.disk
        while start < end:
            base = start // SEGMENT * SEGMENT
            span = slice(start - base, min(end - base, SEGMENT))
            path = segment_path(base)
            assert disk.durable_contents(path)[span] == disk.contents(path)[span]
            start = base + SEGMENT

    def put(self, results: list[PutResult]) -> None:
        self.answers += 1
        for result in results:
            assert result.status is SendStatus.PUT_OK
            self.durable(result.physical_offset, result.physical_offset + result.size)

    def batch(self, size: int) -> Callable[[BatchResult], None]:
        def answered(result: BatchResult) -> None:
            self.answers += 1
            assert result.status is SendStatus.PUT_OK
            self.durable(result.physical_offset, result.physical_offset + size)

        return answered

    def data(self, start: int, end: int) -> Callable[[object], None]:
        def answered(error: object) -> None:
            self.answers += 1
            assert error is None
            self.durable(start, end)

        return answered


def started(seed: int = 0) -> tuple[Store, Promises]:
    store = Store(SEGMENT, seed=seed)
    store.start()
    return store, Promises(store)


def some_call(store: Store, promises: Promises, chance: random.Random) -> None:
    kind = chance.choice(("one", "several", "atomic", "raw", "batch"))
    bodies = [b"x" * chance.randrange(600) for _ in range(chance.randrange(2, 6))]
    if kind == "batch":
        frames = batch_of([("a", 0, bodies[:1]), ("b", 1, [body[:100] for body in bodies[1:]])])
        store.log.puts.batch(frames, promises.batch(int(frames.lengths.sum())))
    elif kind == "raw":
        store.log.put_raw([raw_frame(body) for body in bodies], promises.put)
    elif kind == "atomic":
        store.log.put([message(body[:200]) for body in bodies], True, promises.put)
    else:
        few = bodies if kind == "several" else bodies[:1]
        store.log.put([message(body) for body in few], False, promises.put)


@pytest.mark.parametrize("seed", range(20))
def test_no_call_of_any_kind_is_answered_before_all_of_it_is_on_the_disk(seed):
    store, promises = started(seed)
    chance = random.Random(seed)
    for _ in range(40):
        some_call(store, promises, chance)
        for _ in range(chance.randrange(4)):
            store.scheduler.run_one()
            store.log.run_pass()
    store.settle()
    assert promises.answers == 40
    assert len(store.segments()) > 5


def test_a_call_over_several_segments_is_answered_with_its_last_one():
    store, promises = started()
    bodies = [body_for(1200)] * 4  # one to a segment
    store.log.put([message(body) for body in bodies], False, promises.put)
    while promises.answers == 0:
        before = store.log.offsets.appended
        store.log.run_pass()
        if store.log.offsets.appended == before:
            assert store.scheduler.run_one(), "it comes to rest without an answer"
    assert store.log.offsets.flushed == store.log.offsets.appended > 3 * SEGMENT


def test_a_batch_is_answered_with_its_last_byte():
    """What came before it is flushed when it is appended: its own bytes count, not its start."""
    store, promises = started()
    store.put(b"allocates")
    frames = batch_of([("a", 0, [b"x" * 300] * 4)])
    store.log.puts.batch(frames, promises.batch(int(frames.lengths.sum())))
    store.step()
    assert promises.answers == 0
    store.settle()
    assert promises.answers == 1


def test_a_slave_acknowledges_bytes_when_its_disk_has_them():
    master, _ = started()
    master.put_all(*[message(b"x" * 300) for _ in range(3)])
    data = master.segments()[0][: master.end()]
    slave = Store(SEGMENT, role="SLAVE")
    slave.start()
    promises = Promises(slave)
    slave.log.append_data(slave.log.generation, 0, data, promises.data(0, len(data)))
    slave.step()
    assert promises.answers == 0
    slave.settle()
    assert promises.answers == 1
