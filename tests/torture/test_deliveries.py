"""Messages that are delivered later survive kills; and the judge sees what it is there for."""

import math
from collections import Counter

import pytest
from stratamq_torture.processes import deliveries
from stratamq_torture.processes.deliveries import Ledger, _judge, run_deliveries
from stratamq_torture.processes.delivery_events import EVENTS, FullVolumes, MovedClocks
from stratamq_torture.trial import Options, Report

from stratamq.cli.__main__ import run

MET = {"kill": "dispatcher 1", "fill": "filled to", "promote": "master ", "clock": "clock "}


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_loses_and_repeats_nothing(event):
    if obstacle := EVENTS[event].obstacle():
        pytest.skip(obstacle)
    report = run_deliveries(Options(1, 3), event=event)
    assert report.failures == []
    assert (report.lost, report.duplicates, report.rounds) == (0, 0, 1)
    assert report.acknowledged_messages > 0
    assert report.kills > 0 or event != "kill"
    assert report.promotions == (event == "promote")
    assert MET[event] in report.notes[0]


def test_the_command_knows_its_events_and_names_what_it_has_to_leave_out(capsys, monkeypatch):
    assert run(["torture", "delivery", "--event", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*EVENTS]
    monkeypatch.setattr(FullVolumes, "obstacle", staticmethod(lambda: "needs root"))
    assert run_deliveries(Options(1, 3), event="fill").skipped == "fill needs root"
    assert run_deliveries(Options(1, 3, seconds=1e-9)).notes[-1] == "left out: fill needs root"


def test_ctrl_c_ends_the_rounds_with_a_report(monkeypatch):
    strikes = []

    def strike(trial, site):
        if strikes:
            raise KeyboardInterrupt
        strikes.append(trial)
        site.services.kill("delivery")
        site.services.start(["delivery"])

    monkeypatch.setattr(deliveries, "_strike", strike)
    report = run_deliveries(Options(3, 3), event="kill")
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


def test_what_a_former_master_handed_out_is_known_by_the_log_which_does_not_have_it():
    ledger = Ledger(acknowledged={b"a": 5.0, b"b": 5.0})
    ledger.given(b"a", 6.0, 17, one_master_since=math.inf)
    ledger.given(b"b", 6.0, 18, one_master_since=math.inf)
    ledger.recorded({18})
    assert (len(ledger.again), len(ledger.doubtful)) == (1, 1)
    assert "b'b'" in ledger.again[0]


def test_the_audits_known_defect_is_that_of_records_just_after_a_clock_was_put_back(tmp_path):
    site = MovedClocks(tmp_path)
    site.put_back.append(range(1_000, 2_000))
    early = "the message at 7 was delivered at {}, {} ms early"
    twice = "group g: offset 1 of t 0 was handed out to two workers at once: the record at {}"
    assert site.excuses(early.format(1_500, 1_900)) and site.excuses(twice.format(1_000))
    assert not site.excuses(early.format(1_500, 3_600_000))
    assert not site.excuses(early.format(2_000, 1)) and not site.excuses(twice.format(999))
    assert not site.excuses("the message at 1500 was delivered twice, again at 1600")
