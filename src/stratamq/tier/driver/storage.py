"""A storage, and procedures run on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from stratamq.tier.driver.calls import Procedure, StorageCall, Together

T = TypeVar("T")


class Storage(Protocol):
    """Performs calls: blocking, from any number of threads at once."""

    @property
    def positions(self) -> bool:
        """Whether it can write at a position of an object (`WriteAt`)."""

    def perform(self, call: StorageCall[T]) -> T:
        """The call's result, or its error. A `Together` is done one by one, as by `one_by_one`:
        who runs a procedure at once over several threads takes it apart."""

    def close(self) -> None:
        """Let go of locks and connections. No call comes after it."""


class StorageOver:
    """A storage over another one. Calls of a `Together` come to `_perform` one by one."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def positions(self) -> bool:
        return self._storage.positions

    def perform(self, call: StorageCall[T]) -> T:
        if isinstance(call, Together):
            return cast(T, one_by_one(self, call))
        return self._perform(call)

    def _perform(self, call: StorageCall[T]) -> T:
        raise NotImplementedError

    def close(self) -> None:
        self._storage.close()


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The result of one call, or its error."""

    value: Any
    error: Exception | None = None


def attempt(storage: Storage, call: StorageCall[Any]) -> CallOutcome:
    try:
        return CallOutcome(storage.perform(call))
    except Exception as error:  # noqa: BLE001 - raised again, in the procedure
        return CallOutcome(None, error)


def joined(outcomes: Sequence[CallOutcome]) -> CallOutcome:
    """Join the outcomes of a `Together` whose calls have all ended: the results, or the first
    error."""
    failed = next((outcome for outcome in outcomes if outcome.error is not None), None)
    return failed or CallOutcome([outcome.value for outcome in outcomes])


def one_by_one(storage: Storage, together: Together[T]) -> list[T]:
    """All of the calls come to their end; then the results, or the first error."""
    outcome = joined([attempt(storage, call) for call in together.calls])
    if outcome.error is not None:
        raise outcome.error
    results: list[T] = outcome.value
    return results


def run(procedure: Procedure[T], storage: Storage) -> T:
    """All of the procedure, in the caller's thread, one call after the other.

    Errors of a call are raised in the procedure, where it yielded the call.
    """
    outcome = CallOutcome(None)
    while True:
        try:
            if outcome.error is None:
                call = procedure.send(outcome.value)
            else:
                call = procedure.throw(outcome.error)
        except StopIteration as end:
            return cast(T, end.value)
        outcome = attempt(storage, call)
