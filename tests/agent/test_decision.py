"""What an agent does: the table of services/agent/README.md."""

from dataclasses import replace

import pytest
from stratamq_agent.decision import (
    ASKED_TTLS,
    SETTLED_TTLS,
    Decision,
    EndLead,
    GiveUp,
    HandOver,
    Idle,
    Name,
    OtherMember,
    Own,
    Renew,
    Seen,
    Stand,
    TakeOver,
    decide,
    required_ns,
    stays,
)

from stratamq.formats.election_state import ElectionState, Offer, Unable

TTL = 30
TTL_NS = 30_000_000
A = OtherMember("a", True, True, 8, (7, 100))
C = OtherMember("c", True, False, 8, (7, 100))
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


# --- a leader that acknowledges nothing ---

UNABLE = replace(
    MASTER,
    peers=(replace(A, is_master=False), C),
    unable="a reason",
    unable_ns=TTL_NS,
    confirmed=90,
)
LED_UNABLE = replace(LED_BY_A, unable=Unable("a reason", 30, 1, 7, 90))
OFFERED = replace(LED_BY_B, offer=Offer("c", 7, 95))
READY = replace(SLAVE, peers=(A, C), quorum=2)
LESS = replace(READY, peers=(A, replace(C, reach=(5, 0))))


def in_ms(own: Own, state: ElectionState, unchanged: int = 0, **more) -> Decision:
    """With a ttl of 30 ms."""
    seen = Seen(state, unchanged, **{"watched_ns": TTL_NS, **more})
    return decide(own, seen, TTL_NS)


@pytest.mark.parametrize(
    ("own", "state", "unchanged", "expected"),
    [
        pytest.param(READY, LED_UNABLE, 0, TakeOver, id="one that has what was acknowledged"),
        pytest.param(READY, LED_BY_A, 0, Idle, id="a leader that acknowledges"),
        pytest.param(
            READY,
            replace(LED_UNABLE, unable=Unable("a reason", 29, 1, 7, 90)),
            0,
            Idle,
            id="not before a ttl",
        ),
        pytest.param(READY, replace(LED_UNABLE, moves=1), 0, Idle, id="later after a move"),
        pytest.param(
            READY,
            replace(LED_UNABLE, moves=1, unable=Unable("a reason", 60, 1, 7, 90)),
            0,
            TakeOver,
            id="after twice the time",
        ),
        pytest.param(READY, LED_UNABLE, TTL_NS // 2 + 1, Idle, id="an old word"),
        pytest.param(READY, replace(LED_UNABLE, paused=True), 0, Idle, id="paused"),
        pytest.param(
            READY, replace(LED_UNABLE, offer=Offer("c", 7, 95)), 0, Idle, id="another has offered"
        ),
        pytest.param(replace(READY, unable="full"), LED_UNABLE, 0, Idle, id="it is no better"),
        pytest.param(replace(LESS, reach=(7, 89)), LED_UNABLE, 0, Idle, id="it has less"),
        pytest.param(replace(LESS, reach=(6, 100)), LED_UNABLE, 0, Idle, id="another history"),
        pytest.param(
            replace(READY, peers=(A, replace(C, answers=False))),
            LED_UNABLE,
            0,
            Idle,
            id="too few would promise without the leader",
        ),
        pytest.param(
            replace(READY, quorum=1, peers=(A, replace(C, answers=False))),
            LED_UNABLE,
            0,
            Idle,
            id="it would have too few slaves",
        ),
        pytest.param(
            replace(READY, peers=(A, replace(C, reach=(7, 101)))),
            LED_UNABLE,
            0,
            Idle,
            id="another has more",
        ),
        pytest.param(replace(READY, counts=False), LED_UNABLE, 0, Idle, id="a new directory"),
        pytest.param(UNABLE, OFFERED, 0, EndLead, id="the leader ends its lead"),
        pytest.param(
            replace(UNABLE, unable_ns=TTL_NS - 1), OFFERED, 0, Renew, id="it acknowledges again"
        ),
        pytest.param(UNABLE, replace(OFFERED, moves=1), 0, Renew, id="not so soon after a move"),
        pytest.param(UNABLE, replace(OFFERED, paused=True), 0, Renew, id="an offer, paused"),
        pytest.param(UNABLE, LED_BY_B, 0, Renew, id="nobody offers: it stays"),
    ],
)
def test_who_takes_over_from_a_leader_that_acknowledges_nothing(own, state, unchanged, expected):
    assert isinstance(in_ms(own, state, unchanged), expected)


def test_one_that_was_refused_offers_nothing_for_ten_ttl():
    assert isinstance(in_ms(READY, LED_UNABLE, refused_ns=SETTLED_TTLS * TTL_NS - 1), Idle)
    assert isinstance(in_ms(READY, LED_UNABLE, refused_ns=SETTLED_TTLS * TTL_NS), TakeOver)


ENDED = replace(UNABLE, ended="it acknowledges nothing", told=True)


@pytest.mark.parametrize(
    ("own", "state", "expected"),
    [
        pytest.param(ENDED, OFFERED, Name, id="it names the one that offered"),
        pytest.param(
            replace(ENDED, told=False), OFFERED, EndLead, id="not before the others are told"
        ),
        pytest.param(replace(ENDED, confirmed=96), OFFERED, Renew, id="that one has less"),
        pytest.param(replace(ENDED, reach=(8, 100)), OFFERED, Renew, id="another generation"),
        pytest.param(ENDED, LED_BY_B, Renew, id="no offer is left"),
        pytest.param(ENDED, replace(LED_BY_B, leader=""), Renew, id="that one gave up"),
        pytest.param(ENDED, LED_BY_A, Idle, id="another leads"),
    ],
)
def test_a_leader_that_ended_its_lead_names_another_or_leads_again(own, state, expected):
    assert isinstance(in_ms(own, state), expected)


def test_the_time_doubles_with_each_move_up_to_a_limit():
    assert [required_ns(moves, 10) for moves in (0, 1, 2, 6, 7)] == [10, 20, 40, 640, 640]


def test_a_leader_that_stays_says_who_does_not_answer():
    assert stays(replace(UNABLE, peers=(replace(C, answers=False),))).endswith("(c: no answer)")
