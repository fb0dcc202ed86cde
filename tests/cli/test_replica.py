"""`stratamq up --role slave`, `stratamq replica`, and what `stratamq status` reports of both."""

import json

import pytest

from stratamq.cli.up import BrokerRole, replication
from stratamq.errors import ConfigurationError
from tests.cli.processes import SMALL, Up, stratamq
from tests.ha.pairs import until


def rows(*arguments: str, data, code: int = 0) -> list[dict]:
    done = stratamq(*arguments, "--output", "json", data=data)
    assert done.returncode == code, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_broker_and_its_replica(tmp_path):
    ours, theirs = tmp_path / "master", tmp_path / "slave"
    with Up(ours, *SMALL, "--role", "sync-master") as master:
        master.wait_ready()
        (own,) = rows("replica", "status", data=ours)
        address = own["replicationAddress"]
        with Up(theirs, *SMALL, "--role", "slave", "--master", address) as slave:
            slave.wait_ready()
            with slave.client() as client:
                until(
                    lambda: client.admin.replication_state().following.connected,
                    "the slave follows",
                )
            until(
                lambda: [row for row in rows("replica", "status", data=ours) if "lagBytes" in row],
                "the master knows it",
            )
            with master.client() as client:
                until(
                    lambda: client.send("t", b"hello").status.name == "PUT_OK",
                    "the slave counts",
                )
                sent = len(list(client.consume("t")))
            with slave.client() as client:
                until(lambda: len(list(client.consume("t"))) == sent, "the slave serves it")
            (mine,) = [row for row in rows("status", data=ours) if row.get("service") == "ha"][:1]
            assert (mine["state"], mine["slaves"][0]["connected"]) == ("ready", True)
            listed = rows("status", data=theirs)
            states = {row["service"]: row["state"] for row in listed if row["kind"] == "service"}
            assert set(states.values()) == {"ready"}
            (following,) = rows("replica", "status", data=theirs)
            assert (following["master"], following["connected"]) == (address, True)
            refused = stratamq("produce", "t", data=theirs, stdin=b"no\n")
            assert refused.returncode == 1
            with master.client() as client:
                where = client.services()["commitlog"]
            assert f"its master at {where}" in refused.stderr.decode()
            assert stratamq("replica", "resync", data=ours).returncode == 1
            assert master.stop() == 0
            with slave.client() as client:
                until(
                    lambda: not client.admin.replication_state().following.connected,
                    "the slave notices",
                )
            (following,) = rows("replica", "status", data=theirs, code=1)
            assert not following["connected"]
            assert slave.stop() == 0
    for path in (ours / "commitlog").iterdir():
        assert (theirs / "commitlog" / path.name).read_bytes() == path.read_bytes()


def test_roles_become_settings():
    assert replication(None, None) == []
    assert replication(BrokerRole.SYNC_MASTER, None) == ["commitlog.role=SYNC_MASTER"]
    assert "ha.master=h:1" in replication(BrokerRole.SLAVE, "h:1")
    for role, master in (
        (BrokerRole.SLAVE, None),
        (None, "h:1"),
        (BrokerRole.ASYNC_MASTER, "h:1"),
        (BrokerRole.SLAVE, "nonsense"),
    ):
        with pytest.raises(ConfigurationError):
            replication(role, master)
