"""A slave stores its master's bytes at their own offsets: who may send them, where they begin."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from stratamq.errors import NotWritableError, StrataError, UnavailableError
from stratamq.formats.generation_number import term_of
from stratamq_commitlog.appender import DataItem
from stratamq_commitlog.messages import Role

if TYPE_CHECKING:
    from stratamq_commitlog.engine import CommitLog


def append(
    engine: "CommitLog",
    generation: int,
    offset: int,
    data: bytes | memoryview,
    done: Callable[[StrataError | None], None],
    master_confirmed: int | None = None,
) -> None:
    """Whole frames of one segment at a time; `done` once they are as safe as the flush setting
    says. `master_confirmed`: how far the master has confirmed, None: it tells nothing of it; it
    may come without data."""
    shut = engine.gate.shut()
    if engine.role is not Role.SLAVE:
        done(NotWritableError("only a slave takes a master's bytes", "role"))
    elif generation != engine.generation:
        done(NotWritableError(f"the log is in generation {engine.generation}", "generation"))
    elif term_of(generation) < engine.roles.state.term:
        done(NotWritableError(_promised(engine), "term"))
    elif shut:
        done(UnavailableError(shut))
    elif not data:
        _take_confirmed(engine, master_confirmed)
        engine.advance()
        done(None)
    else:
        _take_confirmed(engine, master_confirmed)
        if not engine.segments.offsets and not engine.appender.waiting:
            _begin_at(engine, offset)
        engine.appender.enqueue(DataItem(offset, data, done, len(data)))
        engine.wake_driver()


def _take_confirmed(engine: "CommitLog", master_confirmed: int | None) -> None:
    if master_confirmed is not None:
        engine.master_confirmed.told(master_confirmed)


def _promised(engine: "CommitLog") -> str:
    state = engine.roles.state
    to = f" was promised to {state.candidate}" if state.candidate else " is known"
    return f"term {state.term}{to}: no bytes of a master of a lower term are taken"


def _begin_at(engine: "CommitLog", offset: int) -> None:
    """An empty slave's log begins where its master's bytes do: at a segment's start."""
    offsets = engine.offsets
    if offset % engine.segment_bytes == 0 and offset > offsets.appended:
        engine.hub.end_all()
        offsets.minimum = offsets.appended = offsets.flushed = offset
        offsets.confirmed = offsets.replicable = offset
        engine.appender.appended = engine.commit.flushed = offset
