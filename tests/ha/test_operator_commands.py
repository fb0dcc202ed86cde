"""What an operator's word goes by, whatever the broker has looked at by itself before."""

from pathlib import Path

import pytest
from stratamq_ha.cluster import Cluster
from stratamq_ha.config import HaConfig
from stratamq_ha.operator_commands import OperatorCommands
from stratamq_ha.own_log import OwnLogView

from stratamq.errors import NotWritableError
from stratamq.files.clock import SystemClock
from stratamq.formats.log_state import Role
from tests.ha.own_logs import RecordedLog, log_state, master_and_slave, nothing_heard

UNREACHABLE = "127.0.0.1:1"


async def test_a_promotion_is_judged_by_the_configured_members_before_the_first_look_at_peers():
    config = HaConfig(root=Path("store"), members=(f"a={UNREACHABLE}", f"b={UNREACHABLE}0"))
    clock = SystemClock()
    log = RecordedLog(log_state(Role.SLAVE, [(7, 0)], 0, 65_536))
    view = OwnLogView(clock)
    master, slave, listener = master_and_slave(config, log, view)
    cluster = Cluster(config, log, view, master, slave, nothing_heard(), 1, "b")
    commands = OperatorCommands(config, cluster, log, view, master, slave)
    with listener, pytest.raises(NotWritableError, match="this log is empty") as refused:
        await commands.promote(None, force=False)
    assert "not configured" not in str(refused.value)
    assert [one.name for one in log.now.members.members] == ["a", "b"]
    assert log.now.member == "b"
