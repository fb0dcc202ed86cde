"""Breadth first through every state of a scope: the shortest way to a broken promise, or none. Then
what goes wrong without a rule: the smallest scope in which the search finds it, or the steps.

Some rules are a second line behind another; they bite when that one fails too, and are switched off
together with it.
"""

import gc
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from sys import intern
from typing import Any

from stratamq_torture.protocol_model.state import RULES, Rules, Scope, State, Violation, last_term
from stratamq_torture.protocol_model.steps import NAMES, Steps, beginning
from stratamq_torture.trial import Options, Progress, Report, Trial, spread

ALL_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to. `complete`: every state of the scope was looked at. `trace`: the steps
    to the first broken promise, and `violation` which it is; empty when none is broken."""

    states: int
    complete: bool
    violation: str = ""
    trace: tuple[str, ...] = ()


def search(scope: Scope, rules: Rules = ALL_RULES, *, limit: int = 10_000_000) -> Found:
    """Look at no more than `limit` states."""
    with _uncollected():
        return _search(scope, rules, limit)


def _search(scope: Scope, rules: Rules, limit: int) -> Found:
    steps = Steps(scope, rules)
    first = beginning(scope)
    came_from: dict[State, tuple[State, str] | None] = {first: None}
    parts: dict[Any, Any] = {}

    def shared(state: State) -> State:
        """Equal parts of all states are one object: what is kept is small."""
        members = tuple(parts.setdefault(member, member) for member in state.members)
        return State(members, *(parts.setdefault(part, part) for part in state[1:]))

    waiting = deque([first])
    while waiting and len(came_from) <= limit:
        state = waiting.popleft()
        try:
            for label, following in steps.after(state):
                if following not in came_from:
                    found = shared(following)
                    came_from[found] = (state, intern(label))
                    _check(found, label)
                    waiting.append(found)
        except Violation as violation:
            rule, sentence, label = violation.args
            trace = (*_trace(came_from, state), label)
            return Found(len(came_from), False, f"{rule}: {sentence}", trace)
    return Found(len(came_from), not waiting)


def _check(state: State, label: str) -> None:
    """Every master that takes messages has what was promised in its term or in a lower one."""
    for number, member in enumerate(state.members):
        if not member.serves:
            continue
        term = last_term(member.history)
        for offset, (message, since) in enumerate(state.promised):
            if since > term or member.log[offset : offset + 1] == (message,):
                continue
            has = "another message" if offset < member.end else "nothing"
            raise Violation(
                "lost",
                f"{NAMES[number]}, master of term {term}, has {has} at {offset}, where one of term "
                f"{message.term} was promised",
                label,
            )


def replay(scope: Scope, rules: Rules, steps: Sequence[str]) -> str:
    """What these steps come to: the broken promise, "" if none is, or which step the rules do not
    allow."""
    ahead = Steps(scope, rules)
    state = beginning(scope)
    for number, wanted in enumerate(steps, 1):
        try:
            found = [after for label, after in ahead.after(state) if label == wanted]
            if not found:
                return f"step {number} cannot happen: {wanted}"
            state = found[-1]
            _check(state, wanted)
        except Violation as violation:
            rule, sentence, label = violation.args
            if label == wanted:
                return f"{rule}: {sentence}"
            raise
    return ""


def _trace(came_from: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    steps: list[str] = []
    while (before := came_from[state]) is not None:
        state, label = before
        steps.append(label)
    return steps[::-1]


@contextmanager
def _uncollected() -> Iterator[None]:
    """No state refers to a later one: there are no cycles to look for among millions of them."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


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
    Scope(4, 1, promotions=1),
    Scope(4, 2, promotions=1),
    Scope(4, 3, promotions=1),
    Scope(3, 1, promotions=1, removals=1),
    Scope(3, 1, promotions=1, removals=1, admissions=1),
    Scope(3, 1, promotions=2, admissions=1, apart=1),
    Scope(3, 2, promotions=2, admissions=1, apart=1),
)
"""Minutes."""


def check(options: Options, progress: Progress = None, scopes: Sequence[Scope] = LONG) -> Report:
    """Search the scopes. `progress` receives how many are done and how many broke a promise."""
    trial = Trial("protocol", options, progress)
    report = trial.report
    states = 0
    work = partial(_search_scope, rules=Rules().without(options.without))
    for scope, found in spread(work, trial.within(scopes), options.jobs):
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


def _search_scope(scope: Scope, rules: Rules) -> tuple[Scope, Found]:
    return scope, search(scope, rules)


@dataclass(frozen=True, slots=True)
class Counterexample:
    """`rule` switched off, with `others`, breaks `promise` in the scope; all of them but `rule` do
    not. `steps`: the way there where searching for it takes long; empty: the search finds it."""

    rule: str
    scope: Scope
    promise: str
    others: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


_RIVALS = (
    "A appends",
    "B is to be promoted to 1",
    "C promises B term 1",
    "B opens term 1",
    "B appends",
)
"""A and B have a message each that no other member has, B's of the higher term."""
_PROMOTED_IN_TURN = (
    *_RIVALS,
    "A learns of B",
    "A is to be promoted to 3",
    "C promises A term 3",
    "A opens term 3",
    "C follows A",
    "C copies from A",
    "A learns that C has 1",
    "B learns of A",
    "B is to be promoted to 4",
    "C promises B term 4",
    "B opens term 4",
)
"""A is promoted again, with C, and then B."""

_REPLACED = (
    "A appends",
    "B copies from A",
    "A learns that B has 1",
    "B is to be promoted to 1",
    "C promises B term 1",
    "B opens term 1",
    "C follows B",
    "C copies from B",
    "B appends",
    "C copies from B",
    "B learns that C has 2",
)
"""B has replaced A, which does not know it, and has acknowledged with C."""

_PROMOTED_ALONE = (
    "B takes over A's list of members",
    "A learns of B",
    "A is to be promoted to 3",
    "A opens term 3",
)

COUNTEREXAMPLES = (
    Counterexample("quorum", Scope(3, 1, promotions=1), "lost"),
    Counterexample("named_promises", Scope(3, 1, promotions=2), "term", others=("slot_terms",)),
    Counterexample("slot_terms", Scope(3, 2, promotions=2), "term"),
    Counterexample("fencing", Scope(3, 1, promotions=1), "lost"),
    Counterexample(
        "one_chain",
        Scope(2, 1, entries=2, promotions=0, restarts=1, silent_restores=1),
        "cut",
        others=("longer_history", "forgotten_generation"),
        steps=(
            "A appends",
            "B copies from A",
            "A learns that B has 1",
            "A's disk is copied",
            "A restarts",
            "A learns of B",
            "B follows A",
            "A appends",
            "B copies from A",
            "A learns that B has 2",
            "A is restored to the copy, without the command",
            "B follows A",
        ),
    ),
    Counterexample("own_promise", Scope(3, 1, promotions=2), "lost"),
    Counterexample("reach", Scope(3, 1, promotions=1), "lost"),
    Counterexample(
        "reach_of_empty",
        Scope(3, 1, promotions=3),
        "lost",
        steps=_PROMOTED_IN_TURN,
    ),
    Counterexample(
        "acknowledged_start",
        Scope(3, 1, entries=2, promotions=3),
        "lost",
        steps=(
            "A appends",
            *_PROMOTED_IN_TURN,
        ),
    ),
    Counterexample(
        "confirmed_travels",
        Scope(2, 1, promotions=1, losses=1),
        "lost",
        others=("rejoining",),
        steps=(
            "A appends",
            "B copies from A",
            "A learns that B has 1",
            "B's disk is replaced by an empty one",
            "B follows A",
            "B is to be promoted to 1",
            "B opens term 1",
        ),
    ),
    Counterexample("one_member_once", Scope(3, 2, promotions=1, reconnects=1), "lost"),
    Counterexample("rejoining", Scope(2, 1, promotions=1, losses=1), "lost"),
    Counterexample("rejoining_hears", Scope(3, 1, promotions=1, losses=1), "lost"),
    Counterexample(
        "rejoining_end",
        Scope(3, 2, promotions=2, losses=1),
        "lost",
        steps=(
            "A appends",
            "B copies from A",
            "C copies from A",
            "A learns that B has 1",
            "A learns that C has 1",
            "C is to be promoted to 2",
            "C opens term 2",
            "B's disk is replaced by an empty one",
            "B follows C",
            "B learns of A",
            "B has rejoined",
            "B is to be promoted to 4",
            "B opens term 4",
        ),
    ),
    Counterexample("longer_history", Scope(2, 1, promotions=0, silent_restores=1), "lost"),
    Counterexample(
        "forgotten_generation", Scope(2, 1, promotions=0, restarts=1, silent_restores=1), "lost"
    ),
    Counterexample("master_shows_confirmed", Scope(2, 1, promotions=1), "lost"),
    Counterexample("slave_shows_confirmed", Scope(3, 2, promotions=1), "lost"),
    Counterexample("removal_at_master", Scope(3, 1, promotions=1, deaths=1), "lost"),
    Counterexample("removal_waits", Scope(3, 1, promotions=1, deaths=1), "lost"),
    Counterexample(
        "removal_in_two",
        Scope(3, 1, entries=2, promotions=2, removals=1),
        "lost",
        steps=(*_REPLACED, "C is removed at A", *_PROMOTED_ALONE),
    ),
    Counterexample(
        "removal_heard",
        Scope(3, 1, entries=2, promotions=2, removals=1),
        "lost",
        steps=(
            *_REPLACED,
            "C is to be removed at A",
            "C is removed at A",
            *_PROMOTED_ALONE,
        ),
    ),
    Counterexample("joined_as", Scope(3, 1, promotions=1, admissions=1, apart=1), "lost"),
    Counterexample("joining_agrees", Scope(3, 1, promotions=1, admissions=1, apart=1), "lost"),
)
