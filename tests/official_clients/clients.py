"""What the rows are written with, over RocketMQ's Python client of version 5."""

import sys
import threading
import time
from contextlib import contextmanager

from rocketmq import (
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
)

HIDDEN_S = 60
LEAST_HIDDEN_S = 10
"""RocketMQ's own limit."""
DEADLINE_S = 120


def configuration():
    return ClientConfiguration(sys.argv[1], Credentials(), request_timeout=10)


@contextmanager
def started(client):
    client.startup()
    try:
        yield client
    finally:
        client.shutdown()


def producer(*topics, checker=None):
    return started(Producer(configuration(), topics, checker=checker))


def consumer(group, topic, expression="*", wait_s=5):
    if isinstance(expression, str):
        expression = FilterExpression(expression)
    return started(SimpleConsumer(configuration(), group, {topic: expression}, wait_s))


class Listener(MessageListener):
    def __init__(self, take):
        self._take = take

    def consume(self, message):
        return self._take(message)


def push(group, topic, take):
    wanted = {topic: FilterExpression("*")}
    return started(PushConsumer(configuration(), group, Listener(take), wanted))


class Decides(TransactionChecker):
    def __init__(self, decision):
        self._decision = decision
        self.asked = 0

    def check(self, message):
        self.asked += 1
        return self._decision


def message(topic, body, tag=None, key=None, group=None, due_s=None, **properties):
    made = Message()
    made.topic, made.body = topic, body if isinstance(body, bytes) else body.encode()
    if tag:
        made.tag = tag
    if key:
        made.keys = key
    if group:
        made.message_group = group
    if due_s:
        made.delivery_timestamp = due_s
    for name, value in properties.items():
        made.add_property(name, value)
    return made


def some(client, count, makes_topic=False, hidden_s=HIDDEN_S):
    """`makes_topic`: the first of them makes the topic."""
    found, deadline = [], time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline:
        try:
            found += client.receive(32, hidden_s) or []
        except Exception:  # the client has no class of its own for a topic that is not there
            if not makes_topic:
                raise
            threading.Event().wait(1)
    assert len(found) == count, f"{len(found)} messages came, and not {count}"
    return found


def nothing(client, seconds, hidden_s=HIDDEN_S):
    """Nothing comes for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = client.receive(32, hidden_s) or []
        assert not found, f"{found[0].body[:50]!r} comes, attempt {found[0].delivery_attempt}"


@contextmanager
def refused(*words):
    """Any of the words is in the client's error: it has no class for each of its statuses."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        assert any(word in str(error) for word in words), error
        return
    raise AssertionError("it is not refused")


def in_time(condition, what, seconds=DEADLINE_S):
    """Return the condition's first true value."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.05)
    return found


def tried(call):
    """Return what a call gives; None while the client has not found the broker again."""
    try:
        return call()
    except Exception:  # noqa: BLE001 - the client has no class of its own for it
        threading.Event().wait(0.2)
        return None


def killed():
    """The test that reads this line kills processes of the broker and starts them again."""
    print("kill", flush=True)
    assert sys.stdin.readline() == "back\n"
