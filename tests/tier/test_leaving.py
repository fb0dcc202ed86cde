"""What leaves a queue's tier beside retention by age: what was purged, and what crashes left."""

import pytest

from stratamq.errors import StrataError
from stratamq.tier.driver.calls import Swap
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.pull import pull
from stratamq.tier.writing.claim import FencedError
from tests.tier.queue_model import TIME, QueueModel, check, opened
from tests.tier.test_queue_writer import BOTH, MODEL, fill, stored, writer


@BOTH
@pytest.mark.parametrize("below", [501, 523, 524, 559])
def test_what_was_purged_is_read_no_more_and_leaves_in_whole_segments(positions, below):
    storage = MemoryStorage(positions, lambda: 5)
    ours = fill(storage)
    before = opened(storage).manifest
    whole = [one for one in before.records if one.end_offset <= below]
    assert run(ours.purge(below, TIME), storage) == len(whole)
    assert run(ours.purge(below, TIME), storage) == 0
    assert opened(storage).manifest.minimum == below
    assert not len(run(pull(opened(storage).queue, below - 1, 1), storage).messages)
    run(ours.collect(TIME + 1), storage)
    check(storage, MODEL, MODEL.end)
    run(ours.expire(stored(510), TIME), storage)
    assert opened(storage).manifest.minimum == max(below, 507)
    longer = QueueModel(500, (*MODEL.sizes, *(10,) * 20))
    successor = writer(storage, generation=2)
    run(successor.commit(longer.batch(555, 580), TIME), storage)
    assert check(storage, longer, 580) == 580
    run(successor.take_over(below - 1, TIME), storage)
    assert opened(storage).manifest.end_offset == below - 1


@BOTH
def test_a_writer_deletes_its_orphans_but_what_an_earlier_one_may_name_only_behind_its_epoch(
    positions,
):
    storage = MemoryStorage(positions, lambda: 5)
    first = fill(storage)
    longer = QueueModel(500, (*MODEL.sizes, *(10,) * 20))
    stopped = first.commit(longer.batch(560, 580), TIME)
    call = next(stopped)
    while not isinstance(call, Swap):  # it is stopped right before its manifest
        call = stopped.send(storage.perform(call))
    second = writer(storage, generation=2)
    assert run(second.tidy(5), storage) == []
    orphans = run(second.tidy(6), storage)
    assert orphans
    with pytest.raises(FencedError):
        resume(stopped, call, storage)
    check(storage, MODEL, 560)


def resume(procedure, call, storage):
    """The rest of a procedure that was stopped before `call`."""
    while True:
        try:
            answer = storage.perform(call)
        except StrataError as error:
            call = procedure.throw(error)
        else:
            call = procedure.send(answer)
