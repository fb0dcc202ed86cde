"""A rolling upgrade, and the way back, as in docs/operations.md, while a producer continues."""

import os
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from stratamq_bench.ports import free_port
from stratamq_torture.processes.wire import NOWHERE, Wire

from stratamq.client import connect
from tests.cli.processes import SMALL, Up, stratamq
from tests.ha.pairs import PATIENT_DEMOTION
from tests.support.waiting import until, until_dispatched

ROOT = Path(__file__).resolve().parents[2]
EARLIER = "95b20a7"
"""The version that is upgraded from: the commit with which the metrics for operators were
whole. There is no release yet: take its tag when there is one."""
FOLDERS = ("src", "benchmarks", "torture", "pipeline")
RETRY_TIMEOUT_S = 120.0
SECTION = (ROOT / "docs" / "operations.md").read_text().partition("\n## Upgrade\n")[2]
STEPS = re.findall(r"^\$ stratamq (.+?) --data \w+", SECTION.partition("\n## ")[0], re.MULTILINE)
"""The commands of the page's section; members are `a`, the master, and `b`."""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory) -> str:
    """PYTHONPATH of the earlier version's code."""
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", EARLIER, "services", *FOLDERS], capture_output=True
    )
    if packed.returncode:
        pytest.skip(f"commit {EARLIER} is not in this copy of the history (a shallow clone?)")
    tree = tmp_path_factory.mktemp("earlier")
    subprocess.run(["tar", "-x", "-C", str(tree)], input=packed.stdout, check=True)
    return os.pathsep.join(
        map(str, [*(tree / one for one in FOLDERS), *(tree / "services").iterdir()])
    )


class Members:
    """Brokers `a` and `b` of one name, each in one of two versions."""

    def __init__(self, directory: Path, earlier: str, monkeypatch) -> None:
        self.data = {name: directory / name for name in "ab"}
        self._earlier = earlier
        self._monkeypatch = monkeypatch
        self._ports = {name: free_port() for name in "ab"}
        self._wires = {name: Wire(NOWHERE) for name in "ab"}
        self.up: dict[str, Up] = {}
        self.addresses = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def start(self, name: str, role: str, *, earlier: bool = False) -> None:
        members = [f"--member={one}={wire.address}" for one, wire in self._wires.items()]
        address = f"commitlog.address=127.0.0.1:{self._ports[name]}"
        with self._monkeypatch.context() as patch:
            if earlier:
                patch.setenv("PYTHONPATH", self._earlier)
            self.up[name] = Up(
                self.data[name], *SMALL, "--set", address, "--set", PATIENT_DEMOTION,
                "--role", role, *members, "--name", name,
                fresh=earlier,
            )  # fmt: skip
        self.up[name].wait_ready()
        code = Path(f"/proc/{self.up[name].pid('commitlog')}/environ").read_bytes()
        assert (self._earlier.encode() in code) is earlier
        with self.client(name) as client:
            self._wires[name].lead_to(client.admin.replication_state().listening_address)

    def stop(self, name: str) -> None:
        self._wires[name].lead_to(NOWHERE)
        assert self.up.pop(name).stop() == 0

    def client(self, name: str):
        return connect(self.data[name], retry_timeout_s=RETRY_TIMEOUT_S)

    def has_everything(self, name: str) -> None:
        """`replica status` of the other one, the master, shows lagBytes 0."""
        with self.client(name) as client:
            until(lambda: client.admin.replication_state().following.connected, f"{name} follows")

    def close(self) -> None:
        for up in self.up.values():
            up.process.kill()
            up.process.wait()
        for wire in self._wires.values():
            wire.close()


@pytest.fixture
def members(tmp_path, earlier, monkeypatch) -> Iterator[Members]:
    found = Members(tmp_path, earlier, monkeypatch)
    yield found
    found.close()


class Load:
    """A producer that sends until it is stopped, at most a hundred messages a second, and knows
    what was acknowledged."""

    def __init__(self, addresses: str) -> None:
        self.acknowledged: list[bytes] = []
        self._stopped = threading.Event()
        self._lane = ThreadPoolExecutor(1)
        self._run_to_its_end = self._lane.submit(self._run, addresses)

    def _run(self, addresses: str) -> None:
        with connect(addresses, retry_timeout_s=RETRY_TIMEOUT_S) as client:
            for number in count():
                if self._stopped.wait(0.01):
                    return
                # One that was stored and not confirmed is not sent again: bodies differ.
                body = b"%d" % number
                if client.send("t", body, queue_id=0).status.name == "PUT_OK":
                    self.acknowledged.append(body)

    def continues(self) -> None:
        before = len(self.acknowledged)
        until(
            lambda: len(self.acknowledged) > before + 5 or self._run_to_its_end.done(),
            "messages are acknowledged",
        )
        assert not self._run_to_its_end.done(), self._run_to_its_end.result()

    def stop(self) -> None:
        self._stopped.set()
        self._lane.shutdown()
        self._run_to_its_end.result()


def switch(members: Members, old: str, new: str) -> None:
    """By the page's commands."""
    steps = [one for one in STEPS if one.startswith("replica ")]
    assert steps == ["replica demote", "replica promote"]
    for step, name in zip(steps, (old, new), strict=True):
        done = stratamq(*step.split(), data=members.data[name])
        assert done.returncode == 0, done.stderr.decode()


def holds_each_once(members: Members, name: str, acknowledged: list[bytes], offset: int) -> None:
    with members.client(name) as client:
        wanted = set(acknowledged)
        until(
            lambda: wanted <= {one.body for one in client.consume("t")},
            f"{name} has what was acknowledged",
        )
        counts = Counter(one.body for one in client.consume("t"))
        assert [body for body in acknowledged if counts[body] != 1] == []
        until(
            lambda: client.committed_offsets("g", "t").get(("t", 0)) == offset,
            f"{name} has the group's offset",
        )


def test_an_upgrade_one_broker_at_a_time_and_back_loses_and_doubles_nothing(members):
    members.start("a", "sync-master", earlier=True)
    members.start("b", "slave", earlier=True)
    load = Load(members.addresses)
    try:
        load.continues()
        with members.client("a") as client:
            until_dispatched(client)
            client.commit_offsets("g", {("t", 0): 5})
        members.stop("b")
        members.start("b", "slave")
        members.has_everything("b")
        load.continues()
        switch(members, "a", "b")
        load.continues()
        members.stop("a")
        members.start("a", "slave")
        members.has_everything("a")
        load.continues()
        # The way back: a slave in the earlier version, which is promoted.
        members.stop("a")
        members.start("a", "slave", earlier=True)
        members.has_everything("a")
        load.continues()
        switch(members, "b", "a")
        load.continues()
    finally:
        load.stop()
    for name in "ab":
        holds_each_once(members, name, load.acknowledged, 5)
