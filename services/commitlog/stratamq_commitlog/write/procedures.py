"""Work of several steps, written downward: a generator yields what it waits for.

    yield Flush(end)       until everything below log offset `end` is durable. UnavailableError when
                           that takes longer than the flush time-out, or when writing has ended
    yield Blocking(task)   `task()` runs on the worker; its result is sent back, its exception is
                           raised at the yield

Between two yields a procedure has the engine's thread for itself. A procedure that is under way
when the log closes is dropped where it waits.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from stratamq.errors import StrataError, UnavailableError
from stratamq.files.port import Worker
from stratamq_commitlog.write.group_commit import GroupCommit
from stratamq_commitlog.write.write_gate import WriteGate

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Flush:
    end: int


@dataclass(frozen=True, slots=True)
class Blocking:
    task: Callable[[], Any]


Step = Flush | Blocking
Procedure = Generator[Step, Any, T]
Done = Callable[[T | None, StrataError | None], None]
"""The procedure's result, or the StrataError that it ended with."""


class Procedures:
    """Runs procedures of one open log."""

    def __init__(self, commit: GroupCommit, worker: Worker, gate: WriteGate) -> None:
        self._commit = commit
        self._worker = worker
        self._gate = gate

    def run(self, procedure: Procedure[T], done: Done[T]) -> None:
        """Start it. An exception that is no StrataError is a bug, and is raised where it occurs."""
        self._resume(partial(procedure.send, None), procedure, done)

    def _resume(self, resume: Callable[[], Step], procedure: Procedure[T], done: Done[T]) -> None:
        try:
            step = resume()
        except StopIteration as end:
            done(end.value, None)
            return
        except StrataError as error:
            done(None, error)
            return
        if isinstance(step, Blocking):
            self._worker.submit(step.task, partial(self._finished, procedure, done))
        else:
            self._commit.request(step.end)
            self._commit.wait(step.end, partial(self._flushed, procedure, done))

    def _finished(
        self, procedure: Procedure[T], done: Done[T], result: Any, error: BaseException | None
    ) -> None:
        if error is None:
            self._resume(partial(procedure.send, result), procedure, done)
        else:
            self._resume(partial(procedure.throw, error), procedure, done)

    def _flushed(self, procedure: Procedure[T], done: Done[T], durable: bool | None) -> None:
        if durable:
            self._resume(partial(procedure.send, None), procedure, done)
            return
        reason = "the log's end is not on the disk yet: try again"
        if durable is None:
            reason = self._gate.stopped_reason
        self._resume(partial(procedure.throw, UnavailableError(reason)), procedure, done)
