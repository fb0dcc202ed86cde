"""A storage, and procedures run on it."""

from typing import Any, Protocol, TypeVar

from stratamq.tier.driver.calls import Call, Procedure

T = TypeVar("T")


class Storage(Protocol):
    """Performs calls: from any thread, blocking."""

    @property
    def positions(self) -> bool:
        """Whether it can write at a position of an object (`WriteAt`)."""

    def perform(self, call: Call[T]) -> T:
        """The call's result, or its error. `Together` may be done at once."""


def run(procedure: Procedure[T], storage: Storage) -> T:
    """All of the procedure, in the caller's thread.

    Errors of a call are raised in the procedure, where it yielded the call.
    """
    result: Any = None
    error: Exception | None = None
    while True:
        try:
            call = procedure.send(result) if error is None else procedure.throw(error)
        except StopIteration as end:
            return end.value
        result = error = None
        try:
            result = storage.perform(call)
        except Exception as failure:  # noqa: BLE001 - raised again, in the procedure
            error = failure
