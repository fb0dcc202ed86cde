"""What a master shows of slaves that went: an entry goes when its slave is back."""

from dataclasses import dataclass
from types import SimpleNamespace

from stratamq_ha.slaves import Slaves


@dataclass(eq=False)
class Connection:
    """What the master knows of a connection, as `Peer` tells it."""

    address: str
    name: str = ""
    member: str = ""
    offset: int = -1
    has: None = None


def log():
    view = SimpleNamespace(shippable=100)
    return SimpleNamespace(facts=None, view=view, lag_ms=lambda acknowledged: 0)


def gone(slaves: Slaves) -> list[str]:
    return [one.address for one in slaves.known(0) if not one.connected]


def test_connections_that_never_named_themselves_go_when_a_slave_of_their_host_joins():
    for member in ("", "b"):
        slaves = Slaves(log())
        slaves.left(Connection("10.0.0.2:1"), "it stops", 0)
        slaves.left(Connection("10.0.0.3:1"), "it stops", 0)
        slaves.joined(Connection("10.0.0.2:2", name="broker-a", member=member))
        assert gone(slaves) == ["10.0.0.3:1"]


def test_a_member_that_is_back_has_one_entry_wherever_it_comes_from():
    slaves = Slaves(log())
    slaves.left(Connection("10.0.0.2:1", name="broker-a", member="b", offset=5), "lost", 0)
    slaves.left(Connection("10.0.0.2:2", name="broker-a", member="c", offset=5), "lost", 0)
    slaves.joined(Connection("10.0.0.9:1", name="broker-a", member="b"))
    assert gone(slaves) == ["10.0.0.2:2"]


def test_a_slave_without_members_that_is_back_takes_the_entry_of_its_name_and_host():
    slaves = Slaves(log())
    slaves.left(Connection("10.0.0.2:1", name="broker-a", offset=5), "lost", 0)
    slaves.left(Connection("10.0.0.2:2", name="broker-b", offset=5), "lost", 0)
    slaves.left(Connection("10.0.0.3:1", name="broker-a", offset=5), "lost", 0)
    slaves.joined(Connection("10.0.0.2:3", name="broker-a"))
    assert gone(slaves) == ["10.0.0.2:2", "10.0.0.3:1"]
