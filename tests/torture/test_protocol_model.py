"""The protocol of replication and promotion, searched exhaustively, keeps its promises; without any
one of its rules the model shows how they are broken."""

from dataclasses import fields

import pytest
from stratamq_torture.protocol_model.state import RULES, Rules, Scope
from stratamq_torture.protocol_model.trial import (
    COUNTEREXAMPLES,
    SHORT,
    Counterexample,
    check,
    replay,
    search,
)
from stratamq_torture.trial import Options

MANY = 60_000


@pytest.mark.parametrize("scope", SHORT, ids=lambda scope: scope.title)
def test_no_state_of_the_protocol_breaks_a_promise(scope):
    found = search(scope)
    assert (found.violation, found.trace, found.complete) == ("", (), True)
    assert found.states > 100


@pytest.mark.parametrize("case", COUNTEREXAMPLES, ids=lambda case: case.rule)
def test_without_the_rule_a_promise_is_broken(case: Counterexample):
    rules = Rules().without((case.rule, *case.others))
    if case.steps:
        violation = replay(case.scope, rules, case.steps)
    else:
        found = search(case.scope, rules, limit=MANY)
        violation = found.violation
        assert replay(case.scope, rules, found.trace) == violation
    assert violation.partition(":")[0] == case.promise


STEPPED = [case for case in COUNTEREXAMPLES if case.steps]


@pytest.mark.parametrize("case", STEPPED, ids=lambda case: case.rule)
def test_with_the_rule_the_same_steps_break_nothing(case: Counterexample):
    outcome = replay(case.scope, Rules().without(case.others), case.steps)
    assert outcome == "" or "cannot happen" in outcome


def test_every_rule_has_a_counterexample():
    assert {case.rule for case in COUNTEREXAMPLES} == set(RULES)
    assert [each.name for each in fields(Rules)] == list(RULES)


def test_a_disk_put_back_without_the_command_is_beyond_what_the_rules_can_see():
    """It is why restoring is a command: docs/decisions/009."""
    found = search(Scope(2, 1, promotions=1, silent_restores=1))
    assert found.violation.startswith("lost")
    assert any("without the command" in step for step in found.trace)


def test_the_report_shows_the_way_to_a_loss():
    report = check(Options(without=("quorum",)), scopes=[Scope(3, 1, promotions=1)])
    assert not report.passed
    assert report.failures[0].startswith("n=3, k=1, log of 1, promotions: 1: lost: ")
    assert report.failures[-1].strip().startswith(f"{len(report.failures) - 1} ")
