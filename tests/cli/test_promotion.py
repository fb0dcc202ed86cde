"""The commands for a change of master, and their output."""

import pytest
from stratamq_torture.processes.wire import NOWHERE, Wire

from stratamq.cli.up import BrokerRole, plan, replication
from stratamq.errors import ConfigurationError
from tests.cli.processes import SMALL, Up, stratamq
from tests.cli.test_replica import rows
from tests.ha.pairs import PATIENT_DEMOTION, until


def printed(*arguments: str, data, code: int = 0) -> str:
    done = stratamq(*arguments, data=data)
    assert done.returncode == code, done.stdout + done.stderr
    return (done.stdout + done.stderr).decode()


def test_a_planned_change_and_a_broker_that_comes_back(tmp_path):
    ours, theirs = tmp_path / "a", tmp_path / "b"
    wires = Wire(NOWHERE), Wire(NOWHERE)
    members = ["--member", f"a={wires[0].address}", "--member", f"b={wires[1].address}"]
    patient = ("--set", PATIENT_DEMOTION)
    up = {ours: Up(ours, *SMALL, *patient, "--role", "sync-master", *members, "--name", "a")}
    up[theirs] = Up(theirs, *SMALL, *patient, "--role", "slave", *members, "--name", "b")
    try:
        for data, wire in zip((ours, theirs), wires, strict=True):
            up[data].wait_ready()
            with up[data].client() as client:
                wire.lead_to(client.admin.replication_state().listening_address)
        with up[ours].client() as client:
            until(lambda: client.log_state().writable, "a takes messages")
            until(lambda: client.send("t", b"x").status.name == "PUT_OK", "b counts")
        assert "is the master already, of term 0" in printed(
            "replica", "promote", data=ours, code=1
        )
        assert "demote it first" in printed("replica", "promote", data=theirs, code=1)
        assert "follows whichever member is promoted" in printed("replica", "demote", data=ours)
        assert "a slave takes no messages" in printed("status", data=ours, code=1)
        output = printed("replica", "promote", data=theirs)
        assert "this broker is SYNC_MASTER of term 1; what it writes begins at" in output
        with up[ours].client() as client:
            until(lambda: client.admin.replication_state().following.connected, "a follows")
        (following,) = [r for r in rows("replica", "status", data=ours) if r["kind"] == "following"]
        assert following["term"] == 1
        until(lambda: not stratamq("status", data=theirs).returncode, "its services have caught up")
        shown = printed("status", data=theirs)
        assert "SYNC_MASTER of term 1" in shown
        assert "the role is SYNC_MASTER and not SLAVE (commitlog.role)" in shown
        assert up[theirs].stop() == up[ours].stop() == 0
        wires[1].lead_to(NOWHERE)
        up[ours] = Up(ours, *SMALL, "--role", "sync-master", *members, "--name", "a")
        up[ours].wait_ready()
        (row,) = [r for r in rows("status", data=ours, code=1) if r.get("service") == "commitlog"
                  and r["kind"] == "service"]  # fmt: skip
        assert (row["role"], row["configuredRole"], row["term"]) == ("SLAVE", "SYNC_MASTER", 1)
    finally:
        for each in up.values():
            each.process.kill()
            each.process.wait()
        for wire in wires:
            wire.close()


def test_a_master_whose_fellow_members_are_silent_is_released_by_one_command(tmp_path):
    data = tmp_path / "a"
    members = ["--member", "a=127.0.0.1:1", "--member", f"b={NOWHERE}", "--name", "a"]
    up = Up(data, *SMALL, *members)
    try:
        up.wait_ready()
        with up.client() as client:
            until(
                lambda: "no other member" in client.admin.replication_state().held_reason,
                "it has asked",
            )
        shown = printed("replica", "status", data=data, code=1)
        assert "takes no messages: no other member reports" in shown
        assert "members of version 1: a, b; 1 acknowledgements of slaves are required" in shown
        assert "this directory is new in its cluster" in shown
        assert "not writable" in printed("status", data=data, code=1)
        assert printed("replica", "promote", "--force", data=data).endswith("begins at 0\n")
        with up.client() as client:
            assert client.send("t", b"x").status.name == "PUT_OK"
        assert up.stop() == 0
        up = Up(data, *SMALL, *members, "--force")
        up.wait_ready()
        with up.client() as client:
            until(lambda: client.log_state().writable, "--force lets it")
            assert client.log_state().term == 8, "the next one that belongs to the first member"
        assert up.stop() == 0
    finally:
        up.process.kill()
        up.process.wait()


def test_members_become_settings(tmp_path):
    assert replication(None, None, ["a=h:1", "b=h:2"], "b", True) == [
        "ha.members=a=h:1,b=h:2",
        "ha.member=b",
        "ha.force_master=true",
    ]
    assert "commitlog.role=SLAVE" in replication(BrokerRole.SLAVE, None, ["a=h:1"])
    with pytest.raises(ConfigurationError):
        replication(None, None, [], "b")
    with pytest.raises(ConfigurationError):
        replication(BrokerRole.SLAVE, None)
    held = "commitlog.wait_for_peers=true"
    assert held in plan(tmp_path, None, ["ha.members=a=h:1"])[0].command
    assert held not in plan(tmp_path, None, [])[0].command
    configured = ["ha.members=a=h:1", "commitlog.wait_for_peers=false"]
    assert held not in plan(tmp_path, None, configured)[0].command
