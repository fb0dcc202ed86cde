"""Torn messages harm no other client, and the trial reports what was promised and is not there."""

from types import SimpleNamespace

from stratamq_torture.processes import hostile
from stratamq_torture.processes.hostile import run_hostile
from stratamq_torture.trial import Options, Trial


def test_torn_messages_harm_neither_the_services_nor_an_honest_client():
    report = run_hostile(Options(4_000, 3))
    assert (report.failures, report.lost) == ([], 0)
    assert report.rounds >= 4_000 and report.acknowledged_messages > 100


def test_growth_and_ended_processes_fail_the_trial(monkeypatch):
    monkeypatch.setattr(hostile, "GROWTH_BYTES", -(1 << 40))
    report = run_hostile(Options(200, 4))
    assert "has grown by" in report.failures[0]


def test_messages_that_are_missing_fail_the_trial():
    trial = Trial("hostile", Options(), None)
    client = SimpleNamespace(log_frames=lambda start: [])
    hostile._compare(trial, client, honest=[0], acknowledged=2)
    assert trial.report.lost == 3
    assert trial.report.failures == [
        "message 0, stored at 0, is at []",
        "0 torn messages in the log, 2 promised",
    ]
