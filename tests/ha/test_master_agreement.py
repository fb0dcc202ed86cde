"""Why a master does not serve a slave, by what the slave opens with."""

from dataclasses import replace

import pytest
from stratamq_ha.history import History
from stratamq_ha.master_agreement import MasterTerms, obstacle

from stratamq.formats.generation_number import LARGEST_TERM_STEP, make_number
from stratamq.formats.replication_opening import SlaveOpening

FIRST = (make_number(3, 0, 7), 0)
OURS = History((FIRST,), 0, 1_000)
TERMS = MasterTerms(
    "broker-a", "a:1", 3, "a", has_members=True, rejoining=False, recovering_tail=False
)
HAS = SlaveOpening(1_000, 0, 65_536, "broker-a", (FIRST,), "b")


def of_term(term: int) -> SlaveOpening:
    return replace(HAS, generations=(FIRST, (make_number(term, 0, 8), 900)))


UNRELATED = replace(HAS, generations=((make_number(9, 0, 9), 0),))


@pytest.mark.parametrize(
    ("terms", "has", "sentence", "term", "is_longer"),
    [
        ({}, of_term(4), "the slave is at term 4", 4, False),
        ({}, of_term(3 + LARGEST_TERM_STEP), "the slave is at term", 3 + LARGEST_TERM_STEP, False),
        ({}, of_term(4 + LARGEST_TERM_STEP), "the slave is at term", None, False),
        ({}, replace(HAS, end=1_500), "history up to 1500", None, True),
        ({"rejoining": True}, HAS, "new in its cluster", None, False),
        ({"rejoining": True}, UNRELATED, "new in its cluster", None, False),
        ({"rejoining": True, "recovering_tail": True}, HAS, "recovers from its", None, False),
        ({"recovering_tail": True}, of_term(4), "recovers from its slaves", None, False),
    ],
)
def test_a_slave_is_not_served(terms, has, sentence, term, is_longer):
    found = obstacle(replace(TERMS, **terms), OURS, has)
    assert found is not None
    assert sentence in found.sentence
    assert (found.term, found.is_longer) == (term, is_longer)


@pytest.mark.parametrize(
    ("terms", "has"),
    [
        ({}, HAS),
        ({}, UNRELATED),
        ({"recovering_tail": True}, UNRELATED),
        ({"rejoining": True}, replace(HAS, name="another")),
        ({"term": 4}, of_term(4)),
    ],
)
def test_a_slave_is_judged_by_its_history(terms, has):
    assert obstacle(replace(TERMS, **terms), OURS, has) is None
