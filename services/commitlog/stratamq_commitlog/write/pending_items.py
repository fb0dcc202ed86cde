"""What waits to be appended, and how it is answered."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice

from stratamq.errors import BusyError, StrataError
from stratamq.formats.message_status import SendStatus
from stratamq_commitlog.messages import (
    Appended,
    BatchDone,
    BatchResult,
    FrameBatch,
    PutDone,
    PutResult,
)
from stratamq_commitlog.write.prepare import Prepared

DataDone = Callable[[StrataError | None], None]
Finish = Callable[[SendStatus, StrataError | None], None]
Commit = Callable[[int, Finish], None]
"""`commit(end, finish)`: call `finish` when everything below `end` is as safe as promised."""


@dataclass(slots=True)
class PutItem:
    """Messages of one call. `outcomes` holds a frame to append, or the refusal it already met."""

    outcomes: list[Prepared | PutResult]
    atomic: bool
    done: PutDone
    size: int
    results: list[PutResult] = field(default_factory=list)
    unwaited: set[int] = field(default_factory=set)
    """Numbers of messages whose producer does not wait until they are safe."""
    arrived_ns: int = 0

    @property
    def first_size(self) -> int:
        """How many bytes must go into one segment before anything else of it can."""
        if self.atomic:
            return self.size
        for outcome in islice(self.outcomes, len(self.results), None):
            if isinstance(outcome, Prepared):
                return len(outcome.frame)
        return 0

    def withdraw(self, start: int, error: StrataError) -> None:
        """What was placed from log offset `start` on was not written."""
        self.results = [
            result
            if result.physical_offset < start
            else PutResult(SendStatus.SERVICE_NOT_AVAILABLE, result.topic, error=error)
            for result in self.results
        ]

    def finish(self, commit: Commit) -> None:
        """Every outcome has a result: answer when those that are stored are safe."""
        stored = [
            result.physical_offset + result.size
            for number, result in enumerate(self.results)
            if self._waits(number, result)
        ]
        if not stored:
            self.done(self.results)
            return

        def finish(status: SendStatus, error: StrataError | None) -> None:
            if status is SendStatus.PUT_OK:
                self.done(self.results)
                return
            self.done(
                [
                    replace(result, status=status, error=error)
                    if self._waits(number, result)
                    else result
                    for number, result in enumerate(self.results)
                ]
            )

        commit(max(stored), finish)

    def _waits(self, number: int, result: PutResult) -> bool:
        return result.physical_offset >= 0 and number not in self.unwaited

    def refuse(self, status: SendStatus, error: StrataError, commit: Commit) -> None:
        """Answer it: nothing of it is stored but what its results name already."""
        self.results += [
            outcome
            if isinstance(outcome, PutResult)
            else PutResult(status, outcome.topic, outcome.queue_id, error=error)
            for outcome in self.outcomes[len(self.results) :]
        ]
        self.finish(commit)


@dataclass(slots=True)
class BatchItem:
    batch: FrameBatch
    done: BatchDone
    size: int
    arrived_ns: int = 0

    @property
    def first_size(self) -> int:
        return self.size

    def refuse(self, status: SendStatus, error: StrataError, commit: Commit) -> None:
        self.done(BatchResult(status, error=error))


@dataclass(slots=True)
class DataItem:
    """Bytes of a master's log: whole frames of one segment, a blank with all behind it included."""

    offset: int
    data: bytes | memoryview
    done: DataDone
    size: int
    arrived_ns: int = 0

    def refuse(self, status: SendStatus, error: StrataError, commit: Commit) -> None:
        self.done(error)


@dataclass(frozen=True, slots=True)
class AppendListener:
    """What a pass calls. `commit`: the answer of an append, once it is as safe as is required;
    `write_failed`: writing has ended."""

    commit: Commit
    appended: Callable[[Appended], None]
    write_failed: Callable[[OSError], None]


Item = PutItem | BatchItem | DataItem


def failed(what: str, error: OSError) -> str:
    """Why nothing more is written."""
    return (
        f"a {what} failed ({error.strerror or error}): nothing more is written, restart the "
        "service to recover what is on the disk"
    )


def no_segment(error: OSError) -> BusyError:
    """Why nothing can be stored although nothing is wrong with the request."""
    return BusyError(f"no new log segment could be allocated: {error.strerror or error}")
