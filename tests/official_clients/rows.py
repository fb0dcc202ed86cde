"""Rows of the acceptance page, by RocketMQ's Python client of version 5.

usage: rows.py ENDPOINT ROW...

A row that wants the broker's processes killed prints `kill`, and reads `back` when they run again.
"""

import sys
import threading
import time
import traceback

import lossless_row
import ordered_rows
import sending_rows
import settling_rows
from clients import DEADLINE_S, HIDDEN_S, Decides, consumer, message, producer, push, some
from rocketmq import ConsumeResult, TransactionResolution

OTHERS = (lossless_row, sending_rows, settling_rows, ordered_rows)


def normal_fields():
    with producer("normal") as sender, consumer("fields", "normal") as worker:
        sent = sender.send(message("normal", "whole", tag="paid", key="k1", colour="blau ü"))
        (found,) = some(worker, 1)
        assert found.message_id == sent.message_id
        assert (found.body, found.tag, found.properties) == (
            b"whole",
            "paid",
            {"colour": "blau ü"},
        )
        assert (found.delivery_attempt, found.corrupted) == (1, False)
        worker.ack(found)
        assert not worker.receive(32, HIDDEN_S), "it comes again"


def push_once():
    seen, everything = [], threading.Event()

    def take(found):
        seen.append(found.message_id)
        if len(seen) == 40:
            everything.set()
        return ConsumeResult.SUCCESS

    with producer("pushed") as sender, push("push-once", "pushed", take):
        sent = [sender.send(message("pushed", f"m{number}")).message_id for number in range(40)]
        assert everything.wait(DEADLINE_S), f"{len(seen)} came"
    assert sorted(seen) == sorted(sent)


def max_attempts_dlq():
    attempts, both = [], threading.Event()

    def take(found):
        attempts.append(found.delivery_attempt)
        if len(attempts) == 2:
            both.set()
        return ConsumeResult.FAILURE

    with producer("failing") as sender, push("one-retry", "failing", take):
        sent = sender.send(message("failing", "poison"))
        assert both.wait(DEADLINE_S), attempts
    with consumer("letters", "%DLQ%one-retry") as letters:
        (found,) = some(letters, 1, makes_topic=True)
        assert found.message_id == sent.message_id
        letters.ack(found)
    assert attempts == [1, 2]


def fifo_order():
    seen, left, deadline = {}, 12, time.monotonic() + DEADLINE_S
    with producer("steps") as sender, consumer("in-order", "steps") as worker:
        for number in range(12):
            sender.send(message("steps", f"{number}", group=f"g{number % 3}"))
        while left and time.monotonic() < deadline:
            for found in worker.receive(32, HIDDEN_S) or []:
                seen.setdefault(found.message_group, []).append(int(found.body))
                worker.ack(found)
                left -= 1
    assert seen == {f"g{one}": [one, one + 3, one + 6, one + 9] for one in range(3)}, seen


def fifo_retry_order():
    seen, everything = [], threading.Event()

    def take(found):
        seen.append(int(found.body))
        if len(seen) == 5:
            everything.set()
        return ConsumeResult.FAILURE if len(seen) == 1 else ConsumeResult.SUCCESS

    with producer("retried-steps") as sender, push("retried-in-order", "retried-steps", take):
        for number in range(4):
            sender.send(message("retried-steps", f"{number}", group="one"))
        assert everything.wait(DEADLINE_S), seen
    assert seen == [0, 0, 1, 2, 3], seen


def fifo_dlq():
    seen, everything = [], threading.Event()

    def take(found):
        seen.append(found.body.decode())
        if found.body == b"next":
            everything.set()
        return ConsumeResult.FAILURE if found.body == b"poison" else ConsumeResult.SUCCESS

    with producer("poisoned-steps") as sender, push("poisoned", "poisoned-steps", take):
        sent, _ = (
            sender.send(message("poisoned-steps", body, group="one")) for body in ("poison", "next")
        )
        assert everything.wait(DEADLINE_S), seen
    # This client has attempts of its own, whatever the group's settings say.
    assert len(seen) > 2 and seen == ["poison"] * (len(seen) - 1) + ["next"], seen
    with consumer("poisoned-letters", "%DLQ%poisoned") as letters:
        (found,) = some(letters, 1, makes_topic=True)
        assert found.message_id == sent.message_id
        letters.ack(found)


def recall():
    with producer("taken-back") as sender, consumer("takes-back", "taken-back") as worker:
        due_s = int(time.time()) + 20
        sent = sender.send(message("taken-back", "never", due_s=due_s))
        taken_back = sender.recall_message("taken-back", sent.recall_handle)
        assert taken_back == sent.message_id
        try:
            sender.recall_message("taken-back", sent.recall_handle)
        except Exception as refused:  # noqa: BLE001 - the client has no class of its own for it
            assert "cancelled" in str(refused), refused
        else:
            raise AssertionError("it is taken back twice")
        while time.time() < due_s + 2:
            assert not worker.receive(32, HIDDEN_S), "it comes"


def delay():
    with producer("later") as sender, consumer("delayed", "later") as worker:
        due_s = int(time.time()) + 4
        sender.send(message("later", "in time", due_s=due_s))
        (found,) = some(worker, 1)
        assert time.time() >= due_s, "it came early"
        worker.ack(found)


def tx_commit():
    checker = Decides(TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED)
    with producer("paid", checker=checker) as sender, consumer("paid", "paid") as worker:
        committed, rolled_back = sender.begin_transaction(), None
        sender.send(message("paid", "committed"), committed)
        rolled_back = sender.begin_transaction()
        sender.send(message("paid", "rolled back"), rolled_back)
        assert not worker.receive(32, HIDDEN_S), "it is seen before its commit"
        committed.commit()
        rolled_back.rollback()
        (found,) = some(worker, 1)
        assert found.body == b"committed"
        worker.ack(found)
        assert not worker.receive(32, HIDDEN_S), "something else is seen"


def tx_check():
    checker = Decides(TransactionResolution.COMMIT)
    with producer("checked", checker=checker) as sender, consumer("checked", "checked") as worker:
        sender.send(message("checked", "asked"), sender.begin_transaction())
        worker.ack(some(worker, 1)[0])


def tag_filter():
    with producer("tagged") as sender, consumer("tags", "tagged", "Aa || C") as worker:
        for tag in ("Aa", "BB", "C"):
            sender.send(message("tagged", tag, tag=tag))
        found = some(worker, 2)
        assert sorted(one.body for one in found) == [b"Aa", b"C"]
        for one in found:
            worker.ack(one)


def wrong_topic():
    try:
        with producer() as sender:
            sender.send(message("not-there", "x"))
    except Exception as refused:  # noqa: BLE001 - the client has no class of its own for it
        assert "fetch topic:not-there" in str(refused), refused
    else:
        raise AssertionError("a topic that is not there takes a message")


def nack():
    with producer("given-back") as sender, consumer("gives-back", "given-back") as worker:
        sender.send(message("given-back", "again"))
        (first,) = some(worker, 1)
        worker.change_invisible_duration(first, 2)
        (second,) = some(worker, 1)
        assert second.delivery_attempt == 2
        worker.ack(second)
        assert not worker.receive(32, HIDDEN_S), "it comes again"


def main() -> int:
    good = True
    rows = {name: row for module in OTHERS for name, row in vars(module).items()} | globals()
    for name in sys.argv[2:]:
        try:
            rows[name.replace("-", "_")]()
            print(f"{name}\tok", flush=True)
        except Exception as failure:  # noqa: BLE001 - each row is tried
            good = False
            print(f"{name}\t{failure!r}", flush=True)
            traceback.print_exc()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
