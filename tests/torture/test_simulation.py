"""A slice of `stratamq torture sim`: seeds pass, go through everything that matters, and replay."""

import logging

import pytest
from stratamq_torture.simulated.checks import check_log
from stratamq_torture.simulated.simulation import Operation, Simulation
from stratamq_torture.simulated.trial import (
    WORDS,
    Case,
    cases,
    enumerate_all,
    kept,
    run_case,
    run_seeds,
    run_workloads,
    shrink,
    simulate,
)
from stratamq_torture.simulated.world import EACH
from stratamq_torture.trial import Options, Tally

from stratamq.files.simulated_files import SimulatedFile

SEEDS = 60
MORE_SEEDS = 600
SEEDS_OF_A_SLICE = 60
OPERATIONS = 100


@pytest.fixture(autouse=True)
def silence():
    """The engines warn about every fault that is planned for them."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def failures(tally: Tally) -> list[str]:
    return [
        f"stratamq torture sim --seeds 1 --first-seed {outcome.seed} --operations {OPERATIONS}"
        f" --trace: {outcome.violation}"
        for outcome in tally.failed
    ]


@pytest.mark.parametrize("half", [0, 1], ids=["even", "odd"])
def test_seeds_keep_every_promise_and_come_through_every_situation(half):
    """A situation that no seed meets any more proves nothing: see `situations`. Each half of the
    seeds has its half of the situations, so that two workers share the work."""
    whole = Tally()
    missing = set(list(EACH)[half::2])
    for first in range(half, SEEDS + MORE_SEEDS, SEEDS_OF_A_SLICE):
        if first < SEEDS or missing:
            whole.add(run_seeds(range(first, first + SEEDS_OF_A_SLICE, 2), OPERATIONS))
            missing -= whole.situations.keys()
    assert failures(whole) == []
    assert not missing
    assert whole.acknowledged > 10 * whole.seeds
    assert whole.power_losses > whole.seeds
    assert whole.crash_points > whole.seeds


def test_a_seed_is_the_same_run_wherever_it_runs():
    def run(seed: int) -> list[str]:
        return Simulation(seed, trace=True).run(OPERATIONS).trace

    first = [run(seed) for seed in (3, 4)]
    assert run(4) == first[1]
    assert run(3) == first[0]
    assert first[0] != first[1]


def test_the_operations_of_a_run_replay_it():
    whole = Simulation(5, trace=True).run(OPERATIONS)
    again = Simulation(5, trace=True).replay(whole.operations)
    assert again.trace == whole.trace


def test_a_failing_run_is_shrunk_to_operations_that_fail_alike(monkeypatch):
    monkeypatch.setattr(SimulatedFile, "zero", lambda self, position, length: None)
    seeds = (Simulation(seed).run(OPERATIONS) for seed in range(200))
    failed = next(outcome for outcome in seeds if outcome.violation is not None)
    numbers = shrink(failed, replays=200)
    assert 0 < len(numbers) < len(failed.operations)
    violation = Simulation(failed.seed).replay(kept(failed, numbers)).violation
    assert violation is not None and violation.rule == failed.violation.rule


def test_a_failing_seed_is_named_with_the_command_that_shows_it(monkeypatch):
    monkeypatch.setattr(SimulatedFile, "zero", lambda self, position, length: None)
    seeds = (Simulation(seed).run(OPERATIONS) for seed in range(200))
    failed = next(outcome for outcome in seeds if outcome.violation is not None)
    options = Options(1, failed.seed, operations=OPERATIONS, trace=True)
    report = simulate(options)
    assert not report.passed
    sentence, command, *trace = report.failures
    assert sentence == f"seed {failed.seed}: {failed.violation}"
    assert f"--first-seed {failed.seed} --operations {OPERATIONS} --trace" in command
    assert "start_commitlog" in trace[0]


@pytest.mark.parametrize("seed", [8736, 8847])
def test_a_record_of_rocketmq_torn_in_its_properties_is_kept_as_rocketmq_keeps_it(seed):
    """RocketMQ is killed, then the power fails: no checksum guards what it wrote."""
    assert Simulation(seed).run(100).violation is None


def test_seeds_end_when_the_time_is_over():
    report = simulate(Options(100_000, operations=5, seconds=0.2))
    assert 0 < report.seeds < 100_000


def test_two_workers_find_what_one_finds():
    options = Options(20, 0, operations=40)
    one, two = simulate(options), simulate(Options(20, 0, operations=40, jobs=2))
    assert one.acknowledged_messages == two.acknowledged_messages > 0
    assert (one.kills, one.power_losses) == (two.kills, two.power_losses)


def test_an_operation_is_survived_at_each_of_its_crash_points():
    words = [("put",), ("put_many",), ("roll",), ("delete",), ("restart_log",), ("restart_index",)]
    tally = run_workloads(words, crashed=1)
    assert [f"{o.name}: {o.violation}" for o in tally.failed] == []
    assert tally.crash_points > 100


@pytest.mark.parametrize("first", ["put", "flush_fails", "follow_alone"])
def test_workloads_of_three_operations_are_survived(first):
    words = [(first, a, b) for a in WORDS for b in ("restart_log", "power_nothing")]
    tally = run_workloads(words, crashed=0)
    assert [f"{o.name}: {o.violation}" for o in tally.failed] == []
    assert tally.seeds == 2 * len(WORDS)


def test_each_crash_point_of_a_workload_is_a_case_of_its_own():
    found = list(cases(("put", "restart_index")))
    assert found[0] == Case(("put", "restart_index"))
    assert len(found) > 10
    assert {case.outcome for case in found[1:]} == {"dies", "nothing", "everything"}
    outcomes = [run_case(case) for case in found[1:7]]
    assert all(outcome.crash_points == 1 for outcome in outcomes)


def test_a_case_is_parsed_from_its_name_and_other_names_are_refused():
    for text in ("put", "put,restart_log@17:nothing"):
        assert str(Case.parse(text)) == text
    for wrong in ("", "putt", "put@3:sometimes", "put@x:dies"):
        with pytest.raises(ValueError):
            Case.parse(wrong)


def test_one_case_shows_its_trace():
    report = enumerate_all(Options(trace=True), case="put,restart_log@3:dies")
    assert report.passed and report.crash_points == 1
    assert any("restart_log" in line for line in report.notes)


def test_what_the_checker_looks_at_is_what_a_start_left():
    """The check is called for every start of the log, and it is this one."""
    simulation = Simulation(1)
    assert simulation.broker.on_log_started is check_log
    simulation.apply(Operation("start_commitlog", 1))
    assert simulation.broker.log_starts == 1
