"""Restore and gc while a writer that was thought dead continues: their calls in any order."""

from random import Random

import pytest

from stratamq.errors import StrataError
from stratamq.files.simulated import SimulatedDisk
from stratamq.tier.driver.calls import Procedure
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import attempt, run
from stratamq.tier.reading.contents import BrokerObjects
from stratamq.tier.restoring.restoring import Restore
from stratamq.tier.writing.claim import FencedError, claim
from stratamq.tier.writing.collecting import claim_to_collect, collect, garbage_of
from stratamq.tier.writing.queue_writer import TierQueueWriter
from tests.tier.queue_model import opened
from tests.tier.test_queue_writer import BOTH
from tests.tier.test_restore import GENERATION, LIMITS, NAMES, SEGMENT_BYTES, Queue, check, upload

WHOLE = (Queue("orders", 0, 0, 40), Queue("orders", 1, 5, 45))
BEGUN = (Queue("orders", 0, 0, 12), Queue("orders", 1, 5, 21))


class Stepped:
    """A procedure that is done call by call."""

    def __init__(self, procedure: Procedure[object]) -> None:
        self.ended = False
        self._procedure = procedure
        self._answer = (None, None)

    def step(self, storage: MemoryStorage) -> None:
        value, error = self._answer
        try:
            call = self._procedure.throw(error) if error else self._procedure.send(value)
        except StopIteration:
            self.ended = True
            return
        outcome = attempt(storage, call)
        assert outcome.error is None or isinstance(outcome.error, StrataError)
        self._answer = (outcome.value, outcome.error)


def commits(storage: MemoryStorage, random: Random, committed: dict[Queue, int]):
    """A writer that continues with both queues, batch by batch, until it is fenced."""
    epoch = yield from claim(*NAMES, GENERATION)
    writers = {
        queue: TierQueueWriter(queue.place, epoch, storage.positions, LIMITS) for queue in WHOLE
    }
    try:
        while open_ := [queue for queue in WHOLE if committed[queue] < queue.end]:
            queue = random.choice(open_)
            start = committed[queue]
            end = min(queue.end, start + random.randint(1, 6))
            yield from writers[queue].commit(queue.batch(start, end), queue.time(end - 1))
            committed[queue] = end
    except FencedError:
        return


def interleaved(storage: MemoryStorage, random: Random, ours: Stepped, theirs: Stepped) -> None:
    for _ in range(random.randint(1, 12)):
        if not theirs.ended:
            theirs.step(storage)
    while not ours.ended:
        (theirs if random.random() < 0.5 and not theirs.ended else ours).step(storage)
    while not theirs.ended:
        theirs.step(storage)


def restored_beside_a_writer(seed: int, positions: bool) -> None:
    random, storage, disk = Random(seed), MemoryStorage(positions), SimulatedDisk()
    upload(storage, BEGUN)
    committed = {queue: begun.end for queue, begun in zip(WHOLE, BEGUN, strict=True)}
    work = Restore(*NAMES, disk.files(), 1, Random(seed), lambda restored: None, SEGMENT_BYTES).run(
        positions
    )
    interleaved(storage, random, Stepped(work), Stepped(commits(storage, random, committed)))
    ends = []
    for queue in WHOLE:
        found = opened(storage, queue.place)
        assert found is not None
        ends.append(found.manifest.end_offset)
        assert committed[queue] <= ends[-1]
    check(
        disk,
        tuple(
            Queue(queue.topic, queue.queue_id, queue.first, end)
            for queue, end in zip(WHOLE, ends, strict=True)
        ),
    )


@BOTH
def test_the_restored_log_has_all_that_a_writer_that_was_thought_dead_committed(positions):
    for seed in range(100):
        restored_beside_a_writer(seed, positions)


def test_without_taking_the_queues_over_it_has_not(monkeypatch):
    def only_load(self, *_, **given):
        return (yield from self.open())

    monkeypatch.setattr(TierQueueWriter, "take_over", only_load)
    monkeypatch.setattr(TierQueueWriter, "fence", only_load)

    def fails(seed: int) -> bool:
        try:
            restored_beside_a_writer(seed, positions=False)
        except AssertionError:
            return True
        return False

    assert any(fails(seed) for seed in range(100))


def collection(storage: MemoryStorage):
    """Without any regard for age."""
    epoch = yield from claim_to_collect(*NAMES, take_over=True)
    listing = BrokerObjects(*NAMES)
    while (group := (yield from listing.following())) is not None:
        place, objects = group
        if place is not None and (yield from garbage_of(place, objects, 1 << 62)):
            yield from collect(place, epoch, storage.positions, 1 << 62)


@pytest.mark.parametrize("positions", [False])
def test_nothing_that_a_living_writer_committed_is_deleted(positions):
    for seed in range(150):
        random, storage = Random(seed), MemoryStorage(positions)
        upload(storage, BEGUN)
        committed = {queue: begun.end for queue, begun in zip(WHOLE, BEGUN, strict=True)}
        interleaved(
            storage,
            random,
            Stepped(collection(storage)),
            Stepped(commits(storage, random, committed)),
        )
        disk = SimulatedDisk()
        work = Restore(*NAMES, disk.files(), 1, Random(0), lambda restored: None, SEGMENT_BYTES)
        run(work.run(positions), storage)
        ends = []
        for queue in WHOLE:
            found = opened(storage, queue.place)
            assert found is not None
            assert committed[queue] <= found.manifest.end_offset
            ends.append(Queue(queue.topic, queue.queue_id, queue.first, found.manifest.end_offset))
        check(disk, tuple(ends))
