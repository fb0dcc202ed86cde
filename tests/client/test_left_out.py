"""Messages that the log leaves out of a batch: each has an outcome of its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.client._sync.delivery import Delivery, Waiters
from stratamq.client.primitives import Guard
from stratamq.client.units import BatchOutcome, BatchPart
from stratamq.errors import InvalidRequestError
from stratamq.formats.message_status import SendStatus
from stratamq.rpc.refusals import Refusal
from tests.client.test_batching import SHAPE, add, retrying

REFUSED = InvalidRequestError("one is bad")


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.data())
def test_only_what_the_log_leaves_out_of_a_batch_is_refused(queues, data):
    box = retrying()
    places = [add(box, b"%d" % number, queue_id=queue) for number, queue in enumerate(queues)]
    batch = box.next_batch(0)
    batch.encode(SHAPE)
    bad = data.draw(st.sets(st.integers(0, batch.count - 1)))
    refusals = tuple(Refusal(row, 1, SendStatus.MESSAGE_ILLEGAL, REFUSED) for row in sorted(bad))
    rows = [row for row in range(batch.count) if row not in bad]
    starts = [row for row in rows if row - 1 not in rows]
    ends = [row + 1 for row in rows if row + 1 not in rows]
    queue_of = [run.queue_id for run in batch.runs.values() for _ in range(run.count)]
    following, parts = dict.fromkeys(range(4), 100), []
    for start, end in zip(starts, ends, strict=True):
        firsts = []
        for row in range(start, end):
            if row == start or queue_of[row] != queue_of[row - 1]:
                firsts.append(following[queue_of[row]])
            following[queue_of[row]] += 1
        lengths = tuple(batch.lengths[start:end])
        parts.append(BatchPart(10_000 * start, lengths, tuple(firsts), 7))
    error = None if parts else REFUSED
    outcome = BatchOutcome(SendStatus.PUT_OK, 0, error=error, parts=tuple(parts), refusals=refusals)
    assert box.acknowledge(batch.sequence, outcome, 0) is batch and box.idle
    assert batch.error() is (REFUSED if bad else None)
    offsets = dict.fromkeys(range(4), 100)
    for one, run, index in places:
        result, row = one.result_of(run, index), run.first + index
        assert (result.error is REFUSED) == (row in bad)
        if row not in bad:
            start = max(at for at in starts if at <= row)
            assert result.physical_offset == 10_000 * start + sum(batch.lengths[start:row])
            assert (result.queue_id, result.queue_offset) == (run.queue_id, offsets[run.queue_id])
            offsets[run.queue_id] += 1


def test_what_is_left_out_behind_an_attempt_without_an_answer_may_be_stored():
    box = retrying()
    add(box), add(box)
    batch = box.next_batch(0)
    batch.encode(SHAPE)
    box.lost(0)
    assert box.next_batch(0) is batch
    part = BatchPart(0, (batch.lengths[0],), (0,), 7)
    refusals = (Refusal(1, 1, SendStatus.MESSAGE_ILLEGAL, REFUSED),)
    outcome = BatchOutcome(SendStatus.PUT_OK, 0, parts=(part,), refusals=refusals)
    box.acknowledge(batch.sequence, outcome, 0)
    (run,) = batch.runs.values()
    assert batch.result_of(run, 0).error is None
    assert batch.result_of(run, 1).error.fields["perhaps_stored"]


def test_a_refusal_that_no_caller_was_given_is_left_to_the_next_flush():
    """Whatever the callers of the other messages were given."""
    box = retrying()
    places = [add(box), add(box), add(box)]
    batch = box.next_batch(0)
    batch.encode(SHAPE)
    part = BatchPart(0, (batch.lengths[0],), (0,), 7)
    refusals = (Refusal(1, 2, SendStatus.MESSAGE_ILLEGAL, REFUSED),)
    outcome = BatchOutcome(SendStatus.PUT_OK, 0, parts=(part,), refusals=refusals)
    box.acknowledge(batch.sequence, outcome, 0)
    stored, first, second = (Delivery(Waiters(Guard()), *place) for place in places)
    assert stored.result().queue_offset == 0
    assert batch.untold() is REFUSED
    for delivery, untold in ((first, REFUSED), (first, REFUSED), (second, None)):
        with pytest.raises(InvalidRequestError):
            delivery.result()
        assert batch.untold() is untold
