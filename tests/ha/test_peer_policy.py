"""What a broker does by the peer status of the others: each case is a line of a transcript
(`tests.ha.peer_statuses`)."""

from dataclasses import replace

import pytest
from stratamq_ha.peer_decisions import (
    Adopt,
    Follow,
    Forgot,
    FoundCluster,
    OpenTerm,
    PeerAnswer,
    PromiseTerm,
    RefuseMessages,
    Serve,
    Stay,
)
from stratamq_ha.peer_policy import Joining, decide, of_slaves_term, usable

from stratamq.formats.members import Member, Members
from tests.ha.peer_statuses import SLAVE, among, answers, broker


def described(decision: object) -> str:
    match decision:
        case RefuseMessages(reason):
            return f"wait: {reason}"
        case Follow(address, term, reason):
            return f"follow {address or 'no master yet'} T{term}: {reason}"
        case PromiseTerm(address, term, candidate, reason):
            return f"promise {candidate} at {address} T{term}: {reason}"
        case Serve():
            return "serve"
        case FoundCluster():
            return "join"
        case OpenTerm(term):
            return f"open T{term}"
        case Forgot(reason):
            return f"forgot: {reason}"
        case Adopt(members):
            return f"adopt v{members.version}"
        case Stay(problem):
            return f"stay: {problem}"
    raise AssertionError(decision)


def decided(own: str, *others: str, members: str = "xabcm 1", **known) -> str:
    listed = among(members)
    return described(decide(broker(own, members=listed), answers(*others, members=listed), **known))


MASTER = "async T0 [0.1@0 0.2@500] 0–600"
WAITS = "async held T0 [0.1@0 0.2@500] 0–600"
FORCE = "; `stratamq replica promote --force` lets this one take messages all the same"
RIVAL = (
    "wait: the broker at a:1 is a master of the same term 0: demote one of the two (`stratamq "
    "replica demote`); neither takes messages before"
)


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        # A master that takes messages.
        (MASTER, ["a:1 Connection refused"], "stay: "),
        (MASTER, ["a:1 slave T0 [0.1@0 0.2@500] 0–600"], "stay: "),
        (MASTER, ["a:1 async T1 [0.1@0 1.1@550] 0–700"],
         "follow a:1 T1: the broker at a:1 was promoted to term 1"),
        (MASTER, ["a:1 slave T0 [0.1@0] 0–600", "b:1 sync T2 [0.1@0 2.1@550] 0–700"],
         "follow b:1 T2: the broker at b:1 was promoted to term 2"),
        (MASTER, ["a:1 slave T1 [0.1@0 1.1@550] 0–700 follows=b:1"],
         "follow b:1 T1: the broker at a:1 has heard of a master of term 1"),
        (MASTER, ["a:1 slave T1 [0.1@0] 0–600"],
         "follow no master yet T1: the broker at a:1 has heard of a master of term 1"),
        (MASTER, ["a:1 slave T1 [0.1@0] 0–600 for=a"],
         "promise a at a:1 T1: the member a is being promoted to term 1"),
        (MASTER, ["a:1 async T1 [0.7@0 1.7@550] 0–700"],
         "stay: the broker at a:1 is of term 1, of another history by the same name (b)"),
        (MASTER, ["a:1 async T256 [0.1@0 256.1@550] 0–700"],
         "follow a:1 T256: the broker at a:1 was promoted to term 256"),
        (MASTER, ["a:1 async T257 [0.1@0 257.1@550] 0–700"],
         "stay: the broker at a:1 reports term 257, more than 256 above 0, the highest known "
         "here: it is ignored"),
        (MASTER, ["a:1 slave T4095 [0.1@0] 0–700 for=a"],
         "stay: the broker at a:1 reports term 4095, more than 256 above 0, the highest known "
         "here: it is ignored"),
        (MASTER, ["a:1 async T0 [0.1@0 0.3@550] 0–700"], RIVAL),
        (MASTER, ["a:1 async held T0 [0.1@0 0.3@550] 0–700"], RIVAL),
        # A master that waits.
        (WAITS, ["a:1 Connection refused", "c:1 no answer within 2 s"],
         "wait: no other member reports whether one of them was promoted: a:1 (Connection "
         "refused), c:1 (no answer within 2 s)" + FORCE),
        (WAITS, ["a:1 Connection refused", "c:1 slave T0 [0.1@0] 0–500"], "serve"),
        (WAITS, ["a:1 slave T0 [] 0–0"], "serve"),
        (WAITS, ["a:1 async held T1 [0.1@0 1.1@550] 0–700"],
         "follow a:1 T1: the broker at a:1 was promoted to term 1"),
        (WAITS, ["a:1 async T0 [0.1@0 0.3@550] 0–700"], RIVAL),
        (WAITS, ["a:1 async T3 [0.7@0 3.1@9] 0–700"],
         "wait: the broker at a:1 is of term 3, of another history by the same name (b)" + FORCE),
        ("async held T1 [0.1@0 1.2@500] 0–600", ["a:1 slave T1 [0.1@0 1.2@500] 0–600"],
         "wait: this log is of term 1, which is not one of the member x: promote one of the "
         "members (`stratamq replica promote`)"),
        # A master whose disk was replaced.
        ("async held new T0 [0.9@0] 0–0", ["a:1 slave T0 [0.1@0] 0–600", "c:1 slave T0 [] 0–0"],
         "wait: this log is empty, and the broker at a:1 has [0, 600): promote that one (`stratamq "
         "replica promote` there)" + FORCE),
        ("async held new T0 [0.9@0] 0–0", ["a:1 async T1 [0.1@0 1.1@600] 0–700"],
         "follow a:1 T1: the broker at a:1 was promoted to term 1"),
        ("async held new T0 [0.9@0] 0–0", ["a:1 async T0 [0.1@0 0.2@9] 0–700"],
         "follow a:1 T0: this log is empty, and the broker at a:1 is the master"),
        # It is empty, and its disk is the one that it was.
        ("async held T0 [0.9@0] 0–0", ["a:1 slave T0 [] 0–0"], "serve"),
    ],
)  # fmt: skip
def test_masters(own, others, expected):
    assert decided(own, *others) == expected


LONGER = (
    " has this log's history up to {}, and this log ends at 600: its directory was put back from a "
    "backup, or lost its end. Nothing is taken"
)


@pytest.mark.parametrize(
    ("own", "other", "longer"),
    [
        ("async {} T0 [0.1@0 0.2@600] 0–600", "a:1 slave T0 [0.1@0] 0–601", 601),
        ("async {} T0 [0.1@0] 0–600", "a:1 slave T0 [0.1@0] 0–601", 601),
        ("async {} T0 [0.1@0 0.3@600] 0–600", "a:1 slave T0 [0.1@0 0.2@500] 0–600", 600),
        ("async {} T0 [0.1@0 0.3@500] 0–600", "a:1 slave T0 [0.1@0 0.2@500] 0–550", 550),
        ("async {} T0 [0.1@0 0.2@600] 0–600", "a:1 slave T0 [0.1@0] 0–600", 0),
        # A promotion happened between: the other's further records were never acknowledged.
        ("async {} T8 [0.1@0 8.1@600] 0–600", "a:1 slave T8 [0.1@0] 0–700", 0),
        # Its own first generation, which holds nothing.
        ("async {} T0 [0.1@0] 0–600", "a:1 slave T0 [0.5@0 0.1@0] 0–600", 0),
        ("async {} T0 [0.1@0] 0–600", "a:1 slave T0 [0.7@0] 0–700", 0),
    ],
)  # fmt: skip
def test_a_master_that_has_less_of_its_own_history_than_another_takes_nothing(own, other, longer):
    for held in ("held", ""):
        first = decided(own.format(held), other)
        then = decided(own.format(f"{held} new"), other)
        if longer:
            assert first.startswith("forgot: the broker at a:1" + LONGER.format(longer))
            assert then.startswith("wait: the broker at a:1" + LONGER.format(longer))
        else:
            assert (first, then.startswith(("stay", "wait: this dir"))) == (
                "serve" if held else "stay: ", True
            )  # fmt: skip
    if longer:
        back = decided(own.format("held"), other, recovers_tail=True)
        assert back == "serve", "it takes back what it lost"
        forced = decided(own.format("held"), other, forced=True)
        assert forced.startswith("forgot"), "not for one start: only a promotion gives that up"


FOUNDS = "async held new T0 [0.1@0] 0–{}"
EMPTY = "slave new T0 [] 0–0"


@pytest.mark.parametrize(
    ("members", "end", "others", "expected"),
    [
        ("xa 1", 0, [f"a:1 {EMPTY}"], "join"),
        ("xa 1", 900, [f"a:1 {EMPTY}"], "join"),  # an older store becomes the first member
        ("xac 1", 0, [f"a:1 {EMPTY}"], "wait: this directory is new in its cluster, or was put "
         "back from a backup: 1 of the 2 other members that must be heard answer, or one of them "
         "has messages: promote that one (`stratamq replica promote` there)" + FORCE),
        ("xac 1", 0, [f"a:1 {EMPTY}", f"c:1 {EMPTY}"], "join"),
        # A message may be at m and a lost x alone, or at b, c and m: k + 1 are too few of four.
        ("xabcm 1", 0, [f"{name}:1 {EMPTY}" for name in "abc"], "wait"),
        ("xabcm 1", 0, [f"{name}:1 {EMPTY}" for name in "abcm"], "join"),
        ("xabcm 3", 0, [f"{name}:1 {EMPTY}" for name in "abcm"], "join"),
        # A message may be at m, and x and a have lost their disks: two of five may.
        ("xabcm 2", 0, [f"{name}:1 {EMPTY}" for name in "abc"], "wait"),
        ("xac 1", 0, [f"a:1 {EMPTY}", "c:1 slave T3 [] 0–0"], "follow no master yet T3: the broker "
         "at c:1 has heard of a master of term 3"),
        ("xac 1", 900, [f"a:1 {EMPTY}", "c:1 slave T0 [0.1@0] 0–8"], "wait"),
        # All were put back from one backup.
        ("xac 1", 900, ["a:1 slave new T0 [0.1@0] 0–900", "c:1 slave new T0 [0.1@0] 0–8"], "join"),
        ("xac 1", 900, ["a:1 slave new T0 [0.1@0] 0–900"], "wait"),
        ("xac 1", 900, ["a:1 slave new T0 [0.1@0] 0–901", f"c:1 {EMPTY}"], "wait"),
    ],
)  # fmt: skip
def test_a_new_master_founds_its_cluster_only_if_no_member_can_have_acknowledged_anything(
    members, end, others, expected
):
    decision = decided(FOUNDS.format(end), *others, members=members)
    assert decision == expected or (expected == "wait" and decision.startswith("wait: "))
    if expected != "wait" and "no master yet" in expected:
        return
    forced = decided(FOUNDS.format(end), *others, members=members, forced=True)
    assert forced == "join" or forced.startswith("wait: the broker at a:1 has this log's history")


def test_a_first_master_that_is_not_of_slot_0_begins_a_term_of_its_own():
    """No two members serve in one term, from the first on."""
    members = Members(1, 1, (Member(0, "a", "a:1"), Member(1, "x", "x:1")))
    own = broker("async held T0 [0.1@0] 0–0", members=members)
    others = answers("a:1 slave new T0 [] 0–0", members=members)
    assert described(decide(own, others)) == "open T1"


def test_an_operator_may_let_a_start_continue_but_not_against_a_higher_term():
    assert decided(WAITS, "a:1 Connection refused", forced=True) == "serve"
    assert decided("async held T0 [0.9@0] 0–0", "a:1 slave T0 [0.1@0] 0–6", forced=True) == "serve"
    assert decided(WAITS, "a:1 async T1 [0.1@0 1.1@550] 0–700", forced=True).startswith(
        "follow a:1"
    )


SECOND_MASTER = (
    "the broker at a:1 is not followed: it is a second master of term 0: this broker has followed "
    "another one. Demote one of the two (`stratamq replica demote`), or, if its directory was put "
    "back from a backup, stop it and mark that (`stratamq replica restored`)"
)


@pytest.mark.parametrize(
    ("own", "others", "connected", "expected"),
    [
        (SLAVE, ["m:1 async T0 [0.1@0 0.2@500] 0–600"], True, "stay: "),
        (SLAVE, ["a:1 async T0 [0.1@0 0.2@500] 0–600"], True, "stay: "),
        (SLAVE, ["a:1 async T0 [0.1@0 0.2@500] 0–600"], False,
         "follow a:1 T0: the broker at a:1 is the master of term 0"),
        (SLAVE, ["m:1 async T0 [0.1@0 0.2@500] 0–600", "a:1 sync T1 [0.1@0 1.1@550] 0–700"], True,
         "follow a:1 T1: the broker at a:1 is the master of term 1"),
        (SLAVE, ["m:1 sync T1 [0.1@0 1.1@550] 0–700", "a:1 async T0 [0.1@0] 0–600"], False,
         "stay: "),
        # Another one of the same term: never an extension of what it has.
        (SLAVE, ["a:1 async T0 [0.1@0 0.9@550] 0–700"], False, f"stay: {SECOND_MASTER}"),
        (SLAVE, ["a:1 async T0 [0.1@0 0.9@550] 0–700"], True, "stay: "),
        ("slave T0 [0.1@0 0.2@0] 0–0", ["a:1 async T0 [0.1@0 0.9@0] 0–0"], False,
         f"stay: {SECOND_MASTER}; or, if that one is the right master, start this broker with a "
         "new directory: its log is empty, but what it has heard of may hold messages elsewhere"),
        (SLAVE, ["a:1 async T0 [0.1@0 0.2@500 0.9@550] 0–700"], False,
         "follow a:1 T0: the broker at a:1 is the master of term 0"),
        (SLAVE, ["a:1 slave T4 [0.1@0 4.1@550] 0–700"], False, "stay: "),
        (SLAVE, ["a:1 async T4 [0.7@0 4.7@550] 0–700"], False,
         "stay: the broker at a:1 is of term 4, of another history by the same name (b)"),
        (SLAVE, ["a:1 async T300 [0.1@0 300.7@550] 0–700"], False,
         "stay: the broker at a:1 reports term 300, more than 256 above 0, the highest known "
         "here: it is ignored"),
        ("slave T2 [0.1@0] 0–600", ["a:1 async T1 [0.1@0 1.1@550] 0–700"], False, "stay: "),
        # Somebody is being promoted.
        (SLAVE, ["a:1 slave T1 [0.1@0 0.2@500] 0–600 for=a"], True,
         "promise a at a:1 T1: the member a is being promoted to term 1"),
        (SLAVE, ["m:1 async T0 [0.1@0 0.2@500] 0–600", "b:1 slave T1 [0.1@0] 0–500 for=a"], True,
         "promise a at a:1 T1: the member a is being promoted to term 1"),
        (SLAVE, ["b:1 slave T1 [0.1@0] 0–500 for=a", "a:1 sync T1 [0.1@0 1.1@550] 0–700"],
         True, "follow a:1 T1: the broker at a:1 is the master of term 1"),
        # A term is promised once, also when it was only heard of; it belongs to its member.
        ("slave T9 [0.1@0] 0–600 for=a", ["b:1 slave T9 [0.1@0] 0–500 for=a"], False, "stay: "),
        ("slave T9 [0.1@0] 0–600 for=b", ["a:1 slave T9 [0.1@0] 0–500 for=a"], False, "stay: "),
        ("slave T9 [0.1@0] 0–600", ["a:1 slave T9 [0.1@0] 0–500 for=a"], False,
         "promise a at a:1 T9: the member a is being promoted to term 9"),
        ("slave T9 [0.1@0 9.1@600] 0–600", ["a:1 slave T9 [0.1@0] 0–500 for=a"], False, "stay: "),
        (SLAVE, ["a:1 slave T2 [0.1@0] 0–500 for=a"], True, "stay: "),
        (SLAVE, ["a:1 slave T3 [0.7@0] 0–500 for=c"], True,
         "stay: the broker at a:1 is of term 3, of another history by the same name (b)"),
        # A master of a term that was promised to another one.
        ("slave T9 [0.1@0] 0–600 for=b", ["a:1 async T9 [0.1@0 9.1@600] 0–600"], False,
         "stay: the broker at a:1 is not followed: term 9 is promised to the member b"),
        ("slave T9 [0.1@0] 0–600 for=a", ["a:1 async T9 [0.1@0 9.1@600] 0–600"], False,
         "follow a:1 T9: the broker at a:1 is the master of term 9"),
        # Its own promise, of which it knows nothing: the directory is older.
        (SLAVE, ["a:1 slave T8 [0.1@0] 0–500 for=x"], True,
         "forgot: the broker at a:1 has promised term 8 to this member, which has no record of it: "
         "its directory is older"),
        # A term that it alone opens.
        (SLAVE, ["a:1 slave T8 [0.1@0 8.1@550] 0–700"], True,
         "forgot: the broker at a:1 is of term 8, which this member alone may have opened, and it "
         "has no record of it: its directory is older"),
        (SLAVE, ["a:1 slave T8 [0.7@0 8.1@550] 0–700"], True,
         "stay: the broker at a:1 is of term 8, of another history by the same name (b)"),
        ("slave T8 [0.1@0] 0–600", ["a:1 slave T8 [0.1@0 8.1@550] 0–700"], False, "stay: "),
        ("slave T0 [] 0–0", ["a:1 async T1 [0.7@0 1.1@550] 0–700"], False,
         "follow a:1 T1: the broker at a:1 is the master of term 1"),
    ],
)  # fmt: skip
def test_slaves(own, others, connected, expected):
    assert decided(own, *others, connected=connected) == expected


@pytest.mark.parametrize(
    ("own", "term", "expected"),
    [
        (MASTER, 1, "follow no master yet T1: the slave a:9 has followed a master of term 1"),
        (MASTER, 8, "forgot: the slave a:9 is of term 8, which this member alone may have opened, "
         "and it has no record of it: its directory is older"),
        ("async held new T0 [0.1@0] 0–600", 8,
         "follow no master yet T8: the slave a:9 has followed a master of term 8"),
    ],
)  # fmt: skip
def test_a_slave_of_a_higher_term_than_its_masters(own, term, expected):
    found = of_slaves_term(broker(own, members=among("xa 1")), term, "a:9")
    assert described(found) == expected


def test_without_members_nothing_is_promised_and_a_slave_follows_its_assigned_master():
    own = "slave T0 [0.1@0 0.2@500] 0–600 follows=m:1"
    assert decided(own, "m:1 slave T3 [0.1@0] 0–600", members="") == "stay: "
    assert decided(MASTER, "a:1 async T1 [0.1@0 1.1@550] 0–700", members="").startswith(
        "follow a:1"
    )


def test_answers_of_oneself_non_members_and_brokers_of_other_names_are_ignored():
    members = among("xa 1")
    own = broker(WAITS, members=members)
    other = broker("async T9 [0.1@0 9.1@550] 0–700", "a:1", name="another", members=members)
    non_member = broker("async T9 [0.1@0 9.1@550] 0–700", "s:1", members=members)
    heard = [PeerAnswer("me:1", own), PeerAnswer("a:1", other), PeerAnswer("s:1", non_member)]
    decision = decide(own, heard)
    assert isinstance(decision, RefuseMessages)
    assert "me:1 (not a member), a:1 (not a member), s:1 (not a member)" in decision.reason


# --- the members ---


def test_later_members_are_taken_over_from_every_member_that_has_them():
    ours, later = among("xac 1"), among("xac 1", version=3, removed="c")
    own = broker(MASTER, members=ours)
    assert described(decide(own, answers("a:1 slave T0 [0.1@0] 0–9", members=later))) == "adopt v3"
    assert described(decide(own, answers("c:1 slave T0 [0.1@0] 0–9", members=later))) == "adopt v3"
    unrelated = answers("a:1 slave T0 [0.7@0] 0–9", members=later)
    assert described(decide(own, unrelated)).startswith("stay"), "another history"
    unknown = answers("b:1 slave T0 [0.1@0] 0–9", members=among("xabc 1", version=3))
    assert described(decide(own, unknown)).startswith("stay"), "it is no member"


def test_a_removed_member_counts_for_nothing_and_takes_nothing():
    members = among("xac 1", version=2, removed="x")
    for role, then in (("async", "wait"), ("slave", "stay")):
        own = broker(f"{role} T0 [0.1@0] 0–600", members=members)
        assert described(decide(own, [])).startswith("forgot: this broker, x, was removed from its")
        own = broker(f"{role} new T0 [0.1@0] 0–600", members=members)
        assert described(decide(own, [])).startswith(
            f"{then}: this broker, x, was removed from its"
        )


def test_a_removed_member_is_promised_nothing():
    own, others = "slave T1 [0.1@0] 0–600", ("c:1 slave T9 [0.1@0] 0–600 for=a",)
    for removed, promised in (("", True), ("a", False)):
        members = among("xac 1", version=2, removed=removed)
        decision = described(
            decide(broker(own, members=members), answers(*others, members=members))
        )
        assert decision.startswith("promise a at a:1 T9") is promised, decision


def test_a_member_that_is_being_removed_is_promised_nothing_and_stops_no_master():
    leaving = among("xac 1").leaving("a")
    promised = "T9 [0.1@0 0.2@500] 0–600 for=a"

    def after(own: str, other: str) -> str:
        return described(decide(broker(own, members=leaving), answers(other, members=leaving)))

    for other in ("a:1 slave new", "c:1 slave"):
        assert after(SLAVE, f"{other} {promised}") == "stay: "
    assert after(MASTER, f"a:1 slave new {promised}") == "stay: "


def test_a_master_steps_down_when_another_has_promised_a_term_to_one_that_is_being_removed():
    """That one follows no master of a lower term, and acknowledges nothing to this one."""
    leaving = among("xac 1").leaving("a")
    promised = answers("c:1 slave T9 [0.1@0 0.2@500] 0–600 for=a", members=leaving)
    assert described(decide(broker(MASTER, members=leaving), promised)) == (
        "follow no master yet T9: the broker at c:1 has promised term 9 to the member a, which is "
        "being removed: promote another"
    )


def test_other_members_of_the_same_version_hold_a_start_and_are_reported_later():
    other = answers("a:1 slave T0 [0.1@0] 0–500", members=among("xac 2"))
    for own, then in ((WAITS, "wait"), (MASTER, "stay")):
        decision = described(decide(broker(own, members=among("xac 1")), other))
        assert decision.startswith(
            f"{then}: the broker at a:1 has other members, or another number"
        )


def test_n_and_k_change_by_one_member_at_a_time():
    members = among("xac 2")
    assert (members.count, members.quorum, members.rejoining_answers) == (3, 1, 2)
    less = members.without("c")
    assert (less.version, less.count, less.required, less.quorum) == (2, 2, 1, 1)
    again = less.admitting(less.find("c"), 2)
    assert (again.version, again.count, again.required, again.quorum) == (3, 3, 2, 1)
    assert again.find("c").since == 3
    alone = less.without("a")
    assert (alone.count, alone.required, alone.quorum, alone.rejoining_answers) == (1, 0, 1, 0)


# --- rejoining ---


def joined(own: str, *others: str, safe: int, members: str = "xac 1") -> bool:
    listed = among(members)
    joining = Joining()
    found = answers(*others, members=listed)
    return joining.has_joined(broker(own, members=listed), found, safe)


JOINS = "slave new T1 [0.1@0 1.1@550] 0–600"
LEADS = "a:1 sync T1 [0.1@0 1.1@550] 0–700 confirmed=600"
THIRD = "c:1 slave T1 [0.1@0 1.1@550] 0–700"


@pytest.mark.parametrize(
    ("own", "others", "safe", "expected"),
    [
        (JOINS, [LEADS, THIRD], 700, True),
        (JOINS, [LEADS, THIRD], 699, False),  # all that the master had, not only what it confirmed
        (JOINS, [LEADS], 700, False),
        (JOINS, [LEADS, "c:1 Connection refused"], 700, False),
        (JOINS, [LEADS, "c:1 slave T3 [0.1@0 1.1@550] 0–700 for=c"], 700, False),
        (JOINS, ["a:1 slave T1 [0.1@0 1.1@550] 0–700", THIRD], 700, False),
        (JOINS, ["a:1 sync new T1 [0.1@0 1.1@550] 0–700", THIRD], 700, False),
        ("slave new T1 [0.1@0] 0–600", [LEADS, THIRD], 700, False),  # it does not follow it yet
        ("slave new T2 [0.1@0 1.1@550] 0–700", [LEADS, THIRD], 700, False),
        ("slave T1 [0.1@0 1.1@550] 0–600", [LEADS, THIRD], 700, False),
        ("sync new T1 [0.1@0 1.1@550] 0–600", [LEADS, THIRD], 700, False),
    ],
)  # fmt: skip
def test_a_new_directory_counts_once_it_has_all_that_the_master_had_when_enough_answered(
    own, others, safe, expected
):
    assert joined(own, *others, safe=safe) is expected


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        # x and b may both have promised a term to m, which is cut off, and lost their disks.
        ([LEADS, "b:1 slave new T1 [0.1@0 1.1@550] 0–700", THIRD], False),
        ([LEADS, "b:1 slave T1 [0.1@0 1.1@550] 0–700", THIRD], True),
        ([LEADS, "b:1 slave new T1 [0.1@0] 0–0", THIRD, "m:1 slave T1 [0.1@0] 0–0"], True),
        ([LEADS, *(f"{name}:1 slave new T1 [0.1@0] 0–0" for name in "bcm")], True),  # all of them
        ([LEADS, *(f"{name}:1 slave new T1 [0.1@0] 0–0" for name in "bc")], False),
    ],
)
def test_a_directory_that_has_forgotten_is_no_witness_of_what_another_has(others, expected):
    assert joined(JOINS, *others, safe=700, members="xabcm 2") is expected


def test_a_rejoining_slave_need_not_run_after_a_master_that_continues_writing():
    members, joining = among("xac 1"), Joining()
    own = broker(JOINS, members=members)

    def heard(end: int) -> list[PeerAnswer]:
        return answers(f"a:1 sync T1 [0.1@0 1.1@550] 0–{end}", THIRD, members=members)

    assert not joining.has_joined(own, heard(700), 600)
    assert joining.has_joined(own, heard(900), 700)
    assert not joining.has_joined(own, heard(900)[:1], 900), "the third is silent: begin again"
    assert not joining.has_joined(own, heard(950), 900)


def test_a_member_that_answers_counts_only_with_the_same_members_in_force():
    own = broker(JOINS, members=among("xac 1", version=2))
    old, new = among("xac 1"), among("xac 1", version=2)
    third = answers(THIRD, members=old)
    assert not Joining().has_joined(own, [*answers(LEADS, members=new), *third], 700)


def test_a_member_needs_what_its_master_had_when_it_took_over_the_list_that_admits_it():
    """Until then the master acknowledged without it, also what came after it had connected."""
    old, new, joining = among("xac 1"), among("xac 1", version=2), Joining()
    own = broker(JOINS, members=new)
    third = answers(THIRD, members=new)
    before = answers("a:1 sync T1 [0.1@0 1.1@550] 0–600", members=old)
    assert not joining.has_joined(own, [*before, *third], 600)
    since = answers("a:1 sync T1 [0.1@0 1.1@550] 0–700", members=new)
    assert not joining.has_joined(own, [*since, *third], 600)
    assert joining.has_joined(own, [*since, *third], 700)


def test_a_member_that_answers_twice_counts_once_by_its_highest_term():
    own = broker(SLAVE, members=among("xa 1"))
    heard = answers(
        "a:1 slave T2 [0.1@0] 0–600", "a:1 slave T5 [0.1@0] 0–500", members=among("xa 1")
    )
    twice = [heard[0], replace(heard[1], peer_status=replace(heard[1].peer_status, instance=99))]
    for order in (twice, twice[::-1]):
        ((_, counted),) = usable(own, order)
        assert counted.term == 5
