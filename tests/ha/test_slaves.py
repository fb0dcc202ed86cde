"""What a master shows of slaves that went: an entry goes when its slave is back."""

from dataclasses import dataclass, replace

from stratamq_ha.own_log import OwnLogView
from stratamq_ha.slaves import MAX_ACKNOWLEDGED, AcknowledgedEnds, Slaves

from stratamq.files.clock import SystemClock
from stratamq.formats.log_state import Role
from stratamq.formats.members import Members
from stratamq.formats.replication_opening import SlaveOpening
from stratamq.formats.replication_peers import PeerStatus
from tests.ha.own_logs import log_state, show
from tests.ha.peer_statuses import among, broker


@dataclass(eq=False)
class Connection:
    """The master's state of a connection, as `Peer` reports it."""

    address: str
    name: str = ""
    member: str = ""
    offset: int = -1
    has: SlaveOpening | None = None


def log(text: str = "", members: Members | None = None) -> OwnLogView:
    view = OwnLogView(SystemClock())
    members = members or among(text)
    show(view, log_state(Role.SYNC_MASTER, [(7, 0)], 100, 1024, "b", members=members))
    return view


def connection(address: str, member: str = "", identity: int = 1, new: bool = False) -> Connection:
    has = SlaveOpening(50, 0, 1024, "b", (), member, identity, new)
    return Connection(address, "b", member, 50, has)


def counting(slaves: Slaves) -> list[str]:
    return [one.address for one in slaves.reports(0) if one.counts]


def gone(slaves: Slaves) -> list[str]:
    return [one.address for one in slaves.known(0) if not one.connected]


def test_connections_that_never_named_themselves_go_when_a_slave_of_their_host_joins():
    for member in ("", "b"):
        slaves = Slaves(log())
        slaves.left(Connection("10.0.0.2:1"), "it stops", 0)
        slaves.left(Connection("10.0.0.3:1"), "it stops", 0)
        slaves.joined(Connection("10.0.0.2:2", name="broker-a", member=member))
        assert gone(slaves) == ["10.0.0.3:1"]


def test_a_member_that_was_refused_before_it_knew_its_name_has_one_entry_once_it_joins():
    slaves = Slaves(log())
    slaves.left(Connection("10.0.0.2:1", name="broker-a"), "this directory is new", 0)
    slaves.left(Connection("10.0.0.2:2", name="broker-a", offset=5), "lost", 0)
    slaves.left(Connection("10.0.0.2:3", name="broker-b"), "another broker", 0)
    slaves.joined(Connection("10.0.0.2:4", name="broker-a", member="b"))
    assert gone(slaves) == ["10.0.0.2:2", "10.0.0.2:3"]


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


def test_a_member_counts_once_by_its_newest_connection_and_no_longer_than_that():
    slaves = Slaves(log("xac 1"))
    half_open, back = connection("10.0.0.2:1", "a"), connection("10.0.0.2:2", "a")
    for peer in (half_open, back, connection("10.0.0.3:1", "c")):
        slaves.joined(peer)
    assert sorted(counting(slaves)) == ["10.0.0.2:2", "10.0.0.3:1"]
    slaves.left(back, "it stops", 0)
    slaves.left(half_open, "it stops", 0)
    assert counting(slaves) == ["10.0.0.3:1"]


def test_with_members_configured_neither_other_slaves_nor_new_members_count():
    slaves = Slaves(log("xac 1"), ["10.0.0.4"])
    slaves.joined(connection("10.0.0.2:1", "a", new=True))
    slaves.joined(connection("10.0.0.3:1", "m"))
    slaves.joined(Connection("10.0.0.4:1", offset=50))  # RocketMQ's
    assert counting(slaves) == []


def test_with_members_configured_no_slave_counts_before_the_log_has_its_list():
    """At the first start of a cluster: the slave is to join, and connects again when it has."""
    view = log()
    slaves = Slaves(view, ["10.0.0.4"], members_configured=True)
    slaves.joined(connection("10.0.0.2:1", "a"))
    slaves.joined(Connection("10.0.0.4:1", offset=50))  # RocketMQ's
    assert counting(slaves) == []
    assert all("until this log has its list" in one.problem for one in slaves.known(0))
    facts = view.facts
    assert facts is not None
    show(view, replace(facts, members=among("xac 1")))
    assert counting(slaves) == ["10.0.0.2:1"]


def admitted_again(since: int) -> Members:
    """Members x, a and c, of which an operator removed c, and version `since` admitted it again."""
    members = among("xac 1", version=since)
    assert members is not None
    listed = [replace(one, since=since if one.name == "c" else 1) for one in members.members]
    return replace(members, members=tuple(listed))


def status(identity: int, members: Members, new: bool = False) -> PeerStatus:
    """What c's directory reports of itself."""
    text = "slave new T0 0–50" if new else "slave T0 0–50"
    return replace(broker(text, "c:1", members=members), identity=identity)


def test_a_member_that_is_admitted_again_counts_once_its_directory_has_joined_as_of_then():
    """Its own word that it has joined is by the list that it had when it was removed."""
    slaves = Slaves(log(members=admitted_again(3)))
    slaves.joined(connection("10.0.0.3:1", "c", identity=5))
    slaves.heard(status(5, admitted_again(1)))
    assert counting(slaves) == []
    assert "rejoining" in slaves.known(0)[0].problem
    slaves.heard(status(5, admitted_again(3), new=True))
    assert counting(slaves) == []
    slaves.heard(status(6, admitted_again(3)))  # another directory
    assert counting(slaves) == []
    slaves.heard(status(5, admitted_again(3)))
    assert counting(slaves) == ["10.0.0.3:1"]
    assert slaves.known(0)[0].problem == ""


def test_a_directory_that_has_to_join_again_no_longer_counts():
    slaves = Slaves(log(members=admitted_again(3)))
    slaves.joined(connection("10.0.0.3:1", "c", identity=5))
    slaves.heard(status(5, admitted_again(3)))
    slaves.heard(status(5, admitted_again(3), new=True))
    assert counting(slaves) == []


def test_without_members_a_directory_counts_once_and_of_rocketmqs_slaves_those_that_are_named():
    slaves = Slaves(log(), ["10.0.0.4"])
    slaves.joined(connection("10.0.0.2:1", identity=7))
    slaves.joined(connection("10.0.0.2:2", identity=7))
    slaves.joined(connection("10.0.0.2:3", identity=8))
    for address in ("10.0.0.4:1", "10.0.0.4:2", "10.0.0.5:1"):
        slaves.joined(Connection(address, offset=50))
    assert sorted(counting(slaves)) == ["10.0.0.2:2", "10.0.0.2:3", "10.0.0.4:2"]


def test_what_a_directory_acknowledged_is_remembered_in_the_masters_term_alone():
    acknowledged = AcknowledgedEnds()
    for offset in (50, 90, 70):
        acknowledged.heard(7, 3, offset)
    assert [acknowledged.by(identity, 3) for identity in (7, 8)] == [90, -1]
    assert acknowledged.by(7, 6) == -1
    acknowledged.heard(7, 6, 60)
    assert acknowledged.by(7, 6) == 60
    for identity in range(100, 100 + MAX_ACKNOWLEDGED):
        acknowledged.heard(identity, 6, 10)
    assert [acknowledged.by(identity, 6) for identity in (7, 100)] == [-1, 10]
