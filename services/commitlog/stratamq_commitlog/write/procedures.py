"""Runs procedures (`steps`) of one open log: on its worker, and behind its flushes."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from stratamq.errors import StrataError, UnavailableError
from stratamq.files.port import Worker
from stratamq_commitlog.steps import Blocking, Procedure, Step
from stratamq_commitlog.write.group_commit import GroupCommit
from stratamq_commitlog.write.write_gate import WriteGate

T = TypeVar("T")
Done = Callable[[T | None, StrataError | None], None]
"""The procedure's result, or the StrataError that it ended with."""


class Procedures:
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
