"""Two and three brokers under crashes, partitions and promotions keep what they promised; with a
rule of replication switched off the same seeds see it broken."""

from dataclasses import replace

import pytest
from stratamq_commitlog.replicas import Replicas
from stratamq_ha.history import History
from stratamq_ha.promotion import Assessment
from stratamq_torture.brokers import cluster, link
from stratamq_torture.brokers.simulation import Outcome, Simulation
from stratamq_torture.brokers.trial import BrokersOptions, simulate

from stratamq.formats.replication_opening import Has, Keeps, Verdict

OPERATIONS = 100


def run(seed: int) -> Outcome:
    return Simulation(seed).run(OPERATIONS)


def test_what_was_promised_is_on_whoever_serves_and_all_logs_are_equal_in_the_end():
    report = simulate(BrokersOptions(seeds=12, first_seed=0))
    assert (report.failures, report.lost) == ([], 0)
    assert report.acknowledged_messages > 100
    assert report.promotions > 0


def test_a_seed_does_the_same_again():
    first, again = (Simulation(14, trace=True).run(OPERATIONS) for _ in range(2))
    assert len(first.trace) > OPERATIONS
    assert first.trace == again.trace
    assert Simulation(15, trace=True).run(OPERATIONS).trace != first.trace


def test_an_answer_before_enough_slaves_have_it_is_seen(monkeypatch):
    def at_once(self: Replicas, appended: int) -> int | None:
        return appended if self.known else None

    monkeypatch.setattr(Replicas, "replicated", at_once)
    violation = run(9).violation
    assert violation is not None and violation.rule == "lost"


def test_a_slave_that_keeps_another_history_is_seen(monkeypatch):
    judge = link.judge

    def blind(master: History, has: Has, **more: object) -> Keeps:
        keeps = judge(master, has, **more)
        if keeps.verdict is not Verdict.KEEP:
            return keeps
        return replace(keeps, cut_to=min(has.end, master.end))

    monkeypatch.setattr(link, "judge", blind)
    violation = run(9).violation
    assert violation is not None and violation.rule in ("slave", "equal", "lost")


@pytest.mark.parametrize("seed", [8])
def test_a_promotion_that_nobody_has_thought_about_is_seen(monkeypatch, seed):
    monkeypatch.setattr(cluster, "assess", lambda own, answers, heard: Assessment())
    assert run(seed).violation is not None


def test_an_old_master_that_does_not_step_down_is_seen(monkeypatch):
    monkeypatch.setattr(cluster.Cluster, "step_down", lambda *_: None)
    assert run(9).violation is not None
