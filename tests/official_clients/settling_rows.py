"""Rows about messages that are handed out: hidden, given again, acknowledged, shared."""

import os
import threading
import time
from contextlib import ExitStack

from clients import (
    DEADLINE_S,
    HIDDEN_S,
    LEAST_HIDDEN_S,
    consumer,
    in_time,
    killed,
    message,
    nothing,
    producer,
    push,
    refused,
    some,
    tried,
)
from rocketmq import ConsumeResult


def require_hidden(seconds, asked, answered):
    """It was hidden for so long, from a moment between these two."""
    now = time.monotonic()
    assert now - asked > seconds and now - answered < seconds + 2, f"after {now - asked:.2f} s"


def redeliver():
    with producer("comes-again") as sender, consumer("again", "comes-again") as worker:
        sent = sender.send(message("comes-again", "twice"))
        asked = time.monotonic()
        (first,) = some(worker, 1, hidden_s=LEAST_HIDDEN_S)
        given = time.monotonic()
        (second,) = some(worker, 1)
        require_hidden(LEAST_HIDDEN_S, asked, given)
        assert (second.message_id, second.body) == (sent.message_id, b"twice")
        assert (first.delivery_attempt, second.delivery_attempt) == (1, 2)
        worker.ack(second)
        nothing(worker, 2)


def extend():
    with producer("hidden-on") as sender, consumer("hides-on", "hidden-on") as worker:
        sender.send(message("hidden-on", "x"))
        (first,) = some(worker, 1, hidden_s=LEAST_HIDDEN_S)
        asked = time.monotonic()
        worker.change_invisible_duration(first, 20)
        answered = time.monotonic()
        (second,) = some(worker, 1)
        require_hidden(20, asked, answered)
        worker.ack(second)


def old_handles():
    """ack-expired and ack-old-handle: an old handle is refused, and settles no newer delivery."""
    with producer("expired") as sender, consumer("expires", "expired") as worker:
        sender.send(message("expired", "x"))
        (first,) = some(worker, 1, hidden_s=LEAST_HIDDEN_S)
        handle = first.receipt_handle
        worker.change_invisible_duration(first, LEAST_HIDDEN_S)
        changed, first.receipt_handle = first.receipt_handle, handle
        with refused("40013", "handle", "receipt"):
            worker.ack(first)
        first.receipt_handle = changed
        (second,) = some(worker, 1, hidden_s=LEAST_HIDDEN_S)
        with refused("40013", "handle", "receipt"):
            worker.ack(first)
        (third,) = some(worker, 1)
        assert (second.delivery_attempt, third.delivery_attempt) == (2, 3)
        worker.ack(third)


def foreign_handle():
    with (
        producer("foreign") as sender,
        consumer("owner", "foreign") as owner,
        consumer("stranger", "foreign") as stranger,
    ):
        sender.send(message("foreign", "x"))
        (of_owner,), (of_stranger,) = (some(one, 1, hidden_s=12) for one in (owner, stranger))
        with refused("40013", "handle", "receipt"):
            stranger.ack(of_owner)
        stranger.ack(of_stranger)
        (again,) = some(owner, 1)
        assert again.delivery_attempt == 2
        owner.ack(again)


def durable():
    """ack-durable and hidden-durable: what was acknowledged never comes again, and what was handed
    out comes when its time is over and not before, with the next attempt."""
    with producer("durable") as sender, consumer("durable", "durable") as worker:
        for number in range(50):
            sender.send(message("durable", f"{number}"))
        asked = time.monotonic()
        found = some(worker, 50, hidden_s=30)
        held = {one.message_id for one in found[:10]}
        for one in found[10:]:
            worker.ack(one)
        killed()
        again = []

        def come():
            again.extend(tried(lambda: worker.receive(32, HIDDEN_S)) or [])
            return len(again) >= len(held)

        in_time(come, "what was not acknowledged does not come again")
        assert time.monotonic() - asked > 30, "they come before their time"
        assert {one.message_id for one in again} == held and len(again) == len(held)
        assert {one.delivery_attempt for one in again} == {2}
        for one in again:
            worker.ack(one)
        nothing(worker, 2)


def spread():
    with (
        producer("spread") as sender,
        consumer("spread", "spread", wait_s=1) as one,
        consumer("spread", "spread", wait_s=1) as two,
        consumer("spread", "spread", wait_s=1) as three,
    ):
        for number in range(60):
            sender.send(message("spread", f"{number}"))
        found = {worker: [] for worker in (one, two, three)}
        deadline = time.monotonic() + 60
        while sum(map(len, found.values())) < 60 and time.monotonic() < deadline:
            for worker, messages in found.items():
                messages += worker.receive(4, HIDDEN_S) or []
        numbers = [int(one.body) for messages in found.values() for one in messages]
        assert sorted(numbers) == list(range(60)), "each comes to one of them"
        assert all(found.values()), "each of them has some"
        for worker, messages in found.items():
            for taken in messages:
                worker.ack(taken)


def new_group():
    with producer("older") as sender:
        for number in range(5):
            sender.send(message("older", f"{number}"))
        with consumer("comes-late", "older") as worker:
            found = some(worker, 5)
            assert sorted(int(one.body) for one in found) == [0, 1, 2, 3, 4]
            for one in found:
                worker.ack(one)


def slow_consumer_renew():
    """A listener takes longer than a message is hidden."""
    seen, ended = [], threading.Event()

    def take(found):
        seen.append(found.delivery_attempt)
        threading.Event().wait(75)
        ended.set()
        return ConsumeResult.SUCCESS

    with producer("slow") as sender, push("slow", "slow", take):
        sender.send(message("slow", "x"))
        assert ended.wait(120)
    with consumer("slow", "slow") as worker:
        nothing(worker, 2)
    assert seen == [1], seen


def vanishes():
    """The test that reads the line kills this client, which holds a message."""

    def take(found):
        print("vanish", flush=True)
        threading.Event().wait(DEADLINE_S)
        return ConsumeResult.SUCCESS

    with producer("vanished") as sender, push("vanished", "vanished", take):
        sender.send(message("vanished", "held"))
        threading.Event().wait(DEADLINE_S)


def client_gone():
    """What the client held that vanished comes again."""
    with consumer("vanished", "vanished") as worker:
        (found,) = some(worker, 1)
        assert (found.body, found.delivery_attempt) == (b"held", 2)
        worker.ack(found)


def reconnect():
    """Producer, simple and push consumer go on when the broker is back."""
    pushed = []

    def take(found):
        pushed.append(found.body)
        return ConsumeResult.SUCCESS

    with (
        producer("reached") as sender,
        consumer("reaches", "reached") as worker,
        push("reaches-too", "reached", take),
    ):
        sender.send(message("reached", "before"))
        worker.ack(some(worker, 1)[0])
        in_time(lambda: pushed == [b"before"], "the push consumer has nothing")
        last_seen = time.monotonic()
        killed()
        away_s = time.monotonic() - last_seen
        began = time.monotonic()
        in_time(lambda: tried(lambda: sender.send(message("reached", "after"))), "no send")
        found = in_time(lambda: tried(lambda: worker.receive(1, 60)), "none")
        in_time(lambda: b"after" in pushed, "the push consumer has nothing")
        took_s = time.monotonic() - began
        # gRPC's own wait between two connections grows with the time for which the broker is away.
        assert took_s < max(30, away_s), f"after {took_s:.0f} s"
        worker.ack(found[0])


def many_clients():
    """ROW_CLIENTS of them wait for messages until the test has seen enough."""
    over, failures = threading.Event(), []

    def work(worker):
        try:
            while not over.is_set():
                for found in worker.receive(32, HIDDEN_S) or []:
                    worker.ack(found)
        except Exception as failure:  # noqa: BLE001 - of a thread
            failures.append(failure)

    with ExitStack() as stack:
        count = int(os.environ["ROW_CLIENTS"])
        workers = [stack.enter_context(consumer("many", "many", wait_s=20)) for _ in range(count)]
        threads = [threading.Thread(target=work, args=[worker]) for worker in workers]
        for thread in threads:
            thread.start()
        killed()
        over.set()
        for thread in threads:
            thread.join()
    assert not failures, (len(failures), failures[0])
