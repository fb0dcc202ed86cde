"""Rows about what is sent and found: bodies, polls, refusals, filters."""

import os
import threading
import time

from clients import DEADLINE_S, consumer, message, nothing, producer, refused, some
from rocketmq import FilterExpression
from rocketmq.v5.model.filter_expression import FilterType


def long_poll_wakes():
    """A receive that waits in one queue is woken by a message of another."""
    with producer("waits") as sender, consumer("waits", "waits", wait_s=20) as worker:
        for number in range(8):
            sent_at = []

            def send(number=number, sent_at=sent_at):
                sent_at.append(time.monotonic())
                sender.send(message("waits", f"{number}"))

            later = threading.Timer(0.5, send)
            later.start()
            (found,) = some(worker, 1)
            took_s = time.monotonic() - sent_at[0]
            later.join()
            assert took_s < 2.5, f"it came after {took_s:.2f} s"
            worker.ack(found)


def long_poll_short():
    for wait_s in (1, 3):
        with consumer("short", "short", wait_s=wait_s) as worker:
            worker.receive(1, 60)
            began = time.monotonic()
            assert not worker.receive(1, 60)
            took_s = time.monotonic() - began
            assert wait_s - 0.5 < took_s < wait_s + 2, f"{wait_s} s are {took_s:.2f} s"


def receive_before_settings():
    """The client does not wait for its settings."""
    for _ in range(int(os.environ.get("ROW_STARTS", "20"))):
        with consumer("at-once", "at-once", wait_s=1) as worker:
            worker.receive(1, 60)


def bodies():
    """compressible-body and big-body."""
    text, random = b"all the same " * (1 << 18), os.urandom((4 << 20) - (64 << 10))
    with producer("bodies") as sender, consumer("bodies", "bodies") as worker:
        for body in (text[: 256 << 10], random):
            sender.send(message("bodies", body))
            (found,) = some(worker, 1)
            assert found.body == body and not found.corrupted
            worker.ack(found)


def too_big():
    with producer("too-big") as sender, consumer("too-big", "too-big") as worker:
        with refused("too large", "exceed", "41301", "4194304"):
            sender.send(message("too-big", b"x" * ((4 << 20) + 1)))
        with refused("empty", "body"):
            sender.send(message("too-big", b""))
        nothing(worker, 1)


def bad_fields():
    """bad-tag, bad-key, bad-group, bad-property, too-many-properties."""
    many = {f"p{number}": "x" for number in range(129)}
    with producer("odd") as sender, consumer("odd", "odd") as worker:
        for code, fields in (
            ("40004", {"tag": "two\nlines"}),
            ("40005", {"key": "two words"}),
            ("40006", {"group": "g" * 64}),
            ("40007", {"KEYS": "of the store's own"}),
            ("43101", many),
        ):
            with refused(code):
                sender.send(message("odd", "x", **fields))
        nothing(worker, 1)


def no_write_no_read():
    with producer("no-write") as sender, refused("writ", "no available message queue"):
        sender.send(message("no-write", "x"))
    with (
        consumer("no-read", "no-read", wait_s=1) as worker,
        refused("read", "no available message queue"),
    ):
        worker.receive(1, 60)


def wrong_type():
    with producer("wrong-type") as sender, consumer("wrong-type", "wrong-type") as worker:
        for wanted in ({"group": "one"}, {"due_s": int(time.time()) + 5}):
            with refused("type", "40014"):
                sender.send(message("wrong-type", "x", **wanted))
        nothing(worker, 6)


def mixed_topic():
    with producer("mixed") as sender, consumer("mixed", "mixed") as worker:
        sender.send(message("mixed", "normal"))
        sender.send(message("mixed", "ordered", group="one"))
        sender.send(message("mixed", "delayed", due_s=int(time.time()) + 2))
        found = some(worker, 3)
        assert sorted(one.body for one in found) == [b"delayed", b"normal", b"ordered"]
        for one in found:
            worker.ack(one)


def sql_filter():
    wanted = FilterExpression("a > 5 AND b = 'x'", FilterType.SQL)
    with producer("selected") as sender, consumer("selects", "selected", wanted) as worker:
        for number in range(10):
            sender.send(message("selected", f"{number}", a=str(number), b="xy"[number % 2]))
        found = some(worker, 2)
        assert sorted(one.body for one in found) == [b"6", b"8"]
        for one in found:
            worker.ack(one)
        nothing(worker, 1)


def delay_past():
    with producer("past") as sender, consumer("past", "past") as worker:
        sender.send(message("past", "at once", due_s=int(time.time()) - 60))
        began = time.monotonic()
        worker.ack(some(worker, 1)[0])
        assert time.monotonic() - began < DEADLINE_S / 4
        with refused("40012", "horizon", "delay", "far"):
            sender.send(message("past", "never", due_s=int(time.time()) + 800 * 86_400))
