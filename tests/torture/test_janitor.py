"""Nothing expires by a time that the wall clock has only just begun to show; with the rule switched
off something does."""

from stratamq_torture.janitor import TRIAL, Simulation
from stratamq_torture.trial import Options


def test_a_clock_that_jumps_within_looks_and_between_them_lets_nothing_expire_early():
    report = TRIAL.simulate(Options(40, 0))
    assert (report.failures, report.lost) == ([], 0)
    counts = dict(line.split(" times: ")[::-1] for line in report.notes)
    assert int(counts["segments deleted: expired"]) > 100
    assert int(counts["jumps of the clock"]) > 200


def test_a_seed_does_the_same_again():
    first, again = (Simulation(3, trace=True).run(30) for _ in range(2))
    assert len(first.trace) > 30
    assert first.trace == again.trace


def test_a_seed_fails_when_a_look_decides_by_another_reading_than_the_one_it_judged():
    report = TRIAL.simulate(Options(6, 11, without=("reading",)))
    assert report.lost
