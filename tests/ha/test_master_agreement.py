"""Why a master does not serve a slave, by what the slave opens with."""

from dataclasses import replace

import pytest
from stratamq_ha.history import History
from stratamq_ha.master_agreement import obstacle

from stratamq.formats.generation_number import LARGEST_TERM_STEP, make_number
from stratamq.formats.log_state import LogState
from stratamq.formats.members import configured_members
from stratamq.formats.replication_opening import SlaveOpening

FIRST = (make_number(3, 0, 7), 0)
OURS = History((FIRST,), 0, 1_000)
FACTS = LogState(
    broker_name="broker-a",
    term=3,
    member="a",
    members=configured_members([("a", "a:1"), ("b", "b:1")], 1),
)
HAS = SlaveOpening(1_000, 0, 65_536, "broker-a", (FIRST,), "b")


def of_term(term: int) -> SlaveOpening:
    return replace(HAS, generations=(FIRST, (make_number(term, 0, 8), 900)))


UNRELATED = replace(HAS, generations=((make_number(9, 0, 9), 0),))


@pytest.mark.parametrize(
    ("facts", "has", "sentence", "term", "is_longer"),
    [
        ({}, of_term(4), "the slave is at term 4", 4, False),
        ({}, of_term(3 + LARGEST_TERM_STEP), "the slave is at term", 3 + LARGEST_TERM_STEP, False),
        ({}, of_term(4 + LARGEST_TERM_STEP), "the slave is at term", None, False),
        ({}, replace(HAS, end=1_500), "history up to 1500", None, True),
        ({"rejoining": True}, HAS, "new in its cluster", None, False),
        ({"rejoining": True}, UNRELATED, "new in its cluster", None, False),
        ({"rejoining": True, "taking_back": True}, HAS, "recovers from its", None, False),
        ({"taking_back": True}, of_term(4), "recovers from its slaves", None, False),
    ],
)
def test_a_slave_is_not_served(facts, has, sentence, term, is_longer):
    found = obstacle(replace(FACTS, **facts), OURS, has)
    assert found is not None
    assert sentence in found.sentence
    assert (found.term, found.is_longer) == (term, is_longer)


@pytest.mark.parametrize(
    ("facts", "has"),
    [
        ({}, HAS),
        ({}, UNRELATED),
        ({"taking_back": True}, UNRELATED),
        ({"rejoining": True}, replace(HAS, name="another")),
        ({"term": 4}, of_term(4)),
    ],
)
def test_a_slave_is_judged_by_its_history(facts, has):
    assert obstacle(replace(FACTS, **facts), OURS, has) is None
