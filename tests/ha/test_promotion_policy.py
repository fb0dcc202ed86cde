"""The reasons against a promotion, and what will be missing: each case is a line of a transcript
(`tests.ha.peer_statuses`)."""

import pytest
from stratamq_ha.promotion import MasterView, assess, candidate_term, reach

from stratamq.formats.generation_number import next_term, slot_of
from tests.ha.peer_statuses import SLAVE, among, answers, broker

MASTER = "async T0 [0.1@0 0.2@500] 0–600"
WAITS = "async held T0 [0.1@0 0.2@500] 0–600"
ALL_HEARD = MasterView("m:1", 0, 600, 600)


def judged(
    own: str,
    *others: str,
    heard: MasterView = ALL_HEARD,
    promised: int = 0,
    members: str = "xa 1",
    succeeds: str = "",
    asynchronous: bool = False,
) -> list[str]:
    listed = among(members)
    own_status, found_others = broker(own, members=listed), answers(*others, members=listed)
    found = assess(own_status, found_others, heard, promised, succeeds, asynchronous)
    return [f"against: {line}" for line in found.against] + found.missing


def test_a_slave_that_has_everything_is_promoted_without_a_word():
    assert judged(SLAVE, "a:1 slave T0 [0.1@0 0.2@500] 0–580") == []


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        (MASTER, [], ["against: this broker is the master already, of term 0"]),
        (WAITS, ["a:1 slave T0 [0.1@0 0.2@500] 0–600"], []),
        (SLAVE, ["a:1 sync T0 [0.1@0 0.2@500] 0–600"],
         ["against: the broker at a:1 is a master and answers: demote it first (`stratamq replica "
          "demote` there), so that nothing is lost"]),
        (SLAVE, ["a:1 slave T0 [0.1@0 0.2@500] 0–601"],
         ["against: the broker at a:1 has more, up to 601 of term 0: promote that one"]),
        (SLAVE, ["a:1 slave T0 [0.1@0 0.2@500 0.3@550] 0–560"],
         ["against: the broker at a:1 has more, up to 560 of term 0: promote that one"]),
        # A term counts when its start is reached: it was accepted, without a byte yet.
        (SLAVE, ["a:1 slave T9 [0.1@0 9.4@580] 0–580"],
         ["against: the broker at a:1 has more, up to 580 of term 9: promote that one"]),
        (SLAVE, ["a:1 slave T9 [0.1@0 9.4@590] 0–580"], []),
        # A master that was started again has begun a generation, and written nothing in it.
        (SLAVE, ["a:1 slave T0 [0.1@0 0.2@500 0.3@600] 0–600"], []),
        (SLAVE, ["a:1 slave T9 [0.7@0 9.1@1] 0–900"], []),
        # An old master that was put back from a backup counts for nothing.
        (SLAVE, ["a:1 async held new T0 [0.1@0 0.9@400] 0–700"], []),
        (SLAVE, ["a:1 slave T0 [0.1@0] 0–400 confirmed=601"],
         ["against: messages up to 601 were acknowledged, and this log ends at 600: promote one "
          "that has them"]),
        (SLAVE.replace("slave", "slave new"), [],
         ["against: this directory is new in its cluster, or was put back from a backup, and has "
          "not joined: what it promised and acknowledged is not known"]),
    ],
)  # fmt: skip
def test_the_reasons_against_a_promotion(own, others, expected):
    assert judged(own, *others) == expected


def test_what_an_async_master_alone_had_is_named_and_keeps_no_slave_from_leading():
    """Both slaves know how far the master had acknowledged; their bytes end below."""
    assert judged(
        "slave T0 [0.1@0 0.2@500] 0–600 confirmed=900",
        "a:1 slave T0 [0.1@0 0.2@500] 0–580 confirmed=900",
        asynchronous=True,
    ) == [
        "messages up to 900 were acknowledged, and this log ends at 600: only the lost "
        "ASYNC_MASTER had them"
    ]


def test_what_an_async_master_has_that_ended_its_lead_keeps_its_successor_from_leading():
    """Its successor had all of it when it offered to take over, and lost its unflushed end in a
    power failure since."""
    lines = judged(
        "slave T0 [0.1@0 0.2@500] 0–600",
        "a:1 async held T0 [0.1@0 0.2@500] 0–900 confirmed=900",
        "c:1 slave T0 [0.1@0 0.2@500] 0–600",
        members="xac 1",
        succeeds="a",
        asynchronous=True,
    )
    assert any(line.startswith("against: messages up to 900 were acknowledged") for line in lines)


def test_without_members_nothing_is_promised_by_a_promotion():
    (line,) = judged(SLAVE, members="")
    assert line.startswith("against: members are not configured (ha.members)")


@pytest.mark.parametrize(
    ("members", "others", "enough"),
    [
        # n and k; who has promised term 8 to x; whether n − k have, x itself included.
        ("xa 1", [], True),
        ("xac 1", [], False),
        ("xac 1", ["a for=x"], True),
        ("xac 1", ["a"], False),
        ("xac 1", ["a new for=x"], False),  # a disk that may have forgotten
        ("xac 1", ["a for=c"], False),
        ("xac 1", ["a T7 for=x"], False),  # of an earlier attempt
        ("xac 2", [], True),
        ("xabcm 1", ["a for=x", "b for=x"], False),
        ("xabcm 1", ["a for=x", "b for=x", "c for=x"], True),
        ("xabcm 2", ["a for=x", "b for=x"], True),
        ("xabcm 3", ["a for=x"], True),
        ("xac 0", ["a for=x"], False),
        ("xac 0", ["a for=x", "c for=x"], True),
    ],
)  # fmt: skip
def test_a_promotion_has_the_promises_of_n_minus_k_members(members, others, enough):
    found = []
    for text in others:
        name, *words = text.split()
        promise = next((w for w in words if w.startswith("for=")), "")
        role = "slave new" if "new" in words else "slave"
        term = "T7" if "T7" in words else "T8"
        found.append(f"{name}:1 {role} {term} [0.1@0 0.2@500] 0–580 {promise}")
    own = "slave T8 [0.1@0 0.2@500] 0–600 for=x"
    lines = judged(own, *found, promised=8, members=members)
    against = [line for line in lines if line.startswith("against") and " must: " in line]
    assert bool(against) is not enough
    assert bool([line for line in lines if line.startswith("only ")]) is not enough, "if forced"


@pytest.mark.parametrize(
    ("old_master", "others", "expected"),
    [
        # It has ended its lead, with a tail that it has not acknowledged.
        ("a:1 sync held T0 [0.1@0 0.2@500] 0–700", ["c:1 slave T0 [0.1@0 0.2@500] 0–600"], ""),
        ("a:1 slave T8 [0.1@0 0.2@500] 0–700 for=x", ["c:1 slave T8 [0.1@0 0.2@500] 0–600 for=x"],
         ""),
        ("a:1 sync T0 [0.1@0 0.2@500] 0–700", ["c:1 slave T0 [0.1@0 0.2@500] 0–600"],
         "is a master and answers"),
        ("a:1 sync held T0 [0.1@0 0.2@500] 0–700 confirmed=601",
         ["c:1 slave T0 [0.1@0 0.2@500] 0–600"], "messages up to 601 were acknowledged"),
        ("a:1 sync held T0 [0.1@0 0.2@500] 0–700", ["c:1 slave T0 [0.1@0 0.2@500] 0–601"],
         "the broker at c:1 has more"),
        # What it has more may be at the silent one, acknowledged: its promise is not counted.
        ("a:1 sync held T0 [0.1@0 0.2@500] 0–700", [], "1 of 3 members answer"),
        ("a:1 slave T8 [0.1@0 0.2@500] 0–700 for=x", [], "1 of 3 members promised"),
    ],
)  # fmt: skip
def test_a_master_that_has_ended_its_lead_is_succeeded_without_its_promise(
    old_master, others, expected
):
    promised = 8 if "T8" in old_master else 0
    own = f"slave T{promised} [0.1@0 0.2@500] 0–600" + (" for=x" if promised else "")
    lines = judged(own, old_master, *others, promised=promised, members="xac 1", succeeds="a")
    against = [line for line in lines if line.startswith("against")]
    assert [expected in line for line in against] == ([True] if expected else [])


def test_silent_members_are_counted_before_any_member_promises_anything():
    """The partition {a, c} and {x}: x is not promoted, and a and c are not affected."""
    (line, *_) = judged(SLAVE, "a:1 No route to host", members="xac 1")
    assert line == (
        "against: 1 of 3 members answer, and 2 must: messages that were acknowledged (PUT_OK) may "
        "be only at a (a:1), c (c:1), and silent members may continue to acknowledge for the old "
        "master"
    )
    assert judged(SLAVE, "a:1 slave T0 [0.1@0 0.2@500] 0–580", members="xac 1") == []


def test_a_promise_to_another_is_named_and_does_not_count():
    own = "slave T8 [0.1@0 0.2@500] 0–600 for=x"
    first, second, *_ = judged(own, "a:1 slave T9 [0.1@0] 0–580 for=c", promised=8, members="xac 1")
    assert first == (
        "against: the broker at a:1 has promised term 9 to c: try again, if that one is not the "
        "master now"
    )
    assert second.startswith("against: 1 of 3 members promised term 8, and 2 must")


def test_other_members_in_force_speak_against_a_promotion():
    own = broker(SLAVE, members=among("xac 1"))
    others = answers("a:1 slave T0 [0.1@0] 0–9", members=among("xac 1", version=2))
    assert any("of version 2" in line for line in assess(own, others, ALL_HEARD).against)


def test_an_empty_log_and_an_unrelated_one_are_not_promoted_by_mistake():
    assert judged("slave T0 [0.1@0] 0–0", heard=MasterView("m:1", 0, 0, 0)) == [
        "against: this log is empty: what the lost master had would be gone"
    ]
    assert judged(SLAVE, heard=MasterView("m:1", 0, 600, 600, unrelated=True)) == [
        "against: this log has nothing of its master's history: it would replace it"
    ]


@pytest.mark.parametrize(
    ("own", "heard", "expected"),
    [
        (SLAVE, MasterView("m:1", 0, 900, 700),
         ["the master had at least 900 bytes of log, and this one ends at 600: the last 300 bytes "
          "are on the master only"]),
        (SLAVE, MasterView("m:1", 0, 600, 750),
         ["the master had at least 750 bytes of log, and this one ends at 600: the last 150 bytes "
          "are on the master only"]),
        (SLAVE, MasterView("m:1"),
         ["this broker's replication service has not heard how far the master's log went: whether "
          "all of it is here is not known"]),
        ("slave T0 [0.1@0] 400–600", MasterView("m:1", 100, 600, 600),
         ["the log begins at 400, and the master's began at 100: these 300 bytes were never "
          "shipped (ha.sync_from=LAST)"]),
        ("slave T0 [0.1@0] 400–600", MasterView("m:1", 500, 600, 600), []),
        ("slave T0 [0.1@0] 400–600", MasterView("r:1", end=600, rocketmq=True),
         ["the log begins at 400: what the master had before that is not here (a RocketMQ master "
          "ships the last segment only to a new slave)"]),
    ],
)  # fmt: skip
def test_what_will_be_missing_is_reported(own, heard, expected):
    assert judged(own, heard=heard) == expected


def test_members_that_do_not_answer_are_named():
    assert judged(SLAVE, "m:1 Connection refused", "a:1 slave T0 [0.1@0] 0–1") == [
        "m:1 did not answer: what is there, and was acknowledged there, is not known"
    ]


def test_the_term_of_a_promotion_is_the_members_own_and_higher_than_any_of_this_history():
    members = among("xabc 1")
    others = answers(
        "a:1 slave T9 [0.1@0] 0–1",
        "b:1 slave T3 [0.1@0] 0–1",
        "c:1 async T90 [0.7@0] 0–1",
        members=members,
    )
    assert candidate_term(broker(SLAVE, members=members), others) == 16
    far = answers("a:1 slave T4001 [0.1@0] 0–1", members=members)
    assert candidate_term(broker(SLAVE, members=members), far) == 8, "that is not believed"
    assert candidate_term(broker(SLAVE), answers("a:1 slave T4 [0.1@0] 0–1")) == 5


def test_no_two_members_open_the_same_term():
    for known in range(40):
        terms = [next_term(known, slot) for slot in range(8)]
        assert sorted(terms) == list(range(known + 1, known + 9))
        assert [slot_of(term) for term in terms] == list(range(8))


def test_who_has_accepted_a_later_generation_reaches_further_than_who_has_more_of_an_older_one():
    accepted = broker("slave T9 [0.1@0 9.1@500] 0–500")
    behind = broker("slave T9 [0.1@0 9.1@500] 0–499")
    more = broker("slave T0 [0.1@0] 0–600")
    assert reach(accepted) > reach(more) > reach(behind)
