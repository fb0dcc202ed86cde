"""The progress object: one writer's, whatever earlier ones still do."""

import pytest

from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.writing.claim import FencedError, claim
from stratamq.tier.writing.progress import MAX_GENERATIONS, ProgressObject, load_progress

NAMES = ("DefaultCluster", "broker-a")


def progress(storage: Storage, generation: int) -> ProgressObject:
    one = ProgressObject(*NAMES, run(claim(*NAMES, generation), storage))
    run(one.load(), storage)
    return one


def test_a_held_progress_is_raised_by_no_earlier_writer():
    storage = MemoryStorage(positions=False)
    old = progress(storage, 1)
    run(old.store(1, 100, 200), storage)
    new = progress(storage, 2)
    # Between the look and the hold the earlier one came further: that counts.
    run(old.store(1, 150, 300), storage)
    held = run(new.hold(), storage)
    assert held is not None
    assert (held.generation, held.position, held.reach) == (1, 150, 300)
    with pytest.raises(FencedError):
        run(old.store(1, 300, 300), storage)
    found = run(load_progress(*NAMES), storage)
    assert found is not None
    assert (found[0].position, found[0].reach) == (150, 300)


def test_it_contains_the_last_generations_of_the_log():
    storage = MemoryStorage(positions=False)
    history = [(number, 10 * number) for number in range(MAX_GENERATIONS + 5)]
    number = history[-1][0]
    epoch = run(claim(*NAMES, number), storage)
    run(ProgressObject(*NAMES, epoch, history).store(number, 1, 2), storage)
    found = run(load_progress(*NAMES), storage)
    assert found is not None
    assert found[0].history == tuple(history[5:])


def test_nothing_is_held_where_nothing_was_uploaded():
    storage = MemoryStorage(positions=False)
    assert run(progress(storage, 1).hold(), storage) is None
    assert run(load_progress(*NAMES), storage) is None


def test_an_earlier_writer_cannot_hold_it():
    storage = MemoryStorage(positions=False)
    old = progress(storage, 1)
    new = progress(storage, 2)
    run(new.store(2, 10, 10), storage)
    with pytest.raises(FencedError):
        run(old.hold(), storage)
