"""Messages given as fields, or as complete frames, are checked a few at a time and handed over.

A call of many does not hold up the event loop: whoever makes it goes through the steps, and lets
others have their turn between two. All of a call are handed to the appender together, or, if the
log has stopped taking messages meanwhile, none.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stratamq.errors import StrataError
from stratamq_commitlog.messages import PutDone, PutResult
from stratamq_commitlog.prepare import Prepared, Refused
from stratamq_commitlog.write_gate import WriteGate

STEP_MESSAGES = 32
"""So many messages are read from a request and checked at once: each takes 20 to 40 µs."""

Obstacle = Callable[[], StrataError | None]
Outcomes = list[Prepared | PutResult]


def in_steps(
    asked: Iterable[Any],
    prepare: Callable[[Any], Prepared],
    gate: WriteGate,
    obstacle: Obstacle,
    refusal: Callable[[Outcomes], PutResult | None],
    enqueue: Callable[[Outcomes], None],
    done: PutDone,
) -> Iterator[None]:
    """`enqueue` what was prepared of `asked`, or answer all of it by `done`."""
    outcomes: Outcomes = []
    error = obstacle()
    status = gate.refuse(error) if error is not None else None
    for number, one in enumerate(asked, 1):
        if status is None:
            outcomes.append(_outcome(one, prepare))
        else:
            outcomes.append(PutResult(status, getattr(one, "topic", ""), error=error))
        if number % STEP_MESSAGES == 0:
            yield
    if status is None and (error := obstacle()) is not None:
        status = gate.refuse(error)
        outcomes = [PutResult(status, one.topic, error=error) for one in outcomes]
    refused = refusal(outcomes) if status is None else None
    if refused is not None:
        outcomes = [refused] * len(outcomes)
    if status is None and refused is None:
        enqueue(outcomes)
    else:
        done([one for one in outcomes if isinstance(one, PutResult)])


def _outcome(one: Any, prepare: Callable[[Any], Prepared]) -> Prepared | PutResult:
    try:
        return prepare(one)
    except Refused as refused:
        return PutResult(refused.status, getattr(one, "topic", ""), error=refused.error)
