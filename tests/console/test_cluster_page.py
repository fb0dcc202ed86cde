"""The cluster page: members, terms and promises from values; over a real broker; switchover."""

from dataclasses import replace

import pytest
from stratamq_console.pages.cluster import ClusterView, gather_cluster, member_lines
from stratamq_console.showing import role_words

from stratamq.client import Election, PeerView, ReplicationState, SlaveProgress
from stratamq.client.replication_state import FollowingProgress
from stratamq.client.switching import LARGEST_LAG_BYTES, switchover_preconditions
from stratamq.formats.log_state import LogState, Role
from stratamq.formats.members import Member, Members
from tests.console.pages import browsing, text_of

MEMBERS = Members(1, 1, tuple(Member(n, name, f"{name}:10912") for n, name in enumerate("abc")))


def election(**changed: object) -> Election:
    fields: dict = {
        "member": "a",
        "store": "etcd",
        "store_problem": "",
        "leader": "a",
        "term": 3,
        "unchanged_ms": 100,
        "ttl_ms": 3_000,
        "paused": False,
        "switchover": "",
        "last_action": "",
        "agents": {name: f"{name}:10919" for name in "abc"},
    }
    return Election(**fields | changed)


def slave(member: str, lag_bytes: int = 0, *, connected: bool = True) -> SlaveProgress:
    return SlaveProgress(
        f"{member}:1", member, connected, 100, lag_bytes, 0, 0.0, "", member, counts=True
    )


def replication(*slaves: SlaveProgress, peers: tuple[PeerView, ...] = ()) -> ReplicationState:
    return ReplicationState(Role.ASYNC_MASTER, 1, 0, 100, "a:10912", slaves, None, peers=peers)


def peer(name: str, **changed: object) -> PeerView:
    fields = {"promised_to": "a", "problem": "", "rejoining": False, "held": False}
    return PeerView(f"{name}:1", True, Role.SLAVE, 3, 1, 90, member=name, **fields | changed)


def test_each_member_has_its_line_with_term_and_promise():
    log = LogState(role=Role.SYNC_MASTER, term=3, members=MEMBERS, member="a", appended_offset=100)
    peers = (peer("b", rejoining=True), peer("c", problem="no answer"))
    a, b, c = member_lines(log, replication(peers=peers), election())
    assert (a.role, a.term, a.end_offset, a.leads, a.is_this) == ("sync master", 3, 100, True, True)
    assert (b.role, b.term, b.end_offset, b.promised_to) == ("slave", 3, 90, "a")
    assert "rejoining" in b.remark
    assert c.problem == "no answer"
    assert [one.address for one in (a, b, c)] == ["a:10912", "b:10912", "c:10912"]


def test_without_members_those_with_an_agent_are_listed():
    lines = member_lines(LogState(role=Role.SLAVE), None, election())
    assert [one.name for one in lines] == ["a", "b", "c"]
    assert member_lines(LogState(), None, None) == []
    assert role_words(None) == "not known"


@pytest.mark.parametrize(
    ("changed", "slaves", "failing"),
    [
        ({}, [slave("b")], []),
        ({"paused": True}, [slave("b")], ["failover is not paused"]),
        ({"leader": ""}, [], ["a member leads now"]),
        ({"leader": "b"}, [], ["it is another one"]),
        ({"agents": {"a": "a:1"}}, [slave("b")], ["its agent is known"]),
        ({"switchover": "c"}, [slave("b")], ["no switchover is under way"]),
        ({"store_problem": "refused"}, [slave("b")], ["the election store answers"]),
        ({}, [], ["it follows the master"]),
        ({}, [slave("b", connected=False)], ["it follows the master"]),
        ({}, [slave("b", LARGEST_LAG_BYTES + 1)], ["it is close behind"]),
    ],
)
def test_what_a_switchover_needs_is_said_one_by_one(changed, slaves, failing):
    found = switchover_preconditions("b", election(**changed), replication(*slaves))
    assert [one.name for one in found if not one.holds] == failing
    assert all(one.detail for one in found)


def test_an_empty_log_cannot_be_handed_over():
    seen = replace(replication(slave("b")), shippable_offset=0)
    found = switchover_preconditions("b", election(), seen)
    assert [one.name for one in found if not one.holds] == ["there is something to take over"]


LATE = {"unchanged_ms": 3_001, "leader": "a", "member": "b"}


def seen_by_b(*, connected: bool, **changed: object) -> str:
    """What b's page says of the master."""
    following = FollowingProgress("a:10912", connected, "", 100, 100, 0.0, 0, False)
    seen = ReplicationState(Role.SLAVE, 1, 0, 100, "b:10912", (), following)
    known = None if changed.get("member") == "" else election(**{"member": "b"} | changed)
    return ClusterView(LogState(role=Role.SLAVE), seen, known, (), None, ()).lost_master


@pytest.mark.parametrize(
    ("connected", "changed", "said"),
    [
        (True, {}, ""),
        (True, {"leader": "b"}, ""),
        (
            False,
            {},
            "The master a is not reached. If its lead is not renewed within 2.9 s: Another",
        ),
        (False, {"paused": True}, "The master a is not reached. Failover is paused"),
        (False, LATE, "The master a is lost: it renewed its lead 3.0 s ago. Another member is"),
        (
            True,
            LATE | {"paused": True},
            "The master a is lost: it renewed its lead 3.0 s ago. Fail",
        ),
        (True, {"leader": ""}, "No member leads, and no message is taken. Another member is"),
        (False, {"member": ""}, "The master is not reached at a:10912. No agent runs: promote"),
        (True, {"member": ""}, ""),
    ],
)
def test_a_lost_master_is_a_sentence_that_says_what_happens_now(connected, changed, said):
    found = seen_by_b(connected=connected, **changed)
    assert found.startswith(said) and bool(found) == bool(said)


async def test_a_single_broker_has_a_page_and_no_buttons(broker):
    async with browsing(broker.root) as browser:
        view = await gather_cluster(browser.own)
        assert view.election is None
        assert view.problems == ()
        page = await browser.get("/cluster")
        assert "no agent runs" in text_of(page)
        assert "No slave is connected" in text_of(page)
        assert "/cluster/switchover" not in page.text
        await browser.get("/cluster")
        asked = await browser.post("/cluster/switchover", member="b")
        assert asked.status_code == 503, "there is no agent to ask"
