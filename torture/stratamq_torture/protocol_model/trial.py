"""Every scope of a run, spread over worker processes: one report."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from stratamq_torture.protocol_model.rules import RULES, Rules, Scope
from stratamq_torture.protocol_model.search import Found, search
from stratamq_torture.report import Report
from stratamq_torture.trial import Progress, Trial, spread

SHORT = (
    Scope(2, 1, promotions=2, restarts=1),
    Scope(2, 1, promotions=2, losses=1),
    Scope(2, 1, promotions=1, restores=1),
    Scope(2, 1, promotions=1, reconnects=1, deaths=1),
    Scope(3, 1, promotions=1, reconnects=1),
    Scope(3, 2, promotions=1, reconnects=1),
    Scope(3, 1, promotions=1, deaths=1),
    Scope(2, 1, promotions=2, admissions=1, apart=1),
    Scope(3, 1, promotions=1, admissions=1, apart=1),
    Scope(3, 2, promotions=1, admissions=1, apart=1),
)
"""Seconds."""
LONG = (
    *SHORT,
    Scope(2, 1, entries=2, promotions=2, restarts=1, reconnects=1),
    Scope(2, 1, promotions=2, restarts=1, losses=1),
    Scope(2, 1, promotions=2, restarts=1, restores=1),
    Scope(2, 1, promotions=2, restarts=1, reconnects=1, deaths=1),
    Scope(3, 1, promotions=2, reconnects=1),
    Scope(3, 2, promotions=2, reconnects=1),
    Scope(3, 1, promotions=1, restores=1),
    Scope(3, 2, promotions=1, restores=1),
    Scope(3, 1, promotions=2, deaths=1),
    Scope(3, 2, promotions=2, deaths=1),
    Scope(3, 1, entries=2, promotions=2),
    Scope(3, 2, entries=2, promotions=2),
    Scope(3, 1, promotions=3),
    Scope(3, 2, promotions=3),
    Scope(3, 1, promotions=2, restarts=1),
    Scope(3, 2, promotions=2, restarts=1),
    Scope(3, 1, promotions=2, losses=1),
    Scope(3, 2, promotions=2, losses=1),
    Scope(3, 1, promotions=1, removals=1),
    Scope(3, 1, promotions=1, removals=1, admissions=1),
    Scope(3, 1, promotions=2, admissions=1, apart=1),
    Scope(3, 2, promotions=2, admissions=1, apart=1),
)
"""Minutes."""


@dataclass(frozen=True, slots=True)
class ProtocolOptions:
    """`without`: rules that are switched off. `seconds` 0: every scope; otherwise none begins after
    that."""

    scopes: Sequence[Scope] = LONG
    without: tuple[str, ...] = ()
    jobs: int = 1
    seconds: float = 0


def check(options: ProtocolOptions, progress: Progress | None = None) -> Report:
    """Search the scopes. `progress` receives how many are done and how many broke a promise."""
    trial = Trial("protocol", options.seconds, progress)
    report = trial.report
    states = 0
    work = partial(_search, rules=Rules().without(options.without))
    for scope, found in spread(work, trial.within(options.scopes), options.jobs):
        report.rounds += 1
        states += found.states
        if found.violation:
            report.lost += 1
            report.failures.append(f"{scope.title}: {found.violation}")
            report.failures += [
                f"  {number:2d} {label}" for number, label in enumerate(found.trace, 1)
            ]
        else:
            report.notes.append(f"{scope.title}: {found.states:,} states")
        trial.count(failed=report.lost)
    off = ", ".join(f"{name} ({RULES[name]})" for name in options.without)
    report.notes.append(f"{states:,} states, {f'without {off}' if off else 'every rule in force'}")
    return trial.ended()


def _search(scope: Scope, rules: Rules) -> tuple[Scope, Found]:
    return scope, search(scope, rules)
