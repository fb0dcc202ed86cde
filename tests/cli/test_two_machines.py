"""A broker of one machine and commands typed on another, which has its address and nothing else."""

import json
from collections.abc import Iterator

import pytest

from stratamq.cli.listening import DEFAULT_PORT
from tests.cli.processes import SMALL, Up, lines, stratamq
from tests.support import namespaces
from tests.support.namespaces import Link, Machine
from tests.support.waiting import until

BY_DEFAULT = ("--port", str(DEFAULT_PORT), *SMALL)


@pytest.fixture
def link() -> Iterator[Link]:
    if namespaces.obstacle():
        pytest.skip(namespaces.obstacle())
    with Link() as link:
        yield link


TO_OTHERS = ("--set", "access.open_to_others=true")


def typed(machine: Machine, *arguments: str, stdin: bytes = b"", code: int = 0) -> str:
    done = stratamq(*arguments, stdin=stdin, network=machine.namespace)
    assert done.returncode == code, done.stdout + done.stderr
    return (done.stdout + done.stderr).decode()


def rows(machine: Machine, *arguments: str) -> list[dict]:
    done = stratamq(*arguments, "--output", "json", network=machine.namespace)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_one_address_is_enough_on_another_machine(link, tmp_path):
    where = ("--address", f"{link.near.address}:{DEFAULT_PORT}")
    everywhere = (*BY_DEFAULT, "--bind", "0.0.0.0", *TO_OTHERS)
    with Up(tmp_path / "master", *everywhere, network=link.near.namespace) as master:
        master.wait_ready()
        assert "authentication is disabled" in master.printed()
        typed(link.far, "produce", "t", "--queue", "0", *where, stdin=lines("one", "two"))
        shown = rows(link.far, "consume", "t", "--group", "g", "--count", "2", *where)
        assert [row["body"] for row in shown] == ["one", "two"]
        assert "g" in typed(link.far, "groups", *where)
        addresses = {
            row["service"]: row["address"]
            for row in rows(link.far, "status", *where)
            if row["kind"] == "service"
        }
        assert addresses == {
            room: f"{link.near.address}:{DEFAULT_PORT + behind}"
            for behind, room in enumerate(
                ("commitlog", "dispatcher", "index", "ha", "janitor", "delivery")
            )
        }
        # A replica there: a client that has its address is led to the master.
        slaves_port = f"{link.near.address}:{DEFAULT_PORT + 8}"
        following = ("--role", "slave", "--master", slaves_port)
        with Up(tmp_path / "slave", *BY_DEFAULT, *following, network=link.far.namespace) as slave:
            slave.wait_ready()
            own = ("--address", f"127.0.0.1:{DEFAULT_PORT}")
            until(
                lambda: f"its master at {where[1]}" in typed(link.far, "status", *own),
                "the slave knows where its master takes messages",
            )
            typed(link.far, "produce", "t", "--queue", "0", *own, stdin=lines("three"))
            shown = rows(link.near, "consume", "t", "--data", str(master.data))
            assert shown[-1]["body"] == "three"
            assert slave.stop() == 0
        assert master.stop() == 0


def test_a_broker_of_its_own_machine_alone_is_not_reached(link, tmp_path):
    where = f"{link.near.address}:{DEFAULT_PORT}"
    with Up(tmp_path / "store", *BY_DEFAULT, network=link.near.namespace) as up:
        up.wait_ready()
        assert "password" not in up.printed()
        output = typed(link.far, "topics", "list", "--address", where, code=1)
        assert f"nothing listens at {where}" in output
        assert up.stop() == 0
    mixed = ("--set", f"commitlog.address=0.0.0.0:{DEFAULT_PORT}", *TO_OTHERS)
    with Up(tmp_path / "store", *BY_DEFAULT, *mixed, network=link.near.namespace) as up:
        up.wait_ready()
        typed(link.far, "topics", "list", "--address", where)
        output = typed(link.far, "queues", "--address", where, code=1)
        assert "only its own machine reaches" in output and "dispatcher.advertised_host" in output
        assert up.stop() == 0
