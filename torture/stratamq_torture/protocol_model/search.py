"""Breadth first through every state of a scope: the shortest way to a broken promise, or none."""

import gc
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from stratamq_torture.protocol_model.rules import Rules, Scope
from stratamq_torture.protocol_model.state import State, Violation, last_term
from stratamq_torture.protocol_model.steps import NAMES, Steps, beginning

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
    waiting = deque([first])
    while waiting and len(came_from) <= limit:
        state = waiting.popleft()
        try:
            for label, following in steps.after(state):
                if following not in came_from:
                    came_from[following] = (state, label)
                    _check(following, label)
                    waiting.append(following)
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
