"""At most one master answers, whatever agents, brokers and the election store do; with a rule
switched off two do."""

import pytest
from stratamq_torture.agents.simulation import Simulation
from stratamq_torture.agents.trial import TRIAL
from stratamq_torture.seeds import SeedsOptions

OPERATIONS = 60


def test_one_master_answers_at_any_moment_and_one_leads_in_the_end():
    report = TRIAL.simulate(SeedsOptions(seeds=60))
    assert (report.failures, report.lost) == ([], 0)
    assert report.promotions > 100


def test_a_seed_does_the_same_again():
    first, again = (Simulation(3, trace=True).run(OPERATIONS) for _ in range(2))
    assert len(first.trace) > OPERATIONS
    assert first.trace == again.trace
    assert Simulation(4, trace=True).run(OPERATIONS).trace != first.trace


@pytest.mark.parametrize(
    ("rule", "first_seed"), [("lease", 9), ("silence", 6), ("sent", 16), ("watch", 33)]
)
def test_a_seed_fails_without_a_rule(rule, first_seed):
    report = TRIAL.simulate(SeedsOptions(seeds=3, first_seed=first_seed, without=(rule,)))
    assert report.lost
