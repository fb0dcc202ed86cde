"""A real etcd is put back to an older copy, in which another member leads: only one answers."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stratamq.client import SendStatus, connect
from stratamq.errors import StrataError
from tests.agent.members import AGENT, MEMBERS, Members, caught_up, store
from tests.support.waiting import until

Answers = list[tuple[float, float]]
"""When each message with PUT_OK was sent, and when it was answered."""


class Asked:
    """A member that is sent messages without a pause."""

    def __init__(self, members: Members, name: str) -> None:
        self.answers: Answers = []
        self._root = members.brokers[name].root
        self._over = threading.Event()
        self._sends = threading.Thread(target=self._send)
        self._sends.start()

    def _send(self) -> None:
        with connect(self._root, timeout_s=0.5) as client:
            while not self._over.wait(0.02):
                began = time.monotonic()
                try:
                    result = client.send("t", b"x")
                except StrataError:
                    continue  # it is no master, or may not answer
                if result.status is SendStatus.PUT_OK:
                    self.answers.append((began, time.monotonic()))

    def end(self) -> None:
        self._over.set()
        self._sends.join()


@contextmanager
def all_asked(members: Members) -> Iterator[dict[str, Asked]]:
    asked = {name: Asked(members, name) for name in MEMBERS}
    try:
        yield asked
    finally:
        for one in asked.values():
            one.end()


def switch_over(members: Members, leader: str, to: str) -> None:
    caught_up(members, leader)
    with connect(members.brokers[leader].root, timeout_s=60) as client:
        client.admin.switchover(to)
    until(lambda: members.leader() == to, f"{to} leads")


@pytest.fixture
def members(tmp_path, etcd) -> Iterator[Members]:
    started = Members(tmp_path, etcd, "ASYNC_MASTER").start()
    yield started
    started.close()


@pytest.mark.parametrize("emptied", [False, True], ids=["an older copy", "empty"])
def test_no_two_members_answer_when_the_store_goes_back(members, etcd, tmp_path, emptied):
    copy = Path(tmp_path, "copy")
    if emptied:
        copy.mkdir()
    else:
        with members.client() as client:
            store(client, b"none takes over an empty log")
        switch_over(members, "a", "b")
        etcd.copy(copy)
        switch_over(members, "b", "a")
    with all_asked(members) as asked:
        until(lambda: asked["a"].answers, "a answers")
        etcd.put_back(copy)
        until(lambda: noticed(members), "an agent notices")
        noticed_s = time.monotonic()
        until(lambda: answering_since(asked, noticed_s), "one answers again")
    names = [(one, other) for one in MEMBERS for other in MEMBERS if one != other]
    assert not [pair for pair in names if by_turns(*(asked[name].answers for name in pair))]


def by_turns(one: Answers, other: Answers) -> bool:
    """One answered, then the other, then the first one again: what was sent after it."""
    if not one:
        return False
    first = min(answered for _, answered in one)
    between = [answered for sent, answered in other if sent > first]
    return bool(between) and any(sent > min(between) for sent, _ in one)


def noticed(members: Members) -> bool:
    return any("went back" in members.brokers[name].output(AGENT) for name in MEMBERS)


def answering_since(asked: dict[str, Asked], moment: float) -> bool:
    return any(one.answers and one.answers[-1][1] > moment for one in asked.values())
