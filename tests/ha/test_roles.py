"""Masters that die, slaves that are promoted, old masters that come back: real processes."""

import contextlib
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from stratamq.api.v1 import commitlog_pb2 as log_pb
from stratamq.api.v1 import common_pb2
from stratamq.client import SendStatus, connect
from stratamq.errors import InvalidRequestError, NotWritableError, StrataError
from tests.ha.brokers_of_one_name import Brokers, ignored
from tests.ha.pairs import ha_status, log_status, until
from tests.support.brokers import COMMITLOG, DISPATCHER, HA, INDEX
from tests.support.freezing import freeze, thaw

SYNC = common_pb2.BROKER_ROLE_SYNC_MASTER
SLAVE = common_pb2.BROKER_ROLE_SLAVE


def test_every_message_of_a_lost_sync_master_is_on_the_promoted_slave_and_consumers_continue(
    tmp_path,
):
    with Brokers(tmp_path, "a", "b", role="SYNC_MASTER", rooms=[DISPATCHER, INDEX]) as brokers:
        brokers.start("a", "b")
        brokers.serving("a")
        brokers.counted("a")
        promised = brokers.send("a", 80)
        assert len(promised) == 80
        with connect(brokers["a"].root) as client:
            seen = [m.body for m in client.consume("t1", group="g")]
        brokers.kill("a")
        done = brokers.promote("b")
        assert (done.role, done.term) == (SYNC, 1), "what the lost master was"
        assert [line for line in done.missing if "did not answer" not in line] == []
        after = brokers.send("b", 20)
        assert after == [], "stored, and on no slave yet"
        brokers.start("a")
        brokers.same("b", "a")
        assert log_status(brokers["a"]).role == SLAVE
        brokers.counted("b")
        brokers.shows("b", promised)
        with connect(brokers["b"].root) as client:
            again = [m.body for m in client.consume("t1", group="h")]
        assert set(seen) <= set(again)
        promised += brokers.send("b", 20)
        brokers.same("b", "a")
        brokers.shows("a", promised)


def test_an_old_master_that_starts_alone_first_and_diverges_is_cut_and_follows(tmp_path):
    """An operator forced it, so that it serves; the new master asks it, and it steps down."""
    forced = {"a": ["ha.force_master=true"]}
    with Brokers(tmp_path, "a", "b", rooms=[DISPATCHER], of=forced) as brokers:
        brokers.start("a", "b")
        brokers.serving("a")
        kept = brokers.send("a", 40)
        brokers.same("a", "b")
        brokers.kill("a")
        brokers.promote("b")
        kept += brokers.send("b", 10)
        brokers.kill("b")
        brokers.start("a")
        brokers.serving("a")
        lost = brokers.send("a", 30)
        assert len(lost) == 30
        brokers.shows("a", lost)
        brokers.start("b")
        brokers.same("b", "a")
        assert log_status(brokers["b"]).role != SLAVE, "a promotion survives a restart"
        assert brokers.aside("a"), "what was never promised is kept"
        state = brokers.status_of("a")
        assert "was promoted to term 1" in state.role_reason
        brokers.shows("a", kept)
        assert not brokers.bodies("a") & set(lost)
        kept += brokers.send("b", 10)
        brokers.shows("a", kept)


def test_an_old_master_waits_for_another_member_and_takes_nothing_alone(tmp_path):
    with Brokers(tmp_path, "a", "b") as brokers:
        brokers.start("a", "b")
        brokers.serving("a")
        brokers.send("a", 20)
        brokers.same("a", "b")
        brokers.kill("a")
        brokers.promote("b")
        brokers.send("b", 10)
        brokers.kill("b")
        brokers.start("a")
        held = until(
            lambda: (
                (state := brokers.state("a")) and "no other member" in state.held_reason and state
            ),
            "the broker reports why it waits",
        )
        assert "`stratamq replica promote --force`" in held.held_reason
        message = log_pb.Message(topic="t", body=b"x")
        answer = brokers["a"].log.Append(log_pb.AppendRequest(messages=[message])).results[0]
        assert answer.status == common_pb2.PUT_MESSAGE_STATUS_SERVICE_NOT_AVAILABLE
        assert "no other member reports" in answer.error
        brokers.start("b")
        brokers.serving("b")
        brokers.same("b", "a")
        assert brokers.aside("a") == [], "it took nothing, and lost nothing"


def test_a_master_whose_fellow_members_are_gone_continues_by_an_operators_command(tmp_path):
    with Brokers(tmp_path, "a", "b", of={"b": ["ha.force_master=true"]}) as brokers:
        brokers.start("a")
        until(lambda: "no other member" in brokers.status_of("a").held_reason, "it waits")
        brokers.promote("a", force=True)
        assert brokers.send("a", 5)
        brokers.start("b")
        brokers.same("a", "b")
        brokers.kill("a")
        brokers.promote("b")
        brokers["b"].kill_all()
        brokers.start("b")
        brokers.serving("b")  # ha.force_master


def test_an_operator_may_be_faster_than_the_broker_that_has_not_looked_at_its_members(tmp_path):
    with Brokers(tmp_path, "a", "b") as brokers:
        slave = brokers["b"]
        slave.spawn(HA)
        slave.wait_announced(HA)
        slave.spawn(COMMITLOG)
        slave.wait_ready(COMMITLOG)
        with pytest.raises(NotWritableError, match="this log is empty") as refused:
            brokers.promote("b")
        assert "not configured" not in str(refused.value)


def test_a_planned_change_of_masters_there_and_back(tmp_path):
    with Brokers(tmp_path, "a", "b", rooms=[DISPATCHER]) as brokers:
        brokers.start("a", "b")
        brokers.serving("a")
        kept = brokers.send("a", 30)
        brokers.same("a", "b")
        with pytest.raises(NotWritableError, match="demote it first"):
            brokers.promote("b")
        with pytest.raises(NotWritableError, match="is the master already, of term 0"):
            brokers.promote("a")
        for master, slave, term in (("b", "a", 1), ("a", "b", 8)):
            assert list(brokers.demote(slave, to=master).missing) == []
            assert not brokers.is_master(slave)
            done = brokers.promote(master)
            assert (done.term, list(done.missing)) == (term, [])
            assert done.generation.start_offset == log_status(brokers[slave]).appended_offset
            kept += brokers.send(master, 20)
            brokers.same(master, slave)
        assert len(kept) == 70
        brokers.shows("b", kept)
        assert not (brokers.aside("a") or brokers.aside("b"))


def test_a_master_is_not_demoted_while_no_slave_has_everything(tmp_path):
    with Brokers(tmp_path, "a", "b", members=False, settings=["ha.stop_slaves_ms=100"]) as brokers:
        brokers.start("a", "b")
        brokers.send("a", 5)
        brokers.same("a", "b")
        with pytest.raises(InvalidRequestError, match="--master HOST:PORT"):
            brokers.demote("a")
        brokers.wires["a"].hold()
        brokers.send("a", 1)
        with pytest.raises(NotWritableError, match=r"has not acknowledged \d+ bytes"):
            brokers.demote("a", to="b")
        assert brokers.is_master("a"), "it continues"
        missing = brokers.demote("a", to="b", force=True).missing
        assert len(missing) == 1 and "has not acknowledged" in missing[0]
        brokers.wires["a"].release()
        assert log_status(brokers["a"]).role == SLAVE


def test_a_planned_change_waits_for_the_member_that_is_to_lead_alone(tmp_path):
    settings = ["ha.stop_slaves_ms=600000"]
    with Brokers(tmp_path, "a", "b", "c", settings=settings) as brokers:
        brokers.start("a", "b", "c")
        brokers.serving("a")
        brokers.send("a", 5)
        brokers.same("a", "b", "c")
        freeze(brokers["c"].pid(HA))
        brokers.send("a", 5)
        assert list(brokers.demote("a", to="b").missing) == []
        thaw(brokers["c"].pid(HA))
        brokers.promote("b")
        brokers.same("b", "a", "c")


def test_a_demotion_waits_for_a_slave_that_is_about_to_connect(tmp_path):
    settings = ["ha.stop_slaves_ms=600000"]
    with Brokers(tmp_path, "a", "b", members=False, settings=settings) as brokers:
        brokers.start("a", "b")
        brokers.send("a", 5)
        brokers.same("a", "b")
        brokers["b"].kill(HA)
        until(lambda: not ha_status(brokers["a"]).slaves[0].connected, "the slave is gone")
        with ThreadPoolExecutor(1) as threads:
            demoted = threads.submit(brokers.demote, "a", to="b")
            until(lambda: log_status(brokers["a"]).held_reason, "it is being demoted")
            brokers["b"].spawn(HA)
            assert list(demoted.result(120).missing) == []


def test_a_slave_follows_another_master_by_command_and_a_second_command_changes_nothing(tmp_path):
    with Brokers(tmp_path, "a", "b", "c", members=False) as brokers:
        brokers.start("a", "b", "c")
        brokers.send("a", 10)
        brokers.same("a", "b", "c")
        with pytest.raises(NotWritableError, match="is a slave already, it follows"):
            brokers.demote("b")
        brokers.kill("a")
        brokers.promote("b", force=True)
        assert brokers.demote("c", to="b").master_replication_address
        brokers.send("b", 10)
        brokers.same("b", "c")


def test_the_other_slave_finds_the_new_master_by_itself(tmp_path):
    with Brokers(tmp_path, "a", "b", "c", role="SYNC_MASTER") as brokers:
        brokers.start("a", "b", "c")
        brokers.serving("a")
        brokers.counted("a", 2)
        promised = brokers.send("a", 30)
        brokers.same("a", "b", "c")
        brokers.kill("a")
        brokers.promote("c")
        brokers.counted("c", 1)
        promised += brokers.send("c", 10)
        brokers.same("c", "b")
        brokers.start("a")
        brokers.same("c", "a", "b")
        assert len(promised) == 40


def test_a_slave_that_promised_a_term_follows_no_older_master_whatever_dies(tmp_path):
    with Brokers(tmp_path, "a", "b", "c", role="SYNC_MASTER", rooms=[DISPATCHER]) as brokers:
        brokers.start("a", "b", "c")
        brokers.serving("a")
        brokers.counted("a", 2)
        promised = brokers.send("a", 10)
        brokers.same("a", "b", "c")
        brokers.kill("a")
        assert brokers.promote("b").term == 1
        assert log_status(brokers["c"]).term == 1
        brokers.kill("b")
        brokers.kill("c")
        brokers.start("a", "c")
        until(lambda: log_status(brokers["a"]).role == SLAVE, "the old master steps down")
        assert brokers.promote("c").term == 2
        brokers.same("c", "a")
        brokers.shows("c", promised)


def test_a_slave_that_has_less_than_another_is_not_promoted(tmp_path):
    with Brokers(tmp_path, "a", "b", "c") as brokers:
        brokers.start("a", "b", "c")
        brokers.serving("a")
        brokers.send("a", 10)
        brokers.same("a", "b", "c")
        brokers["c"].kill(HA)
        brokers.send("a", 10)
        brokers.same("a", "b")
        brokers.kill("a")
        brokers["c"].start([HA])
        brokers.reachable("c")
        with pytest.raises(NotWritableError, match="has more, up to"):
            brokers.promote("c")
        brokers.promote("b")
        brokers.same("b", "c")


def test_a_master_that_learns_of_a_higher_term_from_a_slave_stops_writing(tmp_path):
    """Without members, the slave, itself a former master, sends its term when it opens."""
    with Brokers(tmp_path, "a", "b", members=False) as brokers:
        brokers.start("a", "b")
        brokers.send("a", 10)
        brokers.same("a", "b")
        brokers.kill("a")
        with pytest.raises(NotWritableError, match="members are not configured"):
            brokers.promote("b")
        brokers.promote("b", force=True)
        brokers.send("b", 10)
        brokers.start("a")
        assert brokers.is_master("a")
        brokers.demote("b", to="a", force=True)
        until(lambda: log_status(brokers["a"]).role == SLAVE, "a stops")
        until(
            lambda: "no master is known" in brokers.status_of("a").following.problem, "a reports it"
        )
        assert brokers.promote("b", force=True).term == 2
        brokers.demote("a", to="b")
        brokers.same("b", "a")


def test_a_promotion_in_the_middle_of_replication_stops_the_master_and_loses_no_promise(tmp_path):
    with Brokers(tmp_path, "a", "b", role="SYNC_MASTER", rooms=[DISPATCHER]) as brokers:
        brokers.start("a", "b")
        brokers.serving("a")
        brokers.counted("a")
        promised: list[bytes] = []
        running, refused = threading.Event(), threading.Event()

        def produce() -> None:
            with connect(brokers["a"].root) as client, contextlib.suppress(StrataError):
                status = SendStatus.PUT_OK
                while status is not SendStatus.SERVICE_NOT_AVAILABLE:
                    body, status = brokers.sent_one(client)
                    if status is SendStatus.PUT_OK:
                        promised.append(body)
                    if len(promised) == 30:
                        running.set()
            refused.set()

        thread = threading.Thread(target=produce)
        thread.start()
        assert running.wait(60)
        brokers.promote("b", SYNC, force=True)
        thread.join(60)
        assert refused.is_set(), "the old master refuses"
        brokers.same("b", "a")
        brokers.shows("b", promised)
        assert log_status(brokers["a"]).role == SLAVE


@pytest.mark.parametrize("room", [COMMITLOG, HA])
def test_a_promotion_that_a_kill_interrupts_ends_in_one_role_or_the_other(tmp_path, room):
    """The kill comes at one moment after another of what a promotion takes."""
    with Brokers(tmp_path, "a", "b", role="SYNC_MASTER", rooms=[DISPATCHER]) as brokers:
        brokers.start("a", "b")
        brokers.serving("a")
        brokers.counted("a")
        master, slave = "a", "b"
        promised: list[bytes] = []
        for delay_s in (0.0, 0.01, 0.03):
            promised += brokers.send(master, 10)
            brokers.kill(master)
            killing = [brokers[slave].pid(room), signal.SIGKILL]
            killer = threading.Timer(delay_s, os.kill, killing)
            killer.start()
            with ignored():
                brokers.promote(slave)
            killer.join()
            brokers[slave].kill(room)
            brokers[slave].start([room])
            brokers.reachable(slave)
            if log_status(brokers[slave]).role == SLAVE:
                brokers.promote(slave, SYNC)
            elif not brokers.is_master(slave):
                brokers.promote(slave, SYNC, force=True)
            brokers.start(master)
            brokers.same(slave, master)
            brokers.counted(slave)
            brokers.shows(slave, promised)
            master, slave = slave, master
        terms = [g.generation >> 51 for g in log_status(brokers[master]).generations]
        assert terms == sorted(terms)


@pytest.mark.parametrize("role", ["SYNC_MASTER", "ASYNC_MASTER"])
def test_a_slave_that_starts_after_its_masters_loss_is_promoted_to_what_that_one_was(
    tmp_path, role
):
    with Brokers(tmp_path, "a", "b", role=role) as brokers:
        brokers.start("a", "b")
        brokers.serving("a")
        brokers.counted("a")
        brokers.send("a", 10)
        brokers.same("a", "b")
        kept = brokers["b"].root / "stratamq/master-role.json"
        until(kept.exists, "what the master is to be kept")
        brokers.kill("a")
        brokers["b"].kill_all()
        brokers.start("b")
        assert brokers.promote("b").role == common_pb2.BrokerRole.Value(f"BROKER_ROLE_{role}")


def test_a_member_that_has_learned_of_no_master_is_promoted_to_one_that_waits_for_slaves(tmp_path):
    with Brokers(tmp_path, "a", "b") as brokers:
        brokers.start("b")
        assert brokers.promote("b", force=True).role == SYNC


def test_a_promoted_broker_reports_that_it_is_configured_otherwise(tmp_path):
    with Brokers(tmp_path, "a", "b", members=False) as brokers:
        brokers.start("a", "b")
        brokers.send("a", 5)
        brokers.same("a", "b")
        brokers.kill("a")
        brokers.promote("b", force=True)
        brokers["b"].kill_all()
        brokers.start("b")
        status = log_status(brokers["b"])
        assert status.role_reason == (
            "the role is ASYNC_MASTER and not SLAVE (commitlog.role): it was promoted to term 1"
        )
        assert (status.broker_id, status.term) == (0, 1)
        assert status.role_reason in status.recovery_report
        assert status.role_reason in brokers["b"].output(COMMITLOG)


def test_an_empty_broker_of_the_name_is_not_taken_for_the_master_of_those_that_have_messages(
    tmp_path,
):
    """The master's disk was replaced: it is as new."""
    with Brokers(tmp_path, "a", "b") as brokers:
        brokers.start("a", "b")
        brokers.serving("a")
        promised = brokers.send("a", 20)
        brokers.same("a", "b")
        brokers.kill("a")
        brokers["a"].root.rename(tmp_path / "gone")
        brokers.start("a")
        until(lambda: "this log is empty" in brokers.status_of("a").held_reason, "a reports why")
        brokers.promote("b")
        brokers.same("b", "a")
        assert len(promised) == 20
