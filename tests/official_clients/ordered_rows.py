"""Rows about message groups, and about transactions that something happens to."""

import time

from clients import (
    LEAST_HIDDEN_S,
    Decides,
    consumer,
    in_time,
    killed,
    message,
    nothing,
    producer,
    some,
    tried,
)
from rocketmq import TransactionResolution

UNKNOWN = TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED


def fifo_block():
    """fifo-block and fifo-independent: the second message of a group waits for the first, those of
    another group do not."""
    with producer("blocked") as sender, consumer("blocks", "blocked") as worker:
        for group in ("one", "two"):
            for number in (1, 2):
                sender.send(message("blocked", f"{group} {number}", group=group))
        first = some(worker, 2)
        assert sorted(one.body for one in first) == [b"one 1", b"two 1"]
        nothing(worker, 2)
        of_two = next(one for one in first if one.body == b"two 1")
        worker.ack(of_two)
        at = time.monotonic()
        (found,) = some(worker, 1)
        assert found.body == b"two 2" and time.monotonic() - at < 3
        worker.ack(found)
        worker.ack(next(one for one in first if one.body == b"one 1"))
        (found,) = some(worker, 1)
        assert found.body == b"one 2"
        worker.ack(found)


def fifo_stable_queue():
    """A group's messages are in one queue, before and after the broker was killed: their places
    follow one another."""
    with producer("one-queue") as sender:
        offsets = [
            _sent(sender, message("one-queue", f"{number}", group="g")) for number in range(10)
        ]
        killed()
        for number in range(10, 20):
            offsets.append(_sent(sender, message("one-queue", f"{number}", group="g")))
    with consumer("reads-one-queue", "one-queue") as worker:
        bodies = []
        while len(bodies) < 20:
            for one in some(worker, 1):
                bodies.append(int(one.body))
                worker.ack(one)
    assert bodies == offsets == list(range(20)), (bodies, offsets)


def _sent(sender, made):
    return in_time(lambda: tried(lambda: sender.send(made)), "it is not sent", 60).offset


def tx_rollback():
    """Never visible, and no producer is asked about it."""
    checker = Decides(TransactionResolution.COMMIT)
    with (
        producer("rolled-back", checker=checker) as sender,
        consumer("sees-none", "rolled-back") as worker,
    ):
        transaction = sender.begin_transaction()
        sender.send(message("rolled-back", "never"), transaction)
        transaction.rollback()
        nothing(worker, 6)
        assert not checker.asked


def tx_late():
    """tx-late-commit and tx-other-gateway: a commit is good after the proxy of RocketMQ would have
    forgotten the transaction, and after the gateway was killed."""
    with producer("late", checker=Decides(UNKNOWN)) as sender, consumer("late", "late") as worker:
        transaction = sender.begin_transaction()
        sender.send(message("late", "at last"), transaction)
        killed()
        nothing_until(worker, 32)
        transaction.commit()
        (found,) = some(worker, 1)
        assert found.body == b"at last"
        worker.ack(found)


def nothing_until(worker, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        seen = tried(lambda: worker.receive(1, LEAST_HIDDEN_S))
        assert not seen, "it is seen before its commit"


def tx_crash():
    """The producer is gone: another one of the topic is asked, and decides."""
    with producer("crashed", checker=Decides(UNKNOWN)) as sender:
        sender.send(message("crashed", "kept"), sender.begin_transaction())
    checker = Decides(TransactionResolution.COMMIT)
    with producer("crashed", checker=checker), consumer("kept", "crashed") as worker:
        (found,) = some(worker, 1)
        assert found.body == b"kept" and checker.asked
        worker.ack(found)
