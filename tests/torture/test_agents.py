"""At most one master answers, whatever agents, brokers and the election store do; with a rule
switched off two do."""

import pytest
from stratamq_torture.agents.simulation import TRIAL, Simulation
from stratamq_torture.trial import Options

OPERATIONS = 60


def test_one_master_answers_at_any_moment_and_one_leads_in_the_end():
    report = TRIAL.simulate(Options(60, 0))
    assert (report.failures, report.lost) == ([], 0)
    assert report.promotions > 100
    assert any("leads handed over" in note for note in report.notes)


def test_a_seed_does_the_same_again():
    first, again = (Simulation(3, trace=True).run(OPERATIONS) for _ in range(2))
    assert len(first.trace) > OPERATIONS
    assert first.trace == again.trace
    assert Simulation(4, trace=True).run(OPERATIONS).trace != first.trace


@pytest.mark.parametrize(
    ("rule", "seed"),
    [("lease", 0), ("silence", 2), ("sent", 19), ("watch", 3), ("ended", 114), ("less", 18)],
)
def test_a_seed_fails_without_a_rule(rule, seed):
    report = TRIAL.simulate(Options(1, seed, without=(rule,)))
    assert report.lost


@pytest.mark.parametrize("seed", range(4))
def test_no_lead_changes_in_an_hour_in_which_everything_is_slow(seed):
    outcome = Simulation(seed).run_overloaded(3_600)
    assert (outcome.violation, outcome.promotions) == (None, 0)


def test_in_such_an_hour_the_lead_changes_if_a_slow_log_is_not_able():
    outcome = Simulation(0, without=frozenset({"progress"})).run_overloaded(3_600)
    assert outcome.promotions > 0
