"""A SYNC_MASTER under asynchronous flush that lost its tail takes it back from its slaves."""

from stratamq_torture.processes.wire import NOWHERE

from stratamq.api.v1 import common_pb2
from tests.ha.brokers_of_one_name import Brokers
from tests.ha.pairs import log_status, tail_torn_off, until
from tests.support.brokers import DISPATCHER

LAZY = ["commitlog.flush_disk_type=ASYNC_FLUSH", "commitlog.snapshot_interval_ms=3600000"]
SYNC = common_pb2.BROKER_ROLE_SYNC_MASTER


def lossy(directory, *names: str, **settings) -> Brokers:
    return Brokers(directory, *names, role="SYNC_MASTER", of={"a": LAZY}, **settings)


def loses_its_tail(brokers: Brokers) -> int:
    """A power loss; where its log ends now."""
    brokers.kill("a")
    return tail_torn_off(brokers["a"], 5_000)


def test_what_was_acknowledged_comes_back_before_a_message_is_taken(tmp_path):
    with lossy(tmp_path, "a", "b", rooms=[DISPATCHER]) as brokers:
        brokers.start("a", "b")
        brokers.serving("a")
        brokers.counted("a")
        promised = brokers.send("a", 60)
        assert len(promised) > 50, "a slave may be late with some"
        end = log_status(brokers["a"]).appended_offset
        assert loses_its_tail(brokers) < end
        brokers.start("a")
        brokers.serving("a")
        status = log_status(brokers["a"])
        assert (status.role, status.generations[-1].start_offset) == (SYNC, end)
        brokers.counted("a")
        promised += brokers.send("a", 10)
        brokers.same("a", "b")
        assert not brokers.aside("b"), "the slave has nothing to give up"
        brokers.shows("a", promised)
        brokers.shows("b", promised)


def test_the_slave_that_has_most_gives_and_each_must_answer(tmp_path):
    """One message was acknowledged by b alone: c does not have it."""
    with lossy(tmp_path, "a", "b", "c") as brokers:
        brokers.start("a", "b", "c")
        brokers.serving("a")
        brokers.counted("a", 2)
        brokers.send("a", 20)
        brokers.same("a", "b", "c")
        brokers["c"].kill_all()
        brokers.wires["c"].lead_to(NOWHERE)
        assert len(brokers.send("a", 10)) == 10
        end = log_status(brokers["a"]).appended_offset
        assert loses_its_tail(brokers) < end
        brokers.start("a")
        held = until(
            lambda: (
                (text := brokers.status_of("a").held_reason) and "must answer, too" in text and text
            ),
            "it waits for c",
        )
        assert brokers.wires["c"].address in held and "promote --force" in held
        assert log_status(brokers["a"]).appended_offset < end
        brokers.start("c")
        brokers.serving("a")
        assert log_status(brokers["a"]).generations[-1].start_offset == end
        brokers.same("a", "b", "c")


def test_an_operator_may_continue_without_what_no_slave_gives_back(tmp_path):
    with lossy(tmp_path, "a", "b") as brokers:
        brokers.start("a", "b")
        brokers.serving("a")
        brokers.counted("a")
        brokers.send("a", 30)
        lost = loses_its_tail(brokers)
        brokers.kill("b")
        brokers.start("a")
        until(lambda: brokers.status_of("a").held_reason, "it waits")
        assert brokers.promote("a", force=True).generation.start_offset == lost
        brokers.start("b")
        brokers.same("a", "b")
        assert brokers.aside("b"), "what only the slave had is kept"
