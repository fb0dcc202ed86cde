"""The members of a cluster as real processes: who counts, who is promoted by whose promises, what a
replaced or restored directory is worth, who is taken out."""

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from stratamq_torture.processes.wire import NOWHERE

from stratamq.api.v1 import replication_pb2 as pb
from stratamq.client import SendStatus, connect
from stratamq.errors import NotWritableError
from stratamq.formats.replication import REPORT
from stratamq.formats.replication_fields import LENGTH
from stratamq.formats.replication_opening import MARK, SlaveOpening, encode_slave_opening
from tests.cli.processes import stratamq
from tests.ha.brokers_of_one_name import Brokers, call, ignored
from tests.ha.pairs import SEGMENT, Pair, log_status, until
from tests.support.brokers import HA


def started(brokers: Brokers, *names: str) -> None:
    """A master and its slaves, which all count. A new one connects anew when it has joined."""
    brokers.start(*names)
    brokers.serving(names[0])
    for slave in names[1:]:
        brokers.follows(slave, names[0])
    brokers.counted(names[0], len(names) - 1)


def in_force(brokers: Brokers, name: str) -> tuple[int, list[str], int]:
    """(version, active members, k)"""
    members = brokers.status_of(name).members
    active = [one.name for one in members.members if not one.removed]
    return members.version, active, members.required_acknowledgements


def has_slave(brokers: Brokers, master: str, member: str) -> bool:
    """Whether that member is connected to the master."""
    slaves = brokers.status_of(master).slaves
    return any(one.connected and one.member == member for one in slaves)


# --- promises ---


def test_without_the_promises_of_n_minus_k_members_no_broker_is_promoted_or_disturbed(tmp_path):
    """One of three cannot hear the others, which continue without it."""
    with Brokers(tmp_path, "a", "b", "c", role="SYNC_MASTER") as brokers:
        started(brokers, "a", "b", "c")
        listening = {name: brokers.status_of(name).listening_address for name in "ac"}
        for name in "ac":
            brokers.wires[name].lead_to(NOWHERE)
            brokers.wires[name].cut()
        with pytest.raises(NotWritableError, match="1 of 3 members answer, and 2 must"):
            brokers.promote("b")
        assert (log_status(brokers["b"]).term, log_status(brokers["b"]).promised_to) == (0, "")
        done = brokers.promote("b", force=True)
        assert any("only 1 of the 2 members that must promise have" in one for one in done.missing)
        assert done.term == 1
        for name, address in listening.items():
            brokers.wires[name].lead_to(address)
        brokers.same("b", "a", "c")


def test_of_two_promotions_at_once_no_two_open_one_term_and_one_master_is_left(tmp_path):
    with Brokers(tmp_path, "a", "b", "c", role="SYNC_MASTER") as brokers:
        started(brokers, "a", "b", "c")
        promised = brokers.send("a", 10)
        brokers.same("a", "b", "c")
        brokers.kill("a")
        terms: list[int] = []

        def promote(name: str) -> None:
            with ignored():  # the other one was first: this one is refused, or was overtaken
                terms.append(brokers.promote(name).term)

        both = [threading.Thread(target=promote, args=(name,)) for name in "bc"]
        for each in both:
            each.start()
        for each in both:
            each.join()
        assert len(set(terms)) == len(terms)
        if not any(brokers.is_master(name) for name in "bc"):
            terms.append(brokers.promote("b").term)
        until(lambda: sum(brokers.is_master(name) for name in "bc") == 1, "one master is left")
        (master,) = [name for name in "bc" if brokers.is_master(name)]
        (slave,) = {"b", "c"} - {master}
        brokers.same(master, slave)
        brokers.counted(master)
        assert len(brokers.send(master, 5)) == 5
        assert len(promised) == 10


# --- who counts ---


@contextmanager
def slave_of(brokers: Brokers, name: str, *, member: str, identity: int) -> Iterator[socket.socket]:
    """A connection that opens as a slave does, has everything, and stays."""
    status = log_status(brokers[name])
    host, _, port = brokers.status_of(name).listening_address.rpartition(":")
    generations = [(g.generation, g.start_offset) for g in status.generations]
    end = status.appended_offset
    has = SlaveOpening(
        end, status.minimum_offset, SEGMENT, "broker-a", generations, member, identity
    )
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(MARK + encode_slave_opening(has))
        head = b""
        while len(head) < len(MARK) + LENGTH.size:
            head += connection.recv(len(MARK) + LENGTH.size - len(head))
        connection.sendall(REPORT.pack(end))
        yield connection


def test_one_member_counts_once_whatever_connections_it_has_and_a_non_member_never(tmp_path):
    settings = ["commitlog.required_replicas=2"]
    with Brokers(tmp_path, "a", "b", "c", role="SYNC_MASTER", settings=settings) as brokers:
        started(brokers, "a", "b", "c")
        brokers.send("a", 3)
        brokers.kill("b")
        brokers.kill("c")
        brokers.counted("a", 0)
        with ExitStack() as open_ones:
            for identity in (1, 2, 3):
                opened = slave_of(brokers, "a", member="b", identity=identity)
                open_ones.enter_context(opened)
            open_ones.enter_context(slave_of(brokers, "a", member="", identity=4))
            open_ones.enter_context(slave_of(brokers, "a", member="d", identity=5))

            def connected() -> list[str]:
                replicas = log_status(brokers["a"]).replicas
                return sorted(one.member for one in replicas if one.connected)

            until(lambda: connected() == ["", "b", "d"], "the older connections of b are ended")
            brokers.counted("a", 1)
            with connect(brokers["a"].root) as client:
                assert client.send("t", b"x").status is SendStatus.SLAVE_NOT_AVAILABLE


# --- directories ---


def put_back(brokers: Brokers, name: str, backup) -> None:
    shutil.rmtree(brokers[name].root)
    shutil.copytree(backup, brokers[name].root)


def backed_up(brokers: Brokers, tmp_path, name: str):
    """Of a broker that was stopped in order, which then continues."""
    brokers[name].stop()
    shutil.copytree(brokers[name].root, tmp_path / "backup")
    brokers.start(name)
    return tmp_path / "backup"


def test_a_master_that_was_restored_from_a_backup_takes_no_messages_and_cuts_no_slave(tmp_path):
    """Not marked as restored. Messages acknowledged after the backup are on the slave alone."""
    with Brokers(tmp_path, "a", "b", role="SYNC_MASTER") as brokers:
        started(brokers, "a", "b")
        promised = brokers.send("a", 10)
        backup = backed_up(brokers, tmp_path, "a")
        brokers.serving("a")
        brokers.counted("a")
        promised += brokers.send("a", 10)
        assert len(promised) == 20
        brokers.same("a", "b")
        end = log_status(brokers["b"]).appended_offset
        brokers.kill("a")
        put_back(brokers, "a", backup)
        brokers.start("a")
        until(
            lambda: f"has this log's history up to {end}" in brokers.status_of("a").held_reason,
            "the broker reports that it waits, and why",
        )
        assert brokers.status_of("a").rejoining
        assert not brokers.aside("b") and log_status(brokers["b"]).appended_offset == end
        # The command that its message gives to the operator.
        brokers["a"].stop()
        brokers.wires["a"].lead_to(NOWHERE)
        marked = stratamq("replica", "restored", data=brokers["a"].root)
        assert marked.returncode == 0 and b"is marked as restored" in marked.stdout
        brokers.start("a")
        brokers.promote("b")
        brokers.same("b", "a")
        brokers.counted("b")
        promised += brokers.send("b", 5)
        assert len(promised) == 25
        brokers.same("b", "a")


def test_a_running_store_is_not_marked_as_restored(tmp_path):
    with Brokers(tmp_path, "a", "b") as brokers:
        brokers.start("a")
        refused = stratamq("replica", "restored", data=brokers["a"].root)
        assert refused.returncode == 3 and b"stop the broker" in refused.stderr
        nothing = stratamq("replica", "restored", data=tmp_path)
        assert nothing.returncode == 3 and b"holds no store" in nothing.stderr


def test_a_slave_that_lost_its_disk_counts_for_nothing_until_it_has_everything_again(tmp_path):
    with Brokers(tmp_path, "a", "b", "c", role="SYNC_MASTER") as brokers:
        started(brokers, "a", "b", "c")
        promised = brokers.send("a", 20)
        brokers.same("a", "b", "c")
        brokers.kill("b")
        brokers.kill("c")
        shutil.rmtree(brokers["c"].root)
        brokers.start("c")
        until(
            lambda: (
                log_status(brokers["c"]).appended_offset == log_status(brokers["a"]).appended_offset
            ),
            "c has the log again",
        )
        until(
            lambda: brokers.status_of("c").rejoining,
            "b may have a promise that c has forgotten",
        )
        brokers.counted("a", 0)
        brokers.kill("a")
        with pytest.raises(NotWritableError, match="new in its cluster"):
            brokers.promote("c")
        brokers.start("a")
        brokers.start("b")
        brokers.serving("a")
        brokers.counted("a", 2)
        until(lambda: not brokers.status_of("c").rejoining, "c counts again")
        assert len(promised) == 20


def test_a_slave_that_has_less_than_it_acknowledged_counts_for_nothing_until_it_has_it_again(
    tmp_path,
):
    """Restored from a backup, and not marked: its master has the later history."""
    with Brokers(tmp_path, "a", "b", role="SYNC_MASTER") as brokers:
        started(brokers, "a", "b")
        brokers.send("a", 5)
        backup = backed_up(brokers, tmp_path, "b")
        brokers.counted("a")
        brokers.send("a", 5)
        brokers.same("a", "b")
        brokers.kill("b")
        put_back(brokers, "b", backup)
        brokers.start("b")
        forgot = "not counted in the quorum until it has"
        until(lambda: forgot in brokers["b"].output(HA), "it forgot")

        def counts_again() -> bool:
            later = brokers["b"].output(HA).rpartition(forgot)[2]
            return "this broker counts as a member" in later

        until(counts_again, "it has it again")
        brokers.counted("a")
        brokers.same("a", "b")


# --- members come and go ---


def test_a_dead_member_is_taken_out_and_in_again_by_an_operators_word(tmp_path):
    with Brokers(tmp_path, "a", "b", "c", role="SYNC_MASTER") as brokers:
        started(brokers, "a", "b", "c")
        promised = brokers.send("a", 5)

        def remove(at: str, name: str, *, force: bool = False):
            request = pb.RemoveMemberRequest(name=name, force=force)
            return call(brokers[at].stub(HA).RemoveMember, request)

        with pytest.raises(NotWritableError, match="it is not dead"):
            remove("a", "c")
        listening = brokers.status_of("c").listening_address
        brokers.wires["c"].lead_to(NOWHERE)
        with pytest.raises(NotWritableError, match="c is connected as a slave from"):
            remove("a", "c")  # which cannot be asked, and acknowledges
        brokers.wires["c"].lead_to(listening)
        brokers.kill("c")
        with pytest.raises(NotWritableError, match="removed at the master"):
            remove("b", "c")
        until(lambda: not has_slave(brokers, "a", "c"), "the master has noticed")
        removed = remove("a", "c")
        assert any("if c lives" in cost for cost in removed.costs)
        for name in "ab":
            until(lambda n=name: in_force(brokers, n) == (3, ["a", "b"], 1), "all know")
        # n = 2 now: b is promoted by its own promise.
        brokers.kill("a")
        assert brokers.promote("b").term == 1
        brokers.start("a")
        brokers.same("b", "a")
        brokers.start("c")
        until(lambda: "was removed from its cluster" in brokers.status_of("c").problem, "it knows")
        assert brokers.status_of("c").rejoining
        brokers.counted("b", 1)
        call(brokers["b"].stub(HA).AdmitMember, pb.AdmitMemberRequest(name="c"))
        brokers.counted("b", 2)
        assert in_force(brokers, "c") == (4, ["a", "b", "c"], 1)
        promised += brokers.send("b", 5)
        assert len(promised) == 10
        brokers.same("b", "a", "c")
        for name in "abc":
            brokers.kill(name)
        brokers.start("b")
        until(lambda: "no other member reports" in log_status(brokers["b"]).held_reason, "it waits")
        with pytest.raises(NotWritableError, match="admitted at the master, while it takes"):
            call(brokers["b"].stub(HA).AdmitMember, pb.AdmitMemberRequest(name="c"))


def test_a_removal_ends_only_once_all_that_are_left_confirm_it(tmp_path):
    """Until then n − k stays: the silent one may have been promoted by the list before."""
    with Brokers(tmp_path, "a", "b", "c", role="SYNC_MASTER") as brokers:
        started(brokers, "a", "b", "c")
        brokers.send("a", 5)
        brokers.same("a", "b", "c")
        brokers.kill("c")
        until(lambda: not has_slave(brokers, "a", "c"), "the master has noticed")
        listening = brokers.status_of("b").listening_address
        brokers.wires["b"].lead_to(NOWHERE)
        request = pb.RemoveMemberRequest(name="c")
        with pytest.raises(NotWritableError, match="removal is not complete: b did not confirm"):
            call(brokers["a"].stub(HA).RemoveMember, request)
        assert in_force(brokers, "a") == (2, ["a", "b", "c"], 1)
        brokers.send("a", 5)  # b acknowledges
        brokers.wires["b"].lead_to(listening)
        call(brokers["a"].stub(HA).RemoveMember, request)
        assert in_force(brokers, "a") == (3, ["a", "b"], 1)


def test_a_member_is_admitted_only_where_enough_others_confirm_the_master(tmp_path):
    """A master that is cut off may have been replaced: it would count the member that it admits."""
    with Brokers(tmp_path, "a", "b", "c", role="SYNC_MASTER") as brokers:
        started(brokers, "a", "b", "c")
        brokers.send("a", 5)
        brokers.same("a", "b", "c")
        brokers.kill("c")
        until(lambda: not has_slave(brokers, "a", "c"), "the master has noticed")
        call(brokers["a"].stub(HA).RemoveMember, pb.RemoveMemberRequest(name="c"))
        until(lambda: in_force(brokers, "b") == (3, ["a", "b"], 1), "b knows")
        listening = brokers.status_of("b").listening_address
        brokers.wires["b"].lead_to(NOWHERE)
        with pytest.raises(NotWritableError, match=r"must confirm .* did not: b \("):
            call(brokers["a"].stub(HA).AdmitMember, pb.AdmitMemberRequest(name="c"))
        assert in_force(brokers, "a") == (3, ["a", "b"], 1)
        brokers.wires["b"].lead_to(listening)
        call(brokers["a"].stub(HA).AdmitMember, pb.AdmitMemberRequest(name="c"))
        brokers.start("c")
        brokers.counted("a", 2)


@pytest.mark.parametrize(("hosts", "expected"), [("", 0), ("127.0.0.1", 1)])
def test_rocketmqs_slaves_count_by_configured_host_and_once(tmp_path, hosts, expected):
    """They send no name: two connections of one host may belong to one slave."""
    settings = [f"ha.rocketmq_slaves={hosts}"] if hosts else []
    with Pair(tmp_path, role="SYNC_MASTER", master=settings) as pair, ExitStack() as open_ones:
        pair.start_master()
        pair.send(1)
        end = log_status(pair.master).appended_offset
        host, _, port = pair.replication_address().rpartition(":")
        for _ in range(2):
            connection = socket.create_connection((host, int(port)), timeout=30)
            open_ones.enter_context(connection)
            connection.sendall(REPORT.pack(end))

        def replicas() -> list:
            return [one for one in log_status(pair.master).replicas if one.connected]

        until(lambda: len(replicas()) == 2, "the log reports both")
        assert sum(one.counts for one in replicas()) == expected
