"""For how long a log could acknowledge nothing, and why."""

from pathlib import Path

import pytest
from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.log_state import LogOffsets, RoleAndHistory, StateCell
from stratamq_commitlog.replica.ability import Ability
from stratamq_commitlog.replica.acknowledgement import Replicas
from stratamq_commitlog.roles import RoleState
from stratamq_commitlog.write.write_gate import Lease, WriteGate

from stratamq.errors import BusyError
from stratamq.files.simulated_time import SimulatedClock
from stratamq.formats.log_state import ReplicaState, Role

SECOND_NS = 1_000_000_000


class Log:
    def __init__(self, role: Role) -> None:
        self.clock = SimulatedClock()
        self.offsets = LogOffsets(0, 0, 0, 0, 0)
        states = StateCell(RoleAndHistory(RoleState(role)))
        lease = Lease(self.clock, "boot", required=False)
        self.gate = WriteGate(CommitLogConfig(root=Path("store")), states, lease, lambda: 0)
        self.replicas = Replicas(1, 1 << 20)
        self.waits = False
        self.no_room: BusyError | None = None
        self.ability = Ability(
            self.offsets,
            states,
            self.gate,
            self.replicas,
            lambda: self.waits,
            lambda: self.no_room,
        )
        self._now_s = 0

    def unable_s(self, at_s: int) -> int:
        return self.ability.look(at_s * SECOND_NS)[0] // 1_000

    def follows(self, acknowledged: int) -> None:
        self.replicas.report([ReplicaState("s", acknowledged, connected=True)])


def test_a_log_that_waits_is_unable_since_something_was_confirmed_last():
    log = Log(Role.ASYNC_MASTER)
    assert log.unable_s(0) == 0
    log.offsets.appended = 100
    assert [log.unable_s(at) for at in (1, 4)] == [0, 3]
    log.offsets.confirmed = 50
    assert [log.unable_s(at) for at in (5, 9)] == [0, 4]
    log.offsets.confirmed = 100
    assert log.unable_s(10) == 0
    log.waits = True
    assert [log.unable_s(at) for at in (11, 12)] == [0, 1]


def stop(log: Log) -> None:
    log.gate.stopped_reason = "a flush failed"


def stall(log: Log) -> None:
    log.gate.stalled = "the disk is stalled"


def fill(log: Log) -> None:
    log.gate.disk_full = True


def leave_no_room(log: Log) -> None:
    log.no_room = BusyError("no segment")


@pytest.mark.parametrize("harm", [stop, stall, fill, leave_no_room])
@pytest.mark.parametrize("role", [Role.ASYNC_MASTER, Role.SLAVE])
def test_a_fault_of_the_disk_makes_it_unable_while_nothing_is_sent(role, harm):
    log = Log(role)
    assert log.ability.look(0) == (0, "")
    harm(log)
    assert [log.unable_s(at) for at in (1, 7)] == [0, 6]
    assert log.ability.look(7 * SECOND_NS)[1]


def test_a_disk_that_is_slow_and_goes_on_makes_it_able():
    log = Log(Role.ASYNC_MASTER)
    stall(log)
    for at_s in range(0, 60, 5):
        log.offsets.appended += 10
        log.offsets.confirmed += 10
        assert log.unable_s(at_s) == 0
        assert log.unable_s(at_s + 4) == 4


def test_too_few_slaves_make_a_sync_master_unable_whatever_is_confirmed():
    log = Log(Role.SYNC_MASTER)
    assert log.unable_s(0) == 0
    log.offsets.appended = log.offsets.confirmed = 100
    assert log.unable_s(5) == 5
    assert "fewer than 1 slaves" in log.ability.look(5 * SECOND_NS)[1]
    log.follows(100)
    assert log.ability.look(6 * SECOND_NS) == (0, "")


def test_what_waits_on_a_slave_or_without_a_lease_is_no_fault_of_the_log():
    for role in (Role.SLAVE, Role.ASYNC_MASTER):
        log = Log(role)
        if role is Role.ASYNC_MASTER:
            log.gate.lease.required = True
        log.offsets.appended = 100
        assert (log.unable_s(0), log.unable_s(9)) == (0, 0)
