"""A writer that is stopped for long and continues beside its successors, in a directory, whose
names are used again: nothing that they committed is touched."""

from collections.abc import Callable
from typing import Any

import pytest

from stratamq.errors import NotWritableError
from stratamq.files.real import RealFiles
from stratamq.formats.generation_number import make_number
from stratamq.tier.containers.place import TierLimits
from stratamq.tier.driver.calls import Delete, Procedure, Size, Swap, WriteAt
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.posix import PosixStorage
from stratamq.tier.driver.storage import Storage, attempt, run
from stratamq.tier.reading.verify import verify_queue
from stratamq.tier.writing.claim import FencedError, claim
from stratamq.tier.writing.collecting import claim_to_collect, collect
from stratamq.tier.writing.queue_writer import TierQueueWriter
from tests.support.storages import no_pause
from tests.tier.queue_model import PLACE, QueueModel, check

FIRST_TERM, SECOND_TERM = make_number(0, 1, 5), make_number(1, 1, 7)
COUNT = 20


@pytest.fixture(params=["directory", "memory"])
def storage(request, tmp_path) -> Storage:
    if request.param == "memory":
        return MemoryStorage()
    return PosixStorage(RealFiles(tmp_path), no_pause)


def stopped_before(
    procedure: Procedure[Any], storage: Storage, kind: type, number: int = 0
) -> Callable[[], object]:
    """The procedure comes as far as its call of that kind; what is returned continues with it."""
    call = next(procedure)
    while not isinstance(call, kind) or number:
        number -= isinstance(call, kind)
        outcome = attempt(storage, call)
        call = procedure.throw(outcome.error) if outcome.error else procedure.send(outcome.value)

    def go_on() -> object:
        following = call
        while True:
            outcome = attempt(storage, following)
            try:
                if outcome.error:
                    following = procedure.throw(outcome.error)
                else:
                    following = procedure.send(outcome.value)
            except StopIteration as end:
                return end.value

    return go_on


def writer(storage: Storage, generation: int) -> TierQueueWriter:
    epoch = run(claim(PLACE.cluster, PLACE.broker, generation), storage)
    return TierQueueWriter(PLACE, epoch, True, TierLimits(), replaces=True)


@pytest.mark.parametrize("shared", [0, 10])
@pytest.mark.parametrize("number", [0, 1])
def test_what_a_promoted_broker_committed_is_not_overwritten(storage, shared, number):
    old = QueueModel(0, (50,) * COUNT)
    new = QueueModel(0, (50,) * shared + (77,) * (COUNT - shared))
    stopped = writer(storage, FIRST_TERM)
    if shared:
        run(stopped.commit(old.batch(0, shared), 1), storage)
    go_on = stopped_before(stopped.commit(old.batch(shared, COUNT), 1), storage, WriteAt, number)
    following = writer(storage, SECOND_TERM)
    run(following.take_over(shared, 2), storage)
    run(following.commit(new.batch(shared, COUNT), 2), storage)
    with pytest.raises(FencedError):
        go_on()
    assert run(verify_queue(PLACE), storage).faults == ()
    assert check(storage, new, COUNT) == COUNT


def test_a_collection_that_was_stopped_deletes_no_file_that_is_written_since(storage):
    model = QueueModel(0, (50,) * COUNT)
    stopped_before(
        writer(storage, FIRST_TERM).commit(model.batch(0, COUNT), 1), storage, WriteAt, 1
    )
    run(writer(storage, FIRST_TERM).commit(QueueModel(0, (50,)).batch(0, 1), 1), storage)
    epoch = run(claim_to_collect(PLACE.cluster, PLACE.broker, take_over=True), storage)
    # The units' file is there; records of a further segment are not named.
    place = PLACE.record_segment(1 << 20)
    storage.perform(WriteAt(place, 0, b"staged"))
    go_on = stopped_before(collect(PLACE, epoch, True, 1 << 62), storage, Delete)
    run(writer(storage, FIRST_TERM).commit(model.batch(0, COUNT), 2), storage)
    with pytest.raises(NotWritableError):
        go_on()
    assert storage.perform(Size(place)) is not None
    assert check(storage, model, COUNT) == COUNT


@pytest.mark.parametrize("there", [0, 5])
def test_a_writer_of_the_same_log_names_nothing_that_its_successor_wrote_over(storage, there):
    # The successor's log has no more what the stopped one holds in memory: it leaves a gap.
    model = QueueModel(0, (50,) * COUNT)
    stopped = writer(storage, FIRST_TERM)
    if there:
        run(stopped.commit(model.batch(0, there), 1), storage)
    go_on = stopped_before(stopped.commit(model.batch(there, COUNT), 1), storage, Swap)
    following = writer(storage, FIRST_TERM)
    go_on_later = stopped_before(following.commit(model.batch(12, COUNT), 2), storage, WriteAt, 1)
    with pytest.raises(FencedError):
        go_on()
    go_on_later()
    assert run(verify_queue(PLACE), storage).faults == ()
