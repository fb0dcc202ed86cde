"""What an agent does: the table of services/agent/README.md."""

from dataclasses import replace

import pytest
from stratamq_agent.decision import (
    ASKED_TTLS,
    Decision,
    GiveUp,
    HandOver,
    Idle,
    Own,
    Peer,
    Renew,
    Seen,
    Stand,
    decide,
)

from stratamq.formats.election_state import ElectionState

TTL = 30
A = Peer("a", True, True, 8, (7, 100))
C = Peer("c", True, False, 8, (7, 100))
SLAVE = Own("b", False, "", 8, (7, 100), True, False, (replace(A, answers=False), C))
MASTER = replace(SLAVE, is_master=True, slaves=frozenset("ac"))
LED_BY_A = ElectionState("a", 8, 5)
LED_BY_B = ElectionState("b", 8, 5)


def decided(own: Own | None, state: ElectionState | None, unchanged: int = 0, **more) -> Decision:
    """By an agent that has followed the value for long enough, unless `more` says otherwise."""
    return decide(own, Seen(state, unchanged, **{"watched_ns": TTL, **more}), TTL)


@pytest.mark.parametrize(
    ("own", "state", "unchanged", "expected"),
    [
        pytest.param(None, LED_BY_A, TTL, Idle, id="its broker does not answer"),
        pytest.param(replace(MASTER, member=""), None, 0, Idle, id="no members"),
        pytest.param(MASTER, None, 0, Renew, id="the first master"),
        pytest.param(SLAVE, None, TTL, Idle, id="a slave is not the first"),
        pytest.param(MASTER, LED_BY_B, 0, Renew, id="the leader renews"),
        pytest.param(replace(MASTER, held="x"), LED_BY_B, 0, Idle, id="not while it is held"),
        pytest.param(SLAVE, LED_BY_B, 0, Stand, id="a leader whose broker is a slave"),
        pytest.param(
            replace(SLAVE, peers=(replace(A, term=9),)),
            LED_BY_B,
            0,
            GiveUp,
            id="another was promoted by hand",
        ),
        pytest.param(
            replace(SLAVE, peers=(A,)), LED_BY_B, 0, Stand, id="the leader before, a moment ago"
        ),
        pytest.param(SLAVE, LED_BY_A, TTL - 1, Idle, id="not before a whole ttl"),
        pytest.param(SLAVE, LED_BY_A, TTL, Stand, id="after a whole ttl of silence"),
        pytest.param(SLAVE, replace(LED_BY_A, leader=""), 0, Stand, id="no leader"),
        pytest.param(MASTER, LED_BY_A, 0, Idle, id="a master while another leads"),
        pytest.param(
            replace(MASTER, peers=(C,)), LED_BY_A, TTL, Renew, id="a master whose leader is silent"
        ),
        pytest.param(
            replace(SLAVE, peers=(A, C)), LED_BY_A, TTL, Idle, id="the old master still serves"
        ),
        pytest.param(
            replace(SLAVE, peers=(replace(A, held=True), C)),
            LED_BY_A,
            TTL,
            Stand,
            id="the old master's lease is over",
        ),
        pytest.param(
            replace(SLAVE, peers=(replace(C, reach=(7, 101)),)),
            LED_BY_A,
            TTL,
            Idle,
            id="another has more",
        ),
        pytest.param(replace(SLAVE, counts=False), LED_BY_A, TTL, Idle, id="a new directory"),
        pytest.param(replace(SLAVE, is_empty=True), LED_BY_A, TTL, Idle, id="an empty log"),
        pytest.param(
            replace(MASTER, members=frozenset({"b=here:1"})),
            replace(LED_BY_B, members=frozenset({"b=there:1"})),
            TTL,
            Idle,
            id="another cluster's election",
        ),
        pytest.param(SLAVE, replace(LED_BY_A, paused=True), TTL, Idle, id="paused"),
        pytest.param(MASTER, replace(LED_BY_B, paused=True), 0, Renew, id="a leader, paused"),
    ],
)
def test_what_an_agent_does(own, state, unchanged, expected):
    assert isinstance(decided(own, state, unchanged), expected)


def test_one_that_was_refused_lets_others_stand():
    assert isinstance(decided(SLAVE, LED_BY_A, TTL, refused_ns=TTL - 1), Idle)
    assert isinstance(decided(SLAVE, LED_BY_A, TTL, refused_ns=TTL), Stand)


@pytest.mark.parametrize(
    ("own", "to", "asked", "expected"),
    [
        (MASTER, "c", 0, HandOver("c", "a switchover was asked for")),
        (replace(MASTER, slaves=frozenset("a")), "c", 0, False),
        (replace(MASTER, slaves=frozenset("a")), "c", ASKED_TTLS * TTL, True),
        (MASTER, "b", 0, True),
        (replace(MASTER, is_empty=True), "c", 0, True),
    ],
)
def test_a_switchover_waits_for_a_slave_that_follows_and_is_dropped_when_it_cannot_be(
    own, to, asked, expected
):
    found = decided(own, replace(LED_BY_B, switchover=to), asked_ns=asked)
    if isinstance(expected, HandOver):
        assert found == expected
    else:
        assert isinstance(found, Renew)
        assert found.drops_switchover is expected


WENT_BACK = {"watched_ns": TTL - 1, "step_back": "renewal 3 was read after 9", "led_before": "a"}
NAMED = replace(SLAVE, peers=(replace(A, answers=False), replace(C, answers=False)))


@pytest.mark.parametrize(
    ("own", "state"),
    [
        pytest.param(NAMED, LED_BY_B, id="named by an older copy"),
        pytest.param(NAMED, replace(LED_BY_B, leader=""), id="an older copy without a leader"),
        pytest.param(NAMED, None, id="an emptied store"),
        pytest.param(MASTER, LED_BY_B, id="a master whose lease is over"),
        pytest.param(MASTER, None, id="a master whose lease is over, an emptied store"),
    ],
)
def test_after_a_step_back_an_agent_without_a_lease_waits_for_a_whole_ttl(own, state):
    found = decided(own, state, 0, **WENT_BACK)
    assert isinstance(found, Idle)
    assert "the election store went back" in found.reason


@pytest.mark.parametrize("state", [ElectionState("c", 8, 3), None])
def test_the_leader_that_has_a_lease_writes_itself_into_a_store_that_went_back(state):
    leader = replace(MASTER, leased=True)
    assert isinstance(decided(leader, state, 0, **{**WENT_BACK, "led_before": "b"}), Renew)


def test_after_a_step_back_and_a_ttl_the_named_member_stands():
    assert isinstance(decided(NAMED, LED_BY_B, TTL, led_before="a"), Stand)


def test_an_agent_that_has_just_started_waits_unless_all_others_answer_and_none_serves():
    three = replace(NAMED, members=frozenset({"a=x:1", "b=x:2", "c=x:3"}))
    assert isinstance(decided(three, LED_BY_B, 0, watched_ns=0), Idle)
    held = replace(A, held=True)
    assert isinstance(decided(replace(three, peers=(held, C)), LED_BY_B, 0, watched_ns=0), Stand)
    first = replace(three, is_master=True, peers=(replace(A, is_master=False), C))
    assert isinstance(decided(first, None, 0, watched_ns=0), Renew)


def test_a_switchover_does_not_wait():
    assert isinstance(decided(replace(SLAVE, peers=(A, C)), LED_BY_B, 0, watched_ns=TTL), Stand)
