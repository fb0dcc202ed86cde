"""A checker over real processes: masters that are killed, paused or cut off under load, and a
promotion each time. What was answered PUT_OK, and what consumers have seen, is on whoever serves.
"""

import contextlib
import os
import random
import signal
import threading

import pytest

from stratamq.client import SendStatus, connect
from stratamq.errors import StrataError
from tests.ha.brokers_of_one_name import NOWHERE, SYNC, Brokers
from tests.ha.pairs import until
from tests.support.brokers import DISPATCHER


class Load:
    """Sends to one broker and reads from it, until it is ended or the broker refuses."""

    def __init__(self, brokers: Brokers, name: str) -> None:
        self.promised: list[bytes] = []
        self.seen: set[bytes] = set()
        self._brokers = brokers
        self._root = brokers[name].root
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._send, self._read)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _send(self) -> None:
        with connect(self._root, timeout_s=5.0) as client, contextlib.suppress(StrataError):
            status = SendStatus.PUT_OK
            while not self._ended.is_set() and status is not SendStatus.SERVICE_NOT_AVAILABLE:
                body, status = self._brokers.sent_one(client)
                if status is SendStatus.PUT_OK:
                    self.promised.append(body)

    def _read(self) -> None:
        with connect(self._root, timeout_s=5.0) as client:
            while not self._ended.is_set():
                with contextlib.suppress(StrataError):
                    for topic in client.topics():
                        self.seen |= {message.body for message in client.consume(topic.name)}


class Machine:
    """What can happen to the master's machine, and how it comes back."""

    def __init__(self, brokers: Brokers, name: str) -> None:
        self._brokers = brokers
        self._name = name

    def fail(self, how: str) -> None:
        brokers, name = self._brokers, self._name
        if how == "killed":
            brokers.kill(name)
        elif how == "paused":
            self._signal(signal.SIGSTOP)
        else:
            for wire in brokers.wires.values():
                wire.lead_to(NOWHERE)
                wire.cut()

    def come_back(self, how: str) -> None:
        brokers, name = self._brokers, self._name
        if how == "killed":
            brokers.start(name)
        elif how == "paused":
            self._signal(signal.SIGCONT)
        else:
            for each in brokers.wires:
                brokers.reachable(each)

    def _signal(self, number: signal.Signals) -> None:
        broker = self._brokers[self._name]
        for room in self._brokers.rooms:
            os.kill(broker.pid(room), number)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_lost_sync_master_takes_no_promise_with_it_and_nothing_that_was_seen(tmp_path, seed):
    chance = random.Random(seed)
    settings = ["commitlog.hold_without_slave=true", "commitlog.slave_timeout_ms=500"]
    with Brokers(
        tmp_path, "a", "b", role="SYNC_MASTER", rooms=[DISPATCHER], settings=settings
    ) as brokers:
        brokers.start("a", "b")
        master, slave = "a", "b"
        promised: list[bytes] = []
        seen: set[bytes] = set()
        for how in chance.sample(["killed", "paused", "cut off"], 3):
            brokers.serving(master)
            brokers.counted(master)
            load, machine = Load(brokers, master), Machine(brokers, master)
            enough = chance.randrange(10, 60)
            until(lambda load=load, enough=enough: len(load.promised) >= enough, "promises")
            until(lambda load=load: load.seen, "something is seen")
            machine.fail(how)
            brokers.promote(slave, SYNC)
            machine.come_back(how)
            load.end()
            promised += load.promised
            seen |= load.seen
            brokers.shows(slave, [*promised, *seen])
            brokers.same(slave, master)
            master, slave = slave, master
        assert len(promised) >= 30 and seen
        brokers.shows(slave, [*promised, *seen])
