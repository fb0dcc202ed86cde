"""Messages that are delivered later survive kills; and the judge sees what it is there for."""

from collections import Counter

from stratamq_torture.processes import deliveries
from stratamq_torture.processes.deliveries import Ledger, _judge, run_deliveries
from stratamq_torture.trial import Options, Report


def test_a_kill_loses_and_repeats_nothing():
    report = run_deliveries(Options(1, 3))
    assert report.failures == []
    assert (report.lost, report.duplicates) == (0, 0)
    assert report.kills > 0 and report.acknowledged_messages > 0


def test_ctrl_c_ends_the_rounds_with_a_report(monkeypatch):
    strikes = []

    def strike(trial, services):
        if strikes:
            raise KeyboardInterrupt
        strikes.append(trial)
        services.kill("delivery")
        services.start(["delivery"])

    monkeypatch.setattr(deliveries, "_strike", strike)
    report = run_deliveries(Options(3, 3))
    assert (report.rounds, report.kills, report.interrupted) == (1, 1, True)
    assert report.passed


def judged(ledger: Ledger, paid: list[bytes], later: list[bytes]) -> Report:
    report = Report("delivery")
    _judge(report, ledger, Counter(paid), Counter(later))
    return report


def test_each_broken_promise_is_seen():
    assert judged(Ledger(delayed={b"a"}), [], [b"a"]).passed
    assert judged(Ledger(delayed={b"a"}), [], []).lost == 1
    assert judged(Ledger(), [b"a", b"a"], []).duplicates == 1
    assert "rolled back" in judged(Ledger(rolled_back={b"a"}), [b"a"], []).failures[0]


def test_a_message_that_comes_again_is_a_fault_if_it_was_asked_for_later():
    ledger = Ledger(acknowledged={b"a": 5.0})
    ledger.given(b"a", 4.0)
    assert ledger.again == []
    ledger.given(b"a", 6.0)
    assert len(ledger.again) == 1
