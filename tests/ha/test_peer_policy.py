"""What a broker does when it knows how its peers stand: each case is a line of a transcript.

broker   role [held] T<term> [<generations>] minimum–end
"""

import itertools

import pytest
from stratamq_ha.peer_policy import Answer, Follow, Promise, Serve, Stay, Wait, decide
from stratamq_ha.promotion import Heard, assess, next_term

from stratamq.formats.generation_number import make_number
from stratamq.formats.replication_peers import Standing, StandingRole

ROLES = {"async": StandingRole.ASYNC_MASTER, "sync": StandingRole.SYNC_MASTER}
_instances = itertools.count(1)


def broker(text: str, address: str = "x:1", name: str = "b") -> Standing:
    """`async held T1 [0.1@0 1.1@500] 0–600 follows=y:1`: 0.1@0 is the first start of term 0, at
    log offset 0."""
    words = text.replace("[", "").replace("]", "").split()
    role = ROLES.get(words[0], StandingRole.SLAVE)
    generations, term, minimum, end, follows = [], 0, 0, 0, ""
    for word in words[1:]:
        if word.startswith("T"):
            term = int(word[1:])
        elif "@" in word:
            number, _, start = word.partition("@")
            numbered = make_number(*map(int, number.split(".")), int(number.partition(".")[2]))
            generations.append((numbered, int(start)))
        elif word.startswith("follows="):
            follows = word.removeprefix("follows=")
        elif "–" in word:
            minimum, end = map(int, word.split("–"))
    return Standing(
        next(_instances), role, "held" in words, term, minimum, end, name, "", address, follows,
        generations,
    )  # fmt: skip


def answers(*others: str) -> list[Answer]:
    """`a:1 slave T0 …`, or `a:1 Connection refused`."""
    found = []
    for text in others:
        address, _, rest = text.partition(" ")
        stands = rest.split()[0] in ("async", "sync", "slave")
        found.append(
            Answer(address, broker(rest, address)) if stands else Answer(address, None, rest)
        )
    return found


def said(own: str, *others: str, **known) -> str:
    decision = decide(broker(own), answers(*others), **known)
    if isinstance(decision, Wait):
        return f"wait: {decision.reason}"
    if isinstance(decision, Follow):
        return f"follow {decision.address or 'nobody yet'} T{decision.term}: {decision.reason}"
    if isinstance(decision, Promise):
        return f"promise {decision.address} T{decision.term}: {decision.reason}"
    if isinstance(decision, Serve):
        return "serve"
    assert isinstance(decision, Stay)
    return f"stay: {decision.problem}"


MASTER = "async T0 [0.1@0 0.2@500] 0–600"
WAITS = "async held T0 [0.1@0 0.2@500] 0–600"
FORCE = "; `stratamq replica promote --force` lets this one take messages all the same"


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
         "follow nobody yet T1: the broker at a:1 has heard of a master of term 1"),
        (MASTER, ["a:1 async T1 [0.7@0 1.7@550] 0–700"],
         "stay: the broker at a:1 is of term 1, of another history by the same name (b)"),
        (MASTER, ["a:1 async T0 [0.1@0 0.3@550] 0–700"],
         "stay: the broker at a:1 is a master of the same term 0: demote one of the two (`stratamq "
         "replica demote`)"),
        # A master that waits.
        (WAITS, ["a:1 Connection refused", "c:1 no answer within 2 s"],
         "wait: none of this master's peers says whether one of them was promoted: a:1 (Connection "
         "refused), c:1 (no answer within 2 s)" + FORCE),
        (WAITS, ["a:1 Connection refused", "c:1 slave T0 [0.1@0] 0–600"], "serve"),
        (WAITS, ["a:1 slave T0 [] 0–0"], "serve"),
        (WAITS, ["a:1 async held T0 [0.1@0 0.3@600] 0–600"], "serve"),
        (WAITS, ["a:1 async held T1 [0.1@0 1.1@550] 0–700"],
         "follow a:1 T1: the broker at a:1 was promoted to term 1"),
        (WAITS, ["a:1 async T0 [0.1@0 0.3@550] 0–700"],
         "wait: the broker at a:1 is a master of the same term 0: demote one of the two "
         "(`stratamq replica demote`)"),
        (WAITS, ["a:1 async T3 [0.7@0 3.1@9] 0–700"],
         "wait: the broker at a:1 is of term 3, of another history by the same name (b)" + FORCE),
        # A master whose disk was replaced.
        ("async held T0 [0.9@0] 0–0", ["a:1 slave T0 [0.1@0] 0–600", "c:1 slave T0 [] 0–0"],
         "wait: this log is empty, and the broker at a:1 has [0, 600): promote that one (`stratamq "
         "replica promote` there)" + FORCE),
        ("async held T0 [0.9@0] 0–0", ["a:1 async T1 [0.1@0 1.1@600] 0–700"],
         "follow a:1 T1: the broker at a:1 was promoted to term 1"),
        ("async held T0 [0.9@0] 0–0", ["a:1 async T0 [0.1@0 0.2@9] 0–700"],
         "follow a:1 T0: this log is empty, and the broker at a:1 is the master"),
        ("async held T0 [0.9@0] 0–0", ["a:1 slave T0 [] 0–0"], "serve"),
    ],
)  # fmt: skip
def test_masters(own, others, expected):
    assert said(own, *others) == expected


def test_an_operator_may_let_a_start_go_on_but_not_against_a_higher_term():
    assert said(WAITS, "a:1 Connection refused", forced=True) == "serve"
    assert said("async held T0 [0.9@0] 0–0", "a:1 slave T0 [0.1@0] 0–6", forced=True) == "serve"
    assert said(WAITS, "a:1 async T1 [0.1@0 1.1@550] 0–700", forced=True).startswith("follow a:1")


SLAVE = "slave T0 [0.1@0 0.2@500] 0–600 follows=m:1"


@pytest.mark.parametrize(
    ("own", "others", "connected", "expected"),
    [
        (SLAVE, ["m:1 async T0 [0.1@0 0.2@500] 0–600"], True, "stay: "),
        (SLAVE, ["a:1 async T0 [0.1@0 0.2@500] 0–600"], True, "stay: "),
        (SLAVE, ["a:1 async T0 [0.1@0 0.2@500] 0–600"], False,
         "follow a:1 T0: the broker at a:1 is the master of term 0"),
        (SLAVE, ["m:1 async T0 [0.1@0] 0–600", "a:1 sync T1 [0.1@0 1.1@550] 0–700"], True,
         "follow a:1 T1: the broker at a:1 is the master of term 1"),
        (SLAVE, ["m:1 sync T1 [0.1@0 1.1@550] 0–700", "a:1 async T0 [0.1@0] 0–600"], False,
         "stay: "),
        (SLAVE, ["a:1 slave T4 [0.1@0 4.1@550] 0–700"], False, "stay: "),
        (SLAVE, ["a:1 async T4 [0.7@0 4.7@550] 0–700"], False, "stay: "),
        ("slave T2 [0.1@0] 0–600", ["a:1 async T1 [0.1@0 1.1@550] 0–700"], False, "stay: "),
        # Somebody is being promoted.
        (SLAVE, ["a:1 slave T3 [0.1@0 0.2@500] 0–600 follows=a:1"], True,
         "promise a:1 T3: the broker at a:1 is being promoted to term 3"),
        (SLAVE, ["m:1 async T0 [0.1@0] 0–600", "b:1 slave T3 [0.1@0] 0–500 follows=a:1"], True,
         "promise a:1 T3: the broker at a:1 is being promoted to term 3"),
        (SLAVE, ["b:1 slave T3 [0.1@0] 0–500 follows=a:1", "a:1 sync T3 [0.1@0 3.1@550] 0–700"],
         True, "follow a:1 T3: the broker at a:1 is the master of term 3"),
        (SLAVE, ["b:1 slave T3 [0.1@0] 0–500 follows=x:1"], True, "stay: "),
        (SLAVE, ["a:1 slave T3 [0.7@0] 0–500 follows=a:1"], True, "stay: "),
        ("slave T3 [0.1@0] 0–600 follows=a:1", ["c:1 slave T3 [0.1@0] 0–500 follows=c:1"], False,
         "stay: "),
        ("slave T0 [] 0–0", ["a:1 async T1 [0.7@0 1.1@550] 0–700"], False,
         "follow a:1 T1: the broker at a:1 is the master of term 1"),
    ],
)  # fmt: skip
def test_slaves(own, others, connected, expected):
    assert said(own, *others, connected=connected) == expected


def test_oneself_and_brokers_of_other_names_say_nothing():
    own = broker(WAITS)
    other = broker("async T9 [0.1@0 9.1@550] 0–700", name="another")
    heard = [Answer("me:1", own), Answer("o:1", other)]
    decision = decide(own, heard)
    assert isinstance(decision, Wait)
    assert "me:1 (not a peer), o:1 (not a peer)" in decision.reason


# --- promotions ---


ALL_HEARD = Heard("m:1", 0, 600, 600)


def judged(own: str, *others: str, heard: Heard = ALL_HEARD, promised: int = 0) -> list[str]:
    found = assess(broker(own), answers(*others), heard, promised)
    return [f"against: {line}" for line in found.against] + found.missing


def test_a_slave_that_has_everything_is_promoted_without_a_word():
    assert judged(SLAVE, "a:1 slave T0 [0.1@0 0.2@500] 0–580") == []


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        (MASTER, [], ["against: this broker is the master already, of term 0"]),
        (WAITS, ["a:1 slave T0 [0.1@0 0.2@500] 0–600"], []),
        (SLAVE, ["m:1 sync T0 [0.1@0 0.2@500] 0–600"],
         ["against: the broker at m:1 is a master and answers: demote it first (`stratamq replica "
          "demote` there), so that nothing is lost"]),
        (SLAVE, ["a:1 slave T0 [0.1@0 0.2@500] 0–601"],
         [f"against: the broker at a:1 has more, up to 601 of generation {make_number(0, 2, 2)}: "
          "promote that one"]),
        (SLAVE, ["a:1 slave T0 [0.1@0 0.2@500 0.3@550] 0–560"],
         [f"against: the broker at a:1 has more, up to 560 of generation {make_number(0, 3, 3)}: "
          "promote that one"]),
        (SLAVE, ["a:1 async held T0 [0.1@0 0.2@500 0.4@600] 0–600"], []),
        (SLAVE, ["a:1 slave T9 [0.7@0 9.1@1] 0–900"], []),
    ],
)  # fmt: skip
def test_what_speaks_against_a_promotion(own, others, expected):
    assert judged(own, *others) == expected


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("a:1 slave T3 [0.1@0 0.2@500] 0–580 follows=x:1", []),
        ("a:1 slave T0 [0.7@0] 0–580", []),
        ("a:1 slave T0 [0.1@0 0.2@500] 0–580",
         ["against: the broker at a:1 has not promised term 3 in time: it may go on acknowledging "
          "what the old master sends"]),
        ("a:1 slave T4 [0.1@0 0.2@500] 0–580 follows=b:1",
         ["against: the broker at a:1 has promised term 4 to another: try again, if that one is "
          "not the master now"]),
        ("a:1 slave T3 [0.1@0 0.2@500] 0–601 follows=x:1",
         [f"against: the broker at a:1 has more, up to 601 of generation {make_number(0, 2, 2)}: "
          "promote that one"]),
    ],
)  # fmt: skip
def test_who_is_promoted_has_the_promise_of_all_that_answer(other, expected):
    assert judged(SLAVE, other, promised=3) == expected


def test_an_empty_log_and_a_stranger_are_not_promoted_by_mistake():
    assert judged("slave T0 [0.1@0] 0–0", heard=Heard("m:1", 0, 0, 0)) == [
        "against: this log is empty: what the lost master had would be gone"
    ]
    assert judged(SLAVE, heard=Heard("m:1", 0, 600, 600, stranger=True)) == [
        "against: this log has nothing of its master's history: it would replace it"
    ]


@pytest.mark.parametrize(
    ("own", "heard", "expected"),
    [
        (SLAVE, Heard("m:1", 0, 900, 700),
         ["the master had at least 900 bytes of log, and this one ends at 600: the last 300 bytes "
          "are on the master only"]),
        (SLAVE, Heard("m:1", 0, 600, 750),
         ["the master had at least 750 bytes of log, and this one ends at 600: the last 150 bytes "
          "are on the master only"]),
        (SLAVE, Heard("m:1"),
         ["this broker's replication service has not heard how far the master's log went: whether "
          "all of it is here is not known"]),
        ("slave T0 [0.1@0] 400–600", Heard("m:1", 100, 600, 600),
         ["the log begins at 400, and the master's began at 100: these 300 bytes were never "
          "shipped (ha.sync_from=LAST)"]),
        ("slave T0 [0.1@0] 400–600", Heard("m:1", 500, 600, 600), []),
        ("slave T0 [0.1@0] 400–600", Heard("r:1", end=600, rocketmq=True),
         ["the log begins at 400: what the master had before that is not here (a RocketMQ master "
          "ships the last segment only to a new slave)"]),
    ],
)  # fmt: skip
def test_what_will_be_missing_is_said(own, heard, expected):
    assert judged(own, heard=heard) == expected


def test_peers_that_do_not_answer_are_named():
    assert judged(SLAVE, "m:1 Connection refused", "a:1 slave T0 [0.1@0] 0–1") == [
        "m:1 did not answer: what is there, and was acknowledged there, is not known"
    ]


def test_the_term_of_a_promotion_is_higher_than_any_of_this_history():
    others = answers(
        "a:1 slave T4 [0.1@0] 0–1", "b:1 slave T3 [0.1@0] 0–1", "c:1 async T9 [0.7@0] 0–1"
    )
    assert next_term(broker(SLAVE), others) == 5
