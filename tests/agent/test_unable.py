"""Members with agents and a real etcd: a leader that answers, renews, and acknowledges nothing."""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from stratamq_torture.disks.volume import hanging, no_injection

from stratamq.client import Client, Message, connect
from stratamq.errors import StrataError
from stratamq.formats.log_state import Role
from tests.agent.members import Members, caught_up
from tests.support.brokers import COMMITLOG
from tests.support.mounts import mounted
from tests.support.waiting import until

VOLUME = "size=192m"
TIMES = (
    "agent.ttl_ms=6000",
    "agent.loop_interval_ms=1000",
    "agent.retry_timeout_ms=2500",
    "commitlog.slave_timeout_ms=3000",
    "commitlog.sync_flush_timeout_ms=5000",
    "commitlog.disk_stall_ms=5000",
    "commitlog.disk_refuse_ratio=0.9",
    "commitlog.disk_resume_ratio=0.8",
)
Fault = Callable[[Members, Path], AbstractContextManager[object]]


def cut_from_its_slaves(members: Members, directory: Path) -> AbstractContextManager[object]:
    return members.a_cut_off()


@contextmanager
def disk_full(members: Members, directory: Path) -> Iterator[None]:
    filler = Path(members.brokers["a"].root) / "filler"
    with filler.open("wb", 0) as file:
        try:
            while True:
                file.write(bytes(1 << 20))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    try:
        yield
    finally:
        filler.unlink()


def flushes_stalled(members: Members, directory: Path) -> AbstractContextManager[object]:
    if problem := no_injection():
        pytest.skip(f"a flush that hangs {problem}")
    return hanging(members.brokers["a"].pid(COMMITLOG), "fdatasync", directory)


class Sent:
    """Messages to whoever is the master; `acknowledged`: bodies with PUT_OK."""

    def __init__(self, client: Client) -> None:
        self.acknowledged: list[bytes] = []
        self._client = client
        self._number = 0

    def one(self) -> bool:
        """Whether it was acknowledged."""
        self._number += 1
        body = b"%d" % self._number
        try:
            done = self._client.send_message(Message("t", body)).status.name == "PUT_OK"
        except StrataError:
            return False
        if done:
            self.acknowledged.append(body)
        return done


@pytest.mark.parametrize(
    ("role", "fault"),
    [
        ("SYNC_MASTER", cut_from_its_slaves),
        ("SYNC_MASTER", disk_full),
        ("SYNC_MASTER", flushes_stalled),
        ("ASYNC_MASTER", disk_full),
        ("ASYNC_MASTER", flushes_stalled),
    ],
)
def test_a_leader_that_can_acknowledge_nothing_hands_over_and_follows_later(
    tmp_path, etcd, role, fault, record_property
):
    with ExitStack() as stack:
        if fault is disk_full:
            at = tmp_path / "a"
            stack.enter_context(mounted("-t", "tmpfs", "-o", VOLUME, "none", at=at))
        members = Members(tmp_path, etcd, role, TIMES)
        stack.callback(members.close)
        members.start()
        client = stack.enter_context(members.client(retry_timeout_s=1))
        sent = Sent(client)
        for _ in range(20):
            until(sent.one, "a message is acknowledged")
        caught_up(members)
        with fault(members, tmp_path):
            began = time.monotonic()
            with connect(members.brokers["b"].root, timeout_s=60) as other:
                until(
                    lambda: bool(other.admin.election().problems) or (sent.one(), False)[1], "said"
                )
                assert "a leads, and has acknowledged nothing" in other.admin.election().problems[0]
            until(lambda: members.leader("b") in ("b", "c") or (sent.one(), False)[1], "moved")
            until(sent.one, "messages are acknowledged again")
            record_property("seconds", time.monotonic() - began)
        with connect(members.brokers["a"].root, timeout_s=60) as old:
            until(lambda: old.log_state().role is Role.SLAVE, "the old master follows")
        until(sent.one, "messages are acknowledged still")
        found = [one.body for one in client.consume("t")]
        assert set(sent.acknowledged) <= set(found)
