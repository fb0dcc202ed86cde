"""What a master concludes from the history with which a slave opens."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from stratamq_ha.cluster import Cluster
from stratamq_ha.config import HaConfig
from stratamq_ha.keeper import RoleKeeper
from stratamq_ha.own_log import OwnLogView

from stratamq.files.clock import SystemClock
from stratamq.follow.own_log import LogFacts
from stratamq.follow.protocol import Opened
from stratamq.formats.broker_role import Role
from stratamq.formats.replication_opening import SlaveOpening

OLD = (7, 0)
NEW = ((1 << 51) + 9, 1_000)
SEGMENT = 65_536


class Master:
    """A keeper over the view of a log, which ends at 1 000 and follows no stream."""

    def __init__(self) -> None:
        self.view = OwnLogView(SystemClock())
        listening = SimpleNamespace(asked=None, opened=None)
        config = HaConfig(root=Path("store"))
        parts = (config, None, self.view, listening, None)
        self.cluster = Cluster(*parts, instance=1, member="")
        RoleKeeper(config, self.cluster, None, self.view, listening, None, SystemClock())
        self._listening = listening

    def shows(self, term: int, *generations: tuple[int, int]) -> None:
        """What its log has now, as the view hears of it."""
        number, start = generations[-1]
        self.view.opened(Opened(number, start, 1_000, 0, 1_000, 1_000, SEGMENT))
        self.view.learned(
            LogFacts(Role.ASYNC_MASTER, generations, 0, 1_000, SEGMENT, "broker-a", term=term)
        )

    def opens(self, end: int) -> str:
        """A slave with so much of the first generation; why it is refused."""
        opening = SlaveOpening(end, 0, SEGMENT, "broker-a", (OLD,))
        return self._listening.opened(opening, "127.0.0.1:1")


@pytest.fixture
def master() -> Master:
    master = Master()
    master.shows(0, OLD)
    return master


def test_a_slave_that_has_more_is_refused_and_the_master_knows_why(master):
    assert master.opens(1_000) == ""
    assert "has this log's history up to 1500" in master.opens(1_500)
    assert master.cluster.longer == master.opens(1_500)


def test_what_a_promotion_gave_up_is_not_held_against_it_by_a_view_from_before(master):
    """The slave comes back before the log's stream has shown the new term."""
    assert master.opens(1_500)
    master.cluster.promoted(1)
    assert "was promoted" in master.opens(1_500)
    assert master.cluster.longer == ""
    master.shows(1, OLD, NEW)
    assert master.opens(1_500) == ""
    assert master.cluster.longer == ""
